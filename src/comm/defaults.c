/* What providers leave out.
**
** From a broadcast everything else follows: all_gather is one of each rank,
** gather and scatter are one of each piece, reductions gather and add up in the
** order of ranks, so that all ranks get the same bits. Cost: size times the
** bytes on every rank; providers that are to be fast have their own. Between
** the steps of providers that are not ordered the caller waits, until the
** collective's deadline. The steps are told as what they are made for. */
#include "comm/private.h"

/* --- slots with nothing to do --------------------------------------------- */

static int always_can(const tfd__group_config *config) {
  (void)config;
  return TFD_OK;
}

static int open_nothing(tfd__group *g, const tfd__group_config *config) {
  (void)g;
  (void)config;
  return TFD_OK;
}

static void group_nothing(tfd__group *g) {
  (void)g;
}

static void nobody_is_late(tfd__group *g, uint64_t number, char *text,
                           size_t bytes) {
  (void)g;
  (void)number;
  (void)bytes;
  text[0] = '\0';
}

static void ticket_nothing(tfd__ticket *t) {
  (void)t;
}

static bool never_fuses(const tfd__group *g, tfd__kernel_id kernel) {
  (void)g;
  (void)kernel;
  return false;
}

static int fuse_nothing(tfd__group *g, const tfd__fused *f) {
  (void)f;
  return tfd__fail(TFD_NOT_IMPLEMENTED,
                   "provider \"%s\" does not reach all ranks' memory",
                   g->provider->name);
}

/* Until the devices have passed the positions, each in its order. */
static int wait_for_devices(tfd__ticket *t, tfd__deadline until, bool *done_p) {
  int i;

  for (i = 0; i < t->group->local; i++) {
    int rc = tfd__stream_wait(t->group->devices[i], t->seqs[i], until);

    if (rc == TFD_DEADLINE_EXCEEDED) return TFD_OK;
    if (rc != TFD_OK) return rc;
  }
  *done_p = true;
  return TFD_OK;
}

/* --- made of broadcasts --------------------------------------------------- */

static int broadcast(tfd__group *g, const tfd__collective *c, int root,
                     const tfd__piece *in, const tfd__piece *out) {
  tfd__collective one = *c;

  one.whole = tfd__collective_what(c, 0);
  one.kind = TFD_COLLECTIVE_BROADCAST;
  one.root = root;
  one.values = 1;
  one.in = in;
  one.out = out;
  return tfd__group_run(g, &one, c->until);
}

/* Outputs begin at element `at` of the local ranks' runs. */
static int broadcast_into(tfd__group *g, const tfd__collective *c, int k,
                          int root, const tfd__run_of *to, int64_t at,
                          int64_t n) {
  tfd__run_of parts[TFD_MAX_LOCAL_RANKS];
  tfd__piece in[TFD_MAX_LOCAL_RANKS] = {{0}};
  tfd__piece out[TFD_MAX_LOCAL_RANKS];
  int i;

  if (n == 0) return TFD_OK;
  for (i = 0; i < g->local; i++) {
    tfd__piece whole = {to[i].buffer, &to[i].view};

    parts[i] = tfd__part_of(&whole, at, n);
    out[i] = (tfd__piece){parts[i].buffer, &parts[i].view};
    if (g->base + i == root) in[i] = *tfd__given(g, c, k, i);
  }
  return broadcast(g, c, root, in, out);
}

/* All ranks' inputs of value k, one behind the other. */
static int gather_into(tfd__group *g, const tfd__collective *c, int k,
                       const tfd__run_of *to) {
  int64_t at = 0;
  int r;

  for (r = 0; r < g->size; r++) {
    int64_t n = c->kind == TFD_COLLECTIVE_ALL_GATHER
                    ? tfd__gather_count(g, c, k, r)
                    : tfd__given(g, c, k, 0)->view->numel;

    TFD_TRY(broadcast_into(g, c, k, r, to, at, n));
    at += n;
  }
  return TFD_OK;
}

static int finish(tfd__ticket *t, int rc) {
  if (rc == TFD_OK && t != NULL && !t->group->provider->ordered) {
    t->done = true;
  }
  return rc;
}

static int all_gather(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  tfd__run_of to[TFD_MAX_LOCAL_RANKS];
  int k;
  int i;

  for (k = 0; k < c->values; k++) {
    for (i = 0; i < g->local; i++) {
      const tfd__piece *out = tfd__gotten(g, c, k, i);

      to[i] = tfd__part_of(out, 0, out->view->numel);
    }
    TFD_TRY(gather_into(g, c, k, to));
  }
  return finish(t, TFD_OK);
}

/* Rank r's piece of value k; whom it is not for gets it into `waste`. */
static int broadcast_piece(tfd__group *g, const tfd__collective *c, int k,
                           int r, const tfd__run_of *waste) {
  bool gathers = c->kind == TFD_COLLECTIVE_GATHER;
  int giver = gathers ? r : c->root;
  int getter = gathers ? c->root : r;
  int64_t n = tfd__gather_count(g, c, k, r);
  tfd__run_of from[TFD_MAX_LOCAL_RANKS];
  tfd__run_of to[TFD_MAX_LOCAL_RANKS];
  tfd__piece in[TFD_MAX_LOCAL_RANKS] = {{0}};
  tfd__piece out[TFD_MAX_LOCAL_RANKS];
  int i;

  if (n == 0) return TFD_OK;
  for (i = 0; i < g->local; i++) {
    tfd__piece rest = {waste[i].buffer, &waste[i].view};

    to[i] = g->base + i == getter ? tfd__piece_at(g, c, k, r, gathers)
                                  : tfd__part_of(&rest, 0, n);
    out[i] = (tfd__piece){to[i].buffer, &to[i].view};
    if (g->base + i != giver) continue;
    from[i] = tfd__piece_at(g, c, k, r, !gathers);
    in[i] = (tfd__piece){from[i].buffer, &from[i].view};
  }
  return broadcast(g, c, giver, in, out);
}

static int64_t longest_piece(const tfd__group *g, const tfd__collective *c,
                             int k) {
  int64_t most = 0;
  int r;

  for (r = 0; r < g->size; r++) {
    int64_t n = tfd__gather_count(g, c, k, r);

    if (n > most) most = n;
  }
  return most;
}

/* Those of the root's process stay there. */
static int move_value(tfd__group *g, const tfd__collective *c, int k) {
  tfd__run_of waste[TFD_MAX_LOCAL_RANKS] = {{0}};
  int dtype = tfd__leader(g, c, k)->view->dtype;
  int64_t n = longest_piece(g, c, k);
  int rc = tfd__move_own_pieces(g, c, k);
  int i;
  int r;

  for (i = 0; rc == TFD_OK && i < g->local; i++) {
    rc = tfd__run_new(g->devices[i], dtype, n, &waste[i]);
  }
  for (r = 0; rc == TFD_OK && r < g->size; r++) {
    if (r / g->local == c->root / g->local) continue;
    rc = broadcast_piece(g, c, k, r, waste);
  }
  for (i = 0; i < g->local; i++) tfd__release(waste[i].buffer);
  return rc;
}

static int pieces(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  int k;

  for (k = 0; k < c->values; k++) TFD_TRY(move_value(g, c, k));
  return finish(t, TFD_OK);
}

/* What local rank i gets of the reduction of value k. */
static int reduce_gathered(tfd__group *g, const tfd__collective *c, int k,
                           int i, const tfd__run_of *gathered) {
  tfd__run_of in[TFD_MAX_LOCAL_RANKS];
  const tfd__piece *out = tfd__gotten(g, c, k, i);
  tfd__piece whole = {gathered->buffer, &gathered->view};
  tfd__run_of to;
  int64_t n = tfd__given(g, c, k, 0)->view->numel;
  int64_t begin = 0;
  int r;

  if (c->kind == TFD_COLLECTIVE_REDUCE && g->base + i != c->root) {
    return TFD_OK;
  }
  to = tfd__part_of(out, 0, out->view->numel);
  if (c->kind == TFD_COLLECTIVE_REDUCE_SCATTER) {
    begin = (g->base + i) * to.view.numel;
  }
  for (r = 0; r < g->size; r++) {
    in[r] = tfd__part_of(&whole, r * n + begin, to.view.numel);
  }
  return tfd__reduce_runs(c, in, g->size, &to);
}

static int reduce_value(tfd__group *g, const tfd__collective *c, int k) {
  tfd__run_of gathered[TFD_MAX_LOCAL_RANKS] = {{0}};
  const tfd__view *v = tfd__given(g, c, k, 0)->view;
  int rc = TFD_OK;
  int i;

  if (v->numel == 0) return TFD_OK;
  for (i = 0; rc == TFD_OK && i < g->local; i++) {
    rc =
        tfd__run_new(g->devices[i], v->dtype, v->numel * g->size, &gathered[i]);
  }
  if (rc == TFD_OK) rc = gather_into(g, c, k, gathered);
  for (i = 0; rc == TFD_OK && i < g->local; i++) {
    rc = reduce_gathered(g, c, k, i, &gathered[i]);
  }
  for (i = 0; i < g->local; i++) tfd__release(gathered[i].buffer);
  return rc;
}

static int reduction(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  int k;

  if (g->size > TFD_MAX_LOCAL_RANKS) {
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "%s: provider \"%s\" has no reductions of its own; those "
                     "made of broadcasts are for %d ranks, not for %d",
                     c->what, g->provider->name, TFD_MAX_LOCAL_RANKS, g->size);
  }
  for (k = 0; k < c->values; k++) TFD_TRY(reduce_value(g, c, k));
  return finish(t, TFD_OK);
}

/* Who has heard of all ranks knows that all have begun. */
static int barrier(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  tfd__run_of cells[2 * TFD_MAX_LOCAL_RANKS] = {{0}};
  tfd__piece pieces[2 * TFD_MAX_LOCAL_RANKS];
  const char nothing = 0;
  tfd__collective gather = {.kind = TFD_COLLECTIVE_ALL_GATHER,
                            .values = 1,
                            .what = c->what,
                            .in = pieces,
                            .out = pieces + g->local};
  int rc = TFD_OK;
  int n = 0;

  while (rc == TFD_OK && n < 2 * g->local) {
    bool given = n < g->local;

    rc = tfd__run_new(g->devices[n % g->local], TFD_UINT8, given ? 1 : g->size,
                      &cells[n]);
    if (rc != TFD_OK) break;
    if (given) rc = tfd__host_write(cells[n].buffer, 0, &nothing, 1);
    pieces[n] = (tfd__piece){cells[n].buffer, &cells[n].view};
    n++;
  }
  if (rc == TFD_OK) rc = tfd__group_run(g, &gather, c->until);
  while (n > 0) tfd__release(cells[--n].buffer);
  return finish(t, rc);
}

static int lend_nothing(tfd__group *g, int i, size_t bytes,
                        tfd__buffer **buffer_p) {
  (void)g;
  (void)i;
  (void)bytes;
  (void)buffer_p;
  return TFD_OK;
}

/* --- a table -------------------------------------------------------------- */

int tfd__provider_complete(tfd__provider *p) {
  static const tfd__provider made = {
      .can = always_can,
      .open = open_nothing,
      .close = group_nothing,
      .begin = {[TFD_COLLECTIVE_ALL_REDUCE] = reduction,
                [TFD_COLLECTIVE_REDUCE] = reduction,
                [TFD_COLLECTIVE_ALL_GATHER] = all_gather,
                [TFD_COLLECTIVE_REDUCE_SCATTER] = reduction,
                [TFD_COLLECTIVE_BARRIER] = barrier,
                [TFD_COLLECTIVE_GATHER] = pieces,
                [TFD_COLLECTIVE_SCATTER] = pieces},
      .wait = wait_for_devices,
      .end = ticket_nothing,
      .late = nobody_is_late,
      .abort = group_nothing,
      .lend = lend_nothing,
      .can_fuse = never_fuses,
      .fuse = fuse_nothing,
  };
  int i;

  if (p->begin[TFD_COLLECTIVE_BROADCAST] == NULL ||
      (p->wait == NULL && !p->ordered)) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "provider \"%s\" has no %s",
                     p->name,
                     p->wait == NULL && !p->ordered ? "wait" : "broadcast");
  }
  for (i = 0; i < TFD_COLLECTIVES; i++) {
    if (p->begin[i] == NULL) p->begin[i] = made.begin[i];
  }
  if (p->can == NULL) p->can = made.can;
  if (p->open == NULL) p->open = made.open;
  if (p->close == NULL) p->close = made.close;
  if (p->wait == NULL) p->wait = made.wait;
  if (p->end == NULL) p->end = made.end;
  if (p->late == NULL) p->late = made.late;
  if (p->abort == NULL) p->abort = made.abort;
  if (p->lend == NULL) p->lend = made.lend;
  if (p->can_fuse == NULL || p->fuse == NULL) {
    p->can_fuse = made.can_fuse;
    p->fuse = made.fuse;
  }
  return TFD_OK;
}
