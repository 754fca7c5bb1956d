/* Temporary memory of kernels: one growing block for each thread.
**
** Requests are cut from the block. When it is too small, a larger one joins it
** and the next reset replaces both by one of their joint size, so that a loop
** in steady state neither allocates nor touches fresh pages. Memory stays with
** the thread until it ends. */
#include <stdint.h>

#include "backend/cpu/cpu.h"

#define ALIGNMENT 64
#define FIRST_BYTES ((size_t)64 << 10)

typedef struct block {
  struct block *next; /* older ones, too small */
  size_t bytes;       /* behind the header */
  size_t used;
} block;

#define HEADER ((sizeof(block) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT)

static _Thread_local block *mine = NULL;

static _Thread_local tfd__own_end own_end;

static void free_blocks(block *b) {
  while (b != NULL) {
    block *next = b->next;

    tfd__free(b);
    b = next;
  }
}

static void free_mine(void) {
  free_blocks(mine);
  mine = NULL;
}

static block *add_block(size_t bytes) {
  size_t size = FIRST_BYTES;
  block *b = NULL;

  if (mine != NULL) size = 2 * mine->bytes;
  if (size < bytes) size = bytes;
  b = tfd__alloc_aligned(ALIGNMENT, HEADER + size);
  if (b == NULL) return NULL;
  b->next = mine;
  b->bytes = size;
  b->used = 0;
  mine = b;
  tfd__at_end(&own_end, free_mine);
  return b;
}

void *tfd__scratch(size_t bytes) {
  block *b = mine;
  size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  void *p = NULL;

  if (bytes > SIZE_MAX / 4) {
    (void)tfd__no_memory(bytes, "scratch memory");
    return NULL;
  }
  if (b == NULL || b->bytes - b->used < rounded) {
    b = add_block(rounded);
    if (b == NULL) {
      (void)tfd__no_memory(bytes, "scratch memory");
      return NULL;
    }
  }
  p = (char *)b + HEADER + b->used;
  b->used += rounded;
  return p;
}

void tfd__scratch_reset(void) {
  block *b = mine;
  size_t total = 0;

  if (b == NULL) return;
  b->used = 0;
  if (TFD_LIKELY(b->next == NULL)) return;
  for (; b != NULL; b = b->next) total += b->bytes;
  free_blocks(mine);
  mine = NULL;
  (void)add_block(total); /* if it fails, the next request tries again */
}
