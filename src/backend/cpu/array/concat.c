/* Kernels that lay views next to each other: concatenation, stacking, tiling,
** padding, rolling, and the scatter of a slice into zeros. All are copies
** between views of the output and of the inputs. */
#include "backend/cpu/array.h"

#include <string.h>

/* --- joining -------------------------------------------------------------- */

/* A view as rows of `run` adjacent elements, `stride` apart. */
typedef struct runs {
  const char *data;
  int64_t run;    /* bytes */
  int64_t stride; /* bytes */
} runs;

/* False when v's axes from `axis` on are not adjacent, or those before it do
** not lie evenly. */
static bool as_runs(const tfd__view *v, int axis, runs *r) {
  int64_t size = (int64_t)tfd__dtype_size(v->dtype);
  int64_t expect = 1;
  int i;

  for (i = v->rank - 1; i >= axis; i--) {
    if (v->dims[i] != 1 && v->strides[i] != expect) return false;
    expect *= v->dims[i];
  }
  r->data = v->data;
  r->run = expect * size;
  r->stride = 0;
  for (i = axis - 1; i >= 0; i--) {
    if (v->dims[i] == 1) continue;
    if (v->strides[i] == 0) return false;
    if (r->stride == 0) {
      r->stride = v->strides[i] * size;
      expect = v->strides[i] * v->dims[i];
    } else if (v->strides[i] != expect) {
      return false;
    } else {
      expect *= v->dims[i];
    }
  }
  return true;
}

typedef struct rows {
  const runs *parts;
  char *out;
  int64_t bytes; /* of one row of the output */
  int parts_n;
} rows;

static void join_rows(void *arg, int64_t begin, int64_t end) {
  const rows *w = arg;
  char *to = w->out + begin * w->bytes;
  int64_t i;
  int k;

  for (i = begin; i < end; i++) {
    for (k = 0; k < w->parts_n; k++) {
      const runs *r = &w->parts[k];

      memcpy(to, r->data + i * r->stride, (size_t)r->run);
      to += r->run;
    }
  }
}

/* Row by row, so that the output is written from front to back: an input at
** a time would walk through memory once for each. False when an input does
** not consist of runs, or when there is one row or runs are too short for
** memcpy. */
static bool join_by_rows(const tfd__call *call, int axis) {
  const tfd__view *out = tfd__out(call, 0);
  int64_t n = tfd__span(out, 0, axis);
  rows w = {NULL, out->data, 0, call->in_n};
  runs *parts = NULL;
  int i;

  w.bytes = (int64_t)tfd__view_bytes(out) / n;
  if (n < 2 || w.bytes < 32 * call->in_n) return false;
  parts = tfd__scratch((size_t)call->in_n * sizeof *parts);
  if (parts == NULL) return false;
  for (i = 0; i < call->in_n; i++) {
    if (!as_runs(tfd__in(call, i), axis, &parts[i])) return false;
  }
  w.parts = parts;
  tfd__parallel_for(n, tfd__grain(w.bytes / 4), join_rows, &w);
  return true;
}

/* Along `axis`, 0 or more. */
static void join(const tfd__call *call, int axis, bool stacked) {
  const tfd__view *out = tfd__out(call, 0);
  int64_t at = 0;
  int i;

  if (out->numel == 0 || join_by_rows(call, axis)) return;
  for (i = 0; i < call->in_n; i++) {
    tfd__view in = *tfd__in(call, i);
    int64_t n = stacked ? 1 : in.dims[axis];
    tfd__view part;
    int k;

    if (n == 0 || in.numel == 0) continue;
    if (stacked) {
      for (k = in.rank; k > axis; k--) {
        in.dims[k] = in.dims[k - 1];
        in.strides[k] = in.strides[k - 1];
      }
      in.dims[axis] = 1;
      in.rank++;
    }
    part = tfd__part(out, axis, at, n);
    tfd__copy_view(&part, &in);
    at += n;
  }
}

int tfd__cpu_concat(const tfd__call *call) {
  int axis = (int)call->ints[0];

  join(call, axis < 0 ? axis + tfd__out(call, 0)->rank : axis, false);
  return TFD_OK;
}

int tfd__cpu_stack(const tfd__call *call) {
  int axis = (int)call->ints[0];

  join(call, axis < 0 ? axis + tfd__out(call, 0)->rank : axis, true);
  return TFD_OK;
}

/* --- repeating ------------------------------------------------------------ */

/* Count the elements of a part of `out` whose sizes changed. Its strides are
** out's, also along axes of size 1: those grow later. */
static void refresh_part(tfd__view *box, const tfd__view *out) {
  tfd__view_refresh(box);
  memcpy(box->strides, out->strides, sizeof out->strides);
}

/* The first copy, then along each tiled axis what is there already, twice as
** much each time. Each byte is written once. */
int tfd__cpu_tile(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  const tfd__view *in = tfd__in(call, 0);
  tfd__view box = *out;
  int axis;

  if (out->numel == 0) return TFD_OK;
  for (axis = 0; axis < in->rank; axis++) box.dims[axis] = in->dims[axis];
  refresh_part(&box, out);
  tfd__copy_view(&box, in);
  for (axis = in->rank - 1; axis >= 0; axis--) {
    int64_t have = in->dims[axis];
    int64_t want = out->dims[axis];

    box.dims[axis] = want;
    while (have < want) {
      int64_t n = have < want - have ? have : want - have;
      tfd__view from = tfd__part(&box, axis, 0, n);
      tfd__view to = tfd__part(&box, axis, have, n);

      tfd__copy_view(&to, &from);
      have += n;
    }
  }
  return TFD_OK;
}

/* Each element of an axis `repeats` times in a row.
** ints: repeats, axis. */
int tfd__cpu_repeat(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  const tfd__view *in = tfd__in(call, 0);
  int axis =
      (int)(call->ints[1] < 0 ? call->ints[1] + in->rank : call->ints[1]);
  int64_t inner = tfd__span(in, axis + 1, in->rank);
  int64_t outer = tfd__span(in, 0, axis + 1);
  int64_t dims[3] = {outer, call->ints[0], inner};
  tfd__view to;
  tfd__view from;

  if (out->numel == 0) return TFD_OK;
  TFD_TRY(tfd__view_set(&to, in->dtype, dims, 3));
  to.data = out->data;
  from = to;
  from.data = in->data;
  from.strides[0] = inner;
  from.strides[1] = 0;
  tfd__copy_view(&to, &from);
  return TFD_OK;
}

/* --- padding -------------------------------------------------------------- */

/* Mirror what lies beside each border of `axis` into it. `box` is the part
** of the output that is complete, the axis at its inner size; `skip` is 1
** when the border element itself is not repeated. */
static void mirror(tfd__view *box, const tfd__view *out, int axis,
                   int64_t before, int64_t size, int64_t after, int64_t skip) {
  int64_t bytes = (int64_t)tfd__dtype_size(out->dtype);
  int64_t stride = out->strides[axis] * bytes;
  char *first = box->data;
  tfd__view to = *box;
  tfd__view from = *box;

  from.strides[axis] = -out->strides[axis];
  if (before > 0) {
    to.dims[axis] = from.dims[axis] = before;
    to.data = first - before * stride;
    from.data = first + (before - 1 + skip) * stride;
    refresh_part(&to, out);
    tfd__copy_view(&to, &from);
  }
  if (after > 0) {
    to.dims[axis] = from.dims[axis] = after;
    to.data = first + size * stride;
    from.data = first + (size - 1 - skip) * stride;
    refresh_part(&to, out);
    tfd__copy_view(&to, &from);
  }
  box->data = first - before * stride;
  box->dims[axis] = before + size + after;
  refresh_part(box, out);
}

/* ints: before (list), after (list), mode. reals: constant. */
int tfd__cpu_pad(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  const tfd__view *in = tfd__in(call, 0);
  int n = 0;
  const int64_t *before = tfd__list_at(call->ints, 0, &n);
  const int64_t *after = tfd__list_at(call->ints, 1, &n);
  int64_t mode = call->ints[TFD_ARRAY_LISTS(2)];
  tfd__view box = *out;
  int axis;

  if (out->numel == 0) return TFD_OK;
  if (mode == 0 && out->numel != in->numel) {
    tfd__fill_view(out, call->reals[0]);
  }
  for (axis = 0; axis < in->rank; axis++) {
    box = tfd__part(&box, axis, before[axis], in->dims[axis]);
  }
  refresh_part(&box, out);
  tfd__copy_view(&box, in);
  if (mode == 0) return TFD_OK;
  for (axis = 0; axis < in->rank; axis++) {
    mirror(&box, out, axis, before[axis], in->dims[axis], after[axis],
           mode == 1 ? 1 : 0);
  }
  return TFD_OK;
}

/* dy into zeros of the given shape at begin, begin + stride, ...
** ints: shape, begin, end, strides (lists), shrink mask. */
int tfd__cpu_strided_slice_grad(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  tfd__view in = *tfd__in(call, 0);
  int n = 0;
  const int64_t *begin = tfd__list_at(call->ints, 1, &n);
  const int64_t *step = tfd__list_at(call->ints, 3, &n);
  int64_t shrink = call->ints[TFD_ARRAY_LISTS(4)];
  int64_t bytes = (int64_t)tfd__dtype_size(out->dtype);
  tfd__view to = *out;
  int i;
  int k = 0;

  tfd__zero(out);
  if (in.numel == 0) return TFD_OK;
  to.rank = in.rank;
  for (i = 0; i < out->rank; i++) {
    to.data = (char *)to.data + begin[i] * out->strides[i] * bytes;
    if (((shrink >> i) & 1) != 0) continue;
    to.dims[k] = in.dims[k];
    to.strides[k++] = out->strides[i] * step[i];
  }
  tfd__view_refresh(&to);
  tfd__copy_view(&to, &in);
  return TFD_OK;
}

/* --- rolling -------------------------------------------------------------- */

/* Shift of each axis in [0, size). ints: shift (list), axis (list). */
static void shifts(const tfd__call *call, int64_t shift[TFD_MAX_RANK]) {
  const tfd__view *x = tfd__in(call, 0);
  int n = 0;
  const int64_t *by = tfd__list_at(call->ints, 0, &n);
  const int64_t *axes = tfd__list_at(call->ints, 1, &n);
  int i;

  memset(shift, 0, TFD_MAX_RANK * sizeof *shift);
  for (i = 0; i < n; i++) {
    int64_t axis = axes[i] < 0 ? axes[i] + x->rank : axes[i];
    int64_t size = x->dims[axis];

    shift[axis] = ((shift[axis] + by[i] % size) % size + size) % size;
  }
}

/* Every rolled axis falls into two pieces that change places: one copy for
** each combination of pieces. */
int tfd__cpu_roll(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  const tfd__view *in = tfd__in(call, 0);
  int64_t shift[TFD_MAX_RANK];
  unsigned moved = 0;
  unsigned which = 0;
  int i;

  if (out->numel == 0) return TFD_OK;
  shifts(call, shift);
  for (i = 0; i < in->rank; i++) {
    if (shift[i] != 0) moved |= 1u << i;
  }
  do {
    tfd__view to = *out;
    tfd__view from = *in;

    for (i = 0; i < in->rank; i++) {
      int64_t rest = in->dims[i] - shift[i];
      bool wraps = (which & (1u << i)) != 0;

      if ((moved & (1u << i)) == 0) continue;
      to = tfd__part(&to, i, wraps ? 0 : shift[i], wraps ? shift[i] : rest);
      from = tfd__part(&from, i, wraps ? rest : 0, wraps ? shift[i] : rest);
    }
    tfd__copy_view(&to, &from);
    which = (which - moved) & moved; /* the next subset of `moved` */
  } while (which != 0);
  return TFD_OK;
}
