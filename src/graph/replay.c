/* Each node through the dispatcher, as if the script ran it again. */
#include <string.h>

#include "graph/graph.h"

int tfd__replay_new(tfd_graph *g, tfd_tensor *const *inputs,
                    const tfd__given *given, tfd__replay **replay_p) {
  const tfd__body *b = &g->body;
  size_t n = (size_t)b->values_n;
  size_t bytes = sizeof(tfd__replay) + n * (sizeof(void *) + sizeof(int)) +
                 (size_t)(g->draws_n + g->numbers_n) * sizeof(int64_t);
  tfd__replay *r = tfd__calloc(1, bytes);
  int i;

  if (r == NULL) return tfd__no_memory(bytes, "graph");
  r->values = (tfd_tensor **)(r + 1);
  r->words = (int64_t *)(r->values + n);
  r->numbers = (double *)(r->words + g->draws_n);
  r->last = (int *)(r->numbers + g->numbers_n);
  if (g->draws_n > 0) {
    memcpy(r->words, given->words, (size_t)g->draws_n * sizeof(int64_t));
  }
  if (g->numbers_n > 0) {
    memcpy(r->numbers, given->numbers, (size_t)g->numbers_n * sizeof(double));
  }
  tfd__body_lives(b, r->last);
  for (i = 0; i < g->inputs_n; i++) {
    tfd__retain(inputs[i]);
    r->values[g->inputs[i]] = inputs[i];
  }
  *replay_p = r;
  return TFD_OK;
}

void tfd__replay_free(const tfd_graph *g, tfd__replay *r) {
  int i;

  if (r == NULL) return;
  for (i = 0; i < g->body.values_n; i++) tfd__release(r->values[i]);
  tfd__free(r);
}

/* Borrowed. */
static tfd_tensor *operand(const tfd_graph *g, const tfd__replay *r, int v) {
  const tfd__graph_value *value = NULL;

  if (v < 0) return NULL;
  value = &g->body.values[v];
  switch (value->origin) {
  case TFD_FROM_CONSTANT:
    return g->constants[value->of];
  case TFD_FROM_VARIABLE:
    return g->variables[value->of]->value;
  default:
    return r->values[v];
  }
}

int tfd__replay_value(const tfd_graph *g, const tfd__replay *r, int v,
                      tfd_tensor **value_p) {
  tfd_tensor *t = operand(g, r, v);

  if (t == NULL) {
    return tfd__fail(TFD_INTERNAL, "graph \"%s\": value %d is not there",
                     g->name, v);
  }
  return tfd__tensor_snapshot(t, value_p);
}

static int run_joint(tfd_graph *g, tfd__replay *r, const tfd__node *n) {
  size_t bytes = (size_t)(n->in_n + 1) * sizeof(tfd_tensor *);
  tfd_tensor **in = tfd__alloc(bytes);
  int rc;
  int i;

  if (in == NULL) return tfd__no_memory(bytes, n->joint->name);
  for (i = 0; i < n->in_n; i++) {
    in[i] = operand(g, r, g->body.operands[n->in + i]);
  }
  tfd_context_set_position(n->file, n->line);
  rc = n->joint->run(n->joint, in,
                     n->numbers >= 0 ? r->numbers + n->numbers
                                     : g->body.reals + n->reals);
  tfd__free(in);
  return rc;
}

static int run_node(tfd_graph *g, tfd__replay *r, const tfd__node *n,
                    tfd_tensor **in, tfd_tensor **out) {
  const tfd__body *b = &g->body;
  tfd_variable *targets[TFD_CALL_VIEWS];
  int64_t ints[TFD_MAX_INTS];
  const double *reals =
      n->numbers >= 0 ? r->numbers + n->numbers : b->reals + n->reals;
  int op = (int)(n->op - tfd__op_at(0));
  int out_n = 0;
  int i;

  for (i = 0; i < n->in_n; i++) in[i] = operand(g, r, b->operands[n->in + i]);
  if (n->op->ints_n > 0) {
    memcpy(ints, b->ints + n->ints, (size_t)n->op->ints_n * sizeof *ints);
  }
  if (n->draw >= 0) {
    memcpy(ints + n->draw_slot, r->words + n->draw * 4, 4 * sizeof *ints);
  }
  if (n->targets_n > 0) {
    for (i = 0; i < n->targets_n; i++) {
      targets[i] = g->variables[b->targets[n->targets + i]];
    }
    return tfd__run_update(op, targets, n->targets_n, in, n->in_n, ints, reals);
  }
  return tfd__run(op, in, n->in_n, ints, reals, out, n->out_n, &out_n);
}

/* In the context that it was recorded in, as far as ops see it. */
static int run_placed(tfd_graph *g, tfd__replay *r, const tfd__node *n,
                      tfd_tensor **lists) {
  tfd_context *c = tfd__context();
  void *tapes = c->tapes;
  int line = c->line;
  const char *file = c->file;
  int rc;

  TFD_TRY(tfd_device_push(n->device));
  if (n->unfollowed) c->tapes = NULL;
  tfd_context_set_position(n->file, n->line);
  rc = run_node(g, r, n, lists, lists + n->in_n);
  tfd_context_set_position(file, line);
  c->tapes = tapes;
  (void)tfd_device_pop();
  return rc;
}

static int step(tfd_graph *g, tfd__replay *r, const tfd__node *n) {
  tfd_tensor *few[2 * TFD_CALL_VIEWS];
  tfd_tensor **lists = few;
  size_t bytes = (size_t)(n->in_n + n->out_n) * sizeof *lists;
  int rc;

  if (n->in_n + n->out_n > 2 * TFD_CALL_VIEWS) {
    lists = tfd__alloc(bytes);
    if (lists == NULL) return tfd__no_memory(bytes, "graph");
  }
  rc = run_placed(g, r, n, lists);
  if (rc == TFD_OK && n->targets_n == 0) {
    memcpy(r->values + n->out, lists + n->in_n,
           (size_t)n->out_n * sizeof *lists);
  }
  if (lists != few) tfd__free(lists);
  return rc;
}

/* Let go of what nobody uses after node k. */
static void drop(const tfd_graph *g, tfd__replay *r, int k) {
  const tfd__node *n = &g->body.nodes[k];
  int i;

  for (i = 0; i < n->in_n + n->out_n; i++) {
    int v = i < n->in_n ? g->body.operands[n->in + i] : n->out + i - n->in_n;

    if (v < 0 || r->values[v] == NULL || r->last[v] > k) continue;
    tfd__release(r->values[v]);
    r->values[v] = NULL;
  }
}

int tfd__replay_next(tfd_graph *g, tfd__replay *r, tfd_graph_event *event_p) {
  if (r->next > 0) drop(g, r, r->next - 1);
  while (r->next < g->body.nodes_n) {
    int k = r->next++;
    const tfd__node *n = &g->body.nodes[k];

    if (n->dead) continue;
    if (tfd__node_is_host(n)) {
      *event_p = TFD_GRAPH_HOST;
      return TFD_OK;
    }
    TFD_TRY(n->joint != NULL ? run_joint(g, r, n) : step(g, r, n));
    drop(g, r, k);
  }
  *event_p = TFD_GRAPH_DONE;
  return TFD_OK;
}
