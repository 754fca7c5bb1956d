/* Ops of the CUDA back end whose threads share a row: running sums, statistics,
** sorting; and what is computed as they are, special functions. */
#include "backend_cuda.h"

static example of(const named *k, int in_n, int out_n, int dtype) {
  example e = {.id = k->id,
               .name = k->name,
               .in_n = in_n,
               .out_n = out_n,
               .tolerance = tolerance_of(dtype) * 8};

  return e;
}

static void finish(example *e) {
  check(e);
  drop(e);
}

/* --- running sums --------------------------------------------------------- */

static void scan(const named *k, int dtype, int rank, const int64_t *dims,
                 int axis, bool exclusive, bool reverse) {
  example e = of(k, 1, 1, dtype);

  e.ints[0] = axis;
  e.ints[1] = exclusive;
  e.ints[2] = reverse;
  e.ints_n = 3;
  e.v[0] = make(dtype, rank, dims, 1, k->scale, k->shift);
  e.v[1] = make(dtype, rank, dims, 2, 1, 0);
  finish(&e);
}

static void test_scans(void **state) {
  static const named all[] = {K(cumsum, 1, 0.1), K(cumprod, 0.01, 1),
                              K(cumulative_logsumexp, 3, 0)};

  (void)state;
  for (int i = 0; i < COUNT(all); i++) {
    for (int d = 0; d < COUNT(numbers); d++) {
      if (i == 2 && !tfd__is_float(numbers[d])) continue;
      for (int way = 0; way < 4; way++) {
        scan(&all[i], numbers[d], DIMS(3, 17, 5), 1, way & 1, way & 2);
      }
      scan(&all[i], numbers[d], DIMS(2, 2305), -1, d % 2 != 0, d % 3 == 0);
    }
  }
}

/* --- statistics ----------------------------------------------------------- */

static void statistic(const named *k, int dtype, int to, int rank,
                      const int64_t *dims, unsigned axes) {
  example e = of(k, 1, 1, to);
  int64_t kept[8];
  int n = 0;

  e.ints_n = 10;
  for (int d = 0; d < rank; d++) {
    if (axes >> d & 1) {
      e.ints[1 + e.ints[0]++] = d;
    } else {
      kept[n++] = dims[d];
    }
  }
  e.v[0] = make(dtype, rank, dims, 1, k->scale, k->shift);
  e.v[1] = make(to, n, kept, 2, 1, 0);
  finish(&e);
}

static void test_statistics(void **state) {
  static const named all[] = {K(reduce_variance, 3, 1), K(reduce_std, 3, 1),
                              K(reduce_logsumexp, 3, 1),
                              K(euclidean_norm, 1, 0.1)};
  static const named count = K(count_nonzero, 1, 0);

  (void)state;
  for (int i = 0; i < COUNT(all); i++) {
    for (int d = 0; d < COUNT(floats); d++) {
      for (unsigned axes = 1; axes < 8; axes++) {
        statistic(&all[i], floats[d], floats[d], DIMS(5, 9, 30), axes);
      }
    }
    statistic(&all[i], TFD_FLOAT32, TFD_FLOAT32, DIMS(9007), 1);
    statistic(&all[i], TFD_FLOAT32, TFD_FLOAT32, DIMS(1030, 6), 1);
  }
  for (int d = 0; d < COUNT(numbers); d++) {
    statistic(&count, numbers[d], TFD_INT64, DIMS(5, 9, 30), 5);
    statistic(&count, numbers[d], TFD_INT64, DIMS(2, 700), 2);
    statistic(&count, numbers[d], TFD_INT64, DIMS(5, 9, 30), 3);
  }
  statistic(&count, TFD_BOOL, TFD_INT64, DIMS(5, 9, 30), 3);
}

/* --- order ---------------------------------------------------------------- */

static void sort(int dtype, int64_t rows, int64_t width, int kept,
                 bool descending) {
  static const named pairs = K(sort_pairs, 0.7, 0);
  static const named top = K(top_k, 0.7, 0);
  example e = of(kept < 0 ? &pairs : &top, 1, 2, dtype);
  int64_t n = kept < 0 ? width : kept;

  e.ints[0] = kept < 0 ? descending : kept;
  e.ints[1] = 1;
  e.ints_n = 2;
  e.tolerance = 0;
  e.v[0] = make(dtype, DIMS(rows, width), 1, 0.7, 0);
  e.v[1] = make(dtype, DIMS(rows, n), 2, 1, 0);
  e.v[2] = make(TFD_INT32, DIMS(rows, n), 2, 1, 0);
  finish(&e);
}

static void test_sorts(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    sort(numbers[d], 3, 37, -1, d % 2 != 0);
    sort(numbers[d], 2, 70, 5, true);
  }
  sort(TFD_FLOAT32, 1, 2100, -1, false);
}

static void test_searches(void **state) {
  static const named search = K(searchsorted, 1, 0);
  static const named in_top = K(in_top_k, 1, 0);

  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int right = 0; right < 2; right++) {
      example e = of(&search, 2, 1, TFD_INT32);
      int to = right ? TFD_INT64 : TFD_INT32;

      e.ints[0] = right;
      e.ints[1] = to;
      e.ints_n = 2;
      e.v[0] = make(numbers[d], DIMS(3, 40), 1, 1, 0);
      for (int64_t i = 0; i < 120; i++) {
        tfd__store((char *)e.v[0].data +
                       (size_t)i * tfd__dtype_size(numbers[d]),
                   numbers[d], (double)(i % 40 / 2));
      }
      e.v[1] = make(numbers[d], DIMS(3, 29), 2, 1, 0);
      for (int64_t i = 0; i < 87; i++) {
        tfd__store((char *)e.v[1].data +
                       (size_t)i * tfd__dtype_size(numbers[d]),
                   numbers[d], (double)(i * 7 % 23));
      }
      e.v[2] = make(to, DIMS(3, 29), 2, 1, 0);
      finish(&e);
    }
  }
  for (int d = 0; d < COUNT(floats); d++) {
    example e = of(&in_top, 2, 1, TFD_INT32);
    int wide = d % 2;

    e.ints[0] = 2;
    e.ints_n = 1;
    e.v[0] = make(wide ? TFD_INT64 : TFD_INT32, DIMS(50), 1, 0.3, 0.2);
    e.v[1] = make(floats[d], DIMS(50, 6), 2, 1, 0);
    e.v[2] = make(TFD_BOOL, DIMS(50), 2, 1, 0);
    finish(&e);
  }
}

/* --- special functions ---------------------------------------------------- */

static void test_special(void **state) {
  static const named unary[] = {K(erfinv, 0.9, 0), K(ndtri, 0.4, 0.5),
                                K(lgamma, 3, 0.3), K(digamma, 3, 0.3)};
  static const named binary[] = {K(zeta, 2, 4), K(igamma, 2, 3),
                                 K(igammac, 2, 3), K(nextafter, 2, 0)};

  (void)state;
  for (int d = 0; d < COUNT(floats); d++) {
    for (int i = 0; i < COUNT(unary) + COUNT(binary); i++) {
      int ins = i < COUNT(unary) ? 1 : 2;
      const named *k = ins == 1 ? &unary[i] : &binary[i - COUNT(unary)];
      example e = of(k, ins, 1, floats[d]);

      for (int n = 0; n < ins; n++) {
        e.v[n] = make(floats[d], DIMS(7, 11), n, k->scale, k->shift);
      }
      e.v[ins] = make(floats[d], DIMS(7, 11), 2, 1, 0);
      finish(&e);
    }
  }
}

static void test_polygamma(void **state) {
  static const named polygamma = K(polygamma, 2, 3);

  (void)state;
  for (int d = 0; d < COUNT(floats); d++) {
    example e = of(&polygamma, 2, 1, floats[d]);

    e.v[0] = make(floats[d], DIMS(7, 11), 1, 1, 0);
    for (int64_t i = 0; i < e.v[0].numel; i++) { /* orders are whole */
      tfd__store((char *)e.v[0].data + (size_t)i * tfd__dtype_size(floats[d]),
                 floats[d], (double)(i % 4));
    }
    e.v[1] = make(floats[d], DIMS(7, 11), 2, polygamma.scale, polygamma.shift);
    e.v[2] = make(floats[d], DIMS(7, 11), 2, 1, 0);
    finish(&e);
  }
}

ON_GPU(test_scans)
ON_GPU(test_statistics)
ON_GPU(test_sorts)
ON_GPU(test_searches)
ON_GPU(test_special)
ON_GPU(test_polygamma)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scans_gpu),   cmocka_unit_test(test_statistics_gpu),
      cmocka_unit_test(test_sorts_gpu),   cmocka_unit_test(test_searches_gpu),
      cmocka_unit_test(test_special_gpu), cmocka_unit_test(test_polygamma_gpu)};

  return cmocka_run_group_tests(tests, find_gpu, count_examples);
}
