#ifndef TFD_BACKEND_BLOCKS_H
#define TFD_BACKEND_BLOCKS_H
/* L2 backend: calls that follow each other and do not mix rows, done for some
** rows at a time, so that what passes between them stays in a cache, on the
** processor. A plan is made once, never changed afterwards, and may be run by
** many threads at a time.
**
** Each array has its rows along axis 0 of its view here, or belongs to all
** rows. Memory that a call of the plan writes is met by the others in the same
** rows only. The calls cannot fail but for memory, take none of tfd__scratch,
** and give the same bits for some rows as for all (rows.h: EXACT).
**
** A call may add up all rows: its result is one row, which no other call of the
** plan takes. TFD_BLOCKS_SUM rows are added up first, whoever does them, then
** these sums in their order: so the bits are those of the call alone.
**
** A stream runs a plan as the kernel `row_blocks`: ints[0] is its address; the
** call's views are those of all its calls one after the other, of which only
** the data count. May include base, types. Specs: spec/graph/blocks_spec. */

#include "backend/backend.h"

enum { TFD_BLOCKS_CALLS = 32, TFD_BLOCKS_VIEWS = 160, TFD_BLOCKS_SUM = 64 };

typedef struct tfd__block_view {
  bool has_rows;
  int64_t pitch;  /* bytes from row to row */
  int64_t inside; /* only the plan's calls see it: where in a thread's own
                  ** memory it lies; -1 = it is the caller's */
} tfd__block_view;

typedef struct tfd__block_sum {
  int64_t width; /* elements of a row; 0 = the call does not add up rows */
  int64_t at;    /* among those of all such calls */
  bool mean;
} tfd__block_sum;

/* Its lists follow it in one piece of memory. */
typedef struct tfd__blocks {
  int calls_n;
  int views_n;
  int64_t rows;
  int64_t rows_each; /* at a time; with sums a divisor of TFD_BLOCKS_SUM that
                     ** is a multiple of four, or a multiple of it */
  int64_t sums_n;    /* elements of a row of all sums */
  size_t bytes;      /* of a thread's own memory */
  tfd__call *calls;
  tfd__view *views; /* of the calls, of all rows, without data */
  tfd__block_view *lies;
  tfd__block_sum *sums; /* of the calls */
} tfd__blocks;

#endif
