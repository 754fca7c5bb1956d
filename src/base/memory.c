#include "base/given.h"

#include <pthread.h>
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

/* --- counts of each thread ------------------------------------------------ */

/* What every op changes and few ever read: each thread counts for itself, which
** takes no locked instruction. Sums go over all threads, and over those that
** have ended; they are exact where no thread counts meanwhile. */
enum { LIVE_BYTES = TFD_HANDLE_KINDS, TALLIES };

typedef struct tally {
  struct tally *next;
  bool linked;
  atomic_int_least64_t n[TALLIES];
} tally;

static _Thread_local tally own;

static struct {
  pthread_once_t once;
  pthread_mutex_t lock;
  pthread_key_t key; /* its values are tallies, to be folded at thread exit */
  bool has_key;
  tally *first;
  /* Of threads that have ended or have no tally, and bytes that are told. */
  atomic_int_least64_t told[TALLIES];
} tallies = {.once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void tally_fold(void *p) {
  tally *t = p;
  tally **link = &tallies.first;
  int i;

  pthread_mutex_lock(&tallies.lock);
  while (*link != t) link = &(*link)->next;
  *link = t->next;
  for (i = 0; i < TALLIES; i++) {
    atomic_fetch_add_explicit(&tallies.told[i], atomic_exchange(&t->n[i], 0),
                              memory_order_relaxed);
  }
  pthread_mutex_unlock(&tallies.lock);
  t->linked = false;
}

static void tallies_lock(void) {
  pthread_mutex_lock(&tallies.lock);
}

static void tallies_unlock(void) {
  pthread_mutex_unlock(&tallies.lock);
}

static void tallies_start(void) {
  tallies.has_key = pthread_key_create(&tallies.key, tally_fold) == 0;
  (void)pthread_atfork(tallies_lock, tallies_unlock, tallies_unlock);
}

/* False where the thread can have none. */
TFD_COLD static bool tally_link(void) {
  pthread_once(&tallies.once, tallies_start);
  if (!tallies.has_key || pthread_setspecific(tallies.key, &own) != 0) {
    return false;
  }
  pthread_mutex_lock(&tallies.lock);
  own.next = tallies.first;
  tallies.first = &own;
  pthread_mutex_unlock(&tallies.lock);
  own.linked = true;
  return true;
}

/* The thread's count afterwards; 0 where it has none. */
static inline int64_t tally_add(int which, int64_t change) {
  int64_t n = 0;

  if (!TFD_LIKELY(own.linked) && !tally_link()) {
    atomic_fetch_add_explicit(&tallies.told[which], change,
                              memory_order_relaxed);
    return 0;
  }
  n = atomic_load_explicit(&own.n[which], memory_order_relaxed) + change;
  atomic_store_explicit(&own.n[which], n, memory_order_relaxed);
  return n;
}

static int64_t tally_sum(int which) {
  const tally *t = NULL;
  int64_t sum = 0;

  pthread_mutex_lock(&tallies.lock);
  sum = atomic_load_explicit(&tallies.told[which], memory_order_relaxed);
  for (t = tallies.first; t != NULL; t = t->next) {
    sum += atomic_load_explicit(&t->n[which], memory_order_relaxed);
  }
  pthread_mutex_unlock(&tallies.lock);
  return sum;
}

/* --- counted objects ----------------------------------------------------- */

void tfd__object_init(tfd_object *o, const tfd__type *type) {
  o->type = type;
  o->mark = TFD_OPEN_MARK + (uint32_t)type->kind;
  atomic_init(&o->refs, 1);
  (void)tally_add((int)type->kind, 1);
}

int64_t tfd__object_count(tfd_handle_kind kind) {
  if ((int)kind < 0 || kind >= TFD_HANDLE_KINDS) return 0;
  return tally_sum((int)kind);
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
  (void)tally_add((int)o->type->kind, -1);
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
#define SLACK 1024

/* The host asks before each op whether to collect, so the answer is kept
** ready in `wanted`: one relaxed load. It is only a hint; races between
** threads delay or repeat a collection, no more. */
static struct {
  _Alignas(64) atomic_int_least64_t limit;
  atomic_int_least64_t floor;
  atomic_int_least64_t asked; /* live bytes when the host was told to collect */
  _Alignas(64) atomic_bool wanted;
} pressure = {
    .limit = DEFAULT_LIMIT,
    .floor = DEFAULT_LIMIT,
};

#define RELAXED_LOAD(x) atomic_load_explicit(&pressure.x, memory_order_relaxed)
/* Without what threads keep to themselves. */
#define TOLD_BYTES() \
  atomic_load_explicit(&tallies.told[LIVE_BYTES], memory_order_relaxed)
#define RELAXED_STORE(x, v) \
  atomic_store_explicit(&pressure.x, v, memory_order_relaxed)

void tfd__memory_adjust(int64_t bytes) {
  int64_t pending = tally_add(LIVE_BYTES, bytes);
  int64_t slack = RELAXED_LOAD(floor) / SLACK;
  int64_t live = 0;

  if (TFD_LIKELY(pending <= slack && pending >= -slack)) return;
  (void)tally_add(LIVE_BYTES, -pending);
  live = pending + atomic_fetch_add_explicit(&tallies.told[LIVE_BYTES], pending,
                                             memory_order_relaxed);
  if (bytes > 0 && !TFD_LIKELY(live <= RELAXED_LOAD(limit))) {
    RELAXED_STORE(wanted, true);
  }
}

int64_t tfd_live_bytes(void) {
  return tally_sum(LIVE_BYTES);
}

bool tfd_memory_should_collect(void) {
  int64_t live = 0;

  if (TFD_LIKELY(!RELAXED_LOAD(wanted))) return false;
  live = TOLD_BYTES();
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
  int64_t live = TOLD_BYTES();
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
