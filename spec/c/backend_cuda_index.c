/* Ops of the CUDA back end whose indices choose rows: the CPU's bits. */
#include "backend_cuda.h"

#include "backend/lay.h"
#include "backend/update_list.h"

static void finish(example *e) {
  check(e);
  drop(e);
}

/* Indices [0, bound) from a formula, some of them often; below `low` rows are
** negative. */
static tfd__view indices_of(int dtype, int rank, const int64_t *dims, int bound,
                            int low) {
  tfd__view v = make(dtype, rank, dims, 1, 0, 0);

  for (int64_t i = 0; i < v.numel; i++) {
    double x = floor((value_at(i, 7) + 1) / 2.01 * (bound + low)) - low;

    tfd__store((char *)v.data + (size_t)i * tfd__dtype_size(dtype), dtype, x);
  }
  return v;
}

static const int wholes[] = {TFD_INT32, TFD_INT64};

/* --- read ----------------------------------------------------------------- */

static void test_reads(void **state) {
  static const named gather = K(gather, 1, 0);
  static const named gather_nd = K(gather_nd, 1, 0);
  static const named rows = K(segment_gather, 1, 0);

  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int batch = 0; batch < 3; batch++) {
      example e = {.id = gather.id,
                   .name = gather.name,
                   .in_n = 2,
                   .out_n = 1,
                   .ints_n = 11};

      e.ints[0] = 1;
      e.ints[1] = 1;
      e.ints[2] = 2;
      e.ints[2 + TFD_MAX_RANK] = batch;
      e.v[0] = make(numbers[d], DIMS(2, 3, 5, 4), 1, 1, 0);
      if (batch == 0) {
        e.v[1] = indices_of(wholes[d % 2], DIMS(7), 5, 0);
        e.v[2] = make(numbers[d], DIMS(2, 3, 7, 4), 2, 1, 0);
      } else if (batch == 1) {
        e.v[1] = indices_of(wholes[d % 2], DIMS(2, 7), 5, 0);
        e.v[2] = make(numbers[d], DIMS(2, 3, 7, 4), 2, 1, 0);
      } else {
        e.v[1] = indices_of(wholes[d % 2], DIMS(2, 3, 7), 5, 0);
        e.v[2] = make(numbers[d], DIMS(2, 3, 7, 4), 2, 1, 0);
      }
      finish(&e);
    }
    for (int batch = 0; batch < 2; batch++) {
      example e = {.id = gather_nd.id,
                   .name = gather_nd.name,
                   .in_n = 2,
                   .out_n = 1,
                   .ints = {batch},
                   .ints_n = 1};

      e.v[0] = make(numbers[d], DIMS(3, 4, 3, 2), 1, 1, 0);
      e.v[1] = indices_of(wholes[d % 2], DIMS(3, 9, 2), 3, 0);
      e.v[2] = batch == 0 ? make(numbers[d], DIMS(3, 9, 3, 2), 2, 1, 0)
                          : make(numbers[d], DIMS(3, 9, 2), 2, 1, 0);
      finish(&e);
    }
    {
      example e = {.id = rows.id, .name = rows.name, .in_n = 2, .out_n = 1};

      e.v[0] = make(numbers[d], DIMS(4, 5), 1, 1, 0);
      e.v[1] = indices_of(wholes[d % 2], DIMS(19), 4, 2);
      e.v[2] = make(numbers[d], DIMS(19, 5), 2, 1, 0);
      finish(&e);
    }
  }
}

/* --- joined --------------------------------------------------------------- */

static void test_updates(void **state) {
  static const named rows[] = {K(scatter_update, 1, 0), K(scatter_add, 1, 0),
                               K(scatter_sub, 1, 0),    K(scatter_mul, 1, 0),
                               K(scatter_min, 1, 0),    K(scatter_max, 1, 0),
                               K(scatter_div, 1, 2)};
  static const named nd[] = {
      K(tensor_scatter_nd_update, 1, 0), K(tensor_scatter_nd_add, 1, 0),
      K(tensor_scatter_nd_sub, 1, 0), K(tensor_scatter_nd_min, 1, 0),
      K(tensor_scatter_nd_max, 1, 0)};

  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    int dtype = numbers[d];

    for (int i = 0; i < COUNT(rows); i++) {
      example e = {
          .id = rows[i].id, .name = rows[i].name, .in_n = 3, .out_n = 1};

      if (rows[i].id == TFD_KERNEL_scatter_div && !tfd__is_float(dtype)) {
        continue;
      }
      e.v[0] = make(dtype, DIMS(21, 3), 1, 3, rows[i].shift);
      e.v[1] = indices_of(wholes[d % 2], DIMS(8, 5), 21, 0);
      e.v[2] = make(dtype, DIMS(8, 5, 3), 3, 1, rows[i].shift);
      e.v[3] = make(dtype, DIMS(21, 3), 2, 1, 0);
      finish(&e);
    }
    for (int i = 0; i < COUNT(nd); i++) {
      example e = {.id = nd[i].id, .name = nd[i].name, .in_n = 3, .out_n = 1};

      e.v[0] = make(dtype, DIMS(5, 6, 3), 1, 3, 0);
      e.v[1] = indices_of(wholes[d % 2], DIMS(70, 2), 5, 0);
      e.v[2] = make(dtype, DIMS(70, 3), 3, 1, 0);
      e.v[3] = make(dtype, DIMS(5, 6, 3), 2, 1, 0);
      finish(&e);
    }
  }
}

static void scatter(int dtype, int batch) {
  example e = {.id = TFD_KERNEL_scatter_nd,
               .name = "scatter_nd",
               .in_n = 2,
               .out_n = 1,
               .ints_n = TFD_ARRAY_LISTS(1) + 1};

  e.ints[TFD_ARRAY_LISTS(1)] = batch;
  e.v[0] = indices_of(wholes[dtype % 2], DIMS(3, 31, 2), 3, 0);
  e.v[1] = batch == 0 ? make(dtype, DIMS(3, 31, 4, 2), 2, 1, 0)
                      : make(dtype, DIMS(3, 31, 2), 2, 1, 0);
  e.v[2] = make(dtype, DIMS(3, 4, 4, 2), 3, 1, 0);
  finish(&e);
}

static void gather_grad(int dtype, int batch) {
  example e = {.id = TFD_KERNEL_gather_grad,
               .name = "gather_grad",
               .in_n = 2,
               .out_n = 1,
               .ints_n = TFD_ARRAY_LISTS(1) + 2};

  e.ints[TFD_ARRAY_LISTS(1)] = 2;
  e.ints[TFD_ARRAY_LISTS(1) + 1] = batch;
  e.v[0] = make(dtype, DIMS(2, 3, 14, 4), 1, 1, 0);
  e.v[1] = batch == 0   ? indices_of(wholes[dtype % 2], DIMS(14), 5, 0)
           : batch == 1 ? indices_of(wholes[dtype % 2], DIMS(2, 14), 5, 0)
                        : indices_of(wholes[dtype % 2], DIMS(2, 3, 14), 5, 0);
  e.v[2] = make(dtype, DIMS(2, 3, 5, 4), 3, 1, 0);
  finish(&e);
}

/* kind: -2 sum, -1 mean, else of segment_select. */
static void segment(int dtype, int kind, bool sorted) {
  static const named sum = K(segment_sum, 1, 0);
  static const named select = K(segment_select, 1, 0);
  const named *k = kind < 0 ? &sum : &select;
  example e = {
      .id = k->id, .name = k->name, .in_n = 2, .out_n = 1, .ints_n = 3};
  int64_t segments = 9;

  e.v[0] = make(dtype, DIMS(70, 3), 1, 1, 0);
  e.v[1] = indices_of(wholes[dtype % 2], DIMS(70), 7, sorted ? 0 : 2);
  if (sorted) { /* 0 0 .. 2 2 .. 8, without 1 and 5 */
    static const int ids[] = {0, 2, 3, 4, 6, 7, 8};

    for (int64_t i = 0; i < 70; i++) {
      tfd__store((char *)e.v[1].data +
                     (size_t)i * tfd__dtype_size(e.v[1].dtype),
                 e.v[1].dtype, ids[i / 10]);
    }
  }
  e.ints[0] = segments;
  e.ints[1] = kind < 0 ? kind == -1 : kind;
  e.ints[2] = sorted;
  e.v[2] = make(dtype, DIMS(segments, 3), 2, 1, 0);
  finish(&e);
}

static void test_sums(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int batch = 0; batch < 3; batch++) {
      if (batch < 2) scatter(numbers[d], batch);
      gather_grad(numbers[d], batch);
    }
    for (int kind = -2; kind < 3; kind++) {
      segment(numbers[d], kind, false);
      segment(numbers[d], kind, true);
    }
  }
  scatter(TFD_BOOL, 0);
}

/* --- optimizers on rows --------------------------------------------------- */

static void update(const named *rule, int dtype, double decay, bool in_place) {
  int targets = (int)rule->scale;
  example e = {.id = rule->id,
               .name = rule->name,
               .in_n = targets + 2,
               .out_n = targets,
               .reals = {decay, 0.1, 0.9, 0.99, 1e-3, 0.5, 0.3, 0.2},
               .reals_n = 8,
               .in_place = in_place,
               .tolerance =
                   dtype == TFD_FLOAT64 ? 1e-11 : tolerance_of(dtype) * 20};

  if (rule->id == TFD_KERNEL_update_ftrl) e.reals[2] = 0.5;
  for (int t = 0; t < targets; t++) {
    e.v[t] = make(dtype, DIMS(21, 7), t, 0.3, t == 0 ? 0 : 0.5);
    e.v[e.in_n + t] = make(dtype, DIMS(21, 7), t, 1, 0);
  }
  e.v[targets] = make(dtype, DIMS(4, 5, 7), 9, 0.3, 0.1);
  e.v[targets + 1] = indices_of(wholes[dtype % 2], DIMS(4, 5), 21, 0);
  finish(&e);
}

static void test_update_rows(void **state) {
#define RULE(rule, targets, rest) \
  {TFD_KERNEL_update_##rule, "update_" #rule, targets, 0},
  static const named rules[] = {TFD_UPDATE_RULES(RULE)};
#undef RULE
  (void)state;
  for (int d = 0; d < COUNT(floats); d++) {
    for (int i = 0; i < COUNT(rules); i++) {
      update(&rules[i], floats[d], 0, false);
      update(&rules[i], floats[d], 0.01, false);
      update(&rules[i], floats[d], 0, true);
    }
  }
}

/* --- counted and sorted --------------------------------------------------- */

static void count(int dtype, int weighted, bool binary, bool by_row) {
  int type = weighted ? dtype : wholes[0];
  example e = {.id = TFD_KERNEL_bincount,
               .name = "bincount",
               .in_n = 2,
               .out_n = 1,
               .ints = {9, TFD_INT32, binary, by_row},
               .ints_n = 4};

  e.v[0] = indices_of(wholes[dtype % 2], DIMS(5, 301), 11, 0);
  if (weighted) e.v[1] = make(dtype, DIMS(5, 301), 2, 1, 0);
  e.v[2] =
      by_row ? make(type, DIMS(5, 9), 3, 1, 0) : make(type, DIMS(9), 3, 1, 0);
  finish(&e);
}

static void where(int dtype) {
  example e = {.id = TFD_KERNEL_where_indices,
               .name = "where_indices",
               .in_n = 1,
               .out_n = 1,
               .ints_n = 1};
  int64_t n = 0;

  e.v[0] = make(dtype, DIMS(7, 5, 90), 1, 2, 0);
  for (int64_t i = 0; i < e.v[0].numel; i++) {
    char *at = (char *)e.v[0].data + (size_t)i * tfd__dtype_size(dtype);

    if (value_at(i, 5) > 0) tfd__store(at, dtype, 0);
    if (tfd__load(at, dtype) != 0) n++;
  }
  e.ints[0] = n;
  e.v[1] = make(TFD_INT64, DIMS(n, 3), 2, 1, 0);
  finish(&e);
}

static void invert(int dtype) {
  example e = {.id = TFD_KERNEL_invert_permutation,
               .name = "invert_permutation",
               .in_n = 1,
               .out_n = 1};

  e.v[0] = make(dtype, DIMS(5003), 1, 1, 0);
  e.v[1] = make(dtype, DIMS(5003), 2, 1, 0);
  for (int64_t i = 0; i < 5003; i++) { /* 5003 is a prime */
    tfd__store((char *)e.v[0].data + (size_t)i * tfd__dtype_size(dtype), dtype,
               (double)(i * 1234 % 5003));
  }
  finish(&e);
}

static void test_order(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int by_row = 0; by_row < 2; by_row++) {
      count(numbers[d], 1, false, by_row);
    }
    where(numbers[d]);
  }
  where(TFD_BOOL);
  for (int d = 0; d < COUNT(wholes); d++) {
    for (int by_row = 0; by_row < 2; by_row++) {
      count(wholes[d], 0, false, by_row);
      count(wholes[d], 0, true, by_row);
    }
    invert(wholes[d]);
  }
}

static void put(const tfd__call *given) {
  tfd__call call = *given;
  tfd__work work = {.call = &call};
  uint64_t seq = 0;

  call.replica = -1;
  assert_int_equal(gpu->submit(stream, &work, &seq), TFD_OK);
  assert_int_equal(work_rc, TFD_OK);
}

/* What is assigned behind a gather of what lies in v[0], and shows. */
static int assigned(tfd__view *v, const int32_t *given, int32_t *got) {
  int64_t ints[1] = {0};
  int32_t before[4] = {7, 7, 7, 7};
  tfd__call gather = {.name = "gather_nd",
                      .kernel = gpu->kernels[TFD_KERNEL_gather_nd],
                      .views = v,
                      .ints = ints,
                      .in_n = 2,
                      .out_n = 1,
                      .ints_n = 1};
  tfd__call assign = {.name = "assign",
                      .kernel = gpu->kernels[TFD_KERNEL_copy],
                      .views = v + 3,
                      .in_n = 1,
                      .out_n = 1,
                      .shows = true};
  uint64_t at = 0;

  copy_host(true, v[1].data, (void *)(uintptr_t)given, sizeof before);
  copy_host(true, v[4].data, before, sizeof before);
  put(&gather);
  put(&assign);
  copy_host(false, v[4].data, got, sizeof before);
  barrier_work();
  return gpu->failed(stream, &at);
}

/* A variable keeps its values behind an index that is refused, until that was
** told. */
static void test_refusals(void **state) {
  static const int32_t outside[4] = {0, 1, 2, 9};
  static const int32_t inside[4] = {0, 1, 2, 3};
  static const int32_t kept[4] = {7, 7, 7, 7};
  /* params, indices, what is gathered; value, variable */
  static const int dtypes[5] = {TFD_FLOAT32, TFD_INT32, TFD_FLOAT32, TFD_INT32,
                                TFD_INT32};
  static const int64_t dims[5][2] = {{3, 4}, {2, 2}, {2}, {2, 2}, {2, 2}};
  tfd__view v[5];
  int32_t got[4];
  void *memory = NULL;
  int i;

  (void)state;
  assert_int_equal(gpu->alloc(0, 4096, &memory), TFD_OK);
  for (i = 0; i < 5; i++) {
    assert_int_equal(tfd__view_set(&v[i], dtypes[i], dims[i], i == 2 ? 1 : 2),
                     TFD_OK);
    v[i].data = (char *)memory + 512 * (i == 3 ? 1 : i);
  }
  for (i = 0; i < 2; i++) {
    assert_int_equal(assigned(v, outside, got), TFD_INVALID_ARGUMENT);
    assert_memory_equal(got, kept, sizeof got);
    assert_int_equal(assigned(v, inside, got), TFD_OK);
    assert_memory_equal(got, inside, sizeof got);
  }
  gpu->free(0, memory, 0);
}

ON_GPU(test_reads)
ON_GPU(test_update_rows)
ON_GPU(test_order)
ON_GPU(test_updates)
ON_GPU(test_sums)
ON_GPU(test_refusals)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reads_gpu), cmocka_unit_test(test_updates_gpu),
      cmocka_unit_test(test_sums_gpu),  cmocka_unit_test(test_update_rows_gpu),
      cmocka_unit_test(test_order_gpu), cmocka_unit_test(test_refusals_gpu)};

  return cmocka_run_group_tests(tests, find_gpu, count_examples);
}
