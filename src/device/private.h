#ifndef TFD_DEVICE_PRIVATE_H
#define TFD_DEVICE_PRIVATE_H
/* Private to the device layer: runtime state, waiting, streams, pools.
**
** Files: config (settings before start), names, device (registry, start and
** stop), board (parking threads), failure (sticky errors), ring (commands by
** value), stream (running and waiting), copy (host and cross-device bytes),
** pool (memory). */

#include <sched.h>

#include "device/device.h"

/* As many devices as one processor is split into at most. */
#define TFD_MAX_CPU_DEVICES 64

/* --- spin lock: a few dozen instructions under it, never a wait ---------- */

typedef struct tfd__spin {
  atomic_bool held;
} tfd__spin;

static inline void tfd__relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void tfd__spin_slow(tfd__spin *l);

static inline void tfd__spin_lock(tfd__spin *l) {
  if (atomic_exchange_explicit(&l->held, true, memory_order_acquire)) {
    tfd__spin_slow(l);
  }
}

static inline void tfd__spin_unlock(tfd__spin *l) {
  atomic_store_explicit(&l->held, false, memory_order_release);
}

/* --- board: counters that threads wait on --------------------------------- */

/* A number that only grows. Who raises it looks at wake_at, the smallest value
** a parked thread waits for; raising and looking, registering and re-checking
** are sequentially consistent, so no wake-up is lost. */
typedef struct tfd__counter {
  _Alignas(64) atomic_uint_least64_t value;
  atomic_uint_least64_t wake_at;
} tfd__counter;

void tfd__counter_init(tfd__counter *c);
void tfd__board_wake(tfd__counter *c);

static inline uint64_t tfd__counter_get(const tfd__counter *c) {
  return atomic_load_explicit(&c->value, memory_order_acquire);
}

/* Only one thread at a time raises a counter. */
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

/* --- failures ------------------------------------------------------------- */

/* The first error of a stream, shared by the streams that depend on its
** results and kept for those who read what it spoiled. Guarded by the board's
** mutex. Calls submitted before the report (command epoch < end_epoch) are
** dropped, later ones run. */
typedef struct tfd__failure {
  int refs;
  bool reported;
  uint32_t end_epoch;
  tfd__error error;
} tfd__failure;

/* Calls first..last failed or were dropped. */
typedef struct tfd__loss {
  uint64_t first;
  uint64_t last;
  tfd__failure *failure;
} tfd__loss;

#define TFD_LOSSES 1024 /* of the latest; older ones are forgotten */

/* --- streams -------------------------------------------------------------- */

typedef enum tfd__command_kind {
  TFD_COMMAND_CALL = 0,
  TFD_COMMAND_WAIT, /* until another stream has reached a position */
  TFD_COMMAND_COPY, /* a call that holds two buffers until it has run */
  TFD_COMMAND_WRITE, /* a call that brings the host's bytes: never dropped */
  TFD_COMMAND_PAD   /* unused end of the ring; not counted */
} tfd__command_kind;

/* In the ring: this header, then views, ints and reals of the call. */
typedef struct tfd__command {
  uint32_t units; /* of TFD_UNIT bytes, this header included */
  uint32_t epoch; /* reports so far when it was submitted */
  tfd__command_kind kind;
  void *heap; /* owned: payload that was too large for the ring */
  tfd__call call;
  union {
    struct {
      tfd__stream *stream;
      uint64_t seq;
    } wait;
    struct {
      tfd__buffer *to;
      tfd__buffer *from;
    } copy;
  } u;
} tfd__command;

#define TFD_UNIT 64
#define TFD_RING_UNITS 4096 /* 256 KiB, about 450 typical calls */

/* One producer at a time (submit lock), one consumer at a time (the worker,
** or the host thread that holds `draining`). Lines are grouped by writer. */
struct tfd__stream {
  tfd_device *device;
  bool queued;
  bool has_worker; /* queued and not the first device */
  unsigned char *ring;

  _Alignas(64) tfd__spin submit_lock;
  uint64_t write_pos; /* units, ever growing */
  uint64_t tail_seen; /* last look at `tail` */
  tfd__stream *tail_on; /* all calls after tail_from wait for it; NULL = none */
  uint64_t tail_from;
  tfd__counter head;  /* calls submitted */

  tfd__counter done; /* calls finished or dropped */
  _Alignas(64) atomic_uint_least64_t tail; /* units free for reuse below it */
  uint64_t read_pos;

  _Alignas(64) atomic_bool draining;
  tfd__counter releases; /* times that `draining` was given back */

  /* What drops calls now. Written under the board's mutex; NULL may be read
  ** without. */
  _Atomic(tfd__failure *) failure;
  uint64_t failure_seq;
  tfd__loss *losses; /* ring of TFD_LOSSES, queued streams only */
  uint64_t losses_n; /* ever added */

  atomic_bool worker_started;
  tfd__thread worker;
};

int tfd__stream_new(tfd_device *device, bool queued, tfd__stream **s_p);
void tfd__stream_free(tfd__stream *s);
void tfd__stream_stop(tfd__stream *s); /* join the worker */
/* Drop what is queued, at the end: no worker, and no host thread drains. */
void tfd__stream_discard(tfd__stream *s);

/* tfd__stream_after for a position of `device` that has been submitted. */
int tfd__stream_after_seq(tfd_device *waiter, tfd_device *device,
                          uint64_t seq);

/* Wait without reporting failures. The one primitive of all host waiting. */
int tfd__wait_done(tfd__stream *s, uint64_t seq, tfd__deadline until);

/* Reserve room for a command with `payload` bytes after the header and write
** the header; on success the submit lock is held and the caller fills in the
** rest, then calls tfd__ring_publish. */
int tfd__ring_begin(tfd__stream *s, tfd__command_kind kind, size_t payload,
                    tfd__command **command_p);
/* Returns the command's position. */
uint64_t tfd__ring_publish(tfd__stream *s, tfd__command *command);
/* Where the payload lies. */
void *tfd__ring_payload(tfd__command *command);
/* Next command of the consumer or NULL. */
tfd__command *tfd__ring_peek(tfd__stream *s);
/* The command has been run: free its slot and count it. */
void tfd__ring_pop(tfd__stream *s, tfd__command *command);
/* Copy a call into a new command of `kind`, not yet published. */
int tfd__ring_call(tfd__stream *s, tfd__command_kind kind,
                   const tfd__call *call, tfd__command **command_p);

/* Start the worker on first use; FailedPrecondition in a forked child. */
int tfd__stream_open(tfd__stream *s);

/* A kernel failed in queued mode: keep its record if it is the first. */
void tfd__failure_keep(tfd__stream *s, const tfd__call *call, uint64_t seq);
/* Must this command, at position seq, be dropped? Forgets a failure that is
** over. */
bool tfd__failure_drops(tfd__stream *s, const tfd__command *command,
                        uint64_t seq);
/* `s` goes on with results of `from` up to position seq: take over its failure.
** `at` is the position in `s`. */
void tfd__failure_inherit(tfd__stream *s, uint64_t at, tfd__stream *from,
                          uint64_t seq, const tfd__command *command);
/* Raise and end the failure of a call up to seq, if there is one, once all
** streams have finished what they have. */
int tfd__failure_report(tfd__stream *s, uint64_t seq, tfd__deadline until);
void tfd__failure_forget(tfd__stream *s); /* at the end */

/* Settle variables if any is not; see tfd__set_settle_hook. */
void tfd__settle(bool reported);

/* Copy loops that threads share when they are large. */
void tfd__copy_bytes(void *to, const void *from, size_t bytes);
/* Cores for kernels on this thread; free when nothing changes. */
void tfd__use_threads(int n);

/* --- memory --------------------------------------------------------------- */

int tfd__pool_new(tfd_device *device, size_t limit, tfd__pool **pool_p);
void tfd__pool_free(tfd__pool *pool); /* no buffer may be live */

/* --- configuration and runtime -------------------------------------------- */

typedef struct tfd__config {
  int cpu_devices;    /* 0 = not set */
  int queue_mode;     /* -1 = not set */
  int device_threads; /* -1 = not set */
  size_t memory_limit; /* 0 = none */
} tfd__config;

/* Settings made by calls, completed from the environment. Errors: ValueError
** naming the variable. */
int tfd__config_resolve(tfd__config *c);

typedef struct tfd__name {
  char type[16]; /* upper case */
  int ordinal;
  bool local; /* job, replica and task are this process's */
} tfd__name;

/* Errors: ValueError for text that is no device name. */
int tfd__name_parse(const char *text, tfd__name *name);
/* Device with this parsed name, or NULL. */
tfd_device *tfd__name_match(const tfd__name *name);

typedef struct tfd__runtime {
  atomic_bool started;
  atomic_bool forked; /* this process is a fork of the one that started */
  tfd_device **devices;
  int n;
  int cores;
  tfd__mutex board;   /* rank 3: waiters, failures */
  struct tfd__waiter *waiters;
  struct tfd__waiter *idle_waiters;
  atomic_int running; /* cores taken by threads that are not parked */
  atomic_uint epoch;  /* failures reported */
  atomic_int unsettled; /* variables that keep a replaced buffer */
  tfd__counter stop;  /* 1 = workers must end */
} tfd__runtime;

extern tfd__runtime tfd__rt;

/* FailedPrecondition in a forked child. */
int tfd__fork_error(void);

/* Before the first worker starts: have the workers joined at exit, before the
** libraries that they use are torn down. */
void tfd__stop_at_exit(void);

static inline bool tfd__is_forked(void) {
  return atomic_load_explicit(&tfd__rt.forked, memory_order_relaxed);
}

#endif
