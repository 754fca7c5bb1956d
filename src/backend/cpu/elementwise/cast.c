/* Conversion between dtypes. */
#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/vmath.h"

/* Floating to integer truncates; NaN gives 0, and what does not fit gives the
** nearest integer that does, on every machine. `low` and `high` are exact. */
#define TO_INT(T, low, high, max) \
  (x != x ? (T)0 : (x <= (low) ? (T)(low) : (x >= (high) ? (T)(max) : (T)x)))
#define TO_i8 TO_INT(int8_t, -128, 127, 127)
#define TO_i16 TO_INT(int16_t, -32768, 32767, 32767)
#define TO_i32 TO_INT(int32_t, -2147483648.0f, 2147483648.0f, INT32_MAX)
#define TO_i64 TO_INT(int64_t, -0x1p63f, 0x1p63f, INT64_MAX)
#define TO_u8 TO_INT(uint8_t, 0, 255, 255)

/* All conversions from one type. */
#define FROM_INT(from, T)                \
  TFD_ROW1(from##_to_f32, T, float, x)   \
  TFD_ROW1(from##_to_f64, T, double, x)  \
  TFD_ROW1(from##_to_i8, T, int8_t, x)   \
  TFD_ROW1(from##_to_i16, T, int16_t, x) \
  TFD_ROW1(from##_to_i32, T, int32_t, x) \
  TFD_ROW1(from##_to_i64, T, int64_t, x) \
  TFD_ROW1(from##_to_u8, T, uint8_t, x)  \
  TFD_ROW1(from##_to_b, T, uint8_t, x != 0)
#define FROM_FLOAT(from, T)                   \
  TFD_ROW1(from##_to_f32, T, float, x)        \
  TFD_ROW1(from##_to_f64, T, double, x)       \
  TFD_ROW1(from##_to_i8, T, int8_t, TO_i8)    \
  TFD_ROW1(from##_to_i16, T, int16_t, TO_i16) \
  TFD_ROW1(from##_to_i32, T, int32_t, TO_i32) \
  TFD_ROW1(from##_to_i64, T, int64_t, TO_i64) \
  TFD_ROW1(from##_to_u8, T, uint8_t, TO_u8)   \
  TFD_ROW1(from##_to_b, T, uint8_t, x != 0)
FROM_FLOAT(f32, float)
FROM_FLOAT(f64, double)
FROM_INT(i8, int8_t)
FROM_INT(i16, int16_t)
FROM_INT(i32, int32_t)
FROM_INT(i64, int64_t)
FROM_INT(u8, uint8_t)

/* float64 to a half type: to float32 rounding to odd, after which rounding to
** the half type is as if done in one step. */
static inline float to_odd(double x) {
  float f = (float)x;
  uint32_t u = tfd__f32_bits(f);
  bool finite = (u & 0x7fffffffu) < 0x7f800000u;
  bool away = fabs((double)f) > fabs(x);
  uint32_t odd = (away ? u - 1 : u) | 1u;

  return finite && (double)f != x ? tfd__f32_of(odd) : f;
}
TFD_ROW1(f64_to_half, double, float, to_odd(x))

#define ROWS_FROM(from)                                            \
  {                                                                \
    [TFD_FLOAT32] = from##_to_f32, [TFD_FLOAT64] = from##_to_f64,  \
    [TFD_FLOAT16] = from##_to_f32, [TFD_BFLOAT16] = from##_to_f32, \
    [TFD_INT8] = from##_to_i8, [TFD_INT16] = from##_to_i16,        \
    [TFD_INT32] = from##_to_i32, [TFD_INT64] = from##_to_i64,      \
    [TFD_UINT8] = from##_to_u8, [TFD_BOOL] = from##_to_b           \
  }

int tfd__cpu_cast(const tfd__call *call) {
  static const tfd__rows rows[TFD_DTYPE_END] = {
      [TFD_FLOAT32] = ROWS_FROM(f32), [TFD_FLOAT64] = ROWS_FROM(f64),
      [TFD_FLOAT16] = ROWS_FROM(f32), [TFD_BFLOAT16] = ROWS_FROM(f32),
      [TFD_INT8] = ROWS_FROM(i8),     [TFD_INT16] = ROWS_FROM(i16),
      [TFD_INT32] = ROWS_FROM(i32),   [TFD_INT64] = ROWS_FROM(i64),
      [TFD_UINT8] = ROWS_FROM(u8),    [TFD_BOOL] = ROWS_FROM(u8),
  };
  int from = tfd__in(call, 0)->dtype;
  int to = tfd__out(call, 0)->dtype;

  if (from == TFD_FLOAT64 && tfd__is_half(to)) {
    return tfd__elementwise(call, f64_to_half, false, NULL);
  }
  return tfd__elementwise(call, rows[from][to], false, NULL);
}
