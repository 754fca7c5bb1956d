/* From a graph and the shapes of its inputs to a program: passes, then calls,
** then their memory. */
#include "graph/lower.h"

#include <limits.h>
#include <string.h>

/* --- before and after ----------------------------------------------------- */

/* All on one device, no steps of the host, no flows, every target once for a
 * node. */
static tfd_device *only_device(const tfd_graph *g) {
  const tfd__body *b = &g->body;
  tfd_device *device = NULL;
  int i;
  int k;

  if (g->hosts_n > 0) return NULL;
  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];

    if (n->dead) continue;
    if (n->joint != NULL || n->flow >= 0 ||
        (device != NULL && n->device != device))
      return NULL;
    device = n->device;
    for (i = 1; i < n->targets_n; i++) {
      int first = b->targets[n->targets + i - 1];

      if (first == b->targets[n->targets + i]) return NULL;
    }
  }
  for (i = 0; i < g->variables_n; i++) {
    if (g->variables[i]->value->device != device) return NULL;
  }
  return device;
}

static void find_writes(tfd__lowering *l, int *scratch) {
  int i;
  int k;

  for (i = 0; i < l->g->variables_n; i++) scratch[i] = INT_MAX;
  for (k = l->b.nodes_n - 1; k >= 0; k--) {
    const tfd__node *n = &l->b.nodes[k];
    int v = -1;

    l->next_write[k] = INT_MAX;
    if (n->dead) continue;
    for (i = 0; i < n->targets_n; i++) {
      scratch[l->b.targets[n->targets + i]] = k;
    }
    v = tfd__node_reads(&l->b, n);
    if (v >= 0) l->next_write[k] = scratch[v];
  }
}

/* Devices of the host's memory read what the other one has, which nobody writes
** any more. */
static int bring_constant(const tfd__program *p, tfd_tensor *t,
                          tfd_tensor **there_p) {
  const tfd__backend *b = p->device->backend;

  TFD_TRY(tfd__buffer_check(t->buffer));
  if (t->device == p->device || t->device->backend != b || !b->host_visible) {
    return tfd__tensor_to_device(t, p->device, there_p);
  }
  TFD_TRY(tfd__tensor_sync(t));
  tfd__retain(t);
  *there_p = t;
  return TFD_OK;
}

static int place_constants(tfd__lowering *l) {
  tfd_graph *g = l->g;
  int i;

  TFD_TRY(TFD_GROW(l->p->constants, g->constants_n));
  for (i = 0; i < g->constants_n; i++) {
    TFD_TRY(bring_constant(l->p, g->constants[i], &l->p->constants[i]));
    l->p->constants_n++;
  }
  return TFD_OK;
}

/* Values that no node makes. */
static void place_sources(tfd__lowering *l, tfd_tensor *const *inputs) {
  int i;

  for (i = 0; i < l->b.values_n; i++) {
    const tfd__graph_value *v = &l->b.values[i];
    tfd__place *place = &l->places[i];

    if (v->origin == TFD_FROM_NODE) continue;
    place->of = v->of;
    if (v->origin == TFD_FROM_INPUT) {
      place->kind = TFD_PLACE_INPUT;
      place->view = inputs[v->of]->view;
    } else if (v->origin == TFD_FROM_CONSTANT) {
      place->kind = TFD_PLACE_CONSTANT;
      place->view = l->p->constants[v->of]->view;
    } else {
      place->kind = TFD_PLACE_VARIABLE;
      place->view = l->g->variables[v->of]->value->view;
    }
    place->view.data = NULL;
  }
}

/* A constant that is a result lies on the program's device. */
static int own_constant(tfd__program *p, int i) {
  tfd_tensor *there = NULL;

  TFD_TRY(tfd__tensor_to_device(p->constants[i], p->device, &there));
  tfd__release(p->constants[i]);
  p->constants[i] = there;
  return TFD_OK;
}

/* Results that the program computes get buffers of their own. */
static int make_yields(tfd__lowering *l) {
  tfd__program *p = l->p;
  int i;

  TFD_TRY(TFD_GROW(p->yields, l->b.results_n));
  TFD_TRY(TFD_GROW(p->fresh, l->b.results_n));
  l->fresh = tfd__alloc(((size_t)p->stretches_n + 1) * sizeof *l->fresh);
  if (l->fresh == NULL) return tfd__no_memory((size_t)p->stretches_n, "graph");
  for (i = 0; i < p->stretches_n; i++) l->fresh[i] = -1;
  for (i = 0; i < l->b.results_n; i++) {
    const tfd__place *place = &l->places[l->b.results[i]];
    tfd__yield y = {.view = place->view,
                    .kind = place->kind,
                    .of = place->of,
                    .offset = tfd__place_offset(place)};

    if (place->kind == TFD_PLACE_ARENA) {
      if (l->fresh[place->of] < 0) {
        l->fresh[place->of] = p->fresh_n;
        p->fresh[p->fresh_n++] = p->stretches[place->of].bytes;
      }
      y.kind = TFD_PLACE_RESULT;
      y.of = l->fresh[place->of];
    } else if (place->kind == TFD_PLACE_CONSTANT) {
      TFD_TRY(own_constant(p, place->of));
    }
    p->yields[p->yields_n++] = y;
  }
  return TFD_OK;
}

static int plan(tfd__lowering *l) {
  static const char *const words[] = {"0", "1"};
  tfd__program *p = l->p;
  tfd__stretch *list = NULL;
  size_t bytes = 0;
  int on = 1;
  int n = 0;
  int i;
  int rc;

  TFD_TRY(tfd__env_word("TFDIST_PLAN", words, 2, "0 or 1", &on));
  list = tfd__alloc(((size_t)p->stretches_n + 1) * sizeof *list);
  if (list == NULL) return tfd__no_memory((size_t)p->stretches_n, "graph");
  for (i = 0; i < p->stretches_n; i++) {
    if (l->fresh[i] < 0) list[n++] = p->stretches[i];
  }
  rc = tfd__plan(list, n, on == 0, &bytes);
  for (i = p->stretches_n - 1; rc == TFD_OK && i >= 0; i--) {
    if (l->fresh[i] < 0) p->stretches[i].offset = list[--n].offset;
  }
  tfd__free(list);
  TFD_TRY(rc);
  return tfd__buffer_new(p->device, bytes > 0 ? bytes : TFD_ARENA_ALIGN,
                         &p->arena);
}

static int patch(tfd__lowering *l, int view, int slot, size_t offset) {
  tfd__program *p = l->p;

  TFD_TRY(TFD_GROW(p->patches, 1));
  p->patches[p->patches_n++] =
      (tfd__patch){.view = view, .slot = slot, .offset = offset};
  return TFD_OK;
}

/* Where the views' data are, or which pointer they take at each call. */
static int point(tfd__lowering *l, int i) {
  tfd__program *p = l->p;
  const tfd__place *place = &l->seen[i];
  size_t offset = tfd__place_offset(place);

  switch (place->kind) {
  case TFD_PLACE_INPUT:
    return patch(l, i, place->of, offset);
  case TFD_PLACE_VARIABLE:
    return patch(l, i, p->inputs_n + place->of, offset);
  case TFD_PLACE_CONSTANT:
    if (place->of < 0) return TFD_OK;
    p->views[i].data = (char *)p->constants[place->of]->view.data + offset;
    return TFD_OK;
  default:
    if (l->fresh[place->of] >= 0) {
      return patch(l, i, p->inputs_n + p->variables_n + l->fresh[place->of],
                   offset);
    }
    p->views[i].data =
        (char *)p->arena->data + p->stretches[place->of].offset + offset;
    return TFD_OK;
  }
}

/* Call k writes its last out_n views or, made of several calls, any. `written`:
** of each fresh buffer the number of calls until it is there. */
static void note_written(tfd__lowering *l, int k, int view, int *written) {
  tfd__program *p = l->p;
  const tfd__call *call = &p->calls[k];
  int end = view + call->in_n + call->out_n;

  if (call->out_n > 0) view += call->in_n;
  for (; view < end; view++) {
    const tfd__place *place = &l->seen[view];

    if (place->kind != TFD_PLACE_ARENA || l->fresh[place->of] < 0) continue;
    written[l->fresh[place->of]] = k + 1;
  }
}

/* Hand each call its views and attributes. */
static int link_calls(tfd__lowering *l) {
  tfd__program *p = l->p;
  int *written = tfd__calloc((size_t)p->fresh_n + 1, sizeof *written);
  int view = 0;
  int ints = 0;
  int reals = 0;
  int i;

  if (written == NULL) return tfd__no_memory((size_t)p->fresh_n, "graph");
  for (i = 0; i < p->calls_n; i++) {
    tfd__call *call = &p->calls[i];

    call->views = p->views + view;
    call->ints = p->ints + ints;
    call->reals = p->reals + reals;
    note_written(l, i, view, written);
    view += call->in_n + call->out_n;
    ints += call->ints_n;
    reals += call->reals_n;
  }
  for (i = 0; i < p->yields_n; i++) {
    tfd__yield *y = &p->yields[i];

    if (y->kind == TFD_PLACE_RESULT) y->after = written[y->of];
  }
  tfd__free(written);
  return TFD_OK;
}

static int finish(tfd__lowering *l) {
  tfd__program *p = l->p;
  int slots;
  int i;

  TFD_TRY(make_yields(l));
  TFD_TRY(tfd__lower_blocks(l));
  TFD_TRY(plan(l));
  for (i = 0; i < p->views_n; i++) TFD_TRY(point(l, i));
  TFD_TRY(link_calls(l));
  p->keepings_at = TFD_FRAME_SLOTS + p->inputs_n + p->variables_n + p->fresh_n +
                   l->g->draws_n + l->g->numbers_n;
  slots = p->keepings_at + 2 * p->keepings_n;
  p->frame = tfd__calloc((size_t)slots, sizeof *p->frame);
  p->made = tfd__calloc((size_t)p->fresh_n + 1, sizeof *p->made);
  p->ready = tfd__calloc((size_t)p->inputs_n + 1, sizeof *p->ready);
  if (p->frame == NULL || p->made == NULL || p->ready == NULL) {
    return tfd__no_memory((size_t)slots * sizeof *p->frame, "graph");
  }
  p->frame[TFD_FRAME_PROGRAM] = (int64_t)(uintptr_t)p;
  return TFD_OK;
}

static int keep_layout(tfd__program *p, tfd_tensor *const *inputs) {
  int64_t *at = NULL;
  size_t n = 1;
  int i;

  for (i = 0; i < p->inputs_n; i++) n += 2 * (size_t)inputs[i]->view.rank;
  p->layout = at = tfd__alloc(n * sizeof *p->layout);
  if (at == NULL) return tfd__no_memory(n * sizeof *at, "graph");
  for (i = 0; i < p->inputs_n; i++) {
    const tfd__view *v = &inputs[i]->view;

    memcpy(at, v->dims, v->rank * sizeof *at);
    memcpy(at + v->rank, v->strides, v->rank * sizeof *at);
    at += 2 * v->rank;
  }
  return TFD_OK;
}

static int group(tfd__lowering *l, tfd_tensor *const *inputs) {
  static const char *const words[] = {"0", "1", "small"};
  int on = 1;
  int k;

  l->groups = tfd__alloc(((size_t)l->b.nodes_n + 1) * sizeof *l->groups);
  if (l->groups == NULL) return tfd__no_memory((size_t)l->b.nodes_n, "graph");
  for (k = 0; k < l->b.nodes_n; k++) l->groups[k] = -1;
  TFD_TRY(tfd__env_word("TFDIST_FUSION", words, 3, "0, 1 or small", &on));
  l->fuses = on != 0;
  l->small = on == 2;
  if (l->fuses) TFD_TRY(tfd__pass_forward(&l->b, l->p->variables_n));
  /* In any case: it refuses what does not fit into a variable. */
  TFD_TRY(tfd__pass_sizes(l->g, &l->b, inputs));
  if (!l->fuses) return TFD_OK;
  TFD_TRY(tfd__pass_algebra(l->g, &l->b));
  return tfd__pass_groups(&l->b, l->p->variables_n, l->p->device->backend,
                          l->p->device->stream, l->groups);
}

static int run_passes(tfd__lowering *l, tfd_tensor *const *inputs) {
  tfd__program *p = l->p;
  int k;

  TFD_TRY(tfd__body_copy(&l->g->body, &l->b));
  TFD_TRY(tfd__pass_common(&l->b, p->variables_n));
  TFD_TRY(tfd__pass_dead(&l->b));
  TFD_TRY(group(l, inputs));
  TFD_TRY(tfd__lower_scales(l));
  l->places = tfd__calloc((size_t)l->b.values_n + 1, sizeof *l->places);
  l->last = tfd__alloc(((size_t)l->b.values_n + (size_t)l->b.nodes_n +
                        (size_t)p->variables_n + 1) *
                       sizeof *l->last);
  p->writes = tfd__calloc((size_t)p->variables_n + 1, sizeof *p->writes);
  if (l->places == NULL || l->last == NULL || p->writes == NULL) {
    return tfd__no_memory((size_t)l->b.values_n * sizeof *l->places, "graph");
  }
  l->next_write = l->last + l->b.values_n;
  tfd__body_lives(&l->b, l->last);
  find_writes(l, l->next_write + l->b.nodes_n);
  for (k = 0; k < l->b.nodes_n; k++) {
    if (l->scales[k] >= 0 && l->last[l->scales[k]] < k) {
      l->last[l->scales[k]] = k;
    }
  }
  return TFD_OK;
}

static int build(tfd__lowering *l, tfd_tensor *const *inputs) {
  int n;
  int k;

  TFD_TRY(keep_layout(l->p, inputs));
  TFD_TRY(run_passes(l, inputs));
  TFD_TRY(place_constants(l));
  place_sources(l, inputs);
  for (k = 0; k < l->b.nodes_n && !l->impossible; k += n) {
    n = 1;
    if (l->b.nodes[k].dead) continue;
    TFD_TRY(tfd__lower_is_update(l, k) ? tfd__lower_updates(l, k, &n)
                                       : tfd__lower_from(l, k, &n));
  }
  return l->impossible ? TFD_OK : finish(l);
}

int tfd__lower(tfd_graph *g, tfd_tensor *const *inputs,
               tfd__program **program_p) {
  tfd__lowering l = {.g = g};
  tfd_device *device = only_device(g);
  int rc;

  *program_p = NULL;
  if (device == NULL) return TFD_OK;
  l.p = tfd__calloc(1, sizeof *l.p);
  if (l.p == NULL) return tfd__no_memory(sizeof *l.p, "graph");
  l.p->device = device;
  l.p->name = tfd__span_name(g->name);
  l.p->inputs_n = g->inputs_n;
  l.p->variables_n = g->variables_n;
  l.p->words_n = g->draws_n;
  rc = build(&l, inputs);
  tfd__body_free(&l.b);
  tfd__free(l.places);
  tfd__free(l.last);
  tfd__free(l.groups);
  tfd__free(l.scales);
  tfd__free(l.seen);
  tfd__free(l.until);
  tfd__free(l.fresh);
  tfd__free(l.kernels);
  if (rc == TFD_OK && !l.impossible) {
    *program_p = l.p;
  } else {
    tfd__program_free(l.p);
  }
  return rc;
}
