#ifndef TFD_BACKEND_CPU_SORT_H
#define TFD_BACKEND_CPU_SORT_H
/* Private to the CPU back end: order-preserving keys and a stable sort. */

#include "backend/cpu/array.h"

typedef struct tfd__pair {
  uint64_t key;
  int64_t index;
} tfd__pair;

/* Keys whose unsigned order is that of the n elements, indices 0 ... n-1.
** NaNs share the largest key; -0 and 0 share one. */
void tfd__sort_keys(tfd__pair *keys, const void *data, int dtype, int64_t n);

/* Ascending by key, stable; spare has room for n. Cost: one pass for each
** byte in which the keys differ. */
void tfd__sort_pairs(tfd__pair *x, tfd__pair *spare, int64_t n);

#endif
