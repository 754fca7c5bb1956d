/* Inference of the array ops that only look at their input in another way:
** every output is a view of input 0, so no kernel runs and no byte moves. */
#include "ops/infer_array.h"

#include <string.h>

/* Output i becomes a view of input 0: `dims` and `strides` in elements,
** `offset` from the input's first element. */
static int view_out(tfd__infer *s, int i, const int64_t *dims,
                    const int64_t *strides, int rank, int64_t offset) {
  tfd__out_spec *out = &s->out[i];

  TFD_TRY(tfd__infer_out(s, i, s->in[0]->dtype, dims, rank));
  memcpy(out->view.strides, strides, (size_t)rank * sizeof *strides);
  tfd__view_refresh(&out->view);
  out->offset = offset;
  s->alias = true;
  return TFD_OK;
}

/* --- axes in another order ------------------------------------------------ */

static int bad_perm(tfd__infer *s, const int64_t *perm, int n) {
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  return tfd__fail(TFD_VALUE_ERROR,
                   "%s: perm %s does not name each axis of a tensor of rank "
                   "%d %s once",
                   s->name, tfd__dims_text(perm, n, a), s->in[0]->rank,
                   tfd__shape_text(s->in[0], b));
}

int tfd__infer_transpose(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int n = 0;
  const int64_t *perm = tfd__list(s->ints, 0, &n);
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[TFD_MAX_RANK];
  unsigned seen = 0;
  int i;

  if (n >= 0 && n != x->rank) return bad_perm(s, perm, n);
  for (i = 0; i < x->rank; i++) {
    int64_t from = n < 0 ? x->rank - 1 - i : perm[i];

    if (from < 0) from += x->rank;
    if (from < 0 || from >= x->rank || (seen & (1u << from)) != 0) {
      return bad_perm(s, perm, n);
    }
    seen |= 1u << from;
    dims[i] = x->dims[from];
    strides[i] = x->strides[from];
  }
  return view_out(s, 0, dims, strides, x->rank, 0);
}

int tfd__check_matrix(tfd__infer *s) {
  char shape[TFD_SHAPE_TEXT];

  if (s->in[0]->rank >= 2) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: the input has rank %d %s; expected rank 2 or more",
                   s->name, s->in[0]->rank, tfd__shape_text(s->in[0], shape));
}

int tfd__infer_matrix_transpose(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  tfd__view v = *x;
  int r = x->rank;

  TFD_TRY(tfd__check_matrix(s));
  v.dims[r - 1] = x->dims[r - 2];
  v.dims[r - 2] = x->dims[r - 1];
  v.strides[r - 1] = x->strides[r - 2];
  v.strides[r - 2] = x->strides[r - 1];
  return view_out(s, 0, v.dims, v.strides, r, 0);
}

int tfd__infer_reverse(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int n = 0;
  const int64_t *axes = tfd__list(s->ints, 0, &n);
  tfd__view v = *x;
  int64_t offset = 0;
  unsigned seen = 0;
  int i;

  for (i = 0; i < n; i++) {
    int axis = 0;

    TFD_TRY(tfd__axis(s->name, x, axes[i], &axis));
    if ((seen & (1u << axis)) != 0) {
      return tfd__fail(TFD_INVALID_ARGUMENT, "%s: axis %d is given twice",
                       s->name, axis);
    }
    seen |= 1u << axis;
    if (x->dims[axis] > 0) offset += (x->dims[axis] - 1) * x->strides[axis];
    v.strides[axis] = -x->strides[axis];
  }
  return view_out(s, 0, v.dims, v.strides, x->rank, offset);
}

/* --- axes of size 1 ------------------------------------------------------- */

int tfd__infer_expand_dims(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t axis = s->ints[0];
  int64_t dims[TFD_MAX_RANK + 1];
  int64_t strides[TFD_MAX_RANK + 1];
  char shape[TFD_SHAPE_TEXT];
  int i;
  int k = 0;

  if (axis < -x->rank - 1 || axis > x->rank) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: axis %lld is outside [%d, %d] for a tensor of rank "
                     "%d %s",
                     s->name, (long long)axis, -x->rank - 1, x->rank, x->rank,
                     tfd__shape_text(x, shape));
  }
  if (axis < 0) axis += x->rank + 1;
  for (i = 0; i <= x->rank; i++) {
    dims[i] = i == axis ? 1 : x->dims[k];
    strides[i] = i == axis ? 1 : x->strides[k];
    if (i != axis) k++;
  }
  return view_out(s, 0, dims, strides, x->rank + 1, 0);
}

int tfd__infer_squeeze(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int n = 0;
  const int64_t *axes = tfd__list(s->ints, 0, &n);
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[TFD_MAX_RANK];
  unsigned drop = 0;
  char shape[TFD_SHAPE_TEXT];
  int i;
  int k = 0;

  for (i = 0; i < n; i++) {
    int axis = 0;

    TFD_TRY(tfd__axis(s->name, x, axes[i], &axis));
    if (!tfd__sizes_agree(x->dims[axis], 1)) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: axis %d of %s has size %lld; only axes of size 1 "
                       "can go",
                       s->name, axis, tfd__shape_text(x, shape),
                       (long long)x->dims[axis]);
    }
    drop |= 1u << axis;
  }
  for (i = 0; n <= 0 && i < x->rank; i++) {
    if (x->dims[i] >= 0) continue;
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "%s: the sizes of %s are not all known, so neither is "
                     "the rank of the result; name the axes",
                     s->name, tfd__shape_text(x, shape));
  }
  for (i = 0; i < x->rank; i++) {
    /* Without a list, or with an empty one, every axis of size 1 goes. */
    if (n <= 0 && x->dims[i] == 1) drop |= 1u << i;
    if ((drop & (1u << i)) != 0) continue;
    dims[k] = x->dims[i];
    strides[k++] = x->strides[i];
  }
  return view_out(s, 0, dims, strides, k, 0);
}

/* --- parts ---------------------------------------------------------------- */

int tfd__check_per_axis(tfd__infer *s, const char *what, int n) {
  char shape[TFD_SHAPE_TEXT];

  if (n == s->in[0]->rank) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has %d entries for a tensor of rank %d %s", s->name,
                   what, n < 0 ? 0 : n, s->in[0]->rank,
                   tfd__shape_text(s->in[0], shape));
}

int tfd__infer_slice(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int begin_n = 0;
  int size_n = 0;
  const int64_t *begin = tfd__list(s->ints, 0, &begin_n);
  const int64_t *size = tfd__list(s->ints, TFD_LIST_SLOTS, &size_n);
  int64_t dims[TFD_MAX_RANK];
  int64_t offset = 0;
  char shape[TFD_SHAPE_TEXT];
  int i;

  TFD_TRY(tfd__check_per_axis(s, "begin", begin_n));
  TFD_TRY(tfd__check_per_axis(s, "size", size_n));
  for (i = 0; i < x->rank; i++) {
    int64_t n = x->dims[i] < 0 ? INT64_MAX : x->dims[i];
    bool fits = begin[i] >= 0 && begin[i] <= n;

    dims[i] = size[i] == -1 && fits ? n - begin[i] : size[i];
    if (!fits || dims[i] < 0 || dims[i] > n - begin[i]) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: axis %d: begin %lld and size %lld do not fit a "
                       "tensor of shape %s",
                       s->name, i, (long long)begin[i], (long long)size[i],
                       tfd__shape_text(x, shape));
    }
    if (x->dims[i] < 0 && size[i] == -1) dims[i] = -1;
    offset += begin[i] * x->strides[i];
  }
  return view_out(s, 0, dims, x->strides, x->rank, offset);
}

/* Elements of begin, begin + stride, ... before end, for positions and
** strides of any size. */
static __int128 stepped(int64_t begin, int64_t end, int64_t stride) {
  __int128 span = stride > 0 ? (__int128)end - begin : (__int128)begin - end;
  __int128 step = stride > 0 ? stride : -(__int128)stride;

  return span > 0 ? (span + step - 1) / step : 0;
}

/* Elements of a slice of an axis of n elements, -1 = unknown, as it then is
** with `end` at the axis' own. */
static __int128 sliced(int64_t n, int64_t *begin, int64_t end, int64_t step) {
  if (step <= 0 || end != TFD_AXIS_END) return stepped(*begin, end, step);
  if (n < 0) return -1;
  if (*begin > n) *begin = n;
  return stepped(*begin, n, step);
}

/* begin, end and strides are resolved: positions count from 0, and an end of
** -1 with a negative stride means "down to position 0"; TFD_AXIS_END is where
** the axis ends. Bit i of shrink_mask drops axis i, which then has one
** element. */
int tfd__infer_strided_slice(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int lists[3];
  const int64_t *begin = tfd__list(s->ints, 0, &lists[0]);
  const int64_t *end = tfd__list(s->ints, TFD_LIST_SLOTS, &lists[1]);
  const int64_t *step = tfd__list(s->ints, 2 * TFD_LIST_SLOTS, &lists[2]);
  int64_t shrink = s->ints[3 * TFD_LIST_SLOTS];
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[TFD_MAX_RANK];
  int64_t offset = 0;
  char shape[TFD_SHAPE_TEXT];
  int i;
  int k = 0;

  TFD_TRY(tfd__check_per_axis(s, "begin", lists[0]));
  TFD_TRY(tfd__check_per_axis(s, "end", lists[1]));
  TFD_TRY(tfd__check_per_axis(s, "strides", lists[2]));
  if (shrink < 0 || shrink >> x->rank != 0) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: shrink_mask is %lld; expected bits of the %d axes",
                     s->name, (long long)shrink, x->rank);
  }
  for (i = 0; i < x->rank; i++) {
    int64_t first = begin[i];
    __int128 count =
        step[i] == 0 ? 0 : sliced(x->dims[i], &first, end[i], step[i]);
    __int128 last = first + (count - 1) * step[i];
    bool drop = ((shrink >> i) & 1) != 0;
    int64_t n = x->dims[i] < 0 ? INT64_MAX : x->dims[i];

    if (step[i] == 0) {
      return tfd__fail(TFD_INVALID_ARGUMENT, "%s: strides[%d] is 0", s->name,
                       i);
    }
    if ((drop && count != 1) || (count != 0 && (first < 0 || first >= n)) ||
        (count > 0 && (last < 0 || last >= n))) {
      return tfd__fail(drop ? TFD_INDEX_ERROR : TFD_INVALID_ARGUMENT,
                       "%s: axis %d: positions %lld to %lld (stride %lld) are "
                       "outside a tensor of shape %s",
                       s->name, i, (long long)begin[i], (long long)end[i],
                       (long long)step[i], tfd__shape_text(x, shape));
    }
    if (count > 0) offset += first * x->strides[i];
    if (drop) continue;
    dims[k] = (int64_t)count;
    /* A step past the end may be any number. */
    strides[k++] = x->strides[i] * (count > 1 ? step[i] : 1);
  }
  return view_out(s, 0, dims, strides, k, offset);
}

/* dy must have the shape of the slice of a tensor of `shape`. */
int tfd__infer_strided_slice_grad(tfd__infer *s) {
  const tfd__view *dy = s->in[0];
  int rank = 0;
  const int64_t *shape = tfd__list(s->ints, 0, &rank);
  tfd__view whole;
  const tfd__view *in = &whole;
  tfd__infer slice = *s;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (rank < 0) rank = 0;
  TFD_TRY(s->partial ? tfd__view_set_partial(&whole, dy->dtype, shape, rank)
                     : tfd__view_set(&whole, dy->dtype, shape, rank));
  slice.in = &in;
  slice.out = slice.small;
  slice.ints = s->ints + TFD_LIST_SLOTS;
  TFD_TRY(tfd__infer_strided_slice(&slice));
  if (!tfd__shapes_agree(&slice.out[0].view, dy)) {
    return tfd__fail(
        TFD_INVALID_ARGUMENT, "%s: dy has shape %s, the slice has %s", s->name,
        tfd__shape_text(dy, a), tfd__shape_text(&slice.out[0].view, b));
  }
  return tfd__infer_out(s, 0, dy->dtype, shape, rank);
}

/* Outputs are consecutive pieces of `axis`, the i-th sizes[i] (or `each`)
** long. */
static int pieces(tfd__infer *s, int axis, int n, const int64_t *sizes,
                  int64_t each) {
  const tfd__view *x = s->in[0];
  int64_t dims[TFD_MAX_RANK];
  int64_t offset = 0;
  int i;

  TFD_TRY(tfd__infer_outputs(s, n));
  memcpy(dims, x->dims, sizeof dims);
  for (i = 0; i < n; i++) {
    dims[axis] = sizes == NULL ? each : sizes[i];
    TFD_TRY(view_out(s, i, dims, x->strides, x->rank, offset));
    offset += dims[axis] * x->strides[axis];
  }
  return TFD_OK;
}

int tfd__infer_split(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t n = s->ints[0];
  int axis = 0;
  char shape[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__axis(s->name, x, s->ints[1], &axis));
  if (n < 1 || n > INT16_MAX || (x->dims[axis] >= 0 && x->dims[axis] % n)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: axis %d of %s cannot be cut into %lld equal pieces",
                     s->name, axis, tfd__shape_text(x, shape), (long long)n);
  }
  return pieces(s, axis, (int)n, NULL,
                x->dims[axis] < 0 ? -1 : x->dims[axis] / n);
}

int tfd__infer_split_v(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int n = 0;
  const int64_t *asked = tfd__list(s->ints, 0, &n);
  int64_t sizes[TFD_MAX_RANK];
  int64_t whole = 0;
  int64_t known = 0;
  int free_piece = -1;
  int axis = 0;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  bool fits = n > 0;
  int i;

  TFD_TRY(tfd__axis(s->name, x, s->ints[TFD_LIST_SLOTS], &axis));
  whole = x->dims[axis] < 0 ? INT64_MAX : x->dims[axis];
  for (i = 0; i < n; i++) {
    sizes[i] = asked[i];
    if (asked[i] == -1 && free_piece < 0) {
      free_piece = i;
    } else {
      fits = fits && asked[i] >= 0 && asked[i] <= whole - known;
      known += fits ? asked[i] : 0;
    }
  }
  if (free_piece >= 0) {
    sizes[free_piece] = x->dims[axis] < 0 ? -1 : whole - known;
  }
  if (!fits || (free_piece < 0 && !tfd__sizes_agree(x->dims[axis], known))) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: pieces of sizes %s do not make up axis %d of %s",
                     s->name, tfd__dims_text(asked, n < 0 ? 0 : n, a), axis,
                     tfd__shape_text(x, b));
  }
  return pieces(s, axis, n, sizes, 0);
}

int tfd__infer_unstack(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t num = s->ints[0];
  int64_t size = 0;
  int64_t dims[TFD_MAX_RANK];
  int64_t strides[TFD_MAX_RANK];
  int axis = 0;
  int n = 0;
  int i;
  int k = 0;

  TFD_TRY(tfd__axis(s->name, x, s->ints[1], &axis));
  size = tfd__size_merged(x->dims[axis], num);
  if (size == -1) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: the size of axis %d is not known; num must say how "
                     "many tensors",
                     s->name, axis);
  }
  if ((num != -1 && num != size) || size < 0 || size > INT16_MAX) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: axis %d has size %lld, which cannot become %lld "
                     "tensors",
                     s->name, axis, (long long)x->dims[axis],
                     (long long)(num == -1 ? size : num));
  }
  for (i = 0; i < x->rank; i++) {
    if (i == axis) continue;
    dims[k] = x->dims[i];
    strides[k++] = x->strides[i];
  }
  n = (int)size;
  TFD_TRY(tfd__infer_outputs(s, n));
  s->alias = true;
  for (i = 0; i < n; i++) {
    TFD_TRY(view_out(s, i, dims, strides, k, i * x->strides[axis]));
  }
  return TFD_OK;
}

/* --- diagonals ------------------------------------------------------------ */

/* Diagonal k of each matrix: k > 0 above the main one, k < 0 below. */
int tfd__infer_matrix_diag_part(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t k = s->ints[0];
  int r = x->rank;
  tfd__view v = *x;
  int64_t rows = 0;
  int64_t cols = 0;
  char shape[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_matrix(s));
  rows = x->dims[r - 2];
  cols = x->dims[r - 1];
  if ((k > 0 && cols >= 0 && k >= cols) || (k < 0 && rows >= 0 && k <= -rows)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: diagonal k = %lld is outside matrices of shape %s",
                     s->name, (long long)k, tfd__shape_text(x, shape));
  }
  if (k < 0) rows += k;
  if (k > 0) cols -= k;
  v.dims[r - 2] = rows < cols ? rows : cols;
  if (x->dims[r - 2] < 0 || x->dims[r - 1] < 0) v.dims[r - 2] = -1;
  v.strides[r - 2] = x->strides[r - 2] + x->strides[r - 1];
  return view_out(s, 0, v.dims, v.strides, r - 1,
                  k > 0 ? k * x->strides[r - 1] : -k * x->strides[r - 2]);
}
