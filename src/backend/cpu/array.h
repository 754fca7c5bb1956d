#ifndef TFD_BACKEND_CPU_ARRAY_H
#define TFD_BACKEND_CPU_ARRAY_H
/* Private to the array kernels of the CPU back end. */

#include "backend/cpu/cpu.h"
#include "backend/lay.h"

/* Copy src's elements to dst: same dims and dtype, any strides on both sides
** (0 and negative ones too on src); dst's elements must lie apart from each
** other and from src's. Axes are reordered and merged first, transposes go
** through cache-line tiles, large copies run on several threads. */
void tfd__copy_view(const tfd__view *dst, const tfd__view *src);

/* All elements of a dense view become zero bytes. */
void tfd__zero(const tfd__view *v);
/* All elements of a view become `value`. */
void tfd__fill_view(const tfd__view *v, double value);

/* Element i of an int32 or int64 index tensor. */
static inline int64_t tfd__index_at(const tfd__view *v, int64_t i) {
  return v->dtype == TFD_INT64 ? ((const int64_t *)v->data)[i]
                               : ((const int32_t *)v->data)[i];
}

/* Check that every index lies in [0, bound).
** Errors: InvalidArgument "gather: indices[3] = 7 is outside [0, 5)". */
int tfd__check_indices(const tfd__call *call, const char *arg,
                       const tfd__view *indices, int64_t bound);
/* Fail for position `at` (row-major) of `indices`. */
int tfd__index_fail(const tfd__call *call, const char *arg,
                    const tfd__view *indices, int64_t at, int64_t bound);

/* Units of work of `cost` elements each that one thread should take. */
static inline int64_t tfd__grain(int64_t cost) {
  return cost >= TFD_GRAIN ? 1 : TFD_GRAIN / (cost > 0 ? cost : 1);
}

#endif
