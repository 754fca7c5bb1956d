#include "backend/cpu/linalg/gemm.h"
#include "backend/cpu/linalg/linalg.h"

#include <math.h>
#include <string.h>

#define SMALL TFD_LINALG_SMALL

TFD_CLONES double tfd__dot(const double *a, const double *b, int64_t n) {
  double sums[8] = {0};
  double sum = 0;
  int64_t i;
  int k;

  for (i = 0; i + 8 <= n; i += 8) {
    for (k = 0; k < 8; k++) sums[k] += a[i + k] * b[i + k];
  }
  for (; i < n; i++) sum += a[i] * b[i];
  for (k = 0; k < 8; k++) sum += sums[k];
  return sum;
}

/* Columns [from, to) of a row (which begins at `from`), solved against the
** rows of the factor above. */
static inline void solve_row(const double *a, int64_t n, int64_t from,
                             int64_t to, double *row) {
  for (int64_t k = from; k < to; k++) {
    const double *other = a + k * n + from;

    row[k - from] = (row[k - from] - tfd__dot(row, other, k - from)) /
                    other[k - from];
  }
}

/* The square [from, to) in place; false unless it is positive definite. */
static bool factorise_square(double *a, int64_t n, int64_t from, int64_t to) {
  int64_t i;

  for (i = from; i < to; i++) {
    double *row = a + i * n + from;

    solve_row(a, n, from, i, row);
    row[i - from] -= tfd__dot(row, row, i - from);
    if (!(row[i - from] > 0) || isinf(row[i - from])) return false;
    row[i - from] = sqrt(row[i - from]);
  }
  return true;
}

/* The rows below a finished square, solved against it. */
static void factorise_below(double *a, int64_t n, int64_t from, int64_t to) {
  int64_t i;

  for (i = to; i < n; i++) solve_row(a, n, from, to, a + i * n + from);
}

/* The lower triangle from `to` on loses the product of the rows left of it
** with their transpose, a block of columns at a time. */
static int update_rest(double *a, int64_t n, int64_t from, int64_t to,
                       double *negative) {
  int64_t cols = to - from;
  int64_t i;
  int64_t k;

  for (i = to; i < n; i++) {
    for (k = 0; k < cols; k++) {
      negative[(i - to) * cols + k] = -a[i * n + from + k];
    }
  }
  for (i = to; i < n; i += 4 * SMALL) {
    int64_t width = n - i < 4 * SMALL ? n - i : 4 * SMALL;
    tfd__gemm_args g = {.dtype = TFD_FLOAT64, .m = n - i, .n = width,
                        .k = cols, .a = negative + (i - to) * cols,
                        .a_row = cols, .a_col = 1, .b = a + i * n + from,
                        .b_row = 1, .b_col = n, .c = a + i * n + i,
                        .c_row = n, .add = true};

    TFD_TRY(tfd__gemm(&g));
  }
  return TFD_OK;
}

static int cholesky_one(const tfd__matrices *m, int64_t index, double *a) {
  int64_t n = m->rows;
  int64_t from;
  int64_t i;

  tfd__read_doubles(a, tfd__in(m->call, 0), index * n * n, n * n);
  for (from = 0; from < n; from += SMALL) {
    int64_t to = n - from < SMALL ? n : from + SMALL;

    if (!factorise_square(a, n, from, to)) return TFD_INVALID_ARGUMENT;
    if (to == n) break;
    factorise_below(a, n, from, to);
    TFD_TRY(update_rest(a, n, from, to, a + n * n));
  }
  for (i = 0; i < n; i++) {
    memset(a + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof *a);
  }
  tfd__write_doubles(tfd__out(m->call, 0), index * n * n, a, n * n);
  return TFD_OK;
}

int tfd__cpu_cholesky(const tfd__call *call) {
  tfd__matrices m;

  tfd__matrices_init(&m, call);
  m.one = cholesky_one;
  m.work = m.rows * m.rows + tfd__panel(m.rows);
  if (m.rows == 0) return TFD_OK;
  return tfd__matrices_run(&m, "is not positive definite");
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
