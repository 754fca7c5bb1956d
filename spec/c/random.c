/* Kernels that draw numbers: the same bits whatever the number of threads, and
** whatever lies behind a result's end is left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"

enum { LIST = 1 + TFD_MAX_RANK, GUARD = 64 };

static tfd__view view_of(int dtype, const int64_t *dims, int rank) {
  tfd__view v = {.data = NULL};

  assert_int_equal(TFD_OK, tfd__view_set(&v, dtype, dims, rank));
  v.data = malloc(tfd__view_bytes(&v) + GUARD);
  assert_non_null(v.data);
  memset(v.data, 0x5a, tfd__view_bytes(&v) + GUARD);
  return v;
}

static void check_guard(const tfd__view *v) {
  const unsigned char *end =
      (const unsigned char *)v->data + tfd__view_bytes(v);

  for (int i = 0; i < GUARD; i++) assert_int_equal(0x5a, end[i]);
}

/* Run with one and with three threads; both results must be equal. */
static void check_threads(tfd__kernel kernel, const tfd__view *in, int in_n,
                          int dtype, const int64_t *dims, int rank,
                          const int64_t *ints) {
  static const double reals[] = {-1, 2};
  int before = tfd__threads_get();
  tfd__view views[2][2];

  for (int k = 0; k < 2; k++) {
    tfd__call call = {.name = "spec",
                      .kernel = kernel,
                      .views = views[k],
                      .ints = ints,
                      .reals = reals,
                      .in_n = (int16_t)in_n,
                      .out_n = 1};

    if (in_n > 0) views[k][0] = *in;
    views[k][in_n] = view_of(dtype, dims, rank);
    tfd__threads_set(k == 0 ? 1 : 3);
    assert_int_equal(TFD_OK, kernel(&call));
    check_guard(&views[k][in_n]);
    tfd__scratch_reset();
  }
  assert_memory_equal(views[0][in_n].data, views[1][in_n].data,
                      tfd__view_bytes(&views[0][in_n]));
  free(views[0][in_n].data);
  free(views[1][in_n].data);
  tfd__threads_set(before);
}

static const int64_t sizes[] = {1, 2, 127, 128, 129, 256, 1000, 4099, 100003};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void floats_do_not_depend_on_threads(void **state) {
  static const tfd__kernel kernels[] = {tfd__cpu_stateless_uniform,
                                        tfd__cpu_stateless_normal,
                                        tfd__cpu_stateless_truncated_normal};
  const int64_t ints[LIST + 5] = {[LIST] = 1, 2, 3, 4};

  (void)state;
  for (int k = 0; k < 3; k++) {
    for (int dtype = TFD_FLOAT32; dtype <= TFD_BFLOAT16; dtype++) {
      for (int s = 0; s < SIZES; s++) {
        check_threads(kernels[k], NULL, 0, dtype, &sizes[s], 1, ints);
      }
    }
  }
}

static void integers_do_not_depend_on_threads(void **state) {
  const int64_t ints[LIST + 8] = {[LIST] = 1, 2, 3, 4, 5, 100};

  (void)state;
  for (int dtype = TFD_INT8; dtype <= TFD_UINT8; dtype++) {
    for (int s = 0; s < SIZES; s++) {
      check_threads(tfd__cpu_stateless_uniform_int, NULL, 0, dtype, &sizes[s],
                    1, ints);
    }
  }
}

static void categories_do_not_depend_on_threads(void **state) {
  const int64_t dims[] = {501, 40};
  const int64_t out_dims[] = {501, 9};
  const int64_t ints[] = {9, 1, 2, 3, 4, TFD_INT64};
  tfd__view logits = view_of(TFD_FLOAT32, dims, 2);

  (void)state;
  for (int64_t i = 0; i < logits.numel; i++) {
    ((float *)logits.data)[i] = (float)(i % 7);
  }
  check_threads(tfd__cpu_stateless_categorical, &logits, 1, TFD_INT64, out_dims,
                2, ints);
  free(logits.data);
}

static void shuffles_do_not_depend_on_threads(void **state) {
  const int64_t dims[] = {5000, 33};
  const int64_t ints[] = {1, 2, 3, 4};
  tfd__view x = view_of(TFD_INT16, dims, 2);

  (void)state;
  for (int64_t i = 0; i < x.numel; i++) {
    ((int16_t *)x.data)[i] = (int16_t)(i % 32768);
  }
  check_threads(tfd__cpu_stateless_shuffle, &x, 1, TFD_INT16, dims, 2, ints);
  free(x.data);
}

static void rejections_do_not_depend_on_threads(void **state) {
  const int64_t ints[LIST + 5] = {[LIST] = 1, 2, 3, 4};
  const int64_t dims[] = {2000, 5};
  tfd__view x = view_of(TFD_FLOAT32, dims + 1, 1);

  (void)state;
  for (int i = 0; i < 5; i++) ((float *)x.data)[i] = 0.5f + 7.0f * (float)i;
  check_threads(tfd__cpu_stateless_gamma, &x, 1, TFD_FLOAT32, dims, 2, ints);
  check_threads(tfd__cpu_stateless_poisson, &x, 1, TFD_INT64, dims, 2, ints);
  free(x.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(floats_do_not_depend_on_threads),
      cmocka_unit_test(integers_do_not_depend_on_threads),
      cmocka_unit_test(categories_do_not_depend_on_threads),
      cmocka_unit_test(shuffles_do_not_depend_on_threads),
      cmocka_unit_test(rejections_do_not_depend_on_threads),
  };

  return cmocka_run_group_tests_name("backend/cpu/random", tests, NULL, NULL);
}
