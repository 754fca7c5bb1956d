#ifndef TFD_CUDA_PLACES_ARGS_H
#define TFD_CUDA_PLACES_ARGS_H
/* What the kernels of places.cu take: as args.h. Positions fit 32 bits where
** keys are sorted. */

#include "backend/cuda/kernels/args.h"

/* Matrices of which `lower` diagonals below the main one stay and `upper` above
** it; negative: all. */
typedef struct tfd_cu_band {
  void *out;
  const void *in;
  int64_t n;
  int64_t rows;
  int64_t columns;
  int64_t lower;
  int64_t upper;
} tfd_cu_band;

/* out[i][j] = j < lengths[i]. */
typedef struct tfd_cu_mask {
  void *out;
  const void *lengths;
  int64_t n;
  int64_t width;
  int32_t dtype;
  int32_t wide; /* lengths are int64, else int32 */
} tfd_cu_mask;

/* Vectors of three elements. */
typedef struct tfd_cu_cross {
  void *out;
  const void *a;
  const void *b;
  int64_t n; /* vectors */
  int32_t dtype;
} tfd_cu_cross;

/* Whole numbers of rows of `width`, sorted by bin. */
typedef struct tfd_cu_bins {
  void *out;
  const void *in;
  const void *weights; /* NULL: 1 each */
  uint32_t *keys;
  uint32_t *order;
  uint64_t *error;
  int64_t n; /* numbers */
  int64_t width;
  int64_t size; /* bins of a row */
  int64_t bins; /* of all rows: the key of what is left out */
  int32_t wide; /* numbers are int64, else int32 */
  int32_t binary;
  int32_t weights_dtype;
  int32_t dtype;
} tfd_cu_bins;

/* Where elements are not 0: key 0, the others 1; then their coordinates. */
typedef struct tfd_cu_truths {
  int64_t *out;
  const void *in;
  uint32_t *keys;
  uint32_t *order;
  uint64_t *error;
  int64_t n;
  int64_t count; /* as the caller says */
  int64_t dims[TFD_CU_RANK];
  int32_t rank;
  int32_t dtype;
} tfd_cu_truths;

/* The order of sorted numbers 0 .. n - 1 is the inverse. */
typedef struct tfd_cu_inverse {
  void *out;
  const uint32_t *keys;
  const uint32_t *order;
  const uint32_t *nothing; /* 1: nothing is to be done */
  uint64_t *error;
  int64_t n;
  int32_t dtype;
} tfd_cu_inverse;

#endif
