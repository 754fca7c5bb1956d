/* Comparisons, logic and bits. */
#include "backend/cpu/loops.h"

#define COMPARE(name, op)                                                  \
  TFD_ROW2(name##_f32, float, uint8_t, x op y)                             \
  TFD_ROW2(name##_f64, double, uint8_t, x op y)                            \
  TFD_ROW2(name##_i8, int8_t, uint8_t, x op y)                             \
  TFD_ROW2(name##_i16, int16_t, uint8_t, x op y)                           \
  TFD_ROW2(name##_i32, int32_t, uint8_t, x op y)                           \
  TFD_ROW2(name##_i64, int64_t, uint8_t, x op y)                           \
  TFD_ROW2(name##_u8, uint8_t, uint8_t, x op y)                            \
  int tfd__cpu_##name(const tfd__call *call) {                             \
    static const tfd__rows rows = {                                        \
        TFD_ROWS_FLOAT(name), TFD_ROWS_INT(name), [TFD_BOOL] = name##_u8}; \
    return tfd__elementwise_of(call, rows, 0, false, NULL);                \
  }
COMPARE(equal, ==)
COMPARE(not_equal, !=)
COMPARE(less, <)
COMPARE(less_equal, <=)
COMPARE(greater, >)
COMPARE(greater_equal, >=)

#define LOGICAL(name, expr)                               \
  TFD_ROW2(name##_b, uint8_t, uint8_t, expr)              \
  int tfd__cpu_##name(const tfd__call *call) {            \
    return tfd__elementwise(call, name##_b, false, NULL); \
  }
LOGICAL(logical_and, (x & y) != 0)
LOGICAL(logical_or, (x | y) != 0)
LOGICAL(logical_xor, (x ^ y) != 0)

/* expr(U, bits): U is the unsigned type to shift in, bits the type's width. */
#define BITWISE(name, expr)                                  \
  TFD_ROW2(name##_i8, int8_t, int8_t, expr(uint32_t, 8))     \
  TFD_ROW2(name##_i16, int16_t, int16_t, expr(uint32_t, 16)) \
  TFD_ROW2(name##_i32, int32_t, int32_t, expr(uint32_t, 32)) \
  TFD_ROW2(name##_i64, int64_t, int64_t, expr(uint64_t, 64)) \
  TFD_ROW2(name##_u8, uint8_t, uint8_t, expr(uint32_t, 8))   \
  int tfd__cpu_##name(const tfd__call *call) {               \
    static const tfd__rows rows = {TFD_ROWS_INT(name)};      \
    return tfd__elementwise_of(call, rows, 0, false, NULL);  \
  }
/* Shift counts outside the type are clamped, as TensorFlow does. */
#define CLAMPED(bits) (tfd__below_zero(y) ? 0 : (y > bits - 1 ? bits - 1 : y))
#define AND(U, bits) (x & y)
#define OR(U, bits) (x | y)
#define XOR(U, bits) (x ^ y)
#define LEFT(U, bits) ((U)x << CLAMPED(bits))
#define RIGHT(U, bits) (x >> CLAMPED(bits))
BITWISE(bitwise_and, AND)
BITWISE(bitwise_or, OR)
BITWISE(bitwise_xor, XOR)
BITWISE(left_shift, LEFT)
BITWISE(right_shift, RIGHT)
