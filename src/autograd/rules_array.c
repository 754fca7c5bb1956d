/* Gradient rules of the array ops that move elements without computing. */
#include "autograd/rules_array.h"

#include <string.h>

#define LIST TFD_LIST_SLOTS

void tfd__put_list(int64_t *ints, int i, const int64_t *values, int n) {
  int64_t *slots = ints + i * LIST;

  memset(slots, 0, LIST * sizeof *slots);
  slots[0] = n;
  if (n > 0) memcpy(slots + 1, values, (size_t)n * sizeof *values);
}

static int axis_of(int64_t axis, int rank) {
  return (int)(axis < 0 ? axis + rank : axis);
}

tfd_tensor *tfd__e_part(tfd__grad *g, tfd_tensor *x, int axis, int64_t begin,
                        int64_t size) {
  int64_t ints[2 * LIST];
  int64_t from[TFD_MAX_RANK] = {0};

  if (x == NULL) return NULL;
  tfd__put_list(ints, 0, from, x->view.rank);
  tfd__put_list(ints, 1, x->view.dims, x->view.rank);
  ints[1 + axis] = begin;
  ints[LIST + 1 + axis] = size;
  return E1A(slice, x, ints, NULL);
}

/* --- views ---------------------------------------------------------------- */

int tfd__grad_transpose(tfd__grad *g) {
  int64_t ints[LIST];
  int n = 0;
  const int64_t *perm = tfd__list(g->ints, 0, &n);
  int64_t inverse[TFD_MAX_RANK];
  int i;

  for (i = 0; i < n; i++) inverse[axis_of(perm[i], n)] = i;
  tfd__put_list(ints, 0, inverse, n);
  tfd__grad_set(g, 0, E1A(transpose, g->dy[0], ints, NULL));
  return g->status;
}

int tfd__grad_matrix_transpose(tfd__grad *g) {
  tfd__grad_set(g, 0, E1(matrix_transpose, g->dy[0]));
  return g->status;
}

int tfd__grad_reverse(tfd__grad *g) {
  tfd__grad_set(g, 0, E1A(reverse, g->dy[0], g->ints, NULL));
  return g->status;
}

int tfd__grad_slice(tfd__grad *g) {
  const tfd__view *x = &g->in[0]->view;
  int64_t ints[4 * LIST + 1];
  int64_t end[TFD_MAX_RANK];
  int64_t ones[TFD_MAX_RANK];
  int i;

  for (i = 0; i < x->rank; i++) {
    end[i] = g->ints[1 + i] + g->out[0]->view.dims[i];
    ones[i] = 1;
  }
  tfd__put_list(ints, 0, x->dims, x->rank);
  tfd__put_list(ints, 1, g->ints + 1, x->rank);
  tfd__put_list(ints, 2, end, x->rank);
  tfd__put_list(ints, 3, ones, x->rank);
  ints[4 * LIST] = 0;
  tfd__grad_set(g, 0, E1A(strided_slice_grad, g->dy[0], ints, NULL));
  return g->status;
}

int tfd__grad_strided_slice(tfd__grad *g) {
  const tfd__view *x = &g->in[0]->view;
  int64_t ints[4 * LIST + 1];

  tfd__put_list(ints, 0, x->dims, x->rank);
  memcpy(ints + LIST, g->ints, (3 * LIST + 1) * sizeof *ints);
  tfd__grad_set(g, 0, E1A(strided_slice_grad, g->dy[0], ints, NULL));
  return g->status;
}

int tfd__grad_strided_slice_grad(tfd__grad *g) {
  tfd__grad_set(g, 0, E1A(strided_slice, g->dy[0], g->ints + LIST, NULL));
  return g->status;
}

/* Join the gradients of all outputs by `op`; zeros where none arrives. */
static int joined(tfd__grad *g, int op, int64_t axis) {
  tfd_tensor *few[16];
  tfd_tensor **parts = few;
  int i;

  if (g->out_n > 16) {
    parts = tfd__alloc((size_t)g->out_n * sizeof(tfd_tensor *));
    if (parts == NULL) {
      return tfd__no_memory((size_t)g->out_n * sizeof *parts, g->op->name);
    }
  }
  for (i = 0; i < g->out_n; i++) {
    parts[i] = g->dy[i] != NULL ? g->dy[i] : tfd__e_zeros_like(g, g->out[i]);
  }
  if (g->out_n > 0) {
    tfd__grad_set(g, 0, tfd__e(g, op, g->out_n, parts, &axis, NULL));
  }
  if (parts != few) tfd__free(parts);
  return g->status;
}

int tfd__grad_split(tfd__grad *g) {
  return joined(g, TFD_OP_concat, g->ints[1]);
}

int tfd__grad_split_v(tfd__grad *g) {
  return joined(g, TFD_OP_concat, g->ints[LIST]);
}

int tfd__grad_unstack(tfd__grad *g) {
  return joined(g, TFD_OP_stack, g->ints[1]);
}

int tfd__grad_matrix_diag_part(tfd__grad *g) {
  const tfd__view *x = &g->in[0]->view;
  int64_t ints[3] = {g->ints[0], x->dims[x->rank - 2], x->dims[x->rank - 1]};

  tfd__grad_set(g, 0, E1A(matrix_diag, g->dy[0], ints, NULL));
  return g->status;
}

/* --- joining and growing -------------------------------------------------- */

int tfd__grad_concat(tfd__grad *g) {
  int axis = axis_of(g->ints[0], g->out[0]->view.rank);
  int64_t at = 0;
  int i;

  for (i = 0; i < g->in_n; i++) {
    int64_t size = g->in[i]->view.dims[axis];

    if (g->needs[i]) {
      tfd__grad_set(g, i, tfd__e_part(g, g->dy[0], axis, at, size));
    }
    at += size;
  }
  return g->status;
}

int tfd__grad_stack(tfd__grad *g) {
  int axis = axis_of(g->ints[0], g->out[0]->view.rank);
  tfd_tensor *row = NULL;
  int i;

  for (i = 0; i < g->in_n; i++) {
    if (!g->needs[i]) continue;
    row = tfd__e_part(g, g->dy[0], axis, i, 1);
    tfd__grad_set(g, i, tfd__e_reshape_like(g, row, g->in[i]));
  }
  return g->status;
}

/* x as [outer, times, inner] -> sum over `times`, for one tiled axis after
** the other: later sums are over what is left. */
int tfd__grad_tile(tfd__grad *g) {
  const tfd__view *x = &g->in[0]->view;
  tfd_tensor *dy = g->dy[0];
  int64_t outer = 1;
  int axis;

  if (g->out[0]->view.numel == 0) {
    tfd__grad_set(g, 0, tfd__e_zeros_like(g, g->in[0]));
    return g->status;
  }
  for (axis = 0; axis < x->rank; axis++) {
    int64_t times = g->ints[1 + axis];
    int64_t inner = x->dims[axis];
    int64_t middle = 1;
    int i;

    for (i = axis + 1; i < x->rank; i++) {
      inner *= g->out[0]->view.dims[i];
    }
    if (times != 1) {
      dy = tfd__e_reshape(g, dy, (int64_t[]){outer, times, inner}, 3);
      dy = tfd__e_sum(g, dy, &middle, 1, false);
    }
    outer *= x->dims[axis];
  }
  tfd__grad_set(g, 0, tfd__e_reshape_like(g, dy, g->in[0]));
  return g->status;
}

int tfd__grad_repeat(tfd__grad *g) {
  const tfd__view *x = &g->in[0]->view;
  int axis = axis_of(g->ints[1], x->rank);
  int64_t dims[3] = {1, g->ints[0], 1};
  int64_t middle = 1;
  tfd_tensor *dy = NULL;
  int i;

  for (i = 0; i < x->rank; i++) dims[i <= axis ? 0 : 2] *= x->dims[i];
  dy = tfd__e_reshape(g, g->dy[0], dims, 3);
  dy = tfd__e_sum(g, dy, &middle, 1, false);
  tfd__grad_set(g, 0, tfd__e_reshape_like(g, dy, g->in[0]));
  return g->status;
}

int tfd__grad_roll(tfd__grad *g) {
  const tfd__view *x = &g->in[0]->view;
  int64_t ints[2 * LIST];
  int i;

  memcpy(ints, g->ints, sizeof ints);
  for (i = 0; i < ints[0]; i++) {
    int64_t n = x->dims[axis_of(ints[LIST + 1 + i], x->rank)];

    /* By less than once around: any shift has a negative then. */
    ints[1 + i] = n > 0 ? -(ints[1 + i] % n) : 0;
  }
  tfd__grad_set(g, 0, E1A(roll, g->dy[0], ints, NULL));
  return g->status;
}

/* --- matrices ------------------------------------------------------------- */

int tfd__grad_matrix_diag(tfd__grad *g) {
  tfd__grad_set(g, 0, E1A(matrix_diag_part, g->dy[0], g->ints, NULL));
  return g->status;
}

int tfd__grad_matrix_set_diag(tfd__grad *g) {
  if (g->needs[0]) {
    tfd__grad_set(g, 0,
                  E2A(matrix_set_diag, g->dy[0], tfd__e_zeros_like(g, g->in[1]),
                      g->ints, NULL));
  }
  if (g->needs[1]) {
    tfd__grad_set(g, 1, E1A(matrix_diag_part, g->dy[0], g->ints, NULL));
  }
  return g->status;
}

int tfd__grad_matrix_band_part(tfd__grad *g) {
  tfd__grad_set(g, 0, E1A(matrix_band_part, g->dy[0], g->ints, NULL));
  return g->status;
}

/* --- indices -------------------------------------------------------------- */

static void gather_ints(int64_t *ints, const tfd_tensor *x, int64_t axis,
                        int64_t batch) {
  tfd__put_list(ints, 0, x->view.dims, x->view.rank);
  ints[LIST] = axis;
  ints[LIST + 1] = batch;
}

/* Rows of a table keep their gradient as slices: a step then costs what the
** rows cost, not what the table does. */
static int table_slices(tfd__grad *g) {
  const tfd__view *x = &g->in[0]->view;
  int64_t dims[TFD_MAX_RANK];
  int64_t n = g->in[1]->view.numel;

  memcpy(dims, x->dims, sizeof dims);
  dims[0] = n;
  tfd__grad_set_slices(g, 0, tfd__e_reshape(g, g->dy[0], dims, x->rank),
                       tfd__e_reshape(g, g->in[1], &n, 1), g->in[0]);
  return g->status;
}

int tfd__grad_gather(tfd__grad *g) {
  int64_t ints[LIST + 2];
  int64_t batch = axis_of(g->ints[1 + LIST], g->in[1]->view.rank);
  int axis = axis_of(g->ints[1] < 1 ? batch : g->ints[2], g->in[0]->view.rank);

  if (!g->needs[0]) return g->status;
  if (axis == 0 && batch == 0) return table_slices(g);
  gather_ints(ints, g->in[0], axis, batch);
  tfd__grad_set(g, 0, E2A(gather_grad, g->dy[0], g->in[1], ints, NULL));
  return g->status;
}

int tfd__grad_gather_grad(tfd__grad *g) {
  int64_t ints[LIST + 2] = {0, 1, g->ints[LIST]};

  ints[LIST + 1] = g->ints[LIST + 1];
  tfd__grad_set(g, 0, E2A(gather, g->dy[0], g->in[1], ints, NULL));
  return g->status;
}

int tfd__grad_gather_nd(tfd__grad *g) {
  int64_t ints[LIST + 1];

  tfd__put_list(ints, 0, g->in[0]->view.dims, g->in[0]->view.rank);
  ints[LIST] = g->ints[0];
  tfd__grad_set(g, 0, E2A(scatter_nd, g->in[1], g->dy[0], ints, NULL));
  return g->status;
}

int tfd__grad_scatter_nd(tfd__grad *g) {
  tfd__grad_set(g, 1, E2A(gather_nd, g->dy[0], g->in[0], g->ints + LIST, NULL));
  return g->status;
}

int tfd__grad_tensor_scatter_nd_update(tfd__grad *g) {
  if (g->needs[0]) {
    tfd__grad_set(g, 0,
                  E3(tensor_scatter_nd_update, g->dy[0], g->in[1],
                     tfd__e_zeros_like(g, g->in[2])));
  }
  if (g->needs[2]) {
    tfd__grad_set(g, 2, E2(gather_nd, g->dy[0], g->in[1]));
  }
  return g->status;
}

int tfd__grad_tensor_scatter_nd_add(tfd__grad *g) {
  tfd__grad_set(g, 0, g->dy[0]);
  if (g->needs[2]) {
    tfd__grad_set(g, 2, E2(gather_nd, g->dy[0], g->in[1]));
  }
  return g->status;
}

/* The sorted values came from positions out[1] of the last axis. */
int tfd__grad_sort_pairs(tfd__grad *g) {
  int64_t ints[LIST + 2];
  int last = g->in[0]->view.rank - 1;

  gather_ints(ints, g->in[0], last, last);
  tfd__grad_set(g, 0, E2A(gather_grad, g->dy[0], g->out[1], ints, NULL));
  return g->status;
}

int tfd__grad_segment_gather(tfd__grad *g) {
  int64_t ints[3] = {g->in[0]->view.dims[0], 0, 0};

  tfd__grad_set(g, 0, E2A(segment_sum, g->dy[0], g->in[1], ints, NULL));
  return g->status;
}
