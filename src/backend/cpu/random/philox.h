#ifndef TFD_BACKEND_CPU_PHILOX_H
#define TFD_BACKEND_CPU_PHILOX_H
/* Philox4x32-10, a counter-based generator: block b of a stream is a function
** of (key, stream, b), so any part of it can be made on any thread or device.
** A block is four 32-bit words; word w of a stream is word w % 4 of block
** w / 4. There are 2^64 streams of 2^64 blocks for each key.
** Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
** 1, 2, 3", SC 2011. */

#include <stdint.h>

#include "backend/backend.h"

typedef struct tfd__philox {
  uint32_t key[2];
  uint32_t stream[2]; /* counter words 2 and 3; words 0 and 1 count blocks */
} tfd__philox;

/* One block. */
static inline void tfd__philox_block(const uint32_t key[2],
                                     const uint32_t counter[4],
                                     uint32_t words[4]) {
  uint32_t x0 = counter[0];
  uint32_t x1 = counter[1];
  uint32_t x2 = counter[2];
  uint32_t x3 = counter[3];
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

/* The stream that attributes slot .. slot+3 name: seed_lo, seed_hi,
** counter_lo, counter_hi, of which the low 32 bits count. */
static inline tfd__philox tfd__philox_of(const int64_t *ints, int slot) {
  tfd__philox p = {{(uint32_t)ints[slot], (uint32_t)ints[slot + 1]},
                   {(uint32_t)ints[slot + 2], (uint32_t)ints[slot + 3]}};
  return p;
}

/* Blocks made at a time: bulk users take multiples of this many, so that every
** word always goes through the same instructions. */
#define TFD_PHILOX_BLOCKS 64
#define TFD_PHILOX_WORDS (4 * TFD_PHILOX_BLOCKS)

/* TFD_PHILOX_WORDS words, from block `first` of the stream; about 1 ns a word
** with 512-bit vectors. */
void tfd__philox_bulk(const tfd__philox *p, uint64_t first,
                      uint32_t words[TFD_PHILOX_WORDS]);

#endif
