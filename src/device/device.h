#ifndef TFD_DEVICE_DEVICE_H
#define TFD_DEVICE_DEVICE_H
/* L3 device: names, ordered queues (streams), stream-ordered memory.
**
** Contract, the same for the processor's queues and a GPU's:
** - A device has one stream. Work runs in submission order. `inline` runs a
**   call before submit returns, without a stream; `queued` hands it to the back
**   end's stream, which copies what it needs, and returns at once.
** - One primitive, tfd__stream_wait, does all host waiting. A processor that is
**   queued runs its first device's work on the threads that wait (see
**   backend/cpu/stream), so waits cannot deadlock.
** - Memory is stream-ordered: a released buffer returns to its device's pool at
**   once and may be handed out again while older calls on the same stream
**   still use it; the stream's order makes that safe. Therefore (1) only calls
**   on the owning stream may touch a buffer, except through tfd__copy_across,
**   which retains both ends until it has run; (2) the host may write a fresh
**   buffer directly only when tfd__buffer_host_idle says so; (3) a buffer is
**   released only after the last call that reads it was submitted; (4) in
**   place, by calls or by the host, only with a count of 1.
** - Queued calls hold no references: a buffer's count is exactly the number of
**   tensors that show it, which is what copy-on-write asks.
** - A failing call makes the stream sticky: later calls are dropped, the first
**   error surfaces (once) at the next tfd__stream_wait that covers it, which
**   first lets all streams finish what they have, so that the failures of one
**   step surface together, as that of the work that was submitted first; then
**   the streams work again. What the dropped calls
**   should have filled stays lost: whoever reads it gets the error again
**   (tfd__buffer_check). Memory that a dropped call would have written in place
**   keeps its values.
** May include base, types, backend. Mutex rank 3. Specs: spec/c/device. */

#include "backend/backend.h"
#include "base/given.h"
#include "base/thread.h"

typedef struct tfd__queue tfd__queue;
typedef struct tfd__pool tfd__pool;

struct tfd_device {
  tfd_object object;
  char name[64];       /* "/job:localhost/replica:0/task:0/device:CPU:1" */
  char short_name[16]; /* "/cpu:1" */
  const tfd__backend *backend;
  int index;   /* position in the list of all logical devices */
  int ordinal; /* within its type */
  int threads; /* cores its kernels may use */
  bool queued;
  tfd__stream *stream; /* for ever at 0 when it is inline */
  tfd__queue *queue;   /* queued devices only */
  tfd__pool *pool;
  /* Position of the last call that failed or was dropped; 0 = none ever. */
  atomic_uint_least64_t lost_until;
};

/* --- registry (made on first use, fixed afterwards) --------------------- */

/* All logical devices; CPU devices come first. Starts the runtime. */
int tfd__devices(tfd_device *const **devices_p, int *n_p);

/* Can the settings, environment included, be used? Errors: ValueError naming
** the variable. */
int tfd__config_check(void);

/* The process is about to end, and exit() would tear libraries down under the
** workers: join them and drop what is queued. Whoever needs a queue from now on
** gets FailedPrecondition. */
void tfd__devices_stop(void);
/* Wait until nothing is queued; failures stay for tfd__stream_wait. */
void tfd__devices_finish(void);

/* --- memory -------------------------------------------------------------- */

typedef struct tfd__buffer {
  tfd_object object; /* kind TFD_HANDLE_BUFFER, never seen by users */
  tfd_device *device;
  void *data;
  size_t bytes;       /* asked for */
  size_t capacity;    /* size class */
  uint64_t free_seq;  /* stream position when the memory was last released */
  uint64_t use_seq;   /* position of the last call that writes it, set by who
                      ** submitted the call; readers wait for it */
  uint64_t birth_seq; /* stream position when tfd__buffer_new gave it out */
  uint64_t made_seq;  /* position of the call that fills it first; 0 = the host
                      ** does. Writing in place leaves it as it is. */
  struct tfd__buffer *next; /* pool only */
  struct tfd__slab *slab;   /* pool only; NULL = memory of its own */
  int size_class;           /* pool only */
} tfd__buffer;

/* Errors: ResourceExhausted after a trim of the pool and the collect hook. */
int tfd__buffer_new(tfd_device *device, size_t bytes, tfd__buffer **buffer_p);
/* The call at position `seq` of its device fills it. */
static inline void tfd__buffer_made(tfd__buffer *b, uint64_t seq) {
  b->use_seq = seq;
  b->made_seq = seq;
}

/* Raise again the reported error that b's values were lost to, if one was. */
int tfd__buffer_check_slow(const tfd__buffer *b);
/* Every call asks this of its inputs before it is submitted. A failure that
** nobody has seen yet does not count: the call will be dropped with it. */
static inline int tfd__buffer_check(const tfd__buffer *b) {
  if (TFD_LIKELY(b->made_seq == 0 ||
                 b->made_seq > atomic_load_explicit(&b->device->lost_until,
                                                    memory_order_relaxed))) {
    return TFD_OK;
  }
  return tfd__buffer_check_slow(b);
}

/* Filled, still to be filled, or never to be because the call was dropped. */
typedef enum tfd__buffer_state {
  TFD_BUFFER_GOOD = 0,
  TFD_BUFFER_PENDING,
  TFD_BUFFER_LOST
} tfd__buffer_state;
tfd__buffer_state tfd__buffer_state_of(const tfd__buffer *b);
/* Wait until it is no longer pending, without a report, or for an interrupt. */
void tfd__buffer_finish(const tfd__buffer *b);

/* Variables keep replaced buffers until the new ones are filled. `fn` lets go
** of those whose successor is good; after a report it also puts back those
** whose successor is lost. Called after successful waits while the count is
** above 0, and when memory is short. */
void tfd__set_settle_hook(void (*fn)(bool reported));
void tfd__unsettled_add(int n);
/* How many failures were reported so far: after each, what dropped calls would
** have written in place is as it was before. */
uint32_t tfd__failures_reported(void);

/* True when no queued call can still touch the memory. */
bool tfd__buffer_host_idle(const tfd__buffer *b);
/* Return cached memory to the system, after waiting for the calls that may
** still touch it. Failures of queued work stay for tfd__stream_wait. */
void tfd__pool_trim(tfd_device *device);
/* fn writes what an out-of-memory message should add ("largest live tensors:
** ..."), at most n bytes with the terminator. NULL = nothing. */
void tfd__set_oom_hook(void (*fn)(char *text, size_t n));

/* --- streams ------------------------------------------------------------- */

/* Run or enqueue; sets call->stream. `views`, `ints`, `reals` are copied when
** it queues. Returns the kernel's own error in inline mode, else only
** out-of-memory. */
int tfd__stream_submit(tfd_device *device, tfd__call *call);
/* The op whose kernel this thread runs now, or NULL. Safe in a signal handler
** of a program that the library is part of. */
const char *tfd__running_op(void);
/* Sequence number of the last submitted call. */
static inline uint64_t tfd__stream_seq(const tfd_device *device) {
  return tfd__counter_get(&device->stream->taken);
}
/* Block until call `seq` has finished (UINT64_MAX: all). Returns the sticky
** error if there is one and clears it, with where and replica filled in; then
** all devices have finished all calls and no other failure of theirs is left.
** The error of a device whose results were waited for (tfd__stream_after,
** tfd__copy_across) surfaces here too, once for all devices it spoiled.
** Errors: also Cancelled when interrupted, DeadlineExceeded. */
int tfd__stream_wait(tfd_device *device, uint64_t seq, tfd__deadline until);
/* Wait without reporting failures. The one primitive of all host waiting.
** Errors: Cancelled, DeadlineExceeded. */
int tfd__wait_done(tfd_device *device, uint64_t seq, tfd__deadline until);
/* Has call `seq` finished, with no failure up to it that somebody has still to
** hear of? Waits for nothing, raises nothing. */
bool tfd__stream_has_passed(tfd_device *device, uint64_t seq);
/* Calls submitted to `waiter` from now on start after everything submitted
** to `device` so far. Same device: nothing to do. */
int tfd__stream_after(tfd_device *waiter, tfd_device *device);
static inline bool tfd__stream_is_inline(const tfd_device *device) {
  return !device->queued;
}

/* Copy bytes between host memory and a buffer's memory, in stream order.
** `data` of host_write may be reused as soon as it returns (staged when the
** memory is not idle); host_read waits for the buffer's use_seq. No failure
** drops a write: what the host has is never lost. */
int tfd__host_write(tfd__buffer *b, size_t offset, const void *data,
                    size_t bytes);
int tfd__host_read(const tfd__buffer *b, size_t offset, void *data,
                   size_t bytes);
/* Enqueue on to's device a copy of from's bytes after from's last writer
** (use_seq) has finished. Both dense, same dtype and shape, any two devices.
** Sets to->use_seq. */
int tfd__copy_across(tfd__buffer *to, const tfd__view *to_view,
                     tfd__buffer *from, const tfd__view *from_view);

#endif
