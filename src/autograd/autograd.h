#ifndef TFD_AUTOGRAD_AUTOGRAD_H
#define TFD_AUTOGRAD_AUTOGRAD_H
/* L6 autograd: tapes, the backward walk, gradient rules.
**
** A tape is a list of entries in execution order. An entry keeps the op, its
** attributes, and its inputs and outputs: whole where the op's flags ask for
** their values, shape-only otherwise. Rules compute with ordinary ops through
** tfd__run, so gradients of gradients are recorded by outer tapes.
** Lua gradient functions are pull-style: the walk stops at such an entry and
** hands the output gradients out (tfd_walk_next).
** May include base .. ops; not dist, comm. Specs: spec/autograd. */

#include "ops/ops.h"

typedef struct tfd__grad {
  const tfd__op *op;
  const int64_t *ints;
  const double *reals;
  tfd_device *device;    /* where the op ran, and its rule runs */
  tfd_tensor *const *in; /* saved or shape-only; NULL = absent optional */
  tfd_tensor *const *out;
  tfd_tensor *const *dy; /* per output; NULL where no gradient arrives */
  const bool *needs;     /* needs[i]: the gradient of input i is wanted */
  tfd_object **dx;       /* rule sets owned tensors or slices; NULL = none */
  int in_n;
  int out_n;
  /* See routed.h: `routed` is what dy[0] was made from, if that is known; a
  ** max pool that may close a relu's gate says from what it made dx[0]. */
  tfd_tensor *routed;
  bool of_relu;            /* it may */
  bool gated;              /* dy[0] has passed the relu's gate already */
  int status;              /* first failure of a helper below */
  struct tfd__temp *temps; /* tensors released when the rule is done */
} tfd__grad;

/* Rules use the helpers below and end with `return g->status;`. */
typedef int (*tfd__grad_fn)(tfd__grad *g);

/* Expression helpers: each runs one op, keeps the result until the rule is
** done, and returns it borrowed; NULL once anything has failed or an argument
** is NULL, so a rule needs no checks between steps. */
tfd_tensor *tfd__e(tfd__grad *g, int op, int in_n, tfd_tensor *const *in,
                   const int64_t *ints, const double *reals);
/* Same, output `k` of an op with several outputs (all results kept). */
int tfd__e_many(tfd__grad *g, int op, int in_n, tfd_tensor *const *in,
                const int64_t *ints, const double *reals, tfd_tensor **out,
                int out_capacity);
#define E1(op, a) tfd__e(g, TFD_OP_##op, 1, (tfd_tensor *[]){a}, NULL, NULL)
#define E2(op, a, b) \
  tfd__e(g, TFD_OP_##op, 2, (tfd_tensor *[]){a, b}, NULL, NULL)
#define E3(op, a, b, c) \
  tfd__e(g, TFD_OP_##op, 3, (tfd_tensor *[]){a, b, c}, NULL, NULL)
/* With attributes: E1A(reduce_sum, a, ((int64_t[]){...}), NULL) */
#define E1A(op, a, ints, reals) \
  tfd__e(g, TFD_OP_##op, 1, (tfd_tensor *[]){a}, ints, reals)
#define E2A(op, a, b, ints, reals) \
  tfd__e(g, TFD_OP_##op, 2, (tfd_tensor *[]){a, b}, ints, reals)
#define E3A(op, a, b, c, ints, reals) \
  tfd__e(g, TFD_OP_##op, 3, (tfd_tensor *[]){a, b, c}, ints, reals)

/* A scalar of x's dtype. */
tfd_tensor *tfd__e_scalar(tfd__grad *g, const tfd_tensor *x, double value);
tfd_tensor *tfd__e_scale(tfd__grad *g, tfd_tensor *x, double factor);
/* dy[0] behind the gate of a relu with result out[0]. */
tfd_tensor *tfd__e_gate(tfd__grad *g);
tfd_tensor *tfd__e_zeros_like(tfd__grad *g, const tfd_tensor *x);
tfd_tensor *tfd__e_reshape(tfd__grad *g, tfd_tensor *x, const int64_t *dims,
                           int rank);
tfd_tensor *tfd__e_reshape_like(tfd__grad *g, tfd_tensor *x,
                                const tfd_tensor *like);
/* Sum x over the axes along which `like` was broadcast; like's shape. */
tfd_tensor *tfd__e_unbroadcast(tfd__grad *g, tfd_tensor *x,
                               const tfd_tensor *like);
/* Sum over listed axes. */
tfd_tensor *tfd__e_sum(tfd__grad *g, tfd_tensor *x, const int64_t *axes,
                       int axes_n, bool keepdims);
tfd_tensor *tfd__e_cast(tfd__grad *g, tfd_tensor *x, int dtype);

/* Store x (borrowed, may be NULL) as the gradient of input i. */
void tfd__grad_set(tfd__grad *g, int i, tfd_tensor *x);
/* Store sparse rows: values {n, ...}, indices {n}, of shape `like`. */
void tfd__grad_set_slices(tfd__grad *g, int i, tfd_tensor *values,
                          tfd_tensor *indices, const tfd_tensor *like);

/* NULL for ops without a rule. */
tfd__grad_fn tfd__grad_rule(int op);

#define OP(name, schema, infer, kernel, grad, flags) \
  int tfd__grad_##grad(tfd__grad *g);
#include "ops/defs/all.def"
#undef OP

#endif
