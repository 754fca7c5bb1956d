/* Fat binaries, loaded on each device when a kernel of theirs is first used. */
#include <pthread.h>
#include <string.h>

#include "backend/cuda/cuda.h"

/* Each file of kernels/ is a fat binary of its own, in the plug-in's data. */
#define MODULES(M) \
  M(elementwise)   \
  M(move)          \
  M(reduce)        \
  M(rows)          \
  M(nn)            \
  M(index)         \
  M(window)        \
  M(recurrent)     \
  M(norm)          \
  M(random)        \
  M(update)        \
  M(special)       \
  M(scan)          \
  M(stats)         \
  M(order)         \
  M(places)        \
  M(lots)          \
  M(stop)

#define EMBED(name)                                             \
  __asm__(".section .rodata\n.balign 64\n"                      \
          "tfd__fatbin_" #name ":\n"                            \
          ".incbin \"" TFD_CUDA_FATBINS "/" #name ".fatbin\"\n" \
          ".byte 0\n.previous\n");                              \
  extern const unsigned char tfd__fatbin_##name[];
MODULES(EMBED)

typedef struct module {
  const char *name;
  const unsigned char *image;
  CUmodule loaded[TFD_CUDA_DEVICES];
} module;

#define ROW(name) {#name, tfd__fatbin_##name, {0}},
static module modules[] = {MODULES(ROW)};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The host packs what the device unpacks: one structure of these many bytes. */
int tfd__cuda_check_size(const char *name, CUfunction f, size_t bytes) {
  size_t offset = 0;
  size_t size = 0;

  TFD_TRY(
      tfd__cuda_check(tfd__cu.cuFuncGetParamInfo(f, 0, &offset, &size), name));
  if (offset == 0 && size == bytes) return TFD_OK;
  return tfd__fail(TFD_INTERNAL, "%s takes %zu bytes, it was given %zu", name,
                   size, bytes);
}

static int find(tfd__cuda_kernel *k, int ordinal, size_t bytes) {
  module *m = modules;
  CUfunction f = NULL;

  while (strcmp(m->name, k->module) != 0) m++;
  if (m->loaded[ordinal] == NULL) {
    TFD_TRY(
        tfd__cuda_check(tfd__cu.cuModuleLoadData(&m->loaded[ordinal], m->image),
                        "loading kernels"));
  }
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuModuleGetFunction(&f, m->loaded[ordinal], k->name), k->name));
  TFD_TRY(tfd__cuda_check_size(k->name, f, bytes));
  k->function[ordinal] = f;
  return TFD_OK;
}

int tfd__cuda_find(tfd__cuda_kernel *kernel, int ordinal, size_t bytes) {
  int rc;

  if (kernel->function[ordinal] != NULL) return TFD_OK;
  pthread_mutex_lock(&lock);
  rc = find(kernel, ordinal, bytes);
  pthread_mutex_unlock(&lock);
  return rc;
}

int tfd__cuda_launch_function(const tfd__call *call, CUfunction function,
                              int64_t blocks, const void *args) {
  void *parameters[1] = {(void *)(uintptr_t)args};

  if (blocks == 0) return TFD_OK;
  if (blocks > INT32_MAX) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "%s: %lld blocks; a GPU starts %d",
                     call->name, (long long)blocks, INT32_MAX);
  }
  return tfd__cuda_check(
      tfd__cu.cuLaunchKernel(function, (unsigned)blocks, 1, 1, TFD_CU_THREADS,
                             1, 1, 0, tfd__cuda_stream(call), parameters, NULL),
      call->name);
}

int tfd__cuda_launch(const tfd__call *call, tfd__cuda_kernel *kernel,
                     int64_t blocks, const void *args, size_t bytes) {
  int ordinal = tfd__cuda_ordinal(call);

  if (kernel->name == NULL) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "%s of %s on a GPU", call->name,
                     tfd__dtype_name(tfd__in(call, 0)->dtype));
  }
  if (blocks == 0) return TFD_OK;
  TFD_TRY(tfd__cuda_find(kernel, ordinal, bytes));
  return tfd__cuda_launch_function(call, kernel->function[ordinal], blocks,
                                   args);
}

int64_t tfd__cuda_blocks(const tfd__call *call, int64_t n) {
  /* Eight blocks fit on a multiprocessor; four waves even out their ends. */
  int64_t most =
      (int64_t)tfd__cuda_gpu(tfd__cuda_ordinal(call))->processors * 8 * 4;
  int64_t blocks = (n + TFD_CU_THREADS - 1) / TFD_CU_THREADS;

  return blocks < most ? blocks : most;
}
