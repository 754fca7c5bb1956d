/* Host side of running sums. */
#include "backend/cuda/cuda.h"
#include "backend/lay.h"

enum {
  LONG = 2048,  /* elements of a line that are worth a block */
  LINES = 16384 /* threads that keep a GPU busy */
};

/* ints: axis, exclusive, reverse. */
static int scan(const tfd__call *call, int op) {
  static tfd__cuda_kernels threads = {TFD_CUDA_FLOATS("scan", "scan_threads"),
                                      TFD_CUDA_INTS("scan", "scan_threads")};
  static tfd__cuda_kernels blocks = {TFD_CUDA_FLOATS("scan", "scan_blocks"),
                                     TFD_CUDA_INTS("scan", "scan_blocks")};
  const tfd__view *in = tfd__in(call, 0);
  int axis =
      (int)(call->ints[0] < 0 ? call->ints[0] + in->rank : call->ints[0]);
  tfd_cu_scan a = {.out = tfd__out(call, 0)->data,
                   .in = in->data,
                   .op = op,
                   .exclusive = call->ints[1] != 0,
                   .reverse = call->ints[2] != 0};

  if (in->numel == 0) return TFD_OK;
  a.length = in->dims[axis];
  a.inner = tfd__span(in, axis + 1, in->rank);
  a.lines = in->numel / a.length;
  if (a.length >= LONG && a.lines < LINES) {
    return tfd__cuda_launch(call, &blocks[in->dtype], a.lines, &a, sizeof a);
  }
  return tfd__cuda_launch(call, &threads[in->dtype],
                          tfd__cuda_blocks(call, a.lines), &a, sizeof a);
}

int tfd__cuda_cumsum(const tfd__call *call) {
  return scan(call, TFD_CU_SCAN_SUM);
}

int tfd__cuda_cumprod(const tfd__call *call) {
  return scan(call, TFD_CU_SCAN_PRODUCT);
}

int tfd__cuda_cumulative_logsumexp(const tfd__call *call) {
  return scan(call, TFD_CU_SCAN_LOG);
}
