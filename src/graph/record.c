/* From the calls that a recorder sees to nodes. */
#include <string.h>

#include "graph/graph.h"
#include "ops/attributes.h"

/* --- numbers of values ---------------------------------------------------- */

static int *map_find(const tfd__value_map *m, uint64_t key) {
  uint64_t mask = (uint64_t)m->room - 1;
  uint64_t i = (key * 0x9e3779b97f4a7c15u) >> 20 & mask;

  while (m->keys[i] != 0 && m->keys[i] != key) i = (i + 1) & mask;
  return &m->numbers[i];
}

int tfd__map_get(const tfd__value_map *m, uint64_t key) {
  int *number = NULL;

  if (m->room == 0) return -1;
  number = map_find(m, key);
  return m->keys[number - m->numbers] == key ? *number : -1;
}

static int map_reserve(tfd__value_map *m) {
  tfd__value_map next = {.room = m->room == 0 ? 64 : m->room * 2};
  int i;

  if (m->n * 2 < m->room) return TFD_OK;
  next.keys = tfd__calloc((size_t)next.room, sizeof *next.keys);
  next.numbers = tfd__calloc((size_t)next.room, sizeof *next.numbers);
  if (next.keys == NULL || next.numbers == NULL) {
    tfd__free(next.keys);
    tfd__free(next.numbers);
    return tfd__no_memory((size_t)next.room * 12, "graph");
  }
  for (i = 0; i < m->room; i++) {
    int *number = NULL;

    if (m->keys[i] == 0) continue;
    number = map_find(&next, m->keys[i]);
    next.keys[number - next.numbers] = m->keys[i];
    *number = m->numbers[i];
  }
  next.n = m->n;
  tfd__free(m->keys);
  tfd__free(m->numbers);
  *m = next;
  return TFD_OK;
}

int tfd__map_set(tfd__value_map *m, uint64_t key, int value) {
  int *number = NULL;

  TFD_TRY(map_reserve(m));
  number = map_find(m, key);
  m->keys[number - m->numbers] = key;
  *number = value;
  m->n++;
  return TFD_OK;
}

/* Ids are small, addresses are not: they never meet. A constant's address is
** its own for as long as the graph holds it. */
static uint64_t key_of(const tfd_tensor *t) {
  if (t->buffer == NULL) return t->id;
  if (t->variable != NULL) return (uint64_t)(uintptr_t)t->variable;
  return (uint64_t)(uintptr_t)t;
}

static int add_variable(tfd_graph *g, tfd_variable *v, int *of_p) {
  TFD_TRY(TFD_GROW(g->variables, 1));
  tfd__retain(v);
  *of_p = g->variables_n;
  g->variables[g->variables_n++] = v;
  return TFD_OK;
}

static int add_constant(tfd_graph *g, tfd_tensor *t, int *of_p) {
  TFD_TRY(TFD_GROW(g->constants, 1));
  tfd__retain(t);
  *of_p = g->constants_n;
  g->constants[g->constants_n++] = t;
  return TFD_OK;
}

int tfd__graph_adopt(tfd__recorder *self, tfd_tensor *t, const char *what,
                     int i) {
  const tfd_graph *g = (const tfd_graph *)self;

  if (!tfd__is_symbolic(t)) return tfd__no_values(t, what);
  while (g != NULL && t->tracer != &g->recorder.tracer) g = g->parent;
  return g != NULL ? TFD_OK : tfd__out_of_place(t, what, i);
}

int tfd__graph_add_input(tfd_graph *g, const tfd__graph_value *value,
                         const tfd__capture *capture, int *number_p) {
  tfd__graph_value *v = NULL;

  TFD_TRY(TFD_GROW(g->inputs, 1));
  TFD_TRY(TFD_GROW(g->captures, 1));
  TFD_TRY(tfd__body_value(&g->body, &v, number_p));
  *v = *value;
  v->view.data = NULL;
  v->origin = TFD_FROM_INPUT;
  v->of = g->inputs_n;
  tfd__retain(capture->outer);
  g->captures[g->captures_n++] = *capture;
  g->inputs[g->inputs_n++] = *number_p;
  return TFD_OK;
}

int tfd__graph_value_of(tfd_graph *g, tfd_tensor *t, int *number_p) {
  tfd__graph_value *v = NULL;
  tfd__graph_value value = {.view = t->view, .device = t->device};
  int number = tfd__map_get(&g->map, key_of(t));

  if (number >= 0) {
    *number_p = number;
    return TFD_OK;
  }
  if (t->buffer == NULL) {
    tfd__capture capture = {.outer = t};

    TFD_TRY(tfd__graph_adopt(&g->recorder, t, "graph", 0));
    value.origin = TFD_FROM_INPUT;
    TFD_TRY(tfd__graph_add_input(g, &value, &capture, number_p));
    return tfd__map_set(&g->map, t->id, *number_p);
  }
  if (t->variable != NULL) {
    value.origin = TFD_FROM_VARIABLE;
    TFD_TRY(add_variable(g, t->variable, &value.of));
  } else {
    value.origin = TFD_FROM_CONSTANT;
    TFD_TRY(add_constant(g, t, &value.of));
  }
  value.view.data = NULL;
  TFD_TRY(tfd__body_value(&g->body, &v, &number));
  *v = value;
  *number_p = number;
  return tfd__map_set(&g->map, key_of(t), number);
}

/* --- nodes ---------------------------------------------------------------- */

/* The draw whose words the op was given, and the slot of the first of them. */
static int draw_of(tfd_graph *g, const tfd__pending *p, int *slot_p) {
  const tfd__param *at = tfd__param_find(p->op, "seed_lo", 7);
  int i;

  if (at == NULL) return -1;
  g = tfd__graph_root(g);
  *slot_p = at->slot;
  for (i = g->draws_n / 4 - 1; i >= 0; i--) {
    if (memcmp(&g->draws[i * 4], p->ints + at->slot, 4 * sizeof *g->draws) ==
        0) {
      return i;
    }
  }
  return -1;
}

/* Its result is the same at every call. */
static bool is_constant(const tfd__pending *p) {
  int i;

  if (p->targets_n > 0 || (p->op->flags & TFD_OP_STATEFUL) != 0) return false;
  for (i = 0; i < p->in_n; i++) {
    const tfd_tensor *t = p->in[i];

    if (t != NULL && (t->buffer == NULL || t->variable != NULL)) return false;
  }
  return true;
}

/* Note what was there before the trace: a tape around a call that follows it
** would miss what runs at the trace alone. */
static int note_folded(tfd_graph *g, const tfd__pending *p) {
  int i;

  g = tfd__graph_root(g);
  for (i = 0; i < p->in_n; i++) {
    tfd_tensor *t = p->in[i];

    if (t == NULL || t->id >= g->first_id || !tfd__is_float(t->view.dtype)) {
      continue;
    }
    if (tfd__map_get(&g->folded_map, key_of(t)) >= 0) continue;
    TFD_TRY(TFD_GROW(g->folded, 1));
    TFD_TRY(tfd__map_set(&g->folded_map, key_of(t), g->folded_n));
    tfd__retain(t);
    g->folded[g->folded_n++] = t;
  }
  return TFD_OK;
}

static int add_operands(tfd_graph *g, tfd__node *n, tfd_tensor *const *in,
                        int in_n) {
  tfd__body *b = &g->body;
  int i;

  TFD_TRY(TFD_GROW(b->operands, in_n));
  n->in = b->operands_n;
  n->in_n = in_n;
  for (i = 0; i < in_n; i++) {
    int number = -1;

    if (in[i] != NULL) TFD_TRY(tfd__graph_value_of(g, in[i], &number));
    b->operands[n->in + i] = number;
  }
  b->operands_n += in_n;
  return TFD_OK;
}

static int add_targets(tfd_graph *g, tfd__node *n, tfd_variable *const *targets,
                       int targets_n) {
  tfd__body *b = &g->body;
  int i;

  TFD_TRY(TFD_GROW(b->targets, targets_n));
  n->targets = b->targets_n;
  n->targets_n = targets_n;
  for (i = 0; i < targets_n; i++) {
    int number = 0;

    TFD_TRY(tfd__graph_value_of(g, targets[i]->value, &number));
    b->targets[n->targets + i] = b->values[number].of;
  }
  b->targets_n += targets_n;
  return TFD_OK;
}

static int add_attributes(tfd__body *b, tfd__node *n, const tfd__pending *p) {
  TFD_TRY(TFD_GROW(b->ints, p->op->ints_n));
  TFD_TRY(TFD_GROW(b->reals, p->op->reals_n));
  n->ints = b->ints_n;
  n->reals = b->reals_n;
  if (p->op->ints_n > 0) {
    memcpy(b->ints + b->ints_n, p->ints,
           (size_t)p->op->ints_n * sizeof *b->ints);
    b->ints_n += p->op->ints_n;
  }
  if (p->op->reals_n > 0) {
    memcpy(b->reals + b->reals_n, p->reals,
           (size_t)p->op->reals_n * sizeof *b->reals);
    b->reals_n += p->op->reals_n;
  }
  return TFD_OK;
}

static int add_outputs(tfd_graph *g, tfd__node *n, tfd_tensor *const *out,
                       int out_n) {
  tfd__body *b = &g->body;
  int i;

  n->out = b->values_n;
  n->out_n = out_n;
  for (i = 0; i < out_n; i++) {
    tfd__graph_value *v = NULL;
    int number = 0;

    TFD_TRY(tfd__body_value(b, &v, &number));
    v->view = out[i]->view;
    v->device = out[i]->device;
    v->origin = TFD_FROM_NODE;
    v->of = b->nodes_n;
    TFD_TRY(tfd__map_set(&g->map, out[i]->id, number));
  }
  return TFD_OK;
}

/* The node recorded next was refused. */
static int note_refusal(tfd_graph *g, const char *text) {
  char *copy = NULL;

  TFD_TRY(TFD_GROW(g->refusals, 1));
  copy = tfd__strdup(text);
  if (copy == NULL) return tfd__no_memory(64, "graph");
  g->refusals[g->refusals_n++] =
      (tfd__refusal){.node = g->body.nodes_n, .text = copy};
  return TFD_OK;
}

int tfd__graph_see(tfd__recorder *self, const tfd__pending *p, bool *taken_p) {
  tfd_graph *g = (tfd_graph *)self;
  tfd__body *b = &g->body;
  tfd__node n = {.op = p->op,
                 .device = p->device,
                 .file = p->file,
                 .note = p->note,
                 .line = p->line,
                 .replica = p->replica,
                 .numbers = -1,
                 .alias = p->alias,
                 .flow = -1,
                 .host = -1,
                 .reads = p->op == tfd__op_at(TFD_OP_identity) && !p->followed,
                 .unfollowed = tfd__context()->unfollowed > 0};

  n.draw = draw_of(g, p, &n.draw_slot);
  if (n.draw < 0 && p->refused == NULL && is_constant(p)) {
    return note_folded(g, p);
  }
  if (p->refused != NULL) TFD_TRY(note_refusal(g, p->refused));
  TFD_TRY(TFD_GROW(b->nodes, 1));
  TFD_TRY(add_operands(g, &n, p->in, p->in_n));
  TFD_TRY(add_targets(g, &n, p->targets, p->targets_n));
  TFD_TRY(add_attributes(b, &n, p));
  TFD_TRY(add_outputs(g, &n, p->out, p->out_n));
  b->nodes[b->nodes_n++] = n;
  *taken_p = true;
  return TFD_OK;
}

int tfd__graph_join(tfd__recorder *self, tfd__joint *j, tfd_tensor *const *in,
                    int in_n, tfd_variable *const *targets, int targets_n,
                    const double *reals, tfd_tensor *const *out) {
  tfd_graph *g = (tfd_graph *)self;
  const tfd_context *c = tfd__context();
  tfd__body *b = &g->body;
  tfd__node n = {.joint = j,
                 .file = c->file,
                 .note = c->note,
                 .line = c->line,
                 .replica = c->replica,
                 .draw = -1,
                 .numbers = -1,
                 .flow = -1,
                 .host = -1};

  TFD_TRY(TFD_GROW(b->nodes, 1));
  TFD_TRY(TFD_GROW(b->reals, j->reals_n));
  TFD_TRY(TFD_GROW(g->joints, 1));
  TFD_TRY(add_operands(g, &n, in, in_n));
  TFD_TRY(add_targets(g, &n, targets, targets_n));
  n.reals = b->reals_n;
  if (j->reals_n > 0) {
    memcpy(b->reals + b->reals_n, reals, (size_t)j->reals_n * sizeof *reals);
  }
  b->reals_n += j->reals_n;
  TFD_TRY(add_outputs(g, &n, out, j->out_n));
  b->nodes[b->nodes_n++] = n;
  g->joints[g->joints_n++] = j;
  return TFD_OK;
}

/* --- building ------------------------------------------------------------- */

int tfd_graph_input(tfd_graph *graph, tfd_dtype dtype, const int64_t *dims,
                    int dims_n, tfd_device *device, tfd_tensor **tensor_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_LIST(dims, dims_n);
  TFD_GIVEN_OPTIONAL(device, DEVICE);
  TFD_GIVEN_POINTER(tensor_p);

  tfd__capture capture = {.outer = NULL};
  tfd__graph_value value = {.device = device};
  tfd_tensor *t = NULL;
  int number = 0;
  int rc;

  if (!tfd__dtype_ok((int)dtype)) {
    return tfd__fail(TFD_TYPE_ERROR, "graph: %d is no dtype", (int)dtype);
  }
  if (device == NULL) TFD_TRY(tfd__default_device(&value.device));
  TFD_TRY(tfd__tensor_symbolic(&graph->recorder.tracer, value.device,
                               (int)dtype, dims, dims_n, NULL,
                               TFD_ARGUMENT_LINE, &t));
  value.view = t->view;
  /* Whoever frees memory tries again: then there must be no input yet. */
  rc = map_reserve(&graph->map);
  if (rc == TFD_OK) {
    rc = tfd__graph_add_input(graph, &value, &capture, &number);
  }
  if (rc == TFD_OK) rc = tfd__map_set(&graph->map, t->id, number);
  if (rc != TFD_OK) {
    tfd__release(t);
    return rc;
  }
  *tensor_p = t;
  return TFD_OK;
}

int tfd_graph_draw(tfd_graph *graph, const int64_t *words, int words_n,
                   int64_t *number_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_LIST(words, words_n);
  TFD_GIVEN_POINTER(number_p);
  if (words_n != 4) {
    return tfd__fail(TFD_INVALID_ARGUMENT, "graph: a draw has 4 words, got %d",
                     words_n);
  }
  graph = tfd__graph_root(graph);
  TFD_TRY(TFD_GROW(graph->draws, 4));
  memcpy(graph->draws + graph->draws_n, words, 4 * sizeof *words);
  *number_p = graph->draws_n / 4;
  graph->draws_n += 4;
  return TFD_OK;
}

int tfd_graph_numbers(tfd_graph *graph, int64_t first) {
  TFD_GIVEN(graph, GRAPH);

  tfd__body *b = &graph->body;
  tfd__node *n = b->nodes_n > 0 ? &b->nodes[b->nodes_n - 1] : NULL;
  int end;

  if (n == NULL || n->targets_n == 0 || graph->complete) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "graph \"%s\": no update was recorded last", graph->name);
  }
  if (first < 0 || first > INT16_MAX) {
    return tfd__fail(TFD_INVALID_ARGUMENT, "graph \"%s\": no number %lld",
                     graph->name, (long long)first);
  }
  n->numbers = (int)first;
  end = n->numbers + tfd__node_reals(n);
  graph = tfd__graph_root(graph);
  if (end > graph->numbers_n) graph->numbers_n = end;
  return TFD_OK;
}

int tfd__graph_operands(tfd_graph *g, tfd_object *const *objects, int n,
                        int *in_p) {
  size_t bytes = (size_t)n * sizeof(int);
  int *numbers = tfd__alloc(bytes + sizeof *numbers);
  int rc = TFD_OK;
  int i;

  if (numbers == NULL) return tfd__no_memory(bytes, "graph");
  for (i = 0; i < n; i++) {
    tfd_tensor *t = NULL;

    numbers[i] = -1;
    if (objects[i] == NULL) continue;
    TFD_TRY_OR(rc = tfd__operand(objects[i], &t), free_numbers);
    TFD_TRY_OR(rc = tfd__graph_value_of(g, t, &numbers[i]), free_numbers);
  }
  TFD_TRY_OR(rc = TFD_GROW(g->body.operands, n), free_numbers);
  *in_p = g->body.operands_n;
  if (n > 0) memcpy(g->body.operands + *in_p, numbers, bytes);
  g->body.operands_n += n;

free_numbers:
  tfd__free(numbers);
  return rc;
}

int tfd_graph_host(tfd_graph *graph, tfd_object *const *values, int values_n,
                   int64_t *number_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_LIST(values, values_n);
  TFD_GIVEN_POINTER(number_p);

  const tfd_context *c = tfd__context();
  tfd_graph *root = tfd__graph_root(graph);
  tfd__body *b = &graph->body;
  tfd__node n = {.file = c->file,
                 .note = c->note,
                 .line = c->line,
                 .replica = c->replica,
                 .draw = -1,
                 .numbers = -1,
                 .flow = -1,
                 .effect = true};

  TFD_TRY(tfd__graph_operands(graph, values, values_n, &n.in));
  TFD_TRY(TFD_GROW(b->nodes, 1));
  n.in_n = values_n;
  n.host = root->hosts_n;
  n.out = b->values_n;
  b->nodes[b->nodes_n++] = n;
  if (root != graph) graph->hosts_n++;
  *number_p = root->hosts_n++;
  return TFD_OK;
}

int tfd_graph_complete(tfd_graph *graph, tfd_object *const *results,
                       int results_n) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_LIST(results, results_n);

  tfd__body *b = &graph->body;
  int i;

  if (graph->complete || graph->outer != NULL) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "graph \"%s\" is complete or records still", graph->name);
  }
  TFD_TRY(TFD_GROW(b->results, results_n));
  for (i = 0; i < results_n; i++) {
    tfd_tensor *t = NULL;

    TFD_TRY(tfd__operand(results[i], &t));
    TFD_TRY(tfd__graph_value_of(graph, t, &b->results[i]));
  }
  b->results_n = results_n;
  TFD_TRY(tfd__pass_dead(b));
  graph->complete = true;
  return TFD_OK;
}
