/* Combining what replicas computed, wherever they are, and putting it where it
** is wanted. */
#include "distribute/distribute.h"

/* --- checks --------------------------------------------------------------- */

int tfd__check_recorder(const tfd_strategy *s, const char *what) {
  return tfd__group_is_alone(s->group) ? TFD_OK : tfd__refuse_recorder(what);
}

static int check_count(const char *what, int n) {
  if (n >= 1 && n <= TFD_MAX_REPLICAS) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR, "%s: %d components; expected 1 to %d", what,
                   n, TFD_MAX_REPLICAS);
}

/* --- over all processes ----------------------------------------------------
 */

/* Components that n here stand for in all processes. */
static int in_sync(const tfd_strategy *s, int n) {
  const tfd__group *g = s->group;

  return tfd__group_is_alone(g) ? n : g->size / g->local * n;
}

/* Means of whole numbers are divided sums. */
int tfd__reduce_in_sync(tfd_strategy *s, tfd_reduce_op op, const char *what,
                        tfd_tensor *const *in, int n, tfd_device *device,
                        tfd__deadline until, tfd_tensor **out_p) {
  bool divides = op == TFD_REDUCE_MEAN && !tfd__is_float(in[0]->view.dtype);
  tfd_tensor *result = NULL;
  tfd_tensor *mean = NULL;
  int rc;

  if (tfd__group_is_alone(s->group)) {
    TFD_TRY(tfd__check_components(s, what, in, n));
    return tfd__reduce_tensors(op, in, n, device, out_p);
  }
  TFD_TRY(tfd__reduce_over_workers(s, divides ? TFD_REDUCE_SUM : op, what, in,
                                   n, until, &result));
  if (divides) {
    rc = tfd__divide(result, in_sync(s, n), &mean);
    tfd__release(result);
    TFD_TRY(rc);
    result = mean;
  }
  rc = tfd_tensor_to_device(result, device, out_p);
  tfd__release(result);
  return rc;
}

/* --- slices --------------------------------------------------------------- */

static int concat(tfd_tensor *const *in, int n, int axis, tfd_device *device,
                  tfd_tensor **out_p) {
  const int64_t ints[1] = {axis};
  int out_n = 0;
  int rc;

  TFD_TRY(tfd_device_push(device));
  rc = tfd__run(TFD_OP_concat, in, n, ints, NULL, out_p, 1, &out_n);
  (void)tfd_device_pop();
  return rc;
}

static int check_slices(const tfd_strategy *s, const char *what,
                        tfd_slices *const *in, int n) {
  int i;
  int axis;

  for (i = 1; i < n; i++) {
    bool same = in[i]->rank == in[0]->rank &&
                in[i]->values->view.dtype == in[0]->values->view.dtype &&
                in[i]->indices->view.dtype == in[0]->indices->view.dtype;

    for (axis = 0; same && axis < in[i]->rank; axis++) {
      same = in[i]->dims[axis] == in[0]->dims[axis];
    }
    if (same) continue;
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: IndexedSlices of replica %d and of replica %d have "
                     "another dense shape or dtype",
                     what, tfd__replica_of(s, i), tfd__replica_of(s, 0));
  }
  return TFD_OK;
}

static int check_gather(const tfd_strategy *s, const char *what,
                        tfd_tensor *const *in, int n, int *axis_p) {
  const tfd__view *first = &in[0]->view;
  int rank = first->rank;
  int axis = *axis_p < 0 ? *axis_p + rank : *axis_p;
  int i;
  int d;

  for (i = 1; i < n; i++) {
    const tfd__view *v = &in[i]->view;

    if (v->rank != rank || v->dtype != first->dtype) {
      return tfd__components_differ(s, what, i, v, first,
                                    "ranks and dtypes must match");
    }
  }
  if (axis < 0 || axis >= rank) {
    return tfd__fail(
        TFD_VALUE_ERROR, "%s: axis %d is outside tensors of rank %d%s", what,
        *axis_p, rank, rank == 0 ? "; scalars cannot be gathered" : "");
  }
  for (i = 1; i < n; i++) {
    for (d = 0; d < rank; d++) {
      if (d == axis || in[i]->view.dims[d] == first->dims[d]) continue;
      return tfd__components_differ(
          s, what, i, &in[i]->view, first,
          "only the sizes along the gathered axis may differ");
    }
  }
  *axis_p = axis;
  return TFD_OK;
}

static int spread(tfd_strategy *s, tfd_object *x,
                  tfd_device *const *destinations, int n, tfd_value **result_p);

/* 0 = the group's. */
static tfd__deadline deadline_of(double timeout) {
  return timeout > 0 ? tfd__deadline_in(timeout) : 0;
}

static int ask_gather(tfd_strategy *s, const tfd__together *t,
                      tfd_value **result_p) {
  tfd_tensor *in[TFD_MAX_REPLICAS];
  tfd_tensor *joined = NULL;
  int rc;
  int i;

  for (i = 0; i < t->in_n; i++) TFD_TRY(tfd__operand(t->in[i], &in[i]));
  TFD_TRY(tfd__join_over_workers(s, t->axis, t->what, in, t->in_n,
                                 deadline_of(t->timeout), &joined));
  rc = spread(s, &joined->object, t->devices, t->devices_n, result_p);
  tfd__release(joined);
  return rc;
}

/* Join tensors of all processes, which a recorder may see as one step. */
static int gather_over_workers(tfd_strategy *s, int axis, const char *what,
                               tfd_tensor *const *in, int n,
                               tfd_device *const *devices, int devices_n,
                               double timeout, tfd_value **result_p) {
  tfd__together t = {.what = what,
                     .gathers = true,
                     .axis = axis,
                     .in = (tfd_object *const *)(const void *)in,
                     .in_n = n,
                     .devices = devices,
                     .devices_n = devices_n,
                     .timeout = timeout,
                     .ask = ask_gather};

  if (!tfd__records_together(s)) return ask_gather(s, &t, result_p);
  TFD_TRY(check_gather(s, what, in, n, &t.axis));
  return tfd__record_together(s, &t, result_p);
}

static int record_rows(tfd_strategy *s, const tfd__together *t,
                       tfd_tensor *const *in, tfd_tensor **out_p) {
  tfd_value *value = NULL;

  TFD_TRY(gather_over_workers(s, 0, t->what, in, t->in_n, t->devices, 1,
                              t->timeout, &value));
  tfd__retain(value->components[0]);
  *out_p = (tfd_tensor *)value->components[0];
  tfd__release(value);
  return TFD_OK;
}

/* Rows of all replicas in sync, those of this process on the first device. */
static int join_rows(tfd_strategy *s, const tfd__together *t,
                     tfd_tensor *const *in, tfd_tensor **out_p) {
  if (tfd__group_is_alone(s->group)) {
    return concat(in, t->in_n, 0, t->devices[0], out_p);
  }
  if (tfd__records_together(s)) return record_rows(s, t, in, out_p);
  return tfd__join_over_workers(s, 0, t->what, in, t->in_n,
                                deadline_of(t->timeout), out_p);
}

/* Joined values (divided for the mean) and indices, on the first device where
** all replicas are this process's. */
static int reduce_slices(tfd_strategy *s, const tfd__together *t,
                         tfd_slices **out_p) {
  tfd_slices *const *in = (tfd_slices *const *)t->in;
  int n = t->in_n;
  tfd_tensor *values[TFD_MAX_REPLICAS];
  tfd_tensor *indices[TFD_MAX_REPLICAS];
  tfd_tensor *all = NULL;
  tfd_tensor *rows = NULL;
  tfd_tensor *mean = NULL;
  int rc;
  int i;

  for (i = 0; i < n; i++) {
    values[i] = in[i]->values;
    indices[i] = in[i]->indices;
  }
  TFD_TRY_OR(rc = join_rows(s, t, values, &all), done);
  TFD_TRY_OR(rc = join_rows(s, t, indices, &rows), done);
  if (t->op == TFD_REDUCE_MEAN) {
    TFD_TRY_OR(rc = tfd__divide(all, in_sync(s, n), &mean), done);
    tfd__release(all);
    all = mean;
  }
  rc = tfd_slices_new(all, rows, in[0]->dims, in[0]->rank, out_p);

done:
  tfd__release(all);
  tfd__release(rows);
  return rc;
}

static int slices_to_device(tfd_slices *s, tfd_device *device,
                            tfd_object **out_p) {
  tfd_tensor *values = NULL;
  tfd_tensor *indices = NULL;
  tfd_slices *copy = NULL;
  int rc;

  TFD_TRY(tfd_tensor_to_device(s->values, device, &values));
  rc = tfd_tensor_to_device(s->indices, device, &indices);
  if (rc == TFD_OK) {
    rc = tfd_slices_new(values, indices, s->dims, s->rank, &copy);
  }
  tfd__release(values);
  tfd__release(indices);
  TFD_TRY(rc);
  *out_p = &copy->object;
  return TFD_OK;
}

/* --- results on every destination ----------------------------------------- */

static int to_device(tfd_object *x, tfd_device *device, tfd_object **out_p) {
  tfd_tensor *t = NULL;

  if (x->type == &tfd__slices_type) {
    return slices_to_device((tfd_slices *)x, device, out_p);
  }
  TFD_TRY(tfd_tensor_to_device((tfd_tensor *)x, device, &t));
  *out_p = &t->object;
  return TFD_OK;
}

/* Mirrored value of x on all destinations. */
static int spread(tfd_strategy *s, tfd_object *x,
                  tfd_device *const *destinations, int n,
                  tfd_value **result_p) {
  tfd_object *copies[TFD_MAX_REPLICAS];
  int rc = TFD_OK;
  int k = 0;

  while (rc == TFD_OK && k < n) {
    rc = to_device(x, destinations[k], &copies[k]);
    if (rc == TFD_OK) k++;
  }
  if (rc == TFD_OK) {
    rc = tfd_value_new(s, TFD_VALUE_MIRRORED, copies, n, result_p);
  }
  while (k > 0) tfd__release(copies[--k]);
  return rc;
}

static void release_all(tfd_tensor **list, int n) {
  while (n > 0) tfd__release(list[--n]);
}

/* Tensors behind the components; slices among tensors become dense, and all
** that this made is released by release_all on `made`. */
static int resolve(const tfd_strategy *s, const char *what,
                   tfd_object *const *components, int n, tfd_tensor **in,
                   tfd_tensor **made, int *made_n) {
  int i;

  for (i = 0; i < n; i++) {
    if (components[i] != NULL && components[i]->type == &tfd__slices_type) {
      TFD_TRY(tfd_slices_to_dense((tfd_slices *)components[i], &in[i]));
      made[(*made_n)++] = in[i];
    } else if (tfd__operand(components[i], &in[i]) != TFD_OK) {
      return tfd__wrap("%s: replica %d", what, tfd__replica_of(s, i));
    }
  }
  return TFD_OK;
}

bool tfd__all_slices(tfd_object *const *components, int n) {
  int i;

  for (i = 0; i < n; i++) {
    if (components[i] == NULL || components[i]->type != &tfd__slices_type) {
      return false;
    }
  }
  return true;
}

int tfd__reduce_together(tfd_strategy *s, const tfd__together *t,
                         tfd_value **result_p) {
  tfd_tensor *in[TFD_MAX_REPLICAS];
  tfd_tensor *made[TFD_MAX_REPLICAS];
  tfd_tensor *sum = NULL;
  tfd_slices *rows = NULL;
  tfd_object *result = NULL;
  int made_n = 0;
  int rc;

  if (tfd__records_together(s) && !tfd__all_slices(t->in, t->in_n)) {
    return tfd__record_together(s, t, result_p);
  }
  if (tfd__all_slices(t->in, t->in_n)) {
    if (t->op > TFD_REDUCE_MEAN) {
      return tfd__fail(TFD_NOT_IMPLEMENTED,
                       "%s: IndexedSlices have only sums and means", t->what);
    }
    TFD_TRY(check_slices(s, t->what, (tfd_slices *const *)t->in, t->in_n));
    TFD_TRY(reduce_slices(s, t, &rows));
    result = &rows->object;
  } else {
    rc = resolve(s, t->what, t->in, t->in_n, in, made, &made_n);
    if (rc == TFD_OK) {
      rc = tfd__reduce_in_sync(s, t->op, t->what, in, t->in_n, t->devices[0],
                               deadline_of(t->timeout), &sum);
    }
    release_all(made, made_n);
    TFD_TRY(rc);
    result = &sum->object;
  }
  rc = spread(s, result, t->devices, t->devices_n, result_p);
  tfd__release(result);
  return rc;
}

int tfd__strategy_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                         const char *what, tfd_object *const *components,
                         int components_n, tfd_device *const *destinations,
                         int destinations_n, double timeout,
                         tfd_value **result_p) {
  const tfd__together t = {.what = what,
                           .op = op,
                           .in = components,
                           .in_n = components_n,
                           .devices = destinations,
                           .devices_n = destinations_n,
                           .timeout = timeout,
                           .ask = tfd__reduce_together};

  TFD_TRY(check_count(what, components_n));
  TFD_TRY(check_count(what, destinations_n));
  return tfd__reduce_together(strategy, &t, result_p);
}

int tfd_strategy_reduce(tfd_strategy *strategy, tfd_reduce_op op,
                        const char *what, tfd_object *const *components,
                        int components_n, tfd_device *const *destinations,
                        int destinations_n, double timeout_seconds,
                        tfd_value **result_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_ENUM(op, TFD_REDUCE_SUM, TFD_REDUCE_PROD);
  TFD_GIVEN_POINTER(what);
  TFD_GIVEN_HANDLES(components, components_n, KINDS);
  TFD_GIVEN_HANDLES(destinations, destinations_n, DEVICE);
  TFD_GIVEN_POINTER(result_p);
  return strategy->ops->reduce(strategy, op, what, components, components_n,
                               destinations, destinations_n, timeout_seconds,
                               result_p);
}

bool tfd_strategy_adds_up(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, false);
  return strategy->ops->reduce == tfd__strategy_reduce;
}

int tfd_strategy_gather(tfd_strategy *strategy, int axis, const char *what,
                        tfd_object *const *components, int components_n,
                        tfd_device *const *destinations, int destinations_n,
                        double timeout_seconds, tfd_value **result_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(what);
  TFD_GIVEN_HANDLES(components, components_n, KINDS);
  TFD_GIVEN_HANDLES(destinations, destinations_n, DEVICE);
  TFD_GIVEN_POINTER(result_p);

  tfd_tensor *in[TFD_MAX_REPLICAS];
  tfd_tensor *joined = NULL;
  int rc;
  int i;

  TFD_TRY(check_count(what, components_n));
  TFD_TRY(check_count(what, destinations_n));
  for (i = 0; i < components_n; i++) {
    if (components[i] != NULL && components[i]->type == &tfd__slices_type) {
      return tfd__fail(TFD_NOT_IMPLEMENTED,
                       "%s: IndexedSlices cannot be gathered", what);
    }
    if (tfd__operand(components[i], &in[i]) != TFD_OK) {
      return tfd__wrap("%s: replica %d", what, tfd__replica_of(strategy, i));
    }
  }
  if (!tfd__group_is_alone(strategy->group)) {
    return gather_over_workers(strategy, axis, what, in, components_n,
                               destinations, destinations_n, timeout_seconds,
                               result_p);
  }
  TFD_TRY(check_gather(strategy, what, in, components_n, &axis));
  TFD_TRY(concat(in, components_n, axis, destinations[0], &joined));
  rc =
      spread(strategy, &joined->object, destinations, destinations_n, result_p);
  tfd__release(joined);
  return rc;
}

int tfd_strategy_broadcast(tfd_strategy *strategy, const char *what,
                           tfd_object *value, tfd_device *const *destinations,
                           int destinations_n, tfd_value **result_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(what);
  TFD_GIVEN_HANDLES(&value, 1, KINDS);
  TFD_GIVEN_HANDLES(destinations, destinations_n, DEVICE);
  TFD_GIVEN_POINTER(result_p);

  tfd_tensor *t = NULL;

  TFD_TRY(check_count(what, destinations_n));
  if (value == NULL || value->type != &tfd__slices_type) {
    TFD_TRY(tfd__operand(value, &t));
    value = &t->object;
  }
  return spread(strategy, value, destinations, destinations_n, result_p);
}
