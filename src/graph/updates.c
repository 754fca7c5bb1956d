/* An optimizer's updates that follow each other as one call.
**
** Elementwise groups and views between them, clipping say, run before all of
** them, as long as they touch nothing that an update put off reads or writes.
** What the calls do is what they did one by one: none of them touches what
** another one writes.
**
** A gradient that is scaled by one number for an update alone, as clipping by
** the norm of all does, is scaled where the update reads it: two passes over
** memory less, and the same bits. */
#include <stdio.h>
#include <string.h>

#include "graph/lower.h"

/* Updates of one call; of its attributes: tfd__call counts in 16 bits. */
enum { MOST = 1024, INTS = 5 };

typedef struct updates {
  tfd__lowering *l;
  int *nodes;
  int nodes_n, nodes_room;
  const tfd__place **places; /* that they take */
  int places_n, places_room;
} updates;

/* --- scaled gradients ----------------------------------------------------- */

typedef struct scaling {
  tfd__lowering *l;
  int *maker; /* value -> node, -1 = none */
  int *uses;  /* of each value, results included */
} scaling;

/* Is node k x * number, in no group with others? */
static bool is_scaling(const scaling *s, int k) {
  const tfd__lowering *l = s->l;
  const tfd__body *b = &l->b;
  const tfd__node *n = &b->nodes[k];
  int group = l->groups[k];
  const int *in = b->operands + n->in;

  if (n->op == NULL || n->op->kernel != TFD_KERNEL_multiply ||
      n->targets_n > 0 || b->values[n->out].view.dtype != TFD_FLOAT32 ||
      (group >= 0 && ((k > 0 && l->groups[k - 1] == group) ||
                      (k + 1 < b->nodes_n && l->groups[k + 1] == group)))) {
    return false;
  }
  return b->values[in[1]].view.numel == 1 && b->values[in[0]].view.dense &&
         tfd__same_shape(&b->values[in[0]].view, &b->values[n->out].view) &&
         tfd__body_keeps(b, s->maker, in[0]) &&
         tfd__body_keeps(b, s->maker, in[1]);
}

/* Count uses, then let updates take what is scaled for them. */
static void join_scalings(scaling *s) {
  tfd__lowering *l = s->l;
  tfd__body *b = &l->b;
  int k;
  int i;

  for (i = 0; i < b->values_n; i++) s->maker[i] = -1;
  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];

    for (i = 0; i < n->out_n && !n->dead; i++) s->maker[n->out + i] = k;
    for (i = 0; i < n->in_n && !n->dead; i++) {
      if (b->operands[n->in + i] >= 0) s->uses[b->operands[n->in + i]]++;
    }
  }
  for (i = 0; i < b->results_n; i++) s->uses[b->results[i]]++;
  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];
    int *v = NULL;

    if (n->dead || !tfd__lower_is_update(l, k)) continue;
    v = &b->operands[n->in + n->in_n - 2];
    if (s->maker[*v] < 0 || s->uses[*v] > 1 || !is_scaling(s, s->maker[*v])) {
      continue;
    }
    n = &b->nodes[s->maker[*v]];
    b->nodes[s->maker[*v]].dead = true;
    l->scales[k] = b->operands[n->in + 1];
    *v = b->operands[n->in];
  }
}

int tfd__lower_scales(tfd__lowering *l) {
  size_t n = (size_t)l->b.nodes_n + 2 * (size_t)l->b.values_n + 1;
  scaling s = {.l = l};
  int k;

  l->scales = tfd__calloc(n, sizeof *l->scales);
  if (l->scales == NULL) return tfd__no_memory(n * sizeof(int), "graph");
  for (k = 0; k < l->b.nodes_n; k++) l->scales[k] = -1;
  s.maker = l->scales + l->b.nodes_n;
  s.uses = s.maker + l->b.values_n;
  if (l->fuses) join_scalings(&s);
  return TFD_OK;
}

/* --- one call ------------------------------------------------------------- */

bool tfd__lower_is_update(const tfd__lowering *l, int k) {
  const tfd__node *n = &l->b.nodes[k];

  return l->fuses && n->op != NULL && n->op->infer == tfd__infer_update &&
         n->targets_n == n->in_n - 2 &&
         l->b.operands[n->in + n->in_n - 1] < 0 && /* dense */
         l->p->device->backend->kernels[TFD_KERNEL_updates] != NULL;
}

static bool is_taken(const updates *u, const tfd__place *place) {
  int i;

  for (i = 0; i < u->places_n; i++) {
    if (tfd__same_place(u->places[i], place)) return true;
  }
  return false;
}

/* Is it what an update gives that was put off? */
static bool is_given(const updates *u, int v) {
  int i;

  for (i = 0; i < u->nodes_n; i++) {
    const tfd__node *n = &u->l->b.nodes[u->nodes[i]];

    if (v >= n->out && v < n->out + n->out_n) return true;
  }
  return false;
}

/* Does a node take what the updates give, or what they take? Of the latter,
** with `variables` those alone count. */
static bool meets(const updates *u, const tfd__node *n, bool variables) {
  const tfd__lowering *l = u->l;
  int i;

  for (i = 0; i < n->in_n; i++) {
    int v = l->b.operands[n->in + i];

    if (v < 0) continue;
    if (is_given(u, v)) return true;
    if (variables && l->places[v].kind != TFD_PLACE_VARIABLE) continue;
    if (is_taken(u, &l->places[v])) return true;
  }
  return false;
}

static int put_off(updates *u, int k) {
  const tfd__lowering *l = u->l;
  const tfd__node *n = &l->b.nodes[k];
  int i;

  TFD_TRY(TFD_GROW(u->nodes, 1));
  TFD_TRY(TFD_GROW(u->places, n->in_n));
  u->nodes[u->nodes_n++] = k;
  for (i = 0; i < n->in_n; i++) {
    int v = l->b.operands[n->in + i];

    if (v >= 0) u->places[u->places_n++] = &l->places[v];
  }
  return TFD_OK;
}

/* May these nodes, a group or a view, run before the updates? */
static bool may_pass(const updates *u, int k, int n) {
  const tfd__lowering *l = u->l;
  int i;

  if (l->groups[k] < 0 && !tfd__node_is_view(&l->b.nodes[k])) return false;
  for (i = 0; i < n; i++) {
    const tfd__node *one = &l->b.nodes[k + i];

    if (one->targets_n > 0 || meets(u, one, false)) return false;
  }
  return true;
}

static int group_size(const tfd__lowering *l, int k) {
  int n = 1;

  if (l->groups[k] < 0) return 1;
  while (k + n < l->b.nodes_n && l->groups[k + n] == l->groups[k]) n++;
  return n;
}

/* From node k on, what it and others put off are. *n_p: nodes that were
** lowered or put off. */
static int collect(updates *u, int k, int *n_p) {
  tfd__lowering *l = u->l;
  const tfd__op *op = l->b.nodes[k].op;
  int at = k;
  int n;

  for (; at < l->b.nodes_n && !l->impossible; at += n) {
    const tfd__node *one = &l->b.nodes[at];

    n = 1;
    if (one->dead) continue;
    if (one->op == op && tfd__lower_is_update(l, at) &&
        (l->scales[at] >= 0) == (l->scales[k] >= 0)) {
      if (u->nodes_n == MOST || meets(u, one, true)) break;
      TFD_TRY(put_off(u, at));
      continue;
    }
    n = group_size(l, at);
    if (!may_pass(u, at, n)) break;
    TFD_TRY(tfd__lower_from(l, at, &n));
  }
  *n_p = at - k;
  return TFD_OK;
}

/* The last n calls, of one kernel, become one. Their views and reals lie one
** after the other as it is, the numbers that scale among them; ints they have
** none. */
static int merge(tfd__lowering *l, int n, tfd__kernel_id kernel, bool scaled) {
  tfd__program *p = l->p;
  int from = p->calls_n - n;
  tfd__call *call = &p->calls[from];
  const int64_t ints[] = {kernel, n, call->in_n, call->out_n, scaled};
  char name[96];
  int i;

  (void)snprintf(name, sizeof name, "updates(%d of %s)%s", n, call->name,
                 scaled ? " scaled" : "");
  TFD_TRY(tfd__emit_own(l, (tfd__fused){.name = tfd__strdup(name)}));
  TFD_TRY(TFD_GROW(p->ints, INTS));
  memcpy(p->ints + p->ints_n, ints, sizeof ints);
  p->ints_n += INTS;
  for (i = 0; i < p->stretches_n; i++) {
    if (p->stretches[i].first > from) p->stretches[i].first = from;
    if (p->stretches[i].last > from) p->stretches[i].last = from;
  }
  for (i = from + 1; i < p->calls_n; i++) p->flops[from] += p->flops[i];
  call->name = p->fused[p->fused_n - 1].name;
  call->kernel = p->device->backend->kernels[TFD_KERNEL_updates];
  call->ints_n = INTS;
  call->reals_n *= n;
  call->in_n = (call->in_n + call->out_n + scaled) * n;
  call->out_n = 0;
  l->kernels[from] = TFD_KERNEL_updates;
  p->calls_n = p->flops_n = l->kernels_n = from + 1;
  return TFD_OK;
}

static int lower_all(updates *u) {
  tfd__lowering *l = u->l;
  tfd__kernel_id kernel = l->b.nodes[u->nodes[0]].op->kernel;
  bool scaled = l->scales[u->nodes[0]] >= 0;
  int from = l->p->calls_n;
  int n = 0;
  int i;

  for (i = 0; i < u->nodes_n && !l->impossible; i++) {
    TFD_TRY(tfd__lower_from(l, u->nodes[i], &n));
    if (scaled && !l->impossible) {
      TFD_TRY(tfd__emit_view(l, &l->places[l->scales[u->nodes[i]]]));
    }
  }
  /* Copies of gradients with gaps among them leave them alone; what is scaled
  ** has none. */
  if (l->impossible ||
      (!scaled && (u->nodes_n < 2 || l->p->calls_n != from + u->nodes_n))) {
    return TFD_OK;
  }
  return merge(l, u->nodes_n, kernel, scaled);
}

int tfd__lower_updates(tfd__lowering *l, int k, int *n_p) {
  updates u = {.l = l};
  int rc = collect(&u, k, n_p);

  if (rc == TFD_OK) rc = lower_all(&u);
  tfd__free(u.nodes);
  tfd__free(u.places);
  return rc;
}
