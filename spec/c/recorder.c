/* The recorder before the run: what it sees, what symbolic tensors are and are
** not, and that what was seen can be replayed with the same bits. */
#include "../support/recorder.h"
#include "tape.h"

#include "backend/backend.h"
#include "distribute/distribute.h"
#include "io/io.h"

#define FAILS(code, call) assert_int_equal(code, call)
#define SAYS(text) assert_non_null(strstr(tfd_error_message(), text))
#define RELEASE_ONE(x) tfd_release(OBJECT(x))

static tfd_tensor *floats(const int64_t *dims, int rank, double first) {
  double values[64];
  int64_t n = 1;
  tfd_tensor *t = NULL;
  int i;

  for (i = 0; i < rank; i++) n *= dims[i];
  for (i = 0; i < n; i++) values[i] = first + 0.25 * ((i * 7) % 5) - 0.4;
  OK(tfd_tensor_from_values(values, n, TFD_FLOAT32, dims, rank, &t));
  return t;
}

/* One op by name with these attributes behind its defaults. */
static tfd_tensor *run_op(const char *name, int in_n, tfd_tensor *const *in,
                          const int64_t *ints, const double *reals) {
  tfd_tensor *out[4] = {NULL};
  int op = 0;
  int n = 0;

  OK(tfd_op_find(name, &op));
  OK(tfd__run(op, in, in_n, ints, reals, out, 4, &n));
  while (n > 1) tfd__release(out[--n]);
  return out[0];
}

static void same_bits(tfd_tensor *a, tfd_tensor *b) {
  size_t bytes = tfd__view_bytes(&a->view);
  void *x = malloc(bytes);
  void *y = malloc(bytes);

  assert_true(tfd__same_shape(&a->view, &b->view));
  OK(tfd_tensor_read(a, x, bytes));
  OK(tfd_tensor_read(b, y, bytes));
  assert_memory_equal(x, y, bytes);
  free(x);
  free(y);
}

/* --- symbolic tensors ----------------------------------------------------- */

static void symbolic_tensors_know_their_shape(void **state) {
  recorder *r = recorder_new("step");
  int64_t dims[2] = {-1, 3};
  tfd_tensor *x = recorder_input(r, TFD_FLOAT32, dims, 2);

  (void)state;
  assert_int_equal(TFD_FLOAT32, tfd_tensor_dtype(x));
  assert_int_equal(2, tfd_tensor_rank(x));
  assert_int_equal(-1, tfd_tensor_dim(x, 0));
  assert_int_equal(3, tfd_tensor_dim(x, 1));
  assert_int_equal(-1, tfd_tensor_size(x));
  assert_true(tfd_tensor_is_dense(x));
  RELEASE_ONE(x);
  recorder_drop(r);
  assert_int_equal(0, recorders_alive);
}

static void symbolic_tensors_have_no_values(void **state) {
  recorder *r = recorder_new("step");
  tfd_tensor *x = recorder_input(r, TFD_FLOAT32, NULL, 0);
  tfd_variable *v = NULL;
  tfd_saver *saver = NULL;
  double value = 0.0;
  float data = 0.0f;
  void *address = NULL;

  (void)state;
  FAILS(TFD_TYPE_ERROR, tfd_tensor_item(x, 0, &value));
  SAYS("float32 {}, made at spec:7 in the function \"step\"");
  assert_non_null(strstr(tfd_error_hint(), "tf.cond"));
  FAILS(TFD_TYPE_ERROR, tfd_tensor_item(x, 5, &value));
  FAILS(TFD_TYPE_ERROR, tfd_tensor_values(x, &value, 1));
  FAILS(TFD_TYPE_ERROR, tfd_tensor_read(x, &data, 4));
  FAILS(TFD_TYPE_ERROR, tfd_tensor_data(x, &address));
  FAILS(TFD_TYPE_ERROR, tfd_tensor_wait(x));
  FAILS(TFD_TYPE_ERROR, tfd_variable_new(OBJECT(x), "v", true, NULL, &v));
  SAYS("variable: ");
  OK(tfd_saver_new(&saver));
  FAILS(TFD_TYPE_ERROR, tfd_saver_add(saver, "x", x));
  RELEASE_ONE(saver);
  RELEASE_ONE(x);
  recorder_drop(r);
}

static void they_are_inputs_under_their_recorder_only(void **state) {
  recorder *r = recorder_new("one");
  recorder *other = recorder_new("two");
  tfd_tensor *x = recorder_input(r, TFD_FLOAT64, (int64_t[]){-1}, 1);
  tfd_tensor *y = vector(2, 1.0);
  tfd_tensor *z = NULL;

  (void)state;
  FAILS(TFD_TYPE_ERROR, try_op("multiply", OBJECT(x), OBJECT(y), &z));
  SAYS("multiply: input 0, float64 {-1} made at spec:7, belongs to the "
       "function \"one\"");
  FAILS(TFD_TYPE_ERROR, try_op("identity", OBJECT(x), NULL, &z));
  record_on(other);
  FAILS(TFD_TYPE_ERROR, try_op("multiply", OBJECT(y), OBJECT(x), &z));
  SAYS("input 1");
  record_off();
  record_on(r);
  z = multiply(x, y);
  assert_int_equal(2, tfd_tensor_dim(z, 0));
  record_off();
  RELEASE_ONE(z);
  RELEASE_ONE(x);
  RELEASE_ONE(y);
  recorder_drop(r);
  recorder_drop(other);
  assert_int_equal(0, recorders_alive);
}

static void a_recorder_lives_as_long_as_its_tensors(void **state) {
  recorder *r = recorder_new("gone");
  tfd_tensor *x = recorder_input(r, TFD_FLOAT64, NULL, 0);
  double value = 0.0;

  (void)state;
  recorder_drop(r);
  assert_int_equal(1, recorders_alive);
  FAILS(TFD_TYPE_ERROR, tfd_tensor_item(x, 0, &value));
  SAYS("\"gone\"");
  RELEASE_ONE(x);
  assert_int_equal(0, recorders_alive);
}

static void what_it_leaves_alone_runs(void **state) {
  recorder *r = recorder_new("watcher");
  tfd_tensor *x = vector(3, 2.0);
  tfd_tensor *y = NULL;

  (void)state;
  r->refuses = true;
  record_on(r);
  y = multiply(x, x);
  record_off();
  assert_true(item(y) == 4.0);
  RELEASE_ONE(y);
  RELEASE_ONE(x);
  recorder_drop(r);
}

static void errors_of_arguments_are_those_of_eager_calls(void **state) {
  recorder *r = recorder_new("step");
  tfd_tensor *a = recorder_input(r, TFD_FLOAT64, (int64_t[]){-1, 3}, 2);
  tfd_tensor *b = vector(4, 1.0);
  tfd_tensor *out = NULL;
  int64_t ints[TFD_LIST_SLOTS + 1] = {1, -1};
  double zero = 0.0;
  int n = 0;

  (void)state;
  record_on(r);
  FAILS(TFD_INVALID_ARGUMENT, try_op("add", OBJECT(a), OBJECT(b), &out));
  SAYS("{-1, 3}");
  ints[TFD_LIST_SLOTS] = TFD_FLOAT32;
  FAILS(TFD_INVALID_ARGUMENT,
        tfd__run(TFD_OP_fill, NULL, 0, ints, &zero, &out, 1, &n));
  assert_int_equal(0, r->n);
  record_off();
  RELEASE_ONE(a);
  RELEASE_ONE(b);
  recorder_drop(r);
}

/* --- variables, devices, strategies --------------------------------------- */

static void writes_and_reads_keep_their_order(void **state) {
  recorder *r = recorder_new("count");
  replayed m = {0};
  tfd_tensor *one = scalar(1.0);
  tfd_variable *v = NULL;
  tfd_tensor *before = NULL;
  tfd_tensor *sum = NULL;
  tfd_tensor *after = NULL;
  int64_t version = 0;

  (void)state;
  OK(tfd_variable_new(OBJECT(one), "v", true, NULL, &v));
  version = tfd_variable_version(v);
  record_on(r);
  OK(tfd_operand_tensor(OBJECT(v), &before));
  sum = add(v, one);
  OK(tfd_variable_assign(v, OBJECT(sum)));
  OK(tfd_variable_assign_add(v, OBJECT(one)));
  OK(tfd_variable_read(v, &after));
  record_off();
  assert_true(tfd__is_symbolic(before));
  assert_true(tfd__is_symbolic(after));
  assert_true(item(v->value) == 1.0);
  assert_int_equal(version, tfd_variable_version(v));
  OK(replay(r, &m));
  OK(replay(r, &m));
  assert_true(item(v->value) == 5.0);
  assert_true(item(replay_get(&m, before->id)) == 3.0);
  assert_true(item(replay_get(&m, after->id)) == 5.0);
  replay_clear(&m);
  RELEASE_ONE(before);
  RELEASE_ONE(sum);
  RELEASE_ONE(after);
  RELEASE_ONE(one);
  RELEASE_ONE(v);
  recorder_drop(r);
}

static void copies_between_devices_are_seen(void **state) {
  recorder *r = recorder_new("copy");
  replayed m = {0};
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *s = NULL;
  tfd_tensor *y = NULL;
  tfd_tensor *z = NULL;
  tfd_device *there = NULL;
  tfd_device *at = NULL;

  (void)state;
  OK(tfd_device_find("CPU:1", &there));
  record_on(r);
  s = multiply(x, x);
  OK(tfd_tensor_to_device(s, there, &y));
  OK(tfd_tensor_to_device(x, there, &z));
  record_off();
  OK(tfd_tensor_device(y, &at));
  assert_ptr_equal(there, at);
  assert_true(tfd__is_symbolic(z));
  OK(replay(r, &m));
  OK(tfd_tensor_device(replay_get(&m, y->id), &at));
  assert_ptr_equal(there, at);
  assert_true(item(replay_get(&m, y->id)) == 9.0);
  assert_true(item(replay_get(&m, z->id)) == 3.0);
  replay_clear(&m);
  RELEASE_ONE(s);
  RELEASE_ONE(y);
  RELEASE_ONE(z);
  RELEASE_ONE(x);
  recorder_drop(r);
}

/* A reduction is recorded as the ops that it is made of. */
static void reductions_are_recorded(void **state) {
  recorder *r = recorder_new("step");
  replayed m = {0};
  tfd_strategy *s = NULL;
  tfd_device *devices[2] = {NULL, NULL};
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *y = NULL;
  tfd_tensor *there = NULL;
  tfd_value *value = NULL;
  tfd_object *sum = NULL;

  (void)state;
  OK(tfd_device_find("CPU:0", &devices[0]));
  OK(tfd_device_find("CPU:1", &devices[1]));
  OK(tfd_strategy_new("mirrored", devices, 2, NULL, &s));
  record_on(r);
  y = multiply(x, x);
  OK(tfd_tensor_to_device(x, devices[1], &there));
  OK(tfd_strategy_reduce(s, TFD_REDUCE_SUM, "reduce",
                         LIST(OBJECT(y), OBJECT(there)), 2, devices, 1, 0,
                         &value));
  record_off();
  OK(tfd_value_component(value, 0, &sum));
  assert_true(tfd__is_symbolic((tfd_tensor *)sum));
  OK(replay(r, &m));
  assert_true(item(replay_get(&m, ((tfd_tensor *)sum)->id)) == 12.0);
  replay_clear(&m);
  RELEASE(sum, value, there, y, x, s);
  recorder_drop(r);
}

/* A sum that is kept for later reads must not be a symbolic one. */
static void combined_copies_are_not_kept(void **state) {
  recorder *r = recorder_new("step");
  replayed m = {0};
  tfd_strategy *s = NULL;
  tfd_device *devices[2] = {NULL, NULL};
  tfd_tensor *x = scalar(1.5);
  tfd_object *v = NULL;
  tfd_tensor *traced = NULL;
  tfd_tensor *sum = NULL;

  (void)state;
  OK(tfd_device_find("CPU:0", &devices[0]));
  OK(tfd_device_find("CPU:1", &devices[1]));
  OK(tfd_strategy_new("mirrored", devices, 2, NULL, &s));
  OK(tfd_strategy_variable(s, OBJECT(x), "v", false,
                           TFD_SYNCHRONIZATION_ON_READ, TFD_AGGREGATION_SUM,
                           &v));
  record_on(r);
  OK(tfd_mirrored_read((tfd_mirrored *)v, &traced));
  record_off();
  assert_true(tfd__is_symbolic(traced));
  OK(tfd_mirrored_read((tfd_mirrored *)v, &sum));
  assert_true(item(sum) == 3.0);
  OK(replay(r, &m));
  assert_true(item(replay_get(&m, traced->id)) == 3.0);
  replay_clear(&m);
  RELEASE(traced, sum, v, s, x);
  recorder_drop(r);
}

/* --- replays -------------------------------------------------------------- */

typedef struct net {
  tfd_variable *w;
  tfd_variable *b;
} net;

static net net_new(void) {
  net n = {NULL, NULL};
  tfd_tensor *w = floats((int64_t[]){3, 5}, 2, 0.1);
  tfd_tensor *b = floats((int64_t[]){5}, 1, 0.3);

  OK(tfd_variable_new(OBJECT(w), "w", true, NULL, &n.w));
  OK(tfd_variable_new(OBJECT(b), "b", true, NULL, &n.b));
  RELEASE_ONE(w);
  RELEASE_ONE(b);
  return n;
}

static void descend(tfd_variable *v, tfd_object *grad) {
  int op = 0;

  OK(tfd_op_find("update_sgd", &op));
  OK(tfd_variables_update(&v, 1, op, LIST(grad, NULL), 2, NULL, 0,
                          (double[]){0.01, 0.125}, 2));
}

/* A step of training; returns the loss. */
static tfd_tensor *train(net *n, tfd_tensor *x) {
  int64_t flags[4] = {0};
  int64_t all[TFD_LIST_SLOTS + 1] = {-1};
  tfd_tape *tape = tape_new(false);
  tfd_tensor *a =
      run_op("matmul", 2, (tfd_tensor *[]){x, n->w->value}, flags, NULL);
  tfd_tensor *b = add(a, n->b);
  tfd_tensor *c = op2("relu", b, NULL);
  tfd_tensor *d = multiply(c, c);
  tfd_tensor *loss = run_op("reduce_mean", 1, &d, all, NULL);
  tfd_walk *w = NULL;
  tfd_object *dw = NULL;
  tfd_object *db = NULL;

  OK(tfd_walk_begin(tape, LIST(OBJECT(loss)), 1,
                    LIST(OBJECT(n->w), OBJECT(n->b)), 2, NULL, 0, false, &w));
  assert_int_equal(TFD_WALK_DONE, next(w));
  dw = result(w, 0);
  db = result(w, 1);
  descend(n->w, dw);
  descend(n->b, db);
  RELEASE(a, b, c, d, dw, db, w, tape);
  return loss;
}

static void a_step_of_training_replays_with_the_same_bits(void **state) {
  recorder *r = recorder_new("train");
  replayed m = {0};
  net eager = net_new();
  net traced = net_new();
  int64_t dims[2] = {4, 3};
  tfd_tensor *input = recorder_input(r, TFD_FLOAT32, dims, 2);
  tfd_tensor *loss = NULL;
  int step;

  (void)state;
  record_on(r);
  loss = train(&traced, input);
  record_off();
  for (step = 0; step < 3; step++) {
    tfd_tensor *x = floats(dims, 2, 0.5 * step);
    tfd_tensor *want = train(&eager, x);

    replay_put(&m, input->id, x);
    OK(replay(r, &m));
    same_bits(want, replay_get(&m, loss->id));
    same_bits(eager.w->value, traced.w->value);
    same_bits(eager.b->value, traced.b->value);
    RELEASE_ONE(want);
    replay_clear(&m);
  }
  RELEASE(input, loss, eager.w, eager.b, traced.w, traced.b);
  recorder_drop(r);
  assert_int_equal(0, recorders_alive);
}

static tfd_tensor *value_and_slope(const char *name, tfd_tensor *x,
                                   tfd_tensor **slope_p) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *y = NULL;

  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = strchr(name, '2') != NULL ? op2(name, x, x) : op2(name, x, NULL);
  *slope_p = (tfd_tensor *)gradient(tape, y, x);
  RELEASE(tape);
  return y;
}

/* Ops of one input without attributes, and their gradients. */
static void ops_and_gradients_replay_with_the_same_bits(void **state) {
  static const char *const names[] = {
      "abs",     "acos", "asinh",    "atan",     "atanh",    "cos",  "cosh",
      "digamma", "elu",  "erf",      "exp",      "expm1",    "gelu", "lgamma",
      "log1p",   "neg",  "negative", "relu",     "relu6",    "selu", "sigmoid",
      "sign",    "sin",  "sinh",     "softplus", "softsign", "sqrt", "square",
      "swish",   "tan",  "tanh",     "atan2"};
  size_t i;
  int done = 0;

  (void)state;
  for (i = 0; i < sizeof names / sizeof names[0]; i++) {
    int64_t dims[2] = {3, 4};
    tfd_tensor *x = NULL;
    tfd_tensor *slope = NULL;
    tfd_tensor *value = NULL;
    recorder *r = NULL;
    replayed m = {0};
    tfd_tensor *input = NULL;
    tfd_tensor *s = NULL;
    tfd_tensor *y = NULL;
    int op = 0;

    if (tfd_op_find(names[i], &op) != TFD_OK) continue;
    if (tfd__op_at(op)->ints_n + tfd__op_at(op)->reals_n > 0) continue;
    done++;
    x = floats(dims, 2, 0.0);
    value = value_and_slope(names[i], x, &slope);
    r = recorder_new(names[i]);
    input = recorder_input(r, TFD_FLOAT32, dims, 2);
    record_on(r);
    y = value_and_slope(names[i], input, &s);
    record_off();
    replay_put(&m, input->id, x);
    OK(replay(r, &m));
    same_bits(value, replay_get(&m, y->id));
    if (slope != NULL) same_bits(slope, replay_get(&m, s->id));
    replay_clear(&m);
    RELEASE(value, input, y);
    tfd__release(slope);
    tfd__release(s);
    recorder_drop(r);
  }
  assert_true(done >= 24);
}

static void gradients_need_sizes_that_are_known(void **state) {
  recorder *r = recorder_new("step");
  tfd_tensor *x = recorder_input(r, TFD_FLOAT64, (int64_t[]){-1, 3}, 2);
  tfd_tape *tape = tape_new(false);
  tfd_tensor *y = NULL;
  tfd_walk *w = NULL;
  tfd_tensor *one = vector(3, 1.0);

  (void)state;
  record_on(r);
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  FAILS(TFD_NOT_IMPLEMENTED,
        tfd_walk_begin(tape, LIST(OBJECT(y)), 1, LIST(OBJECT(x)), 1, NULL, 0,
                       false, &w));
  SAYS("{-1, 3}");
  record_off();
  RELEASE(x, y, tape, one);
  recorder_drop(r);
}

/* --- sizes that are not known --------------------------------------------- */

typedef struct rule {
  const char *op;
  int in_n;
  const char *in[3]; /* "?" is unknown, "-" a scalar */
  int64_t ints[3 * TFD_LIST_SLOTS];
  const char *out;
} rule;

#define LIST_1(a) 1, a, 0, 0, 0, 0, 0, 0, 0
#define LIST_2(a, b) 2, a, b, 0, 0, 0, 0, 0, 0

/* TensorFlow's static shapes of the same calls. */
static const rule rules[] = {
    {"add", 2, {"? 3", "3"}, {0}, "? 3"},
    {"add", 2, {"?", "4"}, {0}, "4"},
    {"add", 2, {"?", "1"}, {0}, "?"},
    {"add", 2, {"?", "?"}, {0}, "?"},
    {"add", 2, {"? 1", "2 ?"}, {0}, "2 ?"},
    {"add", 2, {"? ?", "-"}, {0}, "? ?"},
    {"matmul", 2, {"? 4", "4 5"}, {0}, "? 5"},
    {"matmul", 2, {"3 ?", "4 ?"}, {0}, "3 ?"},
    {"matmul", 2, {"7 ? 4", "? 4 5"}, {0}, "7 ? 5"},
    {"reshape", 1, {"? 4"}, {LIST_2(-1, 2)}, "? 2"},
    {"reshape", 1, {"? 4"}, {LIST_1(8)}, "8"},
    {"reshape", 1, {"? ?"}, {LIST_2(3, -1)}, "3 ?"},
    {"transpose", 1, {"? 4"}, {-1}, "4 ?"},
    {"concat", 2, {"? 4", "3 ?"}, {0}, "? 4"},
    {"concat", 2, {"2 ?", "3 4"}, {0}, "5 4"},
    {"stack", 2, {"? 4", "3 ?"}, {0}, "2 3 4"},
    {"slice", 1, {"? 4"}, {LIST_2(1, 1), LIST_2(-1, 2)}, "? 2"},
    {"split", 1, {"? 4"}, {2, 0}, "? 4"},
    {"tile", 1, {"? 4"}, {LIST_2(2, 3)}, "? 12"},
    {"tile", 1, {"? 4"}, {LIST_2(0, 1)}, "0 4"},
    {"reduce_sum", 1, {"? 4"}, {LIST_1(0), 0}, "4"},
    {"reduce_sum", 1, {"? 4"}, {LIST_1(1), 1}, "? 1"},
    {"reduce_sum", 1, {"? ?"}, {-1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "-"},
    {"expand_dims", 1, {"? 4"}, {1}, "? 1 4"},
    {"squeeze", 1, {"? 4"}, {LIST_1(0)}, "4"},
    {"softmax_cross_entropy", 2, {"? 10", "5 ?"}, {0}, "5"},
    {"bias_add", 2, {"? ?", "6"}, {0}, "? 6"},
    {"cholesky", 1, {"? 3 ?"}, {0}, "? 3 3"},
    {"cross", 2, {"? 3", "2 ?"}, {0}, "2 3"},
    {"add_n", 3, {"? 3", "2 ?", "? ?"}, {0}, "2 3"},
};

static int parse_dims(const char *text, int64_t *dims) {
  int rank = 0;

  while (*text != '\0' && *text != '-') {
    dims[rank++] = *text == '?' ? -1 : strtol(text, NULL, 10);
    while (*text != '\0' && *text != ' ') text++;
    if (*text == ' ') text++;
  }
  return rank;
}

static void known_sizes_go_as_far_as_in_tensorflow(void **state) {
  size_t k;

  (void)state;
  for (k = 0; k < sizeof rules / sizeof rules[0]; k++) {
    const rule *c = &rules[k];
    recorder *r = recorder_new("shapes");
    tfd_tensor *in[3] = {NULL};
    tfd_tensor *out = NULL;
    int64_t dims[TFD_MAX_RANK];
    int rank = 0;
    int i;

    for (i = 0; i < c->in_n; i++) {
      rank = parse_dims(c->in[i], dims);
      in[i] = recorder_input(r, TFD_FLOAT32, dims, rank);
    }
    record_on(r);
    out = run_op(c->op, c->in_n, in, c->ints, NULL);
    record_off();
    rank = parse_dims(c->out, dims);
    if (out->view.rank != rank ||
        (rank > 0 && memcmp(dims, out->view.dims, (size_t)rank * 8) != 0)) {
      char text[TFD_SHAPE_TEXT];

      fail_msg("%s %s: got %s, expected %s", c->op, c->in[0],
               tfd__shape_text(&out->view, text), c->out);
    }
    RELEASE_ONE(out);
    for (i = 0; i < c->in_n; i++) RELEASE_ONE(in[i]);
    recorder_drop(r);
  }
}

static const rule contradictions[] = {
    {"add", 2, {"? 3", "? 4"}, {0}, NULL},
    {"matmul", 2, {"? 4", "5 ?"}, {0}, NULL},
    {"reshape", 1, {"? 3"}, {LIST_1(4)}, NULL},
    {"concat", 2, {"? 4", "? 5"}, {0}, NULL},
    {"stack", 3, {"? 4", "2 4", "3 ?"}, {0}, NULL},
    {"slice", 1, {"? 4"}, {LIST_2(0, 3), LIST_2(1, 2)}, NULL},
    {"squeeze", 1, {"? 4"}, {LIST_1(1)}, NULL},
    {"add_n", 3, {"? 3", "2 ?", "4 ?"}, {0}, NULL},
    {"cholesky", 1, {"? 3 4"}, {0}, NULL},
    {"unstack", 1, {"? 4"}, {-1, 0}, NULL},
};

static void contradictions_are_errors_still(void **state) {
  size_t k;

  (void)state;
  for (k = 0; k < sizeof contradictions / sizeof contradictions[0]; k++) {
    const rule *c = &contradictions[k];
    recorder *r = recorder_new("shapes");
    tfd_tensor *in[3] = {NULL};
    tfd_tensor *out[4] = {NULL};
    int64_t dims[TFD_MAX_RANK];
    int op = 0;
    int n = 0;
    int i;

    for (i = 0; i < c->in_n; i++) {
      int rank = parse_dims(c->in[i], dims);

      in[i] = recorder_input(r, TFD_FLOAT32, dims, rank);
    }
    OK(tfd_op_find(c->op, &op));
    record_on(r);
    if (tfd__run(op, in, c->in_n, c->ints, NULL, out, 4, &n) == TFD_OK) {
      fail_msg("%s %s passes", c->op, c->in[0]);
    }
    record_off();
    for (i = 0; i < c->in_n; i++) RELEASE_ONE(in[i]);
    recorder_drop(r);
  }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, count_before, count_after)
  const struct CMUnitTest tests[] = {
      TEST(symbolic_tensors_know_their_shape),
      TEST(symbolic_tensors_have_no_values),
      TEST(they_are_inputs_under_their_recorder_only),
      TEST(a_recorder_lives_as_long_as_its_tensors),
      TEST(what_it_leaves_alone_runs),
      TEST(errors_of_arguments_are_those_of_eager_calls),
      TEST(writes_and_reads_keep_their_order),
      TEST(copies_between_devices_are_seen),
      TEST(reductions_are_recorded),
      TEST(combined_copies_are_not_kept),
      TEST(a_step_of_training_replays_with_the_same_bits),
      TEST(ops_and_gradients_replay_with_the_same_bits),
      TEST(gradients_need_sizes_that_are_known),
      TEST(known_sizes_go_as_far_as_in_tensorflow),
      TEST(contradictions_are_errors_still),
  };

  if (tfd_config_set_cpu_devices(2) != TFD_OK) return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
