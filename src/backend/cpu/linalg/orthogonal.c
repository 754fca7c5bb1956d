/* Orthogonal factorisations: symmetric eigenvalues, singular values, QR. */
#include "backend/cpu/linalg/linalg.h"

#include <math.h>
#include <string.h>

/* LAPACK may not come back from others. */
static bool all_finite(const tfd__matrices *m, const void *a, int64_t n) {
  int64_t i;

  for (i = 0; i < n; i++) {
    if (!isfinite(tfd__element(m, a, i))) return false;
  }
  return true;
}

/* --- symmetric eigenvalues ------------------------------------------------ */

/* Only the lower triangle counts, LAPACK's upper one. */
static tfd__went eigen_one(const tfd__matrices *m, int64_t index, char *work) {
  const tfd__call *call = m->call;
  int64_t n = m->rows;
  void *a = tfd__cut(m, &work, n * n);
  void *lwork = tfd__cut(m, &work, m->lwork);
  int *iwork = (void *)work;
  const char *from = tfd__matrix(m, tfd__in(call, 0), index, n * n);
  int64_t i;

  for (i = 0; i < n; i++) {
    if (!all_finite(m, from + (size_t)(i * n) * m->size, i + 1)) {
      return TFD_WENT_WRONG;
    }
  }
  memcpy(a, from, (size_t)(n * n) * m->size);
  if (m->lapack->syevd(TFD_COLUMNS_FIRST, 'V', 'U', m->rows, a, m->rows,
                       tfd__matrix(m, tfd__out(call, 0), index, n), lwork,
                       m->lwork, iwork, 3 + 5 * m->rows) > 0) {
    return TFD_WENT_ON;
  }
  tfd__turn(m, tfd__matrix(m, tfd__out(call, 1), index, n * n), a, n, n);
  return TFD_WENT_WELL;
}

int tfd__cpu_self_adjoint_eig(const tfd__call *call) {
  tfd__matrices m;
  int64_t n = 0;

  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  TFD_TRY(tfd__matrices_init(&m, call, eigen_one,
                             "has an element that is not finite"));
  n = m.rows;
  m.work = tfd__room(&m, n * n) + (size_t)(3 + 5 * n) * sizeof(int);
  TFD_TRY(tfd__matrices_lwork(&m, 1 + (6 + TFD_LAPACK_BLOCK) * n + 2 * n * n));
  return tfd__matrices_run(&m);
}

/* --- singular values ------------------------------------------------------ */

/* x = u s v^T; LAPACK is given x^T = v s u^T, and what it calls u^T, columns
** first, is our u. */
static tfd__went singular_one(const tfd__matrices *m, int64_t index,
                              char *work) {
  const tfd__call *call = m->call;
  int64_t rows = m->rows;
  int64_t cols = m->cols;
  int k = m->rows < m->cols ? m->rows : m->cols;
  void *a = tfd__cut(m, &work, rows * cols);
  void *v = tfd__cut(m, &work, cols * k);
  void *lwork = tfd__cut(m, &work, m->lwork);
  int *iwork = (void *)work;
  const void *from = tfd__matrix(m, tfd__in(call, 0), index, rows * cols);

  if (!all_finite(m, from, rows * cols)) return TFD_WENT_WRONG;
  memcpy(a, from, (size_t)(rows * cols) * m->size);
  if (m->lapack->gesdd(TFD_COLUMNS_FIRST, 'S', m->cols, m->rows, a, m->cols,
                       tfd__matrix(m, tfd__out(call, 0), index, k), v, m->cols,
                       tfd__matrix(m, tfd__out(call, 1), index, rows * k), k,
                       lwork, m->lwork, iwork) > 0) {
    return TFD_WENT_ON;
  }
  tfd__turn(m, tfd__matrix(m, tfd__out(call, 2), index, cols * k), v, k, cols);
  return TFD_WENT_WELL;
}

int tfd__cpu_svd(const tfd__call *call) {
  tfd__matrices m;
  int64_t k = 0;
  int64_t n = 0;

  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  TFD_TRY(tfd__matrices_init(&m, call, singular_one,
                             "has an element that is not finite"));
  k = m.rows < m.cols ? m.rows : m.cols;
  n = m.rows < m.cols ? m.cols : m.rows;
  m.work = tfd__room(&m, n * k) + tfd__room(&m, m.cols * k) +
           (size_t)(8 * k) * sizeof(int);
  /* Its least is k (4 k + 7) + n; blocks of columns make it fast. */
  TFD_TRY(tfd__matrices_lwork(&m, k * (4 * k + 7) +
                                      (n + 3 * k) * TFD_LAPACK_BLOCK));
  return tfd__matrices_run(&m);
}

/* --- QR ------------------------------------------------------------------- */

/* The transpose of x = q r is r^T q^T, LAPACK's factors "l" and "q"; rows
** first they are r and q as they lie. ints: full_matrices. */
static tfd__went qr_one(const tfd__matrices *m, int64_t index, char *work) {
  const tfd__view *q_view = tfd__out(m->call, 0);
  int64_t rows = m->rows;
  int64_t cols = m->cols;
  int steps = m->rows < m->cols ? m->rows : m->cols;
  int count = (int)q_view->dims[q_view->rank - 1];
  char *a = tfd__cut(m, &work, rows * cols);
  void *tau = tfd__cut(m, &work, steps);
  char *q = tfd__matrix(m, q_view, index, rows * count);
  char *r = tfd__matrix(m, tfd__out(m->call, 1), index, count * cols);
  int64_t i;

  memcpy(a, tfd__matrix(m, tfd__in(m->call, 0), index, rows * cols),
         (size_t)(rows * cols) * m->size);
  (void)m->lapack->gelqf(TFD_COLUMNS_FIRST, m->cols, m->rows, a,
                         tfd__step(m->cols), tau, work, m->lwork);
  for (i = 0; i < count; i++) {
    size_t row = (size_t)(i * cols) * m->size;
    size_t below = (size_t)(i < cols ? i : cols) * m->size;

    memset(r + row, 0, below);
    memcpy(r + row + below, a + row + below, (size_t)cols * m->size - below);
  }
  for (i = 0; i < rows; i++) {
    memcpy(q + (size_t)(i * count) * m->size, a + (size_t)(i * cols) * m->size,
           (size_t)steps * m->size);
  }
  (void)m->lapack->orglq(TFD_COLUMNS_FIRST, count, m->rows, steps, q, count,
                         tau, work, m->lwork);
  return TFD_WENT_WELL;
}

int tfd__cpu_qr(const tfd__call *call) {
  tfd__matrices m;

  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  TFD_TRY(tfd__matrices_init(&m, call, qr_one, ""));
  m.work = tfd__room(&m, (int64_t)m.rows * m.cols) +
           tfd__room(&m, m.rows < m.cols ? m.rows : m.cols);
  TFD_TRY(tfd__matrices_lwork(&m, (int64_t)(m.rows > m.cols ? m.rows : m.cols) *
                                      TFD_LAPACK_BLOCK));
  return tfd__matrices_run(&m);
}
