/* What takes part of other processes' replicas, too.
**
** Reductions are the group's all_reduce. Joining asks first what every replica
** has (one all_gather of shapes, which the host waits for), then moves all
** elements in one ragged all_gather and joins them here.
** Cost of a join: every process holds all replicas' elements twice, for a
** moment. */
#include "distribute/distribute.h"

#include <string.h>

/* One row for each replica: rank, dtype, sizes. */
enum { RANK = 0, DTYPE = 1, DIMS = 2, ROW = DIMS + TFD_MAX_RANK };

typedef struct join {
  tfd_strategy *strategy;
  const char *what;
  tfd_tensor *in[TFD_MAX_REPLICAS]; /* owned: dense, on the devices */
  int64_t *rows;                    /* owned: of all replicas */
  int axis;                         /* negative from the end */
} join;

/* --- reductions ----------------------------------------------------------- */

int tfd__tensor_in_place(tfd_tensor *t, tfd_device *device, tfd_tensor **p) {
  tfd_tensor *near = NULL;
  int rc;

  TFD_TRY(tfd__tensor_to_device(t, device, &near));
  rc = tfd__tensor_dense(near, p);
  tfd__release(near);
  return rc;
}

static void release_list(tfd_tensor **list, int n) {
  while (n > 0) tfd__release(list[--n]);
}

static int check_count(const tfd_strategy *s, const char *what, int n) {
  if (n == s->group->local) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR,
                   "%s: %d components for %d replicas here; expected as many",
                   what, n, s->group->local);
}

static int run_group(tfd_strategy *s, const tfd__collective *c,
                     tfd_tensor *const *in, tfd_tensor *const *out) {
  const tfd_context *context = tfd__context();
  tfd__collective own = *c;
  tfd__piece from[TFD_MAX_REPLICAS];
  tfd__piece to[TFD_MAX_REPLICAS];
  int i;

  for (i = 0; i < s->group->local; i++) {
    from[i] = (tfd__piece){in[i]->buffer, &in[i]->view};
    to[i] = (tfd__piece){out[i]->buffer, &out[i]->view};
  }
  own.values = 1;
  own.in = from;
  own.out = to;
  own.line = context->line;
  own.file = context->file;
  return tfd__group_run(s->group, &own, 0);
}

int tfd__reduce_over_workers(tfd_strategy *s, tfd_reduce_op op,
                             const char *what, tfd_tensor *const *in, int n,
                             tfd_tensor **out_p) {
  tfd__collective c = {
      .kind = TFD_COLLECTIVE_ALL_REDUCE, .op = op, .what = what};
  tfd_tensor *near[TFD_MAX_REPLICAS] = {NULL};
  tfd_tensor *out[TFD_MAX_REPLICAS] = {NULL};
  int rc = TFD_OK;
  int i;

  TFD_TRY(check_count(s, what, n));
  for (i = 0; rc == TFD_OK && i < n; i++) {
    const tfd__view *v = &in[i]->view;

    rc = tfd__tensor_in_place(in[i], s->devices[i], &near[i]);
    if (rc != TFD_OK) break;
    rc = tfd__tensor_new(s->devices[i], v->dtype, v->dims, v->rank, &out[i]);
  }
  if (rc == TFD_OK) rc = run_group(s, &c, near, out);
  if (rc == TFD_OK) {
    tfd__retain(out[0]);
    *out_p = out[0];
  }
  release_list(near, n);
  release_list(out, n);
  return rc;
}

/* --- shapes --------------------------------------------------------------- */

static int all_gather(const join *j, tfd_tensor *const *in,
                      tfd_tensor *const *out, const int64_t *counts) {
  tfd__collective c = {
      .kind = TFD_COLLECTIVE_ALL_GATHER, .what = j->what, .counts = counts};

  return run_group(j->strategy, &c, in, out);
}

/* A row of numbers on each device: the replica's own shape. */
static int shape_rows(const join *j, tfd_tensor **own) {
  const int64_t dims[1] = {ROW};
  int i;
  int d;

  for (i = 0; i < j->strategy->group->local; i++) {
    const tfd__view *v = &j->in[i]->view;
    int64_t row[ROW] = {[RANK] = v->rank, [DTYPE] = v->dtype};

    for (d = 0; d < v->rank; d++) row[DIMS + d] = v->dims[d];
    TFD_TRY(
        tfd__tensor_new(j->strategy->devices[i], TFD_INT64, dims, 1, &own[i]));
    TFD_TRY(tfd__host_write(own[i]->buffer, 0, row, sizeof row));
  }
  return TFD_OK;
}

static int exchange_shapes(join *j) {
  const tfd__group *g = j->strategy->group;
  tfd_tensor *own[TFD_MAX_REPLICAS] = {NULL};
  tfd_tensor *all[TFD_MAX_REPLICAS] = {NULL};
  const int64_t dims[1] = {(int64_t)ROW * g->size};
  size_t bytes = (size_t)dims[0] * sizeof *j->rows;
  int rc = TFD_OK;
  int i;

  j->rows = tfd__alloc(bytes);
  if (j->rows == NULL) return tfd__no_memory(bytes, j->what);
  for (i = 0; rc == TFD_OK && i < g->local; i++) {
    rc = tfd__tensor_new(j->strategy->devices[i], TFD_INT64, dims, 1, &all[i]);
  }
  if (rc == TFD_OK) rc = shape_rows(j, own);
  if (rc == TFD_OK) rc = all_gather(j, own, all, NULL);
  if (rc == TFD_OK) rc = tfd__host_read(all[0]->buffer, 0, j->rows, bytes);
  release_list(own, g->local);
  release_list(all, g->local);
  return rc;
}

static const int64_t *row_of(const join *j, int replica) {
  return j->rows + (ptrdiff_t)replica * ROW;
}

/* All have one rank and dtype, and the same sizes but along the axis. */
static int check_shapes(join *j) {
  const int64_t *first = row_of(j, 0);
  int axis = j->axis < 0 ? j->axis + (int)first[RANK] : j->axis;
  int r;
  int d;

  if (axis < 0 || axis >= first[RANK]) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "%s: axis %d is outside tensors of rank %d", j->what,
                     j->axis, (int)first[RANK]);
  }
  j->axis = axis;
  for (r = 1; r < j->strategy->group->size; r++) {
    const int64_t *row = row_of(j, r);
    bool same = row[RANK] == first[RANK] && row[DTYPE] == first[DTYPE];
    char a[TFD_SHAPE_TEXT];
    char b[TFD_SHAPE_TEXT];

    for (d = 0; same && d < first[RANK]; d++) {
      same = d == axis || row[DIMS + d] == first[DIMS + d];
    }
    if (same) continue;
    return tfd__fail(
        TFD_INVALID_ARGUMENT,
        "%s: replica %d has %s %s, replica 0 has %s %s; only the sizes along "
        "the gathered axis may differ",
        j->what, r, tfd__dtype_name((int)row[DTYPE]),
        tfd__dims_text(row + DIMS, (int)row[RANK], a),
        tfd__dtype_name((int)first[DTYPE]),
        tfd__dims_text(first + DIMS, (int)first[RANK], b));
  }
  return TFD_OK;
}

/* --- elements ------------------------------------------------------------- */

/* Replica r's part of all elements, which begins with element `at`. */
static int part_of(const join *j, const tfd_tensor *all, int r, int64_t at,
                   tfd_tensor **part_p) {
  const int64_t *row = row_of(j, r);
  tfd__view v = all->view;

  TFD_TRY(tfd__view_set(&v, (int)row[DTYPE], row + DIMS, (int)row[RANK]));
  v.data = (char *)v.data + (size_t)at * tfd__dtype_size(v.dtype);
  return tfd__tensor_alias(all, &v, part_p);
}

static int concat_parts(const join *j, const tfd_tensor *all,
                        const int64_t *counts, tfd_tensor **out_p) {
  const tfd__group *g = j->strategy->group;
  size_t bytes = (size_t)g->size * sizeof(tfd_tensor *);
  tfd_tensor **parts = tfd__calloc((size_t)g->size, sizeof *parts);
  const int64_t ints[1] = {j->axis};
  int64_t at = 0;
  int out_n = 0;
  int rc = TFD_OK;
  int r;

  if (parts == NULL) return tfd__no_memory(bytes, j->what);
  for (r = 0; rc == TFD_OK && r < g->size; r++) {
    rc = part_of(j, all, r, at, &parts[r]);
    at += counts[r];
  }
  if (rc == TFD_OK) {
    rc = tfd__run(TFD_OP_concat, parts, g->size, ints, NULL, out_p, 1, &out_n);
  }
  release_list(parts, g->size);
  tfd__free(parts);
  return rc;
}

/* All replicas' elements on the devices here, joined on the first one. */
static int join_elements(const join *j, tfd_tensor **out_p) {
  const tfd__group *g = j->strategy->group;
  tfd_tensor *all[TFD_MAX_REPLICAS] = {NULL};
  int64_t *counts = tfd__calloc((size_t)g->size, sizeof *counts);
  int64_t total[1] = {0};
  int rc = TFD_OK;
  int r;
  int d;

  if (counts == NULL) return tfd__no_memory((size_t)g->size * 8, j->what);
  for (r = 0; r < g->size; r++) {
    counts[r] = 1;
    for (d = 0; d < row_of(j, r)[RANK]; d++) {
      counts[r] *= row_of(j, r)[DIMS + d];
    }
    total[0] += counts[r];
  }
  for (r = 0; rc == TFD_OK && r < g->local; r++) {
    rc = tfd__tensor_new(j->strategy->devices[r], (int)row_of(j, 0)[DTYPE],
                         total, 1, &all[r]);
  }
  if (rc == TFD_OK) rc = all_gather(j, j->in, all, counts);
  if (rc == TFD_OK) rc = concat_parts(j, all[0], counts, out_p);
  release_list(all, g->local);
  tfd__free(counts);
  return rc;
}

int tfd__join_over_workers(tfd_strategy *s, int axis, const char *what,
                           tfd_tensor *const *in, int n, tfd_tensor **out_p) {
  join j = {.strategy = s, .what = what, .axis = axis};
  int rc = TFD_OK;
  int i;

  TFD_TRY(check_count(s, what, n));
  TFD_TRY(tfd_device_push(s->devices[0]));
  for (i = 0; rc == TFD_OK && i < s->group->local; i++) {
    rc = tfd__tensor_in_place(in[i], s->devices[i], &j.in[i]);
  }
  if (rc == TFD_OK) rc = exchange_shapes(&j);
  if (rc == TFD_OK) rc = check_shapes(&j);
  if (rc == TFD_OK) rc = join_elements(&j, out_p);
  (void)tfd_device_pop();
  release_list(j.in, s->group->local);
  tfd__free(j.rows);
  return rc;
}
