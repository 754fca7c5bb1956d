#ifndef TFD_BACKEND_RECURRENT_H
#define TFD_BACKEND_RECURRENT_H
/* L2 backend: sizes of recurrent layers, for inference and kernels. May
** include base, types. */

#include "types/types.h"

typedef struct tfd__recurrent {
  int64_t steps;
  int64_t batch;
  int64_t depth; /* of the inputs */
  int64_t units;
  int64_t gates; /* 4 for LSTM, 3 for GRU */
} tfd__recurrent;

/* First bytes of a workspace: which code wrote it, so that the backward pass
** reads what the forward pass left. */
#define TFD_WORKSPACE_HEADER 64
enum { TFD_WORKSPACE_PLAIN = 1, TFD_WORKSPACE_ONEDNN = 2 };

/* Bytes that hold what any of our implementations keeps from the forward pass
** for the backward pass. oneDNN asks for up to 16 arrays of states with padded
** rows (at most 48 elements more) and whole pages; measured over sizes from 1
** to 513, never more than this. At most INT64_MAX: tensors of such sizes may
** be views of few elements. */
static inline int64_t tfd__recurrent_workspace(const tfd__recurrent *r,
                                               int dtype) {
  int64_t widest = r->depth > r->units ? r->depth : r->units;
  /* Products of two sizes of one tensor and small numbers: 128 bits do. */
  __int128 rows = (__int128)r->steps * r->batch;
  __int128 plain = rows * 5 * r->units;
  __int128 states = ((__int128)r->steps + 1) * r->batch * 16 * (widest + 48);
  __int128 gates = rows * ((__int128)(r->gates + 1) * r->units + 96);
  __int128 bytes = TFD_WORKSPACE_HEADER;

  if (dtype == TFD_FLOAT64) {
    bytes += plain * (int64_t)tfd__dtype_size(dtype);
  } else {
    bytes += 4 * (states + gates + (__int128)16 * r->units) + 64 * 4096;
  }
  return bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
}

#endif
