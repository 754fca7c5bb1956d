/* The arrays of a graph. */
#include <limits.h>
#include <string.h>

#include "graph/graph.h"

int tfd__list_grow(void **list_p, int n, int *room_p, int more, size_t size) {
  int room = *room_p < 16 ? 16 : *room_p;
  void *list = NULL;

  if (TFD_LIKELY(more <= *room_p - n)) return TFD_OK;
  while (more > room - n) {
    if (room > INT_MAX / 2) return tfd__no_memory(INT_MAX, "graph");
    room *= 2;
  }
  list = tfd__realloc(*list_p, (size_t)room * size);
  if (list == NULL) return tfd__no_memory((size_t)room * size, "graph");
  *list_p = list;
  *room_p = room;
  return TFD_OK;
}

int tfd__body_value(tfd__body *b, tfd__graph_value **value_p, int *number_p) {
  TFD_TRY(TFD_GROW(b->values, 1));
  *number_p = b->values_n++;
  *value_p = &b->values[*number_p];
  memset(*value_p, 0, sizeof **value_p);
  return TFD_OK;
}

static int copy_list(void **to_p, const void *from, int n, size_t size,
                     int *n_p, int *room_p) {
  size_t bytes = (size_t)n * size;

  *to_p = tfd__alloc(bytes);
  if (*to_p == NULL) return tfd__no_memory(bytes, "graph");
  if (n > 0) memcpy(*to_p, from, bytes);
  *n_p = n;
  *room_p = n;
  return TFD_OK;
}

#define COPY(list)                                                  \
  TFD_TRY(copy_list((void **)&to->list, from->list, from->list##_n, \
                    sizeof *from->list, &to->list##_n, &to->list##_room))

static int copy_all(const tfd__body *from, tfd__body *to) {
  COPY(values);
  COPY(nodes);
  COPY(operands);
  COPY(targets);
  COPY(ints);
  COPY(reals);
  COPY(results);
  return TFD_OK;
}

int tfd__body_copy(const tfd__body *from, tfd__body *to) {
  int rc;

  memset(to, 0, sizeof *to);
  rc = copy_all(from, to);
  if (rc != TFD_OK) tfd__body_free(to);
  return rc;
}

void tfd__body_free(tfd__body *b) {
  tfd__free(b->values);
  tfd__free(b->nodes);
  tfd__free(b->operands);
  tfd__free(b->targets);
  tfd__free(b->ints);
  tfd__free(b->reals);
  tfd__free(b->results);
  memset(b, 0, sizeof *b);
}

int tfd__node_reads(const tfd__body *b, const tfd__node *n) {
  const tfd__graph_value *v = NULL;

  if (n->op != tfd__op_at(TFD_OP_identity)) return -1;
  v = &b->values[b->operands[n->in]];
  return v->origin == TFD_FROM_VARIABLE ? v->of : -1;
}

bool tfd__body_keeps(const tfd__body *b, const int *maker, int v) {
  while (maker[v] >= 0 && tfd__node_is_view(&b->nodes[maker[v]])) {
    v = b->operands[b->nodes[maker[v]].in];
  }
  if (maker[v] >= 0) return b->nodes[maker[v]].targets_n == 0;
  return b->values[v].origin != TFD_FROM_VARIABLE;
}

/* Backwards, so that what views of a value say is known before. */
void tfd__body_lives(const tfd__body *b, int *last) {
  int k;
  int i;

  for (i = 0; i < b->values_n; i++) last[i] = -1;
  for (i = 0; i < b->results_n; i++) last[b->results[i]] = INT_MAX;
  for (k = b->nodes_n - 1; k >= 0; k--) {
    const tfd__node *n = &b->nodes[k];
    int until = k;

    if (n->dead) continue;
    for (i = 0; tfd__node_is_view(n) && i < n->out_n; i++) {
      if (last[n->out + i] > until) until = last[n->out + i];
    }
    for (i = 0; i < n->in_n; i++) {
      int v = b->operands[n->in + i];

      if (v >= 0 && last[v] < until) last[v] = until;
    }
  }
}

void tfd__flow_free(tfd__flow *f) {
  int i;

  for (i = 0; i < f->graphs_n; i++) tfd__release(f->graphs[i]);
  tfd__free(f->graphs);
  tfd__free(f->slots);
}
