/* Elementwise arithmetic of two tensors. */
#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/special.h"
#include "backend/cpu/elementwise/vmath.h"

#define NUMBER_ROWS(name, e32, e64, eint)                \
  TFD_ROW2(name##_f32, float, float, e32)                \
  TFD_ROW2(name##_f64, double, double, e64)              \
  TFD_ROW2(name##_i8, int8_t, int8_t, eint(uint32_t))    \
  TFD_ROW2(name##_i16, int16_t, int16_t, eint(uint32_t)) \
  TFD_ROW2(name##_i32, int32_t, int32_t, eint(uint32_t)) \
  TFD_ROW2(name##_i64, int64_t, int64_t, eint(uint64_t)) \
  TFD_ROW2(name##_u8, uint8_t, uint8_t, eint(uint32_t))

#define NUMBER_KERNEL(name, e32, e64, eint)                                   \
  NUMBER_ROWS(name, e32, e64, eint)                                           \
  int tfd__cpu_##name(const tfd__call *call) {                                \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name), TFD_ROWS_INT(name)}; \
    return tfd__elementwise_of(call, rows, 0, false, NULL);                   \
  }

/* Integer expressions are computed in the unsigned type U: they wrap. */
#define ADD_INT(U) ((U)x + (U)y)
#define SUBTRACT_INT(U) ((U)x - (U)y)
#define MULTIPLY_INT(U) ((U)x * (U)y)
#define MAXIMUM_INT(U) (x >= y ? x : y)
#define MINIMUM_INT(U) (x <= y ? x : y)
#define SQUARED_DIFFERENCE_INT(U) (((U)x - (U)y) * ((U)x - (U)y))

NUMBER_KERNEL(add, x + y, x + y, ADD_INT)
NUMBER_KERNEL(subtract, x - y, x - y, SUBTRACT_INT)
NUMBER_KERNEL(multiply, x *y, x *y, MULTIPLY_INT)
/* A NaN on either side wins. */
#define MAXIMUM_FLOAT (((x >= y) | (x != x)) ? x : y)
#define MINIMUM_FLOAT (((x <= y) | (x != x)) ? x : y)
NUMBER_KERNEL(maximum, MAXIMUM_FLOAT, MAXIMUM_FLOAT, MAXIMUM_INT)
NUMBER_KERNEL(minimum, MINIMUM_FLOAT, MINIMUM_FLOAT, MINIMUM_INT)
NUMBER_KERNEL(squared_difference, (x - y) * (x - y), (x - y) * (x - y),
              SQUARED_DIFFERENCE_INT)

#define FLOAT_KERNEL(name, e32, e64)                        \
  TFD_ROW2(name##_f32, float, float, e32)                   \
  TFD_ROW2(name##_f64, double, double, e64)                 \
  int tfd__cpu_##name(const tfd__call *call) {              \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name)};   \
    return tfd__elementwise_of(call, rows, 0, false, NULL); \
  }
/* Of tanh and sigmoid, from the output x and the gradient y that arrives. */
FLOAT_KERNEL(tanh_grad, y *(1.0f - x * x), y *(1.0 - x * x))
FLOAT_KERNEL(sigmoid_grad, y *x *(1.0f - x), y *x *(1.0 - x))
FLOAT_KERNEL(multiply_no_nan, y == 0.0f ? 0.0f : x * y, y == 0.0 ? 0.0 : x * y)

#define HEAVY_KERNEL(name, e32, e64)                       \
  TFD_ROW2_HEAVY(name##_f32, float, float, e32)            \
  TFD_ROW2_HEAVY(name##_f64, double, double, e64)          \
  int tfd__cpu_##name(const tfd__call *call) {             \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name)};  \
    return tfd__elementwise_of(call, rows, 0, true, NULL); \
  }
HEAVY_KERNEL(atan2, atan2f(x, y), atan2(x, y))
HEAVY_KERNEL(xdivy, x == 0.0f ? 0.0f : x / y, x == 0.0 ? 0.0 : x / y)
HEAVY_KERNEL(xlogy, x == 0.0f ? 0.0f : x * tfd__logf(y),
             x == 0.0 ? 0.0 : x * log(y))
HEAVY_KERNEL(xlog1py, x == 0.0f ? 0.0f : x * tfd__log1pf(y),
             x == 0.0 ? 0.0 : x * log1p(y))
HEAVY_KERNEL(nextafter, nextafterf(x, y), nextafter(x, y))
HEAVY_KERNEL(zeta, tfd__zeta((double)x, (double)y), tfd__zeta(x, y))
HEAVY_KERNEL(polygamma, tfd__polygamma((double)x, (double)y),
             tfd__polygamma(x, y))
HEAVY_KERNEL(igamma, tfd__igamma((double)x, (double)y), tfd__igamma(x, y))
HEAVY_KERNEL(igammac, tfd__igammac((double)x, (double)y), tfd__igammac(x, y))

/* True division: small integers give float32, int32 and int64 float64. */
#define DIVIDE_ROWS(name, e32, e64)                                           \
  TFD_ROW2(name##_f32, float, float, e32)                                     \
  TFD_ROW2(name##_f64, double, double, e64)                                   \
  TFD_ROW2(name##_i8, int8_t, float, (float)e32)                              \
  TFD_ROW2(name##_i16, int16_t, float, (float)e32)                            \
  TFD_ROW2(name##_i32, int32_t, double, e64)                                  \
  TFD_ROW2(name##_i64, int64_t, double, e64)                                  \
  TFD_ROW2(name##_u8, uint8_t, float, (float)e32)                             \
  int tfd__cpu_##name(const tfd__call *call) {                                \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(name), TFD_ROWS_INT(name)}; \
    return tfd__elementwise_of(call, rows, 0, false, NULL);                   \
  }
#define OVER32 ((float)x / (float)y)
#define OVER64 ((double)x / (double)y)
DIVIDE_ROWS(divide, OVER32, OVER64)
DIVIDE_ROWS(divide_no_nan, (y == 0 ? 0.0f : OVER32), (y == 0 ? 0.0 : OVER64))

/* Sum of any number of equal shapes, tile by tile so that each tile of the
** result stays in cache. */
typedef struct add_n_job {
  const tfd__call *call;
  tfd__row row;
  size_t size;
} add_n_job;

static void add_n_half(const tfd__call *call, int64_t at, int64_t n) {
  int dtype = tfd__out(call, 0)->dtype;
  float sum[TFD_CHUNK];
  float next[TFD_CHUNK];
  const void *pair[2] = {sum, next};

  tfd__halves_to_floats(dtype, sum,
                        (const uint16_t *)tfd__in(call, 0)->data + at, n);
  for (int k = 1; k < call->in_n; k++) {
    tfd__halves_to_floats(dtype, next,
                          (const uint16_t *)tfd__in(call, k)->data + at, n);
    add_f32(sum, pair, 0, n, NULL);
  }
  tfd__floats_to_halves(dtype, (uint16_t *)tfd__out(call, 0)->data + at, sum,
                        n);
}

static void add_n_range(void *arg, int64_t begin, int64_t end) {
  const add_n_job *job = arg;
  const tfd__call *call = job->call;
  const tfd__view *out = tfd__out(call, 0);

  for (int64_t i = begin; i < end; i += TFD_CHUNK) {
    int64_t n = end - i < TFD_CHUNK ? end - i : TFD_CHUNK;
    size_t offset = (size_t)i * job->size;
    char *to = (char *)out->data + offset;
    const void *pair[2] = {to, NULL};

    if (tfd__is_half(out->dtype)) {
      add_n_half(call, i, n);
      continue;
    }
    tfd__gather_row(to, (const char *)tfd__in(call, 0)->data + offset, 1, n,
                    job->size);
    for (int k = 1; k < call->in_n; k++) {
      pair[1] = (const char *)tfd__in(call, k)->data + offset;
      job->row(to, pair, 0, n, NULL);
    }
  }
}

int tfd__cpu_add_n(const tfd__call *call) {
  static const tfd__rows rows = {TFD_ROWS_FLOAT(add), TFD_ROWS_INT(add)};
  const tfd__view *out = tfd__out(call, 0);
  add_n_job job = {call, rows[out->dtype], tfd__dtype_size(out->dtype)};

  tfd__parallel_for(out->numel, TFD_GRAIN, add_n_range, &job);
  return TFD_OK;
}
