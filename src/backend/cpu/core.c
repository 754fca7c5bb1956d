/* Kernels the runtime itself needs. */
#include "backend/cpu/array.h"

int tfd__cpu_copy(const tfd__call *call) {
  tfd__copy_view(tfd__out(call, 0), tfd__in(call, 0));
  return TFD_OK;
}

int tfd__cpu_fill(const tfd__call *call) {
  tfd__fill_view(tfd__out(call, 0), call->reals[0]);
  return TFD_OK;
}
