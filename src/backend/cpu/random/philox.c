#include "backend/cpu/random/philox.h"

#include "backend/cpu/cpu.h"

static void bulk_plain(const tfd__philox *p, uint64_t first, uint32_t *words) {
  for (uint64_t i = 0; i < TFD_PHILOX_BLOCKS; i++) {
    uint64_t block = first + i;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32),
                           p->stream[0], p->stream[1]};

    tfd__philox_block(p->key, counter, words + 4 * i);
  }
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
/* Compilers do not find the instruction for 32 times 32 to 64 bits by
** themselves; without it a block costs three to four times as much. */
#include <immintrin.h>

#define PHILOX_ID(name) name##_256
#define PHILOX_LANES 4
#define PHILOX_ISA __attribute__((target("avx2")))
#define PHILOX_MUL(a, b) ((vec_256)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#include "backend/cpu/random/philox_body.h"
#undef PHILOX_ID
#undef PHILOX_LANES
#undef PHILOX_ISA
#undef PHILOX_MUL

#define PHILOX_ID(name) name##_512
#define PHILOX_LANES 8
#define PHILOX_ISA __attribute__((target("avx512f")))
#define PHILOX_MUL(a, b) ((vec_512)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#include "backend/cpu/random/philox_body.h"

void tfd__philox_bulk(const tfd__philox *p, uint64_t first,
                      uint32_t words[TFD_PHILOX_WORDS]) {
  if (__builtin_cpu_supports("avx512f")) {
    bulk_512(p, first, words);
  } else if (__builtin_cpu_supports("avx2")) {
    bulk_256(p, first, words);
  } else {
    bulk_plain(p, first, words);
  }
}
#else
void tfd__philox_bulk(const tfd__philox *p, uint64_t first,
                      uint32_t words[TFD_PHILOX_WORDS]) {
  bulk_plain(p, first, words);
}
#endif
