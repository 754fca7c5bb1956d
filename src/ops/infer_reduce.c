/* Shapes and dtypes of reductions and running sums. Attributes of a reduction
** start with the axis list and keepdims. */
#include "ops/ops.h"

#define KEEPDIMS TFD_LIST_SLOTS

/* Bits of the listed axes; all axes when the list is absent. */
static int axes_of(tfd__infer *s, unsigned *axes_p) {
  int n = 0;
  const int64_t *list = tfd__list(s->ints, 0, &n);
  unsigned axes = 0;

  if (n < 0) {
    *axes_p = (1u << s->in[0]->rank) - 1;
    return TFD_OK;
  }
  for (int i = 0; i < n; i++) {
    int axis = 0;

    TFD_TRY(tfd__axis(s->name, s->in[0], list[i], &axis));
    if ((axes >> axis & 1u) != 0) {
      return tfd__fail(TFD_VALUE_ERROR,
                       "%s: axis %d is listed twice; expected distinct axes",
                       s->name, axis);
    }
    axes |= 1u << axis;
  }
  *axes_p = axes;
  return TFD_OK;
}

static int reduced(tfd__infer *s, unsigned axes, bool keepdims, int dtype) {
  const tfd__view *in = s->in[0];
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;

  for (int d = 0; d < in->rank; d++) {
    if ((axes >> d & 1u) == 0) {
      dims[rank++] = in->dims[d];
    } else if (keepdims) {
      dims[rank++] = 1;
    }
  }
  return tfd__infer_out(s, 0, dtype, dims, rank);
}

static int reduce_to(tfd__infer *s, int dtype) {
  unsigned axes = 0;

  TFD_TRY(axes_of(s, &axes));
  return reduced(s, axes, s->ints[KEEPDIMS] != 0, dtype);
}

static int no_bool(tfd__infer *s) {
  char name[32];

  if (s->in[0]->dtype != TFD_BOOL) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has dtype bool; expected a number dtype (use "
                   "tf.cast)",
                   s->name, tfd__arg_name(s, 0, name));
}

int tfd__infer_reduce_number(tfd__infer *s) {
  TFD_TRY(no_bool(s));
  return reduce_to(s, s->in[0]->dtype);
}

int tfd__infer_reduce_float(tfd__infer *s) {
  TFD_TRY(tfd__check_float(s, 0));
  return reduce_to(s, s->in[0]->dtype);
}

int tfd__infer_reduce_bool(tfd__infer *s) {
  char name[32];

  if (s->in[0]->dtype != TFD_BOOL) {
    return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s has dtype %s; expected bool",
                     s->name, tfd__arg_name(s, 0, name),
                     tfd__dtype_name(s->in[0]->dtype));
  }
  return reduce_to(s, TFD_BOOL);
}

int tfd__infer_count_nonzero(tfd__infer *s) {
  int dtype = (int)s->ints[KEEPDIMS + 1];

  if (dtype == 0) dtype = TFD_INT64;
  if (!tfd__dtype_ok(dtype) || dtype == TFD_BOOL) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: dtype is %s; expected a number dtype", s->name,
                     tfd__dtype_name(dtype));
  }
  return reduce_to(s, dtype);
}

int tfd__infer_arg_extreme(tfd__infer *s) {
  int axis = 0;
  int dtype = (int)s->ints[1];
  char shape[TFD_SHAPE_TEXT];

  if (dtype == 0) dtype = TFD_INT64;
  if (dtype != TFD_INT64 && dtype != TFD_INT32) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: output_type is %s; expected int32 or int64", s->name,
                     tfd__dtype_name(dtype));
  }
  TFD_TRY(tfd__axis(s->name, s->in[0], s->ints[0], &axis));
  if (s->in[0]->dims[axis] == 0) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: axis %d of input %s is empty; expected one element "
                     "or more",
                     s->name, axis, tfd__shape_text(s->in[0], shape));
  }
  return reduced(s, 1u << axis, false, dtype);
}

/* cumsum and cumprod: ints are axis, exclusive, reverse. */
int tfd__infer_cumulative(tfd__infer *s) {
  int axis = 0;

  TFD_TRY(no_bool(s));
  TFD_TRY(tfd__axis(s->name, s->in[0], s->ints[0], &axis));
  return tfd__infer_like(s, 0, s->in[0]);
}

int tfd__infer_cumulative_float(tfd__infer *s) {
  TFD_TRY(tfd__check_float(s, 0));
  return tfd__infer_cumulative(s);
}

/* arr, weights?, size; the result is {size}, or {batch, size} for rank 2. */
int tfd__infer_bincount(tfd__infer *s) {
  const tfd__view *arr = s->in[0];
  const tfd__view *weights = s->in[1];
  int64_t dims[2] = {arr->dims[0], s->ints[0]};
  int dtype = (int)s->ints[1];

  TFD_TRY(tfd__check_index(s, 0));
  if (s->ints[0] < 0) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: size is %lld; expected 0 or more",
                     s->name, (long long)s->ints[0]);
  }
  if (weights != NULL && !tfd__shapes_agree(arr, weights)) {
    char a[TFD_SHAPE_TEXT];
    char b[TFD_SHAPE_TEXT];

    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: arr is %s and weights are %s; shapes must match",
                     s->name, tfd__shape_text(arr, a),
                     tfd__shape_text(weights, b));
  }
  if (dtype == 0) dtype = TFD_INT32;
  if (weights != NULL) dtype = weights->dtype;
  if (!tfd__dtype_ok(dtype) || dtype == TFD_BOOL) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: dtype is %s; expected a number dtype", s->name,
                     tfd__dtype_name(dtype));
  }
  if (s->ints[3] == 0) return tfd__infer_out(s, 0, dtype, dims + 1, 1);
  TFD_TRY(tfd__check_rank(s, 0, 2));
  return tfd__infer_out(s, 0, dtype, dims, 2);
}
