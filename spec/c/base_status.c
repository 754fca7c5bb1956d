/* Error records: one for each thread, set once, added to, moved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/thread.h"

static void fail_records_code_and_message(void **state) {
  (void)state;
  assert_int_equal(TFD_VALUE_ERROR, tfd__fail(TFD_VALUE_ERROR, "n is %d", 7));
  assert_string_equal("n is 7", tfd_error_message());
  assert_string_equal("", tfd_error_hint());
  assert_string_equal("", tfd_error_where());
  assert_int_equal(-1, tfd_error_replica());
}

static void hint_and_place_belong_to_one_failure(void **state) {
  (void)state;
  tfd__fail(TFD_KEY_ERROR, "a");
  assert_int_equal(TFD_KEY_ERROR, tfd__hint("call %s", "b"));
  assert_int_equal(TFD_KEY_ERROR, tfd__error_set_place(3, "x.lua:12"));
  assert_string_equal("call b", tfd_error_hint());
  assert_string_equal("x.lua:12", tfd_error_where());
  assert_int_equal(3, tfd_error_replica());

  tfd__fail(TFD_INTERNAL, "c");
  assert_string_equal("", tfd_error_hint());
  assert_string_equal("", tfd_error_where());
  assert_int_equal(-1, tfd_error_replica());
}

static void what_is_blamed_belongs_to_one_failure(void **state) {
  tfd__error kept = {.code = TFD_OK};

  (void)state;
  tfd__fail(TFD_INVALID_ARGUMENT, "a");
  assert_string_equal("", tfd_error_op());
  assert_string_equal("", tfd_error_argument());
  assert_int_equal(-1, tfd_error_bound());
  assert_int_equal(TFD_INVALID_ARGUMENT, tfd__blame("gather", "indices", 5));
  tfd__wrap("in");
  tfd__hint("h");
  assert_int_equal(TFD_INVALID_ARGUMENT, tfd__blame("take", NULL, -1));
  assert_string_equal("take", tfd_error_op());
  assert_string_equal("indices", tfd_error_argument());
  assert_int_equal(5, tfd_error_bound());

  tfd__error_save(&kept);
  tfd__fail(TFD_INTERNAL, "c");
  assert_string_equal("", tfd_error_op());
  assert_string_equal("", tfd_error_argument());
  assert_int_equal(-1, tfd_error_bound());
  assert_int_equal(TFD_INVALID_ARGUMENT, tfd__error_raise(&kept));
  assert_string_equal("take", tfd_error_op());
  assert_string_equal("indices", tfd_error_argument());
  assert_int_equal(5, tfd_error_bound());
  tfd__error_free(&kept);
}

static void place_without_a_position_is_empty(void **state) {
  (void)state;
  tfd__fail(TFD_KEY_ERROR, "a");
  tfd__error_set_place(0, NULL);
  assert_string_equal("", tfd_error_where());
  assert_int_equal(0, tfd_error_replica());
}

static void wrap_prefixes_and_keeps_the_rest(void **state) {
  (void)state;
  tfd__fail(TFD_NOT_FOUND, "no such file");
  tfd__hint("look");
  assert_int_equal(TFD_NOT_FOUND, tfd__wrap("restore %s", "ckpt"));
  assert_string_equal("restore ckpt: no such file", tfd_error_message());
  assert_string_equal("look", tfd_error_hint());
}

static void old_message_may_be_part_of_the_new(void **state) {
  (void)state;
  tfd__fail(TFD_NOT_FOUND, "inner");
  tfd__fail(TFD_ABORTED, "outer (%s)", tfd_error_message());
  assert_string_equal("outer (inner)", tfd_error_message());
}

static void long_texts_are_cut_visibly(void **state) {
  static char text[10000];
  size_t length = 0;

  (void)state;
  memset(text, 'x', sizeof text - 1);
  tfd__fail(TFD_INTERNAL, "%s", text);
  tfd__hint("%s", text);
  tfd__wrap("%s", text);
  tfd__error_set_place(1, text);
  length = strlen(tfd_error_message());
  assert_in_range(length, 1000, sizeof text);
  assert_string_equal("...", tfd_error_message() + length - 3);
  length = strlen(tfd_error_hint());
  assert_string_equal("...", tfd_error_hint() + length - 3);
  length = strlen(tfd_error_where());
  assert_string_equal("...", tfd_error_where() + length - 3);
}

static void saved_record_is_raised_elsewhere(void **state) {
  tfd__error e = {.code = TFD_OK};
  int64_t live = tfd__alloc_live();

  (void)state;
  tfd__fail(TFD_DATA_LOSS, "bad byte");
  tfd__hint("copy it again");
  tfd__error_set_place(2, "t.lua:5");
  tfd__error_save(&e);
  tfd__fail(TFD_INTERNAL, "another");
  tfd__error_save(&e); /* frees what it held */
  assert_string_equal("another", e.message);

  tfd__fail(TFD_DATA_LOSS, "bad byte");
  tfd__hint("copy it again");
  tfd__error_set_place(2, "t.lua:5");
  assert_int_equal(TFD_DATA_LOSS, tfd__error_set_note("in a\nin b"));
  tfd__error_save(&e);
  tfd__fail(TFD_INTERNAL, "another");
  assert_string_equal("", tfd_error_note());
  assert_int_equal(TFD_DATA_LOSS, tfd__error_raise(&e));
  assert_string_equal("in a\nin b", tfd_error_note());
  assert_string_equal("bad byte", tfd_error_message());
  assert_string_equal("copy it again", tfd_error_hint());
  assert_string_equal("t.lua:5", tfd_error_where());
  assert_int_equal(2, tfd_error_replica());
  tfd__error_free(&e);
  assert_int_equal(TFD_OK, e.code);
  assert_int_equal(live, tfd__alloc_live());
}

static void raising_an_empty_record_changes_nothing(void **state) {
  tfd__error e = {.code = TFD_OK};

  (void)state;
  tfd__fail(TFD_ABORTED, "kept");
  assert_int_equal(TFD_OK, tfd__error_raise(&e));
  assert_string_equal("kept", tfd_error_message());
}

static void saving_without_memory_keeps_the_code(void **state) {
  tfd__error e = {.code = TFD_OK};

  (void)state;
  tfd__fail(TFD_UNAVAILABLE, "gone");
  tfd__alloc_fail_at(1);
  tfd__error_save(&e);
  assert_int_equal(TFD_UNAVAILABLE, tfd__error_raise(&e));
  assert_non_null(strstr(tfd_error_message(), "out of memory"));
  tfd__error_free(&e);
}

static void other_thread(void *arg) {
  tfd__error *e = arg;

  if (tfd_error_message()[0] != '\0') return; /* starts without a record */
  tfd__fail(TFD_CANCELLED, "theirs");
  tfd__error_save(e);
}

static void threads_have_their_own_record(void **state) {
  tfd__error e = {.code = TFD_OK};
  tfd__thread t;

  (void)state;
  tfd__fail(TFD_KEY_ERROR, "mine");
  assert_int_equal(TFD_OK, tfd__thread_start(&t, "spec", other_thread, &e));
  tfd__thread_join(t);
  assert_string_equal("mine", tfd_error_message());
  assert_int_equal(TFD_CANCELLED, e.code);
  assert_string_equal("theirs", e.message);
  tfd__error_free(&e);
}

static int first_failure(int a, int b) {
  TFD_TRY(a);
  TFD_TRY(b);
  return TFD_OK;
}

static void try_passes_the_first_code_on(void **state) {
  (void)state;
  assert_int_equal(TFD_OK, first_failure(TFD_OK, TFD_OK));
  assert_int_equal(TFD_ABORTED, first_failure(TFD_ABORTED, TFD_INTERNAL));
  assert_int_equal(TFD_INTERNAL, first_failure(TFD_OK, TFD_INTERNAL));
}

static void every_status_has_its_kind(void **state) {
  (void)state;
#define CHECK(constant, kind) \
  assert_string_equal(kind, tfd_status_kind(constant));
  TFD_STATUS_LIST(CHECK)
#undef CHECK
  assert_string_equal("Internal", tfd_status_kind(-1));
  assert_string_equal("Internal", tfd_status_kind(TFD_STATUS_END));
}

static void version_is_the_header_s(void **state) {
  (void)state;
  assert_string_equal(TFD_VERSION, tfd_version());
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fail_records_code_and_message),
      cmocka_unit_test(hint_and_place_belong_to_one_failure),
      cmocka_unit_test(what_is_blamed_belongs_to_one_failure),
      cmocka_unit_test(place_without_a_position_is_empty),
      cmocka_unit_test(wrap_prefixes_and_keeps_the_rest),
      cmocka_unit_test(old_message_may_be_part_of_the_new),
      cmocka_unit_test(long_texts_are_cut_visibly),
      cmocka_unit_test(saved_record_is_raised_elsewhere),
      cmocka_unit_test(raising_an_empty_record_changes_nothing),
      cmocka_unit_test(saving_without_memory_keeps_the_code),
      cmocka_unit_test(threads_have_their_own_record),
      cmocka_unit_test(try_passes_the_first_code_on),
      cmocka_unit_test(every_status_has_its_kind),
      cmocka_unit_test(version_is_the_header_s),
  };

  return cmocka_run_group_tests_name("base/status", tests, NULL, NULL);
}
