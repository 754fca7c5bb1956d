#include "backend/cpu/linalg/linalg.h"
#include "backend/cpu/linalg/gemm.h"

#include <math.h>
#include <string.h>

#define SMALL TFD_LINALG_SMALL

/* --- batches -------------------------------------------------------------- */

void tfd__read_doubles(double *to, const tfd__view *v, int64_t at, int64_t n) {
  int64_t i;

  if (v->dtype == TFD_FLOAT64) {
    memcpy(to, (const double *)v->data + at, (size_t)n * sizeof *to);
  } else {
    const float *from = (const float *)v->data + at;

    for (i = 0; i < n; i++) to[i] = (double)from[i];
  }
}

void tfd__write_doubles(const tfd__view *v, int64_t at, const double *from,
                        int64_t n) {
  int64_t i;

  if (v->dtype == TFD_FLOAT64) {
    memcpy((double *)v->data + at, from, (size_t)n * sizeof *from);
  } else {
    float *to = (float *)v->data + at;

    for (i = 0; i < n; i++) to[i] = (float)from[i];
  }
}

void tfd__matrices_init(tfd__matrices *m, const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);

  memset(m, 0, sizeof *m);
  m->call = call;
  m->rows = x->dims[x->rank - 2];
  m->cols = x->dims[x->rank - 1];
  m->batch = tfd__span(x, 0, x->rank - 2);
}

static void run_slots(void *arg, int64_t begin, int64_t end) {
  const tfd__matrices *m = arg;
  int64_t slot;
  int64_t i;

  for (slot = begin; slot < end; slot++) {
    int64_t last = (slot + 1) * m->batch / m->slots;

    for (i = slot * m->batch / m->slots; i < last; i++) {
      m->status[i] = m->one(m, i, m->scratch + slot * m->work);
    }
  }
}

int tfd__matrices_run(tfd__matrices *m, const char *problem) {
  int64_t threads = tfd__threads_get();
  int64_t n = m->rows > m->cols ? m->rows : m->cols;
  bool share = n <= SMALL && m->batch * n * n * n > TFD_GRAIN;
  size_t bytes = 0;
  int64_t i;

  if (m->batch == 0) return TFD_OK;
  m->slots = !share ? 1 : m->batch < threads ? m->batch : threads;
  bytes = (size_t)(m->slots * m->work + 1) * sizeof *m->scratch;
  m->scratch = tfd__scratch(bytes);
  m->status = tfd__scratch((size_t)m->batch * sizeof *m->status);
  if (m->scratch == NULL || m->status == NULL) {
    return tfd__no_memory(bytes, m->call->name);
  }
  if (m->slots == 1) {
    run_slots(m, 0, 1);
  } else {
    tfd__parallel_for(m->slots, 1, run_slots, m);
  }
  for (i = 0; i < m->batch; i++) {
    if (m->status[i] == TFD_OK) continue;
    if (m->status[i] != TFD_INVALID_ARGUMENT) return m->status[i];
    return m->batch == 1
               ? tfd__fail(TFD_INVALID_ARGUMENT, "%s: the matrix %s",
                           m->call->name, problem)
               : tfd__fail(TFD_INVALID_ARGUMENT,
                           "%s: matrix %lld of the batch %s", m->call->name,
                           (long long)i, problem);
  }
  return TFD_OK;
}

/* --- triangles ------------------------------------------------------------ */

/* to -= factor * from */
TFD_CLONES static void subtract_row(double *restrict to,
                                    const double *restrict from, double factor,
                                    int64_t n) {
  int64_t i;

  for (i = 0; i < n; i++) to[i] -= factor * from[i];
}

/* Rows [from, to) against each other. */
static void solve_block(const tfd__triangle *t, double *b, int64_t m,
                        int64_t from, int64_t to) {
  int64_t s;
  int64_t k;
  int64_t j;

  for (s = 0; s < to - from; s++) {
    int64_t i = t->lower ? from + s : to - 1 - s;
    int64_t first = t->lower ? from : i + 1;
    int64_t last = t->lower ? i : to;

    for (k = first; k < last; k++) {
      subtract_row(b + i * m, b + k * m, t->a[i * t->row + k * t->col], m);
    }
    if (t->unit) continue;
    for (j = 0; j < m; j++) b[i * m + j] /= t->a[i * (t->row + t->col)];
  }
}

/* b[rows] -= t[rows, cols] b[cols] for ranges of rows and columns. */
static int subtract_product(const tfd__triangle *t, double *b, int64_t m,
                            int64_t row, int64_t rows, int64_t col,
                            int64_t cols, double *negative) {
  tfd__gemm_args g = {.dtype = TFD_FLOAT64, .m = rows, .n = m, .k = cols,
                      .a = negative, .a_row = cols, .a_col = 1,
                      .b = b + col * m, .b_row = m, .b_col = 1,
                      .c = b + row * m, .c_row = m, .add = true};
  int64_t i;
  int64_t k;

  for (i = 0; i < rows; i++) {
    for (k = 0; k < cols; k++) {
      negative[i * cols + k] =
          -t->a[(row + i) * t->row + (col + k) * t->col];
    }
  }
  return tfd__gemm(&g);
}

int tfd__triangle_solve(const tfd__triangle *t, double *b, int64_t m,
                        double *panel) {
  int64_t done;

  for (done = 0; done < t->n; done += SMALL) {
    int64_t size = t->n - done < SMALL ? t->n - done : SMALL;
    int64_t from = t->lower ? done : t->n - done - size;

    if (done > 0) {
      TFD_TRY(subtract_product(t, b, m, from, size,
                               t->lower ? 0 : from + size, done, panel));
    }
    solve_block(t, b, m, from, from + size);
  }
  return TFD_OK;
}

/* --- LU ------------------------------------------------------------------- */

static void swap_rows(double *a, int64_t n, int64_t i, int64_t k) {
  int64_t j;

  for (j = 0; i != k && j < n; j++) {
    double t = a[i * n + j];

    a[i * n + j] = a[k * n + j];
    a[k * n + j] = t;
  }
}

/* Columns [from, to) of the rows from `from` on; exchanges whole rows. */
static void lu_panel(double *a, int64_t n, int64_t from, int64_t to,
                     int64_t *pivots, double *sign_p, bool *singular_p) {
  int64_t k;
  int64_t i;

  for (k = from; k < to; k++) {
    int64_t best = k;

    for (i = k + 1; i < n; i++) {
      if (fabs(a[i * n + k]) > fabs(a[best * n + k])) best = i;
    }
    pivots[k] = best;
    if (best != k) *sign_p = -*sign_p;
    swap_rows(a, n, k, best);
    if (!(fabs(a[k * n + k]) > 0)) {
      *singular_p = true;
      continue;
    }
    for (i = k + 1; i < n; i++) {
      double factor = a[i * n + k] / a[k * n + k];

      a[i * n + k] = factor;
      subtract_row(a + i * n + k + 1, a + k * n + k + 1, factor, to - k - 1);
    }
  }
}

/* What is right of and below a finished panel: U's rows, then the rest minus
** the product of both. */
static int lu_update(double *a, int64_t n, int64_t from, int64_t to,
                     double *negative) {
  int64_t rows = n - to;
  int64_t cols = to - from;
  tfd__gemm_args g = {.dtype = TFD_FLOAT64, .m = rows, .n = rows, .k = cols,
                      .a = negative, .a_row = cols, .a_col = 1,
                      .b = a + from * n + to, .b_row = n, .b_col = 1,
                      .c = a + to * n + to, .c_row = n, .add = true};
  int64_t i;
  int64_t k;

  for (i = from; i < to; i++) {
    for (k = from; k < i; k++) {
      subtract_row(a + i * n + to, a + k * n + to, a[i * n + k], rows);
    }
  }
  for (i = 0; i < rows; i++) {
    for (k = 0; k < cols; k++) {
      negative[i * cols + k] = -a[(to + i) * n + from + k];
    }
  }
  return tfd__gemm(&g);
}

int tfd__lu(double *a, int64_t n, int64_t *pivots, double *panel,
            double *sign_p, bool *singular_p) {
  int64_t from;

  *sign_p = 1;
  *singular_p = false;
  for (from = 0; from < n; from += SMALL) {
    int64_t to = n - from < SMALL ? n : from + SMALL;

    lu_panel(a, n, from, to, pivots, sign_p, singular_p);
    if (to < n) TFD_TRY(lu_update(a, n, from, to, panel));
  }
  return TFD_OK;
}

/* b = inverse(a) b, or of the transpose, from a's factors. */
static int lu_solve(const double *lu, int64_t n, const int64_t *pivots,
                    bool adjoint, double *b, int64_t m, double *panel) {
  tfd__triangle l = {lu, n, n, 1, true, true};
  tfd__triangle u = {lu, n, n, 1, false, false};
  int64_t i;

  if (adjoint) {
    l = (tfd__triangle){lu, n, 1, n, false, true};
    u = (tfd__triangle){lu, n, 1, n, true, false};
    TFD_TRY(tfd__triangle_solve(&u, b, m, panel));
    TFD_TRY(tfd__triangle_solve(&l, b, m, panel));
    for (i = n - 1; i >= 0; i--) swap_rows(b, m, i, pivots[i]);
    return TFD_OK;
  }
  for (i = 0; i < n; i++) swap_rows(b, m, i, pivots[i]);
  TFD_TRY(tfd__triangle_solve(&l, b, m, panel));
  return tfd__triangle_solve(&u, b, m, panel);
}

/* --- kernels -------------------------------------------------------------- */

/* Where things lie in the work of one matrix: the factors, a panel, the
** pivots, the right-hand side. */
static double *panel_of(const tfd__matrices *m, double *work) {
  return work + m->rows * m->rows;
}
static int64_t *pivots_of(const tfd__matrices *m, double *work) {
  return (int64_t *)(void *)(panel_of(m, work) + tfd__panel(m->rows));
}
static double *rhs_of(const tfd__matrices *m, double *work) {
  return panel_of(m, work) + tfd__panel(m->rows) + m->rows;
}
static int64_t work_of(const tfd__matrices *m) {
  return m->rows * (m->rows + 1 + m->rhs) + tfd__panel(m->rows);
}

static int factorise(const tfd__matrices *m, int64_t i, double *work,
                     double *sign_p) {
  int64_t n = m->rows;
  bool singular = false;

  tfd__read_doubles(work, tfd__in(m->call, 0), i * n * n, n * n);
  TFD_TRY(tfd__lu(work, n, pivots_of(m, work), panel_of(m, work), sign_p,
                  &singular));
  return singular ? TFD_INVALID_ARGUMENT : TFD_OK;
}

/* What gives one right-hand side for each matrix; `why` ends the message about
** a matrix that cannot be used. */
static int solve_all(const tfd__call *call,
                     int (*one)(const tfd__matrices *m, int64_t i,
                                double *work),
                     const char *why) {
  const tfd__view *out = tfd__out(call, 0);
  tfd__matrices m;

  tfd__matrices_init(&m, call);
  m.one = one;
  m.rhs = out->dims[out->rank - 1];
  m.work = work_of(&m);
  if (m.rows == 0) return TFD_OK;
  return tfd__matrices_run(&m, why);
}

static int solve_one(const tfd__matrices *m, int64_t i, double *work) {
  const tfd__call *call = m->call;
  int64_t n = m->rows;
  int64_t count = n * m->rhs;
  bool inverse = call->in_n == 1;
  double *b = rhs_of(m, work);
  double sign = 0;
  int64_t k;

  TFD_TRY(factorise(m, i, work, &sign));
  if (inverse) {
    memset(b, 0, (size_t)count * sizeof *b);
    for (k = 0; k < n; k++) b[k * (n + 1)] = 1;
  } else {
    tfd__read_doubles(b, tfd__in(call, 1), i * count, count);
  }
  TFD_TRY(lu_solve(work, n, pivots_of(m, work), call->ints[0] != 0, b, m->rhs,
                   panel_of(m, work)));
  tfd__write_doubles(tfd__out(call, 0), i * count, b, count);
  return TFD_OK;
}

/* ints: adjoint. */
int tfd__cpu_matrix_inverse(const tfd__call *call) {
  return solve_all(call, solve_one, "is not invertible");
}
int tfd__cpu_matrix_solve(const tfd__call *call) {
  return solve_all(call, solve_one, "is not invertible");
}

static int determinant_one(const tfd__matrices *m, int64_t i, double *work) {
  double sign = 1;
  double det = 1;
  double logarithm = 0;
  int64_t k;
  int rc = factorise(m, i, work, &sign);

  if (rc != TFD_OK && rc != TFD_INVALID_ARGUMENT) return rc;
  det = sign;
  for (k = 0; k < m->rows; k++) {
    double x = work[k * (m->rows + 1)];

    det *= x;
    logarithm += log(fabs(x));
    sign *= x > 0 ? 1 : x < 0 ? -1 : x; /* 0 and NaN stay what they are */
  }
  if (m->call->out_n == 1) {
    tfd__write_doubles(tfd__out(m->call, 0), i, &det, 1);
  } else {
    tfd__write_doubles(tfd__out(m->call, 0), i, &sign, 1);
    tfd__write_doubles(tfd__out(m->call, 1), i, &logarithm, 1);
  }
  return TFD_OK;
}

static int determinants(const tfd__call *call) {
  tfd__matrices m;

  tfd__matrices_init(&m, call);
  m.one = determinant_one;
  m.work = work_of(&m);
  return tfd__matrices_run(&m, "has no determinant");
}

int tfd__cpu_matrix_determinant(const tfd__call *call) {
  return determinants(call);
}

/* Outputs: sign (0 for a singular matrix), logarithm of the absolute value. */
int tfd__cpu_slogdet(const tfd__call *call) { return determinants(call); }

/* ints: lower, adjoint. */
static int triangular_one(const tfd__matrices *m, int64_t i, double *work) {
  const tfd__call *call = m->call;
  int64_t n = m->rows;
  int64_t count = n * m->rhs;
  bool adjoint = call->ints[1] != 0;
  double *b = rhs_of(m, work);
  tfd__triangle t = {work, n, adjoint ? 1 : n, adjoint ? n : 1,
                     (call->ints[0] != 0) != adjoint, false};
  int64_t k;

  tfd__read_doubles(work, tfd__in(call, 0), i * n * n, n * n);
  for (k = 0; k < n; k++) {
    if (work[k * (n + 1)] == 0) return TFD_INVALID_ARGUMENT;
  }
  tfd__read_doubles(b, tfd__in(call, 1), i * count, count);
  TFD_TRY(tfd__triangle_solve(&t, b, m->rhs, panel_of(m, work)));
  tfd__write_doubles(tfd__out(call, 0), i * count, b, count);
  return TFD_OK;
}

int tfd__cpu_triangular_solve(const tfd__call *call) {
  return solve_all(call, triangular_one,
                   "is not invertible: its diagonal has a 0");
}
