/* TFDIST_... variables are read by one rule, whichever they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/environment.h"
#include "device/private.h"

static const char *const names[] = {
    "TFDIST_CPU_DEVICES",  "TFDIST_QUEUE",       "TFDIST_THREADS",
    "TFDIST_MEMORY_LIMIT", "TFDIST_STRICT_FP32", "TFDIST_FFI",
    "TFDIST_AUTO_CLUSTER", "TFDIST_INSECURE",    "TFDIST_CUDA_GRAPHS",
    "TFDIST_RESTART",      "TFDIST_LOG"};
enum { NAMES = sizeof names / sizeof *names };

static int clear(void **state) {
  int i;

  (void)state;
  for (i = 0; i < NAMES; i++) unsetenv(names[i]);
  return 0;
}

static void blanks_around_a_value_do_not_count(void **state) {
  tfd__config c;
  int level = -1;

  (void)state;
  setenv("TFDIST_CPU_DEVICES", "2 ", 1);
  setenv("TFDIST_QUEUE", "\tQueued ", 1);
  setenv("TFDIST_THREADS", " 3\n", 1);
  setenv("TFDIST_MEMORY_LIMIT", " 16MiB ", 1);
  setenv("TFDIST_LOG", " Info ", 1);
  setenv("TFDIST_STRICT_FP32", " 1 ", 1);
  assert_int_equal(TFD_OK, tfd__config_resolve(&c));
  assert_int_equal(2, c.cpu_devices);
  assert_int_equal(TFD_QUEUE_QUEUED, c.queue_mode);
  assert_int_equal(3, c.device_threads);
  assert_int_equal(16 << 20, c.memory_limit);
  assert_int_equal(TFD_OK, tfd__env_log_level(&level));
  assert_int_equal(TFD_LOG_INFO, level);
  assert_false(tfd_tensor_float_32_is_enabled());
}

static void blanks_alone_are_no_value(void **state) {
  tfd__config c;
  int i;

  (void)state;
  for (i = 0; i < NAMES; i++) setenv(names[i], i % 2 == 0 ? "" : " \t", 1);
  assert_int_equal(TFD_OK, tfd__config_resolve(&c));
  assert_int_equal(1, c.cpu_devices);
  assert_int_equal(TFD_QUEUE_AUTO, c.queue_mode);
}

static void what_does_not_fit_is_an_error_with_name_and_value(void **state) {
  tfd__config c;
  int i;

  for (i = 0; i < NAMES; i++) {
    const char *message = NULL;

    clear(state);
    setenv(names[i], " foo ", 1);
    assert_int_equal(TFD_VALUE_ERROR, tfd__config_resolve(&c));
    message = tfd_error_message();
    assert_memory_equal(names[i], message, strlen(names[i]));
    assert_non_null(strstr(message, " is \"foo\"; expected "));
  }
  assert_string_equal("TFDIST_LOG is \"foo\"; expected error, warning, info or "
                      "debug",
                      tfd_error_message());
}

static void long_values_are_told_too(void **state) {
  char text[4 * TFD_ENV_TEXT];
  tfd__config c;

  (void)state;
  memset(text, '1', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  setenv("TFDIST_CPU_DEVICES", text, 1);
  assert_int_equal(TFD_VALUE_ERROR, tfd__config_resolve(&c));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(blanks_around_a_value_do_not_count, clear),
      cmocka_unit_test_setup(blanks_alone_are_no_value, clear),
      cmocka_unit_test_setup(what_does_not_fit_is_an_error_with_name_and_value,
                             clear),
      cmocka_unit_test_setup(long_values_are_told_too, clear),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
