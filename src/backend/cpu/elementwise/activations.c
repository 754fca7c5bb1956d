/* Activations and the kernels of their gradients. */
#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/vmath.h"

#include <math.h>

/* --- relu and relu6, for every number; NaN stays NaN
 * ---------------------------- */

/* Comparing this way round gives NaN for NaN; unsigned types cannot. */
#define FLOAT_RELU(type) (x < (type)0 ? (type)0 : x)
#define FLOAT_RELU6(type) (x < (type)0 ? (type)0 : (x > (type)6 ? (type)6 : x))
#define INT_RELU(type) (x > (type)0 ? x : (type)0)
#define INT_RELU6(type) (x > (type)0 ? (x < (type)6 ? x : (type)6) : (type)0)

#define RELU_ROWS(suffix, type, kind)                                 \
  TFD_ROW1(relu_##suffix, type, type, kind##_RELU(type))              \
  TFD_ROW1(relu6_##suffix, type, type, kind##_RELU6(type))            \
  TFD_ROW2(relu_grad_##suffix, type, type, y > (type)0 ? x : (type)0) \
  TFD_ROW2(relu6_grad_##suffix, type, type,                           \
           y > (type)0 && y < (type)6 ? x : (type)0)

RELU_ROWS(f32, float, FLOAT)
RELU_ROWS(f64, double, FLOAT)
RELU_ROWS(i8, int8_t, INT)
RELU_ROWS(i16, int16_t, INT)
RELU_ROWS(i32, int32_t, INT)
RELU_ROWS(i64, int64_t, INT)
RELU_ROWS(u8, uint8_t, INT)

#define NUMBER_KERNEL(name)                                                   \
  int tfd__cpu_##name(const tfd__call *call) {                                \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name), TFD_ROWS_INT(name)}; \
    return tfd__elementwise_of(call, rows, 0, false, NULL);                   \
  }

NUMBER_KERNEL(relu)
NUMBER_KERNEL(relu6)
NUMBER_KERNEL(relu_grad)
NUMBER_KERNEL(relu6_grad)

/* --- leaky_relu and elu: the attribute alpha reaches the rows as ctx
 * ------------- */

#define ALPHA(type) (*(const type *)ctx)

/* Both sides are computed, then one is taken: a load on one side only would
** keep the compiler from vectors. */
#define ALPHA_ROWS(suffix, type, exp_minus_1)                   \
  TFD_INLINE type choose_##suffix(bool first, type a, type b) { \
    return first ? a : b;                                       \
  }                                                             \
  TFD_ROW1(leaky_relu_##suffix, type, type,                     \
           choose_##suffix(x > (type)0, x, x * ALPHA(type)))    \
  TFD_ROW2(leaky_relu_grad_##suffix, type, type,                \
           choose_##suffix(y > (type)0, x, x * ALPHA(type)))    \
  TFD_ROW1(elu_##suffix, type, type,                            \
           choose_##suffix(x > (type)0, x, ALPHA(type) * exp_minus_1(x)))

ALPHA_ROWS(f32, float, tfd__expm1f)
ALPHA_ROWS(f64, double, expm1)

static int with_alpha(const tfd__call *call, const tfd__rows rows) {
  float narrow = (float)call->reals[0];
  double wide = call->reals[0];
  bool f64 = tfd__in(call, 0)->dtype == TFD_FLOAT64;

  return tfd__elementwise_of(call, rows, 0, false,
                             f64 ? (void *)&wide : (void *)&narrow);
}

#define ALPHA_KERNEL(name)                                \
  int tfd__cpu_##name(const tfd__call *call) {            \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name)}; \
    return with_alpha(call, rows);                        \
  }

ALPHA_KERNEL(leaky_relu)
ALPHA_KERNEL(leaky_relu_grad)
ALPHA_KERNEL(elu)

/* --- smooth ones
 * ------------------------------------------------------------------ */

/* Klambauer et al. 2017: the fixed point of mean 0, variance 1. */
#define SELU_ALPHA 1.6732632423543772848170429916717
#define SELU_SCALE 1.0507009873554804934193349852946
#define SQRT_HALF 0.70710678118654752440084436210485
#define SQRT_2_OVER_PI 0.79788456080286535587989211986876

#define GELU_TANH_INNER(type, x) \
  (x * (x * x * (type)0.044715 + (type)1) * (type)SQRT_2_OVER_PI)

#define SMOOTH_ROWS(suffix, type, exp_minus_1)                                 \
  TFD_ROW1(                                                                    \
      selu_##suffix, type, type,                                               \
      (type)SELU_SCALE *(x > (type)0 ? x : (type)SELU_ALPHA * exp_minus_1(x))) \
  TFD_ROW1(softsign_##suffix, type, type,                                      \
           x / ((type)1 + (x < (type)0 ? -x : x)))

SMOOTH_ROWS(f32, float, tfd__expm1f)
SMOOTH_ROWS(f64, double, expm1)

static double sigmoid(double x) {
  return 1.0 / (1.0 + exp(-x));
}

TFD_ROW1(gelu_f64, double, double, x *((erf(x * SQRT_HALF) + 1.0) * 0.5))
TFD_ROW1(gelu_tanh_f64, double, double,
         (x * 0.5) * (tanh(GELU_TANH_INNER(double, x)) + 1.0))
TFD_ROW1(swish_f64, double, double, x *sigmoid(x))

/* In float32 with the function's own row between what leads to it and what
** follows: these are the bits of the ops that the activation is made of, which
** fused programs share with its gradient (strip/open.c). */
#define AROUND_ROW(name, function, before, after)                      \
  TFD_CLONES static void name##_before(float *part, const float *in,   \
                                       int64_t n) {                    \
    for (int64_t i = 0; i < n; i++) {                                  \
      const float x = in[i];                                           \
      part[i] = before;                                                \
    }                                                                  \
  }                                                                    \
  TFD_CLONES static void name##_after(float *out, const float *in,     \
                                      const float *part, int64_t n) {  \
    for (int64_t i = 0; i < n; i++) {                                  \
      const float x = in[i];                                           \
      const float y = part[i];                                         \
      out[i] = after;                                                  \
    }                                                                  \
  }                                                                    \
  static void name##_f32(void *out, const void *const *in, int scalar, \
                         int64_t n, void *ctx) {                       \
    float part[TFD_CHUNK];                                             \
    (void)ctx;                                                         \
    (void)scalar;                                                      \
    for (int64_t i = 0; i < n; i += TFD_CHUNK) {                       \
      const float *x = (const float *)in[0] + i;                       \
      int64_t m = n - i < TFD_CHUNK ? n - i : TFD_CHUNK;               \
                                                                       \
      name##_before(part, x, m);                                       \
      tfd__##function##_row(part, part, m);                            \
      name##_after((float *)out + i, x, part, m);                      \
    }                                                                  \
  }                                                                    \
  int tfd__cpu_##name(const tfd__call *call) {                         \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name)};              \
    return tfd__elementwise_of(call, rows, 0, true, NULL);             \
  }

AROUND_ROW(gelu, erf, x *(float)SQRT_HALF, x *((y + 1.0f) * 0.5f))
AROUND_ROW(gelu_tanh, tanh, GELU_TANH_INNER(float, x), (x * 0.5f) * (y + 1.0f))
AROUND_ROW(swish, sigmoid, x, x *y)

#define FLOAT_KERNEL(name)                                  \
  int tfd__cpu_##name(const tfd__call *call) {              \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name)};   \
    return tfd__elementwise_of(call, rows, 0, false, NULL); \
  }

FLOAT_KERNEL(selu)
FLOAT_KERNEL(softsign)
