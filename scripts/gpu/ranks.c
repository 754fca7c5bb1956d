/* Does NCCL take two ranks on one GPU, of two processes whose NCCL_HOSTID tells
** it that they are on two hosts? They add up 1 MiB, or NCCL refuses: either is an
** answer. Wrong sums and what does not end are failures.
**
** usage: gpu_ranks [same]   same: of one host, which NCCL is known to refuse
** Prints "said: ANSWER". */
#include <errno.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/cuda/cuda.h"
#include "tfdist.h"

enum { COUNT = 1 << 18, ROUNDS = 20, SECONDS = 60, REFUSED = 10 };

static struct {
#define FUNCTION(name) __typeof__(&name) name;
#include "comm/nccl/nccl.def"
#undef FUNCTION
} nc;

typedef struct rank {
  int number;
  int ids[2]; /* a pipe: rank 0 writes NCCL's id */
  ncclComm_t comm;
  CUstream stream;
  CUevent event;
  float *numbers; /* pinned */
  CUdeviceptr device;
} rank;

#define CUDA(call, what) TFD_TRY(tfd__cuda_check(tfd__cu.call, what))

static int open_all(rank *r) {
  CUdevice device = 0;
  CUcontext context = NULL;
  void *library = NULL;
  void *numbers = NULL;

  TFD_TRY(tfd__cuda_library("libnccl.so.2", &library));
#define FUNCTION(name) TFD_TRY(tfd__cuda_symbol(library, #name, &nc.name));
#include "comm/nccl/nccl.def"
#undef FUNCTION
  TFD_TRY(tfd__cuda_open());
  CUDA(cuInit(0), "starting the driver");
  CUDA(cuDeviceGet(&device, 0), "finding the GPU");
  CUDA(cuDevicePrimaryCtxRetain(&context, device), "starting the GPU");
  CUDA(cuCtxSetCurrent(context), "the context");
  CUDA(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING), "a stream");
  CUDA(cuEventCreate(&r->event, CU_EVENT_DISABLE_TIMING), "an event");
  CUDA(cuMemHostAlloc(&numbers, COUNT * sizeof(float), 0), "pinned memory");
  CUDA(cuMemAlloc(&r->device, COUNT * sizeof(float)), "memory");
  r->numbers = numbers;
  return TFD_OK;
}

static void pause_a_little(void) {
  struct timespec nap = {.tv_nsec = 100000};

  nanosleep(&nap, NULL);
}

/* Until the stream has come here: SIGALRM ends what never does. */
static int settle(rank *r) {
  CUresult result;

  CUDA(cuEventRecord(r->event, r->stream), "waiting");
  while ((result = tfd__cu.cuEventQuery(r->event)) == CUDA_ERROR_NOT_READY) {
    pause_a_little();
  }
  return tfd__cuda_check(result, "waiting");
}

static int failure(const rank *r, ncclResult_t result, const char *what) {
  const char *more = nc.ncclGetLastError(r->comm);

  return tfd__fail(
      TFD_INTERNAL, "%s: %s%s%s", what, nc.ncclGetErrorString(result),
      more == NULL || more[0] == '\0' ? "" : ": ", more == NULL ? "" : more);
}

/* Of all errors only the one that it has for this is an answer. */
static int refusal(const rank *r, ncclResult_t result) {
  (void)failure(r, result, "NCCL refuses two ranks on one GPU");
  if (result != ncclInvalidUsage) return TFD_INTERNAL;
  printf("said: %s\n", tfd_error_message());
  fflush(stdout);
  _exit(REFUSED);
}

static ncclResult_t finished(const rank *r, ncclResult_t result) {
  while (result == ncclInProgress || result == ncclSuccess) {
    ncclResult_t state = ncclSuccess;

    result = nc.ncclCommGetAsyncError(r->comm, &state);
    if (result == ncclSuccess) result = state;
    if (result == ncclSuccess) break;
    if (result == ncclInProgress) pause_a_little();
  }
  return result;
}

static int connect_ranks(rank *r) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t result = ncclSuccess;
  ncclUniqueId id;

  config.blocking = 0;
  if (r->number == 0) {
    result = nc.ncclGetUniqueId(&id);
    if (result != ncclSuccess) return failure(r, result, "NCCL's id");
    if (write(r->ids[1], &id, sizeof id) != sizeof id) {
      return tfd__fail(TFD_INTERNAL, "telling the id: %s", strerror(errno));
    }
  } else if (read(r->ids[0], &id, sizeof id) != sizeof id) {
    return tfd__fail(TFD_INTERNAL, "rank 0 tells no id");
  }
  result = nc.ncclCommInitRankConfig(&r->comm, 2, id, r->number, &config);
  result = finished(r, result);
  return result == ncclSuccess ? TFD_OK : refusal(r, result);
}

static int sum(rank *r) {
  void *data = (void *)(uintptr_t)r->device;
  ncclResult_t result;
  int i;

  for (i = 0; i < COUNT; i++) r->numbers[i] = (float)(r->number + 1 + i % 7);
  CUDA(cuMemcpyHtoDAsync(r->device, r->numbers, COUNT * sizeof(float),
                         r->stream),
       "a copy");
  result = finished(r, nc.ncclAllReduce(data, data, COUNT, ncclFloat32, ncclSum,
                                        r->comm, r->stream));
  if (result != ncclSuccess) return failure(r, result, "a sum");
  TFD_TRY(settle(r));
  CUDA(cuMemcpyDtoHAsync(r->numbers, r->device, COUNT * sizeof(float),
                         r->stream),
       "a copy");
  TFD_TRY(settle(r));
  for (i = 0; i < COUNT; i++) {
    float want = (float)(3 + 2 * (i % 7));

    if (r->numbers[i] == want) continue;
    return tfd__fail(TFD_INTERNAL, "element %d of the sum is %g, expected %g",
                     i, (double)r->numbers[i], (double)want);
  }
  return TFD_OK;
}

static int run(rank *r) {
  int i;

  TFD_TRY(open_all(r));
  TFD_TRY(connect_ranks(r));
  for (i = 0; i < ROUNDS; i++) TFD_TRY(sum(r));
  if (r->number == 0) {
    printf("said: NCCL takes two ranks on one GPU: %d right sums of 1 MiB\n",
           ROUNDS);
    fflush(stdout);
  }
  return TFD_OK;
}

/* What NCCL is not to know of: the two are one machine. */
static void be_a_rank(rank *r, bool same) {
  (void)setenv("NCCL_HOSTID", same || r->number == 0 ? "first" : "second", 1);
  (void)setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  (void)setenv("NCCL_P2P_DISABLE", "1", 0);
  (void)setenv("NCCL_SHM_DISABLE", "1", 0);
  (void)setenv("NCCL_MAX_CTAS", "2", 0);
  (void)setenv("NCCL_RAS_ENABLE", "0", 0);
  (void)alarm(SECONDS);
  close(r->ids[r->number == 0 ? 0 : 1]);
  if (run(r) == TFD_OK) _exit(0);
  fprintf(stderr, "gpu_ranks: rank %d: %s\n", r->number, tfd_error_message());
  _exit(1);
}

/* The worse of both ends; who waits for one that has failed is ended. */
static int wait_for(const pid_t *ranks) {
  int code = 0;
  int i;

  for (i = 0; i < 2; i++) {
    int status = 0;
    pid_t ended = wait(&status);

    if (WIFSIGNALED(status) && code == 0) {
      fprintf(stderr,
              "gpu_ranks: rank %d: ended by signal %d (14: not done within "
              "%d s)\n",
              ended == ranks[1], WTERMSIG(status), SECONDS);
      code = 1;
    } else if (WIFEXITED(status) && code == 0) {
      code = WEXITSTATUS(status);
    }
    if (code != 0 && i == 0) (void)kill(ranks[ended == ranks[0]], SIGKILL);
  }
  return code;
}

int main(int argc, char **argv) {
  bool same = argc > 1 && strcmp(argv[1], "same") == 0;
  rank r = {0};
  pid_t ranks[2];
  int code;

  if (pipe(r.ids) != 0) return 1;
  for (; r.number < 2; r.number++) {
    ranks[r.number] = fork();
    if (ranks[r.number] < 0) return 1;
    if (ranks[r.number] == 0) be_a_rank(&r, same);
  }
  close(r.ids[0]);
  close(r.ids[1]);
  code = wait_for(ranks);
  return code == REFUSED ? 0 : code;
}
