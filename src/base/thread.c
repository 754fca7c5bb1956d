/* For thread names. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* --- time ---------------------------------------------------------------- */

#define NS_PER_S INT64_C(1000000000)

int64_t tfd__now_ns(void) {
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

tfd__deadline tfd__deadline_in(double seconds) {
  /* Four centuries fit in the range; anything longer is for ever. NaN fails
  ** the first comparison. */
  if (!(seconds > 0) || seconds > 4e9) return TFD_FOREVER;
  return tfd__now_ns() + (int64_t)(seconds * (double)NS_PER_S);
}

/* --- mutexes -------------------------------------------------------------- */

#ifdef TFD_DEBUG
/* Ranks this thread holds, in locking order. */
static _Thread_local int held[16];
static _Thread_local int held_n;

static void rank_push(int rank) {
  if (held_n > 0 && rank >= held[held_n - 1]) {
    tfd__log(TFD_LOG_ERROR, "lock of rank %d taken while holding rank %d", rank,
             held[held_n - 1]);
    abort();
  }
  if (held_n == (int)(sizeof held / sizeof held[0])) abort();
  held[held_n++] = rank;
}

/* Unlocking need not be in reverse order. */
static void rank_pop(int rank) {
  int i = held_n - 1;

  while (i >= 0 && held[i] != rank) i--;
  if (i < 0) abort();
  for (held_n--; i < held_n; i++) held[i] = held[i + 1];
}
#else
static inline void rank_push(int rank) {
  (void)rank;
}
static inline void rank_pop(int rank) {
  (void)rank;
}
#endif

int tfd__mutex_init(tfd__mutex *m, int rank) {
  int rc = pthread_mutex_init(&m->m, NULL);

  m->rank = rank;
  if (rc == 0) return TFD_OK;
  return tfd__fail(TFD_RESOURCE_EXHAUSTED, "cannot make a mutex: %s",
                   strerror(rc));
}

void tfd__mutex_destroy(tfd__mutex *m) {
  pthread_mutex_destroy(&m->m);
}

void tfd__lock(tfd__mutex *m) {
  rank_push(m->rank);
  pthread_mutex_lock(&m->m);
}

void tfd__unlock(tfd__mutex *m) {
  pthread_mutex_unlock(&m->m);
  rank_pop(m->rank);
}

/* --- conditions ----------------------------------------------------------- */

int tfd__cond_init(tfd__cond *c) {
  pthread_condattr_t attr;
  int rc = pthread_condattr_init(&attr);

  if (rc == 0) {
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&c->c, &attr);
    pthread_condattr_destroy(&attr);
  }
  if (rc == 0) return TFD_OK;
  return tfd__fail(TFD_RESOURCE_EXHAUSTED, "cannot make a condition: %s",
                   strerror(rc));
}

void tfd__cond_destroy(tfd__cond *c) {
  pthread_cond_destroy(&c->c);
}

void tfd__cond_signal(tfd__cond *c) {
  pthread_cond_signal(&c->c);
}

void tfd__cond_broadcast(tfd__cond *c) {
  pthread_cond_broadcast(&c->c);
}

bool tfd__cond_wait(tfd__cond *c, tfd__mutex *m, tfd__deadline until) {
  struct timespec at;

  if (until == TFD_FOREVER) {
    pthread_cond_wait(&c->c, &m->m);
    return true;
  }
  if (until < 0) until = 0;
  at.tv_sec = (time_t)(until / NS_PER_S);
  at.tv_nsec = (long)(until % NS_PER_S);
  return pthread_cond_timedwait(&c->c, &m->m, &at) == 0;
}

/* --- threads -------------------------------------------------------------- */

typedef struct start {
  void (*fn)(void *);
  void *arg;
  char name[16]; /* the kernel's limit */
} start;

static void *thread_main(void *p) {
  start s = *(start *)p;

  tfd__free(p);
  pthread_setname_np(pthread_self(), s.name);
  s.fn(s.arg);
  return NULL;
}

/* What a thread does wrong itself: blocked, it would end the process before the
** host's handler can say what happened. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};

int tfd__thread_start(tfd__thread *t, const char *name, void (*fn)(void *),
                      void *arg) {
  start *s = tfd__alloc(sizeof *s);
  sigset_t all;
  sigset_t before;
  size_t i = 0;
  int rc = 0;

  if (s == NULL) return tfd__no_memory(sizeof *s, "a thread's start");
  s->fn = fn;
  s->arg = arg;
  (void)snprintf(s->name, sizeof s->name, "%s", name);
  /* Signals belong to the host's thread, which knows what to do with them. */
  sigfillset(&all);
  for (i = 0; i < sizeof faults / sizeof *faults; i++) {
    sigdelset(&all, faults[i]);
  }
  pthread_sigmask(SIG_SETMASK, &all, &before);
  rc = pthread_create(t, NULL, thread_main, s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (rc == 0) return TFD_OK;
  tfd__free(s);
  return tfd__fail(TFD_RESOURCE_EXHAUSTED, "cannot start thread \"%s\": %s",
                   name, strerror(rc));
}

void tfd__thread_join(tfd__thread t) {
  pthread_join(t, NULL);
}

void tfd__spin_slow(tfd__spin *l) {
  int tries = 0;

  do {
    while (atomic_load_explicit(&l->held, memory_order_relaxed)) {
      if (++tries < 64) {
        tfd__relax();
      } else {
        sched_yield(); /* the holder may need this core */
      }
    }
  } while (atomic_exchange_explicit(&l->held, true, memory_order_acquire));
}

/* --- parallel loops ------------------------------------------------------- */

/* The thread sanitizer does not see how OpenMP's threads wait for each other;
** these say it: what one did before `released` another sees after `acquired`
** at the same address. */
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define UNWATCHED __attribute__((no_sanitize_thread))
#define released(p) __tsan_release(p)
#define acquired(p) __tsan_acquire(p)
#else
#define UNWATCHED
#define released(p) ((void)(p))
#define acquired(p) ((void)(p))
#endif

/* What a thread that is tried out waits for. */
typedef struct trial {
  pthread_mutex_t m;
  pthread_cond_t c;
  bool over;
} trial;

static void *wait_for_end(void *p) {
  trial *t = p;

  pthread_mutex_lock(&t->m);
  while (!t->over) pthread_cond_wait(&t->c, &t->m);
  pthread_mutex_unlock(&t->m);
  return NULL;
}

/* How many of n threads can be there at once. */
static int try_threads(int n) {
  trial t = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
  pthread_t *threads = tfd__alloc((size_t)n * sizeof *threads);
  int made = 0, i, rc = 0;

  if (threads == NULL) return 0;
  while (made < n && rc == 0) {
    rc = pthread_create(&threads[made], NULL, wait_for_end, &t);
    if (rc == 0) made++;
  }
  pthread_mutex_lock(&t.m);
  t.over = true;
  pthread_cond_broadcast(&t.c);
  pthread_mutex_unlock(&t.m);
  for (i = 0; i < made; i++) pthread_join(threads[i], NULL);
  tfd__free(threads);
  return made;
}

/* libgomp ends the process when a thread of a team cannot be started. So the
** calling thread's team is tried out before it grows, and started at once: the
** C library still has the stacks. Costs some 50 us for each thread, once.
** Returns how many threads the team may have. */
static int grown_team(int n) {
  static _Thread_local int most = 1;
  static atomic_bool told = false;
  int can = n;

  if (n <= most) return n;
  can = 1 + try_threads(n - 1);
  if (can < n && !atomic_exchange(&told, true)) {
    tfd__log(TFD_LOG_WARNING,
             "no room for %d threads (memory, or the number of processes that "
             "one may have): kernels run on %d",
             n, can);
  }
  if (can <= most) return most;
#pragma omp parallel num_threads(can)
  {}
  most = can;
  return can;
}

void tfd__threads_set(int n) {
  omp_set_num_threads(n > 1 ? grown_team(n) : 1);
}

void tfd__use_threads(int n) {
  static _Thread_local int now = 0;

  if (TFD_LIKELY(now == n)) return;
  now = n;
  tfd__threads_set(n);
}

int tfd__threads_get(void) {
  return omp_get_max_threads();
}

/* Size of all pieces but the last. Long ones end on a multiple of 64 elements
** so that two threads share no cache line and tails stay out of the middle. */
static int64_t piece_size(int64_t n, int64_t grain, int64_t pieces) {
  int64_t size = n / pieces + (n % pieces != 0);

  if (grain >= 64 && size <= INT64_MAX - 63) size = (size + 63) / 64 * 64;
  return size;
}

typedef struct loop {
  void (*fn)(void *arg, int64_t begin, int64_t end);
  void *arg;
  int64_t n;
  int64_t size; /* of all pieces but the last */
  int64_t pieces;
} loop;

/* The whole team, though pieces may be fewer: libgomp ends the threads that a
** smaller one leaves out. It may come out smaller than asked for (a thread
** limit), hence a loop over the pieces instead of one piece for each thread.
** (Two addresses for the sanitizer: pieces come after the start, but not after
** each other.) */
UNWATCHED static void run_pieces(loop *l) {
  released(&l->fn);
#pragma omp parallel for schedule(static, 1)
  for (int64_t i = 0; i < l->pieces; i++) {
    acquired(&l->fn);
    l->fn(l->arg, i * l->size, i + 1 < l->pieces ? (i + 1) * l->size : l->n);
    released(&l->arg);
  }
  acquired(&l->arg);
}

void tfd__parallel_for(int64_t n, int64_t grain,
                       void (*fn)(void *arg, int64_t begin, int64_t end),
                       void *arg) {
  loop l = {.fn = fn, .arg = arg, .n = n, .pieces = 1};

  if (n <= 0) return;
  if (grain < 1) grain = 1;
  if (n > grain && !omp_in_parallel()) {
    l.pieces = tfd__threads_get();
    if (l.pieces > n / grain) l.pieces = n / grain;
  }
  if (l.pieces <= 1) {
    fn(arg, 0, n);
    return;
  }
  l.size = piece_size(n, grain, l.pieces);
  l.pieces = n / l.size + (n % l.size != 0);
  run_pieces(&l);
}

/* --- what threads keep ---------------------------------------------------- */

static struct {
  pthread_once_t once;
  pthread_key_t key; /* its values are lists of tfd__own_end */
  bool is_made;
} keeping = {.once = PTHREAD_ONCE_INIT};

/* What is freed may be kept again, in another list. */
static void thread_ends(void *list) {
  tfd__own_end *k = list;

  while (k != NULL) {
    tfd__own_end *next = k->next;

    k->is_known = false;
    k->free_all();
    k = next;
  }
}

static void make_key(void) {
  keeping.is_made = pthread_key_create(&keeping.key, thread_ends) == 0;
}

/* Runs after the device layer has joined its workers (its destructor has no
** priority and therefore comes first). Afterwards no thread may call code of
** an unloaded library at its end. */
__attribute__((destructor(101))) static void drop_key(void) {
  if (!keeping.is_made) return;
  thread_ends(pthread_getspecific(keeping.key));
  pthread_key_delete(keeping.key);
  keeping.is_made = false;
}

void tfd__at_end(tfd__own_end *k, void (*free_all)(void)) {
  if (TFD_LIKELY(k->is_known)) return;
  pthread_once(&keeping.once, make_key);
  if (!keeping.is_made) return;
  k->free_all = free_all;
  k->next = pthread_getspecific(keeping.key);
  k->is_known = pthread_setspecific(keeping.key, k) == 0;
}

/* --- interrupt ------------------------------------------------------------ */

/* Lock-free, so a signal handler may write it. */
static atomic_int interrupted;

void tfd__interrupt_set(bool on) {
  atomic_store_explicit(&interrupted, on ? 1 : 0, memory_order_relaxed);
}

bool tfd__interrupt_get(void) {
  return atomic_load_explicit(&interrupted, memory_order_relaxed) != 0;
}

void tfd_interrupt(bool on) {
  tfd__interrupt_set(on);
}

bool tfd_is_interrupted(void) {
  return tfd__interrupt_get();
}
