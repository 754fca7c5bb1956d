/* JSON by jansson in our memory: places of errors, limits, and no allocation
** that fails is taken for bad text or loses anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/memory.h"

static const char text[] = "{\"b\":[1,2.5,\"x\\u00e9\"],\"a\":{\"c\":null}}";
static const char sorted[] = "{\"a\":{\"c\":null},\"b\":[1,2.5,\"xé\"]}";

static int round_trip(char **out_p, size_t *n_p) {
  json_t *value = NULL;
  json_error_t error;
  int rc = tfd__json_read(text, sizeof text - 1, &value, &error);

  if (rc != TFD_OK) return rc;
  rc = tfd__json_write(value, JSON_COMPACT | JSON_SORT_KEYS, out_p, n_p);
  json_decref(value);
  return rc;
}

static void text_comes_back_sorted(void **state) {
  char *out = NULL;
  size_t n = 0;

  (void)state;
  assert_int_equal(round_trip(&out, &n), TFD_OK);
  assert_string_equal(out, sorted);
  assert_int_equal(n, sizeof sorted - 1);
  tfd__free(out);
}

static void failing_allocations_are_told_and_lose_nothing(void **state) {
  int64_t live = tfd__alloc_live();
  int failed = 0;

  (void)state;
  for (int sign = -1; sign <= 1; sign += 2) {
    for (int64_t n = 1; n < 40; n++) {
      char *out = NULL;
      size_t bytes = 0;
      int rc = TFD_OK;

      tfd__alloc_fail_at(sign * n);
      rc = round_trip(&out, &bytes);
      tfd__alloc_fail_at(0);
      assert_true(rc == TFD_OK || rc == TFD_RESOURCE_EXHAUSTED);
      if (rc != TFD_OK) failed++;
      tfd__free(out);
      assert_int_equal(tfd__alloc_live(), live);
    }
  }
  assert_true(failed > 20);
}

static void bad_text_is_told_with_its_place(void **state) {
  json_t *value = NULL;
  json_error_t error;

  (void)state;
  assert_int_equal(tfd__json_read("[1,\n x]", 7, &value, &error),
                   TFD_INVALID_ARGUMENT);
  assert_int_equal(error.line, 2);
  assert_int_equal(error.position, 6);
  assert_int_equal(tfd__json_read("{\"a\":1,\"a\":2}", 13, &value, &error),
                   TFD_INVALID_ARGUMENT);
  assert_null(value);
}

static void depth_and_length_have_limits(void **state) {
  size_t n = TFD_JSON_BYTES + 1;
  char *long_text = malloc(n);
  char deep[2 * TFD_JSON_DEPTH + 2];
  json_t *value = NULL;
  json_error_t error;

  (void)state;
  memset(deep, '[', TFD_JSON_DEPTH);
  memset(deep + TFD_JSON_DEPTH, ']', TFD_JSON_DEPTH);
  assert_int_equal(
      tfd__json_read(deep, (size_t)2 * TFD_JSON_DEPTH, &value, &error), TFD_OK);
  json_decref(value);
  memset(deep, '[', TFD_JSON_DEPTH + 1);
  assert_int_equal(tfd__json_read(deep, TFD_JSON_DEPTH + 1, &value, &error),
                   TFD_INVALID_ARGUMENT);
  assert_int_equal(error.column, TFD_JSON_DEPTH + 1);
  assert_non_null(long_text);
  memset(long_text, ' ', n);
  assert_int_equal(tfd__json_read(long_text, n, &value, &error),
                   TFD_INVALID_ARGUMENT);
  assert_string_equal(error.text, "longer than 64 MiB");
  free(long_text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_comes_back_sorted),
      cmocka_unit_test(failing_allocations_are_told_and_lose_nothing),
      cmocka_unit_test(bad_text_is_told_with_its_place),
      cmocka_unit_test(depth_and_length_have_limits),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
