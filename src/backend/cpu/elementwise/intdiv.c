/* Division with a whole quotient, remainders and powers: the ops whose integer
** forms can fail on element values. */
#include <string.h>

#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/vmath.h"

/* Rows set *ctx when they meet a bad element; many threads may. */
static inline void raise_flag(void *ctx) {
  __atomic_store_n((int *)ctx, 1, __ATOMIC_RELAXED);
}

static double floor_mod(double x, double y) {
  double r = fmod(x, y);

  return r != 0.0 && (y < 0.0) != (r < 0.0) ? r + y : r;
}

/* Quotients and remainders in C's sense for y != 0; dividing by -1 is a
** negation that wraps, so that the smallest integer does not trap. */
static inline int64_t quotient(int64_t x, int64_t y) {
  return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}
static inline int64_t remainder_of(int64_t x, int64_t y) {
  return y == -1 ? 0 : x % y;
}

static inline int64_t truncatediv_int(int64_t x, int64_t y, void *ctx) {
  if (y != 0) return quotient(x, y);
  raise_flag(ctx);
  return 0;
}
static inline int64_t truncatemod_int(int64_t x, int64_t y, void *ctx) {
  if (y != 0) return remainder_of(x, y);
  raise_flag(ctx);
  return 0;
}
static inline int64_t floordiv_int(int64_t x, int64_t y, void *ctx) {
  int64_t q = truncatediv_int(x, y, ctx);

  if (y == 0) return 0;
  return remainder_of(x, y) != 0 && (x < 0) != (y < 0) ? q - 1 : q;
}
static inline int64_t floormod_int(int64_t x, int64_t y, void *ctx) {
  int64_t r = truncatemod_int(x, y, ctx);

  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* By squaring, wrapping. Negative exponents are refused. */
static inline int64_t pow_int(int64_t x, int64_t y, void *ctx) {
  uint64_t base = (uint64_t)x;
  uint64_t r = 1;

  if (y < 0) {
    raise_flag(ctx);
    return 0;
  }
  for (; y > 0; y >>= 1) {
    if ((y & 1) != 0) r *= base;
    base *= base;
  }
  return (int64_t)r;
}

#define INT_ROW(name, type)                                                  \
  static void name(void *out_, const void *const *in, int scalar, int64_t n, \
                   void *ctx) {                                              \
    const type *a = in[0];                                                   \
    const type *b = in[1];                                                   \
    type *out = out_;                                                        \
    (void)scalar;                                                            \
    for (int64_t i = 0; i < n; i++) {                                        \
      out[i] = (type)INT_OP((int64_t)a[i], (int64_t)b[i], ctx);              \
    }                                                                        \
  }

#define KERNEL_WITH_ERROR(op, message)                                    \
  int tfd__cpu_##op(const tfd__call *call) {                              \
    static const tfd__rows rows = {TFD_ROWS_FLOAT(op), TFD_ROWS_INT(op)}; \
    int bad = 0;                                                          \
    TFD_TRY(tfd__elementwise_of(call, rows, 0, true, &bad));              \
    if (bad == 0) return TFD_OK;                                          \
    return tfd__fail(TFD_INVALID_ARGUMENT, "%s: " message, call->name);   \
  }

#define INT_ROWS(name)         \
  INT_ROW(name##_i8, int8_t)   \
  INT_ROW(name##_i16, int16_t) \
  INT_ROW(name##_i32, int32_t) \
  INT_ROW(name##_i64, int64_t) \
  INT_ROW(name##_u8, uint8_t)

/* Remainders of float32, first without branches, then, where a quotient was
** too large for that, by libm. Inputs may be the output: they are kept. */
TFD_CLONES static bool fmod_fast(float *out, const float *a, const float *b,
                                 int64_t n) {
  int far = 0;

  TFD_IVDEP
  for (int64_t i = 0; i < n; i++) out[i] = tfd__fmodf(a[i], b[i], &far);
  return far != 0;
}

TFD_CLONES static void floor_adjust(float *out, const float *b, int64_t n) {
  TFD_IVDEP
  for (int64_t i = 0; i < n; i++) {
    float r = out[i];
    float moved = r + b[i];
    bool differ = (b[i] < 0.0f) != (r < 0.0f);

    out[i] = r != 0.0f && differ ? moved : r;
  }
}

static void remainder_f32(float *out, const void *const *in, int64_t n,
                          bool to_floor) {
  const float *a = in[0];
  const float *b = in[1];
  float x[TFD_CHUNK];
  float y[TFD_CHUNK];

  for (int64_t i = 0; i < n; i += TFD_CHUNK) {
    int64_t m = n - i < TFD_CHUNK ? n - i : TFD_CHUNK;

    memcpy(x, a + i, (size_t)m * sizeof(float));
    memcpy(y, b + i, (size_t)m * sizeof(float));
    if (fmod_fast(out + i, x, y, m)) {
      for (int64_t k = 0; k < m; k++) out[i + k] = fmodf(x[k], y[k]);
    }
    if (to_floor) floor_adjust(out + i, y, m);
  }
}

static void floormod_f32(void *out, const void *const *in, int scalar,
                         int64_t n, void *ctx) {
  (void)scalar;
  (void)ctx;
  remainder_f32(out, in, n, true);
}
static void truncatemod_f32(void *out, const void *const *in, int scalar,
                            int64_t n, void *ctx) {
  (void)scalar;
  (void)ctx;
  remainder_f32(out, in, n, false);
}

#define BY_ZERO "integer division by zero"

#define INT_OP floordiv_int
INT_ROWS(floordiv)
#undef INT_OP
TFD_ROW2_HEAVY(floordiv_f32, float, float, floorf(x / y))
TFD_ROW2_HEAVY(floordiv_f64, double, double, floor(x / y))
KERNEL_WITH_ERROR(floordiv, BY_ZERO)

#define INT_OP floormod_int
INT_ROWS(floormod)
#undef INT_OP
TFD_ROW2_HEAVY(floormod_f64, double, double, floor_mod(x, y))
KERNEL_WITH_ERROR(floormod, BY_ZERO)

#define INT_OP truncatediv_int
INT_ROWS(truncatediv)
#undef INT_OP
TFD_ROW2_HEAVY(truncatediv_f32, float, float, truncf(x / y))
TFD_ROW2_HEAVY(truncatediv_f64, double, double, trunc(x / y))
KERNEL_WITH_ERROR(truncatediv, BY_ZERO)

#define INT_OP truncatemod_int
INT_ROWS(truncatemod)
#undef INT_OP
TFD_ROW2_HEAVY(truncatemod_f64, double, double, fmod(x, y))
KERNEL_WITH_ERROR(truncatemod, BY_ZERO)

#define INT_OP pow_int
INT_ROWS(pow)
#undef INT_OP
TFD_ROW2_HEAVY(pow_f32, float, float, tfd__powf(x, y))
TFD_ROW2_HEAVY(pow_f64, double, double, pow(x, y))
KERNEL_WITH_ERROR(pow, "integers to negative integer powers are not defined; "
                       "cast to a floating-point dtype")
