/* Expression helpers for gradient rules; see autograd.h. */
#include "autograd/tape.h"
#include "ops/attributes.h"

#include <stdlib.h>
#include <string.h>

#define MAX_OUTPUTS 8

/* --- running ops ---------------------------------------------------------- */

int tfd__op_named(const char *name, _Atomic int *cache, int *op_p) {
  int op = atomic_load_explicit(cache, memory_order_relaxed);

  if (op == 0) {
    TFD_TRY(tfd_op_find(name, &op));
    atomic_store_explicit(cache, op, memory_order_relaxed);
  }
  *op_p = op;
  return TFD_OK;
}

void tfd__temps_clear(tfd__temp *temps) {
  while (temps != NULL) {
    tfd__temp *next = temps->next;

    while (temps->n > 0) tfd__release(temps->items[--temps->n]);
    if (next != NULL) tfd__free(temps);
    temps = next;
  }
}

/* Room for `n` results, so that keeping them cannot fail. */
static int temps_reserve(tfd__grad *g, int n) {
  tfd__temp *block = NULL;

  if (TFD_LIKELY(g->temps->n + n <= TFD_TEMPS)) return TFD_OK;
  block = tfd__alloc(sizeof *block);
  if (block == NULL) return tfd__no_memory(sizeof *block, "gradient rule");
  block->n = 0;
  block->next = g->temps;
  g->temps = block;
  return TFD_OK;
}

/* False when an input that must be there is not: nothing to compute. */
static bool complete(const tfd__op *op, tfd_tensor *const *in, int in_n) {
  int i;

  for (i = 0; i < in_n; i++) {
    if (in[i] == NULL && (op->list_input || !tfd__is_optional(op, i)))
      return false;
  }
  return true;
}

static int run(tfd__grad *g, int op, int in_n, tfd_tensor *const *in,
               const int64_t *ints, const double *reals, tfd_tensor **out,
               int capacity) {
  const tfd__op *o = tfd__op_at(op);
  int64_t default_ints[TFD_MAX_INTS];
  double default_reals[TFD_MAX_REALS];
  int out_n = 0;
  int i;

  if ((ints == NULL && o->ints_n > 0) || (reals == NULL && o->reals_n > 0)) {
    tfd__op_defaults(o, default_ints, default_reals);
    if (ints == NULL) ints = default_ints;
    if (reals == NULL) reals = default_reals;
  }
  TFD_TRY(temps_reserve(g, capacity));
  TFD_TRY(tfd__run(op, in, in_n, ints, reals, out, capacity, &out_n));
  for (i = 0; i < out_n; i++) g->temps->items[g->temps->n++] = out[i];
  return TFD_OK;
}

int tfd__e_many(tfd__grad *g, int op, int in_n, tfd_tensor *const *in,
                const int64_t *ints, const double *reals, tfd_tensor **out,
                int out_capacity) {
  memset(out, 0, (size_t)out_capacity * sizeof *out);
  if (g->status != TFD_OK) return g->status;
  if (!complete(tfd__op_at(op), in, in_n)) return TFD_OK;
  if (out_capacity > TFD_TEMPS) {
    g->status = tfd__fail(TFD_INTERNAL, "%s: room for %d results, at most %d",
                          tfd__op_at(op)->name, out_capacity, TFD_TEMPS);
    return g->status;
  }
  g->status = run(g, op, in_n, in, ints, reals, out, out_capacity);
  if (g->status != TFD_OK) {
    memset(out, 0, (size_t)out_capacity * sizeof *out);
  }
  return g->status;
}

tfd_tensor *tfd__e(tfd__grad *g, int op, int in_n, tfd_tensor *const *in,
                   const int64_t *ints, const double *reals) {
  tfd_tensor *out[MAX_OUTPUTS];

  (void)tfd__e_many(g, op, in_n, in, ints, reals, out, MAX_OUTPUTS);
  return out[0];
}

/* Keep a result that no op made. */
static tfd_tensor *keep(tfd__grad *g, tfd_tensor *t) {
  g->status = temps_reserve(g, 1);
  if (g->status != TFD_OK) {
    tfd__release(t);
    return NULL;
  }
  g->temps->items[g->temps->n++] = t;
  return t;
}

/* An op of another family, by name. */
static tfd_tensor *named(tfd__grad *g, const char *name, _Atomic int *cache,
                         int in_n, tfd_tensor *const *in, const int64_t *ints) {
  int op = 0;

  if (g->status != TFD_OK) return NULL;
  g->status = tfd__op_named(name, cache, &op);
  if (g->status != TFD_OK) return NULL;
  return tfd__e(g, op, in_n, in, ints, NULL);
}

static void list_set(int64_t *slots, const int64_t *values, int n) {
  memset(slots, 0, TFD_LIST_SLOTS * sizeof *slots);
  slots[0] = n;
  if (n > 0) memcpy(slots + 1, values, (size_t)n * sizeof *values);
}

/* --- the helpers ---------------------------------------------------------- */

int tfd__sizes_known(const int64_t *dims, int rank) {
  char text[TFD_SHAPE_TEXT];
  int i;

  for (i = 0; i < rank; i++) {
    if (dims[i] >= 0) continue;
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "a tensor has the shape %s: all sizes must be known in a "
                     "traced function",
                     tfd__dims_text(dims, rank, text));
  }
  return TFD_OK;
}

int tfd__filled(tfd_device *device, int dtype, const int64_t *dims, int rank,
                double value, tfd_tensor **t_p) {
  int64_t ints[TFD_LIST_SLOTS + 1];
  int n = 0;
  int rc;

  TFD_TRY(tfd__sizes_known(dims, rank));
  list_set(ints, dims, rank);
  ints[TFD_LIST_SLOTS] = dtype;
  TFD_TRY(tfd_device_push(device));
  rc = tfd__run(TFD_OP_fill, NULL, 0, ints, &value, t_p, 1, &n);
  (void)tfd_device_pop();
  return rc;
}

tfd_tensor *tfd__e_scalar(tfd__grad *g, const tfd_tensor *x, double value) {
  tfd_tensor *t = NULL;

  if (g->status != TFD_OK || x == NULL) return NULL;
  g->status =
      tfd__tensor_from_doubles(g->device, x->view.dtype, NULL, 0, &value, &t);
  return g->status == TFD_OK ? keep(g, t) : NULL;
}

tfd_tensor *tfd__e_scale(tfd__grad *g, tfd_tensor *x, double factor) {
  static _Atomic int cache = 0;

  if (factor == 1.0) return x;
  return named(g, "multiply", &cache, 2,
               (tfd_tensor *[]){x, tfd__e_scalar(g, x, factor)}, NULL);
}

tfd_tensor *tfd__e_zeros_like(tfd__grad *g, const tfd_tensor *x) {
  tfd_tensor *t = NULL;

  if (g->status != TFD_OK || x == NULL) return NULL;
  g->status = tfd__filled(g->device, x->view.dtype, x->view.dims, x->view.rank,
                          0.0, &t);
  return g->status == TFD_OK ? keep(g, t) : NULL;
}

tfd_tensor *tfd__e_reshape(tfd__grad *g, tfd_tensor *x, const int64_t *dims,
                           int rank) {
  int64_t ints[TFD_LIST_SLOTS];

  if (g->status != TFD_OK || x == NULL) return NULL;
  if (x->view.rank == rank &&
      memcmp(x->view.dims, dims, (size_t)rank * sizeof *dims) == 0) {
    return x;
  }
  list_set(ints, dims, rank);
  return E1A(reshape, x, ints, NULL);
}

tfd_tensor *tfd__e_reshape_like(tfd__grad *g, tfd_tensor *x,
                                const tfd_tensor *like) {
  if (like == NULL) return NULL;
  return tfd__e_reshape(g, x, like->view.dims, like->view.rank);
}

tfd_tensor *tfd__e_sum(tfd__grad *g, tfd_tensor *x, const int64_t *axes,
                       int axes_n, bool keepdims) {
  static _Atomic int cache = 0;
  int64_t ints[TFD_LIST_SLOTS + 1];

  if (axes_n == 0) return x;
  list_set(ints, axes, axes_n);
  ints[TFD_LIST_SLOTS] = keepdims;
  return named(g, "reduce_sum", &cache, 1, &x, ints);
}

tfd_tensor *tfd__e_unbroadcast(tfd__grad *g, tfd_tensor *x,
                               const tfd_tensor *like) {
  int64_t axes[TFD_MAX_RANK];
  int axes_n = 0;
  int lead = 0;
  int i;

  if (g->status != TFD_OK || x == NULL || like == NULL) return NULL;
  if (tfd__same_shape(&x->view, &like->view)) return x;
  lead = x->view.rank - like->view.rank;
  for (i = 0; i < x->view.rank; i++) {
    if (i < lead || (like->view.dims[i - lead] == 1 && x->view.dims[i] != 1)) {
      axes[axes_n++] = i;
    }
  }
  return tfd__e_reshape_like(g, tfd__e_sum(g, x, axes, axes_n, false), like);
}

tfd_tensor *tfd__e_cast(tfd__grad *g, tfd_tensor *x, int dtype) {
  static _Atomic int cache = 0;
  int64_t to = dtype;

  if (g->status != TFD_OK || x == NULL) return NULL;
  if (x->view.dtype == dtype) return x;
  return named(g, "cast", &cache, 1, &x, &to);
}

/* --- results -------------------------------------------------------------- */

tfd_tensor *tfd__e_gate(tfd__grad *g) {
  return g->gated ? g->dy[0] : E2(relu_grad, g->dy[0], g->out[0]);
}

void tfd__grad_set(tfd__grad *g, int i, tfd_tensor *x) {
  if (g->status != TFD_OK || x == NULL || !g->needs[i]) return;
  tfd__retain(x);
  tfd__release(g->dx[i]);
  g->dx[i] = &x->object;
}

void tfd__grad_set_slices(tfd__grad *g, int i, tfd_tensor *values,
                          tfd_tensor *indices, const tfd_tensor *like) {
  tfd_slices *s = NULL;

  if (g->status != TFD_OK || values == NULL || indices == NULL ||
      !g->needs[i]) {
    return;
  }
  g->status =
      tfd_slices_new(values, indices, like->view.dims, like->view.rank, &s);
  if (g->status != TFD_OK) return;
  tfd__release(g->dx[i]);
  g->dx[i] = &s->object;
}
