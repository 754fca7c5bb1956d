/* NCCL without GPUs: a collective is work on the streams of libcuda's stand-in.
** Each rank's piece is at the head of its stream when it comes to the
** collective; when all have come, the first computes for all. What goes wrong
** among real GPUs is told here: calls that differ between ranks, a communicator
** that is touched before it is ready, a GPU twice, memory that is none of a
** device, two threads inside NCCL at once. Sums go round the ring in the type's
** own precision; averages are sums of parts, as NCCL's are.
** TFD_STANDIN_NCCL, between commas:
**   hang=N    the N-th collective of a communicator (from 1) never ends
**   error=N   it ends its communicator with an error
**   issue=N   the call itself fails
**   late=N    it takes N looks more
**   connect=N communicators are ready after N looks (2); -1 = never
**   once=1    all this only for the first communicators that there are */
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "standin.h"

extern "C" {
const int tfd_standin = 1;
}

namespace {

long ids = 0; /* cliques of communicators so far */

/* --- what was ordered -------------------------------------------------------
 */

long ordered(const char *key, long otherwise) {
  const char *text = getenv("TFD_STANDIN_NCCL");
  size_t n = strlen(key);

  if (text != nullptr && ids > 1 && strstr(text, "once=1") != nullptr) {
    return otherwise;
  }
  while (text != nullptr) {
    if (strncmp(text, key, n) == 0 && text[n] == '=') return atol(text + n + 1);
    text = strchr(text, ',');
    if (text != nullptr) text++;
  }
  return otherwise;
}

thread_local std::string last_error;

ncclResult_t refuse(ncclResult_t result, const std::string &why) {
  last_error = why;
  return result;
}

/* --- communicators ----------------------------------------------------------
 */

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER };
const char *const kind_names[] = {"AllReduce", "Reduce", "Broadcast",
                                  "AllGather", "ReduceScatter"};

struct part {
  const void *in;
  void *out;
};

/* A collective of a clique: what all ranks must agree on, and what each has. */
struct meeting {
  kind what;
  size_t count;
  ncclDataType_t type;
  int op;
  int root;
  long number;
  std::vector<part> parts;
  std::vector<bool> begun; /* it was called */
  std::vector<bool> here;  /* its stream has come so far */
  long late;
  bool over = false;
};

struct clique {
  int ranks;
  std::vector<int> devices;
  std::map<long, std::shared_ptr<meeting>> meetings;
  int joined = 0;
  bool aborted = false;
  std::string wrong; /* why it has failed; "" = it has not */
};

std::map<std::string, std::shared_ptr<clique>> &cliques =
    *new std::map<std::string, std::shared_ptr<clique>>;
} // namespace

struct ncclComm {
  std::shared_ptr<clique> all;
  int rank;
  int device;
  long begun; /* collectives */
  long looks; /* until it is ready */
  bool busy;  /* not ready for more */
  bool finalized;
};

namespace {

struct call {
  ncclComm_t comm;
  kind what;
  part mine;
  size_t count;
  ncclDataType_t type;
  int op;
  int root;
  cudaStream_t stream;
};

thread_local int depth = 0;
thread_local std::vector<call> waiting;
thread_local std::vector<ncclComm_t> connecting;
std::atomic<int> inside{0};

/* One thread at a time is inside NCCL. */
struct entered {
  bool alone;
  entered() : alone(inside.fetch_add(1) == 0) {
    if (!alone) fprintf(stderr, "stand-in: two threads are inside NCCL\n");
  }
  ~entered() { inside.fetch_sub(1); }
};

size_t size_of(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclUint32:
  case ncclFloat32:
    return 4;
  default:
    return 8;
  }
}

/* --- arithmetic --------------------------------------------------------------
 */

template <typename T> struct wide { using type = T; };
template <> struct wide<__half> { using type = float; };
template <> struct wide<__nv_bfloat16> { using type = float; };

template <typename T> T combine(T a, T b, int op) {
  using W = typename wide<T>::type;
  W x = (W)a;
  W y = (W)b;

  switch (op) {
  case ncclProd:
    return (T)(W)(x * y);
  case ncclMax:
    return (T)(x > y ? x : y);
  case ncclMin:
    return (T)(x < y ? x : y);
  default:
    return (T)(W)(x + y);
  }
}

/* Element by element from rank `first` on round the ring. */
template <typename T>
void reduce_as(const meeting &m, size_t from, size_t n, T *to) {
  using W = typename wide<T>::type;
  size_t ranks = m.parts.size();
  std::vector<T> total(n);

  for (size_t i = 0; i < n; i++) {
    for (size_t r = 0; r < ranks; r++) {
      T x = ((const T *)m.parts[r].in)[from + i];

      if (m.op == ncclAvg) x = (T)(W)((W)x * (W)(T)(W)(1.0 / (double)ranks));
      total[i] = r == 0 ? x : combine<T>(total[i], x, m.op);
    }
  }
  if (n > 0) memcpy(to, total.data(), n * sizeof(T));
}

void reduce(const meeting &m, size_t from, size_t n, void *to) {
  switch (m.type) {
  case ncclInt8:
    return reduce_as<int8_t>(m, from, n, (int8_t *)to);
  case ncclUint8:
    return reduce_as<uint8_t>(m, from, n, (uint8_t *)to);
  case ncclInt32:
    return reduce_as<int32_t>(m, from, n, (int32_t *)to);
  case ncclUint32:
    return reduce_as<uint32_t>(m, from, n, (uint32_t *)to);
  case ncclInt64:
    return reduce_as<int64_t>(m, from, n, (int64_t *)to);
  case ncclUint64:
    return reduce_as<uint64_t>(m, from, n, (uint64_t *)to);
  case ncclFloat16:
    return reduce_as<__half>(m, from, n, (__half *)to);
  case ncclBfloat16:
    return reduce_as<__nv_bfloat16>(m, from, n, (__nv_bfloat16 *)to);
  case ncclFloat32:
    return reduce_as<float>(m, from, n, (float *)to);
  default:
    return reduce_as<double>(m, from, n, (double *)to);
  }
}

/* Results go out when all inputs have been read: they may be one memory. */
void compute(meeting &m) {
  size_t size = size_of(m.type);
  size_t ranks = m.parts.size();
  std::string all;

  switch (m.what) {
  case REDUCE:
  case ALL_REDUCE:
    all.resize(m.count * size);
    reduce(m, 0, m.count, &all[0]);
    break;
  case REDUCE_SCATTER:
    all.resize(m.count * size * ranks);
    reduce(m, 0, m.count * ranks, &all[0]);
    break;
  case BROADCAST:
    all.assign((const char *)m.parts[(size_t)m.root].in, m.count * size);
    break;
  case ALL_GATHER:
    for (const part &p : m.parts)
      all.append((const char *)p.in, m.count * size);
    break;
  }
  for (size_t r = 0; r < ranks; r++) {
    if (m.what == REDUCE && (int)r != m.root) continue;
    if (m.what == REDUCE_SCATTER) {
      memcpy(m.parts[r].out, &all[r * m.count * size], m.count * size);
    } else {
      memcpy(m.parts[r].out, all.data(), all.size());
    }
  }
}

/* --- work on streams ---------------------------------------------------------
 */

bool all_true(const std::vector<bool> &list) {
  return std::find(list.begin(), list.end(), false) == list.end();
}

/* Its stream has come to the collective. */
bool may_run(clique &all, meeting &m, size_t rank) {
  m.here[rank] = true;
  if (all.aborted || m.over) return true;
  if (!all_true(m.here)) return false;
  if (ordered("hang", 0) == m.number) return false;
  if (ordered("error", 0) == m.number) {
    all.wrong = "a GPU has failed (ordered)";
    return false;
  }
  return m.late-- <= 0;
}

void run(clique &all, meeting &m) {
  if (all.aborted || m.over) return;
  compute(m);
  m.over = true;
  all.meetings.erase(m.number);
}

bool differs(const meeting &m, const call &c) {
  return m.what != c.what || m.count != c.count || m.type != c.type ||
         m.op != c.op || m.root != c.root;
}

std::string told(kind what, size_t count, int type, int op, int root) {
  char text[96];

  snprintf(text, sizeof text, "%s of %zu, type %d, op %d, root %d",
           kind_names[what], count, type, op, root);
  return text;
}

size_t bytes_in(const call &c) {
  size_t n = c.count * size_of(c.type);

  if (c.what == REDUCE_SCATTER) n *= (size_t)c.comm->all->ranks;
  return n;
}

size_t bytes_out(const call &c) {
  size_t n = c.count * size_of(c.type);

  if (c.what == ALL_GATHER) n *= (size_t)c.comm->all->ranks;
  return n;
}

ncclResult_t check_memory(const call &c) {
  bool reads = c.what != BROADCAST || c.comm->rank == c.root;
  bool writes = c.what != REDUCE || c.comm->rank == c.root;

  if ((reads && !tfd_standin_is_device(c.mine.in, bytes_in(c))) ||
      (writes && !tfd_standin_is_device(c.mine.out, bytes_out(c)))) {
    return refuse(ncclInvalidArgument, "memory that is no device's");
  }
  return ncclSuccess;
}

ncclResult_t put(const call &c) {
  std::unique_lock<std::recursive_mutex> held = tfd_standin_lock();
  std::shared_ptr<clique> all = c.comm->all;
  long number = ++c.comm->begun;
  std::shared_ptr<meeting> &m = all->meetings[number];
  size_t rank = (size_t)c.comm->rank;

  if (ordered("issue", 0) == number) {
    return refuse(ncclInternalError, "the call has failed (ordered)");
  }
  if (m == nullptr) {
    m.reset(new meeting{c.what, c.count, c.type, c.op, c.root, number,
                        std::vector<part>((size_t)all->ranks),
                        std::vector<bool>((size_t)all->ranks),
                        std::vector<bool>((size_t)all->ranks),
                        ordered("late", 0)});
  }
  if (differs(*m, c)) {
    return refuse(
        ncclInvalidUsage,
        "ranks differ: " + told(m->what, m->count, m->type, m->op, m->root) +
            " and " + told(c.what, c.count, c.type, c.op, c.root));
  }
  m->parts[rank] = c.mine;
  m->begun[rank] = true;
  std::shared_ptr<meeting> kept = m;

  tfd_standin_enqueue((CUstream)c.stream, [all, kept] { run(*all, *kept); },
                      [all, kept, rank] { return may_run(*all, *kept, rank); });
  c.comm->busy = true;
  c.comm->looks = 1;
  return ncclSuccess;
}

/* --- groups of calls ---------------------------------------------------------
 */

ncclResult_t submit(const call &c) {
  if (c.comm == nullptr) return refuse(ncclInvalidArgument, "no communicator");
  if (c.comm->busy || c.comm->finalized) {
    return refuse(ncclInvalidUsage, "a communicator that is not ready");
  }
  if (c.comm->all->aborted) return refuse(ncclInvalidUsage, "it was aborted");
  if (tfd_standin_device_of((CUstream)c.stream) != c.comm->device) {
    return refuse(ncclInvalidUsage, "a stream of another device");
  }
  if (c.root < 0 || c.root >= c.comm->all->ranks) {
    return refuse(ncclInvalidArgument, "no such root");
  }
  ncclResult_t result = check_memory(c);

  if (result != ncclSuccess) return result;
  waiting.push_back(c);
  return ncclSuccess;
}

/* Who called once per rank in one group calls the same, in the same order. */
ncclResult_t flush() {
  std::vector<call> calls = std::move(waiting);
  std::vector<ncclComm_t> comms = std::move(connecting);
  ncclResult_t result = ncclSuccess;

  waiting.clear();
  connecting.clear();
  for (const call &c : calls) {
    if (result == ncclSuccess) result = put(c);
  }
  if (result != ncclSuccess) return result;
  return calls.empty() && comms.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t in_group(ncclResult_t result) {
  if (depth > 0 || result != ncclSuccess) {
    return result;
  }
  return flush();
}

} // namespace

#define API extern "C" __attribute__((visibility("default")))

API ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result) {
  switch (result) {
  case ncclSuccess:
    return "no error";
  case ncclInternalError:
    return "internal error";
  case ncclInvalidUsage:
    return "invalid usage";
  case ncclInvalidArgument:
    return "invalid argument";
  case ncclInProgress:
    return "in progress";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  default:
    return "unhandled error";
  }
}

API const char *ncclGetLastError(ncclComm_t comm) {
  if (comm != nullptr && !comm->all->wrong.empty()) {
    return comm->all->wrong.c_str();
  }
  return last_error.c_str();
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  std::unique_lock<std::recursive_mutex> held = tfd_standin_lock();

  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "stand-in %ld", ++ids);
  return ncclSuccess;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks,
                                        ncclUniqueId id, int rank,
                                        ncclConfig_t *config) {
  entered here;
  std::unique_lock<std::recursive_mutex> held = tfd_standin_lock();
  std::shared_ptr<clique> &all = cliques[id.internal];
  int device = tfd_standin_device();

  if (config == nullptr || config->blocking != 0) {
    return refuse(ncclInvalidUsage, "communicators must not block here");
  }
  if (device < 0) return refuse(ncclUnhandledCudaError, "no device is current");
  if (all == nullptr) {
    all.reset(new clique);
    all->ranks = ranks;
    all->devices.assign((size_t)ranks, -1);
  }
  if (rank < 0 || rank >= ranks || ranks != all->ranks) {
    return refuse(ncclInvalidArgument, "no such rank");
  }
  if (std::find(all->devices.begin(), all->devices.end(), device) !=
      all->devices.end()) {
    return refuse(ncclInvalidUsage, "Duplicate GPU detected");
  }
  all->devices[(size_t)rank] = device;
  all->joined++;
  *comm =
      new ncclComm{all, rank, device, 0, ordered("connect", 2), true, false};
  connecting.push_back(*comm);
  return depth > 0 ? ncclSuccess : flush();
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  entered here;
  std::unique_lock<std::recursive_mutex> held = tfd_standin_lock();

  if (!comm->all->wrong.empty()) {
    *state = ncclRemoteError;
    return ncclSuccess;
  }
  if (comm->busy && comm->all->joined == comm->all->ranks &&
      comm->looks-- == 0) {
    comm->busy = false;
  }
  *state = comm->busy ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  entered here;

  if (comm->finalized) return refuse(ncclInvalidArgument, "finalized twice");
  comm->finalized = true;
  return ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  entered here;

  if (!comm->finalized) fprintf(stderr, "stand-in: destroyed, not finalized\n");
  delete comm;
  return ncclSuccess;
}

/* What waits for peers goes on without results. */
API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock<std::recursive_mutex> held = tfd_standin_lock();

  comm->all->aborted = true;
  delete comm;
  return ncclSuccess;
}

API ncclResult_t ncclGroupStart() {
  depth++;
  return ncclSuccess;
}

API ncclResult_t ncclGroupEnd() {
  entered here;

  if (depth == 0) return refuse(ncclInvalidUsage, "no group");
  if (--depth > 0) return ncclSuccess;
  return flush();
}

API ncclResult_t ncclAllReduce(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, ALL_REDUCE, {in, out}, count, type, op, 0, stream}));
}

API ncclResult_t ncclReduce(const void *in, void *out, size_t count,
                            ncclDataType_t type, ncclRedOp_t op, int root,
                            ncclComm_t comm, cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, REDUCE, {in, out}, count, type, op, root, stream}));
}

API ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                               ncclDataType_t type, int root, ncclComm_t comm,
                               cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, BROADCAST, {in, out}, count, type, 0, root, stream}));
}

API ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, ALL_GATHER, {in, out}, count, type, 0, 0, stream}));
}

API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                                   ncclDataType_t type, ncclRedOp_t op,
                                   ncclComm_t comm, cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, REDUCE_SCATTER, {in, out}, count, type, op, 0, stream}));
}
