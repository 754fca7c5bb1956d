/* Counters of rounds and waiting for them.
**
** Who waits looks for a while and then sleeps on its own bell. Who publishes
** rings the bells of those that sleep: either it sees `asleep`, or the sleeper,
** who looks once more after setting it, sees the counter. Without sleepers
** there are no system calls.
*/
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/shm/shm.h"

#define LONGEST_SLEEP_NS 20000000

/* Looks between two looks at the clock. */
enum { LOOKS = 32 };

static void ring(tfd__cell *cell) {
  atomic_fetch_add(&cell->bell, 1);
  (void)syscall(SYS_futex, &cell->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void tfd__tally_ring(tfd__tally *t) {
  ring(&t->cells[t->process]);
}

static atomic_uint_least64_t *mark_of(const tfd__tally *t, int p,
                                      tfd__mark mark, uint64_t round) {
  tfd__cell *cell = &t->cells[p];

  if (mark == TFD_MARK_STAGED) return &cell->briefs[round % TFD_DEPTH].round;
  return &cell->marks[mark];
}

void tfd__tally_set(tfd__tally *t, tfd__mark mark, uint64_t round) {
  atomic_store_explicit(mark_of(t, t->process, mark, round), round,
                        memory_order_release);
}

void tfd__tally_sweep(tfd__tally *t) {
  int p;

  /* What was set is seen by who is not asleep yet. */
  atomic_thread_fence(memory_order_seq_cst);
  for (p = 0; p < t->processes; p++) {
    if (p != t->process &&
        atomic_load_explicit(&t->cells[p].asleep, memory_order_relaxed) != 0) {
      ring(&t->cells[p]);
    }
  }
}

void tfd__tally_publish(tfd__tally *t, tfd__mark mark, uint64_t round) {
  tfd__tally_set(t, mark, round);
  tfd__tally_sweep(t);
}

bool tfd__tally_reached(const tfd__tally *t, tfd__mark mark, uint64_t round,
                        int *late_p) {
  int p;

  for (p = 0; p < t->processes; p++) {
    if (p == t->process ||
        atomic_load_explicit(mark_of(t, p, mark, round),
                             memory_order_acquire) >= round) {
      continue;
    }
    if (late_p != NULL) *late_p = p;
    return false;
  }
  return true;
}

/* Until the bell changes from `seen`, or for `ns`. */
static void sleep_on(tfd__cell *cell, unsigned seen, int64_t ns) {
  struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

  if (ns <= 0) return;
  (void)syscall(SYS_futex, &cell->bell, FUTEX_WAIT, seen, &t, NULL, 0);
}

static bool glance(const tfd__tally *t, tfd__mark mark, uint64_t round) {
  int i;

  /* One look: who gives its core away after each has waited enough. */
  if (t->looks.crowded) return tfd__tally_reached(t, mark, round, NULL);
  for (i = 0; i < LOOKS; i++) {
    if (tfd__tally_reached(t, mark, round, NULL)) return true;
    tfd__relax();
  }
  return false;
}

/* Look for a while, if that is how waits go. */
static bool look(tfd__tally *t, tfd__mark mark, uint64_t round) {
  bool found = false;
  int64_t now = 0;
  int64_t until = 0;

  if (!tfd__looks_may(&t->looks)) return false;
  now = tfd__now_ns();
  until = now + TFD_LOOK_NS;
  while (!found && now < until) {
    if (t->looks.crowded) (void)sched_yield();
    found = glance(t, mark, round);
    now = tfd__now_ns();
  }
  tfd__looks_tell(&t->looks, found && now < until);
  return found;
}

bool tfd__tally_soon(tfd__tally *t, tfd__mark mark, uint64_t round) {
  if (glance(t, mark, round)) return true;
  tfd__tally_sweep(t);
  return look(t, mark, round);
}

bool tfd__tally_wait(tfd__tally *t, tfd__mark mark, uint64_t round,
                     tfd__deadline until) {
  tfd__cell *mine = &t->cells[t->process];
  int64_t now = 0;
  unsigned seen = 0;

  if (tfd__tally_reached(t, mark, round, NULL)) return true;
  if (look(t, mark, round)) return true;
  now = tfd__now_ns();
  if (until - now > LONGEST_SLEEP_NS) until = now + LONGEST_SLEEP_NS;
  seen = atomic_load(&mine->bell);
  atomic_store_explicit(&mine->asleep, 1, memory_order_relaxed);
  /* With the fence of a sweep: it sees who sleeps, or who sleeps its mark. */
  atomic_thread_fence(memory_order_seq_cst);
  if (!tfd__tally_reached(t, mark, round, NULL)) {
    sleep_on(mine, seen, until - now);
  }
  atomic_store(&mine->asleep, 0);
  return tfd__tally_reached(t, mark, round, NULL);
}
