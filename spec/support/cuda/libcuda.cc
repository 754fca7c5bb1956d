/* libcuda without a GPU: memory is the host's, kernels run on the model, and
** everything that a stream takes runs late: when the host asks or waits; or by
** itself, where other processes wait for it; or when TFD_STANDIN_MODE says
** (streams.h). */
#include <cuda.h>

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "capture.h"
#include "model.h"
#include "standin.h"
#include "streams.h"

struct CUctx_st {
  int device;
};

struct CUfunc_st {
  const tfd_model_kernel *kernel;
};

extern "C" {
const int tfd_standin = 1;
}

namespace {

/* Never destroyed: the library frees its devices after this file's objects. */
std::map<char *, size_t> &memory = *new std::map<char *, size_t>;
std::map<char *, size_t> &pinned = *new std::map<char *, size_t>;
std::map<std::string, CUfunc_st> &functions =
    *new std::map<std::string, CUfunc_st>;
CUctx_st contexts[64];
long calls = 0;
long calls_captured = 0;
int captures = 0; /* that go on */
counted &counts = *new counted();
thread_local CUcontext current;

/* The GPU that what is done here is done on. */
int here() {
  return running >= 0 ? running : current == nullptr ? -1 : current->device;
}

/* From now on whatever is called there fails; without a GPU: on all of them. */
void spoil(int device, CUresult failure) {
  if (device >= 0) {
    sticky[device] = failure;
    return;
  }
  for (CUresult &each : sticky_list) each = failure;
}

/* After these a context fails whatever is called, as a GPU's does. */
CUresult stays(CUresult failure) {
  if (failure == CUDA_ERROR_ILLEGAL_ADDRESS ||
      failure == CUDA_ERROR_LAUNCH_FAILED) {
    spoil(here(), failure);
  }
  return failure;
}

/* The failure asked for, when this is the call it is asked of. */
CUresult injected() {
  struct order {
    int code = 0;
    long at = 0;
    order(const char *name) {
      const char *text = getenv(name);

      if (text == nullptr || sscanf(text, "%d@%ld", &code, &at) != 2) at = 0;
    }
  };
  static const order given("TFD_STANDIN_FAIL");
  static const order in_capture("TFD_STANDIN_FAIL_CAPTURE");

  if (captures > 0 && ++calls_captured == in_capture.at) {
    for (CUstream s : streams) {
      if (s->capturing && in_capture.code >= 900) invalidate(s);
    }
    return stays((CUresult)in_capture.code);
  }
  return ++calls == given.at ? stays((CUresult)given.code) : CUDA_SUCCESS;
}

/* What a call begins with. */
CUresult begun() {
  CUresult failure = injected();

  return failure != CUDA_SUCCESS ? failure : sticky[here()];
}

/* All of [data, data + bytes) lies in one of these pieces. */
bool lies_in(const std::map<char *, size_t> &pieces, const char *data,
             size_t bytes) {
  auto it = pieces.upper_bound((char *)data);

  if (it == pieces.begin()) return false;
  --it;
  return data + bytes <= it->first + it->second;
}

bool is_device(CUdeviceptr data, size_t bytes) {
  return lies_in(memory, (const char *)data, bytes);
}

void fault(CUresult result, const char *what) {
  if (sticky[here()] == CUDA_SUCCESS) fprintf(stderr, "stand-in: %s\n", what);
  spoil(here(), result);
}

/* In a capture nothing runs: it is a node. */
void put(CUstream s, std::function<void()> run) {
  if (s->capturing) {
    s->capturing->to->nodes.push_back(std::move(run));
    return;
  }
  queue_work(s, {std::move(run), nullptr, 0, nullptr});
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
  const char *problem = nullptr;

  counts.kernels.insert(k->name);
  {
    let_go others;

    problem = tfd_model_run(k, grid, threads, args.data(), seed());
  }
  if (problem == nullptr) return;
  fprintf(stderr, "stand-in: %s: %s\n", k->name, problem);
  spoil(here(), CUDA_ERROR_LAUNCH_FAILED);
}

} // namespace

#define API extern "C" __attribute__((visibility("default"))) CUresult
#define BEGIN                                       \
  std::lock_guard<std::recursive_mutex> held(lock); \
  {                                                 \
    CUresult failure = begun();                     \
    if (failure != CUDA_SUCCESS) return failure;    \
  }
#define ON_CONTEXT \
  BEGIN if (current == nullptr) return CUDA_ERROR_INVALID_CONTEXT;

/* Likewise, of what waits for a capture's end. */
#define UNSAFE                                   \
  {                                              \
    CUresult refused = unsafe(streams);          \
    if (refused != CUDA_SUCCESS) return refused; \
  }
#define ON_STREAM(s)                             \
  ON_CONTEXT {                                   \
    CUresult refused = usable(s);                \
    if (refused != CUDA_SUCCESS) return refused; \
    wait_for_room(s);                            \
  }

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void tfd_standin_enqueue(CUstream s, std::function<void()> run,
                                  std::function<bool()> ready) {
  std::lock_guard<std::recursive_mutex> held(lock);

  if (s->capturing) {
    /* What meets others is captured by all of them or by nobody. */
    if (ready) invalidate(s);
    if (usable(s) == CUDA_SUCCESS) put(s, std::move(run));
    return;
  }
  counts.launches++;
  queue_work(s, {std::move(run), nullptr, 0, std::move(ready)});
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

EXPORTED int tfd_standin_gpu(int device) {
  static const int first = (int)number_of("TFD_STANDIN_FIRST", 0);

  return first + device;
}

EXPORTED void tfd_standin_spoil(int device) {
  std::lock_guard<std::recursive_mutex> held(lock);

  spoil(device, CUDA_ERROR_LAUNCH_FAILED);
}

EXPORTED void tfd_standin_run_alone() {
  static std::once_flag once;

  if (threads()) return;
  std::call_once(once, [] { start_thread(run_alone, nullptr); });
}

EXPORTED std::unique_lock<std::recursive_mutex> tfd_standin_lock() {
  return std::unique_lock<std::recursive_mutex>(lock);
}

/* --- devices
 * -------------------------------------------------------------------- */

API cuInit(unsigned) {
  BEGIN if (!mode_is_known()) {
    fprintf(stderr, "stand-in: TFD_STANDIN_MODE: late, serial, alone, "
                    "threads\n");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (getenv("TFD_STANDIN_COUNTS") != nullptr) {
    static const int registered = atexit([] { write_counts(counts); });

    (void)registered;
  }
  return CUDA_SUCCESS;
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

API cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  BEGIN memset(uuid, 0, sizeof *uuid);
  uuid->bytes[0] = (char)tfd_standin_gpu(device);
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

/* What is wrong with the one before is no matter. */
API cuCtxSetCurrent(CUcontext context) {
  std::lock_guard<std::recursive_mutex> held(lock);
  CUcontext before = current;

  current = context;
  CUresult failure = begun();

  if (failure != CUDA_SUCCESS) current = before;
  return failure;
}

/* --- kernels
 * ---------------------------------------------------------------------- */

/* What NVRTC's stand-in made: a shared object for the model. */
static CUresult load_object(CUmodule *module, const void *image) {
  const Elf64_Ehdr *h = (const Elf64_Ehdr *)image;
  size_t bytes = h->e_shoff + (size_t)h->e_shnum * h->e_shentsize;
  static int number;
  char path[64]; /* the loader knows it by its name */
  void *object = nullptr;

  snprintf(path, sizeof path, "/tmp/tfd-module-%ld-%d", (long)getpid(),
           number++);
  int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);

  if (file >= 0 && write(file, image, bytes) == (ssize_t)bytes) {
    object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  if (object == nullptr) fprintf(stderr, "stand-in: %s\n", dlerror());
  if (file >= 0) {
    close(file);
    unlink(path);
  }
  *module = (CUmodule)object;
  return object == nullptr ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

/* A fat binary stands for all kernels that were built for the model. */
API cuModuleLoadData(CUmodule *module, const void *image) {
  ON_CONTEXT UNSAFE if (memcmp(image, ELFMAG, SELFMAG) == 0) {
    return load_object(module, image);
  }
  if (*(const unsigned *)image != 0xBA55ED50u) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *module = (CUmodule)&functions;
  return CUDA_SUCCESS;
}

static const tfd_model_kernel *kernels_of(CUmodule module) {
  typedef const tfd_model_kernel *list();

  if (module == (CUmodule)&functions) return tfd_model_kernels;
  list *kernels = (list *)dlsym((void *)module, "tfd_module_kernels");

  return kernels == nullptr ? nullptr : kernels();
}

API cuModuleGetFunction(CUfunction *function, CUmodule module,
                        const char *name) {
  ON_CONTEXT for (const tfd_model_kernel *k = kernels_of(module); k != nullptr;
                  k = k->next) {
    if (strcmp(k->name, name) != 0) continue;
    CUfunc_st *f = &functions[std::to_string((uintptr_t)k)];

    f->kernel = k;
    *function = f;
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
  ON_STREAM(s)
  if (x == 0 || y != 1 || z != 1 || ty != 1 || tz != 1 ||
      tx > f->kernel->threads || shared > 48 << 10 ||
      s->device != current->device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const tfd_model_kernel *k = f->kernel;
  std::string args((const char *)parameters[0], k->bytes);

  if (!s->capturing) counts.launches++;
  put(s, [=] { launch(k, x, tx, args); });
  return CUDA_SUCCESS;
}

/* --- memory
 * ------------------------------------------------------------------------- */

/* The address sanitizer, where the program has it. */
extern "C" __attribute__((weak)) void __asan_poison_memory_region(const void *,
                                                                  size_t);

static CUresult take(CUdeviceptr *data, size_t bytes) {
  char *p = nullptr;

  if (posix_memalign((void **)&p, 512, bytes) != 0) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memset(p, 0xFF, bytes);
  memory[p] = bytes;
  if (tfd_race_memory != nullptr) tfd_race_memory(p, bytes, true);
  if (__asan_poison_memory_region != nullptr) {
    __asan_poison_memory_region(p, bytes);
  }
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
  ON_CONTEXT UNSAFE return take(data, bytes);
}

API cuMemFree(CUdeviceptr data) {
  ON_CONTEXT UNSAFE drain_all();
  give(data);
  return CUDA_SUCCESS;
}

static void refill(CUdeviceptr data, int byte) {
  memset((void *)data, byte, memory[(char *)data]);
}

/* A graph's memory keeps its place, and has values between its two nodes. */
API cuMemAllocAsync(CUdeviceptr *data, size_t bytes, CUstream s) {
  ON_STREAM(s) CUresult result = take(data, bytes);

  if (result != CUDA_SUCCESS || !s->capturing) return result;
  CUdeviceptr p = *data;

  s->capturing->to->memory.push_back(p);
  s->capturing->to->open.push_back(p);
  put(s, [=] { refill(p, 0xFF); });
  return CUDA_SUCCESS;
}

API cuMemFreeAsync(CUdeviceptr data, CUstream s) {
  ON_STREAM(s) if (!s->capturing) {
    put(s, [=] { give(data); });
    return CUDA_SUCCESS;
  }
  std::vector<CUdeviceptr> &open = s->capturing->to->open;
  size_t i = 0;

  while (i < open.size() && open[i] != data) i++;
  if (i == open.size()) {
    invalidate(s);
    return CUDA_ERROR_INVALID_VALUE;
  }
  open.erase(open.begin() + (long)i);
  put(s, [=] { refill(data, 0xFE); });
  return CUDA_SUCCESS;
}

API cuMemHostAlloc(void **data, size_t bytes, unsigned) {
  ON_CONTEXT UNSAFE *data = calloc(1, bytes);
  if (*data == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  pinned[(char *)*data] = bytes;
  return CUDA_SUCCESS;
}

API cuMemFreeHost(void *data) {
  BEGIN UNSAFE pinned.erase((char *)data);
  free(data);
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

/* With other memory than pinned the real one may wait for all that is on the
** stream: a copy that is begun as if it did not is a mistake. */
static CUresult check_pinned(const void *data, size_t bytes) {
  if (lies_in(pinned, (const char *)data, bytes)) return CUDA_SUCCESS;
  fprintf(stderr, "stand-in: an asynchronous copy of memory that is not "
                  "pinned\n");
  return CUDA_ERROR_INVALID_VALUE;
}

/* Read late: it must stay as it is until then. */
API cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
                      CUstream s) {
  ON_STREAM(s) CUresult result = check_pinned(from, bytes);

  if (result != CUDA_SUCCESS) return result;
  put(s, [=] { copy((void *)to, from, bytes, true, false); });
  return CUDA_SUCCESS;
}

/* What is read too early is plainly wrong. */
API cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream s) {
  ON_STREAM(s) CUresult result = check_pinned(to, bytes);

  if (result != CUDA_SUCCESS) return result;
  if (!s->capturing) memset(to, 0xFD, bytes);
  put(s, [=] { copy(to, (void *)from, bytes, false, true); });
  return CUDA_SUCCESS;
}

API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                      CUstream s) {
  ON_STREAM(s) if (!s->capturing) counts.launches++;
  put(s, [=] { copy((void *)to, (void *)from, bytes, true, true); });
  return CUDA_SUCCESS;
}

API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                      size_t bytes, CUstream s) {
  ON_STREAM(s)
  put(s, [=] { copy((void *)to, (void *)from, bytes, true, true); });
  return CUDA_SUCCESS;
}

/* --- streams and events
 * ----------------------------------------------------------------- */

API cuStreamCreate(CUstream *stream, unsigned) {
  ON_CONTEXT *stream = new CUstream_st{current->device, {}, nullptr, false};
  streams.push_back(*stream);
  if (mode_is("alone")) tfd_standin_run_alone();
  return !threads() || start_thread(run_stream, *stream)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
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

  if (s->capturing) captures--;
  drain(s);
  for (size_t i = 0; i < streams.size(); i++) {
    if (streams[i] == s) streams.erase(streams.begin() + (long)i);
  }
  if (!threads()) delete s;
  changed.notify_all();
  return CUDA_SUCCESS;
}

API cuStreamSynchronize(CUstream s) {
  ON_CONTEXT UNSAFE if (s->capturing) {
    invalidate(s);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  drain(s);
  return sticky[s->device];
}

API cuStreamWaitEvent(CUstream s, CUevent e, unsigned) {
  ON_STREAM(s) if (s->capturing) {
    invalidate(s);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (e->captured) return CUDA_ERROR_NOT_SUPPORTED; /* it would join */
  queue_work(s, {nullptr, e, e->recorded, nullptr});
  return CUDA_SUCCESS;
}

API cuEventCreate(CUevent *event, unsigned) {
  ON_CONTEXT *event = new CUevent_st{0, 0, false, current->device};
  return CUDA_SUCCESS;
}

API cuEventDestroy(CUevent e) {
  std::lock_guard<std::recursive_mutex> held(lock);

  drain_all();
  delete e;
  return CUDA_SUCCESS;
}

API cuEventRecord(CUevent e, CUstream s) {
  ON_STREAM(s) e->captured = s->capturing != nullptr;
  e->device = s->device;
  if (e->captured) return CUDA_SUCCESS;
  unsigned long number = ++e->recorded;

  put(s, [=] { e->passed = number; });
  return CUDA_SUCCESS;
}

/* Asking makes one piece of work somewhere go on. */
API cuEventQuery(CUevent e) {
  ON_CONTEXT UNSAFE if (e->captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (e->passed == e->recorded) return CUDA_SUCCESS;
  if (!threads()) step();
  if (sticky[here()] != CUDA_SUCCESS) return sticky[here()];
  return e->passed == e->recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* --- graphs
 * ----------------------------------------------------------------------- */

recorded::~recorded() {
  for (CUdeviceptr data : memory) give(data);
}

API cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode) {
  ON_CONTEXT if (s->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  s->capturing.reset(new capture{std::make_shared<recorded>(),
                                 std::this_thread::get_id(),
                                 mode == CU_STREAM_CAPTURE_MODE_GLOBAL, false});
  s->capturing->to->device = s->device;
  captures++;
  counts.captures++;
  return CUDA_SUCCESS;
}

API cuStreamEndCapture(CUstream s, CUgraph *graph) {
  std::lock_guard<std::recursive_mutex> held(lock);
  std::unique_ptr<capture> c = std::move(s->capturing);
  CUresult failure = CUDA_SUCCESS;

  *graph = nullptr;
  if (!c) return CUDA_ERROR_ILLEGAL_STATE;
  if (c->by != std::this_thread::get_id()) {
    c->invalid = true;
    s->capturing = std::move(c);
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  s->capturing = std::move(c); /* calls are counted as its own until here */
  failure = injected();
  c = std::move(s->capturing);
  captures--;
  if (failure != CUDA_SUCCESS) return failure;
  if (c->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (sticky[s->device] != CUDA_SUCCESS) return sticky[s->device];
  counts.captured += (long)c->to->nodes.size();
  *graph = new CUgraph_st{c->to};
  return CUDA_SUCCESS;
}

API cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long) {
  ON_CONTEXT *exec = new CUgraphExec_st{graph->what};
  return CUDA_SUCCESS;
}

API cuGraphDestroy(CUgraph graph) {
  std::lock_guard<std::recursive_mutex> held(lock);

  delete graph;
  return CUDA_SUCCESS;
}

API cuGraphExecDestroy(CUgraphExec exec) {
  std::lock_guard<std::recursive_mutex> held(lock);

  if (exec->what->under_way > 0 && sticky[exec->what->device] == CUDA_SUCCESS) {
    fault(CUDA_ERROR_INVALID_HANDLE, "a graph is destroyed that runs");
  }
  delete exec;
  return CUDA_SUCCESS;
}

/* Its nodes run one after the other, as other work of the stream does. */
API cuGraphLaunch(CUgraphExec exec, CUstream s) {
  ON_STREAM(s) std::shared_ptr<recorded> what = exec->what;

  if (s->capturing || what->device != s->device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  /* What it allocates must not be there yet. */
  if (what->launches++ > 0 && !what->open.empty()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  counts.graphs++;
  what->under_way++;
  for (size_t i = 0; i < what->nodes.size(); i++) {
    put(s, [what, i] { what->nodes[i](); });
  }
  put(s, [what] { what->under_way--; });
  return CUDA_SUCCESS;
}
