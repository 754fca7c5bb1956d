/* Inference of convolutions and pooling. */
#include "backend/window.h"
#include "ops/ops.h"

#include <string.h>

/* The rank an op's name asks for ("conv2d": 4), 0 when it takes 3 to 5. */
static int named_rank(const char *name) {
  const char *digit = strpbrk(name, "123");

  return digit != NULL && digit[1] == 'd' ? *digit - '0' + 2 : 0;
}

static int check_data(tfd__infer *s, int i, int dims) {
  const tfd__view *v = s->in[i];
  char name[32];
  char shape[TFD_SHAPE_TEXT];

  if (dims == 0 && v->rank >= 3 && v->rank <= 5) return TFD_OK;
  if (dims != 0) return tfd__check_rank(s, i, dims);
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has rank %d %s; expected batch, channels and 1 to "
                   "3 spatial axes",
                   s->name, tfd__arg_name(s, i, name), v->rank,
                   tfd__shape_text(v, shape));
}

/* int8, int16 and uint8 have no products of this kind, as in TensorFlow. */
static int check_arithmetic(tfd__infer *s, int i) {
  int dtype = s->in[i]->dtype;
  char name[32];

  if (tfd__is_float(dtype) || dtype == TFD_INT32 || dtype == TFD_INT64)
    return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has dtype %s; expected a floating-point dtype, "
                   "int32 or int64",
                   s->name, tfd__arg_name(s, i, name), tfd__dtype_name(dtype));
}

/* A list attribute as a shape of `dtype`. */
static int listed_view(const tfd__infer *s, int slot, int dtype,
                       tfd__view *view) {
  int n = 0;
  const int64_t *dims = tfd__list(s->ints, slot, &n);

  if (n < 3 || n > 5)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: the shape has %d numbers; expected batch, channels "
                     "and 1 to 3 spatial axes",
                     s->name, n < 0 ? 0 : n);
  if ((s->partial ? tfd__view_set_partial(view, dtype, dims, n)
                  : tfd__view_set(view, dtype, dims, n)) != TFD_OK)
    return tfd__wrap("%s", s->name);
  return TFD_OK;
}

/* The incoming gradient must have the shape that the forward op gives. */
static int check_gradient(tfd__infer *s, int i, const int64_t *dims, int rank) {
  return tfd__check_dims(s, i, dims, rank,
                         " for these sizes, strides and padding");
}

/* --- convolution ---------------------------------------------------------- */

static int conv_window(tfd__infer *s, const tfd__view *input,
                       const tfd__view *filter, tfd__window *w) {
  tfd__window_attrs attrs = tfd__conv_attrs(s->ints);

  if (filter->rank != input->rank)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: input has rank %d and filters has rank %d; expected "
                     "the same",
                     s->name, input->rank, filter->rank);
  return tfd__window_of_filter(s->name, input, filter, &attrs, w);
}

int tfd__infer_conv(tfd__infer *s) {
  int rank = named_rank(s->name);
  int64_t dims[TFD_MAX_RANK];
  tfd__window w;

  TFD_TRY(check_arithmetic(s, 0));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(check_data(s, 0, rank));
  TFD_TRY(check_data(s, 1, rank));
  TFD_TRY(conv_window(s, s->in[0], s->in[1], &w));
  rank = tfd__window_out_dims(&w, dims);
  return tfd__infer_out(s, 0, s->in[0]->dtype, dims, rank);
}

/* The gradient for the input or for the filter, whose shape is listed;
** s->in[0] is the other one of the two. */
static int conv_backprop(tfd__infer *s, bool for_input) {
  int64_t dims[TFD_MAX_RANK];
  tfd__view listed;
  tfd__window w;
  int rank = 0;

  TFD_TRY(check_arithmetic(s, 0));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(check_data(s, 0, 0));
  TFD_TRY(check_data(s, 1, 0));
  TFD_TRY(listed_view(s, 29, s->in[0]->dtype, &listed));
  TFD_TRY(for_input ? conv_window(s, &listed, s->in[0], &w)
                    : conv_window(s, s->in[0], &listed, &w));
  rank = tfd__window_out_dims(&w, dims);
  TFD_TRY(check_gradient(s, 1, dims, rank));
  return tfd__infer_like(s, 0, &listed);
}

int tfd__infer_conv_backprop_input(tfd__infer *s) {
  return conv_backprop(s, true);
}

int tfd__infer_conv_backprop_filter(tfd__infer *s) {
  return conv_backprop(s, false);
}

/* --- pooling -------------------------------------------------------------- */

/* Explicit padding as wide as the window would average or maximise nothing. */
static int check_padding(const tfd__infer *s, const tfd__window *w) {
  for (int i = 0; i < 3; i++) {
    if (w->low[i] < w->kernel[i] && w->high[i] < w->kernel[i]) continue;
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: padding is %lld and %lld for a window of %lld; "
                     "expected less than the window",
                     s->name, (long long)w->low[i], (long long)w->high[i],
                     (long long)w->kernel[i]);
  }
  return TFD_OK;
}

static int pool_dims(tfd__infer *s, const tfd__view *input, int64_t *dims,
                     int *rank_p) {
  tfd__window w;

  TFD_TRY(tfd__window_of_pool(s->name, input, s->ints, &w));
  if (s->ints[18] == TFD_PADDING_EXPLICIT) TFD_TRY(check_padding(s, &w));
  *rank_p = tfd__window_out_dims(&w, dims);
  return TFD_OK;
}

int tfd__infer_max_pool(tfd__infer *s) {
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;

  if (s->in[0]->dtype == TFD_BOOL)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: input has dtype bool; expected a number dtype",
                     s->name);
  TFD_TRY(check_data(s, 0, named_rank(s->name)));
  TFD_TRY(pool_dims(s, s->in[0], dims, &rank));
  return tfd__infer_out(s, 0, s->in[0]->dtype, dims, rank);
}

int tfd__infer_max_pool_with_argmax(tfd__infer *s) {
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;
  int64_t dtype = s->ints[29];

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(tfd__check_rank(s, 0, 4));
  if (dtype != TFD_INT32 && dtype != TFD_INT64)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: output_dtype is %s; expected int32 or int64", s->name,
                     tfd__dtype_name((int)dtype));
  if (s->ints[19] != 0 || s->ints[18] == TFD_PADDING_EXPLICIT)
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: takes data_format \"NHWC\" and padding \"VALID\" or "
                     "\"SAME\" only",
                     s->name);
  TFD_TRY(pool_dims(s, s->in[0], dims, &rank));
  TFD_TRY(tfd__infer_outputs(s, 2));
  TFD_TRY(tfd__infer_out(s, 0, s->in[0]->dtype, dims, rank));
  return tfd__infer_out(s, 1, (int)dtype, dims, rank);
}

int tfd__infer_avg_pool(tfd__infer *s) {
  TFD_TRY(tfd__check_float(s, 0));
  return tfd__infer_max_pool(s);
}

/* Shared by both gradients: the forward input, output and a third tensor. */
static int pool_triple(tfd__infer *s, int64_t *dims, int *rank_p) {
  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(tfd__check_same_dtype(s, 0, 2));
  TFD_TRY(check_data(s, 0, 0));
  TFD_TRY(pool_dims(s, s->in[0], dims, rank_p));
  return check_gradient(s, 1, dims, *rank_p);
}

int tfd__infer_max_pool_grad(tfd__infer *s) {
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;

  TFD_TRY(pool_triple(s, dims, &rank));
  TFD_TRY(check_gradient(s, 2, dims, rank));
  return tfd__infer_like(s, 0, s->in[0]);
}

int tfd__infer_max_pool_grad_grad(tfd__infer *s) {
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;

  TFD_TRY(pool_triple(s, dims, &rank));
  TFD_TRY(check_gradient(s, 2, s->in[0]->dims, s->in[0]->rank));
  return tfd__infer_like(s, 0, s->in[1]);
}

int tfd__infer_avg_pool_grad(tfd__infer *s) {
  int64_t dims[TFD_MAX_RANK];
  int rank = 0;
  tfd__view input;

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(listed_view(s, 29, s->in[0]->dtype, &input));
  TFD_TRY(pool_dims(s, &input, dims, &rank));
  TFD_TRY(check_gradient(s, 0, dims, rank));
  return tfd__infer_like(s, 0, &input);
}
