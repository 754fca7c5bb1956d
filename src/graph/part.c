/* Parts: what is traced for a flow, and the graphs that are extracted from it.
**
** A part keeps growing: what a gradient computes from its values is traced in
** it too, and extracted with other results. What was computed forwards and is
** read there is computed again, from the same operands and random words; so a
** gradient is a function of the flow's operands as the flow is, and has
** gradients of its own. */
#include <limits.h>
#include <string.h>

#include "graph/graph.h"

int tfd_graph_part(tfd_graph *graph, const char *name, tfd_graph **part_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(part_p);
  if (graph->complete) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "graph \"%s\" is complete",
                     graph->name);
  }
  TFD_TRY(tfd_graph_new(name == NULL ? graph->name : name, part_p));
  tfd__retain(graph);
  (*part_p)->parent = graph;
  (*part_p)->recorder.defers = true;
  return TFD_OK;
}

static int check_input_number(const tfd_graph *g, int64_t index) {
  if (index >= 0 && index < g->inputs_n) return TFD_OK;
  return tfd__fail(TFD_INDEX_ERROR, "graph \"%s\": no input %lld; there are %d",
                   g->name, (long long)index, g->inputs_n);
}

int tfd_graph_input_count(const tfd_graph *graph) {
  TFD_GIVEN_OR(graph, GRAPH, 0);
  return graph->inputs_n;
}

int tfd_graph_captured(tfd_graph *part, int64_t index, tfd_tensor **outer_p) {
  TFD_GIVEN(part, GRAPH);
  TFD_GIVEN_POINTER(outer_p);
  TFD_TRY(check_input_number(part, index));
  *outer_p = part->captures[index].outer;
  tfd__retain(*outer_p);
  return TFD_OK;
}

int tfd_graph_source(tfd_graph *graph, int64_t index, int64_t *number_p,
                     bool *late_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(number_p);
  TFD_GIVEN_POINTER(late_p);
  TFD_TRY(check_input_number(graph, index));
  *number_p = graph->captures[index].source;
  *late_p = graph->captures[index].late;
  return TFD_OK;
}

int tfd_graph_begin_gradients(tfd_graph *graph) {
  TFD_GIVEN(graph, GRAPH);
  graph->gradients = graph->body.nodes_n;
  return TFD_OK;
}

int tfd_graph_variable(tfd_graph *graph, int64_t index,
                       tfd_variable **variable_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(variable_p);
  if (index < 0 || index >= graph->variables_n) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "graph \"%s\": no variable %lld; there are %d",
                     graph->name, (long long)index, graph->variables_n);
  }
  *variable_p = graph->variables[index];
  tfd__retain(*variable_p);
  return TFD_OK;
}

int tfd_graph_folded(tfd_graph *graph, int64_t index, tfd_tensor **tensor_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(tensor_p);
  if (index < 0 || index >= graph->folded_n) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "graph \"%s\": no folded tensor %lld; there are %d",
                     graph->name, (long long)index, graph->folded_n);
  }
  *tensor_p = graph->folded[index];
  tfd__retain(*tensor_p);
  return TFD_OK;
}

int tfd_graph_folded_count(const tfd_graph *graph) {
  TFD_GIVEN_OR(graph, GRAPH, 0);
  return graph->folded_n;
}

int tfd_graph_variable_count(const tfd_graph *graph) {
  TFD_GIVEN_OR(graph, GRAPH, 0);
  return graph->variables_n;
}

/* --- copies --------------------------------------------------------------- */

static int slots_of(const tfd__flow *f) {
  int n = 0;
  int i;

  for (i = 0; i < f->graphs_n; i++) n += f->graphs[i]->inputs_n;
  return n;
}

static int copy_flow(const tfd__flow *from, tfd__flow *to) {
  size_t slots = (size_t)slots_of(from) + 1;
  int i;

  *to = *from;
  to->graphs = tfd__alloc(((size_t)from->graphs_n + 1) * sizeof *to->graphs);
  to->slots = tfd__alloc(slots * sizeof *to->slots);
  if (to->graphs == NULL || to->slots == NULL) {
    tfd__free(to->graphs);
    tfd__free(to->slots);
    return tfd__no_memory(slots * sizeof *to->slots, "graph");
  }
  memcpy(to->slots, from->slots, (slots - 1) * sizeof *to->slots);
  for (i = 0; i < from->graphs_n; i++) {
    to->graphs[i] = from->graphs[i];
    tfd__retain(to->graphs[i]);
  }
  return TFD_OK;
}

static int copy_handles(const tfd_graph *from, tfd_graph *to) {
  int i;

  TFD_TRY(TFD_GROW(to->constants, from->constants_n));
  TFD_TRY(TFD_GROW(to->variables, from->variables_n));
  TFD_TRY(TFD_GROW(to->joints, from->joints_n));
  TFD_TRY(TFD_GROW(to->flows, from->flows_n));
  for (i = 0; i < from->constants_n; i++) {
    tfd__retain(from->constants[i]);
    to->constants[to->constants_n++] = from->constants[i];
  }
  for (i = 0; i < from->variables_n; i++) {
    tfd__retain(from->variables[i]);
    to->variables[to->variables_n++] = from->variables[i];
  }
  for (i = 0; i < from->joints_n; i++) {
    tfd__retain(from->joints[i]);
    to->joints[to->joints_n++] = from->joints[i];
  }
  for (i = 0; i < from->flows_n; i++) {
    TFD_TRY(copy_flow(&from->flows[i], &to->flows[i]));
    to->flows_n++;
  }
  return TFD_OK;
}

/* Inputs, results and what lives as in `from`, with a life of its own. */
static int copy_graph(tfd_graph *from, tfd_graph **copy_p) {
  const tfd_graph *root = tfd__graph_root(from);
  tfd_graph *g = NULL;
  int rc;
  int i;

  TFD_TRY(tfd_graph_new(from->name, &g));
  rc = tfd__body_copy(&from->body, &g->body);
  if (rc == TFD_OK) rc = copy_handles(from, g);
  if (rc == TFD_OK) rc = TFD_GROW(g->inputs, from->inputs_n);
  if (rc == TFD_OK) rc = TFD_GROW(g->captures, from->inputs_n);
  if (rc != TFD_OK) {
    tfd__release(g);
    return rc;
  }
  for (i = 0; i < from->inputs_n; i++) {
    g->inputs[i] = from->inputs[i];
    g->captures[i] = (tfd__capture){.source = i};
  }
  g->inputs_n = from->inputs_n;
  g->captures_n = from->inputs_n;
  g->draws_n = root->draws_n;
  g->numbers_n = root->numbers_n;
  g->gradients = from->gradients;
  *copy_p = g;
  return TFD_OK;
}

/* --- values of variables -------------------------------------------------- */

enum { AS_IT_IS = -1, NOT_KNOWN = -2 };

/* What stands for each variable on the way through the nodes. */
typedef struct rework {
  tfd_graph *g;
  int *now;      /* variable -> value, or one of the above */
  bool *written; /* somewhere: by now, or in a loop */
  bool *unknown; /* node reads what is not known */
  bool pure;
  bool lifts;
} rework;

/* The value that the variable has before the graph runs, or late, as an
** input. */
static int lift(rework *w, int v, bool late, int *value_p) {
  tfd_graph *g = w->g;
  const tfd_tensor *t = g->variables[v]->value;
  tfd__graph_value value = {.view = t->view, .device = t->device};
  tfd__capture capture = {.source = -1 - (int64_t)v, .late = late};
  int i;

  for (i = 0; i < g->inputs_n; i++) {
    if (g->captures[i].source != capture.source) continue;
    if (g->captures[i].late != late) continue;
    *value_p = g->inputs[i];
    return TFD_OK;
  }
  return tfd__graph_add_input(g, &value, &capture, value_p);
}

static int rework_operand(rework *w, int k, int *operand) {
  const tfd__graph_value *value = NULL;
  int v;

  if (*operand < 0) return TFD_OK;
  value = &w->g->body.values[*operand];
  if (value->origin != TFD_FROM_VARIABLE) return TFD_OK;
  v = value->of;
  if (k >= w->g->gradients) return lift(w, v, true, operand);
  if (w->now[v] >= 0) {
    *operand = w->now[v];
  } else if (w->lifts && !w->written[v]) {
    TFD_TRY(lift(w, v, false, operand));
  } else {
    w->unknown[k] = w->pure;
  }
  return TFD_OK;
}

static int purify(tfd_graph *g);

/* Without effects; what it wrote is not known after it. */
static int purify_flow(rework *w, tfd__node *n) {
  tfd__flow *f = &w->g->flows[n->flow];
  int i;

  for (i = 0; i < f->graphs_n; i++) {
    tfd_graph *pure = NULL;
    int rc;

    TFD_TRY(copy_graph(f->graphs[i], &pure));
    rc = purify(pure);
    if (rc != TFD_OK) {
      tfd__release(pure);
      return rc;
    }
    tfd__release(f->graphs[i]);
    f->graphs[i] = pure;
  }
  for (i = 0; i < n->targets_n; i++) {
    int v = w->g->body.targets[n->targets + i];

    w->now[v] = NOT_KNOWN;
    w->written[v] = true;
  }
  n->targets_n = 0;
  n->effect = false;
  return TFD_OK;
}

/* What a joint writes is not known without it. */
static void rework_joint(rework *w, tfd__node *n) {
  int i;

  for (i = 0; i < n->targets_n; i++) {
    int v = w->g->body.targets[n->targets + i];

    if (w->pure) w->now[v] = NOT_KNOWN;
    w->written[v] = true;
  }
  n->dead = n->dead || w->pure;
}

/* A gradient is asked for outside of the graph, which would drop its
** effects. */
static int check_gradient(const rework *w, int k) {
  const tfd__node *n = &w->g->body.nodes[k];

  if (k < w->g->gradients || (n->targets_n == 0 && !n->effect)) return TFD_OK;
  return tfd__fail(
      TFD_NOT_IMPLEMENTED, "%s: the gradient %s, which is not done in a graph",
      w->g->name,
      n->targets_n > 0 ? "writes a variable" : "has a step of the host");
}

static int rework_node(rework *w, int k) {
  tfd__body *b = &w->g->body;
  tfd__node *n = &b->nodes[k];
  int first = w->pure ? 0 : n->targets_n; /* places of updates stay */
  int i;

  TFD_TRY(check_gradient(w, k));
  if (n->joint != NULL) {
    rework_joint(w, n);
    return TFD_OK;
  }
  if (n->flow >= 0) first = 0;
  for (i = first; i < n->in_n; i++) {
    TFD_TRY(rework_operand(w, k, &b->operands[n->in + i]));
  }
  if (w->pure && n->flow >= 0 && tfd__node_has_effect(n)) {
    return purify_flow(w, n);
  }
  for (i = 0; i < n->targets_n; i++) {
    int v = b->targets[n->targets + i];

    w->written[v] = true;
    if (w->pure) w->now[v] = n->out + i;
  }
  if (!w->pure) return TFD_OK;
  n->targets_n = 0;
  n->dead = n->dead || n->host >= 0;
  return TFD_OK;
}

/* What is left after dead code is gone must be known. */
static int check_known(const rework *w) {
  const tfd__body *b = &w->g->body;
  int k;
  int i;

  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];

    if (n->dead || !w->unknown[k]) continue;
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "%s: the gradient reads a variable that is written in a "
                     "loop or inside a branch of a branch",
                     w->g->name);
  }
  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];

    for (i = 0; !n->dead && i < n->in_n; i++) {
      int v = b->operands[n->in + i];
      const tfd__node *from = NULL;

      if (v < 0 || b->values[v].origin != TFD_FROM_NODE) continue;
      from = &b->nodes[b->values[v].of];
      if (from->host < 0 && from->joint == NULL) continue;
      return tfd__fail(TFD_NOT_IMPLEMENTED,
                       "%s: the gradient needs what %s gave in a branch or "
                       "loop",
                       w->g->name,
                       from->joint != NULL ? from->joint->name
                                           : "a step of the host");
    }
  }
  return TFD_OK;
}

static int rework_graph(rework *w) {
  tfd__body *b = &w->g->body;
  int k;

  for (k = 0; k < b->nodes_n; k++) {
    if (!b->nodes[k].dead) TFD_TRY(rework_node(w, k));
  }
  TFD_TRY(tfd__pass_dead(b));
  return w->pure ? check_known(w) : TFD_OK;
}

/* What `others` write is written from the start. */
static int run_rework(tfd_graph *g, bool pure, bool lifts,
                      const tfd_graph *const *others, int others_n) {
  size_t variables = (size_t)g->variables_n + 1;
  rework w = {.g = g, .pure = pure, .lifts = lifts};
  char *block =
      tfd__calloc(variables * (sizeof(int) + 1) + (size_t)g->body.nodes_n, 1);
  int rc;
  int i;
  int k;

  if (block == NULL) return tfd__no_memory(variables, "graph");
  w.now = (int *)(void *)block;
  w.written = (bool *)(w.now + variables);
  w.unknown = w.written + variables;
  for (i = 0; i < g->variables_n; i++) w.now[i] = AS_IT_IS;
  for (i = 0; i < others_n; i++) {
    const tfd__body *b = &others[i]->body;

    for (k = 0; k < b->targets_n; k++) {
      const tfd_variable *v = others[i]->variables[b->targets[k]];
      int at = 0;

      while (at < g->variables_n && g->variables[at] != v) at++;
      if (at < g->variables_n) w.written[at] = true;
    }
  }
  rc = rework_graph(&w);
  tfd__free(block);
  return rc;
}

static int purify(tfd_graph *g) {
  return run_rework(g, true, false, NULL, 0);
}

/* --- what a backward pass takes from the forward one ---------------------- */

typedef struct cut {
  tfd_graph *g;
  int *stand_in; /* value -> input, -1 = none yet */
  int inputs_n;  /* those before */
} cut;

/* What a node before the gradients gave becomes an input; of views what they
** are views of. */
static int cut_operand(cut *c, int *operand) {
  tfd__body *b = &c->g->body;
  const tfd__graph_value *v = *operand < 0 ? NULL : &b->values[*operand];
  const tfd__node *n = NULL;
  int i;

  if (v == NULL || v->origin != TFD_FROM_NODE || v->of >= c->g->gradients) {
    return TFD_OK;
  }
  n = &b->nodes[v->of];
  if (tfd__node_is_view(n)) {
    for (i = 0; i < n->in_n; i++) {
      TFD_TRY(cut_operand(c, &b->operands[n->in + i]));
    }
    return TFD_OK;
  }
  if (c->stand_in[*operand] < 0) {
    tfd__graph_value value = *v;
    tfd__capture capture = {.source = (int64_t)c->inputs_n + *operand};

    TFD_TRY(
        tfd__graph_add_input(c->g, &value, &capture, &c->stand_in[*operand]));
  }
  *operand = c->stand_in[*operand];
  return TFD_OK;
}

static int cut_all(cut *c) {
  tfd__body *b = &c->g->body;
  int k;
  int i;

  for (k = c->g->gradients; k < b->nodes_n; k++) {
    const tfd__node *n = &b->nodes[k];

    for (i = 0; !n->dead && i < n->in_n; i++) {
      TFD_TRY(cut_operand(c, &b->operands[n->in + i]));
    }
  }
  for (i = 0; i < b->results_n; i++) TFD_TRY(cut_operand(c, &b->results[i]));
  return TFD_OK;
}

static int cut_graph(tfd_graph *g) {
  size_t bytes = ((size_t)g->body.values_n + 1) * sizeof(int);
  cut c = {.g = g, .inputs_n = g->inputs_n};
  int rc;

  TFD_TRY(tfd__pass_dead(&g->body));
  c.stand_in = tfd__alloc(bytes);
  if (c.stand_in == NULL) return tfd__no_memory(bytes, "graph");
  memset(c.stand_in, -1, bytes);
  rc = cut_all(&c);
  tfd__free(c.stand_in);
  return rc;
}

/* --- extraction ----------------------------------------------------------- */

static int set_results(tfd_graph *part, tfd_object *const *results, int n) {
  tfd__body *b = &part->body;
  int i;

  b->results_n = 0;
  TFD_TRY(TFD_GROW(b->results, n));
  for (i = 0; i < n; i++) {
    tfd_tensor *t = NULL;

    TFD_TRY(tfd__operand(results[i], &t));
    TFD_TRY(tfd__graph_value_of(part, t, &b->results[i]));
  }
  b->results_n = n;
  return TFD_OK;
}

/* Inputs that nobody uses go. */
static int drop_inputs(tfd_graph *g) {
  tfd__body *b = &g->body;
  bool *used = tfd__calloc((size_t)b->values_n + 1, sizeof *used);
  int n = 0;
  int i;
  int k;

  if (used == NULL) return tfd__no_memory((size_t)b->values_n, "graph");
  for (i = 0; i < b->results_n; i++) used[b->results[i]] = true;
  for (k = 0; k < b->nodes_n; k++) {
    const tfd__node *node = &b->nodes[k];

    for (i = 0; !node->dead && i < node->in_n; i++) {
      if (b->operands[node->in + i] >= 0) {
        used[b->operands[node->in + i]] = true;
      }
    }
  }
  for (i = 0; i < g->inputs_n; i++) {
    if (!used[g->inputs[i]]) { /* a value that nothing gives */
      b->values[g->inputs[i]].origin = TFD_FROM_NODE;
      b->values[g->inputs[i]].of = -1;
      continue;
    }
    b->values[g->inputs[i]].of = n;
    g->captures[n] = g->captures[i];
    g->inputs[n++] = g->inputs[i];
  }
  g->inputs_n = n;
  g->captures_n = n;
  tfd__free(used);
  return TFD_OK;
}

static void count_hosts(tfd_graph *g) {
  int k;

  g->hosts_n = 0;
  for (k = 0; k < g->body.nodes_n; k++) {
    const tfd__node *n = &g->body.nodes[k];

    if (!n->dead && n->effect) g->hosts_n++;
  }
}

static void complete(tfd_graph *g, tfd_graph **graph_p) {
  count_hosts(g);
  g->complete = true;
  g->gradients = INT_MAX;
  *graph_p = g;
}

int tfd_graph_extract(tfd_graph *part, tfd_object *const *results,
                      int results_n, bool pure, tfd_graph *const *others,
                      int others_n, tfd_graph **graph_p) {
  TFD_GIVEN(part, GRAPH);
  TFD_GIVEN_LIST(results, results_n);
  TFD_GIVEN_HANDLES(others, others_n, GRAPH);
  TFD_GIVEN_POINTER(graph_p);

  tfd_graph *g = NULL;
  int rc;

  TFD_TRY(set_results(part, results, results_n));
  TFD_TRY(copy_graph(part, &g));
  rc = run_rework(g, pure, true, (const tfd_graph *const *)others, others_n);
  if (rc == TFD_OK) rc = drop_inputs(g);
  if (rc != TFD_OK) {
    tfd__release(g);
    return rc;
  }
  complete(g, graph_p);
  return TFD_OK;
}

int64_t tfd_graph_node_count(const tfd_graph *graph) {
  TFD_GIVEN_OR(graph, GRAPH, 0);
  return graph->body.nodes_n;
}

static int add_results(tfd_graph *g, const int64_t *values, int values_n) {
  tfd__body *b = &g->body;
  int i;

  TFD_TRY(TFD_GROW(b->results, values_n));
  for (i = 0; i < values_n; i++) {
    if (values[i] < 0 || values[i] >= b->values_n) {
      return tfd__fail(TFD_INDEX_ERROR,
                       "graph \"%s\": no value %lld; there are %d", g->name,
                       (long long)values[i], b->values_n);
    }
    b->results[b->results_n++] = (int)values[i];
  }
  return TFD_OK;
}

int tfd_graph_forward(tfd_graph *graph, tfd_object *const *results,
                      int results_n, const int64_t *values, int values_n,
                      tfd_graph **graph_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_LIST(results, results_n);
  TFD_GIVEN_LIST(values, values_n);
  TFD_GIVEN_POINTER(graph_p);

  tfd_graph *g = NULL;
  int rc;

  TFD_TRY(set_results(graph, results, results_n));
  TFD_TRY(copy_graph(graph, &g));
  rc = add_results(g, values, values_n);
  if (rc == TFD_OK) rc = tfd__pass_dead(&g->body);
  if (rc == TFD_OK) rc = drop_inputs(g);
  if (rc != TFD_OK) {
    tfd__release(g);
    return rc;
  }
  complete(g, graph_p);
  return TFD_OK;
}

int tfd_graph_backward(tfd_graph *graph, tfd_object *const *results,
                       int results_n, tfd_graph **graph_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_LIST(results, results_n);
  TFD_GIVEN_POINTER(graph_p);

  tfd_graph *g = NULL;
  int rc;

  TFD_TRY(set_results(graph, results, results_n));
  TFD_TRY(copy_graph(graph, &g));
  rc = cut_graph(g);
  if (rc == TFD_OK) rc = run_rework(g, true, true, NULL, 0);
  if (rc == TFD_OK) rc = drop_inputs(g);
  if (rc != TFD_OK) {
    tfd__release(g);
    return rc;
  }
  complete(g, graph_p);
  return TFD_OK;
}
