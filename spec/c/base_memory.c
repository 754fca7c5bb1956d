/* The allocation shim, counted objects, pressure on the collector. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory.h"
#include "base/thread.h"

#define MIB ((int64_t)1 << 20)

static void blocks_are_counted(void **state) {
  int64_t live = tfd__alloc_live();
  int64_t calls = tfd__alloc_count();
  void *a = tfd__alloc(10);
  void *b = tfd__calloc(3, 7);
  void *c = tfd__alloc_aligned(64, 100);
  char *d = tfd__strdup("text");

  (void)state;
  assert_int_equal(live + 4, tfd__alloc_live());
  assert_int_equal(calls + 4, tfd__alloc_count());
  assert_string_equal("text", d);
  assert_int_equal(0, (uintptr_t)c % 64);
  a = tfd__realloc(a, 1000);
  assert_int_equal(live + 4, tfd__alloc_live());
  tfd__free(a);
  tfd__free(b);
  tfd__free(c);
  tfd__free(d);
  tfd__free(NULL);
  assert_int_equal(live, tfd__alloc_live());
}

static void zero_bytes_are_a_block_too(void **state) {
  int64_t live = tfd__alloc_live();
  void *a = tfd__alloc(0);
  void *b = tfd__calloc(0, 8);
  void *c = tfd__alloc_aligned(64, 0);

  (void)state;
  assert_non_null(a);
  assert_non_null(b);
  assert_non_null(c);
  a = tfd__realloc(a, 0);
  assert_non_null(a);
  tfd__free(a);
  tfd__free(b);
  tfd__free(c);
  assert_int_equal(live, tfd__alloc_live());
}

static void calloc_gives_zeros_and_checks_overflow(void **state) {
  char zeros[24] = {0};
  char *p = tfd__calloc(3, 8);

  (void)state;
  assert_memory_equal(zeros, p, sizeof zeros);
  tfd__free(p);
  assert_null(tfd__calloc(SIZE_MAX / 2, 3));
}

/* Every entry point, each in turn the one that fails. */
static void nth_allocation_fails_once(void **state) {
  int64_t live = tfd__alloc_live();

  (void)state;
  for (int n = 1; n <= 5; n++) {
    void *p[5] = {0};
    int failed = 0;

    tfd_test_fail_allocation(n);
    p[0] = tfd__alloc(1);
    p[1] = tfd__calloc(1, 1);
    p[2] = tfd__realloc(NULL, 1);
    p[3] = tfd__alloc_aligned(64, 1);
    p[4] = tfd__strdup("");
    for (int i = 0; i < 5; i++) {
      if (p[i] == NULL) {
        failed++;
        assert_int_equal(n, i + 1);
      }
      tfd__free(p[i]);
    }
    assert_int_equal(1, failed);
    assert_int_equal(live, tfd__alloc_live());
  }
}

/* This program again, as a child that allocates until something fails. */
static void environment_names_the_allocation_that_fails(void **state) {
  char self[4096];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  int status = 0;
  pid_t child = 0;

  (void)state;
  assert_true(n > 0);
  self[n] = '\0';
  child = fork();
  if (child == 0) {
    setenv("TFDIST_FAIL_ALLOC", "3", 1);
    execl(self, self, (char *)NULL);
    _exit(99);
  }
  assert_int_equal(child, waitpid(child, &status, 0));
  assert_true(WIFEXITED(status));
  assert_int_equal(3, WEXITSTATUS(status));
}

/* What that child does: its status is the number of the failing call. */
static int count_until_failure(void) {
  void *p = NULL;
  int n = 0;

  do {
    tfd__free(p);
    p = tfd__alloc(1);
    n++;
  } while (p != NULL && n < 50);
  return n;
}

static void failing_can_be_switched_off(void **state) {
  void *p = NULL;

  (void)state;
  tfd_test_fail_allocation(1);
  tfd_test_fail_allocation(0);
  p = tfd__alloc(1);
  assert_non_null(p);
  tfd__free(p);
}

static void failed_realloc_keeps_the_block(void **state) {
  int64_t live = tfd__alloc_live();
  char *p = tfd__strdup("still here");

  (void)state;
  tfd_test_fail_allocation(1);
  assert_null(tfd__realloc(p, 1000));
  assert_string_equal("still here", p);
  assert_int_equal(live + 1, tfd__alloc_live());
  tfd__free(p);
}

static void no_memory_names_the_request(void **state) {
  (void)state;
  assert_int_equal(TFD_RESOURCE_EXHAUSTED, tfd__no_memory(123, "a thing"));
  assert_string_equal("out of memory: 123 bytes for a thing",
                      tfd_error_message());
}

static void products_that_overflow_are_refused(void **state) {
  size_t s = 0;
  int64_t i = 0;

  (void)state;
  assert_true(tfd__mul_size(3, 4, &s));
  assert_int_equal(12, s);
  assert_false(tfd__mul_size(SIZE_MAX, 2, &s));
  assert_true(tfd__mul_i64(INT64_MAX, 1, &i));
  assert_true(i == INT64_MAX);
  assert_false(tfd__mul_i64(INT64_MAX, 2, &i));
}

/* --- objects -------------------------------------------------------------- */

static atomic_int destroyed;

static void destroy(void *self) {
  destroyed++;
  tfd__free(self);
}

static const tfd__type spec_type = {
    .name = "spec", .kind = TFD_HANDLE_WALK, .destroy = destroy};

static tfd_object *new_object(void) {
  tfd_object *o = tfd__alloc(sizeof *o);

  assert_non_null(o);
  tfd__object_init(o, &spec_type);
  return o;
}

static void last_release_destroys(void **state) {
  int64_t handles = tfd_live_handles(TFD_HANDLE_WALK);
  tfd_object *o = new_object();

  (void)state;
  destroyed = 0;
  assert_int_equal(handles + 1, tfd_live_handles(TFD_HANDLE_WALK));
  assert_ptr_equal(o, tfd_retain(o));
  tfd_release(o);
  assert_int_equal(0, destroyed);
  tfd_release(o);
  assert_int_equal(1, destroyed);
  assert_int_equal(handles, tfd_live_handles(TFD_HANDLE_WALK));
  tfd_release(NULL);
  assert_null(tfd_retain(NULL));
}

static void live_handles_of_no_kind_is_zero(void **state) {
  (void)state;
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_KINDS));
  assert_int_equal(0, tfd_live_handles((tfd_handle_kind)-1));
}

static void take_and_drop(void *object) {
  for (int i = 0; i < 20000; i++) {
    tfd__retain(object);
    tfd__release(object);
  }
  tfd__release(object);
}

static void references_are_counted_across_threads(void **state) {
  tfd_object *o = new_object();
  tfd__thread t[3];

  (void)state;
  destroyed = 0;
  for (int i = 0; i < 3; i++) {
    tfd__retain(o);
    assert_int_equal(TFD_OK,
                     tfd__thread_start(&t[i], "refs", take_and_drop, o));
  }
  take_and_drop(o);
  for (int i = 0; i < 3; i++) tfd__thread_join(t[i]);
  assert_int_equal(1, destroyed);
}

/* --- pressure ------------------------------------------------------------- */

/* Bytes that can be added before the host is asked to collect. */
static int64_t room(void) {
  int64_t added = 0;

  while (!tfd_memory_should_collect() && added < 4096 * MIB) {
    tfd__memory_adjust(MIB);
    added += MIB;
  }
  tfd__memory_adjust(-added);
  return added - MIB;
}

static int reset_pressure(void **state) {
  (void)state;
  tfd__memory_adjust(-tfd_live_bytes());
  tfd_memory_set_limit(0);
  return 0;
}

static void live_bytes_add_up(void **state) {
  (void)state;
  tfd__memory_adjust(100);
  tfd__memory_adjust(-30);
  assert_int_equal(70, tfd_live_bytes());
}

static void adjust_by_70(void *object_p) {
  *(tfd_object **)object_p = new_object();
  tfd__memory_adjust(70);
}

/* What a thread has counted stays when it is gone. */
static void threads_count_together(void **state) {
  int64_t before = tfd_live_handles(TFD_HANDLE_WALK);
  tfd_object *made[3] = {NULL};
  tfd__thread t[3];
  int i;

  (void)state;
  tfd__memory_adjust(-10);
  for (i = 0; i < 3; i++) {
    assert_int_equal(TFD_OK,
                     tfd__thread_start(&t[i], "adds", adjust_by_70, &made[i]));
  }
  for (i = 0; i < 3; i++) tfd__thread_join(t[i]);
  assert_int_equal(200, tfd_live_bytes());
  assert_int_equal(before + 3, tfd_live_handles(TFD_HANDLE_WALK));
  for (i = 0; i < 3; i++) tfd_release(made[i]);
  assert_int_equal(before, tfd_live_handles(TFD_HANDLE_WALK));
}

/* A thread may keep 1/1024 of the limit to itself. */
static void collection_is_asked_above_the_limit(void **state) {
  const int64_t more = 64 * MIB / 1024 + 1;

  (void)state;
  tfd__memory_adjust(64 * MIB);
  assert_false(tfd_memory_should_collect());
  tfd__memory_adjust(more);
  assert_true(tfd_memory_should_collect());
  assert_true(tfd_memory_should_collect()); /* until it happens */
  tfd__memory_adjust(-more);
  assert_false(tfd_memory_should_collect());
}

static void limit_can_be_set(void **state) {
  (void)state;
  tfd_memory_set_limit(MIB);
  tfd__memory_adjust(MIB + 1);
  assert_true(tfd_memory_should_collect());
  tfd_memory_set_limit(2 * MIB);
  assert_false(tfd_memory_should_collect());
  tfd_memory_set_limit(MIB); /* also below what is live already */
  assert_true(tfd_memory_should_collect());
}

static void useful_collection_keeps_the_limit(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    tfd__memory_adjust(65 * MIB);
    assert_true(tfd_memory_should_collect());
    tfd__memory_adjust(-65 * MIB);
    tfd_memory_collected();
    assert_int_equal(64 * MIB, room());
  }
}

static void useless_collections_get_rarer(void **state) {
  int collections = 0;

  (void)state;
  for (int i = 0; i < 1024; i++) { /* all of it stays live */
    tfd__memory_adjust(MIB);
    if (!tfd_memory_should_collect()) continue;
    tfd_memory_collected();
    collections++;
  }
  /* 64 MiB to 1 GiB by factors of 1.5 */
  assert_in_range(collections, 5, 8);
}

static void limit_follows_large_live_data(void **state) {
  (void)state;
  tfd__memory_adjust(1024 * MIB);
  assert_true(tfd_memory_should_collect());
  tfd_memory_collected();
  assert_false(tfd_memory_should_collect());
  assert_in_range(room(), 128 * MIB, 1024 * MIB);
}

static void limit_comes_back_when_live_falls(void **state) {
  (void)state;
  tfd__memory_adjust(1024 * MIB);
  assert_true(tfd_memory_should_collect());
  tfd_memory_collected();
  tfd__memory_adjust(-1024 * MIB);
  for (int i = 0; i < 40; i++) {
    int64_t added = room() + MIB;

    tfd__memory_adjust(added);
    assert_true(tfd_memory_should_collect());
    tfd__memory_adjust(-added);
    tfd_memory_collected();
  }
  assert_in_range(room(), 64 * MIB, 65 * MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(blocks_are_counted),
      cmocka_unit_test(zero_bytes_are_a_block_too),
      cmocka_unit_test(calloc_gives_zeros_and_checks_overflow),
      cmocka_unit_test(nth_allocation_fails_once),
      cmocka_unit_test(environment_names_the_allocation_that_fails),
      cmocka_unit_test(failing_can_be_switched_off),
      cmocka_unit_test(failed_realloc_keeps_the_block),
      cmocka_unit_test(no_memory_names_the_request),
      cmocka_unit_test(products_that_overflow_are_refused),
      cmocka_unit_test(last_release_destroys),
      cmocka_unit_test(live_handles_of_no_kind_is_zero),
      cmocka_unit_test(references_are_counted_across_threads),
      cmocka_unit_test_setup(live_bytes_add_up, reset_pressure),
      cmocka_unit_test_setup(threads_count_together, reset_pressure),
      cmocka_unit_test_setup(collection_is_asked_above_the_limit,
                             reset_pressure),
      cmocka_unit_test_setup(limit_can_be_set, reset_pressure),
      cmocka_unit_test_setup(useful_collection_keeps_the_limit, reset_pressure),
      cmocka_unit_test_setup(useless_collections_get_rarer, reset_pressure),
      cmocka_unit_test_setup(limit_follows_large_live_data, reset_pressure),
      cmocka_unit_test_setup(limit_comes_back_when_live_falls, reset_pressure),
  };

  if (getenv("TFDIST_FAIL_ALLOC") != NULL) return count_until_failure();
  return cmocka_run_group_tests_name("base/memory", tests, NULL, NULL);
}
