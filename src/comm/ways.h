#ifndef TFD_COMM_WAYS_H
#define TFD_COMM_WAYS_H
/* Ways of adding up what P processes have, in steps in which each sends and
** gets at most once, and what they cost: pure arithmetic.
**
**   whole     all to all others, each adds up everything: one step
**   direct    share q to process q, its sum to all others: two steps
**   doubling  everything to one partner, whose distance doubles: log2 P steps
**   ring      shares go round, sums grow on the way: 2 (P - 1) steps
**   halving   half of what is left to one partner, whose distance halves, and
**             back (Rabenseifner): 2 log2 P steps
** Where P is no power of two, doubling and halving begin with processes that
** give all they have to a neighbour and end with its giving them the result.
**
** The order of additions is that of processes for whole and direct. For the
** others it depends on P and the way alone, and is the same on all processes;
** the lower of two partners' numbers comes first, on a ring what has come. */

#include "comm/schedule.h"

typedef enum tfd__way {
  TFD_WAY_AUTO = 0, /* the cheapest */
  TFD_WAY_WHOLE,
  TFD_WAY_DIRECT,
  TFD_WAY_DOUBLING,
  TFD_WAY_RING,
  TFD_WAY_HALVING,
  TFD_WAYS
} tfd__way;

const char *tfd__way_name(tfd__way way);
/* TFD_WAYS for what is no name of one. */
tfd__way tfd__way_named(const char *name);

/* --- steps ---------------------------------------------------------------- */

/* What one process does in one step. */
typedef struct tfd__step {
  int to;           /* process; -1 = nothing is sent */
  int from;         /* -1 = nothing comes */
  tfd__stretch out; /* elements that are sent, */
  tfd__stretch in;  /* and that come: */
  bool adds;        /* they are added to what is here, else they replace it; */
  bool first;       /* they stand before it in the sum */
} tfd__step;

/* Of doubling, ring and halving; 0 for other ways. */
int tfd__way_steps(tfd__way way, int processes);
tfd__step tfd__way_step(tfd__way way, int processes, int process, int step,
                        int64_t numel);

/* --- costs ---------------------------------------------------------------- */

/* Of one transport, in seconds. */
typedef struct tfd__costs {
  double step;    /* from the beginning of a step to the first byte's arrival */
  double message; /* more for each message that a process sends in it */
  double byte;    /* more for each byte that it sends */
  double sum;     /* for each byte that it adds up */
} tfd__costs;

/* NULL for a transport that has none. */
const tfd__costs *tfd__costs_of(const char *transport);
/* Until all have the sum of `bytes` from each. */
double tfd__way_cost(tfd__way way, const tfd__costs *c, int processes,
                     double bytes);
/* The same by hosts, of which each has as many processes as the others or one
** less: inside them, between their first ones, and back, each time in order. */
double tfd__hosts_cost(const tfd__costs *inside, const tfd__costs *between,
                       int processes, int hosts, double bytes);
/* In order between all of them, where those of one host share its wire. */
double tfd__flat_cost(const tfd__costs *between, int processes, int hosts,
                      double bytes);
/* The cheapest; `any`: sums may grow on the way, in any order. */
tfd__way tfd__way_best(const tfd__costs *c, int processes, double bytes,
                       bool any);

#endif
