/* Memory of this process in the segment that is lent to tensors: what lies
** there all processes reach, so that sums read what is given where it lies and
** write results where they are wanted (move.c).
**
** Blocks begin at pages; the first place where one fits is taken. Pages are
** there from the first block on that needed them. Where there is no room, or
** the system has no pages, nothing is lent, and the caller has other memory.
** The segment stays mapped until the group is gone and all blocks are back. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/shm/shm.h"

enum { PAGE = 4096, BLOCKS = 256, STEP = 2 << 20 };

typedef struct block {
  size_t begin;
  size_t end;
} block;

struct tfd__arena {
  atomic_int users; /* the group, and blocks that are lent */
  void *memory;     /* the whole segment */
  size_t bytes;
  int file;
  pid_t owner;   /* a fork of it lets everything be */
  size_t offset; /* of this process's part in it */
  size_t size;
  tfd__spin lock;
  atomic_size_t ready; /* so much of the part has pages */
  int blocks_n;
  block blocks[BLOCKS]; /* in order; under the lock */
};

/* A buffer as any other for all but the device's pool. */
typedef struct lent {
  tfd__buffer buffer;
  tfd__arena *arena;
  size_t begin;
} lent;

int tfd__arena_new(void *memory, size_t bytes, int file, size_t offset,
                   size_t size, tfd__arena **arena_p) {
  tfd__arena *a = tfd__calloc(1, sizeof *a);

  if (a == NULL) return tfd__no_memory(sizeof *a, "group");
  a->users = 1;
  a->memory = memory;
  a->bytes = bytes;
  a->file = file;
  a->owner = getpid();
  a->offset = offset;
  a->size = size;
  *arena_p = a;
  return TFD_OK;
}

void tfd__arena_drop(tfd__arena *a) {
  if (atomic_fetch_sub(&a->users, 1) > 1) return;
  (void)munmap(a->memory, a->bytes);
  (void)close(a->file);
  tfd__free(a);
}

/* --- blocks ------------------------------------------------------------- */

/* The lock is held. */
static bool take(tfd__arena *a, size_t bytes, size_t *begin_p) {
  size_t at = 0;
  int i = 0;

  if (a->blocks_n == BLOCKS) return false;
  while (i < a->blocks_n && a->blocks[i].begin - at < bytes) {
    at = a->blocks[i++].end;
  }
  if (a->size - at < bytes) return false;
  memmove(&a->blocks[i + 1], &a->blocks[i],
          (size_t)(a->blocks_n - i) * sizeof *a->blocks);
  a->blocks[i] = (block){at, at + bytes};
  a->blocks_n++;
  *begin_p = at;
  return true;
}

static void give_back(tfd__arena *a, size_t begin) {
  int i = 0;

  tfd__spin_lock(&a->lock);
  while (a->blocks[i].begin != begin) i++;
  a->blocks_n--;
  memmove(&a->blocks[i], &a->blocks[i + 1],
          (size_t)(a->blocks_n - i) * sizeof *a->blocks);
  tfd__spin_unlock(&a->lock);
}

/* Pages up to `end`: touching them cannot fail then. */
static bool make_ready(tfd__arena *a, size_t end) {
  size_t ready = atomic_load(&a->ready);

  if (end <= ready) return true;
  end = (end + STEP - 1) / STEP * STEP;
  if (end > a->size) end = a->size;
  if (posix_fallocate(a->file, (off_t)(a->offset + ready),
                      (off_t)(end - ready)) != 0) {
    return false;
  }
  while (ready < end && !atomic_compare_exchange_weak(&a->ready, &ready, end)) {
    continue;
  }
  return true;
}

/* --- lending ------------------------------------------------------------ */

static void lent_destroy(void *self) {
  lent *l = self;
  tfd__arena *a = l->arena;

  if (a->owner != getpid()) return;
  tfd__memory_adjust(-(int64_t)l->buffer.bytes);
  give_back(a, l->begin);
  tfd__free(l);
  tfd__arena_drop(a);
}

static const tfd__type lent_type = {
    .name = "buffer", .kind = TFD_HANDLE_BUFFER, .destroy = lent_destroy};

int tfd__arena_lend(tfd__arena *a, tfd_device *device, size_t bytes,
                    tfd__buffer **buffer_p) {
  size_t capacity = bytes < a->size ? (bytes + PAGE) / PAGE * PAGE : SIZE_MAX;
  uint64_t now = tfd__stream_seq(device);
  lent *l = tfd__calloc(1, sizeof *l);
  bool there = false;

  *buffer_p = NULL;
  if (l == NULL) return tfd__no_memory(sizeof *l, "group");
  tfd__spin_lock(&a->lock);
  there = take(a, capacity, &l->begin);
  tfd__spin_unlock(&a->lock);
  if (there && !make_ready(a, l->begin + capacity)) {
    give_back(a, l->begin);
    there = false;
  }
  if (!there) {
    tfd__free(l);
    return TFD_OK;
  }
  atomic_fetch_add(&a->users, 1);
  l->arena = a;
  /* The memory's last owner was the same device's: its calls come first. */
  l->buffer = (tfd__buffer){.device = device,
                            .data = (char *)a->memory + a->offset + l->begin,
                            .bytes = bytes,
                            .capacity = capacity,
                            .free_seq = now,
                            .birth_seq = now};
  tfd__object_init(&l->buffer.object, &lent_type);
  tfd__memory_adjust((int64_t)bytes);
  *buffer_p = &l->buffer;
  return TFD_OK;
}

/* --- places ------------------------------------------------------------- */

uint64_t tfd__arena_place(const tfd__segment *s, int process, const void *data,
                          size_t bytes) {
  uintptr_t begin =
      (uintptr_t)s->memory + s->front + (uintptr_t)process * s->arena_bytes;
  uintptr_t at = (uintptr_t)data;

  if (at < begin || at - begin > s->arena_bytes ||
      s->arena_bytes - (at - begin) < bytes) {
    return 0;
  }
  return at - begin + 1;
}

char *tfd__arena_at(const tfd__segment *s, int process, uint64_t place,
                    size_t offset, size_t bytes) {
  size_t size = s->arena_bytes;

  if (place == 0 || place > size || size - (place - 1) < offset ||
      size - (place - 1) - offset < bytes) {
    return NULL;
  }
  return (char *)s->memory + s->front + (size_t)process * size + (place - 1) +
         offset;
}
