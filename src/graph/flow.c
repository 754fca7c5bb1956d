/* Flows as they are recorded: nodes that run graphs. */
#include <string.h>

#include "graph/graph.h"

/* --- checks --------------------------------------------------------------- */

static int check_graphs(const tfd_graph *g, tfd_graph *const *graphs,
                        int graphs_n, int slots_n) {
  int inputs = 0;
  int i;

  if (g->complete) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "graph \"%s\" is complete",
                     g->name);
  }
  if (graphs_n < 1) {
    return tfd__fail(TFD_VALUE_ERROR, "graph \"%s\": a flow without graphs",
                     g->name);
  }
  for (i = 0; i < graphs_n; i++) {
    if (!graphs[i]->complete || graphs[i]->parent != NULL) {
      return tfd__fail(TFD_FAILED_PRECONDITION,
                       "graph \"%s\": graph %d of a flow was not extracted",
                       g->name, i);
    }
    inputs += graphs[i]->inputs_n;
  }
  if (inputs == slots_n) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR,
                   "graph \"%s\": %d slots for %d inputs of the graphs",
                   g->name, slots_n, inputs);
}

static int check_slots(const tfd_graph *g, const int64_t *slots, int slots_n,
                       int operands_n) {
  int i;

  for (i = 0; i < slots_n; i++) {
    if (slots[i] >= 0 && slots[i] < operands_n) continue;
    return tfd__fail(TFD_INDEX_ERROR,
                     "graph \"%s\": slot %lld of a flow of %d operands",
                     g->name, (long long)slots[i], operands_n);
  }
  return TFD_OK;
}

/* --- what both have ------------------------------------------------------- */

static int make_flow(tfd_graph *g, tfd_graph *const *graphs, int graphs_n,
                     const int64_t *slots, int slots_n, tfd__flow *flow) {
  int i;

  TFD_TRY(TFD_GROW(g->flows, 1));
  flow->graphs = tfd__alloc((size_t)graphs_n * sizeof *flow->graphs);
  flow->slots = tfd__alloc(((size_t)slots_n + 1) * sizeof *flow->slots);
  if (flow->graphs == NULL || flow->slots == NULL) {
    tfd__free(flow->graphs);
    tfd__free(flow->slots);
    return tfd__no_memory((size_t)slots_n, "graph");
  }
  for (i = 0; i < slots_n; i++) flow->slots[i] = (int)slots[i];
  for (i = 0; i < graphs_n; i++) {
    tfd__retain(graphs[i]);
    flow->graphs[i] = graphs[i];
  }
  flow->graphs_n = graphs_n;
  g->flows[g->flows_n++] = *flow;
  return TFD_OK;
}

/* Variables that the graphs may write are targets, each once. */
static int add_written(tfd_graph *g, tfd__node *n, const tfd_graph *from) {
  tfd__body *b = &g->body;
  bool *seen = tfd__calloc((size_t)from->variables_n + 1, sizeof *seen);
  int rc = TFD_OK;
  int k;
  int i;

  if (seen == NULL) return tfd__no_memory((size_t)from->variables_n, "graph");
  for (k = 0; k < from->body.nodes_n; k++) {
    const tfd__node *inner = &from->body.nodes[k];

    for (i = 0; !inner->dead && i < inner->targets_n; i++) {
      seen[from->body.targets[inner->targets + i]] = true;
    }
  }
  for (i = 0; rc == TFD_OK && i < from->variables_n; i++) {
    int number = 0;
    int of = 0;

    if (!seen[i]) continue;
    rc = tfd__graph_value_of(g, from->variables[i]->value, &number);
    if (rc == TFD_OK) rc = TFD_GROW(b->targets, 1);
    if (rc != TFD_OK) break;
    of = b->values[number].of;
    for (k = 0; k < n->targets_n; k++) {
      if (b->targets[n->targets + k] == of) break;
    }
    if (k < n->targets_n) continue;
    b->targets[b->targets_n++] = of;
    n->targets_n++;
  }
  tfd__free(seen);
  return rc;
}

static int add_output(tfd_graph *g, tfd__node *n, const tfd__view *view,
                      tfd_device *device) {
  tfd__body *b = &g->body;
  tfd__graph_value *v = NULL;
  int number = 0;

  TFD_TRY(tfd__body_value(b, &v, &number));
  v->view = *view;
  v->view.data = NULL;
  v->device = device;
  v->origin = TFD_FROM_NODE;
  v->of = b->nodes_n;
  if (n->out_n++ == 0) n->out = number;
  return TFD_OK;
}

/* A node for `flow`; outputs and the node itself come after. */
static int begin_node(tfd_graph *g, tfd_graph *const *graphs, int graphs_n,
                      tfd_object *const *operands, int operands_n,
                      tfd__node *n) {
  const tfd_context *c = tfd__context();
  int i;

  *n = (tfd__node){.file = c->file,
                   .note = c->note,
                   .line = c->line,
                   .replica = c->replica,
                   .in_n = operands_n,
                   .draw = -1,
                   .numbers = -1,
                   .host = -1,
                   .unfollowed = c->unfollowed > 0};
  TFD_TRY(tfd__default_device(&n->device));
  TFD_TRY(tfd__graph_operands(g, operands, n->in_n, &n->in));
  TFD_TRY(TFD_GROW(g->body.nodes, 1));
  n->flow = g->flows_n;
  n->targets = g->body.targets_n;
  for (i = 0; i < graphs_n; i++) {
    TFD_TRY(add_written(g, n, graphs[i]));
    n->effect = n->effect || graphs[i]->hosts_n > 0;
  }
  n->out = g->body.values_n;
  return TFD_OK;
}

/* Sizes that two shapes of one rank share; others are unknown. */
static void merge_sizes(tfd__view *a, const tfd__view *b) {
  int64_t dims[TFD_MAX_RANK];
  int i;

  for (i = 0; i < a->rank; i++) {
    dims[i] = a->dims[i] == b->dims[i] ? a->dims[i] : -1;
  }
  (void)tfd__view_set_partial(a, a->dtype, dims, a->rank);
}

static const tfd__graph_value *result_of(const tfd_graph *g, int i) {
  return &g->body.values[g->body.results[i]];
}

/* --- choices -------------------------------------------------------------- */

static int choice_result(const tfd_graph *g, tfd_graph *const *graphs,
                         int graphs_n, int i, tfd__view *view) {
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  int k;

  *view = result_of(graphs[0], i)->view;
  for (k = 1; k < graphs_n; k++) {
    const tfd__view *other = &result_of(graphs[k], i)->view;

    if (other->dtype != view->dtype || other->rank != view->rank) {
      return tfd__fail(TFD_TYPE_ERROR,
                       "%s: result %d is %s %s in branch 0 and %s %s in "
                       "branch %d; dtypes and ranks must be the same",
                       g->name, i, tfd__dtype_name(view->dtype),
                       tfd__shape_text(view, a), tfd__dtype_name(other->dtype),
                       tfd__shape_text(other, b), k);
    }
    merge_sizes(view, other);
  }
  return TFD_OK;
}

int tfd_graph_choice(tfd_graph *graph, tfd_graph *const *graphs, int graphs_n,
                     tfd_object *const *operands, int operands_n,
                     const int64_t *slots, int slots_n) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_HANDLES(graphs, graphs_n, GRAPH);
  TFD_GIVEN_LIST(operands, operands_n);
  TFD_GIVEN_LIST(slots, slots_n);

  tfd__flow flow = {.carries_n = -1, .most = -1};
  tfd__node n;
  int i;

  TFD_TRY(check_graphs(graph, graphs, graphs_n, slots_n));
  TFD_TRY(check_slots(graph, slots, slots_n, operands_n));
  for (i = 1; i < graphs_n; i++) {
    if (graphs[i]->body.results_n == graphs[0]->body.results_n) continue;
    return tfd__fail(
        TFD_VALUE_ERROR, "%s: %d results in branch 0 and %d in branch %d",
        graph->name, graphs[0]->body.results_n, graphs[i]->body.results_n, i);
  }
  TFD_TRY(begin_node(graph, graphs, graphs_n, operands, operands_n, &n));
  for (i = 0; i < graphs[0]->body.results_n; i++) {
    tfd__view view;

    TFD_TRY(choice_result(graph, graphs, graphs_n, i, &view));
    TFD_TRY(add_output(graph, &n, &view, result_of(graphs[0], i)->device));
  }
  TFD_TRY(make_flow(graph, graphs, graphs_n, slots, slots_n, &flow));
  graph->body.nodes[graph->body.nodes_n++] = n;
  return TFD_OK;
}

/* --- loops ---------------------------------------------------------------- */

static int check_loop(const tfd_graph *g, const tfd_graph *body,
                      const tfd__flow *f, int graphs_n, int operands_n) {
  if (f->carries_n < 0 || f->rows_n < 0 || f->stacks_n < 0 || graphs_n > 2 ||
      body->body.results_n != f->carries_n + f->stacks_n ||
      operands_n < TFD_CARRIES_SLOT + f->carries_n + f->rows_n) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "graph \"%s\": a loop of %d carries, %d rows and %d "
                     "stacks, whose body has %d results",
                     g->name, f->carries_n, f->rows_n, f->stacks_n,
                     body->body.results_n);
  }
  return TFD_OK;
}

/* What a carry may be: the sizes that it has at the start and later. */
static int add_carry(tfd_graph *g, tfd__node *n, const tfd_graph *body, int i) {
  int operand = g->body.operands[n->in + TFD_CARRIES_SLOT + i];
  tfd__graph_value first = g->body.values[operand];
  const tfd__view *later = &result_of(body, i)->view;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (first.view.dtype != later->dtype || first.view.rank != later->rank) {
    return tfd__fail(TFD_TYPE_ERROR,
                     "%s: loop variable %d is %s %s and becomes %s %s; dtype "
                     "and rank must stay",
                     g->name, i, tfd__dtype_name(first.view.dtype),
                     tfd__shape_text(&first.view, a),
                     tfd__dtype_name(later->dtype), tfd__shape_text(later, b));
  }
  merge_sizes(&first.view, later);
  return add_output(g, n, &first.view, first.device);
}

static int add_stack(tfd_graph *g, tfd__node *n, const tfd_graph *body, int i,
                     int64_t size) {
  const tfd__graph_value *row = result_of(body, i);
  int64_t dims[TFD_MAX_RANK];
  tfd__view view = {.data = NULL};

  if (row->view.rank >= TFD_MAX_RANK) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: values of rank %d cannot be stacked; at most %d",
                     g->name, row->view.rank, TFD_MAX_RANK - 1);
  }
  dims[0] = size;
  memcpy(dims + 1, row->view.dims, row->view.rank * sizeof *dims);
  TFD_TRY(
      tfd__view_set_partial(&view, row->view.dtype, dims, row->view.rank + 1));
  return add_output(g, n, &view, row->device);
}

int tfd_graph_loop(tfd_graph *graph, tfd_graph *const *graphs, int graphs_n,
                   tfd_object *const *operands, int operands_n,
                   const int64_t *slots, int slots_n, int64_t carries,
                   int64_t rows, int64_t stacks, int64_t size, int64_t most,
                   bool reversed, bool strided) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_HANDLES(graphs, graphs_n, GRAPH);
  TFD_GIVEN_LIST(operands, operands_n);
  TFD_GIVEN_LIST(slots, slots_n);

  tfd__flow flow = {.carries_n = (int)carries,
                    .rows_n = (int)rows,
                    .stacks_n = (int)stacks,
                    .most = most,
                    .reversed = reversed,
                    .strided = strided};
  tfd__view scalar = {.data = NULL};
  tfd__node n;
  int i;

  TFD_TRY(check_graphs(graph, graphs, graphs_n, slots_n));
  TFD_TRY(check_slots(graph, slots, slots_n, operands_n));
  TFD_TRY(check_loop(graph, graphs[0], &flow, graphs_n, operands_n));
  TFD_TRY(tfd__view_set(&scalar, TFD_INT32, NULL, 0));
  TFD_TRY(begin_node(graph, graphs, graphs_n, operands, operands_n, &n));
  for (i = 0; i < flow.carries_n; i++) {
    TFD_TRY(add_carry(graph, &n, graphs[0], i));
  }
  TFD_TRY(add_output(graph, &n, &scalar, n.device));
  for (i = 0; i < flow.stacks_n; i++) {
    TFD_TRY(add_stack(graph, &n, graphs[0], flow.carries_n + i, size));
  }
  TFD_TRY(make_flow(graph, graphs, graphs_n, slots, slots_n, &flow));
  graph->body.nodes[graph->body.nodes_n++] = n;
  return TFD_OK;
}

/* --- results -------------------------------------------------------------- */

int tfd_graph_output(tfd_graph *graph, int64_t index, tfd_tensor **tensor_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(tensor_p);

  const tfd_context *c = tfd__context();
  const tfd__body *b = &graph->body;
  const tfd__node *n = b->nodes_n > 0 ? &b->nodes[b->nodes_n - 1] : NULL;
  const tfd__graph_value *v = NULL;
  tfd_tensor *t = NULL;
  int rc;

  if (n == NULL || index < 0 || index >= n->out_n) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "graph \"%s\": no output %lld of the last step",
                     graph->name, (long long)index);
  }
  v = &b->values[n->out + index];
  TFD_TRY(tfd__tensor_symbolic(&graph->recorder.tracer, v->device,
                               v->view.dtype, v->view.dims, v->view.rank,
                               c->file, c->line, &t));
  rc = tfd__map_set(&graph->map, t->id, n->out + (int)index);
  if (rc != TFD_OK) {
    tfd__release(t);
    return rc;
  }
  *tensor_p = t;
  return TFD_OK;
}

/* A step of the host gives values too. */
int tfd_graph_answer(tfd_graph *graph, tfd_dtype dtype, const int64_t *dims,
                     int dims_n, tfd_device *device, tfd_tensor **tensor_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_LIST(dims, dims_n);
  TFD_GIVEN_OPTIONAL(device, DEVICE);
  TFD_GIVEN_POINTER(tensor_p);

  tfd__body *b = &graph->body;
  tfd__node *n = b->nodes_n > 0 ? &b->nodes[b->nodes_n - 1] : NULL;
  tfd__view view = {.data = NULL};
  int rc;

  if (n == NULL || n->host < 0 ||
      (n->out_n > 0 && n->out + n->out_n != b->values_n)) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "graph \"%s\": no step of the host was recorded last",
                     graph->name);
  }
  if (!tfd__dtype_ok((int)dtype)) {
    return tfd__fail(TFD_TYPE_ERROR, "graph: %d is no dtype", (int)dtype);
  }
  if (device == NULL) TFD_TRY(tfd__default_device(&device));
  TFD_TRY(tfd__view_set_partial(&view, (int)dtype, dims, dims_n));
  b->nodes_n--; /* the number of the node that the value is from */
  if (add_output(graph, n, &view, device) != TFD_OK) {
    b->nodes_n++;
    return TFD_RESOURCE_EXHAUSTED;
  }
  b->nodes_n++;
  rc = tfd_graph_output(graph, n->out_n - 1, tensor_p);
  if (rc != TFD_OK) { /* asked for again, it is added again */
    n->out_n--;
    b->values_n--;
  }
  return rc;
}
