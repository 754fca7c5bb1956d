/* Inference of the random ops. Results are functions of the attributes
** seed_lo, seed_hi, counter_lo and counter_hi, of which 32 bits each count. */
#include "ops/ops.h"

#include <inttypes.h>
#include <math.h>

/* Output 0 from the list `dims` in the first slots. */
static int dims_out(tfd__infer *s, int dtype) {
  int n = 0;
  const int64_t *dims = tfd__list(s->ints, 0, &n);

  return tfd__infer_out(s, 0, dtype, dims, n < 0 ? 0 : n);
}

static int float_out(tfd__infer *s) {
  int dtype = (int)s->ints[TFD_LIST_SLOTS + 4];

  if (dtype == 0) dtype = TFD_FLOAT32;
  if (tfd__is_float(dtype)) return dims_out(s, dtype);
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: dtype is %s; expected a floating-point dtype", s->name,
                   tfd__dtype_name(dtype));
}

int tfd__infer_random_uniform(tfd__infer *s) {
  double low = s->reals[0];
  double high = s->reals[1];

  if (isfinite(low) && isfinite(high) && low <= high) return float_out(s);
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: minval is %g and maxval is %g; both must be finite "
                   "and minval at most maxval",
                   s->name, low, high);
}

int tfd__infer_random_normal(tfd__infer *s) {
  return float_out(s);
}

/* Lowest and largest value of an integer dtype; int64 for larger ones. */
static void int_range(int dtype, int64_t *low_p, int64_t *high_p) {
  int bits = (int)tfd__dtype_size(dtype) * 8;

  if (tfd__dtype_info_of(dtype)->is_signed) {
    *high_p = (int64_t)(UINT64_MAX >> (65 - bits));
    *low_p = -*high_p - 1;
  } else {
    *low_p = 0;
    *high_p = (int64_t)(UINT64_MAX >> (64 - bits));
  }
}

int tfd__infer_random_int(tfd__infer *s) {
  const int64_t *ints = s->ints + TFD_LIST_SLOTS + 4;
  int64_t low = ints[0];
  int64_t high = ints[1];
  bool full = ints[2] != 0;
  int dtype = ints[3] == 0 ? TFD_INT32 : (int)ints[3];
  int64_t least = 0;
  int64_t most = 0;

  if (!tfd__is_int(dtype)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: dtype is %s; expected an integer dtype", s->name,
                     tfd__dtype_name(dtype));
  }
  int_range(dtype, &least, &most);
  if (!full && low >= high) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: minval is %" PRId64 " and maxval is %" PRId64
                     "; maxval is exclusive and must be larger",
                     s->name, low, high);
  }
  if (!full && (low < least || high - 1 > most)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: minval %" PRId64 " and maxval %" PRId64
                     " do not fit %s",
                     s->name, low, high, tfd__dtype_name(dtype));
  }
  return dims_out(s, dtype);
}

int tfd__infer_random_categorical(tfd__infer *s) {
  const tfd__view *logits = s->in[0];
  int64_t samples = s->ints[0];
  int dtype = s->ints[5] == 0 ? TFD_INT64 : (int)s->ints[5];
  int64_t dims[2] = {0, samples};
  char shape[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(tfd__check_rank(s, 0, 2));
  dims[0] = logits->dims[0];
  if (samples < 0) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: num_samples is %" PRId64 "; expected 0 or more",
                     s->name, samples);
  }
  if (logits->dims[1] == 0 && logits->dims[0] > 0 && samples > 0) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: logits %s have no classes to draw from", s->name,
                     tfd__shape_text(logits, shape));
  }
  if (dtype != TFD_INT32 && dtype != TFD_INT64) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: dtype is %s; expected int32 or int64", s->name,
                     tfd__dtype_name(dtype));
  }
  return tfd__infer_out(s, 0, dtype, dims, 2);
}

int tfd__infer_random_shuffle(tfd__infer *s) {
  return tfd__infer_like(s, 0, s->in[0]);
}

/* Output 0 from `dims`, against which the parameter must broadcast. */
static int broadcast_out(tfd__infer *s, int dtype) {
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;
  char name[32];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(dims_out(s, dtype));
  if (tfd__broadcast(s->name, s->in[0], &s->out[0].view, dims, &rank) ==
          TFD_OK &&
      rank == s->out[0].view.rank) {
    bool same = true;

    for (int i = 0; i < rank; i++) {
      if (!tfd__sizes_agree(dims[i], s->out[0].view.dims[i])) same = false;
    }
    if (same) return TFD_OK;
  }
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s of shape %s does not broadcast to the result's "
                   "shape %s",
                   s->name, tfd__arg_name(s, 0, name),
                   tfd__shape_text(s->in[0], a),
                   tfd__shape_text(&s->out[0].view, b));
}

int tfd__infer_random_gamma(tfd__infer *s) {
  return broadcast_out(s, s->in[0]->dtype);
}

int tfd__infer_random_poisson(tfd__infer *s) {
  int dtype = (int)s->ints[TFD_LIST_SLOTS + 4];

  if (dtype == 0) dtype = TFD_FLOAT32;
  if (dtype != TFD_BOOL) return broadcast_out(s, dtype);
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: dtype is bool; expected a number's dtype", s->name);
}
