/* Where plug-ins are found, what their names say, and which are not opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/plugins.h"

static char folder[] = "/tmp/tfdist-plugins-XXXXXX";
static const char *const files[] = {"tfdist_b_c.so", "tfdist_a.so",
                                    "tfdist_.so",    "other.so",
                                    "tfdist_d.txt",  "named_by_hand.so"};
enum { FILES = sizeof files / sizeof files[0] };

static void path_of(const char *file, char path[128]) {
  (void)snprintf(path, 128, "%s/%s", folder, file);
}

static int make(void **state) {
  char places[256];
  char path[128];
  int i;

  (void)state;
  if (mkdtemp(folder) == NULL) return 1;
  for (i = 0; i < FILES; i++) {
    FILE *f;

    path_of(files[i], path);
    f = fopen(path, "w");
    if (f == NULL || fclose(f) != 0) return 1;
  }
  (void)snprintf(places, sizeof places, "%s::%s/named_by_hand.so", folder,
                 folder);
  return setenv("TFDIST_PLUGINS", places, 1);
}

static int drop(void **state) {
  char path[128];
  int i;

  (void)state;
  for (i = 0; i < FILES; i++) {
    path_of(files[i], path);
    (void)unlink(path);
  }
  return rmdir(folder);
}

static const tfd__plugin *plugin(int i) {
  const tfd__plugin *list = NULL;
  int n = 0;

  tfd__plugins(&list, &n);
  assert_true(i < n);
  return &list[i];
}

static void names_say_the_kind(void **state) {
  (void)state;
  assert_string_equal("a", plugin(0)->name);
  assert_false(plugin(0)->is_provider);
  assert_string_equal("b_c", plugin(1)->name);
  assert_true(plugin(1)->is_provider);
  assert_string_equal("named_by_hand", plugin(2)->name);
  assert_false(plugin(2)->is_provider);
}

static void expect_refusal(int code, const char *why) {
  void (*function)(void) = NULL;

  assert_int_equal(code, tfd__plugin_open(plugin(0), "entry", &function));
  assert_non_null(strstr(tfd_error_message(), why));
  assert_null(function);
}

static void root_opens_nothing_that_others_may_write(void **state) {
  char path[128];

  (void)state;
  if (geteuid() != 0) skip();
  path_of("tfdist_a.so", path);
  expect_refusal(TFD_UNAVAILABLE, "file too short");
  assert_int_equal(0, chmod(folder, 0777));
  expect_refusal(TFD_FAILED_PRECONDITION, "may write");
  assert_int_equal(0, chmod(folder, 0755));
  assert_int_equal(0, chmod(path, 0664));
  expect_refusal(TFD_FAILED_PRECONDITION, path);
  assert_non_null(strstr(tfd_error_hint(), "chmod go-w"));
  assert_int_equal(0, chmod(path, 0644));
  expect_refusal(TFD_UNAVAILABLE, "file too short");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_say_the_kind),
      cmocka_unit_test(root_opens_nothing_that_others_may_write),
  };

  return cmocka_run_group_tests(tests, make, drop);
}
