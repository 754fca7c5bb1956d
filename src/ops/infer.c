/* Inference helpers shared by all families. */
#include "ops/attributes.h"

#include <string.h>

const char *tfd__arg_name(const tfd__infer *s, int i, char buf[32]) {
  if (s->op->list_input) i = 0;
  if (i >= s->op->params_n) return "input";
  memcpy(buf, s->op->params[i].name, sizeof s->op->params[i].name);
  return buf;
}

int tfd__infer_outputs(tfd__infer *s, int n) {
  if (n > (int)(sizeof s->small / sizeof s->small[0])) {
    s->large = tfd__calloc((size_t)n, sizeof *s->large);
    if (s->large == NULL) {
      return tfd__no_memory((size_t)n * sizeof *s->large, s->name);
    }
    s->out = s->large;
  }
  s->out_n = n;
  return TFD_OK;
}

int tfd__infer_out(tfd__infer *s, int i, int dtype, const int64_t *dims,
                   int rank) {
  int rc;

  s->out[i].offset = 0;
  rc = TFD_LIKELY(!s->partial)
           ? tfd__view_set(&s->out[i].view, dtype, dims, rank)
           : tfd__view_set_partial(&s->out[i].view, dtype, dims, rank);
  return TFD_LIKELY(rc == TFD_OK) ? rc : tfd__wrap("%s", s->name);
}

int tfd__infer_like(tfd__infer *s, int i, const tfd__view *v) {
  return tfd__infer_out(s, i, v->dtype, v->dims, v->rank);
}

int tfd__infer_merged(tfd__infer *s, int i, int dtype, const tfd__view *a,
                      const tfd__view *b) {
  int64_t dims[TFD_MAX_RANK];
  int k;

  for (k = 0; k < a->rank; k++) {
    dims[k] = tfd__size_merged(a->dims[k], b->dims[k]);
  }
  return tfd__infer_out(s, i, dtype, dims, a->rank);
}

int tfd__check_same_dtype(tfd__infer *s, int a, int b) {
  char an[32];
  char bn[32];

  if (s->in[a]->dtype == s->in[b]->dtype) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s is %s and %s is %s; both must have the same dtype "
                   "(use tf.cast)",
                   s->name, tfd__arg_name(s, a, an),
                   tfd__dtype_name(s->in[a]->dtype), tfd__arg_name(s, b, bn),
                   tfd__dtype_name(s->in[b]->dtype));
}

static int wrong_dtype(tfd__infer *s, int i, const char *expected) {
  char name[32];

  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s has dtype %s; expected %s",
                   s->name, tfd__arg_name(s, i, name),
                   tfd__dtype_name(s->in[i]->dtype), expected);
}

int tfd__check_float(tfd__infer *s, int i) {
  if (tfd__is_float(s->in[i]->dtype)) return TFD_OK;
  return wrong_dtype(s, i, "a floating-point dtype");
}

int tfd__check_int(tfd__infer *s, int i) {
  if (tfd__is_int(s->in[i]->dtype)) return TFD_OK;
  return wrong_dtype(s, i, "an integer dtype");
}

int tfd__check_index(tfd__infer *s, int i) {
  int dtype = s->in[i]->dtype;

  if (dtype == TFD_INT32 || dtype == TFD_INT64) return TFD_OK;
  return wrong_dtype(s, i, "int32 or int64");
}

int tfd__check_rank(tfd__infer *s, int i, int rank) {
  char name[32];
  char shape[TFD_SHAPE_TEXT];

  if (s->in[i]->rank == rank) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s has rank %d %s; expected %d",
                   s->name, tfd__arg_name(s, i, name), s->in[i]->rank,
                   tfd__shape_text(s->in[i], shape), rank);
}

int tfd__check_dims(tfd__infer *s, int i, const int64_t *dims, int rank,
                    const char *why) {
  const tfd__view *v = s->in[i];
  char name[32];
  char have[TFD_SHAPE_TEXT];
  char want[TFD_SHAPE_TEXT];

  if (v->rank == rank && tfd__dims_agree(v->dims, dims, rank)) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s is %s; expected %s%s", s->name,
                   tfd__arg_name(s, i, name), tfd__shape_text(v, have),
                   tfd__dims_text(dims, rank, want), why);
}

/* --- the ops of core.def -------------------------------------------------- */

int tfd__infer_identity(tfd__infer *s) {
  s->out[0].view = *s->in[0];
  s->out[0].offset = 0;
  s->alias = true;
  return TFD_OK;
}

int tfd__infer_copy(tfd__infer *s) {
  return tfd__infer_like(s, 0, s->in[0]);
}

int tfd__infer_fill(tfd__infer *s) {
  int n = 0;
  const int64_t *dims = tfd__list(s->ints, 0, &n);
  int dtype = (int)s->ints[TFD_LIST_SLOTS];

  if (n < 0) n = 0;
  if (dtype == 0) dtype = TFD_FLOAT32;
  if (!tfd__dtype_ok(dtype)) {
    return tfd__fail(TFD_TYPE_ERROR, "%s: %d is no dtype", s->name, dtype);
  }
  return tfd__infer_out(s, 0, dtype, dims, n);
}

/* Can a tensor whose unknown sizes make up the rest of x's elements have
** `known` elements (rest: a multiple of them)? */
static bool may_fill(const tfd__view *x, int64_t known, bool rest) {
  int64_t here = 1;
  int i;

  for (i = 0; i < x->rank; i++) {
    if (x->dims[i] >= 0 && !tfd__mul_i64(here, x->dims[i], &here)) return false;
  }
  if (here == 0) return known == 0 || rest;
  return rest || known % here == 0;
}

/* Replace one -1 by what the element count asks for; it stays unknown where
** that is. */
static int resolve_shape(tfd__infer *s, const int64_t *asked, int n,
                         int64_t dims[TFD_MAX_RANK]) {
  const tfd__view *x = s->in[0];
  int64_t known = 1;
  int free_axis = -1;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  int i;

  for (i = 0; i < n; i++) {
    dims[i] = asked[i];
    if (asked[i] == -1 && free_axis < 0) {
      free_axis = i;
    } else if (asked[i] < 0 || !tfd__mul_i64(known, asked[i], &known)) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: shape %s is not possible; sizes are 0 or more, "
                       "and one -1 at most",
                       s->name, tfd__dims_text(asked, n, a));
    }
  }
  if (x->numel < 0) {
    if (may_fill(x, known, free_axis >= 0)) return TFD_OK;
  } else if (free_axis >= 0 && known != 0 && x->numel % known == 0) {
    dims[free_axis] = x->numel / known;
    return TFD_OK;
  } else if (free_axis < 0 && known == x->numel) {
    return TFD_OK;
  }
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: a tensor of shape %s (%lld elements) cannot take the "
                   "shape %s",
                   s->name, tfd__shape_text(x, a), (long long)x->numel,
                   tfd__dims_text(asked, n, b));
}

int tfd__infer_reshape(tfd__infer *s) {
  int n = 0;
  const int64_t *asked = tfd__list(s->ints, 0, &n);
  int64_t dims[TFD_MAX_RANK];

  if (n < 0) n = 0;
  TFD_TRY(resolve_shape(s, asked, n, dims));
  s->alias = true;
  s->dense_first = true;
  return tfd__infer_out(s, 0, s->in[0]->dtype, dims, n);
}

int tfd__infer_broadcast_to(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int n = 0;
  const int64_t *asked = tfd__list(s->ints, 0, &n);
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  bool fits = n >= x->rank;
  int i;

  for (i = 0; i < n; i++) {
    if (asked[i] >= 0 || !s->partial) continue;
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "%s: to shape %s, whose sizes only a call knows", s->name,
                     tfd__dims_text(asked, n, b));
  }
  for (i = 0; fits && i < x->rank; i++) {
    int64_t to = asked[n - x->rank + i];

    fits = x->dims[i] == to || x->dims[i] == 1 || x->dims[i] < 0;
  }
  if (!fits) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: shape %s does not broadcast to %s", s->name,
                     tfd__shape_text(x, a), tfd__dims_text(asked, n, b));
  }
  TFD_TRY(tfd__infer_out(s, 0, x->dtype, asked, n));
  s->out[0].view = tfd__broadcast_view(x, asked, n);
  s->alias = true;
  return TFD_OK;
}
