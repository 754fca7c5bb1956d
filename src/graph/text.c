/* Graphs as text, for people and for the specs of passes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"

typedef struct writer {
  char *text;
  int text_n, text_room;
  bool failed;
} writer;

TFD_PRINTF(2, 3) static void put(writer *w, const char *fmt, ...) {
  char line[640];
  va_list args;
  int n;

  va_start(args, fmt);
  n = vsnprintf(line, sizeof line, fmt, args);
  va_end(args);
  if (n < 0 || w->failed) return;
  if (n >= (int)sizeof line) n = (int)sizeof line - 1;
  if (TFD_GROW(w->text, n + 1) != TFD_OK) {
    w->failed = true;
    return;
  }
  memcpy(w->text + w->text_n, line, (size_t)n + 1);
  w->text_n += n;
}

static void put_value(writer *w, const tfd_graph *g, int v) {
  const tfd__graph_value *value = NULL;

  if (v < 0) {
    put(w, "-");
    return;
  }
  value = &g->body.values[v];
  switch (value->origin) {
  case TFD_FROM_VARIABLE:
    put(w, "\"%.200s\"", g->variables[value->of]->name);
    break;
  case TFD_FROM_CONSTANT:
    put(w, "c%d", value->of);
    break;
  case TFD_FROM_INPUT:
    put(w, "x%d", value->of);
    break;
  default:
    put(w, "%%%d", v);
    break;
  }
}

static void put_type(writer *w, const tfd__view *v) {
  char shape[TFD_SHAPE_TEXT];

  put(w, "%s %s", tfd__dtype_name(v->dtype), tfd__shape_text(v, shape));
}

static void put_place(writer *w, const tfd__node *n) {
  if (n->file != NULL && n->file[0] != '\0') {
    put(w, "  %s:%d", n->file, n->line);
  }
  put(w, "\n");
}

static void indent(writer *w, int depth) {
  put(w, "%*s", 2 * depth, "");
}

static void put_graph(writer *w, const tfd_graph *g, int depth);

/* The graphs of a flow with what each of their inputs is. */
static void put_flow(writer *w, const tfd_graph *g, const tfd__node *n,
                     int depth) {
  const tfd__flow *f = &g->flows[n->flow];
  const int *slots = f->slots;
  int i;
  int k;

  for (k = 0; k < f->graphs_n; k++) {
    indent(w, depth);
    if (f->carries_n < 0) {
      put(w, "branch %d:", k);
    } else {
      put(w, "%s:", k == 0 ? "body" : "condition");
    }
    for (i = 0; i < f->graphs[k]->inputs_n; i++) {
      put(w, " x%d = operand %d", i, *slots++);
    }
    put(w, "\n");
    put_graph(w, f->graphs[k], depth + 1);
  }
}

static const char *node_name(const tfd_graph *g, const tfd__node *n) {
  if (n->op != NULL) return n->op->name;
  if (n->joint != NULL) return n->joint->name;
  if (n->flow < 0) return "host";
  if (g->flows[n->flow].carries_n < 0) return "choice";
  return g->flows[n->flow].reversed ? "loop back" : "loop";
}

static void put_node(writer *w, const tfd_graph *g, const tfd__node *n,
                     int depth) {
  const tfd__body *b = &g->body;
  int i;

  indent(w, depth);
  for (i = 0; i < n->out_n && (n->targets_n == 0 || n->flow >= 0); i++) {
    put(w, "%s%%%d", i > 0 ? ", " : "", n->out + i);
  }
  for (i = 0; i < n->targets_n && n->flow < 0; i++) {
    put(w, "%s\"%.200s\"", i > 0 ? ", " : "",
        g->variables[b->targets[n->targets + i]]->name);
  }
  put(w, "%s%s(", tfd__node_is_host(n) && n->out_n == 0 ? "" : " = ",
      node_name(g, n));
  for (i = 0; i < n->in_n; i++) {
    if (i > 0) put(w, ", ");
    put_value(w, g, b->operands[n->in + i]);
  }
  put(w, ")");
  for (i = 0; i < n->out_n; i++) {
    put(w, "%s", i > 0 ? ", " : " ");
    put_type(w, &b->values[n->out + i].view);
  }
  put_place(w, n);
  if (n->flow >= 0) put_flow(w, g, n, depth + 1);
}

static void put_graph(writer *w, const tfd_graph *g, int depth) {
  const tfd__body *b = &g->body;
  int i;

  for (i = 0; i < b->nodes_n; i++) {
    if (!b->nodes[i].dead) put_node(w, g, &b->nodes[i], depth);
  }
  indent(w, depth);
  put(w, "results:");
  for (i = 0; i < b->results_n; i++) {
    put(w, " ");
    put_value(w, g, b->results[i]);
  }
  put(w, "\n");
}

static void put_recorded(writer *w, const tfd_graph *g) {
  const tfd__body *b = &g->body;
  int alive = 0;
  int i;

  for (i = 0; i < b->nodes_n; i++) alive += b->nodes[i].dead ? 0 : 1;
  put(w, "graph \"%.200s\": %d inputs, %d variables, %d constants, %d nodes\n",
      g->name, g->inputs_n, g->variables_n, g->constants_n, alive);
  for (i = 0; i < g->inputs_n; i++) {
    put(w, "  x%d: ", i);
    put_type(w, &b->values[g->inputs[i]].view);
    put(w, "\n");
  }
  put_graph(w, g, 1);
}

static void put_data(writer *w, const tfd__program *p, const tfd__view *v) {
  const char *base = p->arena->data;
  const char *data = v->data;

  if (v->dtype == 0) {
    put(w, "-");
  } else if (data >= base && data < base + p->arena->bytes) {
    put(w, "a+%td", data - base);
  } else {
    put(w, "*");
  }
}

/* One call; `lies` of those that go row by row, else NULL. */
static void put_call(writer *w, const tfd__program *p, const tfd__call *call,
                     const tfd__block_view *lies) {
  int i;

  put(w, "%s%s(", lies == NULL ? "  " : "    ", call->name);
  for (i = 0; i < call->in_n + call->out_n; i++) {
    if (i == call->in_n) put(w, ") ->");
    if (i != 0) put(w, i < call->in_n ? ", " : " ");
    if (lies != NULL && lies[i].inside >= 0) {
      put(w, "t+%" PRId64, lies[i].inside);
    } else {
      put_data(w, p, &call->views[i]);
    }
    if (i < call->in_n) continue;
    put(w, " ");
    put_type(w, &call->views[i]);
  }
  put(w, call->out_n == 0 ? ") ->\n" : "\n");
}

/* The plan of a call that goes row by row, else NULL. */
static const tfd__blocks *blocks_of(const tfd__program *p,
                                    const tfd__call *call) {
  int i;

  for (i = 0; i < p->fused_n; i++) {
    if (p->fused[i].blocks != NULL && p->fused[i].name == call->name) {
      return p->fused[i].blocks;
    }
  }
  return NULL;
}

static void put_calls(writer *w, const tfd__program *p, int k) {
  const tfd__blocks *b = blocks_of(p, &p->calls[k]);
  int view = 0;
  int i;

  if (b == NULL) {
    put_call(w, p, &p->calls[k], NULL);
    return;
  }
  put(w, "  %d calls, %" PRId64 " of %" PRId64 " rows at a time:\n", b->calls_n,
      b->rows_each, b->rows);
  for (i = 0; i < b->calls_n; i++) {
    tfd__call call = b->calls[i];

    call.views = p->calls[k].views + view;
    put_call(w, p, &call, b->lies + view);
    view += call.in_n + call.out_n;
  }
}

/* What the first sizes run, once no queued call moves its pointers. */
static const tfd__program *resting(const tfd_graph *g) {
  const tfd__program *p = g->programs[0];

  if (p != NULL) tfd__buffer_finish(p->arena);
  return p;
}

static void put_lowered(writer *w, const tfd_graph *g);

static void put_alone(writer *w, const tfd_graph *g, const tfd__node *n) {
  const tfd__flow *f = n->flow >= 0 ? &g->flows[n->flow] : NULL;
  int i;

  if (f == NULL) {
    put(w, "a step of all devices\n");
    return;
  }
  put(w, "a %s of\n", f->carries_n < 0 ? "choice" : "loop");
  for (i = 0; i < f->graphs_n; i++) put_lowered(w, f->graphs[i]);
}

static void put_records(writer *w, const tfd__program *p) {
  int calls = 0;
  int n = tfd__launches_kept(p, &calls);

  if (n == 0) return;
  put(w, "  %d of them are started at once, as %d record%s\n", calls, n,
      n == 1 ? "" : "s");
}

static void put_lowered(writer *w, const tfd_graph *g) {
  const tfd__program *p = resting(g);
  int i;

  for (i = 0; g->pieces != NULL && i < tfd__pieces_count(g->pieces); i++) {
    int alone = tfd__pieces_alone(g->pieces, i);

    if (alone < 0) put_lowered(w, tfd__pieces_graph(g->pieces, i));
    if (alone >= 0) put_alone(w, g, &g->body.nodes[alone]);
  }
  if (g->pieces != NULL) return;
  if (p == NULL) {
    put(w, "graph \"%.200s\" has no program: %s\n", g->name,
        g->replays ? "it is replayed" : "it has not run");
    return;
  }
  tfd__buffer_finish(p->arena); /* calls that run fill in pointers */
  put(w, "program \"%.200s\" on %s: %d calls, arena of %zu bytes\n", g->name,
      p->device->short_name, p->calls_n, p->arena->bytes);
  put_records(w, p);
  for (i = 0; i < p->calls_n; i++) put_calls(w, p, i);
}

/* Bytes that a view names; what repeats counts once. */
static double bytes_of(const tfd__view *v) {
  double bytes = v->dtype == 0 ? 0 : (double)tfd__dtype_size(v->dtype);
  int i;

  for (i = 0; i < v->rank; i++) {
    if (v->strides[i] != 0) bytes *= (double)v->dims[i];
  }
  return bytes;
}

/* What stays in a thread's own memory, or was there for a call before, counts
** as nothing. */
static double bytes_of_call(const tfd__program *p, const tfd__call *call) {
  const tfd__blocks *b = blocks_of(p, call);
  double bytes = 0;
  int i;

  for (i = 0; i < call->in_n + call->out_n; i++) {
    int k = 0;

    if (b != NULL && b->lies[i].inside >= 0) continue;
    while (b != NULL && k < i && call->views[k].data != call->views[i].data) {
      k++;
    }
    if (b == NULL || k == i) bytes += bytes_of(&call->views[i]);
  }
  return bytes;
}

static void put_costs(writer *w, const tfd_graph *g) {
  const tfd__program *p = resting(g);
  double flops = 0;
  double bytes = 0;
  int i;

  if (p == NULL) {
    put_lowered(w, g);
    return;
  }
  tfd__buffer_finish(p->arena);
  for (i = 0; i < p->calls_n; i++) {
    flops += p->flops[i];
    bytes += bytes_of_call(p, &p->calls[i]);
  }
  put(w,
      "costs of \"%.200s\": %d calls, %.0f flops, %.0f bytes read and "
      "written\n",
      g->name, p->calls_n, flops, bytes);
  for (i = 0; i < p->calls_n; i++) {
    put(w, "  %14.0f flops %14.0f bytes  %s\n", p->flops[i],
        bytes_of_call(p, &p->calls[i]), p->calls[i].name);
  }
}

const char *tfd_graph_text(tfd_graph *graph, const char *stage) {
  TFD_GIVEN_OR(graph, GRAPH, "");

  writer w = {NULL, 0, 0, false};

  if (stage != NULL && strcmp(stage, "lowered") == 0) {
    put_lowered(&w, graph);
  } else if (stage != NULL && strcmp(stage, "costs") == 0) {
    put_costs(&w, graph);
  } else {
    put_recorded(&w, graph);
  }
  tfd__free(graph->text);
  graph->text = w.text;
  return w.text == NULL ? "" : w.text;
}
