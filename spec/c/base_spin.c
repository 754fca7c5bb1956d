/* The bound on idle OpenMP threads, by what a pause costs. */
#include "base/spin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* 25 us of looks of 40, 11 and 5 ns; what cannot be is bounded. */
static void looks_take_25_microseconds(void **state) {
  (void)state;
  assert_int_equal(tfd__spin_looks(64 * 40), 625);
  assert_int_equal(tfd__spin_looks(64 * 11), 2272);
  assert_int_equal(tfd__spin_looks(64 * 5), 5000);
  assert_int_equal(tfd__spin_looks(0), 1000);
  assert_int_equal(tfd__spin_looks(1), 20000);
  assert_int_equal(tfd__spin_looks(UINT64_MAX), 100);
}

static void text_is_what_libgomp_reads(void **state) {
  char text[TFD_SPIN_TEXT];
  size_t name = strlen(TFD_SPIN_NAME "=");
  char *end = NULL;
  long looks;

  (void)state;
  memset(text, 'x', sizeof text);
  tfd__spin_text(text);
  assert_memory_equal(text, TFD_SPIN_NAME "=", name);
  looks = strtol(text + name, &end, 10);
  assert_true(looks >= 100 && looks <= 20000);
  assert_true(end > text + name && end < text + sizeof text && *end == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(looks_take_25_microseconds),
      cmocka_unit_test(text_is_what_libgomp_reads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
