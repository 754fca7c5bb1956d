/* Inference of normalisation. */
#include "ops/ops.h"

static bool is_half(int dtype) {
  return dtype == TFD_FLOAT16 || dtype == TFD_BFLOAT16;
}

/* Statistics of half types are kept in float32. */
static int statistics_dtype(const tfd__view *x) {
  return is_half(x->dtype) ? TFD_FLOAT32 : x->dtype;
}

/* A vector of per-channel parameters: x's dtype, or float32 beside halves. */
static int check_parameter(tfd__infer *s, int x, int i, const int64_t *dims,
                           int rank) {
  const tfd__view *v = s->in[i];

  if (v == NULL) return TFD_OK;
  if (v->dtype != s->in[x]->dtype && v->dtype != statistics_dtype(s->in[x]))
    return tfd__check_same_dtype(s, x, i);
  return tfd__check_dims(s, i, dims, rank, "");
}

/* One kernel call gives the gradients of both, in one dtype. */
static int check_scale_and_offset(tfd__infer *s) {
  if (s->in[1] == NULL || s->in[2] == NULL) return TFD_OK;
  return tfd__check_same_dtype(s, 1, 2);
}

static int check_same_shape(tfd__infer *s, int a, int b) {
  char name[2][32];
  char shape[2][TFD_SHAPE_TEXT];

  if (tfd__shapes_agree(s->in[a], s->in[b])) return TFD_OK;
  return tfd__fail(
      TFD_INVALID_ARGUMENT, "%s: %s is %s and %s is %s; expected equal shapes",
      s->name, tfd__arg_name(s, a, name[0]),
      tfd__shape_text(s->in[a], shape[0]), tfd__arg_name(s, b, name[1]),
      tfd__shape_text(s->in[b], shape[1]));
}

static int check_rank_from(tfd__infer *s, int i, int low) {
  char name[32];
  char shape[TFD_SHAPE_TEXT];

  if (s->in[i]->rank >= low) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has rank %d %s; expected rank %d or more", s->name,
                   tfd__arg_name(s, i, name), s->in[i]->rank,
                   tfd__shape_text(s->in[i], shape), low);
}

static int check_epsilon(const tfd__infer *s) {
  if (s->reals[0] >= 0) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR,
                   "%s: epsilon is %g; expected a number of 0 or more", s->name,
                   s->reals[0]);
}

/* --- batch normalisation -------------------------------------------------- */

int tfd__infer_fused_batch_norm(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t channels = 0;
  bool needs_running = s->ints[1] == 0 || s->reals[1] < 1;

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(check_rank_from(s, 0, 2));
  TFD_TRY(check_epsilon(s));
  if (!(s->reals[1] >= 0 && s->reals[1] <= 1))
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: exponential_avg_factor is %g; expected 0 to 1",
                     s->name, s->reals[1]);
  channels = x->dims[(s->ints[0] & 1) ? 1 : x->rank - 1];
  for (int i = 1; i < 5; i++) {
    TFD_TRY(check_parameter(s, 0, i, &channels, 1));
    if (s->in[i] == NULL) continue;
    channels = tfd__size_merged(channels, s->in[i]->dims[0]);
  }
  TFD_TRY(check_scale_and_offset(s));
  if (needs_running && (s->in[3] == NULL || s->in[4] == NULL))
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: mean and variance are missing; expected both when "
                     "is_training is false or exponential_avg_factor is not 1",
                     s->name);
  TFD_TRY(tfd__infer_outputs(s, 4));
  TFD_TRY(tfd__infer_like(s, 0, x));
  TFD_TRY(tfd__infer_out(s, 1, s->in[1]->dtype, &channels, 1));
  TFD_TRY(tfd__infer_out(s, 2, s->in[1]->dtype, &channels, 1));
  return tfd__infer_out(s, 3, statistics_dtype(x), (int64_t[]){2, channels}, 2);
}

int tfd__infer_fused_batch_norm_grad(tfd__infer *s) {
  const tfd__view *x = s->in[1];
  int64_t dims[2] = {2, 0};

  TFD_TRY(tfd__check_float(s, 1));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(check_rank_from(s, 1, 2));
  TFD_TRY(check_same_shape(s, 0, 1));
  dims[1] = x->dims[(s->ints[0] & 1) ? 1 : x->rank - 1];
  TFD_TRY(check_parameter(s, 1, 2, dims + 1, 1));
  TFD_TRY(check_parameter(s, 1, 3, dims, 2));
  TFD_TRY(tfd__infer_outputs(s, 3));
  TFD_TRY(tfd__infer_like(s, 0, x));
  TFD_TRY(tfd__infer_like(s, 1, s->in[2]));
  return tfd__infer_like(s, 2, s->in[2]);
}

/* --- layer and group normalisation ---------------------------------------- */

/* y, mean, 1 / deviation. */
static int row_outputs(tfd__infer *s, const tfd__view *x, const int64_t *dims,
                       int rank) {
  TFD_TRY(tfd__infer_outputs(s, 3));
  TFD_TRY(tfd__infer_like(s, 0, x));
  TFD_TRY(tfd__infer_out(s, 1, statistics_dtype(x), dims, rank));
  return tfd__infer_out(s, 2, statistics_dtype(x), dims, rank);
}

/* Gradients of x, scale and offset from inputs dy, x, mean, inv, scale. */
static int row_gradients(tfd__infer *s, const int64_t *rows, int rows_rank,
                         const int64_t *scale, int scale_rank) {
  const tfd__view *x = s->in[1];
  int dtype = s->in[4] != NULL ? s->in[4]->dtype : x->dtype;

  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(check_same_shape(s, 0, 1));
  TFD_TRY(check_parameter(s, 1, 2, rows, rows_rank));
  TFD_TRY(check_parameter(s, 1, 3, rows, rows_rank));
  TFD_TRY(check_parameter(s, 1, 4, scale, scale_rank));
  TFD_TRY(tfd__infer_outputs(s, 3));
  TFD_TRY(tfd__infer_like(s, 0, x));
  TFD_TRY(tfd__infer_out(s, 1, dtype, scale, scale_rank));
  return tfd__infer_out(s, 2, dtype, scale, scale_rank);
}

int tfd__infer_layer_normalization(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int first = 0;

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(check_epsilon(s));
  TFD_TRY(tfd__axis(s->name, x, s->ints[0], &first));
  TFD_TRY(check_parameter(s, 0, 1, x->dims + first, x->rank - first));
  TFD_TRY(check_parameter(s, 0, 2, x->dims + first, x->rank - first));
  TFD_TRY(check_scale_and_offset(s));
  return row_outputs(s, x, x->dims, first);
}

int tfd__infer_layer_normalization_grad(tfd__infer *s) {
  const tfd__view *x = s->in[1];
  int first = 0;

  TFD_TRY(tfd__check_float(s, 1));
  TFD_TRY(tfd__axis(s->name, x, s->ints[0], &first));
  return row_gradients(s, x->dims, first, x->dims + first, x->rank - first);
}

/* The channel axis is 1 or the last; groups divide it. */
static int group_sizes(tfd__infer *s, const tfd__view *x, int64_t rows[2],
                       int64_t *channels_p) {
  int axis = 0;
  int64_t groups = s->ints[0];
  char shape[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__axis(s->name, x, s->ints[1], &axis));
  if (axis == 0 || (axis != 1 && axis != x->rank - 1))
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: axis is %lld for a tensor of rank %d; expected the "
                     "channel axis, 1 or -1",
                     s->name, (long long)s->ints[1], x->rank);
  if (groups < 1 || (x->dims[axis] >= 0 && x->dims[axis] % groups != 0))
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: groups is %lld and x is %s (%lld channels); expected "
                     "a divisor of the channels",
                     s->name, (long long)groups, tfd__shape_text(x, shape),
                     (long long)x->dims[axis]);
  rows[0] = x->dims[0];
  rows[1] = groups;
  *channels_p = x->dims[axis];
  return TFD_OK;
}

int tfd__infer_group_normalization(tfd__infer *s) {
  int64_t rows[2];
  int64_t channels = 0;

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(check_rank_from(s, 0, 2));
  TFD_TRY(check_epsilon(s));
  TFD_TRY(group_sizes(s, s->in[0], rows, &channels));
  TFD_TRY(check_parameter(s, 0, 1, &channels, 1));
  TFD_TRY(check_parameter(s, 0, 2, &channels, 1));
  TFD_TRY(check_scale_and_offset(s));
  return row_outputs(s, s->in[0], rows, 2);
}

int tfd__infer_group_normalization_grad(tfd__infer *s) {
  int64_t rows[2];
  int64_t channels = 0;

  TFD_TRY(tfd__check_float(s, 1));
  TFD_TRY(check_rank_from(s, 1, 2));
  TFD_TRY(group_sizes(s, s->in[1], rows, &channels));
  return row_gradients(s, rows, 2, &channels, 1);
}
