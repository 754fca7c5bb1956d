/* Devices of a plug-in: memory that the host cannot see, work that finishes
** later, failures that show up later; beside two queued devices of the
** processor. Random work is in device_random. */
#include <fcntl.h>
#include <sys/wait.h>

#include "slow_support.h"

#define WORDS 50
#define BYTES (WORDS * sizeof(int64_t))

static tfd_device *place(int i) {
  return i < 2 ? device(i) : slow_device(i - 2);
}

static tfd__buffer *filled(tfd_device *d, int64_t first) {
  tfd__buffer *b = buffer(d, BYTES);
  int64_t values[WORDS];
  int i;

  for (i = 0; i < WORDS; i++) values[i] = first + i;
  assert_int_equal(TFD_OK, tfd__host_write(b, 0, values, BYTES));
  memset(values, 0, sizeof values); /* the host's again */
  return b;
}

static void expect_values(tfd__buffer *b, int64_t first) {
  int64_t got[WORDS];
  int i;

  assert_int_equal(TFD_OK, tfd__host_read(b, 0, got, BYTES));
  for (i = 0; i < WORDS; i++) assert_int_equal(first + i, got[i]);
}

/* to = from + 1, by the device's own kernel. */
static int add_one(const tfd__call *call) {
  const int64_t *from = tfd__in(call, 0)->data;
  int64_t *to = tfd__out(call, 0)->data;
  int i;

  for (i = 0; i < WORDS; i++) to[i] = from[i] + 1;
  return TFD_OK;
}

static int add_one_late(const tfd__call *call) {
  return launch_late(call, add_one);
}

static int fail_kernel(const tfd__call *call) {
  return tfd__fail(TFD_DATA_LOSS, "%s failed", call->name);
}

static int fail_late(const tfd__call *call) {
  return launch_late(call, fail_kernel);
}

static void submit(tfd_device *d, tfd__buffer *to, tfd__buffer *from,
                   const char *name, bool good) {
  bool late = d->backend->asynchronous;
  tfd__view views[2] = {view_of(from), view_of(to)};
  tfd__call call = {.name = name,
                    .kernel = good ? (late ? add_one_late : add_one)
                                   : (late ? fail_late : fail_kernel),
                    .views = views,
                    .in_n = 1,
                    .out_n = 1,
                    .replica = 3,
                    .line = 27,
                    .file = "train.lua"};

  assert_int_equal(TFD_OK, tfd__stream_submit(d, &call));
  if (to == from) {
    to->use_seq = tfd__stream_seq(d);
  } else {
    tfd__buffer_made(to, tfd__stream_seq(d));
  }
}

static void expect_failure(int rc, const char *name) {
  char text[64];

  snprintf(text, sizeof text, "%s failed", name);
  assert_int_equal(TFD_DATA_LOSS, rc);
  assert_string_equal(text, tfd_error_message());
  assert_string_equal("train.lua:27", tfd_error_where());
  assert_int_equal(3, tfd_error_replica());
}

/* --- what there is -------------------------------------------------------- */

static void its_devices_come_behind_the_processors(void **state) {
  int64_t n = 0;
  tfd_device *d = NULL;
  const char *model = NULL;
  int64_t memory = 0;
  int cores = 0;

  (void)state;
  assert_int_equal(TFD_OK, tfd_device_count("", &n));
  assert_int_equal(6, n);
  assert_int_equal(TFD_OK, tfd_device_at("", 2, &d));
  assert_string_equal("/slow:0", tfd_device_short_name(d));
  assert_int_equal(TFD_OK, tfd_device_find("slow:3", &d));
  assert_ptr_equal(slow_device(3), d);
  assert_true(tfd_device_is_queued(d));
  assert_int_equal(TFD_OK, tfd_device_describe(d, &model, &memory, &cores));
  assert_string_equal("slow device", model);
  assert_true(memory > 0 && cores == 1);
  assert_int_equal(TFD_OK,
                   tfd_device_describe(device(0), &model, &memory, &cores));
  assert_true(model[0] != '\0' && memory > 0 && cores >= 1);
}

static void back_ends_say_what_they_are(void **state) {
  const char *name = NULL;
  const char *type = NULL;
  const char *path = NULL;
  const char *reason = NULL;
  int64_t count = 0;
  int64_t n = 0;

  (void)state;
  /* Plug-ins of the build may follow the two. */
  assert_int_equal(TFD_OK, tfd_backend_count(&count));
  assert_true(count >= 2);
  assert_int_equal(TFD_OK, tfd_backend_at(0, &name, &type, &n, &path, &reason));
  assert_string_equal("cpu", name);
  assert_string_equal("", path);
  assert_int_equal(TFD_OK, tfd_backend_at(1, &name, &type, &n, &path, &reason));
  assert_string_equal("slow", name);
  assert_string_equal("SLOW", type);
  assert_int_equal(4, n);
  assert_non_null(strstr(path, "tfdist_slow.so"));
  assert_string_equal("", reason);
  assert_int_equal(TFD_INDEX_ERROR, tfd_backend_at((int)count, &name, &type, &n,
                                                   &path, &reason));
}

/* The kernel refuses to read what the host has no access to. */
static void the_host_cannot_see_its_memory(void **state) {
  tfd__buffer *b = filled(slow_device(0), 7);
  int file = open("/dev/zero", O_RDONLY);

  (void)state;
  assert_int_equal(-1, read(file, b->data, 1));
  close(file);
  expect_values(b, 7);
  tfd__release(b);
}

/* --- copies --------------------------------------------------------------- */

static void copies_go_between_all_devices(void **state) {
  int from;
  int to;

  (void)state;
  for (from = 0; from < 4; from++) {
    for (to = 0; to < 4; to++) {
      tfd__buffer *a = filled(place(from), 10 * from + to);
      tfd__buffer *b = buffer(place(to), BYTES);
      tfd__view va = view_of(a);
      tfd__view vb = view_of(b);

      submit(place(from), a, a, "add", true);
      assert_int_equal(TFD_OK, tfd__copy_across(b, &vb, a, &va));
      tfd__release(a);
      a = filled(place(from), -1); /* the same memory, at once */
      submit(place(to), b, b, "add", true);
      expect_values(b, 10 * from + to + 2);
      tfd__release(a);
      tfd__release(b);
    }
  }
}

static void parts_of_a_buffer_are_read_and_written(void **state) {
  tfd__buffer *b = filled(slow_device(1), 0);
  int64_t two[2] = {100, 101};
  int64_t got[4];

  (void)state;
  assert_int_equal(TFD_OK, tfd__host_write(b, 8 * 10, two, sizeof two));
  assert_int_equal(TFD_OK, tfd__host_read(b, 8 * 9, got, sizeof got));
  assert_int_equal(9, got[0]);
  assert_int_equal(100, got[1]);
  assert_int_equal(101, got[2]);
  assert_int_equal(12, got[3]);
  tfd__release(b);
}

static void what_a_copy_uses_is_let_go_when_it_is_done(void **state) {
  int64_t live = tfd_live_handles(TFD_HANDLE_BUFFER);
  tfd__buffer *a = filled(slow_device(0), 1);
  tfd__buffer *b = buffer(slow_device(1), BYTES);
  tfd__view va = view_of(a);
  tfd__view vb = view_of(b);

  (void)state;
  assert_int_equal(TFD_OK, tfd__copy_across(b, &vb, a, &va));
  tfd__release(a);
  tfd__release(b);
  assert_int_equal(TFD_OK, tfd_device_synchronize(slow_device(1)));
  assert_int_equal(live, tfd_live_handles(TFD_HANDLE_BUFFER));
}

/* The device leaves up to 40 pieces when nobody waits. */
static void copies_that_nobody_waits_for_hold_few(void **state) {
  int64_t live = tfd_live_handles(TFD_HANDLE_BUFFER);
  tfd_device *d = slow_device(1);
  tfd__deadline until = tfd__deadline_in(60); /* ends a hang */
  int i;

  (void)state;
  for (i = 0; i < 2000; i++) {
    tfd__buffer *a = filled(slow_device(0), 1);
    tfd__buffer *b = buffer(d, BYTES);
    tfd__view va = view_of(a);
    tfd__view vb = view_of(b);

    assert_int_equal(TFD_OK, tfd__copy_across(b, &vb, a, &va));
    tfd__release(a);
    tfd__release(b);
    while (d->backend->poll(d->stream) + 100 < tfd__stream_seq(d)) {
      assert_true(tfd__now_ns() < until);
    }
  }
  assert_true(tfd_live_handles(TFD_HANDLE_BUFFER) - live < 500);
  assert_int_equal(TFD_OK, tfd_device_synchronize(d));
  assert_int_equal(live, tfd_live_handles(TFD_HANDLE_BUFFER));
}

/* --- failures ------------------------------------------------------------- */

static void a_late_failure_surfaces_once_and_spoils_what_follows(void **state) {
  tfd_device *d = slow_device(0);
  int round;

  (void)state;
  for (round = 0; round < 20; round++) {
    tfd__buffer *before = filled(d, 1);
    tfd__buffer *kept = filled(d, 2);
    tfd__buffer *bad = buffer(d, BYTES);
    tfd__buffer *after = buffer(d, BYTES);
    tfd__buffer *host = NULL;

    submit(d, before, before, "add", true);
    submit(d, bad, before, "gather", false);
    submit(d, kept, kept, "add", true); /* in place */
    submit(d, after, before, "add", true);
    host = filled(d, 5); /* what the host has is never lost */
    expect_values(before, 2);
    expect_failure(tfd__stream_wait(d, after->use_seq, TFD_FOREVER), "gather");
    assert_int_equal(TFD_OK, tfd_device_synchronize(d));
    expect_failure(tfd__buffer_check(bad), "gather");
    expect_failure(tfd__buffer_check(after), "gather");
    assert_int_equal(TFD_BUFFER_LOST, tfd__buffer_state_of(after));
    expect_values(kept, 2);
    expect_values(host, 5);
    submit(d, after, before, "add", true); /* it works again */
    expect_values(after, 3);
    tfd__release(before);
    tfd__release(kept);
    tfd__release(bad);
    tfd__release(after);
    tfd__release(host);
  }
}

static tfd_device *told_of;
static uint64_t told_seq;
static bool believed;

/* As another thread may: the failure is on its way. */
static void look_meanwhile(void) {
  believed = tfd__stream_has_passed(told_of, told_seq);
}

static void nothing_has_passed_before_its_failure_is_kept(void **state) {
  void (*when_told)(void (*fn)(void)) = NULL;
  tfd__buffer *b = NULL;

  (void)state;
  *(void **)(void *)&when_told = slow_symbol("slow_when_told");
  told_of = slow_device(0);
  b = filled(told_of, 0);
  submit(told_of, b, b, "bad", false);
  told_seq = tfd__stream_seq(told_of);
  believed = true;
  when_told(look_meanwhile);
  expect_failure(tfd__stream_wait(told_of, told_seq, TFD_FOREVER), "bad");
  when_told(NULL);
  assert_false(believed);
  tfd__release(b);
}

static void a_failure_follows_its_results(void **state) {
  int from;
  int to;

  (void)state;
  for (from = 0; from < 4; from++) {
    for (to = 0; to < 4; to++) {
      tfd__buffer *a = filled(place(from), 1);
      tfd__buffer *lost = buffer(place(from), BYTES);
      tfd__buffer *b = buffer(place(to), BYTES);
      tfd__buffer *kept = filled(place(to), 4);
      tfd__view va = view_of(lost);
      tfd__view vb = view_of(b);

      submit(place(from), lost, a, "gather", false);
      assert_int_equal(TFD_OK, tfd__copy_across(b, &vb, lost, &va));
      submit(place(to), kept, kept, "add", true); /* dropped with it */
      expect_failure(tfd__stream_wait(place(to), b->use_seq, TFD_FOREVER),
                     "gather");
      assert_int_equal(TFD_OK, tfd_device_synchronize(place(from)));
      assert_int_equal(TFD_OK, tfd_device_synchronize(place(to)));
      expect_failure(tfd__buffer_check(b), "gather");
      expect_values(kept, 4);
      tfd__release(a);
      tfd__release(b);
      tfd__release(lost);
      tfd__release(kept);
    }
  }
}

static void of_several_failures_the_one_submitted_first_surfaces(void **state) {
  int first;
  int second;
  int asked;

  (void)state;
  for (first = 0; first < 4; first++) {
    for (second = 0; second < 4; second++) {
      for (asked = 0; asked < 2; asked++) {
        tfd_device *waited = place(asked == 0 ? first : second);
        tfd__buffer *a = buffer(place(first), BYTES);
        tfd__buffer *b = buffer(place(second), BYTES);
        char hint[64];

        submit(place(first), a, a, "gather", false);
        submit(place(second), b, b, "one_hot", false);
        expect_failure(tfd_device_synchronize(waited), "gather");
        snprintf(hint, sizeof hint, "%s failed too: one_hot failed",
                 tfd_device_short_name(place(second)));
        assert_string_equal(first == second ? "" : hint, tfd_error_hint());
        assert_int_equal(TFD_OK, tfd_device_synchronize(place(first)));
        assert_int_equal(TFD_OK, tfd_device_synchronize(place(second)));
        tfd__release(a);
        tfd__release(b);
      }
    }
  }
}

static void failures_are_injected_by_number(void **state) {
  tfd_device *d = slow_device(2);
  tfd__buffer *b = filled(d, 0);
  int i;

  (void)state;
  fail_late_at(2, 3);
  for (i = 0; i < 5; i++) submit(d, b, b, "add", true);
  assert_int_equal(TFD_DATA_LOSS, tfd_device_synchronize(d));
  assert_string_equal("add: injected failure on /slow:2", tfd_error_message());
  expect_values(b, 2); /* the third did not run, nor those behind it */
  tfd__release(b);
}

/* --- waits ---------------------------------------------------------------- */

static int pass_late(const tfd__call *call) {
  return launch_late(call, pass_gate);
}

static void a_wait_ends_at_its_deadline_or_an_interrupt(void **state) {
  tfd_device *d = slow_device(0);
  gate g = {0};
  int64_t address = (int64_t)(uintptr_t)&g;

  (void)state;
  assert_int_equal(TFD_OK, submit_ints(d, pass_late, &address, 1));
  assert_int_equal(TFD_DEADLINE_EXCEEDED,
                   tfd__stream_wait(d, UINT64_MAX, tfd__deadline_in(0.02)));
  assert_non_null(strstr(tfd_error_message(), "/slow:0"));
  tfd_interrupt(true);
  assert_int_equal(TFD_CANCELLED, tfd_device_synchronize(d));
  tfd_interrupt(false);
  atomic_store(&g.open, true);
  assert_int_equal(TFD_OK, tfd_device_synchronize(d));
}

/* --- plug-ins that cannot be used ----------------------------------------- */

/* The reason that a process with this environment keeps. */
static void expect_reason(const char *places, const char *expected) {
  int status = 0;
  pid_t child = fork();

  if (child == 0) {
    const char *name = NULL;
    const char *type = NULL;
    const char *path = NULL;
    const char *reason = NULL;
    int64_t n = 0;

    setenv("TFDIST_PLUGINS", places, 1);
    if (tfd_backend_at(1, &name, &type, &n, &path, &reason) != TFD_OK) _exit(1);
    if (strstr(reason, expected) == NULL) _exit(2);
    if (type[0] != '\0' || n != 0 || path[0] == '\0') _exit(3);
    if (tfd_device_count("", &n) != TFD_OK || n != 2) _exit(4);
    _exit(0);
  }
  assert_int_equal(child, waitpid(child, &status, 0));
  assert_int_equal(0, status);
}

/* Before the first device is used, so that children may start the runtime. */
static int refused_plugins_keep_their_reasons(void **state) {
  (void)state;
  setenv("TFDIST_SLOW_REFUSE", "no such hardware", 1);
  expect_reason(slow_path, "no such hardware");
  unsetenv("TFDIST_SLOW_REFUSE");
  setenv("TFDIST_SLOW_ABI", "999", 1);
  expect_reason(slow_path, "made for another version of tfdist (table 999");
  unsetenv("TFDIST_SLOW_ABI");
  setenv("TFDIST_SLOW_TYPE", "CPU", 1);
  expect_reason(slow_path, "called CPU are those of back end \"cpu\"");
  unsetenv("TFDIST_SLOW_TYPE");
  setenv("TFDIST_SLOW_WITHOUT", "copy", 1);
  expect_reason(slow_path, "no kernel \"copy\"");
  unsetenv("TFDIST_SLOW_WITHOUT");
  expect_reason("/proc/self/exe", "dynamically load");
  expect_reason("/no/such/place", "/no/such/place");
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(its_devices_come_behind_the_processors),
      cmocka_unit_test(back_ends_say_what_they_are),
      cmocka_unit_test(the_host_cannot_see_its_memory),
      cmocka_unit_test(copies_go_between_all_devices),
      cmocka_unit_test(parts_of_a_buffer_are_read_and_written),
      cmocka_unit_test(what_a_copy_uses_is_let_go_when_it_is_done),
      cmocka_unit_test(a_late_failure_surfaces_once_and_spoils_what_follows),
      cmocka_unit_test(nothing_has_passed_before_its_failure_is_kept),
      cmocka_unit_test(a_failure_follows_its_results),
      cmocka_unit_test(copies_that_nobody_waits_for_hold_few),
      cmocka_unit_test(of_several_failures_the_one_submitted_first_surfaces),
      cmocka_unit_test(failures_are_injected_by_number),
      cmocka_unit_test(a_wait_ends_at_its_deadline_or_an_interrupt),
  };

  configure("2", "queued");
  configure_slow();
  return cmocka_run_group_tests_name("device/slow", tests,
                                     refused_plugins_keep_their_reasons, NULL);
}
