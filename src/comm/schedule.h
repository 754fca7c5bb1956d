#ifndef TFD_COMM_SCHEDULE_H
#define TFD_COMM_SCHEDULE_H
/* Who does what, in which order: pure arithmetic, no memory
** and no devices. */

#include "comm/comm.h"

/* --- shares of one run of elements ---------------------------------------- */

typedef struct tfd__stretch {
  int64_t begin;
  int64_t end;
} tfd__stretch;

/* Fewer elements than this are not worth a share for each device. */
#define TFD_SHARED_ELEMENTS 8192
/* Shares end at multiples of this: devices write no common cache line. */
#define TFD_STRETCH 64

/* Share d of n of `numel` elements. Shares are in order, cover everything once,
** and are equal but for the last ones. */
tfd__stretch tfd__stretch_of(int64_t numel, int n, int d);

/* --- packs ---------------------------------------------------------------- */

/* How many packs n values of these sizes give. */
int tfd__packs(const tfd__pack_plan *plan, const int64_t *sizes, int n,
               int64_t element_bytes);
/* Their lengths; `sizes` are in the order in which the values are packed, and
** so they are for tfd__packs. Lengths add up to the sizes' sum. */
void tfd__pack_lengths(const tfd__pack_plan *plan, const int64_t *sizes, int n,
                       int64_t element_bytes, int64_t *lengths);

#endif
