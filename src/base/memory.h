#ifndef TFD_BASE_MEMORY_H
#define TFD_BASE_MEMORY_H
/* L0 base: the one allocation shim, and counted objects.
**
** Every heap byte of the runtime comes from tfd__alloc and friends, so that
** specs can make the n-th allocation fail and leaks show in the counters.
** Device buffers are counted apart (device layer) and reported through
** tfd__memory_adjust, which drives the Lua collector. */

#include <stdatomic.h>

#include "base/status.h"

/* All return NULL on failure without touching the error record;
** TFD_NEW-style callers report with tfd__fail(TFD_RESOURCE_EXHAUSTED, ...). */
void *tfd__alloc(size_t bytes);
void *tfd__calloc(size_t count, size_t size); /* overflow-checked, zeroed */
/* For libraries that do not look at each of their allocations: one that a spec
** lets fail is made all the same and noted in *lacked_p, for who called the
** library. */
void *tfd__alloc_late(size_t bytes, bool *lacked_p);
void *tfd__realloc(void *p, size_t bytes);
void *tfd__alloc_aligned(size_t alignment, size_t bytes); /* tfd__free it */
char *tfd__strdup(const char *text);
void tfd__free(void *p); /* NULL allowed */

/* Report "out of memory" for `bytes`; returns TFD_RESOURCE_EXHAUSTED. */
int tfd__no_memory(size_t bytes, const char *what);

/* a*b into *out; false on overflow. Sizes are never negative. */
bool tfd__mul_size(size_t a, size_t b, size_t *out_p);
bool tfd__mul_i64(int64_t a, int64_t b, int64_t *out_p);

/* Tell AddressSanitizer which bytes of a pool's memory nobody may touch now;
** nothing in other builds. TFD_REDZONE: bytes to keep unused after a block, so
** that reading past its end is seen. */
#if defined(__SANITIZE_ADDRESS__)
#define TFD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TFD_ASAN 1
#endif
#endif
#ifdef TFD_ASAN
#include <sanitizer/asan_interface.h>
#define TFD_REDZONE 64
#define TFD_POISON(p, n) __asan_poison_memory_region(p, n)
#define TFD_UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
#define TFD_REDZONE 0
#define TFD_POISON(p, n) ((void)(p), (void)(n))
#define TFD_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

/* Fail the n-th allocation from now (1 = the next), or with -n that one and
** all after it; 0 switches it off. Also set by TFDIST_FAIL_ALLOC. Threads:
** any. */
void tfd__alloc_fail_at(int64_t n);
int64_t tfd__alloc_count(void); /* calls since start */
int64_t tfd__alloc_live(void);  /* blocks not yet freed */

/* --- counted objects --------------------------------------------------- */

/* One static instance for each handle type. `destroy` frees everything the
** object owns, then the object itself; it cannot fail. */
typedef struct tfd__type {
  const char *name; /* "tensor", as shown in messages */
  tfd_handle_kind kind;
  void (*destroy)(void *self);
  /* (optional) The tensor an op should use in place of this handle:
  ** variables give their value, distributed values the current replica's.
  ** Borrowed result, valid while the handle is; NULL with a record on error. */
  tfd_tensor *(*operand)(tfd_object *self);
} tfd__type;

/* First member of every handle's structure. The mark tells handles from other
** memory before `type` is looked into: TFD_OPEN_MARK + kind while the object
** lives, 0 from then on. It lies where allocators put a random key into what
** is given back. */
#define TFD_OPEN_MARK 0x7fd15700u
struct tfd_object {
  const tfd__type *type;
  atomic_int refs;
  uint32_t mark;
};

void tfd__object_init(tfd_object *o, const tfd__type *type); /* refs = 1 */
/* Live objects of one kind (leak checks). */
int64_t tfd__object_count(tfd_handle_kind kind);

static inline void tfd__retain(void *object) {
  tfd_object *o = object;

  if (o != NULL) atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
}
void tfd__release(void *object); /* NULL allowed */

/* --- collector pressure ------------------------------------------------ */

/* Device bytes made live (positive) or dropped (negative). Threads: any; each
** may keep 1/1024 of the floor to itself before the limit hears of it.
** The soft limit starts at 64 MiB (the floor, tfd_memory_set_limit; 0 or less
** sets the default again). It grows by half when a collection freed little
** and goes back towards twice the live bytes when they fall. */
void tfd__memory_adjust(int64_t bytes);

#endif
