/* The work block of each thread, freed when the thread ends. */
#include "backend/cpu/cpu.h"

static _Thread_local void *block;
static _Thread_local size_t block_bytes;
static _Thread_local tfd__own_end own_end;

static void free_block(void) {
  tfd__free(block);
  block = NULL;
  block_bytes = 0;
}

void *tfd__work_block(size_t bytes) {
  size_t want = (bytes + 65535) & ~(size_t)65535;
  void *p = NULL;

  if (TFD_LIKELY(bytes <= block_bytes)) return block;
  p = tfd__alloc_aligned(64, want);
  if (p == NULL) {
    (void)tfd__no_memory(want, "kernel work block");
    return NULL;
  }
  tfd__free(block);
  block = p;
  block_bytes = want;
  tfd__at_end(&own_end, free_block);
  return p;
}
