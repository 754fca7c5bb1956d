/* Groups, their failures, and collectives from begin to end.
**
** A group's failure is a flag that everybody looks at and, under the lock, the
** first cause. Waits are cut into slices so that they see flag, deadline and
** interrupt whatever the provider does. */
#include "comm/flight.h"
#include "comm/private.h"

#include <stdio.h>

#define SLICE_NS 20000000
/* While groups of other providers need this thread. */
#define SHORT_SLICE_NS 1000000
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
  tfd__flight_cause(g->cause.message == NULL ? "" : g->cause.message);
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
  (void)tfd__fail(TFD_ABORTED, "%s: the %s cannot go on together: %s", what,
                  g->local == g->size ? "replicas" : "workers",
                  g->cause.message == NULL ? "" : g->cause.message);
  if (g->cause.hint != NULL) (void)tfd__hint("%s", g->cause.hint);
  (void)tfd__exit_with(g->cause.exit == TFD_EXIT_ANY ? TFD_EXIT_PEER_FAILED
                                                     : g->cause.exit);
  tfd__unlock(&g->lock);
  return TFD_ABORTED;
}

/* --- progress ------------------------------------------------------------- */

tfd__progress tfd__group_progress(tfd__group *g) {
  tfd__progress p;

  tfd__lock(&g->lock);
  p = g->progress;
  tfd__unlock(&g->lock);
  return p;
}

/* --- calls ---------------------------------------------------------------- */

void tfd__group_enter(tfd__group *g, int owed, uint64_t *mark_p) {
  if (g->depth++ == 0) g->owed = (uint8_t)owed;
  *mark_p = g->begun;
}

bool tfd__group_leave(tfd__group *g, uint64_t mark, const char *error) {
  if (--g->depth > 0) return false;
  if (error != NULL) tfd__note_left(error);
  g->owed = 0;
  if (g->begun == mark) return false;
  g->calls++;
  return true;
}

uint8_t tfd__group_call(tfd__group *g) {
  g->calls = (uint8_t)(g->calls + g->owed);
  g->owed = 0;
  return g->calls;
}

static bool is_recorded(const tfd__group *g) {
  return !tfd__group_is_alone(g) && !g->inner;
}

/* A collective's place among the group's. */
typedef struct place {
  uint64_t number;
  uint64_t flight;
} place;

static place enter(tfd__group *g, const tfd__collective *c) {
  const tfd__view *v = tfd__leading_view(g, c);
  uint64_t what = tfd__collective_what(c, v == NULL ? 0 : v->dtype);
  place at = {0, 0};

  tfd__lock(&g->lock);
  at.number = ++g->begun;
  g->progress = (tfd__progress){.number = at.number,
                                .what = what,
                                .count = v == NULL ? 0 : (uint64_t)v->numel,
                                .line = c->line,
                                .file = c->file};
  tfd__unlock(&g->lock);
  if (is_recorded(g)) at.flight = tfd__flight_begin(g, c, at.number);
  return at;
}

static void note_end(const tfd__group *g, uint64_t flight, bool done) {
  if (!is_recorded(g)) return;
  tfd__flight_end(flight, done ? TFD_FLIGHT_DONE : TFD_FLIGHT_FAILED);
}

/* It never began: its number is free again, for who fails alone may try once
** more. */
static void back_out(tfd__group *g, place at) {
  note_end(g, at.flight, false);
  tfd__lock(&g->lock);
  if (g->begun == at.number) g->begun--;
  tfd__unlock(&g->lock);
}

static void note_waits(tfd__group *g, bool waits) {
  if (tfd__group_is_alone(g)) return;
  tfd__lock(&g->lock);
  g->progress.waits = waits;
  tfd__unlock(&g->lock);
}

/* --- begin ---------------------------------------------------------------- */

static int ticket_make(tfd__group *g, const tfd__collective *c, place at,
                       tfd__ticket **t_p) {
  size_t bytes = sizeof(tfd__ticket) + (size_t)g->local * sizeof(uint64_t);
  tfd__ticket *t = tfd__calloc(1, bytes);

  if (t == NULL) return tfd__no_memory(bytes, "collective");
  tfd__retain(g);
  t->group = g;
  t->kind = c->kind;
  t->number = at.number;
  t->flight = at.flight;
  *t_p = t;
  return TFD_OK;
}

static int check_call(tfd__group *g, const tfd__collective *c) {
  TFD_TRY(tfd__group_check(g, tfd__collective_name(c->kind)));
  return tfd__collective_check(g, c);
}

/* What was checked and has its place. */
static int begin_at(tfd__group *g, const tfd__collective *c, place at,
                    tfd__ticket **ticket_p) {
  tfd__ticket *t = NULL;
  int rc = ticket_make(g, c, at, &t);
  int i;

  if (rc == TFD_OK) rc = g->provider->begin[c->kind](g, c, t);
  if (rc != TFD_OK) {
    back_out(g, at);
    if (t != NULL) t->done = true;
    tfd__ticket_end(t);
    return rc;
  }
  for (i = 0; i < g->local; i++) {
    t->seqs[i] = tfd__stream_seq(g->devices[i]);
  }
  *ticket_p = t;
  return TFD_OK;
}

int tfd__group_begin(tfd__group *g, const tfd__collective *c,
                     tfd__ticket **ticket_p) {
  TFD_TRY(check_call(g, c));
  if (ticket_p != NULL) return begin_at(g, c, enter(g, c), ticket_p);
  if (g->provider->ordered) {
    g->begun += !tfd__group_is_alone(g);
    return g->provider->begin[c->kind](g, c, NULL);
  }
  return tfd__fail(TFD_VALUE_ERROR,
                   "%s: results of provider \"%s\" must be waited for", c->what,
                   g->provider->name);
}

static int run_to_end(tfd__group *g, const tfd__collective *c) {
  tfd__quick progress = TFD_QUICK_NOT;
  tfd__ticket *t = NULL;
  place at;
  int rc = TFD_OK;

  if (g->provider == NULL || g->provider->ordered) {
    return tfd__group_begin(g, c, NULL);
  }
  TFD_TRY(check_call(g, c));
  at = enter(g, c);
  if (g->provider->quick != NULL) {
    rc = g->provider->quick(g, c, at.number, &progress);
    if (rc != TFD_OK || progress == TFD_QUICK_DONE) {
      note_end(g, at.flight, rc == TFD_OK);
      return rc;
    }
  }
  rc = begin_at(g, c, at, &t);
  if (rc != TFD_OK) {
    return progress == TFD_QUICK_BEGUN ? tfd__group_fail(g) : rc;
  }
  rc = tfd__ticket_wait(t, c->until);
  tfd__ticket_end(t);
  return rc;
}

int tfd__group_run(tfd__group *g, const tfd__collective *c,
                   tfd__deadline until) {
  int64_t begin = tfd__span_begin();
  tfd__collective own = *c;
  int rc;

  own.until = until;
  rc = run_to_end(g, &own);

  tfd__span_end(TFD_SPAN_COLLECTIVE, tfd__collective_name(c->kind), begin, -1);
  return rc;
}

int tfd__group_buffer(tfd__group *g, int i, size_t bytes,
                      tfd__buffer **buffer_p) {
  *buffer_p = NULL;
  if (g->provider != NULL && !atomic_load(&g->failed)) {
    TFD_TRY(g->provider->lend(g, i, bytes, buffer_p));
  }
  return *buffer_p != NULL ? TFD_OK
                           : tfd__buffer_new(g->devices[i], bytes, buffer_p);
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
  if (t->done) note_end(t->group, t->flight, true);
  return rc;
}

int tfd__ticket_look(tfd__ticket *t, tfd__deadline until, bool *done_p) {
  TFD_TRY(look(t, until));
  *done_p = t->done;
  return TFD_OK;
}

int tfd__ticket_test(tfd__ticket *t, bool *done_p) {
  return tfd__ticket_look(t, tfd__now_ns() + SLICE_NS / 200, done_p);
}

static int missed(tfd__ticket *t) {
  tfd__group *g = t->group;
  char late[1024];

  g->provider->late(g, t->number, late, sizeof late);
  (void)tfd__fail(TFD_DEADLINE_EXCEEDED,
                  "%s: not done at its deadline on ranks %d to %d of %d%s%s",
                  tfd__collective_name(t->kind), g->base,
                  g->base + g->local - 1, g->size, late[0] == 0 ? "" : ": ",
                  late);
  (void)tfd__exit_with(TFD_EXIT_PEER_FAILED);
  return tfd__group_fail(g);
}

/* Say who keeps it, after g->stall and then in growing intervals. */
static void say_stall(tfd__ticket *t, int64_t begin, int64_t now,
                      int64_t *say_at) {
  tfd__group *g = t->group;
  tfd__progress p;
  char words[160];
  char where[64] = "";
  char late[1024];

  if (now < *say_at || tfd__group_is_alone(g)) return;
  *say_at = now + (*say_at - begin);
  p = tfd__group_progress(g);
  tfd__collective_text(p.what, p.count, 1, words, sizeof words);
  if (p.number != t->number) { /* others were begun meanwhile */
    (void)snprintf(words, sizeof words, "%s", tfd__collective_name(t->kind));
  }
  if (p.line > 0) {
    char file[40];

    tfd__file_end(p.file, file, sizeof file);
    (void)snprintf(where, sizeof where, " at %s:%d", file, p.line);
  }
  g->provider->late(g, t->number, late, sizeof late);
  tfd__log(TFD_LOG_WARNING,
           "process %d has waited for %.0f s in collective %llu, %s%s: %s",
           g->base / g->local, (double)(now - begin) * 1e-9,
           (unsigned long long)t->number, words, where,
           late[0] == 0 ? "all processes have come to it, it is under way"
                        : late);
}

static int wait_until_done(tfd__ticket *t, tfd__deadline until) {
  int64_t begin = tfd__now_ns();
  int64_t say_at = begin + (int64_t)(t->group->stall * 1e9);
  int64_t slice = SLICE_NS;

  for (;;) {
    int64_t now = tfd__now_ns();
    int64_t took = 0;

    TFD_TRY(look(t, until - now > slice ? now + slice : until));
    if (t->done) return TFD_OK;
    slice =
        tfd__tend_others(t->group->provider->tend) ? SHORT_SLICE_NS : SLICE_NS;
    if (tfd__interrupt_get()) {
      return tfd__fail(TFD_CANCELLED, "%s: interrupted while waiting",
                       tfd__collective_name(t->kind));
    }
    took = tfd__now_ns() - now;
    if (took > PAUSE_NS && until != TFD_FOREVER) until += took;
    if (now + took >= until) return missed(t);
    say_stall(t, begin, now + took, &say_at);
  }
}

int tfd__ticket_wait(tfd__ticket *t, tfd__deadline until) {
  int64_t begin = tfd__span_begin();
  int rc;

  if (t->done) return TFD_OK;
  if (until == 0) until = tfd__deadline_in(t->group->timeout);
  note_waits(t->group, true);
  rc = wait_until_done(t, until);
  note_waits(t->group, false);
  tfd__span_end(TFD_SPAN_COLLECTIVE, tfd__collective_name(t->kind), begin, -1);
  return rc;
}

/* The thread's error, if there is one, is what the caller will tell; it may be
** an old one. An interrupt stays set as long as C works. */
static void give_up(tfd__group *g) {
  tfd__error kept = {0};

  tfd__error_save(&kept);
  tfd__group_abort(g, tfd__interrupt_get()
                          ? "it was interrupted in the middle of a collective"
                          : "a collective was given up before its end");
  (void)tfd__error_raise(&kept);
  tfd__error_free(&kept);
}

void tfd__ticket_end(tfd__ticket *t) {
  if (t == NULL) return;
  if (!t->done && !t->group->provider->ordered) {
    note_end(t->group, t->flight, false);
    give_up(t->group);
  }
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
  int64_t begin = tfd__span_begin();
  int rc;

  TFD_TRY(tfd__group_check(g, "update"));
  rc = g->provider->fuse(g, f);
  tfd__span_end(TFD_SPAN_COLLECTIVE, "sums and updates", begin, -1);
  return rc;
}
