/* The caching allocator: classes, counters, limits, page faults. */
#define _GNU_SOURCE /* RUSAGE_THREAD */
#include <sys/resource.h>

#include "device_support.h"

typedef struct memory {
  int64_t current;
  int64_t peak;
  int64_t reserved;
} memory;

static memory memory_of(tfd_device *d) {
  memory m;

  assert_int_equal(TFD_OK,
                   tfd_device_memory(d, &m.current, &m.peak, &m.reserved));
  return m;
}

static void memory_comes_back_last_in_first_out(void **state) {
  tfd__buffer *a = buffer(device(0), 1000);
  tfd__buffer *b = buffer(device(0), 1000);
  void *pa = a->data;
  void *pb = b->data;

  (void)state;
  assert_ptr_not_equal(pa, pb);
  tfd__release(a);
  tfd__release(b);
  b = buffer(device(0), 961); /* same class: 961..1024 */
  assert_ptr_equal(pb, b->data);
  a = buffer(device(0), 1024);
  assert_ptr_equal(pa, a->data);
  tfd__release(a);
  tfd__release(b);
}

static void devices_do_not_share_memory(void **state) {
  tfd__buffer *a = buffer(device(0), 5000);
  void *pa = a->data;
  tfd__buffer *b = NULL;

  (void)state;
  tfd__release(a);
  b = buffer(device(1), 5000);
  assert_ptr_not_equal(pa, b->data);
  tfd__release(b);
}

static void blocks_are_large_enough_and_aligned(void **state) {
  size_t bytes = 0;

  (void)state;
  for (bytes = 0; bytes < (size_t)40 << 20; bytes += 1 + bytes / 7) {
    tfd__buffer *b = buffer(device(0), bytes);
    size_t need = bytes + TFD_REDZONE;
    size_t limit = need < 64 ? 64 : need + need / 4 + 64;

    assert_non_null(b->data);
    assert_int_equal(0, (uintptr_t)b->data % 64);
    assert_int_equal(bytes, b->bytes);
    assert_in_range(b->capacity, bytes, limit);
    if (bytes > 0) {
      ((char *)b->data)[0] = 1;
      ((char *)b->data)[bytes - 1] = 1;
    }
    tfd__release(b);
  }
  assert_int_equal(TFD_OK, tfd_device_trim(device(0)));
}

static void live_blocks_do_not_overlap(void **state) {
  enum { N = 400 };
  static tfd__buffer *all[N];
  uint64_t seed = 7;
  int round;
  int i;

  (void)state;
  for (round = 0; round < 8; round++) {
    for (i = 0; i < N; i++) {
      size_t bytes =
          1 + (size_t)(next_random(&seed) % (i % 20 == 0 ? 400000 : 4000));

      if (all[i] != NULL && next_random(&seed) % 3 == 0) continue;
      tfd__release(all[i]);
      all[i] = buffer(device(0), bytes);
      memset(all[i]->data, i & 255, bytes);
    }
    for (i = 0; i < N; i++) {
      const unsigned char *p = all[i]->data;
      size_t k;

      for (k = 0; k < all[i]->bytes; k++) assert_int_equal(i & 255, p[k]);
    }
    if (round == 4) assert_int_equal(TFD_OK, tfd_device_trim(device(0)));
  }
  for (i = 0; i < N; i++) {
    tfd__release(all[i]);
    all[i] = NULL;
  }
}

static void counters_follow_live_bytes(void **state) {
  tfd_device *d = device(1);
  memory before;
  memory m;
  tfd__buffer *a = NULL;
  tfd__buffer *b = NULL;
  int64_t live = tfd_live_bytes();
  int64_t handles = tfd_live_handles(TFD_HANDLE_BUFFER);

  (void)state;
  assert_int_equal(TFD_OK, tfd_device_trim(d));
  assert_int_equal(TFD_OK, tfd_device_reset_peak(d));
  before = memory_of(d);
  assert_int_equal(before.current, before.peak);
  assert_int_equal(0, before.reserved);
  a = buffer(d, 3000000);
  b = buffer(d, 100);
  m = memory_of(d);
  assert_int_equal(before.current + 3000100, m.current);
  assert_int_equal(live + 3000100, tfd_live_bytes());
  assert_int_equal(handles + 2, tfd_live_handles(TFD_HANDLE_BUFFER));
  tfd__release(a);
  m = memory_of(d);
  assert_int_equal(before.current + 100, m.current);
  assert_int_equal(before.current + 3000100, m.peak);
  assert_true(m.reserved >= 3000000);
  assert_int_equal(TFD_OK, tfd_device_reset_peak(d));
  assert_int_equal(before.current + 100, memory_of(d).peak);
  tfd__release(b);
  assert_int_equal(live, tfd_live_bytes());
  assert_int_equal(handles, tfd_live_handles(TFD_HANDLE_BUFFER));
  assert_int_equal(TFD_OK, tfd_device_trim(d));
  assert_int_equal(0, memory_of(d).reserved);
}

static void trim_waits_for_calls_that_use_the_memory(void **state) {
  tfd_device *d = device(1);
  gate g = {0};
  tfd__buffer *a = buffer(d, 100000);
  int64_t reserved = 0;

  (void)state;
  submit_gate(d, &g);
  await(&g.entered);
  tfd__release(a); /* the gate may use it, as far as the pool knows */
  reserved = memory_of(d).reserved;
  assert_true(reserved >= 100000);
  atomic_store(&g.open, true);
  assert_int_equal(TFD_OK, tfd_device_trim(d));
  assert_int_equal(0, memory_of(d).reserved);
}

static void oom_text(char *text, size_t n) {
  snprintf(text, n, "largest live tensors: float32 {2, 3}");
}

static void running_out_trims_and_then_says_so(void **state) {
  tfd__buffer *a = NULL;
  tfd__buffer *b = NULL;

  (void)state;
  /* The limit of this program is 64 MiB for each device. */
  tfd__set_oom_hook(oom_text);
  assert_int_equal(TFD_OK, tfd_device_trim(device(0)));
  a = buffer(device(0), (size_t)40 << 20);
  assert_int_equal(TFD_RESOURCE_EXHAUSTED,
                   tfd__buffer_new(device(0), (size_t)30 << 20, &b));
  assert_null(b);
  assert_non_null(strstr(tfd_error_message(), "/cpu:0"));
  assert_non_null(strstr(tfd_error_message(), "31457280"));
  assert_non_null(strstr(tfd_error_message(), "float32 {2, 3}"));
  tfd__release(a); /* kept, and given back when another size needs it */
  b = buffer(device(0), (size_t)50 << 20);
  tfd__release(b);
  assert_int_equal(TFD_RESOURCE_EXHAUSTED,
                   tfd__buffer_new(device(0), SIZE_MAX / 2, &b));
  assert_int_equal(TFD_RESOURCE_EXHAUSTED,
                   tfd__buffer_new(device(0), SIZE_MAX, &b));
  tfd__set_oom_hook(NULL);
  assert_int_equal(TFD_OK, tfd_device_trim(device(0)));
}

/* 63 of 64 MiB are taken: there is no room for a slab, but for 16 blocks. */
static void small_blocks_fit_where_no_slab_does(void **state) {
  enum { FIT = 16 };
  tfd__buffer *large[2] = {NULL};
  tfd__buffer *small[FIT] = {NULL};
  tfd__buffer *more = NULL;
  int i;

  (void)state;
  assert_int_equal(TFD_OK, tfd_device_trim(device(0)));
  large[0] = buffer(device(0), ((size_t)56 << 20) - 4096);
  large[1] = buffer(device(0), ((size_t)7 << 20) - 4096);
  for (i = 0; i < FIT; i++) small[i] = buffer(device(0), (size_t)60 << 10);
  assert_int_equal(TFD_RESOURCE_EXHAUSTED,
                   tfd__buffer_new(device(0), (size_t)60 << 10, &more));
  assert_non_null(strstr(tfd_error_message(), "held of the 64.0 MiB"));
  for (i = 0; i < FIT; i++) tfd__release(small[i]);
  more = buffer(device(0), (size_t)1 << 19); /* what they had is given back */
  tfd__release(more);
  for (i = 0; i < 2; i++) tfd__release(large[i]);
  assert_int_equal(TFD_OK, tfd_device_trim(device(0)));
}

static void failed_allocations_are_reported_and_leave_no_trace(void **state) {
  int64_t n = 0;
  int failures = 0;

  (void)state;
  assert_int_equal(TFD_OK, tfd_device_trim(device(0)));
  for (n = 1; n < 8; n++) {
    int64_t blocks = tfd__alloc_live();
    tfd__buffer *b = NULL;
    int rc;

    tfd__alloc_fail_at(n);
    rc = tfd__buffer_new(device(0), 777, &b);
    tfd__alloc_fail_at(0);
    if (rc == TFD_OK) {
      tfd__release(b);
    } else {
      assert_int_equal(TFD_RESOURCE_EXHAUSTED, rc);
      failures++;
    }
    assert_int_equal(TFD_OK, tfd_device_trim(device(0)));
    assert_int_equal(blocks, tfd__alloc_live());
    assert_int_equal(0, memory_of(device(0)).reserved);
  }
  /* The header. A slab that fails is tried again after a trim. */
  assert_int_equal(1, failures);
}

/* --- steady state --------------------------------------------------------- */

static long faults_of_this_thread(void) {
  struct rusage usage;

  assert_int_equal(0, getrusage(RUSAGE_THREAD, &usage));
  return usage.ru_minflt;
}

static int touch(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  size_t bytes = tfd__view_bytes(out);
  char *scratch = tfd__scratch(bytes / 2 + 1);

  if (scratch == NULL) return TFD_RESOURCE_EXHAUSTED;
  memset(scratch, 1, bytes / 2 + 1);
  memset(out->data, 1, bytes);
  return TFD_OK;
}

static int count_faults(const tfd__call *call) {
  *(int64_t *)(uintptr_t)call->ints[0] = faults_of_this_thread();
  return TFD_OK;
}

/* Temporaries of many sizes, as a training step makes them. */
static void one_step(tfd_device *d) {
  static const size_t sizes[] = {8, 512, 4096, 131072, 1605632, 65536, 3211264};
  tfd__buffer *kept = NULL;
  size_t i;

  for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    tfd__buffer *b = buffer(d, sizes[i]);
    tfd__view v = view_of(b);
    tfd__call call = {.name = "touch",
                      .kernel = touch,
                      .views = &v,
                      .out_n = 1,
                      .replica = -1};

    assert_int_equal(TFD_OK, tfd__stream_submit(d, &call));
    tfd__release(kept);
    kept = b;
  }
  tfd__release(kept);
}

/* Faults and allocations of 60 steps: the device's own thread, then ours. */
static void measure_window(int64_t grown[3]) {
  int64_t first[2] = {0};
  int64_t last[2] = {0};
  int64_t allocations = tfd__alloc_count();
  int i;
  int d;

  for (i = 0; i < 60; i++) {
    for (d = 0; d < 2; d++) {
      if (i == 0 || i == 59) {
        int64_t ints[1] = {(int64_t)(uintptr_t)(i == 0 ? &first[d] : &last[d])};

        assert_int_equal(TFD_OK, submit_ints(device(d), count_faults, ints, 1));
      }
      one_step(device(d));
    }
    for (d = 0; d < 2; d++) {
      assert_int_equal(TFD_OK, tfd_device_synchronize(device(d)));
    }
  }
  grown[0] = last[0] - first[0];
  grown[1] = last[1] - first[1];
  grown[2] = tfd__alloc_count() - allocations;
}

/* A worker that falls a whole step behind for the first time takes another
** block, and the system may take a page away: neither is what a step costs.
** So one window must be free of all, which none is when steps take memory. */
static void steady_state_touches_no_fresh_page(void **state) {
  enum { WINDOWS = 100 };
  int64_t grown[3] = {1, 1, 1};
  int i;

  (void)state;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  skip(); /* their shadow memory faults */
#endif
  for (i = 0; i < WINDOWS; i++) {
    measure_window(grown);
    if (grown[0] == 0 && grown[1] == 0 && grown[2] == 0) break;
  }
  assert_int_equal(0, grown[0]);
  assert_int_equal(0, grown[1]);
  assert_int_equal(0, grown[2]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_comes_back_last_in_first_out),
      cmocka_unit_test(devices_do_not_share_memory),
      cmocka_unit_test(blocks_are_large_enough_and_aligned),
      cmocka_unit_test(live_blocks_do_not_overlap),
      cmocka_unit_test(counters_follow_live_bytes),
      cmocka_unit_test(trim_waits_for_calls_that_use_the_memory),
      cmocka_unit_test(running_out_trims_and_then_says_so),
      cmocka_unit_test(small_blocks_fit_where_no_slab_does),
      cmocka_unit_test(failed_allocations_are_reported_and_leave_no_trace),
      cmocka_unit_test(steady_state_touches_no_fresh_page),
  };

  configure("2", "queued");
  setenv("TFDIST_MEMORY_LIMIT", "64MiB", 1);
  return cmocka_run_group_tests_name("device/pool", tests, NULL, NULL);
}
