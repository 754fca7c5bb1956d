/* Inference of the array ops that make or join tensors. */
#include "ops/infer_array.h"

#include <math.h>
#include <string.h>

static const int64_t *list_at(const tfd__infer *s, int i, int *n_p) {
  return tfd__list(s->ints, i * TFD_LIST_SLOTS, n_p);
}

static int negative(tfd__infer *s, const char *what, int64_t value) {
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s is %lld; expected 0 or more",
                   s->name, what, (long long)value);
}

static int check_dtype(tfd__infer *s, int64_t *dtype_p, int otherwise) {
  if (*dtype_p == 0) *dtype_p = otherwise;
  if (*dtype_p > 0 && *dtype_p < TFD_DTYPE_END) return TFD_OK;
  return tfd__fail(TFD_TYPE_ERROR, "%s: %lld is no dtype", s->name,
                   (long long)*dtype_p);
}

/* --- joining -------------------------------------------------------------- */

/* Same dtype as input 0, and same shape but for `axis` (-1 = wholly). dims:
** input 0's, with what is known from others. */
static int check_alike(tfd__infer *s, int axis, int64_t *dims) {
  const tfd__view *a = s->in[0];
  char at[TFD_SHAPE_TEXT];
  char bt[TFD_SHAPE_TEXT];
  int i;
  int k;

  memcpy(dims, a->dims, sizeof a->dims);
  for (i = 1; i < s->in_n; i++) {
    const tfd__view *b = s->in[i];
    bool same = a->rank == b->rank;

    if (a->dtype != b->dtype) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: values[0] is %s and values[%d] is %s; all must "
                       "have the same dtype (use tf.cast)",
                       s->name, tfd__dtype_name(a->dtype), i,
                       tfd__dtype_name(b->dtype));
    }
    for (k = 0; same && k < a->rank; k++) {
      same = k == axis || tfd__sizes_agree(dims[k], b->dims[k]);
      if (k != axis) dims[k] = tfd__size_merged(dims[k], b->dims[k]);
    }
    if (same) continue;
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: values[0] has shape %s and values[%d] has %s; %s",
                     s->name, tfd__shape_text(a, at), i, tfd__shape_text(b, bt),
                     axis < 0 ? "all must be equal"
                              : "they may differ along the axis only");
  }
  return TFD_OK;
}

int tfd__infer_concat(tfd__infer *s) {
  int64_t dims[TFD_MAX_RANK];
  int axis = 0;
  int i;

  if (s->in[0]->rank == 0) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: scalars have no axis to join along (use tf.stack)",
                     s->name);
  }
  TFD_TRY(tfd__axis(s->name, s->in[0], s->ints[0], &axis));
  TFD_TRY(check_alike(s, axis, dims));
  for (i = 1; i < s->in_n; i++) {
    if (dims[axis] < 0 || s->in[i]->dims[axis] < 0) {
      dims[axis] = -1;
      break;
    }
    /* What is too large here is too large for a shape too. */
    if (__builtin_add_overflow(dims[axis], s->in[i]->dims[axis], &dims[axis])) {
      dims[axis] = INT64_MAX;
      break;
    }
  }
  return tfd__infer_out(s, 0, s->in[0]->dtype, dims, s->in[0]->rank);
}

int tfd__infer_stack(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t axis = s->ints[0];
  int64_t each[TFD_MAX_RANK];
  int64_t dims[TFD_MAX_RANK + 1];
  int i;
  int k = 0;

  if (axis < -x->rank - 1 || axis > x->rank) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: axis %lld is outside [%d, %d] for tensors of rank %d",
                     s->name, (long long)axis, -x->rank - 1, x->rank, x->rank);
  }
  if (axis < 0) axis += x->rank + 1;
  TFD_TRY(check_alike(s, -1, each));
  for (i = 0; i <= x->rank; i++) dims[i] = i == axis ? s->in_n : each[k++];
  return tfd__infer_out(s, 0, x->dtype, dims, x->rank + 1);
}

/* --- growing -------------------------------------------------------------- */

/* So many times a size; what is too large is too large for a shape too. None of
** an unknown size are 0. */
static int64_t times_size(int64_t size, int64_t times) {
  int64_t product = 0;

  if (size < 0) return times == 0 ? 0 : -1;
  return tfd__mul_i64(size, times, &product) ? product : INT64_MAX;
}

int tfd__infer_tile(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int n = 0;
  const int64_t *times = list_at(s, 0, &n);
  int64_t dims[TFD_MAX_RANK];
  int i;

  TFD_TRY(tfd__check_per_axis(s, "multiples", n));
  for (i = 0; i < n; i++) {
    if (times[i] < 0) return negative(s, "an entry of multiples", times[i]);
    dims[i] = times_size(x->dims[i], times[i]);
  }
  return tfd__infer_out(s, 0, x->dtype, dims, n);
}

int tfd__infer_repeat(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t dims[TFD_MAX_RANK];
  int axis = 0;

  if (s->ints[0] < 0) return negative(s, "repeats", s->ints[0]);
  TFD_TRY(tfd__axis(s->name, x, s->ints[1], &axis));
  memcpy(dims, x->dims, sizeof dims);
  dims[axis] = times_size(dims[axis], s->ints[0]);
  return tfd__infer_out(s, 0, x->dtype, dims, x->rank);
}

int tfd__infer_pad(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int before_n = 0;
  int after_n = 0;
  const int64_t *before = list_at(s, 0, &before_n);
  const int64_t *after = list_at(s, 1, &after_n);
  int64_t mode = s->ints[2 * TFD_LIST_SLOTS];
  int64_t dims[TFD_MAX_RANK];
  int i;

  TFD_TRY(tfd__check_per_axis(s, "paddings", before_n));
  TFD_TRY(tfd__check_per_axis(s, "paddings", after_n));
  for (i = 0; i < x->rank; i++) {
    int64_t most = x->dims[i] - (mode == 1 ? 1 : 0);

    if (before[i] < 0) return negative(s, "a padding", before[i]);
    if (after[i] < 0) return negative(s, "a padding", after[i]);
    if (x->dims[i] < 0) {
      dims[i] = -1;
      continue;
    }
    if (mode != 0 && (before[i] > most || after[i] > most)) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: axis %d: paddings %lld and %lld; mode %s mirrors "
                       "at most %lld of %lld elements",
                       s->name, i, (long long)before[i], (long long)after[i],
                       mode == 1 ? "REFLECT" : "SYMMETRIC", (long long)most,
                       (long long)x->dims[i]);
    }
    if (__builtin_add_overflow(x->dims[i], before[i], &dims[i]) ||
        __builtin_add_overflow(dims[i], after[i], &dims[i])) {
      dims[i] = INT64_MAX;
    }
  }
  return tfd__infer_out(s, 0, x->dtype, dims, x->rank);
}

int tfd__infer_roll(tfd__infer *s) {
  int shifts = 0;
  int axes_n = 0;
  const int64_t *axes = NULL;
  int axis = 0;
  int i;

  (void)list_at(s, 0, &shifts);
  axes = list_at(s, 1, &axes_n);
  if (shifts != axes_n || shifts < 1) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: %d shifts for %d axes; give one for each", s->name,
                     shifts < 0 ? 0 : shifts, axes_n < 0 ? 0 : axes_n);
  }
  for (i = 0; i < axes_n; i++) {
    TFD_TRY(tfd__axis(s->name, s->in[0], axes[i], &axis));
  }
  return tfd__infer_like(s, 0, s->in[0]);
}

/* --- from attributes ------------------------------------------------------ */

int tfd__infer_constant_like(tfd__infer *s) {
  int64_t dtype = s->ints[0];

  TFD_TRY(check_dtype(s, &dtype, s->in[0]->dtype));
  return tfd__infer_out(s, 0, (int)dtype, s->in[0]->dims, s->in[0]->rank);
}

int tfd__infer_eye(tfd__infer *s) {
  int64_t rows = s->ints[0];
  int64_t cols = s->ints[1] == -1 ? rows : s->ints[1];
  int n = 0;
  const int64_t *batch = tfd__list(s->ints, 2, &n);
  int64_t dtype = s->ints[2 + TFD_LIST_SLOTS];
  int64_t dims[TFD_MAX_RANK + 2];

  if (rows < 0) return negative(s, "num_rows", rows);
  if (cols < 0) return negative(s, "num_columns", cols);
  TFD_TRY(check_dtype(s, &dtype, TFD_FLOAT32));
  if (n < 0) n = 0;
  memcpy(dims, batch, (size_t)n * sizeof *dims);
  dims[n] = rows;
  dims[n + 1] = cols;
  return tfd__infer_out(s, 0, (int)dtype, dims, n + 2);
}

int tfd__infer_range(tfd__infer *s) {
  double start = s->reals[0];
  double limit = s->reals[1];
  double delta = s->reals[2];
  double n = ceil((limit - start) / delta);
  int64_t dtype = s->ints[0];
  int64_t count = 0;

  if (delta == 0 || !(n == n)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: from %g to %g in steps of %g has no end", s->name,
                     start, limit, delta);
  }
  if ((delta > 0 && start > limit) || (delta < 0 && start < limit)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: from %g to %g is not possible in steps of %g",
                     s->name, start, limit, delta);
  }
  TFD_TRY(check_dtype(s, &dtype, TFD_FLOAT32));
  count = n > 0x1p53 ? INT64_MAX : n < 0 ? 0 : (int64_t)n;
  return tfd__infer_out(s, 0, (int)dtype, &count, 1);
}

int tfd__infer_one_hot(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t depth = s->ints[0];
  int64_t axis = s->ints[1];
  int64_t dtype = s->ints[2];
  int64_t dims[TFD_MAX_RANK + 1];
  int i;
  int k = 0;

  TFD_TRY(tfd__check_index(s, 0));
  TFD_TRY(check_dtype(s, &dtype, TFD_FLOAT32));
  if (depth < 0) return negative(s, "depth", depth);
  if (axis < -1 || axis > x->rank) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: axis %lld is outside [-1, %d] for indices of rank %d",
                     s->name, (long long)axis, x->rank, x->rank);
  }
  if (axis < 0) axis = x->rank;
  for (i = 0; i <= x->rank; i++) dims[i] = i == axis ? depth : x->dims[k++];
  return tfd__infer_out(s, 0, (int)dtype, dims, x->rank + 1);
}

int tfd__infer_sequence_mask(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t dtype = s->ints[1];
  int64_t dims[TFD_MAX_RANK + 1];

  TFD_TRY(tfd__check_index(s, 0));
  TFD_TRY(check_dtype(s, &dtype, TFD_BOOL));
  if (s->ints[0] < 0) return negative(s, "maxlen", s->ints[0]);
  memcpy(dims, x->dims, sizeof x->dims);
  dims[x->rank] = s->ints[0];
  return tfd__infer_out(s, 0, (int)dtype, dims, x->rank + 1);
}

/* --- matrices ------------------------------------------------------------- */

/* Diagonal k runs through a rows by cols matrix; 0 does through empty ones. */
static bool has_diagonal(int64_t k, int64_t rows, int64_t cols) {
  return k == 0 || (k > -rows && k < cols);
}

int tfd__infer_matrix_band_part(tfd__infer *s) {
  TFD_TRY(tfd__check_matrix(s));
  return tfd__infer_like(s, 0, s->in[0]);
}

/* Is diagonal k of a rows by cols matrix n long, -1 = any? */
static bool fills(int64_t k, int64_t n, int64_t rows, int64_t cols) {
  int64_t tall = rows;
  int64_t wide = cols;

  if (!has_diagonal(k, rows, cols)) return false;
  if (k < 0) tall += k;
  if (k > 0) wide -= k;
  return tfd__sizes_agree(n, tall < wide ? tall : wide);
}

int tfd__infer_matrix_diag(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t k = s->ints[0];
  int64_t rows = s->ints[1];
  int64_t cols = s->ints[2];
  int64_t down = 0;
  int64_t right = 0;
  int64_t n = 0;
  int64_t dims[TFD_MAX_RANK + 1];
  char shape[TFD_SHAPE_TEXT];

  if (x->rank < 1) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: diagonal is a scalar; expected rank 1 or more",
                     s->name);
  }
  if (rows < -1) return negative(s, "num_rows", rows);
  if (cols < -1) return negative(s, "num_cols", cols);
  if (k < -INT32_MAX || k > INT32_MAX) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: k is %lld; expected -2147483647 to 2147483647",
                     s->name, (long long)k);
  }
  n = x->dims[x->rank - 1];
  down = k < 0 ? -k : 0;
  right = k > 0 ? k : 0;
  if (n > INT64_MAX / 2) n = INT64_MAX / 2; /* too large for any matrix */
  /* Square where nothing is given; the one that is not given is as small as the
  ** diagonal allows. */
  if (n >= 0) {
    if (rows < 0 && cols < 0) rows = cols = n + down + right;
    if (rows < 0) rows = n + down;
    if (cols < 0) cols = n + right;
  }
  if (rows >= 0 && cols >= 0 && !fills(k, n, rows, cols)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: diagonal %s does not fill diagonal k = %lld of a "
                     "%lld by %lld matrix",
                     s->name, tfd__shape_text(x, shape), (long long)k,
                     (long long)rows, (long long)cols);
  }
  memcpy(dims, x->dims, sizeof x->dims);
  dims[x->rank - 1] = rows;
  dims[x->rank] = cols;
  return tfd__infer_out(s, 0, x->dtype, dims, x->rank + 1);
}

int tfd__infer_matrix_set_diag(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  const tfd__view *d = s->in[1];
  int64_t k = s->ints[0];
  int r = x->rank;
  bool fits = d->rank + 1 == r;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_matrix(s));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  if (fits) fits = tfd__dims_agree(x->dims, d->dims, r - 2);
  if (fits && x->dims[r - 2] >= 0 && x->dims[r - 1] >= 0) {
    fits = fills(k, d->dims[r - 2], x->dims[r - 2], x->dims[r - 1]);
  }
  if (!fits) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: diagonal %s does not fit diagonal k = %lld of %s",
                     s->name, tfd__shape_text(d, b), (long long)k,
                     tfd__shape_text(x, a));
  }
  return tfd__infer_like(s, 0, x);
}
