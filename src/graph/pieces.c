/* Graphs of several devices or with flows as pieces, each a graph of one device
** that becomes a program.
**
** A node's level is the number of times that what it needs has changed devices
** on the way to it. Nodes of one device and level are one piece; pieces run in
** the order of levels, so that the devices work at once and wait only for what
** another one computes. Joints are pieces of their own, before the others of
** their level. Those that can begin in parts do so as the programs before them
** come to what a part takes: the programs go on meanwhile, and are what they
** would be otherwise. Flows are pieces of their own too, alone on a level: what
** stands before one in the program runs before it, for its graphs read and
** write variables. What one piece computes for others are its results; to
** another device they are copied when they are brought there, as inputs of
** programs are. Writes of variables wait for the reads before them.
** Cost of a call: that of a program's for each piece, a buffer for each value
** that leaves one. */
#include <string.h>

#include "graph/pieces.h"

typedef tfd__one_piece piece;

/* Levels of the last write of a variable and of the reads since; -1 = none. */
typedef struct access {
  int write;
  int near; /* by its device */
  int far;  /* by others */
} access;

typedef struct split {
  tfd_graph *g;
  tfd__body b; /* without common subexpressions */
  tfd__pieces *pieces;
  int *maker;   /* of each value: node, -1 = none */
  int *level;   /* of each node */
  int *of;      /* of each node: its piece */
  bool *leaves; /* of each value: do other pieces or the caller use it? */
  int *number;  /* of each value: in the piece that is being built, -1 = none */
  int *latest;  /* of each device by its index: level of what it does last */
  access *accesses; /* of each variable */
} split;

/* --- levels --------------------------------------------------------------- */

static int later(int a, int b) {
  return a > b ? a : b;
}

/* After what was done at `level`, elsewhere or not; -1 = nothing was. */
static int after(int level, bool elsewhere) {
  return level < 0 ? 0 : level + (elsewhere ? 1 : 0);
}

static int after_operand(split *s, const tfd__node *n, int v) {
  const tfd__graph_value *value = &s->b.values[v];
  access *a = NULL;
  bool far;

  switch (value->origin) {
  case TFD_FROM_NODE:
    return after(s->level[s->maker[v]],
                 s->b.nodes[s->maker[v]].device != n->device);
  case TFD_FROM_VARIABLE:
    a = &s->accesses[value->of];
    far = s->g->variables[value->of]->value->device != n->device;
    return after(a->write, far);
  default:
    return 0;
  }
}

static int after_reads(const split *s, const tfd__node *n) {
  int level = 0;
  int i;

  for (i = 0; i < n->targets_n; i++) {
    const access *a = &s->accesses[s->b.targets[n->targets + i]];

    level = later(level, after(later(a->write, a->near), n->joint != NULL));
    level = later(level, after(a->far, true));
  }
  return level;
}

static void note_accesses(split *s, const tfd__node *n, int level) {
  int i;

  for (i = 0; i < n->in_n; i++) {
    int v = s->b.operands[n->in + i];
    access *a = NULL;
    int *read = NULL;

    if (v < 0 || s->b.values[v].origin != TFD_FROM_VARIABLE) continue;
    a = &s->accesses[s->b.values[v].of];
    read = s->g->variables[s->b.values[v].of]->value->device == n->device
               ? &a->near
               : &a->far;
    *read = later(*read, level);
  }
  for (i = 0; i < n->targets_n; i++) {
    s->accesses[s->b.targets[n->targets + i]] = (access){level, -1, -1};
  }
}

/* Does the node make a piece of its own? */
static bool is_alone(const tfd__node *n) {
  return n->joint != NULL || n->flow >= 0;
}

/* Are all targets on the node's device? */
static bool writes_near(const split *s, const tfd__node *n) {
  int i;

  for (i = 0; i < n->targets_n; i++) {
    const tfd_variable *v = s->g->variables[s->b.targets[n->targets + i]];

    if (!is_alone(n) && v->value->device != n->device) return false;
  }
  return true;
}

static bool find_levels(split *s) {
  int joints = 0; /* level of the last one */
  int first = 0;  /* level that comes after the last flow */
  int most = -1;
  int i;
  int k;

  for (i = 0; i < s->b.values_n; i++) s->maker[i] = -1;
  for (i = 0; i < s->g->variables_n; i++) {
    s->accesses[i] = (access){-1, -1, -1};
  }
  for (k = 0; k < s->b.nodes_n; k++) {
    const tfd__node *n = &s->b.nodes[k];
    int *latest = n->device == NULL ? NULL : &s->latest[n->device->index];
    int level = first;

    if (n->dead) continue;
    if (!writes_near(s, n)) return false;
    if (n->joint != NULL) level = later(level, joints); /* in their order */
    /* Not before what the program has before it: where that is lost to what
    ** another device did, nothing is written, as line by line. */
    if (n->targets_n > 0) {
      level = later(level, joints);
      if (latest != NULL) level = later(level, *latest);
    }
    if (n->flow >= 0) level = most + 1;
    level = later(level, after_reads(s, n));
    for (i = 0; i < n->in_n; i++) {
      int v = s->b.operands[n->in + i];

      if (v >= 0) level = later(level, after_operand(s, n, v));
    }
    for (i = 0; i < n->out_n; i++) s->maker[n->out + i] = k;
    s->level[k] = level;
    if (latest != NULL) *latest = later(*latest, level);
    if (n->joint != NULL) joints = level;
    most = later(most, level);
    if (n->flow >= 0) first = level + 1;
    note_accesses(s, n, level);
  }
  return true;
}

/* --- pieces --------------------------------------------------------------- */

static int find_piece(tfd__pieces *p, const tfd__node *n, int level) {
  int i;

  for (i = 0; !is_alone(n) && i < p->list_n; i++) {
    const piece *one = &p->list[i];

    if (one->alone < 0 && one->level == level && one->device == n->device) {
      return i;
    }
  }
  return -1;
}

static int make_level(split *s, int level, bool alone) {
  tfd__pieces *p = s->pieces;
  int k;

  for (k = 0; k < s->b.nodes_n; k++) {
    const tfd__node *n = &s->b.nodes[k];

    if (n->dead || s->level[k] != level || is_alone(n) != alone) continue;
    s->of[k] = find_piece(p, n, level);
    if (s->of[k] >= 0) continue;
    TFD_TRY(TFD_GROW(p->list, 1));
    s->of[k] = p->list_n;
    p->list[p->list_n++] = (piece){.alone = alone ? k : -1,
                                   .early = -1,
                                   .device = n->device,
                                   .level = level};
  }
  return TFD_OK;
}

/* In the order of levels, within one joints and then others, in that of their
** first nodes. */
static int make_pieces(split *s) {
  int most = 0;
  int level;
  int k;

  for (k = 0; k < s->b.nodes_n; k++) {
    if (!s->b.nodes[k].dead) most = later(most, s->level[k]);
  }
  for (level = 0; level <= most; level++) {
    TFD_TRY(make_level(s, level, true));
    TFD_TRY(make_level(s, level, false));
  }
  return TFD_OK;
}

static void find_leaving(split *s) {
  int i;
  int k;

  for (i = 0; i < s->b.results_n; i++) s->leaves[s->b.results[i]] = true;
  for (k = 0; k < s->b.nodes_n; k++) {
    const tfd__node *n = &s->b.nodes[k];

    for (i = 0; !n->dead && i < n->in_n; i++) {
      int v = s->b.operands[n->in + i];

      if (v < 0 || s->maker[v] < 0) continue;
      if (s->of[s->maker[v]] != s->of[k]) s->leaves[v] = true;
    }
  }
}

/* --- one piece's graph ---------------------------------------------------- */

static int add_source(split *s, piece *p, int v, tfd__graph_value *made) {
  const tfd__graph_value *from = &s->b.values[v];
  tfd_graph *g = p->graph;

  *made = *from;
  if (from->origin == TFD_FROM_CONSTANT) {
    TFD_TRY(TFD_GROW(g->constants, 1));
    made->of = g->constants_n;
    tfd__retain(s->g->constants[from->of]);
    g->constants[g->constants_n++] = s->g->constants[from->of];
    return TFD_OK;
  }
  if (from->origin == TFD_FROM_VARIABLE &&
      s->g->variables[from->of]->value->device == p->device) {
    TFD_TRY(TFD_GROW(g->variables, 1));
    made->of = g->variables_n;
    tfd__retain(s->g->variables[from->of]);
    g->variables[g->variables_n++] = s->g->variables[from->of];
    return TFD_OK;
  }
  TFD_TRY(TFD_GROW(g->inputs, 1));
  TFD_TRY(TFD_GROW(p->in, 1));
  made->origin = TFD_FROM_INPUT;
  made->of = g->inputs_n;
  g->inputs[g->inputs_n++] = g->body.values_n;
  p->in[p->in_n++] = v;
  return TFD_OK;
}

static int number_of(split *s, piece *p, int v, int *number_p) {
  tfd__graph_value *value = NULL;
  tfd__graph_value made;

  if (v >= 0 && s->number[v] < 0) {
    TFD_TRY(add_source(s, p, v, &made));
    TFD_TRY(tfd__body_value(&p->graph->body, &value, &s->number[v]));
    *value = made;
  }
  *number_p = v < 0 ? -1 : s->number[v];
  return TFD_OK;
}

/* The number in the piece of what variable i of the whole is in. */
static int target_of(split *s, piece *p, int i, int *target_p) {
  int v = 0;
  int number = 0;

  while (s->b.values[v].origin != TFD_FROM_VARIABLE || s->b.values[v].of != i) {
    v++;
  }
  TFD_TRY(number_of(s, p, v, &number));
  *target_p = p->graph->body.values[number].of;
  return TFD_OK;
}

static int copy_attributes(const split *s, const tfd__node *n, tfd__node *made,
                           tfd__body *b) {
  TFD_TRY(TFD_GROW(b->ints, n->op->ints_n));
  TFD_TRY(TFD_GROW(b->reals, n->op->reals_n));
  made->ints = b->ints_n;
  made->reals = b->reals_n;
  if (n->op->ints_n > 0) {
    memcpy(b->ints + b->ints_n, s->b.ints + n->ints,
           (size_t)n->op->ints_n * sizeof *b->ints);
  }
  if (n->op->reals_n > 0) {
    memcpy(b->reals + b->reals_n, s->b.reals + n->reals,
           (size_t)n->op->reals_n * sizeof *b->reals);
  }
  b->ints_n += n->op->ints_n;
  b->reals_n += n->op->reals_n;
  return TFD_OK;
}

static int copy_node(split *s, piece *p, const tfd__node *n) {
  tfd__body *b = &p->graph->body;
  tfd__node made = *n;
  int i;

  TFD_TRY(TFD_GROW(b->nodes, 1));
  TFD_TRY(TFD_GROW(b->operands, n->in_n));
  TFD_TRY(TFD_GROW(b->targets, n->targets_n));
  made.in = b->operands_n;
  made.targets = b->targets_n;
  for (i = 0; i < n->in_n; i++) {
    TFD_TRY(
        number_of(s, p, s->b.operands[n->in + i], &b->operands[made.in + i]));
  }
  for (i = 0; i < n->targets_n; i++) {
    TFD_TRY(target_of(s, p, s->b.targets[n->targets + i],
                      &b->targets[made.targets + i]));
  }
  b->operands_n += n->in_n;
  b->targets_n += n->targets_n;
  TFD_TRY(copy_attributes(s, n, &made, b));
  made.out = b->values_n;
  for (i = 0; i < n->out_n; i++) {
    tfd__graph_value *value = NULL;

    TFD_TRY(tfd__body_value(b, &value, &s->number[n->out + i]));
    *value = s->b.values[n->out + i];
    value->of = b->nodes_n;
  }
  b->nodes[b->nodes_n++] = made;
  return TFD_OK;
}

static int add_results(split *s, piece *p, const tfd__node *n) {
  tfd__body *b = &p->graph->body;
  int i;

  for (i = 0; i < n->out_n; i++) {
    int v = n->out + i;

    if (!s->leaves[v]) continue;
    TFD_TRY(TFD_GROW(b->results, 1));
    TFD_TRY(TFD_GROW(p->out, 1));
    b->results[b->results_n++] = s->number[v];
    p->out[p->out_n++] = v;
  }
  return TFD_OK;
}

static int build_alone(const split *s, piece *p) {
  const tfd__node *n = &s->b.nodes[p->alone];

  TFD_TRY(TFD_GROW(p->in, n->in_n));
  TFD_TRY(TFD_GROW(p->out, n->out_n));
  for (; p->in_n < n->in_n; p->in_n++) {
    p->in[p->in_n] = s->b.operands[n->in + p->in_n];
  }
  for (; p->out_n < n->out_n; p->out_n++) p->out[p->out_n] = n->out + p->out_n;
  return TFD_OK;
}

static int build_piece(split *s, int number) {
  piece *p = &s->pieces->list[number];
  int i;
  int k;

  if (p->alone >= 0) return build_alone(s, p);
  p->graph = tfd__calloc(1, sizeof *p->graph); /* nobody else sees it */
  if (p->graph == NULL) return tfd__no_memory(sizeof *p->graph, "graph");
  p->graph->name = tfd__strdup(s->g->name);
  if (p->graph->name == NULL) return tfd__no_memory(64, "graph");
  for (i = 0; i < s->b.values_n; i++) s->number[i] = -1;
  for (k = 0; k < s->b.nodes_n; k++) {
    const tfd__node *n = &s->b.nodes[k];

    if (n->dead || s->of[k] != number) continue;
    TFD_TRY(copy_node(s, p, n));
    TFD_TRY(add_results(s, p, n));
  }
  p->graph->draws_n = s->g->draws_n;
  p->graph->numbers_n = s->g->numbers_n;
  p->graph->complete = true;
  return TFD_OK;
}

/* -------------------------------------------------------------------------- */

/* The last piece that gives something to a part of the joint; -1 = none. */
static int last_giver(const split *s, const tfd__node *n) {
  int last = -1;
  int i;

  for (i = 0; i < n->in_n; i++) {
    int v = s->b.operands[n->in + i];

    if (n->joint->part_of[i] == n->joint->parts_n || v < 0) continue;
    if (s->maker[v] >= 0) last = later(last, s->of[s->maker[v]]);
  }
  return last;
}

/* The programs during which parts of joint piece `at` can begin. */
static void find_early(const split *s, int at) {
  const tfd__node *n = &s->b.nodes[s->pieces->list[at].alone];
  piece *list = s->pieces->list;
  int last = -1;
  int i;

  if (n->joint == NULL || n->joint->parts_n == 0) return;
  last = last_giver(s, n);
  if (last < 0) return;
  for (i = last; i < at; i++) {
    if (list[i].alone >= 0) return;
  }
  while (last > 0 && list[last - 1].alone < 0 &&
         list[last - 1].level == list[last].level) {
    last--;
  }
  list[last].early = at;
}

static int build(split *s, bool *possible_p) {
  tfd__pieces *p = s->pieces;
  int widest = 0;
  int i;

  *possible_p = find_levels(s);
  if (!*possible_p) return TFD_OK;
  TFD_TRY(make_pieces(s));
  find_leaving(s);
  for (i = 0; i < p->list_n; i++) {
    TFD_TRY(build_piece(s, i));
    if (p->list[i].alone >= 0) find_early(s, i);
    widest = later(widest, p->list[i].in_n + p->list[i].out_n);
  }
  p->values = tfd__calloc((size_t)s->b.values_n + 1, sizeof *p->values);
  p->few = tfd__calloc((size_t)widest + 1, sizeof *p->few);
  p->results = tfd__calloc((size_t)s->b.results_n + 1, sizeof *p->results);
  p->programs = tfd__calloc((size_t)p->list_n + 1, sizeof *p->programs);
  if (p->values == NULL || p->few == NULL || p->results == NULL ||
      p->programs == NULL) {
    return tfd__no_memory((size_t)s->b.values_n * sizeof *p->values, "graph");
  }
  p->results_n = s->b.results_n;
  for (i = 0; i < p->results_n; i++) p->results[i] = s->b.results[i];
  if (s->g->flows_n == 0) return TFD_OK;
  p->last = tfd__alloc(((size_t)s->b.values_n + 1) * sizeof *p->last);
  if (p->last == NULL) return tfd__no_memory((size_t)s->b.values_n, "graph");
  tfd__body_lives(&s->b, p->last);
  return TFD_OK;
}

static size_t count_devices(const tfd__body *b) {
  int n = 0;
  int k;

  for (k = 0; k < b->nodes_n; k++) {
    if (b->nodes[k].device != NULL) n = later(n, b->nodes[k].device->index + 1);
  }
  return (size_t)n;
}

static int make_room(split *s) {
  size_t values = (size_t)s->b.values_n;
  size_t nodes = (size_t)s->b.nodes_n;
  size_t n = 2 * values + 2 * nodes + count_devices(&s->b) + 1;
  size_t variables = (size_t)s->g->variables_n + 1;

  s->maker = tfd__calloc(n, sizeof *s->maker);
  s->leaves = tfd__calloc(values + 1, sizeof *s->leaves);
  s->accesses = tfd__calloc(variables, sizeof *s->accesses);
  s->pieces = tfd__calloc(1, sizeof *s->pieces);
  if (s->maker == NULL || s->leaves == NULL || s->accesses == NULL ||
      s->pieces == NULL) {
    return tfd__no_memory(n * sizeof *s->maker, "graph");
  }
  s->number = s->maker + values;
  s->level = s->number + values;
  s->of = s->level + nodes;
  s->latest = s->of + nodes;
  return TFD_OK;
}

int tfd__pieces_new(tfd_graph *g, tfd__pieces **pieces_p) {
  split s = {.g = g};
  bool possible = false;
  int rc;

  TFD_TRY(tfd__body_copy(&g->body, &s.b));
  rc = tfd__pass_common(&s.b, g->variables_n);
  if (rc == TFD_OK) rc = tfd__pass_dead(&s.b);
  if (rc == TFD_OK) rc = make_room(&s);
  if (rc == TFD_OK) rc = build(&s, &possible);
  if (rc != TFD_OK || !possible) {
    tfd__pieces_free(s.pieces);
    s.pieces = NULL;
  }
  tfd__body_free(&s.b);
  tfd__free(s.maker);
  tfd__free(s.leaves);
  tfd__free(s.accesses);
  *pieces_p = s.pieces;
  return rc;
}

void tfd__pieces_free(tfd__pieces *p) {
  int i;

  if (p == NULL) return;
  for (i = 0; i < p->list_n; i++) {
    if (p->list[i].graph != NULL) tfd__graph_clear(p->list[i].graph);
    tfd__free(p->list[i].graph);
    tfd__free(p->list[i].in);
    tfd__free(p->list[i].out);
  }
  tfd__free(p->list);
  tfd__free(p->values);
  tfd__free(p->few);
  tfd__free(p->programs);
  tfd__free(p->results);
  tfd__free(p->last);
  tfd__free(p);
}

int tfd__pieces_count(const tfd__pieces *p) {
  return p->list_n;
}

tfd_graph *tfd__pieces_graph(const tfd__pieces *p, int i) {
  return p->list[i].graph;
}

int tfd__pieces_alone(const tfd__pieces *p, int i) {
  return p->list[i].alone;
}
