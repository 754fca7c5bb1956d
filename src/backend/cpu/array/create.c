/* Kernels that make tensors from attributes or from a few numbers: identity
** matrices, ranges, one-hot codes, masks, diagonals. */
#include "backend/cpu/array.h"

#include <string.h>

int tfd__cpu_zeros_like(const tfd__call *call) {
  tfd__zero(tfd__out(call, 0));
  return TFD_OK;
}

int tfd__cpu_ones_like(const tfd__call *call) {
  tfd__fill_view(tfd__out(call, 0), 1);
  return TFD_OK;
}

/* start, start + delta, ... reals: start, limit, delta. */
int tfd__cpu_range(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  double start = call->reals[0];
  double delta = call->reals[2];
  size_t size = tfd__dtype_size(out->dtype);
  int64_t i;

  if (out->dtype == TFD_INT32) {
    for (i = 0; i < out->numel; i++) {
      ((int32_t *)out->data)[i] = (int32_t)(start + (double)i * delta);
    }
    return TFD_OK;
  }
  for (i = 0; i < out->numel; i++) {
    tfd__store((char *)out->data + (size_t)i * size, out->dtype,
               start + (double)i * delta);
  }
  return TFD_OK;
}

/* --- one-hot -------------------------------------------------------------- */

/* The result is [outer, depth, inner], indices are [outer, inner].
** ints: depth, axis, dtype. reals: on, off. */
int tfd__cpu_one_hot(const tfd__call *call) {
  const tfd__view *indices = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  int axis = call->ints[1] < 0 ? indices->rank : (int)call->ints[1];
  int64_t depth = call->ints[0];
  int64_t inner = tfd__span(indices, axis, indices->rank);
  size_t size = tfd__dtype_size(out->dtype);
  uint64_t on = 0;
  int64_t i;

  tfd__fill_view(out, call->reals[1]);
  tfd__store(&on, out->dtype, call->reals[0]);
  for (i = 0; i < indices->numel; i++) {
    int64_t k = tfd__index_at(indices, i);
    int64_t at = (i / inner * depth + k) * inner + i % inner;

    if (k < 0 || k >= depth) continue; /* all off, as in TensorFlow */
    memcpy((char *)out->data + (size_t)at * size, &on, size);
  }
  return TFD_OK;
}

/* out[..., j] is on where j < lengths[...]. ints: maxlen, dtype. */
int tfd__cpu_sequence_mask(const tfd__call *call) {
  const tfd__view *lengths = tfd__in(call, 0);
  tfd__view row = *tfd__out(call, 0);
  int64_t n = call->ints[0];
  int64_t bytes = n * (int64_t)tfd__dtype_size(row.dtype);
  int64_t i;

  tfd__zero(&row);
  row.rank = 1;
  row.strides[0] = 1;
  for (i = 0; i < lengths->numel; i++) {
    int64_t length = tfd__index_at(lengths, i);

    row.dims[0] = length < n ? length : n;
    if (length > 0) {
      tfd__view_refresh(&row);
      tfd__fill_view(&row, 1);
    }
    row.data = (char *)row.data + bytes;
  }
  return TFD_OK;
}

/* --- matrices ------------------------------------------------------------- */

/* Diagonal k of the matrices in the last two axes. */
static tfd__view diagonal(const tfd__view *m, int64_t k, int64_t length) {
  tfd__view d = *m;
  int r = m->rank;
  int64_t skip = k > 0 ? k * m->strides[r - 1] : -k * m->strides[r - 2];

  d.data = (char *)m->data + skip * (int64_t)tfd__dtype_size(m->dtype);
  d.rank = (uint8_t)(r - 1);
  d.dims[r - 2] = length;
  d.strides[r - 2] = m->strides[r - 2] + m->strides[r - 1];
  tfd__view_refresh(&d);
  return d;
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* ints: see the op; only the output's shape matters here. */
int tfd__cpu_eye(const tfd__call *call) {
  const tfd__view *out = tfd__out(call, 0);
  int r = out->rank;
  tfd__view d;

  tfd__zero(out);
  if (out->numel == 0) return TFD_OK;
  d = diagonal(out, 0, smaller(out->dims[r - 2], out->dims[r - 1]));
  tfd__fill_view(&d, 1);
  return TFD_OK;
}

/* ints: k, num_rows, num_cols. reals: padding. */
int tfd__cpu_matrix_diag(const tfd__call *call) {
  const tfd__view *in = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  tfd__view d;

  tfd__fill_view(out, call->reals[0]);
  if (out->numel == 0 || in->numel == 0) return TFD_OK;
  d = diagonal(out, call->ints[0], in->dims[in->rank - 1]);
  tfd__copy_view(&d, in);
  return TFD_OK;
}

/* ints: k. */
int tfd__cpu_matrix_set_diag(const tfd__call *call) {
  const tfd__view *in = tfd__in(call, 0);
  const tfd__view *diag = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  tfd__view d;

  tfd__copy_view(out, in);
  if (diag->numel == 0) return TFD_OK;
  d = diagonal(out, call->ints[0], diag->dims[diag->rank - 1]);
  tfd__copy_view(&d, diag);
  return TFD_OK;
}

typedef struct band {
  const tfd__view *in;
  char *out;
  size_t size;
  int64_t lower;
  int64_t upper;
} band;

static void band_rows(void *arg, int64_t begin, int64_t end) {
  const band *b = arg;
  int64_t rows = b->in->dims[b->in->rank - 2];
  int64_t cols = b->in->dims[b->in->rank - 1];
  int64_t i;

  for (i = begin; i < end; i++) {
    int64_t r = i % rows;
    int64_t from = b->lower < 0 || b->lower >= r ? 0 : r - b->lower;
    int64_t to = b->upper < 0 || b->upper >= cols - r ? cols : r + b->upper + 1;
    char *row = b->out + (size_t)(i * cols) * b->size;
    const char *in = (const char *)b->in->data + (size_t)(i * cols) * b->size;

    if (from > cols) from = cols;
    if (to < from) to = from;
    memset(row, 0, (size_t)from * b->size);
    memcpy(row + (size_t)from * b->size, in + (size_t)from * b->size,
           (size_t)(to - from) * b->size);
    memset(row + (size_t)to * b->size, 0, (size_t)(cols - to) * b->size);
  }
}

/* ints: num_lower, num_upper; negative keeps the whole triangle. */
int tfd__cpu_matrix_band_part(const tfd__call *call) {
  const tfd__view *in = tfd__in(call, 0);
  band b = {in, tfd__out(call, 0)->data, tfd__dtype_size(in->dtype),
            call->ints[0], call->ints[1]};
  int64_t cols = in->dims[in->rank - 1];

  if (in->numel == 0) return TFD_OK;
  tfd__parallel_for(in->numel / cols, tfd__grain(cols), band_rows, &b);
  return TFD_OK;
}
