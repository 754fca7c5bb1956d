/* Gradient rules of the array ops that compute: padding by reflection,
** differences, extremes and products of rows. */
#include "autograd/rules_array.h"

#define LIST TFD_LIST_SLOTS

/* --- padding -------------------------------------------------------------- */

/* A border, turned round, in zeros of `size` elements along `axis`. */
static tfd_tensor *folded(tfd__grad *g, tfd_tensor *border, int axis,
                          int64_t begin, int64_t size) {
  int64_t ints[2 * LIST + 1] = {0};
  int64_t axes[LIST] = {1, axis};
  double zero = 0;

  if (border == NULL) return NULL;
  ints[0] = ints[LIST] = border->view.rank;
  ints[1 + axis] = begin;
  ints[LIST + 1 + axis] = size - begin - border->view.dims[axis];
  return E1A(pad, E1A(reverse, border, axes, NULL), ints, &zero);
}

/* Add what the borders of `axis` mirrored back to where it came from. */
static tfd_tensor *unmirror(tfd__grad *g, tfd_tensor *dy, int axis,
                            int64_t before, int64_t after, int64_t skip) {
  int64_t size = dy == NULL ? 0 : dy->view.dims[axis] - before - after;
  tfd_tensor *x = tfd__e_part(g, dy, axis, before, size);

  if (before > 0) {
    tfd_tensor *border = tfd__e_part(g, dy, axis, 0, before);

    x = E2(add, x, folded(g, border, axis, skip, size));
  }
  if (after > 0) {
    tfd_tensor *border = tfd__e_part(g, dy, axis, before + size, after);

    x = E2(add, x, folded(g, border, axis, size - after - skip, size));
  }
  return x;
}

int tfd__grad_pad(tfd__grad *g) {
  const tfd__view *x = &g->in[0]->view;
  const int64_t *before = g->ints + 1;
  const int64_t *after = g->ints + LIST + 1;
  int64_t mode = g->ints[2 * LIST];
  int64_t ints[2 * LIST];
  tfd_tensor *dy = g->dy[0];
  int axis;

  if (mode == 0) {
    tfd__put_list(ints, 0, before, x->rank);
    tfd__put_list(ints, 1, x->dims, x->rank);
    tfd__grad_set(g, 0, E1A(slice, dy, ints, NULL));
    return g->status;
  }
  for (axis = x->rank - 1; axis >= 0; axis--) {
    dy = unmirror(g, dy, axis, before[axis], after[axis], mode == 1 ? 1 : 0);
  }
  tfd__grad_set(g, 0, dy);
  return g->status;
}

/* --- scatter -------------------------------------------------------------- */

int tfd__grad_tensor_scatter_nd_sub(tfd__grad *g) {
  tfd__grad_set(g, 0, g->dy[0]);
  if (g->needs[2]) {
    tfd__grad_set(g, 2, E1(negative, E2(gather_nd, g->dy[0], g->in[1])));
  }
  return g->status;
}

/* Smallest or largest: everything that equals the result shares dy. */
int tfd__grad_tensor_scatter_nd_extreme(tfd__grad *g) {
  int dtype = g->in[0]->view.dtype;
  tfd_tensor *mine = tfd__e_cast(g, E2(equal, g->in[0], g->out[0]), dtype);
  tfd_tensor *chosen = E2(gather_nd, g->out[0], g->in[1]);
  tfd_tensor *theirs = tfd__e_cast(g, E2(equal, g->in[2], chosen), dtype);
  tfd_tensor *n = E3(tensor_scatter_nd_add, mine, g->in[1], theirs);
  tfd_tensor *dy = E2(divide, g->dy[0], n);

  if (g->needs[0]) tfd__grad_set(g, 0, E2(multiply, dy, mine));
  if (g->needs[2]) {
    dy = E2(gather_nd, dy, g->in[1]);
    tfd__grad_set(g, 2, E2(multiply, dy, theirs));
  }
  return g->status;
}

/* --- segments ------------------------------------------------------------- */

/* Segment sums of x with the op's own ids. */
static tfd_tensor *sums(tfd__grad *g, tfd_tensor *x) {
  int64_t ints[3] = {g->ints[0], 0, 0};

  return E2A(segment_sum, x, g->in[1], ints, NULL);
}

/* Rows of each segment, as {segments, 1, ...} to divide dy by. Segments
** without rows count 0: what they divide is never read. */
static tfd_tensor *counts_like(tfd__grad *g, const tfd_tensor *out) {
  int64_t dtype = out->view.dtype;
  int64_t dims[TFD_MAX_RANK];
  int i;

  for (i = 0; i < out->view.rank; i++) dims[i] = 1;
  dims[0] = out->view.dims[0];
  return tfd__e_reshape(g, sums(g, E1A(ones_like, g->in[1], &dtype, NULL)),
                        dims, out->view.rank);
}

int tfd__grad_segment_sum(tfd__grad *g) {
  tfd_tensor *dy = g->dy[0];

  if (g->ints[1] != 0) dy = E2(divide_no_nan, dy, counts_like(g, g->out[0]));
  tfd__grad_set(g, 0, E2(segment_gather, dy, g->in[1]));
  return g->status;
}

/* Rows that equal their segment's result share its gradient. */
static int segment_extreme(tfd__grad *g) {
  tfd_tensor *best = E2(segment_gather, g->out[0], g->in[1]);
  tfd_tensor *mine =
      tfd__e_cast(g, E2(equal, g->in[0], best), g->in[0]->view.dtype);
  tfd_tensor *dy = E2(divide_no_nan, g->dy[0], sums(g, mine));

  dy = E2(segment_gather, dy, g->in[1]);
  tfd__grad_set(g, 0, E2(multiply, dy, mine));
  return g->status;
}

/* The product of the others: the whole divided by the element, except that
** one zero leaves the product of the rest to itself, and two leave nothing. */
static int segment_product(tfd__grad *g) {
  tfd_tensor *x = g->in[0];
  tfd_tensor *zero = tfd__e_scalar(g, x, 0);
  tfd_tensor *one = tfd__e_scalar(g, x, 1);
  tfd_tensor *is_zero = E2(equal, x, zero);
  tfd_tensor *zeros = sums(g, tfd__e_cast(g, is_zero, x->view.dtype));
  tfd_tensor *dy = E3(select, E2(greater, zeros, one), zero, g->dy[0]);
  tfd_tensor *rest = E3(select, is_zero, one, x);
  tfd_tensor *others =
      E2(segment_gather, E2A(segment_select, rest, g->in[1], g->ints, NULL),
         g->in[1]);
  tfd_tensor *whole = E2(segment_gather, g->out[0], g->in[1]);

  others = E3(select, is_zero, others, E2(divide, whole, rest));
  dy = E2(segment_gather, dy, g->in[1]);
  tfd__grad_set(g, 0, E2(multiply, dy, others));
  return g->status;
}

int tfd__grad_segment_select(tfd__grad *g) {
  return g->ints[1] == 0 ? segment_product(g) : segment_extreme(g);
}
