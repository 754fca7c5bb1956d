/* The arithmetic of shares and packs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/schedule.h"

static void shares_cover_everything_once(void **state) {
  int64_t numel;
  int n;
  int d;

  (void)state;
  for (n = 1; n <= 64; n = n * 2 + (n == 1)) {
    for (numel = 0; numel < 70000; numel = numel * 3 + 7) {
      int64_t at = 0;

      for (d = 0; d < n; d++) {
        tfd__stretch s = tfd__stretch_of(numel, n, d);

        assert_int_equal(at, s.begin);
        assert_true(s.end >= s.begin);
        assert_true(s.end == numel || s.end % TFD_STRETCH == 0);
        /* No share is longer than an equal one, rounded up to a line. */
        assert_true(s.end - s.begin <= (numel + n - 1) / n + TFD_STRETCH - 1);
        at = s.end;
      }
      assert_int_equal(numel, at);
    }
  }
}

static void shares_are_these(void **state) {
  (void)state;
  assert_int_equal(0, tfd__stretch_of(100, 3, 0).begin);
  assert_int_equal(64, tfd__stretch_of(100, 3, 0).end);
  assert_int_equal(100, tfd__stretch_of(100, 3, 1).end);
  assert_int_equal(100, tfd__stretch_of(100, 3, 2).begin);
  assert_int_equal(128, tfd__stretch_of(256, 2, 1).begin);
  assert_int_equal(256, tfd__stretch_of(256, 2, 1).end);
}

static void check_packs(tfd__pack_plan plan, const int64_t *sizes, int n,
                        int64_t bytes, const int64_t *expected, int packs) {
  int64_t lengths[8];
  int i;

  assert_int_equal(packs, tfd__packs(&plan, sizes, n, bytes));
  tfd__pack_lengths(&plan, sizes, n, bytes, lengths);
  for (i = 0; i < packs; i++) assert_int_equal(expected[i], lengths[i]);
}

#define PACKS(plan, bytes, sizes, ...)                                        \
  do {                                                                        \
    const int64_t expected[] = {__VA_ARGS__};                                 \
                                                                              \
    check_packs(plan, sizes, sizeof sizes / sizeof sizes[0], bytes, expected, \
                sizeof expected / sizeof expected[0]);                        \
  } while (0)

static void packs_are_these(void **state) {
  const int64_t three[] = {3, 4, 3};
  const int64_t seven[] = {7};
  const int64_t two[] = {2};
  const int64_t none[] = {0};
  const int64_t even[] = {4, 0, 4};

  (void)state;
  PACKS(((tfd__pack_plan){.packs = 4}), 4, three, 2, 2, 2, 4);
  PACKS(((tfd__pack_plan){.packs = 1}), 4, seven, 7);
  PACKS(((tfd__pack_plan){.packs = 3}), 4, two, 0, 0, 2);
  PACKS(((tfd__pack_plan){.bytes = 0}), 4, three, 10);
  PACKS(((tfd__pack_plan){.bytes = 1}), 4, three, 3, 4, 3);
  PACKS(((tfd__pack_plan){.bytes = 12}), 4, three, 7, 3);
  PACKS(((tfd__pack_plan){.bytes = 100}), 4, three, 10);
  PACKS(((tfd__pack_plan){.bytes = 8}), 4, none, 0);
  PACKS(((tfd__pack_plan){.bytes = 8}), 4, even, 4, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shares_cover_everything_once),
      cmocka_unit_test(shares_are_these),
      cmocka_unit_test(packs_are_these),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
