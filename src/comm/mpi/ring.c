/* Long sums go round a ring, in pieces: while one is added up, the next are
** on their way. MPI's own sum that does not wait moves a whole share before it
** adds anything, into memory that is new each time; between two processes it
** takes two to three times as long. */
#include "comm/mpi/mpi.h"

/* All that one process sends: a piece of each share but one, twice. Piece t is
** sent when piece t - pieces has come, which is what it is made of. */
static int64_t all(const tfd__mpi_group *g, const tfd__mpi_ring *r) {
  return 2 * (int64_t)(g->processes - 1) * r->pieces;
}

/* Pieces of the first half are added to what is here. */
static int64_t half(const tfd__mpi_group *g, const tfd__mpi_ring *r) {
  return all(g, r) / 2;
}

static int64_t numel(const tfd__mpi_work *w) {
  return w->parts[w->ring.value].give.view.numel;
}

static tfd__stretch piece_of(tfd__stretch share, int64_t piece) {
  int64_t begin = share.begin + piece * TFD_MPI_PIECE;

  if (begin > share.end) begin = share.end;
  if (share.end - begin > TFD_MPI_PIECE) share.end = begin + TFD_MPI_PIECE;
  return (tfd__stretch){begin, share.end};
}

static tfd__step step_of(const tfd__mpi_group *g, const tfd__mpi_work *w,
                         int64_t t) {
  tfd__step s = tfd__way_step(TFD_WAY_RING, g->processes, g->process,
                              (int)(t / w->ring.pieces), numel(w));

  s.out = piece_of(s.out, t % w->ring.pieces);
  s.in = piece_of(s.in, t % w->ring.pieces);
  return s;
}

static char *at(const tfd__view *v, int64_t element) {
  return (char *)v->data + (size_t)element * tfd__dtype_size(v->dtype);
}

/* Where piece t comes to: if it is added to what is in the same memory, to a
** place of its own. */
static void *place_of(const tfd__mpi_group *g, const tfd__mpi_work *w,
                      const tfd__step *s, int64_t t) {
  const tfd__mpi_part *p = &w->parts[w->ring.value];

  if (t >= half(g, &w->ring) || p->give.view.data != p->take.view.data) {
    return at(&p->take.view, s->in.begin);
  }
  return w->ring.places + (size_t)(t % TFD_MPI_WINDOW) * TFD_MPI_PIECE *
                              tfd__dtype_size(p->take.view.dtype);
}

static void get(tfd__mpi_group *g, tfd__mpi_work *w) {
  int64_t t = w->ring.asked++;
  tfd__step s = step_of(g, w, t);
  MPI_Request *r = &w->ring.gets[t % TFD_MPI_WINDOW];
  int code = MPI_SUCCESS;

  *r = MPI_REQUEST_NULL;
  if (s.in.begin == s.in.end) return;
  code = MPI_Irecv(place_of(g, w, &s, t), (int)(s.in.end - s.in.begin),
                   tfd__mpi_type(w->parts[w->ring.value].take.view.dtype),
                   s.from, tfd__mpi_tag(w), g->data, r);
  if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Irecv", code);
}

static void send(tfd__mpi_group *g, tfd__mpi_work *w) {
  const tfd__mpi_part *p = &w->parts[w->ring.value];
  int64_t t = w->ring.sent++;
  const tfd__view *v = t < w->ring.pieces ? &p->give.view : &p->take.view;
  tfd__step s = step_of(g, w, t);
  MPI_Request *r = &w->ring.sends[t % TFD_MPI_WINDOW];
  int code = MPI_SUCCESS;

  *r = MPI_REQUEST_NULL;
  if (s.out.begin == s.out.end) return;
  code = MPI_Isend(at(v, s.out.begin), (int)(s.out.end - s.out.begin),
                   tfd__mpi_type(v->dtype), s.to, tfd__mpi_tag(w), g->data, r);
  if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Isend", code);
}

static void add(const tfd__mpi_group *g, const tfd__mpi_work *w, int64_t t) {
  const tfd__mpi_part *p = &w->parts[w->ring.value];
  tfd__step s = step_of(g, w, t);
  void *to = at(&p->take.view, s.in.begin);
  void *place = place_of(g, w, &s, t);

  (void)MPI_Reduce_local(place == to ? at(&p->give.view, s.in.begin) : place,
                         to, (int)(s.in.end - s.in.begin),
                         tfd__mpi_type(p->take.view.dtype),
                         tfd__mpi_op(w->c.op, p->take.view.dtype));
}

/* Is what `requests` hold at *n_p done? Then it is counted. */
static bool is_done(tfd__mpi_group *g, MPI_Request *requests, int64_t *n_p,
                    int64_t until) {
  int done = 0;
  int code = MPI_SUCCESS;

  if (*n_p == until) return false;
  code = MPI_Test(&requests[*n_p % TFD_MPI_WINDOW], &done, MPI_STATUS_IGNORE);
  if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Test", code);
  if (code != MPI_SUCCESS || !done) return false;
  ++*n_p;
  return true;
}

static bool may_get(const tfd__mpi_group *g, const tfd__mpi_ring *r) {
  int64_t t = r->asked;

  if (t == all(g, r) || t - r->come == TFD_MPI_WINDOW) return false;
  /* What it replaces has been sent, and MPI no longer reads it. */
  return t < half(g, r) || r->gone > t - half(g, r);
}

static bool may_send(const tfd__mpi_group *g, const tfd__mpi_ring *r) {
  int64_t t = r->sent;

  return t < all(g, r) && t - r->gone < TFD_MPI_WINDOW &&
         r->come > t - r->pieces;
}

/* The next value that goes round the ring; the first time from -1 on. No share
** is longer than the first. */
static void next_value(const tfd__mpi_group *g, tfd__mpi_work *w) {
  tfd__mpi_ring *r = &w->ring;
  tfd__stretch first = {0, 0};

  do {
    r->value++;
  } while (r->value < w->c.values && !tfd__mpi_is_long(g, w, r->value));
  r->asked = r->come = r->sent = r->gone = 0;
  if (r->value == w->c.values) return;
  first = tfd__way_step(TFD_WAY_RING, g->processes, 0, 0, numel(w)).out;
  r->pieces = (first.end + TFD_MPI_PIECE - 1) / TFD_MPI_PIECE;
}

int tfd__mpi_ring_begin(const tfd__mpi_group *g, tfd__mpi_work *w) {
  size_t bytes = (size_t)TFD_MPI_WINDOW * TFD_MPI_PIECE * sizeof(double);

  w->ring.value = -1;
  next_value(g, w);
  if (w->ring.value == w->c.values) return TFD_OK;
  w->ring.places = tfd__alloc(bytes);
  return w->ring.places == NULL ? tfd__no_memory(bytes, w->c.what) : TFD_OK;
}

bool tfd__mpi_ring_on(tfd__mpi_group *g, tfd__mpi_work *w) {
  tfd__mpi_ring *r = &w->ring;
  bool moved = true;

  while (moved && r->value < w->c.values) {
    moved = false;
    if (is_done(g, r->gets, &r->come, r->asked)) {
      if (r->come <= half(g, r)) add(g, w, r->come - 1);
      moved = true;
    }
    moved = is_done(g, r->sends, &r->gone, r->sent) || moved;
    for (; may_get(g, r); moved = true) get(g, w);
    for (; may_send(g, r); moved = true) send(g, w);
    if (r->come == all(g, r) && r->gone == all(g, r)) next_value(g, w);
  }
  return r->value == w->c.values;
}

bool tfd__mpi_ring_settled(tfd__mpi_group *g, tfd__mpi_work *w) {
  tfd__mpi_ring *r = &w->ring;
  int64_t t;

  for (t = r->come; !r->cancelled && t < r->asked; t++) {
    MPI_Request *get = &r->gets[t % TFD_MPI_WINDOW];

    if (*get != MPI_REQUEST_NULL) (void)MPI_Cancel(get);
  }
  r->cancelled = true;
  while (is_done(g, r->gets, &r->come, r->asked)) continue;
  while (is_done(g, r->sends, &r->gone, r->sent)) continue;
  return r->come == r->asked && r->gone == r->sent;
}
