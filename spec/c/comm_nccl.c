/* The NCCL plug-in on the stand-ins (spec/support/cuda): the case table of
** collectives on GPUs, and what happens when one does not get on. With
** TFDIST_CUDA_STANDIN= (empty) on real ones, as many as there are: there the
** case table alone. */
#include "device_support.h"

#include "comm_cases.h"

enum { GPUS = 4 };

static int64_t gpus;
static bool standins;

/* Read by the stand-in for NCCL when it is called and when work comes to a
** collective: none is under way where this is used. */
static void order(const char *what) {
  setenv("TFD_STANDIN_NCCL", what, 1);
}

static tfd_device *gpu(int i) {
  tfd_device *d = NULL;

  assert_int_equal(TFD_OK, tfd_device_at("GPU", i, &d));
  return d;
}

static tfd__group *group_of(int n, double timeout) {
  tfd_device *devices[GPUS];
  tfd__group_config config = {
      .devices = devices, .local = n, .size = n, .timeout = timeout};
  tfd__group *g = NULL;
  int i;

  for (i = 0; i < n; i++) devices[i] = gpu(i);
  if (n == 1) config.provider = "nccl"; /* alone it is not asked for */
  if (tfd__group_new(&config, &g) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
  assert_string_equal("nccl", g->provider->name);
  return g;
}

#define ON_STANDINS(name, n, seconds)   \
  static void name##_on(tfd__group *g); \
  static void name(void **state) {      \
    tfd__group *g = NULL;               \
    (void)state;                        \
    if (!standins || gpus < n) skip();  \
    g = group_of(n, seconds);           \
    name##_on(g);                       \
    order("");                          \
    tfd__release(g);                    \
  }                                     \
  static void name##_on(tfd__group *g)

/* --- cases ------------------------------------------------------------------
 */

/* Means are sums of parts: exact where the ranks are a power of two. */
static void check_ranks(int n, bool small) {
  world w = {.group = group_of(n, 0), .small = small};

  check_world(&w);
  tfd__release(w.group);
}

static void every_case_on_gpus(void **state) {
  (void)state;
  if (gpus == 0) skip();
  check_ranks(1, true);
  if (gpus >= 2) check_ranks(2, true);
  if (gpus >= 4) check_ranks(4, false);
}

ON_STANDINS(sums_of_three, 3, 0) {
  world w = {.group = g};
  int dtype;

  for (dtype = 1; dtype < TFD_DTYPE_END; dtype++) {
    if (dtype == TFD_BOOL) continue;
    case_reductions(&w, dtype, 1000, TFD_REDUCE_SUM);
    case_scatter(&w, dtype, 333, TFD_REDUCE_MAX);
  }
}

/* --- what goes wrong --------------------------------------------------------
 */

static const tfd__collective_kind KINDS[] = {
    TFD_COLLECTIVE_ALL_REDUCE, TFD_COLLECTIVE_BROADCAST,
    TFD_COLLECTIVE_ALL_GATHER, TFD_COLLECTIVE_REDUCE_SCATTER};
enum { EACH = 100, NONE_KEEPS = 60 }; /* seconds, against hangs */

/* One collective, in place where that can be. */
typedef struct one {
  world w;
  pieces in;
  pieces out;
  tfd__collective c;
} one;

static bool is_in_place(const one *o) {
  return o->c.kind == TFD_COLLECTIVE_ALL_REDUCE ||
         o->c.kind == TFD_COLLECTIVE_BROADCAST;
}

static void one_new(one *o, tfd__group *g, tfd__collective_kind kind) {
  int64_t all = (int64_t)EACH * g->size;

  o->w = (world){.group = g};
  o->c = collective(kind, TFD_REDUCE_SUM, &o->in, &o->in);
  make_pieces(&o->w, &o->in, TFD_FLOAT32,
              kind == TFD_COLLECTIVE_REDUCE_SCATTER ? all : EACH);
  fill_pieces(&o->w, &o->in, TFD_REDUCE_SUM);
  if (is_in_place(o)) return;
  make_pieces(&o->w, &o->out, TFD_FLOAT32,
              kind == TFD_COLLECTIVE_ALL_GATHER ? all : EACH);
  o->c.out = o->out.list;
}

/* The results are waited for on the last device. */
static int one_run_until(const one *o, tfd__deadline until) {
  tfd__group *g = o->w.group;

  TFD_TRY(tfd__group_run(g, &o->c, until));
  return tfd__stream_wait(g->devices[g->local - 1], UINT64_MAX,
                          tfd__deadline_in(300));
}

static int one_run(const one *o) {
  return one_run_until(o, 0);
}

static void one_check(const one *o) {
  const tfd__piece *out = o->c.out;
  int size = o->w.group->size;
  int i;
  int r;

  for (i = 0; i < size; i++) {
    switch (o->c.kind) {
    case TFD_COLLECTIVE_BROADCAST:
      expect_run(&o->w, &out[i], 0, EACH, 0, 0, TFD_REDUCE_SUM);
      break;
    case TFD_COLLECTIVE_ALL_GATHER:
      for (r = 0; r < size; r++) {
        expect_run(&o->w, &out[i], r * EACH, EACH, r, 0, TFD_REDUCE_SUM);
      }
      break;
    default:
      expect_run(&o->w, &out[i], 0, EACH, -1,
                 o->c.kind == TFD_COLLECTIVE_ALL_REDUCE ? 0 : i * EACH,
                 TFD_REDUCE_SUM);
      break;
    }
  }
}

static void one_end(one *o) {
  drop_pieces(&o->w, &o->in);
  if (!is_in_place(o)) drop_pieces(&o->w, &o->out);
}

/* After a failure the group goes on, with communicators of its own. It has more
** time than the group's deadline, which is for what fails. */
static void check_it_works(tfd__group *g, tfd__collective_kind kind) {
  one o;

  order("");
  one_new(&o, g, kind);
  if (one_run_until(&o, tfd__deadline_in(NONE_KEEPS)) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
  one_check(&o);
  one_end(&o);
}

/* What one device is told of, none has results of. */
static void expect_failure(tfd__group *g, tfd__collective_kind kind, int code,
                           const char *words) {
  int64_t start = tfd__now_ns();
  one o;
  int i;

  one_new(&o, g, kind);
  assert_int_equal(code, one_run(&o));
  if (strstr(tfd_error_message(), words) == NULL) {
    fail_msg("%s", tfd_error_message());
  }
  assert_true(tfd__now_ns() - start < NONE_KEEPS * INT64_C(1000000000));
  for (i = 0; i < g->local && !is_in_place(&o); i++) {
    const tfd__buffer *b = o.c.out[i].buffer;

    assert_true(b->made_seq == 0 || tfd__buffer_state_of(b) == TFD_BUFFER_LOST);
  }
  one_end(&o);
}

typedef struct failure {
  int gpus;
  const char *what;
  double timeout;
  int code;
  const char *words; /* behind the collective's name */
} failure;

static const failure HANG = {
    4, "hang", 3, TFD_DEADLINE_EXCEEDED,
    ": not done by NCCL on /gpu:0 to /gpu:3 within 3 s"};
static const failure ERROR = {4, "error", 300, TFD_INTERNAL,
                              ": NCCL: remote process exited or there was a "
                              "network error: a GPU has failed (ordered)"};
static const failure ISSUE = {
    2, "issue", 300, TFD_INTERNAL,
    ": NCCL: internal error: the call has failed (ordered)"};

/* Number n of its communicators, the group's next one, fails as ordered. */
static void check_failure(tfd__group *g, tfd__collective_kind kind,
                          const failure *f, int n) {
  char text[16];
  char words[160];

  (void)snprintf(text, sizeof text, "%s=%d", f->what, n);
  (void)snprintf(words, sizeof words, "%s%s", tfd__collective_name(kind),
                 f->words);
  order(text);
  expect_failure(g, kind, f->code, words);
}

/* What has to wait for its deadline does so for each only if there is time. */
static bool has_time(const failure *f) {
  return f->timeout > NONE_KEEPS || getenv("TFD_LONG") != NULL;
}

/* Number 1 of a communicator is the first one, which nobody sees. That number 2
** fails behind number 3 shows that there are new communicators. */
static void check_failures(const failure *f) {
  int k;

  if (!standins || gpus < f->gpus) skip();
  for (k = 0; k < (has_time(f) ? 4 : 1); k++) {
    tfd__group *g = group_of(f->gpus, f->timeout);

    check_it_works(g, KINDS[k]);
    check_failure(g, KINDS[k], f, 3);
    if (has_time(f)) check_failure(g, KINDS[k], f, 2);
    check_it_works(g, KINDS[k]);
    tfd__release(g);
  }
}

static void ones_that_never_end_are_told(void **state) {
  (void)state;
  check_failures(&HANG);
}

static void failing_gpus_are_told(void **state) {
  (void)state;
  check_failures(&ERROR);
}

static void failing_calls_are_told(void **state) {
  (void)state;
  check_failures(&ISSUE);
}

static void gpus_that_cannot_be_connected_are_told(void **state) {
  int k;

  (void)state;
  if (!standins || gpus < 2) skip();
  for (k = 0; k < (has_time(&HANG) ? 4 : 1); k++) {
    tfd__group *g = group_of(2, HANG.timeout);

    order("connect=-1");
    expect_failure(g, KINDS[k], TFD_DEADLINE_EXCEEDED,
                   "connecting GPUs: NCCL on /gpu:0 is not ready");
    check_it_works(g, KINDS[k]);
    tfd__release(g);
  }
}

ON_STANDINS(late_ones_are_waited_for, 4, 300) {
  one o;

  order("late=300,connect=50");
  one_new(&o, g, TFD_COLLECTIVE_ALL_REDUCE);
  assert_int_equal(TFD_OK, one_run(&o));
  one_check(&o);
  one_end(&o);
}

/* --- streams of which somebody waits for a GPU -----------------------------
 */

enum { REFUSABLE = 600 }; /* launches: more than a stream has room for */

typedef struct filler {
  tfd_device *on;
  tfd_device *seen; /* it begins when this one has come to position seq */
  uint64_t seq;
  tfd__buffer *zeros;
} filler;

/* Launches that may refuse a value, until the GPU has to be waited for. */
static void fill_up(void *arg) {
  const filler *f = arg;
  int64_t element = 1;
  tfd__view v[3];
  int64_t ints[3 + TFD_MAX_RANK] = {0};
  tfd__call gather = {.name = "gather",
                      .kernel = f->on->backend->kernels[TFD_KERNEL_gather],
                      .views = v,
                      .ints = ints,
                      .in_n = 2,
                      .out_n = 1,
                      .ints_n = 3 + TFD_MAX_RANK,
                      .replica = -1};
  int i;

  for (i = 0; i < 3; i++) {
    (void)tfd__view_set(&v[i], TFD_INT32, &element, 1);
    v[i].data = (int32_t *)f->zeros->data + i;
  }
  while (tfd__stream_seq(f->seen) < f->seq) sched_yield();
  for (i = 0; i < REFUSABLE; i++) {
    if (tfd__stream_submit(f->on, &gather) != TFD_OK) return;
  }
}

/* GPU 1 waits for a sum that never ends, and a thread, with its stream, for
** room behind that. Meanwhile another group is connected, whose sum is GPU 1's,
** too: who begins it must not keep the first one from being ended. */
ON_STANDINS(a_stream_that_is_taken_keeps_nobody, 2, 3) {
  static const int32_t zeros[3] = {0};
  filler f = {.on = gpu(1), .seen = gpu(2), .zeros = buffer(gpu(1), 12)};
  tfd_device *devices[2] = {gpu(1), gpu(2)};
  tfd__group_config config = {.devices = devices, .local = 2, .size = 2};
  tfd__group *other = NULL;
  tfd__thread thread;
  one never;
  one second;
  int rc;

  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
  assert_int_equal(TFD_OK, tfd__group_new(&config, &other));
  assert_int_equal(TFD_OK, tfd__host_write(f.zeros, 0, zeros, sizeof zeros));
  one_new(&never, g, TFD_COLLECTIVE_ALL_REDUCE);
  one_new(&second, other, TFD_COLLECTIVE_ALL_REDUCE);
  f.seq = tfd__stream_seq(f.seen) + 1;
  order("hang=3,connect=2000");
  assert_int_equal(TFD_OK, tfd__group_run(g, &never.c, 0));
  (void)alarm(300);
  assert_int_equal(TFD_OK, tfd__thread_start(&thread, "fill", fill_up, &f));
  rc = one_run(&second);
  tfd__thread_join(thread);
  if (rc == TFD_OK) rc = tfd__stream_wait(f.on, UINT64_MAX, TFD_FOREVER);
  assert_int_equal(TFD_DEADLINE_EXCEEDED, rc);
  assert_non_null(strstr(tfd_error_message(), "/gpu:0 to /gpu:1 within 3 s"));
  (void)alarm(900);
  one_end(&never);
  one_end(&second);
  tfd__release(f.zeros);
  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
  check_it_works(other, TFD_COLLECTIVE_ALL_REDUCE);
  tfd__release(other);
}

/* --- failures of devices ----------------------------------------------------
 */

static int fail_now(const tfd__call *call) {
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: ordered", call->name);
}

ON_STANDINS(a_call_has_its_own_deadline, 4, 600) {
  one o;

  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
  one_new(&o, g, TFD_COLLECTIVE_ALL_REDUCE);
  order("hang=3");
  (void)alarm(300); /* before the group's */
  assert_int_equal(TFD_DEADLINE_EXCEEDED,
                   one_run_until(&o, tfd__deadline_in(0.3)));
  (void)alarm(0);
  assert_non_null(strstr(tfd_error_message(), "not done by NCCL on /gpu:0 to "
                                              "/gpu:3 at its deadline"));
  one_end(&o);
  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
}

/* Of more than are watched at once, behind collectives that have none. */
ON_STANDINS(the_last_of_many_has_its_own_deadline, 2, 600) {
  enum { MANY = 40 };
  char hang[16];
  one before;
  one last;
  int i;

  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
  one_new(&before, g, TFD_COLLECTIVE_ALL_REDUCE);
  one_new(&last, g, TFD_COLLECTIVE_ALL_GATHER);
  (void)snprintf(hang, sizeof hang, "hang=%d", 3 + MANY);
  order(hang);
  (void)alarm(300); /* before the group's */
  for (i = 0; i < MANY; i++) {
    assert_int_equal(TFD_OK, tfd__group_run(g, &before.c, 0));
  }
  assert_int_equal(TFD_DEADLINE_EXCEEDED,
                   one_run_until(&last, tfd__deadline_in(0.3)));
  (void)alarm(0);
  assert_non_null(strstr(tfd_error_message(),
                         "all_gather: not done by NCCL on /gpu:0 to /gpu:1 at "
                         "its deadline"));
  one_end(&before);
  one_end(&last);
  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
}

ON_STANDINS(what_comes_from_a_failure_is_none, 4, 300) {
  tfd__call bad = {.name = "bad", .kernel = fail_now, .replica = -1};
  one o;

  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
  one_new(&o, g, TFD_COLLECTIVE_ALL_REDUCE);
  assert_int_equal(TFD_OK, tfd__stream_submit(g->devices[1], &bad));
  assert_int_equal(TFD_INVALID_ARGUMENT, one_run(&o));
  assert_string_equal("bad: ordered", tfd_error_message());
  /* In place: all have what they had. */
  expect_run(&o.w, &o.in.list[2], 0, 100, 2, 0, TFD_REDUCE_SUM);
  one_end(&o);
  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
}

/* GPU 1 gives the other group what comes of the failure. */
ON_STANDINS(what_another_group_spoils_is_none, 2, 300) {
  tfd_device *devices[2] = {gpu(1), gpu(2)};
  tfd__group_config config = {.devices = devices, .local = 2, .size = 2};
  tfd__group *other = NULL;
  one bad;
  one behind;

  check_it_works(g, TFD_COLLECTIVE_ALL_REDUCE);
  assert_int_equal(TFD_OK, tfd__group_new(&config, &other));
  one_new(&bad, g, TFD_COLLECTIVE_ALL_REDUCE);
  one_new(&behind, other, TFD_COLLECTIVE_ALL_GATHER);
  order("error=3");
  assert_int_equal(TFD_OK, tfd__group_run(g, &bad.c, 0));
  assert_int_equal(TFD_INTERNAL, one_run(&behind));
  assert_non_null(strstr(tfd_error_message(), "a GPU has failed (ordered)"));
  assert_int_equal(TFD_BUFFER_LOST,
                   tfd__buffer_state_of(behind.c.out[1].buffer));
  one_end(&bad);
  one_end(&behind);
  check_it_works(other, TFD_COLLECTIVE_ALL_REDUCE);
  tfd__release(other);
}

static void nothing_is_left(void **state) {
  (void)state;
  if (gpus == 0) skip();
  tfd__devices_finish();
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_GROUP));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_BUFFER));
}

static bool is_file(const char *path) {
  return access(path, R_OK) == 0;
}

static int find_gpus(void **state) {
  const char *folder = getenv("TFDIST_CUDA_STANDIN");
  char path[1024];

  (void)state;
  standins = folder[0] != '\0';
  (void)snprintf(path, sizeof path, "%s/libnccl.so.2", folder);
  if (standins && !is_file(path)) {
    print_message("skipped: no stand-ins here (make standins)\n");
    return 0;
  }
  assert_int_equal(TFD_OK, tfd_device_count("GPU", &gpus));
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_case_on_gpus),
      cmocka_unit_test(sums_of_three),
      cmocka_unit_test(a_call_has_its_own_deadline),
      cmocka_unit_test(the_last_of_many_has_its_own_deadline),
      cmocka_unit_test(ones_that_never_end_are_told),
      cmocka_unit_test(failing_gpus_are_told),
      cmocka_unit_test(failing_calls_are_told),
      cmocka_unit_test(late_ones_are_waited_for),
      cmocka_unit_test(gpus_that_cannot_be_connected_are_told),
      cmocka_unit_test(a_stream_that_is_taken_keeps_nobody),
      cmocka_unit_test(what_comes_from_a_failure_is_none),
      cmocka_unit_test(what_another_group_spoils_is_none),
      cmocka_unit_test(nothing_is_left),
  };

  configure("1", "queued");
  order("");
  setenv("TFDIST_CUDA_STANDIN", TFD_SPEC_BUILD "/standin", 0);
  setenv("TFD_STANDIN_DEVICES", "4", 1);
  setenv("TFDIST_PLUGINS",
         TFD_SPEC_BUILD "/plugins/tfdist_cuda.so:" TFD_SPEC_BUILD
                        "/plugins/tfdist_nccl_2.so",
         0);
  return cmocka_run_group_tests(tests, find_gpus, NULL);
}
