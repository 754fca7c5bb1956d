#ifndef TFD_CUDA_INDEX_ARGS_H
#define TFD_CUDA_INDEX_ARGS_H
/* What the kernels of index.cu take: as args.h. Rows fit 32 bits. */

#include "backend/cuda/kernels/args.h"

/* Rows moved by index: out[o][k][i] = in[o][index[o / shared][k]][i]. */
typedef struct tfd_cu_gather {
  void *out;
  const void *in;
  const void *index;
  int64_t outer;
  int64_t shared;
  int64_t count; /* indices */
  int64_t bound; /* rows of the input */
  int64_t inner; /* elements of a row */
  int32_t wide;  /* indices are int64, else int32 */
  int32_t zeros; /* negative indices give zeros */
  uint64_t *error;
} tfd_cu_gather;

/* Row numbers from indices of `depth` coordinates each. Row i of n stands in
** block i / each; `outer` blocks in a row share their indices. */
enum { TFD_CU_REFUSE, TFD_CU_LEAVE_OUT, TFD_CU_RISING };
typedef struct tfd_cu_choose {
  const uint64_t *stop;
  uint32_t *keys;
  uint32_t *order; /* 0, 1, 2 ...; NULL: not asked for */
  const void *index;
  int64_t n;
  int64_t each;
  int64_t outer;
  int64_t rows; /* of the target: the key of what is left out */
  int64_t bounds[TFD_CU_RANK];
  int32_t depth;
  int32_t wide;
  int32_t negative;  /* REFUSE, LEAVE_OUT; RISING: also what falls is refused */
  uint64_t *error;   /* see note_bad */
  int64_t *refused;  /* the coordinates of what was noted first */
  uint32_t *nothing; /* becomes 1: nothing is to be done */
} tfd_cu_choose;

/* Rows of `in` joined to those of `out` that sorted keys name, in the order of
** `order`. */
enum {
  TFD_CU_JOIN_UPDATE,
  TFD_CU_JOIN_ADD,
  TFD_CU_JOIN_SUB,
  TFD_CU_JOIN_MUL,
  TFD_CU_JOIN_DIV,
  TFD_CU_JOIN_MIN,
  TFD_CU_JOIN_MAX,
  TFD_CU_JOIN_SUM /* of the rows alone, rounded once */
};
typedef struct tfd_cu_join {
  void *out;
  const void *in;
  const uint32_t *keys;
  const uint32_t *order;
  const uint32_t *nothing;
  int64_t n;
  int64_t inner;
  int64_t rows; /* the key of rows that are left out */
  int32_t op;
  int32_t dtype;
  int32_t fresh; /* the first row of a key takes the place of what was there */
  int32_t mean;  /* SUM: divided by how many there are */
} tfd_cu_join;

#endif
