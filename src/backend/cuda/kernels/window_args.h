#ifndef TFD_CUDA_WINDOW_ARGS_H
#define TFD_CUDA_WINDOW_ARGS_H
/* What the kernels of window.cu take: as args.h. Positions fit
** 32 bits. */

#include "backend/cuda/kernels/args.h"

/* Pooling windows over one to three spatial axes, missing leading ones of size
** 1. Elements are [batch][spatial][channels]; channels that come first are more
** images. */
enum {
  TFD_CU_POOL_MAX,
  TFD_CU_POOL_AVG,
  TFD_CU_POOL_PLACE, /* the maximum, and its place */
  TFD_CU_POOL_PICK,  /* dy where the maximum is */
  TFD_CU_POOL_FIND,  /* only where it is, for gradients */
  TFD_CU_POOL_SHARE  /* dy by the number of inputs, for gradients */
};
typedef struct tfd_cu_pool {
  void *out;
  void *places; /* of maxima in their images; -1: none */
  void *shares; /* in the type that is computed in */
  const void *x;
  const void *y;
  const void *dy;
  int64_t n; /* elements of out */
  int32_t channels;
  int32_t in[3];
  int32_t outs[3];
  int32_t kernel[3]; /* no larger than input and padding */
  int32_t stride[3];
  int32_t low[3]; /* padding */
  int32_t op;
  int32_t wide;        /* places are int64, else int32 */
  int32_t whole_batch; /* places count from the first image */
} tfd_cu_pool;

#endif
