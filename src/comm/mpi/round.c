/* Whether all processes begin the same collective, in log2 P steps of recursive
** doubling, each a message of a few bytes either way. Few elements are sent
** along and added up on the way; the sum is nobody's before the end, when it is
** known that all have given to the same. */
#include <string.h>

#include "comm/mpi/mpi.h"

/* MPI promises tags up to 32767. */
enum { STEPS = 32 };

static int tag_of(const tfd__mpi_work *w) {
  return (int)(w->number % TFD_MPI_TAGS) * STEPS + w->round.step;
}

/* Of value k among what goes along. */
static size_t next_place(const tfd__mpi_work *w, int k, size_t place) {
  size_t bytes = tfd__view_bytes(&w->parts[k].give.view);

  return place + (bytes + sizeof(double) - 1) / sizeof(double);
}

static void begin(tfd__mpi_work *w) {
  tfd__mpi_frame *here = &w->round.here;
  size_t place = 0;
  int k;

  w->round.begun = true;
  here->least[0] = w->hash;
  here->least[1] = ~w->hash;
  for (k = 0; w->is_small && k < w->c.values; k++) {
    const tfd__view *v = &w->parts[k].give.view;

    if (v->numel > 0) {
      memcpy(here->sum + place, v->data, tfd__view_bytes(v));
    }
    place = next_place(w, k, place);
  }
  here->bytes = place * sizeof(double);
}

/* The sums of this process's side and the other's, in the same order on
** both. */
static void add_up(tfd__mpi_work *w, bool there_first) {
  tfd__mpi_frame *here = &w->round.here;
  tfd__mpi_frame *there = &w->round.there;
  double *from = there_first ? there->sum : here->sum;
  double *to = there_first ? here->sum : there->sum;
  size_t place = 0;
  int k;

  for (k = 0; place < here->bytes / sizeof(double); k++) {
    const tfd__view *v = &w->parts[k].give.view;

    if (v->numel > 0) {
      (void)MPI_Reduce_local(from + place, to + place, (int)v->numel,
                             tfd__mpi_type(v->dtype),
                             tfd__mpi_op(w->c.op, v->dtype));
    }
    place = next_place(w, k, place);
  }
  if (!there_first) memcpy(here->sum, there->sum, here->bytes);
}

static void hear(tfd__mpi_work *w, const tfd__step *s) {
  tfd__mpi_frame *here = &w->round.here;
  const tfd__mpi_frame *there = &w->round.there;
  bool alike = memcmp(here->least, there->least, sizeof here->least) == 0 &&
               here->bytes == there->bytes;
  int i;

  if (alike && s->adds) {
    add_up(w, s->first);
  } else if (alike) {
    memcpy(here->sum, there->sum, here->bytes);
  } else {
    here->bytes = 0;
  }
  for (i = 0; i < 2; i++) {
    if (there->least[i] < here->least[i]) here->least[i] = there->least[i];
  }
}

static bool post(tfd__mpi_group *g, tfd__mpi_work *w, const tfd__step *s) {
  tfd__mpi_round *r = &w->round;
  int bytes = (int)(offsetof(tfd__mpi_frame, sum) + r->here.bytes);
  int tag = tag_of(w);
  int code = MPI_SUCCESS;

  r->requests[0] = MPI_REQUEST_NULL;
  r->requests[1] = MPI_REQUEST_NULL;
  r->posted = true;
  if (s->from >= 0) {
    code = MPI_Irecv(&r->there, sizeof r->there, MPI_BYTE, s->from, tag,
                     g->control, &r->requests[0]);
  }
  if (code == MPI_SUCCESS && s->to >= 0) {
    code = MPI_Isend(&r->here, bytes, MPI_BYTE, s->to, tag, g->control,
                     &r->requests[1]);
  }
  if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Isend", code);
  return code == MPI_SUCCESS;
}

bool tfd__mpi_round_on(tfd__mpi_group *g, tfd__mpi_work *w) {
  tfd__mpi_round *r = &w->round;
  int steps = tfd__way_steps(TFD_WAY_DOUBLING, g->processes);

  if (!r->begun) begin(w);
  while (r->step < steps) {
    tfd__step s =
        tfd__way_step(TFD_WAY_DOUBLING, g->processes, g->process, r->step, 1);
    int done = 0;
    int code = MPI_SUCCESS;

    if (!r->posted && !post(g, w, &s)) return false;
    code = MPI_Testall(2, r->requests, &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) tfd__mpi_fail_call(g, "MPI_Testall", code);
    if (code != MPI_SUCCESS || !done) return false;
    if (s.from >= 0) hear(w, &s);
    r->posted = false;
    r->step++;
  }
  return true;
}

bool tfd__mpi_round_agrees(const tfd__mpi_work *w) {
  const uint64_t *least = w->round.here.least;

  return least[0] == w->hash && least[1] == ~w->hash;
}

void tfd__mpi_round_take(const tfd__mpi_work *w) {
  size_t place = 0;
  int k;

  if (w->c.kind == TFD_COLLECTIVE_BARRIER) return;
  for (k = 0; k < w->c.values; k++) {
    const tfd__view *v = &w->parts[k].take.view;

    if (v->numel > 0) {
      memcpy(v->data, w->round.here.sum + place, tfd__view_bytes(v));
    }
    place = next_place(w, k, place);
  }
}

bool tfd__mpi_round_settled(tfd__mpi_work *w) {
  int done = 0;

  if (!w->round.posted) return true;
  (void)MPI_Testall(2, w->round.requests, &done, MPI_STATUSES_IGNORE);
  return done != 0;
}
