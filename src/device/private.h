#ifndef TFD_DEVICE_PRIVATE_H
#define TFD_DEVICE_PRIVATE_H
/* Private to the device layer: runtime state, waiting, failures, pools.
**
** Files, each above those before it: runtime (what all share), config (settings
** before start), failure (sticky errors), wait, stream (running), pool
** (memory), copy (host and cross-device bytes), device (start and stop),
** names. */

#include "base/profile.h"
#include "device/device.h"

/* As many devices as one processor is split into at most. */
/* Of copies between devices of one back end: the one call with this very name.
 */
extern const char tfd__copy_name[];

#define TFD_MAX_CPU_DEVICES 64

/* --- failures ------------------------------------------------------------- */

/* The first error of a stream, shared by the streams that depend on its
** results and kept for those who read what it spoiled. Guarded by
** tfd__rt.failures. Work submitted before the report (its epoch < end_epoch) is
** dropped, later work runs. Of several that are reported together the one is
** raised whose work the host submitted first (the smallest order). */
typedef struct tfd__failure {
  int refs;
  bool reported;
  uint32_t end_epoch;
  uint64_t order;
  tfd__error error;
} tfd__failure;

/* Calls first..last failed or were dropped. */
typedef struct tfd__loss {
  uint64_t first;
  uint64_t last;
  tfd__failure *failure;
} tfd__loss;

#define TFD_LOSSES 1024 /* of the latest; older ones are forgotten */
#define TFD_ORDERS 4096 /* likewise; a power of two */

/* --- streams -------------------------------------------------------------- */

typedef enum tfd__work_kind {
  TFD_WORK_CALL = 0,
  TFD_WORK_FOLLOW, /* goes on with results of held[0], a device, up to seq */
  TFD_WORK_COPY,   /* holds two buffers until it has finished */
  TFD_WORK_WRITE,  /* the host's bytes to held[0]; never dropped; held[1]: what
                   ** became of it, where it runs inside submit */
  TFD_WORK_READ    /* from held[0] to the host, held[1]; never dropped */
} tfd__work_kind;

/* What a copy of an asynchronous stream holds until it has passed seq. */
typedef struct tfd__hold {
  struct tfd__hold *next;
  uint64_t seq;
  void *held[2];
} tfd__hold;

/* What this layer knows of a queued device's stream. */
struct tfd__queue {
  /* What drops calls now. Written under tfd__rt.failures; NULL may be read
  ** without. */
  _Atomic(tfd__failure *) failure;
  uint64_t failure_seq;
  tfd__loss *losses; /* ring of TFD_LOSSES */
  uint64_t losses_n; /* ever added */
  /* Of position p at p % TFD_ORDERS; NULL when kernels say at once that they
  ** failed. */
  atomic_uint_least64_t *orders;
  atomic_bool telling; /* a thread asks for late failures, and keeps them */
  tfd__spin holds_lock;
  tfd__hold *holds;
  uint64_t holds_n; /* ever added */
};

/* Make stream and queue of a device, or free them. */
int tfd__queue_new(tfd_device *device, void (*starting)(void));
void tfd__queue_free(tfd_device *device);

/* Submit `work`, its epoch and order set here. Sets *seq_p. */
int tfd__queue_submit(tfd_device *device, tfd__work *work, uint64_t *seq_p);

/* Keep what `work` holds until its stream has passed seq. Who copies on and on
** and waits for nothing lets go of what has passed, too. No lock is held. */
void tfd__hold_until(tfd_device *d, tfd__hold *hold, const tfd__work *work,
                     uint64_t seq);
/* Let go of what was held up to `done`. */
void tfd__end_holds(tfd__queue *q, uint64_t done);
void tfd__let_go(void *const held[2]);

/* Where the host wants bytes, and what became of it. */
typedef struct tfd__fetch {
  void *data;
  size_t bytes;
  tfd__error error;
} tfd__fetch;

/* tfd__stream_after for a position of `device` that has been submitted. */
int tfd__stream_after_seq(tfd_device *waiter, tfd_device *device, uint64_t seq);

/* Has `device` passed seq, as far as can be told without waiting? What an
** asynchronous stream has finished is dealt with first; so no lock is held. */
bool tfd__look_slow(tfd_device *device, uint64_t seq);
static inline bool tfd__is_done(tfd_device *device, uint64_t seq) {
  return TFD_LIKELY(tfd__counter_get(&device->stream->done) >= seq) ||
         (device->backend->poll != NULL && tfd__look_slow(device, seq));
}

/* For everything submitted so far. */
int tfd__wait_all(tfd_device *device, tfd__deadline until);

/* A kernel failed in queued mode: keep its record if it is the first. */
void tfd__failure_keep(tfd_device *d, const tfd__work *work, uint64_t seq);
/* The thread's record is a failure at seq that shows up now: it and all that
** was submitted since are lost. */
void tfd__failure_late(tfd_device *d, uint64_t seq);
/* Must work of this epoch at position seq be dropped? Forgets a failure that is
** over. */
bool tfd__failure_drops(tfd_device *d, uint32_t epoch, uint64_t seq);
/* Has work up to seq, submitted by now, failed without a report? */
bool tfd__failure_covers(tfd_device *d, uint64_t seq);
/* `d` goes on with results of `from` up to position seq: take over its failure.
** `at` is the position in `d`. */
void tfd__failure_inherit(tfd_device *d, uint64_t at, tfd_device *from,
                          uint64_t seq, uint32_t epoch);
/* Is there a failure of a call up to seq that nobody has heard of? */
bool tfd__failure_is_due(tfd_device *d, uint64_t seq);
/* Raise and end it, if it is still due. */
int tfd__failure_raise(tfd_device *d, uint64_t seq, bool *raised_p);
/* The failure of a device that was lost with what was at seq, which never ran,
** whatever it was. */
int tfd__failure_of_device(tfd_device *d, uint64_t seq);
/* Was the call at seq lost? */
bool tfd__failure_took(tfd_device *d, uint64_t seq);
void tfd__failure_forget(tfd_device *d); /* at the end */

/* Settle variables if any is not; see tfd__set_settle_hook. */
void tfd__settle(bool reported);

/* --- memory --------------------------------------------------------------- */

int tfd__pool_new(tfd_device *device, size_t limit, tfd__pool **pool_p);
void tfd__pool_free(tfd__pool *pool); /* no buffer may be live */

/* --- configuration and runtime -------------------------------------------- */

enum { TFD_MAX_GPU_PARTS = 64 };

/* One logical device of a GPU. */
typedef struct tfd__gpu_part {
  int gpu;
  size_t memory_limit; /* 0 = none */
} tfd__gpu_part;

typedef struct tfd__config {
  int cpu_devices;     /* 0 = not set */
  int queue_mode;      /* -1 = not set */
  int device_threads;  /* -1 = not set */
  size_t memory_limit; /* 0 = none */
  int gpu_devices;     /* that every GPU is split into; 0 = not set */
  /* Logical devices that were asked for one by one, by GPU. */
  tfd__gpu_part gpu_parts[TFD_MAX_GPU_PARTS];
  int gpu_parts_n;
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
  tfd__mutex failures; /* rank 3 */
  atomic_uint epoch;   /* failures reported */
  /* Pieces of work submitted to queues, about: threads that submit at once may
  ** get one number, for none of them is first. */
  atomic_uint_least64_t submitted;
  atomic_int unsettled; /* variables that keep a replaced buffer */
} tfd__runtime;

extern tfd__runtime tfd__rt;

/* FailedPrecondition in a forked child. */
int tfd__fork_error(void);

static inline bool tfd__is_forked(void) {
  return atomic_load_explicit(&tfd__rt.forked, memory_order_relaxed);
}

#endif
