/* Counters of rounds and waiting for them.
**
** Who waits looks for a while and then sleeps on its own bell. Who publishes
** rings the bells of those that sleep: either it sees `asleep`, or the sleeper,
** who looks once more after setting it, sees the counter. Without sleepers
** there are no system calls. */
#define _GNU_SOURCE
#include <linux/futex.h>
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

void tfd__tally_ring(tfd__tally *b) {
  ring(&b->cells[b->process]);
}

void tfd__tally_publish(tfd__tally *b, tfd__mark mark, uint64_t round) {
  int p;

  atomic_store(&b->cells[b->process].marks[mark], round);
  for (p = 0; p < b->processes; p++) {
    if (p != b->process && atomic_load(&b->cells[p].asleep) != 0) {
      ring(&b->cells[p]);
    }
  }
}

bool tfd__tally_reached(const tfd__tally *b, tfd__mark mark, uint64_t round,
                        int *late_p) {
  int p;

  for (p = 0; p < b->processes; p++) {
    if (p == b->process || atomic_load(&b->cells[p].marks[mark]) >= round) {
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

bool tfd__tally_wait(tfd__tally *b, tfd__mark mark, uint64_t round,
                     tfd__deadline until) {
  tfd__cell *mine = &b->cells[b->process];
  int64_t now = 0;
  int64_t spin_until = 0;
  unsigned seen = 0;
  int i;

  if (tfd__tally_reached(b, mark, round, NULL)) return true;
  now = tfd__now_ns();
  if (until - now > LONGEST_SLEEP_NS) until = now + LONGEST_SLEEP_NS;
  for (spin_until = now + b->spin; now < spin_until; now = tfd__now_ns()) {
    for (i = 0; i < LOOKS; i++) {
      if (tfd__tally_reached(b, mark, round, NULL)) return true;
      tfd__relax();
    }
  }
  seen = atomic_load(&mine->bell);
  atomic_store(&mine->asleep, 1);
  if (!tfd__tally_reached(b, mark, round, NULL)) {
    sleep_on(mine, seen, until - tfd__now_ns());
  }
  atomic_store(&mine->asleep, 0);
  return tfd__tally_reached(b, mark, round, NULL);
}
