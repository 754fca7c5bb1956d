#ifndef TFD_BACKEND_CPU_LINALG_H
#define TFD_BACKEND_CPU_LINALG_H
/* Private to the CPU back end: factorisations of batches of matrices.
**
** LAPACK reads columns first, tensors lie rows first: it is handed transposes,
** and each kernel says what that makes of the problem. The matrices of a batch
** are shared out among threads. */

#include "backend/cpu/array.h"
#include "backend/cpu/linalg/lapack.h"

/* How one matrix went; neither of the others writes a record. */
typedef enum tfd__went {
  TFD_WENT_WELL,
  TFD_WENT_WRONG, /* the matrix cannot be used: `problem` */
  TFD_WENT_ON     /* an iteration did not end */
} tfd__went;

/* A batch on its way: `one` handles matrix i with `work` bytes of its own. */
typedef struct tfd__matrices {
  const tfd__call *call;
  tfd__went (*one)(const struct tfd__matrices *m, int64_t i, char *work);
  const char *problem; /* ends the message about a matrix */
  const tfd__lapack *lapack;
  int rows; /* of input 0 */
  int cols;
  int rhs;     /* columns of the last input */
  int lwork;   /* elements for LAPACK itself */
  size_t size; /* of an element */
  size_t work;
  int64_t batch;
  tfd__went *went;
  char *scratch;
  int64_t slots;
} tfd__matrices;

/* Sizes from input 0 and the last input.
** Errors: NotImplementedError beyond LAPACK's int. */
int tfd__matrices_init(tfd__matrices *m, const tfd__call *call,
                       tfd__went (*one)(const tfd__matrices *m, int64_t i,
                                        char *work),
                       const char *problem);
/* n elements more of work, for LAPACK itself. Errors: as above. */
int tfd__matrices_lwork(tfd__matrices *m, int64_t n);
#define TFD_LAPACK_BLOCK 64 /* columns that it handles at a time, at most */
/* Run `one` for the whole batch. Errors: InvalidArgument "<op>: matrix 3 of
** the batch <problem>", Unavailable, ResourceExhausted. */
int tfd__matrices_run(tfd__matrices *m);

/* Room for n elements, aligned: cut off *work in `one`, counted before. */
static inline size_t tfd__room(const tfd__matrices *m, int64_t n) {
  return ((size_t)n * m->size + 63) & ~(size_t)63;
}
static inline void *tfd__cut(const tfd__matrices *m, char **work, int64_t n) {
  void *p = *work;

  *work += tfd__room(m, n);
  return p;
}

/* Where matrix `at` of n elements each lies. */
static inline void *tfd__matrix(const tfd__matrices *m, const tfd__view *v,
                                int64_t at, int64_t n) {
  return (char *)v->data + (size_t)(at * n) * m->size;
}

/* to[cols, rows] = transpose of from[rows, cols], both dense. */
void tfd__turn(const tfd__matrices *m, void *to, const void *from, int64_t rows,
               int64_t cols);

/* Element i of an array, as float64. */
static inline double tfd__element(const tfd__matrices *m, const void *a,
                                  int64_t i) {
  return m->size == sizeof(double) ? ((const double *)a)[i]
                                   : (double)((const float *)a)[i];
}

/* At least 1: LAPACK wants that of steps between columns. */
static inline int tfd__step(int n) {
  return n > 1 ? n : 1;
}

#endif
