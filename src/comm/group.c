/* Groups, their failures, and collectives from begin to end.
**
** A group's failure is a flag that everybody looks at and, under the lock, the
** first cause. Waits are cut into slices so that they see flag, deadline and
** interrupt whatever the provider does. */
#include "comm/private.h"

#define SLICE_NS 20000000
/* A slice that took longer than this: the process was stopped meanwhile. */
#define PAUSE_NS 5000000000

/* --- failure -------------------------------------------------------------- */

int tfd__group_fail(tfd__group *g) {
  tfd__error now = {0};
  bool first;
  int code;

  tfd__error_save(&now);
  code = (int)now.code;
  tfd__lock(&g->lock);
  first = g->cause.code == TFD_OK;
  if (first) g->cause = now;
  tfd__unlock(&g->lock);
  if (!first) {
    tfd__error_free(&now);
    return code;
  }
  atomic_store(&g->failed, true);
  if (g->provider != NULL) g->provider->abort(g);
  return code;
}

void tfd__group_abort(tfd__group *g, const char *reason) {
  (void)tfd__fail(TFD_ABORTED, "%s", reason);
  (void)tfd__group_fail(g);
}

int tfd__group_check(tfd__group *g, const char *what) {
  if (TFD_LIKELY(!atomic_load_explicit(&g->failed, memory_order_acquire))) {
    return TFD_OK;
  }
  tfd__lock(&g->lock);
  (void)tfd__fail(TFD_ABORTED,
                  "%s: the group of ranks %d to %d of %d has failed: %s", what,
                  g->base, g->base + g->local - 1, g->size,
                  g->cause.message == NULL ? "" : g->cause.message);
  if (g->cause.hint != NULL) (void)tfd__hint("%s", g->cause.hint);
  (void)tfd__exit_with(g->cause.exit == TFD_EXIT_ANY ? TFD_EXIT_PEER_FAILED
                                                     : g->cause.exit);
  tfd__unlock(&g->lock);
  return TFD_ABORTED;
}

/* --- begin ---------------------------------------------------------------- */

const char *tfd__collective_name(tfd__collective_kind kind) {
  static const char *const names[TFD_COLLECTIVES] = {
      [TFD_COLLECTIVE_ALL_REDUCE] = "all_reduce",
      [TFD_COLLECTIVE_REDUCE] = "reduce",
      [TFD_COLLECTIVE_BROADCAST] = "broadcast",
      [TFD_COLLECTIVE_ALL_GATHER] = "all_gather",
      [TFD_COLLECTIVE_REDUCE_SCATTER] = "reduce_scatter",
      [TFD_COLLECTIVE_BARRIER] = "barrier",
  };

  return names[kind];
}

static int ticket_make(tfd__group *g, const tfd__collective *c,
                       tfd__ticket **t_p) {
  size_t bytes = sizeof(tfd__ticket) + (size_t)g->local * sizeof(uint64_t);
  tfd__ticket *t = tfd__calloc(1, bytes);

  if (t == NULL) return tfd__no_memory(bytes, "collective");
  tfd__retain(g);
  t->group = g;
  t->kind = c->kind;
  *t_p = t;
  return TFD_OK;
}

int tfd__group_begin(tfd__group *g, const tfd__collective *c,
                     tfd__ticket **ticket_p) {
  tfd__ticket *t = NULL;
  int rc;
  int i;

  TFD_TRY(tfd__group_check(g, c->what));
  TFD_TRY(tfd__collective_check(g, c));
  if (ticket_p == NULL && !g->provider->ordered) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: results of provider \"%s\" must be waited for",
                     c->what, g->provider->name);
  }
  if (ticket_p != NULL) TFD_TRY(ticket_make(g, c, &t));
  rc = g->provider->begin[c->kind](g, c, t);
  if (rc != TFD_OK) {
    if (t != NULL) t->done = true; /* it never began */
    tfd__ticket_end(t);
    return rc;
  }
  for (i = 0; t != NULL && i < g->local; i++) {
    t->seqs[i] = tfd__stream_seq(g->devices[i]);
  }
  if (ticket_p != NULL) *ticket_p = t;
  return TFD_OK;
}

int tfd__group_run(tfd__group *g, const tfd__collective *c,
                   tfd__deadline until) {
  tfd__quick progress = TFD_QUICK_NOT;
  tfd__ticket *t = NULL;
  int rc;

  if (g->provider == NULL || g->provider->ordered) {
    return tfd__group_begin(g, c, NULL);
  }
  if (g->provider->quick != NULL) {
    TFD_TRY(tfd__group_check(g, c->what));
    TFD_TRY(tfd__collective_check(g, c));
    TFD_TRY(g->provider->quick(g, c, &progress));
    if (progress == TFD_QUICK_DONE) return TFD_OK;
  }
  rc = tfd__group_begin(g, c, &t);
  if (rc != TFD_OK) {
    return progress == TFD_QUICK_BEGUN ? tfd__group_fail(g) : rc;
  }
  rc = tfd__ticket_wait(t, until);
  tfd__ticket_end(t);
  return rc;
}

/* --- test and wait -------------------------------------------------------- */

/* One slice of waiting. */
static int look(tfd__ticket *t, tfd__deadline until) {
  int rc;

  if (t->error.code != TFD_OK) return tfd__error_raise(&t->error);
  if (t->done) return TFD_OK;
  TFD_TRY(tfd__group_check(t->group, tfd__collective_name(t->kind)));
  rc = t->group->provider->wait(t, until, &t->done);
  if (rc != TFD_OK) tfd__error_save(&t->error);
  return rc;
}

int tfd__ticket_test(tfd__ticket *t, bool *done_p) {
  TFD_TRY(look(t, tfd__now_ns() + SLICE_NS / 200));
  *done_p = t->done;
  return TFD_OK;
}

static int missed(tfd__ticket *t) {
  tfd__group *g = t->group;

  (void)tfd__fail(TFD_DEADLINE_EXCEEDED,
                  "%s: not done at its deadline on ranks %d to %d of %d",
                  tfd__collective_name(t->kind), g->base,
                  g->base + g->local - 1, g->size);
  (void)tfd__exit_with(TFD_EXIT_PEER_FAILED);
  return tfd__group_fail(g);
}

int tfd__ticket_wait(tfd__ticket *t, tfd__deadline until) {
  if (until == 0) until = tfd__deadline_in(t->group->timeout);
  for (;;) {
    int64_t now = tfd__now_ns();
    int64_t took = 0;

    TFD_TRY(look(t, until - now > SLICE_NS ? now + SLICE_NS : until));
    if (t->done) return TFD_OK;
    if (tfd__interrupt_get()) {
      return tfd__fail(TFD_CANCELLED, "%s: interrupted while waiting",
                       tfd__collective_name(t->kind));
    }
    took = tfd__now_ns() - now;
    if (took > PAUSE_NS && until != TFD_FOREVER) until += took;
    if (now + took >= until) return missed(t);
  }
}

/* The thread's error, if there is one, is what the caller will tell. */
static void give_up(tfd__group *g) {
  tfd__error kept = {0};

  tfd__error_save(&kept);
  tfd__group_abort(g, "a collective was given up before its end");
  (void)tfd__error_raise(&kept);
  tfd__error_free(&kept);
}

void tfd__ticket_end(tfd__ticket *t) {
  if (t == NULL) return;
  if (!t->done && !t->group->provider->ordered) give_up(t->group);
  t->group->provider->end(t);
  tfd__error_free(&t->error);
  tfd__release(t->group);
  tfd__free(t);
}

/* --- fused ---------------------------------------------------------------- */

bool tfd__group_can_fuse(const tfd__group *g, tfd__kernel_id kernel) {
  return g->provider != NULL && g->provider->can_fuse(g, kernel);
}

int tfd__group_fuse(tfd__group *g, const tfd__fused *f) {
  TFD_TRY(tfd__group_check(g, "update"));
  return g->provider->fuse(g, f);
}
