#ifndef TFD_CUDA_STOP_ARGS_H
#define TFD_CUDA_STOP_ARGS_H
/* What the kernels of stop.cu take: as args.h. */

#include "backend/cuda/kernels/args.h"

/* Have kernels launched before refused values? Then *stop and *refused become
** the first position that did. */
enum { TFD_CU_GATED = 48 };
typedef struct tfd_cu_gate {
  uint64_t *stop;        /* of the stream; TFD_CU_GO_ON = nothing is refused */
  uint64_t *refused;     /* the same for the host and other devices, or NULL, */
                         /* and behind it what the host notes */
  uint64_t told;         /* what they say up to here is history */
  const uint64_t *words; /* the stream's, see note_bad */
  const uint64_t *other; /* another stream's `refused`, or NULL: it counts */
  uint64_t other_told;   /* behind this position */
  uint64_t until;        /* up to this one, */
  uint64_t *noted;       /* and is noted here */
  uint64_t seq; /* this stream's position: the host may note later ones */
  uint64_t seqs[TFD_CU_GATED];
  int32_t places[TFD_CU_GATED];
  int32_t n; /* words to look at */
  int32_t clear;
} tfd_cu_gate;

#endif
