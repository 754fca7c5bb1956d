#ifndef TFD_SPEC_CAPTURE_H
#define TFD_SPEC_CAPTURE_H
/* Streams of libcuda's stand-in, and captures of them, for libcuda.cc. In a
** capture nothing runs: what is put on the stream is a node of a graph, with
** its arguments as they are then; a launch runs the nodes in their order. What
** does not go with a capture ends it, as the driver has it. Not there: other
** streams that join one. Threads: the stand-ins' one lock is held. */
#include <cuda.h>

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <thread>
#include <vector>

struct CUevent_st {
  unsigned long recorded; /* times it was put on a stream */
  unsigned long passed;   /* the last of them that was reached */
  bool captured;          /* the last of them is a node of a graph */
  int device;             /* of the stream it was put on */
};

struct work {
  std::function<void()> run;
  CUevent after; /* wait for this recording first */
  unsigned long recording;
  std::function<bool()> ready; /* and for this */
};

/* What a capture recorded, in order. */
struct recorded {
  std::vector<std::function<void()>> nodes;
  std::vector<CUdeviceptr> memory; /* that it allocates */
  std::vector<CUdeviceptr> open;   /* and does not free */
  int device;
  long launches; /* so far */
  long under_way;
  ~recorded();
};

struct capture {
  std::shared_ptr<recorded> to;
  std::thread::id by;
  bool global;
  bool invalid;
};

struct CUgraph_st {
  std::shared_ptr<recorded> what;
};

struct CUgraphExec_st {
  std::shared_ptr<recorded> what;
};

struct CUstream_st {
  int device;
  std::deque<work> queue;
  std::unique_ptr<capture> capturing;
  bool busy; /* what was its first piece of work runs */
};

/* How much the driver was asked to do, for TFD_STANDIN_COUNTS. */
struct counted {
  long launches;
  long graphs;
  long captures;
  long captured;                 /* nodes */
  std::set<std::string> kernels; /* that ran */
};

inline void write_counts(const counted &c) {
  FILE *file = fopen(getenv("TFD_STANDIN_COUNTS"), "w");

  if (file == nullptr) return;
  fprintf(file, "%ld launches, %ld graphs, %ld captures of %ld\n", c.launches,
          c.graphs, c.captures, c.captured);
  for (const std::string &name : c.kernels) fprintf(file, "%s\n", name.c_str());
  fclose(file);
}

inline void invalidate(CUstream s) {
  s->capturing->invalid = true;
}

/* A call that a capture does not bear: those of other threads end the ones of
** mode global alone. */
inline CUresult unsafe(const std::vector<CUstream> &streams) {
  CUresult result = CUDA_SUCCESS;

  for (CUstream s : streams) {
    if (!s->capturing) continue;
    if (!s->capturing->global &&
        s->capturing->by != std::this_thread::get_id()) {
      continue;
    }
    invalidate(s);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

/* May something be put on the stream? */
inline CUresult usable(CUstream s) {
  if (!s->capturing) return CUDA_SUCCESS;
  if (s->capturing->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (s->capturing->by == std::this_thread::get_id()) return CUDA_SUCCESS;
  invalidate(s);
  return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

#endif
