/* From a graph and the shapes of its inputs to a program.
**
** Inference runs once more, for sizes and views as they are; so each kernel
** gets what the dispatcher would give it. Views cost nothing. A read of a
** variable is its memory where its value is used up before the next write,
** else a copy. */
#include <limits.h>
#include <string.h>

#include "graph/graph.h"

typedef struct lower {
  tfd_graph *g;
  tfd__body b; /* without common subexpressions */
  tfd__program *p;
  tfd__place *places; /* of each value */
  int *last;          /* node that uses it last */
  int *next_write;    /* of each node that reads a variable: the next write */
  tfd__place *seen;   /* of each view of the program */
  int seen_n, seen_room;
  int *fresh; /* of each stretch: buffer that it is, -1 = in the arena */
  bool impossible;
} lower;

static size_t offset_of(const tfd__place *p) {
  return (size_t)(uintptr_t)p->view.data;
}

/* --- calls ---------------------------------------------------------------- */

static int new_stretch(lower *l, size_t bytes, int *number_p) {
  tfd__program *p = l->p;

  TFD_TRY(TFD_GROW(p->stretches, 1));
  *number_p = p->stretches_n;
  p->stretches[p->stretches_n++] =
      (tfd__stretch){.bytes = bytes, .first = p->calls_n, .last = p->calls_n};
  return TFD_OK;
}

/* A dense place of its own. */
static int new_place(lower *l, const tfd__view *like, tfd__place *place) {
  memset(place, 0, sizeof *place);
  TFD_TRY(tfd__view_set(&place->view, like->dtype, like->dims, like->rank));
  place->view.data = NULL;
  place->kind = TFD_PLACE_ARENA;
  return new_stretch(l, tfd__view_bytes(&place->view), &place->of);
}

static int add_view(lower *l, const tfd__place *place) {
  tfd__program *p = l->p;

  TFD_TRY(TFD_GROW(p->views, 1));
  TFD_TRY(TFD_GROW(l->seen, 1));
  if (place == NULL) { /* an absent optional input */
    memset(&p->views[p->views_n], 0, sizeof *p->views);
    memset(&l->seen[l->seen_n], 0, sizeof *l->seen);
    l->seen[l->seen_n].kind = TFD_PLACE_CONSTANT;
    l->seen[l->seen_n].of = -1;
  } else {
    p->views[p->views_n] = place->view;
    l->seen[l->seen_n] = *place;
    if (place->kind == TFD_PLACE_ARENA) {
      p->stretches[place->of].last = p->calls_n;
    }
  }
  p->views_n++;
  l->seen_n++;
  return TFD_OK;
}

/* Pointers become indices until the lists have their final places. */
static int add_attributes(lower *l, const tfd__node *n, tfd__call *call) {
  tfd__program *p = l->p;
  const tfd__op *op = n->op;

  TFD_TRY(TFD_GROW(p->ints, op->ints_n));
  TFD_TRY(TFD_GROW(p->reals, op->reals_n));
  TFD_TRY(TFD_GROW(p->redraws, 1));
  TFD_TRY(TFD_GROW(p->renumbers, 1));
  if (op->ints_n > 0) {
    memcpy(p->ints + p->ints_n, l->b.ints + n->ints,
           (size_t)op->ints_n * sizeof *p->ints);
  }
  if (op->reals_n > 0) {
    memcpy(p->reals + p->reals_n, l->b.reals + n->reals,
           (size_t)op->reals_n * sizeof *p->reals);
  }
  if (n->draw >= 0) {
    p->redraws[p->redraws_n++] =
        (tfd__redraw){.from = n->draw, .to = p->ints_n + n->draw_slot};
  }
  if (n->numbers >= 0) {
    p->renumbers[p->renumbers_n++] =
        (tfd__renumber){.from = n->numbers, .to = p->reals_n, .n = op->reals_n};
  }
  call->ints_n = (int16_t)op->ints_n;
  call->reals_n = (int16_t)op->reals_n;
  p->ints_n += op->ints_n;
  p->reals_n += op->reals_n;
  return TFD_OK;
}

/* One kernel call on these places, NULL = absent. */
static int emit(lower *l, int node, tfd__kernel kernel, const char *name,
                const tfd__place *const *in, int in_n,
                const tfd__place *const *out, int out_n, bool attributes) {
  tfd__program *p = l->p;
  const tfd__node *n = &l->b.nodes[node];
  tfd__call call = {.name = name,
                    .kernel = kernel,
                    .in_n = (int16_t)in_n,
                    .out_n = (int16_t)out_n,
                    .replica = n->replica,
                    .line = n->line,
                    .file = n->file};
  int i;

  TFD_TRY(TFD_GROW(p->calls, 1));
  TFD_TRY(TFD_GROW(p->origins, 1));
  for (i = 0; i < in_n; i++) TFD_TRY(add_view(l, in[i]));
  for (i = 0; i < out_n; i++) TFD_TRY(add_view(l, out[i]));
  if (attributes) TFD_TRY(add_attributes(l, n, &call));
  p->calls[p->calls_n++] = call;
  p->origins[p->origins_n++] = node;
  return TFD_OK;
}

/* `place` becomes a dense copy of what it was. */
static int emit_copy(lower *l, int node, tfd__place *place) {
  tfd__kernel copy = l->p->device->backend->kernels[TFD_KERNEL_copy];
  tfd__place from = *place;
  tfd__place to;
  const tfd__place *in[1] = {&from};
  const tfd__place *out[1] = {&to};

  TFD_TRY(new_place(l, &from.view, &to));
  TFD_TRY(emit(l, node, copy, "copy", in, 1, out, 1, false));
  *place = to;
  return TFD_OK;
}

/* --- nodes ---------------------------------------------------------------- */

typedef struct lowering {
  int node;
  const tfd__node *n;
  tfd__infer infer;
  tfd__place *in; /* copies: they may be made dense */
  const tfd__view **in_views;
  const tfd__place **in_list; /* NULL = absent */
  tfd__place *out;
  const tfd__place **out_list;
} lowering;

static int infer(lower *l, lowering *w) {
  const tfd__node *n = w->n;
  tfd__infer *s = &w->infer;
  int i;

  for (i = 0; i < n->in_n; i++) {
    int v = l->b.operands[n->in + i];

    w->in_list[i] = NULL;
    w->in_views[i] = NULL;
    if (v < 0) continue;
    w->in[i] = l->places[v];
    w->in_list[i] = &w->in[i];
    w->in_views[i] = &w->in[i].view;
  }
  memset(s, 0, offsetof(tfd__infer, small));
  s->op = n->op;
  s->name = n->op->name;
  s->in = w->in_views;
  s->in_n = n->in_n;
  s->ints = l->b.ints + n->ints;
  s->reals = l->b.reals + n->reals;
  s->out_n = 1;
  s->out = s->small;
  s->large = NULL;
  TFD_TRY(n->op->infer(s));
  if (s->out_n == n->out_n) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: %d outputs for these sizes, %d at the trace",
                   n->op->name, s->out_n, n->out_n);
}

static int lower_view(lower *l, lowering *w) {
  tfd__place base = w->in[0];
  int i;

  if (base.kind == TFD_PLACE_VARIABLE && tfd__node_reads(&l->b, w->n) >= 0 &&
      l->last[w->n->out] >= l->next_write[w->node]) {
    TFD_TRY(emit_copy(l, w->node, &base));
  } else if (w->infer.dense_first && !base.view.dense) {
    TFD_TRY(emit_copy(l, w->node, &base));
  }
  for (i = 0; i < w->n->out_n; i++) {
    const tfd__out_spec *spec = &w->infer.out[i];
    int64_t bytes = spec->offset * (int64_t)tfd__dtype_size(spec->view.dtype);
    tfd__place *place = &l->places[w->n->out + i];

    *place = base;
    place->view = spec->view;
    place->view.data = (void *)(uintptr_t)((int64_t)offset_of(&base) + bytes);
  }
  return TFD_OK;
}

static int lower_outputs(lower *l, lowering *w) {
  const tfd__node *n = w->n;
  int i;

  for (i = 0; i < n->out_n; i++) {
    const tfd__view *view = &w->infer.out[i].view;

    if (i < n->targets_n) {
      memset(&w->out[i], 0, sizeof w->out[i]);
      w->out[i].view = *view;
      w->out[i].view.data = NULL;
      w->out[i].kind = TFD_PLACE_VARIABLE;
      w->out[i].of = l->b.targets[n->targets + i];
      l->p->writes[w->out[i].of] = true;
    } else {
      TFD_TRY(new_place(l, view, &w->out[i]));
    }
    w->out_list[i] = &w->out[i];
    l->places[n->out + i] = w->out[i];
  }
  return TFD_OK;
}

/* Does the device have a kernel for these dtypes and attributes? */
static int check_kernel(lower *l, const lowering *w) {
  const tfd__backend *b = l->p->device->backend;
  const tfd__node *n = w->n;
  int views_n = n->in_n + n->out_n;
  tfd__call call = {.name = n->op->name,
                    .kernel = b->kernels[n->op->kernel],
                    .ints = l->b.ints + n->ints,
                    .reals = l->b.reals + n->reals,
                    .in_n = (int16_t)n->in_n,
                    .out_n = (int16_t)n->out_n,
                    .ints_n = (int16_t)n->op->ints_n,
                    .reals_n = (int16_t)n->op->reals_n};
  tfd__view *views = NULL;
  int i;

  l->impossible = l->impossible || call.kernel == NULL;
  if (call.kernel == NULL || b->can_run == NULL) return TFD_OK;
  views = tfd__calloc((size_t)views_n, sizeof *views);
  if (views == NULL) return tfd__no_memory((size_t)views_n, "graph");
  for (i = 0; i < n->in_n; i++) {
    if (w->in_list[i] != NULL) views[i] = w->in[i].view;
  }
  for (i = 0; i < n->out_n; i++) views[n->in_n + i] = w->infer.out[i].view;
  call.views = views;
  l->impossible = !b->can_run(n->op->kernel, &call);
  tfd__free(views);
  return TFD_OK;
}

static int lower_kernel(lower *l, lowering *w) {
  const tfd__node *n = w->n;
  bool dense = (n->op->flags & TFD_OP_STRIDED) == 0;
  int i;

  TFD_TRY(check_kernel(l, w));
  if (l->impossible) return TFD_OK;
  for (i = 0; dense && i < n->in_n; i++) {
    if (w->in_list[i] != NULL && !w->in[i].view.dense) {
      TFD_TRY(emit_copy(l, w->node, &w->in[i]));
    }
  }
  TFD_TRY(lower_outputs(l, w));
  return emit(l, w->node, l->p->device->backend->kernels[n->op->kernel],
              n->op->name, w->in_list, n->in_n, w->out_list, n->out_n, true);
}

static int lower_node(lower *l, int k) {
  const tfd__node *n = &l->b.nodes[k];
  size_t ins = (size_t)n->in_n;
  size_t outs = (size_t)n->out_n;
  lowering w = {.node = k, .n = n};
  char *block = tfd__alloc((ins + outs) * (sizeof(tfd__place) + 16) + 16);
  int rc;

  if (block == NULL) return tfd__no_memory((ins + outs) * 200, "graph");
  w.in = (tfd__place *)(void *)block;
  w.out = w.in + ins;
  w.in_views = (const tfd__view **)(void *)(w.out + outs);
  w.in_list = (const tfd__place **)(void *)(w.in_views + ins);
  w.out_list = w.in_list + ins;
  rc = infer(l, &w);
  if (rc == TFD_OK) {
    rc = w.infer.alias ? lower_view(l, &w) : lower_kernel(l, &w);
  }
  tfd__free(w.infer.large);
  tfd__free(block);
  return rc;
}

/* --- before and after ----------------------------------------------------- */

/* All on one device, no steps of the host, every target once for a node. */
static tfd_device *only_device(const tfd_graph *g) {
  const tfd__body *b = &g->body;
  tfd_device *device = NULL;
  int i;
  int k;

  if (g->hosts_n > 0) return NULL;
  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];

    if (n->dead) continue;
    if (device != NULL && n->device != device) return NULL;
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

static void find_writes(lower *l, int *scratch) {
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

static int place_constants(lower *l) {
  tfd_graph *g = l->g;
  int i;

  TFD_TRY(TFD_GROW(l->p->constants, g->constants_n));
  for (i = 0; i < g->constants_n; i++) {
    TFD_TRY(tfd__buffer_check(g->constants[i]->buffer));
    TFD_TRY(tfd__tensor_to_device(g->constants[i], l->p->device,
                                  &l->p->constants[i]));
    l->p->constants_n++;
  }
  return TFD_OK;
}

/* Values that no node makes. */
static void place_sources(lower *l, tfd_tensor *const *inputs) {
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

/* Results that the program computes get buffers of their own. */
static int make_yields(lower *l) {
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
                    .offset = offset_of(place)};

    if (place->kind == TFD_PLACE_ARENA) {
      if (l->fresh[place->of] < 0) {
        l->fresh[place->of] = p->fresh_n;
        p->fresh[p->fresh_n++] = p->stretches[place->of].bytes;
      }
      y.kind = TFD_PLACE_RESULT;
      y.of = l->fresh[place->of];
    }
    p->yields[p->yields_n++] = y;
  }
  return TFD_OK;
}

static int plan(lower *l) {
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

static int patch(lower *l, int view, int slot, size_t offset) {
  tfd__program *p = l->p;

  TFD_TRY(TFD_GROW(p->patches, 1));
  p->patches[p->patches_n++] =
      (tfd__patch){.view = view, .slot = slot, .offset = offset};
  return TFD_OK;
}

/* Where the views' data are, or which pointer they take at each call. */
static int point(lower *l, int i) {
  tfd__program *p = l->p;
  const tfd__place *place = &l->seen[i];
  size_t offset = offset_of(place);

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

static int finish(lower *l) {
  tfd__program *p = l->p;
  int view = 0;
  int ints = 0;
  int reals = 0;
  int slots;
  int i;

  TFD_TRY(make_yields(l));
  TFD_TRY(plan(l));
  for (i = 0; i < p->views_n; i++) TFD_TRY(point(l, i));
  for (i = 0; i < p->calls_n; i++) {
    tfd__call *call = &p->calls[i];

    call->views = p->views + view;
    call->ints = p->ints + ints;
    call->reals = p->reals + reals;
    view += call->in_n + call->out_n;
    ints += call->ints_n;
    reals += call->reals_n;
  }
  slots = 1 + p->inputs_n + p->variables_n + p->fresh_n + l->g->draws_n +
          l->g->numbers_n;
  l->impossible = l->impossible || slots > INT16_MAX;
  p->frame = tfd__calloc((size_t)slots, sizeof *p->frame);
  p->made = tfd__calloc((size_t)p->fresh_n + 1, sizeof *p->made);
  p->ready = tfd__calloc((size_t)p->inputs_n + 1, sizeof *p->ready);
  if (p->frame == NULL || p->made == NULL || p->ready == NULL) {
    return tfd__no_memory((size_t)slots * sizeof *p->frame, "graph");
  }
  p->frame[0] = (int64_t)(uintptr_t)p;
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

static int build(lower *l, tfd_tensor *const *inputs) {
  tfd__program *p = l->p;
  int *scratch = NULL;
  int k;

  TFD_TRY(keep_layout(p, inputs));
  TFD_TRY(tfd__body_copy(&l->g->body, &l->b));
  TFD_TRY(tfd__pass_common(&l->b, p->variables_n));
  TFD_TRY(tfd__pass_dead(&l->b));
  l->places = tfd__calloc((size_t)l->b.values_n + 1, sizeof *l->places);
  l->last = tfd__alloc(((size_t)l->b.values_n + (size_t)l->b.nodes_n +
                        (size_t)p->variables_n + 1) *
                       sizeof *l->last);
  p->writes = tfd__calloc((size_t)p->variables_n + 1, sizeof *p->writes);
  if (l->places == NULL || l->last == NULL || p->writes == NULL) {
    return tfd__no_memory((size_t)l->b.values_n * sizeof *l->places, "graph");
  }
  l->next_write = l->last + l->b.values_n;
  scratch = l->next_write + l->b.nodes_n;
  tfd__body_lives(&l->b, l->last);
  find_writes(l, scratch);
  TFD_TRY(place_constants(l));
  place_sources(l, inputs);
  for (k = 0; k < l->b.nodes_n && !l->impossible; k++) {
    if (!l->b.nodes[k].dead) TFD_TRY(lower_node(l, k));
  }
  return l->impossible ? TFD_OK : finish(l);
}

int tfd__lower(tfd_graph *g, tfd_tensor *const *inputs,
               tfd__program **program_p) {
  lower l = {.g = g};
  tfd_device *device = only_device(g);
  int rc;

  *program_p = NULL;
  if (device == NULL) return TFD_OK;
  l.p = tfd__calloc(1, sizeof *l.p);
  if (l.p == NULL) return tfd__no_memory(sizeof *l.p, "graph");
  l.p->device = device;
  l.p->inputs_n = g->inputs_n;
  l.p->variables_n = g->variables_n;
  l.p->words_n = g->draws_n;
  rc = build(&l, inputs);
  tfd__body_free(&l.b);
  tfd__free(l.places);
  tfd__free(l.last);
  tfd__free(l.seen);
  tfd__free(l.fresh);
  if (rc == TFD_OK && !l.impossible) {
    *program_p = l.p;
  } else {
    tfd__program_free(l.p);
  }
  return rc;
}
