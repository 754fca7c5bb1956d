#ifndef TFD_AUTOGRAD_GRADSUM_H
#define TFD_AUTOGRAD_GRADSUM_H
/* Private to autograd: a value's gradient while it is being summed.
**
** A gradient is an owned tfd_object: a tensor, IndexedSlices, or (inside the
** walk only) a list of IndexedSlices that tfd__gradient_join makes one.
** Everything runs through tfd__run, so outer tapes see it. */

#include "autograd/tape.h"

bool tfd__gradient_is_dense(const tfd_object *grad);
/* *sum_p += grad; takes over `grad` in any case. *sum_p may be NULL. */
int tfd__gradient_add(tfd_object **sum_p, tfd_object *grad);
/* Make a list of slices one IndexedSlices. NULL is left alone. */
int tfd__gradient_join(tfd_object **grad_p);
/* Make it a tensor. NULL is left alone. */
int tfd__gradient_densify(tfd_object **grad_p);
/* Bring a tensor or slices to `device`. */
int tfd__gradient_to_device(tfd_object **grad_p, tfd_device *device);

#endif
