/* Strategies over several workers with several replicas each: the workers are
** threads, and spec/support/comm/toy.c is between them. Every worker does the
** same; results are closed forms over all replicas. */
#include <math.h>

#include "device_support.h"

#include "distribute/distribute.h"

#include "../support/comm/toy.c"

enum { DEVICES = 6 };

typedef struct worker {
  toy_hub *hub;
  int number;
  int local;
  void (*run)(const struct worker *w);
  tfd_strategy *strategy;
  pthread_t thread;
} worker;

/* --- a kind of strategy whose group is made by the spec ------------------- */

static const worker *making;

static int set_up(tfd_strategy *s, tfd_device *parameter_device) {
  const worker *w = making;
  tfd__group_config config = {.provider = "toy",
                              .devices = s->devices,
                              .local = w->local,
                              .base = w->number * w->local,
                              .size = w->hub->workers * w->local,
                              .timeout = 300,
                              .network = &w->hub->network};

  (void)parameter_device;
  TFD_TRY(tfd__strategy_check_devices(s));
  TFD_TRY(tfd__strategy_list(s->devices, s->devices_n, &s->parameters));
  s->parameters_n = s->devices_n;
  return tfd__group_new(&config, &s->group);
}

static const tfd__strategy_ops workers_ops = {
    .kind = "spec_workers", .name = "Workers", .set_up = set_up};

__attribute__((constructor)) static void register_kind(void) {
  tfd__strategy_register(&workers_ops);
}

static void *run_worker(void *arg) {
  const worker *w = arg;

  w->run(w);
  return NULL;
}

static void with_workers(int workers, int local, void (*run)(const worker *w)) {
  worker list[DEVICES];
  toy_hub hub;
  int w;
  int i;

  toy_hub_init(&hub, workers);
  for (w = 0; w < workers; w++) {
    tfd_device *devices[DEVICES];

    list[w] = (worker){.hub = &hub, .number = w, .local = local, .run = run};
    for (i = 0; i < local; i++) devices[i] = device(w * local + i);
    making = &list[w];
    assert_int_equal(TFD_OK, tfd_strategy_new("spec_workers", devices, local,
                                              NULL, &list[w].strategy));
  }
  for (w = 1; w < workers; w++) {
    assert_int_equal(
        0, pthread_create(&list[w].thread, NULL, run_worker, &list[w]));
  }
  run(&list[0]);
  for (w = 1; w < workers; w++) pthread_join(list[w].thread, NULL);
  for (w = 0; w < workers; w++) tfd_release((tfd_object *)list[w].strategy);
  assert_null(hub.messages);
  toy_hub_end(&hub);
}

static void on_all_shapes(void (*run)(const worker *w)) {
  with_workers(2, 1, run);
  with_workers(2, 2, run);
  with_workers(3, 2, run);
}

/* --- values --------------------------------------------------------------- */

/* Element j of replica r. */
static double element(int64_t j, int r) {
  return (double)(j % 5 + r);
}

static tfd_tensor *tensor(const worker *w, int i, tfd_dtype dtype,
                          const int64_t *dims, int rank) {
  double values[64];
  int64_t n = 1;
  int64_t j;
  tfd_tensor *t = NULL;

  for (j = 0; j < rank; j++) n *= dims[j];
  for (j = 0; j < n; j++) values[j] = element(j, w->strategy->group->base + i);
  assert_int_equal(TFD_OK, tfd_device_push(w->strategy->devices[i]));
  assert_int_equal(TFD_OK,
                   tfd_tensor_from_values(values, n, dtype, dims, rank, &t));
  assert_int_equal(TFD_OK, tfd_device_pop());
  return t;
}

/* The local replicas' tensors, as handles. */
static void tensors(const worker *w, tfd_dtype dtype, const int64_t *dims,
                    int rank, tfd_object **list) {
  int i;

  for (i = 0; i < w->local; i++) {
    list[i] = (tfd_object *)tensor(w, i, dtype, dims, rank);
  }
}

static void release_all(tfd_object **list, int n) {
  while (n > 0) tfd_release(list[--n]);
}

static double item(void *t, int64_t j) {
  double x = -1;

  if (tfd_tensor_item(t, j, &x) != TFD_OK) fail_msg("%s", tfd_error_message());
  return x;
}

static double sum_of(const worker *w, int64_t j) {
  int n = w->strategy->group->size;

  return (double)(n * (j % 5)) + n * (n - 1) / 2.0;
}

static tfd_object *component(tfd_value *v, int i) {
  tfd_object *x = NULL;

  assert_int_equal(TFD_OK, tfd_value_component(v, i, &x));
  tfd_release(x); /* the value keeps it */
  return x;
}

/* --- what strategies do --------------------------------------------------- */

static void add_up(const worker *w) {
  const int64_t dims[2] = {3, 4};
  const int n = w->strategy->group->size;
  tfd_object *list[2 * DEVICES];
  tfd_value *v = NULL;
  int i;
  int64_t j;

  tensors(w, TFD_FLOAT32, dims, 2, list);
  tensors(w, TFD_INT32, dims, 2, list + w->local);
  assert_int_equal(n, tfd_strategy_replica_count(w->strategy));
  assert_int_equal(w->local, tfd_strategy_local_count(w->strategy));
  assert_int_equal(TFD_OK,
                   tfd_strategy_all_reduce(w->strategy, TFD_REDUCE_MEAN, "x",
                                           list, 2 * w->local, &v));
  for (i = 0; i < 2 * w->local; i++) {
    for (j = 0; j < 12; j++) {
      double expected = sum_of(w, j) / n;

      assert_true(fabs(expected - item(component(v, i), j)) < 1e-6);
    }
  }
  tfd_release((tfd_object *)v);
  assert_int_equal(
      TFD_OK, tfd_strategy_all_reduce_packed(w->strategy, TFD_REDUCE_SUM, "x",
                                             list, 2 * w->local, 3, 0, 60, &v));
  for (i = 0; i < 2 * w->local; i++) {
    for (j = 0; j < 12; j++) {
      assert_true(sum_of(w, j) == item(component(v, i), j));
    }
  }
  tfd_release((tfd_object *)v);
  assert_int_equal(TFD_OK, tfd_strategy_reduce(w->strategy, TFD_REDUCE_MAX, "x",
                                               list, w->local,
                                               w->strategy->devices, 1, 0, &v));
  for (j = 0; j < 12; j++) {
    assert_true(element(j, n - 1) == item(component(v, 0), j));
  }
  tfd_release((tfd_object *)v);
  release_all(list, 2 * w->local);
}

static void sums_are_over_all_workers(void **state) {
  (void)state;
  on_all_shapes(add_up);
}

/* Replica r gives r + 1 rows or columns. */
static void join_along(const worker *w, int axis) {
  tfd_object *list[DEVICES];
  tfd_value *v = NULL;
  int n = w->strategy->group->size;
  int total = n * (n + 1) / 2;
  int at = 0;
  int i;
  int r;
  int a;
  int b;

  for (i = 0; i < w->local; i++) {
    int64_t dims[2] = {2, 2};

    dims[axis] = w->strategy->group->base + i + 1;
    list[i] = (tfd_object *)tensor(w, i, TFD_FLOAT32, dims, 2);
  }
  assert_int_equal(
      TFD_OK, tfd_strategy_gather(w->strategy, axis, "gather", list, w->local,
                                  w->strategy->devices, w->local, 0, &v));
  for (r = 0; r < n; r++) {
    for (a = 0; a < r + 1; a++) {
      for (b = 0; b < 2; b++) {
        int64_t from = axis == 0 ? a * 2 + b : b * (r + 1) + a;
        int64_t to = axis == 0 ? (at + a) * 2 + b : b * total + at + a;

        for (i = 0; i < w->local; i++) {
          assert_true(element(from, r) == item(component(v, i), to));
        }
      }
    }
    at += r + 1;
  }
  tfd_release((tfd_object *)v);
  release_all(list, w->local);
}

static void join(const worker *w) {
  join_along(w, 0);
  join_along(w, 1);
}

static void joins_are_of_all_workers(void **state) {
  (void)state;
  on_all_shapes(join);
}

/* One row of slices for each replica, its own number. */
static void join_slices(const worker *w) {
  const int64_t dims[2] = {1, 3};
  const int64_t shape[2] = {10, 3};
  const int64_t one[1] = {1};
  int n = w->strategy->group->size;
  tfd_object *list[DEVICES];
  tfd_value *v = NULL;
  tfd_slices *s = NULL;
  int i;
  int r;

  for (i = 0; i < w->local; i++) {
    double number = w->strategy->group->base + i;
    tfd_tensor *values = tensor(w, i, TFD_FLOAT32, dims, 2);
    tfd_tensor *rows = NULL;

    assert_int_equal(TFD_OK, tfd_device_push(w->strategy->devices[i]));
    assert_int_equal(
        TFD_OK, tfd_tensor_from_values(&number, 1, TFD_INT32, one, 1, &rows));
    assert_int_equal(TFD_OK, tfd_device_pop());
    assert_int_equal(TFD_OK, tfd_slices_new(values, rows, shape, 2, &s));
    list[i] = &s->object;
    tfd_release((tfd_object *)values);
    tfd_release((tfd_object *)rows);
  }
  assert_int_equal(TFD_OK, tfd_strategy_all_reduce(w->strategy, TFD_REDUCE_MEAN,
                                                   "x", list, w->local, &v));
  for (i = 0; i < w->local; i++) {
    s = (tfd_slices *)component(v, i);
    assert_int_equal(n, s->indices->view.numel);
    for (r = 0; r < n; r++) {
      assert_true(item(s->indices, r) == r);
      assert_true(fabs(element(1, r) / n - item(s->values, r * 3 + 1)) < 1e-6);
    }
  }
  tfd_release((tfd_object *)v);
  release_all(list, w->local);
}

static void slices_are_joined_over_all_workers(void **state) {
  (void)state;
  on_all_shapes(join_slices);
}

static tfd_variable *run_of(const worker *w, int i, int64_t n, double x) {
  const int64_t dims[1] = {n};
  tfd_tensor *t = NULL;
  tfd_variable *v = NULL;

  assert_int_equal(TFD_OK, tfd_device_push(w->strategy->devices[i]));
  assert_int_equal(TFD_OK,
                   tfd_tensor_from_values(&x, 1, TFD_FLOAT32, dims, 1, &t));
  assert_int_equal(TFD_OK,
                   tfd_variable_new((tfd_object *)t, "v", true, NULL, &v));
  assert_int_equal(TFD_OK, tfd_device_pop());
  tfd_release((tfd_object *)t);
  return v;
}

static tfd_variable *variable(const worker *w, int i, double x) {
  return run_of(w, i, 10, x);
}

/* Copies by the gradients of all workers' replicas. */
static void update(const worker *w) {
  const int64_t dims[1] = {10};
  const double reals[2] = {0, 0.5};
  tfd_object *grads[DEVICES];
  tfd_variable *copies[DEVICES];
  int64_t j;
  int i;

  tensors(w, TFD_FLOAT32, dims, 1, grads);
  for (i = 0; i < w->local; i++) copies[i] = variable(w, i, 7);
  if (tfd_strategy_update(w->strategy, TFD_OP_update_sgd, copies, w->local,
                          grads, w->local, reals, 2) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
  for (i = 0; i < w->local; i++) {
    for (j = 0; j < 10; j++) {
      assert_true(7 - 0.5 * sum_of(w, j) == item(copies[i]->value, j));
    }
    tfd_release((tfd_object *)copies[i]);
  }
  release_all(grads, w->local);
}

static void updates_take_all_workers_gradients(void **state) {
  (void)state;
  on_all_shapes(update);
}

/* The same with momenta of which each replica has its part. */
static void update_parts(const worker *w) {
  const int64_t dims[1] = {10};
  const double reals[3] = {0, 0.5, 0.9};
  tfd_object *grads[DEVICES];
  tfd_variable *targets[2 * DEVICES];
  int64_t first[DEVICES];
  int64_t count[DEVICES];
  int64_t j;
  bool rows = false;
  int i;

  tensors(w, TFD_FLOAT32, dims, 1, grads);
  for (i = 0; i < w->local; i++) {
    assert_int_equal(TFD_OK, tfd_strategy_part(w->strategy, dims, 1,
                                               w->strategy->group->base + i,
                                               &first[i], &count[i], &rows));
    assert_true(rows);
    targets[2 * i] = variable(w, i, 7);
    targets[2 * i + 1] = run_of(w, i, count[i], 0);
  }
  if (tfd_strategy_update_parts(w->strategy, TFD_OP_update_momentum, targets,
                                2 * w->local, grads, w->local, false, reals,
                                3) != TFD_OK) {
    fail_msg("%s", tfd_error_message());
  }
  for (i = 0; i < w->local; i++) {
    for (j = 0; j < 10; j++) {
      assert_true(7 - 0.5 * sum_of(w, j) == item(targets[2 * i]->value, j));
    }
    for (j = 0; j < count[i]; j++) {
      assert_true(-0.5 * sum_of(w, first[i] + j) ==
                  item(targets[2 * i + 1]->value, j));
    }
  }
  /* A slot of another part's size is refused before anything meets. */
  tfd_release((tfd_object *)targets[1]);
  targets[1] = run_of(w, 0, 11, 0);
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_strategy_update_parts(
                       w->strategy, TFD_OP_update_momentum, targets,
                       2 * w->local, grads, w->local, false, reals, 3));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_strategy_update_parts(w->strategy, TFD_OP_update_sgd,
                                             targets, 2 * w->local, grads,
                                             w->local, false, reals, 2));
  for (i = 0; i < 2 * w->local; i++) tfd_release((tfd_object *)targets[i]);
  release_all(grads, w->local);
}

static void parts_are_updated_and_gathered(void **state) {
  (void)state;
  on_all_shapes(update_parts);
}

/* Parts of every shape cover it once, and are close to equal. */
static void cover(const worker *w) {
  static const struct {
    int64_t dims[3];
    int rank;
    bool rows;
  } shapes[] = {
      {{0}, 0, false},       {{1}, 1, true},    {{1000}, 1, true},
      {{0}, 1, true},        {{2, 3}, 2, true}, {{48, 1000}, 2, true},
      {{3, 5000}, 2, false}, {{0, 7}, 2, true}, {{3, 50, 70}, 3, false}};
  int size = w->strategy->group->size;
  size_t k;
  int r;

  for (k = 0; k < sizeof shapes / sizeof *shapes; k++) {
    int64_t numel = 1;
    int64_t at = 0;
    int64_t most = 0;
    int d;

    for (d = 0; d < shapes[k].rank; d++) numel *= shapes[k].dims[d];
    for (r = 0; r < size; r++) {
      int64_t first = -1;
      int64_t count = -1;
      bool rows = false;

      assert_int_equal(TFD_OK, tfd_strategy_part(w->strategy, shapes[k].dims,
                                                 shapes[k].rank, r, &first,
                                                 &count, &rows));
      assert_int_equal(shapes[k].rows, rows);
      assert_int_equal(at, first);
      at += count;
      if (count > most) most = count;
    }
    assert_int_equal(numel, at);
    if (numel > 4096) assert_true(most * size <= numel * 9 / 8);
  }
  assert_int_equal(TFD_INDEX_ERROR,
                   tfd_strategy_part(w->strategy, shapes[1].dims, 1, size,
                                     &(int64_t){0}, &(int64_t){0},
                                     &(bool){false}));
}

static void parts_cover_variables(void **state) {
  (void)state;
  on_all_shapes(cover);
}

/* A variable that is synchronized on read, with copies 1, 2, 3 ... */
static void read_all(const worker *w) {
  tfd_variable *copies[DEVICES];
  tfd_mirrored *m = NULL;
  int n = w->strategy->group->size;
  int again;
  int i;

  for (i = 0; i < w->local; i++) {
    copies[i] = variable(w, i, w->strategy->group->base + i + 1);
  }
  assert_int_equal(
      TFD_OK,
      tfd_mirrored_new(w->strategy, TFD_VARIABLE_SYNC_ON_READ, copies, w->local,
                       TFD_SYNCHRONIZATION_ON_READ, TFD_AGGREGATION_SUM, &m));
  for (again = 0; again < 2; again++) {
    tfd_tensor *t = NULL;

    assert_int_equal(TFD_OK, tfd_mirrored_read(m, &t));
    assert_true(item(t, 3) == n * (n + 1) / 2);
    tfd_release((tfd_object *)t);
  }
  tfd_release((tfd_object *)m);
  for (i = 0; i < w->local; i++) tfd_release((tfd_object *)copies[i]);
}

static void reads_add_up_all_workers_copies(void **state) {
  (void)state;
  on_all_shapes(read_all);
}

/* --- what differs between workers ----------------------------------------- */

static void join_others(const worker *w) {
  int64_t dims[2] = {2, 2 + w->number};
  tfd_object *list[DEVICES];
  tfd_value *v = NULL;

  tensors(w, TFD_FLOAT32, dims, 2, list);
  assert_int_equal(TFD_INVALID_ARGUMENT,
                   tfd_strategy_gather(w->strategy, 0, "gather", list, w->local,
                                       w->strategy->devices, 1, 0, &v));
  assert_non_null(strstr(tfd_error_message(), "has float32 {2, 3}, replica 0 "
                                              "has float32 {2, 2}"));
  assert_null(v);
  release_all(list, w->local);
}

static void shapes_that_differ_are_told_to_all(void **state) {
  (void)state;
  with_workers(2, 2, join_others);
}

static void nothing_is_left(void **state) {
  (void)state;
  tfd__devices_finish();
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_GROUP));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_TENSOR));
  assert_int_equal(0, tfd_live_handles(TFD_HANDLE_BUFFER));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sums_are_over_all_workers),
      cmocka_unit_test(joins_are_of_all_workers),
      cmocka_unit_test(slices_are_joined_over_all_workers),
      cmocka_unit_test(updates_take_all_workers_gradients),
      cmocka_unit_test(parts_are_updated_and_gathered),
      cmocka_unit_test(parts_cover_variables),
      cmocka_unit_test(reads_add_up_all_workers_copies),
      cmocka_unit_test(shapes_that_differ_are_told_to_all),
      cmocka_unit_test(nothing_is_left),
  };

  configure("6", "queued");
  if (tfd__provider_register(&toy_provider) != TFD_OK) return 1;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
