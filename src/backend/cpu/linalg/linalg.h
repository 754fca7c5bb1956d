#ifndef TFD_BACKEND_CPU_LINALG_H
#define TFD_BACKEND_CPU_LINALG_H
/* Private to the CPU back end: factorisations of batches of matrices.
**
** Everything is computed in float64, row-major, whatever the dtype: float32
** results are then as good as their inputs. Matrices beyond TFD_LINALG_SMALL
** go in blocks, whose products tfd__gemm does on all threads; smaller ones
** are shared out among threads by the batch. */

#include "backend/cpu/array.h"

#define TFD_LINALG_SMALL 64 /* side of blocks, and of "small" matrices */

/* A batch on its way: `one` handles matrix i with `work` doubles of its own.
** It returns TFD_OK, TFD_INVALID_ARGUMENT for a matrix it cannot do (no
** record written), or another code with a record. */
typedef struct tfd__matrices {
  const tfd__call *call;
  int (*one)(const struct tfd__matrices *m, int64_t i, double *work);
  int64_t rows; /* of input 0 */
  int64_t cols;
  int64_t rhs;  /* columns of a right-hand side */
  int64_t work; /* doubles */
  int64_t batch;
  int *status;
  double *scratch;
  int64_t slots;
} tfd__matrices;

/* Rows, columns and batch size from input 0. */
void tfd__matrices_init(tfd__matrices *m, const tfd__call *call);
/* Run `one` for the whole batch. Errors: InvalidArgument "<op>: matrix 3 of
** the batch <problem>", ResourceExhausted. */
int tfd__matrices_run(tfd__matrices *m, const char *problem);

/* n elements at element `at` of v, to and from float64. */
void tfd__read_doubles(double *to, const tfd__view *v, int64_t at, int64_t n);
void tfd__write_doubles(const tfd__view *v, int64_t at, const double *from,
                        int64_t n);

/* Sum of a[i] b[i], in eight parts: the same bits on every machine. */
double tfd__dot(const double *a, const double *b, int64_t n);

/* A triangular matrix as it lies: element (i, j) at a[i * row + j * col]. */
typedef struct tfd__triangle {
  const double *a;
  int64_t n;
  int64_t row;
  int64_t col;
  bool lower;
  bool unit; /* ones on the diagonal, whatever is stored there */
} tfd__triangle;

/* Doubles of the panel that factorisations of size n want. */
static inline int64_t tfd__panel(int64_t n) {
  return n > TFD_LINALG_SMALL ? n * TFD_LINALG_SMALL : 0;
}

/* b[n, m] = inverse(t) b in place; b's rows are m apart.
** Errors: ResourceExhausted. */
int tfd__triangle_solve(const tfd__triangle *t, double *b, int64_t m,
                        double *panel);

/* a[n, n] = P^T L U in place, row i exchanged with pivots[i]; *sign_p is the
** determinant of P. A pivot of exactly 0 makes *singular_p true; the
** factors are then complete but for what it would have divided. */
int tfd__lu(double *a, int64_t n, int64_t *pivots, double *panel,
            double *sign_p, bool *singular_p);

#endif
