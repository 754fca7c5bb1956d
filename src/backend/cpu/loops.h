#ifndef TFD_BACKEND_CPU_LOOPS_H
#define TFD_BACKEND_CPU_LOOPS_H
/* Elementwise loops: one engine walks shapes, strides, broadcasting, half
** types and threads; an op supplies "rows", functions over contiguous runs.
**
** A row sees 1..3 inputs in the op's compute type. Bit k of `scalar` says that
** input k is one element that stands for all n. Half types never reach a row:
** the engine converts them to float32 and back, a chunk at a time, so each
** result is rounded once. Rows may run on several threads; where the range is
** cut depends on the number of threads, so row results must not depend on the
** position inside a run. */

#include "backend/cpu/cpu.h"

#define TFD_ROW_INS 3
#define TFD_CHUNK 512 /* elements converted or gathered at a time */

typedef void (*tfd__row)(void *out, const void *const *in, int scalar,
                         int64_t n, void *ctx);

/* Row for each dtype; the half types name their float32 row. */
typedef tfd__row tfd__rows[TFD_DTYPE_END];

/* Run `row` over every element of output 0; inputs (at most 3) are broadcast
** against it. `expand`: the row ignores `scalar`, repeat scalars for it.
** Errors: NotImplementedError when row is NULL. */
int tfd__elementwise(const tfd__call *call, tfd__row row, bool expand,
                     void *ctx);

/* The same without conversion: half types reach the row as 2-byte elements. */
int tfd__elementwise_raw(const tfd__call *call, tfd__row row);

/* The row of input `k`'s dtype. */
static inline int tfd__elementwise_of(const tfd__call *call,
                                      const tfd__rows rows, int k, bool expand,
                                      void *ctx) {
  return tfd__elementwise(call, rows[tfd__in(call, k)->dtype], expand, ctx);
}

/* float16 or bfloat16 (`dtype`) to and from float32, contiguous. */
void tfd__halves_to_floats(int dtype, float *to, const uint16_t *from,
                           int64_t n);
void tfd__floats_to_halves(int dtype, uint16_t *to, const float *from,
                           int64_t n);
static inline bool tfd__is_half(int dtype) {
  return dtype == TFD_FLOAT16 || dtype == TFD_BFLOAT16;
}

/* Copy n elements of `size` bytes that lie `stride` elements apart. */
void tfd__gather_row(void *to, const void *from, int64_t stride, int64_t n,
                     size_t size);
/* Copy elements first .. first+n-1 (row-major) of a strided array. */
void tfd__gather_span(void *to, const void *from, size_t size, int rank,
                      const int64_t *dims, const int64_t *strides,
                      int64_t first, int64_t n);

/* x < 0 for any integer type, without a warning for unsigned ones. */
static inline bool tfd__below_zero(int64_t x) {
  return x < 0;
}

#if defined(__clang__)
#define TFD_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define TFD_IVDEP _Pragma("GCC ivdep")
#endif

/* Row with one input: `expr` of x. */
#define TFD_ROW1(name, type, otype, expr)                                    \
  TFD_CLONES static void name(void *out_, const void *const *in, int scalar, \
                              int64_t n, void *ctx) {                        \
    const type *a = in[0];                                                   \
    otype *out = out_;                                                       \
    (void)ctx;                                                               \
    if (scalar) {                                                            \
      const type x = a[0];                                                   \
      const otype r = (otype)(expr);                                         \
      for (int64_t i = 0; i < n; i++) out[i] = r;                            \
      return;                                                                \
    }                                                                        \
    TFD_IVDEP                                                                \
    for (int64_t i = 0; i < n; i++) {                                        \
      const type x = a[i];                                                   \
      out[i] = (otype)(expr);                                                \
    }                                                                        \
  }

/* Row with one float32 input for long expressions, in blocks of TFD_BLOCK
** elements; a short end is padded to a block. So every element goes through
** the same vector instructions, and products may be fused with sums. */
#define TFD_BLOCK 64
#define TFD_ROW1_BLOCKS(name, expr)                                         \
  TFD_CLONES static void name##_blocks(float *out, const float *a,          \
                                       int64_t n) {                         \
    for (int64_t i = 0; i < n; i += TFD_BLOCK) {                            \
      TFD_IVDEP                                                             \
      for (int k = 0; k < TFD_BLOCK; k++) {                                 \
        const float x = a[i + k];                                           \
        out[i + k] = expr;                                                  \
      }                                                                     \
    }                                                                       \
  }                                                                         \
  static void name(void *out, const void *const *in, int scalar, int64_t n, \
                   void *ctx) {                                             \
    (void)ctx;                                                              \
    tfd__run_blocks(name##_blocks, out, in[0], scalar != 0, n);             \
  }
/* Rows of the kernels of these names; out may be x. */
void tfd__exp_row(float *out, const float *x, int64_t n);
void tfd__tanh_row(float *out, const float *x, int64_t n);
void tfd__erf_row(float *out, const float *x, int64_t n);
void tfd__sigmoid_row(float *out, const float *x, int64_t n);

void tfd__run_blocks(void (*blocks)(float *, const float *, int64_t),
                     float *out, const float *a, bool scalar, int64_t n);

/* Row with two inputs: `expr` of x and y. */
#define TFD_ROW2(name, type, otype, expr)                                    \
  TFD_CLONES static void name(void *out_, const void *const *in, int scalar, \
                              int64_t n, void *ctx) {                        \
    const type *a = in[0];                                                   \
    const type *b = in[1];                                                   \
    otype *out = out_;                                                       \
    (void)ctx;                                                               \
    if (scalar == 0) {                                                       \
      TFD_IVDEP                                                              \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type x = a[i];                                                 \
        const type y = b[i];                                                 \
        out[i] = (otype)(expr);                                              \
      }                                                                      \
    } else if (scalar == 2) {                                                \
      const type y = b[0];                                                   \
      TFD_IVDEP                                                              \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type x = a[i];                                                 \
        out[i] = (otype)(expr);                                              \
      }                                                                      \
    } else if (scalar == 1) {                                                \
      const type x = a[0];                                                   \
      TFD_IVDEP                                                              \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type y = b[i];                                                 \
        out[i] = (otype)(expr);                                              \
      }                                                                      \
    } else {                                                                 \
      const type x = a[0];                                                   \
      const type y = b[0];                                                   \
      const otype r = (otype)(expr);                                         \
      for (int64_t i = 0; i < n; i++) out[i] = r;                            \
    }                                                                        \
  }

/* Row with two inputs for costly expressions: scalars come expanded. */
#define TFD_ROW2_HEAVY(name, type, otype, expr)                              \
  TFD_CLONES static void name(void *out_, const void *const *in, int scalar, \
                              int64_t n, void *ctx) {                        \
    const type *a = in[0];                                                   \
    const type *b = in[1];                                                   \
    otype *out = out_;                                                       \
    (void)ctx;                                                               \
    (void)scalar;                                                            \
    TFD_IVDEP                                                                \
    for (int64_t i = 0; i < n; i++) {                                        \
      const type x = a[i];                                                   \
      const type y = b[i];                                                   \
      out[i] = (otype)(expr);                                                \
    }                                                                        \
  }

/* Initialisers of a tfd__rows from rows called base_f32, base_f64 ... */
#define TFD_ROWS_FLOAT(base)                              \
  [TFD_FLOAT32] = base##_f32, [TFD_FLOAT64] = base##_f64, \
  [TFD_FLOAT16] = base##_f32, [TFD_BFLOAT16] = base##_f32
#define TFD_ROWS_INT(base)                                                    \
  [TFD_INT8] = base##_i8, [TFD_INT16] = base##_i16, [TFD_INT32] = base##_i32, \
  [TFD_INT64] = base##_i64, [TFD_UINT8] = base##_u8

#endif
