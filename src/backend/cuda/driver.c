/* libcuda, opened at run time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"

tfd__driver tfd__cu;

int tfd__cuda_open(void) {
  void *library = NULL;

  if (tfd__cuda_library("libcuda.so.1", &library) != TFD_OK) {
    return tfd__fail(TFD_UNAVAILABLE, "no NVIDIA driver: libcuda.so.1 cannot "
                                      "be opened");
  }
#define TEXT(name) #name
#define NAME(name) TEXT(name)
#define FUNCTION(name) \
  TFD_TRY(tfd__cuda_symbol(library, NAME(name), &tfd__cu.name));
#include "backend/cuda/driver.def"
#undef FUNCTION
#undef NAME
#undef TEXT
  return TFD_OK;
}

/* After these nothing of the process works on the device any more. */
static bool is_lost(CUresult result) {
  static const CUresult fatal[] = {CUDA_ERROR_ECC_UNCORRECTABLE,
                                   CUDA_ERROR_NVLINK_UNCORRECTABLE,
                                   CUDA_ERROR_ILLEGAL_ADDRESS,
                                   CUDA_ERROR_LAUNCH_TIMEOUT,
                                   CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                   CUDA_ERROR_ASSERT,
                                   CUDA_ERROR_HARDWARE_STACK_ERROR,
                                   CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                   CUDA_ERROR_MISALIGNED_ADDRESS,
                                   CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                   CUDA_ERROR_INVALID_PC,
                                   CUDA_ERROR_LAUNCH_FAILED,
                                   CUDA_ERROR_UNKNOWN};
  size_t i;

  for (i = 0; i < sizeof fatal / sizeof *fatal; i++) {
    if (result == fatal[i]) return true;
  }
  return false;
}

_Thread_local int tfd__cuda_chosen;

int tfd__cuda_check(CUresult result, const char *what) {
  const char *name = "?";
  const char *text = "?";
  char on[32] = "";
  int code;

  if (TFD_LIKELY(result == CUDA_SUCCESS)) return TFD_OK;
  (void)tfd__cu.cuGetErrorName(result, &name);
  (void)tfd__cu.cuGetErrorString(result, &text);
  if (tfd__cuda_chosen > 0 && what[0] != '/') {
    (void)snprintf(on, sizeof on, ", on /gpu:%d", tfd__cuda_chosen - 1);
  }
  code = tfd__fail(result == CUDA_ERROR_OUT_OF_MEMORY ? TFD_RESOURCE_EXHAUSTED
                                                      : TFD_INTERNAL,
                   "%s: %s (%s)%s", what, text, name, on);
  return is_lost(result) ? tfd__exit_with(TFD_EXIT_DEVICE_LOST) : code;
}

int tfd__cuda_lost(CUresult result, const char *what) {
  if (TFD_LIKELY(result == CUDA_SUCCESS)) return TFD_OK;
  (void)tfd__cuda_check(result, what);
  return tfd__exit_with(TFD_EXIT_DEVICE_LOST);
}

/* FNV-1a. */
uint64_t tfd__cuda_hash(const void *data, size_t bytes) {
  const unsigned char *p = data;
  uint64_t h = 1469598103934665603u;
  size_t i;

  for (i = 0; i < bytes; i++) h = (h ^ p[i]) * 1099511628211u;
  return h;
}
