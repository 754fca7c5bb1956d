/* Ordered faults: who is meant, when, and what happens. */
#include "base/failpoint.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static int forget(void **state) {
  (void)state;
  tfd__failpoints_rank(0);
  return tfd__failpoints_set(NULL);
}

static void order(const char *text) {
  assert_int_equal(TFD_OK, tfd__failpoints_set(text));
}

static void nothing_happens_that_was_not_ordered(void **state) {
  (void)state;
  assert_int_equal(0, TFD_FAIL(CKPT_SYNC));
  order("ckpt.write=enospc");
  assert_int_equal(0, TFD_FAIL(CKPT_SYNC));
  assert_int_equal(ENOSPC, TFD_FAIL(CKPT_WRITE));
  assert_int_equal(ENOSPC, TFD_FAIL(CKPT_WRITE));
  order(NULL);
  assert_int_equal(0, TFD_FAIL(CKPT_WRITE));
}

static void a_pass_counts_alone(void **state) {
  int n;

  (void)state;
  order("ckpt.sync=eio@3; ckpt.write=flip@1");
  for (n = 1; n <= 5; n++) {
    assert_int_equal(n == 3 ? EIO : 0, TFD_FAIL(CKPT_SYNC));
  }
  assert_int_equal(TFD_FLIP, TFD_FAIL(CKPT_WRITE));
  assert_int_equal(0, TFD_FAIL(CKPT_WRITE));
}

/* Passes of other processes are none of this one's. */
static void a_rank_is_meant_alone(void **state) {
  (void)state;
  order("net.beat=epipe@2@rank1");
  assert_int_equal(0, TFD_FAIL(NET_BEAT));
  assert_int_equal(0, TFD_FAIL(NET_BEAT));
  tfd__failpoints_rank(1);
  assert_int_equal(0, TFD_FAIL(NET_BEAT));
  assert_int_equal(EPIPE, TFD_FAIL(NET_BEAT));
  order("net.beat=epipe@rank1@2"); /* in any order */
  assert_int_equal(0, TFD_FAIL(NET_BEAT));
  assert_int_equal(EPIPE, TFD_FAIL(NET_BEAT));
}

static void *pass_until_ordered(void *unused) {
  (void)unused;
  while (TFD_FAIL(NET_BEAT) == 0) (void)sched_yield();
  return NULL;
}

/* For the sanitizer of threads. */
static void orders_come_while_others_pass(void **state) {
  pthread_t thread;

  (void)state;
  (void)alarm(60);
  assert_int_equal(0, pthread_create(&thread, NULL, pass_until_ordered, NULL));
  order("net.beat=epipe");
  assert_int_equal(0, pthread_join(thread, NULL));
  (void)alarm(0);
}

/* What a process ends with that passes a place with this order. */
static int ends_with(const char *text) {
  int status = 0;
  pid_t child = fork();

  assert_true(child >= 0);
  if (child == 0) {
    (void)alarm(60);
    (void)signal(SIGSEGV, SIG_DFL);
    if (tfd__failpoints_set(text) != TFD_OK) _exit(99);
    (void)TFD_FAIL(MEET_BEGIN);
    _exit(98);
  }
  assert_int_equal(child, waitpid(child, &status, WUNTRACED));
  if (WIFSTOPPED(status)) {
    (void)kill(child, SIGKILL);
    (void)waitpid(child, &status, 0);
    return 0;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void processes_end_as_ordered(void **state) {
  (void)state;
  assert_int_equal(128 + SIGKILL, ends_with("meet.begin=kill"));
  assert_int_equal(128 + SIGSEGV, ends_with("meet.begin=crash"));
  assert_int_equal(41, ends_with("meet.begin=exit:41"));
  assert_int_equal(0, ends_with("meet.begin=stop"));
  assert_int_equal(98, ends_with("meet.begin=kill@2"));
}

static void a_process_sleeps_as_long_as_ordered(void **state) {
  struct timespec begin;
  struct timespec end;
  int64_t ms = 0;

  (void)state;
  order("meet.begin=sleep:50");
  (void)clock_gettime(CLOCK_MONOTONIC, &begin);
  assert_int_equal(0, TFD_FAIL(MEET_BEGIN));
  (void)clock_gettime(CLOCK_MONOTONIC, &end);
  ms = (int64_t)(end.tv_sec - begin.tv_sec) * 1000 +
       (end.tv_nsec - begin.tv_nsec) / 1000000;
  assert_true(ms >= 49);
}

static void what_cannot_be_ordered_is_named(void **state) {
  static const char *const bad[][2] = {
      {"ckpt.nowhere=kill", "\"ckpt.nowhere=kill\" names no place"},
      {"ckpt.sync", "\"ckpt.sync\" has no action"},
      {"ckpt.sync=burn", "\"ckpt.sync=burn\" names no action"},
      {"ckpt.sync=kill:3", "\"ckpt.sync=kill:3\" names no action"},
      {"ckpt.sync=exit", "\"ckpt.sync=exit\" names no action"},
      {"ckpt.sync=exit:256", "\"ckpt.sync=exit:256\" names no action"},
      {"ckpt.sync=sleep:-1", "\"ckpt.sync=sleep:-1\" names no action"},
      {"ckpt.sync=eio@0", "neither a pass nor a rank"},
      {"ckpt.sync=eio@1x", "neither a pass nor a rank"},
      {"ckpt.sync=eio@rank", "neither a pass nor a rank"},
      {"ckpt.write=eio;ckpt.sync=flip", "there are no bytes"},
  };
  size_t i;

  (void)state;
  for (i = 0; i < sizeof bad / sizeof *bad; i++) {
    assert_int_equal(TFD_VALUE_ERROR, tfd_test_failpoints(bad[i][0]));
    assert_non_null(strstr(tfd_error_message(), bad[i][1]));
    assert_non_null(strstr(tfd_error_message(), "PLACE=ACTION"));
    assert_int_equal(0, TFD_FAIL(CKPT_WRITE)); /* all of it or nothing */
  }
}

static void every_place_has_a_name_of_its_own(void **state) {
  int i;
  int k;

  (void)state;
  for (i = 0; tfd__failpoint_name(i) != NULL; i++) {
    assert_true(strlen(tfd__failpoint_what(i)) > 0);
    for (k = 0; k < i; k++) {
      assert_string_not_equal(tfd__failpoint_name(i), tfd__failpoint_name(k));
    }
  }
  assert_int_equal(TFD_FAILPOINTS, i);
  assert_non_null(strstr(tfd__failpoint_actions(), "kill"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(nothing_happens_that_was_not_ordered, forget),
      cmocka_unit_test_teardown(a_pass_counts_alone, forget),
      cmocka_unit_test_teardown(a_rank_is_meant_alone, forget),
      cmocka_unit_test_teardown(processes_end_as_ordered, forget),
      cmocka_unit_test_teardown(orders_come_while_others_pass, forget),
      cmocka_unit_test_teardown(a_process_sleeps_as_long_as_ordered, forget),
      cmocka_unit_test_teardown(what_cannot_be_ordered_is_named, forget),
      cmocka_unit_test(every_place_has_a_name_of_its_own),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
