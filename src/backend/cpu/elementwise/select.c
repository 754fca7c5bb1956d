/* Choosing elements: select (where) and clip_by_value. */
#include "backend/cpu/loops.h"

/* The condition is a bool tensor; x and y are moved, not computed with, so
** only their size matters and half types need no conversion. */
#define SELECT_ROW(name, type)                                               \
  TFD_CLONES static void name(void *out_, const void *const *in, int scalar, \
                              int64_t n, void *ctx) {                        \
    const uint8_t *c = in[0];                                                \
    const type *a = in[1];                                                   \
    const type *b = in[2];                                                   \
    type *out = out_;                                                        \
    (void)ctx;                                                               \
    if (scalar == 0) {                                                       \
      TFD_IVDEP                                                              \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type x = a[i];                                                 \
        const type y = b[i];                                                 \
        out[i] = c[i] != 0 ? x : y;                                          \
      }                                                                      \
    } else if (scalar == 4) {                                                \
      const type y = b[0];                                                   \
      TFD_IVDEP                                                              \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type x = a[i];                                                 \
        out[i] = c[i] != 0 ? x : y;                                          \
      }                                                                      \
    } else if (scalar == 2) {                                                \
      const type x = a[0];                                                   \
      TFD_IVDEP                                                              \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type y = b[i];                                                 \
        out[i] = c[i] != 0 ? x : y;                                          \
      }                                                                      \
    } else {                                                                 \
      int64_t cs = (scalar & 1) != 0 ? 0 : 1;                                \
      int64_t as = (scalar & 2) != 0 ? 0 : 1;                                \
      int64_t bs = (scalar & 4) != 0 ? 0 : 1;                                \
      for (int64_t i = 0; i < n; i++) {                                      \
        out[i] = c[i * cs] != 0 ? a[i * as] : b[i * bs];                     \
      }                                                                      \
    }                                                                        \
  }
SELECT_ROW(select_1, uint8_t)
SELECT_ROW(select_2, uint16_t)
SELECT_ROW(select_4, uint32_t)
SELECT_ROW(select_8, uint64_t)

int tfd__cpu_select(const tfd__call *call) {
  static const tfd__row rows[9] = {
      [1] = select_1, [2] = select_2, [4] = select_4, [8] = select_8};
  size_t size = tfd__dtype_size(tfd__out(call, 0)->dtype);

  return tfd__elementwise_raw(call, rows[size]);
}

/* min(max(x, low), high); NaN stays. */
#define CLIP_ROW(name, type)                                                 \
  TFD_CLONES static void name(void *out_, const void *const *in, int scalar, \
                              int64_t n, void *ctx) {                        \
    const type *a = in[0];                                                   \
    const type *b = in[1];                                                   \
    const type *c = in[2];                                                   \
    type *out = out_;                                                        \
    (void)ctx;                                                               \
    if (scalar == 6) {                                                       \
      const type low = b[0];                                                 \
      const type high = c[0];                                                \
      TFD_IVDEP                                                              \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type x = a[i];                                                 \
        const type y = x < low ? low : x;                                    \
        out[i] = y > high ? high : y;                                        \
      }                                                                      \
    } else {                                                                 \
      int64_t as = (scalar & 1) != 0 ? 0 : 1;                                \
      int64_t bs = (scalar & 2) != 0 ? 0 : 1;                                \
      int64_t cs = (scalar & 4) != 0 ? 0 : 1;                                \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type x = a[i * as];                                            \
        const type y = x < b[i * bs] ? b[i * bs] : x;                        \
        out[i] = y > c[i * cs] ? c[i * cs] : y;                              \
      }                                                                      \
    }                                                                        \
  }
CLIP_ROW(clip_f32, float)
CLIP_ROW(clip_f64, double)
CLIP_ROW(clip_i8, int8_t)
CLIP_ROW(clip_i16, int16_t)
CLIP_ROW(clip_i32, int32_t)
CLIP_ROW(clip_i64, int64_t)
CLIP_ROW(clip_u8, uint8_t)

int tfd__cpu_clip_by_value(const tfd__call *call) {
  static const tfd__rows rows = {TFD_ROWS_FLOAT(clip), TFD_ROWS_INT(clip)};

  return tfd__elementwise_of(call, rows, 0, false, NULL);
}
