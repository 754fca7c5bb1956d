#ifndef TFD_BACKEND_CPU_REDUCE_H
#define TFD_BACKEND_CPU_REDUCE_H
/* Private to the reductions of the CPU back end. */

#include "backend/cpu/loops.h"

/* Elements gathered or converted at a time, and the longest run that is
** summed in float32. */
#define REDUCE_BLOCK 1024

/* Before a loop that looks for an extreme. Where clang cuts such a loop, the
** parts begin with the largest finite number, which is beyond an infinity. */
#if defined(__clang__)
#define TFD_EXTREME_LOOP(pragma)
#else
#define TFD_EXTREME_LOOP(pragma) _Pragma(pragma)
#endif

/* What is known about the elements seen so far; each reducer uses the fields
** its own way. */
typedef struct tfd__acc {
  double a;
  double b;
  int64_t i;
  int64_t n;
} tfd__acc;

typedef struct tfd__reducer {
  tfd__acc start; /* of no elements */
  /* n elements in the compute type, the first at position `at`. */
  void (*step)(tfd__acc *s, const void *x, int64_t n, int64_t at);
  /* Join t, which saw later elements. NULL: never cut into parts. */
  void (*merge)(tfd__acc *s, const tfd__acc *t);
  /* The result of n elements: exactly one of these. */
  double (*real)(const tfd__acc *s, int64_t n);
  int64_t (*whole)(const tfd__acc *s, int64_t n);
} tfd__reducer;

/* A view's axes split into kept and reduced ones, each list coalesced. */
typedef struct tfd__reduction {
  const char *data;
  size_t size;
  int dtype;
  int kept_n;
  int red_n;
  int64_t kept;    /* outputs */
  int64_t reduced; /* elements for each */
  int64_t kept_dims[TFD_MAX_RANK];
  int64_t kept_strides[TFD_MAX_RANK];
  int64_t red_dims[TFD_MAX_RANK];
  int64_t red_strides[TFD_MAX_RANK];
} tfd__reduction;

/* Bit d of `axes`: axis d is reduced. */
void tfd__reduction_plan(tfd__reduction *p, const tfd__view *in, unsigned axes);
/* The bits of an axis list attribute (checked); all axes when absent. */
unsigned tfd__reduction_axes(const tfd__view *in, const int64_t *list);
int64_t tfd__reduction_offset(int n, const int64_t *dims,
                              const int64_t *strides, int64_t index);
/* Element k of out; which of the values counts is up to the dtype. */
void tfd__reduction_store(const tfd__view *out, int64_t k, double real,
                          int64_t whole);

int tfd__reduce(const tfd__reduction *plan, const tfd__reducer *r,
                const tfd__view *out);

/* Sums, means (divide by n), maxima and minima down columns, floats only:
** kept elements are neighbours in memory and reduced ones are not. */
typedef enum tfd__column_op {
  TFD_COLUMN_SUM,
  TFD_COLUMN_MEAN,
  TFD_COLUMN_MAX,
  TFD_COLUMN_MIN
} tfd__column_op;
bool tfd__columns_suit(const tfd__reduction *plan);
int tfd__reduce_columns(const tfd__reduction *plan, tfd__column_op op,
                        const tfd__view *out);

#endif
