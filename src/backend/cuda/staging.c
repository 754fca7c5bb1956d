/* Copies between the host and a GPU pass through pinned memory of the stream,
** for those of other memory the driver may wait for all earlier work. The
** memory is bounded: a ring of pieces for each direction, with an event behind
** the last copy of a piece that uses it.
**
** In: what is given is copied into the current piece, one behind the other, and
** is the caller's again at once; a full piece is used again when its event has
** passed.
** Out: a piece is filled for each part; its bytes go to where they are wanted
** when somebody sees that the copy is done, in the order of copies. More than
** there are pieces for waits for the first ones. */
#include <sched.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/staging.h"

enum { ALIGN = 256 };

static CUdeviceptr at(const void *data) {
  return (CUdeviceptr)(uintptr_t)data;
}

static int check(CUresult result, const char *what) {
  return tfd__cuda_check(result, what);
}

/* --- life ------------------------------------------------------------------
 */

static int open_ring(tfd__ring *r) {
  void *memory = NULL;
  int i;

  if (r->memory != NULL) return TFD_OK;
  for (i = 0; i < TFD_RING_PIECES; i++) {
    if (r->pieces[i].event != NULL) continue;
    TFD_TRY(check(
        tfd__cu.cuEventCreate(&r->pieces[i].event, CU_EVENT_DISABLE_TIMING),
        "making an event"));
  }
  TFD_TRY(check(tfd__cu.cuMemHostAlloc(
                    &memory, (size_t)TFD_RING_PIECES * TFD_RING_PIECE, 0),
                "pinned memory"));
  r->memory = memory;
  return TFD_OK;
}

void tfd__ring_close(tfd__ring *r) {
  int i;

  for (i = 0; i < TFD_RING_PIECES; i++) {
    if (r->pieces[i].event == NULL) continue;
    (void)tfd__cu.cuEventDestroy(r->pieces[i].event);
  }
  if (r->memory != NULL) (void)tfd__cu.cuMemFreeHost(r->memory);
}

static char *memory_of(const tfd__ring *r, int piece) {
  return r->memory + (size_t)piece * TFD_RING_PIECE;
}

/* Until the piece's last copy is done. A GPU that does not go on is given up by
** those who watch it, which ends this, too. */
static int wait_for(const tfd__ring *r, int piece) {
  for (;;) {
    CUresult result = tfd__cu.cuEventQuery(r->pieces[piece].event);

    if (result == CUDA_SUCCESS) return TFD_OK;
    if (result != CUDA_ERROR_NOT_READY) return check(result, "copying");
    if (atomic_load(r->given_up)) {
      return tfd__fail(TFD_INTERNAL, "copying: the GPU does not go on");
    }
    sched_yield();
  }
}

/* --- in --------------------------------------------------------------------
 */

/* The piece is full: on to the next one. */
static int turn(tfd__ring *r, CUstream stream) {
  tfd__ring_piece *full = &r->pieces[r->current];

  TFD_TRY(check(tfd__cu.cuEventRecord(full->event, stream), "copying"));
  full->used = true;
  r->current = (r->current + 1) % TFD_RING_PIECES;
  r->filled = 0;
  return TFD_OK;
}

/* Room in the current piece, which nobody reads any more. */
static int find_room(tfd__ring *r, CUstream stream) {
  tfd__ring_piece *p = NULL;

  if (r->filled == TFD_RING_PIECE) TFD_TRY(turn(r, stream));
  p = &r->pieces[r->current];
  if (p->used) TFD_TRY(wait_for(r, r->current));
  p->used = false;
  return TFD_OK;
}

int tfd__ring_in(tfd__ring *r, CUstream stream, void *to, const void *from,
                 size_t bytes) {
  size_t done = 0;

  TFD_TRY(open_ring(r));
  while (done < bytes) {
    size_t n = bytes - done;
    char *here = NULL;

    TFD_TRY(find_room(r, stream));
    if (n > TFD_RING_PIECE - r->filled) n = TFD_RING_PIECE - r->filled;
    here = memory_of(r, r->current) + r->filled;
    memcpy(here, (const char *)from + done, n);
    r->filled += (n + ALIGN - 1) / ALIGN * ALIGN;
    TFD_TRY(
        check(tfd__cu.cuMemcpyHtoDAsync(at((char *)to + done), here, n, stream),
              "copying to the GPU"));
    done += n;
  }
  return TFD_OK;
}

/* --- out -------------------------------------------------------------------
 */

static int first_of(const tfd__ring *r) {
  return (r->current + TFD_RING_PIECES - r->waiting) % TFD_RING_PIECES;
}

static void hand_out(tfd__ring *r) {
  int piece = first_of(r);
  const tfd__ring_piece *p = &r->pieces[piece];

  memcpy(p->to, memory_of(r, piece), p->bytes);
  r->waiting--;
}

/* A copy from the GPU into the next piece. */
static int fill(tfd__ring *r, CUstream stream, const void *from, size_t n) {
  if (r->waiting == TFD_RING_PIECES) {
    TFD_TRY(wait_for(r, first_of(r)));
    hand_out(r);
  }
  TFD_TRY(check(
      tfd__cu.cuMemcpyDtoHAsync(memory_of(r, r->current), at(from), n, stream),
      "copying from the GPU"));
  return check(tfd__cu.cuEventRecord(r->pieces[r->current].event, stream),
               "copying");
}

/* Its last n pieces are nobody's any more. */
static void take_back(tfd__ring *r, int n) {
  if (n > r->waiting) n = r->waiting;
  r->waiting -= n;
  r->current = (r->current + TFD_RING_PIECES - n) % TFD_RING_PIECES;
}

int tfd__ring_out(tfd__ring *r, CUstream stream, uint64_t seq, void *to,
                  const void *from, size_t bytes) {
  size_t done = 0;
  int filled = 0;

  TFD_TRY(open_ring(r));
  while (done < bytes) {
    tfd__ring_piece *p = &r->pieces[r->current];
    size_t n = bytes - done < TFD_RING_PIECE ? bytes - done : TFD_RING_PIECE;
    int rc = fill(r, stream, (const char *)from + done, n);

    if (rc != TFD_OK) {
      take_back(r, filled);
      return rc;
    }
    p->to = (char *)to + done;
    p->bytes = n;
    p->seq = seq;
    r->current = (r->current + 1) % TFD_RING_PIECES;
    r->waiting++;
    filled++;
    done += n;
  }
  return TFD_OK;
}

CUresult tfd__ring_hand_out(tfd__ring *r, uint64_t seq) {
  while (r->waiting > 0 && r->pieces[first_of(r)].seq <= seq) {
    CUresult result = tfd__cu.cuEventQuery(r->pieces[first_of(r)].event);

    if (result != CUDA_SUCCESS) return result;
    hand_out(r);
  }
  return CUDA_SUCCESS;
}

void tfd__ring_drop(tfd__ring *r) {
  r->waiting = 0;
}
