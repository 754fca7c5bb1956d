/* Inference of softmax and the cross-entropies. */
#include "ops/ops.h"

static int check_classes(tfd__infer *s, int i) {
  char name[32];

  TFD_TRY(tfd__check_float(s, i));
  if (s->in[i]->rank >= 1) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s is a scalar; expected a last axis of classes",
                   s->name, tfd__arg_name(s, i, name));
}

int tfd__infer_softmax(tfd__infer *s) {
  TFD_TRY(check_classes(s, 0));
  return tfd__infer_like(s, 0, s->in[0]);
}

/* A loss for each row: the sizes that labels and logits have in common. */
static int rows_out(tfd__infer *s) {
  tfd__view rows = *s->in[1];

  rows.rank--;
  return tfd__infer_merged(s, 0, rows.dtype, &rows, s->in[0]);
}

int tfd__infer_softmax_cross_entropy(tfd__infer *s) {
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  const tfd__view *logits = s->in[1];

  TFD_TRY(check_classes(s, 1));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  if (!tfd__shapes_agree(s->in[0], logits)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: labels are %s and logits %s; expected the same shape",
                     s->name, tfd__shape_text(s->in[0], a),
                     tfd__shape_text(logits, b));
  }
  return rows_out(s);
}

static int check_sparse(tfd__infer *s) {
  const tfd__view *labels = s->in[0];
  const tfd__view *logits = s->in[1];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  bool fits;

  TFD_TRY(check_classes(s, 1));
  TFD_TRY(tfd__check_index(s, 0));
  fits = labels->rank == logits->rank - 1;
  if (fits) fits = tfd__dims_agree(labels->dims, logits->dims, labels->rank);
  if (fits) return TFD_OK;
  (void)tfd__fail(TFD_INVALID_ARGUMENT,
                  "%s: labels are %s and logits %s; expected one label for "
                  "each row of logits",
                  s->name, tfd__shape_text(labels, a),
                  tfd__shape_text(logits, b));
  return tfd__blame(s->name, "labels", -1);
}

int tfd__infer_sparse_softmax_cross_entropy(tfd__infer *s) {
  TFD_TRY(check_sparse(s));
  return rows_out(s);
}

int tfd__infer_sparse_softmax_cross_entropy_grad(tfd__infer *s) {
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  TFD_TRY(check_sparse(s));
  TFD_TRY(tfd__check_same_dtype(s, 1, 2));
  if (!tfd__shapes_agree(s->in[0], s->in[2])) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: labels are %s and grad %s; expected the same shape",
                     s->name, tfd__shape_text(s->in[0], a),
                     tfd__shape_text(s->in[2], b));
  }
  return tfd__infer_like(s, 0, s->in[1]);
}

/* --- activations and dropout ------------------------------------------------
 */

int tfd__infer_activation(tfd__infer *s) {
  TFD_TRY(tfd__check_float(s, 0));
  return tfd__infer_like(s, 0, s->in[0]);
}

int tfd__infer_relu(tfd__infer *s) {
  char name[32];

  if (s->in[0]->dtype == TFD_BOOL) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: %s has dtype bool; expected a "
                     "number",
                     s->name, tfd__arg_name(s, 0, name));
  }
  return tfd__infer_like(s, 0, s->in[0]);
}

int tfd__infer_activation_grad(tfd__infer *s) {
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  if (!tfd__shapes_agree(s->in[0], s->in[1])) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: gradients are %s and features %s; expected the same "
                     "shape",
                     s->name, tfd__shape_text(s->in[0], a),
                     tfd__shape_text(s->in[1], b));
  }
  return tfd__infer_relu(s);
}

int tfd__infer_dropout(tfd__infer *s) {
  double rate = s->reals[0];

  TFD_TRY(tfd__check_float(s, 0));
  if (!(rate >= 0.0 && rate < 1.0)) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: rate is %g; expected at least 0 and less than 1",
                     s->name, rate);
  }
  return tfd__infer_like(s, 0, s->in[0]);
}
