#ifndef TFD_BACKEND_CUDA_STAGING_H
#define TFD_BACKEND_CUDA_STAGING_H
/* Pinned memory of a stream, through which copies between host and GPU go.
** Threads: one at a time, under the stream's lock. */
#include <cuda.h>

#include "backend/backend.h"

enum {
  TFD_RING_PIECES = 4,
  TFD_RING_PIECE = 512 << 10 /* bytes */
};

typedef struct tfd__ring_piece {
  CUevent event; /* behind its last copy */
  bool used;     /* in: the event is to be waited for */
  void *to;      /* out: where the bytes are wanted, */
  size_t bytes;
  uint64_t seq; /* by when */
} tfd__ring_piece;

/* For one direction; starts as {0} but for given_up. */
typedef struct tfd__ring {
  const atomic_bool *given_up; /* the GPU does not go on */
  char *memory;                /* pinned; NULL = nothing was copied yet */
  int current;                 /* piece that is filled (in), or is next (out) */
  size_t filled;               /* in: bytes of it */
  int waiting;                 /* out: pieces before it, not handed out yet */
  tfd__ring_piece pieces[TFD_RING_PIECES];
} tfd__ring;

/* Nothing is under way any more; the device's context is current. */
void tfd__ring_close(tfd__ring *r);
/* Copy behind what was launched; `from` is the caller's again. */
int tfd__ring_in(tfd__ring *r, CUstream stream, void *to, const void *from,
                 size_t bytes);
/* Copy behind what was launched; `to` is filled by tfd__ring_hand_out, once
** position seq has passed. */
int tfd__ring_out(tfd__ring *r, CUstream stream, uint64_t seq, void *to,
                  const void *from, size_t bytes);
/* Fill what is due when seq has passed; CUDA_SUCCESS: all of it is filled. */
CUresult tfd__ring_hand_out(tfd__ring *r, uint64_t seq);
/* The device is lost: nobody gets anything. */
void tfd__ring_drop(tfd__ring *r);

#endif
