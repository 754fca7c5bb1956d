#ifndef TFD_AUTOGRAD_ROUTED_H
#define TFD_AUTOGRAD_ROUTED_H
/* Private to autograd: what a walk knows of the gradient of a maximum.
**
** A max pool hands each element of `from` to one element of `to`, the gradient
** of its input. If that comes from a relu, the relu's gate may be closed on
** `from`, which is the smaller one: the gate is open at a maximum or at none of
** its taps. So `to` passes the relu as it is, and its sums for each channel are
** those of `from`, which a bias before the relu takes. Where the maximum is NaN
** nothing is handed on, but the gate is closed there, too. */

#include "autograd/tape.h"

typedef struct tfd__routed {
  tfd_tensor *from; /* owned, as is: */
  tfd_object *to;
  uint32_t relu; /* slot of the relu's result */
} tfd__routed;

/* Is this a max pool, channels last, of what the step before made by a relu? */
bool tfd__routed_may_begin(const tfd__entry *pool);
/* The rule of such a pool has given `to`, and g->routed. */
void tfd__routed_begin(tfd__routed *r, const tfd__entry *pool, tfd__grad *g);
/* Put what is known of the gradient that arrives at e into g; once another
** does, nothing is known any more. */
void tfd__routed_recall(tfd__routed *r, const tfd__entry *e,
                        tfd_object *const *grads, tfd__grad *g);
void tfd__routed_forget(tfd__routed *r);

#endif
