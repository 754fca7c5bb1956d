/* Stream-ordered memory: a caching allocator for each device.
**
** Size classes: multiples of 64 bytes up to 1 KiB, then four steps for each
** power of two (at most a quarter is unused). A free list for each class gives
** back the block released last, which is still in the cache. A block and its
** header stay together for ever, so a hit touches one header and no system
** memory. Blocks up to 256 KiB are cut from slabs of 2 MiB, larger ones come
** from the back end one by one, as all do where there is no room for a slab;
** either way the back end backs them with large pages where it can. */
#include <stdio.h>

#include "device/private.h"

#define FINE 64
#define FINE_CLASSES 16 /* up to FINE_LIMIT bytes */
#define FINE_LIMIT ((size_t)FINE * FINE_CLASSES)
#define FINE_BITS 10 /* log2(FINE_LIMIT) */
#define MAX_BITS 48
#define MAX_BYTES (((size_t)1 << MAX_BITS) - TFD_REDZONE)
#define CLASSES (FINE_CLASSES + 4 * (MAX_BITS - FINE_BITS))
#define SLAB_BYTES ((size_t)2 << 20)
#define SLAB_BLOCK ((size_t)256 << 10)

/* Kept memory is given back before growing further once it exceeds both. */
#define KEEP_MIN ((int64_t)256 << 20)
#define KEEP_PEAKS 2

typedef struct tfd__slab {
  struct tfd__slab *next;
  char *data;
  size_t used;
  int blocks; /* cut from it */
  int idle;   /* counted by trim only */
} tfd__slab;

struct tfd__pool {
  tfd_device *device;
  tfd__spin lock;
  tfd__buffer *free[CLASSES];
  tfd__slab *slabs; /* the first one is being cut */
  int64_t current;  /* bytes asked for, live */
  int64_t peak;
  int64_t in_use; /* capacity of live blocks */
  int64_t held;   /* got from the back end */
  size_t limit;   /* 0 = none */
};

static void (*oom_hook)(char *text, size_t n);

void tfd__set_oom_hook(void (*fn)(char *text, size_t n)) {
  oom_hook = fn;
}

/* --- size classes --------------------------------------------------------- */

static int class_of(size_t bytes, size_t *capacity_p) {
  uint64_t top = 0;
  uint64_t quarter = 0;
  int bits = 0;

  if (bytes <= FINE_LIMIT) {
    int c = bytes == 0 ? 0 : (int)((bytes - 1) / FINE);

    *capacity_p = (size_t)(c + 1) * FINE;
    return c;
  }
  top = bytes - 1;
  bits = 63 - __builtin_clzll(top);
  quarter = top >> (bits - 2); /* 4..7 */
  *capacity_p = (size_t)(quarter + 1) << (bits - 2);
  return FINE_CLASSES + 4 * (bits - FINE_BITS) + (int)quarter - 4;
}

/* --- buffers -------------------------------------------------------------- */

/* Queued work may use a block after its release, and one that has a new owner
** already: only inline devices can tell AddressSanitizer what is whose. */
static void poison(const tfd__buffer *b, size_t live) {
  if (TFD_REDZONE == 0 || b->device->queued) return;
  TFD_UNPOISON(b->data, live);
  TFD_POISON((char *)b->data + live, b->capacity - live);
}

static void buffer_destroy(void *self) {
  tfd__buffer *b = self;
  tfd__pool *pool = b->device->pool;
  int64_t bytes = (int64_t)b->bytes; /* the next owner's after the unlock */

  /* In a forked child a lock may be held for ever. */
  if (!TFD_LIKELY(!tfd__is_forked())) return;
  b->free_seq = tfd__stream_seq(b->device);
  poison(b, 0);
  tfd__spin_lock(&pool->lock);
  b->next = pool->free[b->size_class];
  pool->free[b->size_class] = b;
  pool->current -= bytes;
  pool->in_use -= (int64_t)b->capacity;
  tfd__spin_unlock(&pool->lock);
  tfd__memory_adjust(-bytes);
}

static const tfd__type buffer_type = {
    .name = "buffer",
    .kind = TFD_HANDLE_BUFFER,
    .destroy = buffer_destroy,
};

/* The pool's lock is held. */
static void count_live(tfd__pool *pool, size_t bytes, size_t capacity) {
  pool->current += (int64_t)bytes;
  pool->in_use += (int64_t)capacity;
  if (pool->current > pool->peak) pool->peak = pool->current;
}

/* --- getting memory ------------------------------------------------------- */

/* Count `bytes` more as held; false over the limit. */
static bool reserve(tfd__pool *pool, size_t bytes) {
  bool ok = true;

  tfd__spin_lock(&pool->lock);
  ok = pool->limit == 0 || pool->held + (int64_t)bytes <= (int64_t)pool->limit;
  if (ok) pool->held += (int64_t)bytes;
  tfd__spin_unlock(&pool->lock);
  return ok;
}

static void unreserve(tfd__pool *pool, size_t bytes) {
  tfd__spin_lock(&pool->lock);
  pool->held -= (int64_t)bytes;
  tfd__spin_unlock(&pool->lock);
}

static int backend_alloc(tfd__pool *pool, size_t bytes, void **data_p) {
  const tfd__backend *backend = pool->device->backend;
  int rc;

  if (!reserve(pool, bytes)) {
    return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                     "%zu bytes on %s go over TFDIST_MEMORY_LIMIT", bytes,
                     pool->device->short_name);
  }
  rc = backend->alloc(pool->device->ordinal, bytes, data_p);
  if (rc != TFD_OK) unreserve(pool, bytes);
  return rc;
}

static void backend_free(tfd__pool *pool, void *data, size_t bytes) {
  TFD_UNPOISON(data, bytes);
  pool->device->backend->free(pool->device->ordinal, data, bytes);
  unreserve(pool, bytes);
}

/* The pool's lock is held. NULL when the current slab has no room. */
static void *cut(tfd__pool *pool, size_t capacity, tfd__slab **slab_p) {
  tfd__slab *s = pool->slabs;
  void *data = NULL;

  if (s == NULL || SLAB_BYTES - s->used < capacity) return NULL;
  data = s->data + s->used;
  s->used += capacity;
  s->blocks++;
  *slab_p = s;
  return data;
}

static int add_slab(tfd__pool *pool) {
  tfd__slab *s = tfd__calloc(1, sizeof *s);
  void *data = NULL;
  int rc;

  if (s == NULL) return tfd__no_memory(sizeof *s, "memory pool");
  rc = backend_alloc(pool, SLAB_BYTES, &data);
  if (rc != TFD_OK) {
    tfd__free(s);
    return rc;
  }
  s->data = data;
  tfd__spin_lock(&pool->lock);
  s->next = pool->slabs;
  pool->slabs = s;
  tfd__spin_unlock(&pool->lock);
  return TFD_OK;
}

/* A block that no free list had. */
static int grow(tfd__pool *pool, tfd__buffer *b) {
  if (b->capacity > SLAB_BLOCK) {
    return backend_alloc(pool, b->capacity, &b->data);
  }
  for (;;) {
    tfd__spin_lock(&pool->lock);
    b->data = cut(pool, b->capacity, &b->slab);
    tfd__spin_unlock(&pool->lock);
    if (b->data != NULL) return TFD_OK;
    TFD_TRY(add_slab(pool));
  }
}

/* --- giving memory back --------------------------------------------------- */

/* The pool's lock may be held: what was finished since the last look does not
** count. */
static bool is_idle(const tfd__buffer *b) {
  return tfd__counter_get(&b->device->stream->done) >= b->free_seq;
}

/* Can the block go? Its own memory is idle, or its whole slab is. */
static bool can_go(const tfd__buffer *b) {
  return b->slab == NULL ? is_idle(b) : b->slab->idle == b->slab->blocks;
}

/* Pool locked: count idle blocks of each slab. */
static void count_idle(tfd__pool *pool) {
  tfd__slab *s = NULL;
  tfd__buffer *b = NULL;
  int c;

  for (s = pool->slabs; s != NULL; s = s->next) s->idle = 0;
  for (c = 0; c < CLASSES; c++) {
    for (b = pool->free[c]; b != NULL; b = b->next) {
      if (b->slab != NULL && is_idle(b)) b->slab->idle++;
    }
  }
}

/* Pool locked: unlink what can go. */
static tfd__buffer *take_blocks(tfd__pool *pool) {
  tfd__buffer *gone = NULL;
  int c;

  for (c = 0; c < CLASSES; c++) {
    tfd__buffer **link = &pool->free[c];

    while (*link != NULL) {
      tfd__buffer *b = *link;

      if (!can_go(b)) {
        link = &b->next;
        continue;
      }
      *link = b->next;
      b->next = gone;
      gone = b;
    }
  }
  return gone;
}

static tfd__slab *take_slabs(tfd__pool *pool) {
  tfd__slab **link = &pool->slabs;
  tfd__slab *gone = NULL;

  while (*link != NULL) {
    tfd__slab *s = *link;

    if (s->idle != s->blocks) {
      link = &s->next;
      continue;
    }
    *link = s->next;
    s->next = gone;
    gone = s;
  }
  return gone;
}

/* Give back what is idle now. */
static void trim_idle(tfd__pool *pool) {
  tfd__buffer *b = NULL;
  tfd__slab *s = NULL;

  tfd__spin_lock(&pool->lock);
  count_idle(pool);
  b = take_blocks(pool);
  s = take_slabs(pool);
  tfd__spin_unlock(&pool->lock);
  while (b != NULL) {
    tfd__buffer *next = b->next;

    if (b->slab == NULL) backend_free(pool, b->data, b->capacity);
    tfd__free(b);
    b = next;
  }
  while (s != NULL) {
    tfd__slab *next = s->next;

    backend_free(pool, s->data, SLAB_BYTES);
    tfd__free(s);
    s = next;
  }
}

void tfd__pool_trim(tfd_device *device) {
  if (!TFD_LIKELY(!tfd__is_forked())) return;
  (void)tfd__wait_all(device, TFD_FOREVER);
  trim_idle(device->pool);
}

/* Devices of one back end share the machine's memory. */
static void trim_all(const tfd__backend *backend) {
  int i;

  for (i = 0; i < tfd__rt.n; i++) {
    (void)tfd__wait_all(tfd__rt.devices[i], TFD_FOREVER);
  }
  tfd__settle(false);
  for (i = 0; i < tfd__rt.n; i++) {
    if (tfd__rt.devices[i]->backend == backend) {
      tfd__pool_trim(tfd__rt.devices[i]);
    }
  }
}

/* --- the allocator's face ------------------------------------------------- */

static int out_of_memory(tfd__pool *pool, size_t bytes) {
  char limit[64] = "";
  char more[512] = "";
  const double mib = 1048576.0;
  int64_t current = 0;
  int64_t held = 0;

  tfd__spin_lock(&pool->lock); /* workers release buffers of copies */
  current = pool->current;
  held = pool->held;
  tfd__spin_unlock(&pool->lock);
  if (pool->limit != 0) {
    (void)snprintf(limit, sizeof limit, " of the %.1f MiB that it may take",
                   (double)pool->limit / mib);
  }
  if (oom_hook != NULL) oom_hook(more, sizeof more);
  return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                   "out of memory on %s: %zu bytes (%.1f MiB) wanted, %.1f MiB "
                   "live, %.1f MiB held%s%s%s",
                   pool->device->short_name, bytes, (double)bytes / mib,
                   (double)current / mib, (double)held / mib, limit,
                   more[0] != '\0' ? "; " : "", more);
}

/* Kept memory of other sizes must not grow without bound. */
static void limit_kept(tfd__pool *pool, size_t capacity) {
  int64_t kept = 0;
  int64_t peak = 0;

  tfd__spin_lock(&pool->lock);
  kept = pool->held - pool->in_use;
  peak = pool->peak;
  tfd__spin_unlock(&pool->lock);
  if (kept + (int64_t)capacity > KEEP_MIN && kept > KEEP_PEAKS * peak) {
    trim_idle(pool);
  }
}

static int buffer_miss(tfd_device *device, size_t bytes, int size_class,
                       size_t capacity, tfd__buffer **buffer_p) {
  tfd__pool *pool = device->pool;
  tfd__buffer *b = NULL;
  int rc;

  if (bytes > MAX_BYTES) return out_of_memory(pool, bytes);
  limit_kept(pool, capacity);
  b = tfd__alloc_aligned(64, sizeof *b); /* two cache lines, not three */
  if (b == NULL) return out_of_memory(pool, bytes);
  *b = (tfd__buffer){
      .device = device, .capacity = capacity, .size_class = size_class};
  rc = grow(pool, b);
  if (rc != TFD_OK) {
    trim_all(device->backend);
    rc = grow(pool, b);
  }
  if (rc == TFD_RESOURCE_EXHAUSTED && capacity <= SLAB_BLOCK) {
    rc = backend_alloc(pool, capacity, &b->data);
  }
  if (rc != TFD_OK) {
    tfd__free(b);
    if (rc != TFD_RESOURCE_EXHAUSTED) return rc; /* the device is lost */
    return out_of_memory(pool, bytes);
  }
  tfd__spin_lock(&pool->lock);
  count_live(pool, bytes, capacity);
  tfd__spin_unlock(&pool->lock);
  *buffer_p = b;
  return TFD_OK;
}

int tfd__buffer_new(tfd_device *device, size_t bytes, tfd__buffer **buffer_p) {
  tfd__pool *pool = device->pool;
  size_t capacity = 0;
  int c = 0;
  tfd__buffer *b = NULL;

  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  if (TFD_LIKELY(bytes <= MAX_BYTES)) {
    c = class_of(bytes + TFD_REDZONE, &capacity);
    tfd__spin_lock(&pool->lock);
    b = pool->free[c];
    if (TFD_LIKELY(b != NULL)) {
      pool->free[c] = b->next;
      count_live(pool, bytes, capacity);
      /* Soon written; and the header that is taken next. */
      __builtin_prefetch(b->data, 1);
      if (TFD_LIKELY(b->next != NULL)) {
        __builtin_prefetch(b->next, 1);
        __builtin_prefetch((char *)b->next + 64, 1);
      }
    }
    tfd__spin_unlock(&pool->lock);
  }
  if (!TFD_LIKELY(b != NULL)) {
    TFD_TRY(buffer_miss(device, bytes, c, capacity, &b));
  }
  b->bytes = bytes;
  poison(b, bytes);
  tfd__buffer_made(b, 0);
  b->birth_seq = tfd__stream_seq(device);
  tfd__object_init(&b->object, &buffer_type);
  tfd__memory_adjust((int64_t)bytes);
  *buffer_p = b;
  return TFD_OK;
}

/* A buffer that no call can have been given yet is safe once the memory's
** former users are done; any other only when the stream is empty, since calls
** that read it leave no mark. */
bool tfd__buffer_host_idle(const tfd__buffer *b) {
  tfd_device *d = b->device;
  uint64_t taken = tfd__stream_seq(d);

  if (!d->queued || tfd__is_done(d, taken)) return true;
  return b->birth_seq == taken && tfd__is_done(d, b->free_seq);
}

int tfd__pool_new(tfd_device *device, size_t limit, tfd__pool **pool_p) {
  tfd__pool *pool = tfd__calloc(1, sizeof *pool);

  if (pool == NULL) return tfd__no_memory(sizeof *pool, "memory pool");
  pool->device = device;
  pool->limit = limit;
  *pool_p = pool;
  return TFD_OK;
}

void tfd__pool_free(tfd__pool *pool) {
  int c;

  if (pool == NULL) return;
  /* Workers are gone: what was queued will never run. */
  for (c = 0; c < CLASSES; c++) {
    tfd__buffer *b = NULL;

    for (b = pool->free[c]; b != NULL; b = b->next) b->free_seq = 0;
  }
  trim_idle(pool);
  tfd__free(pool);
}

/* --- public --------------------------------------------------------------- */

int tfd_device_memory(tfd_device *device, int64_t *current_p, int64_t *peak_p,
                      int64_t *reserved_p) {
  TFD_GIVEN(device, DEVICE);
  TFD_GIVEN_POINTER(current_p);
  TFD_GIVEN_POINTER(peak_p);
  TFD_GIVEN_POINTER(reserved_p);

  tfd__pool *pool = device->pool;

  if (tfd__is_forked()) return tfd__fork_error();
  tfd__spin_lock(&pool->lock);
  *current_p = pool->current;
  *peak_p = pool->peak;
  *reserved_p = pool->held - pool->in_use;
  tfd__spin_unlock(&pool->lock);
  return TFD_OK;
}

int tfd_device_reset_peak(tfd_device *device) {
  TFD_GIVEN(device, DEVICE);

  tfd__pool *pool = device->pool;

  if (tfd__is_forked()) return tfd__fork_error();
  tfd__spin_lock(&pool->lock);
  pool->peak = pool->current;
  tfd__spin_unlock(&pool->lock);
  return TFD_OK;
}

int tfd_device_trim(tfd_device *device) {
  TFD_GIVEN(device, DEVICE);
  if (tfd__is_forked()) return tfd__fork_error();
  tfd__pool_trim(device);
  return TFD_OK;
}
