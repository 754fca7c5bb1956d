/* What providers whose collectives go on after `begin` keep of one, and the
** steps that all of them have: the ranks of this process are added up before
** anything goes out, and get the results when everything has come in. */
#include <string.h>

#include "base/failpoint.h"
#include "comm/private.h"

/* --- the call's own copy -------------------------------------------------- */

/* n pieces with views of their own from `views` on; buffers are kept alive. */
static void keep_pieces(const tfd__piece *from, int n, tfd__piece *to,
                        tfd__view *views) {
  int i;

  for (i = 0; from != NULL && i < n; i++) {
    if (from[i].buffer == NULL) continue;
    views[i] = *from[i].view;
    tfd__retain(from[i].buffer);
    to[i] = (tfd__piece){from[i].buffer, &views[i]};
  }
}

int tfd__kept_init(tfd__kept *w, const tfd__group *g,
                   const tfd__collective *c) {
  size_t n = (size_t)(c->values * g->local);
  size_t counts = c->counts == NULL ? 0 : (size_t)(c->values * g->size);
  size_t bytes = 2 * n * (sizeof(tfd__piece) + sizeof(tfd__view)) +
                 counts * sizeof(int64_t) + (size_t)g->local * sizeof(uint64_t);
  tfd__view *views = tfd__calloc(1, bytes);

  if (views == NULL) return tfd__no_memory(bytes, c->what);
  w->c = *c;
  w->block = views;
  w->in = (tfd__piece *)(views + 2 * n);
  w->out = w->in + n;
  w->seqs = (uint64_t *)(w->out + n);
  keep_pieces(c->in, (int)n, w->in, views);
  keep_pieces(c->out, (int)n, w->out, views + n);
  w->c.in = w->in;
  w->c.out = w->out;
  if (counts > 0) {
    int64_t *own = (int64_t *)(w->seqs + g->local);

    memcpy(own, c->counts, counts * sizeof *own);
    w->c.counts = own;
  }
  return TFD_OK;
}

void tfd__kept_free(tfd__kept *w, const tfd__group *g) {
  int n = w->c.values * g->local;
  int i;

  for (i = 0; i < n; i++) {
    tfd__release(w->in[i].buffer);
    tfd__release(w->out[i].buffer);
  }
  tfd__free(w->block);
}

uint64_t tfd__kept_signature(const tfd__kept *w, int dtype) {
  return tfd__collective_what(&w->c, dtype);
}

int tfd__pass_chunk(const tfd__collective *c) {
  int fault = 0;

  if (c->kind == TFD_COLLECTIVE_ALL_REDUCE) fault = TFD_FAIL(ALLREDUCE_CHUNK);
  if (fault <= 0) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE, "%s: %s", c->what, strerror(fault));
}

/* --- the devices ---------------------------------------------------------- */

void tfd__kept_note(tfd__kept *w, const tfd__group *g) {
  int i;

  for (i = 0; i < g->local; i++) w->seqs[i] = tfd__stream_seq(g->devices[i]);
}

int tfd__kept_ready(const tfd__kept *w, const tfd__group *g,
                    tfd__deadline until, bool *ready_p) {
  int i;

  for (i = 0; i < g->local; i++) {
    int rc = tfd__stream_wait(g->devices[i], w->seqs[i], until);

    if (rc == TFD_DEADLINE_EXCEEDED && tfd__now_ns() >= until) return TFD_OK;
    if (rc != TFD_OK) return rc;
  }
  *ready_p = true;
  return TFD_OK;
}

bool tfd__sum_grows(const tfd__group *g, const tfd__collective *c, int k) {
  const tfd__view *v = tfd__given(g, c, k, 0)->view;
  bool is_half = v->dtype == TFD_FLOAT16 || v->dtype == TFD_BFLOAT16;

  return !is_half && tfd__sum_kernel(g, c->op, v->dtype) != NULL;
}

/* --- before --------------------------------------------------------------- */

int tfd__kept_reduce(const tfd__kept *w, const tfd__group *g, int k,
                     tfd__run_of *mine, bool *is_new_p) {
  int64_t numel = tfd__given(g, &w->c, k, 0)->view->numel;
  tfd__run_of in[TFD_MAX_LOCAL_RANKS];
  int i;

  for (i = 0; i < g->local; i++) {
    in[i] = tfd__part_of(tfd__given(g, &w->c, k, i), 0, numel);
  }
  *mine = in[0];
  *is_new_p = false;
  if (g->local == 1) return TFD_OK;
  *mine = (tfd__run_of){0};
  TFD_TRY(tfd__run_new(g->devices[0], in[0].view.dtype, numel, mine));
  *is_new_p = true;
  return tfd__reduce_runs(&w->c, in, g->local, mine);
}

/* --- after ---------------------------------------------------------------- */

/* A run to elements [begin, end) of the outputs of all ranks here. */
static int spread(const tfd__kept *w, const tfd__group *g, int k,
                  const tfd__run_of *run, tfd__stretch s) {
  int i;

  for (i = 0; i < g->local; i++) {
    tfd__run_of to =
        tfd__part_of(tfd__gotten(g, &w->c, k, i), s.begin, s.end - s.begin);

    TFD_TRY(tfd__run_copy(&to, run));
  }
  return TFD_OK;
}

static int spread_value(const tfd__kept *w, const tfd__group *g, int k) {
  const tfd__piece *out = tfd__gotten(g, &w->c, k, 0);
  tfd__stretch all = {0, out->view->numel};
  tfd__run_of run = tfd__part_of(out, 0, all.end);
  int root = w->c.root - g->base;
  int r;

  if (w->c.kind == TFD_COLLECTIVE_BROADCAST && root >= 0 && root < g->local) {
    run = tfd__part_of(tfd__given(g, &w->c, k, root), 0, all.end);
  }
  if (w->c.kind != TFD_COLLECTIVE_ALL_GATHER) return spread(w, g, k, &run, all);
  for (r = 0; r < g->size; r++) {
    tfd__stretch s = tfd__gathered(g, &w->c, k, r);
    bool local = r >= g->base && r < g->base + g->local;

    run = local ? tfd__part_of(tfd__given(g, &w->c, k, r - g->base), 0,
                               s.end - s.begin)
                : tfd__part_of(out, s.begin, s.end - s.begin);
    TFD_TRY(spread(w, g, k, &run, s));
  }
  return TFD_OK;
}

int tfd__kept_spread(const tfd__kept *w, const tfd__group *g) {
  int k;

  for (k = 0; k < w->c.values; k++) {
    TFD_TRY(tfd__moves_pieces(w->c.kind) ? tfd__move_own_pieces(g, &w->c, k)
                                         : spread_value(w, g, k));
  }
  return TFD_OK;
}
