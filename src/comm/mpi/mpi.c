/* The provider: what a process gives to a collective and gets from it.
**
** The local ranks' inputs are reduced by their devices before; results go to
** all local ranks after. Half types are widened to float32 on the way in and
** rounded once, on the way out. Order of additions: a process's ranks first,
** then MPI's own order, which depends on the number of processes and on the
** size alone. */
#include <string.h>

#include "comm/mpi/mpi.h"

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
  if (own->devices == NULL || own->sends == NULL || own->ended == NULL ||
      own->calls == NULL) {
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
  *own_p = own;
  return TFD_OK;
}

/* Wait for the thread to have made the group's communicators; every process
** takes part. */
static int meet(tfd__mpi_group *own, double seconds) {
  tfd__deadline until = tfd__deadline_in(seconds > 0 ? seconds : 300);
  int rc = TFD_OK;

  tfd__lock(&tfd__mpi.lock);
  own->next = tfd__mpi.groups;
  tfd__mpi.groups = own;
  tfd__mpi_wake();
  while (!own->open && own->error.code == TFD_OK && tfd__now_ns() < until) {
    (void)tfd__cond_wait(&tfd__mpi.changed, &tfd__mpi.lock, until);
  }
  if (own->error.code != TFD_OK) {
    rc = tfd__error_raise(&own->error);
  } else if (!own->open) {
    rc = tfd__fail(TFD_DEADLINE_EXCEEDED,
                   "group: not all of the %d processes that MPI started have "
                   "opened it",
                   own->processes);
    own->closing = true;
  }
  tfd__unlock(&tfd__mpi.lock);
  return rc;
}

static int open_group(tfd__group *g, const tfd__group_config *config) {
  const tfd__network *n = config->network;
  tfd__mpi_group *own = NULL;

  TFD_TRY(tfd__mpi_start(n->start_timeout));
  TFD_TRY(check_world(n));
  TFD_TRY(group_alloc(g, n, &own));
  TFD_TRY(meet(own, n->start_timeout));
  g->own = own;
  return TFD_OK;
}

/* The rest is the thread's: finalisers call this, and wait for nobody. */
static void close_group(tfd__group *g) {
  tfd__mpi_group *own = g->own;

  tfd__lock(&tfd__mpi.lock);
  own->closing = true;
  tfd__mpi_wake();
  tfd__unlock(&tfd__mpi.lock);
  g->own = NULL;
}

static void abort_group(tfd__group *g) {
  tfd__error kept = {0};

  tfd__error_save(&kept);
  (void)tfd__error_raise(&g->cause);
  tfd__mpi_fail(g->own, true);
  (void)tfd__error_raise(&kept);
  tfd__error_free(&kept);
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
  default:
    return begin_reduction(g, w, k);
  }
}

/* --- begin ---------------------------------------------------------------- */

/* Everything that was submitted by now comes before MPI's part. Unless the
** group has failed meanwhile it is the thread's from here on. */
static int hand_over(tfd__group *g, tfd__mpi_work *w, uint64_t number) {
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
    tfd__mpi_wake();
  }
  tfd__unlock(&tfd__mpi.lock);
  if (rc == TFD_OK) return TFD_OK;
  (void)tfd__group_fail(g);
  return tfd__group_check(g, w->c.what);
}

static int begin(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  tfd__mpi_work *w = NULL;
  int rc = TFD_OK;
  int k;

  TFD_TRY(tfd__mpi_work_new(g, c, &w));
  for (k = 0; rc == TFD_OK && k < c->values; k++) rc = begin_value(g, w, k);
  if (rc == TFD_OK) {
    tfd__mpi_sign(g, w);
    rc = hand_over(g, w, t->number);
  }
  if (rc != TFD_OK) {
    tfd__mpi_work_free(w);
    return rc;
  }
  t->own = w;
  return TFD_OK;
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
  for (i = 0; i < g->local; i++) {
    tfd__run_of to = whole(tfd__gotten(g, &w->c, k, i));

    TFD_TRY(tfd__run_copy(&to, &w->parts[k].take));
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

/* Wait for the thread. Errors: why the group has failed. */
static int wait_moved(tfd__mpi_group *own, tfd__mpi_work *w,
                      tfd__deadline until, bool *moved_p) {
  int rc = TFD_OK;

  tfd__lock(&tfd__mpi.lock);
  if (!w->ready) {
    w->ready = true;
    tfd__mpi_wake();
  }
  tfd__mpi.waiting++;
  while (w->stage != TFD_MPI_MOVED && own->error.code == TFD_OK &&
         tfd__now_ns() < until) {
    (void)tfd__cond_wait(&tfd__mpi.changed, &tfd__mpi.lock, until);
  }
  tfd__mpi.waiting--;
  *moved_p = w->stage == TFD_MPI_MOVED;
  if (!*moved_p && own->error.code != TFD_OK) {
    rc = tfd__error_raise(&own->error);
  }
  tfd__unlock(&tfd__mpi.lock);
  return rc;
}

static int wait_work(tfd__ticket *t, tfd__deadline until, bool *done_p) {
  tfd__group *g = t->group;
  tfd__mpi_work *w = t->own;
  bool there = w->ready;
  bool moved = false;
  int rc = TFD_OK;
  int k;

  if (!there) rc = wait_inputs(g, w, until, &there);
  if (rc != TFD_OK) return tfd__group_fail(g); /* the others wait for it */
  if (!there) return TFD_OK;
  if (wait_moved(g->own, w, until, &moved) != TFD_OK) {
    (void)tfd__group_fail(g); /* which the caller sees */
    return TFD_OK;
  }
  if (!moved) return TFD_OK;
  for (k = 0; k < w->c.values && w->c.kind != TFD_COLLECTIVE_BARRIER; k++) {
    TFD_TRY(finish_value(g, w, k));
  }
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
    .end = end_work,
    .abort = abort_group,
};
