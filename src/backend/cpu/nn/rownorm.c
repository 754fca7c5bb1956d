/* Layer and group normalisation: statistics for each sample and group. */
#include "backend/cpu/nn/norm.h"

/* A row is one (sample, group): `segments` runs of `length` elements. */
typedef struct row_shape {
  int64_t samples;
  int64_t groups;
  int64_t segments;
  int64_t length;
  int64_t sample;       /* elements from sample to sample */
  int64_t group_step;   /* from group to group */
  int64_t segment_step; /* from run to run */
  int64_t width;        /* scale values of one group */
  bool per_segment;     /* one scale value for each run */
} row_shape;

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

/* Normalised over axes first .. rank - 1. */
static row_shape layer_shape(const tfd__view *x, int64_t first) {
  row_shape d = {.samples = 1, .groups = 1, .segments = 1, .length = 1};

  if (first < 0) first += x->rank;
  for (int i = 0; i < x->rank; i++)
    *(i < first ? &d.samples : &d.length) *= x->dims[i];
  d.sample = d.width = d.length;
  return d;
}

static row_shape group_shape(const tfd__view *x, int64_t groups, int64_t axis) {
  row_shape d = {.samples = x->dims[0], .groups = groups};
  int channel = (int)(axis < 0 ? axis + x->rank : axis);
  int64_t channels = x->dims[channel];
  int64_t space = 1;

  for (int i = 1; i < x->rank; i++)
    if (i != channel) space *= x->dims[i];
  d.width = channels / groups;
  d.sample = channels * space;
  d.per_segment = channel == 1 && x->rank > 2;
  d.segments = d.per_segment ? d.width : space;
  d.length = d.per_segment ? space : d.width;
  d.group_step = d.per_segment ? d.width * space : d.width;
  d.segment_step = d.per_segment ? space : channels;
  return d;
}

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
  row_shape d = layer_shape(tfd__in(call, 0), call->ints[0]);

  if (has_half(call)) return tfd__via_float(call, tfd__cpu_layer_normalization);
  return forward(call, &d);
}

int tfd__cpu_layer_normalization_grad(const tfd__call *call) {
  row_shape d = layer_shape(tfd__in(call, 0), call->ints[0]);

  if (has_half(call))
    return tfd__via_float(call, tfd__cpu_layer_normalization_grad);
  return backward(call, &d);
}

int tfd__cpu_group_normalization(const tfd__call *call) {
  row_shape d = group_shape(tfd__in(call, 0), call->ints[0], call->ints[1]);

  if (has_half(call)) return tfd__via_float(call, tfd__cpu_group_normalization);
  return forward(call, &d);
}

int tfd__cpu_group_normalization_grad(const tfd__call *call) {
  row_shape d = group_shape(tfd__in(call, 0), call->ints[0], call->ints[1]);

  if (has_half(call))
    return tfd__via_float(call, tfd__cpu_group_normalization_grad);
  return backward(call, &d);
}
