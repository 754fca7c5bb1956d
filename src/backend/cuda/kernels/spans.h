#ifndef TFD_CUDA_SPANS_H
#define TFD_CUDA_SPANS_H
/* Where the elements of a reduction lie; positions fit 32 bits. */
#include "backend/cuda/kernels/dialect.h"

DEVICE int64_t span_of(int n, const int64_t *dims, const int64_t *strides,
                       int64_t i) {
  int64_t at = 0;

  for (int d = n - 1; d > 0; d--) {
    int64_t rest = (uint32_t)i / (uint32_t)dims[d];

    at += (i - rest * dims[d]) * strides[d];
    i = rest;
  }
  return n > 0 ? at + i * strides[0] : 0;
}

/* Element i of an output's. */
DEVICE int64_t span_at(const tfd_cu_reduce &a, int64_t i) {
  if (a.red_n <= 1) return a.red_n == 0 ? 0 : i * a.red_strides[0];
  return span_of(a.red_n, a.red_dims, a.red_strides, i);
}

#endif
