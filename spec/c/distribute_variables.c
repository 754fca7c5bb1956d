/* Variables of strategies from C: what creation makes, and what writes do by
** synchronization x aggregation, in replicas and outside of them. */
#include "distribute_support.h"

#define SYNC(x) TFD_SYNCHRONIZATION_##x
#define AGG(x) TFD_AGGREGATION_##x

static tfd_object *variable_of(tfd_strategy *s, double start, int sync,
                               int aggregation) {
  tfd_tensor *t = scalar(start);
  tfd_object *v = NULL;

  OK(tfd_strategy_variable(s, (tfd_object *)t, "v", false,
                           (tfd_variable_synchronization)sync,
                           (tfd_variable_aggregation)aggregation, &v));
  tfd_release((tfd_object *)t);
  return v;
}

static int write_value(tfd_object *v, tfd_write_op op, double x) {
  tfd_tensor *t = scalar(x);
  int rc = tfd_mirrored_write((tfd_mirrored *)v, op, (tfd_object *)t);

  tfd_release((tfd_object *)t);
  return rc;
}

/* Each replica i writes values[i], as a program's loop does it: in its turn
** where that is enough, else together when all have stopped. */
static int write_in_replicas(tfd_strategy *s, tfd_object *v, tfd_write_op op,
                             const double *values) {
  tfd_run *run = NULL;
  tfd_run_event event = TFD_RUN_DONE;
  tfd_object *given[TFD_MAX_REPLICAS] = {NULL};
  tfd_write_route route = TFD_ROUTE_ALL;
  bool stopped[TFD_MAX_REPLICAS] = {false};
  int n = tfd_strategy_local_count(s);
  int replica = 0;
  int rc = TFD_OK;
  int i;

  OK(tfd_run_begin(s, &run));
  OK(tfd_run_next(run, &event, &replica));
  while (rc == TFD_OK && event != TFD_RUN_DONE) {
    const char *point = "";

    if (event == TFD_RUN_MERGE) {
      rc = tfd_mirrored_write_merged((tfd_mirrored *)v, op, given, n);
      OK(tfd_run_next(run, &event, &replica));
      continue;
    }
    assert_int_equal(TFD_RUN_RESUME, event);
    if (!stopped[replica]) {
      given[replica] = (tfd_object *)scalar(values[replica]);
      rc = tfd_mirrored_route((tfd_mirrored *)v, "assign", &route);
      if (rc == TFD_OK && route == TFD_ROUTE_COPY) {
        rc = tfd_mirrored_write((tfd_mirrored *)v, op, given[replica]);
      } else if (rc == TFD_OK) {
        assert_int_equal(TFD_ROUTE_MERGE, route);
        point = "write of v";
        stopped[replica] = true;
      }
    }
    OK(tfd_run_pass(run, point, &event, &replica));
  }
  tfd_release((tfd_object *)run);
  for (i = 0; i < n; i++) tfd_release(given[i]);
  return rc;
}

/* --- creation ------------------------------------------------------------ */

static void each_device_gets_a_copy(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_object *v = variable_of(s, 3, SYNC(AUTO), AGG(MEAN));
  tfd_mirrored *m = (tfd_mirrored *)v;
  tfd_device *device = NULL;
  int i;

  (void)state;
  EXPECT_COPIES(v, 3, 3);
  assert_int_equal(TFD_VARIABLE_MIRRORED, tfd_mirrored_kind_of(m));
  assert_int_equal(SYNC(ON_WRITE), tfd_mirrored_synchronization_of(m));
  assert_int_equal(AGG(MEAN), tfd_mirrored_aggregation_of(m));
  assert_string_equal("v", m->components[0]->name);
  assert_string_equal("v/replica_1", m->components[1]->name);
  for (i = 0; i < 2; i++) {
    OK(tfd_strategy_device(s, i, &device));
    assert_ptr_equal(device, m->components[i]->value->device);
    assert_int_equal(SYNC(AUTO), m->components[i]->synchronization);
    assert_int_equal(AGG(MEAN), m->components[i]->aggregation);
  }
  tfd_release(v);
  tfd_release((tfd_object *)s);
}

static void kinds_follow_strategy_and_synchronization(void **state) {
  tfd_strategy *mirrored = strategy_of("mirrored", 2);
  tfd_strategy *central = strategy_of("central_storage", 2);
  tfd_strategy *alone = strategy_of("central_storage", 1);
  tfd_strategy *one = strategy_of("one_device", 1);
  tfd_strategy *none = strategy_of("default", 0);
  tfd_object *v[5];
  int i;

  (void)state;
  v[0] = variable_of(mirrored, 1, SYNC(ON_READ), AGG(SUM));
  assert_int_equal(TFD_VARIABLE_SYNC_ON_READ,
                   tfd_mirrored_kind_of((tfd_mirrored *)v[0]));
  v[1] = variable_of(central, 1, SYNC(AUTO), AGG(SUM));
  assert_int_equal(TFD_VARIABLE_AGGREGATING,
                   tfd_mirrored_kind_of((tfd_mirrored *)v[1]));
  EXPECT_COPIES(v[1], 1);
  v[2] = variable_of(alone, 1, SYNC(AUTO), AGG(SUM));
  v[3] = variable_of(one, 1, SYNC(ON_READ), AGG(SUM));
  v[4] = variable_of(none, 1, SYNC(AUTO), AGG(SUM));
  for (i = 2; i < 5; i++) assert_true(tfd__is_open(v[i], TFD_HANDLE_VARIABLE));
  assert_int_equal(SYNC(ON_READ), ((tfd_variable *)v[3])->synchronization);
  for (i = 0; i < 5; i++) tfd_release(v[i]);
  tfd_release((tfd_object *)mirrored);
  tfd_release((tfd_object *)central);
  tfd_release((tfd_object *)alone);
  tfd_release((tfd_object *)one);
  tfd_release((tfd_object *)none);
}

static void modes_that_contradict_are_refused(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_strategy *one = strategy_of("one_device", 1);
  tfd_object *v = NULL;
  tfd_object *made = variable_of(s, 1, SYNC(AUTO), AGG(SUM));
  tfd_mirrored *m = (tfd_mirrored *)made;
  tfd_tensor *whole = NULL;
  tfd_tensor *t = scalar(1);
  tfd_object *x = (tfd_object *)t;
  double value = 1;

  (void)state;
  OK(tfd_tensor_from_values(&value, 1, TFD_INT32, NULL, 0, &whole));
  /* E08, decisions 13 */
  expect_failure(
      TFD_VALUE_ERROR,
      tfd_strategy_variable(s, x, "v", true, SYNC(NONE), AGG(SUM), &v),
      "`NONE` variable synchronization mode is not supported with "
      "MirroredStrategy: variable \"v\"");
  expect_failure(TFD_VALUE_ERROR,
                 tfd_strategy_variable(s, (tfd_object *)whole, "v", true,
                                       SYNC(AUTO), AGG(MEAN), &v),
                 "aggregation MEAN needs a floating-point dtype, got int32");
  expect_failure(
      TFD_VALUE_ERROR,
      tfd_strategy_variable(one, x, "v", true, SYNC(ON_READ), AGG(SUM), &v),
      "ON_READ is for variables that are not trainable");
  expect_failure(
      TFD_VALUE_ERROR,
      tfd_strategy_create(s, m->components, 1, "v", SYNC(AUTO), AGG(SUM), &v),
      "MirroredStrategy: a variable needs 2 copies, got 1");
  assert_int_not_equal(TFD_OK, tfd_strategy_variable(NULL, x, "v", true,
                                                     SYNC(AUTO), AGG(SUM), &v));
  assert_int_not_equal(TFD_OK, tfd_strategy_variable(s, NULL, "v", true,
                                                     SYNC(AUTO), AGG(SUM), &v));
  assert_int_not_equal(TFD_OK, tfd_strategy_variable(s, x, NULL, true,
                                                     SYNC(AUTO), AGG(SUM), &v));
  assert_int_not_equal(
      TFD_OK,
      tfd_strategy_variable(s, x, "v", true, SYNC(AUTO), AGG(SUM), NULL));
  assert_int_not_equal(TFD_OK, tfd_strategy_create(NULL, m->components, 2, "v",
                                                   SYNC(AUTO), AGG(SUM), &v));
  assert_int_not_equal(
      TFD_OK, tfd_strategy_create(s, NULL, 2, "v", SYNC(AUTO), AGG(SUM), &v));
  assert_int_not_equal(TFD_OK, tfd_strategy_create(s, m->components, 2, NULL,
                                                   SYNC(AUTO), AGG(SUM), &v));
  assert_int_not_equal(TFD_OK, tfd_copy_name(NULL, 1, NULL));
  assert_null(v);
  tfd_release(made);
  tfd_release((tfd_object *)whole);
  tfd_release((tfd_object *)t);
  tfd_release((tfd_object *)s);
  tfd_release((tfd_object *)one);
}

/* A failing allocation leaves nothing behind, wherever it comes. */
static void creation_that_fails_leaves_nothing(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_tensor *t = scalar(1);
  int rc = TFD_RESOURCE_EXHAUSTED;
  int64_t n;

  (void)state;
  for (n = 1; rc != TFD_OK; n++) {
    tfd_object *v = NULL;

    assert_true(n < 100);
    tfd_test_fail_allocation(n);
    rc = tfd_strategy_variable(s, (tfd_object *)t, "v", true, SYNC(AUTO),
                               AGG(SUM), &v);
    tfd_test_fail_allocation(0);
    if (rc != TFD_OK) assert_int_equal(TFD_RESOURCE_EXHAUSTED, rc);
    tfd_release(v);
    assert_int_equal(0, tfd_live_handles(TFD_HANDLE_VARIABLE));
  }
  tfd_release((tfd_object *)t);
  tfd_release((tfd_object *)s);
}

/* --- writes -------------------------------------------------------------- */

typedef struct write_case {
  int sync;
  int aggregation;
  tfd_write_op op;
  double start;
  double given[2]; /* by replicas 0 and 1 */
  double copies[2];
} write_case;

/* Cases B, C, D of TensorFlow's tests and the table of the semantics. */
static const write_case in_replicas[] = {
    {SYNC(AUTO), AGG(NONE), TFD_WRITE_ASSIGN, 1, {5, 5}, {5, 5}}, /* D01 */
    {SYNC(AUTO), AGG(NONE), TFD_WRITE_ASSIGN, 1, {5, 6}, {5, 6}},
    {SYNC(AUTO), AGG(SUM), TFD_WRITE_ASSIGN, 1, {5, 6}, {11, 11}},
    {SYNC(AUTO), AGG(SUM), TFD_WRITE_ASSIGN_ADD, 1, {5, 6}, {12, 12}},
    {SYNC(AUTO), AGG(MEAN), TFD_WRITE_ASSIGN, 1, {0, 1}, {0.5, 0.5}}, /* D04 */
    {SYNC(AUTO), AGG(MEAN), TFD_WRITE_ASSIGN_SUB, 5, {0, 1}, {4.5, 4.5}},
    {SYNC(AUTO), AGG(MEAN), TFD_WRITE_ASSIGN_ADD, 1, {5, 5}, {6, 6}}, /* D08 */
    {SYNC(AUTO),
     AGG(ONLY_FIRST_REPLICA),
     TFD_WRITE_ASSIGN,
     15,
     {0, 1},
     {0, 0}}, /* B09 */
    {SYNC(ON_READ), AGG(NONE), TFD_WRITE_ASSIGN, 0, {1, 2}, {1, 2}},
    {SYNC(ON_READ), AGG(SUM), TFD_WRITE_ASSIGN_ADD, 1, {2, 3}, {3, 4}},
    {SYNC(ON_READ), AGG(MEAN), TFD_WRITE_ASSIGN, 4, {0, 6}, {0, 6}},
};

static void replicas_write_by_the_table(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  size_t k;

  (void)state;
  for (k = 0; k < sizeof in_replicas / sizeof in_replicas[0]; k++) {
    const write_case *c = &in_replicas[k];
    tfd_object *v = variable_of(s, c->start, c->sync, c->aggregation);

    OK(write_in_replicas(s, v, c->op, c->given));
    EXPECT_COPIES(v, c->copies[0], c->copies[1]);
    tfd_release(v);
  }
  tfd_release((tfd_object *)s);
}

static const write_case outside[] = {
    {SYNC(AUTO), AGG(NONE), TFD_WRITE_ASSIGN, 0, {1, 0}, {1, 1}}, /* B01 */
    {SYNC(AUTO), AGG(SUM), TFD_WRITE_ASSIGN, 0, {1, 0}, {1, 1}},
    {SYNC(AUTO), AGG(MEAN), TFD_WRITE_ASSIGN_ADD, 1, {6, 0}, {7, 7}}, /* D06 */
    {SYNC(AUTO), AGG(NONE), TFD_WRITE_ASSIGN_SUB, 5, {2, 0}, {3, 3}}, /* D09 */
    {SYNC(ON_READ), AGG(NONE), TFD_WRITE_ASSIGN, 0, {1, 0}, {1, 1}},
    {SYNC(ON_READ), AGG(SUM), TFD_WRITE_ASSIGN, 1, {6, 0}, {3, 3}},
    {SYNC(ON_READ), AGG(MEAN), TFD_WRITE_ASSIGN, 1, {6, 0}, {6, 6}},
    {SYNC(ON_READ), AGG(MEAN), TFD_WRITE_ASSIGN_ADD, 1, {6, 0}, {7, 7}},
    {SYNC(ON_READ),
     AGG(ONLY_FIRST_REPLICA),
     TFD_WRITE_ASSIGN,
     1,
     {6, 0},
     {6, 6}},
};

static void cross_replica_writes_reach_every_copy(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  size_t k;

  (void)state;
  for (k = 0; k < sizeof outside / sizeof outside[0]; k++) {
    const write_case *c = &outside[k];
    tfd_object *v = variable_of(s, c->start, c->sync, c->aggregation);

    OK(write_value(v, c->op, c->given[0]));
    EXPECT_COPIES(v, c->copies[0], c->copies[1]);
    tfd_release(v);
  }
  tfd_release((tfd_object *)s);
}

static void sums_of_reads_take_no_deltas(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_object *v = variable_of(s, 1, SYNC(ON_READ), AGG(SUM));

  (void)state; /* C04 */
  expect_failure(TFD_VALUE_ERROR, write_value(v, TFD_WRITE_ASSIGN_ADD, 1),
                 "SyncOnReadVariable does not support `assign_add`");
  expect_failure(TFD_VALUE_ERROR, write_value(v, TFD_WRITE_ASSIGN_SUB, 1),
                 "SyncOnReadVariable does not support `assign_sub`");
  EXPECT_COPIES(v, 1, 1);
  tfd_release(v);
  tfd_release((tfd_object *)s);
}

static void one_variable_is_written_once_for_all(void **state) {
  static const double given[2] = {2, 4};
  tfd_strategy *s = strategy_of("central_storage", 2);
  tfd_object *sum = variable_of(s, 1, SYNC(AUTO), AGG(SUM));
  tfd_object *mean = variable_of(s, 1, SYNC(AUTO), AGG(MEAN));
  tfd_object *none = variable_of(s, 1, SYNC(AUTO), AGG(NONE));

  (void)state;
  OK(write_in_replicas(s, sum, TFD_WRITE_ASSIGN_ADD, given));
  EXPECT_COPIES(sum, 7);
  OK(write_in_replicas(s, mean, TFD_WRITE_ASSIGN, given));
  EXPECT_COPIES(mean, 3);
  expect_failure(TFD_VALUE_ERROR,
                 write_in_replicas(s, none, TFD_WRITE_ASSIGN, given),
                 "You must specify an aggregation method to update the "
                 "AggregatingVariable \"v\"");
  OK(write_value(none, TFD_WRITE_ASSIGN, 9));
  EXPECT_COPIES(none, 9);
  tfd_release(sum);
  tfd_release(mean);
  tfd_release(none);
  tfd_release((tfd_object *)s);
}

static void a_mirrored_value_gives_each_copy_its_component(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_object *v = variable_of(s, 1, SYNC(AUTO), AGG(SUM));
  tfd_object *other = variable_of(s, 8, SYNC(AUTO), AGG(SUM));
  tfd_object *parts[2] = {(tfd_object *)scalar(2), (tfd_object *)scalar(3)};
  tfd_value *value = NULL;
  tfd_mirrored *m = (tfd_mirrored *)v;

  (void)state;
  OK(tfd_value_new(s, TFD_VALUE_MIRRORED, parts, 2, &value));
  OK(tfd_mirrored_write(m, TFD_WRITE_ASSIGN, (tfd_object *)value));
  EXPECT_COPIES(v, 2, 3);
  OK(tfd_mirrored_write(m, TFD_WRITE_ASSIGN_ADD, other)); /* B02 */
  EXPECT_COPIES(v, 10, 11);
  tfd_release((tfd_object *)value);
  OK(tfd_value_new(s, TFD_VALUE_PER_REPLICA, parts, 2, &value));
  expect_failure(TFD_VALUE_ERROR,
                 tfd_mirrored_write(m, TFD_WRITE_ASSIGN, (tfd_object *)value),
                 "assign: variable \"v\" cannot take a PerReplica value in "
                 "cross-replica context");
  tfd_release((tfd_object *)value);
  OK(tfd_value_new(s, TFD_VALUE_MIRRORED, parts, 1, &value));
  expect_failure(TFD_INDEX_ERROR,
                 tfd_mirrored_write(m, TFD_WRITE_ASSIGN, (tfd_object *)value),
                 "no tensor 1; there are 1");
  tfd_release((tfd_object *)value);
  tfd_release(parts[0]);
  tfd_release(parts[1]);
  tfd_release(v);
  tfd_release(other);
  tfd_release((tfd_object *)s);
}

static void rows_are_written_as_what_they_stand_for(void **state) {
  static const double ones[2] = {1, 1};
  static const double lasts[2] = {1, 1};
  static const int64_t two[1] = {2};
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_tensor *start = NULL;
  tfd_tensor *values = NULL;
  tfd_tensor *rows = NULL;
  tfd_slices *slices = NULL;
  tfd_object *v = NULL;
  tfd_mirrored *m = NULL;
  double got[2] = {0, 0};

  (void)state;
  OK(tfd_tensor_from_values(ones, 2, TFD_FLOAT32, two, 1, &start));
  OK(tfd_tensor_from_values(ones, 2, TFD_FLOAT32, two, 1, &values));
  OK(tfd_tensor_from_values(lasts, 2, TFD_INT64, two, 1, &rows));
  OK(tfd_slices_new(values, rows, two, 1, &slices)); /* row 1 twice */
  OK(tfd_strategy_variable(s, (tfd_object *)start, "v", false, SYNC(AUTO),
                           AGG(SUM), &v));
  m = (tfd_mirrored *)v;
  OK(tfd_mirrored_write(m, TFD_WRITE_ASSIGN_ADD, (tfd_object *)slices));
  OK(tfd_tensor_values(m->components[1]->value, got, 2));
  assert_true(got[0] == 1 && got[1] == 3);
  tfd_release(v);
  tfd_release((tfd_object *)slices);
  tfd_release((tfd_object *)rows);
  tfd_release((tfd_object *)values);
  tfd_release((tfd_object *)start);
  tfd_release((tfd_object *)s);
}

/* What must be written together cannot be written by one replica alone. */
static void alone_is_told_from_together(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_object *v = variable_of(s, 1, SYNC(AUTO), AGG(SUM));
  tfd_mirrored *m = (tfd_mirrored *)v;
  tfd_run *run = NULL;
  tfd_run_event event = TFD_RUN_DONE;
  tfd_object *out = NULL;
  int replica = 0;

  (void)state;
  OK(tfd_run_begin(s, &run));
  OK(tfd_run_next(run, &event, &replica));
  expect_failure(TFD_RUNTIME_ERROR, write_value(v, TFD_WRITE_ASSIGN, 2),
                 "assign of variable \"v\": the replicas write it together");
  OK(tfd_run_cancel(run));
  tfd_release((tfd_object *)run);
  EXPECT_COPIES(v, 1, 1);
  expect_failure(TFD_VALUE_ERROR, tfd_mirrored_combine(m, "x", NULL, 0, &out),
                 "x of variable \"v\": no values");
  assert_int_not_equal(TFD_OK, tfd_mirrored_combine(NULL, "x", &v, 1, &out));
  assert_int_not_equal(TFD_OK, tfd_mirrored_combine(m, NULL, &v, 1, &out));
  assert_int_not_equal(TFD_OK, tfd_mirrored_combine(m, "x", &v, 1, NULL));
  assert_int_not_equal(TFD_OK, tfd_mirrored_write(NULL, TFD_WRITE_ASSIGN, v));
  assert_int_not_equal(TFD_OK, tfd_mirrored_write(m, TFD_WRITE_ASSIGN, NULL));
  assert_int_not_equal(TFD_OK, tfd_mirrored_write(m, (tfd_write_op)9, v));
  assert_int_not_equal(TFD_OK, tfd_mirrored_write_all(m, (tfd_write_op)9, v));
  assert_int_not_equal(TFD_OK, tfd_mirrored_route(NULL, "x", NULL));
  assert_int_not_equal(TFD_OK,
                       tfd_mirrored_write_merged(m, TFD_WRITE_ASSIGN, NULL, 2));
  assert_null(out);
  tfd_release(v);
  tfd_release((tfd_object *)s);
}

/* --- what replicas gave --------------------------------------------------- */

static void expect_whole(tfd_strategy *s, void *a, void *b, void *wanted) {
  tfd_object *parts[2] = {a, b};
  tfd_object *whole = NULL;

  OK(tfd_value_regroup(s, TFD_VALUE_PER_REPLICA, parts, 2, &whole));
  if (wanted != NULL) {
    assert_ptr_equal(wanted, whole);
  } else {
    assert_true(tfd__is_open(whole, TFD_HANDLE_VALUE));
    assert_int_equal(TFD_VALUE_PER_REPLICA,
                     tfd_value_kind_of((tfd_value *)whole));
    assert_int_equal(2, tfd_value_count((tfd_value *)whole));
  }
  tfd_release(whole);
}

static void what_is_one_stays_one(void **state) {
  tfd_strategy *s = strategy_of("mirrored", 2);
  tfd_object *v = variable_of(s, 1, SYNC(ON_READ), AGG(SUM));
  tfd_object *other = variable_of(s, 1, SYNC(AUTO), AGG(SUM));
  tfd_mirrored *m = (tfd_mirrored *)v;
  tfd_variable *copies[2] = {m->components[0], m->components[1]};
  tfd_variable *foreign = ((tfd_mirrored *)other)->components[1];
  tfd_tensor *a = scalar(1);
  tfd_tensor *b = scalar(1);
  tfd_object *x = (tfd_object *)a;
  tfd_object *out = NULL;

  (void)state;
  expect_whole(s, a, a, a);
  expect_whole(s, v, v, v);
  expect_whole(s, copies[0], copies[1], v); /* C15 */
  expect_whole(s, copies[0], copies[0], v);
  expect_whole(s, copies[1], copies[0], NULL);
  expect_whole(s, copies[0], foreign, NULL);
  expect_whole(s, a, b, NULL);
  expect_whole(s, a, NULL, NULL);
  expect_whole(s, NULL, NULL, NULL);
  /* A copy that has outlived its variable is one of its own. */
  tfd_retain((tfd_object *)copies[0]);
  tfd_release(v);
  expect_whole(s, copies[0], copies[0], copies[0]);
  tfd_release((tfd_object *)copies[0]);
  assert_int_not_equal(
      TFD_OK, tfd_value_regroup(NULL, TFD_VALUE_MIRRORED, &x, 1, &out));
  assert_int_not_equal(TFD_OK,
                       tfd_value_regroup(s, TFD_VALUE_MIRRORED, NULL, 1, &out));
  assert_int_not_equal(TFD_OK,
                       tfd_value_regroup(s, TFD_VALUE_MIRRORED, &x, 0, &out));
  assert_int_not_equal(TFD_OK,
                       tfd_value_regroup(s, TFD_VALUE_MIRRORED, &x, 1, NULL));
  assert_null(out);
  tfd_release((tfd_object *)a);
  tfd_release((tfd_object *)b);
  tfd_release(other);
  tfd_release((tfd_object *)s);
}

static int set_up(void **state) {
  (void)state;
  return tfd_config_set_cpu_devices(2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_device_gets_a_copy),
      cmocka_unit_test(kinds_follow_strategy_and_synchronization),
      cmocka_unit_test(modes_that_contradict_are_refused),
      cmocka_unit_test(creation_that_fails_leaves_nothing),
      cmocka_unit_test(replicas_write_by_the_table),
      cmocka_unit_test(cross_replica_writes_reach_every_copy),
      cmocka_unit_test(sums_of_reads_take_no_deltas),
      cmocka_unit_test(one_variable_is_written_once_for_all),
      cmocka_unit_test(a_mirrored_value_gives_each_copy_its_component),
      cmocka_unit_test(rows_are_written_as_what_they_stand_for),
      cmocka_unit_test(alone_is_told_from_together),
      cmocka_unit_test(what_is_one_stays_one),
  };

  alarm(300); /* a hang ends the program */
  return cmocka_run_group_tests(tests, set_up, nothing_left);
}
