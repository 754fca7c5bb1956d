#ifndef TFD_SPEC_STREAMS_H
#define TFD_SPEC_STREAMS_H
/* Who runs what streams of libcuda's stand-in have taken, and when, for
** libcuda.cc. TFD_STANDIN_MODE: late = when the host waits or asks; serial = at
** once, by who gives it; alone = by a thread, while the host goes on; threads =
** by a thread of each stream, which lets go of the lock while a kernel runs, so
** that kernels of several streams, and the host, do so at the same time (not for
** kernels whose accesses are checked: race.cc knows one launch at a time). */
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture.h"

namespace {

/* Never destroyed: the library frees its devices after this file's objects. */
std::recursive_mutex &lock = *new std::recursive_mutex;
std::condition_variable_any &changed = *new std::condition_variable_any;
std::vector<CUstream> &streams = *new std::vector<CUstream>;
/* What went wrong there, for ever; [-1]: where no GPU is chosen. */
CUresult sticky_list[1 + 64];
CUresult *const sticky = sticky_list + 1;
thread_local int running = -1; /* the GPU whose work runs here */
unsigned order = 1;

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

bool mode_is(const char *name) {
  static const char *const text = getenv("TFD_STANDIN_MODE");

  return text != nullptr && strcmp(text, name) == 0;
}

/* Another name would be late, and say nothing. */
bool mode_is_known() {
  for (const char *name : {"late", "serial", "alone", "threads"}) {
    if (mode_is(name)) return true;
  }
  return getenv("TFD_STANDIN_MODE") == nullptr;
}

bool threads() {
  static const bool chosen = mode_is("threads");

  return chosen;
}

/* Others have the lock meanwhile, where streams have threads of their own. */
struct let_go {
  let_go() {
    if (threads()) lock.unlock();
  }
  ~let_go() {
    if (threads()) lock.lock();
  }
};

/* Run the stream's first piece of work; false when it cannot run yet. */
bool step_of(CUstream s) {
  if (s->queue.empty()) return false;
  work &w = s->queue.front();
  if (sticky[s->device] == CUDA_SUCCESS) { /* else nothing waits any more */
    if (w.after != nullptr && w.after->passed < w.recording &&
        sticky[w.after->device] == CUDA_SUCCESS) {
      return false;
    }
    if (w.ready && !w.ready()) return false;
  }
  std::function<void()> run = std::move(w.run);

  s->queue.pop_front();
  s->busy = true;
  running = s->device;
  if (run && sticky[running] == CUDA_SUCCESS) run();
  running = -1;
  s->busy = false;
  return true;
}

/* Run one piece of work of some stream; false when none can run. */
bool step() {
  size_t n = streams.size();
  size_t first = n == 0 ? 0 : next_random() % n;

  for (size_t i = 0; i < n; i++) {
    if (step_of(streams[(first + i) % n])) return true;
  }
  return false;
}

void queue_work(CUstream s, work w) {
  static const bool serial = mode_is("serial");

  s->queue.push_back(std::move(w));
  while (serial && step()) continue;
  changed.notify_all();
}

/* The lock is held once. What waits for others is asked again after a while. */
void wait_for_change() {
  changed.wait_for(lock, std::chrono::milliseconds(1));
}

/* A stream takes only so much at once. */
void wait_for_room(CUstream s) {
  static const size_t takes = (size_t)number_of("TFD_STANDIN_TAKES", 1024);

  while (s->queue.size() >= takes) {
    if (threads() || !step()) wait_for_change();
  }
}

void drain(CUstream s) {
  if (threads()) {
    while (!s->queue.empty() || s->busy) wait_for_change();
  } else {
    while (!s->queue.empty() && step()) continue;
  }
}

void drain_all() {
  for (size_t i = 0; i < streams.size(); i++) drain(streams[i]);
}

bool is_there(CUstream s) {
  for (CUstream other : streams) {
    if (other == s) return true;
  }
  return false;
}

/* The thread of one stream, which it lets go of when it was destroyed. */
void *run_stream(void *stream) {
  std::lock_guard<std::recursive_mutex> held(lock);
  CUstream s = (CUstream)stream;

  while (is_there(s)) {
    if (step_of(s)) {
      changed.notify_all();
    } else {
      wait_for_change();
    }
  }
  delete s;
  return nullptr;
}

/* All streams in one thread. Between looks others have the lock. */
void *run_alone(void *) {
  for (;;) {
    bool more = false;

    {
      std::lock_guard<std::recursive_mutex> held(lock);

      for (int i = 0; i < 64 && (more = step()); i++) continue;
    }
    if (more) {
      sched_yield();
    } else {
      usleep(200);
    }
  }
  return nullptr;
}

bool start_thread(void *(*run)(void *), void *arg) {
  pthread_t thread;

  if (pthread_create(&thread, nullptr, run, arg) != 0) return false;
  pthread_detach(thread);
  return true;
}

} // namespace

#endif
