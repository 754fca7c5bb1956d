/* The provider: what a process gives to a collective and gets from it.
**
** The local ranks' inputs are reduced by their devices before; results go to
** all local ranks after. Half types are widened to float32 on the way in and
** rounded once, on the way out. Order of additions: a process's ranks first,
** then MPI's own order, which depends on the number of processes and on the
** size alone. */
#include <string.h>

#include "comm/mpi/mpi.h"

/* Of a wait for the inputs of what is not waited for. */
#define TEND_NS 1000000
/* Of a collective that is waited for at once, before it gets a ticket. */
#define QUICK_NS 1000000
/* That processes which have met take for a few words. */
#define CARD_SECONDS 300.0

/* --- who can ---------------------------------------------------------------
 */

static int can(const tfd__group_config *c) {
  const tfd__network *n = c->network;
  int i;

  if (!tfd__mpi_is_wanted()) {
    (void)tfd__fail(TFD_UNAVAILABLE,
                    "group: provider \"mpi\": no MPI started this process");
    return tfd__hint("mpirun -n 2 tfdist script.lua, or TFDIST_TRANSPORT=mpi");
  }
  if (n == NULL || c->size != n->processes * c->local ||
      c->base != n->process * c->local) {
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"mpi\" needs processes that have as "
                     "many ranks each");
  }
  for (i = 0; i < c->local; i++) {
    if (c->devices[i]->backend->host_visible) continue;
    return tfd__fail(TFD_UNAVAILABLE,
                     "group: provider \"mpi\" does not reach the memory of %s",
                     c->devices[i]->short_name);
  }
  return TFD_OK;
}

static int check_world(const tfd__network *n) {
  const tfd__world *w = &tfd__mpi.world;

  if (w->process == n->process && w->processes == n->processes) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE,
                   "group: this is process %d of %d, and MPI says it is %d of "
                   "%d",
                   n->process, n->processes, w->process, w->processes);
}

static int group_alloc(const tfd__group *g, const tfd__network *n,
                       tfd__mpi_group **own_p) {
  size_t processes = (size_t)n->processes;
  size_t bytes = (size_t)g->local * sizeof *g->devices;
  tfd__mpi_group *own = tfd__calloc(1, sizeof *own);

  if (own == NULL) return tfd__no_memory(sizeof *own, "group");
  own->devices = tfd__alloc(bytes);
  own->sends = tfd__calloc(processes, sizeof *own->sends);
  own->ended = tfd__calloc(processes, sizeof *own->ended);
  own->calls = tfd__calloc(processes, sizeof *own->calls);
  own->statuses = tfd__calloc(processes, sizeof *own->statuses);
  if (own->devices == NULL || own->sends == NULL || own->ended == NULL ||
      own->calls == NULL || own->statuses == NULL) {
    tfd__mpi_group_free(own);
    return tfd__no_memory(processes * sizeof *own->calls, "group");
  }
  memcpy(own->devices, g->devices, bytes);
  own->local = g->local;
  own->base = g->base;
  own->size = g->size;
  own->process = n->process;
  own->processes = n->processes;
  own->data = MPI_COMM_NULL;
  own->control = MPI_COMM_NULL;
  own->making[0] = MPI_REQUEST_NULL;
  own->making[1] = MPI_REQUEST_NULL;
  own->receive = MPI_REQUEST_NULL;
  own->comparing = MPI_REQUEST_NULL;
  own->dealing = MPI_REQUEST_NULL;
  *own_p = own;
  return TFD_OK;
}

/* This process lives on without the group: the others, who may wait for its
** part or come later, are told. */
static void give_up(tfd__mpi_group *own) {
  tfd__error kept = {0};

  tfd__error_save(&kept);
  (void)tfd__fail(TFD_ABORTED, "it has given the group up: %s",
                  kept.message == NULL ? "" : kept.message);
  tfd__mpi_fail(own, true);
  (void)tfd__error_raise(&kept);
  tfd__error_free(&kept);
}

/* Wait for the thread to have done what every process takes part in; the lock
** is held. */
static int wait_for_all(const tfd__mpi_group *own, const bool *there,
                        tfd__deadline until, const char *late) {
  while (!*there && own->error.code == TFD_OK && tfd__now_ns() < until &&
         !tfd__interrupt_get()) {
    (void)tfd__cond_wait(&tfd__mpi.changed, &tfd__mpi.lock,
                         tfd__deadline_in(0.05));
  }
  if (own->error.code != TFD_OK) return tfd__error_raise(&own->error);
  if (*there) return TFD_OK;
  if (tfd__interrupt_get()) {
    return tfd__fail(TFD_CANCELLED,
                     "group: interrupted while waiting for processes");
  }
  return tfd__fail(TFD_DEADLINE_EXCEEDED,
                   "group: not all of the %d processes that MPI started have "
                   "%s",
                   own->processes, late);
}

/* Wait for the thread to have made the group's communicators. */
static int meet(tfd__mpi_group *own, double seconds) {
  tfd__deadline until = tfd__deadline_in(seconds > 0 ? seconds : 300);
  int rc;

  tfd__lock(&tfd__mpi.lock);
  own->next = tfd__mpi.groups;
  tfd__mpi.groups = own;
  tfd__mpi_wake();
  rc = wait_for_all(own, &own->open, until, "opened it");
  tfd__unlock(&tfd__mpi.lock);
  if (rc == TFD_OK) return TFD_OK;
  give_up(own);
  tfd__lock(&tfd__mpi.lock);
  own->closing = true; /* the thread may free it from here on */
  tfd__mpi_wake();
  tfd__unlock(&tfd__mpi.lock);
  return rc;
}

/* As tfd__tell. What MPI has is the group's own memory (M2). */
static int tell(void *arg, const void *mine, void *all, size_t bytes) {
  tfd__mpi_group *own = arg;
  size_t whole = (size_t)own->processes * bytes;
  tfd__deadline until = tfd__deadline_in(CARD_SECONDS);
  int rc;

  if (own->cards == NULL) {
    own->cards = tfd__calloc(1, bytes + whole);
    if (own->cards == NULL) return tfd__no_memory(bytes + whole, "group");
    own->card_bytes = bytes;
  }
  memcpy(own->cards, mine, bytes);
  tfd__lock(&tfd__mpi.lock);
  own->cards_there = false;
  own->cards_wanted = true;
  tfd__mpi_wake();
  rc = wait_for_all(own, &own->cards_there, until, "told their addresses");
  if (rc == TFD_OK) memcpy(all, own->cards + bytes, whole);
  tfd__unlock(&tfd__mpi.lock);
  return rc;
}

/* The rest is the thread's: it is let go of. */
static void let_go(tfd__group *g) {
  tfd__mpi_group *own = g->own;

  tfd__lock(&tfd__mpi.lock);
  own->closing = true;
  if (own->early != NULL) own->early->let_go = true;
  tfd__mpi_wake();
  tfd__unlock(&tfd__mpi.lock);
  tfd__control_close(own->beside);
  g->own = NULL;
  tfd__lock(&tfd__mpi.lock);
  own->held = false; /* the thread may free it from here on */
  tfd__mpi_wake();
  tfd__unlock(&tfd__mpi.lock);
}

static int open_group(tfd__group *g, const tfd__group_config *config) {
  const tfd__network *n = config->network;
  tfd__mpi_group *own = NULL;
  int rc;

  TFD_TRY(tfd__mpi_start(n->start_timeout));
  TFD_TRY(check_world(n));
  TFD_TRY(group_alloc(g, n, &own));
  TFD_TRY(meet(own, n->start_timeout));
  g->own = own;
  own->held = true;
  rc = tfd__control_open(g, config, &tfd__mpi.world, tell, own, &own->beside);
  tfd__lock(&tfd__mpi.lock);
  own->is_controlled = own->beside != NULL;
  tfd__unlock(&tfd__mpi.lock);
  if (rc != TFD_OK) {
    give_up(own);
    let_go(g);
  }
  return rc;
}

static void fail_alike(tfd__group *g, bool tell) {
  tfd__error kept = {0};

  tfd__error_save(&kept);
  (void)tfd__error_raise(&g->cause);
  tfd__mpi_fail(g->own, tell);
  (void)tfd__error_raise(&kept);
  tfd__error_free(&kept);
}

/* Who heads for abort_group on another thread may not have come to it: without
** the cause the others would be told of an orderly end. */
static void close_group(tfd__group *g) {
  if (atomic_load(&g->failed)) fail_alike(g, false);
  let_go(g);
}

static void late(tfd__group *g, uint64_t number, char *text, size_t bytes) {
  const tfd__mpi_group *own = g->own;

  tfd__control_late(own->beside, number, text, bytes);
}

static void abort_group(tfd__group *g) {
  const tfd__mpi_group *own = g->own;

  tfd__control_abort(own->beside, &g->cause);
  fail_alike(g, own->beside == NULL); /* else it is told by that */
}

/* --- what a process gives ---------------------------------------------------
 */

static bool is_half(int dtype) {
  return dtype == TFD_FLOAT16 || dtype == TFD_BFLOAT16;
}

static tfd__run_of whole(const tfd__piece *p) {
  return tfd__part_of(p, 0, p->view->numel);
}

/* A local rank's input in the dtype of the sum; *owned_p must be released when
** the work that reads it is submitted. */
static int widen(const tfd__collective *c, tfd__run_of *run,
                 tfd__buffer **owned_p) {
  tfd__run_of wide = {0};

  *owned_p = NULL;
  if (!is_half(run->view.dtype)) return TFD_OK;
  TFD_TRY(
      tfd__run_new(run->buffer->device, TFD_FLOAT32, run->view.numel, &wide));
  *owned_p = wide.buffer;
  TFD_TRY(tfd__run_cast(c, &wide, run));
  *run = wide;
  return TFD_OK;
}

/* The reduction of the local ranks' inputs into p->give; means are divided at
** the end. */
static int reduce_local(const tfd__group *g, tfd__mpi_work *w, int k) {
  tfd__run_of in[TFD_MAX_LOCAL_RANKS];
  tfd__buffer *owned[TFD_MAX_LOCAL_RANKS] = {NULL};
  tfd__mpi_part *p = &w->parts[k];
  tfd__collective sum = w->c;
  int rc = TFD_OK;
  int i;

  if (sum.op == TFD_REDUCE_MEAN) sum.op = TFD_REDUCE_SUM;
  for (i = 0; rc == TFD_OK && i < g->local; i++) {
    in[i] = whole(tfd__given(g, &w->c, k, i));
    rc = widen(&sum, &in[i], &owned[i]);
  }
  if (rc == TFD_OK && g->local == 1) {
    p->give = in[0];
    p->owns_give = owned[0] != NULL;
    owned[0] = NULL;
  } else if (rc == TFD_OK) {
    rc = tfd__run_new(g->devices[0], in[0].view.dtype, in[0].view.numel,
                      &p->give);
    p->owns_give = rc == TFD_OK;
    if (rc == TFD_OK) rc = tfd__reduce_runs(&sum, in, g->local, &p->give);
  }
  for (i = 0; i < g->local; i++) tfd__release(owned[i]);
  return rc;
}

static int begin_reduction(const tfd__group *g, tfd__mpi_work *w, int k) {
  tfd__mpi_part *p = &w->parts[k];
  int root = w->c.root - g->base;
  const tfd__piece *out = tfd__gotten(g, &w->c, k, 0);
  bool wide = false;

  TFD_TRY(reduce_local(g, w, k));
  wide = is_half(tfd__given(g, &w->c, k, 0)->view->dtype);
  if (w->c.kind == TFD_COLLECTIVE_REDUCE) {
    if (root < 0 || root >= g->local) return TFD_OK;
    out = tfd__gotten(g, &w->c, k, root);
  }
  if (w->c.kind != TFD_COLLECTIVE_REDUCE_SCATTER) {
    p->take = wide ? p->give : whole(out);
    return TFD_OK;
  }
  if (!wide && g->local == 1 && out->buffer != p->give.buffer) {
    p->take = whole(out);
    return TFD_OK;
  }
  TFD_TRY(tfd__run_new(g->devices[0], p->give.view.dtype,
                       out->view->numel * g->local, &p->take));
  p->owns_take = true;
  return TFD_OK;
}

/* Where rank r's elements lie in value k of an all_gather. */
static int64_t gathered_at(const tfd__group *g, const tfd__mpi_work *w, int k,
                           int r) {
  int64_t at = 0;
  int i;

  for (i = 0; i < r; i++) at += tfd__gather_count(g, &w->c, k, i);
  return at;
}

/* This process's part of the result is put in place; MPI brings the rest. */
static int begin_gather(const tfd__group *g, tfd__mpi_work *w, int k) {
  int64_t at = gathered_at(g, w, k, g->base);
  const tfd__piece *out = tfd__gotten(g, &w->c, k, 0);
  int i;

  w->parts[k].take = whole(out);
  for (i = 0; i < g->local; i++) {
    tfd__run_of from = whole(tfd__given(g, &w->c, k, i));
    tfd__run_of to = tfd__part_of(out, at, from.view.numel);

    TFD_TRY(tfd__run_copy(&to, &from));
    at += from.view.numel;
  }
  return TFD_OK;
}

static int begin_value(const tfd__group *g, tfd__mpi_work *w, int k) {
  int root = w->c.root - g->base;

  switch (w->c.kind) {
  case TFD_COLLECTIVE_BROADCAST:
    w->parts[k].take =
        whole(root >= 0 && root < g->local ? tfd__given(g, &w->c, k, root)
                                           : tfd__gotten(g, &w->c, k, 0));
    return TFD_OK;
  case TFD_COLLECTIVE_ALL_GATHER:
    return begin_gather(g, w, k);
  case TFD_COLLECTIVE_GATHER:
  case TFD_COLLECTIVE_SCATTER:
    return tfd__move_own_pieces(g, &w->c, k);
  default:
    return begin_reduction(g, w, k);
  }
}

/* --- begin ---------------------------------------------------------------- */

/* Everything that was submitted by now comes before MPI's part. Unless the
** group has failed meanwhile it is the driver's from here on; `wake` the
** thread, if it is not driven at once. */
static int hand_over(tfd__group *g, tfd__mpi_work *w, uint64_t number,
                     bool wake) {
  tfd__mpi_group *own = g->own;
  tfd__mpi_work **end = &own->first;
  int rc = TFD_OK;
  int i;

  for (i = 0; i < g->local; i++) w->seqs[i] = tfd__stream_seq(g->devices[i]);
  tfd__lock(&tfd__mpi.lock);
  if (own->error.code != TFD_OK) {
    rc = tfd__error_raise(&own->error);
  } else {
    while (*end != NULL) end = &(*end)->next;
    w->number = number;
    own->begun = number;
    *end = w;
    if (wake) tfd__mpi_wake();
  }
  tfd__unlock(&tfd__mpi.lock);
  if (rc == TFD_OK) return TFD_OK;
  (void)tfd__group_fail(g);
  return tfd__group_check(g, tfd__collective_name(w->c.kind));
}

static int make_work(tfd__group *g, const tfd__collective *c, uint64_t number,
                     bool wake, tfd__mpi_work **w_p) {
  tfd__mpi_work *w = NULL;
  int rc = TFD_OK;
  int k;

  TFD_TRY(tfd__mpi_work_new(g, c, &w));
  for (k = 0; rc == TFD_OK && k < c->values; k++) rc = begin_value(g, w, k);
  if (rc == TFD_OK) {
    tfd__mpi_sign(g, w);
    rc = hand_over(g, w, number, wake);
  }
  if (rc != TFD_OK) {
    tfd__mpi_work_free(w);
    return rc;
  }
  *w_p = w;
  return TFD_OK;
}

static int begin(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  tfd__mpi_group *own = g->own;
  tfd__mpi_work *w = own->early;
  int rc = TFD_OK;

  if (w == NULL) {
    rc = make_work(g, c, t->number, true, &w);
  } else {
    own->early = NULL;
    tfd__lock(&tfd__mpi.lock);
    tfd__mpi_wake();
    tfd__unlock(&tfd__mpi.lock);
  }
  t->own = w;
  return rc;
}

/* --- what a process gets -----------------------------------------------------
 */

/* Elements of a sum to a rank's output, rounded if they are to be. */
static int deliver(const tfd__collective *c, const tfd__run_of *from,
                   const tfd__run_of *to) {
  tfd__run_of narrow = *to;
  int rc = TFD_OK;

  if (from->view.dtype == to->view.dtype) return tfd__run_copy(to, from);
  if (from->buffer->device == to->buffer->device) {
    return tfd__run_cast(c, to, from);
  }
  TFD_TRY(tfd__run_new(from->buffer->device, to->view.dtype, to->view.numel,
                       &narrow));
  rc = tfd__run_cast(c, &narrow, from);
  if (rc == TFD_OK) rc = tfd__run_copy(to, &narrow);
  tfd__release(narrow.buffer);
  return rc;
}

static int finish_reduction(const tfd__group *g, const tfd__mpi_work *w,
                            int k) {
  const tfd__mpi_part *p = &w->parts[k];
  const tfd__collective *c = &w->c;
  int root = c->root - g->base;
  int i;

  if (p->take.buffer == NULL || p->take.view.numel == 0) return TFD_OK;
  if (c->op == TFD_REDUCE_MEAN) {
    TFD_TRY(tfd__run_divide(c, &p->take, g->size));
  }
  for (i = 0; i < g->local; i++) {
    tfd__piece take = {p->take.buffer, &p->take.view};
    tfd__run_of to;
    tfd__run_of from = p->take;

    if (c->kind == TFD_COLLECTIVE_REDUCE && i != root) continue;
    to = whole(tfd__gotten(g, c, k, i));
    if (c->kind == TFD_COLLECTIVE_REDUCE_SCATTER) {
      from = tfd__part_of(&take, i * to.view.numel, to.view.numel);
    }
    TFD_TRY(deliver(c, &from, &to));
  }
  return TFD_OK;
}

static int finish_value(const tfd__group *g, const tfd__mpi_work *w, int k) {
  int i;

  if (tfd__mpi_reduces(&w->c)) return finish_reduction(g, w, k);
  if (tfd__moves_pieces(w->c.kind)) return TFD_OK; /* they lie there */
  for (i = 0; i < g->local; i++) {
    tfd__run_of to = whole(tfd__gotten(g, &w->c, k, i));

    TFD_TRY(tfd__run_copy(&to, &w->parts[k].take));
  }
  return TFD_OK;
}

static int finish(const tfd__group *g, const tfd__mpi_work *w) {
  int k;

  for (k = 0; k < w->c.values && w->c.kind != TFD_COLLECTIVE_BARRIER; k++) {
    TFD_TRY(finish_value(g, w, k));
  }
  return TFD_OK;
}

/* Inputs first: the devices may need this thread to get on. */
static int wait_inputs(const tfd__group *g, tfd__mpi_work *w,
                       tfd__deadline until, bool *there_p) {
  int i;

  for (i = 0; i < g->local; i++) {
    int rc = tfd__stream_wait(g->devices[i], w->seqs[i], until);

    if (rc == TFD_DEADLINE_EXCEEDED && tfd__now_ns() >= until) return TFD_OK;
    if (rc != TFD_OK) return rc;
  }
  *there_p = true;
  return TFD_OK;
}

/* Wait for MPI. Errors: why the group has failed. */
static int wait_moved(tfd__mpi_group *own, tfd__mpi_work *w,
                      tfd__deadline until, bool *moved_p) {
  int rc = TFD_OK;

  tfd__lock(&tfd__mpi.lock);
  w->ready = true;
  tfd__mpi_drive(own, w, until);
  *moved_p = w->stage == TFD_MPI_MOVED;
  if (!*moved_p && own->error.code != TFD_OK) {
    rc = tfd__error_raise(&own->error);
  }
  tfd__unlock(&tfd__mpi.lock);
  return rc;
}

/* A collective whose inputs nobody has waited for: where they lie in whose
** streams. */
typedef struct untended {
  tfd__mpi_group *group;
  const tfd__mpi_work *work;
  uint64_t number;
  uint64_t seqs[TFD_MAX_LOCAL_RANKS];
} untended;

/* The lock is held, as below. */
static tfd__mpi_work *first_untended(const tfd__mpi_group *own) {
  tfd__mpi_work *w = own->first;

  while (w != NULL && (w->ready || w->let_go)) w = w->next;
  return w;
}

static bool find_untended(untended *u) {
  tfd__mpi_group *own = tfd__mpi.groups;
  const tfd__mpi_work *w = NULL;

  for (; own != NULL && w == NULL; own = own->next) {
    w = own->error.code == TFD_OK ? first_untended(own) : NULL;
    if (w == NULL) continue;
    *u = (untended){.group = own, .work = w, .number = w->number};
    memcpy(u->seqs, w->seqs, (size_t)own->local * sizeof *u->seqs);
  }
  return w != NULL;
}

/* Other processes may wait for collectives that this one does not wait for yet,
** and devices may need this thread for their inputs. A group is not given up by
** another thread than this, which holds one. */
static bool tend_others(void) {
  untended u;
  bool there = false;
  int rc = TFD_OK;
  int i;

  tfd__lock(&tfd__mpi.lock);
  there = find_untended(&u);
  tfd__unlock(&tfd__mpi.lock);
  if (!there) return false;
  for (i = 0; i < u.group->local && rc == TFD_OK; i++) {
    rc = tfd__stream_wait(u.group->devices[i], u.seqs[i],
                          tfd__now_ns() + TEND_NS);
  }
  if (rc == TFD_DEADLINE_EXCEEDED) return true;
  if (rc != TFD_OK) tfd__mpi_fail(u.group, true);
  tfd__lock(&tfd__mpi.lock);
  if (rc == TFD_OK && first_untended(u.group) == u.work &&
      u.work->number == u.number) {
    first_untended(u.group)->ready = true;
    tfd__mpi_wake();
  }
  tfd__unlock(&tfd__mpi.lock);
  return true;
}

static bool tend(void) {
  tfd__error kept = {0};
  bool some = false;

  tfd__error_save(&kept);
  some = tend_others();
  (void)tfd__error_raise(&kept);
  tfd__error_free(&kept);
  return some;
}

static int wait_work(tfd__ticket *t, tfd__deadline until, bool *done_p) {
  tfd__group *g = t->group;
  tfd__mpi_work *w = t->own;
  bool there = w->ready;
  bool moved = false;
  int rc = TFD_OK;

  if (!there) rc = wait_inputs(g, w, until, &there);
  if (rc != TFD_OK) return tfd__group_fail(g); /* the others wait for it */
  if (!there) return TFD_OK;
  if (wait_moved(g->own, w, until, &moved) != TFD_OK) {
    (void)tfd__group_fail(g); /* which the caller sees */
    return TFD_OK;
  }
  if (!moved) {
    (void)tend_others();
    return TFD_OK;
  }
  TFD_TRY(finish(g, w));
  *done_p = true;
  return TFD_OK;
}

/* What MPI still has is the thread's to let go of. */
static void end_work(tfd__ticket *t) {
  tfd__mpi_work *w = t->own;
  bool over = false;

  if (w == NULL) return;
  tfd__lock(&tfd__mpi.lock);
  over = w->stage == TFD_MPI_MOVED;
  w->let_go = true;
  tfd__mpi_wake();
  tfd__unlock(&tfd__mpi.lock);
  if (over) tfd__mpi_work_free(w);
}

/* --- at once ----------------------------------------------------------------
 */

/* Can this thread drive, and is there nothing else to do first? */
static bool is_free(const tfd__group *g) {
  const tfd__mpi_group *own = g->own;
  bool can = false;
  int i;

  tfd__lock(&tfd__mpi.lock);
  can = tfd__mpi.is_for_all && !tfd__mpi.driven && own->first == NULL &&
        own->error.code == TFD_OK;
  tfd__unlock(&tfd__mpi.lock);
  for (i = 0; can && i < g->local; i++) {
    can = tfd__stream_has_passed(g->devices[i], tfd__stream_seq(g->devices[i]));
  }
  return can;
}

static int quick(tfd__group *g, const tfd__collective *c, uint64_t number,
                 tfd__quick *progress_p) {
  tfd__mpi_group *own = g->own;
  tfd__deadline until = tfd__now_ns() + QUICK_NS;
  tfd__mpi_work *w = NULL;
  bool there = false;
  bool moved = false;
  int rc;

  if (!is_free(g)) return TFD_OK;
  /* What cannot be made here will say so in `begin`, which leaves no trace. */
  if (make_work(g, c, number, false, &w) != TFD_OK) return TFD_OK;
  *progress_p = TFD_QUICK_BEGUN;
  own->early = w;
  rc = wait_inputs(g, w, until, &there);
  if (rc != TFD_OK) return tfd__group_fail(g); /* the others wait for it */
  if (!there) return TFD_OK;
  tfd__lock(&tfd__mpi.lock);
  w->ready = true;
  tfd__mpi_drive_now(own, w, until);
  moved = w->stage == TFD_MPI_MOVED;
  tfd__unlock(&tfd__mpi.lock);
  if (!moved) return TFD_OK;
  own->early = NULL;
  rc = finish(g, w);
  tfd__mpi_work_free(w);
  *progress_p = TFD_QUICK_DONE;
  return rc;
}

static int world(double start_timeout, tfd__world *world_p) {
  if (!tfd__mpi_is_wanted()) {
    return tfd__fail(TFD_UNAVAILABLE, "no MPI started this process");
  }
  TFD_TRY(tfd__mpi_start(start_timeout));
  *world_p = tfd__mpi.world;
  return TFD_OK;
}

const tfd__provider tfd__mpi_provider = {
    .abi = TFD_PROVIDER_ABI,
    .name = "mpi",
    .score = 40,
    .can = can,
    .world = world,
    .open = open_group,
    .close = close_group,
    .begin = TFD_BEGIN_ALL(begin),
    .wait = wait_work,
    .tend = tend,
    .quick = quick,
    .end = end_work,
    .late = late,
    .abort = abort_group,
};
