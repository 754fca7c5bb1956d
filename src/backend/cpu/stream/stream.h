#ifndef TFD_BACKEND_CPU_STREAM_H
#define TFD_BACKEND_CPU_STREAM_H
/* The processor's streams: rings of work by value, run by threads.
**
** Files: board (parking threads), ring (work by value), stream (running and
** waiting, start and stop). */

#include <sched.h>

#include "backend/cpu/cpu.h"

/* --- board: counters that threads wait on --------------------------------- */

void tfd__counter_init(tfd__counter *c);
void tfd__board_wake(tfd__counter *c);

/* Raise a counter. wake_at is the smallest value a parked thread waits for;
** raising and looking, registering and re-checking are sequentially
** consistent, so no wake-up is lost. Only one thread at a time raises one. */
static inline void tfd__counter_set(tfd__counter *c, uint64_t value) {
  (void)atomic_exchange(&c->value, value);
  if (!TFD_LIKELY(value < atomic_load(&c->wake_at))) tfd__board_wake(c);
}

typedef struct tfd__target {
  tfd__counter *counter; /* NULL = unused */
  uint64_t value;
} tfd__target;

#define TFD_TARGETS 3

/* Wait until one target is reached or `until` has passed; may return early.
** `weight` is the number of cores that the thread takes while it runs. Spins
** up to 30 us first if the cores suffice for all who run. */
void tfd__board_wait(const tfd__target targets[TFD_TARGETS], int weight,
                     tfd__deadline until);
void tfd__board_free(void); /* at the end, when nobody waits */

/* What all streams share. */
typedef struct tfd__board_state {
  tfd__mutex lock; /* rank 2 */
  struct tfd__waiter *waiters;
  struct tfd__waiter *idle_waiters;
  atomic_int running; /* cores taken by threads that are not parked */
  int cores;
  tfd__counter stop; /* 1 = workers must end */
} tfd__board_state;

extern tfd__board_state tfd__board;

/* --- streams -------------------------------------------------------------- */

typedef struct tfd__cpu_stream tfd__cpu_stream;

/* In the ring: this header, then views, ints, reals and bytes of the work. */
typedef struct tfd__command {
  uint32_t units;      /* of TFD_UNIT bytes, this header included */
  bool pad;            /* unused end of the ring; not counted */
  void *heap;          /* owned: payload that was too large for the ring */
  tfd__cpu_stream *on; /* to be waited for, NULL = nothing */
  uint64_t on_seq;
  tfd__work work;
  tfd__call call;
} tfd__command;

#define TFD_UNIT 64
#define TFD_RING_UNITS 4096 /* 256 KiB, about 400 typical calls */

/* One producer at a time (submit lock), one consumer at a time (the worker,
** or the host thread that holds `draining`). Lines are grouped by writer. */
struct tfd__cpu_stream {
  tfd__stream base;
  tfd__stream_config config;
  bool has_worker; /* all but the first device's */
  unsigned char *ring;
  tfd__cpu_stream *next; /* list of all */

  _Alignas(64) tfd__spin submit_lock;
  uint64_t write_pos;             /* units, ever growing */
  uint64_t tail_seen;             /* last look at `tail` */
  const tfd__cpu_stream *tail_on; /* all work after tail_from waits for it */
  uint64_t tail_from;

  _Alignas(64) atomic_uint_least64_t tail; /* units free for reuse below it */
  uint64_t read_pos;

  _Alignas(64) atomic_bool draining;
  tfd__counter releases; /* times that `draining` was given back */

  atomic_bool worker_started;
  tfd__thread worker;
};

/* Take a piece of work, copied with everything it points to, that starts when
** `on` (NULL = nothing) has passed on_seq, and tell its position. In a full
** ring it takes nothing: *seq_p is what to wait for before the next try. */
int tfd__ring_put(tfd__cpu_stream *s, const tfd__work *work,
                  tfd__cpu_stream *on, uint64_t on_seq, bool *full_p,
                  uint64_t *seq_p);
/* Next command of the consumer or NULL. */
tfd__command *tfd__ring_peek(tfd__cpu_stream *s);
/* The command has been run: free its slot and count it. */
void tfd__ring_pop(tfd__cpu_stream *s, tfd__command *command);

/* The slots of the table. */
int tfd__cpu_stream_new(const tfd__stream_config *config,
                        tfd__stream **stream_p);
void tfd__cpu_stream_free(tfd__stream *stream);
int tfd__cpu_submit(tfd__stream *stream, const tfd__work *work,
                    uint64_t *seq_p);
int tfd__cpu_after(tfd__stream *stream, tfd__stream *on, uint64_t on_seq,
                   const tfd__work *work, uint64_t *seq_p);
uint64_t tfd__cpu_awaited(tfd__stream *on, const tfd__stream *waiter);
void tfd__cpu_wait(tfd__stream *stream, uint64_t seq, tfd__deadline until);
void tfd__cpu_stop(void);

#endif
