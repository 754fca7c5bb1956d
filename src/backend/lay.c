#include "backend/lay.h"

#include <stdio.h>
#include <string.h>

/* --- joining and repeating ------------------------------------------------ */

int tfd__lay_join(const tfd__call *call, int axis, bool stacked,
                  tfd__lay copy) {
  const tfd__view *out = tfd__out(call, 0);
  int64_t at = 0;
  int i;

  if (out->numel == 0) return TFD_OK;
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
    TFD_TRY(copy(call, &part, &in));
    at += n;
  }
  return TFD_OK;
}

/* Count the elements of a part of `out` whose sizes changed. Its strides are
** out's, also along axes of size 1: those grow later. */
static void refresh_part(tfd__view *box, const tfd__view *out) {
  tfd__view_refresh(box);
  memcpy(box->strides, out->strides, sizeof out->strides);
}

/* The first copy, then along each tiled axis what is there already, twice as
** much each time. Each byte is written once. */
int tfd__lay_tile(const tfd__call *call, tfd__lay copy) {
  const tfd__view *out = tfd__out(call, 0);
  const tfd__view *in = tfd__in(call, 0);
  tfd__view box = *out;
  int axis;

  if (out->numel == 0) return TFD_OK;
  for (axis = 0; axis < in->rank; axis++) box.dims[axis] = in->dims[axis];
  refresh_part(&box, out);
  TFD_TRY(copy(call, &box, in));
  for (axis = in->rank - 1; axis >= 0; axis--) {
    int64_t have = in->dims[axis];
    int64_t want = out->dims[axis];

    box.dims[axis] = want;
    while (have < want) {
      int64_t n = have < want - have ? have : want - have;
      tfd__view from = tfd__part(&box, axis, 0, n);
      tfd__view to = tfd__part(&box, axis, have, n);

      TFD_TRY(copy(call, &to, &from));
      have += n;
    }
  }
  return TFD_OK;
}

int tfd__lay_repeat(const tfd__call *call, tfd__lay copy) {
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
  return copy(call, &to, &from);
}

/* --- padding -------------------------------------------------------------- */

/* Mirror what lies beside each border of `axis` into it. `box` is the part
** of the output that is complete, the axis at its inner size; `skip` is 1
** when the border element itself is not repeated. */
static int mirror(const tfd__call *call, tfd__lay copy, tfd__view *box,
                  const tfd__view *out, int axis, int64_t before, int64_t size,
                  int64_t after, int64_t skip) {
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
    TFD_TRY(copy(call, &to, &from));
  }
  if (after > 0) {
    to.dims[axis] = from.dims[axis] = after;
    to.data = first + size * stride;
    from.data = first + (size - 1 - skip) * stride;
    refresh_part(&to, out);
    TFD_TRY(copy(call, &to, &from));
  }
  box->data = first - before * stride;
  box->dims[axis] = before + size + after;
  refresh_part(box, out);
  return TFD_OK;
}

int tfd__lay_pad(const tfd__call *call, tfd__lay copy) {
  const tfd__view *out = tfd__out(call, 0);
  const tfd__view *in = tfd__in(call, 0);
  int n = 0;
  const int64_t *before = tfd__list_at(call->ints, 0, &n);
  const int64_t *after = tfd__list_at(call->ints, 1, &n);
  int64_t mode = call->ints[TFD_ARRAY_LISTS(2)];
  tfd__view box = *out;
  int axis;

  if (out->numel == 0) return TFD_OK;
  for (axis = 0; axis < in->rank; axis++) {
    box = tfd__part(&box, axis, before[axis], in->dims[axis]);
  }
  refresh_part(&box, out);
  TFD_TRY(copy(call, &box, in));
  if (mode == 0) return TFD_OK;
  for (axis = 0; axis < in->rank; axis++) {
    TFD_TRY(mirror(call, copy, &box, out, axis, before[axis], in->dims[axis],
                   after[axis], mode == 1 ? 1 : 0));
  }
  return TFD_OK;
}

int tfd__lay_strided_slice_grad(const tfd__call *call, tfd__lay copy) {
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

  if (in.numel == 0) return TFD_OK;
  to.rank = in.rank;
  for (i = 0; i < out->rank; i++) {
    to.data = (char *)to.data + begin[i] * out->strides[i] * bytes;
    if (((shrink >> i) & 1) != 0) continue;
    to.dims[k] = in.dims[k];
    to.strides[k++] = out->strides[i] * step[i];
  }
  tfd__view_refresh(&to);
  return copy(call, &to, &in);
}

/* --- rolling -------------------------------------------------------------- */

/* Shift of each axis in [0, size). */
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
int tfd__lay_roll(const tfd__call *call, tfd__lay copy) {
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
    TFD_TRY(copy(call, &to, &from));
    which = (which - moved) & moved; /* the next subset of `moved` */
  } while (which != 0);
  return TFD_OK;
}

/* --- for messages
 * ------------------------------------------------------------ */

const char *tfd__position_text(const int64_t *dims, int rank, int64_t at,
                               char text[TFD_POSITION_TEXT]) {
  int64_t coordinate[TFD_MAX_RANK];
  size_t used = 0;
  int i;

  text[0] = '\0';
  for (i = rank - 1; i >= 0; i--) {
    coordinate[i] = at % dims[i];
    at /= dims[i];
  }
  for (i = 0; i < rank; i++) {
    used += (size_t)snprintf(text + used, TFD_POSITION_TEXT - used, "%s%lld%s",
                             i == 0 ? "[" : ",", (long long)coordinate[i],
                             i == rank - 1 ? "]" : "");
  }
  return text;
}

/* --- what is normalised
 * ------------------------------------------------------ */

tfd__channels tfd__channels_of(const tfd__view *x, bool channels_first) {
  tfd__channels d = {1, x->dims[channels_first ? 1 : x->rank - 1], 1};

  if (!channels_first) {
    for (int i = 0; i < x->rank - 1; i++) d.outer *= x->dims[i];
    return d;
  }
  d.outer = x->dims[0];
  for (int i = 2; i < x->rank; i++) d.inner *= x->dims[i];
  return d;
}

tfd__norm_rows tfd__layer_rows(const tfd__view *x, int64_t first) {
  tfd__norm_rows d = {.samples = 1, .groups = 1, .segments = 1, .length = 1};

  if (first < 0) first += x->rank;
  for (int i = 0; i < x->rank; i++)
    *(i < first ? &d.samples : &d.length) *= x->dims[i];
  d.sample = d.width = d.length;
  return d;
}

tfd__norm_rows tfd__group_rows(const tfd__view *x, int64_t groups,
                               int64_t axis) {
  tfd__norm_rows d = {.samples = x->dims[0], .groups = groups};
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
