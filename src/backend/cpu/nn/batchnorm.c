/* Batch normalisation, channels last or first. */
#include "backend/cpu/nn/norm.h"

#define NORM_T float
#define NORM_ID(name) name##_f32
#include "backend/cpu/nn/batchnorm_body.h"
#undef NORM_T
#undef NORM_ID

#define NORM_T double
#define NORM_ID(name) name##_f64
#include "backend/cpu/nn/batchnorm_body.h"
#undef NORM_T
#undef NORM_ID

int tfd__cpu_fused_batch_norm(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);
  norm_shape d = tfd__channels_of(x, (call->ints[0] & 1) != 0);

  if (tfd__is_half(x->dtype) || tfd__is_half(tfd__in(call, 1)->dtype))
    return tfd__via_float(call, tfd__cpu_fused_batch_norm);
  if (d.channels == 0) return TFD_OK;
  return x->dtype == TFD_FLOAT64 ? batch_forward_f64(call, &d)
                                 : batch_forward_f32(call, &d);
}

int tfd__cpu_fused_batch_norm_grad(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 1);
  norm_shape d = tfd__channels_of(x, (call->ints[0] & 1) != 0);

  if (tfd__is_half(x->dtype) || tfd__is_half(tfd__in(call, 2)->dtype))
    return tfd__via_float(call, tfd__cpu_fused_batch_norm_grad);
  if (x->numel == 0) {
    memset(tfd__out(call, 1)->data, 0, tfd__view_bytes(tfd__out(call, 1)));
    memset(tfd__out(call, 2)->data, 0, tfd__view_bytes(tfd__out(call, 2)));
    return TFD_OK;
  }
  return x->dtype == TFD_FLOAT64 ? batch_backward_f64(call, &d)
                                 : batch_backward_f32(call, &d);
}
