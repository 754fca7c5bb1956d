/* Host side of copies, conversions, fills, and of what is put together from
** them: zeros, ones, joined and stacked tensors. */
#include <string.h>

#include "backend/cuda/cuda.h"

static void place(const tfd__view *from, tfd_cu_move *a) {
  const tfd__view *views[1] = {from};
  int64_t strides[1][TFD_MAX_RANK] = {{0}};

  a->in = from->data;
  a->n = from->numel;
  a->rank = tfd__coalesce(views, 1, a->dims, strides);
  memcpy(a->strides, strides[0], sizeof a->strides);
  if (a->rank == 1 && a->strides[0] == 1) a->rank = 0;
}

static int launch(const tfd__call *call, tfd__cuda_kernel *k, tfd_cu_move *a) {
  return tfd__cuda_launch(call, k, tfd__cuda_blocks(call, a->n), a, sizeof *a);
}

static int move(const tfd__call *call, const tfd__view *from, void *to,
                const uint64_t *stop) {
  static tfd__cuda_kernel by_size[9] = {[1] = {"move", "copy_1", {0}},
                                        [2] = {"move", "copy_2", {0}},
                                        [4] = {"move", "copy_4", {0}},
                                        [8] = {"move", "copy_8", {0}}};
  tfd_cu_move a;

  memset(&a, 0, sizeof a);
  place(from, &a);
  a.out = to;
  a.stop = stop;
  if (a.rank == 0 && a.n > 0 && stop == NULL) {
    return tfd__cuda_check(tfd__cu.cuMemcpyDtoDAsync(
                               (CUdeviceptr)(uintptr_t)to,
                               (CUdeviceptr)(uintptr_t)from->data,
                               tfd__view_bytes(from), tfd__cuda_stream(call)),
                           call->name);
  }
  return launch(call, &by_size[tfd__dtype_size(from->dtype)], &a);
}

int tfd__cuda_move(const tfd__call *call, const tfd__view *from, void *to) {
  return move(call, from, to, NULL);
}

int tfd__cuda_dense(const tfd__call *call, const tfd__view *from,
                    tfd__view *to) {
  void *data = NULL;

  *to = *from;
  if (from->dense) return TFD_OK;
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(from), &data));
  TFD_TRY(tfd__cuda_move(call, from, data));
  to->data = data;
  return tfd__view_set(to, from->dtype, from->dims, from->rank);
}

int tfd__cuda_copy(const tfd__call *call) {
  const uint64_t *stop = NULL;

  TFD_TRY(tfd__cuda_stop(call, &stop));
  return move(call, tfd__in(call, 0), tfd__out(call, 0)->data, stop);
}

int tfd__cuda_cast(const tfd__call *call) {
  static tfd__cuda_kernels cast = {
      TFD_CUDA_FLOATS("move", "cast"),
      TFD_CUDA_INTS("move", "cast"), [TFD_BOOL] = {"move", "cast_u8", {0}}};
  const tfd__view *in = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  tfd_cu_move a;

  if (in->dtype == out->dtype) return tfd__cuda_copy(call);
  memset(&a, 0, sizeof a);
  place(in, &a);
  a.out = out->data;
  a.from = in->dtype;
  a.to = out->dtype;
  return launch(call, &cast[in->dtype], &a);
}

int tfd__cuda_fill_with(const tfd__call *call, const tfd__view *out,
                        double value) {
  static tfd__cuda_kernel kernel = {"move", "fill", {0}};
  tfd_cu_move a;

  memset(&a, 0, sizeof a);
  a.out = out->data;
  a.n = out->numel;
  a.to = out->dtype;
  a.value = value;
  return launch(call, &kernel, &a);
}

int tfd__cuda_fill(const tfd__call *call) {
  return tfd__cuda_fill_with(call, tfd__out(call, 0), call->reals[0]);
}

int tfd__cuda_zeros_like(const tfd__call *call) {
  return tfd__cuda_fill_with(call, tfd__out(call, 0), 0);
}

int tfd__cuda_ones_like(const tfd__call *call) {
  return tfd__cuda_fill_with(call, tfd__out(call, 0), 1);
}

/* --- padding -------------------------------------------------------------- */

int tfd__cuda_pad_into(const tfd__call *call, const tfd__view *from,
                       const tfd__view *to, const int64_t *before,
                       double value) {
  static tfd__cuda_kernel by_size[9] = {[1] = {"move", "pad_1", {0}},
                                        [2] = {"move", "pad_2", {0}},
                                        [4] = {"move", "pad_4", {0}},
                                        [8] = {"move", "pad_8", {0}}};
  tfd_cu_pad a;
  int d;

  memset(&a, 0, sizeof a);
  a.out = to->data;
  a.in = from->data;
  a.value = value;
  a.n = to->numel;
  a.dtype = to->dtype;
  a.rank = to->rank;
  for (d = 0; d < to->rank; d++) {
    a.out_dims[d] = to->dims[d];
    a.in_dims[d] = from->dims[d];
    a.in_strides[d] = from->strides[d];
    a.before[d] = before[d];
  }
  return tfd__cuda_launch(call, &by_size[tfd__dtype_size(to->dtype)],
                          tfd__cuda_blocks(call, a.n), &a, sizeof a);
}
