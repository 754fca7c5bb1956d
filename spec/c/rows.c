/* Kernels in parts of rows, at sizes where they use several threads, blocks and
** libraries; the case table runs all of them at small ones (shadow_spec). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../support/parts.h"

enum { TRIALS = 5 };

#define NONE TFD_ROWS_NONE
#define EXACT TFD_ROWS_EXACT
#define ROUNDED TFD_ROWS_ROUNDED
#define AXES(a) 1, a, 0, 0, 0, 0, 0, 0, 0
#define PAIR(a, b) 2, a, b, 0, 0, 0, 0, 0, 0
#define ABSENT -1, 0, 0, 0, 0, 0, 0, 0, 0

typedef struct work {
  const char *op;
  tfd__rows_kind kind;
  int in_n;
  int64_t in[3][6]; /* rank, sizes */
  int64_t ints[TFD_MAX_INTS];
} work;

static const work works[] = {
    {"add", EXACT, 2, {{2, 130, 1031}, {1, 1031}}, {0}},
    {"add", EXACT, 2, {{2, 130, 1031}, {2, 130, 1}}, {0}},
    {"add", EXACT, 2, {{1, 100003}, {0}}, {0}},
    {"multiply", EXACT, 2, {{2, 1, 1031}, {2, 130, 1}}, {0}},
    {"exp", EXACT, 1, {{2, 130, 1031}}, {0}},
    {"gelu", EXACT, 1, {{3, 13, 10, 1031}}, {0}},
    {"softmax", EXACT, 1, {{2, 130, 1031}}, {0}},
    {"softmax", NONE, 1, {{1, 1031}}, {0}},
    {"log_softmax", EXACT, 1, {{2, 1030, 31}}, {0}},
    {"layer_normalization", EXACT, 1, {{2, 130, 1031}}, {-1}},
    {"layer_normalization", EXACT, 1, {{3, 13, 10, 1031}}, {1}},
    {"layer_normalization", NONE, 1, {{2, 130, 1031}}, {0}},
    {"reduce_sum", EXACT, 1, {{2, 130, 1031}}, {AXES(1), 0}},
    {"reduce_sum", EXACT, 1, {{3, 130, 31, 33}}, {AXES(1), 1}},
    {"reduce_sum", EXACT, 1, {{2, 3, 200003}}, {AXES(1), 0}},
    {"reduce_sum", EXACT, 1, {{3, 3, 2, 200003}}, {AXES(2), 0}},
    {"reduce_sum", EXACT, 1, {{3, 2, 2003, 300}}, {AXES(1), 0}},
    {"reduce_mean", EXACT, 1, {{3, 40, 50, 60}}, {PAIR(1, 2), 0}},
    {"reduce_prod", EXACT, 1, {{2, 5, 50021}}, {AXES(1), 0}},
    {"reduce_logsumexp", EXACT, 1, {{2, 5, 50021}}, {AXES(1), 0}},
    {"reduce_variance", EXACT, 1, {{2, 5, 50021}}, {AXES(1), 0}},
    {"reduce_std", EXACT, 1, {{3, 5, 50021, 3}}, {AXES(1), 0}},
    {"reduce_euclidean_norm", EXACT, 1, {{3, 5, 5, 50021}}, {AXES(-1), 0}},
    {"reduce_sum", NONE, 1, {{2, 130, 1031}}, {AXES(0), 0}},
    {"reduce_sum", NONE, 1, {{2, 130, 1031}}, {ABSENT, 1}},
    {"reduce_max", EXACT, 1, {{3, 130, 31, 33}}, {PAIR(-1, 1), 0}},
    {"reduce_max", NONE, 1, {{3, 130, 31, 33}}, {PAIR(-1, -3), 0}},
    {"argmax", EXACT, 1, {{2, 130, 1031}}, {1, TFD_INT64}},
    {"argmax", NONE, 1, {{2, 130, 1031}}, {-2, TFD_INT64}},
    {"cumsum", EXACT, 1, {{3, 60, 70, 31}}, {1, 0, 0}},
    {"cumsum", NONE, 1, {{2, 130, 1031}}, {0, 0, 0}},
    {"top_k", EXACT, 1, {{2, 130, 1031}}, {5, 1}},
    {"matmul", ROUNDED, 2, {{2, 130, 257}, {2, 257, 300}}, {0}},
    {"matmul", ROUNDED, 2, {{2, 257, 130}, {2, 257, 300}}, {1, 0, 0, 0}},
    {"matmul", ROUNDED, 2, {{2, 130, 257}, {2, 300, 257}}, {0, 0, 0, 1}},
    {"matmul", ROUNDED, 2, {{3, 16, 60, 70}, {3, 16, 70, 50}}, {0}},
    {"matmul", ROUNDED, 2, {{3, 16, 60, 70}, {2, 70, 50}}, {0}},
    {"matmul", ROUNDED, 2, {{3, 1, 60, 70}, {3, 16, 70, 50}}, {0}},
    {"bias_add", EXACT, 2, {{4, 16, 9, 9, 32}, {1, 32}}, {0}},
    {"conv2d",
     ROUNDED,
     2,
     {{4, 16, 17, 17, 8}, {4, 3, 3, 8, 16}},
     {AXES(1), 1, 0, ABSENT, ABSENT}},
    {"avg_pool",
     EXACT,
     1,
     {{4, 16, 17, 17, 8}},
     {AXES(3), AXES(2), 1, 0, ABSENT}},
    {"max_pool",
     EXACT,
     1,
     {{4, 16, 17, 17, 8}},
     {AXES(2), AXES(2), 1, 0, ABSENT}},
};

static uint64_t state = 88172645463325252u;

static uint64_t draw(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static tfd_tensor *numbers(const int64_t *shape) {
  int64_t n = 1;
  double *values = NULL;
  tfd_tensor *t = NULL;
  int64_t i;

  for (i = 1; i <= shape[0]; i++) n *= shape[i];
  values = malloc((size_t)n * sizeof *values);
  for (i = 0; i < n; i++) values[i] = (double)(draw() % 2000) / 500.0 - 2.0;
  assert_int_equal(TFD_OK,
                   tfd_tensor_from_values(values, n, TFD_FLOAT32, shape + 1,
                                          (int)shape[0], &t));
  free(values);
  return t;
}

static void check(const work *w) {
  const double reals[TFD_MAX_REALS] = {0.001};
  tfd_tensor *in[3] = {NULL};
  tfd_tensor *whole[4] = {NULL};
  tfd__rows_kind kind = NONE;
  const tfd__op *o = NULL;
  int op = 0;
  int n = 0;
  int i;

  assert_int_equal(TFD_OK, tfd_op_find(w->op, &op));
  o = tfd__op_at(op);
  for (i = 0; i < w->in_n; i++) in[i] = numbers(w->in[i]);
  if (tfd__run(op, in, o->in_n, w->ints, reals, whole, 4, &n) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
  for (i = 0; i < TRIALS; i++) {
    const char *what = parts_check(o, whole[0]->device, in, o->in_n, whole, n,
                                   w->ints, reals, draw, &kind);

    if (what != NULL) {
      fail_msg("%s, work %d: %s", w->op, (int)(w - works), what);
    }
    assert_int_equal(w->kind, kind);
  }
  while (n > 0) tfd__release(whole[--n]);
  for (i = 0; i < w->in_n; i++) tfd__release(in[i]);
}

static void parts_make_up_the_whole(void **unused) {
  size_t i;

  (void)unused;
  for (i = 0; i < sizeof works / sizeof works[0]; i++) check(&works[i]);
}

static void gather_takes_rows_along_its_first_axis_only(void **unused) {
  int64_t ints[2 + TFD_LIST_SLOTS] = {0, AXES(0), 0};
  int32_t rows[40];
  int64_t dims[1] = {40};
  tfd_tensor *in[2] = {numbers((int64_t[]){2, 50, 60}), NULL};
  tfd_tensor *whole = NULL;
  tfd__rows_kind kind = NONE;
  int op = 0;
  int n = 0;
  int axis;

  (void)unused;
  for (n = 0; n < 40; n++) rows[n] = (int32_t)(draw() % 50);
  assert_int_equal(TFD_OK, tfd_tensor_from_bytes(rows, sizeof rows, TFD_INT32,
                                                 dims, 1, &in[1]));
  assert_int_equal(TFD_OK, tfd_op_find("gather", &op));
  for (axis = 0; axis < 2; axis++) {
    ints[2] = axis;
    assert_int_equal(TFD_OK, tfd__run(op, in, 2, ints, NULL, &whole, 1, &n));
    assert_null(parts_check(tfd__op_at(op), whole->device, in, 2, &whole, 1,
                            ints, NULL, draw, &kind));
    assert_int_equal(axis == 0 ? EXACT : NONE, kind);
    tfd__release(whole);
  }
  tfd__release(in[0]);
  tfd__release(in[1]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_make_up_the_whole),
      cmocka_unit_test(gather_takes_rows_along_its_first_axis_only),
  };

  if (tfd_config_set_queue_mode(TFD_QUEUE_INLINE) != TFD_OK) return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
