/* Gradient rules of reductions and running sums. */
#include "autograd/autograd.h"

#include <math.h>
#include <string.h>

#define KEEPDIMS TFD_LIST_SLOTS

#define MUL(a, b) E2(multiply, a, b)

/* Bits of the reduced axes of input 0. */
static unsigned axes_of(const tfd__grad *g) {
  int rank = g->in[0]->view.rank;
  int n = 0;
  const int64_t *list = tfd__list(g->ints, 0, &n);
  unsigned axes = 0;

  if (n < 0) return (1u << rank) - 1;
  for (int i = 0; i < n; i++) {
    axes |= 1u << (list[i] < 0 ? list[i] + rank : list[i]);
  }
  return axes;
}

/* t, of the output's shape, with the reduced axes put back as size 1. */
static tfd_tensor *with_axes(tfd__grad *g, tfd_tensor *t) {
  const tfd__view *in = &g->in[0]->view;
  unsigned axes = axes_of(g);
  int64_t dims[TFD_MAX_RANK];

  for (int d = 0; d < in->rank; d++) {
    dims[d] = (axes >> d & 1u) != 0 ? 1 : in->dims[d];
  }
  return tfd__e_reshape(g, t, dims, in->rank);
}

/* t, which broadcasts to the input's shape, in that shape (a view). */
static tfd_tensor *spread(tfd__grad *g, tfd_tensor *t) {
  const tfd__view *in = &g->in[0]->view;
  int64_t ints[TFD_LIST_SLOTS] = {in->rank};

  if (t == NULL || tfd__same_shape(&t->view, in)) return t;
  memcpy(ints + 1, in->dims, sizeof(int64_t) * (size_t)in->rank);
  return E1A(broadcast_to, t, ints, NULL);
}

/* Elements reduced into one. */
static double count_of(const tfd__grad *g) {
  int64_t n = g->out[0]->view.numel;

  return n > 0 ? (double)(g->in[0]->view.numel / n) : 1.0;
}

int tfd__grad_reduce_sum(tfd__grad *g) {
  tfd__grad_set(g, 0, spread(g, with_axes(g, g->dy[0])));
  return g->status;
}

int tfd__grad_reduce_mean(tfd__grad *g) {
  tfd_tensor *share = tfd__e_scale(g, g->dy[0], 1.0 / count_of(g));

  tfd__grad_set(g, 0, spread(g, with_axes(g, share)));
  return g->status;
}

/* Maximum and minimum: equal extremes share the gradient. */
int tfd__grad_reduce_extreme(tfd__grad *g) {
  tfd_tensor *x = g->in[0];
  tfd_tensor *hit = E2(equal, x, with_axes(g, g->out[0]));
  tfd_tensor *mask = tfd__e_cast(g, hit, x->view.dtype);
  int64_t ints[TFD_LIST_SLOTS + 1];
  tfd_tensor *ties = NULL;

  memcpy(ints, g->ints, sizeof ints);
  ints[KEEPDIMS] = 1;
  ties = E1A(reduce_sum, mask, ints, NULL);
  tfd__grad_set(g, 0, MUL(mask, E2(divide, with_axes(g, g->dy[0]), ties)));
  return g->status;
}

/* The product of the other elements along one axis, without dividing: zeros
** are no special case. */
static tfd_tensor *others(tfd__grad *g, tfd_tensor *x, int axis) {
  int64_t before[3] = {axis, 1, 0};
  int64_t after[3] = {axis, 1, 1};

  return MUL(E1A(cumprod, x, before, NULL), E1A(cumprod, x, after, NULL));
}

/* The order of x's axes with the reduced ones first, and its inverse, as lists
** of a transpose; the sizes in that order. Returns how many are reduced. */
static int reduced_first(const tfd__grad *g, int64_t *order, int64_t *back,
                         int64_t *dims) {
  const tfd__view *in = &g->in[0]->view;
  unsigned axes = axes_of(g);
  int reduced = 0;
  int n = 0;

  for (int kept = 0; kept < 2; kept++) {
    if (kept == 1) reduced = n;
    for (int d = 0; d < in->rank; d++) {
      if ((axes >> d & 1u) != (kept == 0)) continue;
      order[1 + n] = d;
      back[1 + d] = n;
      dims[n++] = in->dims[d];
    }
  }
  order[0] = back[0] = n;
  return reduced;
}

/* Several axes become one, so that gradients of this meet the same products. */
int tfd__grad_reduce_prod(tfd__grad *g) {
  const tfd__view *in = &g->in[0]->view;
  int64_t order[TFD_LIST_SLOTS + 1] = {0};
  int64_t back[TFD_LIST_SLOTS + 1] = {0};
  int64_t dims[TFD_MAX_RANK];
  int64_t flat[2] = {1, 1};
  int reduced = reduced_first(g, order, back, dims);
  tfd_tensor *rest = NULL;

  for (int i = 0; i < in->rank; i++) flat[i < reduced ? 0 : 1] *= dims[i];
  rest = tfd__e_reshape(g, E1A(transpose, g->in[0], order, NULL), flat, 2);
  rest = tfd__e_reshape(g, others(g, rest, 0), dims, in->rank);
  rest = E1A(transpose, rest, back, NULL);
  tfd__grad_set(g, 0, MUL(with_axes(g, g->dy[0]), rest));
  return g->status;
}

/* exp(x - y), a softmax over the reduced axes; where y is infinite it is not
** subtracted. */
int tfd__grad_reduce_logsumexp(tfd__grad *g) {
  tfd_tensor *y = g->out[0];
  tfd_tensor *zero = tfd__e_scalar(g, y, 0.0);
  tfd_tensor *shift = E3(select, E1(is_finite, y), y, zero);
  tfd_tensor *share = E1(exp, E2(subtract, g->in[0], with_axes(g, shift)));

  tfd__grad_set(g, 0, MUL(share, with_axes(g, g->dy[0])));
  return g->status;
}

/* dy x / y, 0 for a norm of 0. */
int tfd__grad_reduce_euclidean_norm(tfd__grad *g) {
  tfd_tensor *factor = E2(divide_no_nan, g->dy[0], g->out[0]);

  tfd__grad_set(g, 0, MUL(g->in[0], with_axes(g, factor)));
  return g->status;
}

/* (x - mean) times `factor`, which has the output's shape. */
static void set_deviation(tfd__grad *g, tfd_tensor *factor) {
  int64_t ints[TFD_LIST_SLOTS + 1];
  tfd_tensor *mean = NULL;
  tfd_tensor *x = g->in[0];

  memcpy(ints, g->ints, sizeof ints);
  ints[KEEPDIMS] = 1;
  mean = E1A(reduce_mean, x, ints, NULL);
  tfd__grad_set(g, 0, MUL(E2(subtract, x, mean), with_axes(g, factor)));
}

int tfd__grad_reduce_variance(tfd__grad *g) {
  set_deviation(g, tfd__e_scale(g, g->dy[0], 2.0 / count_of(g)));
  return g->status;
}

/* 0 for a deviation of 0. */
int tfd__grad_reduce_std(tfd__grad *g) {
  tfd_tensor *share = tfd__e_scale(g, g->dy[0], 1.0 / count_of(g));

  set_deviation(g, E2(divide_no_nan, share, g->out[0]));
  return g->status;
}

/* --- running sums; attributes are axis, exclusive, reverse ---------------*/

#define REVERSED(g) \
  { (g)->ints[0], (g)->ints[1], (g)->ints[2] == 0 }

int tfd__grad_cumsum(tfd__grad *g) {
  int64_t back[3] = REVERSED(g);

  tfd__grad_set(g, 0, E1A(cumsum, g->dy[0], back, NULL));
  return g->status;
}

/* As TensorFlow, by division: 0 where x is 0. */
int tfd__grad_cumprod(tfd__grad *g) {
  int64_t back[3] = REVERSED(g);
  tfd_tensor *sum = E1A(cumsum, MUL(g->out[0], g->dy[0]), back, NULL);

  tfd__grad_set(g, 0, E2(divide_no_nan, sum, g->in[0]));
  return g->status;
}

/* The part of the gradient whose dy has this sign, in logarithms. */
static tfd_tensor *log_part(tfd__grad *g, double sign) {
  int64_t back[3] = REVERSED(g);
  tfd_tensor *dy = tfd__e_scale(g, g->dy[0], sign);
  tfd_tensor *zero = tfd__e_scalar(g, dy, 0.0);
  tfd_tensor *mask = E2(greater, dy, zero);
  tfd_tensor *safe = E3(select, mask, dy, tfd__e_scalar(g, dy, 1.0));
  tfd_tensor *none = tfd__e_scalar(g, dy, -(double)INFINITY);
  tfd_tensor *logs = E3(select, mask, E1(log, safe), none);
  tfd_tensor *finite = E3(select, E1(is_finite, g->out[0]), g->out[0], zero);
  tfd_tensor *sum =
      E1A(cumulative_logsumexp, E2(subtract, logs, finite), back, NULL);

  return E1(exp, E2(add, sum, g->in[0]));
}

int tfd__grad_cumulative_logsumexp(tfd__grad *g) {
  tfd__grad_set(g, 0, E2(subtract, log_part(g, 1.0), log_part(g, -1.0)));
  return g->status;
}
