#ifndef TFD_BACKEND_CPU_COMBINE_H
#define TFD_BACKEND_CPU_COMBINE_H
/* Private to the CPU back end: rows combined into rows that indices choose. */

#include "backend/cpu/array.h"

typedef enum tfd__combine_kind {
  TFD_COMBINE_UPDATE = 0,
  TFD_COMBINE_ADD,
  TFD_COMBINE_SUB,
  TFD_COMBINE_MUL,
  TFD_COMBINE_DIV,
  TFD_COMBINE_MIN,
  TFD_COMBINE_MAX,
  TFD_COMBINE_N
} tfd__combine_kind;

/* dst[i] = dst[i] op src[i] for n elements that do not overlap. */
typedef void (*tfd__combine)(void *dst, const void *src, int64_t n);

/* NULL where the dtype has no such operation (bool knows update only). */
tfd__combine tfd__combine_of(tfd__combine_kind kind, int dtype);

/* Combine row j of src into row rows[j] of dst, for j = 0 ... n-1 in order;
** rows[j] < 0 leaves j out. Rows have `inner` elements of `dtype`. The order
** in which one element of dst is combined is that of j, on any number of
** threads. `combine` must not be NULL. */
void tfd__combine_rows(tfd__combine combine, int dtype, void *dst,
                       int64_t dst_rows, const int64_t *rows, int64_t n,
                       const void *src, int64_t inner);

/* Sum rows of `src` into the dense `out`, which is zeroed first; half types
** are added up in float32 and rounded once. Errors: out of memory. */
int tfd__sum_rows(const tfd__view *out, const int64_t *rows, int64_t n,
                  const void *src, int64_t inner);

#endif
