/* Ops of the CUDA back end that lay views next to each other, that make tensors
** from numbers, and that draw them. */
#include "backend_cuda.h"

#include "backend/draw.h"
#include "backend/lay.h"

static const int any[] = {TFD_FLOAT32, TFD_FLOAT64, TFD_FLOAT16, TFD_INT8,
                          TFD_INT64,   TFD_UINT8,   TFD_BOOL};

/* A list attribute: the i-th. */
static void list(example *e, int i, int n, const int64_t *values) {
  int k;

  e->ints[TFD_ARRAY_LISTS(i)] = n;
  for (k = 0; k < n; k++) e->ints[TFD_ARRAY_LISTS(i) + 1 + k] = values[k];
}

/* Axes 0 and 1 exchanged: what is not dense. */
static void transpose(tfd__view *v) {
  int64_t size = v->dims[0];
  int64_t stride = v->strides[0];

  v->dims[0] = v->dims[1];
  v->strides[0] = v->strides[1];
  v->dims[1] = size;
  v->strides[1] = stride;
  tfd__view_refresh(v);
}

static example unary_of(tfd__kernel_id id, const char *name, tfd__view in,
                        int rank, const int64_t *out) {
  example e = {.id = id, .name = name, .in_n = 1, .out_n = 1, .ints_n = 50};

  e.v[0] = in;
  e.v[1] = make(in.dtype, rank, out, 2, 1, 0);
  return e;
}

static void finish(example *e) {
  check(e);
  drop(e);
}

static void test_join(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(any); d++) {
    for (int axis = -1; axis < 2; axis++) {
      example e = {.id = TFD_KERNEL_concat,
                   .name = "concat",
                   .in_n = 3,
                   .out_n = 1,
                   .ints = {axis},
                   .ints_n = 1};

      e.v[0] = make(any[d], DIMS(7, 5), 1, 3, 0);
      transpose(&e.v[0]); /* {5, 7} */
      if (axis == 0) {
        e.v[1] = make(any[d], DIMS(2, 7), 2, 3, 0);
        e.v[2] = make(any[d], DIMS(0, 7), 3, 3, 0);
        e.v[3] = make(any[d], DIMS(7, 7), 4, 3, 0);
      } else {
        e.v[1] = make(any[d], DIMS(5, 1), 2, 3, 0);
        e.v[2] = make(any[d], DIMS(5, 300), 3, 3, 0);
        e.v[3] = make(any[d], DIMS(5, 308), 4, 3, 0);
      }
      finish(&e);
      e = (example){.id = TFD_KERNEL_stack,
                    .name = "stack",
                    .in_n = 2,
                    .out_n = 1,
                    .ints = {axis},
                    .ints_n = 1};
      e.v[0] = make(any[d], DIMS(7, 5), 1, 3, 0);
      transpose(&e.v[0]);
      e.v[1] = make(any[d], DIMS(5, 7), 2, 3, 0);
      e.v[2] = axis == 0   ? make(any[d], DIMS(2, 5, 7), 3, 3, 0)
               : axis == 1 ? make(any[d], DIMS(5, 2, 7), 3, 3, 0)
                           : make(any[d], DIMS(5, 7, 2), 3, 3, 0);
      finish(&e);
    }
  }
}

static void test_lay(void **state) {
  static const int64_t none[] = {0, 0, 0};

  (void)state;
  for (int d = 0; d < COUNT(any); d++) {
    tfd__view x = make(any[d], DIMS(3, 5, 2), 1, 3, 0);
    example e = unary_of(TFD_KERNEL_tile, "tile", x, DIMS(6, 5, 14));

    list(&e, 0, 3, (int64_t[]){2, 1, 7});
    check(&e);
    e.id = TFD_KERNEL_repeat;
    e.name = "repeat";
    tfd__free(e.v[1].data);
    e.v[1] = make(any[d], DIMS(3, 20, 2), 2, 3, 0);
    e.ints[0] = 4;
    e.ints[1] = -2;
    check(&e);
    e.id = TFD_KERNEL_roll;
    e.name = "roll";
    tfd__free(e.v[1].data);
    e.v[1] = make(any[d], DIMS(3, 5, 2), 2, 3, 0);
    list(&e, 0, 2, (int64_t[]){-2, 4});
    list(&e, 1, 2, (int64_t[]){1, 0});
    check(&e);
    for (int mode = 0; mode < 3; mode++) {
      e.id = TFD_KERNEL_pad;
      e.name = "pad";
      tfd__free(e.v[1].data);
      e.v[1] = make(any[d], DIMS(5, 7, 3), 2, 3, 0);
      list(&e, 0, 3, (int64_t[]){0, 1, 1});
      list(&e, 1, 3, (int64_t[]){2, 1, 0});
      e.ints[TFD_ARRAY_LISTS(2)] = mode;
      e.reals[0] = 1;
      e.reals_n = 1;
      check(&e);
    }
    /* x[:, 3:0:-2, 1] came from {3, 4, 6}. */
    tfd__free(e.v[0].data);
    tfd__free(e.v[1].data);
    e = unary_of(TFD_KERNEL_strided_slice_grad, "strided_slice_grad",
                 make(any[d], DIMS(3, 2), 1, 3, 0), DIMS(3, 4, 6));
    list(&e, 0, 3, (int64_t[]){3, 4, 6});
    list(&e, 1, 3, (int64_t[]){0, 3, 1});
    list(&e, 2, 3, none);
    list(&e, 3, 3, (int64_t[]){1, -2, 1});
    e.ints[TFD_ARRAY_LISTS(4)] = 4;
    finish(&e);
  }
}

static void test_made(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int axis = -1; axis < 2; axis++) {
      int wide = d % 2;
      example e = {.id = TFD_KERNEL_one_hot,
                   .name = "one_hot",
                   .in_n = 1,
                   .out_n = 1,
                   .ints = {6, axis, numbers[d]},
                   .ints_n = 3,
                   .reals = {3, 1},
                   .reals_n = 2};

      /* Some lie outside. */
      e.v[0] = make(wide ? TFD_INT64 : TFD_INT32, DIMS(11, 3), 1, 0.4, 0.1);
      e.v[1] = axis == 0   ? make(numbers[d], DIMS(6, 11, 3), 2, 1, 0)
               : axis == 1 ? make(numbers[d], DIMS(11, 6, 3), 2, 1, 0)
                           : make(numbers[d], DIMS(11, 3, 6), 2, 1, 0);
      finish(&e);
    }
    {
      example e = {.id = TFD_KERNEL_range,
                   .name = "range",
                   .out_n = 1,
                   .reals = {-3, 60, 0.7},
                   .reals_n = 3};

      if (!tfd__is_float(numbers[d])) e.reals[2] = 2;
      if (numbers[d] == TFD_UINT8) e.reals[0] = 1;
      e.v[0] = make(numbers[d], DIMS(31), 1, 1, 0);
      finish(&e);
      e = (example){.id = TFD_KERNEL_eye, .name = "eye", .out_n = 1};
      e.v[0] = make(numbers[d], DIMS(2, 5, 7), 1, 1, 0);
      finish(&e);
    }
  }
  {
    example e = unary_of(TFD_KERNEL_logical_not, "logical_not",
                         make(TFD_BOOL, DIMS(9, 31), 1, 1, 0), DIMS(31, 9));

    transpose(&e.v[0]);
    finish(&e);
  }
}

static example draw_of(tfd__kernel_id id, const char *name, int dtype) {
  example e = {.id = id,
               .name = name,
               .out_n = 1,
               .ints_n = TFD_LIST_AFTER + TFD_STREAM_SLOTS,
               .reals = {-1.5, 2.25},
               .reals_n = 2};

  for (int i = 0; i < TFD_STREAM_SLOTS; i++) e.ints[TFD_LIST_AFTER + i] = 7 + i;
  e.v[0] = make(dtype, DIMS(7, 1001), 1, 1, 0);
  return e;
}

static void test_draw(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    example e =
        draw_of(TFD_KERNEL_stateless_uniform, "stateless_uniform", floats[d]);

    finish(&e); /* the same bits */
    e = draw_of(TFD_KERNEL_stateless_normal, "stateless_normal", floats[d]);
    e.tolerance = tolerance_of(floats[d]);
    finish(&e);
    e = draw_of(TFD_KERNEL_stateless_truncated_normal,
                "stateless_truncated_normal", floats[d]);
    e.tolerance = tolerance_of(floats[d]);
    finish(&e);
  }
  for (int d = 4; d < COUNT(numbers); d++) {
    for (int whole = 0; whole < 2; whole++) {
      example e = draw_of(TFD_KERNEL_stateless_uniform_int,
                          "stateless_uniform_int", numbers[d]);
      int64_t *ints = e.ints + e.ints_n;

      ints[0] = numbers[d] == TFD_UINT8 ? 3 : -100;
      ints[1] = 101;
      ints[2] = whole;
      e.ints_n += 3;
      finish(&e);
    }
  }
}

static void test_diagonals(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(any); d++) {
    for (int k = -1; k < 2; k++) {
      int64_t rows = k < 0 ? 5 : 4;
      int64_t columns = k > 0 ? 5 : 4;
      example e = {.id = TFD_KERNEL_matrix_diag,
                   .name = "matrix_diag",
                   .in_n = 1,
                   .out_n = 1,
                   .ints = {k},
                   .ints_n = 3,
                   .reals = {1},
                   .reals_n = 1};

      e.v[0] = make(any[d], DIMS(3, 4), 1, 3, 0);
      e.v[1] = make(any[d], DIMS(3, rows, columns), 2, 1, 0);
      finish(&e);
      e.id = TFD_KERNEL_matrix_set_diag;
      e.name = "matrix_set_diag";
      e.in_n = 2;
      e.v[0] = make(any[d], DIMS(3, rows, columns), 1, 3, 0);
      e.v[1] = make(any[d], DIMS(3, 4), 2, 3, 0);
      e.v[2] = make(any[d], DIMS(3, rows, columns), 3, 1, 0);
      finish(&e);
    }
  }
}

static void test_bands(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(any); d++) {
    for (int lower = -1; lower < 4; lower++) {
      example e = {.id = TFD_KERNEL_matrix_band_part,
                   .name = "matrix_band_part",
                   .in_n = 1,
                   .out_n = 1,
                   .ints = {lower, 2 - lower},
                   .ints_n = 2};

      e.v[0] = make(any[d], DIMS(3, 13, 7), 1, 3, 0);
      e.v[1] = make(any[d], DIMS(3, 13, 7), 2, 1, 0);
      finish(&e);
    }
    {
      example e = {.id = TFD_KERNEL_sequence_mask,
                   .name = "sequence_mask",
                   .in_n = 1,
                   .out_n = 1,
                   .ints = {9},
                   .ints_n = 2};

      e.v[0] = make(d % 2 ? TFD_INT32 : TFD_INT64, DIMS(4, 50), 1, 1, 0);
      e.v[1] = make(any[d], DIMS(4, 50, 9), 2, 1, 0);
      finish(&e);
    }
  }
  for (int d = 0; d < COUNT(numbers); d++) {
    example e = {
        .id = TFD_KERNEL_cross, .name = "cross", .in_n = 2, .out_n = 1};

    e.v[0] = make(numbers[d], DIMS(50, 3), 1, 3, 0);
    e.v[1] = make(numbers[d], DIMS(50, 3), 2, 3, 0);
    e.v[2] = make(numbers[d], DIMS(50, 3), 3, 1, 0);
    finish(&e);
  }
}

/* --- by lot --------------------------------------------------------------- */

static void classes(int dtype, int64_t n) {
  example e = {.id = TFD_KERNEL_stateless_categorical,
               .name = "stateless_categorical",
               .in_n = 1,
               .out_n = 1,
               .ints = {50, 7, 8, 9, 10},
               .ints_n = 6};

  e.v[0] = make(dtype, DIMS(11, n), 1, 5, 0);
  if (n > 5) { /* no weight */
    tfd__store(e.v[0].data, dtype, -(double)INFINITY);
    tfd__store((char *)e.v[0].data + 3 * tfd__dtype_size(dtype), dtype,
               (double)NAN);
  }
  e.v[1] =
      make(dtype == TFD_FLOAT32 ? TFD_INT32 : TFD_INT64, DIMS(11, 50), 2, 1, 0);
  finish(&e);
}

static void shuffle(int dtype, int rank, const int64_t *dims) {
  example e = {.id = TFD_KERNEL_stateless_shuffle,
               .name = "stateless_shuffle",
               .in_n = 1,
               .out_n = 1,
               .ints = {7, 8, 9, 10},
               .ints_n = 4};

  e.v[0] = make(dtype, rank, dims, 1, 3, 0);
  e.v[1] = make(dtype, rank, dims, 2, 1, 0);
  finish(&e);
}

/* Parameters from `low` to `high`, one for each column. */
static void tries(const named *k, int dtype, int to, double low, double high) {
  example e = draw_of(k->id, k->name, to);

  e.in_n = 1;
  e.v[1] = e.v[0];
  e.v[0] = make(dtype, DIMS(1001), 3, (high - low) / 2, (high + low) / 2);
  e.tolerance = tolerance_of(to);
  finish(&e);
}

static void test_lots(void **state) {
  static const named gamma = K(stateless_gamma, 1, 0);
  static const named poisson = K(stateless_poisson, 1, 0);

  (void)state;
  for (int d = 0; d < COUNT(floats); d++) {
    classes(floats[d], 5);
    classes(floats[d], 1003);
    tries(&gamma, floats[d], floats[d], 0, 3);
    tries(&poisson, floats[d], floats[d], 0, 30);
    tries(&poisson, floats[d], TFD_INT32, 100, 200);
  }
  for (int d = 0; d < COUNT(any); d++) {
    shuffle(any[d], DIMS(4096));
    shuffle(any[d], DIMS(13, 2, 3));
    shuffle(any[d], DIMS(1));
  }
}

ON_GPU(test_join)
ON_GPU(test_bands)
ON_GPU(test_lots)
ON_GPU(test_diagonals)
ON_GPU(test_lay)
ON_GPU(test_made)
ON_GPU(test_draw)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_join_gpu),  cmocka_unit_test(test_diagonals_gpu),
      cmocka_unit_test(test_bands_gpu), cmocka_unit_test(test_lots_gpu),
      cmocka_unit_test(test_lay_gpu),   cmocka_unit_test(test_made_gpu),
      cmocka_unit_test(test_draw_gpu)};

  return cmocka_run_group_tests(tests, find_gpu, count_examples);
}
