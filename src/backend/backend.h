#ifndef TFD_BACKEND_BACKEND_H
#define TFD_BACKEND_BACKEND_H
/* L2 backend: what a kind of device can do, as one table: what devices there
** are, their memory, their streams of work, three copies, and kernels.
**
** The CPU back end is built in; others register, or come as plug-ins that are
** opened at run time (plugin.h). A kernel gets views only: no tensors, no
** allocation of results, no devices.
**
** Contract for streams:
** - A stream takes pieces of work and numbers them 1, 2, 3 ... in the order it
**   starts them. A position is the event: it has passed when this piece and all
**   before it have finished. Nothing else is recorded or waited for.
** - When a piece's turn comes, config.run(owner, work, seq) is called once: by
**   a thread of the stream or by one that waits (then the piece has finished
**   when run returns), or, by back ends that are `asynchronous`, inside submit
**   on the caller's thread, in the order of positions (then run has launched
**   what it does behind everything launched before it). run calls the kernel or
**   one of the copies below, knows what to drop after a failure, takes locks
**   of rank 3, and never submits.
** - Failures that a kernel returns are the owner's affair. One that shows up
**   later (asynchronous back ends only) is handed over by `failed`; until then
**   the stream runs no more kernels, and none of another stream that waits for
**   it: what they would write in place (tfd__call.shows) must keep its values.
**   The host's copies (copy_in, copy_out) go on. Who waits for it from then on
**   need not be told.
** - Nothing is queued twice or waits for itself: a stream only waits for
**   positions that have been taken.
**
** Contract for kernels:
** - Shapes, dtypes and attributes were checked by inference; a kernel checks
**   only what depends on element values (index ranges, singular matrices).
** - Inputs are dense unless the op is flagged TFD_OP_STRIDED. Outputs are
**   always dense and never overlap inputs, except in-place ops (update).
** - Any number of elements may be 0. Absent optional inputs have data == NULL
**   and rank 0 and dtype 0.
** - It may run on any thread, one at a time for each device, and may use
**   tfd__parallel_for; the result must not depend on the number of threads.
** - Temporary memory: tfd__scratch, valid until the kernel returns.
** - Returns TFD_OK or a code made by tfd__fail, prefixed with the op's name.
** - Of an asynchronous back end: launches on call->stream and returns. `views`,
**   `ints`, `reals` are the caller's again when it has returned.
**
** May include base, types. Specs: spec/backend. */

#include <stdatomic.h>

#include "base/thread.h"
#include "types/types.h"

#define TFD_CALL_VIEWS 8

/* One kernel per line of kernels/<family>.def: KERNEL(name). */
typedef enum tfd__kernel_id {
  TFD_KERNEL_none = 0,
#define KERNEL(name) TFD_KERNEL_##name,
#include "backend/kernels/all.def"
#undef KERNEL
  TFD_KERNEL_N
} tfd__kernel_id;

/* One queued piece of work. `views` holds in_n inputs, then out_n outputs; it
** is `inline_views` for small calls. ints and reals are the op's attributes
** in schema order (ops.h says how lists are laid out). */
typedef struct tfd__call {
  /* The op, for messages; NULL = several, which say themselves where and what
  ** failed. */
  const char *name;
  int (*kernel)(const struct tfd__call *call);
  const tfd__view *views;
  const int64_t *ints;
  const double *reals;
  int32_t in_n;
  int32_t out_n;
  int32_t ints_n;
  int32_t reals_n;
  int replica;                /* -1 outside replicas */
  int line;                   /* script position, 0 = unknown */
  const char *file;           /* interned, never freed */
  const char *note;           /* likewise: what errors say besides, or NULL */
  struct tfd__stream *stream; /* where an asynchronous kernel launches */
  bool shows; /* an output is memory whose values show already: a variable's */
} tfd__call;

static inline const tfd__view *tfd__in(const tfd__call *c, int i) {
  return &c->views[i];
}
static inline const tfd__view *tfd__out(const tfd__call *c, int i) {
  return &c->views[c->in_n + i];
}
static inline bool tfd__has(const tfd__call *c, int i) {
  return i < c->in_n && c->views[i].dtype != 0;
}

typedef int (*tfd__kernel)(const tfd__call *call);

/* Per-thread scratch memory, 64-byte aligned; grows and is kept, so that a
** training loop in steady state touches no fresh page. A second call in the
** same kernel returns a second block. NULL with a record when out of memory.
** The stream calls tfd__scratch_reset after each kernel. */
void *tfd__scratch(size_t bytes);
void tfd__scratch_reset(void);

/* --- streams ------------------------------------------------------------- */

/* A number that only grows. Who waits for it and who wakes them is the back
** end's affair, and so is `wake_at`. */
typedef struct tfd__counter {
  _Alignas(64) atomic_uint_least64_t value;
  atomic_uint_least64_t wake_at;
} tfd__counter;

static inline uint64_t tfd__counter_get(const tfd__counter *c) {
  return atomic_load_explicit(&c->value, memory_order_acquire);
}

/* What every back end's stream begins with. `done` is written by the back end,
** or by the layer above when the table has `poll`. */
typedef struct tfd__stream {
  tfd__counter taken; /* position of the last piece taken */
  tfd__counter done;  /* this one and all before have finished */
} tfd__stream;

/* One piece of work. Everything it points to is copied when it has to wait. */
typedef struct tfd__work {
  const tfd__call *call; /* NULL = nothing to run */
  const void *data;      /* bytes of the host that go with it, or NULL */
  size_t data_bytes;
  /* The owner's: */
  uint32_t kind;
  uint32_t epoch;
  uint64_t order;
  void *held[2];
  uint64_t seq;
} tfd__work;

typedef struct tfd__stream_config {
  int ordinal;      /* of the device */
  int threads;      /* cores that its kernels may use */
  const char *name; /* of the device, "/cpu:1" */
  void *owner;
  /* Its turn has come: run or drop it. */
  void (*run)(void *owner, const tfd__work *work, uint64_t seq);
  /* It will never run (at the end of the process): let go of what it holds. */
  void (*drop)(void *owner, const tfd__work *work);
  /* To be called before the first thread starts that calls into a library:
  ** has the streams stopped at exit, before libraries are torn down. */
  void (*starting)(void);
} tfd__stream_config;

/* --- devices -------------------------------------------------------------- */

typedef struct tfd__device_info {
  char model[128]; /* "NVIDIA H200" */
  int64_t memory;  /* bytes, 0 = unknown */
  int cores;       /* processors that work at once, 0 = unknown */
} tfd__device_info;

/* Launches of a program that were recorded, to be started as one thing.
** begin and end are called inside run, one after the other for each stream.
** - begin: `key`, n words, is all that the launches depend on besides what is
**   fixed while *kept_p lives, NULL at first. DONE: they were started. RECORDS:
**   what is launched until `end` is recorded and does not run. RUNS: all is
**   launched as ever.
** - end: start what was recorded. False: nothing ran and no record remains, as
**   when `good`, that all was launched, is false; launch it as ever.
** - kept: how many records there are.
** - free: what of it still runs ends first. Threads: any. */
typedef enum tfd__launching {
  TFD_LAUNCH_RUNS = 0,
  TFD_LAUNCH_RECORDS,
  TFD_LAUNCH_DONE
} tfd__launching;

typedef struct tfd__launches tfd__launches;

typedef struct tfd__launcher {
  tfd__launching (*begin)(struct tfd__stream *stream, tfd__launches **kept_p,
                          const int64_t *key, int n);
  bool (*end)(struct tfd__stream *stream, tfd__launches *kept, bool good);
  int (*kept)(const tfd__launches *kept);
  void (*free)(tfd__launches *kept);
} tfd__launcher;

/* --- kept weights --------------------------------------------------------- */

/* A program's memory for the weight of one of its products, in the layout that
** the product wants. It belongs to the call that runs. */
typedef struct tfd__kept_weight {
  void *data; /* NULL = there is none */
  size_t bytes;
  int64_t wanted;  /* version of the weight that this call reads */
  int64_t version; /* of what lies in `data`, -1 = of nothing */
} tfd__kept_weight;

/* Products whose weight, input 1, was put into that layout by a call before:
** the bits of kernel `matmul` without the way there.
** - bytes: of the weight in that layout; 0 = the product reads it as it lies.
**   Views lack data. Threads: any.
** - matmul: behind its attributes stands the address of a tfd__kept_weight. */
typedef struct tfd__keeper {
  size_t (*bytes)(const tfd__call *call);
  tfd__kernel matmul;
} tfd__keeper;

/* --- finished products ---------------------------------------------------- */

/* Products that go on before they write: kernel `matmul`, then a bias along the
** last axis (input 2, absent = none), then an activation, whose kernel stands
** behind the product's attributes: none, relu or gelu_tanh. The end is computed
** on the sums, before these are rounded to a type shorter than float32.
** - can_run: views may lack data.
** - matmul: takes what can_run took, wherever it lies. */
typedef struct tfd__finisher {
  bool (*can_run)(const tfd__call *call);
  tfd__kernel matmul;
} tfd__finisher;

/* Slots may be NULL where this is said. Errors: as tfd__fail; UNAVAILABLE with
** the reason from discover when there is no such device here. */
#define TFD_BACKEND_ABI 10

typedef struct tfd__backend {
  int abi;                 /* TFD_BACKEND_ABI; first for ever */
  int kernels_n;           /* TFD_KERNEL_N */
  const char *name;        /* "cpu", "cuda" */
  const char *device_type; /* "CPU", "GPU" */
  /* The host may read and write device memory when its stream is done. */
  bool host_visible;
  /* run happens inside submit and what it starts may finish later. */
  bool asynchronous;

  /* How many devices there are; called once, at start. Where there are some and
  ** none can be used it fails, and tells how many. */
  int (*discover)(int *count_p);
  int (*describe)(int ordinal, tfd__device_info *info_p);
  /* From now on there are n devices: number i is a part of the one that
  ** discover counted as physical[i]. Before the first stream is made, once.
  ** NULL = its devices are whole. */
  int (*split)(const int *physical, int n);
  /* Make what libraries make once for all threads, before the first thread
  ** starts and before the handler at exit is registered. NULL = nothing. */
  void (*prepare)(void);
  /* End all threads and drop what is queued, at the end of the process; no
  ** host thread waits any more. Twice is the same as once. */
  void (*stop)(void);

  /* Memory of device `ordinal`, at least 64-byte aligned, in pieces that a pool
  ** cuts. It is freed when its stream is done with it. */
  int (*alloc)(int ordinal, size_t bytes, void **data_p);
  void (*free)(int ordinal, void *data, size_t bytes);

  int (*stream_new)(const tfd__stream_config *config, tfd__stream **stream_p);
  void (*stream_free)(tfd__stream *stream); /* after stop */
  /* Take a piece of work; its position in *seq_p. Threads: any. */
  int (*submit)(tfd__stream *stream, const tfd__work *work, uint64_t *seq_p);
  /* Likewise, but it and what follows start when `on`, a stream of the same
  ** back end, has passed on_seq. */
  int (*after)(tfd__stream *stream, tfd__stream *on, uint64_t on_seq,
               const tfd__work *work, uint64_t *seq_p);
  /* The position of `on` after which all is done that it does not itself wait
  ** for `waiter` to do. NULL = the last one taken. */
  uint64_t (*awaited)(tfd__stream *on, const tfd__stream *waiter);
  /* Wait until seq has passed or `until` has; may return early, and does so
  ** within 20 ms, for the caller looks for interrupts. Threads: any. */
  void (*wait)(tfd__stream *stream, uint64_t seq, tfd__deadline until);
  /* The last position that has passed, without waiting. NULL = `done` says so
  ** all the time. When the device itself is lost all positions have passed. */
  uint64_t (*poll)(tfd__stream *stream);
  /* Raise the failure found since the last time, with the position of the piece
  ** that failed (the first; where and replica set when they are known). What
  ** was taken from there on until now has no results; what is taken from now on
  ** runs. TFD_OK when there is none. Asked after poll and before anybody
  ** believes its answer. NULL = there are none. */
  int (*failed)(tfd__stream *stream, uint64_t *seq_p);

  /* The three copies, behind what was launched on the stream; called by run.
  ** Of host_visible back ends also called when the stream is done, by any
  ** thread. Host memory of copy_in is the caller's again on return; that of
  ** copy_out is filled when the position has passed. */
  int (*copy_in)(tfd__stream *stream, void *to, const void *host_from,
                 size_t bytes);
  int (*copy_out)(tfd__stream *stream, void *host_to, const void *from,
                  size_t bytes);
  /* From memory of device from_ordinal of the same back end. */
  int (*copy_across)(tfd__stream *stream, void *to, int from_ordinal,
                     const void *from, size_t bytes);

  /* Kernels indexed by tfd__kernel_id; NULL = not there: the layers above run
  ** the op on the processor. `copy` must be there. */
  const tfd__kernel *kernels;
  /* Does the kernel take this call's dtypes, sizes and attributes, on its
  ** stream? Views may lack data. NULL = always. */
  bool (*can_run)(tfd__kernel_id id, const tfd__call *call);

  /* Who makes several elementwise ops one kernel, `strip` (strip.h). NULL =
  ** nobody. */
  const struct tfd__fuser *fuser;

  /* Who keeps weights in the layout that products want. NULL = nobody. */
  const tfd__keeper *keeper;

  /* Who starts launches that come again and again at once. NULL = nobody. */
  const tfd__launcher *launcher;

  /* Who does collectives among its devices best, by name; NULL = nobody knows
  ** them. */
  const char *provider;
  /* What such a provider must know of a stream, in words of the device's own
  ** API (cuda/native.h). NULL = nothing. */
  const void *(*native)(tfd__stream *stream);

  /* Who does what follows a product together with it. NULL = nobody. */
  const tfd__finisher *finisher;
} tfd__backend;

extern const tfd__backend tfd__cpu_backend;

/* --- which there are ------------------------------------------------------ */

/* One that is there, or could not be used. Texts live for ever. */
typedef struct tfd__backend_entry {
  const tfd__backend *backend; /* NULL = it cannot be used */
  const char *name;
  const char *path;   /* of the plug-in, "" = built in */
  const char *reason; /* why it cannot be used, "" = it can */
  const char *type;   /* of its devices; NULL = not known */
  bool lost;          /* all of them were, while they were found */
  int devices;        /* that can be used */
  int unusable;       /* seen where none can be used */
} tfd__backend_entry;

/* Add one to those that are built in. Errors: FailedPrecondition once the list
** was asked for. */
int tfd__backend_register(const tfd__backend *backend);
/* All, the processor's first; plug-ins are opened by the first call. */
void tfd__backends(const tfd__backend_entry **list_p, int *n_p);

/* --- the end of the process ----------------------------------------------- */

/* From now on queues that need a thread are refused. */
void tfd__backends_close(void);
/* FailedPrecondition after that. */
int tfd__check_running(void);

#endif
