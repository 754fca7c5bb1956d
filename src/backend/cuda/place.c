/* Where elementwise kernels find their elements. */
#include <string.h>

#include "backend/cuda/cuda.h"

static bool aligned(const void *data) {
  return ((uintptr_t)data & 15) == 0;
}

void tfd__cuda_place(const tfd__call *call, int ins, tfd__cuda_places *at) {
  const tfd__view *out = tfd__out(call, 0);
  tfd__view seen[TFD_CU_FUSED_INS];
  const tfd__view *views[TFD_CU_FUSED_INS + 1];
  int i;

  memset(at, 0, sizeof *at);
  for (i = 0; i < ins; i++) {
    seen[i] = tfd__broadcast_view(tfd__in(call, i), out->dims, out->rank);
    views[i] = &seen[i];
  }
  views[ins] = out;
  at->rank = tfd__coalesce(views, ins + 1, at->dims, at->strides);
  if (at->rank != 1) return;
  for (i = 0; i < ins; i++) {
    if (at->strides[i][0] != 0 && at->strides[i][0] != 1) return;
  }
  at->rank = 0;
  at->vector = 1;
  for (i = 0; i < call->out_n; i++) {
    if (!aligned(tfd__out(call, i)->data)) at->vector = 0;
  }
  for (i = 0; i < ins; i++) {
    if (at->strides[i][0] == 0 && out->numel > 1) {
      at->scalar |= 1 << i;
    } else if (!aligned(tfd__in(call, i)->data)) {
      at->vector = 0;
    }
  }
}
