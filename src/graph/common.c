/* Common subexpressions: nodes of one op with the same operands, attributes and
** device give the same bits, so that one of them is enough. Updates, steps of
** the host, flows, random and stateful ops are all themselves; reads of a
** variable are the same between two writes. */
#include <string.h>

#include "graph/graph.h"

typedef struct common {
  tfd__body *b;
  int *same;     /* value -> value that stands for it */
  int *heads;    /* hash -> node, -1 = none */
  int *links;    /* node -> node of the same hash */
  int heads_n;   /* a power of two */
  int *writes;   /* variable -> writes so far */
  int *versions; /* node -> of the variable that it reads */
} common;

static uint64_t mix(uint64_t h, uint64_t x) {
  return (h ^ x) * 0x9e3779b97f4a7c15u + (h >> 29);
}

static uint64_t hash_of(const common *c, int k) {
  const tfd__body *b = c->b;
  const tfd__node *n = &b->nodes[k];
  uint64_t h = mix((uint64_t)(n->op - tfd__op_at(0)), (uint64_t)n->in_n);
  int i;

  for (i = 0; i < n->in_n; i++) h = mix(h, (uint64_t)b->operands[n->in + i]);
  for (i = 0; i < n->op->ints_n; i++)
    h = mix(h, (uint64_t)b->ints[n->ints + i]);
  return h ^ h >> 32;
}

static bool same_nodes(const common *c, int k, int other) {
  const tfd__body *b = c->b;
  const tfd__node *x = &b->nodes[k];
  const tfd__node *y = &b->nodes[other];

  return x->op == y->op && x->device == y->device && x->in_n == y->in_n &&
         x->out_n == y->out_n && x->replica == y->replica &&
         x->unfollowed == y->unfollowed &&
         c->versions[k] == c->versions[other] &&
         memcmp(b->operands + x->in, b->operands + y->in,
                (size_t)x->in_n * sizeof *b->operands) == 0 &&
         memcmp(b->ints + x->ints, b->ints + y->ints,
                (size_t)x->op->ints_n * sizeof *b->ints) == 0 &&
         memcmp(b->reals + x->reals, b->reals + y->reals,
                (size_t)x->op->reals_n * sizeof *b->reals) == 0;
}

static void merge(common *c, int k) {
  tfd__body *b = c->b;
  tfd__node *n = &b->nodes[k];
  int *head = &c->heads[hash_of(c, k) & ((uint64_t)c->heads_n - 1)];
  int other = *head;
  int i;

  while (other >= 0 && !same_nodes(c, k, other)) other = c->links[other];
  if (other < 0) {
    c->links[k] = *head;
    *head = k;
    return;
  }
  n->dead = true;
  for (i = 0; i < n->out_n; i++) {
    c->same[n->out + i] = b->nodes[other].out + i;
  }
}

static void visit(common *c, int k) {
  tfd__body *b = c->b;
  tfd__node *n = &b->nodes[k];
  int reads = -1;
  int i;

  for (i = 0; i < n->in_n; i++) {
    int *v = &b->operands[n->in + i];

    if (*v >= 0) *v = c->same[*v];
  }
  for (i = 0; i < n->targets_n; i++) c->writes[b->targets[n->targets + i]]++;
  if (n->op == NULL || tfd__node_has_effect(n) || n->draw >= 0 ||
      (n->op->flags & TFD_OP_STATEFUL) != 0) {
    return;
  }
  reads = tfd__node_reads(b, n);
  c->versions[k] = reads >= 0 ? c->writes[reads] : 0;
  merge(c, k);
}

/* All lists are parts of one block. */
static int *divide(common *c, int variables_n) {
  size_t nodes = (size_t)c->b->nodes_n;
  size_t n = (size_t)c->b->values_n + (size_t)c->heads_n + 2 * nodes +
             (size_t)variables_n;
  int *block = tfd__calloc(n, sizeof *block);

  if (block == NULL) return NULL;
  c->same = block;
  c->heads = c->same + c->b->values_n;
  c->links = c->heads + c->heads_n;
  c->versions = c->links + nodes;
  c->writes = c->versions + nodes;
  return block;
}

int tfd__pass_common(tfd__body *b, int variables_n) {
  common c = {.b = b, .heads_n = 64};
  int *block = NULL;
  int i;

  while (c.heads_n < b->nodes_n) c.heads_n *= 2;
  block = divide(&c, variables_n);
  if (block == NULL) return tfd__no_memory((size_t)b->values_n, "graph");
  for (i = 0; i < b->values_n; i++) c.same[i] = i;
  for (i = 0; i < c.heads_n; i++) c.heads[i] = -1;
  for (i = 0; i < b->nodes_n; i++) {
    if (!b->nodes[i].dead) visit(&c, i);
  }
  for (i = 0; i < b->results_n; i++) b->results[i] = c.same[b->results[i]];
  tfd__free(block);
  return TFD_OK;
}
