/* Writing distributed variables: synchronization x aggregation.
**
**                 in a replica                      elsewhere
**   mirrored      its copy (aggregation NONE),      every copy
**                 else together with all replicas
**   on read       its copy                          every copy; SUM: of assign
**                                                   each gets its part
**   aggregating   together; NONE: an error          the variable
**
** Together: what the replicas give is combined by the aggregation and written
** to every copy. Source: tf.distribute values.py, and decisions of this
** project where TensorFlow's versions differ. */
#include "distribute/distribute.h"

static const char *const names[] = {
    [TFD_WRITE_ASSIGN] = "assign",
    [TFD_WRITE_ASSIGN_ADD] = "assign_add",
    [TFD_WRITE_ASSIGN_SUB] = "assign_sub",
};

static const char *name_of(const tfd_mirrored *m) {
  return m->components[0]->name;
}

static int no_aggregation(const tfd_mirrored *m, const char *what) {
  tfd__fail(TFD_VALUE_ERROR,
            "%s: You must specify an aggregation method to update the "
            "AggregatingVariable \"%s\" in replica context",
            what, name_of(m));
  return tfd__hint("pass aggregation = \"SUM\", \"MEAN\" or "
                   "\"ONLY_FIRST_REPLICA\" to tf.Variable");
}

int tfd_mirrored_route(const tfd_mirrored *mirrored, const char *what,
                       tfd_write_route *route_p) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_POINTER(what);
  TFD_GIVEN_POINTER(route_p);

  const tfd_mirrored *m = mirrored;
  const tfd_context *c = tfd__context();
  bool none = m->aggregation == TFD_AGGREGATION_NONE;

  if (c->replica >= 0 && c->strategy == m->strategy) {
    if (m->kind == TFD_VARIABLE_AGGREGATING && none) {
      return no_aggregation(m, what);
    }
    *route_p = m->kind == TFD_VARIABLE_SYNC_ON_READ ||
                       (none && m->kind == TFD_VARIABLE_MIRRORED)
                   ? TFD_ROUTE_COPY
                   : TFD_ROUTE_MERGE;
    return TFD_OK;
  }
  *route_p = tfd__component_index(m->strategy, m->n) >= 0 ? TFD_ROUTE_COPY
                                                          : TFD_ROUTE_ALL;
  return TFD_OK;
}

/* Rows as a tensor of their own, to be released; anything else as it is. */
static int whole(tfd_object *value, tfd_object **whole_p, tfd_tensor **made_p) {
  *whole_p = value;
  if (!tfd__is_open(value, TFD_HANDLE_SLICES)) return TFD_OK;
  TFD_TRY(tfd_slices_to_dense((tfd_slices *)value, made_p));
  *whole_p = &(*made_p)->object;
  return TFD_OK;
}

static int write_whole(tfd_variable *copy, tfd_write_op op, tfd_object *value) {
  switch (op) {
  case TFD_WRITE_ASSIGN_ADD:
    return tfd_variable_assign_add(copy, value);
  case TFD_WRITE_ASSIGN_SUB:
    return tfd_variable_assign_sub(copy, value);
  default:
    return tfd_variable_assign(copy, value);
  }
}

static int write_copy(tfd_variable *copy, tfd_write_op op, tfd_object *value) {
  tfd_tensor *made = NULL;
  int rc;

  TFD_TRY(whole(value, &value, &made));
  rc = write_whole(copy, op, value);
  tfd__release(made);
  return rc;
}

/* What copy i takes of `value`: its component where there is one for each. */
static int part_for(tfd_object *value, int i, tfd_object **part_p) {
  if (tfd__is_open(value, TFD_HANDLE_VALUE)) {
    tfd_value *v = (tfd_value *)value;

    if (i >= v->n || v->components[i] == NULL) {
      return tfd__fail(TFD_INDEX_ERROR,
                       "distributed value: no tensor %d; there are %d", i,
                       v->n);
    }
    *part_p = v->components[i];
  } else if (tfd__is_open(value, TFD_HANDLE_MIRRORED) &&
             ((tfd_mirrored *)value)->kind == TFD_VARIABLE_MIRRORED) {
    tfd_mirrored *m = (tfd_mirrored *)value;

    *part_p = &m->components[i < m->n ? i : 0]->object;
  } else {
    *part_p = value;
  }
  return TFD_OK;
}

/* A recorder's values are brought where they are used; but another copy's must
** be read before that one is written. Owns: *part_p. */
static int record_part(const tfd_mirrored *m, tfd_tensor *t, int i,
                       tfd_tensor **part_p) {
  const tfd_variable *v = t->variable;

  if (v != NULL && v->whole == m && v != m->components[i]) {
    return tfd__value_of(t, part_p);
  }
  tfd__retain(t);
  *part_p = t;
  return TFD_OK;
}

/* What copy i takes, on its device unless it is recorded. Owns: *there_p. */
static int bring_part(const tfd_mirrored *m, tfd_object *value, int i,
                      tfd_tensor **there_p) {
  tfd_tensor *made = NULL;
  tfd_tensor *t = NULL;
  int rc;

  TFD_TRY(part_for(value, i, &value));
  TFD_TRY(whole(value, &value, &made));
  rc = tfd__operand(value, &t);
  if (rc == TFD_OK && tfd__context()->recorder != NULL) {
    rc = record_part(m, t, i, there_p);
  } else if (rc == TFD_OK) {
    rc = tfd__tensor_to_device(t, m->components[i]->value->device, there_p);
  }
  tfd__release(made);
  return rc;
}

/* All copies' values are where they are wanted before the first one is written:
** a device that has no memory for its own leaves the copies alike. A copy whose
** buffer others show, too, takes memory for its sum only when it is written. */
static int write_brought(tfd_mirrored *m, tfd_write_op op, tfd_object *value) {
  tfd_tensor *there[TFD_MAX_REPLICAS] = {NULL};
  int rc = TFD_OK;
  int i;

  for (i = 0; i < m->n && rc == TFD_OK; i++) {
    rc = bring_part(m, value, i, &there[i]);
  }
  for (i = 0; i < m->n && rc == TFD_OK; i++) {
    rc = write_whole(m->components[i], op, &there[i]->object);
  }
  for (i = 0; i < m->n; i++) tfd__release(there[i]);
  return rc;
}

static int write_all(tfd_mirrored *m, tfd_write_op op, tfd_object *value) {
  bool reads_anew = m->kind == TFD_VARIABLE_SYNC_ON_READ && value == &m->object;
  tfd_object *part = NULL;
  int i;

  /* Each copy takes what the variable is once those before are written, as in
  ** TensorFlow. */
  if (m->n > 1 && !reads_anew) return write_brought(m, op, value);
  for (i = 0; i < m->n; i++) {
    TFD_TRY(part_for(value, i, &part));
    TFD_TRY(write_copy(m->components[i], op, part));
  }
  return TFD_OK;
}

/* value / copies of all replicas in the variable's dtype. Owns: *part_p. */
static int divided(tfd_mirrored *m, tfd_object *value, tfd_tensor **part_p) {
  tfd_tensor *in[2] = {NULL, NULL};
  tfd_tensor *made = NULL;
  tfd_tensor *quotient = NULL;
  int64_t dtype = m->components[0]->value->view.dtype;
  double copies = m->strategy->group->size;
  int n = 0;
  int rc;

  TFD_TRY(whole(value, &value, &made));
  rc = tfd__operand(value, &in[0]);
  if (rc == TFD_OK) {
    rc = tfd_tensor_from_values(&copies, 1, (tfd_dtype)dtype, NULL, 0, &in[1]);
  }
  if (rc == TFD_OK) {
    rc = tfd__run(TFD_OP_divide, in, 2, NULL, NULL, &quotient, 1, &n);
  }
  tfd__release(in[1]);
  tfd__release(made);
  TFD_TRY(rc);
  rc = tfd__run(TFD_OP_cast, &quotient, 1, &dtype, NULL, part_p, 1, &n);
  tfd__release(quotient);
  return rc;
}

static int write_on_read(tfd_mirrored *m, tfd_write_op op, tfd_object *value) {
  tfd_tensor *part = NULL;
  int rc;

  if (m->aggregation != TFD_AGGREGATION_SUM) return write_all(m, op, value);
  if (op != TFD_WRITE_ASSIGN) {
    tfd__fail(TFD_VALUE_ERROR,
              "SyncOnReadVariable does not support `%s` in cross-replica "
              "context when aggregation is set to SUM (variable \"%s\")",
              names[op], name_of(m));
    return tfd__hint("call it in the replica function");
  }
  TFD_TRY(divided(m, value, &part));
  rc = write_all(m, op, &part->object);
  tfd__release(part);
  return rc;
}

static int check_together(const tfd_mirrored *m, const char *what,
                          tfd_object *value) {
  const tfd_value *v = (const tfd_value *)value;

  if (!tfd__is_open(value, TFD_HANDLE_VALUE) ||
      v->kind != TFD_VALUE_PER_REPLICA ||
      tfd__component_index(v->strategy, v->n) >= 0) {
    return TFD_OK;
  }
  tfd__fail(TFD_VALUE_ERROR,
            "%s: variable \"%s\" cannot take a PerReplica value in "
            "cross-replica context",
            what, name_of(m));
  return tfd__hint("strategy:reduce(\"mean\", x) makes one tensor of it");
}

int tfd_mirrored_write_all(tfd_mirrored *mirrored, tfd_write_op op,
                           tfd_object *value) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_ENUM(op, TFD_WRITE_ASSIGN, TFD_WRITE_ASSIGN_SUB);
  TFD_TRY(check_together(mirrored, names[op], value));
  if (mirrored->kind == TFD_VARIABLE_SYNC_ON_READ) {
    return write_on_read(mirrored, op, value);
  }
  return write_all(mirrored, op, value);
}

int tfd_mirrored_write(tfd_mirrored *mirrored, tfd_write_op op,
                       tfd_object *value) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_ENUM(op, TFD_WRITE_ASSIGN, TFD_WRITE_ASSIGN_SUB);

  tfd_mirrored *m = mirrored;
  tfd_write_route route = TFD_ROUTE_ALL;
  int i;

  TFD_TRY(tfd_mirrored_route(m, names[op], &route));
  if (route == TFD_ROUTE_ALL) return tfd_mirrored_write_all(m, op, value);
  i = tfd__component_index(m->strategy, m->n);
  if (route == TFD_ROUTE_COPY) return write_copy(m->components[i], op, value);
  return tfd__fail(TFD_RUNTIME_ERROR,
                   "%s of variable \"%s\": the replicas write it together; "
                   "stop the replica at a sync point and combine their values "
                   "there",
                   names[op], name_of(m));
}

/* Rows as all processes get them from the first. */
static int first_slices(const tfd_mirrored *m, const char *what, tfd_slices *s,
                        tfd_object **first_p) {
  tfd_tensor *values = NULL;
  tfd_tensor *indices = NULL;
  tfd_slices *first = NULL;
  int rc;

  TFD_TRY(tfd__check_recorder(m->strategy, what));
  rc = tfd__first_over_workers(m->strategy, true, what, s->values, &values);
  if (rc == TFD_OK) {
    rc = tfd__first_over_workers(m->strategy, true, what, s->indices, &indices);
  }
  if (rc == TFD_OK) {
    rc = tfd_slices_new(values, indices, s->dims, s->rank, &first);
  }
  tfd__release(values);
  tfd__release(indices);
  TFD_TRY(rc);
  *first_p = &first->object;
  return TFD_OK;
}

/* What the first of all replicas gives. Owns: *first_p. */
static int take_first(const tfd_mirrored *m, const char *what,
                      tfd_object *value, tfd_object **first_p) {
  bool alone = tfd__group_is_alone(m->strategy->group);
  tfd_object *own = NULL;
  tfd_tensor *t = NULL;
  tfd_tensor *first = NULL;

  TFD_TRY(part_for(value, 0, &own));
  if (tfd__is_open(own, TFD_HANDLE_SLICES)) {
    if (!alone) return first_slices(m, what, (tfd_slices *)own, first_p);
  } else {
    TFD_TRY(tfd__operand(own, &t));
    if (!alone) {
      TFD_TRY(tfd__first_of_all(m->strategy, what, own, &first));
      *first_p = &first->object;
      return TFD_OK;
    }
  }
  tfd__retain(own);
  *first_p = own;
  return TFD_OK;
}

/* What all replicas give, as the aggregation says. Owns: *combined_p. */
static int combine(const tfd_mirrored *m, const char *what,
                   tfd_object *const *values, int values_n,
                   tfd_object **combined_p) {
  tfd_device *devices[TFD_MAX_REPLICAS];
  tfd_value *sum = NULL;
  int i;

  if (m->aggregation == TFD_AGGREGATION_ONLY_FIRST_REPLICA) {
    return take_first(m, what, values[0], combined_p);
  }
  for (i = 0; i < m->n; i++) devices[i] = m->components[i]->value->device;
  TFD_TRY(tfd_strategy_reduce(
      m->strategy,
      m->aggregation == TFD_AGGREGATION_MEAN ? TFD_REDUCE_MEAN : TFD_REDUCE_SUM,
      what, values, values_n, devices, m->n, 0, &sum));
  *combined_p = &sum->object;
  return TFD_OK;
}

int tfd_mirrored_combine(tfd_mirrored *mirrored, const char *what,
                         tfd_object *const *values, int values_n,
                         tfd_object **combined_p) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_POINTER(what);
  TFD_GIVEN_HANDLES(values, values_n, KINDS);
  TFD_GIVEN_POINTER(combined_p);

  tfd_mirrored *m = mirrored;
  uint32_t before = 0;
  int rc;

  if (values_n < 1) {
    return tfd__fail(TFD_VALUE_ERROR, "%s of variable \"%s\": no values", what,
                     name_of(m));
  }
  if (m->aggregation == TFD_AGGREGATION_NONE) return no_aggregation(m, what);
  before = tfd__set_about(m->components[0]->number);
  rc = combine(m, what, values, values_n, combined_p);
  (void)tfd__set_about(before);
  return rc;
}

int tfd_mirrored_write_merged(tfd_mirrored *mirrored, tfd_write_op op,
                              tfd_object *const *values, int values_n) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_ENUM(op, TFD_WRITE_ASSIGN, TFD_WRITE_ASSIGN_SUB);

  tfd_object *combined = NULL;
  int rc;

  TFD_TRY(
      tfd_mirrored_combine(mirrored, names[op], values, values_n, &combined));
  rc = tfd_mirrored_write_all(mirrored, op, combined);
  tfd__release(combined);
  return rc;
}
