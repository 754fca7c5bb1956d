/* libcuda without a GPU: memory is the host's, kernels run on the model, and
** everything that a stream takes runs late: when the host asks or waits. */
#include <cuda.h>

#include <deque>
#include <map>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include "model.h"
#include "standin.h"

struct CUctx_st {
  int device;
};

struct CUevent_st {
  unsigned long recorded; /* times it was put on a stream */
  unsigned long passed;   /* the last of them that was reached */
};

struct work {
  std::function<void()> run;
  CUevent after; /* wait for this recording first */
  unsigned long recording;
  std::function<bool()> ready; /* and for this */
};

struct CUstream_st {
  int device;
  std::deque<work> queue;
};

struct CUfunc_st {
  const tfd_model_kernel *kernel;
};

extern "C" {
const int tfd_standin = 1;
}

namespace {

/* Never destroyed: the library frees its devices after this file's objects. */
std::recursive_mutex &lock = *new std::recursive_mutex;
std::vector<CUstream> &streams = *new std::vector<CUstream>;
std::map<char *, size_t> &memory = *new std::map<char *, size_t>;
std::map<std::string, CUfunc_st> &functions =
    *new std::map<std::string, CUfunc_st>;
CUctx_st contexts[64];
CUresult sticky = CUDA_SUCCESS; /* what a launch did wrong, for ever */
unsigned order = 1;
long calls = 0;
thread_local CUcontext current;

long number_of(const char *name, long otherwise) {
  const char *text = getenv(name);

  return text == nullptr ? otherwise : atol(text);
}

/* Read once: programs change their environment while other threads are here. */
unsigned seed() {
  static const unsigned chosen = (unsigned)number_of("TFD_STANDIN_SEED", 0);

  return chosen;
}

unsigned next_random() {
  order = order * 1664525u + 1013904223u + seed();
  return order >> 16;
}

/* The failure asked for, when this is the call it is asked of. */
CUresult injected() {
  struct order {
    int code = 0;
    long at = 0;
    order() {
      const char *text = getenv("TFD_STANDIN_FAIL");

      if (text == nullptr || sscanf(text, "%d@%ld", &code, &at) != 2) at = 0;
    }
  };
  static const order given;

  return ++calls == given.at ? (CUresult)given.code : CUDA_SUCCESS;
}

/* Run one piece of work of some stream; false when none can run. */
bool step() {
  size_t n = streams.size();
  size_t first = n == 0 ? 0 : next_random() % n;

  for (size_t i = 0; i < n; i++) {
    CUstream s = streams[(first + i) % n];

    if (s->queue.empty()) continue;
    work &w = s->queue.front();
    if (w.after != nullptr && w.after->passed < w.recording) continue;
    if (sticky == CUDA_SUCCESS && w.ready && !w.ready()) continue;
    std::function<void()> run = std::move(w.run);

    s->queue.pop_front();
    if (run && sticky == CUDA_SUCCESS) run();
    return true;
  }
  return false;
}

void drain(CUstream s) {
  while (!s->queue.empty() && step()) continue;
}

/* All of [data, data + bytes) lies in one piece of device memory. */
bool is_device(CUdeviceptr data, size_t bytes) {
  auto it = memory.upper_bound((char *)data);

  if (it == memory.begin()) return false;
  --it;
  return (char *)data + bytes <= it->first + it->second;
}

void fault(CUresult result, const char *what) {
  if (sticky == CUDA_SUCCESS) fprintf(stderr, "stand-in: %s\n", what);
  sticky = result;
}

void put(CUstream s, std::function<void()> run) {
  s->queue.push_back({std::move(run), nullptr, 0, nullptr});
}

void copy(void *to, const void *from, size_t bytes, bool device_to,
          bool device_from) {
  if ((device_to && !is_device((CUdeviceptr)to, bytes)) ||
      (device_from && !is_device((CUdeviceptr)from, bytes))) {
    fault(CUDA_ERROR_ILLEGAL_ADDRESS, "a copy outside device memory");
    return;
  }
  memmove(to, from, bytes);
}

void launch(const tfd_model_kernel *k, unsigned grid, unsigned threads,
            const std::string &args) {
  const char *problem = tfd_model_run(k, grid, threads, args.data(), seed());

  if (problem == nullptr) return;
  fprintf(stderr, "stand-in: %s: %s\n", k->name, problem);
  sticky = CUDA_ERROR_LAUNCH_FAILED;
}

} // namespace

#define API extern "C" __attribute__((visibility("default"))) CUresult
#define BEGIN                                       \
  std::lock_guard<std::recursive_mutex> held(lock); \
  {                                                 \
    CUresult failure = injected();                  \
    if (failure != CUDA_SUCCESS) return failure;    \
    if (sticky != CUDA_SUCCESS) return sticky;      \
  }
#define ON_CONTEXT \
  BEGIN if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void tfd_standin_enqueue(CUstream s, std::function<void()> run,
                                  std::function<bool()> ready) {
  std::lock_guard<std::recursive_mutex> held(lock);

  s->queue.push_back({std::move(run), nullptr, 0, std::move(ready)});
}

EXPORTED int tfd_standin_device() {
  return current == nullptr ? -1 : current->device;
}

EXPORTED int tfd_standin_device_of(CUstream s) {
  return s->device;
}

EXPORTED bool tfd_standin_is_device(const void *data, size_t bytes) {
  return is_device((CUdeviceptr)data, bytes);
}

EXPORTED std::unique_lock<std::recursive_mutex> tfd_standin_lock() {
  return std::unique_lock<std::recursive_mutex>(lock);
}

/* --- devices
 * -------------------------------------------------------------------- */

API cuInit(unsigned) {
  BEGIN return CUDA_SUCCESS;
}

API cuDriverGetVersion(int *version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

API cuGetErrorName(CUresult e, const char **text) {
  *text = e == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : e == CUDA_ERROR_LAUNCH_FAILED   ? "CUDA_ERROR_LAUNCH_FAILED"
          : e == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                            : "CUDA_ERROR";
  return CUDA_SUCCESS;
}

API cuGetErrorString(CUresult e, const char **text) {
  static char texts[16][24];
  char *to = texts[(unsigned)e % 16];

  snprintf(to, sizeof texts[0], "error %d", (int)e);
  *text = to;
  return CUDA_SUCCESS;
}

API cuDeviceGetCount(int *n) {
  BEGIN *n = (int)number_of("TFD_STANDIN_DEVICES", 1);
  return CUDA_SUCCESS;
}

API cuDeviceGet(CUdevice *device, int ordinal) {
  BEGIN *device = ordinal;
  return CUDA_SUCCESS;
}

API cuDeviceGetName(char *name, int n, CUdevice) {
  BEGIN snprintf(name, (size_t)n, "stand-in (no GPU)");
  return CUDA_SUCCESS;
}

API cuDeviceTotalMem(size_t *bytes, CUdevice) {
  BEGIN *bytes = (size_t)1 << 32;
  return CUDA_SUCCESS;
}

API cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice) {
  BEGIN switch (which) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    *value = 2;
    break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    *value = 9;
    break;
  default:
    *value = 0;
  }
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  BEGIN contexts[device].device = device;
  *context = &contexts[device];
  return CUDA_SUCCESS;
}

API cuDevicePrimaryCtxRelease(CUdevice) {
  BEGIN return CUDA_SUCCESS;
}

API cuCtxSetCurrent(CUcontext context) {
  BEGIN current = context;
  return CUDA_SUCCESS;
}

/* --- kernels
 * ---------------------------------------------------------------------- */

/* A fat binary stands for all kernels that were built for the model. */
API cuModuleLoadData(CUmodule *module, const void *image) {
  ON_CONTEXT if (*(const unsigned *)image != 0xBA55ED50u) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *module = (CUmodule)&functions;
  return CUDA_SUCCESS;
}

API cuModuleGetFunction(CUfunction *function, CUmodule, const char *name) {
  ON_CONTEXT for (const tfd_model_kernel *k = tfd_model_kernels; k != nullptr;
                  k = k->next) {
    if (strcmp(k->name, name) != 0) continue;
    functions[name].kernel = k;
    *function = &functions[name];
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

API cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset,
                       size_t *bytes) {
  BEGIN if (index != 0) return CUDA_ERROR_INVALID_VALUE;
  *offset = 0;
  *bytes = f->kernel->bytes;
  return CUDA_SUCCESS;
}

API cuLaunchKernel(CUfunction f, unsigned x, unsigned y, unsigned z,
                   unsigned tx, unsigned ty, unsigned tz, unsigned shared,
                   CUstream s, void **parameters, void **) {
  ON_CONTEXT if (x == 0 || y != 1 || z != 1 || ty != 1 || tz != 1 ||
                 tx > f->kernel->threads || shared > 48 << 10 ||
                 s->device != current->device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const tfd_model_kernel *k = f->kernel;
  std::string args((const char *)parameters[0], k->bytes);

  put(s, [=] { launch(k, x, tx, args); });
  return CUDA_SUCCESS;
}

/* --- memory
 * ------------------------------------------------------------------------- */

static CUresult take(CUdeviceptr *data, size_t bytes) {
  char *p = nullptr;

  if (posix_memalign((void **)&p, 512, bytes) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memset(p, 0xFF, bytes);
  memory[p] = bytes;
  if (tfd_race_memory != nullptr) tfd_race_memory(p, bytes, true);
  *data = (CUdeviceptr)p;
  return CUDA_SUCCESS;
}

/* Freed memory gets other values before it goes. */
static void give(CUdeviceptr data) {
  auto it = memory.find((char *)data);

  if (it == memory.end()) {
    fault(CUDA_ERROR_ILLEGAL_ADDRESS, "freeing what is no device memory");
    return;
  }
  memset(it->first, 0xFE, it->second);
  if (tfd_race_memory != nullptr) tfd_race_memory(it->first, it->second, false);
  free(it->first);
  memory.erase(it);
}

API cuMemGetInfo(size_t *left, size_t *all) {
  ON_CONTEXT *left = *all = (size_t)1 << 32;
  return CUDA_SUCCESS;
}

API cuMemAlloc(CUdeviceptr *data, size_t bytes) {
  ON_CONTEXT return take(data, bytes);
}

API cuMemFree(CUdeviceptr data) {
  ON_CONTEXT for (CUstream s : streams) drain(s);
  give(data);
  return CUDA_SUCCESS;
}

API cuMemAllocAsync(CUdeviceptr *data, size_t bytes, CUstream) {
  ON_CONTEXT return take(data, bytes);
}

API cuMemFreeAsync(CUdeviceptr data, CUstream s) {
  ON_CONTEXT put(s, [=] { give(data); });
  return CUDA_SUCCESS;
}

API cuMemHostAlloc(void **data, size_t bytes, unsigned) {
  ON_CONTEXT *data = calloc(1, bytes);
  return *data == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API cuMemFreeHost(void *data) {
  BEGIN free(data);
  return CUDA_SUCCESS;
}

API cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned) {
  BEGIN *device = (CUdeviceptr)host;
  return CUDA_SUCCESS;
}

API cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice) {
  BEGIN *pool = (CUmemoryPool)&memory;
  return CUDA_SUCCESS;
}

API cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, void *) {
  BEGIN return CUDA_SUCCESS;
}

/* Pageable memory: read before this returns. */
API cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
                      CUstream s) {
  ON_CONTEXT std::string kept((const char *)from, bytes);

  put(s, [=] { copy((void *)to, kept.data(), bytes, true, false); });
  return CUDA_SUCCESS;
}

/* What is read too early is plainly wrong. */
API cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
  ON_CONTEXT memset(to, 0xFD, bytes);
  put(s, [=] { copy(to, (void *)from, bytes, false, true); });
  return CUDA_SUCCESS;
}

API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                      CUstream s) {
  ON_CONTEXT put(s, [=] { copy((void *)to, (void *)from, bytes, true, true); });
  return CUDA_SUCCESS;
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                      size_t bytes, CUstream s) {
  ON_CONTEXT put(s, [=] { copy((void *)to, (void *)from, bytes, true, true); });
  return CUDA_SUCCESS;
}

/* --- streams and events
 * ----------------------------------------------------------------- */

API cuStreamCreate(CUstream *stream, unsigned) {
  ON_CONTEXT *stream = new CUstream_st{current->device, {}};
  streams.push_back(*stream);
  return CUDA_SUCCESS;
}

API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ON_CONTEXT *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

API cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int) {
  return cuStreamCreate(stream, flags);
}

API cuStreamDestroy(CUstream s) {
  std::lock_guard<std::recursive_mutex> held(lock);

  drain(s);
  for (size_t i = 0; i < streams.size(); i++) {
    if (streams[i] == s) streams.erase(streams.begin() + (long)i);
  }
  delete s;
  return CUDA_SUCCESS;
}

API cuStreamSynchronize(CUstream s) {
  ON_CONTEXT drain(s);
  return sticky;
}

API cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
  ON_CONTEXT s->queue.push_back({nullptr, e, e->recorded, nullptr});
  return CUDA_SUCCESS;
}

API cuEventCreate(CUevent *event, unsigned) {
  ON_CONTEXT *event = new CUevent_st{0, 0};
  return CUDA_SUCCESS;
}

API cuEventDestroy(CUevent e) {
  std::lock_guard<std::recursive_mutex> held(lock);

  for (CUstream s : streams) drain(s);
  delete e;
  return CUDA_SUCCESS;
}

API cuEventRecord(CUevent e, CUstream s) {
  ON_CONTEXT unsigned long number = ++e->recorded;

  put(s, [=] { e->passed = number; });
  return CUDA_SUCCESS;
}

/* Asking makes one piece of work somewhere go on. */
API cuEventQuery(CUevent e) {
  ON_CONTEXT if (e->passed == e->recorded) return CUDA_SUCCESS;
  step();
  if (sticky != CUDA_SUCCESS) return sticky;
  return e->passed == e->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
