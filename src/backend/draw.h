#ifndef TFD_BACKEND_DRAW_H
#define TFD_BACKEND_DRAW_H
/* L2 backend: what draws of random numbers have in common on every back end,
** so that all give the same. May include base, types. Specs: spec/c/rows,
** spec/c/backend_cuda_random. */

#include "types/types.h"

/* Where attributes lie: the op's `dims` take the first slots, the stream the
** next four. */
enum { TFD_LIST_AFTER = 1 + TFD_MAX_RANK, TFD_STREAM_SLOTS = 4 };

/* A uniform draw: low + u (high - low), at most `top`, of numbers that the
** type holds. `top` is the largest below high, or low where the range is empty.
*/
typedef struct tfd__uniform {
  double low;
  double high;
  double top;
} tfd__uniform;

tfd__uniform tfd__uniform_of(int dtype, double minval, double maxval);

/* Bits of a uniform draw: as many as the type's fraction has, or a value could
** round up to 1. Not for float64. */
int tfd__uniform_bits(int dtype);

#endif
