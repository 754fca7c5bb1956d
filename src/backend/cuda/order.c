/* Host side of sorting and searching. */
#include <string.h>

#include "backend/cuda/cuda.h"

enum { MOST_BLOCKS = 1 << 16 };

static int64_t at_most(int64_t blocks) {
  return blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
}

static size_t rounded(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

int tfd__cuda_sorting_new(const tfd__call *call, int64_t rows, int64_t width,
                          size_t key, tfd__cuda_sorting *o) {
  int64_t tiles = (width + TFD_CU_TILE - 1) / TFD_CU_TILE;
  size_t keys = rounded((size_t)(rows * width) * key);
  size_t order = rounded((size_t)(rows * width) * sizeof(uint32_t));
  size_t counts = (size_t)(rows * tiles * TFD_CU_DIGITS) * sizeof(uint32_t);
  void *data = NULL;
  char *p = NULL;

  TFD_TRY(tfd__cuda_scratch(call, 2 * keys + 2 * order + counts, &data));
  p = data;
  o->keys = p;
  o->spare_keys = p + keys;
  o->order = (uint32_t *)(void *)(p + 2 * keys);
  o->spare_order = (uint32_t *)(void *)(p + 2 * keys + order);
  o->counts = (uint32_t *)(void *)(p + 2 * keys + 2 * order);
  o->rows = rows;
  o->width = width;
  o->tiles = tiles;
  o->key = key;
  return TFD_OK;
}

static int pass(const tfd__call *call, const tfd__cuda_sorting *o, int shift) {
  static tfd__cuda_kernel count[2] = {{"order", "radix_count_4", {0}},
                                      {"order", "radix_count_8", {0}}};
  static tfd__cuda_kernel begin = {"order", "radix_begin", {0}};
  static tfd__cuda_kernel place[2] = {{"order", "radix_place_4", {0}},
                                      {"order", "radix_place_8", {0}}};
  int64_t tasks = at_most(o->rows * o->tiles);
  tfd_cu_radix a = {.keys = o->keys,
                    .order = o->order,
                    .keys_out = o->spare_keys,
                    .order_out = o->spare_order,
                    .counts = o->counts,
                    .rows = o->rows,
                    .width = o->width,
                    .tiles = o->tiles,
                    .shift = shift};
  bool wide = o->key == sizeof(uint64_t);

  TFD_TRY(tfd__cuda_launch(call, &count[wide], tasks, &a, sizeof a));
  TFD_TRY(tfd__cuda_launch(call, &begin, at_most(o->rows), &a, sizeof a));
  return tfd__cuda_launch(call, &place[wide], tasks, &a, sizeof a);
}

int tfd__cuda_sort(const tfd__call *call, tfd__cuda_sorting *o, int first,
                   int bits) {
  int shift;

  if (o->width < 2) return TFD_OK;
  for (shift = first; shift < bits; shift += 4) {
    void *keys = o->keys;
    uint32_t *order = o->order;

    TFD_TRY(pass(call, o, shift));
    o->keys = o->spare_keys;
    o->order = o->spare_order;
    o->spare_keys = keys;
    o->spare_order = order;
  }
  return TFD_OK;
}

/* --- rows ----------------------------------------------------------------- */

/* The lowest bit of the keys that differs, of types whose float has zeros
** below, or that are narrower. */
static int first_bit(int dtype) {
  return dtype == TFD_BFLOAT16 ? 16 : dtype == TFD_FLOAT16 ? 12 : 0;
}

static int sort_rows(const tfd__call *call, bool descending) {
  static tfd__cuda_kernel make[2] = {{"order", "keys_4", {0}},
                                     {"order", "keys_8", {0}}};
  static tfd__cuda_kernel take[9] = {[1] = {"order", "take_1", {0}},
                                     [2] = {"order", "take_2", {0}},
                                     [4] = {"order", "take_4", {0}},
                                     [8] = {"order", "take_8", {0}}};
  const tfd__view *in = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  size_t size = tfd__dtype_size(in->dtype);
  size_t key = size == 8 ? sizeof(uint64_t) : sizeof(uint32_t);
  int64_t width = in->rank == 0 ? 1 : in->dims[in->rank - 1];
  tfd__cuda_sorting o;

  if (out->numel == 0) return TFD_OK;
  TFD_TRY(tfd__cuda_sorting_new(call, in->numel / width, width, key, &o));
  {
    tfd_cu_keys a = {.keys = o.keys,
                     .order = o.order,
                     .in = in->data,
                     .n = in->numel,
                     .width = width,
                     .dtype = in->dtype,
                     .descending = descending};

    TFD_TRY(tfd__cuda_launch(call, &make[key == sizeof(uint64_t)],
                             tfd__cuda_blocks(call, a.n), &a, sizeof a));
  }
  TFD_TRY(tfd__cuda_sort(call, &o, first_bit(in->dtype), (int)(8 * key)));
  {
    tfd_cu_take a = {.out = out->data,
                     .positions = tfd__out(call, 1)->data,
                     .in = in->data,
                     .order = o.order,
                     .rows = o.rows,
                     .width = width,
                     .kept = out->numel / o.rows};

    return tfd__cuda_launch(call, &take[size],
                            tfd__cuda_blocks(call, out->numel), &a, sizeof a);
  }
}

/* ints: direction (0 ascending, 1 descending). */
int tfd__cuda_sort_pairs(const tfd__call *call) {
  return sort_rows(call, call->ints[0] == 1);
}

int tfd__cuda_top_k(const tfd__call *call) {
  return sort_rows(call, true);
}

/* ints: side (0 left, 1 right), out_type. */
int tfd__cuda_searchsorted(const tfd__call *call) {
  static tfd__cuda_kernel kernel = {"order", "search", {0}};
  const tfd__view *sequence = tfd__in(call, 0);
  const tfd__view *values = tfd__in(call, 1);
  tfd_cu_search a = {.out = tfd__out(call, 0)->data,
                     .sequence = sequence->data,
                     .values = values->data,
                     .n = values->numel,
                     .each = values->dims[values->rank - 1],
                     .width = sequence->dims[sequence->rank - 1],
                     .dtype = sequence->dtype,
                     .out_dtype = tfd__out(call, 0)->dtype,
                     .right = call->ints[0] == 1};

  return tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, a.n), &a,
                          sizeof a);
}

/* ints: k. */
int tfd__cuda_in_top_k(const tfd__call *call) {
  static tfd__cuda_kernel kernel = {"order", "in_top_k", {0}};
  const tfd__view *targets = tfd__in(call, 0);
  const tfd__view *x = tfd__in(call, 1);
  tfd_cu_top a = {.out = tfd__out(call, 0)->data,
                  .in = x->data,
                  .targets = targets->data,
                  .rows = targets->numel,
                  .classes = x->dims[1],
                  .k = call->ints[0],
                  .dtype = x->dtype,
                  .wide = targets->dtype == TFD_INT64};

  return tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, a.rows), &a,
                          sizeof a);
}
