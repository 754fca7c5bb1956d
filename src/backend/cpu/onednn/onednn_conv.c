#include <string.h>

#include "backend/cpu/onednn/onednn.h"

/* Kinds of plans start at 16 here; the direction is added. */
enum { PLAN_CONV = 16 };

typedef struct conv_spec {
  const tfd__window *w;
  tfd__dnnl_conv kind;
  int dtype;
} conv_spec;

/* Geometry in oneDNN's terms: N C [D] H W and [G] O I [D] H W. */
typedef struct conv_shape {
  int dtype;
  int axes;  /* spatial ones: 2 or 3 */
  int first; /* the first of the window's three that is used */
  dnnl_memory_desc_t x;
  dnnl_memory_desc_t filter;
  dnnl_memory_desc_t y;
  dnnl_memory_desc_t any_x;
  dnnl_memory_desc_t any_filter;
  dnnl_memory_desc_t any_y;
} conv_shape;

/* A tensor {batch, channels, spatial...} in the caller's layout. */
static bool describe_data(const conv_shape *shape, const tfd__window *w,
                          const int64_t *space, int64_t channels,
                          dnnl_memory_desc_t *md, dnnl_memory_desc_t *any) {
  int64_t dims[5] = {w->batch, channels};
  int64_t strides[5] = {0};
  int64_t step = w->channels_first ? 1 : channels;

  for (int i = shape->axes - 1; i >= 0; i--) {
    dims[2 + i] = space[shape->first + i];
    strides[2 + i] = step;
    step *= dims[2 + i];
  }
  strides[1] = w->channels_first ? step : 1;
  strides[0] = w->channels_first ? step * channels : step;
  return tfd__dnnl_md(md, shape->dtype, shape->axes + 2, dims, strides) &&
         tfd__dnnl_md_any(any, shape->dtype, shape->axes + 2, dims);
}

/* {kernel..., channels / groups, filters}, all filters of a group together. */
static bool describe_filter(conv_shape *shape, const tfd__window *w) {
  int64_t depth = w->channels / w->groups;
  int64_t width = w->filters / w->groups;
  int g = w->groups > 1 ? 1 : 0;
  int64_t dims[6] = {w->groups};
  int64_t strides[6] = {width};
  int64_t step = depth * w->filters;

  dims[g] = width;
  strides[g] = 1;
  dims[g + 1] = depth;
  strides[g + 1] = w->filters;
  for (int i = shape->axes - 1; i >= 0; i--) {
    dims[g + 2 + i] = w->kernel[shape->first + i];
    strides[g + 2 + i] = step;
    step *= dims[g + 2 + i];
  }
  return tfd__dnnl_md(&shape->filter, shape->dtype, g + 2 + shape->axes, dims,
                      strides) &&
         tfd__dnnl_md_any(&shape->any_filter, shape->dtype, g + 2 + shape->axes,
                          dims);
}

static bool describe(const tfd__window *w, conv_shape *shape) {
  shape->axes = w->spatial == 3 ? 3 : 2;
  shape->first = 3 - shape->axes;
  return describe_data(shape, w, w->in, w->channels, &shape->x,
                       &shape->any_x) &&
         describe_data(shape, w, w->out, w->filters, &shape->y,
                       &shape->any_y) &&
         describe_filter(shape, w);
}

/* oneDNN counts the gaps of a dilation. */
typedef struct conv_steps {
  dnnl_dims_t stride;
  dnnl_dims_t dilation;
  dnnl_dims_t low;
  dnnl_dims_t high;
} conv_steps;

static void set_steps(const conv_shape *shape, const tfd__window *w,
                      conv_steps *s) {
  memset(s, 0, sizeof *s);
  for (int i = 0; i < shape->axes; i++) {
    int axis = shape->first + i;

    s->stride[i] = w->stride[axis];
    s->dilation[i] = w->dilation[axis] - 1;
    s->low[i] = w->low[axis];
    s->high[i] = w->high[axis];
  }
}

static bool init_forward(const conv_steps *s, const conv_shape *shape,
                         const dnnl_memory_desc_t *x,
                         const dnnl_memory_desc_t *y,
                         dnnl_convolution_desc_t *desc) {
  return dnnl_dilated_convolution_forward_desc_init(
             desc, dnnl_forward_training, dnnl_convolution_direct, x,
             &shape->any_filter, NULL, y, s->stride, s->dilation, s->low,
             s->high) == dnnl_success;
}

static bool init_backward(tfd__dnnl_conv kind, const conv_steps *s,
                          const conv_shape *shape, const dnnl_memory_desc_t *x,
                          const dnnl_memory_desc_t *y,
                          dnnl_convolution_desc_t *desc) {
  if (kind == TFD_DNNL_CONV_INPUT)
    return dnnl_dilated_convolution_backward_data_desc_init(
               desc, dnnl_convolution_direct, x, &shape->any_filter, y,
               s->stride, s->dilation, s->low, s->high) == dnnl_success;
  return dnnl_dilated_convolution_backward_weights_desc_init(
             desc, dnnl_convolution_direct, x, &shape->any_filter, NULL, y,
             s->stride, s->dilation, s->low, s->high) == dnnl_success;
}

/* The library's first choice for channels last works on blocks of 16 input
** channels; with fewer the older kernels are 1.2 to 2 times faster. */
static const char *preferred(const tfd__window *w) {
  return w->channels / w->groups < 16 ? "jit:" : NULL;
}

/* One attempt with the given layouts of x and y; the filter's is oneDNN's
** choice always, it is small. */
static bool attempt(tfd__dnnl_plan *plan, const conv_spec *spec,
                    const conv_steps *steps, const conv_shape *shape,
                    const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *y) {
  static const int names[3][3] = {
      {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
      {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
      {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  tfd__dnnl_conv kind = spec->kind;
  const int *exec = names[kind];
  tfd__dnnl_arg args[3] = {
      {exec[0], 0, kind == TFD_DNNL_CONV_INPUT, &shape->x},
      {exec[1], 1, kind == TFD_DNNL_CONV_FILTER, &shape->filter},
      {exec[2], 2, kind == TFD_DNNL_CONV_FORWARD, &shape->y}};
  dnnl_convolution_desc_t forward;
  dnnl_convolution_desc_t backward;
  dnnl_primitive_desc_t hint = NULL;
  bool ok = false;

  if (!init_forward(steps, shape, x, y, &forward)) return false;
  if (kind == TFD_DNNL_CONV_FORWARD)
    return tfd__dnnl_add(plan, &forward, NULL, args, 3, preferred(spec->w));
  if (!init_backward(kind, steps, shape, x, y, &backward)) return false;
  hint = tfd__dnnl_describe(&forward, NULL);
  if (hint == NULL) return false;
  ok = tfd__dnnl_add(plan, &backward, hint, args, 3, NULL);
  dnnl_primitive_desc_destroy(hint);
  return ok;
}

static bool build(tfd__dnnl_plan *plan, const void *arg) {
  const conv_spec *spec = arg;
  conv_shape shape;
  conv_steps steps;

  shape.dtype = spec->dtype;
  if (!describe(spec->w, &shape)) return false;
  set_steps(&shape, spec->w, &steps);
  /* Channels last runs as it lies at a small cost; channels first gains from
  ** blocked copies. Either falls back to the other before our own loops. */
  if (!spec->w->channels_first &&
      attempt(plan, spec, &steps, &shape, &shape.x, &shape.y))
    return true;
  if (attempt(plan, spec, &steps, &shape, &shape.any_x, &shape.any_y))
    return true;
  return spec->w->channels_first &&
         attempt(plan, spec, &steps, &shape, &shape.x, &shape.y);
}

#define SHARED_CONVOLUTION (1 << 18) /* multiply-adds */

static int64_t convolution_size(const tfd__window *w) {
  int64_t n = w->batch * w->filters * (w->channels / w->groups);

  for (int i = 0; i < 3; i++) n *= w->out[i] * w->kernel[i];
  return n;
}

static bool run(const char *name, const conv_spec *spec, void *const *data,
                int *rc_p) {
  const tfd__window *w = spec->w;
  tfd__dnnl_key key;
  tfd__dnnl_plan *plan = NULL;

  tfd__dnnl_key_start(&key, PLAN_CONV + (int64_t)spec->kind);
  tfd__dnnl_key_add(&key, spec->dtype);
  tfd__dnnl_key_add(&key, w->spatial * 2 + w->channels_first);
  tfd__dnnl_key_add(&key, w->batch);
  tfd__dnnl_key_add(&key, w->channels);
  tfd__dnnl_key_add(&key, w->filters);
  tfd__dnnl_key_add(&key, w->groups);
  for (int i = 0; i < 3; i++) {
    tfd__dnnl_key_add(&key, w->in[i]);
    tfd__dnnl_key_add(&key, w->out[i]);
    tfd__dnnl_key_add(&key, w->kernel[i]);
    tfd__dnnl_key_add(&key, w->stride[i]);
    tfd__dnnl_key_add(&key, w->dilation[i]);
    tfd__dnnl_key_add(&key, w->low[i]);
  }
  plan = tfd__dnnl_plan_for(&key, build, spec, rc_p);
  if (plan == NULL) return *rc_p != TFD_OK;
  *rc_p = tfd__dnnl_run(plan, name, data);
  return true;
}

bool tfd__dnnl_convolve(const char *name, tfd__dnnl_conv kind, int dtype,
                        const tfd__window *w, void *x, void *filter, void *y,
                        int *rc_p) {
  conv_spec spec = {w, kind, dtype};
  int threads = tfd__dnnl_begin_alone(convolution_size(w), SHARED_CONVOLUTION);
  bool found = run(name, &spec, (void *[]){x, filter, y}, rc_p);

  tfd__dnnl_end_alone(threads);
  return found;
}
