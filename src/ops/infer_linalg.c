/* Inference of matrix factorisations and solvers: the last two axes are
** matrices, the others a batch. float32 and float64, as in TensorFlow. */
#include "ops/ops.h"

#include <string.h>

static int check_dtype(tfd__infer *s, int i) {
  int dtype = s->in[i]->dtype;
  char name[32];

  if (dtype == TFD_FLOAT32 || dtype == TFD_FLOAT64) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %s has dtype %s; expected float32 or float64", s->name,
                   tfd__arg_name(s, i, name), tfd__dtype_name(dtype));
}

static int check_matrix(tfd__infer *s, int i, bool square) {
  const tfd__view *x = s->in[i];
  char name[32];
  char shape[TFD_SHAPE_TEXT];

  TFD_TRY(check_dtype(s, i));
  if (x->rank >= 2 && (!square || tfd__sizes_agree(x->dims[x->rank - 1],
                                                   x->dims[x->rank - 2]))) {
    return TFD_OK;
  }
  return tfd__fail(
      TFD_INVALID_ARGUMENT, "%s: %s has shape %s; expected %s", s->name,
      tfd__arg_name(s, i, name), tfd__shape_text(x, shape),
      square ? "square matrices {..., n, n}" : "matrices {..., m, n}");
}

/* Output i: square matrices like those of input 0. */
static int square_out(tfd__infer *s, int i) {
  const tfd__view *x = s->in[0];
  int64_t dims[TFD_MAX_RANK];
  int r = x->rank;

  memcpy(dims, x->dims, sizeof dims);
  dims[r - 1] = tfd__size_merged(dims[r - 1], dims[r - 2]);
  dims[r - 2] = dims[r - 1];
  return tfd__infer_out(s, i, x->dtype, dims, r);
}

int tfd__infer_square_matrix(tfd__infer *s) {
  TFD_TRY(check_matrix(s, 0, true));
  return square_out(s, 0);
}

/* matrix {..., n, n}, rhs {..., n, k}: the result is like rhs. */
int tfd__infer_matrix_solve(tfd__infer *s) {
  const tfd__view *a = s->in[0];
  const tfd__view *b = s->in[1];
  int r = a->rank;
  bool fits = false;
  char at[TFD_SHAPE_TEXT];
  char bt[TFD_SHAPE_TEXT];

  TFD_TRY(check_matrix(s, 0, true));
  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  fits = b->rank == r && tfd__dims_agree(a->dims, b->dims, r - 1);
  if (!fits) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: matrix %s and rhs %s; expected {..., n, n} and "
                     "{..., n, k} with the same batch",
                     s->name, tfd__shape_text(a, at), tfd__shape_text(b, bt));
  }
  return tfd__infer_like(s, 0, b);
}

int tfd__infer_matrix_determinant(tfd__infer *s) {
  const tfd__view *x = s->in[0];

  TFD_TRY(check_matrix(s, 0, true));
  return tfd__infer_out(s, 0, x->dtype, x->dims, x->rank - 2);
}

int tfd__infer_slogdet(tfd__infer *s) {
  const tfd__view *x = s->in[0];

  TFD_TRY(check_matrix(s, 0, true));
  TFD_TRY(tfd__infer_outputs(s, 2));
  TFD_TRY(tfd__infer_out(s, 0, x->dtype, x->dims, x->rank - 2));
  return tfd__infer_out(s, 1, x->dtype, x->dims, x->rank - 2);
}

int tfd__infer_cross(tfd__infer *s) {
  const tfd__view *a = s->in[0];
  const tfd__view *b = s->in[1];
  char at[TFD_SHAPE_TEXT];
  char bt[TFD_SHAPE_TEXT];

  TFD_TRY(tfd__check_same_dtype(s, 0, 1));
  if (a->rank < 1 || !tfd__sizes_agree(a->dims[a->rank - 1], 3) ||
      !tfd__sizes_agree(b->dims[a->rank - 1], 3) || !tfd__shapes_agree(a, b)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: a %s and b %s; expected two equal shapes {..., 3}",
                     s->name, tfd__shape_text(a, at), tfd__shape_text(b, bt));
  }
  return tfd__infer_merged(s, 0, a->dtype, a, b);
}

/* --- orthogonal factorisations -------------------------------------------- */

enum { NO_COLS = -2 };

/* The smaller of two sizes. */
static int64_t smaller(int64_t m, int64_t n) {
  if (m < 0 || n < 0) return -1;
  return m < n ? m : n;
}

/* Output i: x's batch with `rows` (and `cols`, unless NO_COLS) behind it. */
static int factor(tfd__infer *s, int i, int64_t rows, int64_t cols) {
  const tfd__view *x = s->in[0];
  int64_t dims[TFD_MAX_RANK];

  memcpy(dims, x->dims, sizeof dims);
  dims[x->rank - 2] = rows;
  dims[x->rank - 1] = cols;
  return tfd__infer_out(s, i, x->dtype, dims, x->rank - (cols == NO_COLS));
}

int tfd__infer_self_adjoint_eig(tfd__infer *s) {
  const tfd__view *x = s->in[0];

  TFD_TRY(check_matrix(s, 0, true));
  TFD_TRY(tfd__infer_outputs(s, 2));
  TFD_TRY(factor(s, 0,
                 tfd__size_merged(x->dims[x->rank - 1], x->dims[x->rank - 2]),
                 NO_COLS));
  return square_out(s, 1);
}

int tfd__infer_svd(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;

  TFD_TRY(check_matrix(s, 0, false));
  m = x->dims[x->rank - 2];
  n = x->dims[x->rank - 1];
  k = smaller(m, n);
  TFD_TRY(tfd__infer_outputs(s, 3));
  TFD_TRY(factor(s, 0, k, NO_COLS));
  TFD_TRY(factor(s, 1, m, k));
  return factor(s, 2, n, k);
}

int tfd__infer_qr(tfd__infer *s) {
  const tfd__view *x = s->in[0];
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;

  TFD_TRY(check_matrix(s, 0, false));
  m = x->dims[x->rank - 2];
  n = x->dims[x->rank - 1];
  k = s->ints[0] != 0 ? m : smaller(m, n);
  TFD_TRY(tfd__infer_outputs(s, 2));
  TFD_TRY(factor(s, 0, m, k));
  return factor(s, 1, k, n);
}
