#ifndef TFD_OPS_INFER_ARRAY_H
#define TFD_OPS_INFER_ARRAY_H
/* Private to the inference of array ops. */

#include "ops/ops.h"

/* A list attribute must have one entry for each axis of input 0. */
int tfd__check_per_axis(tfd__infer *s, const char *what, int n);
/* Input 0 must have rank 2 or more. */
int tfd__check_matrix(tfd__infer *s);

#endif
