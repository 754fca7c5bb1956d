/* Who talks to MPI: one at a time. The thread does as long as nobody waits; who
** waits does it himself, and hears of what is done without being woken. */
#define _DEFAULT_SOURCE
#include <sched.h>
#include <time.h>

#include "comm/mpi/mpi.h"

enum {
  SPIN = 100,      /* turns without giving the core away, where all have one */
  QUICK = 200,     /* turns without a pause after something has moved */
  LONG = 4000,     /* likewise, when somebody waits; then pauses get longer */
  LOOK_AROUND = 16 /* turns between two looks at all groups */
};

bool tfd__mpi_step_all(bool *moving_p) {
  tfd__mpi_group *g = NULL;
  tfd__mpi_group **link = &tfd__mpi.groups;
  bool busy = false;

  tfd__lock(&tfd__mpi.lock);
  g = tfd__mpi.groups;
  tfd__unlock(&tfd__mpi.lock);
  while (g != NULL) {
    tfd__mpi_group *next = g->next; /* new ones come before the first */
    bool over = false;

    busy = tfd__mpi_step(g, moving_p) || busy;
    over = tfd__mpi_is_over(g);
    if (over) {
      tfd__lock(&tfd__mpi.lock);
      for (link = &tfd__mpi.groups; *link != g; link = &(*link)->next) continue;
      *link = next;
      tfd__unlock(&tfd__mpi.lock);
      tfd__mpi_group_free(g);
    }
    g = next;
  }
  return busy;
}

/* Data that somebody waits for take a whole core; other processes may be late,
** and threads that compute want the cores. */
void tfd__mpi_rest(int turn, bool moving, bool waited) {
  struct timespec t = {0, turn < LONG ? 50000 : 500000};

  if (waited && turn < SPIN && !tfd__mpi.crowded) {
    tfd__relax();
  } else if (turn < (waited ? LONG : QUICK) || (moving && waited)) {
    (void)sched_yield();
  } else {
    (void)nanosleep(&t, NULL);
  }
}

/* --- taking turns: the lock is held ------------------------------------------
 */

static bool is_over(const tfd__mpi_group *own, const tfd__mpi_work *w) {
  return w->stage == TFD_MPI_MOVED || own->error.code != TFD_OK;
}

static bool may_drive(void) {
  return tfd__mpi.is_for_all && !tfd__mpi.driven && !tfd__mpi.leaving;
}

/* Others take over: who waits or, for what else is under way, the thread. */
static void stop(void) {
  const tfd__mpi_group *g = tfd__mpi.groups;

  tfd__mpi.driven = false;
  if (tfd__mpi.callers > 0 || tfd__mpi.leaving) {
    tfd__cond_broadcast(&tfd__mpi.changed);
  }
  while (g != NULL && g->first == NULL && !g->tell && !g->closing) g = g->next;
  if (g != NULL || tfd__mpi.leaving) {
    tfd__mpi.more = true;
    tfd__cond_broadcast(&tfd__mpi.news);
  }
}

/* --- callers -----------------------------------------------------------------
 */

/* Some turns for one collective, most of which take one or two. */
static void drive_one(tfd__mpi_group *own, tfd__mpi_work *w) {
  bool moving = false;
  int i;

  for (i = 1; i < LOOK_AROUND; i++) {
    tfd__mpi_step_one(own, &moving);
    if (w->stage == TFD_MPI_MOVED) return;
    tfd__mpi_rest(w->turns++, moving, true);
  }
}

/* The lock is held, but not meanwhile. */
static void drive(tfd__mpi_group *own, tfd__mpi_work *w, tfd__deadline until,
                  bool alone) {
  tfd__mpi.driven = true;
  while (!is_over(own, w) && !tfd__mpi.leaving && tfd__now_ns() < until) {
    bool moving = false;

    tfd__unlock(&tfd__mpi.lock);
    if (alone) drive_one(own, w);
    if (w->stage != TFD_MPI_MOVED) {
      (void)tfd__mpi_step_all(&moving);
      if (w->stage != TFD_MPI_MOVED) tfd__mpi_rest(w->turns++, moving, true);
    }
    tfd__lock(&tfd__mpi.lock);
  }
  tfd__mpi.callers--;
  stop();
}

void tfd__mpi_drive(tfd__mpi_group *own, tfd__mpi_work *w,
                    tfd__deadline until) {
  tfd__mpi.callers++;
  while (!is_over(own, w) && tfd__now_ns() < until) {
    if (may_drive()) {
      drive(own, w, until, false);
      return;
    }
    (void)tfd__cond_wait(&tfd__mpi.changed, &tfd__mpi.lock, until);
  }
  tfd__mpi.callers--;
  if (!tfd__mpi.driven) stop();
}

void tfd__mpi_drive_now(tfd__mpi_group *own, tfd__mpi_work *w,
                        tfd__deadline until) {
  if (!may_drive()) return;
  tfd__mpi.callers++;
  drive(own, w, until, true);
}

/* --- the thread --------------------------------------------------------------
 */

void tfd__mpi_take(void) {
  while (tfd__mpi.driven ||
         (tfd__mpi.is_for_all && tfd__mpi.callers > 0 && !tfd__mpi.leaving)) {
    (void)tfd__cond_wait(&tfd__mpi.news, &tfd__mpi.lock, tfd__deadline_in(1));
  }
  tfd__mpi.driven = true;
}

void tfd__mpi_leave(void) {
  tfd__mpi.driven = false;
  if (tfd__mpi.callers > 0) tfd__cond_broadcast(&tfd__mpi.changed);
}
