/* Optimizers' updates: variable, slots, gradient and perhaps indices in; the
** new variable and slots out. */
#include "ops/ops.h"

static int wrong_shape(tfd__infer *s, int i, const char *expected) {
  char name[32];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has shape %s, the variable has %s; expected %s",
                   s->name, tfd__arg_name(s, i, name),
                   tfd__shape_text(s->in[i], a), tfd__shape_text(s->in[0], b),
                   expected);
}

/* values {n, d1...} and indices {n} for a variable {d0, d1...}. */
static int check_rows(tfd__infer *s, int values, int indices) {
  const tfd__view *v = s->in[0];
  const tfd__view *x = s->in[values];
  bool fits = v->rank > 0 && x->rank == v->rank;

  TFD_TRY(tfd__check_index(s, indices));
  TFD_TRY(tfd__check_rank(s, indices, 1));
  if (fits) fits = tfd__dims_agree(x->dims + 1, v->dims + 1, v->rank - 1);
  if (fits && tfd__sizes_agree(x->dims[0], s->in[indices]->dims[0])) {
    return TFD_OK;
  }
  return wrong_shape(s, values, "a row like the variable's for each index");
}

int tfd__infer_update(tfd__infer *s) {
  int targets = s->in_n - 2;
  int i;

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(tfd__infer_outputs(s, targets));
  for (i = 0; i <= targets; i++) {
    TFD_TRY(tfd__check_same_dtype(s, 0, i));
    if (i == targets && s->in[i + 1] != NULL) {
      TFD_TRY(check_rows(s, i, i + 1));
    } else if (!tfd__shapes_agree(s->in[0], s->in[i])) {
      return wrong_shape(s, i, "the same");
    }
    if (i < targets) TFD_TRY(tfd__infer_like(s, i, s->in[0]));
  }
  return TFD_OK;
}
