#ifndef TFD_CUDA_UPDATE_ARGS_H
#define TFD_CUDA_UPDATE_ARGS_H
/* What the kernels of update.cu take besides args.h: as there. */

#include "backend/cuda/kernels/args.h"

/* An optimizer's step where the gradient has some rows: `keys` are their
** numbers, sorted, `order` says where their values are. */
typedef struct tfd_cu_update_rows {
  void *out[TFD_CU_TARGETS];
  const void *in[TFD_CU_TARGETS];
  const void *values;
  void *sums; /* of values, in the type that is computed in */
  const uint32_t *keys;
  const uint32_t *order;
  const uint32_t *nothing;    /* 1: nothing is to be done */
  double reals[TFD_CU_REALS]; /* of the rule, without weight decay */
  double decay;               /* what that takes off all of the variable */
  int64_t n;                  /* elements of the variable, */
  int64_t inner;              /* and of a row */
  int64_t count;              /* rows of values */
  int32_t targets;
  int32_t rule;
  int32_t all;  /* all rows, else those that have a gradient, in place */
  int32_t fade; /* rows that have none see a gradient of 0, */
  int32_t stay; /* of which the variable keeps what it is */
} tfd_cu_update_rows;

#endif
