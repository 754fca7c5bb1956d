/* Parking threads: a list of waiters, each with up to three targets. The list
** is as long as there are threads, so a wake-up scans it. */
#include "device/private.h"

/* Long enough to bridge the gap between two kernels, short against the 15 to
** 45 us that waking a parked thread costs. */
#define SPIN_NS 30000

typedef struct tfd__waiter {
  tfd__cond cond;
  const tfd__target *targets;
  struct tfd__waiter *prev;
  struct tfd__waiter *next;
} tfd__waiter;

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

/* Signal who waits for what `c` now shows; note the next value that matters. */
void tfd__board_wake(tfd__counter *c) {
  uint64_t next = UINT64_MAX;
  const tfd__waiter *w;
  int i;

  tfd__lock(&tfd__rt.board);
  for (w = tfd__rt.waiters; w != NULL; w = w->next) {
    for (i = 0; i < TFD_TARGETS; i++) {
      const tfd__target *t = &w->targets[i];

      if (t->counter != c) continue;
      if (atomic_load(&c->value) >= t->value) {
        tfd__cond_signal((tfd__cond *)&w->cond);
      } else if (t->value < next) {
        next = t->value;
      }
    }
  }
  atomic_store(&c->wake_at, next);
  tfd__unlock(&tfd__rt.board);
}

static void link_waiter(tfd__waiter *w) {
  int i;

  w->prev = NULL;
  w->next = tfd__rt.waiters;
  if (w->next != NULL) w->next->prev = w;
  tfd__rt.waiters = w;
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
    tfd__rt.waiters = w->next;
  }
  if (w->next != NULL) w->next->prev = w->prev;
}

static void park(const tfd__target targets[TFD_TARGETS], int weight,
                 tfd__deadline until) {
  tfd__waiter w = {.targets = targets};

  if (tfd__cond_init(&w.cond) != TFD_OK) {
    sched_yield(); /* the caller looks again */
    return;
  }
  atomic_fetch_sub(&tfd__rt.running, weight);
  tfd__lock(&tfd__rt.board);
  link_waiter(&w);
  while (!reached(targets)) {
    if (!tfd__cond_wait(&w.cond, &tfd__rt.board, until)) break;
  }
  unlink_waiter(&w);
  tfd__unlock(&tfd__rt.board);
  atomic_fetch_add(&tfd__rt.running, weight);
  tfd__cond_destroy(&w.cond);
}

/* Spinning beats a wake-up by a factor of 200 on a free core and costs a
** whole core's work on a busy one. */
static bool spin(const tfd__target targets[TFD_TARGETS]) {
  int64_t end = 0;
  int round;
  int i;

  for (round = 0; atomic_load(&tfd__rt.running) <= tfd__rt.cores; round++) {
    if (reached(targets)) return true;
    for (i = 0; i < 4; i++) tfd__relax();
    if (round % 16 != 15) continue;
    if (end == 0) end = tfd__now_ns() + SPIN_NS;
    if (tfd__now_ns() >= end) return false;
  }
  return reached(targets);
}

void tfd__board_wait(const tfd__target targets[TFD_TARGETS], int weight,
                     tfd__deadline until) {
  if (!spin(targets)) park(targets, weight, until);
}
