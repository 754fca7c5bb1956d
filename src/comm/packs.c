/* Many values as a few long ones.
**
** Each rank's values are copied behind one another into one run, which is
** reduced in place, pack by pack, and copied out again unless the results are
** wanted in that very order in one buffer. Values of different dtypes are
** packed apart.
** Cost: one copy of every value, or two, for collectives whose price is by the
** message. */
#include "comm/private.h"
#include "comm/schedule.h"

typedef struct packing {
  tfd__group *group;
  const tfd__collective *c;
  const tfd__pack_plan *plan;
  tfd__deadline until;
  int *order; /* the values of one dtype, as they are packed */
  int n;
  int64_t *sizes;   /* theirs */
  int64_t *lengths; /* of the packs */
  int packs;
  tfd__run_of whole[TFD_MAX_LOCAL_RANKS]; /* owned */
  bool in_place[TFD_MAX_LOCAL_RANKS];     /* it is the results' own memory */
} packing;

/* The values that have value first's dtype, in the plan's order. */
static void take_dtype(packing *p, int first) {
  int dtype = tfd__given(p->group, p->c, first, 0)->view->dtype;
  int values = p->c->values;
  int i;

  p->n = 0;
  for (i = 0; i < values; i++) {
    int k = p->plan->backwards ? values - 1 - i : i;
    const tfd__view *v = tfd__given(p->group, p->c, k, 0)->view;

    if (v->dtype != dtype) continue;
    p->order[p->n] = k;
    p->sizes[p->n++] = v->numel;
  }
}

static bool is_first_of_dtype(const packing *p, int k) {
  int dtype = tfd__given(p->group, p->c, k, 0)->view->dtype;
  int i;

  for (i = 0; i < k; i++) {
    if (tfd__given(p->group, p->c, i, 0)->view->dtype == dtype) return false;
  }
  return true;
}

/* Copy all values of local rank i into its run, or out of it. */
static int move(const packing *p, int i, bool out) {
  int64_t at = 0;
  int j;

  for (j = 0; j < p->n; j++) {
    tfd__piece all = {p->whole[i].buffer, &p->whole[i].view};
    tfd__run_of part = tfd__part_of(&all, at, p->sizes[j]);
    const tfd__piece *own = out ? tfd__gotten(p->group, p->c, p->order[j], i)
                                : tfd__given(p->group, p->c, p->order[j], i);
    tfd__run_of value = tfd__part_of(own, 0, p->sizes[j]);

    TFD_TRY(out ? tfd__run_copy(&value, &part) : tfd__run_copy(&part, &value));
    at += p->sizes[j];
  }
  return TFD_OK;
}

static int reduce_packs(const packing *p, tfd__piece *pieces,
                        tfd__run_of *runs) {
  const tfd__group *g = p->group;
  tfd__collective c = *p->c;
  int64_t at = 0;
  int k;
  int i;

  for (k = 0; k < p->packs; k++) {
    for (i = 0; i < g->local; i++) {
      tfd__piece all = {p->whole[i].buffer, &p->whole[i].view};
      int own = k * g->local + i;

      runs[own] = tfd__part_of(&all, at, p->lengths[k]);
      pieces[own] = (tfd__piece){runs[own].buffer, &runs[own].view};
    }
    at += p->lengths[k];
  }
  c.values = p->packs;
  c.in = pieces;
  c.out = pieces;
  return tfd__group_run(p->group, &c, p->until);
}

static int reduce_all_packs(packing *p) {
  size_t n = (size_t)p->packs * (size_t)p->group->local;
  tfd__piece *pieces = tfd__calloc(n, sizeof *pieces);
  tfd__run_of *runs = tfd__calloc(n, sizeof *runs);
  int rc = pieces == NULL || runs == NULL
               ? tfd__no_memory(n * sizeof *runs, p->c->what)
               : reduce_packs(p, pieces, runs);

  tfd__free(pieces);
  tfd__free(runs);
  return rc;
}

/* Do local rank i's results lie behind one another as they are packed? */
static bool are_one_run(const packing *p, int i) {
  const tfd__piece *first = tfd__gotten(p->group, p->c, p->order[0], i);
  const char *at = first->view->data;
  int j;

  for (j = 0; j < p->n; j++) {
    const tfd__piece *out = tfd__gotten(p->group, p->c, p->order[j], i);

    if (out->buffer != first->buffer || (const char *)out->view->data != at) {
      return false;
    }
    at += tfd__view_bytes(out->view);
  }
  return true;
}

/* Memory for local rank i's values. */
static int make_whole(packing *p, int i, int dtype, int64_t total) {
  tfd__run_of *run = &p->whole[i];
  size_t bytes = (size_t)total * tfd__dtype_size(dtype);

  p->in_place[i] = are_one_run(p, i);
  TFD_TRY(tfd__view_set(&run->view, dtype, &total, 1));
  if (p->in_place[i]) {
    const tfd__piece *first = tfd__gotten(p->group, p->c, p->order[0], i);

    tfd__retain(first->buffer);
    run->buffer = first->buffer;
    run->view.data = first->view->data;
    return TFD_OK;
  }
  TFD_TRY(tfd__group_buffer(p->group, i, bytes, &run->buffer));
  run->view.data = run->buffer->data;
  return TFD_OK;
}

/* The values of all local ranks into their runs. */
static int move_in(packing *p, int dtype) {
  int64_t total = 0;
  int i;

  for (i = 0; i < p->n; i++) total += p->sizes[i];
  for (i = 0; i < p->group->local; i++) {
    TFD_TRY(make_whole(p, i, dtype, total));
    TFD_TRY(move(p, i, false));
  }
  return TFD_OK;
}

/* The sums to where they are wanted. */
static int move_out(const packing *p) {
  int i;

  for (i = 0; i < p->group->local; i++) {
    if (!p->in_place[i]) TFD_TRY(move(p, i, true));
  }
  return TFD_OK;
}

static void release_runs(packing *p) {
  int i;

  for (i = 0; i < p->group->local; i++) {
    tfd__release(p->whole[i].buffer);
    p->whole[i].buffer = NULL;
  }
}

/* The values of one dtype. */
static int pack_dtype(packing *p, int dtype) {
  int64_t bytes = (int64_t)tfd__dtype_size(dtype);
  int rc;

  p->packs = tfd__packs(p->plan, p->sizes, p->n, bytes);
  p->lengths = tfd__calloc((size_t)p->packs, sizeof *p->lengths);
  if (p->lengths == NULL) {
    return tfd__no_memory((size_t)p->packs * sizeof *p->lengths, p->c->what);
  }
  tfd__pack_lengths(p->plan, p->sizes, p->n, bytes, p->lengths);
  rc = move_in(p, dtype);
  if (rc == TFD_OK) rc = reduce_all_packs(p);
  if (rc == TFD_OK) rc = move_out(p);
  release_runs(p);
  tfd__free(p->lengths);
  return rc;
}

int tfd__group_all_reduce_packed(tfd__group *g, const tfd__collective *c,
                                 const tfd__pack_plan *plan,
                                 tfd__deadline until) {
  packing p = {.group = g, .c = c, .plan = plan, .until = until};
  int rc = TFD_OK;
  int k;

  TFD_TRY(tfd__collective_check(g, c));
  p.order = tfd__calloc((size_t)c->values, sizeof *p.order);
  p.sizes = tfd__calloc((size_t)c->values, sizeof *p.sizes);
  if (p.order == NULL || p.sizes == NULL) {
    rc = tfd__no_memory((size_t)c->values * sizeof *p.sizes, c->what);
  }
  for (k = 0; rc == TFD_OK && k < c->values; k++) {
    if (!is_first_of_dtype(&p, k)) continue;
    take_dtype(&p, k);
    rc = pack_dtype(&p, tfd__given(g, c, k, 0)->view->dtype);
  }
  tfd__free(p.order);
  tfd__free(p.sizes);
  return rc;
}

/* --- in two calls --------------------------------------------------------- */

struct tfd__packed {
  packing p;
  tfd__collective c;
  tfd__pack_plan plan;
  tfd__ticket *ticket;
};

/* The runs are what the group sees. */
static int begin_whole(tfd__packed *own) {
  packing *p = &own->p;
  tfd__collective c = own->c;
  tfd__piece pieces[TFD_MAX_LOCAL_RANKS];
  int i;

  for (i = 0; i < p->group->local; i++) {
    pieces[i] = (tfd__piece){p->whole[i].buffer, &p->whole[i].view};
  }
  c.values = 1;
  c.in = pieces;
  c.out = pieces;
  return tfd__group_begin(p->group, &c, &own->ticket);
}

int tfd__packed_begin(tfd__group *g, const tfd__collective *c, bool attended,
                      tfd__packed **packed_p) {
  size_t n = (size_t)c->values;
  size_t bytes = sizeof(tfd__packed) + n * (sizeof(int64_t) + sizeof(int));
  tfd__packed *own = NULL;
  int rc;

  TFD_TRY(tfd__collective_check(g, c));
  own = tfd__calloc(1, bytes);
  if (own == NULL) return tfd__no_memory(bytes, c->what);
  own->c = *c;
  own->p = (packing){.group = g, .c = &own->c, .plan = &own->plan};
  own->p.sizes = (int64_t *)(own + 1);
  own->p.order = (int *)(own->p.sizes + n);
  take_dtype(&own->p, 0);
  rc = move_in(&own->p, tfd__given(g, c, 0, 0)->view->dtype);
  if (rc == TFD_OK) rc = begin_whole(own);
  if (rc != TFD_OK) {
    tfd__packed_end(own);
    return rc;
  }
  if (attended) tfd__ticket_attend(own->ticket);
  *packed_p = own;
  return TFD_OK;
}

int tfd__packed_wait(tfd__packed *p, tfd__deadline until) {
  TFD_TRY(tfd__ticket_wait(p->ticket, until));
  return move_out(&p->p);
}

void tfd__packed_end(tfd__packed *p) {
  if (p == NULL) return;
  tfd__ticket_end(p->ticket);
  release_runs(&p->p);
  tfd__free(p);
}
