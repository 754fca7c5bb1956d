/* Shapes and dtypes of elementwise ops. */
#include "ops/ops.h"

static int check_number(tfd__infer *s, int i) {
  char name[32];

  if (s->in[i]->dtype != TFD_BOOL) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has dtype bool; expected a number dtype (use "
                   "tf.cast)",
                   s->name, tfd__arg_name(s, i, name));
}

static int check_bool(tfd__infer *s, int i) {
  char name[32];

  if (s->in[i]->dtype == TFD_BOOL) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s has dtype %s; expected bool",
                   s->name, tfd__arg_name(s, i, name),
                   tfd__dtype_name(s->in[i]->dtype));
}

/* Output 0: in[a] and in[b] broadcast against each other. */
static int broadcast_pair(tfd__infer *s, int dtype, const tfd__view *a,
                          const tfd__view *b) {
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;

  if (tfd__same_shape(a, b)) {
    return tfd__infer_out(s, 0, dtype, a->dims, a->rank);
  }
  TFD_TRY(tfd__broadcast(s->name, a, b, dims, &rank));
  return tfd__infer_out(s, 0, dtype, dims, rank);
}

static int binary(tfd__infer *s, int dtype) {
  return broadcast_pair(s, dtype, s->in[0], s->in[1]);
}

/* --- one input ------------------------------------------------------------ */

int tfd__infer_unary_number(tfd__infer *s) {
  TFD_TRY(check_number(s, 0));
  return tfd__infer_like(s, 0, s->in[0]);
}

int tfd__infer_unary_float(tfd__infer *s) {
  TFD_TRY(tfd__check_float(s, 0));
  return tfd__infer_like(s, 0, s->in[0]);
}

int tfd__infer_unary_int(tfd__infer *s) {
  TFD_TRY(tfd__check_int(s, 0));
  return tfd__infer_like(s, 0, s->in[0]);
}

int tfd__infer_unary_bool(tfd__infer *s) {
  TFD_TRY(check_bool(s, 0));
  return tfd__infer_like(s, 0, s->in[0]);
}

/* Integers are whole already: ceil, floor, rint of them are the input. */
int tfd__infer_rounding(tfd__infer *s) {
  TFD_TRY(check_number(s, 0));
  if (tfd__is_float(s->in[0]->dtype)) {
    return tfd__infer_like(s, 0, s->in[0]);
  }
  s->out[0].view = *s->in[0];
  s->out[0].offset = 0;
  s->alias = true;
  return TFD_OK;
}

int tfd__infer_float_test(tfd__infer *s) {
  TFD_TRY(tfd__check_float(s, 0));
  return tfd__infer_out(s, 0, TFD_BOOL, s->in[0]->dims, s->in[0]->rank);
}

int tfd__infer_cast(tfd__infer *s) {
  int dtype = (int)s->ints[0];

  if (!tfd__dtype_ok(dtype)) {
    return tfd__fail(TFD_TYPE_ERROR, "%s: %d is no dtype", s->name, dtype);
  }
  if (dtype == s->in[0]->dtype) {
    s->out[0].view = *s->in[0];
    s->out[0].offset = 0;
    s->alias = true;
    return TFD_OK;
  }
  return tfd__infer_out(s, 0, dtype, s->in[0]->dims, s->in[0]->rank);
}

/* --- two inputs ----------------------------------------------------------- */

int tfd__infer_binary_number(tfd__infer *s) {
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(check_number(s, 0));
  return binary(s, s->in[0]->dtype);
}

int tfd__infer_binary_float(tfd__infer *s) {
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(tfd__check_float(s, 0));
  return binary(s, s->in[0]->dtype);
}

int tfd__infer_binary_int(tfd__infer *s) {
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(tfd__check_int(s, 0));
  return binary(s, s->in[0]->dtype);
}

int tfd__infer_binary_bool(tfd__infer *s) {
  TFD_TRY(check_bool(s, 0));
  TFD_TRY(check_bool(s, 1));
  return binary(s, TFD_BOOL);
}

/* True division of integers gives float64, of 8 and 16 bits float32. */
int tfd__infer_divide(tfd__infer *s) {
  int dtype = s->in[0]->dtype;

  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(check_number(s, 0));
  if (tfd__is_int(dtype)) {
    dtype = tfd__dtype_size(dtype) > 2 ? TFD_FLOAT64 : TFD_FLOAT32;
  }
  return binary(s, dtype);
}

int tfd__infer_compare(tfd__infer *s) {
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(check_number(s, 0));
  return binary(s, TFD_BOOL);
}

/* Equality is there for bool too. */
int tfd__infer_equality(tfd__infer *s) {
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  return binary(s, TFD_BOOL);
}

/* --- more inputs ---------------------------------------------------------- */

/* Output 0 is in[0] broadcast with in[1] and in[2]. */
static int broadcast_three(tfd__infer *s, int dtype) {
  tfd__view first = *s->in[0];

  if (tfd__same_shape(s->in[0], s->in[1]) &&
      tfd__same_shape(s->in[0], s->in[2])) {
    return tfd__infer_out(s, 0, dtype, first.dims, first.rank);
  }
  TFD_TRY(broadcast_pair(s, dtype, s->in[0], s->in[1]));
  first = s->out[0].view;
  return broadcast_pair(s, dtype, &first, s->in[2]);
}

int tfd__infer_select(tfd__infer *s) {
  TFD_TRY(check_bool(s, 0));
  TFD_TRY(tfd__check_same_dtype(s, 1, 2));
  return broadcast_three(s, s->in[1]->dtype);
}

int tfd__infer_clip_by_value(tfd__infer *s) {
  TFD_TRY(check_number(s, 0));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(tfd__check_same_dtype(s, 0, 2));
  return broadcast_three(s, s->in[0]->dtype);
}

int tfd__infer_add_n(tfd__infer *s) {
  tfd__view sum = *s->in[0];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  TFD_TRY(check_number(s, 0));
  for (int i = 1; i < s->in_n; i++) {
    if (s->in[i]->dtype != s->in[0]->dtype) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: inputs[%d] is %s and inputs[0] is %s; all must "
                       "have the same dtype",
                       s->name, i, tfd__dtype_name(s->in[i]->dtype),
                       tfd__dtype_name(s->in[0]->dtype));
    }
    if (!tfd__shapes_agree(s->in[i], &sum)) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: inputs[%d] is %s and inputs[0] is %s; all must "
                       "have the same shape",
                       s->name, i, tfd__shape_text(s->in[i], a),
                       tfd__shape_text(s->in[0], b));
    }
    for (int k = 0; s->partial && k < sum.rank; k++) {
      sum.dims[k] = tfd__size_merged(sum.dims[k], s->in[i]->dims[k]);
    }
  }
  return tfd__infer_like(s, 0, &sum);
}
