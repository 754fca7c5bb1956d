/* Optimizers on the rows that a sparse gradient names.
**
** Cost: a hash table of the rows, a sum for each different one, the rule on
** those rows; rules whose slots fade without gradients pass over all rows.
** Nothing of the size of the variable is made. */
#include "backend/cpu/array.h"
#include "backend/cpu/update/update.h"

#include <string.h>

typedef struct rows {
  const tfd__call *call;
  const tfd__update_rule *rule;
  const double *reals;
  void *targets[TFD_UPDATE_TARGETS];
  int dtype;
  int64_t inner;  /* elements of a row */
  size_t bytes;   /* of a row in the targets */
  size_t compute; /* of a row in the type that rules compute in */
  int64_t *table; /* open addressing: 1 + position in `list`, 0 = free */
  int64_t mask;
  int64_t *list; /* different rows in the order they were named */
  int64_t n;
  char *sums; /* their gradients */
} rows;

/* Where `row` is or would be in the table. */
static int64_t slot_of(const rows *r, int64_t row) {
  uint64_t hash = (uint64_t)row * UINT64_C(0x9e3779b97f4a7c15);
  int64_t i = (int64_t)(hash >> 32) & r->mask;

  while (r->table[i] != 0 && r->list[r->table[i] - 1] != row) {
    i = (i + 1) & r->mask;
  }
  return i;
}

static void add_row(const rows *r, int64_t u, int64_t j) {
  const tfd__view *values = tfd__in(r->call, r->rule->targets);
  const char *from = (const char *)values->data + j * (int64_t)r->bytes;
  char *to = r->sums + u * (int64_t)r->compute;
  int64_t i;

  if (r->dtype == TFD_FLOAT64) {
    const double *x = (const double *)(const void *)from;

    for (i = 0; i < r->inner; i++) ((double *)(void *)to)[i] += x[i];
  } else if (r->dtype == TFD_FLOAT32) {
    const float *x = (const float *)(const void *)from;

    for (i = 0; i < r->inner; i++) ((float *)(void *)to)[i] += x[i];
  } else {
    const uint16_t *x = (const uint16_t *)(const void *)from;

    for (i = 0; i < r->inner; i++) {
      ((float *)(void *)to)[i] += r->dtype == TFD_FLOAT16
                                      ? tfd__half_to_float(x[i])
                                      : tfd__bf16_to_float(x[i]);
    }
  }
}

/* Fill list and sums from the call's values and indices. */
static int collect(rows *r) {
  const tfd__view *indices = tfd__in(r->call, r->call->in_n - 1);
  int64_t n = indices->numel;
  int64_t slots = 16;
  int64_t j;

  TFD_TRY(tfd__check_indices(r->call, "indices", indices,
                             tfd__in(r->call, 0)->dims[0]));
  while (slots < 2 * n) slots *= 2;
  r->mask = slots - 1;
  r->table = tfd__scratch((size_t)slots * sizeof *r->table);
  r->list = tfd__scratch((size_t)n * sizeof *r->list + 1);
  r->sums = tfd__scratch((size_t)n * r->compute + 1);
  if (r->table == NULL || r->list == NULL || r->sums == NULL) {
    return tfd__no_memory((size_t)n * r->compute, r->call->name);
  }
  memset(r->table, 0, (size_t)slots * sizeof *r->table);
  for (j = 0; j < n; j++) {
    int64_t row = tfd__index_at(indices, j);
    int64_t slot = slot_of(r, row);

    if (r->table[slot] == 0) {
      memset(r->sums + r->n * (int64_t)r->compute, 0, r->compute);
      r->list[r->n++] = row;
      r->table[slot] = r->n;
    }
    add_row(r, r->table[slot] - 1, j);
  }
  return TFD_OK;
}

/* --- the rule ------------------------------------------------------------- */

static void apply(const rows *r, void *const *targets, int64_t row,
                  const void *g, int64_t n) {
  tfd__update_apply(r->rule, r->dtype, targets, row * r->inner, g, n, r->reals);
}

static void named_rows(void *arg, int64_t begin, int64_t end) {
  const rows *r = arg;
  int64_t u;

  for (u = begin; u < end; u++) {
    apply(r, r->targets, r->list[u], r->sums + u * (int64_t)r->compute,
          r->inner);
  }
}

enum { PIECE = 512 };

/* A row without a gradient: pieces whose variable is put back afterwards if
** the variable is to stay. */
static void fade_row(const rows *r, int64_t row) {
  static const double zeros[PIECE];
  double kept[PIECE];
  size_t size = r->bytes / (size_t)(r->inner > 0 ? r->inner : 1);
  int64_t at;

  for (at = 0; at < r->inner; at += PIECE) {
    int64_t n = r->inner - at < PIECE ? r->inner - at : PIECE;
    char *w = (char *)r->targets[0] + (row * r->inner + at) * (int64_t)size;

    memcpy(kept, w, (size_t)n * size);
    tfd__update_apply(r->rule, r->dtype, r->targets, row * r->inner + at, zeros,
                      n, r->reals);
    if (r->rule->rest == TFD_REST_SLOTS) memcpy(w, kept, (size_t)n * size);
  }
}

static void all_rows(void *arg, int64_t begin, int64_t end) {
  const rows *r = arg;
  int64_t row;

  for (row = begin; row < end; row++) {
    int64_t u = r->table[slot_of(r, row)] - 1;

    if (u >= 0) {
      apply(r, r->targets, row, r->sums + u * (int64_t)r->compute, r->inner);
    } else {
      fade_row(r, row);
    }
  }
}

/* Weight decay takes from all rows, also from those without a gradient: then
** it is a pass of its own. */
static void decay(const rows *r, int64_t numel) {
  double share = r->call->reals[0];
  int64_t i;

  for (i = 0; i < numel; i++) {
    char *w = (char *)r->targets[0] + i * (int64_t)tfd__dtype_size(r->dtype);

    tfd__store(w, r->dtype, tfd__load(w, r->dtype) * (1 - share));
  }
}

int tfd__update_rows(const tfd__call *call, const tfd__update_rule *rule) {
  const tfd__view *v = tfd__in(call, 0);
  double reals[8];
  rows r = {.call = call, .rule = rule, .reals = reals, .dtype = v->dtype};
  int t;

  if (v->numel == 0) return TFD_OK;
  r.inner = v->numel / v->dims[0];
  r.bytes = (size_t)r.inner * tfd__dtype_size(v->dtype);
  r.compute = (size_t)r.inner *
              (v->dtype == TFD_FLOAT64 ? sizeof(double) : sizeof(float));
  TFD_TRY(collect(&r));
  for (t = 0; t < rule->targets; t++) {
    r.targets[t] = tfd__out(call, t)->data;
    if (r.targets[t] != tfd__in(call, t)->data) {
      memcpy(r.targets[t], tfd__in(call, t)->data, tfd__view_bytes(v));
    }
  }
  memcpy(reals, call->reals, (size_t)call->reals_n * sizeof *reals);
  if (reals[0] != 0) {
    decay(&r, v->numel);
    reals[0] = 0;
  }
  if (rule->rest == TFD_REST_STAYS) {
    tfd__parallel_for(r.n, tfd__grain(r.inner), named_rows, &r);
  } else {
    tfd__parallel_for(v->dims[0], tfd__grain(r.inner), all_rows, &r);
  }
  return TFD_OK;
}
