/* tfd_strategy_join: strategies over processes, made and used from C alone, as
** a program without Lua does. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "comm_processes.h"

#include "distribute/distribute.h"

static char all_addresses[MOST * 40];
static const char *provider = "";

/* The addresses of the first n processes, between commas. */
static const char *addresses_of(int n) {
  int i;

  all_addresses[0] = 0;
  for (i = 0; i < n; i++) {
    if (i > 0) strcat(all_addresses, ",");
    strcat(all_addresses, address_list[i]);
  }
  return all_addresses;
}

static int join(int process, int processes, int local, const char *secret,
                double start_seconds, tfd_strategy **s) {
  tfd_device *devices[MOST];
  int i;

  for (i = 0; i < local; i++) devices[i] = device(i);
  return tfd_strategy_join(
      "multi_worker", devices, local, addresses_of(processes), process, secret,
      strlen(secret), false, provider, start_seconds, 60, 60, 30, 0, s);
}

/* --- training ------------------------------------------------------------- */

enum { N = 1000, STEPS = 3 };

static tfd_variable *run_of(int i, int64_t n, double x) {
  tfd_tensor *t = NULL;
  tfd_variable *v = NULL;

  if (tfd_device_push(device(i)) != TFD_OK) return NULL;
  if (tfd_tensor_from_values(&x, 1, TFD_FLOAT32, &n, 1, &t) == TFD_OK) {
    (void)tfd_variable_new((tfd_object *)t, "v", true, NULL, &v);
  }
  (void)tfd_device_pop();
  tfd_release((tfd_object *)t);
  return v;
}

/* Thirds: sums of them are rounded, so that the order of sums shows. */
static tfd_object *gradient(int i, int rank, int step) {
  double values[N];
  const int64_t n = N;
  tfd_tensor *t = NULL;
  int j;

  for (j = 0; j < N; j++) values[j] = (j % 7 + rank * step) / 3.0;
  if (tfd_device_push(device(i)) != TFD_OK) return NULL;
  (void)tfd_tensor_from_values(values, N, TFD_FLOAT32, &n, 1, &t);
  (void)tfd_device_pop();
  return (tfd_object *)t;
}

/* Some steps with momenta that lie whole with each copy, or in parts; the first
** copy's values. */
static int train(tfd_strategy *s, int local, bool parts, double *values) {
  const double reals[3] = {0, 0.01, 0.9};
  const int64_t n = N;
  int base = s->group->base;
  tfd_variable *targets[2 * MOST];
  tfd_object *grads[MOST];
  int step;
  int i;

  for (i = 0; i < local; i++) {
    int64_t first = 0;
    int64_t count = N;
    bool rows = false;

    if (parts) {
      CHECK(tfd_strategy_part(s, &n, 1, base + i, &first, &count, &rows) ==
            TFD_OK);
    }
    targets[2 * i] = run_of(i, N, 1);
    targets[2 * i + 1] = run_of(i, count, 0);
    CHECK(targets[2 * i] != NULL && targets[2 * i + 1] != NULL);
  }
  for (step = 1; step <= STEPS; step++) {
    for (i = 0; i < local; i++) grads[i] = gradient(i, base + i, step);
    CHECK((parts ? tfd_strategy_update_parts(s, TFD_OP_update_momentum, targets,
                                             2 * local, grads, local, false,
                                             reals, 3)
                 : tfd_strategy_update(s, TFD_OP_update_momentum, targets,
                                       2 * local, grads, local, reals, 3)) ==
          TFD_OK);
    for (i = 0; i < local; i++) tfd_release(grads[i]);
  }
  CHECK(tfd_tensor_values(targets[0]->value, values, N) == TFD_OK);
  for (i = 0; i < 2 * local; i++) tfd_release((tfd_object *)targets[i]);
  return 0;
}

/* The same in plain numbers: v = 0.9 v - 0.01 g, w = w + v. */
static int is_expected(const double *values, int replicas) {
  int j;

  for (j = 0; j < N; j++) {
    double w = 1;
    double v = 0;
    int step;

    for (step = 1; step <= STEPS; step++) {
      double g =
          (replicas * (j % 7) + step * replicas * (replicas - 1) / 2.0) / 3;

      v = 0.9 * v - 0.01 * g;
      w += v;
    }
    CHECK(fabs(w - values[j]) < 1e-5);
  }
  return 0;
}

static int trains(int process, int processes, int local) {
  tfd_strategy *s = NULL;
  double whole[N];
  double parts[N];

  CHECK(join(process, processes, local, "", 60, &s) == TFD_OK);
  CHECK(tfd_strategy_replica_count(s) == processes * local);
  CHECK(tfd_strategy_local_count(s) == local);
  if (provider[0] != 0) {
    CHECK(strcmp(provider, tfd_strategy_provider(s)) == 0);
  }
  CHECK(train(s, local, false, whole) == 0);
  CHECK(train(s, local, true, parts) == 0);
  CHECK(is_expected(whole, processes * local) == 0);
  CHECK(memcmp(whole, parts, sizeof whole) == 0);
  tfd_release((tfd_object *)s);
  tfd__devices_finish();
  CHECK(tfd_live_handles(TFD_HANDLE_BUFFER) == 0);
  return 0;
}

static void trainings_are_those_of_one_process(void **state) {
  static const char *const providers[] = {"", "shm", "tcp"};
  size_t k;

  (void)state;
  for (k = 0; k < sizeof providers / sizeof *providers; k++) {
    provider = providers[k];
    run_all(trains, 2, 1);
    run_all(trains, 2, 2);
    run_all(trains, 3, 1);
  }
  provider = "";
}

/* --- what cannot be joined ------------------------------------------------ */

static int other_secrets(int process, int processes, int local) {
  tfd_strategy *s = NULL;
  int rc = join(process, processes, local, process == 0 ? "one" : "two", 5, &s);

  CHECK(rc == TFD_FAILED_PRECONDITION || rc == TFD_DEADLINE_EXCEEDED);
  CHECK(s == NULL);
  return 0;
}

static void who_lacks_the_secret_stays_out(void **state) {
  (void)state;
  run_all(other_secrets, 2, 1);
}

static int alone(int process, int processes, int local) {
  tfd_strategy *s = NULL;
  int64_t begin = ran_by_now();

  CHECK(join(process, processes + 1, local, "", 1, &s) ==
        TFD_DEADLINE_EXCEEDED);
  CHECK(strstr(tfd_error_message(), address_list[1]) != NULL);
  CHECK(ran_since(begin) < 10);
  CHECK(s == NULL);
  return 0;
}

static void who_does_not_come_is_named(void **state) {
  (void)state;
  run_all(alone, 1, 1);
}

static void bad_arguments_are_refused(void **state) {
  tfd_device *devices[2] = {device(0), device(0)};
  tfd_strategy *s = NULL;

  (void)state;
  make_addresses();
  provider = "none";
  assert_int_equal(TFD_NOT_FOUND, join(0, 2, 1, "", 1, &s));
  provider = "";
  assert_int_not_equal(TFD_OK, join(2, 2, 1, "", 1, &s));
  assert_int_not_equal(TFD_OK, join(-1, 2, 1, "", 1, &s));
  assert_int_equal(TFD_ASSERTION_ERROR,
                   tfd_strategy_join("multi_worker", devices, 2,
                                     addresses_of(2), 0, "", 0, false, "", 1, 1,
                                     1, 1, 0, &s));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_strategy_join("nothing", devices, 1, addresses_of(2), 0,
                                     "", 0, false, "", 1, 1, 1, 1, 0, &s));
  assert_int_not_equal(TFD_OK, tfd_strategy_join("multi_worker", devices, 1,
                                                 "no address,neither", 0, "", 0,
                                                 false, "", 1, 1, 1, 1, 0, &s));
  assert_int_not_equal(TFD_OK,
                       tfd_strategy_join("multi_worker", devices, 1,
                                         "192.0.2.1:2000,192.0.2.2:2000", 0, "",
                                         0, false, "", 1, 1, 1, 1, 0, &s));
  assert_null(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(trainings_are_those_of_one_process),
      cmocka_unit_test(who_lacks_the_secret_stays_out),
      cmocka_unit_test(who_does_not_come_is_named),
      cmocka_unit_test(bad_arguments_are_refused),
  };

  tested = "strategy_join";
  configure("2", "queued");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
