#ifndef TFD_BASE_THREAD_H
#define TFD_BASE_THREAD_H
/* L0 base: threads, ranked mutexes, conditions, deadlines, parallel loops.
**
** A mutex's rank is its layer number (architecture: L0..L9); debug builds
** (-DTFD_DEBUG) assert that a thread only locks downward, i.e. a rank lower
** than every rank it already holds. Every wait has a deadline and sits in a
** loop over its predicate. */

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/status.h"

typedef struct tfd__mutex {
  pthread_mutex_t m;
  int rank;
} tfd__mutex;

typedef struct tfd__cond {
  pthread_cond_t c; /* CLOCK_MONOTONIC */
} tfd__cond;

/* --- spin lock: a few dozen instructions under it, never a wait ---------- */

typedef struct tfd__spin {
  atomic_bool held;
} tfd__spin;

static inline void tfd__relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void tfd__spin_slow(tfd__spin *l);

static inline void tfd__spin_lock(tfd__spin *l) {
  if (atomic_exchange_explicit(&l->held, true, memory_order_acquire)) {
    tfd__spin_slow(l);
  }
}

static inline void tfd__spin_unlock(tfd__spin *l) {
  atomic_store_explicit(&l->held, false, memory_order_release);
}

/* -------------------------------------------------------------------------- */

/* Absolute CLOCK_MONOTONIC nanoseconds; TFD_FOREVER never passes. */
typedef int64_t tfd__deadline;
#define TFD_FOREVER INT64_MAX

int64_t tfd__now_ns(void);
tfd__deadline tfd__deadline_in(double seconds); /* <= 0 or inf: TFD_FOREVER */

int tfd__mutex_init(tfd__mutex *m, int rank);
void tfd__mutex_destroy(tfd__mutex *m);
void tfd__lock(tfd__mutex *m);
void tfd__unlock(tfd__mutex *m);

int tfd__cond_init(tfd__cond *c);
void tfd__cond_destroy(tfd__cond *c);
void tfd__cond_signal(tfd__cond *c);
void tfd__cond_broadcast(tfd__cond *c);
/* false when the deadline passed first; spurious wake-ups return true. */
bool tfd__cond_wait(tfd__cond *c, tfd__mutex *m, tfd__deadline until);

typedef pthread_t tfd__thread;
int tfd__thread_start(tfd__thread *t, const char *name, void (*fn)(void *),
                      void *arg);
void tfd__thread_join(tfd__thread t);

/* What a thread keeps for its next use: free_all() is called when it ends, but
** not for threads that outlive the library. `k` is a _Thread_local of zeros. */
typedef struct tfd__own_end {
  struct tfd__own_end *next;
  void (*free_all)(void);
  bool is_known;
} tfd__own_end;
void tfd__at_end(tfd__own_end *k, void (*free_all)(void));

/* CPU cores this process may use (affinity mask, cgroup quota, environment
** variable TFDIST_CORES); at least 1. */
int tfd__cores(void);
/* The cgroup v1 and v2 CPU quota in cores (2.5 = two and a half), 0 = none;
** `membership` is laid out like /proc/self/cgroup, `mount` like
** /sys/fs/cgroup. */
double tfd__cgroup_cores(const char *membership, const char *mount);
/* 512 with AVX-512 (F, BW, DQ, VL), 256 with AVX2 and FMA, else 0. */
int tfd__vector_bits(void);

/* Cores given to kernels run by the calling thread (OpenMP's per-thread
** setting; oneDNN obeys it too). n >= 1. */
void tfd__threads_set(int n);
int tfd__threads_get(void);
/* tfd__threads_set for threads whose setting nobody else changes; free when
** nothing changes. */
void tfd__use_threads(int n);

/* Call fn(arg, begin, end) over [0, n) in contiguous pieces of at least
** `grain`, on up to tfd__threads_get() threads; returns when all are done.
** fn must not fail and must not lock. The pieces depend on n, grain and the
** number of threads only; results must not depend on the cut. */
void tfd__parallel_for(int64_t n, int64_t grain,
                       void (*fn)(void *arg, int64_t begin, int64_t end),
                       void *arg);

/* Set by the host's signal handler; long waits poll it and fail with
** TFD_CANCELLED. Async-signal-safe. */
void tfd__interrupt_set(bool on);
bool tfd__interrupt_get(void);

#endif
