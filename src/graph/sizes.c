/* Shapes of all values for inputs as they are, so that passes may ask for them:
** each op's inference once more. */
#include <string.h>

#include "graph/graph.h"

static void put_sources(const tfd_graph *g, tfd__body *b,
                        tfd_tensor *const *inputs) {
  int i;

  for (i = 0; i < b->values_n; i++) {
    tfd__graph_value *v = &b->values[i];

    if (v->origin == TFD_FROM_INPUT) v->view = inputs[v->of]->view;
    if (v->origin == TFD_FROM_CONSTANT) v->view = g->constants[v->of]->view;
    if (v->origin == TFD_FROM_VARIABLE) {
      v->view = g->variables[v->of]->value->view;
    }
  }
}

static int put_results(const tfd_graph *g, tfd__body *b, const tfd__node *n,
                       const tfd__infer *s) {
  int i;

  if (s->out_n != n->out_n) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: %d outputs for these sizes, %d at the trace",
                     n->op->name, s->out_n, n->out_n);
  }
  for (i = 0; i < n->targets_n; i++) {
    const tfd_variable *v = g->variables[b->targets[n->targets + i]];

    TFD_TRY(tfd__check_target(n->op, v, &s->out[i].view));
  }
  for (i = 0; i < n->out_n; i++) b->values[n->out + i].view = s->out[i].view;
  return TFD_OK;
}

static int infer(const tfd_graph *g, tfd__body *b, const tfd__node *n,
                 const tfd__view **in) {
  tfd__infer s;
  int i;
  int rc;

  for (i = 0; i < n->in_n; i++) {
    int v = b->operands[n->in + i];

    in[i] = v < 0 ? NULL : &b->values[v].view;
  }
  memset(&s, 0, offsetof(tfd__infer, small));
  s.op = n->op;
  s.name = n->op->name;
  s.in = in;
  s.in_n = n->in_n;
  s.ints = b->ints + n->ints;
  s.reals = b->reals + n->reals;
  s.out_n = 1;
  s.out = s.small;
  s.large = NULL;
  rc = n->op->infer(&s);
  if (rc == TFD_OK) rc = put_results(g, b, n, &s);
  tfd__free(s.large);
  return rc;
}

int tfd__pass_sizes(const tfd_graph *g, tfd__body *b,
                    tfd_tensor *const *inputs) {
  const tfd__view **in = NULL;
  int most = 1;
  int rc = TFD_OK;
  int k;

  for (k = 0; k < b->nodes_n; k++) {
    if (b->nodes[k].in_n > most) most = b->nodes[k].in_n;
  }
  in = tfd__alloc((size_t)most * sizeof *in);
  if (in == NULL) return tfd__no_memory((size_t)most * sizeof *in, "graph");
  put_sources(g, b, inputs);
  for (k = 0; rc == TFD_OK && k < b->nodes_n; k++) {
    if (!b->nodes[k].dead) rc = infer(g, b, &b->nodes[k], in);
  }
  tfd__free(in);
  return rc;
}
