#include "backend/cpu/linalg/linalg.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* --- batches -------------------------------------------------------------- */

static int too_large(const tfd__call *call, int64_t n) {
  if (n <= INT_MAX) return TFD_OK;
  return tfd__fail(TFD_NOT_IMPLEMENTED,
                   "%s: LAPACK would count to %lld here; it counts to %d",
                   call->name, (long long)n, INT_MAX);
}

int tfd__matrices_init(tfd__matrices *m, const tfd__call *call,
                       tfd__went (*one)(const tfd__matrices *m, int64_t i,
                                        char *work),
                       const char *problem) {
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *b = tfd__in(call, call->in_n - 1);
  int64_t rows = x->dims[x->rank - 2];
  int64_t cols = x->dims[x->rank - 1];
  int64_t rhs = b->dims[b->rank - 1];

  TFD_TRY(too_large(call, rows));
  TFD_TRY(too_large(call, cols));
  TFD_TRY(too_large(call, rhs));
  memset(m, 0, sizeof *m);
  m->call = call;
  m->one = one;
  m->problem = problem;
  m->rows = (int)rows;
  m->cols = (int)cols;
  m->rhs = (int)rhs;
  m->size = tfd__dtype_size(x->dtype);
  m->batch = tfd__span(x, 0, x->rank - 2);
  return TFD_OK;
}

int tfd__matrices_lwork(tfd__matrices *m, int64_t n) {
  TFD_TRY(too_large(m->call, n));
  m->lwork = (int)n;
  m->work += tfd__room(m, n);
  return TFD_OK;
}

static void run_slots(void *arg, int64_t begin, int64_t end) {
  const tfd__matrices *m = arg;
  int64_t slot;
  int64_t i;

  for (slot = begin; slot < end; slot++) {
    int64_t last = (slot + 1) * m->batch / m->slots;

    for (i = slot * m->batch / m->slots; i < last; i++) {
      m->went[i] = m->one(m, i, m->scratch + (size_t)slot * m->work);
    }
  }
}

static int complain(const tfd__matrices *m, int64_t i) {
  const char *problem =
      m->went[i] == TFD_WENT_WRONG ? m->problem : "has no result in LAPACK";

  if (m->batch == 1) {
    return tfd__fail(TFD_INVALID_ARGUMENT, "%s: the matrix %s", m->call->name,
                     problem);
  }
  return tfd__fail(TFD_INVALID_ARGUMENT, "%s: matrix %lld of the batch %s",
                   m->call->name, (long long)i, problem);
}

int tfd__matrices_run(tfd__matrices *m) {
  int64_t threads = tfd__threads_get();
  double n = m->rows > m->cols ? m->rows : m->cols;
  size_t bytes = 0;
  int64_t i;

  if (m->batch == 0) return TFD_OK;
  if (m->batch < threads) threads = m->batch;
  m->slots = (double)m->batch * n * n * n > TFD_GRAIN ? threads : 1;
  m->work = (m->work + 63) & ~(size_t)63;
  bytes = (size_t)m->slots * m->work + 1;
  m->scratch = tfd__scratch(bytes);
  m->went = tfd__scratch((size_t)m->batch * sizeof *m->went);
  if (m->scratch == NULL || m->went == NULL) {
    return tfd__no_memory(bytes, m->call->name);
  }
  TFD_TRY(tfd__lapack_enter(m->call->name, tfd__in(m->call, 0)->dtype, m->slots,
                            &m->lapack));
  tfd__parallel_for(m->slots, 1, run_slots, m);
  tfd__lapack_leave(m->slots);
  for (i = 0; i < m->batch; i++) {
    if (m->went[i] != TFD_WENT_WELL) return complain(m, i);
  }
  return TFD_OK;
}

void tfd__turn(const tfd__matrices *m, void *to, const void *from, int64_t rows,
               int64_t cols) {
  int64_t dims[2] = {cols, rows};
  tfd__view a;
  tfd__view b;

  if (rows == 0 || cols == 0) return;
  /* Two dimensions of a dtype that is there: neither call can fail. */
  (void)tfd__view_set(&a, tfd__in(m->call, 0)->dtype, dims, 2);
  b = a;
  a.data = to;
  b.data = (void *)(uintptr_t)from;
  b.strides[0] = 1;
  b.strides[1] = cols;
  tfd__view_refresh(&b);
  tfd__copy_view(&a, &b);
}

/* --- LU ------------------------------------------------------------------- */

/* The factors of matrix i's transpose into a; WRONG when a pivot is 0 or not a
** number (they are complete all the same). */
static tfd__went factorise(const tfd__matrices *m, int64_t i, void *a,
                           int *pivots) {
  int64_t n = m->rows;
  int64_t k;

  memcpy(a, tfd__matrix(m, tfd__in(m->call, 0), i, n * n),
         (size_t)(n * n) * m->size);
  (void)m->lapack->getrf(TFD_COLUMNS_FIRST, m->rows, m->rows, a,
                         tfd__step(m->rows), pivots);
  for (k = 0; k < n; k++) {
    if (!(fabs(tfd__element(m, a, k * (n + 1))) > 0)) return TFD_WENT_WRONG;
  }
  return TFD_WENT_WELL;
}

/* A x = b is, for LAPACK, a system with the transpose of what it factorised. */
static tfd__went solve_one(const tfd__matrices *m, int64_t i, char *work) {
  const tfd__call *call = m->call;
  int64_t n = m->rows;
  void *a = tfd__cut(m, &work, n * n);
  int *pivots = tfd__cut(m, &work, n);
  void *b = work;
  const void *rhs = tfd__matrix(m, tfd__in(call, 1), i, n * m->rhs);
  void *x = tfd__matrix(m, tfd__out(call, 0), i, n * m->rhs);

  if (factorise(m, i, a, pivots) != TFD_WENT_WELL) return TFD_WENT_WRONG;
  tfd__turn(m, b, rhs, n, m->rhs);
  (void)m->lapack->getrs(TFD_COLUMNS_FIRST, call->ints[0] != 0 ? 'N' : 'T',
                         m->rows, m->rhs, a, m->rows, pivots, b, m->rows);
  tfd__turn(m, x, b, m->rhs, n);
  return TFD_WENT_WELL;
}

/* The transpose's inverse is the inverse's transpose. */
static tfd__went inverse_one(const tfd__matrices *m, int64_t i, char *work) {
  int64_t n = m->rows;
  void *y = tfd__matrix(m, tfd__out(m->call, 0), i, n * n);
  bool adjoint = m->call->ints[0] != 0;
  void *a = adjoint ? tfd__cut(m, &work, n * n) : y;
  int *pivots = tfd__cut(m, &work, n);

  if (factorise(m, i, a, pivots) != TFD_WENT_WELL) return TFD_WENT_WRONG;
  (void)m->lapack->getri(TFD_COLUMNS_FIRST, m->rows, a, m->rows, pivots, work,
                         m->lwork);
  if (adjoint) tfd__turn(m, y, a, n, n);
  return TFD_WENT_WELL;
}

static tfd__went determinant_one(const tfd__matrices *m, int64_t i,
                                 char *work) {
  const tfd__call *call = m->call;
  int dtype = tfd__in(call, 0)->dtype;
  int64_t n = m->rows;
  void *a = tfd__cut(m, &work, n * n);
  int *pivots = tfd__cut(m, &work, n);
  double sign = 1;
  double det = 1;
  double logarithm = 0;
  int64_t k;

  (void)factorise(m, i, a, pivots);
  for (k = 0; k < n; k++) {
    double x = tfd__element(m, a, k * (n + 1));

    if (pivots[k] != k + 1) x = -x; /* an exchange of rows */
    det *= x;
    logarithm += log(fabs(x));
    sign *= x > 0 ? 1 : x < 0 ? -1 : x; /* 0 and NaN stay what they are */
  }
  tfd__store(tfd__matrix(m, tfd__out(call, 0), i, 1), dtype,
             call->out_n == 1 ? det : sign);
  if (call->out_n == 2) {
    tfd__store(tfd__matrix(m, tfd__out(call, 1), i, 1), dtype, logarithm);
  }
  return TFD_WENT_WELL;
}

/* ints: lower, adjoint. Rows first, a lower triangle is an upper one. */
static tfd__went triangular_one(const tfd__matrices *m, int64_t i, char *work) {
  const tfd__call *call = m->call;
  int64_t n = m->rows;
  const void *a = tfd__matrix(m, tfd__in(call, 0), i, n * n);
  const void *rhs = tfd__matrix(m, tfd__in(call, 1), i, n * m->rhs);
  int info = 0;

  tfd__turn(m, work, rhs, n, m->rhs);
  info = m->lapack->trtrs(TFD_COLUMNS_FIRST, call->ints[0] != 0 ? 'U' : 'L',
                          call->ints[1] != 0 ? 'N' : 'T', 'N', m->rows, m->rhs,
                          a, m->rows, work, m->rows);
  if (info > 0) return TFD_WENT_WRONG;
  tfd__turn(m, tfd__matrix(m, tfd__out(call, 0), i, n * m->rhs), work, m->rhs,
            n);
  return TFD_WENT_WELL;
}

/* --- Cholesky ------------------------------------------------------------- */

/* The lower triangle, rows first, is LAPACK's upper one. */
static tfd__went cholesky_one(const tfd__matrices *m, int64_t index,
                              char *work) {
  int64_t n = m->rows;
  const char *from = tfd__matrix(m, tfd__in(m->call, 0), index, n * n);
  char *to = tfd__matrix(m, tfd__out(m->call, 0), index, n * n);
  int64_t i;

  (void)work;
  for (i = 0; i < n; i++) {
    size_t row = (size_t)(i * n) * m->size;
    size_t kept = (size_t)(i + 1) * m->size;

    memcpy(to + row, from + row, kept);
    memset(to + row + kept, 0, (size_t)n * m->size - kept);
  }
  if (m->lapack->potrf(TFD_COLUMNS_FIRST, 'U', m->rows, to, m->rows) > 0) {
    return TFD_WENT_WRONG;
  }
  for (i = 0; i < n; i++) {
    if (!isfinite(tfd__element(m, to, i * (n + 1)))) return TFD_WENT_WRONG;
  }
  return TFD_WENT_WELL;
}

/* --- kernels -------------------------------------------------------------- */

int tfd__cpu_matrix_solve(const tfd__call *call) {
  tfd__matrices m;

  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  TFD_TRY(tfd__matrices_init(&m, call, solve_one, "is not invertible"));
  m.work = tfd__room(&m, (int64_t)m.rows * m.rows) + tfd__room(&m, m.rows) +
           tfd__room(&m, (int64_t)m.rows * m.rhs);
  return tfd__matrices_run(&m);
}

int tfd__cpu_matrix_inverse(const tfd__call *call) {
  tfd__matrices m;

  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  TFD_TRY(tfd__matrices_init(&m, call, inverse_one, "is not invertible"));
  m.work = tfd__room(&m, (int64_t)m.rows * m.rows) + tfd__room(&m, m.rows);
  TFD_TRY(tfd__matrices_lwork(&m, (int64_t)m.rows * TFD_LAPACK_BLOCK));
  return tfd__matrices_run(&m);
}

static int determinants(const tfd__call *call) {
  tfd__matrices m;

  TFD_TRY(tfd__matrices_init(&m, call, determinant_one, ""));
  m.work = tfd__room(&m, (int64_t)m.rows * m.rows) + tfd__room(&m, m.rows);
  return tfd__matrices_run(&m);
}

int tfd__cpu_matrix_determinant(const tfd__call *call) {
  return determinants(call);
}

/* Outputs: sign (0 for a singular matrix), logarithm of the absolute value. */
int tfd__cpu_slogdet(const tfd__call *call) {
  return determinants(call);
}

int tfd__cpu_triangular_solve(const tfd__call *call) {
  tfd__matrices m;

  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  TFD_TRY(tfd__matrices_init(&m, call, triangular_one,
                             "is not invertible: its diagonal has a 0"));
  m.work = tfd__room(&m, (int64_t)m.rows * m.rhs);
  return tfd__matrices_run(&m);
}

int tfd__cpu_cholesky(const tfd__call *call) {
  tfd__matrices m;

  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  TFD_TRY(
      tfd__matrices_init(&m, call, cholesky_one, "is not positive definite"));
  return tfd__matrices_run(&m);
}

/* --- products of vectors -------------------------------------------------- */

/* Cross products of vectors of three elements. */
int tfd__cpu_cross(const tfd__call *call) {
  const tfd__view *a = tfd__in(call, 0);
  const tfd__view *b = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  size_t size = tfd__dtype_size(a->dtype);
  int64_t i;
  int k;

  for (i = 0; i < a->numel; i += 3) {
    double x[3];
    double y[3];

    for (k = 0; k < 3; k++) {
      size_t at = (size_t)(i + k) * size;

      x[k] = tfd__load((const char *)a->data + at, a->dtype);
      y[k] = tfd__load((const char *)b->data + at, a->dtype);
    }
    for (k = 0; k < 3; k++) {
      int p = (k + 1) % 3;
      int q = (k + 2) % 3;

      tfd__store((char *)out->data + (size_t)(i + k) * size, out->dtype,
                 x[p] * y[q] - x[q] * y[p]);
    }
  }
  return TFD_OK;
}
