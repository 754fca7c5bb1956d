/* Counters of rounds and waiting for them.
**
** Who waits looks for a while and then sleeps on its own bell. Who publishes
** rings the bells of those that sleep: either it sees `asleep`, or the sleeper,
** who looks once more after setting it, sees the counter. Without sleepers
** there are no system calls.
** Where other programs want the cores, looking takes time from the process that
** is waited for: each wait that has to sleep halves the time of the next look,
** each that need not doubles it. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/shm/shm.h"

#define LONGEST_SLEEP_NS 20000000

#define SHORTEST_LOOK_NS 1000

/* Looks between two looks at the clock. */
enum { LOOKS = 32 };

static void ring(tfd__cell *cell) {
  atomic_fetch_add(&cell->bell, 1);
  (void)syscall(SYS_futex, &cell->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void tfd__tally_ring(tfd__tally *t) {
  ring(&t->cells[t->process]);
}

void tfd__tally_publish(tfd__tally *t, tfd__mark mark, uint64_t round) {
  int p;

  atomic_store(&t->cells[t->process].marks[mark], round);
  for (p = 0; p < t->processes; p++) {
    if (p != t->process && atomic_load(&t->cells[p].asleep) != 0) {
      ring(&t->cells[p]);
    }
  }
}

bool tfd__tally_reached(const tfd__tally *t, tfd__mark mark, uint64_t round,
                        int *late_p) {
  int p;

  for (p = 0; p < t->processes; p++) {
    if (p == t->process || atomic_load(&t->cells[p].marks[mark]) >= round) {
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

/* Look for a while. */
static bool look(tfd__tally *t, tfd__mark mark, uint64_t round, int64_t now) {
  int64_t until = now + t->spin;
  int i;

  for (; now < until; now = tfd__now_ns()) {
    for (i = 0; i < LOOKS; i++) {
      if (tfd__tally_reached(t, mark, round, NULL)) {
        t->spin = 2 * t->spin < t->most ? 2 * t->spin : t->most;
        return true;
      }
      tfd__relax();
    }
  }
  t->spin /= 2;
  if (t->spin < SHORTEST_LOOK_NS && t->most > 0) t->spin = SHORTEST_LOOK_NS;
  return false;
}

bool tfd__tally_wait(tfd__tally *t, tfd__mark mark, uint64_t round,
                     tfd__deadline until) {
  tfd__cell *mine = &t->cells[t->process];
  int64_t now = 0;
  unsigned seen = 0;

  if (tfd__tally_reached(t, mark, round, NULL)) return true;
  now = tfd__now_ns();
  if (until - now > LONGEST_SLEEP_NS) until = now + LONGEST_SLEEP_NS;
  if (look(t, mark, round, now)) return true;
  seen = atomic_load(&mine->bell);
  atomic_store(&mine->asleep, 1);
  if (!tfd__tally_reached(t, mark, round, NULL)) {
    sleep_on(mine, seen, until - tfd__now_ns());
  }
  atomic_store(&mine->asleep, 0);
  return tfd__tally_reached(t, mark, round, NULL);
}
