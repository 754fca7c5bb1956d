/* Layer and group normalisation: statistics for each sample and group. */
#include "backend/cpu/nn/norm.h"

typedef tfd__norm_rows row_shape;

#define NORM_T float
#define NORM_ID(name) name##_f32
#include "backend/cpu/nn/rownorm_body.h"
#undef NORM_T
#undef NORM_ID

#define NORM_T double
#define NORM_ID(name) name##_f64
#include "backend/cpu/nn/rownorm_body.h"
#undef NORM_T
#undef NORM_ID

static int forward(const tfd__call *call, const row_shape *d) {
  if (tfd__in(call, 0)->numel == 0) return TFD_OK;
  return tfd__in(call, 0)->dtype == TFD_FLOAT64 ? row_forward_f64(call, d)
                                                : row_forward_f32(call, d);
}

static int backward(const tfd__call *call, const row_shape *d) {
  for (int i = 1; i < 3 && tfd__in(call, 0)->numel == 0; i++)
    memset(tfd__out(call, i)->data, 0, tfd__view_bytes(tfd__out(call, i)));
  if (tfd__in(call, 0)->numel == 0) return TFD_OK;
  return tfd__in(call, 0)->dtype == TFD_FLOAT64 ? row_backward_f64(call, d)
                                                : row_backward_f32(call, d);
}

/* Any operand in half precision sends the whole call through float32. */
static bool has_half(const tfd__call *call) {
  for (int i = 0; i < call->in_n; i++)
    if (tfd__is_half(call->views[i].dtype)) return true;
  return false;
}

int tfd__cpu_layer_normalization(const tfd__call *call) {
  row_shape d = tfd__layer_rows(tfd__in(call, 0), call->ints[0]);

  if (has_half(call)) return tfd__via_float(call, tfd__cpu_layer_normalization);
  return forward(call, &d);
}

int tfd__cpu_layer_normalization_grad(const tfd__call *call) {
  row_shape d = tfd__layer_rows(tfd__in(call, 0), call->ints[0]);

  if (has_half(call))
    return tfd__via_float(call, tfd__cpu_layer_normalization_grad);
  return backward(call, &d);
}

int tfd__cpu_group_normalization(const tfd__call *call) {
  row_shape d = tfd__group_rows(tfd__in(call, 0), call->ints[0], call->ints[1]);

  if (has_half(call)) return tfd__via_float(call, tfd__cpu_group_normalization);
  return forward(call, &d);
}

int tfd__cpu_group_normalization_grad(const tfd__call *call) {
  row_shape d = tfd__group_rows(tfd__in(call, 0), call->ints[0], call->ints[1]);

  if (has_half(call))
    return tfd__via_float(call, tfd__cpu_group_normalization_grad);
  return backward(call, &d);
}
