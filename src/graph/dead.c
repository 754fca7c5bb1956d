/* Dead code: what neither serves a result nor has an effect does not run. */
#include "graph/graph.h"

static void need_operands(const tfd__body *b, const tfd__node *n, bool *used) {
  int i;

  for (i = 0; i < n->in_n; i++) {
    int v = b->operands[n->in + i];

    if (v >= 0) used[v] = true;
  }
}

int tfd__pass_dead(tfd__body *b) {
  bool *used = tfd__calloc((size_t)b->values_n + 1, sizeof *used);
  int i;
  int k;

  if (used == NULL) return tfd__no_memory((size_t)b->values_n, "graph");
  for (i = 0; i < b->results_n; i++) used[b->results[i]] = true;
  for (k = b->nodes_n - 1; k >= 0; k--) {
    tfd__node *n = &b->nodes[k];
    bool alive = tfd__node_has_effect(n);

    for (i = 0; i < n->out_n; i++) alive = alive || used[n->out + i];
    n->dead = n->dead || !alive;
    if (!n->dead) need_operands(b, n, used);
  }
  tfd__free(used);
  return TFD_OK;
}
