/* Variables with copies on several devices. Writing them is the business of
** the copies; this file knows which copy a read means. */
#include "distribute/distribute.h"

#include <string.h>

static void mirrored_destroy(void *self) {
  tfd_mirrored *m = self;
  int i;

  for (i = 0; i < m->n; i++) {
    if (m->components[i]->whole == m) m->components[i]->whole = NULL;
    tfd__release(m->components[i]);
  }
  tfd__release(m->combined);
  tfd__release(m->strategy);
  tfd__free(m);
}

/* The copy on the current device, else the first. */
static int closest(const tfd_mirrored *m) {
  tfd_device *device = NULL;
  int i;

  if (tfd__default_device(&device) != TFD_OK) return 0;
  for (i = 0; i < m->n; i++) {
    if (m->components[i]->value->device == device) return i;
  }
  return 0;
}

static uint64_t versions(const tfd_mirrored *m) {
  uint64_t sum = 0;
  int i;

  for (i = 0; i < m->n; i++) sum += m->components[i]->version;
  return sum;
}

/* The same as one step of a recorder's. */
static int record_combined(tfd_mirrored *m, tfd_reduce_op op, const char *what,
                           tfd_device *device, tfd_tensor **out_p) {
  tfd_object *in[TFD_MAX_REPLICAS];
  tfd_value *value = NULL;
  int i;

  for (i = 0; i < m->n; i++) in[i] = &m->components[i]->object;
  TFD_TRY(tfd_strategy_reduce(m->strategy, op, what, in, m->n, &device, 1, 0,
                              &value));
  tfd__retain(value->components[0]);
  *out_p = (tfd_tensor *)value->components[0];
  tfd__release(value);
  return TFD_OK;
}

static int combine_now(tfd_mirrored *m, tfd_device *device,
                       tfd_tensor **out_p) {
  static const char what[] = "SyncOnReadVariable";
  tfd_tensor *in[TFD_MAX_REPLICAS];
  tfd_reduce_op op =
      m->aggregation == TFD_AGGREGATION_MEAN ? TFD_REDUCE_MEAN : TFD_REDUCE_SUM;
  int i;

  for (i = 0; i < m->n; i++) in[i] = m->components[i]->value;
  if (m->aggregation == TFD_AGGREGATION_ONLY_FIRST_REPLICA) {
    return tfd__first_of_all(m->strategy, what, &m->components[0]->object,
                             out_p);
  }
  if (tfd__records_together(m->strategy)) {
    return record_combined(m, op, what, device, out_p);
  }
  return tfd__reduce_in_sync(m->strategy, op, what, in, m->n, device, 0, out_p);
}

/* The copies of all replicas as one. */
static int combine_copies(tfd_mirrored *m, tfd_device *device,
                          tfd_tensor **out_p) {
  uint32_t before = tfd__set_about(m->components[0]->number);
  int rc = combine_now(m, device, out_p);

  (void)tfd__set_about(before);
  return rc == TFD_OK ? rc
                      : tfd__wrap("variable \"%s\"", m->components[0]->name);
}

/* Kept until one of the copies is written. Not where several processes write
** theirs, of which nobody here knows, or of a recorder: what it saw is of no
** use to others. What is not kept lives as long as the call that it is an
** operand of, which may read the variable once more. */
static int combine(tfd_mirrored *m, tfd_tensor **t_p) {
  bool keeps = tfd__context()->recorder == NULL &&
               tfd__group_is_alone(m->strategy->group);
  uint64_t version = versions(m);
  tfd_device *device = NULL;
  tfd_tensor *fresh = NULL;
  tfd_tensor *lent = NULL;
  int rc = TFD_OK;

  TFD_TRY(tfd__default_device(&device));
  if (keeps && m->combined != NULL && m->combined_version == version &&
      m->combined->device == device) {
    *t_p = m->combined;
    return TFD_OK;
  }
  TFD_TRY(combine_copies(m, device, &fresh));
  lent = keeps ? m->combined : fresh;
  if (lent != NULL) rc = tfd__context_lend(lent);
  if (rc != TFD_OK) {
    tfd__release(fresh);
    return rc;
  }
  if (keeps) {
    m->combined = fresh;
    m->combined_version = version;
  }
  *t_p = fresh;
  return TFD_OK;
}

/* The tensor that a read means here. Borrowed. */
static int current(tfd_mirrored *m, tfd_tensor **t_p) {
  int i = tfd__component_index(m->strategy, m->n);

  if (i < 0 && m->kind == TFD_VARIABLE_SYNC_ON_READ) {
    if (m->aggregation == TFD_AGGREGATION_NONE) {
      return tfd__fail(TFD_VALUE_ERROR,
                       "Could not convert from `VariableAggregation` NONE to "
                       "a reduction: variable \"%s\" is synchronized on read "
                       "and has no aggregation",
                       m->components[0]->name);
    }
    if (m->aggregation == TFD_AGGREGATION_ONLY_FIRST_REPLICA
            ? !tfd__group_is_alone(m->strategy->group)
            : m->strategy->group->size > 1) {
      return combine(m, t_p);
    }
    i = 0;
  }
  if (i < 0) i = closest(m);
  *t_p = m->components[i]->value;
  return TFD_OK;
}

static tfd_tensor *mirrored_operand(tfd_object *self) {
  tfd_tensor *t = NULL;

  return current((tfd_mirrored *)self, &t) == TFD_OK ? t : NULL;
}

static const tfd__type mirrored_type = {
    .name = "distributed variable",
    .kind = TFD_HANDLE_MIRRORED,
    .destroy = mirrored_destroy,
    .operand = mirrored_operand,
};

static int check_components(const tfd_strategy *s, tfd_variable_kind kind,
                            int n) {
  int want = kind == TFD_VARIABLE_AGGREGATING ? 1 : s->parameters_n;

  if (n == want && n > 0 && n <= TFD_MAX_REPLICAS) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR,
                   "%s: a distributed variable needs %d copies, got %d",
                   s->ops->name, want, n);
}

int tfd_mirrored_new(tfd_strategy *strategy, tfd_variable_kind kind,
                     tfd_variable *const *components, int components_n,
                     tfd_variable_synchronization synchronization,
                     tfd_variable_aggregation aggregation,
                     tfd_mirrored **mirrored_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_ENUM(kind, TFD_VARIABLE_PLAIN, TFD_VARIABLE_AGGREGATING);
  TFD_GIVEN_HANDLES(components, components_n, VARIABLE);
  TFD_GIVEN_ENUM(synchronization, TFD_SYNCHRONIZATION_AUTO,
                 TFD_SYNCHRONIZATION_ON_READ);
  TFD_GIVEN_ENUM(aggregation, TFD_AGGREGATION_NONE,
                 TFD_AGGREGATION_ONLY_FIRST_REPLICA);
  TFD_GIVEN_POINTER(mirrored_p);

  size_t bytes =
      sizeof(tfd_mirrored) + (size_t)components_n * sizeof *components;
  tfd_mirrored *m = NULL;
  int i;

  TFD_TRY(check_components(strategy, kind, components_n));
  m = tfd__calloc(1, bytes);
  if (m == NULL) return tfd__no_memory(bytes, "distributed variable");
  tfd__object_init(&m->object, &mirrored_type);
  tfd__retain(strategy);
  m->strategy = strategy;
  m->kind = kind;
  m->synchronization = (uint8_t)synchronization;
  m->aggregation = (uint8_t)aggregation;
  m->n = components_n;
  for (i = 0; i < components_n; i++) {
    tfd__retain(components[i]);
    m->components[i] = components[i];
    components[i]->whole = m;
  }
  *mirrored_p = m;
  return TFD_OK;
}

tfd_variable_kind tfd_mirrored_kind_of(const tfd_mirrored *mirrored) {
  TFD_GIVEN_OR(mirrored, MIRRORED, TFD_VARIABLE_PLAIN);
  return mirrored->kind;
}

int tfd_mirrored_count(const tfd_mirrored *mirrored) {
  TFD_GIVEN_OR(mirrored, MIRRORED, 0);
  return mirrored->n;
}

int tfd_mirrored_component(tfd_mirrored *mirrored, int index,
                           tfd_variable **component_p) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_POINTER(component_p);
  if (index < 0 || index >= mirrored->n) {
    return tfd__fail(TFD_INDEX_ERROR, "variable \"%s\": no copy %d of %d",
                     mirrored->components[0]->name, index, mirrored->n);
  }
  tfd__retain(mirrored->components[index]);
  *component_p = mirrored->components[index];
  return TFD_OK;
}

int tfd_mirrored_index(const tfd_mirrored *mirrored) {
  TFD_GIVEN_OR(mirrored, MIRRORED, -1);
  return tfd__component_index(mirrored->strategy, mirrored->n);
}

int tfd_mirrored_strategy(tfd_mirrored *mirrored, tfd_strategy **strategy_p) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_POINTER(strategy_p);
  tfd__retain(mirrored->strategy);
  *strategy_p = mirrored->strategy;
  return TFD_OK;
}

tfd_variable_synchronization
tfd_mirrored_synchronization_of(const tfd_mirrored *mirrored) {
  TFD_GIVEN_OR(mirrored, MIRRORED, TFD_SYNCHRONIZATION_AUTO);
  return (tfd_variable_synchronization)mirrored->synchronization;
}

tfd_variable_aggregation
tfd_mirrored_aggregation_of(const tfd_mirrored *mirrored) {
  TFD_GIVEN_OR(mirrored, MIRRORED, TFD_AGGREGATION_NONE);
  return (tfd_variable_aggregation)mirrored->aggregation;
}

int tfd_mirrored_read(tfd_mirrored *mirrored, tfd_tensor **value_p) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_POINTER(value_p);

  tfd_context *c = tfd__call_begin();
  tfd_tensor *t = NULL;
  int n = 0;
  int rc = current(mirrored, &t);

  if (rc == TFD_OK) {
    rc = tfd__run(TFD_OP_identity, &t, 1, NULL, NULL, value_p, 1, &n);
  }
  tfd__call_end(c);
  return rc;
}

/* --- do copies agree? ----------------------------------------------------- */

/* A tensor's bytes as the host sees them; `stage` is freed by the caller. */
static int host_bytes(tfd_tensor *t, size_t bytes, void **stage_p,
                      const void **data_p) {
  TFD_TRY(tfd__tensor_sync(t));
  if (t->device->backend->host_visible) {
    *data_p = t->view.data;
    return TFD_OK;
  }
  *stage_p = tfd__alloc(bytes);
  if (*stage_p == NULL) return tfd__no_memory(bytes, "copy of a variable");
  *data_p = *stage_p;
  return tfd_tensor_read(t, *stage_p, bytes);
}

static int same_bytes(tfd_tensor *a, tfd_tensor *b, bool *same_p) {
  size_t bytes = tfd__view_bytes(&a->view);
  void *stages[2] = {NULL, NULL};
  const void *x = NULL;
  const void *y = NULL;
  int rc;

  rc = host_bytes(a, bytes, &stages[0], &x);
  if (rc == TFD_OK) rc = host_bytes(b, bytes, &stages[1], &y);
  if (rc == TFD_OK) *same_p = bytes == 0 || memcmp(x, y, bytes) == 0;
  tfd__free(stages[0]);
  tfd__free(stages[1]);
  return rc;
}

int tfd_mirrored_agree(const tfd_mirrored *mirrored, bool *agree_p) {
  TFD_GIVEN(mirrored, MIRRORED);
  TFD_GIVEN_POINTER(agree_p);

  tfd_tensor *first = mirrored->components[0]->value;
  bool same = true;
  int i;

  for (i = 1; same && i < mirrored->n; i++) {
    tfd_tensor *other = mirrored->components[i]->value;

    if (other->buffer == first->buffer) continue;
    TFD_TRY(same_bytes(first, other, &same));
  }
  *agree_p = same;
  return TFD_OK;
}
