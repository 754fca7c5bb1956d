/* The program of a graph for the shapes of its inputs: one of a few for shapes
** that were met. */
#include "graph/graph.h"

static bool fits(const tfd__program *p, tfd_tensor *const *inputs) {
  const int64_t *at = p->layout;
  int i;
  int k;

  for (i = 0; i < p->inputs_n; i++) {
    const tfd__view *v = &inputs[i]->view;

    for (k = 0; k < v->rank; k++) {
      if (at[k] != v->dims[k] || at[k + v->rank] != v->strides[k]) return false;
    }
    at += 2 * v->rank;
  }
  return true;
}

int tfd__graph_program(tfd_graph *g, tfd_tensor *const *inputs,
                       tfd__program **program_p) {
  tfd__program *p = NULL;
  int i = 0;

  while (i < TFD_GRAPH_PROGRAMS - 1 && g->programs[i] != NULL &&
         !fits(g->programs[i], inputs)) {
    i++;
  }
  p = g->programs[i];
  if (p == NULL || !fits(p, inputs)) {
    TFD_TRY(tfd__lower(g, inputs, &p));
    g->replays = p == NULL;
    *program_p = p;
    if (p == NULL) return TFD_OK;
    tfd__program_free(g->programs[i]);
  }
  for (; i > 0; i--) g->programs[i] = g->programs[i - 1];
  g->programs[0] = p;
  *program_p = p;
  return TFD_OK;
}
