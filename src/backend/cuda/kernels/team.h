#ifndef TFD_CUDA_TEAM_H
#define TFD_CUDA_TEAM_H
/* Threads that work on one row together: a warp, or a whole block. */
#include "backend/cuda/kernels/dialect.h"

/* G threads work on one row. */
template <class W, int G> struct team {
  DEVICE W all_max(W x, W *shared) {
    for (int by = 16; by > 0; by /= 2) {
      W y = SHUFFLE_XOR(x, by);

      x = x >= y || x != x ? x : y;
    }
    if (G == 32) return x;
    return across(x, shared, true);
  }
  DEVICE W all_sum(W x, W *shared) {
    for (int by = 16; by > 0; by /= 2) x += SHUFFLE_XOR(x, by);
    if (G == 32) return x;
    return across(x, shared, false);
  }
  /* The results of the block's warps joined, in their order. */
  DEVICE W across(W x, W *shared, bool largest) {
    W total;

    BARRIER();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    BARRIER();
    total = shared[0];
    for (int w = 1; w < G / 32; w++) {
      W y = shared[w];

      if (!largest) {
        total += y;
      } else {
        total = total >= y || total != total ? total : y;
      }
    }
    return total;
  }
};

#endif
