#ifndef TFD_CUDA_PHILOX_H
#define TFD_CUDA_PHILOX_H
/* Philox4x32-10: the words that the CPU draws. */

#include "backend/cuda/kernels/dialect.h"

DEVICE void philox(const uint32_t *key, uint64_t block, const uint32_t *stream,
                   uint32_t words[4]) {
  uint32_t x0 = (uint32_t)block;
  uint32_t x1 = (uint32_t)(block >> 32);
  uint32_t x2 = stream[0];
  uint32_t x3 = stream[1];
  uint32_t k0 = key[0];
  uint32_t k1 = key[1];

  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)x0 * 0xD2511F53u;
    uint64_t p1 = (uint64_t)x2 * 0xCD9E8D57u;

    x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
    x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
    x1 = (uint32_t)p1;
    x3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = x0;
  words[1] = x1;
  words[2] = x2;
  words[3] = x3;
}

#endif
