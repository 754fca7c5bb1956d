/* Host side of ops that lay views next to each other, and of codes, ranges and
** identity matrices. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/lay.h"

int tfd__cuda_lay(const tfd__call *call, const tfd__view *to,
                  const tfd__view *from) {
  static tfd__cuda_kernel by_size[9] = {[1] = {"move", "lay_1", {0}},
                                        [2] = {"move", "lay_2", {0}},
                                        [4] = {"move", "lay_4", {0}},
                                        [8] = {"move", "lay_8", {0}}};
  const tfd__view *views[2] = {to, from};
  int64_t strides[2][TFD_MAX_RANK] = {{0}};
  tfd_cu_lay a;

  memset(&a, 0, sizeof a);
  a.out = to->data;
  a.in = from->data;
  a.n = to->numel;
  if (a.n == 0) return TFD_OK;
  a.rank = tfd__coalesce(views, 2, a.dims, strides);
  memcpy(a.out_strides, strides[0], sizeof a.out_strides);
  memcpy(a.in_strides, strides[1], sizeof a.in_strides);
  return tfd__cuda_launch(call, &by_size[tfd__dtype_size(to->dtype)],
                          tfd__cuda_blocks(call, a.n), &a, sizeof a);
}

static int join(const tfd__call *call, bool stacked) {
  int axis = (int)call->ints[0];

  if (axis < 0) axis += tfd__out(call, 0)->rank;
  return tfd__lay_join(call, axis, stacked, tfd__cuda_lay);
}

int tfd__cuda_concat(const tfd__call *call) {
  return join(call, false);
}

int tfd__cuda_stack(const tfd__call *call) {
  return join(call, true);
}

int tfd__cuda_tile(const tfd__call *call) {
  return tfd__lay_tile(call, tfd__cuda_lay);
}

int tfd__cuda_repeat(const tfd__call *call) {
  return tfd__lay_repeat(call, tfd__cuda_lay);
}

int tfd__cuda_pad(const tfd__call *call) {
  if (call->ints[TFD_ARRAY_LISTS(2)] == 0) {
    return tfd__cuda_pad_into(call, tfd__in(call, 0), tfd__out(call, 0),
                              call->ints + 1, call->reals[0]);
  }
  return tfd__lay_pad(call, tfd__cuda_lay);
}

int tfd__cuda_strided_slice_grad(const tfd__call *call) {
  TFD_TRY(tfd__cuda_fill_with(call, tfd__out(call, 0), 0));
  return tfd__lay_strided_slice_grad(call, tfd__cuda_lay);
}

int tfd__cuda_roll(const tfd__call *call) {
  return tfd__lay_roll(call, tfd__cuda_lay);
}

/* --- made from numbers ---------------------------------------------------- */

/* ints: depth, axis, dtype. reals: on, off. */
int tfd__cuda_one_hot(const tfd__call *call) {
  static tfd__cuda_kernel by_size[9] = {[1] = {"move", "one_hot_1", {0}},
                                        [2] = {"move", "one_hot_2", {0}},
                                        [4] = {"move", "one_hot_4", {0}},
                                        [8] = {"move", "one_hot_8", {0}}};
  const tfd__view *indices = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  int axis = call->ints[1] < 0 ? indices->rank : (int)call->ints[1];
  tfd_cu_one_hot a = {.out = out->data,
                      .index = indices->data,
                      .n = out->numel,
                      .depth = call->ints[0],
                      .inner = tfd__span(indices, axis, indices->rank),
                      .wide = indices->dtype == TFD_INT64};

  tfd__store(&a.on, out->dtype, call->reals[0]);
  tfd__store(&a.off, out->dtype, call->reals[1]);
  return tfd__cuda_launch(call, &by_size[tfd__dtype_size(out->dtype)],
                          tfd__cuda_blocks(call, a.n), &a, sizeof a);
}

/* reals: start, limit, delta. */
int tfd__cuda_range(const tfd__call *call) {
  static tfd__cuda_kernel kernel = {"move", "range", {0}};
  const tfd__view *out = tfd__out(call, 0);
  tfd_cu_range a = {.out = out->data,
                    .n = out->numel,
                    .start = call->reals[0],
                    .delta = call->reals[2],
                    .dtype = out->dtype};

  return tfd__cuda_launch(call, &kernel, tfd__cuda_blocks(call, a.n), &a,
                          sizeof a);
}

/* --- diagonals ------------------------------------------------------------ */

/* Diagonal k of the matrices in the last two axes. */
static tfd__view diagonal(const tfd__view *m, int64_t k, int64_t length) {
  tfd__view d = *m;
  int r = m->rank;
  int64_t skip = k > 0 ? k * m->strides[r - 1] : -k * m->strides[r - 2];

  d.data = (char *)m->data + skip * (int64_t)tfd__dtype_size(m->dtype);
  d.rank = (uint8_t)(r - 1);
  d.dims[r - 2] = length;
  d.strides[r - 2] = m->strides[r - 2] + m->strides[r - 1];
  tfd__view_refresh(&d);
  return d;
}

int tfd__cuda_eye(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  tfd__view ones = *out;
  tfd__view d;
  void *data = NULL;
  int r = out->rank;
  int64_t n =
      out->dims[r - 2] < out->dims[r - 1] ? out->dims[r - 2] : out->dims[r - 1];

  TFD_TRY(tfd__cuda_fill_with(call, out, 0));
  if (out->numel == 0) return TFD_OK;
  d = diagonal(out, 0, n);
  TFD_TRY(tfd__view_set(&ones, out->dtype, d.dims, d.rank));
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(&ones), &data));
  ones.data = data;
  TFD_TRY(tfd__cuda_fill_with(call, &ones, 1));
  return tfd__cuda_lay(call, &d, &ones);
}

/* ints: k, num_rows, num_cols. reals: padding. */
int tfd__cuda_matrix_diag(const tfd__call *call) {
  const tfd__view *in = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  tfd__view d;

  TFD_TRY(tfd__cuda_fill_with(call, out, call->reals[0]));
  if (out->numel == 0 || in->numel == 0) return TFD_OK;
  d = diagonal(out, call->ints[0], in->dims[in->rank - 1]);
  return tfd__cuda_lay(call, &d, in);
}

/* ints: k. */
int tfd__cuda_matrix_set_diag(const tfd__call *call) {
  const tfd__view *diag = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  tfd__view d;

  TFD_TRY(tfd__cuda_move(call, tfd__in(call, 0), out->data));
  if (diag->numel == 0) return TFD_OK;
  d = diagonal(out, call->ints[0], diag->dims[diag->rank - 1]);
  return tfd__cuda_lay(call, &d, diag);
}
