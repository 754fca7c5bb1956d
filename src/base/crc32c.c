#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* 0x1edc6f41 with its bits reversed */
#define LANE_BYTES 2048        /* a power of two */

/* table[k][b]: byte b followed by k zero bytes. */
static uint32_t table[8][256];
/* after_lane[k][b]: the state b << 8k, LANE_BYTES zero bytes later. */
static uint32_t after_lane[4][256];
static bool has_instruction;
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

static void prepare(void) {
  prepare_table();
  prepare_lane();
#if defined(__x86_64__) && defined(__GNUC__)
  has_instruction = __builtin_cpu_supports("sse4.2");
#endif
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

#if defined(__x86_64__) && defined(__GNUC__)
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
#else
#define by_instruction by_table
#endif

uint32_t tfd__crc32c(uint32_t crc, const void *data, size_t bytes) {
  pthread_once(&once, prepare);
  crc = ~crc;
  crc = has_instruction ? by_instruction(crc, data, bytes)
                        : by_table(crc, data, bytes);
  return ~crc;
}

uint32_t tfd__crc32c_mask(uint32_t crc) {
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}
