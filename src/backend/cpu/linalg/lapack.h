#ifndef TFD_BACKEND_CPU_LAPACK_H
#define TFD_BACKEND_CPU_LAPACK_H
/* Private to the CPU back end: LAPACK and float64 products, by OpenBLAS.
**
** The libraries are opened on first use and never needed to link or start.
** OpenBLAS is held to the calling thread: what is shared out among the cores
** of a device is batches and tiles (tfd__parallel_for), so that devices that
** compute at once do not fight, and results do not depend on their cores. */

#include "backend/cpu/linalg/gemm.h"

/* LAPACK's functions for one precision, columns first, with memory of the
** caller's: they allocate nothing. A result above 0 is LAPACK's `info`. */
#define TFD_LAPACK_FUNCTIONS(F)                                                \
  F(potrf, (int order, char uplo, int n, void *a, int lda))                    \
  F(getrf, (int order, int m, int n, void *a, int lda, int *pivots))           \
  F(getrs, (int order, char trans, int n, int nrhs, const void *a, int lda,    \
            const int *pivots, void *b, int ldb))                              \
  F(getri, (int order, int n, void *a, int lda, const int *pivots, void *work, \
            int lwork))                                                        \
  F(trtrs, (int order, char uplo, char trans, char diag, int n, int nrhs,      \
            const void *a, int lda, void *b, int ldb))                         \
  F(gelqf, (int order, int m, int n, void *a, int lda, void *tau, void *work,  \
            int lwork))                                                        \
  F(orglq, (int order, int m, int n, int k, void *a, int lda, const void *tau, \
            void *work, int lwork))                                            \
  F(syevd, (int order, char jobz, char uplo, int n, void *a, int lda, void *w, \
            void *work, int lwork, int *iwork, int liwork))                    \
  F(gesdd,                                                                     \
    (int order, char jobz, int m, int n, void *a, int lda, void *s, void *u,   \
     int ldu, void *vt, int ldvt, void *work, int lwork, int *iwork))

#define TFD_COLUMNS_FIRST 102 /* the value of `order` */

typedef struct tfd__lapack {
#define FUNCTION(name, arguments) int(*name) arguments;
  TFD_LAPACK_FUNCTIONS(FUNCTION)
#undef FUNCTION
} tfd__lapack;

/* The functions for float32 or float64, for `threads` calls at once by the op
** `name`: to be given back with tfd__lapack_leave.
** Errors: Unavailable when a library is missing, ResourceExhausted. */
int tfd__lapack_enter(const char *name, int dtype, int64_t threads,
                      const tfd__lapack **p);
void tfd__lapack_leave(int64_t threads);

/* A float64 product by OpenBLAS; false when it is not for it (small, strides
** in both directions, library missing), else *rc_p says how it went. */
bool tfd__blas_gemm(const tfd__gemm_args *g, int *rc_p);

#endif
