/* Order, waiting, failures and hazards of queued streams: three devices, the
** first of which runs on the host's thread. */
#include <pthread.h>

#include "device_support.h"

/* --- order ---------------------------------------------------------------- */

typedef struct log {
  int64_t next;
  int64_t wrong;
  pthread_t runner;
} log;

/* ints: log, number */
static int note(const tfd__call *call) {
  log *l = (log *)(uintptr_t)call->ints[0];

  if (l->next++ != call->ints[1]) l->wrong++;
  l->runner = pthread_self();
  return TFD_OK;
}

static void submit_note(tfd_device *d, log *l, int64_t number) {
  int64_t ints[2] = {(int64_t)(uintptr_t)l, number};

  assert_int_equal(TFD_OK, submit_ints(d, note, ints, 2));
}

static void calls_run_in_the_order_of_submission(void **state) {
  int d;

  (void)state;
  for (d = 0; d < 3; d++) {
    log l = {0};
    int64_t i;
    uint64_t first = tfd__stream_seq(device(d));

    /* far more than the ring holds */
    for (i = 0; i < 20000; i++) submit_note(device(d), &l, i);
    assert_int_equal(first + 20000, tfd__stream_seq(device(d)));
    assert_int_equal(TFD_OK, tfd_device_synchronize(device(d)));
    assert_int_equal(20000, l.next);
    assert_int_equal(0, l.wrong);
  }
}

static void the_waiting_thread_runs_the_first_device(void **state) {
  log mine = {0};
  log other = {0};

  (void)state;
  submit_note(device(0), &mine, 0);
  submit_note(device(1), &other, 0);
  assert_int_equal(0, mine.next); /* nobody else runs it */
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(1)));
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(0)));
  assert_true(pthread_equal(pthread_self(), mine.runner));
  assert_false(pthread_equal(pthread_self(), other.runner));
}

static void a_wait_runs_no_more_than_it_needs(void **state) {
  log l = {0};
  uint64_t half = 0;
  int64_t i;

  (void)state;
  for (i = 0; i < 10; i++) {
    submit_note(device(0), &l, i);
    if (i == 4) half = tfd__stream_seq(device(0));
  }
  assert_int_equal(TFD_OK, tfd__stream_wait(device(0), half, TFD_FOREVER));
  assert_int_equal(5, l.next);
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(0)));
  assert_int_equal(10, l.next);
}

/* ints of any number come back unchanged, views and reals too. */
static int check_payload(const tfd__call *call) {
  int64_t *sum = (int64_t *)tfd__in(call, 0)->data;
  int64_t i;

  for (i = 0; i < call->ints_n; i++) {
    if (call->ints[i] != i * 3) return tfd__fail(TFD_INTERNAL, "ints");
  }
  for (i = 0; i < call->reals_n; i++) {
    if (call->reals[i] != (double)i / 2) {
      return tfd__fail(TFD_INTERNAL, "reals");
    }
  }
  for (i = 1; i < call->in_n; i++) {
    if (tfd__in(call, (int)i)->numel != i) {
      return tfd__fail(TFD_INTERNAL, "views");
    }
  }
  (*sum)++;
  return TFD_OK;
}

static void arguments_are_copied_whatever_their_size(void **state) {
  static const int sizes[] = {1, 2, 8, 30, 215, 216, 217, 400, 2000};
  static tfd__view views[2000];
  int64_t ints[64];
  double reals[8];
  int64_t ran = 0;
  int64_t submitted = 0;
  int round;
  size_t k;
  int i;

  (void)state;
  for (round = 0; round < 40; round++) {
    for (k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
      tfd__call call = {.name = "payload",
                        .kernel = check_payload,
                        .views = views,
                        .ints = ints,
                        .reals = reals,
                        .in_n = (int16_t)sizes[k],
                        .ints_n = (int16_t)(round % 65),
                        .reals_n = (int16_t)(round % 9),
                        .replica = -1};

      for (i = 0; i < 2000; i++) views[i] = (tfd__view){.numel = i};
      for (i = 0; i < 64; i++) ints[i] = i * 3;
      for (i = 0; i < 8; i++) reals[i] = (double)i / 2;
      views[0].data = &ran;
      assert_int_equal(TFD_OK, tfd__stream_submit(device(1), &call));
      submitted++;
      memset(views, 0xff, sizeof views);
      memset(ints, 0xff, sizeof ints);
      memset(reals, 0xff, sizeof reals);
    }
  }
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(1)));
  assert_int_equal(submitted, ran);
}

/* --- across devices ------------------------------------------------------- */

static int set_value(const tfd__call *call) {
  *(atomic_int *)(uintptr_t)call->ints[0] = (int)call->ints[1];
  return TFD_OK;
}

static int find_value(const tfd__call *call) {
  int value = *(atomic_int *)(uintptr_t)call->ints[0];

  if (value == (int)call->ints[1]) return TFD_OK;
  return tfd__fail(TFD_INTERNAL, "expected %d, found %d", (int)call->ints[1],
                   value);
}

static void a_device_starts_after_what_it_waits_for(void **state) {
  atomic_int cell = 0;
  int64_t ints[2] = {(int64_t)(uintptr_t)&cell, 0};
  int round;

  (void)state;
  for (round = 1; round <= 200; round++) {
    int a = round % 3;
    int b = (round + 1 + round / 3 % 2) % 3;

    ints[1] = round;
    assert_int_equal(TFD_OK, submit_ints(device(a), set_value, ints, 2));
    assert_int_equal(TFD_OK, tfd__stream_after(device(b), device(a)));
    assert_int_equal(TFD_OK, submit_ints(device(b), find_value, ints, 2));
    /* and nothing of the next round before that */
    assert_int_equal(TFD_OK,
                     tfd__stream_after(device((round + 1) % 3), device(b)));
  }
  for (round = 0; round < 3; round++) {
    assert_int_equal(TFD_OK, tfd_device_synchronize(device(round)));
  }
}

static void who_only_waits_for_a_device_need_not_answer(void **state) {
  log l = {0};
  uint64_t before = 0;

  (void)state;
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(1)));
  submit_note(device(0), &l, 0); /* nobody runs it yet */
  assert_int_equal(TFD_OK, tfd__stream_after(device(1), device(0)));
  before = tfd__stream_seq(device(0));
  assert_int_equal(TFD_OK, tfd__stream_after(device(0), device(1)));
  assert_int_equal(before, tfd__stream_seq(device(0)));
  /* A third device must wait for both, and work counts again. */
  before = tfd__stream_seq(device(2));
  assert_int_equal(TFD_OK, tfd__stream_after(device(2), device(1)));
  assert_int_equal(before + 1, tfd__stream_seq(device(2)));
  submit_note(device(1), &l, 1);
  before = tfd__stream_seq(device(0));
  assert_int_equal(TFD_OK, tfd__stream_after(device(0), device(1)));
  assert_int_equal(before + 1, tfd__stream_seq(device(0)));
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(0)));
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(1)));
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(2)));
  assert_int_equal(2, l.next);
  assert_int_equal(0, l.wrong);
}

static void a_full_ring_does_not_wait_for_itself(void **state) {
  log l0 = {0};
  log l1 = {0};
  int64_t i;

  (void)state;
  /* Device 1 waits for device 0, which only this thread can run, and this
  ** thread fills device 1's ring. */
  submit_note(device(0), &l0, 0);
  assert_int_equal(TFD_OK, tfd__stream_after(device(1), device(0)));
  for (i = 0; i < 20000; i++) submit_note(device(1), &l1, i);
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(1)));
  assert_int_equal(1, l0.next);
  assert_int_equal(20000, l1.next);
  assert_int_equal(0, l1.wrong);
}

/* --- failures ------------------------------------------------------------- */

static int fail_kernel(const tfd__call *call) {
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: value %d is bad", call->name,
                   (int)call->ints[0]);
}

static void submit_failure(tfd_device *d, int value) {
  int64_t ints[1] = {value};
  tfd__call call = {.name = "gather",
                    .kernel = fail_kernel,
                    .ints = ints,
                    .ints_n = 1,
                    .replica = 3,
                    .line = 27,
                    .file = "train.lua"};

  assert_int_equal(TFD_OK, tfd__stream_submit(d, &call));
}

static void expect_failure(int rc, int value) {
  char text[64];

  snprintf(text, sizeof text, "gather: value %d is bad", value);
  assert_int_equal(TFD_INVALID_ARGUMENT, rc);
  assert_string_equal(text, tfd_error_message());
  assert_string_equal("train.lua:27", tfd_error_where());
  assert_int_equal(3, tfd_error_replica());
}

static void the_first_failure_surfaces_once(void **state) {
  int d;

  (void)state;
  for (d = 0; d < 3; d++) {
    log before = {0};
    log after = {0};
    uint64_t good = 0;
    int round;

    for (round = 0; round < 3; round++) {
      submit_note(device(d), &before, round);
      good = tfd__stream_seq(device(d));
      submit_failure(device(d), 10 * d + round);
      submit_failure(device(d), 999);
      submit_note(device(d), &after, 0); /* dropped */
      /* what came before the failure is good */
      assert_int_equal(TFD_OK, tfd__stream_wait(device(d), good, TFD_FOREVER));
      expect_failure(tfd__stream_wait(device(d), good + 1, TFD_FOREVER),
                     10 * d + round);
      assert_int_equal(TFD_OK, tfd_device_synchronize(device(d)));
      assert_int_equal(round + 1, before.next);
      assert_int_equal(0, after.next);
    }
    submit_note(device(d), &after, 0); /* runs again */
    assert_int_equal(TFD_OK, tfd_device_synchronize(device(d)));
    assert_int_equal(1, after.next);
  }
}

static void a_failure_follows_its_results(void **state) {
  int from;
  int to;

  (void)state;
  for (from = 0; from < 3; from++) {
    for (to = 0; to < 3; to++) {
      tfd__buffer *a = buffer(device(from), 64);
      tfd__buffer *b = buffer(device(to), 64);
      tfd__view va = view_of(a);
      tfd__view vb = view_of(b);
      log after = {0};

      submit_failure(device(from), 7);
      a->use_seq = tfd__stream_seq(device(from));
      assert_int_equal(TFD_OK, tfd__copy_across(b, &vb, a, &va));
      submit_note(device(to), &after, 0); /* dropped with it */
      expect_failure(tfd__stream_wait(device(to), b->use_seq, TFD_FOREVER), 7);
      /* reported once, everywhere */
      assert_int_equal(TFD_OK, tfd_device_synchronize(device(from)));
      assert_int_equal(TFD_OK, tfd_device_synchronize(device(to)));
      assert_int_equal(0, after.next);
      submit_note(device(from), &after, 0);
      assert_int_equal(TFD_OK, tfd_device_synchronize(device(from)));
      submit_note(device(to), &after, 1);
      assert_int_equal(TFD_OK, tfd_device_synchronize(device(to)));
      assert_int_equal(2, after.next);
      tfd__release(a);
      tfd__release(b);
    }
  }
}

static void a_failure_leaves_earlier_results_alone(void **state) {
  tfd__buffer *a = buffer(device(1), 64);
  tfd__buffer *b = buffer(device(2), 64);
  tfd__view va = view_of(a);
  tfd__view vb = view_of(b);
  int64_t values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t got[8] = {0};

  (void)state;
  assert_int_equal(TFD_OK, tfd__host_write(a, 0, values, sizeof values));
  submit_failure(device(1), 1); /* after a was written */
  assert_int_equal(TFD_OK, tfd__copy_across(b, &vb, a, &va));
  assert_int_equal(TFD_OK, tfd__host_read(b, 0, got, sizeof got));
  assert_memory_equal(values, got, sizeof got);
  expect_failure(tfd_device_synchronize(device(1)), 1);
  tfd__release(a);
  tfd__release(b);
}

/* --- waits that end early ------------------------------------------------- */

static void a_wait_ends_at_its_deadline(void **state) {
  gate g = {0};

  (void)state;
  submit_gate(device(1), &g);
  assert_int_equal(
      TFD_DEADLINE_EXCEEDED,
      tfd__stream_wait(device(1), UINT64_MAX, tfd__deadline_in(0.02)));
  assert_non_null(strstr(tfd_error_message(), "/cpu:1"));
  atomic_store(&g.open, true);
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(1)));
}

static void *interrupt_when_entered(void *arg) {
  gate *g = arg;

  await(&g->entered);
  tfd_interrupt(true);
  return NULL;
}

static void an_interrupt_ends_a_wait(void **state) {
  gate g = {0};
  log l = {0};
  pthread_t other;

  (void)state;
  submit_gate(device(2), &g);
  submit_note(device(2), &l, 0);
  pthread_create(&other, NULL, interrupt_when_entered, &g);
  assert_int_equal(TFD_CANCELLED, tfd_device_synchronize(device(2)));
  pthread_join(other, NULL);
  tfd_interrupt(false);
  atomic_store(&g.open, true);
  assert_int_equal(TFD_OK, tfd_device_synchronize(device(2)));
  assert_int_equal(1, l.next); /* nothing was lost */
}

/* --- bytes of the host ---------------------------------------------------- */

/* out[i] = in[i] */
static int copy_ints(const tfd__call *call) {
  memcpy(tfd__out(call, 0)->data, tfd__in(call, 0)->data,
         (size_t)tfd__in(call, 0)->numel * sizeof(int64_t));
  return TFD_OK;
}

static void submit_copy(tfd__buffer *to, tfd__buffer *from) {
  tfd__view views[2] = {view_of(from), view_of(to)};
  tfd__call call = {.name = "copy",
                    .kernel = copy_ints,
                    .views = views,
                    .in_n = 1,
                    .out_n = 1,
                    .replica = -1};

  assert_int_equal(TFD_OK, tfd__stream_submit(to->device, &call));
  to->use_seq = tfd__stream_seq(to->device);
}

static void a_host_write_keeps_what_queued_calls_read(void **state) {
  int64_t old[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t new[8] = {2, 2, 2, 2, 2, 2, 2, 2};
  int64_t got[8];
  tfd__buffer *a = buffer(device(1), sizeof old);
  tfd__buffer *seen = buffer(device(1), sizeof old);
  gate g = {0};

  (void)state;
  assert_int_equal(TFD_OK, tfd__host_write(a, 0, old, sizeof old));
  submit_gate(device(1), &g);
  await(&g.entered);
  submit_copy(seen, a);
  assert_int_equal(TFD_OK, tfd__host_write(a, 0, new, sizeof new));
  memset(new, 0xff, sizeof new); /* the caller's again */
  atomic_store(&g.open, true);
  assert_int_equal(TFD_OK, tfd__host_read(seen, 0, got, sizeof got));
  assert_memory_equal(old, got, sizeof got);
  assert_int_equal(TFD_OK, tfd__host_read(a, 0, got, sizeof got));
  assert_int_equal(2, got[0]);
  assert_int_equal(2, got[7]);
  tfd__release(a);
  tfd__release(seen);
}

static void reused_memory_keeps_what_queued_calls_read(void **state) {
  size_t bytes = 200 * sizeof(int64_t);
  int64_t values[200];
  int64_t got[200];
  tfd__buffer *a = buffer(device(1), bytes);
  tfd__buffer *seen = buffer(device(1), bytes);
  void *memory = a->data;
  tfd__buffer *b = NULL;
  gate g = {0};
  int i;

  (void)state;
  for (i = 0; i < 200; i++) values[i] = i;
  assert_int_equal(TFD_OK, tfd__host_write(a, 0, values, bytes));
  submit_gate(device(1), &g);
  await(&g.entered);
  submit_copy(seen, a);
  tfd__release(a);
  b = buffer(device(1), bytes); /* the same memory, at once */
  assert_ptr_equal(memory, b->data);
  assert_false(tfd__buffer_host_idle(b));
  memset(got, 0, sizeof got);
  assert_int_equal(TFD_OK, tfd__host_write(b, 0, got, bytes));
  atomic_store(&g.open, true);
  assert_int_equal(TFD_OK, tfd__host_read(seen, 0, got, bytes));
  assert_memory_equal(values, got, bytes);
  assert_int_equal(TFD_OK, tfd__host_read(b, 0, got, bytes));
  assert_int_equal(0, got[199]);
  assert_true(tfd__buffer_host_idle(b));
  tfd__release(b);
  tfd__release(seen);
}

static void large_writes_are_staged_too(void **state) {
  size_t bytes = (size_t)3 << 20;
  unsigned char *data = malloc(bytes);
  unsigned char *got = malloc(bytes);
  tfd__buffer *a = buffer(device(1), bytes);
  gate g = {0};
  size_t i;

  (void)state;
  for (i = 0; i < bytes; i++) data[i] = (unsigned char)(i * 31 >> 3);
  submit_gate(device(1), &g);
  await(&g.entered);
  /* a was born before the gate: it may be in use as far as anybody knows */
  assert_int_equal(TFD_OK, tfd__host_write(a, 0, data, bytes));
  assert_int_equal(TFD_OK, tfd__host_write(a, 1, data, 1));
  atomic_store(&g.open, true);
  assert_int_equal(TFD_OK, tfd__host_read(a, 0, got, bytes));
  data[1] = data[0];
  assert_memory_equal(data, got, bytes);
  assert_int_equal(TFD_OUT_OF_RANGE, tfd__host_write(a, bytes, data, 1));
  assert_int_equal(TFD_OUT_OF_RANGE, tfd__host_read(a, 1, got, bytes));
  tfd__release(a);
  free(data);
  free(got);
}

static void a_copy_across_keeps_both_ends(void **state) {
  int64_t values[4] = {5, 6, 7, 8};
  int64_t got[4] = {0};
  tfd__buffer *a = buffer(device(0), sizeof values);
  tfd__buffer *b = buffer(device(1), sizeof values);
  tfd__view va = view_of(a);
  tfd__view vb = view_of(b);
  gate g = {0};
  tfd__buffer *other = NULL;

  (void)state;
  assert_int_equal(TFD_OK, tfd__host_write(a, 0, values, sizeof values));
  submit_gate(device(1), &g);
  await(&g.entered);
  assert_int_equal(TFD_OK, tfd__copy_across(b, &vb, a, &va));
  tfd__release(a); /* not reused before it was read */
  other = buffer(device(0), sizeof values);
  assert_ptr_not_equal(va.data, other->data);
  assert_int_equal(TFD_OK, tfd__host_write(other, 0, got, sizeof got));
  atomic_store(&g.open, true);
  assert_int_equal(TFD_OK, tfd__host_read(b, 0, got, sizeof got));
  assert_memory_equal(values, got, sizeof got);
  tfd__release(b);
  tfd__release(other);
}

/* --- several host threads ------------------------------------------------- */

static int add_one(const tfd__call *call) {
  int64_t *cell = (int64_t *)(uintptr_t)call->ints[0];

  (*cell)++; /* one at a time for each device */
  return TFD_OK;
}

static void *host_thread(void *arg) {
  int64_t *cells = arg;
  int round;

  for (round = 0; round < 300; round++) {
    int d;

    for (d = 0; d < 3; d++) {
      int64_t ints[1] = {(int64_t)(uintptr_t)&cells[d]};

      if (submit_ints(device(d), add_one, ints, 1) != TFD_OK) return cells;
      if (tfd__stream_after(device((d + 1) % 3), device(d)) != TFD_OK) {
        return cells;
      }
    }
    if (tfd_device_synchronize(device(round % 3)) != TFD_OK) return cells;
  }
  return NULL;
}

static void host_threads_may_share_devices(void **state) {
  int64_t cells[3] = {0};
  pthread_t threads[4];
  void *failed = NULL;
  int i;

  (void)state;
  for (i = 0; i < 4; i++) {
    pthread_create(&threads[i], NULL, host_thread, cells);
  }
  for (i = 0; i < 4; i++) {
    pthread_join(threads[i], &failed);
    assert_null(failed);
  }
  for (i = 0; i < 3; i++) {
    assert_int_equal(TFD_OK, tfd_device_synchronize(device(i)));
    assert_int_equal(4 * 300, cells[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_run_in_the_order_of_submission),
      cmocka_unit_test(the_waiting_thread_runs_the_first_device),
      cmocka_unit_test(a_wait_runs_no_more_than_it_needs),
      cmocka_unit_test(arguments_are_copied_whatever_their_size),
      cmocka_unit_test(a_device_starts_after_what_it_waits_for),
      cmocka_unit_test(who_only_waits_for_a_device_need_not_answer),
      cmocka_unit_test(a_full_ring_does_not_wait_for_itself),
      cmocka_unit_test(the_first_failure_surfaces_once),
      cmocka_unit_test(a_failure_follows_its_results),
      cmocka_unit_test(a_failure_leaves_earlier_results_alone),
      cmocka_unit_test(a_wait_ends_at_its_deadline),
      cmocka_unit_test(an_interrupt_ends_a_wait),
      cmocka_unit_test(a_host_write_keeps_what_queued_calls_read),
      cmocka_unit_test(reused_memory_keeps_what_queued_calls_read),
      cmocka_unit_test(large_writes_are_staged_too),
      cmocka_unit_test(a_copy_across_keeps_both_ends),
      cmocka_unit_test(host_threads_may_share_devices),
  };

  configure("3", "queued");
  return cmocka_run_group_tests_name("device/stream", tests, NULL, NULL);
}
