/* Random work on three devices, then on two and two slow ones that the host
** cannot see, against a sequential oracle: calls, copies between devices, host
** writes and reads, waits in any direction, releases and re-use of memory; with
** and without calls that fail. Seeds are printed; TFD_SEED=n runs one,
** TFD_SEEDS=n that many. */
#include "slow_support.h"

#define CELLS 24
#define MAX_WORDS 96
#define MOST 4

/* Written while no failure was pending: right. By a call while one was: right,
** or reading it raises the failure. In place by such a call: old or new. */
typedef enum outcome { RIGHT, RIGHT_OR_LOST, UNKNOWN } outcome;

/* One value: where it lives, and what it must hold. */
typedef struct cell {
  tfd__buffer *b;
  int words;
  outcome state;
  int64_t expected[MAX_WORDS];
} cell;

static tfd_device *places[MOST];
static int places_n;

static cell cells[CELLS];
static uint64_t seed;

/* Calls that failed and may not be reported yet. */
static int injected;

static int pick(int n) {
  return (int)(next_random(&seed) % (uint64_t)n);
}

static tfd_device *any_device(void) {
  return places[pick(places_n)];
}

static int64_t mix(int64_t a, int64_t b, int64_t c) {
  uint64_t x = (uint64_t)a * 31 + (uint64_t)b + (uint64_t)c;

  return (int64_t)(x ^ (x >> 7));
}

static void mix_all(int64_t *out, int out_n, const int64_t *a, int a_n,
                    const int64_t *b, int b_n, int64_t c) {
  int i;

  for (i = 0; i < out_n; i++) out[i] = mix(a[i % a_n], b[i % b_n], c + i);
}

/* ints: constant, rounds to waste so that devices drift apart */
static int mix_kernel(const tfd__call *call) {
  const tfd__view *a = tfd__in(call, 0);
  const tfd__view *b = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  int64_t *scratch =
      tfd__scratch((size_t)(out->numel > 0 ? out->numel : 1) * sizeof *scratch);
  volatile int64_t waste = call->ints[1];

  if (scratch == NULL) return TFD_RESOURCE_EXHAUSTED;
  while (waste > 0) waste--;
  mix_all(scratch, (int)out->numel, a->data, (int)a->numel, b->data,
          (int)b->numel, call->ints[0]);
  memcpy(out->data, scratch, (size_t)out->numel * sizeof *scratch);
  return TFD_OK;
}

static int late_mix(const tfd__call *call) {
  return launch_late(call, mix_kernel);
}

/* A buffer for `c` on d that nothing else shows: its own one if it may be
** written in place, else a new one. Returns the old one, to be released after
** the last call that reads it was submitted. */
static tfd__buffer *renew(cell *c, tfd_device *d, int words) {
  tfd__buffer *old = c->b;

  if (old->device == d && c->words == words && pick(2) == 0 &&
      atomic_load(&old->object.refs) == 1) {
    return NULL;
  }
  c->b = buffer(d, (size_t)words * sizeof(int64_t));
  c->words = words;
  return old;
}

static void write_unknown(void) {
  int i;

  for (i = 0; i < CELLS; i++) {
    if (cells[i].state != UNKNOWN) continue;
    assert_int_equal(TFD_OK, tfd__host_write(cells[i].b, 0, cells[i].expected,
                                             cells[i].b->bytes));
    cells[i].state = RIGHT;
  }
}

/* Success, or the report of an injected failure, which is that of all. */
static void check_report(int rc) {
  int i;

  if (rc == TFD_OK) return;
  if (injected == 0) fail_msg("%s", tfd_error_message());
  assert_int_equal(TFD_DATA_LOSS, rc);
  injected = 0;
  for (i = 0; i < places_n; i++) {
    assert_int_equal(TFD_OK, tfd_device_synchronize(places[i]));
  }
  write_unknown();
}

/* May a call read it? Not when it is lost. */
static bool readable(const cell *c) {
  int rc = tfd__buffer_check(c->b);

  if (rc == TFD_OK) return true;
  assert_int_equal(TFD_DATA_LOSS, rc);
  assert_int_not_equal(RIGHT, c->state);
  return false;
}

/* What a call writes into `c` from a and b. */
static void set_state(cell *c, const cell *a, const cell *b, bool in_place) {
  if (a->state == UNKNOWN || b->state == UNKNOWN ||
      (in_place && (injected > 0 || c->state == UNKNOWN))) {
    c->state = UNKNOWN;
  } else {
    c->state = injected > 0 ? RIGHT_OR_LOST : RIGHT;
  }
}

static cell *on_device(tfd_device *d) {
  int first = pick(CELLS);
  int i;

  for (i = 0; i < CELLS; i++) {
    cell *c = &cells[(first + i) % CELLS];

    if (c->b->device == d) return c;
  }
  return NULL;
}

static int random_words(void) {
  return 1 + pick(pick(2) == 0 ? 4 : MAX_WORDS);
}

static void do_mix(void) {
  tfd_device *d = any_device();
  bool late = d->backend->asynchronous;
  cell *a = on_device(d);
  cell *b = on_device(d);
  cell *out = on_device(d);
  int64_t result[MAX_WORDS];
  int64_t ints[2] = {pick(1000), pick(8) == 0 ? pick(20000) : 0};
  tfd__view views[3];
  tfd__call call = {.name = "mix",
                    .kernel = late ? late_mix : mix_kernel,
                    .views = views,
                    .ints = ints,
                    .in_n = 2,
                    .out_n = 1,
                    .ints_n = 2,
                    .replica = -1};
  int words = random_words();
  tfd__buffer *old = NULL;

  if (a == NULL || !readable(a) || !readable(b) || !readable(out)) return;
  views[0] = view_of(a->b);
  views[1] = view_of(b->b);
  mix_all(result, words, a->expected, a->words, b->expected, b->words, ints[0]);
  old = renew(out, d, words);
  memcpy(out->expected, result, sizeof result);
  set_state(out, a, b, old == NULL);
  views[2] = view_of(out->b);
  assert_int_equal(TFD_OK, tfd__stream_submit(d, &call));
  if (old == NULL) {
    out->b->use_seq = tfd__stream_seq(d);
  } else {
    tfd__buffer_made(out->b, tfd__stream_seq(d));
  }
  tfd__release(old);
}

static void do_copy(void) {
  cell *from = &cells[pick(CELLS)];
  cell *to = &cells[pick(CELLS)];
  tfd__view from_view;
  tfd__view to_view;
  tfd_device *d = any_device();

  if (from == to || !readable(from)) return;
  tfd__release(to->b);
  to->words = from->words;
  to->b = buffer(d, from->b->bytes);
  memcpy(to->expected, from->expected, sizeof to->expected);
  set_state(to, from, from, false);
  from_view = view_of(from->b);
  to_view = view_of(to->b);
  assert_int_equal(TFD_OK,
                   tfd__copy_across(to->b, &to_view, from->b, &from_view));
}

static void do_write(void) {
  cell *c = &cells[pick(CELLS)];
  int words = random_words();
  int i;

  tfd__release(renew(c, pick(2) == 0 ? c->b->device : any_device(), words));
  for (i = 0; i < words; i++) c->expected[i] = pick(1 << 30);
  c->state = RIGHT; /* no failure drops it */
  assert_int_equal(TFD_OK, tfd__host_write(c->b, 0, c->expected,
                                           (size_t)words * sizeof(int64_t)));
}

static void check(cell *c) {
  int64_t got[MAX_WORDS];
  size_t bytes = (size_t)c->words * sizeof(int64_t);

  check_report(tfd__stream_wait(c->b->device, c->b->use_seq, TFD_FOREVER));
  if (!readable(c)) return;
  assert_int_equal(TFD_OK, tfd__host_read(c->b, 0, got, bytes));
  if (c->state != UNKNOWN) assert_memory_equal(c->expected, got, bytes);
}

static int fail_kernel(const tfd__call *call) {
  return tfd__fail(TFD_DATA_LOSS, "%s", call->name);
}

static int late_failure(const tfd__call *call) {
  return launch_late(call, fail_kernel);
}

static void settle(void) {
  int i;

  for (i = 0; i < places_n; i++) {
    check_report(tfd_device_synchronize(places[i]));
  }
  injected = 0;
  write_unknown();
}

static void do_failure(void) {
  tfd_device *d = any_device();
  bool late = d->backend->asynchronous && pick(2) == 0;

  if (pick(3) == 0) {
    settle();
    return;
  }
  injected++;
  assert_int_equal(TFD_OK,
                   submit_ints(d, late ? late_failure : fail_kernel, NULL, 0));
}

static void do_step(void) {
  int what = pick(100);

  if (what < 55) {
    do_mix();
  } else if (what < 75) {
    do_copy();
  } else if (what < 85) {
    do_write();
  } else if (what < 94) {
    assert_int_equal(TFD_OK, tfd__stream_after(any_device(), any_device()));
  } else if (what < 97) {
    check(&cells[pick(CELLS)]);
  } else if (what < 99) {
    tfd_device *d = any_device();
    uint64_t behind = (uint64_t)pick(40);
    uint64_t seq = tfd__stream_seq(d);

    check_report(tfd__stream_wait(d, seq > behind ? seq - behind : 0,
                                  tfd__deadline_in(600)));
  } else if (pick(10) == 0) {
    tfd__pool_trim(any_device());
  }
}

static void run_seed(uint64_t first, int steps, int failure_every) {
  int64_t live = tfd_live_handles(TFD_HANDLE_BUFFER);
  int i;

  seed = first;
  for (i = 0; i < CELLS; i++) {
    cells[i].words = 1;
    cells[i].b = buffer(any_device(), sizeof(int64_t));
    cells[i].expected[0] = i;
    cells[i].state = RIGHT;
    assert_int_equal(TFD_OK, tfd__host_write(cells[i].b, 0, cells[i].expected,
                                             sizeof(int64_t)));
  }
  for (i = 0; i < steps; i++) {
    if (failure_every > 0 && pick(failure_every) == 0) do_failure();
    do_step();
  }
  settle();
  for (i = 0; i < CELLS; i++) check(&cells[i]);
  for (i = 0; i < CELLS; i++) tfd__release(cells[i].b);
  for (i = 0; i < places_n; i++) {
    assert_int_equal(TFD_OK, tfd_device_synchronize(places[i]));
  }
  assert_int_equal(live, tfd_live_handles(TFD_HANDLE_BUFFER));
}

static void run_seeds(int failure_every) {
  const char *one = getenv("TFD_SEED");
  const char *many = getenv("TFD_SEEDS");
  uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 1;
  uint64_t n = many != NULL ? strtoull(many, NULL, 10) : 60;
  uint64_t k;

  if (one != NULL) n = 1;
  for (k = first; k < first + n; k++) {
    alarm(900);
    print_message("seed %llu\n", (unsigned long long)k);
    run_seed(k, k % 4 == 0 ? 4000 : 400, failure_every);
  }
}

static void use_processor(void) {
  places_n = 3;
  for (int i = 0; i < 3; i++) places[i] = device(i);
}

static void use_slow(void) {
  places_n = 4;
  for (int i = 0; i < 2; i++) {
    places[i] = device(i);
    places[2 + i] = slow_device(i);
  }
}

static void random_work_gives_the_sequential_result(void **state) {
  (void)state;
  use_processor();
  run_seeds(0);
}

static void random_failures_surface_and_spoil_nothing_else(void **state) {
  (void)state;
  use_processor();
  run_seeds(40);
}

static void random_work_on_slow_devices(void **state) {
  (void)state;
  use_slow();
  run_seeds(0);
}

static void random_failures_on_slow_devices(void **state) {
  (void)state;
  use_slow();
  run_seeds(40);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_work_gives_the_sequential_result),
      cmocka_unit_test(random_failures_surface_and_spoil_nothing_else),
      cmocka_unit_test(random_work_on_slow_devices),
      cmocka_unit_test(random_failures_on_slow_devices),
  };

  configure("3", "queued");
  configure_slow();
  return cmocka_run_group_tests_name("device/random", tests, NULL, NULL);
}
