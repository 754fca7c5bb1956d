#include "backend/cpu/array/combine.h"
#include "backend/cpu/loops.h"

#include <string.h>

/* --- one row -------------------------------------------------------------- */

#define ROW(name, type, expr)                                          \
  TFD_CLONES static void name(void *dst, const void *src, int64_t n) { \
    type *restrict d = dst;                                            \
    const type *restrict s = src;                                      \
    int64_t i;                                                         \
                                                                       \
    for (i = 0; i < n; i++) {                                          \
      const type x = d[i];                                             \
      const type y = s[i];                                             \
      d[i] = (type)(expr);                                             \
    }                                                                  \
  }

#define FLOAT_ROWS(t, type)                   \
  ROW(add_##t, type, x + y)                   \
  ROW(sub_##t, type, x - y)                   \
  ROW(mul_##t, type, x *y)                    \
  ROW(div_##t, type, x / y)                   \
  ROW(min_##t, type, y < x || y != y ? y : x) \
  ROW(max_##t, type, y > x || y != y ? y : x)

/* Integers wrap around; computing unsigned keeps that defined. Division by
** zero was refused before, -1 is apart because the smallest number has no
** opposite. */
#define INT_ROWS(t, type)                                                      \
  ROW(add_##t, type, (uint64_t)x + (uint64_t)y)                                \
  ROW(sub_##t, type, (uint64_t)x - (uint64_t)y)                                \
  ROW(mul_##t, type, (uint64_t)x *(uint64_t)y)                                 \
  ROW(div_##t, type, y == (type)-1 && y < 1 ? (type)(0 - (uint64_t)x) : x / y) \
  ROW(min_##t, type, y < x ? y : x)                                            \
  ROW(max_##t, type, y > x ? y : x)

FLOAT_ROWS(f32, float)
FLOAT_ROWS(f64, double)
INT_ROWS(i8, int8_t)
INT_ROWS(i16, int16_t)
INT_ROWS(i32, int32_t)
INT_ROWS(i64, int64_t)
INT_ROWS(u8, uint8_t)
/* Sums of truths, as TensorFlow has them. */
ROW(or_b1, uint8_t, x | y)

/* Half types go through float32 rows, a chunk at a time. */
#define HALF_ROW(op, h, dtype)                                  \
  static void op##_##h(void *dst, const void *src, int64_t n) { \
    half_row(op##_f32, dtype, dst, src, n);                     \
  }
#define HALF_ROWS(op)            \
  HALF_ROW(op, f16, TFD_FLOAT16) \
  HALF_ROW(op, bf16, TFD_BFLOAT16)

static void half_row(tfd__combine row, int dtype, uint16_t *dst,
                     const uint16_t *src, int64_t n) {
  float x[TFD_CHUNK];
  float y[TFD_CHUNK];
  int64_t i;

  for (i = 0; i < n; i += TFD_CHUNK) {
    int64_t k = n - i < TFD_CHUNK ? n - i : TFD_CHUNK;

    tfd__halves_to_floats(dtype, x, dst + i, k);
    tfd__halves_to_floats(dtype, y, src + i, k);
    row(x, y, k);
    tfd__floats_to_halves(dtype, dst + i, x, k);
  }
}

HALF_ROWS(add)
HALF_ROWS(sub)
HALF_ROWS(mul)
HALF_ROWS(div)
HALF_ROWS(min)
HALF_ROWS(max)

static void update_1(void *dst, const void *src, int64_t n) {
  memcpy(dst, src, (size_t)n);
}
static void update_2(void *dst, const void *src, int64_t n) {
  memcpy(dst, src, (size_t)n * 2);
}
static void update_4(void *dst, const void *src, int64_t n) {
  memcpy(dst, src, (size_t)n * 4);
}
static void update_8(void *dst, const void *src, int64_t n) {
  memcpy(dst, src, (size_t)n * 8);
}

#define KIND(op)                                                              \
  [TFD_FLOAT32] = op##_f32, [TFD_FLOAT64] = op##_f64,                         \
  [TFD_FLOAT16] = op##_f16, [TFD_BFLOAT16] = op##_bf16, [TFD_INT8] = op##_i8, \
  [TFD_INT16] = op##_i16, [TFD_INT32] = op##_i32, [TFD_INT64] = op##_i64,     \
  [TFD_UINT8] = op##_u8

static const tfd__combine table[TFD_COMBINE_N][TFD_DTYPE_END] = {
    [TFD_COMBINE_UPDATE] = {[TFD_FLOAT32] = update_4,
                            [TFD_FLOAT64] = update_8,
                            [TFD_FLOAT16] = update_2,
                            [TFD_BFLOAT16] = update_2,
                            [TFD_INT8] = update_1,
                            [TFD_INT16] = update_2,
                            [TFD_INT32] = update_4,
                            [TFD_INT64] = update_8,
                            [TFD_UINT8] = update_1,
                            [TFD_BOOL] = update_1},
    [TFD_COMBINE_ADD] = {KIND(add), [TFD_BOOL] = or_b1},
    [TFD_COMBINE_SUB] = {KIND(sub)},
    [TFD_COMBINE_MUL] = {KIND(mul)},
    [TFD_COMBINE_DIV] = {KIND(div)},
    [TFD_COMBINE_MIN] = {KIND(min)},
    [TFD_COMBINE_MAX] = {KIND(max)},
};

tfd__combine tfd__combine_of(tfd__combine_kind kind, int dtype) {
  return table[kind][dtype];
}

/* --- many rows ------------------------------------------------------------ */

typedef struct job {
  tfd__combine combine;
  char *dst;
  const char *src;
  const int64_t *rows;
  int64_t n;
  int64_t inner;
  int64_t size;
} job;

/* Everything that lands in rows [begin, end) of dst. Each thread looks at all
** of `rows`, which costs little beside the rows themselves. */
static void some_rows(void *arg, int64_t begin, int64_t end) {
  const job *w = arg;
  int64_t bytes = w->inner * w->size;
  int64_t j;

  for (j = 0; j < w->n; j++) {
    if (w->rows[j] < begin || w->rows[j] >= end) continue;
    w->combine(w->dst + w->rows[j] * bytes, w->src + j * bytes, w->inner);
  }
}

static void some_columns(void *arg, int64_t begin, int64_t end) {
  const job *w = arg;
  int64_t bytes = w->inner * w->size;
  int64_t at = begin * w->size;
  int64_t j;

  for (j = 0; j < w->n; j++) {
    if (w->rows[j] < 0) continue;
    w->combine(w->dst + w->rows[j] * bytes + at, w->src + j * bytes + at,
               end - begin);
  }
}

void tfd__combine_rows(tfd__combine combine, int dtype, void *dst,
                       int64_t dst_rows, const int64_t *rows, int64_t n,
                       const void *src, int64_t inner) {
  job w = {combine, dst, src, rows, n, inner, (int64_t)tfd__dtype_size(dtype)};

  if (n == 0 || inner == 0 || dst_rows == 0) return;
  if (n * inner < 2 * TFD_GRAIN) {
    some_rows(&w, 0, dst_rows);
  } else if (inner >= 1024) {
    tfd__parallel_for(inner, 512, some_columns, &w);
  } else {
    tfd__parallel_for(dst_rows, 1 + dst_rows / 16, some_rows, &w);
  }
}

static int sum_halves(const tfd__view *out, const int64_t *rows, int64_t n,
                      const void *src, int64_t inner) {
  float *sums = tfd__scratch((size_t)out->numel * sizeof *sums);
  float *values = tfd__scratch((size_t)(n * inner) * sizeof *values);

  if (sums == NULL || values == NULL) {
    return tfd__no_memory((size_t)out->numel * sizeof *sums, "scratch");
  }
  memset(sums, 0, (size_t)out->numel * sizeof *sums);
  tfd__halves_to_floats(out->dtype, values, src, n * inner);
  tfd__combine_rows(add_f32, TFD_FLOAT32, sums, out->numel / inner, rows, n,
                    values, inner);
  tfd__floats_to_halves(out->dtype, out->data, sums, out->numel);
  return TFD_OK;
}

int tfd__sum_rows(const tfd__view *out, const int64_t *rows, int64_t n,
                  const void *src, int64_t inner) {
  if (out->numel == 0) return TFD_OK;
  if (n > 0 && tfd__is_half(out->dtype)) {
    return sum_halves(out, rows, n, src, inner);
  }
  tfd__zero(out);
  tfd__combine_rows(table[TFD_COMBINE_ADD][out->dtype], out->dtype, out->data,
                    out->numel / inner, rows, n, src, inner);
  return TFD_OK;
}
