/* NCCL without GPUs: a collective is work on the streams of libcuda's stand-in.
** A rank's stream that comes to one lays down what the rank gives, in memory
** that all ranks share; when all have come, each computes what it gets. Ranks
** may be of several processes: the unique id says where the memory is, a file
** of the process that made the id, which nothing is left of. What goes wrong
** among real GPUs is told here: calls that differ between ranks, a communicator
** that is touched before it is ready, a GPU twice (on one host, by
** NCCL_HOSTID), memory that is none of a device, two threads inside NCCL at
** once. Nobody is told that a process has ended or aborted: what waits for it
** waits. Sums go round the ring in the type's own precision; averages are sums
** of parts, as NCCL's are.
** TFD_STANDIN_NCCL, between commas:
**   hang=N    the N-th collective of a communicator (from 1) never ends
**   error=N   it ends its communicator with an error
**   spoil=N   the last rank's GPU is lost as it comes to it
**   issue=N   the call itself fails
**   late=N    it takes N looks more
**   connect=N communicators are ready after N looks (2); -1 = never
**   once=1    all this only for the first communicators that there are */
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <map>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "standin.h"

extern "C" {
const int tfd_standin = 1;
}

namespace {

long made = 0; /* cliques of communicators so far */

/* --- what was ordered -------------------------------------------------------
 */

long ordered(const char *key, long otherwise) {
  const char *text = getenv("TFD_STANDIN_NCCL");
  size_t n = strlen(key);

  if (text != nullptr && made > 1 && strstr(text, "once=1") != nullptr) {
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

/* --- what ranks share -------------------------------------------------------
 */

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER };
const char *const kind_names[] = {"AllReduce", "Reduce", "Broadcast",
                                  "AllGather", "ReduceScatter"};

/* What all ranks must call alike. */
struct signature {
  kind what;
  size_t count;
  ncclDataType_t type;
  int op;
  int root;
};

const int MOST = 64; /* ranks */
const size_t PIECE = 1 << 20;

/* Each is written by its rank alone. */
struct rank_state {
  std::atomic<long> process; /* 0 = it has not joined */
  std::atomic<size_t> gpu;   /* and its host */
  std::atomic<long> arrived; /* its stream has come to this collective, */
  std::atomic<long> done;    /* and has what it gets of this one */
  signature sig;             /* of the former */
};

struct table {
  std::atomic<int> ranks;
  rank_state rank[MOST];
};

/* What a rank gives lies in the file, too. */
off_t place_of(size_t rank) {
  return (off_t)(rank + 1) << 36;
}

struct clique {
  int ranks = 0;
  int file = -1;
  table *shared = nullptr;
  bool aborted = false;
  std::string wrong; /* why it has failed; "" = it has not */

  ~clique() {
    if (shared != nullptr) munmap(shared, sizeof *shared);
    if (file >= 0) close(file);
  }
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

struct part {
  const void *in;
  void *out;
};

struct call {
  ncclComm_t comm;
  signature sig;
  part mine;
  cudaStream_t stream;
};

/* A rank's collective under way. */
struct posted {
  std::shared_ptr<clique> all;
  size_t rank;
  long number;
  call c;
  long late;
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

size_t bytes_in(const call &c) {
  size_t n = c.sig.count * size_of(c.sig.type);

  if (c.sig.what == REDUCE_SCATTER) n *= (size_t)c.comm->all->ranks;
  return n;
}

size_t bytes_out(const call &c) {
  size_t n = c.sig.count * size_of(c.sig.type);

  if (c.sig.what == ALL_GATHER) n *= (size_t)c.comm->all->ranks;
  return n;
}

bool reads(const call &c) {
  return c.sig.what != BROADCAST || c.comm->rank == c.sig.root;
}

bool writes(const call &c) {
  return c.sig.what != REDUCE || c.comm->rank == c.sig.root;
}

/* --- arithmetic --------------------------------------------------------------
 */

template <typename T> struct wide { using type = T; };
template <> struct wide<__half> { using type = float; };
template <> struct wide<__nv_bfloat16> { using type = float; };

/* What sums and products are computed in: those of whole numbers wrap round. */
template <typename W, bool whole = std::is_integral<W>::value> struct ring {
  using type = W;
};
template <typename W> struct ring<W, true> {
  using type = typename std::make_unsigned<W>::type;
};

template <typename T> T combine(T a, T b, int op) {
  using W = typename wide<T>::type;
  using R = typename ring<W>::type;
  W x = (W)a;
  W y = (W)b;

  switch (op) {
  case ncclProd:
    return (T)(W)(R)((R)x * (R)y);
  case ncclMax:
    return (T)(x > y ? x : y);
  case ncclMin:
    return (T)(x < y ? x : y);
  default:
    return (T)(W)(R)((R)x + (R)y);
  }
}

/* Element by element from rank 0 on round the ring. */
template <typename T>
void reduce_as(const std::vector<std::string> &given, int op, T *to) {
  using W = typename wide<T>::type;
  size_t n = given[0].size() / sizeof(T);
  double ranks = (double)given.size();

  for (size_t i = 0; i < n; i++) {
    T total{};

    for (size_t r = 0; r < given.size(); r++) {
      T x = ((const T *)given[r].data())[i];

      if (op == ncclAvg) x = (T)(W)((W)x * (W)(T)(W)(1.0 / ranks));
      total = r == 0 ? x : combine<T>(total, x, op);
    }
    to[i] = total;
  }
}

void reduce(const std::vector<std::string> &given, const signature &s,
            void *to) {
  switch (s.type) {
  case ncclInt8:
    return reduce_as<int8_t>(given, s.op, (int8_t *)to);
  case ncclUint8:
    return reduce_as<uint8_t>(given, s.op, (uint8_t *)to);
  case ncclInt32:
    return reduce_as<int32_t>(given, s.op, (int32_t *)to);
  case ncclUint32:
    return reduce_as<uint32_t>(given, s.op, (uint32_t *)to);
  case ncclInt64:
    return reduce_as<int64_t>(given, s.op, (int64_t *)to);
  case ncclUint64:
    return reduce_as<uint64_t>(given, s.op, (uint64_t *)to);
  case ncclFloat16:
    return reduce_as<__half>(given, s.op, (__half *)to);
  case ncclBfloat16:
    return reduce_as<__nv_bfloat16>(given, s.op, (__nv_bfloat16 *)to);
  case ncclFloat32:
    return reduce_as<float>(given, s.op, (float *)to);
  default:
    return reduce_as<double>(given, s.op, (double *)to);
  }
}

/* --- memory that ranks share ------------------------------------------------
 */

void fail(clique &all, const std::string &why) {
  if (all.wrong.empty()) all.wrong = why;
}

void lay_down(posted &p) {
  const char *from = (const char *)p.c.mine.in;
  size_t n = reads(p.c) ? bytes_in(p.c) : 0;

  /* The address sanitizer's pwrite refuses what is a device's. */
  for (size_t at = 0; at < n;) {
    std::vector<char> piece(from + at, from + std::min(n, at + PIECE));
    ssize_t k = pwrite(p.all->file, piece.data(), piece.size(),
                       place_of(p.rank) + (off_t)at);

    if (k <= 0) return fail(*p.all, "no memory that ranks can share");
    at += (size_t)k;
  }
}

std::string taken(clique &all, size_t rank, size_t from, size_t n) {
  std::string bytes(n, '\0');

  for (size_t at = 0; at < n;) {
    ssize_t k = pread(all.file, &bytes[at], n - at,
                      place_of(rank) + (off_t)(from + at));

    if (k <= 0) break;
    at += (size_t)k;
  }
  return bytes;
}

void compute(posted &p) {
  const signature &s = p.c.sig;
  size_t n = s.count * size_of(s.type);
  size_t from = s.what == REDUCE_SCATTER ? p.rank * n : 0;
  std::vector<std::string> given;

  if (!writes(p.c) || n == 0) return;
  if (s.what == BROADCAST) {
    memcpy(p.c.mine.out, taken(*p.all, (size_t)s.root, 0, n).data(), n);
    return;
  }
  for (size_t r = 0; r < (size_t)p.all->ranks; r++) {
    given.push_back(taken(*p.all, r, from, n));
    if (s.what == ALL_GATHER) {
      memcpy((char *)p.c.mine.out + r * n, given[r].data(), n);
    }
  }
  if (s.what != ALL_GATHER) reduce(given, s, p.c.mine.out);
}

/* --- work on streams ---------------------------------------------------------
 */

bool differ(const signature &a, const signature &b) {
  return a.what != b.what || a.count != b.count || a.type != b.type ||
         a.op != b.op || a.root != b.root;
}

std::string told(const signature &s) {
  char text[96];

  snprintf(text, sizeof text, "%s of %zu, type %d, op %d, root %d",
           kind_names[s.what], s.count, s.type, s.op, s.root);
  return text;
}

/* All ranks have it where it was written. */
bool all_are(const clique &all, std::atomic<long> rank_state::*what,
             long number) {
  for (int r = 0; r < all.ranks; r++) {
    if ((all.shared->rank[r].*what).load() < number) return false;
  }
  return true;
}

/* What it gives takes the place of what all have taken. */
bool arrive(posted &p) {
  rank_state &mine = p.all->shared->rank[p.rank];

  if (mine.arrived.load() == p.number) return true;
  if (!all_are(*p.all, &rank_state::done, p.number - 1)) return false;
  lay_down(p);
  mine.sig = p.c.sig;
  mine.arrived.store(p.number);
  return true;
}

/* Its stream has come to the collective. */
bool may_run(posted &p) {
  clique &all = *p.all;

  if (all.aborted) return true;
  if (ordered("spoil", 0) == p.number && p.rank + 1 == (size_t)all.ranks) {
    tfd_standin_spoil(p.c.comm->device);
    return false;
  }
  if (!all.wrong.empty() || !arrive(p)) return false;
  if (!all_are(all, &rank_state::arrived, p.number)) return false;
  for (int r = 0; r < all.ranks; r++) {
    const signature &other = all.shared->rank[r].sig;

    if (!differ(other, p.c.sig)) continue;
    fail(all, "ranks differ: " + told(p.c.sig) + " and " + told(other));
    return false;
  }
  if (ordered("hang", 0) == p.number) return false;
  if (ordered("error", 0) == p.number) {
    fail(all, "a GPU has failed (ordered)");
    return false;
  }
  return p.late-- <= 0;
}

void run(posted &p) {
  if (p.all->aborted) return;
  compute(p);
  p.all->shared->rank[p.rank].done.store(p.number);
}

bool has_strangers(const clique &all) {
  for (int r = 0; r < all.ranks; r++) {
    if (all.shared->rank[r].process.load() != (long)getpid()) return true;
  }
  return false;
}

ncclResult_t check_memory(const call &c) {
  if ((reads(c) && !tfd_standin_is_device(c.mine.in, bytes_in(c))) ||
      (writes(c) && !tfd_standin_is_device(c.mine.out, bytes_out(c)))) {
    return refuse(ncclInvalidArgument, "memory that is no device's");
  }
  return ncclSuccess;
}

ncclResult_t put(const call &c) {
  std::unique_lock<std::recursive_mutex> held = tfd_standin_lock();
  std::shared_ptr<clique> all = c.comm->all;
  long number = ++c.comm->begun;
  std::shared_ptr<posted> p;

  if (ordered("issue", 0) == number) {
    return refuse(ncclInternalError, "the call has failed (ordered)");
  }
  p.reset(new posted{all, (size_t)c.comm->rank, number, c, ordered("late", 0)});
  tfd_standin_enqueue((CUstream)c.stream, [p] { run(*p); },
                      [p] { return may_run(*p); });
  if (has_strangers(*all)) tfd_standin_run_alone();
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
  if (c.sig.root < 0 || c.sig.root >= c.comm->all->ranks) {
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
  int file = memfd_create("nccl", MFD_CLOEXEC);

  memset(id, 0, sizeof *id);
  if (file < 0 || ftruncate(file, sizeof(table)) != 0) {
    return refuse(ncclSystemError, "no memory that ranks can share");
  }
  snprintf(id->internal, sizeof id->internal, "/proc/%ld/fd/%d", (long)getpid(),
           file);
  return ncclSuccess;
}

/* The communicators of an id in this process. */
static std::shared_ptr<clique> &clique_of(const ncclUniqueId &id, int ranks) {
  std::shared_ptr<clique> &all = cliques[id.internal];

  if (all != nullptr && all->shared != nullptr) return all;
  all.reset(new clique);
  all->file = open(id.internal, O_RDWR | O_CLOEXEC);
  all->ranks = ranks;
  if (all->file < 0) return all;
  void *at = mmap(nullptr, sizeof(table), PROT_READ | PROT_WRITE, MAP_SHARED,
                  all->file, 0);

  if (at != MAP_FAILED) all->shared = (table *)at;
  made++;
  return all;
}

/* What ranks of one communicator may have once. */
static size_t gpu_of(int device) {
  const char *host = getenv("NCCL_HOSTID");

  return std::hash<std::string>()(host == nullptr ? "" : host) +
         (size_t)tfd_standin_gpu(device);
}

static ncclResult_t join(clique &all, int rank, int ranks, size_t gpu) {
  int none = 0;

  if (all.shared == nullptr) return refuse(ncclRemoteError, "nobody is there");
  all.shared->ranks.compare_exchange_strong(none, ranks);
  if (rank < 0 || rank >= ranks || ranks != all.shared->ranks.load() ||
      ranks > MOST) {
    return refuse(ncclInvalidArgument, "no such rank");
  }
  for (int r = 0; r < ranks; r++) {
    rank_state &other = all.shared->rank[r];

    if (other.process.load() != 0 && other.gpu.load() == gpu) {
      return refuse(ncclInvalidUsage, "Duplicate GPU detected");
    }
  }
  all.shared->rank[rank].gpu.store(gpu);
  all.shared->rank[rank].process.store((long)getpid());
  return ncclSuccess;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks,
                                        ncclUniqueId id, int rank,
                                        ncclConfig_t *config) {
  entered here;
  std::unique_lock<std::recursive_mutex> held = tfd_standin_lock();
  int device = tfd_standin_device();

  if (config == nullptr || config->blocking != 0) {
    return refuse(ncclInvalidUsage, "communicators must not block here");
  }
  if (device < 0) return refuse(ncclUnhandledCudaError, "no device is current");
  std::shared_ptr<clique> &all = clique_of(id, ranks);
  ncclResult_t result = join(*all, rank, ranks, gpu_of(device));

  if (result != ncclSuccess) return result;
  *comm =
      new ncclComm{all, rank, device, 0, ordered("connect", 2), true, false};
  connecting.push_back(*comm);
  return depth > 0 ? ncclSuccess : flush();
}

static bool all_have_joined(const clique &all) {
  for (int r = 0; r < all.ranks; r++) {
    if (all.shared->rank[r].process.load() == 0) return false;
  }
  return true;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  entered here;
  std::unique_lock<std::recursive_mutex> held = tfd_standin_lock();

  if (!comm->all->wrong.empty()) {
    *state = ncclRemoteError;
    return ncclSuccess;
  }
  if (comm->busy && all_have_joined(*comm->all) && comm->looks-- == 0) {
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
      submit({comm, {ALL_REDUCE, count, type, op, 0}, {in, out}, stream}));
}

API ncclResult_t ncclReduce(const void *in, void *out, size_t count,
                            ncclDataType_t type, ncclRedOp_t op, int root,
                            ncclComm_t comm, cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, {REDUCE, count, type, op, root}, {in, out}, stream}));
}

API ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                               ncclDataType_t type, int root, ncclComm_t comm,
                               cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, {BROADCAST, count, type, 0, root}, {in, out}, stream}));
}

API ncclResult_t ncclAllGather(const void *in, void *out, size_t count,
                               ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, {ALL_GATHER, count, type, 0, 0}, {in, out}, stream}));
}

API ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count,
                                   ncclDataType_t type, ncclRedOp_t op,
                                   ncclComm_t comm, cudaStream_t stream) {
  entered here;

  return in_group(
      submit({comm, {REDUCE_SCATTER, count, type, op, 0}, {in, out}, stream}));
}
