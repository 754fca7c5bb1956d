/* Calls of graphs that are pieces (pieces.c): one after the other, or, where a
** joint can begin in parts, by turns with it. */
#include "graph/pieces.h"

typedef tfd__one_piece piece;

/* --- a call --------------------------------------------------------------- */

/* Borrowed. */
static tfd_tensor *source(const tfd_graph *g, const tfd__pieces *p,
                          tfd_tensor *const *inputs, int v) {
  const tfd__graph_value *value = NULL;

  if (v < 0) return NULL;
  value = &g->body.values[v];
  switch (value->origin) {
  case TFD_FROM_INPUT:
    return inputs[value->of];
  case TFD_FROM_CONSTANT:
    return g->constants[value->of];
  case TFD_FROM_VARIABLE:
    return g->variables[value->of]->value;
  default:
    return p->values[v];
  }
}

static void take_inputs(const tfd_graph *g, tfd__pieces *p, const piece *one,
                        tfd_tensor *const *inputs) {
  int i;

  for (i = 0; i < one->in_n; i++) {
    p->few[i] = source(g, p, inputs, one->in[i]);
  }
}

static void keep_results(tfd__pieces *p, const piece *one) {
  int i;

  for (i = 0; i < one->out_n; i++) {
    p->values[one->out[i]] = p->few[one->in_n + i];
  }
}

/* The whole joint or, from 0 on, a part of it. */
static int run_joint(const tfd_graph *g, const tfd__pieces *p, const piece *one,
                     const tfd__given *given, int part) {
  const tfd__node *n = &g->body.nodes[one->alone];
  const tfd_context *c = tfd__context();
  const char *file = c->file;
  int line = c->line;
  int rc;

  if (n->file != NULL) tfd_context_set_position(n->file, n->line);
  if (part >= 0) {
    rc = n->joint->begin(n->joint, part, p->few);
  } else {
    rc = n->joint->run(n->joint, p->few,
                       n->numbers >= 0 ? given->numbers + n->numbers
                                       : g->body.reals + n->reals,
                       p->few + one->in_n);
  }
  tfd_context_set_position(file, line);
  return rc;
}

static int run_piece(tfd_graph *g, tfd__pieces *p, const piece *one,
                     tfd_tensor *const *inputs, const tfd__given *given) {
  tfd_tensor **out = p->few + one->in_n;

  take_inputs(g, p, one, inputs);
  if (one->alone < 0) {
    TFD_TRY(tfd__graph_run(one->graph, p->few, given, out));
  } else if (g->body.nodes[one->alone].flow >= 0) {
    TFD_TRY(tfd__flow_run(g, one->alone, p->last, given, p->few, out));
  } else {
    TFD_TRY(run_joint(g, p, one, given, -1));
  }
  keep_results(p, one);
  return TFD_OK;
}

/* --- programs during which a joint begins --------------------------------- */

/* Those from `first` on that are of its level. */
static int count_level(const tfd__pieces *p, int first) {
  int end = first;

  while (end < p->list_n && p->list[end].alone < 0 &&
         p->list[end].level == p->list[first].level) {
    end++;
  }
  return end - first;
}

/* Their programs; false where they must run one after the other. */
static int find_programs(const tfd_graph *g, tfd__pieces *p, int first, int n,
                         tfd_tensor *const *inputs, bool *there_p) {
  int i;

  *there_p = true;
  for (i = first; i < first + n; i++) {
    const piece *one = &p->list[i];

    take_inputs(g, p, one, inputs);
    p->programs[i] = NULL;
    if (!one->graph->replays) {
      TFD_TRY(tfd__graph_program(one->graph, p->few, &p->programs[i]));
    }
    *there_p = *there_p && p->programs[i] != NULL &&
               p->programs[i]->device->backend->launcher == NULL;
  }
  return TFD_OK;
}

/* How many calls of a program give what it gives to a part. */
static int calls_for(const tfd__node *n, const piece *joint, int part,
                     const piece *one, const tfd__program *program) {
  int end = 0;
  int i;
  int k;

  for (i = 0; i < joint->in_n; i++) {
    if (n->joint->part_of[i] != part) continue;
    for (k = 0; k < one->out_n; k++) {
      int after = program->yields[k].after;

      if (one->out[k] == joint->in[i] && after > end) end = after;
    }
  }
  return end;
}

static int go(const tfd__pieces *p, int at, int end) {
  return tfd__program_go(p->list[at].graph, p->programs[at], end);
}

static int run_parts(tfd_graph *g, tfd__pieces *p, int first, int n,
                     tfd_tensor *const *inputs, const tfd__given *given) {
  const piece *joint = &p->list[p->list[first].early];
  const tfd__node *node = &g->body.nodes[joint->alone];
  int part;
  int i;

  for (i = first; i < first + n; i++) {
    const piece *one = &p->list[i];

    take_inputs(g, p, one, inputs);
    TFD_TRY(tfd__program_begin(one->graph, p->programs[i], p->few, given,
                               p->few + one->in_n));
    keep_results(p, one);
  }
  for (part = 0; part < node->joint->parts_n; part++) {
    for (i = first; i < first + n; i++) {
      TFD_TRY(
          go(p, i, calls_for(node, joint, part, &p->list[i], p->programs[i])));
    }
    take_inputs(g, p, joint, inputs);
    TFD_TRY(run_joint(g, p, joint, given, part));
  }
  for (i = first; i < first + n; i++) {
    TFD_TRY(go(p, i, p->programs[i]->calls_n));
  }
  return TFD_OK;
}

/* The piece `first` and, when they ran too, those that follow; *n_p is how
** many. */
static int run_from(tfd_graph *g, tfd__pieces *p, int first,
                    tfd_tensor *const *inputs, const tfd__given *given,
                    int *n_p) {
  bool together = p->list[first].early >= 0;
  int n = count_level(p, first);
  int rc;
  int i;

  *n_p = 1;
  if (together) TFD_TRY(find_programs(g, p, first, n, inputs, &together));
  if (!together) return run_piece(g, p, &p->list[first], inputs, given);
  *n_p = n;
  rc = run_parts(g, p, first, n, inputs, given);
  for (i = first; i < first + n; i++) tfd__program_end(p->programs[i]);
  return rc;
}

/* What has begun of joints that will not run. */
static void drop_parts(const tfd_graph *g, const tfd__pieces *p) {
  int i;

  for (i = 0; i < p->list_n; i++) {
    const piece *one = &p->list[i];

    if (one->early >= 0) {
      tfd__joint *j = g->body.nodes[p->list[one->early].alone].joint;

      j->drop(j);
    }
  }
}

static void drop_values(tfd__pieces *p) {
  int i;
  int k;

  for (i = 0; i < p->list_n; i++) {
    for (k = 0; k < p->list[i].out_n; k++) {
      tfd_tensor **t = &p->values[p->list[i].out[k]];

      tfd__release(*t);
      *t = NULL;
    }
  }
}

int tfd__pieces_call(tfd_graph *g, tfd__pieces *p, tfd_tensor *const *inputs,
                     const tfd__given *given, tfd_tensor **outputs) {
  int rc = TFD_OK;
  int ran = 0;
  int n = 0;
  int i;

  for (i = 0; rc == TFD_OK && i < p->list_n; i += ran) {
    rc = run_from(g, p, i, inputs, given, &ran);
  }
  if (rc != TFD_OK) drop_parts(g, p);
  /* Each is a tensor of its own, as those of a program are: two results may be
  ** one value, and tapes tell them apart. */
  while (rc == TFD_OK && n < p->results_n) {
    const tfd_tensor *t = source(g, p, inputs, p->results[n]);

    rc = tfd__tensor_alias(t, &t->view, &outputs[n]);
    if (rc == TFD_OK) n++;
  }
  while (rc != TFD_OK && n > 0) {
    tfd__release(outputs[--n]);
    outputs[n] = NULL;
  }
  drop_values(p);
  return rc;
}

int tfd__graph_try(tfd_graph *g, tfd_tensor *const *inputs,
                   const tfd__given *given, tfd_tensor **outputs, bool *ran_p) {
  tfd__program *p = NULL;

  *ran_p = true;
  if (!g->replays) {
    TFD_TRY(tfd__graph_program(g, inputs, &p));
    if (p == NULL && g->hosts_n == 0) TFD_TRY(tfd__pieces_new(g, &g->pieces));
  }
  if (p != NULL) return tfd__program_call(g, p, inputs, given, outputs);
  if (g->pieces != NULL) {
    return tfd__pieces_call(g, g->pieces, inputs, given, outputs);
  }
  *ran_p = false;
  return TFD_OK;
}
