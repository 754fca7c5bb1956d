/* Ops of constants whose values were refused at the trace, where they may never
** run: what they give is symbolic, and who wants a value of it is told why. */
#include "graph/graph.h"

void tfd__graph_free_refusals(tfd_graph *g) {
  int i;

  for (i = 0; i < g->refusals_n; i++) tfd__free(g->refusals[i].text);
  tfd__free(g->refusals);
}

static const char *refusal_of(const tfd_graph *g, int node) {
  int i;

  for (i = 0; i < g->refusals_n; i++) {
    if (g->refusals[i].node == node) return g->refusals[i].text;
  }
  return NULL;
}

/* What is needed of a value that does not come from a node: an input that
** stands for a tensor from around asks there. */
static const char *asked_around(const tfd_graph *g, const tfd__graph_value *v) {
  if (v->origin != TFD_FROM_INPUT || g->captures[v->of].outer == NULL) {
    return NULL;
  }
  return tfd__refused(g->captures[v->of].outer);
}

/* needed: values; those that they are made of get marked, too. */
static const char *search(const tfd_graph *g, bool *needed) {
  const tfd__body *b = &g->body;
  const char *text = NULL;
  int v;
  int i;

  /* Operands have lower numbers than what is made of them. */
  for (v = b->values_n - 1; v >= 0 && text == NULL; v--) {
    const tfd__node *n = NULL;

    if (!needed[v]) continue;
    if (b->values[v].origin != TFD_FROM_NODE) {
      text = asked_around(g, &b->values[v]);
      continue;
    }
    if (b->values[v].of < 0) continue;
    n = &b->nodes[b->values[v].of];
    text = refusal_of(g, b->values[v].of);
    for (i = 0; i < n->in_n; i++) {
      if (b->operands[n->in + i] >= 0) needed[b->operands[n->in + i]] = true;
    }
  }
  return text;
}

const char *tfd__graph_refused(const tfd__tracer *self, const tfd_tensor *t) {
  const tfd_graph *g = (const tfd_graph *)self;
  int number = tfd__map_get(&g->map, t->id);
  const char *text = NULL;
  bool *needed = NULL;

  if (number < 0) return NULL;
  needed = tfd__calloc((size_t)g->body.values_n, sizeof *needed);
  if (needed == NULL) return NULL;
  needed[number] = true;
  text = search(g, needed);
  tfd__free(needed);
  return text;
}
