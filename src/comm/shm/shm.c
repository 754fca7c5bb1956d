/* Collectives of processes that share memory, made of rounds.
**
** In a round every process stages what it gives in its slot, then takes what it
** needs from the slots of all others. Sums of more than a few elements have two
** steps: each process adds up its share of the round and puts the result into
** its second slot, from where the others copy it. A value has as many rounds as
** its elements need slots; two rounds are under way at a time, so that nobody
** waits while there is something to stage. The slots stay in the caches.
** Cost of a sum of n elements by P processes, for each of them: (P - 1) / P n
** copied in and out, and n / P sums of P.
** The order of additions is that of the ranks, processes' sums by processes'
** sums. Before anything is taken, all must have staged the same round of the
** same collective.
** Collectives go on in the order in which their group began them, on the thread
** that waits, whichever of them it waits for; and those of other groups while
** it waits in vain. */
#include "comm/shm/shm.h"

static tfd__shm_group *own_of(const tfd__group *g) {
  return g->own;
}

/* --- life ----------------------------------------------------------------- */

static int can(const tfd__group_config *c) {
  TFD_TRY(tfd__mesh_can(c, "shm"));
  if (tfd__is_one_host(c->network)) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE,
                   "group: provider \"shm\" needs all processes on one "
                   "machine; their addresses name several hosts");
}

static void window_destroy(void *self) {
  (void)self;
}

/* What kernels see as a buffer is the segment's memory. */
static void open_window(tfd__group *g, tfd__shm_group *own) {
  static const tfd__type type = {
      .name = "buffer", .kind = TFD_HANDLE_BUFFER, .destroy = window_destroy};

  own->window = (tfd__buffer){.device = g->devices[0],
                              .data = own->segment.memory,
                              .bytes = own->segment.bytes,
                              .capacity = own->segment.bytes};
  tfd__object_init(&own->window.object, &type);
}

static int open_group(tfd__group *g, const tfd__group_config *config) {
  const tfd__network *n = config->network;
  tfd__shm_group *own = tfd__calloc(1, sizeof *own);
  int rc;

  if (own == NULL) return tfd__no_memory(sizeof *own, "group");
  g->own = own;
  rc = tfd__circle_open(g, config, &own->circle);
  if (rc == TFD_OK) {
    rc = tfd__segment_open(&own->circle, n, &own->segment);
    if (rc != TFD_OK) {
      tfd__error kept = {0};

      g->unfit = rc == TFD_UNAVAILABLE;
      tfd__error_save(&kept);
      tfd__circle_close(&own->circle);
      (void)tfd__error_raise(&kept);
      tfd__error_free(&kept);
    }
  }
  if (rc != TFD_OK) {
    g->own = NULL;
    tfd__free(own);
    return rc;
  }
  own->tally = (tfd__tally){.cells = own->segment.cells,
                            .process = n->process,
                            .processes = n->processes,
                            .looks.crowded = config->size > tfd__cores()};
  open_window(g, own);
  own->open = true;
  return TFD_OK;
}

static void close_group(tfd__group *g) {
  tfd__shm_group *own = own_of(g);

  tfd__circle_close(&own->circle);
  tfd__release(&own->window);
  tfd__segment_close(&own->segment);
  tfd__free(own);
  g->own = NULL;
}

static void late(tfd__group *g, uint64_t number, char *text, size_t bytes) {
  tfd__mesh_late(own_of(g)->circle.mesh, number, text, bytes);
}

static void abort_group(tfd__group *g) {
  tfd__shm_group *own = own_of(g);

  tfd__mesh_abort(own->circle.mesh, &g->cause);
  if (own->open) tfd__tally_ring(&own->tally);
}

/* The first local rank's alone: what the others have is added up before it is
** given. Where kernels do not run on this thread nothing is left in place. */
static int lend(tfd__group *g, int i, size_t bytes, tfd__buffer **buffer_p) {
  if (i > 0 || g->devices[0]->backend->asynchronous) return TFD_OK;
  return tfd__arena_lend(own_of(g)->segment.arena, g->devices[0], bytes,
                         buffer_p);
}

/* --- making work ---------------------------------------------------------- */

static void work_free(const tfd__group *g, tfd__shm_work *w) {
  int k;

  for (k = 0; k < w->kept.c.values; k++) {
    if (w->owned[k]) tfd__release(w->sums[k].buffer);
  }
  tfd__kept_free(&w->kept, g);
  tfd__free(w->sums);
  tfd__free(w);
}

static int work_new(const tfd__group *g, const tfd__collective *c,
                    tfd__shm_work **w_p) {
  size_t n = (size_t)c->values;
  tfd__shm_work *w = tfd__calloc(1, sizeof *w);

  if (w == NULL) return tfd__no_memory(sizeof *w, c->what);
  if (tfd__kept_init(&w->kept, g, c) != TFD_OK) {
    tfd__free(w);
    return TFD_RESOURCE_EXHAUSTED;
  }
  w->sums = tfd__calloc(n + 1, sizeof *w->sums + sizeof *w->owned);
  if (w->sums == NULL) {
    w->kept.c.values = 0;
    work_free(g, w);
    return tfd__no_memory(n * sizeof *w->sums, c->what);
  }
  w->owned = (bool *)(w->sums + n + 1);
  *w_p = w;
  return TFD_OK;
}

static int move_on(tfd__turn *turn, tfd__deadline until, bool *done_p);

static int begin(tfd__group *g, const tfd__collective *c, tfd__ticket *t) {
  tfd__shm_group *own = own_of(g);
  tfd__shm_work *w = NULL;
  int rc = TFD_OK;
  int k;

  TFD_TRY(work_new(g, c, &w));
  for (k = 0; rc == TFD_OK && tfd__shm_reduces(w) && k < c->values; k++) {
    rc = tfd__kept_reduce(&w->kept, g, k, &w->sums[k], &w->owned[k]);
  }
  if (rc != TFD_OK) {
    work_free(g, w);
    return rc;
  }
  tfd__kept_note(&w->kept, g);
  w->number = t->number;
  t->own = w;
  own->under_way++;
  tfd__turn_begin(&w->turn, g, move_on);
  return TFD_OK;
}

/* --- rounds --------------------------------------------------------------- */

/* This thread's error is why the group fails. */
static int fail_all(tfd__group *g, const tfd__shm_work *w) {
  (void)tfd__group_fail(g);
  return tfd__group_check(g, tfd__collective_name(w->kept.c.kind));
}

/* Errors: a process that all wait for has ended in order. */
static int wait_for(tfd__group *g, const tfd__shm_work *w, tfd__mark mark,
                    uint64_t number, tfd__deadline until, bool *there_p) {
  tfd__shm_group *own = own_of(g);
  int process = 0;
  int late = 0;

  *there_p = tfd__tally_wait(&own->tally, mark, number, until);
  if (*there_p || tfd__tally_reached(&own->tally, mark, number, &late)) {
    return TFD_OK;
  }
  process = own->circle.numbers[late];
  if (!tfd__mesh_has_left(own->circle.mesh, process) ||
      tfd__tally_reached(&own->tally, mark, number, NULL)) {
    return TFD_OK;
  }
  (void)tfd__mesh_fail_left(own->circle.mesh, process, w->number);
  return fail_all(g, w);
}

static int check_frames(const tfd__shm_group *own, const tfd__shm_value *v) {
  tfd__frame mine = v->frame;

  mine.length = (uint64_t)v->done;
  return tfd__shm_check(own, &mine, tfd__shm_number(own, v->done));
}

/* Stage the next round, if there is one and its slots are free. */
static int stage_next(tfd__group *g, tfd__shm_work *w, tfd__deadline until,
                      bool *there_p) {
  tfd__shm_group *own = own_of(g);
  tfd__shm_value *v = &w->v;
  uint64_t number = tfd__shm_number(own, v->staged);
  uint64_t free_after = number > TFD_DEPTH ? number - TFD_DEPTH : 0;

  *there_p = true;
  if (v->staged == v->rounds || v->staged == v->done + TFD_DEPTH) return TFD_OK;
  if (v->staged == v->done) {
    TFD_TRY(wait_for(g, w, TFD_MARK_FINISHED, free_after, until, there_p));
    if (!*there_p) return TFD_OK;
  } else if (!tfd__tally_reached(&own->tally, TFD_MARK_FINISHED, free_after,
                                 NULL)) {
    return TFD_OK;
  }
  TFD_TRY(tfd__pass_chunk(&w->kept.c));
  tfd__shm_stage(g, w);
  return TFD_OK;
}

/* The round's sums, from the first look at the slots to the results. */
static int finish_sums(tfd__group *g, tfd__shm_work *w, tfd__deadline until,
                       bool *there_p) {
  tfd__shm_group *own = own_of(g);
  tfd__shm_value *v = &w->v;
  uint64_t number = tfd__shm_number(own, v->done);

  if (!v->submitted) {
    TFD_TRY(tfd__shm_take(g, w));
    tfd__kept_note(&w->kept, g);
    v->submitted = true;
  }
  if (!v->reduced && tfd__shm_reduces(w) &&
      tfd__sum_kernel(g, w->kept.c.op, v->dtype) == NULL) {
    *there_p = false;
    TFD_TRY(tfd__kept_ready(&w->kept, g, until, there_p));
    if (!*there_p) return TFD_OK;
    tfd__shm_copy_share(g, w);
  }
  if (!v->two_steps) return TFD_OK;
  if (!v->reduced) {
    TFD_TRY(tfd__pass_chunk(&w->kept.c));
    v->reduced = true;
    tfd__tally_publish(&own->tally, TFD_MARK_REDUCED, number);
  }
  TFD_TRY(wait_for(g, w, TFD_MARK_REDUCED, number, until, there_p));
  if (*there_p) tfd__shm_take_shares(g, w);
  return TFD_OK;
}

static int one_round(tfd__group *g, tfd__shm_work *w, tfd__deadline until,
                     bool *there_p) {
  tfd__shm_group *own = own_of(g);
  tfd__shm_value *v = &w->v;
  uint64_t number = tfd__shm_number(own, v->done);

  TFD_TRY(stage_next(g, w, until, there_p));
  if (!*there_p) return TFD_OK;
  /* The next one before this one's results are waited for. */
  TFD_TRY(stage_next(g, w, until, there_p));
  if (!v->fits) {
    TFD_TRY(wait_for(g, w, TFD_MARK_STAGED, number, until, there_p));
    if (!*there_p) return TFD_OK;
    if (check_frames(own, v) != TFD_OK) return fail_all(g, w);
    v->fits = true;
    if (v->done == 0) tfd__shm_widen(g, w);
  }
  TFD_TRY(finish_sums(g, w, until, there_p));
  if (!*there_p) return TFD_OK;
  tfd__tally_publish(&own->tally, TFD_MARK_FINISHED, number);
  v->done++;
  v->fits = false;
  v->submitted = false;
  v->reduced = false;
  return TFD_OK;
}

/* --- from begin to end ---------------------------------------------------- */

static int go_on(tfd__group *g, tfd__shm_work *w, tfd__deadline until,
                 bool *there_p) {
  tfd__shm_group *own = own_of(g);

  if (w->phase == TFD_SHM_INPUT) {
    *there_p = false;
    TFD_TRY(tfd__kept_ready(&w->kept, g, until, there_p));
    if (!*there_p) return TFD_OK;
    w->phase = TFD_SHM_ROUNDS;
    if (tfd__shm_values(w) > 0) tfd__shm_plan(g, w);
  }
  *there_p = true;
  while (w->k < tfd__shm_values(w)) {
    TFD_TRY(one_round(g, w, until, there_p));
    if (!*there_p) return TFD_OK;
    if (w->v.done < w->v.rounds) continue;
    own->rounds += (uint64_t)w->v.rounds;
    if (++w->k < tfd__shm_values(w)) tfd__shm_plan(g, w);
  }
  w->phase = TFD_SHM_DONE;
  own->under_way--;
  switch (w->kept.c.kind) {
  case TFD_COLLECTIVE_ALL_REDUCE:
  case TFD_COLLECTIVE_BROADCAST:
  case TFD_COLLECTIVE_ALL_GATHER:
  case TFD_COLLECTIVE_GATHER:
  case TFD_COLLECTIVE_SCATTER:
    return tfd__kept_spread(&w->kept, g);
  default:
    return TFD_OK;
  }
}

static int move_on(tfd__turn *turn, tfd__deadline until, bool *done_p) {
  bool there = true;

  if (go_on(turn->group, (tfd__shm_work *)turn, until, &there) != TFD_OK) {
    return tfd__group_fail(turn->group); /* the others wait for it */
  }
  *done_p = there;
  return TFD_OK; /* the caller looks for failures */
}

static int wait_work(tfd__ticket *t, tfd__deadline until, bool *done_p) {
  tfd__shm_work *w = t->own;

  return tfd__turn_wait(&w->turn, until, done_p);
}

static void end_work(tfd__ticket *t) {
  tfd__shm_work *w = t->own;

  if (w == NULL) return;
  tfd__turn_end(&w->turn);
  if (w->phase != TFD_SHM_DONE) own_of(t->group)->under_way--;
  work_free(t->group, w);
}

const tfd__provider tfd__shm_provider = {
    .abi = TFD_PROVIDER_ABI,
    .name = "shm",
    .score = 60,
    .scatters_alike = true,
    .can = can,
    .open = open_group,
    .close = close_group,
    .begin = TFD_BEGIN_ALL(begin),
    .wait = wait_work,
    .tend = tfd__turns_tend,
    .end = end_work,
    .late = late,
    .lend = lend,
    .abort = abort_group,
    .quick = tfd__shm_quick,
};
