/* The plug-in's entry: devices and their memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/plugin.h"

static tfd__gpu gpus[TFD_CUDA_DEVICES];
static int gpus_n;
static atomic_uint_least64_t freed[TFD_CUDA_DEVICES];

/* Below this the driver cannot run what the toolkit here makes. */
enum { LEAST_CAPABILITY = 75 };

CUresult tfd__cuda_choose(int ordinal) {
  static _Thread_local CUcontext now;
  CUresult result = CUDA_SUCCESS;

  tfd__cuda_chosen = ordinal + 1;
  if (TFD_LIKELY(now == gpus[ordinal].context)) return CUDA_SUCCESS;
  result = tfd__cu.cuCtxSetCurrent(gpus[ordinal].context);
  if (result == CUDA_SUCCESS) now = gpus[ordinal].context;
  return result;
}

int tfd__cuda_use(int ordinal) {
  return tfd__cuda_check(tfd__cuda_choose(ordinal), "choosing a GPU");
}

const tfd__gpu *tfd__cuda_gpu(int ordinal) {
  return &gpus[ordinal];
}

uint64_t tfd__cuda_freed(int ordinal) {
  return atomic_load(&freed[ordinal]);
}

static int attribute(CUdevice device, CUdevice_attribute which, int *value_p) {
  return tfd__cuda_check(tfd__cu.cuDeviceGetAttribute(value_p, which, device),
                         "reading what the GPU is");
}

/* Scratch memory stays with the process, or each wait would return it. */
static int keep_scratch(CUdevice device) {
  CUmemoryPool pool = NULL;
  uint64_t all = UINT64_MAX;

  TFD_TRY(tfd__cuda_check(tfd__cu.cuDeviceGetDefaultMemPool(&pool, device),
                          "the GPU's memory pool"));
  return tfd__cuda_check(tfd__cu.cuMemPoolSetAttribute(
                             pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all),
                         "the GPU's memory pool");
}

static int describe_gpu(int ordinal, tfd__gpu *g) {
  int major = 0;
  int minor = 0;
  int rc;

  TFD_TRY(tfd__cuda_check(tfd__cu.cuDeviceGet(&g->device, ordinal),
                          "finding the GPU"));
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuDeviceGetName(g->model, sizeof g->model, g->device),
      "reading the GPU's name"));
  TFD_TRY(tfd__cuda_check(tfd__cu.cuDeviceTotalMem(&g->memory, g->device),
                          "reading the GPU's memory"));
  TFD_TRY(attribute(g->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                    &g->processors));
  TFD_TRY(attribute(g->device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                    &major));
  TFD_TRY(attribute(g->device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                    &minor));
  g->capability = 10 * major + minor;
  if (g->capability < LEAST_CAPABILITY) {
    return tfd__fail(TFD_UNAVAILABLE,
                     "%s has compute capability %d.%d; %d.%d or newer is "
                     "needed",
                     g->model, major, minor, LEAST_CAPABILITY / 10,
                     LEAST_CAPABILITY % 10);
  }
  TFD_TRY(
      tfd__cuda_check(tfd__cu.cuDevicePrimaryCtxRetain(&g->context, g->device),
                      "starting the GPU"));
  rc = keep_scratch(g->device);
  if (rc != TFD_OK) (void)tfd__cu.cuDevicePrimaryCtxRelease(g->device);
  return rc;
}

/* How many GPUs the driver has. */
static int count_gpus(int *n_p) {
  CUresult result = tfd__cu.cuInit(0);

  if (result == CUDA_ERROR_NO_DEVICE) result = CUDA_SUCCESS;
  TFD_TRY(tfd__cuda_check(result, "starting the NVIDIA driver"));
  result = tfd__cu.cuDeviceGetCount(n_p);
  if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_NOT_INITIALIZED) {
    *n_p = 0;
  } else {
    TFD_TRY(tfd__cuda_check(result, "counting the GPUs"));
  }
  if (*n_p > 0) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE,
                   "the NVIDIA driver is there, but it finds no GPU");
}

/* One that cannot be used does not keep the others from it: those behind it
** move up. */
static int discover(int *count_p) {
  tfd__error why = {0};
  int rc = TFD_OK;
  int n = 0;
  int i;

  TFD_TRY(tfd__cuda_open());
  TFD_TRY(count_gpus(&n));
  gpus_n = 0;
  for (i = 0; i < n && gpus_n < TFD_CUDA_DEVICES; i++) {
    if (describe_gpu(i, &gpus[gpus_n]) == TFD_OK) {
      gpus_n++;
      continue;
    }
    tfd__error_save(&why);
    tfd__log(TFD_LOG_WARNING, "GPU %d of the driver is left out: %s", i,
             why.message);
  }
  *count_p = gpus_n > 0 ? gpus_n : n;
  if (gpus_n == 0) rc = tfd__error_raise(&why);
  tfd__error_free(&why);
  return rc;
}

/* Parts of a GPU share its context, and each has a stream of its own. */
static int split(const int *physical, int n) {
  static tfd__gpu whole[TFD_CUDA_DEVICES];
  static bool kept;
  int i;

  if (!kept) memcpy(whole, gpus, sizeof whole);
  kept = true;
  if (n > TFD_CUDA_DEVICES) n = TFD_CUDA_DEVICES;
  for (i = 0; i < n; i++) gpus[i] = whole[physical[i]];
  gpus_n = n;
  return TFD_OK;
}

static int describe(int ordinal, tfd__device_info *info_p) {
  const tfd__gpu *g = &gpus[ordinal];

  memset(info_p, 0, sizeof *info_p);
  (void)snprintf(info_p->model, sizeof info_p->model, "%s", g->model);
  info_p->memory = (int64_t)g->memory;
  info_p->cores = g->processors;
  return TFD_OK;
}

static int alloc(int ordinal, size_t bytes, void **data_p) {
  CUdeviceptr data = 0;

  TFD_TRY(tfd__cuda_use(ordinal));
  TFD_TRY(
      tfd__cuda_check(tfd__cu.cuMemAlloc(&data, bytes), "memory of the GPU"));
  *data_p = (void *)(uintptr_t)data;
  return TFD_OK;
}

static void release(int ordinal, void *data, size_t bytes) {
  (void)bytes;
  atomic_fetch_add(&freed[ordinal], 1);
  if (tfd__cuda_use(ordinal) != TFD_OK) return;
  (void)tfd__cu.cuMemFree((CUdeviceptr)(uintptr_t)data);
}

/* No threads of its own; what the GPU still runs ends with the process. */
static void stop(void) {}

static tfd__backend cuda_backend = {
    .abi = TFD_BACKEND_ABI,
    .name = "cuda",
    .device_type = "GPU",
    .asynchronous = true,
    .discover = discover,
    .describe = describe,
    .split = split,
    .stop = stop,
    .alloc = alloc,
    .free = release,
    .stream_new = tfd__cuda_stream_new,
    .stream_free = tfd__cuda_stream_free,
    .submit = tfd__cuda_submit,
    .after = tfd__cuda_after,
    .wait = tfd__cuda_wait,
    .poll = tfd__cuda_poll,
    .failed = tfd__cuda_failed,
    .copy_in = tfd__cuda_copy_in,
    .copy_out = tfd__cuda_copy_out,
    .copy_across = tfd__cuda_copy_across,
    .kernels_n = TFD_KERNEL_N,
    .kernels = tfd__cuda_kernels_table,
    .can_run = tfd__cuda_can_run,
    .fuser = &tfd__cuda_fuser,
    .launcher = &tfd__cuda_launcher,
    .provider = "nccl",
    .native = tfd__cuda_native_of,
    .finisher = &tfd__cuda_finisher,
};

int tfd_backend_plugin(const tfd__plugin_host *host,
                       const tfd__backend **backend_p);

__attribute__((visibility("default"))) int
tfd_backend_plugin(const tfd__plugin_host *host,
                   const tfd__backend **backend_p) {
  const char *graphs = getenv("TFDIST_CUDA_GRAPHS");

  TFD_TRY(tfd__cuda_attach(host));
  /* It is "0" or "1", with blanks maybe: others are refused before. */
  if (graphs != NULL && strchr(graphs, '0') != NULL) {
    cuda_backend.launcher = NULL;
  }
  *backend_p = &cuda_backend;
  return TFD_OK;
}
