#ifndef TFD_BACKEND_CPU_H
#define TFD_BACKEND_CPU_H
/* Private to the CPU back end: kernel prototypes and loop helpers. */

#include "backend/backend.h"
#include "base/memory.h"
#include "base/thread.h"

/* Compile a loop for several instruction sets and choose at run time. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TFD_HAS_CLONES 1
#define TFD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TFD_HAS_CLONES 0
#define TFD_CLONES
#endif

/* Bytes of the vectors of such loops, where they are written as vectors:
** compilers break what is wider than a register into words. */
#define TFD_VECTOR_BYTES (TFD_HAS_CLONES ? 32 : 16)

/* Elements below which a loop stays on one thread. */
#define TFD_GRAIN 16384

/* Make what oneDNN makes once; prepare.c. */
void tfd__cpu_prepare(void);

#define KERNEL(name) int tfd__cpu_##name(const tfd__call *call);
#include "backend/kernels/all.def"
#undef KERNEL

/* The keeper of weights (backend.h): linalg/matmul.c. */
size_t tfd__cpu_kept_bytes(const tfd__call *call);
int tfd__cpu_matmul_kept(const tfd__call *call);

/* Sums down columns for those who have some rows at a time; the bits are those
** of reduce_sum and reduce_mean. Up to TFD_BLOCKS_SUM rows are added to acc, in
** multiples of four but for the last; acc begins with zeros. */
void tfd__columns_add(float *acc, const float *rows, int64_t n, int64_t width);
/* Sums of TFD_BLOCKS_SUM rows each, which are overwritten, to those of all. */
void tfd__columns_end(float *sums, int64_t stride, int64_t rows, int64_t width,
                      bool mean, const tfd__view *out);

/* One block for each thread, 64-byte aligned, valid until the thread's next
** call: for packing inside loops, where tfd__scratch would add up. NULL with
** a record when out of memory. */
void *tfd__work_block(size_t bytes);

#endif
