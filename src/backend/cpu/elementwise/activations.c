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

#define GELU_INNER(type, x) \
  ((type)SQRT_2_OVER_PI * ((x) + (type)0.044715 * (x) * (x) * (x)))

#define SMOOTH_ROWS(suffix, type, exp_minus_1, erf_, tanh_, sigmoid_)          \
  TFD_ROW1(                                                                    \
      selu_##suffix, type, type,                                               \
      (type)SELU_SCALE *(x > (type)0 ? x : (type)SELU_ALPHA * exp_minus_1(x))) \
  TFD_ROW1(gelu_##suffix, type, type,                                          \
           (type)0.5 * x * ((type)1 + erf_(x * (type)SQRT_HALF)))              \
  TFD_ROW1(gelu_tanh_##suffix, type, type,                                     \
           (type)0.5 * x * ((type)1 + tanh_(GELU_INNER(type, x))))             \
  TFD_ROW1(swish_##suffix, type, type, x *sigmoid_(x))                         \
  TFD_ROW1(softsign_##suffix, type, type,                                      \
           x / ((type)1 + (x < (type)0 ? -x : x)))

static double sigmoid(double x) {
  return 1.0 / (1.0 + exp(-x));
}

SMOOTH_ROWS(f32, float, tfd__expm1f, tfd__erff, tfd__tanhf, tfd__sigmoidf)
SMOOTH_ROWS(f64, double, expm1, erf, tanh, sigmoid)

#define FLOAT_KERNEL(name)                                  \
  int tfd__cpu_##name(const tfd__call *call) {              \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name)};   \
    return tfd__elementwise_of(call, rows, 0, false, NULL); \
  }

FLOAT_KERNEL(selu)
FLOAT_KERNEL(gelu)
FLOAT_KERNEL(gelu_tanh)
FLOAT_KERNEL(swish)
FLOAT_KERNEL(softsign)
