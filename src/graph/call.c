/* The public face: life of graphs, recording, calls. */
#include <limits.h>
#include <string.h>

#include "graph/graph.h"

/* --- life ----------------------------------------------------------------- */

static void drop_outputs(tfd_graph *g) {
  int i;

  for (i = 0; g->outputs != NULL && i < g->body.results_n; i++) {
    tfd__release(g->outputs[i]);
    g->outputs[i] = NULL;
  }
}

static void graph_destroy(void *self) {
  tfd_graph *g = self;

  drop_outputs(g);
  tfd__replay_free(g, g->replay);
  if (g->context != NULL) g->context->recorder = g->context->paused = NULL;
  tfd__release(g->context);
  tfd__release(g->outer);
  tfd__pieces_free(g->pieces);
  tfd__graph_clear(g);
  tfd__free(g);
}

const tfd__type tfd__graph_type = {
    .name = "graph",
    .kind = TFD_HANDLE_GRAPH,
    .destroy = graph_destroy,
};

int tfd_graph_new(const char *name, tfd_graph **graph_p) {
  TFD_GIVEN_POINTER(graph_p);

  tfd_graph *g = tfd__calloc(1, sizeof *g);

  if (g == NULL) return tfd__no_memory(sizeof *g, "graph");
  tfd__object_init(&g->recorder.tracer.object, &tfd__graph_type);
  g->name = tfd__strdup(name == NULL ? "function" : name);
  if (g->name == NULL) {
    tfd__release(g);
    return tfd__no_memory(64, "graph");
  }
  g->recorder.tracer.name = g->name;
  g->first_id = tfd__next_id();
  g->gradients = INT_MAX;
  g->run = tfd__graph_try;
  g->recorder.tracer.refused = tfd__graph_refused;
  g->recorder.see = tfd__graph_see;
  g->recorder.join = tfd__graph_join;
  g->recorder.adopt = tfd__graph_adopt;
  *graph_p = g;
  return TFD_OK;
}

/* --- recording ------------------------------------------------------------ */

/* Ops are recorded in a context of their own, with the caller's devices and
** replica: the caller's tapes do not see what only happens at a call. */
static int make_context(tfd_graph *g) {
  const tfd_context *from = tfd__context();
  tfd__recorder *before = NULL;
  tfd_context *c = NULL;

  if (g->context != NULL) return TFD_OK;
  TFD_TRY(tfd_context_new(&c));
  memcpy(c->device_stack, from->device_stack, sizeof c->device_stack);
  c->device_depth = from->device_depth;
  c->replica = from->replica;
  c->note = from->note;
  c->update = from->update;
  c->strategy = from->strategy;
  c->unfollowed = g->parent != NULL ? from->unfollowed : 0;
  g->context = c;
  g->outer = tfd__context();
  tfd__retain(g->outer);
  TFD_TRY(tfd_context_enter(c));
  tfd__context_record(&g->recorder, &before);
  /* The graph holds the context, which must not hold the graph. */
  tfd__release(&g->recorder);
  return TFD_OK;
}

int tfd_graph_begin(tfd_graph *graph) {
  TFD_GIVEN(graph, GRAPH);

  if (graph->complete || graph->outer != NULL) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "graph \"%s\" is complete or records already",
                     graph->name);
  }
  if (graph->context == NULL) return make_context(graph);
  graph->outer = tfd__context();
  tfd__retain(graph->outer);
  return tfd_context_enter(graph->context);
}

int tfd_graph_end(tfd_graph *graph) {
  TFD_GIVEN(graph, GRAPH);

  tfd_context *outer = graph->outer;

  if (outer == NULL) return TFD_OK;
  if (tfd__context() != graph->context) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "graph \"%s\": another context was entered inside it",
                     graph->name);
  }
  graph->outer = NULL;
  TFD_TRY(tfd_context_enter(outer));
  tfd__release(outer);
  return TFD_OK;
}

int tfd_graph_pause(tfd_graph *graph, bool paused) {
  TFD_GIVEN(graph, GRAPH);

  const tfd_context *c = tfd__context();
  const tfd__recorder *r = paused ? c->recorder : c->paused;

  if (r != &graph->recorder) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "graph \"%s\" %s in this context",
                     graph->name,
                     paused ? "does not record" : "does not pause");
  }
  tfd__context_pause(paused);
  return TFD_OK;
}

bool tfd_tensor_is_symbolic(const tfd_tensor *tensor) {
  TFD_GIVEN_OR(tensor, TENSOR, false);
  return tfd__is_symbolic(tensor);
}

const char *tfd_tensor_refused(const tfd_tensor *tensor) {
  TFD_GIVEN_OR(tensor, TENSOR, NULL);
  return tfd__refused(tensor);
}

const char *tfd_graph_recording(void) {
  const tfd__recorder *r = tfd__context()->recorder;

  return r == NULL ? NULL : r->tracer.name;
}

int tfd_graph_result_count(const tfd_graph *graph) {
  TFD_GIVEN_OR(graph, GRAPH, 0);
  return graph->body.results_n;
}

int64_t tfd_graph_arena_size(const tfd_graph *graph) {
  TFD_GIVEN_OR(graph, GRAPH, 0);
  if (graph->programs[0] == NULL) return 0;
  return (int64_t)graph->programs[0]->arena->bytes;
}

int tfd_graph_set_followed(tfd_graph *graph, bool followed) {
  TFD_GIVEN(graph, GRAPH);
  graph->unfollowed = !followed;
  return TFD_OK;
}

/* --- a call --------------------------------------------------------------- */

static int check_input(const tfd_graph *g, int i, const tfd_tensor *t) {
  const tfd__view *want = &g->body.values[g->inputs[i]].view;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (t->buffer == NULL && tfd__context()->recorder == NULL) {
    return tfd__no_values(t, g->name);
  }
  if (TFD_LIKELY(t->view.dtype == want->dtype &&
                 tfd__shapes_agree(&t->view, want))) {
    return TFD_OK;
  }
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: argument %d is %s %s, it was traced with %s %s",
                   g->name, i + 1, tfd__dtype_name(t->view.dtype),
                   tfd__shape_text(&t->view, a), tfd__dtype_name(want->dtype),
                   tfd__shape_text(want, b));
}

static int check_call(const tfd_graph *g, tfd_tensor *const *inputs,
                      int inputs_n, int words_n, int numbers_n) {
  int i;

  if (!g->complete || g->running) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "graph \"%s\" %s", g->name,
                     g->running ? "runs already" : "is not complete");
  }
  if (inputs_n != g->inputs_n || words_n != g->draws_n ||
      numbers_n < g->numbers_n) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: %d arguments, %d random words and %d numbers given, "
                     "it takes %d, %d and %d",
                     g->name, inputs_n, words_n, numbers_n, g->inputs_n,
                     g->draws_n, g->numbers_n);
  }
  for (i = 0; i < inputs_n; i++) TFD_TRY(check_input(g, i, inputs[i]));
  /* Its ops are recorded, one by one. */
  if (g->hosts_n == 0 && g->flows_n == 0 && g->joints_n == 0) return TFD_OK;
  return tfd__refuse_recorder(g->name);
}

/* Tapes do not see what an unfollowed graph does. Returns those hidden. */
static void *hide_tapes(const tfd_graph *g) {
  tfd_context *c = tfd__context();
  void *tapes = c->tapes;

  if (g->unfollowed) c->tapes = NULL;
  return tapes;
}

static int start(tfd_graph *g, tfd_tensor *const *inputs,
                 const tfd__given *given) {
  const tfd_context *c = tfd__context();
  size_t n = (size_t)g->body.results_n + 1;
  bool ran = false;

  if (g->outputs == NULL) {
    g->outputs = tfd__calloc(n, sizeof *g->outputs);
    if (g->outputs == NULL) return tfd__no_memory(n * 8, "graph");
  }
  if (c->tapes == NULL && c->recorder == NULL) {
    TFD_TRY(tfd__graph_try(g, inputs, given, g->outputs, &ran));
  }
  return ran ? TFD_OK : tfd__replay_new(g, inputs, given, &g->replay);
}

int tfd_graph_start(tfd_graph *graph, tfd_tensor *const *inputs, int inputs_n,
                    const int64_t *words, int words_n, const double *numbers,
                    int numbers_n) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_HANDLES(inputs, inputs_n, TENSOR);
  TFD_GIVEN_LIST(words, words_n);
  TFD_GIVEN_LIST(numbers, numbers_n);

  tfd__given given = {.words = words, .numbers = numbers};

  void *tapes = NULL;
  int rc;

  rc = check_call(graph, inputs, inputs_n, words_n, numbers_n);
  if (rc == TFD_OK) {
    tapes = hide_tapes(graph);
    rc = start(graph, inputs, &given);
    tfd__context()->tapes = tapes;
  }
  if (rc != TFD_OK) {
    tfd__versions_unforeseen();
    return rc;
  }
  graph->running = true;
  graph->done = false;
  return TFD_OK;
}

int tfd_graph_stop(tfd_graph *graph) {
  TFD_GIVEN(graph, GRAPH);
  if (graph->running && graph->replay != NULL && !graph->done) {
    tfd__versions_unforeseen();
  }
  drop_outputs(graph);
  tfd__replay_free(graph, graph->replay);
  graph->replay = NULL;
  graph->running = false;
  return TFD_OK;
}

static int check_running(const tfd_graph *g) {
  if (g->running) return TFD_OK;
  return tfd__fail(TFD_FAILED_PRECONDITION, "graph \"%s\" does not run",
                   g->name);
}

int tfd_graph_next(tfd_graph *graph, tfd_graph_event *event_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(event_p);

  int64_t begin = 0;
  void *tapes = NULL;
  int rc;

  TFD_TRY(check_running(graph));
  if (graph->replay == NULL) {
    *event_p = TFD_GRAPH_DONE;
    return TFD_OK;
  }
  begin = tfd__span_begin();
  tapes = hide_tapes(graph);
  rc = tfd__replay_next(graph, graph->replay, event_p);
  graph->done = rc == TFD_OK && *event_p == TFD_GRAPH_DONE;
  tfd__context()->tapes = tapes;
  if (begin != 0) {
    tfd__span_end(TFD_SPAN_GRAPH, tfd__span_name(graph->name), begin,
                  tfd__context()->replica);
  }
  if (rc != TFD_OK &&
      (rc != TFD_RESOURCE_EXHAUSTED || !graph->replay->resumes)) {
    (void)tfd_graph_stop(graph);
  }
  return rc;
}

/* The step of the host that is due, in the innermost graph that runs. */
static int due(const tfd_graph **g_p, tfd__replay **r_p,
               const tfd__node **node_p) {
  const tfd_graph *g = *g_p;
  tfd__replay *r = g->replay;
  const tfd__node *n = NULL;

  TFD_TRY(check_running(g));
  while (r != NULL && r->frame != NULL) r = tfd__frame_inner(r->frame, &g);
  if (r != NULL && r->next > 0) n = &g->body.nodes[r->next - 1];
  if (n == NULL || n->host < 0) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "graph \"%s\": no step of the host is due", g->name);
  }
  *g_p = g;
  *r_p = r;
  *node_p = n;
  return TFD_OK;
}

int tfd_graph_due(tfd_graph *graph, int64_t *number_p, int *values_n_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(number_p);
  TFD_GIVEN_POINTER(values_n_p);

  const tfd_graph *g = graph;
  tfd__replay *r = NULL;
  const tfd__node *n = NULL;

  TFD_TRY(due(&g, &r, &n));
  *number_p = n->host;
  *values_n_p = n->in_n;
  return TFD_OK;
}

static int out_of_range(const tfd_graph *g, const char *what, int index,
                        int n) {
  return tfd__fail(TFD_INDEX_ERROR, "graph \"%s\": no %s %d; there are %d",
                   g->name, what, index, n);
}

int tfd_graph_value(tfd_graph *graph, int index, tfd_tensor **value_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(value_p);

  const tfd_graph *g = graph;
  tfd__replay *r = NULL;
  const tfd__node *n = NULL;

  TFD_TRY(due(&g, &r, &n));
  if (index < 0 || index >= n->in_n) {
    return out_of_range(g, "value", index, n->in_n);
  }
  return tfd__replay_value(g, r, g->body.operands[n->in + index], value_p);
}

/* Is it what the step was traced to give? */
static int check_answer(const tfd_graph *g, const tfd__node *n, int i,
                        const tfd_tensor *t) {
  const tfd__view *want = &g->body.values[n->out + i].view;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (t->buffer == NULL) return tfd__no_values(t, g->name);
  if (t->view.dtype == want->dtype && tfd__shapes_agree(&t->view, want)) {
    return TFD_OK;
  }
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: a step of the host gave %s %s, it was traced with %s "
                   "%s",
                   g->name, tfd__dtype_name(t->view.dtype),
                   tfd__shape_text(&t->view, a), tfd__dtype_name(want->dtype),
                   tfd__shape_text(want, b));
}

int tfd_graph_supply(tfd_graph *graph, tfd_tensor *const *values,
                     int values_n) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_HANDLES(values, values_n, TENSOR);

  const tfd_graph *g = graph;
  tfd__replay *r = NULL;
  const tfd__node *n = NULL;
  int i;

  TFD_TRY(due(&g, &r, &n));
  if (values_n != n->out_n) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: a step of the host gave %d values, it was traced "
                     "with %d",
                     g->name, values_n, n->out_n);
  }
  for (i = 0; i < values_n; i++) TFD_TRY(check_answer(g, n, i, values[i]));
  for (i = 0; i < values_n; i++) {
    tfd__release(r->values[n->out + i]);
    r->values[n->out + i] = values[i];
    tfd__retain(values[i]);
  }
  return TFD_OK;
}

int tfd_graph_result(tfd_graph *graph, int index, tfd_tensor **result_p) {
  TFD_GIVEN(graph, GRAPH);
  TFD_GIVEN_POINTER(result_p);

  int n = graph->body.results_n;

  TFD_TRY(check_running(graph));
  if (index < 0 || index >= n) return out_of_range(graph, "result", index, n);
  if (graph->replay != NULL) {
    return tfd__replay_value(graph, graph->replay, graph->body.results[index],
                             result_p);
  }
  tfd__retain(graph->outputs[index]);
  *result_p = graph->outputs[index];
  return TFD_OK;
}
