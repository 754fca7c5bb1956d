/* Who reads a variable between two writes gets the value that the first of them
** gives, so that it may be computed where that is; before any write, the
** variable's memory. The read is then dead. */
#include <limits.h>

#include "graph/graph.h"

typedef struct forwarding {
  tfd__body *b;
  int *last;    /* value -> node that uses it last */
  int *next;    /* node that reads a variable -> the next write of that */
  int *written; /* variable -> its value, -1 = as it was before */
  int *same;    /* value -> value that stands for it */
} forwarding;

static void find_next_writes(const forwarding *f, int variables_n, int *write) {
  const tfd__body *b = f->b;
  int i;
  int k;

  for (i = 0; i < variables_n; i++) write[i] = INT_MAX;
  for (k = b->nodes_n - 1; k >= 0; k--) {
    const tfd__node *n = &b->nodes[k];
    int variable = n->dead || n->op == NULL ? -1 : tfd__node_reads(b, n);

    if (variable >= 0) f->next[k] = write[variable];
    for (i = 0; i < n->targets_n && !n->dead; i++) {
      write[b->targets[n->targets + i]] = k;
    }
  }
}

static void visit(forwarding *f, int k) {
  tfd__body *b = f->b;
  tfd__node *n = &b->nodes[k];
  int variable = n->op == NULL ? -1 : tfd__node_reads(b, n);
  int i;

  for (i = 0; i < n->in_n; i++) {
    int *v = &b->operands[n->in + i];

    if (*v >= 0) *v = f->same[*v];
  }
  /* What is used later than the next write is a copy, made by the read. */
  if (variable >= 0 && f->last[n->out] < f->next[k]) {
    f->same[n->out] =
        f->written[variable] >= 0 ? f->written[variable] : b->operands[n->in];
    n->dead = true;
  }
  for (i = 0; i < n->targets_n; i++) {
    f->written[b->targets[n->targets + i]] = n->out + i;
  }
}

int tfd__pass_forward(tfd__body *b, int variables_n) {
  size_t n =
      2 * (size_t)b->values_n + (size_t)b->nodes_n + (size_t)variables_n + 1;
  forwarding f = {.b = b, .last = tfd__alloc(n * sizeof(int))};
  int i;
  int k;

  if (f.last == NULL) return tfd__no_memory(n * sizeof(int), "graph");
  f.same = f.last + b->values_n;
  f.next = f.same + b->values_n;
  f.written = f.next + b->nodes_n;
  tfd__body_lives(b, f.last);
  find_next_writes(&f, variables_n, f.written);
  for (i = 0; i < variables_n; i++) f.written[i] = -1;
  for (i = 0; i < b->values_n; i++) f.same[i] = i;
  for (k = 0; k < b->nodes_n; k++) {
    if (!b->nodes[k].dead) visit(&f, k);
  }
  tfd__free(f.last);
  return TFD_OK;
}
