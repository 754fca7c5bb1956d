#include "backend/window.h"

#include <string.h>

int tfd__window_list(const char *name, const char *what, const int64_t *list,
                     int spatial, bool channels_first, int64_t *values) {
  int n = list == NULL ? -1 : (int)list[0];
  int first = channels_first ? 2 : 1;
  char text[TFD_SHAPE_TEXT];

  for (int i = 0; i < spatial; i++) {
    values[i] = n < 0 ? 1 : 0;
    if (n == 1) values[i] = list[1];
    if (n == spatial && n > 1) values[i] = list[1 + i];
    if (n == spatial + 2) values[i] = list[1 + first + i];
    if (n > 0 && (values[i] < 1 || values[i] > INT32_MAX))
      return tfd__fail(TFD_VALUE_ERROR,
                       "%s: %s is %s; expected positive 32-bit numbers, one, "
                       "%d (each spatial axis) or %d (each axis)",
                       name, what, tfd__dims_text(list + 1, n, text), spatial,
                       spatial + 2);
  }
  if (n == spatial + 2 && (list[1] != 1 || list[channels_first ? 2 : n] != 1))
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: %s is %s; expected 1 in the batch and channel "
                     "positions",
                     name, what, tfd__dims_text(list + 1, n, text));
  if (n == 0)
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: %s is empty; expected 1, %d or %d "
                     "numbers",
                     name, what, spatial, spatial + 2);
  return TFD_OK;
}

static int set_explicit(const char *name, const tfd__window_attrs *attrs,
                        tfd__window *w) {
  const int64_t *list = attrs->explicit_paddings;
  int n = list == NULL ? -1 : (int)list[0];
  char text[TFD_SHAPE_TEXT];
  int pad = 3 - w->spatial;

  if (n != 2 * w->spatial)
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: padding lists %d numbers; expected %d, low and high "
                     "for each spatial axis",
                     name, n < 0 ? 0 : n, 2 * w->spatial);
  for (int i = 0; i < w->spatial; i++) {
    w->low[pad + i] = list[1 + 2 * i];
    w->high[pad + i] = list[2 + 2 * i];
    if (w->low[pad + i] < 0 || w->high[pad + i] < 0 ||
        w->low[pad + i] > INT32_MAX || w->high[pad + i] > INT32_MAX)
      return tfd__fail(TFD_VALUE_ERROR,
                       "%s: padding is %s; expected 32-bit numbers of 0 or "
                       "more",
                       name, tfd__dims_text(list + 1, n, text));
  }
  return TFD_OK;
}

/* Output size and padding of one axis. */
static int set_axis(const char *name, int64_t padding, tfd__window *w,
                    int axis) {
  int64_t reach = 0;
  int64_t stride = w->stride[axis];
  int64_t in = w->in[axis];
  int64_t total = 0;

  if (in < 0 || w->kernel[axis] < 0) {
    w->out[axis] = -1;
    return TFD_OK;
  }
  /* Strides, dilations and padding have 32 bits: no sum below overflows. */
  if (w->kernel[axis] > INT32_MAX || in > INT64_MAX / 4)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: a window of %lld over an axis of %lld is too large",
                     name, (long long)w->kernel[axis], (long long)in);
  reach = (w->kernel[axis] - 1) * w->dilation[axis] + 1;
  if (padding == TFD_PADDING_SAME) {
    w->out[axis] = (in + stride - 1) / stride;
    total = (w->out[axis] - 1) * stride + reach - in;
    if (total < 0 || w->out[axis] == 0) total = 0;
    w->low[axis] = total / 2;
    w->high[axis] = total - total / 2;
    return TFD_OK;
  }
  in += w->low[axis] + w->high[axis];
  if (in - reach + stride < 0)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: a window of %lld does not fit an axis of %lld "
                     "(padding included); use padding \"SAME\" or a smaller "
                     "window",
                     name, (long long)reach, (long long)in);
  w->out[axis] = (in - reach + stride) / stride;
  return TFD_OK;
}

int tfd__window_of(const char *name, const tfd__view *input,
                   const int64_t *kernel, const tfd__window_attrs *attrs,
                   tfd__window *w) {
  int spatial = input->rank - 2;
  int first = attrs->channels_first ? 2 : 1;
  int pad = 3 - spatial;

  memset(w, 0, sizeof *w);
  w->spatial = spatial;
  w->channels_first = attrs->channels_first;
  w->batch = input->dims[0];
  w->channels = input->dims[attrs->channels_first ? 1 : input->rank - 1];
  w->filters = w->channels;
  w->groups = 1;
  for (int i = 0; i < pad; i++)
    w->in[i] = w->out[i] = w->kernel[i] = w->stride[i] = w->dilation[i] = 1;
  for (int i = 0; i < spatial; i++) {
    w->in[pad + i] = input->dims[first + i];
    w->kernel[pad + i] = kernel[i];
  }
  TFD_TRY(tfd__window_list(name, "strides", attrs->strides, spatial,
                           attrs->channels_first, w->stride + pad));
  TFD_TRY(tfd__window_list(name, "dilations", attrs->dilations, spatial,
                           attrs->channels_first, w->dilation + pad));
  if (attrs->padding == TFD_PADDING_EXPLICIT)
    TFD_TRY(set_explicit(name, attrs, w));
  for (int i = pad; i < 3; i++) TFD_TRY(set_axis(name, attrs->padding, w, i));
  return TFD_OK;
}

int tfd__window_of_filter(const char *name, const tfd__view *input,
                          const tfd__view *filter,
                          const tfd__window_attrs *attrs, tfd__window *w) {
  int64_t depth = filter->dims[filter->rank - 2];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  for (int i = 0; i < filter->rank - 2; i++)
    if (filter->dims[i] == 0)
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: filters is %s; expected positive window sizes",
                       name, tfd__shape_text(filter, b));
  TFD_TRY(tfd__window_of(name, input, filter->dims, attrs, w));
  w->filters = filter->dims[filter->rank - 1];
  if (depth < 0 || w->channels < 0 || w->filters < 0) return TFD_OK;
  w->groups = depth > 0 ? w->channels / depth : 1;
  if (depth < 1 || w->groups < 1 || depth * w->groups != w->channels ||
      w->filters % w->groups != 0)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: input is %s (%lld channels) and filters is %s; "
                     "expected filters of %lld input channels, or a divisor "
                     "whose quotient divides the %lld filters",
                     name, tfd__shape_text(input, a), (long long)w->channels,
                     tfd__shape_text(filter, b), (long long)w->channels,
                     (long long)w->filters);
  return TFD_OK;
}

int tfd__window_of_pool(const char *name, const tfd__view *input,
                        const int64_t *ints, tfd__window *w) {
  tfd__window_attrs attrs = tfd__pool_attrs(ints);
  int64_t kernel[3] = {1, 1, 1};

  TFD_TRY(tfd__window_list(name, "ksize", ints, input->rank - 2,
                           attrs.channels_first, kernel));
  return tfd__window_of(name, input, kernel, &attrs, w);
}

int tfd__window_out_dims(const tfd__window *w, int64_t dims[TFD_MAX_RANK]) {
  int pad = 3 - w->spatial;
  int first = w->channels_first ? 2 : 1;

  dims[0] = w->batch;
  dims[w->channels_first ? 1 : w->spatial + 1] = w->filters;
  for (int i = 0; i < w->spatial; i++) dims[first + i] = w->out[pad + i];
  return w->spatial + 2;
}
