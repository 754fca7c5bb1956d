#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* 0x1edc6f41 with its bits reversed */

/* table[k][b]: byte b followed by k zero bytes. */
static uint32_t table[8][256];
static bool has_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void prepare(void) {
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
__attribute__((target("sse4.2"))) static uint32_t
by_instruction(uint32_t crc, const unsigned char *p, size_t n) {
  uint64_t wide = crc;

  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;

    memcpy(&word, p, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = (uint32_t)wide;
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
