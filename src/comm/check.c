/* What a collective is given, before anything is begun. */
#include "comm/private.h"

/* Elements of all ranks' pieces. */
static int64_t all_pieces(const tfd__group *g, const tfd__collective *c,
                          int k) {
  return tfd__gathered(g, c, k, g->size - 1).end;
}

static int is_in_place(const tfd__group *g, const tfd__collective *c,
                       const tfd__piece *p, int i) {
  if (p->buffer->device == g->devices[i] && p->view->dense) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: rank %d's elements lie on %s%s; expected %s, without "
                   "gaps",
                   c->what, g->base + i, p->buffer->device->short_name,
                   p->view->dense ? "" : " with gaps",
                   g->devices[i]->short_name);
}

static int check_piece(const tfd__group *g, const tfd__collective *c,
                       const tfd__piece *p, int i, int dtype, int64_t numel) {
  TFD_TRY(is_in_place(g, c, p, i));
  if (p->view->dtype == dtype && p->view->numel == numel) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: rank %d has %lld elements of %s where there are to be "
                   "%lld of %s",
                   c->what, g->base + i, (long long)p->view->numel,
                   tfd__dtype_name(p->view->dtype), (long long)numel,
                   tfd__dtype_name(dtype));
}

/* Elements that local rank i gives and gets for value k, -1 = it has none. */
static int64_t given_count(const tfd__group *g, const tfd__collective *c, int k,
                           int i, int64_t first) {
  if (tfd__root_gives(c->kind) && g->base + i != c->root) return -1;
  if (c->kind == TFD_COLLECTIVE_SCATTER) return all_pieces(g, c, k);
  if (tfd__is_ragged(c->kind)) return tfd__gather_count(g, c, k, g->base + i);
  return first;
}

static int64_t gotten_count(const tfd__group *g, const tfd__collective *c,
                            int k, int i, int64_t first) {
  if (tfd__root_gets(c->kind) && g->base + i != c->root) return -1;
  switch (c->kind) {
  case TFD_COLLECTIVE_REDUCE_SCATTER:
    return first / g->size;
  case TFD_COLLECTIVE_ALL_GATHER:
  case TFD_COLLECTIVE_GATHER:
    return all_pieces(g, c, k);
  case TFD_COLLECTIVE_SCATTER:
    return tfd__gather_count(g, c, k, g->base + i);
  default:
    return first;
  }
}

static inline bool fits(const tfd__piece *p, const tfd_device *device,
                        const tfd__view *first) {
  return p->buffer->device == device && p->view->dense &&
         p->view->dtype == first->dtype && p->view->numel == first->numel;
}

/* The usual case, asked first: every rank gives and gets the same. */
static bool all_fit(const tfd__group *g, const tfd__collective *c, int k) {
  const tfd__piece *in = tfd__given(g, c, k, 0);
  const tfd__piece *out = tfd__gotten(g, c, k, 0);
  const tfd__view *first = in->view;
  int i;

  if (c->kind != TFD_COLLECTIVE_ALL_REDUCE || !tfd__is_float(first->dtype)) {
    return false;
  }
  for (i = 0; i < g->local; i++) {
    if (!fits(&in[i], g->devices[i], first) ||
        !fits(&out[i], g->devices[i], first)) {
      return false;
    }
  }
  return true;
}

static int check_value(const tfd__group *g, const tfd__collective *c, int k) {
  const tfd__piece *first = tfd__leader(g, c, k);
  int64_t n = first->view->numel;
  int dtype = first->view->dtype;
  int i;

  if (all_fit(g, c, k)) {
    for (i = 0; i < g->local; i++) TFD_TRY(tfd__buffer_check(first[i].buffer));
    return TFD_OK;
  }
  if (c->kind == TFD_COLLECTIVE_REDUCE_SCATTER && n % g->size != 0) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: %lld elements cannot be shared among %d ranks; a "
                     "multiple is needed",
                     c->what, (long long)n, g->size);
  }
  for (i = 0; i < g->local; i++) {
    int64_t gives = given_count(g, c, k, i, n);
    int64_t gets = gotten_count(g, c, k, i, n);
    const tfd__piece *in = tfd__given(g, c, k, i);

    if (gives >= 0) {
      TFD_TRY(check_piece(g, c, in, i, dtype, gives));
      TFD_TRY(tfd__buffer_check(in->buffer));
    }
    if (gets < 0) continue;
    TFD_TRY(check_piece(g, c, tfd__gotten(g, c, k, i), i, dtype, gets));
  }
  switch (c->kind) {
  case TFD_COLLECTIVE_ALL_REDUCE:
  case TFD_COLLECTIVE_REDUCE:
  case TFD_COLLECTIVE_REDUCE_SCATTER:
    return tfd__check_reduction(c->what, c->op, dtype);
  default:
    return TFD_OK;
  }
}

int tfd__collective_check(const tfd__group *g, const tfd__collective *c) {
  int k;

  if (g->left) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "%s: this process has left its group of %d ranks; it ends",
                     c->what, g->size);
  }
  if (g->provider == NULL) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "%s: the group's only rank has no device", c->what);
  }
  if (tfd__has_root(c->kind) && (c->root < 0 || c->root >= g->size)) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: there is no rank %d; there are %d",
                     c->what, c->root, g->size);
  }
  if (c->kind == TFD_COLLECTIVE_BARRIER) return TFD_OK;
  for (k = 0; k < c->values; k++) TFD_TRY(check_value(g, c, k));
  return TFD_OK;
}
