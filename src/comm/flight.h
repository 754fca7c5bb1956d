#ifndef TFD_COMM_FLIGHT_H
#define TFD_COMM_FLIGHT_H
/* The flight recorder: the last collectives of this process, always kept, for
** the day on which one of many processes does not do as the others.
**
** A ring in memory. Where TFDIST_FLIGHT names a folder it is a file there
** ("process-1.flight"), which stays whatever ends the process. One file tells
** what a process did; held against those of the others (`tfdist flight`), where
** they part. Cost: a look at the clock and 96 bytes, for each collective of
** groups that have ranks of other processes. */

#include "comm/comm.h"

typedef enum tfd__flight_state {
  TFD_FLIGHT_NONE = 0,
  TFD_FLIGHT_BEGUN,
  TFD_FLIGHT_DONE,
  TFD_FLIGHT_FAILED
} tfd__flight_state;

/* This process is one of these. What cannot be had goes without a file. */
void tfd__flight_join(const tfd__network *network);
/* Where it is kept, for tfd__flight_end. */
uint64_t tfd__flight_begin(const tfd__group *g, const tfd__collective *c,
                           uint64_t number);
void tfd__flight_end(uint64_t at, tfd__flight_state state);
/* Why a group failed; the first cause stays. */
void tfd__flight_cause(const char *text);

#endif
