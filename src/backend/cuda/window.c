/* Host side of pooling that cuDNN does not do: three spatial axes, padding that
** differs at the ends, integers, positions of the maxima. */
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/window_args.h"
#include "backend/window.h"

static int32_t lesser(int64_t x, int64_t y) {
  return (int32_t)(x < y ? x : y);
}

static int geometry(const tfd__call *call, const tfd__view *input, int op,
                    tfd_cu_pool *a) {
  tfd__window w;
  int i;

  TFD_TRY(tfd__window_of_pool(call->name, input, call->ints, &w));
  a->op = op;
  a->channels = w.channels_first ? 1 : (int32_t)w.channels;
  for (i = 0; i < 3; i++) {
    a->in[i] = (int32_t)w.in[i];
    a->outs[i] = (int32_t)w.out[i];
    a->kernel[i] = lesser(w.kernel[i], w.in[i] + w.low[i]);
    a->stride[i] = lesser(w.stride[i], INT32_MAX);
    a->low[i] = (int32_t)w.low[i];
  }
  return TFD_OK;
}

static int launch(const tfd__call *call, tfd_cu_pool *a) {
  static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("window", "pool"),
                                      TFD_CUDA_INTS("window", "pool")};

  return tfd__cuda_launch(call, &kernels[tfd__in(call, 0)->dtype],
                          tfd__cuda_blocks(call, a->n), a, sizeof *a);
}

int tfd__cuda_windows(const tfd__call *call, int op) {
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  tfd_cu_pool a = {.x = x->data, .out = out->data, .n = out->numel};

  if (out->numel == 0) return TFD_OK;
  if (x->numel == 0) return tfd__cuda_zeros_like(call);
  TFD_TRY(geometry(call, x, op, &a));
  if (op == TFD_CU_POOL_PICK) {
    a.y = tfd__in(call, 1)->data;
    a.dy = tfd__in(call, 2)->data;
  }
  if (op == TFD_CU_POOL_PLACE) {
    a.places = tfd__out(call, 1)->data;
    a.wide = tfd__out(call, 1)->dtype == TFD_INT64;
    a.whole_batch = call->ints[30] != 0;
  }
  return launch(call, &a);
}

int tfd__cuda_windows_grad(const tfd__call *call, int op) {
  static tfd__cuda_kernels max = {TFD_CUDA_FLOATS("window", "max_grad")};
  static tfd__cuda_kernels avg = {TFD_CUDA_FLOATS("window", "avg_grad")};
  const tfd__view *dy = tfd__in(call, call->in_n - 1);
  const tfd__view *dx = tfd__out(call, 0);
  tfd_cu_pool a = {.out = dx->data, .dy = dy->data};

  if (dx->numel == 0) return TFD_OK;
  if (dy->numel == 0) return tfd__cuda_zeros_like(call);
  if (op == TFD_CU_POOL_MAX) {
    TFD_TRY(geometry(call, dx, TFD_CU_POOL_FIND, &a));
    TFD_TRY(tfd__cuda_scratch(call, (size_t)dy->numel * sizeof(int32_t),
                              &a.places));
    a.x = tfd__in(call, 0)->data;
    a.y = tfd__in(call, 1)->data;
  } else {
    TFD_TRY(geometry(call, dx, TFD_CU_POOL_SHARE, &a));
    TFD_TRY(
        tfd__cuda_scratch(call, (size_t)dy->numel * sizeof(double), &a.shares));
  }
  a.n = dy->numel;
  TFD_TRY(launch(call, &a));
  a.op = op;
  a.n = dx->numel;
  return tfd__cuda_launch(call, &(op == TFD_CU_POOL_MAX ? max : avg)[dx->dtype],
                          tfd__cuda_blocks(call, a.n), &a, sizeof a);
}

int tfd__cuda_max_pool_with_argmax(const tfd__call *call) {
  return tfd__cuda_windows(call, TFD_CU_POOL_PLACE);
}

int tfd__cuda_max_pool_grad_grad(const tfd__call *call) {
  return tfd__cuda_windows(call, TFD_CU_POOL_PICK);
}
