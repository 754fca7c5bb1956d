#ifndef TFD_BACKEND_CPU_NORM_H
#define TFD_BACKEND_CPU_NORM_H
/* Private to batchnorm.c and rownorm.c: shapes and jobs of normalisation. */

#include <math.h>
#include <string.h>

#include "backend/cpu/linalg/gemm.h"
#include "backend/lay.h"

typedef tfd__channels norm_shape;

/* Sums over outer and inner are made in this many parts at most, a number
** that does not depend on threads, and added up in double precision. */
#define NORM_PARTS 64

static inline int64_t norm_parts(int64_t outer) {
  return outer < NORM_PARTS ? outer : NORM_PARTS;
}

/* Channels whose sums are held together. */
#define NORM_BLOCK 64

#endif
