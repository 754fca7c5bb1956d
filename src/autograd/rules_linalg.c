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
    tfd__grad_set(g, 0, negated(g, adjoint ? product(g, x, false, db, true)
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
