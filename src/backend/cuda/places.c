/* Host side of ops on elements by where they stand or which value they have. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/places_args.h"

/* ints: num_lower, num_upper. */
int tfd__cuda_matrix_band_part(const tfd__call *call) {
  static tfd__cuda_kernel by_size[9] = {[1] = {"places", "band_1", {0}},
                                        [2] = {"places", "band_2", {0}},
                                        [4] = {"places", "band_4", {0}},
                                        [8] = {"places", "band_8", {0}}};
  const tfd__view *in = tfd__in(call, 0);
  tfd_cu_band a = {.out = tfd__out(call, 0)->data,
                   .in = in->data,
                   .n = in->numel,
                   .rows = in->dims[in->rank - 2],
                   .columns = in->dims[in->rank - 1],
                   .lower = call->ints[0],
                   .upper = call->ints[1]};

  return tfd__cuda_launch(call, &by_size[tfd__dtype_size(in->dtype)],
                          tfd__cuda_blocks(call, a.n), &a, sizeof a);
}

/* ints: maxlen. */
int tfd__cuda_sequence_mask(const tfd__call *call) {
  static tfd__cuda_kernel kernel = {"places", "mask", {0}};
  const tfd__view *lengths = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  tfd_cu_mask a = {.out = out->data,
                   .lengths = lengths->data,
                   .n = out->numel,
                   .width = call->ints[0],
                   .dtype = out->dtype,
                   .wide = lengths->dtype == TFD_INT64};

  return tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, a.n), &a,
                          sizeof a);
}

int tfd__cuda_cross(const tfd__call *call) {
  static tfd__cuda_kernel kernel = {"places", "cross", {0}};
  const tfd__view *x = tfd__in(call, 0);
  tfd_cu_cross a = {.out = tfd__out(call, 0)->data,
                    .a = x->data,
                    .b = tfd__in(call, 1)->data,
                    .n = x->numel / 3,
                    .dtype = x->dtype};

  return tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, a.n), &a,
                          sizeof a);
}

/* --- counts --------------------------------------------------------------- */

static int negative(const char *name, int64_t at, int64_t value) {
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: arr holds %lld at position %lld; expected 0 or more",
                   name, (long long)value, (long long)at);
}

/* ints: size, dtype, binary_output, by_row. */
int tfd__cuda_bincount(const tfd__call *call) {
  static tfd__cuda_kernel keys = {"places", "bin_keys", {0}};
  static tfd__cuda_kernel bins = {"places", "bins", {0}};
  const tfd__view *arr = tfd__in(call, 0);
  const tfd__view *weights = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  tfd__cuda_refusal what = {.argument = "arr", .values = arr, .say = negative};
  tfd_cu_bins a = {.out = out->data,
                   .in = arr->data,
                   .n = arr->numel,
                   .width = call->ints[3] != 0 ? arr->dims[1] : arr->numel,
                   .size = call->ints[0],
                   .bins = out->numel,
                   .wide = arr->dtype == TFD_INT64,
                   .binary = call->ints[2] != 0,
                   .dtype = out->dtype};
  tfd__cuda_sorting o;
  int64_t *refused = NULL;

  if (tfd__has(call, 1)) {
    a.weights = weights->data;
    a.weights_dtype = weights->dtype;
  }
  TFD_TRY(tfd__cuda_error_words(call, &what, &a.error, &refused));
  TFD_TRY(tfd__cuda_sorting_new(call, 1, a.n, sizeof(uint32_t), &o));
  a.keys = o.keys;
  a.order = o.order;
  TFD_TRY(
      tfd__cuda_launch(call, &keys, tfd__cuda_blocks(call, a.n), &a, sizeof a));
  TFD_TRY(tfd__cuda_sort(call, &o, 0, tfd__cuda_bits(a.bins)));
  a.keys = o.keys;
  a.order = o.order;
  return tfd__cuda_launch(call, &bins, tfd__cuda_blocks(call, a.bins), &a,
                          sizeof a);
}

static int other_count(const char *name, int64_t at, int64_t value) {
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: count is %lld but %lld elements are true", name,
                   (long long)at, (long long)value);
}

/* Sorted by whether they are 0, positions of the others come first, in order.
** ints: count. */
int tfd__cuda_where_indices(const tfd__call *call) {
  static tfd__cuda_kernel keys = {"places", "truth_keys", {0}};
  static tfd__cuda_kernel kernel = {"places", "coordinates", {0}};
  const tfd__view *x = tfd__in(call, 0);
  tfd__cuda_refusal what = {
      .argument = "condition", .values = x, .say = other_count};
  tfd_cu_truths a = {.out = tfd__out(call, 0)->data,
                     .in = x->data,
                     .n = x->numel,
                     .count = call->ints[0],
                     .rank = x->rank,
                     .dtype = x->dtype};
  tfd__cuda_sorting o;
  int64_t *refused = NULL;

  memcpy(a.dims, x->dims, sizeof a.dims);
  TFD_TRY(tfd__cuda_error_words(call, &what, &a.error, &refused));
  TFD_TRY(tfd__cuda_sorting_new(call, 1, a.n, sizeof(uint32_t), &o));
  a.keys = o.keys;
  a.order = o.order;
  TFD_TRY(
      tfd__cuda_launch(call, &keys, tfd__cuda_blocks(call, a.n), &a, sizeof a));
  TFD_TRY(tfd__cuda_sort(call, &o, 0, 1));
  a.keys = o.keys;
  a.order = o.order;
  return tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, a.count + 1),
                          &a, sizeof a);
}
