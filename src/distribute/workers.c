/* What takes part of other processes' replicas, too.
**
** Reductions are the group's all_reduce. Joining asks first what every replica
** has (one all_gather of shapes, which the host waits for), then moves all
** elements in one ragged all_gather and joins them here. What the host of each
** process has, not its replicas, goes as its first replica's: the others have
** nothing to give.
** Cost of a join: every process holds all replicas' elements twice, for a
** moment. */
#include "distribute/distribute.h"

#include <string.h>

/* One row for each replica: rank (NOTHING = it has nothing), dtype, the axis to
** join along, sizes. */
enum { RANK = 0, DTYPE = 1, AXIS = 2, DIMS = 3, ROW = DIMS + TFD_MAX_RANK };
enum { NOTHING = -1 };

typedef struct join {
  tfd_strategy *strategy;
  const char *what;
  tfd_tensor *in[TFD_MAX_REPLICAS]; /* owned: dense, on the devices */
  int given;           /* of these are somebody's; the rest empty */
  int64_t *rows;       /* owned: of all replicas */
  int64_t *counts;     /* owned: elements of each */
  bool alike;          /* no sizes may differ */
  int axis;            /* but along this one, if not */
  tfd__deadline until; /* 0 = the group's timeout */
} join;

/* --- calls ---------------------------------------------------------------- */

int tfd_strategy_enter(tfd_strategy *strategy, int owed, int64_t *mark_p) {
  uint64_t mark = 0;

  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(mark_p);
  tfd__group_enter(strategy->group, owed, &mark);
  *mark_p = (int64_t)mark;
  return TFD_OK;
}

int tfd_strategy_leave(tfd_strategy *strategy, int64_t mark, const char *error,
                       bool *met_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(error);
  TFD_GIVEN_POINTER(met_p);
  *met_p = tfd__group_leave(strategy->group, (uint64_t)mark,
                            error[0] == 0 ? NULL : error);
  return TFD_OK;
}

/* --- collectives ---------------------------------------------------------- */

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
  if (n == s->group->local || n == 1) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR,
                   "%s: %d components for %d replicas here; expected as many, "
                   "or one of the process",
                   what, n, s->group->local);
}

static int run_group(tfd_strategy *s, const tfd__collective *c,
                     tfd_tensor *const *in, tfd_tensor *const *out,
                     tfd__deadline until) {
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
  own.about = context->about;
  own.call = tfd__group_call(s->group);
  if (c->kind == TFD_COLLECTIVE_ALL_REDUCE) {
    own.about = tfd__about_shapes(own.about, from, 1, 1);
  }
  return tfd__group_run(s->group, &own, until);
}

/* --- shapes --------------------------------------------------------------- */

static int all_gather(const join *j, tfd_tensor *const *in,
                      tfd_tensor *const *out, const int64_t *counts) {
  tfd__collective c = {
      .kind = TFD_COLLECTIVE_ALL_GATHER, .what = j->what, .counts = counts};

  return run_group(j->strategy, &c, in, out, j->until);
}

/* A row of numbers on each device: the replica's own shape. */
static int shape_rows(const join *j, tfd_tensor **own) {
  const int64_t dims[1] = {ROW};
  int i;
  int d;

  for (i = 0; i < j->strategy->group->local; i++) {
    const tfd__view *v = &j->in[i]->view;
    int64_t row[ROW] = {[RANK] = i < j->given ? v->rank : NOTHING,
                        [DTYPE] = v->dtype,
                        [AXIS] = j->axis < 0 && j->axis >= -v->rank
                                     ? j->axis + v->rank
                                     : j->axis};

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

static bool has_something(const join *j, int replica) {
  return row_of(j, replica)[RANK] != NOTHING;
}

static int differs(const join *j, int r) {
  const int64_t *row = row_of(j, r);
  const int64_t *first = row_of(j, 0);
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: replica %d has %s %s, replica 0 has %s %s; %s", j->what,
                   r, tfd__dtype_name((int)row[DTYPE]),
                   tfd__dims_text(row + DIMS, (int)row[RANK], a),
                   tfd__dtype_name((int)first[DTYPE]),
                   tfd__dims_text(first + DIMS, (int)first[RANK], b),
                   j->alike ? "shapes and dtypes must match"
                            : "only the sizes along the gathered axis may "
                              "differ");
}

/* The axis of tensors of replica 0's rank. */
static int resolve_axis(join *j) {
  int rank = (int)row_of(j, 0)[RANK];
  int axis = j->axis < 0 ? j->axis + rank : j->axis;

  if (axis < 0 || axis >= rank) {
    return tfd__fail(
        TFD_VALUE_ERROR, "%s: axis %d is outside tensors of rank %d%s", j->what,
        j->axis, rank, rank == 0 ? "; scalars cannot be gathered" : "");
  }
  j->axis = axis;
  return TFD_OK;
}

static int axes_differ(const join *j, int r) {
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: replica %d gathers along axis %lld, replica 0 along "
                   "axis %lld; axes must match",
                   j->what, r, (long long)row_of(j, r)[AXIS],
                   (long long)row_of(j, 0)[AXIS]);
}

/* All have one rank, dtype and axis, and the same sizes but along the axis. */
static int check_shapes(join *j) {
  const int64_t *first = row_of(j, 0);
  int r;
  int d;

  for (r = 1; !j->alike && r < j->strategy->group->size; r++) {
    if (!has_something(j, r) || row_of(j, r)[RANK] != first[RANK]) continue;
    if (row_of(j, r)[AXIS] != first[AXIS]) return axes_differ(j, r);
  }
  if (!j->alike) TFD_TRY(resolve_axis(j));
  for (r = 1; r < j->strategy->group->size; r++) {
    const int64_t *row = row_of(j, r);
    bool same = row[RANK] == first[RANK] && row[DTYPE] == first[DTYPE];

    if (!has_something(j, r)) continue;
    for (d = 0; same && d < first[RANK]; d++) {
      same = (d == j->axis && !j->alike) || row[DIMS + d] == first[DIMS + d];
    }
    if (!same) return differs(j, r);
  }
  return TFD_OK;
}

static int count_elements(join *j) {
  int size = j->strategy->group->size;
  int r;
  int d;

  j->counts = tfd__calloc((size_t)size, sizeof *j->counts);
  if (j->counts == NULL) return tfd__no_memory((size_t)size * 8, j->what);
  for (r = 0; r < size; r++) {
    j->counts[r] = has_something(j, r);
    for (d = 0; d < row_of(j, r)[RANK]; d++) {
      j->counts[r] *= row_of(j, r)[DIMS + d];
    }
  }
  return TFD_OK;
}

/* Local replica i's elements in their place. */
static int take_input(join *j, tfd_tensor *const *in, int i) {
  tfd_device *device = j->strategy->devices[i];
  const int64_t none[1] = {0};

  if (i < j->given) return tfd__tensor_in_place(in[i], device, &j->in[i]);
  return tfd__tensor_new(device, in[0]->view.dtype, none, 1, &j->in[i]);
}

/* Bring inputs to their places and learn what all others have. */
static int begin(join *j, tfd_tensor *const *in, int n) {
  int i;

  TFD_TRY(check_count(j->strategy, j->what, n));
  j->given = n;
  for (i = 0; i < j->strategy->group->local; i++) {
    TFD_TRY(take_input(j, in, i));
  }
  TFD_TRY(exchange_shapes(j));
  TFD_TRY(check_shapes(j));
  return count_elements(j);
}

static void end(join *j) {
  release_list(j->in, j->strategy->group->local);
  tfd__free(j->rows);
  tfd__free(j->counts);
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

/* All replicas' elements as they were, those who have some. */
typedef struct parts {
  tfd_tensor **list; /* owned, as its entries */
  int n;
} parts;

static void release_parts(parts *p) {
  release_list(p->list, p->n);
  tfd__free(p->list);
}

static int cut(const join *j, const tfd_tensor *all, parts *p) {
  int size = j->strategy->group->size;
  int64_t at = 0;
  int r;

  p->list = tfd__calloc((size_t)size, sizeof(tfd_tensor *));
  if (p->list == NULL) {
    return tfd__no_memory((size_t)size * sizeof(tfd_tensor *), j->what);
  }
  for (r = 0; r < size; r++) {
    if (!has_something(j, r)) continue;
    TFD_TRY(part_of(j, all, r, at, &p->list[p->n]));
    p->n++;
    at += j->counts[r];
  }
  return TFD_OK;
}

/* All replicas' elements on the devices here; p has those of the first. */
static int gather_parts(const join *j, parts *p) {
  const tfd__group *g = j->strategy->group;
  tfd_tensor *all[TFD_MAX_REPLICAS] = {NULL};
  int64_t total[1] = {0};
  int rc = TFD_OK;
  int r;

  for (r = 0; r < g->size; r++) total[0] += j->counts[r];
  for (r = 0; rc == TFD_OK && r < g->local; r++) {
    rc = tfd__tensor_new(j->strategy->devices[r], (int)row_of(j, 0)[DTYPE],
                         total, 1, &all[r]);
  }
  if (rc == TFD_OK) rc = all_gather(j, j->in, all, j->counts);
  if (rc == TFD_OK) rc = cut(j, all[0], p);
  release_list(all, g->local);
  return rc;
}

int tfd__join_over_workers(tfd_strategy *s, int axis, const char *what,
                           tfd_tensor *const *in, int n, tfd__deadline until,
                           tfd_tensor **out_p) {
  join j = {.strategy = s, .what = what, .axis = axis, .until = until};
  parts p = {0};
  int out_n = 0;
  int rc;

  TFD_TRY(tfd_device_push(s->devices[0]));
  rc = begin(&j, in, n);
  if (rc == TFD_OK) rc = gather_parts(&j, &p);
  if (rc == TFD_OK) {
    const int64_t ints[1] = {j.axis};

    rc = tfd__run(TFD_OP_concat, p.list, p.n, ints, NULL, out_p, 1, &out_n);
  }
  (void)tfd_device_pop();
  release_parts(&p);
  end(&j);
  return rc;
}

/* --- reductions ----------------------------------------------------------- */

/* Of what each process's host has. */
static int reduce_hosts(tfd_strategy *s, tfd_reduce_op op, const char *what,
                        tfd_tensor *t, tfd__deadline until,
                        tfd_tensor **out_p) {
  join j = {.strategy = s, .what = what, .alike = true, .until = until};
  parts p = {0};
  int rc = begin(&j, &t, 1);

  if (rc == TFD_OK) rc = gather_parts(&j, &p);
  if (rc == TFD_OK) {
    rc = tfd__reduce_tensors(op, p.list, p.n, s->devices[0], out_p);
  }
  release_parts(&p);
  end(&j);
  return rc;
}

int tfd__reduce_over_workers(tfd_strategy *s, tfd_reduce_op op,
                             const char *what, tfd_tensor *const *in, int n,
                             tfd__deadline until, tfd_tensor **out_p) {
  tfd__collective c = {
      .kind = TFD_COLLECTIVE_ALL_REDUCE, .op = op, .what = what};
  tfd_tensor *near[TFD_MAX_REPLICAS] = {NULL};
  tfd_tensor *out[TFD_MAX_REPLICAS] = {NULL};
  int rc = TFD_OK;
  int i;

  TFD_TRY(check_count(s, what, n));
  if (n < s->group->local) {
    return reduce_hosts(s, op, what, in[0], until, out_p);
  }
  TFD_TRY(tfd__check_components(s, what, in, n));
  for (i = 0; rc == TFD_OK && i < n; i++) {
    const tfd__view *v = &in[i]->view;

    rc = tfd__tensor_in_place(in[i], s->devices[i], &near[i]);
    if (rc != TFD_OK) break;
    rc = tfd__tensor_new(s->devices[i], v->dtype, v->dims, v->rank, &out[i]);
  }
  if (rc == TFD_OK) rc = run_group(s, &c, near, out, until);
  if (rc == TFD_OK) {
    tfd__retain(out[0]);
    *out_p = out[0];
  }
  release_list(near, n);
  release_list(out, n);
  return rc;
}

/* --- what the first replica has ------------------------------------------- */

static int move_first(const join *j, tfd_tensor **out) {
  const tfd_strategy *s = j->strategy;
  const int64_t *row = row_of(j, 0);
  tfd__collective c = {.kind = TFD_COLLECTIVE_BROADCAST, .what = j->what};
  int i;

  for (i = 0; i < s->group->local; i++) {
    TFD_TRY(tfd__tensor_new(s->devices[i], (int)row[DTYPE], row + DIMS,
                            (int)row[RANK], &out[i]));
  }
  return run_group(j->strategy, &c, j->in, out, j->until);
}

int tfd__first_over_workers(tfd_strategy *s, bool rows, const char *what,
                            tfd_tensor *t, tfd_tensor **out_p) {
  join j = {.strategy = s, .what = what, .alike = !rows};
  tfd_tensor *out[TFD_MAX_REPLICAS] = {NULL};
  int rc = begin(&j, &t, 1);

  if (rc == TFD_OK) rc = move_first(&j, out);
  if (rc == TFD_OK) {
    tfd__retain(out[0]);
    *out_p = out[0];
  }
  release_list(out, s->group->local);
  end(&j);
  return rc;
}

static int ask_first(tfd_strategy *s, const tfd__together *t,
                     tfd_value **result_p) {
  tfd_tensor *own = NULL;
  tfd_tensor *first = NULL;
  tfd_object *object = NULL;
  int rc;

  TFD_TRY(tfd__operand(t->in[0], &own));
  TFD_TRY(tfd__first_over_workers(s, false, t->what, own, &first));
  object = &first->object;
  rc = tfd_value_new(s, TFD_VALUE_MIRRORED, &object, 1, result_p);
  tfd__release(first);
  return rc;
}

int tfd__first_of_all(tfd_strategy *s, const char *what, tfd_object *x,
                      tfd_tensor **out_p) {
  const tfd__together t = {.what = what,
                           .in = &x,
                           .in_n = 1,
                           .devices = s->devices,
                           .devices_n = 1,
                           .ask = ask_first};
  tfd_tensor *own = NULL;
  tfd_value *value = NULL;

  if (!tfd__records_together(s)) {
    TFD_TRY(tfd__operand(x, &own));
    return tfd__first_over_workers(s, false, what, own, out_p);
  }
  TFD_TRY(tfd__record_together(s, &t, &value));
  tfd__retain(value->components[0]);
  *out_p = (tfd_tensor *)value->components[0];
  tfd__release(value);
  return TFD_OK;
}
