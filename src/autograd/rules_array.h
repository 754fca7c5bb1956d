#ifndef TFD_AUTOGRAD_RULES_ARRAY_H
#define TFD_AUTOGRAD_RULES_ARRAY_H
/* Private to the rules of the array ops. */

#include "autograd/autograd.h"

/* Fill list attribute `i` of an op whose attributes start with lists. */
void tfd__put_list(int64_t *ints, int i, const int64_t *values, int n);

/* A view of x that starts at `begin` along `axis`, `size` long. */
tfd_tensor *tfd__e_part(tfd__grad *g, tfd_tensor *x, int axis, int64_t begin,
                        int64_t size);

#endif
