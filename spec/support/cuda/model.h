#ifndef TFD_SPEC_MODEL_H
#define TFD_SPEC_MODEL_H
/* Running a kernel on the model, and what the checker of races asks it. */

#include "cuda_model.h"

/* Where the running thread is in the order of things. Blocks are numbered
** through all launches. */
struct tfd_model_clock {
  bool running;               /* a kernel is */
  uint32_t launch;            /* number of its first block */
  uint32_t block;             /* > 0 */
  uint32_t barrier;           /* barriers of the block so far */
  uint32_t warp[32];          /* warp barriers of each warp so far */
  const unsigned char *arena; /* shared memory */
  size_t arena_bytes;
};
extern thread_local tfd_model_clock tfd_model_time;

/* A shared array that has this byte, by its address and bytes; false = a gap.
 */
bool tfd_model_shared_at(const void *at, size_t bytes);
/* What the running thread does must not happen: the launch ends here, with
** this as its problem. Does not return. */
[[noreturn]] void tfd_model_stop(const char *form, ...)
    __attribute__((format(printf, 1, 2)));

/* The checker, where it is linked: device memory comes and goes. */
extern "C" __attribute__((weak)) void tfd_race_memory(void *data, size_t bytes,
                                                      bool live);
/* An atomic operation of the running thread. */
extern "C" __attribute__((weak)) void tfd_race_atomic(void *at, size_t bytes);

/* Run all blocks; NULL, or what went wrong (kept until the next run). */
const char *tfd_model_run(const tfd_model_kernel *kernel, unsigned grid,
                          unsigned threads, const void *args, unsigned seed);

#endif
