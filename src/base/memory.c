#include "base/given.h"

#include <stdlib.h>
#include <string.h>

/* Live blocks are calls - frees. A call that fails counts as freed at once,
** a block that realloc replaces counts as freed by it: one counter to touch
** on each path. Both have a cache line to themselves, since different threads
** mostly allocate and free. */
static struct {
  _Alignas(64) atomic_int_least64_t calls;
  /* Absolute number of the call that fails; 0 = none. Fires once by itself
  ** because `calls` only grows. */
  atomic_int_least64_t fail_at;
  atomic_bool fail_on; /* so does every call after it */
  _Alignas(64) atomic_int_least64_t frees;
} blocks;

static void count_free(void) {
  atomic_fetch_add_explicit(&blocks.frees, 1, memory_order_relaxed);
}

/* Count one call; false if a test wants this one to fail. */
static bool may_allocate(void) {
  int64_t call =
      atomic_fetch_add_explicit(&blocks.calls, 1, memory_order_relaxed) + 1;
  int64_t fail_at = atomic_load_explicit(&blocks.fail_at, memory_order_relaxed);

  if (TFD_LIKELY(call != fail_at)) return true;
  if (atomic_load_explicit(&blocks.fail_on, memory_order_relaxed)) {
    atomic_store_explicit(&blocks.fail_at, call + 1, memory_order_relaxed);
  }
  count_free();
  return false;
}

static void *counted(void *p) {
  if (!TFD_LIKELY(p != NULL)) count_free();
  return p;
}

void *tfd__alloc(size_t bytes) {
  if (!may_allocate()) return NULL;
  return counted(malloc(bytes > 0 ? bytes : 1));
}

void *tfd__alloc_late(size_t bytes, bool *lacked_p) {
  if (!may_allocate()) {
    *lacked_p = true;
    atomic_fetch_sub_explicit(&blocks.frees, 1, memory_order_relaxed);
  }
  return counted(malloc(bytes > 0 ? bytes : 1));
}

void *tfd__calloc(size_t count, size_t size) {
  size_t bytes = 0;

  if (!tfd__mul_size(count, size, &bytes)) return NULL;
  if (!may_allocate()) return NULL;
  return counted(calloc(1, bytes > 0 ? bytes : 1));
}

void *tfd__realloc(void *p, size_t bytes) {
  void *moved = NULL;

  if (!may_allocate()) return NULL;
  moved = counted(realloc(p, bytes > 0 ? bytes : 1));
  if (moved != NULL && p != NULL) count_free();
  return moved;
}

void *tfd__alloc_aligned(size_t alignment, size_t bytes) {
  void *p = NULL;

  if (!may_allocate()) return NULL;
  if (posix_memalign(&p, alignment, bytes > 0 ? bytes : 1) != 0) p = NULL;
  return counted(p);
}

char *tfd__strdup(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = tfd__alloc(bytes);

  if (copy != NULL) memcpy(copy, text, bytes);
  return copy;
}

void tfd__free(void *p) {
  if (p == NULL) return;
  count_free();
  free(p);
}

int tfd__no_memory(size_t bytes, const char *what) {
  return tfd__fail(TFD_RESOURCE_EXHAUSTED, "out of memory: %zu bytes for %s",
                   bytes, what);
}

bool tfd__mul_size(size_t a, size_t b, size_t *out_p) {
  return !__builtin_mul_overflow(a, b, out_p);
}

bool tfd__mul_i64(int64_t a, int64_t b, int64_t *out_p) {
  return !__builtin_mul_overflow(a, b, out_p);
}

void tfd__alloc_fail_at(int64_t n) {
  int64_t calls = atomic_load_explicit(&blocks.calls, memory_order_relaxed);

  atomic_store_explicit(&blocks.fail_on, n < 0, memory_order_relaxed);
  atomic_store_explicit(&blocks.fail_at,
                        n > 0   ? calls + n
                        : n < 0 ? calls - n
                                : 0,
                        memory_order_relaxed);
}

void tfd_test_fail_allocation(int64_t n) {
  tfd__alloc_fail_at(n);
}

__attribute__((constructor)) static void fail_at_from_environment(void) {
  const char *text = getenv("TFDIST_FAIL_ALLOC");

  if (text != NULL) tfd__alloc_fail_at(strtoll(text, NULL, 10));
}

int64_t tfd__alloc_count(void) {
  return atomic_load_explicit(&blocks.calls, memory_order_relaxed);
}

int64_t tfd__alloc_live(void) {
  int64_t frees = atomic_load_explicit(&blocks.frees, memory_order_relaxed);

  return tfd__alloc_count() - frees;
}

/* --- counted objects ----------------------------------------------------- */

static atomic_int_least64_t object_counts[TFD_HANDLE_KINDS];

static void count_object(tfd_handle_kind kind, int64_t change) {
  atomic_fetch_add_explicit(&object_counts[kind], change, memory_order_relaxed);
}

void tfd__object_init(tfd_object *o, const tfd__type *type) {
  o->type = type;
  o->mark = TFD_OPEN_MARK + (uint32_t)type->kind;
  atomic_init(&o->refs, 1);
  count_object(type->kind, 1);
}

int64_t tfd__object_count(tfd_handle_kind kind) {
  if ((int)kind < 0 || kind >= TFD_HANDLE_KINDS) return 0;
  return atomic_load_explicit(&object_counts[kind], memory_order_relaxed);
}

int64_t tfd_live_handles(tfd_handle_kind kind) {
  return tfd__object_count(kind);
}

void tfd__release(void *object) {
  tfd_object *o = object;

  if (o == NULL) return;
  /* Who holds the only reference needs no atomic read-modify-write: nobody
  ** else can make a second one. */
  if (atomic_load_explicit(&o->refs, memory_order_acquire) != 1 &&
      atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) != 1) {
    return;
  }
  count_object(o->type->kind, -1);
  o->mark = 0;
  o->type->destroy(o);
}

tfd_object *tfd_retain(tfd_object *object) {
  if (object == NULL) return NULL;
  if (!TFD_LIKELY(tfd__is_handle(object))) {
    (void)tfd__bad_handle(__func__, "object", object, TFD_HANDLE_KINDS);
    return NULL;
  }
  tfd__retain(object);
  return object;
}

void tfd_release(tfd_object *object) {
  if (object == NULL) return;
  if (!TFD_LIKELY(tfd__is_handle(object))) {
    (void)tfd__bad_handle(__func__, "object", object, TFD_HANDLE_KINDS);
    tfd__log(TFD_LOG_ERROR, "%s", tfd_error_message());
    return;
  }
  tfd__release(object);
}

/* --- collector pressure --------------------------------------------------- */

#define DEFAULT_LIMIT ((int64_t)64 << 20)

/* The host asks before each op whether to collect, so the answer is kept
** ready in `wanted`: one relaxed load. It is only a hint; races between
** threads delay or repeat a collection, no more. */
static struct {
  _Alignas(64) atomic_int_least64_t live;
  atomic_int_least64_t limit;
  atomic_int_least64_t floor;
  atomic_int_least64_t asked; /* live bytes when the host was told to collect */
  _Alignas(64) atomic_bool wanted;
} pressure = {
    .limit = DEFAULT_LIMIT,
    .floor = DEFAULT_LIMIT,
};

#define RELAXED_LOAD(x) atomic_load_explicit(&pressure.x, memory_order_relaxed)
#define RELAXED_STORE(x, v) \
  atomic_store_explicit(&pressure.x, v, memory_order_relaxed)

void tfd__memory_adjust(int64_t bytes) {
  int64_t live =
      atomic_fetch_add_explicit(&pressure.live, bytes, memory_order_relaxed) +
      bytes;

  if (bytes > 0 && !TFD_LIKELY(live <= RELAXED_LOAD(limit))) {
    RELAXED_STORE(wanted, true);
  }
}

int64_t tfd_live_bytes(void) {
  return RELAXED_LOAD(live);
}

bool tfd_memory_should_collect(void) {
  int64_t live = 0;

  if (TFD_LIKELY(!RELAXED_LOAD(wanted))) return false;
  live = RELAXED_LOAD(live);
  if (live > RELAXED_LOAD(limit)) {
    RELAXED_STORE(asked, live);
    return true;
  }
  RELAXED_STORE(wanted, false); /* freed by other means since */
  return false;
}

/* A collection that freed little was wasted: wait longer before the next one.
** A limit far above what is in use is taken back, half the way each time, so
** that one large phase does not keep memory high for ever. */
void tfd_memory_collected(void) {
  int64_t live = RELAXED_LOAD(live);
  int64_t limit = RELAXED_LOAD(limit);
  int64_t floor = RELAXED_LOAD(floor);
  int64_t freed = RELAXED_LOAD(asked) - live;
  int64_t enough = 2 * live > floor ? 2 * live : floor;

  if (live > limit / 5 * 4 || (live > limit / 2 && freed < limit / 5)) {
    limit = (live > limit ? live : limit) / 2 * 3;
  } else if (limit > enough) {
    limit = enough + (limit - enough) / 2;
  }
  RELAXED_STORE(limit, limit > floor ? limit : floor);
  RELAXED_STORE(asked, live);
  RELAXED_STORE(wanted, false);
}

void tfd_memory_set_limit(int64_t limit_bytes) {
  int64_t limit = limit_bytes > 0 ? limit_bytes : DEFAULT_LIMIT;

  RELAXED_STORE(floor, limit);
  RELAXED_STORE(limit, limit);
  RELAXED_STORE(wanted, true); /* the next question compares afresh */
}
