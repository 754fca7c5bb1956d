/* Collectives of several processes, made of frames between all of them.
**
** all_reduce: each process adds up its own ranks and goes on in one of the ways
** of comm/ways.h. By itself it takes the cheapest of those that add up in the
** order of processes: equal bits everywhere, from run to run, and as over other
** transports and in reduce_scatter, which is the first half of the way
** "direct", the ranks' parts being the shares. Other ways are providers of
** their own names; what is no sum of whole or single floats goes directly there
** too.
** Long values go in frames that fit the caches. In "direct", what has come is
** added up and sent on frame by frame, while the next ones are on their way.
** broadcast and all_gather send what one has to all others, gather and scatter
** to the root and from it.
** Work moves on when somebody waits, in the order in which its group began it:
** whoever waits in vain for one group moves on the others', whose processes may
** wait for this one there. Bytes are moved by who waits, or by the mesh's
** thread. */

#include <string.h>

#include "comm/tcp/work.h"

typedef tfd__tcp_phase phase;
typedef tfd__tcp_part part;
typedef tfd__tcp_work work;
typedef tfd__tcp_group network_group;

static network_group *own_of(const tfd__group *g) {
  return g->own;
}

static int move_on(tfd__turn *turn, tfd__deadline until, bool *done_p);

/* --- who can -------------------------------------------------------------- */

static int can(const tfd__group_config *c) {
  return tfd__mesh_can(c, "tcp");
}

static int open_group(tfd__group *g, const tfd__group_config *config) {
  network_group *own = tfd__calloc(1, sizeof *own);
  int rc;

  if (own == NULL) return tfd__no_memory(sizeof *own, "group");
  own->process = config->network->process;
  own->processes = config->network->processes;
  own->way = tfd__way_named(g->provider->name);
  if (own->way == TFD_WAYS) own->way = TFD_WAY_AUTO;
  g->own = own;
  rc = tfd__circle_open(g, config, &own->circle);
  if (rc != TFD_OK) {
    g->own = NULL;
    tfd__free(own);
  }
  return rc;
}

static void close_group(tfd__group *g) {
  network_group *own = own_of(g);

  tfd__circle_close(&own->circle);
  tfd__free(own);
  g->own = NULL;
}

static void late(tfd__group *g, uint64_t number, char *text, size_t bytes) {
  tfd__mesh_late(own_of(g)->circle.mesh, number, text, bytes);
}

static void abort_group(tfd__group *g) {
  tfd__mesh_abort(own_of(g)->circle.mesh, &g->cause);
}

/* --- the way ---------------------------------------------------------------
 */

static tfd__way choose(const tfd__group *g, const tfd__collective *c) {
  const network_group *own = own_of(g);
  bool all_grow = own->way != TFD_WAY_AUTO;
  double bytes = 0;
  int k;

  if (c->kind != TFD_COLLECTIVE_ALL_REDUCE) return TFD_WAY_DIRECT;
  for (k = 0; k < c->values; k++) {
    bytes += (double)tfd__view_bytes(tfd__given(g, c, k, 0)->view);
    all_grow = all_grow && tfd__sum_grows(g, c, k);
  }
  if (all_grow && own->processes > 1) return own->way;
  return tfd__way_best(tfd__costs_of("tcp"), own->processes, bytes, false);
}

/* --- making work ---------------------------------------------------------- */

static void work_free(const tfd__group *g, work *w) {
  int i;

  for (i = 0; w->parts != NULL && i < w->kept.c.values; i++) {
    if (w->parts[i].owns_mine) tfd__release(w->parts[i].mine.buffer);
    tfd__release(w->parts[i].theirs.buffer);
  }
  tfd__release(w->ring.buffer);
  tfd__kept_free(&w->kept, g);
  tfd__free(w->parts);
  tfd__free(w->posts);
  tfd__free(w->waited);
  tfd__free(w);
}

static size_t bytes_of(const tfd__piece *list, int at) {
  if (list == NULL || list[at].buffer == NULL) return 0;
  return tfd__view_bytes(list[at].view);
}

static size_t bytes_of_pieces(const tfd__group *g, const tfd__collective *c,
                              int k) {
  return (size_t)tfd__gathered(g, c, k, g->size - 1).end *
         tfd__dtype_size(tfd__leader(g, c, k)->view->dtype);
}

/* Frames of all that one process gives and gets. */
static size_t frames_of(const tfd__group *g, const tfd__collective *c) {
  size_t frames = 0;
  int k;

  for (k = 0; k < c->values; k++) {
    size_t bytes =
        tfd__moves_pieces(c->kind)
            ? bytes_of_pieces(g, c, k)
            : bytes_of(c->in, k * g->local) + bytes_of(c->out, k * g->local);

    frames += bytes / TFD_TCP_FRAME;
  }
  return frames;
}

/* Posts that one phase has at most: whole values to and from all others, or
** parts of them twice. */
static size_t most_posts(const tfd__group *g, const tfd__collective *c,
                         tfd__way way) {
  size_t values = c->values > 0 ? (size_t)c->values : 1;
  size_t processes = (size_t)own_of(g)->processes;
  size_t frames = c->kind == TFD_COLLECTIVE_BARRIER ? 0 : frames_of(g, c);
  bool whole = c->kind == TFD_COLLECTIVE_BROADCAST ||
               c->kind == TFD_COLLECTIVE_ALL_GATHER || way == TFD_WAY_WHOLE;

  return values * (size_t)g->local * 4 * processes +
         (whole ? 2 * processes : 4) * frames;
}

static int work_new(tfd__group *g, const tfd__collective *c, work **w_p) {
  work *w = tfd__calloc(1, sizeof *w);
  tfd__way way = choose(g, c);
  size_t posts = most_posts(g, c, way);

  if (w == NULL) return tfd__no_memory(sizeof *w, c->what);
  if (tfd__kept_init(&w->kept, g, c) != TFD_OK) {
    tfd__free(w);
    return TFD_RESOURCE_EXHAUSTED;
  }
  w->parts = tfd__calloc((size_t)c->values + 1, sizeof *w->parts);
  w->posts = tfd__calloc(posts, sizeof *w->posts);
  w->waited = tfd__calloc(posts, sizeof *w->waited);
  if (w->parts == NULL || w->posts == NULL || w->waited == NULL) {
    work_free(g, w);
    return tfd__no_memory(posts * sizeof *w->posts, c->what);
  }
  w->way = way;
  w->streams = tfd__tcp_can_stream(g, c, way);
  *w_p = w;
  return TFD_OK;
}

static bool scatters(const work *w) {
  return w->kept.c.kind == TFD_COLLECTIVE_REDUCE_SCATTER;
}

/* --- steps ---------------------------------------------------------------- */

/* Elements that come in one step at most. */
static int64_t most_that_come(const network_group *own, const work *w,
                              int64_t numel) {
  int64_t most = 0;
  int s;

  for (s = 0; s < tfd__way_steps(w->way, own->processes); s++) {
    tfd__step step =
        tfd__way_step(w->way, own->processes, own->process, s, numel);
    int64_t n = step.in.end - step.in.begin;

    if (step.adds && n > most) most = n;
  }
  return most;
}

static bool has_steps(const work *w) {
  return w->way > TFD_WAY_DIRECT;
}

static tfd__step step_of(const tfd__group *g, const work *w, int k) {
  const network_group *own = own_of(g);

  return tfd__way_step(w->way, own->processes, own->process, w->step,
                       w->parts[k].numel);
}

/* Sums grow where results go. */
static void begin_steps(const tfd__group *g, const work *w) {
  int k;

  for (k = 0; k < w->kept.c.values; k++) {
    const part *p = &w->parts[k];
    void *to = tfd__gotten(g, &w->kept.c, k, 0)->view->data;

    if (to == p->mine.view.data || p->numel == 0) continue;
    memcpy(to, p->mine.view.data, tfd__view_bytes(&p->mine.view));
  }
}

static int post_step(tfd__group *g, work *w) {
  int values = w->kept.c.values;
  int k;

  for (k = 0; k < values; k++) {
    tfd__step s = step_of(g, w, k);
    tfd__run_of out = tfd__tcp_result(g, w, k, s.out);
    tfd__run_of in = tfd__tcp_result(g, w, k, s.in);
    const part *p = &w->parts[k];
    int tag = w->step * values + k;

    TFD_TRY(tfd__pass_chunk(&w->kept.c));
    if (s.adds) in = tfd__tcp_cut(&p->theirs, 0, s.in.end - s.in.begin);
    if (s.to >= 0) tfd__tcp_posts(g, w, true, s.to, tag, p->numel, &out);
    if (s.from >= 0) tfd__tcp_posts(g, w, false, s.from, tag, p->numel, &in);
  }
  return TFD_OK;
}

static int add_step(tfd__group *g, const work *w) {
  tfd__collective sum = w->kept.c;
  int k;

  sum.op = TFD_REDUCE_SUM; /* a mean is divided at the end */
  for (k = 0; k < sum.values; k++) {
    const part *p = &w->parts[k];
    tfd__step s = step_of(g, w, k);
    tfd__run_of here = tfd__tcp_result(g, w, k, s.in);
    tfd__run_of in[2] = {here, here};

    if (s.from < 0 || !s.adds || here.view.numel == 0) continue;
    in[s.first ? 0 : 1] = tfd__tcp_cut(&p->theirs, 0, here.view.numel);
    TFD_TRY(tfd__sum_now(tfd__sum_kernel(g, sum.op, p->dtype), &sum, in, 2,
                         &here, NULL, 0));
  }
  return TFD_OK;
}

/* What is added up are processes' means. */
static int divide_all(tfd__group *g, const work *w) {
  int k;

  if (w->kept.c.op != TFD_REDUCE_MEAN) return TFD_OK;
  for (k = 0; k < w->kept.c.values; k++) {
    tfd__run_of all =
        tfd__tcp_result(g, w, k, (tfd__stretch){0, w->parts[k].numel});

    if (all.view.numel == 0) continue;
    TFD_TRY(tfd__run_divide(&w->kept.c, &all, own_of(g)->processes));
  }
  return TFD_OK;
}

/* --- all_reduce, reduce_scatter ------------------------------------------- */

static int begin_part(tfd__group *g, work *w, int k) {
  const network_group *own = own_of(g);
  const tfd__view *v = tfd__given(g, &w->kept.c, k, 0)->view;
  part *p = &w->parts[k];
  int64_t share = 0;

  p->numel = v->numel;
  p->dtype = v->dtype;
  TFD_TRY(tfd__kept_reduce(&w->kept, g, k, &p->mine, &p->owns_mine));
  if (has_steps(w)) {
    share = most_that_come(own, w, p->numel);
    return tfd__run_new(g->devices[0], p->dtype, share, &p->theirs);
  }
  p->share = tfd__tcp_share(w, p, own->processes, own->process);
  if (w->streams) return TFD_OK;
  share = p->share.end - p->share.begin;
  return tfd__run_new(g->devices[0], p->dtype, share * own->processes,
                      &p->theirs);
}

static int begin_reduction(tfd__group *g, const tfd__collective *c,
                           tfd__ticket *t) {
  work *w = NULL;
  int rc = TFD_OK;
  int k;

  TFD_TRY(work_new(g, c, &w));
  for (k = 0; rc == TFD_OK && k < c->values; k++) rc = begin_part(g, w, k);
  if (rc == TFD_OK && w->streams) {
    rc = tfd__run_new(g->devices[0], TFD_UINT8,
                      (int64_t)TFD_TCP_WINDOW * TFD_TCP_FRAME *
                          own_of(g)->processes,
                      &w->ring);
  }
  if (rc != TFD_OK) {
    work_free(g, w);
    return rc;
  }
  tfd__kept_note(&w->kept, g);
  w->number = t->number;
  t->own = w;
  tfd__turn_begin(&w->turn, t->group, move_on);
  return TFD_OK;
}

/* Slot of a process in `theirs`. */
static tfd__run_of slot(const part *p, int process) {
  int64_t n = p->share.end - p->share.begin;

  return tfd__tcp_cut(&p->theirs, process * n, (process + 1) * n);
}

static int exchange(tfd__group *g, work *w) {
  const network_group *own = own_of(g);
  int k;
  int q;

  for (k = 0; k < w->kept.c.values; k++) {
    const part *p = &w->parts[k];

    TFD_TRY(tfd__pass_chunk(&w->kept.c));
    for (q = 0; q < own->processes; q++) {
      tfd__stretch s = tfd__tcp_share(w, p, own->processes, q);
      tfd__run_of to = tfd__tcp_cut(&p->mine, s.begin, s.end);
      tfd__run_of from = slot(p, q);

      if (q == own->process) continue;
      tfd__tcp_posts(g, w, true, q, 2 * k, p->numel, &to);
      tfd__tcp_posts(g, w, false, q, 2 * k, p->numel, &from);
    }
  }
  return TFD_OK;
}

/* Where the sum of this process's share goes: into the result or, when several
** ranks here get parts of it, over what was sent. */
static tfd__run_of sum_place(const tfd__group *g, const work *w, int k) {
  const part *p = &w->parts[k];
  const tfd__piece *out = tfd__gotten(g, &w->kept.c, k, 0);

  if (!scatters(w)) {
    return tfd__part_of(out, p->share.begin, p->share.end - p->share.begin);
  }
  if (g->local == 1) return tfd__part_of(out, 0, out->view->numel);
  return tfd__tcp_cut(&p->mine, p->share.begin, p->share.end);
}

static int reduce_shares(tfd__group *g, work *w) {
  const network_group *own = own_of(g);
  int k;
  int q;

  for (k = 0; k < w->kept.c.values; k++) {
    tfd__run_of in[TFD_MAX_LOCAL_RANKS];
    const part *p = &w->parts[k];
    tfd__run_of to = sum_place(g, w, k);

    for (q = 0; q < own->processes; q++) in[q] = slot(p, q);
    in[own->process] = tfd__tcp_cut(&p->mine, p->share.begin, p->share.end);
    TFD_TRY(tfd__reduce_runs(&w->kept.c, in, own->processes, &to));
  }
  return TFD_OK;
}

static int share_results(tfd__group *g, work *w) {
  const network_group *own = own_of(g);
  int k;
  int q;

  for (k = 0; k < w->kept.c.values; k++) {
    const part *p = &w->parts[k];
    const tfd__piece *out = tfd__gotten(g, &w->kept.c, k, 0);
    tfd__run_of result =
        tfd__part_of(out, p->share.begin, p->share.end - p->share.begin);

    TFD_TRY(tfd__pass_chunk(&w->kept.c));
    for (q = 0; q < own->processes && w->way == TFD_WAY_DIRECT; q++) {
      tfd__stretch s = tfd__tcp_share(w, p, own->processes, q);
      tfd__run_of from = tfd__part_of(out, s.begin, s.end - s.begin);

      if (q == own->process) continue;
      tfd__tcp_posts(g, w, true, q, 2 * k + 1, p->numel, &result);
      tfd__tcp_posts(g, w, false, q, 2 * k + 1, p->numel, &from);
    }
  }
  return TFD_OK;
}

/* --- what is no reduction ------------------------------------------------- */

static int begin_other(tfd__group *g, const tfd__collective *c,
                       tfd__ticket *t) {
  work *w = NULL;

  TFD_TRY(work_new(g, c, &w));
  tfd__kept_note(&w->kept, g);
  w->number = t->number;
  t->own = w;
  tfd__turn_begin(&w->turn, t->group, move_on);
  return TFD_OK;
}

/* One run to all other processes. */
static void send_to_all(tfd__group *g, work *w, int tag, int64_t numel,
                        const tfd__run_of *run) {
  int q;

  for (q = 0; q < own_of(g)->processes; q++) {
    if (q != own_of(g)->process) tfd__tcp_posts(g, w, true, q, tag, numel, run);
  }
}

/* Something without elements comes back: where processes mean other roots, both
** would give, and neither would hear of it. */
static void move_broadcast(tfd__group *g, work *w) {
  const network_group *own = own_of(g);
  int process = w->kept.c.root / g->local;
  int k;
  int q;

  for (k = 0; k < w->kept.c.values; k++) {
    const tfd__piece *out = tfd__gotten(g, &w->kept.c, k, 0);
    int64_t n = out->view->numel;
    tfd__run_of run = tfd__part_of(out, 0, n);
    tfd__run_of none = tfd__tcp_cut(&run, 0, 0);

    if (process != own->process) {
      tfd__tcp_posts(g, w, false, process, k, n, &run);
      tfd__tcp_posts(g, w, true, process, k, n, &none);
      continue;
    }
    run = tfd__part_of(tfd__given(g, &w->kept.c, k, w->kept.c.root % g->local),
                       0, n);
    send_to_all(g, w, k, n, &run);
    for (q = 0; q < own->processes; q++) {
      if (q != process) tfd__tcp_posts(g, w, false, q, k, n, &none);
    }
  }
}

static void move_gather(tfd__group *g, work *w) {
  int k;
  int r;

  for (k = 0; k < w->kept.c.values; k++) {
    const tfd__piece *out = tfd__gotten(g, &w->kept.c, k, 0);

    for (r = 0; r < g->size; r++) {
      tfd__stretch s = tfd__gathered(g, &w->kept.c, k, r);
      int process = r / g->local;
      tfd__run_of run = tfd__part_of(out, s.begin, s.end - s.begin);

      if (process == own_of(g)->process) {
        run = tfd__part_of(tfd__given(g, &w->kept.c, k, r - g->base), 0,
                           s.end - s.begin);
        send_to_all(g, w, k * g->size + r, s.end - s.begin, &run);
      } else {
        tfd__tcp_posts(g, w, false, process, k * g->size + r, s.end - s.begin,
                       &run);
      }
    }
  }
}

/* Rank r's piece, between its process and the root's. With the first rank's
** something without elements goes the other way: nobody is done before both
** know that they call the same. */
static void move_piece(tfd__group *g, work *w, int k, int r) {
  const tfd__collective *c = &w->kept.c;
  bool at_root = c->root / g->local == own_of(g)->process;
  bool gives = at_root == (c->kind == TFD_COLLECTIVE_SCATTER);
  int peer = (at_root ? r : c->root) / g->local;
  int64_t all = tfd__gathered(g, c, k, g->size - 1).end;
  tfd__run_of run = tfd__piece_at(g, c, k, r, at_root);
  tfd__run_of none = tfd__tcp_cut(&run, 0, 0);

  tfd__tcp_posts(g, w, gives, peer, k * g->size + r, all, &run);
  if (r % g->local > 0) return;
  tfd__tcp_posts(g, w, !gives, peer, (int)tfd__counts_sum(g, c, k), all, &none);
}

static void move_pieces(tfd__group *g, work *w) {
  int root = w->kept.c.root / g->local;
  int here = own_of(g)->process;
  int k;
  int r;

  for (k = 0; k < w->kept.c.values; k++) {
    for (r = 0; r < g->size; r++) {
      int process = r / g->local;

      if (process == root || (here != root && here != process)) continue;
      move_piece(g, w, k, r);
    }
  }
}

static void move_barrier(tfd__group *g, work *w) {
  int q;

  for (q = 0; q < own_of(g)->processes; q++) {
    if (q == own_of(g)->process) continue;
    tfd__tcp_post(g, w, true, q, 0, 0, NULL);
    tfd__tcp_post(g, w, false, q, 0, 0, NULL);
  }
}

/* --- the ends ------------------------------------------------------------- */

/* The ranks here get their parts of what this process added up. */
static int deal_out(const tfd__group *g, const work *w, int k) {
  tfd__run_of sum = sum_place(g, w, k);
  int i;

  for (i = 0; i < g->local; i++) {
    const tfd__piece *out = tfd__gotten(g, &w->kept.c, k, i);
    int64_t n = out->view->numel;
    tfd__run_of from = tfd__tcp_cut(&sum, i * n, (i + 1) * n);
    tfd__run_of to = tfd__part_of(out, 0, n);

    TFD_TRY(tfd__run_copy(&to, &from));
  }
  return TFD_OK;
}

static int spread(const tfd__group *g, const work *w) {
  int k;

  if (w->kept.c.kind == TFD_COLLECTIVE_BARRIER) return TFD_OK;
  if (scatters(w)) {
    for (k = 0; k < w->kept.c.values; k++) TFD_TRY(deal_out(g, w, k));
    return TFD_OK;
  }
  return tfd__kept_spread(&w->kept, g);
}

/* Go from a phase that has ended to the next. */
static int next_phase(tfd__group *g, work *w) {
  bool reduces = w->kept.c.kind == TFD_COLLECTIVE_ALL_REDUCE || scatters(w);

  w->posts_n = 0;
  switch (w->phase) {
  case TFD_TCP_INPUT:
    switch (w->kept.c.kind) {
    case TFD_COLLECTIVE_ALL_REDUCE:
    case TFD_COLLECTIVE_REDUCE_SCATTER:
      if (has_steps(w)) {
        begin_steps(g, w);
        w->phase = TFD_TCP_STEPS;
        return post_step(g, w);
      }
      if (w->streams) return tfd__tcp_begin_stream(g, w);
      TFD_TRY(exchange(g, w));
      break;
    case TFD_COLLECTIVE_BROADCAST:
      move_broadcast(g, w);
      break;
    case TFD_COLLECTIVE_ALL_GATHER:
      move_gather(g, w);
      break;
    case TFD_COLLECTIVE_GATHER:
    case TFD_COLLECTIVE_SCATTER:
      move_pieces(g, w);
      break;
    default:
      move_barrier(g, w);
      break;
    }
    w->phase = TFD_TCP_EXCHANGE;
    return TFD_OK;
  case TFD_TCP_EXCHANGE:
    w->phase = reduces ? TFD_TCP_REDUCE : TFD_TCP_DONE;
    if (!reduces) return spread(g, w);
    TFD_TRY(reduce_shares(g, w));
    tfd__kept_note(&w->kept, g);
    return TFD_OK;
  case TFD_TCP_STEPS:
    TFD_TRY(add_step(g, w));
    if (++w->step < tfd__way_steps(w->way, own_of(g)->processes)) {
      return post_step(g, w);
    }
    TFD_TRY(divide_all(g, w));
    tfd__kept_note(&w->kept, g);
    w->phase = TFD_TCP_DIVIDE;
    return TFD_OK;
  case TFD_TCP_REDUCE:
    if (!scatters(w)) TFD_TRY(share_results(g, w));
    w->phase = TFD_TCP_SHARE;
    return TFD_OK;
  default:
    w->phase = TFD_TCP_DONE;
    return spread(g, w);
  }
}

/* As far as it goes until then. */
static int move_on(tfd__turn *turn, tfd__deadline until, bool *done_p) {
  work *w = (work *)turn;
  tfd__group *g = turn->group;

  while (w->phase != TFD_TCP_DONE) {
    bool over = false;

    if (w->phase == TFD_TCP_INPUT || w->phase == TFD_TCP_REDUCE ||
        w->phase == TFD_TCP_DIVIDE) {
      int rc = tfd__kept_ready(&w->kept, g, until, &over);

      if (rc != TFD_OK) return tfd__group_fail(g); /* the others wait for it */
    } else if (w->phase == TFD_TCP_STREAM) {
      TFD_TRY(tfd__tcp_stream(g, w, until, &over));
    } else {
      over =
          tfd__mesh_wait(own_of(g)->circle.mesh, w->waited, w->posts_n, until);
    }
    if (!over) return TFD_OK; /* the caller looks for failures */
    TFD_TRY(next_phase(g, w));
  }
  *done_p = true;
  return TFD_OK;
}

static int wait_work(tfd__ticket *t, tfd__deadline until, bool *done_p) {
  work *w = t->own;

  return tfd__turn_wait(&w->turn, until, done_p);
}

static void end_work(tfd__ticket *t) {
  work *w = t->own;

  if (w == NULL) return;
  tfd__turn_end(&w->turn);
  if (w->phase != TFD_TCP_DONE) tfd__mesh_settle(own_of(t->group)->circle.mesh);
  work_free(t->group, w);
}

/* They differ in the way of their all_reduces; sums that do not grow in the
** order of ranks are no sums of reduce_scatter's parts. */
#define PROVIDER(name_, score_, in_order)                                      \
  {                                                                            \
    .abi = TFD_PROVIDER_ABI, .name = (name_), .score = (score_),               \
    .scatters_alike = (in_order), .can = can, .open = open_group,              \
    .close = close_group,                                                      \
    .begin = {[TFD_COLLECTIVE_ALL_REDUCE] = begin_reduction,                   \
              [TFD_COLLECTIVE_REDUCE_SCATTER] = begin_reduction,               \
              [TFD_COLLECTIVE_BROADCAST] = begin_other,                        \
              [TFD_COLLECTIVE_ALL_GATHER] = begin_other,                       \
              [TFD_COLLECTIVE_BARRIER] = begin_other,                          \
              [TFD_COLLECTIVE_GATHER] = begin_other,                           \
              [TFD_COLLECTIVE_SCATTER] = begin_other},                         \
    .wait = wait_work, .tend = tfd__turns_tend, .end = end_work, .late = late, \
    .abort = abort_group,                                                      \
  }

const tfd__provider tfd__tcp_provider = PROVIDER("tcp", 50, true);
const tfd__provider tfd__ring_provider = PROVIDER("ring", 3, false);
const tfd__provider tfd__halving_provider = PROVIDER("halving", 2, false);
const tfd__provider tfd__doubling_provider = PROVIDER("doubling", 1, false);
