/* Orthogonal factorisations: QR by Householder reflections, symmetric
** eigenvalues and singular values by Jacobi rotations. Jacobi takes a few
** times longer than reduction to tridiagonal form, and finds small values to
** full relative accuracy. Source: Golub & Van Loan, Matrix Computations. */
#include "backend/cpu/linalg/linalg.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define SWEEPS 60 /* quadratic convergence: a dozen is many */

/* (x, y) becomes (c x - s y, s x + c y). */
TFD_CLONES static void rotate(double *restrict x, double *restrict y, double c,
                              double s, int64_t n) {
  int64_t i;

  for (i = 0; i < n; i++) {
    double a = x[i];
    double b = y[i];

    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

/* The rotation that makes [p r; r q] diagonal. */
static void jacobi(double p, double q, double r, double *c_p, double *s_p) {
  double tau = (q - p) / (2 * r);
  double t = (tau >= 0 ? 1 : -1) / (fabs(tau) + sqrt(1 + tau * tau));

  *c_p = 1 / sqrt(1 + t * t);
  *s_p = t * *c_p;
}

static void identity(double *v, int64_t n) {
  int64_t i;

  memset(v, 0, (size_t)(n * n) * sizeof *v);
  for (i = 0; i < n; i++) v[i * (n + 1)] = 1;
}

/* order[0..n) so that values[order] rise (or fall). */
static void rank_values(const double *values, int64_t n, bool falling,
                        int64_t *order) {
  int64_t i;
  int64_t k;

  for (i = 0; i < n; i++) {
    for (k = i; k > 0; k--) {
      double a = values[order[k - 1]];

      if (falling ? a >= values[i] : a <= values[i]) break;
      order[k] = order[k - 1];
    }
    order[k] = i;
  }
}

static bool all_finite(const double *a, int64_t n) {
  int64_t i;

  for (i = 0; i < n; i++) {
    if (!isfinite(a[i])) return false;
  }
  return true;
}

/* --- symmetric eigenvalues ------------------------------------------------ */

/* One sweep over all pairs; rows of v become the eigenvectors. Returns the
** number of rotations. */
static int64_t eigen_sweep(double *a, double *v, int64_t n, double tiny) {
  int64_t turned = 0;
  int64_t p;
  int64_t q;
  int64_t k;

  for (p = 0; p < n; p++) {
    for (q = p + 1; q < n; q++) {
      double r = a[p * n + q];
      double app = a[p * n + p];
      double aqq = a[q * n + q];
      double c = 1;
      double s = 0;
      double t = 0;

      if (fabs(r) <= tiny || fabs(r) <= DBL_EPSILON * 1e-3 *
                                            sqrt(fabs(app) * fabs(aqq))) {
        continue;
      }
      jacobi(app, aqq, r, &c, &s);
      t = s / c;
      rotate(a + p * n, a + q * n, c, s, n);
      for (k = 0; k < n; k++) {
        a[k * n + p] = a[p * n + k];
        a[k * n + q] = a[q * n + k];
      }
      a[p * n + p] = app - t * r;
      a[q * n + q] = aqq + t * r;
      a[p * n + q] = a[q * n + p] = 0;
      rotate(v + p * n, v + q * n, c, s, n);
      turned++;
    }
  }
  return turned;
}

static int eigen_one(const tfd__matrices *m, int64_t index, double *a) {
  int64_t n = m->rows;
  double *v = a + n * n;
  double *values = v + n * n;
  int64_t *order = (int64_t *)(void *)(values + n);
  double norm = 0;
  int64_t i;
  int64_t k;
  int sweep;

  tfd__read_doubles(a, tfd__in(m->call, 0), index * n * n, n * n);
  for (i = 0; i < n; i++) { /* only the lower triangle counts */
    for (k = i + 1; k < n; k++) a[i * n + k] = a[k * n + i];
  }
  if (!all_finite(a, n * n)) return TFD_INVALID_ARGUMENT;
  identity(v, n);
  norm = sqrt(tfd__dot(a, a, n * n));
  for (sweep = 0; sweep < SWEEPS; sweep++) {
    if (eigen_sweep(a, v, n, norm * DBL_EPSILON * 1e-3) == 0) break;
  }
  for (i = 0; i < n; i++) values[i] = a[i * (n + 1)];
  rank_values(values, n, false, order);
  for (i = 0; i < n; i++) {
    tfd__write_doubles(tfd__out(m->call, 0), index * n + i, values + order[i],
                       1);
    /* Row order[i] of v is column i of the result; a is free by now. */
    for (k = 0; k < n; k++) a[k * n + i] = v[order[i] * n + k];
  }
  tfd__write_doubles(tfd__out(m->call, 1), index * n * n, a, n * n);
  return TFD_OK;
}

int tfd__cpu_self_adjoint_eig(const tfd__call *call) {
  tfd__matrices m;

  tfd__matrices_init(&m, call);
  m.one = eigen_one;
  m.work = m.rows * (2 * m.rows + 2);
  if (m.rows == 0) return TFD_OK;
  return tfd__matrices_run(&m, "has an element that is not finite");
}

/* --- singular values ------------------------------------------------------ */

/* Make the `k` rows of u (length n) orthogonal; v turns along. */
static int64_t singular_sweep(double *u, double *v, int64_t k, int64_t n) {
  int64_t turned = 0;
  int64_t p;
  int64_t q;

  for (p = 0; p < k; p++) {
    for (q = p + 1; q < k; q++) {
      double *x = u + p * n;
      double *y = u + q * n;
      double pp = tfd__dot(x, x, n);
      double qq = tfd__dot(y, y, n);
      double r = tfd__dot(x, y, n);
      double c = 1;
      double s = 0;

      if (r == 0 || fabs(r) <= 4 * DBL_EPSILON * sqrt(pp) * sqrt(qq)) continue;
      jacobi(pp, qq, r, &c, &s);
      rotate(x, y, c, s, n);
      rotate(v + p * k, v + q * k, c, s, k);
      turned++;
    }
  }
  return turned;
}

/* Row i of u becomes a unit vector orthogonal to rows 0 ... i-1. */
static void complete_row(double *u, int64_t i, int64_t n) {
  double *row = u + i * n;
  int64_t e;
  int64_t k;
  int64_t j;
  int again;

  for (e = 0; e < n; e++) {
    double norm = 0;

    memset(row, 0, (size_t)n * sizeof *row);
    row[e] = 1;
    for (again = 0; again < 2; again++) {
      for (k = 0; k < i; k++) {
        double share = tfd__dot(row, u + k * n, n);

        for (j = 0; j < n; j++) row[j] -= share * u[k * n + j];
      }
    }
    norm = sqrt(tfd__dot(row, row, n));
    if (norm < 0.5 / sqrt((double)n)) continue;
    for (j = 0; j < n; j++) row[j] /= norm;
    return;
  }
}

/* Rows of x in `order`, each row as a column of output `o`. */
static void write_columns(const tfd__matrices *m, int o, int64_t index,
                          const double *x, int64_t k, int64_t n,
                          double *spare) {
  int64_t i;
  int64_t j;

  for (i = 0; i < k; i++) {
    for (j = 0; j < n; j++) spare[j * k + i] = x[i * n + j];
  }
  tfd__write_doubles(tfd__out(m->call, o), index * k * n, spare, k * n);
}

/* The rows of x in another order, through `spare`. */
static void reorder(double *x, const int64_t *order, int64_t k, int64_t n,
                    double *spare) {
  int64_t i;

  for (i = 0; i < k; i++) {
    memcpy(spare + i * n, x + order[i] * n, (size_t)n * sizeof *x);
  }
  memcpy(x, spare, (size_t)(k * n) * sizeof *x);
}

/* With more rows than columns the columns are made orthogonal, else the rows:
** the short side k is what rotations pair up, n the long one. */
static int singular_one(const tfd__matrices *m, int64_t index, double *u) {
  bool wide = m->cols > m->rows;
  int64_t k = wide ? m->rows : m->cols;
  int64_t n = wide ? m->cols : m->rows;
  double *v = u + k * n;
  double *spare = v + k * k;
  double *values = spare + k * n;
  int64_t *order = (int64_t *)(void *)(values + k);
  int64_t i;
  int64_t j;
  int sweep;

  tfd__read_doubles(spare, tfd__in(m->call, 0), index * k * n, k * n);
  if (!all_finite(spare, k * n)) return TFD_INVALID_ARGUMENT;
  for (i = 0; i < k; i++) {
    for (j = 0; j < n; j++) {
      u[i * n + j] = wide ? spare[i * n + j] : spare[j * k + i];
    }
  }
  identity(v, k);
  for (sweep = 0; sweep < SWEEPS; sweep++) {
    if (singular_sweep(u, v, k, n) == 0) break;
  }
  for (i = 0; i < k; i++) values[i] = sqrt(tfd__dot(u + i * n, u + i * n, n));
  rank_values(values, k, true, order);
  reorder(u, order, k, n, spare);
  reorder(v, order, k, k, spare);
  for (i = 0; i < k; i++) {
    double s = values[order[i]];

    spare[i] = s;
    if (s <= values[order[0]] * DBL_EPSILON * 1e-3 || s < DBL_MIN) {
      complete_row(u, i, n);
      continue;
    }
    for (j = 0; j < n; j++) u[i * n + j] /= s;
  }
  tfd__write_doubles(tfd__out(m->call, 0), index * k, spare, k);
  write_columns(m, wide ? 2 : 1, index, u, k, n, spare);
  write_columns(m, wide ? 1 : 2, index, v, k, k, spare);
  return TFD_OK;
}

int tfd__cpu_svd(const tfd__call *call) {
  tfd__matrices m;
  int64_t k = 0;

  tfd__matrices_init(&m, call);
  k = m.rows < m.cols ? m.rows : m.cols;
  m.one = singular_one;
  m.work = k * (2 * (m.rows + m.cols) + 2);
  if (k == 0) return TFD_OK;
  return tfd__matrices_run(&m, "has an element that is not finite");
}

/* --- QR ------------------------------------------------------------------- */

/* Rows of a are columns of the matrix. Reflection i is 1 - tau v v^T with
** v = (1, a[i, i+1 ...]); the diagonal of R goes where the 1 would lie. */
static void reflect_columns(double *a, double *tau, int64_t cols,
                            int64_t rows) {
  int64_t steps = rows < cols ? rows : cols;
  int64_t i;
  int64_t j;
  int64_t k;

  for (i = 0; i < steps; i++) {
    double *x = a + i * rows + i;
    int64_t n = rows - i;
    double rest = tfd__dot(x + 1, x + 1, n - 1);
    double beta = -copysign(sqrt(x[0] * x[0] + rest), x[0]);

    tau[i] = 0;
    if (rest == 0) continue;
    tau[i] = (beta - x[0]) / beta;
    for (k = 1; k < n; k++) x[k] /= x[0] - beta;
    x[0] = beta;
    for (j = i + 1; j < cols; j++) {
      double *y = a + j * rows + i;
      double share = tau[i] * (y[0] + tfd__dot(x + 1, y + 1, n - 1));

      y[0] -= share;
      for (k = 1; k < n; k++) y[k] -= share * x[k];
    }
  }
}

/* The first `count` columns of Q, as rows of q. */
static void build_q(const double *a, const double *tau, double *q,
                    int64_t steps, int64_t rows, int64_t count) {
  int64_t i;
  int64_t j;
  int64_t k;

  memset(q, 0, (size_t)(count * rows) * sizeof *q);
  for (j = 0; j < count; j++) q[j * (rows + 1)] = 1;
  for (i = steps - 1; i >= 0; i--) {
    const double *v = a + i * rows + i;
    int64_t n = rows - i;

    for (j = i; j < count; j++) {
      double *y = q + j * rows + i;
      double share = tau[i] * (y[0] + tfd__dot(v + 1, y + 1, n - 1));

      y[0] -= share;
      for (k = 1; k < n; k++) y[k] -= share * v[k];
    }
  }
}

/* ints: full_matrices. */
static int qr_one(const tfd__matrices *m, int64_t index, double *a) {
  const tfd__view *q_view = tfd__out(m->call, 0);
  int64_t rows = m->rows;
  int64_t cols = m->cols;
  int64_t steps = rows < cols ? rows : cols;
  int64_t count = q_view->dims[q_view->rank - 1];
  double *q = a + rows * cols;
  double *spare = q + rows * count;
  double *tau = spare + rows * (cols > count ? cols : count);
  int64_t i;
  int64_t j;

  tfd__read_doubles(spare, tfd__in(m->call, 0), index * rows * cols,
                    rows * cols);
  for (i = 0; i < rows; i++) {
    for (j = 0; j < cols; j++) a[j * rows + i] = spare[i * cols + j];
  }
  reflect_columns(a, tau, cols, rows);
  build_q(a, tau, q, steps, rows, count);
  for (i = 0; i < count; i++) {
    for (j = 0; j < cols; j++) {
      spare[i * cols + j] = i <= j ? a[j * rows + i] : 0;
    }
  }
  tfd__write_doubles(tfd__out(m->call, 1), index * count * cols, spare,
                     count * cols);
  write_columns(m, 0, index, q, count, rows, spare);
  return TFD_OK;
}

int tfd__cpu_qr(const tfd__call *call) {
  const tfd__view *q = tfd__out(call, 0);
  int64_t count = q->dims[q->rank - 1];
  tfd__matrices m;

  tfd__matrices_init(&m, call);
  m.one = qr_one;
  m.work = m.rows * (m.cols + 2 * count + m.cols + 1) + m.cols;
  if (q->numel == 0) return TFD_OK;
  return tfd__matrices_run(&m, "cannot be factorised");
}
