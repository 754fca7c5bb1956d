#ifndef TFD_COMM_LOOKS_H
#define TFD_COMM_LOOKS_H
/* Whether a wait begins with looking or sleeps at once.
**
** Looking is as fast as it gets while what is waited for comes soon; where
** other programs want the cores, it takes time from the process that is waited
** for. So after two looks in vain a number of waits sleep at once; then one
** looks again, and while that is in vain the number doubles. Sleepers that wake
** each other come out of it: what wakes one is not far from the other's look.
** Where the processes are more than the cores, a look must give its core away,
** for the one it waits for may need it; what comes after a stranger has had the
** core for long counts as in vain.
*/

#include <stdbool.h>
#include <stdint.h>

/* Long enough for the others to come from the same step of a training, and no
** longer than two wake-ups take. */
#define TFD_LOOK_NS 50000

typedef struct tfd__looks {
  bool crowded; /* more processes than cores */
  int naps;     /* this many waits more sleep at once */
  int patience; /* so many they will be when looking helps no more */
  bool missed;  /* the last look was in vain */
} tfd__looks;

enum { TFD_NAPS = 4, TFD_MOST_NAPS = 64 };

/* Shall this wait look? */
static inline bool tfd__looks_may(tfd__looks *l) {
  if (l->naps == 0) return true;
  l->naps--;
  return false;
}

static inline void tfd__looks_tell(tfd__looks *l, bool found) {
  if (found) {
    l->missed = false;
    l->patience = TFD_NAPS;
    return;
  }
  if (l->missed) {
    if (l->patience < TFD_NAPS) l->patience = TFD_NAPS;
    l->naps = l->patience;
    if (l->patience < TFD_MOST_NAPS) l->patience *= 2;
  }
  l->missed = true;
}

#endif
