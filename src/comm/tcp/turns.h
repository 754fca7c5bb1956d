#ifndef TFD_COMM_TCP_TURNS_H
#define TFD_COMM_TCP_TURNS_H
/* Whose turn it is among collectives that move on when somebody waits.
**
** Those of a group move in the order in which they were begun, so that all
** processes send the same frames in the same order, whatever they wait for
** first. Whoever waits in vain moves on other groups' too: their processes may
** wait there for this one, and this one here for them. */

#include "comm/private.h"

typedef struct tfd__turn tfd__turn;

struct tfd__turn {
  tfd__group *group; /* borrowed */
  /* As far as it goes until then; *done_p when it is at its end. */
  int (*move)(tfd__turn *turn, tfd__deadline until, bool *done_p);
  /* The rest is turns.c's. */
  tfd__turn *next;
  uint64_t round;
  bool busy; /* somebody moves it on */
  bool over; /* done, or `error` says why not */
  tfd__error error;
};

void tfd__turn_begin(tfd__turn *turn, tfd__group *group,
                     int (*move)(tfd__turn *, tfd__deadline, bool *));
/* Errors: what move has failed with, for whomever it did. */
int tfd__turn_wait(tfd__turn *turn, tfd__deadline until, bool *done_p);
/* As tend of providers whose collectives take turns. */
bool tfd__turns_tend(void);
/* Nobody moves it any more. */
void tfd__turn_end(tfd__turn *turn);

#endif
