/* What all processes of a spec see: how many have come to which point of it,
** and how long the machine has run. Points put in order what must not overtake
** something else; bounds are of time in which the machine ran, so that one that
** stands still for a while fails nobody. */
#ifndef SPEC_COMM_SCENE_H
#define SPEC_COMM_SCENE_H

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/thread.h"

/* What counts of a pause of the clock. */
#define LONGEST_STEP_NS INT64_C(100000000)
enum { STEP_MS = 10, POINT_S = 60 };

typedef enum point {
  POINT_WORK = 0, /* the group is there, and has had its first sum */
  POINT_TOLD,     /* somebody was told what it is to hear */
  POINT_ENOUGH,   /* who goes on until then may end */
  POINTS
} point;

typedef struct scene {
  atomic_int came[POINTS];
  atomic_int_least64_t ran; /* ns */
  atomic_int_least64_t marked;
} scene;

/* A process of its own, for specs fork before they have threads. */
static inline void keep_time(scene *s, pid_t spec) {
  int64_t last = tfd__now_ns();

  while (getppid() == spec) {
    int64_t now = 0;
    int64_t step = 0;

    (void)poll(NULL, 0, STEP_MS);
    now = tfd__now_ns();
    step = now - last;
    s->ran += step < LONGEST_STEP_NS ? step : LONGEST_STEP_NS;
    last = now;
  }
}

/* Made by the first who asks, and the same in all its forks. */
static inline scene *the_scene(void) {
  static scene *made;
  pid_t spec = getpid();

  if (made != NULL) return made;
  made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) abort();
  if (fork() == 0) {
    keep_time(made, spec);
    _exit(0);
  }
  return made;
}

/* --- points ----------------------------------------------------------------
 */

/* Nobody has come anywhere. */
static inline void begin_scene(void) {
  int p;

  for (p = 0; p < POINTS; p++) the_scene()->came[p] = 0;
}

static inline void come_to(point p) {
  the_scene()->came[p]++;
}

static inline bool have_come(point p, int n) {
  return the_scene()->came[p] >= n;
}

/* Wait until n have; false when they do not come. */
static inline bool wait_for(point p, int n) {
  tfd__deadline until = tfd__deadline_in(POINT_S);

  while (!have_come(p, n) && tfd__now_ns() < until) (void)poll(NULL, 0, 1);
  return have_come(p, n);
}

static inline bool all_come_to(point p, int n) {
  come_to(p);
  return wait_for(p, n);
}

/* --- time ------------------------------------------------------------------
 */

static inline int64_t ran_by_now(void) {
  return the_scene()->ran;
}

static inline double ran_since(int64_t begin) {
  return (double)(ran_by_now() - begin) * 1e-9;
}

/* The moment from which others count. */
static inline void mark_moment(void) {
  the_scene()->marked = ran_by_now();
}

/* From the moment or `begin`, whichever came last. */
static inline double ran_since_both(int64_t begin) {
  int64_t marked = the_scene()->marked;

  return ran_since(begin > marked ? begin : marked);
}

static inline double ran_since_mark(void) {
  return ran_since(the_scene()->marked);
}

#endif
