/* An optimizer's updates that follow each other as one call.
**
** Elementwise groups and views between them, clipping say, run before all of
** them, as long as they touch nothing that an update put off reads or writes.
** What the calls do is what they did one by one: none of them touches what
** another one writes. */
#include <stdio.h>
#include <string.h>

#include "graph/lower.h"

/* Updates of one call; of its attributes: tfd__call counts in 16 bits. */
enum { MOST = 1024, INTS = 4 };

typedef struct updates {
  tfd__lowering *l;
  int *nodes;
  int nodes_n, nodes_room;
  const tfd__place **places; /* that they take */
  int places_n, places_room;
} updates;

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
    if (one->op == op && tfd__lower_is_update(l, at)) {
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
** after the other as it is; ints they have none. */
static int merge(tfd__lowering *l, int n, tfd__kernel_id kernel) {
  tfd__program *p = l->p;
  int from = p->calls_n - n;
  tfd__call *call = &p->calls[from];
  const int64_t ints[] = {kernel, n, call->in_n, call->out_n};
  char name[96];
  int i;

  (void)snprintf(name, sizeof name, "updates(%d of %s)", n, call->name);
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
  call->reals_n = (int16_t)(call->reals_n * n);
  call->in_n = (int16_t)((call->in_n + call->out_n) * n);
  call->out_n = 0;
  l->kernels[from] = TFD_KERNEL_updates;
  p->calls_n = p->flops_n = l->kernels_n = from + 1;
  return TFD_OK;
}

static int lower_all(updates *u) {
  tfd__lowering *l = u->l;
  tfd__kernel_id kernel = l->b.nodes[u->nodes[0]].op->kernel;
  int from = l->p->calls_n;
  int n = 0;
  int i;

  for (i = 0; i < u->nodes_n && !l->impossible; i++) {
    TFD_TRY(tfd__lower_from(l, u->nodes[i], &n));
  }
  /* Copies of gradients with gaps among them leave them alone. */
  if (l->impossible || u->nodes_n < 2 || l->p->calls_n != from + u->nodes_n) {
    return TFD_OK;
  }
  return merge(l, u->nodes_n, kernel);
}

int tfd__lower_updates(tfd__lowering *l, int k, int *n_p) {
  updates u = {.l = l};
  int rc = collect(&u, k, n_p);

  if (rc == TFD_OK) rc = lower_all(&u);
  tfd__free(u.nodes);
  tfd__free(u.places);
  return rc;
}
