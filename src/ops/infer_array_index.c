/* Inference of the array ops that index, scatter, sort and search. */
#include "ops/ops.h"

#include <string.h>

static const char *text_of(const tfd__view *v, char buf[TFD_SHAPE_TEXT]) {
  return tfd__shape_text(v, buf);
}

/* dims[n..] += the dims [from, rank) of v; returns the new n, which may pass
** TFD_MAX_RANK by as much as one tensor has axes. */
static int append(int64_t *dims, int n, const tfd__view *v, int from) {
  int i;

  for (i = from; i < v->rank; i++) dims[n++] = v->dims[i];
  return n;
}

/* --- gather --------------------------------------------------------------- */

static int check_batch(tfd__infer *s, int64_t *batch_p) {
  const tfd__view *params = s->in[0];
  const tfd__view *indices = s->in[1];
  int64_t batch = *batch_p;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (batch < 0) batch += indices->rank; /* tf.gather counts from the end */
  if (batch < 0 || batch > indices->rank || batch > params->rank ||
      !tfd__dims_agree(params->dims, indices->dims, (int)batch)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: params %s and indices %s do not have %lld batch "
                     "axes in common",
                     s->name, text_of(params, a), text_of(indices, b),
                     (long long)*batch_p);
  }
  *batch_p = batch;
  return TFD_OK;
}

int tfd__infer_gather(tfd__infer *s) {
  const tfd__view *params = s->in[0];
  int n = 0;
  const int64_t *axes = tfd__list(s->ints, 1, &n);
  int64_t batch = s->ints[1 + TFD_LIST_SLOTS];
  int64_t dims[2 * TFD_MAX_RANK];
  int axis = 0;

  TFD_TRY(tfd__check_index(s, 1));
  TFD_TRY(check_batch(s, &batch));
  if (n > 1) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: axis lists %d axes; expected one",
                     s->name, n);
  }
  TFD_TRY(tfd__axis(s->name, params, n < 1 ? batch : axes[0], &axis));
  if (axis < batch) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: axis %d is one of the %lld batch axes", s->name, axis,
                     (long long)batch);
  }
  memcpy(dims, params->dims, sizeof params->dims);
  n = append(dims, axis, s->in[1], (int)batch);
  n = append(dims, n, params, axis + 1);
  return tfd__infer_out(s, 0, params->dtype, dims, n);
}

/* dy must have the shape that gather gives for a tensor of `shape`. */
int tfd__infer_gather_grad(tfd__infer *s) {
  const tfd__view *dy = s->in[0];
  const tfd__view *indices = s->in[1];
  int rank = 0;
  const int64_t *shape = tfd__list(s->ints, 0, &rank);
  int64_t axis = s->ints[TFD_LIST_SLOTS];
  int64_t batch = s->ints[TFD_LIST_SLOTS + 1];
  int64_t dims[2 * TFD_MAX_RANK];
  bool fits = axis >= 0 && axis < rank && batch >= 0 && batch <= axis &&
              batch <= indices->rank;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  int n = 0;

  TFD_TRY(tfd__check_index(s, 1));
  if (fits) {
    memcpy(dims, shape, (size_t)axis * sizeof *dims);
    n = append(dims, (int)axis, indices, (int)batch);
    memcpy(dims + n, shape + axis + 1,
           (size_t)(rank - axis - 1) * sizeof *dims);
    n += rank - (int)axis - 1;
    fits = n == dy->rank && tfd__dims_agree(dims, dy->dims, n) &&
           tfd__dims_agree(shape, indices->dims, (int)batch);
  }
  if (!fits) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: dy %s is not what indices %s take along axis %lld",
                     s->name, text_of(dy, a), text_of(indices, b),
                     (long long)axis);
  }
  return tfd__infer_out(s, 0, dy->dtype, shape, rank);
}

int tfd__infer_segment_gather(tfd__infer *s) {
  int64_t dims[2 * TFD_MAX_RANK];
  char a[TFD_SHAPE_TEXT];
  int n = 0;

  TFD_TRY(tfd__check_index(s, 1));
  if (s->in[0]->rank < 1) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: params %s; expected rank 1 or "
                     "more",
                     s->name, text_of(s->in[0], a));
  }
  n = append(dims, 0, s->in[1], 0);
  n = append(dims, n, s->in[0], 1);
  return tfd__infer_out(s, 0, s->in[0]->dtype, dims, n);
}

/* Length of the coordinates in the last axis of input i; -1 = unknown. */
static int check_depth(tfd__infer *s, int i, int most, int *depth_p) {
  const tfd__view *indices = s->in[i];
  char a[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_index(s, i));
  if (indices->rank < 1 || indices->dims[indices->rank - 1] > most) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: indices %s; their last axis must hold coordinates "
                     "of at most %d entries",
                     s->name, text_of(indices, a), most < 0 ? 0 : most);
  }
  *depth_p = (int)indices->dims[indices->rank - 1];
  return TFD_OK;
}

/* The batch axes of the _nd ops: before the last axis of input i. */
static int check_batch_nd(tfd__infer *s, int i, int64_t batch) {
  const tfd__view *indices = s->in[i];
  char a[TFD_SHAPE_TEXT];

  if (batch >= 0 && (batch == 0 || batch < indices->rank)) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR,
                   "%s: batch_dims is %lld; expected 0 or more and less than "
                   "the rank of indices %s",
                   s->name, (long long)batch, text_of(indices, a));
}

int tfd__infer_gather_nd(tfd__infer *s) {
  const tfd__view *params = s->in[0];
  const tfd__view *indices = s->in[1];
  int64_t batch = s->ints[0];
  int64_t dims[2 * TFD_MAX_RANK];
  int depth = 0;
  int n = 0;

  TFD_TRY(tfd__check_index(s, 1));
  TFD_TRY(check_batch_nd(s, 1, batch));
  TFD_TRY(check_batch(s, &batch));
  TFD_TRY(check_depth(s, 1, params->rank - (int)batch, &depth));
  memcpy(dims, indices->dims, sizeof indices->dims);
  if (depth < 0) {
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "%s: the size of the last axis of indices is not known, "
                     "so neither is the rank of the result",
                     s->name);
  }
  n = append(dims, indices->rank - 1, params, (int)batch + depth);
  return tfd__infer_out(s, 0, params->dtype, dims, n);
}

/* --- scatter -------------------------------------------------------------- */

/* Input k must have shape lead + target[from..]; anything where `from` is
** unknown, -1. */
static int check_updates(tfd__infer *s, int k, const int64_t *lead, int lead_n,
                         const int64_t *target, int rank, int from) {
  const tfd__view *updates = s->in[k];
  int64_t dims[2 * TFD_MAX_RANK];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  int n = lead_n;
  int i;

  if (from < 0) return TFD_OK;
  memcpy(dims, lead, (size_t)lead_n * sizeof *dims);
  for (i = from; i < rank; i++) dims[n++] = target[i];
  if (updates->rank == n && tfd__dims_agree(updates->dims, dims, n)) {
    return TFD_OK;
  }
  if (n > TFD_MAX_RANK) n = TFD_MAX_RANK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: updates have shape %s; the indices ask for %s", s->name,
                   text_of(updates, a), tfd__dims_text(dims, n, b));
}

int tfd__infer_scatter_nd(tfd__infer *s) {
  const tfd__view *indices = s->in[0];
  int rank = 0;
  const int64_t *shape = tfd__list(s->ints, 0, &rank);
  int64_t batch = s->ints[TFD_LIST_SLOTS];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  int depth = 0;

  if (rank < 0) rank = 0;
  TFD_TRY(tfd__check_index(s, 0));
  TFD_TRY(check_batch_nd(s, 0, batch));
  if (batch > rank || !tfd__dims_agree(indices->dims, shape, (int)batch)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: indices %s and shape %s do not have %lld batch axes "
                     "in common",
                     s->name, text_of(indices, a),
                     tfd__dims_text(shape, rank, b), (long long)batch);
  }
  TFD_TRY(check_depth(s, 0, rank - (int)batch, &depth));
  TFD_TRY(check_updates(s, 1, indices->dims, indices->rank - 1, shape, rank,
                        depth < 0 ? -1 : (int)batch + depth));
  return tfd__infer_out(s, 0, s->in[1]->dtype, shape, rank);
}

int tfd__infer_tensor_scatter_nd(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  const tfd__view *indices = s->in[1];
  int depth = 0;

  TFD_TRY(check_depth(s, 1, x->rank, &depth));
  TFD_TRY(tfd__check_same_dtype(s, 0, 2));
  TFD_TRY(check_updates(s, 2, indices->dims, indices->rank - 1, x->dims,
                        x->rank, depth));
  return tfd__infer_like(s, 0, x);
}

int tfd__infer_scatter_rows(tfd__infer *s) {
  const tfd__view *x = s->in[0];

  TFD_TRY(tfd__check_index(s, 1));
  TFD_TRY(tfd__check_same_dtype(s, 0, 2));
  if (x->rank < 1) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: ref is a scalar; it has no "
                     "rows to update",
                     s->name);
  }
  TFD_TRY(
      check_updates(s, 2, s->in[1]->dims, s->in[1]->rank, x->dims, x->rank, 1));
  return tfd__infer_like(s, 0, x);
}

/* --- segments ------------------------------------------------------------- */

int tfd__infer_segment(tfd__infer *s) {
  const tfd__view *data = s->in[0];
  const tfd__view *ids = s->in[1];
  int64_t dims[TFD_MAX_RANK + 1];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  int n = 0;

  TFD_TRY(tfd__check_index(s, 1));
  if (data->dtype == TFD_BOOL) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: data has dtype bool; expected "
                     "numbers",
                     s->name);
  }
  if (ids->rank > data->rank ||
      !tfd__dims_agree(ids->dims, data->dims, ids->rank)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: segment_ids %s must have the shape of the first "
                     "axes of data %s",
                     s->name, text_of(ids, a), text_of(data, b));
  }
  if (s->ints[0] < 0) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: num_segments is %lld; expected 0 or more", s->name,
                     (long long)s->ints[0]);
  }
  dims[0] = s->ints[0];
  /* The kernel counts the rows of each segment, in int64, also where rows
  ** are empty. */
  TFD_TRY(tfd__infer_out(s, 0, TFD_INT64, dims, 1));
  n = append(dims, 1, data, ids->rank);
  return tfd__infer_out(s, 0, data->dtype, dims, n);
}

/* --- order ---------------------------------------------------------------- */

/* Outputs 0 and 1: the first k of each row and where they were. */
static int first_k(tfd__infer *s, int64_t k) {
  const tfd__view *x = s->in[0];
  int64_t dims[TFD_MAX_RANK];

  memcpy(dims, x->dims, sizeof dims);
  dims[x->rank - 1] = k;
  TFD_TRY(tfd__infer_outputs(s, 2));
  TFD_TRY(tfd__infer_out(s, 0, x->dtype, dims, x->rank));
  return tfd__infer_out(s, 1, TFD_INT32, dims, x->rank);
}

static int check_row(tfd__infer *s, int i) {
  const tfd__view *x = s->in[i];
  char name[32];

  if (x->rank < 1) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: %s is a scalar; expected rank 1 or more", s->name,
                     tfd__arg_name(s, i, name));
  }
  if (x->dims[x->rank - 1] <= INT32_MAX) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: the last axis has %lld elements; at most 2147483647",
                   s->name, (long long)x->dims[x->rank - 1]);
}

int tfd__infer_sort_pairs(tfd__infer *s) {
  TFD_TRY(check_row(s, 0));
  return first_k(s, s->in[0]->dims[s->in[0]->rank - 1]);
}

int tfd__infer_top_k(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  char shape[TFD_SHAPE_TEXT];

  TFD_TRY(check_row(s, 0));
  if (s->ints[0] < 0 ||
      (x->dims[x->rank - 1] >= 0 && s->ints[0] > x->dims[x->rank - 1])) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: k is %lld, but the last axis of %s has %lld elements",
                     s->name, (long long)s->ints[0], text_of(x, shape),
                     (long long)x->dims[x->rank - 1]);
  }
  return first_k(s, s->ints[0]);
}

int tfd__infer_in_top_k(tfd__infer *s) {
  const tfd__view *targets = s->in[0];
  const tfd__view *predictions = s->in[1];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_index(s, 0));
  TFD_TRY(tfd__check_float(s, 1));
  if (targets->rank != 1 || predictions->rank != 2 ||
      !tfd__sizes_agree(targets->dims[0], predictions->dims[0])) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: targets %s and predictions %s; expected {batch} and "
                     "{batch, classes}",
                     s->name, text_of(targets, a), text_of(predictions, b));
  }
  return tfd__infer_out(
      s, 0, TFD_BOOL,
      (int64_t[]){tfd__size_merged(targets->dims[0], predictions->dims[0])}, 1);
}

int tfd__infer_searchsorted(tfd__infer *s) {
  const tfd__view *sequence = s->in[0];
  const tfd__view *values = s->in[1];
  int dtype = s->ints[1] == 0 ? TFD_INT32 : (int)s->ints[1];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(check_row(s, 0));
  if (sequence->rank != values->rank ||
      !tfd__dims_agree(sequence->dims, values->dims, sequence->rank - 1)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: sorted_sequence %s and values %s may differ in the "
                     "last axis only",
                     s->name, text_of(sequence, a), text_of(values, b));
  }
  if (dtype != TFD_INT32 && dtype != TFD_INT64) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: out_type is %s; expected int32 or int64", s->name,
                     tfd__dtype_name(dtype));
  }
  return tfd__infer_out(s, 0, dtype, values->dims, values->rank);
}

int tfd__infer_invert_permutation(tfd__infer *s) {
  TFD_TRY(tfd__check_index(s, 0));
  TFD_TRY(tfd__check_rank(s, 0, 1));
  return tfd__infer_like(s, 0, s->in[0]);
}

/* --- which values occur --------------------------------------------------- */

int tfd__infer_unique(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int dtype = s->ints[0] == 0 ? TFD_INT32 : (int)s->ints[0];

  TFD_TRY(tfd__check_rank(s, 0, 1));
  if (dtype != TFD_INT32 && dtype != TFD_INT64) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: out_idx is %s; expected int32 or int64", s->name,
                     tfd__dtype_name(dtype));
  }
  TFD_TRY(tfd__infer_outputs(s, 4));
  TFD_TRY(tfd__infer_like(s, 0, x));
  TFD_TRY(tfd__infer_out(s, 1, dtype, x->dims, 1));
  TFD_TRY(tfd__infer_out(s, 2, TFD_INT64, x->dims, 1));
  return tfd__infer_out(s, 3, TFD_INT64, NULL, 0);
}

int tfd__infer_where_indices(tfd__infer *s) {
  int64_t dims[2] = {s->ints[0], s->in[0]->rank};

  return tfd__infer_out(s, 0, TFD_INT64, dims, 2);
}
