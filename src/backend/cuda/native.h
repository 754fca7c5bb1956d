#ifndef TFD_BACKEND_CUDA_NATIVE_H
#define TFD_BACKEND_CUDA_NATIVE_H
/* What the CUDA back end shows of its streams to who puts work on the same GPUs
** with a library of its own (comm/nccl): tfd__backend.native. */

#include <cuda.h>

#include "backend/backend.h"

/* libcuda. */
typedef struct tfd__driver {
#define FUNCTION(name) __typeof__(&name) name;
#include "backend/cuda/driver.def"
#undef FUNCTION
} tfd__driver;

/* Positions of a stream that may have refused values: those behind `after`, up
** to `to`; to == 0: none has. */
typedef struct tfd__refused {
  uint64_t after;
  uint64_t to;
} tfd__refused;

typedef struct tfd__cuda_native {
  size_t bytes; /* sizeof this; first for ever */
  int ordinal;
  CUdevice device; /* several ordinals may share one */
  CUstream stream;
  CUdeviceptr word; /* 64 bits behind *stop that mean nothing */
  const tfd__driver *driver;
  /* TFD_OK, or what libcuda says, with a status of its own for the process
  ** where the GPU is lost. */
  int (*check)(CUresult result, const char *what);
  /* Make the ordinal's context the calling thread's. */
  int (*use)(int ordinal);
  /* What was taken from position seq on, a `wait`'s, has no results, for the
  ** reason given, and writes nothing that shows: call it before the stream goes
  ** on there. The first call counts. Threads: any. */
  void (*spoil)(tfd__stream *stream, uint64_t seq, const tfd__error *reason);
  /* Between these the calling thread alone gives the stream work. Who waits for
  ** a GPU may have its stream meanwhile: take what such a wait needs later. Of
  ** several streams the one of the lowest ordinal is taken first. */
  void (*take)(tfd__stream *stream);
  void (*let_go)(tfd__stream *stream);
  /* Record `event` behind what was launched up to now, and let what follows
  ** start behind one: other threads may be recording launches there. *range_p
  ** is what those that wait have to heed, of values that kernels refused, and
  ** of what may be spoiled that came with others' waits: all streams of `own`
  ** have its own. The next position is the first behind a `wait`. */
  int (*mark)(tfd__stream *stream, CUevent event, const void *own,
              tfd__refused *range_p);
  int (*wait)(tfd__stream *stream, CUevent event, const void *own);
  /* The stream waits for the other one's mark: behind a value that was refused
  ** there nothing is written here that shows, either. */
  int (*heed)(tfd__stream *stream, tfd__stream *other,
              const tfd__refused *range);
  /* Wait until there is room for heeding n times more: for the GPU, which may
  ** wait for who calls this. */
  int (*make_room)(tfd__stream *stream, int n);
  /* The last position that may have refused a value and did not tell, or that
  ** others than `own` may spoil; 0 = none. From the first call on, waiting for
  ** one waits for nothing behind it. */
  uint64_t (*may_refuse)(tfd__stream *stream, const void *own);
  /* The GPU does not go on: all positions pass, and the stream is lost. */
  void (*give_up)(tfd__stream *stream);
} tfd__cuda_native;

/* Open the first of `names` (a list with separators ':') that can be opened,
** where CUDA's libraries are. Errors: Unavailable, with what the loader says.
*/
int tfd__cuda_library(const char *names, void **library_p);
int tfd__cuda_symbol(void *library, const char *name, void *function_p);

#endif
