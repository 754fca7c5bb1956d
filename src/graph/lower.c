/* From a graph and the shapes of its inputs to a program.
**
** Inference runs once more, for sizes and views as they are; so each kernel
** gets what the dispatcher would give it. Views cost nothing. A read of a
** variable is its memory where its value is used up before the next write,
** else a copy. */
#include "graph/lower.h"

#include <limits.h>
#include <string.h>

/* --- nodes ---------------------------------------------------------------- */

typedef struct node_work {
  int node;
  const tfd__node *n;
  tfd__infer infer;
  tfd__place *in; /* copies: they may be made dense */
  const tfd__view **in_views;
  const tfd__place **in_list; /* NULL = absent */
  tfd__place *out;
  const tfd__place **out_list;
} node_work;

static int infer(tfd__lowering *l, node_work *w) {
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

/* The last use of what the node gives. */
static int last_of(const tfd__lowering *l, const tfd__node *n) {
  int last = -1;
  int i;

  for (i = 0; i < n->out_n; i++) {
    if (l->last[n->out + i] > last) last = l->last[n->out + i];
  }
  return last;
}

static int lower_view(tfd__lowering *l, node_work *w) {
  tfd__place base = w->in[0];
  int i;

  if (base.kind == TFD_PLACE_VARIABLE && tfd__node_reads(&l->b, w->n) >= 0 &&
      l->last[w->n->out] >= l->next_write[w->node]) {
    TFD_TRY(tfd__emit_copy(l, w->node, last_of(l, w->n), &base));
  } else if (w->infer.dense_first && !base.view.dense) {
    TFD_TRY(tfd__emit_copy(l, w->node, last_of(l, w->n), &base));
  }
  for (i = 0; i < w->n->out_n; i++) {
    const tfd__out_spec *spec = &w->infer.out[i];
    int64_t bytes = spec->offset * (int64_t)tfd__dtype_size(spec->view.dtype);
    tfd__place *place = &l->places[w->n->out + i];

    *place = base;
    place->view = spec->view;
    place->view.data =
        (void *)(uintptr_t)((int64_t)tfd__place_offset(&base) + bytes);
  }
  return TFD_OK;
}

static int lower_outputs(tfd__lowering *l, node_work *w) {
  const tfd__node *n = w->n;
  int i;

  for (i = 0; i < n->out_n; i++) {
    const tfd__view *view = &w->infer.out[i].view;

    if (i < n->targets_n) {
      tfd__emit_target(l, n, i, view, &w->out[i]);
    } else {
      TFD_TRY(tfd__emit_place(l, view, l->last[n->out + i], &w->out[i]));
    }
    w->out_list[i] = &w->out[i];
    l->places[n->out + i] = w->out[i];
  }
  return TFD_OK;
}

/* Does the device have a kernel for these dtypes and attributes? */
static int check_kernel(tfd__lowering *l, const node_work *w) {
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

/* Each weight meets each place of the output of a convolution. */
static double of_filters(const tfd__view *out, const tfd__view *filters) {
  return 2.0 * (double)out->numel * (double)filters->numel /
         (double)filters->dims[filters->rank - 1];
}

/* Of products exactly; of other kernels one for each element of the largest
** operand or result. */
static double flops_of(const tfd__lowering *l, const node_work *w) {
  const tfd__node *n = w->n;
  const tfd__view *out = &w->infer.out[0].view;
  const tfd__view *a = n->in_n > 0 ? w->in_views[0] : NULL;
  const tfd__view *b = n->in_n > 1 ? w->in_views[1] : NULL;
  int64_t most = out->numel;
  bool turned;
  int i;

  switch (n->op->kernel) {
  case TFD_KERNEL_matmul: /* transpose_a, adjoint_a */
    turned = l->b.ints[n->ints] != 0 || l->b.ints[n->ints + 2] != 0;
    return 2.0 * (double)out->numel *
           (double)a->dims[a->rank - (turned ? 2 : 1)];
  case TFD_KERNEL_conv:
    return of_filters(out, b);
  case TFD_KERNEL_conv_backprop_input:
    return of_filters(b, a);
  case TFD_KERNEL_conv_backprop_filter:
    return of_filters(b, out);
  default:
    break;
  }
  for (i = 0; i < n->in_n; i++) {
    if (w->in_views[i] != NULL && w->in_views[i]->numel > most) {
      most = w->in_views[i]->numel;
    }
  }
  return (double)most;
}

static int lower_kernel(tfd__lowering *l, node_work *w) {
  const tfd__node *n = w->n;
  bool dense = (n->op->flags & TFD_OP_STRIDED) == 0;
  int i;

  TFD_TRY(check_kernel(l, w));
  if (l->impossible) return TFD_OK;
  for (i = 0; dense && i < n->in_n; i++) {
    if (w->in_list[i] != NULL && !w->in[i].view.dense) {
      TFD_TRY(tfd__emit_copy(l, w->node, w->node, &w->in[i]));
    }
  }
  TFD_TRY(lower_outputs(l, w));
  TFD_TRY(
      tfd__emit_call(l, w->node, l->p->device->backend->kernels[n->op->kernel],
                     n->op->name, w->in_list, n->in_n, w->out_list, n->out_n));
  l->p->flops[l->p->calls_n - 1] = flops_of(l, w);
  return tfd__emit_attributes(l, n);
}

static int lower_node(tfd__lowering *l, int k) {
  const tfd__node *n = &l->b.nodes[k];
  size_t ins = (size_t)n->in_n;
  size_t outs = (size_t)n->out_n;
  node_work w = {.node = k, .n = n};
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

/* The group that begins at node k, if the device takes it. */
static int lower_from(tfd__lowering *l, int k, int *n_p) {
  bool done = false;
  int n = 1;
  int i;

  if (l->groups[k] >= 0) {
    while (k + n < l->b.nodes_n && l->groups[k + n] == l->groups[k]) n++;
    TFD_TRY(tfd__lower_group(l, k, n, &done));
  }
  for (i = 0; i < n && !done && !l->impossible; i++) {
    TFD_TRY(lower_node(l, k + i));
  }
  *n_p = n;
  return TFD_OK;
}

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
    if (n->flow >= 0 || (device != NULL && n->device != device)) return NULL;
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

static int place_constants(tfd__lowering *l) {
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

static int finish(tfd__lowering *l) {
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

static int group(tfd__lowering *l, tfd_tensor *const *inputs) {
  static const char *const words[] = {"0", "1"};
  int on = 1;
  int k;

  l->groups = tfd__alloc(((size_t)l->b.nodes_n + 1) * sizeof *l->groups);
  if (l->groups == NULL) return tfd__no_memory((size_t)l->b.nodes_n, "graph");
  for (k = 0; k < l->b.nodes_n; k++) l->groups[k] = -1;
  TFD_TRY(tfd__env_word("TFDIST_FUSION", words, 2, "0 or 1", &on));
  if (on == 0) return TFD_OK;
  TFD_TRY(tfd__pass_forward(&l->b, l->p->variables_n));
  TFD_TRY(tfd__pass_sizes(l->g, &l->b, inputs));
  return tfd__pass_groups(&l->b, l->p->variables_n, l->p->device->backend,
                          l->groups);
}

static int run_passes(tfd__lowering *l, tfd_tensor *const *inputs) {
  tfd__program *p = l->p;

  TFD_TRY(tfd__body_copy(&l->g->body, &l->b));
  TFD_TRY(tfd__pass_common(&l->b, p->variables_n));
  TFD_TRY(tfd__pass_dead(&l->b));
  TFD_TRY(group(l, inputs));
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
    if (!l->b.nodes[k].dead) TFD_TRY(lower_from(l, k, &n));
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
  tfd__free(l.seen);
  tfd__free(l.until);
  tfd__free(l.fresh);
  if (rc == TFD_OK && !l.impossible) {
    *program_p = l.p;
  } else {
    tfd__program_free(l.p);
  }
  return rc;
}
