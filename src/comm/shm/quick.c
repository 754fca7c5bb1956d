/* Sums of few bytes and barriers, when all processes come at the same time: one
** round, without a ticket and without memory of its own. Who must wait for long
** hands the round over to the usual way, which finds it staged.
** Cost: one line from each other process (more than 48 bytes: their lines too),
** one sum. */
#include <string.h>

#include "comm/shm/shm.h"

typedef struct quick {
  tfd__group *group;
  const tfd__collective *c;
  const tfd__view *view; /* what is given; NULL = a barrier */
  size_t bytes;
  uint64_t number; /* of the round */
  tfd__kernel kernel;
  tfd__frame frame;
} quick;

/* Is there nothing else to do first? */
static bool can(quick *q) {
  tfd__group *g = q->group;
  const tfd__shm_group *own = g->own;
  const tfd__collective *c = q->c;
  tfd_device *device = g->devices[0];

  if (own->under_way > 0 || g->local != 1) return false;
  if (c->kind == TFD_COLLECTIVE_ALL_REDUCE && c->values == 1) {
    q->view = c->in[0].view;
    q->bytes = tfd__view_bytes(q->view);
    q->kernel = tfd__sum_kernel(g, c->op, q->view->dtype);
    if (q->bytes > TFD_SHM_SMALL || q->kernel == NULL) return false;
  } else if (c->kind != TFD_COLLECTIVE_BARRIER) {
    return false;
  }
  q->number = tfd__shm_number(own, 0);
  if (!tfd__stream_has_passed(device, tfd__stream_seq(device))) return false;
  return own->together == q->number - 1 || q->number <= TFD_DEPTH ||
         tfd__tally_reached(&own->tally, TFD_MARK_FINISHED,
                            q->number - TFD_DEPTH, NULL);
}

static bool is_brief(const quick *q) {
  return q->view != NULL && q->bytes <= TFD_BRIEF_BYTES;
}

static void stage(quick *q, uint64_t number) {
  tfd__shm_group *own = q->group->own;
  int process = own->tally.process;
  int dtype = q->view == NULL ? 0 : q->view->dtype;

  q->frame =
      (tfd__frame){.type = TFD_FRAME_DATA,
                   .seq = number,
                   .what = tfd__collective_what(q->c, dtype),
                   .count = q->view == NULL ? 0 : (uint64_t)q->view->numel};
  tfd__frame_set_place(&q->frame, q->c);
  if (q->bytes > 0) {
    memcpy(tfd__shm_given(own, process, q->number, is_brief(q)), q->view->data,
           q->bytes);
  }
  tfd__shm_announce(own, &q->frame, q->number);
}

static void set_line(tfd__view *v, const quick *q, void *data) {
  v->data = data;
  v->numel = q->view->numel;
  v->dtype = q->view->dtype;
  v->rank = 1;
  v->dense = true;
  v->dims[0] = v->numel;
  v->strides[0] = 1;
}

static int add_up(quick *q) {
  tfd__shm_group *own = q->group->own;
  int n = own->tally.processes;
  tfd__view views[TFD_MAX_LOCAL_RANKS + 1]; /* set one by one: there is room
                                            ** for many */
  int64_t ints[3] = {q->c->op == TFD_REDUCE_MEAN, 0, 0};
  tfd__call call = {.name = q->c->what,
                    .views = views,
                    .ints = ints,
                    .ints_n = 3,
                    .in_n = (int16_t)n,
                    .out_n = 1,
                    .replica = -1};
  int p;

  if (q->bytes == 0) return TFD_OK;
  ints[2] = q->view->numel;
  for (p = 0; p < n; p++) {
    set_line(&views[p], q,
             p == own->tally.process
                 ? q->view->data
                 : tfd__shm_given(own, p, q->number, is_brief(q)));
  }
  set_line(&views[n], q, q->c->out[0].view->data);
  return q->kernel(&call);
}

int tfd__shm_quick(tfd__group *g, const tfd__collective *c, uint64_t number,
                   tfd__quick *progress_p) {
  tfd__shm_group *own = g->own;
  quick q = {.group = g, .c = c};

  if (!can(&q)) return TFD_OK;
  if (tfd__pass_chunk(c) != TFD_OK) return tfd__group_fail(g);
  stage(&q, number);
  if (!tfd__tally_soon(&own->tally, TFD_MARK_STAGED, q.number)) {
    own->early = q.number;
    *progress_p = TFD_QUICK_BEGUN;
    return TFD_OK;
  }
  if (tfd__shm_check(own, &q.frame, q.number) != TFD_OK ||
      add_up(&q) != TFD_OK) {
    (void)tfd__group_fail(g);
    return tfd__group_check(g, tfd__collective_name(c->kind));
  }
  tfd__tally_set(&own->tally, TFD_MARK_FINISHED, q.number);
  tfd__tally_sweep(&own->tally);
  own->rounds++;
  own->together = q.number;
  *progress_p = TFD_QUICK_DONE;
  return TFD_OK;
}
