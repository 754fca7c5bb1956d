/* Kernels that read rows chosen by indices. */
#include "backend/cpu/array/combine.h"

#include <string.h>

/* --- checking ------------------------------------------------------------- */

int tfd__index_fail(const tfd__call *call, const char *arg,
                    const tfd__view *indices, int64_t at, int64_t bound) {
  char text[TFD_POSITION_TEXT];

  (void)tfd__fail(TFD_INVALID_ARGUMENT, "%s: %s%s = %lld is outside [0, %lld)",
                  call->name, arg,
                  tfd__position_text(indices->dims, indices->rank, at, text),
                  (long long)tfd__index_at(indices, at), (long long)bound);
  return tfd__blame(call->name, arg, bound);
}

/* True if all lie in [0, bound): one unsigned comparison each, no branch. */
#define DEFINE_IN_RANGE(name, type)                                      \
  TFD_CLONES static bool name(const type *x, int64_t n, int64_t bound) { \
    uint64_t limit = (uint64_t)bound;                                    \
    int bad = 0;                                                         \
    int64_t i;                                                           \
                                                                         \
    for (i = 0; i < n; i++) bad |= (uint64_t)(int64_t)x[i] >= limit;     \
    return bad == 0;                                                     \
  }
DEFINE_IN_RANGE(in_range_32, int32_t)
DEFINE_IN_RANGE(in_range_64, int64_t)

int tfd__check_indices(const tfd__call *call, const char *arg,
                       const tfd__view *indices, int64_t bound) {
  bool ok = indices->dtype == TFD_INT64
                ? in_range_64(indices->data, indices->numel, bound)
                : in_range_32(indices->data, indices->numel, bound);
  int64_t i;

  if (ok) return TFD_OK;
  for (i = 0; i < indices->numel; i++) {
    int64_t x = tfd__index_at(indices, i);

    if (x < 0 || x >= bound) break;
  }
  return tfd__index_fail(call, arg, indices, i, bound);
}

/* --- gather --------------------------------------------------------------- */

/* params is [batch, outer, n, inner], indices [batch, m], the result
** [batch, outer, m, inner]; `bytes` is one inner row. */
typedef struct gather {
  const char *params;
  char *out;
  const tfd__view *indices;
  int64_t outer;
  int64_t n;
  int64_t m;
  int64_t bytes;
} gather;

#define DEFINE_COPY(name, size)                                                \
  static void name(const gather *g, const char *from, char *to, int64_t first, \
                   int64_t count) {                                            \
    int64_t j;                                                                 \
                                                                               \
    if (g->indices->dtype == TFD_INT64) {                                      \
      const int64_t *x = (const int64_t *)g->indices->data + first;            \
      for (j = 0; j < count; j++, to += (size)) {                              \
        memcpy(to, from + x[j] * (size), (size_t)(size));                      \
      }                                                                        \
    } else {                                                                   \
      const int32_t *x = (const int32_t *)g->indices->data + first;            \
      for (j = 0; j < count; j++, to += (size)) {                              \
        memcpy(to, from + (int64_t)x[j] * (size), (size_t)(size));             \
      }                                                                        \
    }                                                                          \
  }
DEFINE_COPY(copy_1, 1)
DEFINE_COPY(copy_2, 2)
DEFINE_COPY(copy_4, 4)
DEFINE_COPY(copy_8, 8)
DEFINE_COPY(copy_n, g->bytes)

/* Rows [begin, end) of the result. */
static void gather_rows(void *arg, int64_t begin, int64_t end) {
  const gather *g = arg;

  while (begin < end) {
    int64_t block = begin / g->m;
    int64_t j = begin % g->m;
    int64_t count = end - begin < g->m - j ? end - begin : g->m - j;
    int64_t first = block / g->outer * g->m + j;
    const char *from = g->params + block * g->n * g->bytes;
    char *to = g->out + begin * g->bytes;

    switch (g->bytes) {
    case 1:
      copy_1(g, from, to, first, count);
      break;
    case 2:
      copy_2(g, from, to, first, count);
      break;
    case 4:
      copy_4(g, from, to, first, count);
      break;
    case 8:
      copy_8(g, from, to, first, count);
      break;
    default:
      copy_n(g, from, to, first, count);
      break;
    }
    begin += count;
  }
}

/* ints: validate_indices, axis (list), batch_dims. */
int tfd__cpu_gather(const tfd__call *call) {
  const tfd__view *params = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  int64_t size = (int64_t)tfd__dtype_size(params->dtype);
  int batch = (int)call->ints[2 + TFD_MAX_RANK];
  int axis = call->ints[1] < 1 ? batch : (int)call->ints[2];
  int64_t inner = 0;
  gather g;

  if (batch < 0) batch += indices->rank;
  if (call->ints[1] < 1) axis = batch;
  if (axis < 0) axis += params->rank;
  TFD_TRY(tfd__check_indices(call, "indices", indices, params->dims[axis]));
  if (out->numel == 0) return TFD_OK;
  inner = tfd__span(params, axis + 1, params->rank);
  g.params = params->data;
  g.out = out->data;
  g.indices = indices;
  g.outer = tfd__span(params, batch, axis);
  g.n = params->dims[axis];
  g.m = tfd__span(indices, batch, indices->rank);
  g.bytes = inner * size;
  tfd__parallel_for(out->numel / inner, tfd__grain(inner), gather_rows, &g);
  return TFD_OK;
}

typedef struct spread {
  const gather *g;
  const tfd__view *out;
  const tfd__view *dy;
  int64_t *rows; /* destination of every row of dy */
} spread;

static void spread_rows(void *arg, int64_t begin, int64_t end) {
  const spread *w = arg;
  const gather *g = w->g;
  int64_t i;

  for (i = begin; i < end; i++) {
    int64_t block = i / g->m;
    int64_t at = block / g->outer * g->m + i % g->m;

    w->rows[i] = block * g->n + tfd__index_at(g->indices, at);
  }
}

/* Add rows of dy into zeros, where gather read them.
** ints: shape (list), axis, batch_dims. */
int tfd__cpu_gather_grad(const tfd__call *call) {
  const tfd__view *dy = tfd__in(call, 0);
  const tfd__view *indices = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  int axis = (int)call->ints[TFD_ARRAY_LISTS(1)];
  int batch = (int)call->ints[TFD_ARRAY_LISTS(1) + 1];
  int64_t inner = tfd__span(out, axis + 1, out->rank);
  gather g = {NULL,
              NULL,
              indices,
              tfd__span(out, batch, axis),
              out->dims[axis],
              tfd__span(indices, batch, indices->rank),
              0};
  spread w = {&g, out, dy, NULL};
  int64_t n = 0;

  TFD_TRY(tfd__check_indices(call, "indices", indices, out->dims[axis]));
  if (out->numel == 0) return TFD_OK;
  n = dy->numel / inner;
  w.rows = tfd__scratch((size_t)n * sizeof *w.rows + 1);
  if (w.rows == NULL) return tfd__no_memory((size_t)n * 8, call->name);
  tfd__parallel_for(n, TFD_GRAIN, spread_rows, &w);
  return tfd__sum_rows(out, w.rows, n, dy->data, inner);
}

/* Rows where ids >= 0, zeros elsewhere: what segment sums give back. */
int tfd__cpu_segment_gather(const tfd__call *call) {
  const tfd__view *params = tfd__in(call, 0);
  const tfd__view *ids = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  int64_t bytes = 0;
  int64_t j;

  if (ids->numel == 0 || out->numel == 0) return TFD_OK;
  bytes = out->numel / ids->numel * (int64_t)tfd__dtype_size(out->dtype);
  for (j = 0; j < ids->numel; j++) {
    int64_t id = tfd__index_at(ids, j);
    char *to = (char *)out->data + j * bytes;

    if (id >= params->dims[0]) {
      return tfd__index_fail(call, "segment_ids", ids, j, params->dims[0]);
    }
    if (id < 0) {
      memset(to, 0, (size_t)bytes);
    } else {
      memcpy(to, (const char *)params->data + id * bytes, (size_t)bytes);
    }
  }
  return TFD_OK;
}
