/* Joints that begin in parts while the programs before them go on: what is
** there when, on one device and on two, and what is given up when something
** fails. The order is that of the calls, which run at once here. */
#include "tape.h"

#include "graph/graph.h"

enum { N = 8, PARTS = 2 };

typedef struct logged {
  tfd__joint joint;
  int part_of[PARTS];
  tfd_variable *last; /* what the program writes at its end */
  int fails;          /* this part; -1 = none */
  int begun;
  int runs;
  int drops;
  double values[PARTS];  /* of what each part takes, as it begins */
  double written[PARTS]; /* of the variable then */
} logged;

static double first_of(const tfd_tensor *t) {
  return ((const double *)t->view.data)[0];
}

static int begin_part(tfd__joint *self, int part, tfd_tensor *const *in) {
  logged *l = (logged *)self;

  assert_int_equal(l->begun, part);
  assert_int_equal(0, l->runs);
  if (part == l->fails) return tfd__fail(TFD_UNAVAILABLE, "part %d", part);
  l->values[part] = first_of(in[PARTS - 1 - part]);
  l->written[part] = first_of(l->last->value);
  l->begun++;
  return TFD_OK;
}

static int run_rest(tfd__joint *self, tfd_tensor *const *in,
                    const double *reals, tfd_tensor **out) {
  logged *l = (logged *)self;

  (void)in;
  (void)reals;
  (void)out;
  l->runs++;
  return TFD_OK;
}

static void drop(tfd__joint *self) {
  ((logged *)self)->drops++;
}

static void log_destroy(void *self) {
  (void)self;
}

static const tfd__type log_type = {.name = "log", .destroy = log_destroy};

static tfd_tensor *square_matrix(double value) {
  const int64_t dims[2] = {N, N};
  double list[N * N];
  tfd_tensor *t = NULL;
  int i;

  for (i = 0; i < N * N; i++) list[i] = value;
  OK(tfd_tensor_from_values(list, N * N, TFD_FLOAT64, dims, 2, &t));
  return t;
}

static tfd_tensor *product(tfd_tensor *a, tfd_tensor *b) {
  const int64_t as_they_are[4] = {0};
  tfd_tensor *t = NULL;
  int op = 0;
  int n = 0;

  OK(tfd_op_find("matmul", &op));
  OK(tfd_op_run(op, LIST(OBJECT(a), OBJECT(b)), 2, as_they_are, 4, NULL, 0, &t,
                1, &n));
  return t;
}

static void log_init(logged *l, int parts) {
  *l = (logged){.part_of = {1, 0}, .fails = -1};
  tfd__object_init(&l->joint.object, &log_type);
  l->joint.name = "log";
  l->joint.parts_n = parts;
  l->joint.part_of = l->part_of;
  l->joint.run = run_rest;
  l->joint.begin = begin_part;
  l->joint.drop = drop;
}

/* a = x x is part 0, b = a x part 1, and then v += b x. */
static tfd_graph *make(logged *l) {
  const int64_t dims[2] = {N, N};
  tfd__recorder *recorder = NULL;
  tfd_tensor *in[PARTS];
  tfd_tensor *x = NULL;
  tfd_tensor *a = NULL;
  tfd_tensor *b = NULL;
  tfd_tensor *c = NULL;
  tfd_graph *g = NULL;

  OK(tfd_graph_new("parts", &g));
  OK(tfd_graph_input(g, TFD_FLOAT64, dims, 2, NULL, &x));
  OK(tfd_graph_begin(g));
  a = product(x, x);
  b = product(a, x);
  c = product(b, x);
  OK(tfd_variable_assign_add(l->last, OBJECT(c)));
  in[0] = b;
  in[1] = a;
  recorder = tfd__context()->recorder;
  tfd__retain(&l->joint);
  OK(recorder->join(recorder, &l->joint, in, PARTS, NULL, 0, NULL, NULL));
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(c)), 1));
  RELEASE(c, b, a, x);
  return g;
}

static int call(tfd_graph *g, tfd_tensor *x, double *result) {
  tfd_tensor *y = NULL;
  int rc = tfd_graph_start(g, &x, 1, NULL, 0, NULL, 0);

  if (rc != TFD_OK) return rc;
  OK(tfd_graph_result(g, 0, &y));
  OK(tfd_graph_stop(g));
  *result = first_of(y);
  tfd_release(OBJECT(y));
  return TFD_OK;
}

static void set_up(logged *l, int parts, tfd_graph **g_p, tfd_tensor **x_p) {
  tfd_tensor *zero = square_matrix(0);

  log_init(l, parts);
  OK(tfd_variable_new(OBJECT(zero), "v", true, NULL, &l->last));
  *g_p = make(l);
  *x_p = square_matrix(1);
  tfd_release(OBJECT(zero));
}

static void tear_down(logged *l, tfd_graph *g, tfd_tensor *x) {
  RELEASE(x, g, l->last);
  tfd__release(&l->joint);
}

static void a_part_begins_before_the_rest_runs(void **state) {
  logged l;
  tfd_graph *g = NULL;
  tfd_tensor *x = NULL;
  double result = 0;
  int i;

  (void)state;
  set_up(&l, PARTS, &g, &x);
  for (i = 0; i < 3; i++) {
    l.begun = l.runs = 0;
    OK(call(g, x, &result));
    assert_int_equal(PARTS, l.begun);
    assert_int_equal(1, l.runs);
    assert_int_equal(0, l.drops);
    assert_true(l.values[0] == N && l.values[1] == N * N);
    /* The variable is written behind both. */
    assert_true(l.written[0] == i * N * N * N);
    assert_true(l.written[1] == i * N * N * N);
    assert_true(first_of(l.last->value) == (i + 1) * N * N * N);
    assert_true(result == N * N * N);
    assert_int_equal((i + 1), (int)l.last->version);
  }
  tear_down(&l, g, x);
}

static void without_parts_all_is_there_first(void **state) {
  logged l;
  tfd_graph *g = NULL;
  tfd_tensor *x = NULL;
  double result = 0;

  (void)state;
  set_up(&l, 0, &g, &x);
  OK(call(g, x, &result));
  assert_int_equal(0, l.begun);
  assert_int_equal(1, l.runs);
  assert_true(result == N * N * N);
  tear_down(&l, g, x);
}

static void what_has_begun_is_dropped_after_a_failure(void **state) {
  logged l;
  tfd_graph *g = NULL;
  tfd_tensor *x = NULL;
  double result = 0;

  (void)state;
  set_up(&l, PARTS, &g, &x);
  l.fails = 1;
  assert_int_equal(TFD_UNAVAILABLE, call(g, x, &result));
  assert_int_equal(1, l.begun);
  assert_int_equal(0, l.runs);
  assert_int_equal(1, l.drops);
  l.fails = -1;
  l.begun = 0;
  OK(call(g, x, &result));
  assert_int_equal(1, l.runs);
  assert_int_equal(1, l.drops);
  tear_down(&l, g, x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_part_begins_before_the_rest_runs,
                                      count_before, count_after),
      cmocka_unit_test_setup_teardown(without_parts_all_is_there_first,
                                      count_before, count_after),
      cmocka_unit_test_setup_teardown(what_has_begun_is_dropped_after_a_failure,
                                      count_before, count_after),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
