/* all_reduces of long values in the way "direct", frame by frame: what has come
** from all is added up at once, while it is in the caches, and the sum goes out
** behind what this process has given. A window of frames is received ahead; all
** else that is to be sent is posted from the beginning.
** What goes over the wire, and in which order, is the same as without this:
** each process does it as it can. */
#include "comm/tcp/work.h"

static tfd__tcp_group *own_of(const tfd__group *g) {
  return g->own;
}

bool tfd__tcp_can_stream(const tfd__group *g, const tfd__collective *c,
                         tfd__way way) {
  bool is_long = false;
  int k;

  if (c->kind != TFD_COLLECTIVE_ALL_REDUCE || way != TFD_WAY_DIRECT) {
    return false;
  }
  for (k = 0; k < c->values; k++) {
    const tfd__view *v = tfd__given(g, c, k, 0)->view;

    if (tfd__sum_kernel(g, c->op, v->dtype) == NULL) return false;
    is_long = is_long || tfd__view_bytes(v) > TFD_TCP_FRAME;
  }
  return is_long;
}

/* Elements of the frame at a cursor. */
static tfd__stretch frame_of(const tfd__tcp_work *w, const tfd__tcp_cursor *c) {
  const tfd__tcp_part *p = &w->parts[c->k];
  int64_t each = TFD_TCP_FRAME / (int64_t)tfd__dtype_size(p->dtype);
  tfd__stretch s = {p->share.begin + c->at, p->share.begin + c->at + each};

  if (s.end > p->share.end) s.end = p->share.end;
  return s;
}

static void advance(const tfd__tcp_work *w, tfd__tcp_cursor *c) {
  const tfd__tcp_part *p = &w->parts[c->k];

  c->frames++;
  c->at += TFD_TCP_FRAME / (int64_t)tfd__dtype_size(p->dtype);
  if (c->at < p->share.end - p->share.begin) return;
  c->k++;
  c->at = 0;
}

/* Process q's n elements in the ring. */
static tfd__run_of in_ring(const tfd__group *g, const tfd__tcp_work *w,
                           const tfd__tcp_cursor *c, int q, int64_t n) {
  ptrdiff_t slot =
      (ptrdiff_t)(c->frames % TFD_TCP_WINDOW) * own_of(g)->processes + q;
  tfd__view v = {.data = (char *)w->ring.view.data + slot * TFD_TCP_FRAME,
                 .dtype = (uint8_t)w->parts[c->k].dtype};
  tfd__piece p = {w->ring.buffer, &v};

  return tfd__part_of(&p, 0, n);
}

/* Results come when all that is added up here has. */
static void receive_results(tfd__group *g, tfd__tcp_work *w) {
  int k;
  int q;

  for (k = 0; k < w->kept.c.values; k++) {
    const tfd__tcp_part *p = &w->parts[k];

    for (q = 0; q < own_of(g)->processes; q++) {
      tfd__run_of to = tfd__tcp_result(
          g, w, k, tfd__tcp_share(w, p, own_of(g)->processes, q));

      if (q == own_of(g)->process) continue;
      tfd__tcp_posts(g, w, false, q, 2 * k + 1, p->numel, &to);
    }
  }
}

static void receive_next(tfd__group *g, tfd__tcp_work *w) {
  tfd__tcp_cursor *c = &w->received;
  tfd__stretch s;
  int q;

  if (c->k == w->kept.c.values) return;
  s = frame_of(w, c);
  w->posted[c->frames % TFD_TCP_WINDOW] = w->posts_n;
  for (q = 0; q < own_of(g)->processes; q++) {
    tfd__run_of to = in_ring(g, w, c, q, s.end - s.begin);

    if (q == own_of(g)->process) continue;
    tfd__tcp_post(g, w, false, q, 2 * c->k, w->parts[c->k].numel, &to);
  }
  advance(w, c);
  if (c->k == w->kept.c.values) receive_results(g, w);
}

int tfd__tcp_begin_stream(tfd__group *g, tfd__tcp_work *w) {
  const tfd__tcp_group *own = own_of(g);
  int k;
  int q;
  int i;

  for (k = 0; k < w->kept.c.values; k++) {
    const tfd__tcp_part *p = &w->parts[k];

    TFD_TRY(tfd__pass_chunk(&w->kept.c));
    for (q = 0; q < own->processes; q++) {
      tfd__stretch s = tfd__tcp_share(w, p, own->processes, q);
      tfd__run_of to = tfd__tcp_cut(&p->mine, s.begin, s.end);

      if (q != own->process)
        tfd__tcp_posts(g, w, true, q, 2 * k, p->numel, &to);
    }
  }
  for (i = 0; i < TFD_TCP_WINDOW; i++) receive_next(g, w);
  w->phase = TFD_TCP_STREAM;
  return TFD_OK;
}

/* All have given the frame at w->summed: its sum goes to all. */
static int sum_next(tfd__group *g, tfd__tcp_work *w) {
  const tfd__tcp_group *own = own_of(g);
  tfd__tcp_cursor *c = &w->summed;
  const tfd__tcp_part *p = &w->parts[c->k];
  tfd__stretch s = frame_of(w, c);
  tfd__run_of to = tfd__tcp_result(g, w, c->k, s);
  tfd__run_of in[TFD_MAX_LOCAL_RANKS];
  int q;

  TFD_TRY(tfd__pass_chunk(&w->kept.c));
  for (q = 0; q < own->processes; q++) {
    in[q] = q == own->process ? tfd__tcp_cut(&p->mine, s.begin, s.end)
                              : in_ring(g, w, c, q, s.end - s.begin);
  }
  if (s.begin < s.end) {
    TFD_TRY(tfd__sum_now(tfd__sum_kernel(g, w->kept.c.op, p->dtype), &w->kept.c,
                         in, own->processes, &to, NULL, 0));
  }
  for (q = 0; q < own->processes; q++) {
    if (q != own->process)
      tfd__tcp_post(g, w, true, q, 2 * c->k + 1, p->numel, &to);
  }
  advance(w, c);
  receive_next(g, w);
  return TFD_OK;
}

int tfd__tcp_stream(tfd__group *g, tfd__tcp_work *w, tfd__deadline until,
                    bool *over_p) {
  tfd__mesh *mesh = own_of(g)->circle.mesh;
  int others = own_of(g)->processes - 1;

  while (w->summed.k < w->kept.c.values) {
    int first = w->posted[w->summed.frames % TFD_TCP_WINDOW];

    *over_p = tfd__mesh_wait(mesh, w->waited + first, others, until);
    if (!*over_p) return TFD_OK;
    TFD_TRY(sum_next(g, w));
  }
  *over_p = tfd__mesh_wait(mesh, w->waited, w->posts_n, until);
  return TFD_OK;
}
