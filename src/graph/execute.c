/* A graph of one device from inputs to results, as a program or by replay. */
#include "graph/graph.h"

static int run_replay(tfd_graph *g, tfd_tensor *const *inputs,
                      const tfd__given *given, tfd_tensor **outputs) {
  tfd__replay *r = NULL;
  tfd_graph_event event = TFD_GRAPH_DONE;
  int n = 0;
  int rc;

  TFD_TRY(tfd__replay_new(g, inputs, given, &r));
  rc = tfd__replay_next(g, r, &event);
  while (rc == TFD_OK && n < g->body.results_n) {
    rc = tfd__replay_value(g, r, g->body.results[n], &outputs[n]);
    if (rc == TFD_OK) n++;
  }
  while (rc != TFD_OK && n > 0) {
    tfd__release(outputs[--n]);
    outputs[n] = NULL;
  }
  tfd__replay_free(g, r);
  return rc;
}

int tfd__graph_run(tfd_graph *g, tfd_tensor *const *inputs,
                   const tfd__given *given, tfd_tensor **outputs) {
  tfd__program *p = NULL;

  if (!g->replays) TFD_TRY(tfd__graph_program(g, inputs, &p));
  if (p == NULL) return run_replay(g, inputs, given, outputs);
  return tfd__program_call(g, p, inputs, given, outputs);
}

void tfd__graph_clear(tfd_graph *g) {
  int i;

  for (i = 0; i < TFD_GRAPH_PROGRAMS; i++) tfd__program_free(g->programs[i]);
  for (i = 0; i < g->constants_n; i++) tfd__release(g->constants[i]);
  for (i = 0; i < g->folded_n; i++) tfd__release(g->folded[i]);
  for (i = 0; i < g->variables_n; i++) tfd__release(g->variables[i]);
  tfd__graph_free_refusals(g);
  for (i = 0; i < g->joints_n; i++) tfd__release(g->joints[i]);
  for (i = 0; i < g->captures_n; i++) tfd__release(g->captures[i].outer);
  for (i = 0; i < g->flows_n; i++) tfd__flow_free(&g->flows[i]);
  tfd__release(g->parent);
  tfd__body_free(&g->body);
  tfd__free(g->map.keys);
  tfd__free(g->map.numbers);
  tfd__free(g->folded_map.keys);
  tfd__free(g->folded_map.numbers);
  tfd__free(g->captures);
  tfd__free(g->flows);
  tfd__free(g->inputs);
  tfd__free(g->constants);
  tfd__free(g->folded);
  tfd__free(g->variables);
  tfd__free(g->joints);
  tfd__free(g->draws);
  tfd__free(g->outputs);
  tfd__free(g->text);
  tfd__free(g->name);
}
