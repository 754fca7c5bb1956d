/* CRC-32C against its definition, one bit at a time. */
#include "base/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BYTES = 40000 };

static uint32_t bit_by_bit(uint32_t crc, const unsigned char *p, size_t n) {
  crc = ~crc;
  for (; n > 0; n--, p++) {
    int k;

    crc ^= *p;
    for (k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

static unsigned char *noise(void) {
  unsigned char *p = malloc(BYTES);
  uint32_t x = 12345;
  int i;

  assert_non_null(p);
  for (i = 0; i < BYTES; i++) {
    x = x * 1664525u + 1013904223u;
    p[i] = (unsigned char)(x >> 24);
  }
  return p;
}

/* RFC 3720, B.4, and the check value of the CRC catalogues. */
static void test_published(void **state) {
  unsigned char bytes[32] = {0};
  int i;

  (void)state;
  assert_int_equal(tfd__crc32c(0, "123456789", 9), 0xe3069283u);
  assert_int_equal(tfd__crc32c(0, bytes, 32), 0x8a9136aau);
  for (i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
  assert_int_equal(tfd__crc32c(0, bytes, 32), 0x46dd794eu);
  for (i = 0; i < 32; i++) bytes[i] = 0xff;
  assert_int_equal(tfd__crc32c(0, bytes, 32), 0x62a8ab43u);
}

static void test_lengths(void **state) {
  static const size_t around[] = {0,    128,  256,   384,   512,  2048,
                                  4096, 6144, 12288, 18432, 36864};
  const tfd__crc32c_way *way = tfd__crc32c_ways();
  unsigned char *p = noise();
  size_t i;
  size_t n;

  (void)state;
  for (; *way != NULL; way++) {
    for (i = 0; i < sizeof around / sizeof around[0]; i++) {
      for (n = around[i] < 17 ? 0 : around[i] - 17; n < around[i] + 17; n++) {
        assert_int_equal(~(*way)(~(uint32_t)n, p + n % 9, n),
                         bit_by_bit((uint32_t)n, p + n % 9, n));
      }
    }
  }
  free(p);
}

/* A sum goes on from another: so files are read in pieces. */
static void test_pieces(void **state) {
  unsigned char *p = noise();
  uint32_t whole = bit_by_bit(0, p, BYTES);
  size_t n;

  (void)state;
  for (n = 0; n <= BYTES; n += 997) {
    assert_int_equal(tfd__crc32c(tfd__crc32c(0, p, n), p + n, BYTES - n),
                     whole);
  }
  free(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_published),
      cmocka_unit_test(test_lengths),
      cmocka_unit_test(test_pieces),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
