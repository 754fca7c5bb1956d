/* Gradient rules of matrix factorisations and solvers. Sources: Giles 2008,
** "Collected matrix derivative results"; Murray 2016 for Cholesky. */
#include "autograd/autograd.h"

static tfd_tensor *product(tfd__grad *g, tfd_tensor *a, bool ta, tfd_tensor *b,
                           bool tb) {
  return E2A(matmul, a, b, ((int64_t[]){ta, tb, 0, 0}), NULL);
}

static tfd_tensor *transposed(tfd__grad *g, tfd_tensor *x) {
  return E1(matrix_transpose, x);
}

static tfd_tensor *negated(tfd__grad *g, tfd_tensor *x) {
  return E1(negative, x);
}

/* {...} -> {..., 1, 1} */
static tfd_tensor *as_scalars(tfd__grad *g, tfd_tensor *x) {
  int64_t last = -1;

  x = E1A(expand_dims, x, &last, NULL);
  return E1A(expand_dims, x, &last, NULL);
}

/* d inverse(A) = -inverse(A) dA inverse(A); the adjoint's is the same with
** A transposed. */
int tfd__grad_matrix_inverse(tfd__grad *g) {
  tfd_tensor *y = g->out[0];
  tfd_tensor *dx = negated(
      g, product(g, product(g, y, true, g->dy[0], false), false, y, true));

  tfd__grad_set(g, 0, g->ints[0] != 0 ? transposed(g, dx) : dx);
  return g->status;
}

int tfd__grad_matrix_solve(tfd__grad *g) {
  int64_t adjoint = g->ints[0];
  int64_t opposite = adjoint == 0;
  tfd_tensor *db = E2A(matrix_solve, g->in[0], g->dy[0], &opposite, NULL);
  tfd_tensor *x = g->out[0];

  tfd__grad_set(g, 1, db);
  if (g->needs[0]) {
    tfd__grad_set(g, 0,
                  negated(g, adjoint ? product(g, x, false, db, true)
                                     : product(g, db, false, x, true)));
  }
  return g->status;
}

int tfd__grad_triangular_solve(tfd__grad *g) {
  int64_t lower = g->ints[0];
  int64_t adjoint = g->ints[1];
  tfd_tensor *db = E2A(triangular_solve, g->in[0], g->dy[0],
                       ((int64_t[]){lower, adjoint == 0}), NULL);
  tfd_tensor *x = g->out[0];
  tfd_tensor *da = NULL;

  tfd__grad_set(g, 1, db);
  if (g->needs[0]) {
    da = adjoint ? product(g, x, false, db, true)
                 : product(g, db, false, x, true);
    /* The other triangle is never read. */
    da = E1A(matrix_band_part, negated(g, da),
             ((int64_t[]){lower ? -1 : 0, lower ? 0 : -1}), NULL);
    tfd__grad_set(g, 0, da);
  }
  return g->status;
}

/* dA = sym(inverse(L)^T phi(L^T dL) inverse(L)), phi: the lower triangle with
** half of the diagonal. */
int tfd__grad_cholesky(tfd__grad *g) {
  tfd_tensor *l = g->out[0];
  int64_t lower[2] = {-1, 0};
  int64_t solve[2] = {1, 1};
  tfd_tensor *dl = E1A(matrix_band_part, g->dy[0], lower, NULL);
  tfd_tensor *p =
      E1A(matrix_band_part, product(g, l, true, dl, false), lower, NULL);
  tfd_tensor *half = tfd__e_scale(g, E1(matrix_diag_part, p), 0.5);
  tfd_tensor *dx = NULL;

  p = E2(matrix_set_diag, p, half);
  /* inverse(L)^T P inverse(L): solve with L^T from both sides. */
  dx = E2A(triangular_solve, l, p, solve, NULL);
  dx = E2A(triangular_solve, l, transposed(g, dx), solve, NULL);
  dx = tfd__e_scale(g, E2(add, dx, transposed(g, dx)), 0.5);
  tfd__grad_set(g, 0, dx);
  return g->status;
}

/* d det(A) = det(A) tr(inverse(A) dA) */
int tfd__grad_matrix_determinant(tfd__grad *g) {
  int64_t adjoint = 1;
  tfd_tensor *inverse = E1A(matrix_inverse, g->in[0], &adjoint, NULL);
  tfd_tensor *factor = E2(multiply, g->dy[0], g->out[0]);

  tfd__grad_set(g, 0, E2(multiply, as_scalars(g, factor), inverse));
  return g->status;
}

/* Only the logarithm has a gradient; the sign is constant. */
int tfd__grad_slogdet(tfd__grad *g) {
  int64_t adjoint = 1;

  if (g->dy[1] == NULL) return g->status;
  tfd__grad_set(g, 0,
                E2(multiply, as_scalars(g, g->dy[1]),
                   E1A(matrix_inverse, g->in[0], &adjoint, NULL)));
  return g->status;
}

int tfd__grad_cross(tfd__grad *g) {
  if (g->needs[0]) tfd__grad_set(g, 0, E2(cross, g->in[1], g->dy[0]));
  if (g->needs[1]) tfd__grad_set(g, 1, E2(cross, g->dy[0], g->in[0]));
  return g->status;
}

/* --- orthogonal factorisations -------------------------------------------- */

/* x as a row {..., 1, n} or a column {..., n, 1}. */
static tfd_tensor *as_row(tfd__grad *g, tfd_tensor *x) {
  int64_t axis = -2;

  return E1A(expand_dims, x, &axis, NULL);
}

static tfd_tensor *as_column(tfd__grad *g, tfd_tensor *x) {
  int64_t axis = -1;

  return E1A(expand_dims, x, &axis, NULL);
}

/* 1 / (x[j] - x[i]) off the diagonal, 0 on it: infinite where two values are
** equal, since their vectors are not determined. */
static tfd_tensor *gaps(tfd__grad *g, tfd_tensor *x) {
  tfd_tensor *gap = E2(subtract, as_row(g, x), as_column(g, x));

  gap = E1(reciprocal, E2(matrix_set_diag, gap, E1(ones_like, x)));
  return E2(matrix_set_diag, gap, E1(zeros_like, x));
}

static tfd_tensor *plus(tfd__grad *g, tfd_tensor *a, tfd_tensor *b) {
  return a == NULL ? b : b == NULL ? a : E2(add, a, b);
}

int tfd__grad_self_adjoint_eig(tfd__grad *g) {
  int64_t lower[2] = {-1, 0};
  tfd_tensor *v = g->out[1];
  tfd_tensor *inner = NULL;
  tfd_tensor *dx = NULL;

  if (g->dy[1] != NULL) {
    inner =
        E2(multiply, gaps(g, g->out[0]), product(g, v, true, g->dy[1], false));
  }
  if (g->dy[0] != NULL) inner = plus(g, inner, E1(matrix_diag, g->dy[0]));
  dx = product(g, product(g, v, false, inner, false), false, v, true);
  /* Only the lower triangle is read: it gets both halves' gradient. */
  dx = E1A(matrix_band_part, E2(add, dx, transposed(g, dx)), lower, NULL);
  dx = E2(matrix_set_diag, dx, tfd__e_scale(g, E1(matrix_diag_part, dx), 0.5));
  tfd__grad_set(g, 0, dx);
  return g->status;
}

/* gaps * (transpose(q) dq - transpose(dq) q): how vectors turn among
** themselves. */
static tfd_tensor *turns(tfd__grad *g, tfd_tensor *gap, tfd_tensor *q,
                         tfd_tensor *dq) {
  tfd_tensor *p = product(g, q, true, dq, false);

  return E2(multiply, gap, E2(subtract, p, transposed(g, p)));
}

/* What of dq lies outside the space of q's columns. */
static tfd_tensor *outside(tfd__grad *g, tfd_tensor *q, tfd_tensor *dq) {
  return E2(subtract, dq,
            product(g, q, false, product(g, q, true, dq, false), false));
}

/* Source: Townsend 2016, "Differentiating the singular value decomposition". */
int tfd__grad_svd(tfd__grad *g) {
  tfd_tensor *s = g->out[0];
  tfd_tensor *u = g->out[1];
  tfd_tensor *v = g->out[2];
  tfd_tensor *gap = gaps(g, E1(square, s));
  tfd_tensor *over_s = E1(reciprocal, s);
  tfd_tensor *inner = NULL;
  tfd_tensor *dx = NULL;

  if (g->dy[0] != NULL) inner = E1(matrix_diag, g->dy[0]);
  if (g->dy[1] != NULL) {
    inner =
        plus(g, inner, E2(multiply, turns(g, gap, u, g->dy[1]), as_row(g, s)));
  }
  if (g->dy[2] != NULL) {
    inner = plus(g, inner,
                 E2(multiply, turns(g, gap, v, g->dy[2]), as_column(g, s)));
  }
  dx = product(g, product(g, u, false, inner, false), false, v, true);
  if (g->dy[1] != NULL) {
    tfd_tensor *rest = E2(multiply, outside(g, u, g->dy[1]), as_row(g, over_s));

    dx = plus(g, dx, product(g, rest, false, v, true));
  }
  if (g->dy[2] != NULL) {
    tfd_tensor *rest = E2(multiply, outside(g, v, g->dy[2]), as_row(g, over_s));

    dx = plus(g, dx, product(g, u, false, rest, true));
  }
  tfd__grad_set(g, 0, dx);
  return g->status;
}

/* Source: Liao et al. 2019, "Differentiable programming tensor networks". */
int tfd__grad_qr(tfd__grad *g) {
  tfd_tensor *q = g->out[0];
  tfd_tensor *r = g->out[1];
  int rank = r->view.rank;
  int64_t lower[2] = {-1, 0};
  int64_t upper_solve[2] = {0, 0};
  tfd_tensor *m = NULL;
  tfd_tensor *strict = NULL;
  tfd_tensor *dx = NULL;

  if (r->view.dims[rank - 2] != r->view.dims[rank - 1]) {
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "qr: the gradient needs a square r (at least as many "
                     "rows as columns, full_matrices false)");
  }
  if (g->dy[1] != NULL) m = product(g, r, false, g->dy[1], true);
  if (g->dy[0] != NULL) {
    m = plus(g, m, negated(g, product(g, g->dy[0], true, q, false)));
  }
  m = E1A(matrix_band_part, m, lower, NULL);
  strict =
      E2(matrix_set_diag, m, tfd__e_zeros_like(g, E1(matrix_diag_part, m)));
  dx = product(g, q, false, E2(add, m, transposed(g, strict)), false);
  dx = plus(g, dx, g->dy[0]);
  dx = E2A(triangular_solve, r, transposed(g, dx), upper_solve, NULL);
  tfd__grad_set(g, 0, transposed(g, dx));
  return g->status;
}
