#ifndef TFD_CUDA_RECURRENT_ARGS_H
#define TFD_CUDA_RECURRENT_ARGS_H
/* What the kernels of recurrent.cu take: as args.h. */

#include "backend/cuda/kernels/args.h"

/* One step of LSTM (gates i f g o) or GRU (z r n, and m: the recurrent part of
** the candidate before the reset gate), of `n` = batch * units states. */
typedef struct tfd_cu_cell {
  const void *in;     /* products of the inputs [batch][3 or 4 * units] */
  const void *mixed;  /* of the states */
  const void *bias;   /* NULL: none; GRU: {2, 3 * units} */
  const void *h_prev; /* NULL: zeros */
  const void *c_prev;
  void *gates; /* activated [batch][4 * units]; NULL: not kept */
  void *h;
  void *c;
  int64_t n;
  int64_t units;
} tfd_cu_cell;

/* And backward. */
typedef struct tfd_cu_cell_back {
  const int64_t *header; /* of the workspace */
  uint64_t *error;
  const void *gates;
  const void *h_prev;
  const void *c_prev;
  const void *c;
  const void *dsequence; /* NULL: zeros */
  const void *later;     /* GRU: more of dh; NULL: none */
  void *dh;
  void *dc;
  void *dgates; /* of the products of the inputs [batch][3 or 4 * units] */
  void *dmixed; /* GRU: of those of the states */
  int64_t n;
  int64_t units;
} tfd_cu_cell_back;

#endif
