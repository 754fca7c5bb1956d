/* Ends: exit with work queued, fork after start, inline mode. Each case runs
** in a child made before this process has started anything. */
#include <errno.h>
#include <sys/wait.h>

#include "device_support.h"

/* Run fn in a child; its exit status, or -1 if a signal ended it. */
static int in_child(void (*fn)(void)) {
  int status = 0;
  pid_t child = fork();

  assert_true(child >= 0);
  if (child == 0) {
    alarm(600);
    fn();
    exit(0); /* with destructors, as a program ends */
  }
  while (waitpid(child, &status, 0) < 0) assert_int_equal(EINTR, errno);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* No cmocka assertions in children. */
#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      _exit(9);                                                       \
    }                                                                 \
  } while (0)

static int slow(const tfd__call *call) {
  (void)call;
  usleep(200);
  return TFD_OK;
}

static tfd_device *get(int i) {
  tfd_device *d = NULL;

  CHECK(tfd_device_at("CPU", i, &d) == TFD_OK);
  return d;
}

static void leave_with_work_queued(void) {
  tfd__buffer *a = NULL;
  tfd__buffer *b = NULL;
  int i;

  CHECK(tfd__buffer_new(get(0), 64, &a) == TFD_OK);
  CHECK(tfd__buffer_new(get(1), 64, &b) == TFD_OK);
  for (i = 0; i < 200; i++) {
    tfd__view va = view_of(a);
    tfd__view vb = view_of(b);

    CHECK(submit_ints(get(0), slow, NULL, 0) == TFD_OK);
    CHECK(submit_ints(get(1), slow, NULL, 0) == TFD_OK);
    CHECK(submit_ints(get(2), slow, NULL, 0) == TFD_OK);
    CHECK(tfd__copy_across(b, &vb, a, &va) == TFD_OK);
    CHECK(tfd__stream_after(get(2), get(1)) == TFD_OK);
  }
  tfd__release(a);
  tfd__release(b);
}

static void exit_with_work_queued_is_clean(void **state) {
  (void)state;
  assert_int_equal(0, in_child(leave_with_work_queued));
}

static void use_in_a_fork_of_a_started_process(void) {
  static const char text[] = "tfdist cannot be used after fork()";
  tfd__buffer *a = NULL;
  tfd__buffer *b = NULL;
  int64_t n = 0;
  int status = 0;
  pid_t child = 0;

  CHECK(tfd__buffer_new(get(1), 64, &a) == TFD_OK);
  CHECK(submit_ints(get(1), slow, NULL, 0) == TFD_OK);
  child = fork();
  if (child == 0) {
    alarm(300);
    CHECK(tfd_device_count("", &n) == TFD_FAILED_PRECONDITION);
    CHECK(strcmp(tfd_error_message(), text) == 0);
    CHECK(tfd__buffer_new(a->device, 64, &b) == TFD_FAILED_PRECONDITION);
    CHECK(submit_ints(a->device, slow, NULL, 0) == TFD_FAILED_PRECONDITION);
    CHECK(tfd_device_synchronize(a->device) == TFD_FAILED_PRECONDITION);
    CHECK(tfd__host_write(a, 0, text, 8) == TFD_FAILED_PRECONDITION);
    CHECK(tfd__host_read(a, 0, &n, 8) == TFD_FAILED_PRECONDITION);
    CHECK(tfd_device_trim(a->device) == TFD_FAILED_PRECONDITION);
    tfd__release(a); /* collectors run in the child too */
#if defined(__SANITIZE_ADDRESS__)
    _exit(0); /* what the missing threads held would count as leaked */
#endif
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  /* the parent goes on */
  CHECK(submit_ints(get(1), slow, NULL, 0) == TFD_OK);
  CHECK(tfd_device_synchronize(get(1)) == TFD_OK);
  tfd__release(a);
}

static void a_fork_gets_an_error_not_a_hang(void **state) {
  (void)state;
  assert_int_equal(0, in_child(use_in_a_fork_of_a_started_process));
}

static int fail_inline(const tfd__call *call) {
  return tfd__fail(TFD_OUT_OF_RANGE, "%s: no", call->name);
}

static int count_call(const tfd__call *call) {
  ++*(int64_t *)(uintptr_t)call->ints[0];
  return TFD_OK;
}

static void use_inline_devices(void) {
  int64_t ran = 0;
  int64_t ints[1] = {(int64_t)(uintptr_t)&ran};
  int64_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t got[8] = {0};
  tfd__buffer *a = NULL;
  tfd__buffer *b = NULL;
  tfd__view va;
  tfd__view vb;

  CHECK(tfd_config_set_queue_mode(TFD_QUEUE_INLINE) == TFD_OK);
  CHECK(!tfd_device_is_queued(get(0)));
  CHECK(tfd__stream_is_inline(get(2)));
  CHECK(submit_ints(get(2), count_call, ints, 1) == TFD_OK);
  CHECK(ran == 1);
  CHECK(tfd__stream_seq(get(2)) == 0); /* nothing was queued */
  CHECK(submit_ints(get(2), fail_inline, NULL, 0) == TFD_OUT_OF_RANGE);
  CHECK(tfd_device_synchronize(get(2)) == TFD_OK); /* said already */
  CHECK(submit_ints(get(2), count_call, ints, 1) == TFD_OK);
  CHECK(ran == 2);
  CHECK(tfd__buffer_new(get(0), 64, &a) == TFD_OK);
  CHECK(tfd__buffer_new(get(1), 64, &b) == TFD_OK);
  CHECK(tfd__host_write(a, 0, values, 64) == TFD_OK);
  va = view_of(a);
  vb = view_of(b);
  CHECK(tfd__stream_after(get(1), get(0)) == TFD_OK);
  CHECK(tfd__copy_across(b, &vb, a, &va) == TFD_OK);
  CHECK(tfd__host_read(b, 0, got, 64) == TFD_OK);
  CHECK(memcmp(values, got, 64) == 0);
  tfd__release(a);
  tfd__release(b);
}

static void inline_devices_run_at_the_call(void **state) {
  (void)state;
  assert_int_equal(0, in_child(use_inline_devices));
}

static void leave_unused(void) {
  int64_t n = 0;

  CHECK(tfd_device_count("", &n) == TFD_OK);
  CHECK(n == 3);
}

static void exit_without_work_is_clean(void **state) {
  (void)state;
  assert_int_equal(0, in_child(leave_unused));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(exit_with_work_queued_is_clean),
      cmocka_unit_test(a_fork_gets_an_error_not_a_hang),
      cmocka_unit_test(inline_devices_run_at_the_call),
      cmocka_unit_test(exit_without_work_is_clean),
  };

  configure("3", "queued");
  return cmocka_run_group_tests_name("device/stop", tests, NULL, NULL);
}
