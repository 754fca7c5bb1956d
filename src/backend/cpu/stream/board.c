/* Parking threads: a list of waiters, each with up to three targets. The list
** is as long as there are threads, so a wake-up scans it.
**
** Each waiter sleeps on a semaphore of its own, posted after the board was
** unlocked: a thread woken through a condition would first run into the mutex
** that its waker still holds and sleep a second time. A late post must find
** its semaphore alive, so waiters are kept for the next parking thread and
** freed at the end; what it wakes looks at its targets and sleeps on. */
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>

#include "backend/cpu/stream/stream.h"

/* Long enough to bridge the gap between two kernels, short against the 15 to
** 45 us that waking a parked thread costs. */
#define SPIN_NS 30000

/* Woken outside the lock at once; more are woken under it. */
#define BATCH 8

typedef struct tfd__waiter {
  sem_t sem;
  const tfd__target *targets;
  struct tfd__waiter *prev;
  struct tfd__waiter *next;
} tfd__waiter;

tfd__board_state tfd__board;

void tfd__counter_init(tfd__counter *c) {
  atomic_init(&c->value, 0);
  atomic_init(&c->wake_at, UINT64_MAX);
}

static bool reached(const tfd__target targets[TFD_TARGETS]) {
  int i;

  for (i = 0; i < TFD_TARGETS; i++) {
    const tfd__target *t = &targets[i];

    if (t->counter != NULL && atomic_load(&t->counter->value) >= t->value) {
      return true;
    }
  }
  return false;
}

/* Does `w` wait for what `c` now shows? Otherwise lower *next_p to the value of
** `c` that it waits for. */
static bool concerned(const tfd__waiter *w, const tfd__counter *c,
                      uint64_t *next_p) {
  bool now = false;
  int i;

  for (i = 0; i < TFD_TARGETS; i++) {
    const tfd__target *t = &w->targets[i];

    if (t->counter != c) continue;
    if (atomic_load(&c->value) >= t->value) {
      now = true;
    } else if (t->value < *next_p) {
      *next_p = t->value;
    }
  }
  return now;
}

void tfd__board_wake(tfd__counter *c) {
  tfd__waiter *woken[BATCH];
  uint64_t next = UINT64_MAX;
  tfd__waiter *w = NULL;
  int n = 0;

  tfd__lock(&tfd__board.lock);
  for (w = tfd__board.waiters; w != NULL; w = w->next) {
    if (!concerned(w, c, &next)) continue;
    if (n < BATCH) {
      woken[n++] = w;
    } else {
      sem_post(&w->sem);
    }
  }
  atomic_store(&c->wake_at, next);
  tfd__unlock(&tfd__board.lock);
  while (n > 0) sem_post(&woken[--n]->sem);
}

static void link_waiter(tfd__waiter *w) {
  int i;

  w->prev = NULL;
  w->next = tfd__board.waiters;
  if (w->next != NULL) w->next->prev = w;
  tfd__board.waiters = w;
  for (i = 0; i < TFD_TARGETS; i++) {
    const tfd__target *t = &w->targets[i];

    if (t->counter != NULL && t->value < atomic_load(&t->counter->wake_at)) {
      atomic_store(&t->counter->wake_at, t->value);
    }
  }
}

static void unlink_waiter(tfd__waiter *w) {
  if (w->prev != NULL) {
    w->prev->next = w->next;
  } else {
    tfd__board.waiters = w->next;
  }
  if (w->next != NULL) w->next->prev = w->prev;
}

/* A waiter with a semaphore, or NULL. The board is locked. */
static tfd__waiter *take_waiter(void) {
  tfd__waiter *w = tfd__board.idle_waiters;

  if (w != NULL) {
    tfd__board.idle_waiters = w->next;
    return w;
  }
  w = tfd__calloc(1, sizeof *w);
  if (w != NULL && sem_init(&w->sem, 0, 0) != 0) {
    tfd__free(w);
    w = NULL;
  }
  return w;
}

void tfd__board_free(void) {
  tfd__waiter *w = tfd__board.idle_waiters;

  while (w != NULL) {
    tfd__waiter *next = w->next;

    sem_destroy(&w->sem);
    tfd__free(w);
    w = next;
  }
  tfd__board.idle_waiters = NULL;
}

/* False when `until` has passed. */
static bool sleep_on(sem_t *sem, tfd__deadline until) {
  struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                        .tv_nsec = (long)(until % 1000000000)};
  int rc = until == TFD_FOREVER ? sem_wait(sem)
                                : sem_clockwait(sem, CLOCK_MONOTONIC, &at);

  return rc == 0 || errno == EINTR;
}

static void park(const tfd__target targets[TFD_TARGETS], int weight,
                 tfd__deadline until) {
  tfd__waiter *w = NULL;

  tfd__lock(&tfd__board.lock);
  w = take_waiter();
  if (w == NULL) {
    tfd__unlock(&tfd__board.lock);
    sched_yield(); /* the caller looks again */
    return;
  }
  w->targets = targets;
  link_waiter(w);
  tfd__unlock(&tfd__board.lock);
  atomic_fetch_sub(&tfd__board.running, weight);
  while (!reached(targets) && sleep_on(&w->sem, until)) continue;
  atomic_fetch_add(&tfd__board.running, weight);
  tfd__lock(&tfd__board.lock);
  unlink_waiter(w);
  w->next = tfd__board.idle_waiters;
  tfd__board.idle_waiters = w;
  tfd__unlock(&tfd__board.lock);
}

/* Spinning beats a wake-up by a factor of 200 on a free core and costs a
** whole core's work on a busy one. */
static bool spin(const tfd__target targets[TFD_TARGETS]) {
  int64_t end = 0;
  int round;
  int i;

  for (round = 0; atomic_load(&tfd__board.running) <= tfd__board.cores;
       round++) {
    if (reached(targets)) return true;
    for (i = 0; i < 2; i++) tfd__relax();
    if (round % 64 != 15) continue;
    if (end == 0) end = tfd__now_ns() + SPIN_NS;
    if (tfd__now_ns() >= end) return false;
    sched_yield(); /* who we wait for may have been put on this core */
  }
  return reached(targets);
}

void tfd__board_wait(const tfd__target targets[TFD_TARGETS], int weight,
                     tfd__deadline until) {
  if (!spin(targets)) park(targets, weight, until);
}
