#ifndef TFD_BACKEND_WINDOW_H
#define TFD_BACKEND_WINDOW_H
/* L2 backend: the geometry of convolutions and pooling, computed once for
** inference and kernels of every back end. One to three spatial axes; missing
** leading ones have size 1, so that loops need one form only. May include
** base, types. Specs: spec/c/backend. */

#include "types/types.h"

enum { TFD_PADDING_VALID = 0, TFD_PADDING_SAME, TFD_PADDING_EXPLICIT };

/* Attributes as ops carry them; lists point at their count slot. */
typedef struct tfd__window_attrs {
  const int64_t *strides;
  const int64_t *dilations;         /* NULL or count -1: all 1 */
  const int64_t *explicit_paddings; /* low, high for each spatial axis */
  int64_t padding;                  /* TFD_PADDING_... */
  bool channels_first;
} tfd__window_attrs;

typedef struct tfd__window {
  int spatial; /* axes the caller's tensors have, 1 to 3 */
  bool channels_first;
  int64_t batch;
  int64_t channels; /* of the input */
  int64_t filters;  /* channels of the output; pooling: = channels */
  int64_t groups;
  int64_t in[3];
  int64_t out[3];
  int64_t kernel[3];
  int64_t stride[3];
  int64_t dilation[3];
  int64_t low[3]; /* padding */
  int64_t high[3];
} tfd__window;

/* Sizes may be unknown (-1) for inference: those of the output that follow from
** them are, and padding along such axes is 0. */

/* Geometry of a window of kernel[spatial] sliding over `input`; filters and
** groups are those of pooling.
** Errors: InvalidArgument (rank, sizes), ValueError (attributes). */
int tfd__window_of(const char *name, const tfd__view *input,
                   const int64_t *kernel, const tfd__window_attrs *attrs,
                   tfd__window *w);

/* The same for a convolution with `filter` {kernel..., channels / groups,
** filters}; sets filters and groups. */
int tfd__window_of_filter(const char *name, const tfd__view *input,
                          const tfd__view *filter,
                          const tfd__window_attrs *attrs, tfd__window *w);

/* A list attribute with one value for each spatial axis: given as one value,
** one for each axis, or one for each axis of the tensor. */
int tfd__window_list(const char *name, const char *what, const int64_t *list,
                     int spatial, bool channels_first, int64_t *values);

/* Dims of the output; returns the rank. */
int tfd__window_out_dims(const tfd__window *w, int64_t dims[TFD_MAX_RANK]);

/* Attributes of the ops, by their slots in nn.def:
** conv*      strides padding data_format dilations explicit_paddings
** *pool*     ksize strides padding data_format explicit_paddings */
static inline tfd__window_attrs tfd__conv_attrs(const int64_t *ints) {
  tfd__window_attrs a = {ints, ints + 11, ints + 20, ints[9],
                         (ints[10] & 1) != 0};

  return a;
}
static inline tfd__window_attrs tfd__pool_attrs(const int64_t *ints) {
  tfd__window_attrs a = {ints + 9, NULL, ints + 20, ints[18],
                         (ints[19] & 1) != 0};

  return a;
}
/* Geometry of a pooling op from its attributes. */
int tfd__window_of_pool(const char *name, const tfd__view *input,
                        const int64_t *ints, tfd__window *w);

/* Walks the taps of one output position that lie inside the input. */
typedef struct tfd__taps {
  int64_t origin[3];
  int64_t begin[3];
  int64_t end[3];
  int64_t at[3];
} tfd__taps;

/* Start at output position o; false when every tap is in the padding. */
static inline bool tfd__taps_start(const tfd__window *w, const int64_t o[3],
                                   tfd__taps *t) {
  bool some = true;

  for (int i = 0; i < 3; i++) {
    int64_t d = w->dilation[i];
    int64_t origin = o[i] * w->stride[i] - w->low[i];
    int64_t room = w->in[i] - origin;
    int64_t end = room <= 0 ? 0 : room;

    t->origin[i] = origin;
    t->begin[i] = origin < 0 ? -origin : 0;
    if (d != 1) { /* divisions cost more than the rest together */
      end = (end + d - 1) / d;
      t->begin[i] = (t->begin[i] + d - 1) / d;
    }
    t->end[i] = end < w->kernel[i] ? end : w->kernel[i];
    t->at[i] = t->begin[i];
    some = some && t->begin[i] < t->end[i];
  }
  return some;
}

/* Go to the next tap, row-major; false after the last. */
static inline bool tfd__taps_next(tfd__taps *t) {
  for (int i = 2; i >= 0; i--) {
    if (++t->at[i] < t->end[i]) return true;
    t->at[i] = t->begin[i];
  }
  return false;
}

/* Position of the tap in the input, row-major over its spatial axes. */
static inline int64_t tfd__taps_index(const tfd__window *w,
                                      const tfd__taps *t) {
  int64_t index = 0;

  for (int i = 0; i < 3; i++)
    index = index * w->in[i] + t->origin[i] + t->at[i] * w->dilation[i];
  return index;
}

static inline int64_t tfd__taps_count(const tfd__taps *t) {
  return (t->end[0] - t->begin[0]) * (t->end[1] - t->begin[1]) *
         (t->end[2] - t->begin[2]);
}

#endif
