/* Fused elementwise programs against the same ops one by one: equal bits on
** every width of vectors, however the elements are shared out. */
#include <pthread.h>

#include "seed.h"
#include "strip_support.h"

/* --- ops ------------------------------------------------------------------ */

/* Dtypes by letter: f float32, b bool, i int32, d float64, h bfloat16. */
typedef struct op_rule {
  tfd__kernel_id kernel;
  const char *args;
  char result;
} op_rule;

#define OP(name, args, result) \
  { TFD_KERNEL_##name, args, result }
#define FLOATS1(name) OP(name, "f", 'f')
#define FLOATS2(name) OP(name, "ff", 'f')
#define COMPARED(name) OP(name, "ff", 'b'), OP(name, "ii", 'b')
/* clang-format off */
static const op_rule light[] = {
    FLOATS1(negative), FLOATS1(abs), FLOATS1(square), FLOATS1(sqrt),
    FLOATS1(rsqrt), FLOATS1(reciprocal), FLOATS1(sign), FLOATS1(relu),
    FLOATS1(relu6), FLOATS1(softsign), FLOATS1(copy), FLOATS1(cast),
    FLOATS2(add), FLOATS2(subtract), FLOATS2(multiply), FLOATS2(divide),
    FLOATS2(maximum), FLOATS2(minimum), FLOATS2(squared_difference),
    FLOATS2(tanh_grad), FLOATS2(sigmoid_grad), FLOATS2(relu_grad),
    FLOATS2(relu6_grad), FLOATS2(multiply_no_nan), FLOATS2(divide_no_nan),
    FLOATS2(xdivy),
    OP(is_nan, "f", 'b'), OP(is_inf, "f", 'b'), OP(is_finite, "f", 'b'),
    OP(cast, "f", 'b'), OP(cast, "b", 'f'), OP(logical_not, "b", 'b'),
    OP(copy, "b", 'b'), OP(logical_and, "bb", 'b'), OP(logical_or, "bb", 'b'),
    OP(logical_xor, "bb", 'b'),
    OP(equal, "ff", 'b'), OP(not_equal, "ff", 'b'), OP(less, "ff", 'b'),
    OP(less_equal, "ff", 'b'), OP(greater, "ff", 'b'),
    OP(greater_equal, "ff", 'b'),
    OP(select, "bff", 'f'), OP(select, "bff", 'f'),
    OP(clip_by_value, "fff", 'f'),
};
static const op_rule heavy[] = {
    FLOATS1(exp), FLOATS1(expm1), FLOATS1(log), FLOATS1(log1p), FLOATS1(tanh),
    FLOATS1(sigmoid), FLOATS1(softplus), FLOATS1(log_sigmoid), FLOATS1(erf),
    FLOATS1(gelu), FLOATS1(gelu_tanh), FLOATS1(swish), FLOATS1(elu),
    FLOATS1(selu), FLOATS1(leaky_relu), FLOATS1(sin), FLOATS1(cos),
    FLOATS1(floor), FLOATS1(ceil), FLOATS1(rint), FLOATS2(leaky_relu_grad),
    FLOATS2(pow), FLOATS2(floormod), FLOATS2(floordiv), FLOATS2(atan2),
    FLOATS2(xlogy),
    OP(cast, "f", 'i'), OP(cast, "i", 'f'), OP(cast, "b", 'i'),
    OP(cast, "i", 'b'), OP(cast, "f", 'd'), OP(cast, "d", 'f'),
    OP(cast, "f", 'h'), OP(cast, "h", 'f'), OP(cast, "d", 'h'),
    OP(add, "ii", 'i'), OP(multiply, "ii", 'i'), OP(maximum, "ii", 'i'),
    OP(bitwise_xor, "ii", 'i'), OP(equal, "ii", 'b'), OP(less, "ii", 'b'),
    OP(add, "dd", 'd'), OP(divide, "dd", 'd'), OP(exp, "d", 'd'),
    OP(less, "dd", 'b'), OP(add, "hh", 'h'), OP(multiply, "hh", 'h'),
    OP(tanh, "h", 'h'), OP(equal, "bb", 'b'), OP(select, "bii", 'i'),
    OP(select, "bbb", 'b'), OP(select, "bdd", 'd'), OP(select, "bhh", 'h'),
};
/* clang-format on */
enum {
  LIGHT = sizeof light / sizeof light[0],
  HEAVY = sizeof heavy / sizeof heavy[0]
};

static uint8_t dtype_of(char letter) {
  static const char letters[] = "fbidh";
  static const uint8_t dtypes[] = {TFD_FLOAT32, TFD_BOOL, TFD_INT32,
                                   TFD_FLOAT64, TFD_BFLOAT16};

  return dtypes[strchr(letters, letter) - letters];
}

/* What leaky_relu, its gradient and elu take. */
static const double alpha[1] = {0.3};

/* --- random programs ------------------------------------------------------ */

static void draw_shape(trial *t) {
  static const int64_t sizes[] = {1, 2, 3, 5, 10, 16, 31, 64, 65, 100, 127};
  int64_t most = draw(12) == 0 ? 70000 : 6000;
  int64_t n = 1;
  int d;

  t->rank = (int)draw(5);
  for (d = t->rank - 1; d >= 0; d--) {
    int64_t size = sizes[draw(11)];

    if (d == t->rank - 1 && draw(3) == 0) size = 500 + draw(2600);
    if (n * size > most) size = 1;
    if (draw(60) == 0) size = 0;
    t->dims[d] = size;
    n *= size > 0 ? size : 1;
  }
}

/* Of the trial's shape, or with axes that repeat or are left out. */
static void add_input(trial *t, uint8_t dtype) {
  array *a = &t->in[t->inputs_n];
  int64_t dims[TFD_MAX_RANK];
  int first = draw(4) == 0 ? (int)draw(t->rank + 1) : 0;
  bool repeats = draw(3) == 0;
  int d;

  for (d = first; d < t->rank; d++)
    dims[d - first] = repeats && draw(2) == 0 ? 1 : t->dims[d];
  allot(a, dtype, dims, t->rank - first);
  fill(a);
  if (draw(8) == 0) transpose(a);
  if (draw(16) == 0) reverse(a);
  t->inputs[t->inputs_n].dtype = dtype;
  t->inputs[t->inputs_n].scalar = a->view.numel == 1 && draw(4) != 0;
  t->inputs[t->inputs_n].known =
      t->inputs[t->inputs_n].scalar && tfd__is_float(dtype) && draw(2) == 0;
  if (a->view.numel == 1)
    t->inputs[t->inputs_n].value = tfd__load(a->view.data, dtype);
  t->inputs_n++;
}

/* Some earlier value of this dtype, the nearer the likelier, or a new one. */
static void draw_arg(trial *t, tfd__strip_arg *a, uint8_t dtype) {
  int i;

  memset(a, 0, sizeof *a);
  a->dtype = dtype;
  for (i = t->ops_n - 1; i >= 0; i--) {
    if (t->ops[i].dtype != dtype || draw(3) == 0) continue;
    a->from = TFD_STRIP_RESULT;
    a->index = (int16_t)i;
    return;
  }
  if (draw(4) == 0) {
    a->from = TFD_STRIP_LITERAL;
    a->index = 12345;
    a->value = dtype == TFD_BOOL    ? (double)draw(2)
               : dtype == TFD_INT32 ? 3.0
                                    : (double)special[draw(SPECIAL)];
    return;
  }
  a->from = TFD_STRIP_INPUT;
  if (t->inputs_n < TFD_STRIP_INPUTS && draw(2) == 0) {
    a->index = (int16_t)t->inputs_n;
    add_input(t, dtype);
    return;
  }
  for (i = 0; i < t->inputs_n; i++) {
    int k = (int)((i + t->ops_n) % t->inputs_n);

    a->index = (int16_t)k;
    if (t->inputs[k].dtype == dtype) return;
  }
  a->from = TFD_STRIP_LITERAL;
  a->value = 1.0;
}

static void draw_op(trial *t, int heavy_of_10) {
  bool is_heavy = draw(10) < heavy_of_10;
  const op_rule *r = is_heavy ? &heavy[draw(HEAVY)] : &light[draw(LIGHT)];
  tfd__strip_op *o = &t->ops[t->ops_n];
  int k;

  if (t->ops_n > 0 && draw(8) == 0) { /* the same once more */
    *o = t->ops[draw(t->ops_n)];
    t->ops_n++;
    return;
  }
  memset(o, 0, sizeof *o);
  o->kernel = r->kernel;
  o->dtype = dtype_of(r->result);
  o->args_n = (uint8_t)strlen(r->args);
  o->reals = alpha;
  o->reals_n = r->kernel == TFD_KERNEL_elu ||
               r->kernel == TFD_KERNEL_leaky_relu ||
               r->kernel == TFD_KERNEL_leaky_relu_grad;
  for (k = 0; k < o->args_n; k++)
    draw_arg(t, &o->args[k], dtype_of(r->args[k]));
  t->ops_n++;
}

static void draw_outputs(trial *t) {
  int i;

  for (i = t->ops_n - 1; i >= 0 && t->outputs_n < TFD_STRIP_OUTPUTS; i--) {
    if (i < t->ops_n - 1 && draw(6) != 0) continue;
    t->outputs[t->outputs_n++] = (int16_t)i;
  }
}

static void run_random(uint64_t seed, int trials, int heavy_of_10) {
  trial t;
  int i;
  int n;

  for (i = 0; i < trials; i++) {
    memset(&t, 0, sizeof t);
    t.seed = seed + (uint64_t)i;
    state = t.seed * 0x9e3779b97f4a7c15u | 1;
    draw_shape(&t);
    n = 1 + (int)(draw(3) == 0 ? draw(TFD_STRIP_OPS) : draw(12));
    while (t.ops_n < n) draw_op(&t, heavy_of_10);
    draw_outputs(&t);
    check(&t);
  }
}

static uint64_t printed_seed(void) {
  unsigned long seed = seed_of_run();

  printf("TFD_TEST_SEED=%lu\n", seed);
  return (uint64_t)seed * 1000;
}

static void test_registers(void **s) {
  (void)s;
  run_random(printed_seed(), 400, 0);
}

static void test_mixed(void **s) {
  (void)s;
  run_random(printed_seed(), 400, 3);
}

/* --- each op alone -------------------------------------------------------- */

static void check_alone(const op_rule *r, int literal) {
  int args_n = (int)strlen(r->args);
  trial t;
  int k;

  memset(&t, 0, sizeof t);
  t.rank = 1;
  t.dims[0] = SPECIAL * SPECIAL;
  t.ops_n = 1;
  t.outputs_n = 1;
  t.ops[0].kernel = r->kernel;
  t.ops[0].dtype = dtype_of(r->result);
  t.ops[0].args_n = (uint8_t)args_n;
  t.ops[0].reals = alpha;
  t.ops[0].reals_n = 1;
  for (k = 0; k < args_n; k++) {
    tfd__strip_arg *a = &t.ops[0].args[k];

    a->dtype = dtype_of(r->args[k]);
    a->from = k == literal ? TFD_STRIP_LITERAL : TFD_STRIP_INPUT;
    a->value = a->dtype == TFD_BOOL ? 1.0 : -2.5;
    a->index = (int16_t)t.inputs_n;
    if (k == literal) continue;
    allot(&t.in[t.inputs_n], a->dtype, t.dims, 1);
    t.inputs[t.inputs_n].dtype = a->dtype;
    specials(&t, t.inputs_n++);
  }
  check(&t);
}

static void test_each_op(void **s) {
  int i;
  int k;

  (void)s;
  for (i = 0; i < LIGHT + HEAVY; i++) {
    const op_rule *r = i < LIGHT ? &light[i] : &heavy[i - LIGHT];

    for (k = -1; k < (int)strlen(r->args); k++) check_alone(r, k);
  }
}

/* --- long chains ---------------------------------------------------------- */

static void chain(trial *t) {
  int i;

  for (i = 0; i < TFD_STRIP_OPS; i++) {
    tfd__strip_op *o = &t->ops[i];

    o->kernel = i % 2 == 0 ? TFD_KERNEL_add : TFD_KERNEL_multiply;
    o->dtype = TFD_FLOAT32;
    o->args_n = 2;
    o->args[0].from = i == 0 ? TFD_STRIP_INPUT : TFD_STRIP_RESULT;
    o->args[0].index = (int16_t)(i == 0 ? 0 : i - 1);
    o->args[1].from = TFD_STRIP_LITERAL;
    o->args[1].dtype = TFD_FLOAT32;
    o->args[1].value = i % 2 == 0 ? 1.0 : 0.5;
  }
  t->ops_n = TFD_STRIP_OPS;
  t->inputs_n = 1;
  t->inputs[0].dtype = TFD_FLOAT32;
  t->outputs_n = 1;
  t->outputs[0] = TFD_STRIP_OPS - 1;
}

enum { MANY = 1 << 22, STACK = 1 << 20 };

static void *run_chain(void *arg) {
  int64_t dims[1] = {MANY};
  trial *t = arg;
  tfd__strip_text text = text_of(t, 0);
  tfd__strip *p = NULL;
  tfd__view views[2];
  int refused = 0;

  for (text.bits = 128; text.bits <= 512; text.bits *= 2) {
    if (text.bits > 128 && text.bits > tfd__vector_bits()) continue;
    if (tfd__strip_compile(&text, &p, &refused) != TFD_OK) return NULL;
    memset(t->in[0].memory, 0, t->in[0].bytes);
    views[0] = views[1] = t->in[0].view;
    if (tfd__strip_run(p, views, 0, dims[0]) != TFD_OK) return NULL;
    tfd__strip_free(p);
  }
  return t;
}

/* 65,536 strips of 64 ops and more: a stack that grew with them would need
** gigabytes, this one has a megabyte. */
static void test_stack(void **s) {
  int64_t dims[1] = {MANY};
  pthread_attr_t attributes;
  pthread_t thread;
  void *done = NULL;
  trial t;
  int64_t i;

  (void)s;
  memset(&t, 0, sizeof t);
  chain(&t);
  allot(&t.in[0], TFD_FLOAT32, dims, 1);
  assert_int_equal(0, pthread_attr_init(&attributes));
  assert_int_equal(0, pthread_attr_setstacksize(&attributes, STACK));
  assert_int_equal(0, pthread_create(&thread, &attributes, run_chain, &t));
  assert_int_equal(0, pthread_join(thread, &done));
  assert_ptr_equal(&t, done);
  /* x = (x + 1) / 2 from 0, 32 times: 1 - 2^-32, which rounds to 1. */
  for (i = 0; i < MANY; i++)
    assert_true(((const float *)(void *)t.in[0].memory)[i] == 1.0f);
  free(t.in[0].memory);
}

/* --- what is refused ------------------------------------------------------ */

static int refused_op(trial *t, int want) {
  tfd__strip_text text = text_of(t, 0);
  tfd__strip *p = NULL;
  int refused = -2;

  assert_int_equal(want, tfd__strip_compile(&text, &p, &refused));
  assert_null(p);
  return refused;
}

static void test_refusals(void **s) {
  const uint8_t ints[2] = {TFD_INT32, TFD_INT32};
  trial t;

  (void)s;
  memset(&t, 0, sizeof t);
  chain(&t);
  t.ops[5].kernel = TFD_KERNEL_matmul;
  assert_int_equal(5, refused_op(&t, TFD_NOT_IMPLEMENTED));
  t.ops[5].kernel = TFD_KERNEL_add_n;
  assert_int_equal(5, refused_op(&t, TFD_NOT_IMPLEMENTED));
  /* There is no loop over truth values for it. */
  chain(&t);
  t.ops[7].kernel = TFD_KERNEL_exp;
  t.ops[7].args_n = 1;
  t.ops[6].dtype = TFD_BOOL;
  t.ops[6].kernel = TFD_KERNEL_less;
  assert_int_equal(7, refused_op(&t, TFD_NOT_IMPLEMENTED));
  assert_false(tfd__strip_takes(TFD_KERNEL_floordiv, 2, ints));
  assert_false(tfd__strip_takes(TFD_KERNEL_pow, 2, ints));
  assert_true(tfd__strip_takes(TFD_KERNEL_add, 2, ints));
  /* Not the fault of an op. */
  memset(&t, 0, sizeof t);
  chain(&t);
  t.ops[9].args[0].index = 9;
  assert_int_equal(-1, refused_op(&t, TFD_INVALID_ARGUMENT));
  memset(&t, 0, sizeof t);
  chain(&t);
  t.outputs_n = 2;
  t.outputs[1] = t.outputs[0];
  assert_int_equal(-1, refused_op(&t, TFD_INVALID_ARGUMENT));
  t.outputs_n = 0;
  assert_int_equal(-1, refused_op(&t, TFD_INVALID_ARGUMENT));
}

static void test_widths(void **s) {
  tfd__strip *p = NULL;
  int refused = 0;
  trial t;
  tfd__strip_text text;

  (void)s;
  memset(&t, 0, sizeof t);
  chain(&t);
  text = text_of(&t, 1024);
  assert_int_equal(TFD_INVALID_ARGUMENT,
                   tfd__strip_compile(&text, &p, &refused));
  assert_non_null(strstr(tfd_error_message(), "1024"));
}

static void test_no_memory(void **s) {
  int64_t live = tfd__alloc_live();
  int refused = 0;
  int64_t n;
  trial t;
  tfd__strip_text text;

  (void)s;
  memset(&t, 0, sizeof t);
  chain(&t);
  text = text_of(&t, 0);
  for (n = 1;; n++) {
    tfd__strip *p = NULL;
    int rc;

    tfd__alloc_fail_at(n);
    rc = tfd__strip_compile(&text, &p, &refused);
    tfd__alloc_fail_at(0);
    if (rc == TFD_OK) {
      tfd__strip_free(p);
      break;
    }
    assert_int_equal(TFD_RESOURCE_EXHAUSTED, rc);
    assert_true(live == tfd__alloc_live());
  }
  assert_true(n > 3);
  assert_true(live == tfd__alloc_live());
}

/* An output that lies on an input which is still read would be wrong. */
static void test_in_place(void **s) {
  tfd__strip *p = NULL;
  int refused = 0;
  trial t;
  tfd__strip_text text;

  (void)s;
  memset(&t, 0, sizeof t);
  chain(&t);
  text = text_of(&t, 0);
  assert_int_equal(TFD_OK, tfd__strip_compile(&text, &p, &refused));
  assert_true(tfd__strip_in_place(p, 0, 0));
  tfd__strip_free(p);
  /* The first result leaves, and the input is read once more at the end. */
  t.outputs[0] = 0;
  t.outputs[1] = TFD_STRIP_OPS - 1;
  t.outputs_n = 2;
  t.ops[TFD_STRIP_OPS - 1].args[1] = t.ops[0].args[0];
  text = text_of(&t, 0);
  assert_int_equal(TFD_OK, tfd__strip_compile(&text, &p, &refused));
  assert_false(tfd__strip_in_place(p, 0, 0));
  assert_true(tfd__strip_in_place(p, 1, 0));
  tfd__strip_free(p);
}

/* What a program was not compiled for is refused before it is touched. */
static void test_views(void **s) {
  int64_t dims[2] = {6, 5};
  tfd__view views[2];
  tfd__strip *p = NULL;
  int refused = 0;
  trial t;
  tfd__strip_text text;
  array other;

  (void)s;
  memset(&t, 0, sizeof t);
  chain(&t);
  allot(&t.in[0], TFD_FLOAT32, dims, 2);
  allot(&other, TFD_FLOAT32, dims, 2);
  memset(t.in[0].memory, 0, t.in[0].bytes);
  text = text_of(&t, 0);
  assert_int_equal(TFD_OK, tfd__strip_compile(&text, &p, &refused));
  views[0] = t.in[0].view;
  transpose(&other);
  views[1] = other.view;
  assert_int_equal(TFD_INTERNAL, tfd__strip_run(p, views, 0, 6));
  assert_non_null(strstr(tfd_error_message(), "dense"));
  views[1] = t.in[0].view;
  views[0].dtype = TFD_FLOAT64;
  assert_int_equal(TFD_INTERNAL, tfd__strip_run(p, views, 0, 6));
  assert_non_null(strstr(tfd_error_message(), "float64"));
  /* No row: nothing is written. */
  views[0] = t.in[0].view;
  assert_int_equal(TFD_OK, tfd__strip_run(p, views, 2, 2));
  assert_true(*(float *)(void *)t.in[0].memory == 0.0f);
  tfd__strip_free(p);
  free(other.memory);
  free(t.in[0].memory);
}

/* Inputs of every lay, where pieces of threads begin inside of rows. */
static void test_threads(void **s) {
  static const int64_t ins[][2] = {
      {700, 100}, {1, 100}, {700, 1}, {1, 1}, {700, 100}};
  enum { INS = sizeof ins / sizeof ins[0] };
  int before = tfd__threads_get();
  trial t;
  int i;

  (void)s;
  memset(&t, 0, sizeof t);
  t.rank = 2;
  memcpy(t.dims, ins[0], sizeof ins[0]);
  t.inputs_n = INS;
  t.ops_n = INS - 1;
  t.outputs_n = 1;
  t.outputs[0] = INS - 2;
  for (i = 0; i < INS; i++) {
    t.inputs[i].dtype = TFD_FLOAT32;
    allot(&t.in[i], TFD_FLOAT32, ins[i], 2);
    fill(&t.in[i]);
  }
  transpose(&t.in[INS - 1]);
  for (i = 0; i < t.ops_n; i++) {
    t.ops[i].kernel = TFD_KERNEL_subtract;
    t.ops[i].dtype = TFD_FLOAT32;
    t.ops[i].args_n = 2;
    t.ops[i].args[0].from = i == 0 ? TFD_STRIP_INPUT : TFD_STRIP_RESULT;
    t.ops[i].args[0].index = (int16_t)(i == 0 ? 0 : i - 1);
    t.ops[i].args[1].index = (int16_t)(i + 1);
  }
  tfd__threads_set(3);
  check(&t);
  tfd__threads_set(before);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_views),     cmocka_unit_test(test_each_op),

      cmocka_unit_test(test_registers), cmocka_unit_test(test_mixed),
      cmocka_unit_test(test_stack),     cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_widths),    cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_in_place),  cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
