/* Gradient rules of reductions and running sums. */
#include "autograd/autograd.h"

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
  tfd__grad_set(g, 0,
                MUL(mask, E2(divide, with_axes(g, g->dy[0]), ties)));
  return g->status;
}
