#ifndef TFD_BACKEND_LAY_H
#define TFD_BACKEND_LAY_H
/* L2 backend: ops that lay views next to each other (joining, tiling, padding,
** rolling, the gradient of slices), as copies between views of the output and
** of the inputs: each back end says how it copies. May include base, types,
** backend. Specs: spec/ops, spec/c/backend_cuda_array. */

#include "backend/backend.h"

/* The part of v that starts at `begin` along `axis` and is `size` long. */
static inline tfd__view tfd__part(const tfd__view *v, int axis, int64_t begin,
                                  int64_t size) {
  tfd__view p = *v;
  int64_t bytes = (int64_t)tfd__dtype_size(v->dtype);

  p.data = (char *)v->data + begin * v->strides[axis] * bytes;
  p.dims[axis] = size;
  tfd__view_refresh(&p);
  return p;
}

/* List attributes come first in every array op: the i-th list, and the slot
** after n lists. A list is its count and TFD_MAX_RANK values. */
#define TFD_ARRAY_LISTS(n) ((n) * (1 + TFD_MAX_RANK))
static inline const int64_t *tfd__list_at(const int64_t *ints, int i,
                                          int *n_p) {
  *n_p = (int)ints[TFD_ARRAY_LISTS(i)];
  return ints + TFD_ARRAY_LISTS(i) + 1;
}

/* Product of dims [from, to). */
static inline int64_t tfd__span(const tfd__view *v, int from, int to) {
  int64_t n = 1;
  int i;

  for (i = from; i < to; i++) n *= v->dims[i];
  return n;
}

/* Elements of `from` to `to`: same dims and dtype, any strides on both sides.
 */
typedef int (*tfd__lay)(const tfd__call *call, const tfd__view *to,
                        const tfd__view *from);

/* The inputs along `axis` (0 or more), one behind the other; `stacked`: along
** a new one. */
int tfd__lay_join(const tfd__call *call, int axis, bool stacked, tfd__lay copy);
int tfd__lay_tile(const tfd__call *call, tfd__lay copy);
/* Each element of an axis `repeats` times in a row. ints: repeats, axis. */
int tfd__lay_repeat(const tfd__call *call, tfd__lay copy);
/* ints: before (list), after (list), mode. The output has its constant, where
** the mode is 0. */
int tfd__lay_pad(const tfd__call *call, tfd__lay copy);
/* dy to begin, begin + stride, ... of an output of zeros.
** ints: shape, begin, end, strides (lists), shrink mask. */
int tfd__lay_strided_slice_grad(const tfd__call *call, tfd__lay copy);
/* ints: shift (list), axis (list). */
int tfd__lay_roll(const tfd__call *call, tfd__lay copy);

/* --- for messages
 * ------------------------------------------------------------ */

/* "[2,0]": the coordinates of element `at`; "" for a scalar. */
#define TFD_POSITION_TEXT (TFD_MAX_RANK * 22 + 2)
const char *tfd__position_text(const int64_t *dims, int rank, int64_t at,
                               char text[TFD_POSITION_TEXT]);

/* --- what is normalised
 * ------------------------------------------------------ */

/* A tensor seen as [outer][channels][inner]; channels last: inner == 1. */
typedef struct tfd__channels {
  int64_t outer;
  int64_t channels;
  int64_t inner;
} tfd__channels;

tfd__channels tfd__channels_of(const tfd__view *x, bool channels_first);

/* A row is one (sample, group): `segments` runs of `length` elements. */
typedef struct tfd__norm_rows {
  int64_t samples;
  int64_t groups;
  int64_t segments;
  int64_t length;
  int64_t sample;       /* elements from sample to sample */
  int64_t group_step;   /* from group to group */
  int64_t segment_step; /* from run to run */
  int64_t width;        /* scale values of one group */
  bool per_segment;     /* one scale value for each run */
} tfd__norm_rows;

/* Normalised over axes first .. rank - 1. */
tfd__norm_rows tfd__layer_rows(const tfd__view *x, int64_t first);
tfd__norm_rows tfd__group_rows(const tfd__view *x, int64_t groups,
                               int64_t axis);

#endif
