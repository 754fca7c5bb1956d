/* Normalisation of the CUDA back end. */
#include "backend_cuda.h"

/* What statistics of such elements are kept in. */
static int statistics_of(int dtype) {
  return dtype == TFD_FLOAT64 ? TFD_FLOAT64 : TFD_FLOAT32;
}

static void redo(tfd__view *v, int dtype, int rank, const int64_t *dims,
                 int seed, double scale, double shift) {
  *v = make(dtype, rank, dims, seed, scale, shift);
}

/* --- batches -------------------------------------------------------------- */

static void batch(int dtype, int small, int rank, const int64_t *dims,
                  bool first, bool training, double factor) {
  int64_t channels = dims[first ? 1 : rank - 1];
  example e = {.id = TFD_KERNEL_fused_batch_norm,
               .name = "fused_batch_norm",
               .in_n = 5,
               .out_n = 4,
               .ints = {first, training, 1},
               .ints_n = 3,
               .reals = {1e-3, factor},
               .reals_n = 2,
               .tolerance = tolerance_of(dtype) * 8};
  int stat = statistics_of(dtype);
  int i;

  redo(&e.v[0], dtype, rank, dims, 1, 2, 0.5);
  redo(&e.v[1], small, DIMS(channels), 2, 0.5, 1);
  redo(&e.v[2], small, DIMS(channels), 3, 1, 0);
  redo(&e.v[3], small, DIMS(channels), 4, 1, 0);
  redo(&e.v[4], small, DIMS(channels), 5, 0.5, 1);
  redo(&e.v[5], dtype, rank, dims, 1, 2, 0.5);
  for (i = 6; i < 8; i++) redo(&e.v[i], small, DIMS(channels), 2, 1, 0);
  redo(&e.v[8], stat, DIMS(2, channels), 2, 1, 0);
  check(&e);
  drop(&e);
  memset(&e.v, 0, sizeof e.v);
  e.id = TFD_KERNEL_fused_batch_norm_grad;
  e.name = "fused_batch_norm_grad";
  e.in_n = 4;
  e.out_n = 3;
  redo(&e.v[0], dtype, rank, dims, 6, 2, 0.1);
  redo(&e.v[1], dtype, rank, dims, 1, 2, 0.5);
  redo(&e.v[2], small, DIMS(channels), 2, 0.5, 1);
  redo(&e.v[3], stat, DIMS(2, channels), 5, 0.5, 1);
  redo(&e.v[4], dtype, rank, dims, 1, 2, 0.5);
  for (i = 5; i < 7; i++) redo(&e.v[i], small, DIMS(channels), 2, 1, 0);
  e.tolerance *= 4;
  check(&e);
  drop(&e);
}

static void test_batch(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    int dtype = floats[d];
    int small = statistics_of(dtype);

    for (int training = 0; training < 2; training++) {
      batch(dtype, small, DIMS(7, 5, 3, 33), false, training, 1);
      batch(dtype, small, DIMS(3, 5, 6, 7), true, training, 0.25);
    }
    batch(dtype, dtype, DIMS(2500, 3), false, true, 0.5);
    batch(dtype, dtype, DIMS(2, 1, 4096), true, true, 1);
    batch(dtype, dtype, DIMS(1, 1), false, true, 1);
  }
  batch(TFD_FLOAT32, TFD_FLOAT32, DIMS(0, 4), false, true, 1);
}

/* --- layers and groups ---------------------------------------------------- */

static void rows(int dtype, int small, int rank, const int64_t *dims,
                 bool layer, const int64_t *ints, bool weights) {
  example e = {.id = layer ? TFD_KERNEL_layer_normalization
                           : TFD_KERNEL_group_normalization,
               .name = layer ? "layer_normalization" : "group_normalization",
               .in_n = 3,
               .out_n = 3,
               .ints = {ints[0], ints[1]},
               .ints_n = layer ? 1 : 2,
               .reals = {1e-3},
               .reals_n = 1,
               .tolerance = tolerance_of(dtype) * 8};
  int stat = statistics_of(dtype);
  int first = (int)ints[0];
  int channel = (int)(ints[1] < 0 ? ints[1] + rank : ints[1]);
  int64_t row_dims[2] = {dims[0], ints[0]};
  int kept = layer ? first : 2;
  const int64_t *kept_dims = layer ? dims : row_dims;
  int scale_rank = layer ? rank - first : 1;
  const int64_t *scale_dims = layer ? dims + first : dims + channel;

  redo(&e.v[0], dtype, rank, dims, 1, 2, 0.5);
  if (weights) {
    redo(&e.v[1], small, scale_rank, scale_dims, 2, 0.5, 1);
    redo(&e.v[2], small, scale_rank, scale_dims, 3, 1, 0);
  }
  redo(&e.v[3], dtype, rank, dims, 1, 2, 0.5);
  redo(&e.v[4], stat, kept, kept_dims, 1, 1, 0);
  redo(&e.v[5], stat, kept, kept_dims, 1, 1, 0);
  check(&e);
  drop(&e);
  memset(&e.v, 0, sizeof e.v);
  e.id = layer ? TFD_KERNEL_layer_normalization_grad
               : TFD_KERNEL_group_normalization_grad;
  e.name = layer ? "layer_normalization_grad" : "group_normalization_grad";
  e.in_n = 5;
  redo(&e.v[0], dtype, rank, dims, 6, 2, 0.1);
  redo(&e.v[1], dtype, rank, dims, 1, 2, 0.5);
  redo(&e.v[2], stat, kept, kept_dims, 2, 0.5, 0.5);
  redo(&e.v[3], stat, kept, kept_dims, 3, 0.5, 1);
  if (weights) redo(&e.v[4], small, scale_rank, scale_dims, 2, 0.5, 1);
  redo(&e.v[5], dtype, rank, dims, 1, 2, 0.5);
  redo(&e.v[6], small, scale_rank, scale_dims, 2, 0.5, 1);
  redo(&e.v[7], small, scale_rank, scale_dims, 2, 0.5, 1);
  e.tolerance *= 8;
  check(&e);
  drop(&e);
}

static void test_layers(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    int dtype = floats[d];
    int small = statistics_of(dtype);

    rows(dtype, small, DIMS(9, 65), true, (int64_t[]){1, 0}, true);
    rows(dtype, dtype, DIMS(3, 2, 2500), true, (int64_t[]){2, 0}, true);
    rows(dtype, dtype, DIMS(5, 3, 7), true, (int64_t[]){1, 0}, false);
  }
}

static void test_groups(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    int dtype = floats[d];
    int small = statistics_of(dtype);

    rows(dtype, small, DIMS(3, 5, 4, 12), false, (int64_t[]){3, -1}, true);
    rows(dtype, dtype, DIMS(2, 6, 5, 4), false, (int64_t[]){2, 1}, true);
    rows(dtype, dtype, DIMS(2, 4, 700), false, (int64_t[]){1, 1}, false);
    rows(dtype, dtype, DIMS(4, 8), false, (int64_t[]){8, 1}, true);
  }
}

ON_GPU(test_batch)
ON_GPU(test_layers)
ON_GPU(test_groups)

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_batch_gpu),
                                     cmocka_unit_test(test_layers_gpu),
                                     cmocka_unit_test(test_groups_gpu)};

  return cmocka_run_group_tests(tests, find_gpu, count_examples);
}
