#ifndef TFD_BACKEND_CUDA_FUSE_H
#define TFD_BACKEND_CUDA_FUSE_H
/* Groups of elementwise ops as one kernel each, made at run time: source (its
** text), nvrtc (from text to machine code), cubins (machine code on disk), fuse
** (what the graph sees, and the launch). */

#include "backend/cuda/cuda.h"
#include "backend/strip.h"

/* Machine code. Owns: data (malloc). */
typedef struct tfd__cubin {
  void *data;
  size_t bytes;
} tfd__cubin;

/* --- source ----------------------------------------------------------------
 */

/* Can an op of these operands be part of a text? */
bool tfd__cuda_source_takes(tfd__kernel_id kernel, int args_n,
                            const uint8_t *dtypes);
/* Elements that the kernel moves at once where all are dense: 4, 2 or 1. */
int tfd__cuda_source_pack(const tfd__strip_text *text);
/* The text of a kernel `fused`. Owns: *source_p (malloc). Errors:
** NotImplemented with the op's number in *refused_p. */
int tfd__cuda_source(const tfd__strip_text *text, char **source_p,
                     int *refused_p);

/* --- nvrtc -----------------------------------------------------------------
 */

/* Unavailable with the reason where there is no compiler. */
int tfd__cuda_nvrtc_open(void);
/* Compile, or find what was compiled before. Owns: *cubin_p. */
int tfd__cuda_compile(const char *source, int capability, tfd__cubin *cubin_p);

/* --- cubins ----------------------------------------------------------------
 */

/* $TFDIST_CUBIN_CACHE, or $XDG_CACHE_HOME/tfdist/cubin: a file for each key,
** which it holds, so that none is taken for another; files of others, damaged
** and shortened ones are not used. Together at most 64 MiB: the oldest go. */
bool tfd__cuda_cubin_find(const char *key, tfd__cubin *cubin_p);
/* What cannot be written is made again by the next process. */
void tfd__cuda_cubin_keep(const char *key, const tfd__cubin *cubin);

#endif
