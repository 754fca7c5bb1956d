#ifndef TFD_BACKEND_BACKEND_H
#define TFD_BACKEND_BACKEND_H
/* L2 backend: what a kind of device can do, as two tables.
**
** tfd__backend_ops moves bytes and orders work; tfd__kernels computes. The CPU
** back end is built in; others are plug-ins that register at run time. A
** kernel gets views only: no tensors, no allocation of results, no devices.
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
**
** May include base, types. Specs: spec/backend. */

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
  const char *name; /* the op, for messages */
  int (*kernel)(const struct tfd__call *call);
  const tfd__view *views;
  const int64_t *ints;
  const double *reals;
  int16_t in_n;
  int16_t out_n;
  int16_t ints_n;
  int16_t reals_n;
  int replica; /* -1 outside replicas */
  int line;    /* script position, 0 = unknown */
  const char *file; /* interned, never freed */
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

typedef struct tfd__backend {
  const char *name;        /* "cpu", "cuda" */
  const char *device_type; /* "CPU", "GPU" */
  /* Memory of device `ordinal`, at least 64-byte aligned. */
  int (*alloc)(int ordinal, size_t bytes, void **data_p);
  void (*free)(int ordinal, void *data, size_t bytes);
  /* Host reads and writes device memory directly. */
  bool host_visible;
  /* Kernels indexed by tfd__kernel_id; NULL = not implemented there. */
  const tfd__kernel *kernels;
  /* Make what libraries make once for all threads; see tfd__stop_at_exit. */
  void (*prepare)(void);
} tfd__backend;

extern const tfd__backend tfd__cpu_backend;

#endif
