#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define TFD_X86 1
#else
#define TFD_X86 0
#endif

#define POLYNOMIAL 0x82f63b78u /* 0x1edc6f41 with its bits reversed */
#define LANE_BYTES 2048        /* a power of two */

/* table[k][b]: byte b followed by k zero bytes. */
static uint32_t table[8][256];
static tfd__crc32c_way ways[TFD_CRC32C_WAYS + 1]; /* fastest first */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare_table(void) {
  uint32_t b;
  int k;

  for (b = 0; b < 256; b++) {
    uint32_t crc = b;

    for (k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
    table[0][b] = crc;
  }
  for (b = 0; b < 256; b++) {
    for (k = 1; k < 8; k++) {
      uint32_t before = table[k - 1][b];

      table[k][b] = before >> 8 ^ table[0][before & 255];
    }
  }
}

static uint32_t by_table(uint32_t crc, const unsigned char *p, size_t n) {
  for (; n >= 8; n -= 8, p += 8) {
    uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 |
                          (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);

    crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^
          table[5][low >> 16 & 255] ^ table[4][low >> 24] ^ table[3][p[4]] ^
          table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
  }
  for (; n > 0; n--, p++) crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
  return crc;
}

#if TFD_X86
/* after_lane[k][b]: the state b << 8k, LANE_BYTES zero bytes later. */
static uint32_t after_lane[4][256];
/* What takes 128 bits so many bits on: one factor for each half. */
static uint64_t on_128[2], on_256[2], on_1024[2];

/* m[i]: what becomes of bit i of a state; all this is linear over bits. */
static uint32_t applied(const uint32_t m[32], uint32_t state) {
  uint32_t sum = 0;
  int i;

  for (i = 0; i < 32; i++) sum ^= state >> i & 1 ? m[i] : 0;
  return sum;
}

static void prepare_lane(void) {
  uint32_t m[32]; /* one zero byte, then two, four ... */
  uint32_t twice[32];
  uint32_t b;
  int i;
  int k;

  for (i = 0; i < 32; i++) {
    m[i] = (1u << i) >> 8 ^ table[0][(1u << i) & 255];
  }
  for (k = 1; k < LANE_BYTES; k *= 2) {
    for (i = 0; i < 32; i++) twice[i] = applied(m, m[i]);
    memcpy(m, twice, sizeof m);
  }
  for (b = 0; b < 256; b++) {
    for (k = 0; k < 4; k++) after_lane[k][b] = applied(m, b << 8 * k);
  }
}

static uint64_t word_at(const unsigned char *p) {
  uint64_t word;

  memcpy(&word, p, sizeof word);
  return word;
}

static uint32_t past_lane(uint32_t crc) {
  return after_lane[0][crc & 255] ^ after_lane[1][crc >> 8 & 255] ^
         after_lane[2][crc >> 16 & 255] ^ after_lane[3][crc >> 24];
}

/* The instruction's result takes three cycles, and one can begin each cycle:
** three lanes at a time, put together afterwards, are three times as fast. */
__attribute__((target("sse4.2"))) static uint32_t
by_instruction(uint32_t crc, const unsigned char *p, size_t n) {
  uint64_t a = crc;

  for (; n >= 3 * LANE_BYTES; n -= 3 * LANE_BYTES, p += 3 * LANE_BYTES) {
    uint64_t b = 0;
    uint64_t c = 0;
    size_t i;

    for (i = 0; i < LANE_BYTES; i += 8) {
      a = __builtin_ia32_crc32di(a, word_at(p + i));
      b = __builtin_ia32_crc32di(b, word_at(p + LANE_BYTES + i));
      c = __builtin_ia32_crc32di(c, word_at(p + 2 * LANE_BYTES + i));
    }
    a = past_lane((uint32_t)a) ^ (uint32_t)b;
    a = past_lane((uint32_t)a) ^ (uint32_t)c;
  }
  for (; n >= 8; n -= 8, p += 8) a = __builtin_ia32_crc32di(a, word_at(p));
  crc = (uint32_t)a;
  for (; n > 0; n--, p++) crc = __builtin_ia32_crc32qi(crc, *p);
  return crc;
}

/* x^n modulo the polynomial. */
static uint32_t power(int n) {
  uint32_t r = 0x80000000u;

  for (; n > 0; n--) r = r >> 1 ^ (r & 1 ? POLYNOMIAL : 0);
  return r;
}

/* The low half comes first, so it has 64 bits further to go; a product of two
** reversed factors is one bit short. */
static void prepare_fold(uint64_t on[2], int bits) {
  on[0] = (uint64_t)power(bits + 32) << 1;
  on[1] = (uint64_t)power(bits - 32) << 1;
}

#define FOLDING __attribute__((target("avx2,pclmul,vpclmulqdq,sse4.2")))

/* The bytes `a`, as long before `b` as `on` says, and `b`: what has the same
** remainder and is as long as `b`. */
FOLDING static inline __m256i fold(__m256i a, __m256i on, __m256i b) {
  return _mm256_xor_si256(
      _mm256_xor_si256(_mm256_clmulepi64_epi128(a, on, 0x00),
                       _mm256_clmulepi64_epi128(a, on, 0x11)),
      b);
}

FOLDING static inline __m256i factors(const uint64_t on[2]) {
  return _mm256_set_epi64x((long long)on[1], (long long)on[0], (long long)on[1],
                           (long long)on[0]);
}

FOLDING static inline __m256i part(const unsigned char *p, int i) {
  return _mm256_loadu_si256((const __m256i *)(p + 32 * (size_t)i));
}

/* 128 bytes at a time, four products under way; one stream, which memory
** delivers faster than three. */
FOLDING static uint32_t by_folding(uint32_t crc, const unsigned char *p,
                                   size_t n) {
  __m256i a, b, c, d, on;
  __m128i left;
  uint64_t state;

  if (n < 256) return by_instruction(crc, p, n);
  on = factors(on_1024);
  a = _mm256_xor_si256(part(p, 0), _mm256_set_epi64x(0, 0, 0, (long long)crc));
  b = part(p, 1);
  c = part(p, 2);
  d = part(p, 3);
  for (p += 128, n -= 128; n >= 128; n -= 128, p += 128) {
    a = fold(a, on, part(p, 0));
    b = fold(b, on, part(p, 1));
    c = fold(c, on, part(p, 2));
    d = fold(d, on, part(p, 3));
  }
  on = factors(on_256);
  d = fold(fold(fold(a, on, b), on, c), on, d);
  a = fold(d, factors(on_128), _mm256_permute2x128_si256(d, d, 0x11));
  left = _mm256_castsi256_si128(a);
  state = __builtin_ia32_crc32di(0, (uint64_t)_mm_extract_epi64(left, 0));
  state = __builtin_ia32_crc32di(state, (uint64_t)_mm_extract_epi64(left, 1));
  return by_instruction((uint32_t)state, p, n);
}
#endif

static void prepare(void) {
  int n = 0;

  prepare_table();
#if TFD_X86
  prepare_lane();
  prepare_fold(on_128, 128);
  prepare_fold(on_256, 256);
  prepare_fold(on_1024, 1024);
  if (__builtin_cpu_supports("sse4.2")) {
    if (__builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("vpclmulqdq")) {
      ways[n++] = by_folding;
    }
    ways[n++] = by_instruction;
  }
#endif
  ways[n] = by_table;
}

const tfd__crc32c_way *tfd__crc32c_ways(void) {
  pthread_once(&once, prepare);
  return ways;
}

uint32_t tfd__crc32c(uint32_t crc, const void *data, size_t bytes) {
  return ~tfd__crc32c_ways()[0](~crc, data, bytes);
}

uint32_t tfd__crc32c_mask(uint32_t crc) {
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
