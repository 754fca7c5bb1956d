/* Graphs that run node by node: each op through the dispatcher, as if the
** script ran it again, each flow by a frame.
**
** A frame knows which graph of its flow is next, what that is given, and what
** it leaves. Each runs as programs where it can, else it is replayed in turn.
** Cost of an iteration: what calls of its graphs cost, the look at the
** condition, which waits for the values, and one header for each carry. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

/* --- frames --------------------------------------------------------------- */

typedef enum phase {
  TO_CHOOSE = 0,
  TO_CHECK, /* a loop's condition */
  TO_TURN,  /* its body */
  AT_END
} phase;

enum { BODY = 0, CONDITION = 1 };

struct tfd__frame {
  tfd_graph *g; /* borrowed, as all of it */
  const tfd__node *node;
  const tfd__flow *flow;
  const int *last;  /* of the values of g */
  tfd__given given; /* of the call */
  int64_t *words;   /* of the iteration */
  phase phase;
  int64_t i;            /* iteration */
  int64_t n;            /* how many there are, -1 = the condition says */
  bool started;         /* the graph of this phase runs */
  const tfd_graph *now; /* which it is */
  tfd__replay *replay;  /* its replay, NULL = it was a program */
  tfd_tensor **slots;   /* owned references */
  tfd_tensor **inputs;  /* borrowed, of the graph that starts */
  tfd_tensor **rows;    /* those of the iteration among them; owned */
  tfd_tensor **results; /* of the graph that ran; owned */
  tfd_tensor ***stacks; /* for each: a list of owned rows, or NULL */
  int rows_room;
};

/* --- life of a frame
 * ----------------------------------------------------------------- */

static int most_inputs(const tfd__flow *f) {
  int most = 0;
  int i;

  for (i = 0; i < f->graphs_n; i++) {
    if (f->graphs[i]->inputs_n > most) most = f->graphs[i]->inputs_n;
  }
  return most;
}

static int most_results(const tfd__flow *f) {
  int most = 1;
  int i;

  for (i = 0; i < f->graphs_n; i++) {
    int n = f->graphs[i]->body.results_n;

    if (n > most) most = n;
  }
  return most;
}

static void release_all(tfd_tensor **list, int n) {
  int i;

  for (i = 0; i < n; i++) {
    tfd__release(list[i]);
    list[i] = NULL;
  }
}

static void frame_free(tfd__frame *f) {
  int i;

  if (f == NULL) return;
  if (f->replay != NULL) tfd__replay_free(f->now, f->replay);
  release_all(f->slots, f->node->in_n);
  release_all(f->results, most_results(f->flow));
  for (i = 0; i < f->flow->stacks_n; i++) {
    if (f->stacks[i] != NULL) release_all(f->stacks[i], f->rows_room);
    tfd__free(f->stacks[i]);
  }
  tfd__free(f);
}

static int read_number(tfd_tensor *t, int64_t *n_p) {
  double x = 0.0;

  TFD_TRY(tfd_tensor_item(t, 0, &x));
  *n_p = (int64_t)x;
  return TFD_OK;
}

/* The order of sums is that of memory: what a loop's gradient runs again with
** dense rows has the same bits only if an iteration began so. Tapes see it. */
static int make_dense(tfd__frame *f) {
  int i;

  for (i = 0; i < f->flow->carries_n; i++) {
    tfd_tensor **slot = &f->slots[TFD_CARRIES_SLOT + i];
    tfd_tensor *dense = NULL;
    int n = 0;

    if ((*slot)->view.dense) continue;
    TFD_TRY(tfd__run(TFD_OP_copy, slot, 1, NULL, NULL, &dense, 1, &n));
    tfd__release(*slot);
    *slot = dense;
  }
  return TFD_OK;
}

/* Rows and counts say how often before the first iteration. */
static int begin_loop(tfd__frame *f) {
  const tfd__flow *flow = f->flow;

  if (!flow->strided) TFD_TRY(make_dense(f));
  f->phase = flow->graphs_n > 1 ? TO_CHECK : TO_TURN;
  f->n = -1;
  if (f->slots[TFD_COUNT_SLOT] != NULL) {
    TFD_TRY(read_number(f->slots[TFD_COUNT_SLOT], &f->n));
    if (f->n < 0) f->n = 0;
  } else if (flow->graphs_n == 1 && flow->rows_n > 0) {
    const tfd_tensor *t = f->slots[TFD_CARRIES_SLOT + flow->carries_n];

    f->n = t->view.rank > 0 ? t->view.dims[0] : 0;
  }
  if (flow->most >= 0 && (f->n < 0 || f->n > flow->most)) f->n = flow->most;
  return TFD_OK;
}

static int frame_new(tfd_graph *g, int k, const int *last,
                     const tfd__given *given, tfd_tensor *const *operands,
                     tfd__frame **frame_p) {
  const tfd__node *node = &g->body.nodes[k];
  const tfd__flow *flow = &g->flows[node->flow];
  size_t slots = (size_t)node->in_n;
  size_t pointers = slots + 2 * (size_t)most_inputs(flow) +
                    (size_t)most_results(flow) + (size_t)flow->stacks_n;
  size_t bytes = sizeof(tfd__frame) + pointers * sizeof(void *) +
                 (size_t)g->draws_n * sizeof(int64_t);
  tfd__frame *f = tfd__calloc(1, bytes);
  int rc = TFD_OK;
  int i;

  if (f == NULL) return tfd__no_memory(bytes, "graph");
  f->g = g;
  f->node = node;
  f->flow = flow;
  f->last = last;
  f->given = *given;
  f->slots = (tfd_tensor **)(f + 1);
  f->inputs = f->slots + slots;
  f->rows = f->inputs + most_inputs(flow);
  f->results = f->rows + most_inputs(flow);
  f->stacks = (tfd_tensor ***)(f->results + most_results(flow));
  f->words = (int64_t *)(f->stacks + flow->stacks_n);
  for (i = 0; i < node->in_n; i++) {
    f->slots[i] = operands[i];
    tfd__retain(operands[i]);
  }
  if (flow->carries_n >= 0) rc = begin_loop(f);
  if (rc != TFD_OK) {
    frame_free(f);
    return rc;
  }
  *frame_p = f;
  return TFD_OK;
}

/* --- what a graph is given ------------------------------------------------ */

static uint64_t scatter(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* Iterations after the first draw from streams of their own: a seed made of the
** call's and the iteration's number. */
static void turn_words(tfd__frame *f) {
  const int64_t *from = f->given.words;
  int i;

  for (i = 0; i < f->g->draws_n; i += 4) {
    uint64_t seed = (uint64_t)from[i] | (uint64_t)from[i + 1] << 32;

    memcpy(f->words + i, from + i, 4 * sizeof *from);
    if (f->i == 0) continue;
    seed = scatter(seed + (uint64_t)f->i * 0x9e3779b97f4a7c15u);
    f->words[i] = (int64_t)(seed & UINT32_MAX);
    f->words[i + 1] = (int64_t)(seed >> 32);
  }
}

/* Row of the iteration, as an op that tapes see. */
static int take_row(const tfd__frame *f, tfd_tensor *t, tfd_tensor **row_p) {
  int64_t at = f->flow->reversed ? f->n - 1 - f->i : f->i;
  int64_t ints[4 * TFD_LIST_SLOTS] = {0};
  int64_t *begin = ints;
  int64_t *end = begin + TFD_LIST_SLOTS;
  int64_t *strides = end + TFD_LIST_SLOTS;
  int n = 0;
  int axis;

  if (t->view.rank == 0 || t->view.dims[0] != f->n) {
    char shape[TFD_SHAPE_TEXT];

    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: rows of %s for a loop of %lld iterations", f->g->name,
                     tfd__shape_text(&t->view, shape), (long long)f->n);
  }
  begin[0] = end[0] = strides[0] = t->view.rank;
  for (axis = 0; axis < t->view.rank; axis++) {
    begin[1 + axis] = axis == 0 ? at : 0;
    end[1 + axis] = axis == 0 ? at + 1 : t->view.dims[axis];
    strides[1 + axis] = 1;
  }
  strides[TFD_LIST_SLOTS] = 1; /* the mask: axis 0 goes */
  return tfd__run(TFD_OP_strided_slice, &t, 1, ints, NULL, row_p, 1, &n);
}

static bool is_row(const tfd__frame *f, int slot) {
  int first = TFD_CARRIES_SLOT + f->flow->carries_n;

  return f->flow->carries_n >= 0 && slot >= first &&
         slot < first + f->flow->rows_n;
}

static int check_given(const tfd__frame *f, const tfd_graph *g, int i) {
  const tfd__view *want = &g->body.values[g->inputs[i]].view;
  const tfd_tensor *t = f->inputs[i];
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (t == NULL) {
    return tfd__fail(TFD_INTERNAL, "graph \"%s\": input %d is not there",
                     g->name, i);
  }
  if (TFD_LIKELY(t->view.dtype == want->dtype &&
                 tfd__shapes_agree(&t->view, want))) {
    return TFD_OK;
  }
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: a value that was traced as %s %s has become %s %s",
                   g->name, tfd__dtype_name(want->dtype),
                   tfd__shape_text(want, b), tfd__dtype_name(t->view.dtype),
                   tfd__shape_text(&t->view, a));
}

/* Begin to run g: programs leave results, else there is a replay. */
static int run_graph(tfd__frame *f, tfd_graph *g, const tfd__given *given) {
  bool ran = false;

  if (tfd__context()->tapes == NULL) {
    TFD_TRY(g->run(g, f->inputs, given, f->results, &ran));
  }
  return ran ? TFD_OK : tfd__replay_new(g, f->inputs, given, &f->replay);
}

/* Start graph number k of the flow. */
static int start_graph(tfd__frame *f, int k) {
  tfd_graph *g = f->flow->graphs[k];
  tfd__given given = f->given;
  const int *slots = f->flow->slots;
  int rows_n = 0;
  int rc = TFD_OK;
  int i;

  for (i = 0; i < k; i++) slots += f->flow->graphs[i]->inputs_n;
  for (i = 0; rc == TFD_OK && i < g->inputs_n; i++) {
    f->inputs[i] = f->slots[slots[i]];
    if (!is_row(f, slots[i])) continue;
    rc = take_row(f, f->inputs[i], &f->rows[rows_n]);
    if (rc == TFD_OK) f->inputs[i] = f->rows[rows_n++];
  }
  if (f->phase != TO_CHOOSE && f->g->draws_n > 0) {
    turn_words(f);
    given.words = f->words;
  }
  for (i = 0; rc == TFD_OK && i < g->inputs_n; i++) rc = check_given(f, g, i);
  if (rc == TFD_OK) {
    rc = run_graph(f, g, &given);
  }
  release_all(f->rows, rows_n);
  f->now = g;
  f->started = rc == TFD_OK;
  return rc;
}

/* Let a replay go on; afterwards the results are there. */
static int go_on(tfd__frame *f, tfd_graph_event *event_p) {
  tfd_graph *g = (tfd_graph *)f->now;
  int i;

  *event_p = TFD_GRAPH_DONE;
  if (f->replay == NULL) return TFD_OK;
  TFD_TRY(tfd__replay_next(g, f->replay, event_p));
  if (*event_p == TFD_GRAPH_HOST) return TFD_OK;
  for (i = 0; i < g->body.results_n; i++) {
    TFD_TRY(
        tfd__replay_value(g, f->replay, g->body.results[i], &f->results[i]));
  }
  tfd__replay_free(g, f->replay);
  f->replay = NULL;
  return TFD_OK;
}

/* --- from phase to phase -------------------------------------------------- */

static int choose(const tfd__frame *f, int *k_p) {
  int64_t n = 0;

  TFD_TRY(read_number(f->slots[0], &n));
  *k_p = n >= 0 && n < f->flow->graphs_n ? (int)n : f->flow->graphs_n - 1;
  return TFD_OK;
}

static int check(tfd__frame *f) {
  int64_t holds = 0;
  int rc = read_number(f->results[0], &holds);

  release_all(f->results, 1);
  TFD_TRY(rc);
  f->phase = holds != 0 ? TO_TURN : AT_END;
  return TFD_OK;
}

static int make_stack_room(tfd__frame *f) {
  int room = f->n >= 0 && f->flow->graphs_n == 1 ? (int)f->n : f->rows_room * 2;
  int i;

  if (f->n > INT_MAX / 16) return tfd__no_memory((size_t)f->n * 8, "graph");
  if (room < 16) room = 16;
  for (i = 0; i < f->flow->stacks_n; i++) {
    int value = f->node->out + f->flow->carries_n + 1 + i;
    size_t bytes = (size_t)room * sizeof **f->stacks;
    tfd_tensor **more = NULL;

    if (f->last[value] < 0) continue;
    more = tfd__realloc(f->stacks[i], bytes);
    if (more == NULL) return tfd__no_memory(bytes, "graph");
    memset(more + f->rows_room, 0,
           (size_t)(room - f->rows_room) * sizeof *more);
    f->stacks[i] = more;
  }
  f->rows_room = room;
  return TFD_OK;
}

/* The body ran: carries move on, stacks grow. */
static int turn(tfd__frame *f) {
  int c = f->flow->carries_n;
  int i;

  if (tfd__interrupt_get()) {
    return tfd__fail(TFD_CANCELLED, "%s: interrupted", f->g->name);
  }
  if (f->flow->stacks_n > 0 && f->i >= f->rows_room) {
    TFD_TRY(make_stack_room(f));
  }
  for (i = 0; i < c; i++) {
    tfd__release(f->slots[TFD_CARRIES_SLOT + i]);
    f->slots[TFD_CARRIES_SLOT + i] = f->results[i];
    f->results[i] = NULL;
  }
  if (!f->flow->strided) TFD_TRY(make_dense(f));
  for (i = 0; i < f->flow->stacks_n; i++) {
    if (f->stacks[i] != NULL) {
      f->stacks[i][f->i] = f->results[c + i];
    } else {
      tfd__release(f->results[c + i]);
    }
    f->results[c + i] = NULL;
  }
  f->i++;
  if (f->flow->graphs_n > 1) f->phase = TO_CHECK;
  return TFD_OK;
}

/* The graph that is next, *k_p = -1 at the end. */
static int next_graph(tfd__frame *f, int *k_p) {
  *k_p = -1;
  if (f->phase == TO_CHOOSE) return choose(f, k_p);
  if (f->n >= 0 && f->i >= f->n) f->phase = AT_END;
  if (f->phase == TO_CHECK) *k_p = CONDITION;
  if (f->phase == TO_TURN) *k_p = BODY;
  return TFD_OK;
}

static int graph_ran(tfd__frame *f) {
  f->started = false;
  if (f->phase == TO_CHECK) return check(f);
  if (f->phase == TO_TURN) return turn(f);
  f->phase = AT_END; /* a choice: the results are those of the node */
  return TFD_OK;
}

static int frame_next(tfd__frame *f, tfd_graph_event *event_p) {
  *event_p = TFD_GRAPH_DONE;
  while (f->phase != AT_END) {
    if (!f->started) {
      int k = -1;

      TFD_TRY(next_graph(f, &k));
      if (k < 0) break;
      TFD_TRY(start_graph(f, k));
    }
    TFD_TRY(go_on(f, event_p));
    if (*event_p == TFD_GRAPH_HOST) return TFD_OK;
    TFD_TRY(graph_ran(f));
  }
  return TFD_OK;
}

tfd__replay *tfd__frame_inner(const tfd__frame *f, const tfd_graph **g_p) {
  if (f->replay != NULL) *g_p = f->now;
  return f->replay;
}

/* --- results -------------------------------------------------------------- */

static int make_count(const tfd__frame *f, tfd_tensor **t_p) {
  double n = (double)f->i;

  return tfd__tensor_from_doubles(f->node->device, TFD_INT32, NULL, 0, &n, t_p);
}

/* One tensor of n rows; pieces first where an op does not take so many. */
static int stack_rows(tfd_tensor **rows, int n, tfd_tensor **t_p) {
  enum { PIECE = 4096 };
  int64_t axis[1] = {0};
  tfd_tensor **pieces = NULL;
  int pieces_n = 0;
  int out_n = 0;
  int rc = TFD_OK;

  if (n <= PIECE) {
    return tfd__run(TFD_OP_stack, rows, n, axis, NULL, t_p, 1, &out_n);
  }
  pieces = tfd__calloc((size_t)(n / PIECE) + 1, sizeof *pieces);
  if (pieces == NULL) return tfd__no_memory((size_t)n, "graph");
  for (; rc == TFD_OK && pieces_n * PIECE < n; pieces_n++) {
    int rest = n - pieces_n * PIECE;

    rc = tfd__run(TFD_OP_stack, rows + pieces_n * PIECE,
                  rest < PIECE ? rest : PIECE, axis, NULL, &pieces[pieces_n], 1,
                  &out_n);
  }
  if (rc == TFD_OK) {
    rc = tfd__run(TFD_OP_concat, pieces, pieces_n, axis, NULL, t_p, 1, &out_n);
  }
  release_all(pieces, pieces_n);
  tfd__free(pieces);
  return rc;
}

static int make_stack(tfd__frame *f, int i, tfd_tensor **t_p) {
  const tfd__graph_value *v =
      &f->g->body.values[f->node->out + f->flow->carries_n + 1 + i];
  int64_t dims[TFD_MAX_RANK];
  tfd_tensor **rows = f->stacks[i];
  int n = (int)f->i;
  int a;
  int b;

  if (n == 0) {
    for (a = 0; a < v->view.rank; a++) {
      dims[a] = a == 0 || v->view.dims[a] < 0 ? 0 : v->view.dims[a];
    }
    return tfd__tensor_new(v->device, v->view.dtype, dims, v->view.rank, t_p);
  }
  for (a = 0, b = n - 1; f->flow->reversed && a < b; a++, b--) {
    tfd_tensor *row = rows[a];

    rows[a] = rows[b];
    rows[b] = row;
  }
  return stack_rows(rows, n, t_p);
}

static int frame_results(tfd__frame *f, tfd_tensor **results) {
  int c = f->flow->carries_n;
  int i;

  if (c < 0) {
    for (i = 0; i < f->node->out_n; i++) {
      results[i] = f->results[i];
      f->results[i] = NULL;
    }
    return TFD_OK;
  }
  memset(results, 0, (size_t)f->node->out_n * sizeof *results);
  for (i = 0; i < c; i++) {
    results[i] = f->slots[TFD_CARRIES_SLOT + i];
    tfd__retain(results[i]);
  }
  TFD_TRY(make_count(f, &results[c]));
  for (i = 0; i < f->flow->stacks_n; i++) {
    if (f->last[f->node->out + c + 1 + i] < 0) continue;
    TFD_TRY(make_stack(f, i, &results[c + 1 + i]));
  }
  return TFD_OK;
}

/* --- a whole flow --------------------------------------------------------- */

int tfd__flow_run(tfd_graph *g, int k, const int *last, const tfd__given *given,
                  tfd_tensor *const *operands, tfd_tensor **results) {
  int n = g->body.nodes[k].out_n;
  tfd_graph_event event = TFD_GRAPH_DONE;
  tfd__frame *f = NULL;
  int rc;

  memset(results, 0, (size_t)n * sizeof *results);
  TFD_TRY(frame_new(g, k, last, given, operands, &f));
  rc = frame_next(f, &event);
  if (rc == TFD_OK) rc = frame_results(f, results);
  if (rc != TFD_OK) release_all(results, n);
  frame_free(f);
  return rc;
}

/* --- replays -------------------------------------------------------------- */

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
  frame_free(r->frame);
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
  const tfd_context *c = tfd__context();
  size_t bytes = (size_t)(n->in_n + 1) * sizeof(tfd_tensor *);
  tfd_tensor **in = tfd__alloc(bytes);
  const char *file = c->file;
  int line = c->line;
  int rc;
  int i;

  if (in == NULL) return tfd__no_memory(bytes, n->joint->name);
  for (i = 0; i < n->in_n; i++) {
    in[i] = operand(g, r, g->body.operands[n->in + i]);
  }
  if (n->file != NULL) tfd_context_set_position(n->file, n->line);
  rc = n->joint->run(n->joint, in,
                     n->numbers >= 0 ? r->numbers + n->numbers
                                     : g->body.reals + n->reals,
                     r->values + n->out);
  tfd_context_set_position(file, line);
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
  if (n->reads) {
    TFD_TRY(tfd__value_of(in[0], out));
    return tfd__taken_for(in[0], out);
  }
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

/* The error is the node's, whoever asked for the graph to run; queued work said
** so itself. */
TFD_COLD static int blame(const tfd__node *n, int rc) {
  char where[256] = "";

  if (tfd_error_where()[0] != '\0') return rc;
  if (n->file != NULL && n->line > 0) {
    (void)snprintf(where, sizeof where, "%s:%d", n->file, n->line);
  }
  (void)tfd__error_set_place(n->replica, where);
  (void)tfd__error_set_note(n->note);
  return rc;
}

/* In the context that it was recorded in, as far as ops see it. */
static int run_placed(tfd_graph *g, tfd__replay *r, const tfd__node *n,
                      tfd_tensor **lists) {
  tfd_context *c = tfd__context();
  void *tapes = c->tapes;
  const char *file = c->file;
  const char *note = c->note;
  int line = c->line;
  int replica = c->replica;
  int rc;

  TFD_TRY(tfd_device_push(n->device));
  if (n->unfollowed) c->tapes = NULL;
  c->unfollowed += n->unfollowed;
  if (n->file != NULL) tfd_context_set_position(n->file, n->line);
  c->note = n->note;
  c->replica = n->replica;
  rc = run_node(g, r, n, lists, lists + n->in_n);
  if (!TFD_LIKELY(rc == TFD_OK)) (void)blame(n, rc);
  tfd_context_set_position(file, line);
  c->note = note;
  c->replica = replica;
  c->tapes = tapes;
  c->unfollowed -= n->unfollowed;
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

/* --- flows ---------------------------------------------------------------- */

static int begin_flow(tfd_graph *g, tfd__replay *r, int k) {
  const tfd__node *n = &g->body.nodes[k];
  tfd_tensor **operands = tfd__alloc(((size_t)n->in_n + 1) * sizeof *operands);
  tfd__given given = {.words = r->words, .numbers = r->numbers};
  int rc = TFD_OK;
  int i;

  if (operands == NULL) return tfd__no_memory((size_t)n->in_n * 8, "graph");
  for (i = 0; i < n->in_n; i++) {
    operands[i] = operand(g, r, g->body.operands[n->in + i]);
  }
  rc = frame_new(g, k, r->last, &given, operands, &r->frame);
  tfd__free(operands);
  return rc;
}

static int end_flow(tfd_graph *g, tfd__replay *r, int k) {
  int rc = frame_results(r->frame, r->values + g->body.nodes[k].out);

  frame_free(r->frame);
  r->frame = NULL;
  return rc;
}

/* The flow of node k, begun before if a step of the host lay in it. */
static int run_flow(tfd_graph *g, tfd__replay *r, int k,
                    tfd_graph_event *event_p) {
  const tfd__node *n = &g->body.nodes[k];
  tfd_context *c = tfd__context();
  void *tapes = c->tapes;
  int rc = TFD_OK;

  *event_p = TFD_GRAPH_DONE;
  if (n->unfollowed) c->tapes = NULL;
  if (r->frame == NULL) rc = begin_flow(g, r, k);
  if (rc == TFD_OK) rc = frame_next(r->frame, event_p);
  if (rc == TFD_OK && *event_p == TFD_GRAPH_DONE) rc = end_flow(g, r, k);
  c->tapes = tapes;
  return rc;
}

int tfd__replay_next(tfd_graph *g, tfd__replay *r, tfd_graph_event *event_p) {
  if (r->frame != NULL || r->resumes) {
    r->next--; /* in the middle of it */
  } else if (r->next > 0) {
    drop(g, r, r->next - 1);
  }
  r->resumes = false;
  while (r->next < g->body.nodes_n) {
    int k = r->next++;
    const tfd__node *n = &g->body.nodes[k];

    *event_p = TFD_GRAPH_HOST;
    if (n->dead) continue;
    if (tfd__node_is_host(n)) return TFD_OK;
    if (n->flow >= 0) {
      TFD_TRY(run_flow(g, r, k, event_p));
      if (*event_p == TFD_GRAPH_HOST) return TFD_OK;
    } else if (n->joint != NULL) {
      TFD_TRY(run_joint(g, r, n));
    } else {
      r->resumes = true;
      TFD_TRY(step(g, r, n));
      r->resumes = false;
    }
    drop(g, r, k);
  }
  *event_p = TFD_GRAPH_DONE;
  return TFD_OK;
}
