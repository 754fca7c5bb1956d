/* The work block of each thread, freed when the thread ends. */
#include <pthread.h>

#include "backend/cpu/cpu.h"

static __thread void *block;
static __thread size_t block_bytes;
static pthread_once_t block_once = PTHREAD_ONCE_INIT;
static pthread_key_t block_key; /* only frees the block at thread exit */

static void block_free(void *p) {
  tfd__free(p);
  block = NULL;
  block_bytes = 0;
}

static void block_start(void) {
  (void)pthread_key_create(&block_key, block_free);
}

void *tfd__work_block(size_t bytes) {
  size_t want = (bytes + 65535) & ~(size_t)65535;
  void *p = NULL;

  if (TFD_LIKELY(bytes <= block_bytes)) return block;
  pthread_once(&block_once, block_start);
  p = tfd__alloc_aligned(64, want);
  if (p == NULL) {
    (void)tfd__no_memory(want, "kernel work block");
    return NULL;
  }
  tfd__free(block);
  block = p;
  block_bytes = want;
  (void)pthread_setspecific(block_key, p);
  return p;
}
