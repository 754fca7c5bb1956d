#include "types/types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/given.h"

/* --- dtypes --------------------------------------------------------------- */

static const tfd__dtype_info dtypes[TFD_DTYPE_END] = {
    [TFD_FLOAT32] = {"float32", 4, true, false, true},
    [TFD_FLOAT64] = {"float64", 8, true, false, true},
    [TFD_FLOAT16] = {"float16", 2, true, false, true},
    [TFD_BFLOAT16] = {"bfloat16", 2, true, false, true},
    [TFD_INT8] = {"int8", 1, false, true, true},
    [TFD_INT16] = {"int16", 2, false, true, true},
    [TFD_INT32] = {"int32", 4, false, true, true},
    [TFD_INT64] = {"int64", 8, false, true, true},
    [TFD_UINT8] = {"uint8", 1, false, true, false},
    [TFD_BOOL] = {"bool", 1, false, false, false},
};

const tfd__dtype_info *tfd__dtype_info_of(int dtype) {
  return tfd__dtype_ok(dtype) ? &dtypes[dtype] : NULL;
}

const char *tfd__dtype_name(int dtype) {
  return tfd__dtype_ok(dtype) ? dtypes[dtype].name : "?";
}

size_t tfd__dtype_size(int dtype) {
  return tfd__dtype_ok(dtype) ? dtypes[dtype].size : 0;
}

bool tfd__is_float(int dtype) {
  return tfd__dtype_ok(dtype) && dtypes[dtype].is_float;
}

bool tfd__is_int(int dtype) {
  return tfd__dtype_ok(dtype) && dtypes[dtype].is_int;
}

const char *tfd_dtype_name(int dtype) {
  return tfd__dtype_ok(dtype) ? dtypes[dtype].name : NULL;
}

int tfd_dtype_size(int dtype) {
  return (int)tfd__dtype_size(dtype);
}

int tfd_dtype_find(const char *name, int *dtype_p) {
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_POINTER(dtype_p);

  char known[256] = "";
  size_t used = 0;

  for (int i = 1; i < TFD_DTYPE_END; i++) {
    if (strcmp(name, dtypes[i].name) == 0) {
      *dtype_p = i;
      return TFD_OK;
    }
  }
  for (int i = 1; i < TFD_DTYPE_END; i++) {
    int n = snprintf(known + used, sizeof known - used, "%s%s",
                     i > 1 ? ", " : "", dtypes[i].name);

    used += (size_t)n; /* all names together are far shorter than the buffer */
  }
  return tfd__fail(TFD_TYPE_ERROR, "unknown dtype \"%s\"; dtypes are %s", name,
                   known);
}

/* --- shapes --------------------------------------------------------------- */

/* Row-major strides; an axis without elements counts as one, so that strides
** are never all zero. */
static void set_dense_strides(tfd__view *v) {
  int64_t stride = 1;

  for (int i = v->rank - 1; i >= 0; i--) {
    v->strides[i] = stride;
    stride *= v->dims[i] > 0 ? v->dims[i] : 1;
  }
}

static int fail_too_large(int dtype, const int64_t *dims, int rank) {
  char text[TFD_SHAPE_TEXT];

  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "shape %s of %s is too large: its bytes do not fit 63 bits",
                   tfd__dims_text(dims, rank, text), tfd__dtype_name(dtype));
}

static int fail_negative(const int64_t *dims, int rank, int axis) {
  char text[TFD_SHAPE_TEXT];

  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "shape %s: the size of axis %d is %" PRId64
                   "; sizes are 0 or more",
                   tfd__dims_text(dims, rank, text), axis, dims[axis]);
}

static int fail_rank(const int64_t *dims, int rank) {
  char text[TFD_SHAPE_TEXT];

  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "shape %s has rank %d; tensors have at most %d axes",
                   tfd__dims_text(dims, rank, text), rank, TFD_MAX_RANK);
}

int tfd__view_set(tfd__view *v, int dtype, const int64_t *dims, int rank) {
  int64_t strides[TFD_MAX_RANK];
  int64_t stride = 1; /* elements, where an empty axis counts as one */
  int64_t bytes = 0;
  bool empty = false;

  if (!tfd__dtype_ok(dtype)) {
    return tfd__fail(TFD_INVALID_ARGUMENT, "unknown dtype number %d", dtype);
  }
  if (rank < 0 || rank > TFD_MAX_RANK) return fail_rank(dims, rank);
  for (int i = rank - 1; i >= 0; i--) {
    if (dims[i] < 0) return fail_negative(dims, rank, i);
    strides[i] = stride;
    if (dims[i] == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(stride, dims[i], &stride)) {
      return fail_too_large(dtype, dims, rank);
    }
  }
  if (__builtin_mul_overflow(stride, (int64_t)dtypes[dtype].size, &bytes)) {
    return fail_too_large(dtype, dims, rank);
  }
  v->dtype = (uint8_t)dtype;
  v->rank = (uint8_t)rank;
  v->numel = empty ? 0 : stride;
  v->dense = true;
  for (int i = 0; i < rank; i++) {
    v->dims[i] = dims[i];
    v->strides[i] = strides[i];
  }
  return TFD_OK;
}

int tfd__view_set_partial(tfd__view *v, int dtype, const int64_t *dims,
                          int rank) {
  int64_t known[TFD_MAX_RANK] = {0};
  bool unknown = false;

  if (rank < 0 || rank > TFD_MAX_RANK) return fail_rank(dims, rank);
  for (int i = 0; i < rank; i++) {
    known[i] = dims[i] == -1 ? 1 : dims[i];
    unknown = unknown || dims[i] == -1;
  }
  TFD_TRY(tfd__view_set(v, dtype, known, rank));
  if (!unknown) return TFD_OK;
  v->numel = -1;
  for (int i = 0; i < rank; i++) v->dims[i] = dims[i];
  return TFD_OK;
}

void tfd__view_refresh(tfd__view *v) {
  int64_t numel = 1;
  bool dense = true;

  for (int i = v->rank - 1; i >= 0; i--) {
    if (v->dims[i] != 1 && v->strides[i] != numel) dense = false;
    numel *= v->dims[i];
  }
  v->numel = numel;
  v->dense = dense || numel == 0;
  if (v->dense) set_dense_strides(v);
}

size_t tfd__view_bytes(const tfd__view *v) {
  return (size_t)v->numel * tfd__dtype_size(v->dtype);
}

bool tfd__same_shape(const tfd__view *a, const tfd__view *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++) {
    if (a->dims[i] != b->dims[i]) return false;
  }
  return true;
}

bool tfd__dims_agree(const int64_t *a, const int64_t *b, int n) {
  for (int i = 0; i < n; i++) {
    if (!tfd__sizes_agree(a[i], b[i])) return false;
  }
  return true;
}

bool tfd__shapes_agree(const tfd__view *a, const tfd__view *b) {
  return a->rank == b->rank && tfd__dims_agree(a->dims, b->dims, a->rank);
}

const char *tfd__dims_text(const int64_t *dims, int rank,
                           char buf[TFD_SHAPE_TEXT]) {
  int shown = rank < TFD_MAX_RANK ? rank : TFD_MAX_RANK;
  size_t used = 1;

  /* The eight longest numbers take 176 characters, so all of it fits. */
  buf[0] = '{';
  for (int i = 0; i < shown; i++) {
    used += (size_t)snprintf(buf + used, TFD_SHAPE_TEXT - used, "%s%" PRId64,
                             i > 0 ? ", " : "", dims[i]);
  }
  (void)snprintf(buf + used, TFD_SHAPE_TEXT - used, "%s}",
                 rank > shown ? ", ..." : "");
  return buf;
}

const char *tfd__shape_text(const tfd__view *v, char buf[TFD_SHAPE_TEXT]) {
  return tfd__dims_text(v->dims, v->rank, buf);
}

int tfd__axis(const char *op, const tfd__view *v, int64_t axis, int *axis_p) {
  char text[TFD_SHAPE_TEXT];

  if (axis >= -(int64_t)v->rank && axis < v->rank) {
    *axis_p = (int)(axis < 0 ? axis + v->rank : axis);
    return TFD_OK;
  }
  return tfd__fail(TFD_VALUE_ERROR,
                   "%s: axis %" PRId64 " is outside a tensor of rank %d %s; "
                   "axes count from 0, -1 is the last",
                   op, axis, v->rank, tfd__shape_text(v, text));
}

/* --- broadcasting --------------------------------------------------------- */

int tfd__broadcast(const char *op, const tfd__view *a, const tfd__view *b,
                   int64_t dims[TFD_MAX_RANK], int *rank_p) {
  const tfd__view *longer = a->rank >= b->rank ? a : b;
  const tfd__view *shorter = longer == a ? b : a;
  int lead = longer->rank - shorter->rank;
  int64_t merged[TFD_MAX_RANK];
  char text_a[TFD_SHAPE_TEXT];
  char text_b[TFD_SHAPE_TEXT];

  for (int i = 0; i < longer->rank; i++) {
    int64_t size = longer->dims[i];
    int64_t other = i < lead ? 1 : shorter->dims[i - lead];

    if (size != other && size != 1 && other != 1 && size >= 0 && other >= 0) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: shapes %s and %s do not broadcast", op,
                       tfd__shape_text(a, text_a), tfd__shape_text(b, text_b));
    }
    /* Unknown ones lose against sizes above 1 alone: 0 may meet a 1. */
    merged[i] = size == 1 || (size < 0 && other > 1) ? other : size;
    if (other < 0 && size == 0) merged[i] = -1;
  }
  memcpy(dims, merged, sizeof merged[0] * longer->rank);
  *rank_p = longer->rank;
  return TFD_OK;
}

tfd__view tfd__broadcast_view(const tfd__view *v, const int64_t *dims,
                              int rank) {
  tfd__view wide = *v;
  int lead = rank - v->rank;
  bool same = lead == 0;

  wide.rank = (uint8_t)rank;
  wide.numel = 1;
  for (int i = 0; i < rank; i++) {
    int64_t size = i < lead ? 1 : v->dims[i - lead];

    wide.dims[i] = dims[i];
    wide.strides[i] = size == dims[i] && i >= lead ? v->strides[i - lead] : 0;
    wide.numel *= dims[i];
    if (size != dims[i]) same = false;
  }
  wide.dense = same && v->dense;
  return wide;
}

/* True when stepping over the end of axis `inner`, of this size, is one step of
** axis `outer` in all strides. */
static bool can_merge(int64_t strides[][TFD_MAX_RANK], int n, int outer,
                      int inner, int64_t size) {
  for (int k = 0; k < n; k++) {
    if (strides[k][outer] != strides[k][inner] * size) return false;
  }
  return true;
}

/* Coalesce these axes where they are. */
static int merge_axes(int64_t *dims, int64_t strides[][TFD_MAX_RANK], int n,
                      int rank) {
  int kept = 0;

  for (int i = 0; i < rank; i++) {
    int64_t size = dims[i];

    if (size == 1) continue;
    if (kept > 0 && can_merge(strides, n, kept - 1, i, size)) {
      dims[kept - 1] *= size;
    } else {
      dims[kept++] = size;
    }
    for (int k = 0; k < n; k++) strides[k][kept - 1] = strides[k][i];
  }
  if (kept > 0) return kept;
  dims[0] = 1;
  for (int k = 0; k < n; k++) strides[k][0] = 1;
  return 1;
}

/* Nothing to walk over. */
static int no_axes(int64_t *dims, int64_t strides[][TFD_MAX_RANK], int n) {
  dims[0] = 0;
  for (int k = 0; k < n; k++) strides[k][0] = 1;
  return 1;
}

int tfd__coalesce(const tfd__view *const *views, int n,
                  int64_t dims[TFD_MAX_RANK], int64_t strides[][TFD_MAX_RANK]) {
  const tfd__view *first = views[0];

  if (first->numel == 0) return no_axes(dims, strides, n);
  for (int i = 0; i < first->rank; i++) {
    dims[i] = first->dims[i];
    for (int k = 0; k < n; k++) strides[k][i] = views[k]->strides[i];
  }
  return merge_axes(dims, strides, n, first->rank);
}

/* Of v's elements in a shape that it is broadcast to. */
static void broadcast_strides(const tfd__view *v, const tfd__view *to,
                              int64_t *strides) {
  int lead = to->rank - v->rank;

  for (int i = 0; i < lead; i++) strides[i] = 0;
  for (int i = lead; i < to->rank; i++) {
    bool repeats = v->dims[i - lead] != to->dims[i];

    strides[i] = repeats ? 0 : v->strides[i - lead];
  }
}

int tfd__coalesce_over(const tfd__view *out, const tfd__view *const *in, int n,
                       int64_t dims[TFD_MAX_RANK],
                       int64_t strides[][TFD_MAX_RANK]) {
  if (out->numel == 0) return no_axes(dims, strides, n + 1);
  for (int k = 0; k < n; k++) broadcast_strides(in[k], out, strides[k]);
  for (int i = 0; i < out->rank; i++) {
    dims[i] = out->dims[i];
    strides[n][i] = out->strides[i];
  }
  return merge_axes(dims, strides, n + 1, out->rank);
}

/* --- single elements ------------------------------------------------------ */

/* Round to float so that a second rounding to fewer bits gives the same as
** one rounding would: towards zero, and odd if anything was lost. */
static float float_round_odd(double value) {
  float f = (float)value;
  uint32_t u = tfd__float_to_bits(f);
  double size = value < 0 ? -value : value;
  double rounded = f < 0 ? -(double)f : (double)f;

  if (rounded == size || rounded != rounded || size > 3.4e38) return f;
  if (rounded > size) u--;
  return tfd__bits_to_float(u | 1);
}

double tfd__load(const void *data, int dtype) {
  switch (dtype) {
  case TFD_FLOAT32:
    return *(const float *)data;
  case TFD_FLOAT64:
    return *(const double *)data;
  case TFD_FLOAT16:
    return tfd__half_to_float(*(const uint16_t *)data);
  case TFD_BFLOAT16:
    return tfd__bf16_to_float(*(const uint16_t *)data);
  case TFD_INT8:
    return *(const int8_t *)data;
  case TFD_INT16:
    return *(const int16_t *)data;
  case TFD_INT32:
    return *(const int32_t *)data;
  case TFD_INT64:
    return (double)*(const int64_t *)data;
  case TFD_UINT8:
    return *(const uint8_t *)data;
  default:
    return *(const uint8_t *)data != 0;
  }
}

/* `low` and `high` are the range of an integer type. As a double, high may be
** one more than the largest (int64); the comparison then still holds. */
static int64_t saturate(double value, int64_t low, int64_t high) {
  if (value != value) return 0;
  if (value <= (double)low) return low;
  if (value >= (double)high) return high;
  return (int64_t)value;
}

void tfd__store(void *data, int dtype, double value) {
  switch (dtype) {
  case TFD_FLOAT32:
    *(float *)data = (float)value;
    break;
  case TFD_FLOAT64:
    *(double *)data = value;
    break;
  case TFD_FLOAT16:
    *(uint16_t *)data = tfd__float_to_half(float_round_odd(value));
    break;
  case TFD_BFLOAT16:
    *(uint16_t *)data = tfd__float_to_bf16(float_round_odd(value));
    break;
  case TFD_INT8:
    *(int8_t *)data = (int8_t)saturate(value, INT8_MIN, INT8_MAX);
    break;
  case TFD_INT16:
    *(int16_t *)data = (int16_t)saturate(value, INT16_MIN, INT16_MAX);
    break;
  case TFD_INT32:
    *(int32_t *)data = (int32_t)saturate(value, INT32_MIN, INT32_MAX);
    break;
  case TFD_INT64:
    *(int64_t *)data = saturate(value, INT64_MIN, INT64_MAX);
    break;
  case TFD_UINT8:
    *(uint8_t *)data = (uint8_t)saturate(value, 0, UINT8_MAX);
    break;
  default:
    *(uint8_t *)data = value != 0;
    break;
  }
}
