#ifndef TFD_BACKEND_CPU_GEMM_H
#define TFD_BACKEND_CPU_GEMM_H
/* Matrix products of the CPU back end, and the bridge for half types.
**
** tfd__gemm is our own product for every arithmetic dtype: packed panels of
** B, register tiles of 6 rows. oneDNN takes float32 in its place where it can
** (onednn.h), OpenBLAS large float64 ones (lapack.h). Results do not depend on
** the number of threads. */

#include "backend/cpu/cpu.h"

/* c[m,n] (+)= a[m,k] * b[k,n]. Strides in elements; the columns of c are
** adjacent. dtype: float32, float64, or an integer of 32 or 64 bits. */
typedef struct tfd__gemm_args {
  int dtype;
  int64_t m;
  int64_t n;
  int64_t k;
  const void *a;
  int64_t a_row;
  int64_t a_col;
  const void *b;
  int64_t b_row;
  int64_t b_col;
  void *c;
  int64_t c_row;
  bool add; /* add to c rather than overwrite it */
} tfd__gemm_args;

/* Multiplications below which our own product is faster than a call of oneDNN
** (1 to 2 us before the first result). */
#define TFD_SMALL_PRODUCT 32768

/* Errors: ResourceExhausted when the packing block cannot be had. */
int tfd__gemm(const tfd__gemm_args *g);

/* The same on our own code only. */
int tfd__gemm_plain(const tfd__gemm_args *g);

static inline bool tfd__is_half(int dtype) {
  return dtype == TFD_FLOAT16 || dtype == TFD_BFLOAT16;
}

/* Run `kernel` with every float16 and bfloat16 view replaced by a float32
** copy, then round the outputs: one rounding for each result. Costs a pass
** over the operands and scratch memory of twice their size. */
int tfd__via_float(const tfd__call *call, tfd__kernel kernel);

/* Dense elements to and from float32. */
void tfd__widen(const void *from, int dtype, float *to, int64_t n);
void tfd__narrow(const float *from, void *to, int dtype, int64_t n);

/* A dense copy of `v` in scratch memory: any strides, any dtype.
** Errors: ResourceExhausted. */
int tfd__densify(const tfd__view *v, tfd__view *dense_p);

#endif
