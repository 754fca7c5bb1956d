/* Elementwise kernels and reductions: accuracy of the float32 functions, and
** results that depend neither on positions nor on the number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/vmath.h"

#define MOST 300000

typedef struct kernel {
  const char *name;
  tfd__kernel run;
  int in_n;
  double (*exact)(double); /* float64 reference of functions of one number */
  double ulps;             /* largest error against it */
} kernel;

static double sigmoid(double x) {
  return 1.0 / (1.0 + exp(-x));
}
static double softplus(double x) {
  return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}
static double log_sigmoid(double x) {
  return -softplus(-x);
}
static double rsqrt(double x) {
  return 1.0 / sqrt(x);
}

static const kernel kernels[] = {
    {"exp", tfd__cpu_exp, 1, exp, 1.1},
    {"expm1", tfd__cpu_expm1, 1, expm1, 1.6},
    {"log", tfd__cpu_log, 1, log, 1.0},
    {"log1p", tfd__cpu_log1p, 1, log1p, 1.7},
    {"sin", tfd__cpu_sin, 1, sin, 1.7},
    {"cos", tfd__cpu_cos, 1, cos, 1.7},
    {"tan", tfd__cpu_tan, 1, tan, 3.5},
    {"asin", tfd__cpu_asin, 1, asin, 2.5},
    {"acos", tfd__cpu_acos, 1, acos, 2.5},
    {"atan", tfd__cpu_atan, 1, atan, 3.0},
    {"sinh", tfd__cpu_sinh, 1, sinh, 4.0},
    {"cosh", tfd__cpu_cosh, 1, cosh, 3.5},
    {"tanh", tfd__cpu_tanh, 1, tanh, 3.0},
    {"asinh", tfd__cpu_asinh, 1, asinh, 2.5},
    {"acosh", tfd__cpu_acosh, 1, acosh, 2.5},
    {"atanh", tfd__cpu_atanh, 1, atanh, 2.5},
    {"erf", tfd__cpu_erf, 1, erf, 1.6},
    {"sigmoid", tfd__cpu_sigmoid, 1, sigmoid, 2.8},
    {"softplus", tfd__cpu_softplus, 1, softplus, 2.2},
    {"log_sigmoid", tfd__cpu_log_sigmoid, 1, log_sigmoid, 2.2},
    {"rsqrt", tfd__cpu_rsqrt, 1, rsqrt, 1.5},
    {"sqrt", tfd__cpu_sqrt, 1, sqrt, 0.5},
    {"add", tfd__cpu_add, 2, NULL, 0},
    {"divide", tfd__cpu_divide, 2, NULL, 0},
    {"pow", tfd__cpu_pow, 2, NULL, 0},
    {"xlogy", tfd__cpu_xlogy, 2, NULL, 0},
    {"squared_difference", tfd__cpu_squared_difference, 2, NULL, 0},
    {"tanh_grad", tfd__cpu_tanh_grad, 2, NULL, 0},
    {"sigmoid_grad", tfd__cpu_sigmoid_grad, 2, NULL, 0},
    {"floormod", tfd__cpu_floormod, 2, NULL, 0},
};
#define KERNELS (sizeof kernels / sizeof kernels[0])

static const int dtypes[] = {TFD_FLOAT32, TFD_FLOAT64, TFD_FLOAT16,
                             TFD_BFLOAT16};

static void *room(size_t bytes) {
  void *p = calloc(1, bytes);

  assert_non_null(p);
  return p;
}

static void run(const kernel *k, int dtype, char *const *in, int64_t at,
                int64_t n, void *out) {
  tfd__view views[3] = {{0}};
  tfd__call call = {.name = k->name, .views = views, .out_n = 1};

  call.in_n = (int16_t)k->in_n;
  for (int i = 0; i <= k->in_n; i++) {
    assert_int_equal(TFD_OK, tfd__view_set(&views[i], dtype, &n, 1));
    if (i == k->in_n) break;
    views[i].data = in[i] + (size_t)at * tfd__dtype_size(dtype);
  }
  views[k->in_n].data = out;
  assert_int_equal(TFD_OK, k->run(&call));
}

/* Error of `got` in float32 units of the last place. */
static double error_of(float got, double want) {
  int exponent = 0;

  if (isnan(want)) return isnan(got) ? 0.0 : INFINITY;
  if (isinf((float)want) || isinf(got)) {
    return got == (float)want || fabs(want) > 3.402e38 ? 0.0 : INFINITY;
  }
  (void)frexp(want, &exponent);
  if (exponent < -125) exponent = -125;
  return fabs((double)got - want) / ldexp(1.0, exponent - 24);
}

/* Every 9,973rd bit pattern: all magnitudes, signs, NaN and infinities. */
static void functions_are_accurate(void **state) {
  float *x = room(sizeof(float) * (1 << 19));
  float *y = room(sizeof(float) * (1 << 19));
  char *in[1] = {(char *)x};
  int64_t n = 0;

  (void)state;
  for (uint64_t u = 0; u <= UINT32_MAX; u += 9973) {
    x[n++] = tfd__f32_of((uint32_t)u);
  }
  x[n++] = -0.0f;
  x[n++] = INFINITY;
  x[n++] = -INFINITY;
  for (size_t k = 0; k < KERNELS; k++) {
    if (kernels[k].exact == NULL) continue;
    run(&kernels[k], TFD_FLOAT32, in, 0, n, y);
    for (int64_t i = 0; i < n; i++) {
      double e = error_of(y[i], kernels[k].exact((double)x[i]));

      if (e <= kernels[k].ulps) continue;
      fail_msg("%s(%a) = %a is off by %g ulp", kernels[k].name, (double)x[i],
               (double)y[i], e);
    }
  }
  free(x);
  free(y);
}

static void fill(char *to, int dtype, int64_t n, int64_t step) {
  size_t size = tfd__dtype_size(dtype);

  for (int64_t i = 0; i < n; i++) {
    double x = (double)(i * step % 2003) / 500.0 - 2.0;

    if (i % 97 == 0) x *= 1e9;
    if (i % 89 == 0) x *= 1e-41;
    tfd__store(to + (size_t)i * size, dtype, x);
  }
}

static void positions_do_not_matter(void **state) {
  enum { N = 1200 };
  char *in[2] = {room(N * 8), room(N * 8)};
  char *all = room(N * 8);
  char *part = room(N * 8);

  (void)state;
  for (size_t k = 0; k < KERNELS; k++) {
    for (size_t d = 0; d < 4; d++) {
      size_t size = tfd__dtype_size(dtypes[d]);

      fill(in[0], dtypes[d], N, 7919);
      fill(in[1], dtypes[d], N, 104729);
      run(&kernels[k], dtypes[d], in, 0, N, all);
      for (int64_t at = 0; at < 33; at++) {
        for (int64_t n = 1; n < 90; n += 4) {
          run(&kernels[k], dtypes[d], in, at, n, part);
          assert_memory_equal(all + (size_t)at * size, part, (size_t)n * size);
        }
      }
    }
  }
  free(in[0]);
  free(in[1]);
  free(all);
  free(part);
}

typedef struct reduction {
  tfd__kernel run;
  int64_t dims[3];
  int64_t axes[3]; /* count, axes */
  int64_t out;
} reduction;

static void reduce(const reduction *r, int dtype, char *in, void *out) {
  tfd__view views[2] = {{0}};
  int64_t ints[10] = {r->axes[0], r->axes[1], r->axes[2]};
  tfd__call call = {.name = "reduce",
                    .views = views,
                    .in_n = 1,
                    .out_n = 1,
                    .ints = ints,
                    .ints_n = 10};

  assert_int_equal(TFD_OK, tfd__view_set(&views[0], dtype, r->dims, 3));
  assert_int_equal(TFD_OK, tfd__view_set(&views[1], dtype, &r->out, 1));
  views[0].data = in;
  views[1].data = out;
  assert_int_equal(TFD_OK, r->run(&call));
  tfd__scratch_reset();
}

static void threads_do_not_matter(void **state) {
  static const reduction reductions[] = {
      {tfd__cpu_reduce_sum, {3, 1000, 100}, {-1}, 1},
      {tfd__cpu_reduce_sum, {3, 1000, 100}, {2, 0, 1}, 100},
      {tfd__cpu_reduce_mean, {1, 30000, 10}, {1, 1}, 10},
      {tfd__cpu_reduce_sum, {3, 1000, 100}, {1, 2}, 3000},
      {tfd__cpu_reduce_max, {3, 1000, 100}, {2, 1, 2}, 3},
      {tfd__cpu_reduce_variance, {3, 1000, 100}, {-1}, 1},
      {tfd__cpu_reduce_logsumexp, {2, 3, 50000}, {1, 2}, 6},
      {tfd__cpu_reduce_prod, {1, 1, 300000}, {-1}, 1},
  };
  char *in[2] = {room(MOST * 8), room(MOST * 8)};
  char *one = room(MOST * 8);
  char *many = room(MOST * 8);

  (void)state;
  for (size_t d = 0; d < 4; d++) {
    size_t size = tfd__dtype_size(dtypes[d]);

    fill(in[0], dtypes[d], MOST, 7919);
    fill(in[1], dtypes[d], MOST, 104729);
    for (size_t k = 0; k < KERNELS; k++) {
      tfd__threads_set(1);
      run(&kernels[k], dtypes[d], in, 0, MOST, one);
      tfd__threads_set(3);
      run(&kernels[k], dtypes[d], in, 0, MOST, many);
      assert_memory_equal(one, many, MOST * size);
    }
    for (size_t r = 0; r < sizeof reductions / sizeof reductions[0]; r++) {
      tfd__threads_set(1);
      reduce(&reductions[r], dtypes[d], in[0], one);
      tfd__threads_set(3);
      reduce(&reductions[r], dtypes[d], in[0], many);
      assert_memory_equal(one, many, (size_t)reductions[r].out * size);
    }
  }
  tfd__threads_set(1);
  free(in[0]);
  free(in[1]);
  free(one);
  free(many);
}

/* A sum of a million tenths: added one by one in float32 it would be 100958. */
static void long_sums_keep_their_digits(void **state) {
  static const int64_t shapes[2][3] = {{1, 1, 1000000}, {1, 1000000, 8}};
  float *x = room(sizeof(float) * 8000000);

  (void)state;
  for (int64_t i = 0; i < 8000000; i++) x[i] = 0.1f;
  for (int s = 0; s < 2; s++) {
    reduction r = {tfd__cpu_reduce_sum,
                   {0},
                   {1, s == 0 ? 2 : 1},
                   shapes[s][s == 0 ? 1 : 2]};
    float sum[8] = {0};

    memcpy(r.dims, shapes[s], sizeof r.dims);
    reduce(&r, TFD_FLOAT32, (char *)x, sum);
    for (int64_t i = 0; i < r.out; i++) {
      /* How far depends on the vector length: 0.03 with 16 lanes. */
      assert_true(fabs((double)sum[i] - 1e6 * (double)0.1f) < 0.5);
    }
  }
  free(x);
}

static void halves_convert_as_single_elements_do(void **state) {
  uint16_t h[65536];
  float *f = room(sizeof(float) * 65536);
  uint16_t back[65536];

  (void)state;
  for (int i = 0; i < 65536; i++) h[i] = (uint16_t)i;
  for (int d = 0; d < 2; d++) {
    int dtype = d == 0 ? TFD_FLOAT16 : TFD_BFLOAT16;

    tfd__halves_to_floats(dtype, f, h, 65536);
    tfd__floats_to_halves(dtype, back, f, 65536);
    for (int i = 0; i < 65536; i++) {
      float want = d == 0 ? tfd__half_to_float(h[i]) : tfd__bf16_to_float(h[i]);

      if (isnan(want)) {
        assert_true(isnan(f[i]));
        continue;
      }
      assert_memory_equal(&want, &f[i], sizeof want);
      assert_int_equal(h[i], back[i]);
    }
    /* Between two neighbours, ties and just beside them. */
    for (int i = 0; i < 65536; i++) {
      f[i] *= 1.0f + (float)(i % 5 - 2) * 0x1p-12f;
    }
    tfd__floats_to_halves(dtype, back, f, 65536);
    for (int i = 0; i < 65536; i++) {
      if (isnan(f[i])) continue;
      assert_int_equal(d == 0 ? tfd__float_to_half(f[i])
                              : tfd__float_to_bf16(f[i]),
                       back[i]);
    }
  }
  free(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_are_accurate),
      cmocka_unit_test(positions_do_not_matter),
      cmocka_unit_test(threads_do_not_matter),
      cmocka_unit_test(long_sums_keep_their_digits),
      cmocka_unit_test(halves_convert_as_single_elements_do),
  };

  return cmocka_run_group_tests_name("backend/cpu/elementwise", tests, NULL,
                                     NULL);
}
