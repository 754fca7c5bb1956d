/* Inference of products and biases. */
#include "ops/ops.h"

#include <string.h>

/* --- matmul --------------------------------------------------------------- */

static int check_flags(const tfd__infer *s, int plain, int adjoint,
                       const char *which) {
  if (s->ints[plain] && s->ints[adjoint])
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: transpose_%s and adjoint_%s are both true; expected "
                     "one of them at most",
                     s->name, which, which);
  return TFD_OK;
}

static int check_matrix(tfd__infer *s, int i) {
  char name[32];
  char shape[TFD_SHAPE_TEXT];

  if (s->in[i]->rank >= 2) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has rank %d %s; expected rank 2 or more", s->name,
                   tfd__arg_name(s, i, name), s->in[i]->rank,
                   tfd__shape_text(s->in[i], shape));
}

static int check_inner(const tfd__infer *s, int64_t a_inner, int64_t b_inner) {
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  bool ta = s->ints[0] || s->ints[2];
  bool tb = s->ints[1] || s->ints[3];

  if (tfd__sizes_agree(a_inner, b_inner)) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: inner sizes differ: a is %s%s and b is %s%s (%lld "
                   "against %lld)",
                   s->name, tfd__shape_text(s->in[0], a),
                   ta ? " transposed" : "", tfd__shape_text(s->in[1], b),
                   tb ? " transposed" : "", (long long)a_inner,
                   (long long)b_inner);
}

int tfd__infer_matmul(tfd__infer *s) {
  const tfd__view *a = s->in[0];
  const tfd__view *b = s->in[1];
  tfd__view a_batch = *a;
  tfd__view b_batch = *b;
  int64_t dims[TFD_MAX_RANK] = {0};
  int rank = 0;
  bool ta = s->ints[0] || s->ints[2];
  bool tb = s->ints[1] || s->ints[3];

  TFD_TRY(check_flags(s, 0, 2, "a"));
  TFD_TRY(check_flags(s, 1, 3, "b"));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  if (a->dtype == TFD_BOOL)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: a has dtype bool; expected a number dtype", s->name);
  TFD_TRY(check_matrix(s, 0));
  TFD_TRY(check_matrix(s, 1));
  TFD_TRY(check_inner(s, a->dims[a->rank - (ta ? 2 : 1)],
                      b->dims[b->rank - (tb ? 1 : 2)]));
  a_batch.rank = (uint8_t)(a->rank - 2);
  b_batch.rank = (uint8_t)(b->rank - 2);
  if (a_batch.rank > 0 || b_batch.rank > 0)
    TFD_TRY(tfd__broadcast(s->name, &a_batch, &b_batch, dims, &rank));
  dims[rank] = a->dims[a->rank - (ta ? 1 : 2)];
  dims[rank + 1] = b->dims[b->rank - (tb ? 2 : 1)];
  return tfd__infer_out(s, 0, a->dtype, dims, rank + 2);
}

/* --- bias_add ------------------------------------------------------------- */

int tfd__infer_bias_add(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int channel = s->ints[0] == 1 ? 1 : x->rank - 1;
  char shape[TFD_SHAPE_TEXT];
  char bias[TFD_SHAPE_TEXT];
  int64_t dims[TFD_MAX_RANK];

  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  TFD_TRY(tfd__check_rank(s, 1, 1));
  if (x->dtype == TFD_BOOL)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: value has dtype bool; expected a number dtype",
                     s->name);
  if (x->rank < 2)
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: value has rank %d %s; expected rank 2 or more",
                     s->name, x->rank, tfd__shape_text(x, shape));
  if (!tfd__sizes_agree(s->in[1]->dims[0], x->dims[channel]))
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: bias is %s and value is %s; expected one bias for "
                     "each of the %lld channels",
                     s->name, tfd__shape_text(s->in[1], bias),
                     tfd__shape_text(x, shape), (long long)x->dims[channel]);
  memcpy(dims, x->dims, sizeof dims);
  dims[channel] = tfd__size_merged(x->dims[channel], s->in[1]->dims[0]);
  return tfd__infer_out(s, 0, x->dtype, dims, x->rank);
}

int tfd__infer_bias_add_relu(tfd__infer *s) {
  TFD_TRY(tfd__check_float(s, 0));
  return tfd__infer_bias_add(s);
}
