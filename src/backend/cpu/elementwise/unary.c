/* Elementwise functions of one tensor. */
/* Products and sums may be fused: the polynomials run a third faster, in rows
** that treat every element alike (TFD_ROW1_BLOCKS). */
#include "backend/cpu/fused.h"

#include <string.h>

#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/special.h"
#include "backend/cpu/elementwise/vmath.h"

/* K(name, float32 expression, float64 expression) of x, floats only. */
#define POLYNOMIAL_UNARY(K)                            \
  K(exp, tfd__expf(x), exp(x))                         \
  K(expm1, tfd__expm1f(x), expm1(x))                   \
  K(log, tfd__logf(x), log(x))                         \
  K(log1p, tfd__log1pf(x), log1p(x))                   \
  K(asin, tfd__asinf(x), asin(x))                      \
  K(acos, tfd__acosf(x), acos(x))                      \
  K(atan, tfd__atanf(x), atan(x))                      \
  K(sinh, tfd__sinhf(x), sinh(x))                      \
  K(cosh, tfd__coshf(x), cosh(x))                      \
  K(tanh, tfd__tanhf(x), tanh(x))                      \
  K(asinh, tfd__asinhf(x), asinh(x))                   \
  K(acosh, tfd__acoshf(x), acosh(x))                   \
  K(atanh, tfd__atanhf(x), atanh(x))                   \
  K(erf, tfd__erff(x), erf(x))                         \
  K(sigmoid, tfd__sigmoidf(x), sigmoid64(x))           \
  K(log_sigmoid, -tfd__softplusf(-x), -softplus64(-x)) \
  K(softplus, tfd__softplusf(x), softplus64(x))
#define FLOAT_UNARY(K)                                 \
  K(reciprocal, 1.0f / x, 1.0 / x)                     \
  K(sqrt, sqrtf(x), sqrt(x))                           \
  K(rsqrt, 1.0f / sqrtf(x), 1.0 / sqrt(x))             \
  K(erfc, erfcf(x), erfc(x))                           \
  K(erfinv, tfd__erfinv((double)x), tfd__erfinv(x))    \
  K(ndtri, tfd__ndtri((double)x), tfd__ndtri(x))       \
  K(lgamma, tfd__lgamma((double)x), tfd__lgamma(x))    \
  K(digamma, tfd__digamma((double)x), tfd__digamma(x)) \
  K(ceil, ceilf(x), ceil(x))                           \
  K(floor, floorf(x), floor(x))                        \
  K(rint, rintf(x), rint(x))

TFD_INLINE double sigmoid64(double x) {
  double e = exp(-fabs(x));

  return x < 0.0 ? e / (1.0 + e) : 1.0 / (1.0 + e);
}

TFD_INLINE double softplus64(double x) {
  return (x > 0.0 ? x : (x != x ? x : 0.0)) + log1p(exp(-fabs(x)));
}

#define POLYNOMIAL_KERNEL(name, e32, e64) \
  TFD_ROW1_BLOCKS(name##_f32, e32)        \
  FLOAT64_KERNEL(name, e64)
#define FLOAT_KERNEL(name, e32, e64)      \
  TFD_ROW1(name##_f32, float, float, e32) \
  FLOAT64_KERNEL(name, e64)
#define FLOAT64_KERNEL(name, e64)                           \
  TFD_ROW1(name##_f64, double, double, e64)                 \
  int tfd__cpu_##name(const tfd__call *call) {              \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name)};   \
    return tfd__elementwise_of(call, rows, 0, false, NULL); \
  }
POLYNOMIAL_UNARY(POLYNOMIAL_KERNEL)

#define SHARED_ROW(name)                                          \
  void tfd__##name##_row(float *out, const float *x, int64_t n) { \
    tfd__run_blocks(name##_f32_blocks, out, x, false, n);         \
  }
SHARED_ROW(exp)
SHARED_ROW(tanh)
SHARED_ROW(erf)
SHARED_ROW(sigmoid)

FLOAT_UNARY(FLOAT_KERNEL)

/* K(name, float32, float64, integer expression of x computed in the unsigned
** type U, so that it wraps), floats and integers. */
#define ABS_INT(U) (tfd__below_zero(x) ? 0 - (U)x : (U)x)
#define NEGATIVE_INT(U) (0 - (U)x)
#define SQUARE_INT(U) ((U)x * (U)x)
#define SIGN_INT(U) ((x > 0) - tfd__below_zero(x))
#define NUMBER_UNARY(K)                             \
  K(abs, fabsf(x), fabs(x), ABS_INT)                \
  K(negative, -x, -x, NEGATIVE_INT)                 \
  K(square, x *x, x *x, SQUARE_INT)                 \
  K(sign, x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : x), \
    x > 0.0 ? 1.0 : (x < 0.0 ? -1.0 : x), SIGN_INT)

#define NUMBER_KERNEL(name, e32, e64, eint)                                   \
  TFD_ROW1(name##_f32, float, float, e32)                                     \
  TFD_ROW1(name##_f64, double, double, e64)                                   \
  TFD_ROW1(name##_i8, int8_t, int8_t, eint(uint32_t))                         \
  TFD_ROW1(name##_i16, int16_t, int16_t, eint(uint32_t))                      \
  TFD_ROW1(name##_i32, int32_t, int32_t, eint(uint32_t))                      \
  TFD_ROW1(name##_i64, int64_t, int64_t, eint(uint64_t))                      \
  TFD_ROW1(name##_u8, uint8_t, uint8_t, eint(uint32_t))                       \
  int tfd__cpu_##name(const tfd__call *call) {                                \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name), TFD_ROWS_INT(name)}; \
    return tfd__elementwise_of(call, rows, 0, false, NULL);                   \
  }
NUMBER_UNARY(NUMBER_KERNEL)

/* sin, cos, tan: arguments beyond the fast reduction go through libm in a
** second pass, so that the first has no branch. */
static bool any_beyond(const float *x, int64_t n) {
  int big = 0;

  for (int64_t i = 0; i < n; i++) big |= fabsf(x[i]) > TFD_TRIG_MAX;
  return big != 0;
}

#define TRIG_KERNEL(name)                                                 \
  TFD_ROW1_BLOCKS(name##_fast, tfd__##name##f(x))                         \
  static void name##_f32(void *out, const void *const *in, int scalar,    \
                         int64_t n, void *ctx) {                          \
    float *o = out;                                                       \
    (void)scalar;                                                         \
    for (int64_t i = 0; i < n; i += TFD_CHUNK) {                          \
      int64_t m = n - i < TFD_CHUNK ? n - i : TFD_CHUNK;                  \
      float x[TFD_CHUNK]; /* the input again: it may be the output too */ \
      const void *kept = x;                                               \
      memcpy(x, (const float *)in[0] + i, (size_t)m * sizeof(float));     \
      name##_fast(o + i, &kept, 0, m, ctx);                               \
      if (!any_beyond(x, m)) continue;                                    \
      for (int64_t j = 0; j < m; j++) {                                   \
        if (fabsf(x[j]) > TFD_TRIG_MAX) o[i + j] = name##f(x[j]);         \
      }                                                                   \
    }                                                                     \
  }                                                                       \
  TFD_ROW1(name##_f64, double, double, name(x))                           \
  int tfd__cpu_##name(const tfd__call *call) {                            \
    static const tfd__rows rows = {[TFD_FLOAT32] = name##_f32,            \
                                   [TFD_FLOAT64] = name##_f64,            \
                                   [TFD_FLOAT16] = name##_f32,            \
                                   [TFD_BFLOAT16] = name##_f32};          \
    return tfd__elementwise_of(call, rows, 0, true, NULL);                \
  }
TRIG_KERNEL(sin)
TRIG_KERNEL(cos)
TRIG_KERNEL(tan)

/* Tests of floats, bool results. */
#define FLOAT_TEST(name, expr)                              \
  TFD_ROW1(name##_f32, float, uint8_t, expr)                \
  TFD_ROW1(name##_f64, double, uint8_t, expr)               \
  int tfd__cpu_##name(const tfd__call *call) {              \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name)};   \
    return tfd__elementwise_of(call, rows, 0, false, NULL); \
  }
FLOAT_TEST(is_nan, x != x)
FLOAT_TEST(is_inf, fabs((double)x) == (double)INFINITY)
FLOAT_TEST(is_finite, fabs((double)x) < (double)INFINITY)

TFD_ROW1(logical_not_b, uint8_t, uint8_t, x == 0)
int tfd__cpu_logical_not(const tfd__call *call) {
  return tfd__elementwise(call, logical_not_b, false, NULL);
}

#define INVERT(name, type) TFD_ROW1(name, type, type, ~x)
INVERT(invert_i8, int8_t)
INVERT(invert_i16, int16_t)
INVERT(invert_i32, int32_t)
INVERT(invert_i64, int64_t)
INVERT(invert_u8, uint8_t)
int tfd__cpu_invert(const tfd__call *call) {
  static const tfd__rows rows = {TFD_ROWS_INT(invert)};

  return tfd__elementwise_of(call, rows, 0, false, NULL);
}
