/* Matrix products: our own loops and OpenBLAS's against the definition, for
** every layout; oneDNN's plans: kept, bounded, reusable with other memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/onednn/onednn.h"

#define ROOM 40000

static double a[ROOM];
static double b[ROOM];
static double c[ROOM];
static double before[ROOM];

/* Small whole numbers: products and sums are exact in every dtype. */
static double number(int64_t i) {
  return (double)(i * 7919 % 9) - 4;
}

static void fill(double *data, int dtype) {
  size_t size = tfd__dtype_size(dtype);

  for (int64_t i = 0; i < ROOM * 8 / (int64_t)size; i++)
    tfd__store((char *)data + (size_t)i * size, dtype, number(i));
}

static double at(const void *data, int dtype, int64_t i) {
  return tfd__load((const char *)data + i * (int64_t)tfd__dtype_size(dtype),
                   dtype);
}

static double expected(const tfd__gemm_args *g, int64_t i, int64_t j) {
  double sum = g->add ? at(before, g->dtype, i * g->c_row + j) : 0;

  for (int64_t p = 0; p < g->k; p++)
    sum += at(g->a, g->dtype, i * g->a_row + p * g->a_col) *
           at(g->b, g->dtype, p * g->b_row + j * g->b_col);
  return sum;
}

static void check(const tfd__gemm_args *g,
                  int (*product)(const tfd__gemm_args *g)) {
  memcpy(before, c, sizeof c);
  assert_int_equal(product(g), TFD_OK);
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      assert_float_equal(at(c, g->dtype, i * g->c_row + j), expected(g, i, j),
                         0);
}

static void check_sizes(int dtype, int64_t m, int64_t n, int64_t k,
                        int (*product)(const tfd__gemm_args *g)) {
  tfd__gemm_args g = {
      .dtype = dtype, .m = m, .n = n, .k = k, .a = a, .b = b, .c = c};

  for (int form = 0; form < 8; form++) {
    g.a_row = form & 1 ? 1 : k + 3;
    g.a_col = form & 1 ? m + 1 : 1;
    g.b_row = form & 2 ? 1 : n + 2;
    g.b_col = form & 2 ? k + 1 : 1;
    g.c_row = n + 5;
    g.add = (form & 4) != 0;
    check(&g, product);
  }
}

static void own_products_match_the_definition(void **state) {
  static const int dtypes[] = {TFD_FLOAT32, TFD_FLOAT64, TFD_INT32, TFD_INT64};
  static const int64_t sizes[][3] = {{1, 1, 1},    {5, 3, 2},    {6, 16, 4},
                                     {7, 17, 9},   {13, 8, 1},   {1, 70, 33},
                                     {70, 1, 33},  {3, 5, 600},  {4, 32, 7},
                                     {2, 528, 65}, {2, 16, 300}, {9, 48, 6}};

  (void)state;
  for (int d = 0; d < 4; d++) {
    fill(a, dtypes[d]);
    fill(b, dtypes[d]);
    fill(c, dtypes[d]);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      check_sizes(dtypes[d], sizes[s][0], sizes[s][1], sizes[s][2],
                  tfd__gemm_plain);
  }
}

/* Of a size that goes to OpenBLAS, in several tiles. */
static void large_products_match_the_definition(void **state) {
  (void)state;
  fill(a, TFD_FLOAT64);
  fill(b, TFD_FLOAT64);
  fill(c, TFD_FLOAT64);
  check_sizes(TFD_FLOAT64, 135, 120, 140, tfd__gemm);
  check_sizes(TFD_FLOAT64, 100, 290, 80, tfd__gemm);
}

static void an_empty_inner_size_gives_zeros(void **state) {
  tfd__gemm_args g = {.dtype = TFD_FLOAT64,
                      .m = 2,
                      .n = 3,
                      .a = a,
                      .a_col = 1,
                      .b = b,
                      .b_row = 3,
                      .b_col = 1,
                      .c = c,
                      .c_row = 3};

  (void)state;
  fill(c, TFD_FLOAT64);
  assert_int_equal(tfd__gemm_plain(&g), TFD_OK);
  for (int i = 0; i < 6; i++) assert_float_equal(c[i], 0, 0);
}

static void threads_do_not_change_a_bit(void **state) {
  tfd__gemm_args g = {.dtype = TFD_FLOAT64,
                      .m = 100,
                      .n = 110,
                      .k = 300,
                      .a = a,
                      .a_row = 300,
                      .a_col = 1,
                      .b = b,
                      .b_row = 110,
                      .b_col = 1,
                      .c = c,
                      .c_row = 110};

  (void)state;
  for (int i = 0; i < ROOM; i++) a[i] = b[i] = sin(i);
  tfd__threads_set(1);
  assert_int_equal(tfd__gemm_plain(&g), TFD_OK);
  memcpy(before, c, sizeof c);
  tfd__threads_set(2);
  assert_int_equal(tfd__gemm_plain(&g), TFD_OK);
  tfd__threads_set(1);
  assert_memory_equal(before, c, 100 * 110 * sizeof *c);
}

/* m x 32 times 32 x 32 in float32. */
static tfd__gemm_args rows(int64_t m) {
  tfd__gemm_args g = {.dtype = TFD_FLOAT32,
                      .m = m,
                      .n = 32,
                      .k = 32,
                      .a = a,
                      .a_row = 32,
                      .a_col = 1,
                      .b = b,
                      .b_row = 32,
                      .b_col = 1,
                      .c = c,
                      .c_row = 32};
  return g;
}

static void check_onednn(tfd__gemm_args g) {
  int rc = TFD_INTERNAL;

  if (!tfd__dnnl_gemm(&g, &rc)) skip(); /* no fast kernel on this processor */
  assert_int_equal(rc, TFD_OK);
  for (int64_t i = 0; i < g.m; i += 7)
    for (int64_t j = 0; j < g.n; j += 5)
      assert_float_equal(at(c, g.dtype, i * g.c_row + j), expected(&g, i, j),
                         0);
}

static void plans_are_bounded_and_come_back(void **state) {
  (void)state;
  fill(a, TFD_FLOAT32);
  fill(b, TFD_FLOAT32);
  for (int64_t m = 1; m < TFD_DNNL_PLANS + 40; m++) check_onednn(rows(m));
  assert_int_equal(tfd__dnnl_plans(), TFD_DNNL_PLANS);
  check_onednn(rows(1));
  assert_int_equal(tfd__dnnl_plans(), TFD_DNNL_PLANS);
}

static void a_plan_serves_other_memory(void **state) {
  tfd__gemm_args g = rows(50);
  int plans = 0;

  (void)state;
  fill(a, TFD_FLOAT32);
  fill(b, TFD_FLOAT32);
  check_onednn(g);
  plans = tfd__dnnl_plans();
  g.a = b;
  g.b = (float *)a + 11;
  g.c = (float *)c + 16;
  assert_int_equal(tfd__gemm_plain(&g), TFD_OK);
  memcpy(before, c, sizeof c);
  memset(c, 0, sizeof c);
  {
    int rc = TFD_INTERNAL;

    assert_true(tfd__dnnl_gemm(&g, &rc));
    assert_int_equal(rc, TFD_OK);
  }
  assert_int_equal(tfd__dnnl_plans(), plans);
  assert_memory_equal((float *)before + 16, (float *)c + 16,
                      50 * 32 * sizeof(float));
}

static void gaps_in_both_directions_are_left_to_our_loops(void **state) {
  tfd__gemm_args g = rows(50);
  int rc = TFD_OK;

  (void)state;
  g.a_row = 80;
  g.a_col = 2;
  assert_false(tfd__dnnl_gemm(&g, &rc));
  fill(a, TFD_FLOAT32);
  fill(b, TFD_FLOAT32);
  assert_int_equal(tfd__gemm(&g), TFD_OK);
  assert_float_equal(at(c, TFD_FLOAT32, 33), expected(&g, 1, 1), 0);
}

/* Whole numbers, so that every order of additions gives the same sums, which
** are rounded once. */
static void bfloat16_sums_are_rounded_once(void **state) {
  tfd__view v[3];
  int rc = TFD_INTERNAL;

  (void)state;
  fill(a, TFD_BFLOAT16);
  fill(b, TFD_BFLOAT16);
  for (int i = 0; i < 3; i++)
    assert_int_equal(tfd__view_set(&v[i], TFD_BFLOAT16, (int64_t[]){64, 64}, 2),
                     TFD_OK);
  v[0].data = a;
  v[1].data = b;
  v[2].data = c;
  if (!tfd__dnnl_matmul("matmul", &v[0], &v[1], &v[2], &rc)) skip();
  assert_int_equal(rc, TFD_OK);
  for (int64_t i = 0; i < 64 * 64; i++) {
    double sum = 0;

    for (int64_t p = 0; p < 64; p++)
      sum += at(a, TFD_BFLOAT16, i / 64 * 64 + p) *
             at(b, TFD_BFLOAT16, p * 64 + i % 64);
    assert_float_equal(at(c, TFD_BFLOAT16, i),
                       tfd__bf16_to_float(tfd__float_to_bf16((float)sum)), 0);
  }
}

/* Sizes that become convolutions with AVX2, and their neighbours: exact. */
static void long_sums_of_many_rows(void **state) {
  static const int64_t sizes[][3] = {
      {64, 512, 512}, {65, 520, 528}, {63, 512, 512},  {64, 504, 512},
      {64, 513, 512}, {64, 512, 513}, {130, 512, 784}, {2049, 512, 512},
      {48, 520, 512}, {47, 512, 512}};

  (void)state;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int64_t m = sizes[s][0];
    int64_t n = sizes[s][1];
    int64_t k = sizes[s][2];
    float *x = test_malloc((size_t)(m * k) * sizeof *x);
    float *w = test_malloc((size_t)(k * (n + 4)) * sizeof *w);
    float *y = test_malloc((size_t)(m * n) * sizeof *y);

    for (int64_t i = 0; i < m * k; i++) x[i] = (float)number(i);
    for (int64_t i = 0; i < k * (n + 4); i++) w[i] = (float)number(3 * i);
    for (int gap = 0; gap <= 4; gap += 4) {
      for (int threads = 1; threads <= 2; threads++) {
        tfd__gemm_args g = {.dtype = TFD_FLOAT32,
                            .m = m,
                            .n = n,
                            .k = k,
                            .a = x,
                            .a_row = k,
                            .a_col = 1,
                            .b = w,
                            .b_row = n + gap,
                            .b_col = 1,
                            .c = y,
                            .c_row = n};

        x[k + 1] = NAN; /* in one row */
        tfd__threads_set(threads);
        assert_int_equal(tfd__gemm(&g), TFD_OK);
        x[k + 1] = 1;
        for (int64_t i = 0; i < m * n; i += 1 + i % 97) {
          double sum = 0;

          for (int64_t p = 0; p < k; p++)
            sum += x[i / n * k + p] * w[p * (n + gap) + i % n];
          if (i / n == 1)
            assert_true(isnan(y[i]));
          else
            assert_float_equal(y[i], sum, 0);
        }
      }
    }
    tfd__threads_set(1);
    test_free(x);
    test_free(w);
    test_free(y);
  }
}

/* Lines of 1,024 elements under long sums, which go the other way round on some
** processors, and sizes beside those that do. Whole numbers: sums are exact. */
static void long_sums_of_transposed_lines(void **state) {
  static const int64_t sizes[][3] = {
      {1024, 64, 1024}, {1024, 176, 1100}, {2048, 512, 1024}, {1024, 48, 1024},
      {1024, 72, 1024}, {1024, 528, 1030}, {1000, 64, 1024}};

  (void)state;
  for (size_t s = 0; s < 2 * (sizeof sizes / sizeof *sizes); s++) {
    const int64_t m = sizes[s / 2][0];
    const int64_t n = sizes[s / 2][1];
    const int64_t k = sizes[s / 2][2];
    float *x = malloc((size_t)(k * 2048) * sizeof *x);
    float *y = malloc((size_t)(k * n) * sizeof *y);
    float *got = malloc((size_t)(m * (n + 3)) * sizeof *got);
    float *want = malloc((size_t)(m * (n + 3)) * sizeof *want);
    int rc = TFD_OK;
    tfd__gemm_args g = {.dtype = TFD_FLOAT32,
                        .m = m,
                        .n = n,
                        .k = k,
                        .a = x,
                        .a_row = 1,
                        .a_col = m > 1024 ? 2048 : 1024,
                        .b = y,
                        .b_row = n,
                        .b_col = 1,
                        .c = got,
                        .c_row = n + 3};

    assert_true(x != NULL && y != NULL && got != NULL && want != NULL);
    for (int64_t i = 0; i < k * 2048; i++) x[i] = (float)number(i);
    for (int64_t i = 0; i < k * n; i++) y[i] = (float)number(i + 5);
    memset(got, 0, (size_t)(m * (n + 3)) * sizeof *got);
    memset(want, 0, (size_t)(m * (n + 3)) * sizeof *want);
    tfd__threads_set(1 + (int)(s % 2));
    if (!tfd__dnnl_gemm(&g, &rc)) skip(); /* no oneDNN */
    assert_int_equal(TFD_OK, rc);
    tfd__threads_set(1);
    g.c = want;
    assert_int_equal(TFD_OK, tfd__gemm_plain(&g));
    /* What lies between the lines is not written. */
    assert_memory_equal(want, got, (size_t)(m * (n + 3)) * sizeof *got);
    free(x);
    free(y);
    free(got);
    free(want);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(own_products_match_the_definition),
      cmocka_unit_test(large_products_match_the_definition),
      cmocka_unit_test(an_empty_inner_size_gives_zeros),
      cmocka_unit_test(threads_do_not_change_a_bit),
      cmocka_unit_test(plans_are_bounded_and_come_back),
      cmocka_unit_test(a_plan_serves_other_memory),
      cmocka_unit_test(bfloat16_sums_are_rounded_once),
      cmocka_unit_test(long_sums_of_many_rows),
      cmocka_unit_test(long_sums_of_transposed_lines),
      cmocka_unit_test(gaps_in_both_directions_are_left_to_our_loops),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
