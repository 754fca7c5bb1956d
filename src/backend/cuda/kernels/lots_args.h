#ifndef TFD_CUDA_LOTS_ARGS_H
#define TFD_CUDA_LOTS_ARGS_H
/* What the kernels of lots.cu take: as args.h. */

#include "backend/cuda/kernels/args.h"

/* Rows of logits [rows][classes] to running sums of their weights, by which
** classes are drawn: out[rows][samples]. */
typedef struct tfd_cu_classes {
  void *out;
  const void *logits;
  double *sums; /* [rows][classes] */
  uint64_t *error;
  int64_t rows;
  int64_t classes;
  int64_t samples;
  int32_t from; /* dtype of logits */
  int32_t dtype;
  uint32_t key[2];
  uint32_t stream[2];
} tfd_cu_classes;

/* A permutation of n numbers, by one block. */
enum { TFD_CU_PERMUTED = 4096 };
typedef struct tfd_cu_permute {
  int32_t *out;
  int64_t n;
  uint32_t key[2];
  uint32_t stream[2];
} tfd_cu_permute;

/* Numbers by rejection: element i has 256 blocks of the stream. */
enum { TFD_CU_GAMMA, TFD_CU_POISSON };
typedef struct tfd_cu_tries {
  void *out;
  const void *in; /* the parameter, broadcast */
  double least;
  int64_t n;
  int64_t dims[TFD_CU_RANK];
  int64_t strides[TFD_CU_RANK];
  int32_t rank;
  int32_t from;
  int32_t dtype;
  int32_t what;
  uint32_t key[2];
  uint32_t stream[2];
} tfd_cu_tries;

#endif
