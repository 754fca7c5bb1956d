#ifndef TFD_CUDA_SORTED_H
#define TFD_CUDA_SORTED_H
/* Keys that were sorted. */
#include "backend/cuda/kernels/dialect.h"

/* How many of n sorted keys are below `key`. */
DEVICE int64_t keys_below(const uint32_t *keys, int64_t n, int64_t key) {
  int64_t low = 0;
  int64_t high = n;

  while (low < high) {
    int64_t middle = low + (high - low) / 2;

    if ((int64_t)keys[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

#endif
