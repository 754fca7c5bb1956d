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

/* An all_reduce in place; the results are waited for on the last device. */
typedef struct sum {
  world w;
  pieces p;
  tfd__collective c;
} sum;

static void sum_new(sum *s, tfd__group *g) {
  s->w = (world){.group = g};
  make_pieces(&s->w, &s->p, TFD_FLOAT32, 100);
  fill_pieces(&s->w, &s->p, TFD_REDUCE_SUM);
  s->c = collective(TFD_COLLECTIVE_ALL_REDUCE, TFD_REDUCE_SUM, &s->p, &s->p);
}

static int sum_run_until(const sum *s, tfd__deadline until) {
  const tfd__group *g = s->w.group;

  TFD_TRY(tfd__group_run(s->w.group, &s->c, until));
  return tfd__stream_wait(g->devices[g->local - 1], UINT64_MAX,
                          tfd__deadline_in(300));
}

static int sum_run(const sum *s) {
  return sum_run_until(s, 0);
}

static void sum_check(const sum *s) {
  int i;

  for (i = 0; i < s->w.group->local; i++) {
    expect_run(&s->w, &s->p.list[i], 0, 100, -1, 0, TFD_REDUCE_SUM);
  }
}

static void sum_end(sum *s) {
  drop_pieces(&s->w, &s->p);
}

/* After a failure the group goes on, with communicators of its own. */
static void check_it_works(tfd__group *g) {
  sum s;

  order("");
  sum_new(&s, g);
  if (sum_run(&s) != TFD_OK) fail_msg("%s", tfd_error_message());
  sum_check(&s);
  sum_end(&s);
}

static void check_failure(tfd__group *g, const char *what, int code,
                          const char *words) {
  sum s;

  check_it_works(g);
  sum_new(&s, g);
  order(what);
  assert_int_equal(code, sum_run(&s));
  if (strstr(tfd_error_message(), words) == NULL) {
    fail_msg("%s", tfd_error_message());
  }
  sum_end(&s);
  check_it_works(g);
}

/* Number 1 is the first one, which nobody sees. */
ON_STANDINS(one_that_never_ends_is_told, 4, 3) {
  check_failure(g, "hang=3", TFD_DEADLINE_EXCEEDED,
                "all_reduce: not done by NCCL on /gpu:0 to /gpu:3 within 3 s");
}

ON_STANDINS(a_call_has_its_own_deadline, 4, 600) {
  sum s;

  check_it_works(g);
  sum_new(&s, g);
  order("hang=3");
  (void)alarm(300); /* before the group's */
  assert_int_equal(TFD_DEADLINE_EXCEEDED,
                   sum_run_until(&s, tfd__deadline_in(0.3)));
  (void)alarm(0);
  assert_non_null(strstr(tfd_error_message(), "not done by NCCL on /gpu:0 to "
                                              "/gpu:3 at its deadline"));
  sum_end(&s);
  check_it_works(g);
}

ON_STANDINS(a_failing_gpu_is_told, 4, 300) {
  check_failure(g, "error=3", TFD_INTERNAL, "a GPU has failed (ordered)");
}

ON_STANDINS(a_failing_call_is_told, 2, 300) {
  check_failure(g, "issue=3", TFD_INTERNAL,
                "all_reduce: NCCL: internal error: the call has failed");
}

ON_STANDINS(late_ones_are_waited_for, 4, 300) {
  sum s;

  order("late=300,connect=50");
  sum_new(&s, g);
  assert_int_equal(TFD_OK, sum_run(&s));
  sum_check(&s);
  sum_end(&s);
}

ON_STANDINS(gpus_that_cannot_be_connected_are_told, 2, 3) {
  sum s;

  order("connect=-1");
  sum_new(&s, g);
  assert_int_equal(TFD_DEADLINE_EXCEEDED, sum_run(&s));
  assert_non_null(strstr(tfd_error_message(),
                         "connecting GPUs: NCCL on /gpu:0 is not ready"));
  sum_end(&s);
  check_it_works(g);
}

/* --- failures of devices ----------------------------------------------------
 */

static int fail_now(const tfd__call *call) {
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: ordered", call->name);
}

ON_STANDINS(what_comes_from_a_failure_is_none, 4, 300) {
  tfd__call bad = {.name = "bad", .kernel = fail_now, .replica = -1};
  sum s;

  check_it_works(g);
  sum_new(&s, g);
  assert_int_equal(TFD_OK, tfd__stream_submit(g->devices[1], &bad));
  assert_int_equal(TFD_INVALID_ARGUMENT, sum_run(&s));
  assert_string_equal("bad: ordered", tfd_error_message());
  /* In place: all have what they had. */
  expect_run(&s.w, &s.p.list[2], 0, 100, 2, 0, TFD_REDUCE_SUM);
  sum_end(&s);
  check_it_works(g);
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
      cmocka_unit_test(one_that_never_ends_is_told),
      cmocka_unit_test(a_call_has_its_own_deadline),
      cmocka_unit_test(a_failing_gpu_is_told),
      cmocka_unit_test(a_failing_call_is_told),
      cmocka_unit_test(late_ones_are_waited_for),
      cmocka_unit_test(gpus_that_cannot_be_connected_are_told),
      cmocka_unit_test(what_comes_from_a_failure_is_none),
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
