/* Values with a component per replica. */
#include "distribute/distribute.h"

static void value_destroy(void *self) {
  tfd_value *v = self;
  int i;

  for (i = 0; i < v->n; i++) tfd__release(v->components[i]);
  tfd__release(v->strategy);
  tfd__free(v);
}

/* Outside of replicas a mirrored value is read where the caller works; copies
** that may differ cannot stand for one tensor. */
static tfd_tensor *value_operand(tfd_object *self) {
  tfd_value *v = (tfd_value *)self;
  int i = tfd__component_index(v->strategy, v->n);
  tfd_tensor *t = NULL;

  if (i < 0 && v->kind == TFD_VALUE_PER_REPLICA) {
    tfd__fail(TFD_VALUE_ERROR,
              "attempt to use a PerReplica value (%d replicas) as one tensor",
              v->n);
    tfd__hint("strategy:reduce(\"sum\", x), strategy:gather(x, 0) or "
              "strategy:experimental_local_results(x)");
    return NULL;
  }
  if (i < 0) i = 0;
  if (v->components[i] == NULL) {
    tfd__fail(TFD_TYPE_ERROR,
              "component %d of the distributed value is no tensor", i);
    return NULL;
  }
  return tfd__operand(v->components[i], &t) == TFD_OK ? t : NULL;
}

static const tfd__type value_type = {
    .name = "distributed value",
    .kind = TFD_HANDLE_VALUE,
    .destroy = value_destroy,
    .operand = value_operand,
};

int tfd_value_new(tfd_strategy *strategy, tfd_value_kind kind,
                  tfd_object *const *components, int components_n,
                  tfd_value **value_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_ENUM(kind, TFD_VALUE_PER_REPLICA, TFD_VALUE_MIRRORED);
  TFD_GIVEN_HANDLES(components, components_n, KINDS);
  TFD_GIVEN_POINTER(value_p);

  size_t bytes = sizeof(tfd_value) + (size_t)components_n * sizeof *components;
  tfd_value *v = NULL;
  int i;

  if (components_n < 1) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "distributed value: it needs at least one component");
  }
  v = tfd__calloc(1, bytes);
  if (v == NULL) return tfd__no_memory(bytes, "distributed value");
  tfd__object_init(&v->object, &value_type);
  tfd__retain(strategy);
  v->strategy = strategy;
  v->kind = kind;
  v->n = components_n;
  for (i = 0; i < components_n; i++) {
    tfd__retain(components[i]);
    v->components[i] = components[i];
  }
  *value_p = v;
  return TFD_OK;
}

/* The distributed variable that x is a copy of, else x. */
static tfd_object *whole_of(tfd_object *x) {
  if (!tfd__is_open(x, TFD_HANDLE_VARIABLE)) return x;
  if (((tfd_variable *)x)->whole == NULL) return x;
  return &((tfd_variable *)x)->whole->object;
}

/* What the components are one of: the same handle, or copy i of one variable
** for each i; NULL = neither. */
static tfd_object *common(tfd_object *const *components, int n) {
  tfd_object *whole = whole_of(components[0]);
  const tfd_mirrored *m = (const tfd_mirrored *)whole;
  bool same = true;
  bool copies = tfd__is_open(whole, TFD_HANDLE_MIRRORED) && n <= m->n;
  int i;

  for (i = 0; i < n; i++) {
    same = same && components[i] == components[0];
    copies = copies && components[i] == &m->components[i]->object;
  }
  return same || copies ? whole : NULL; /* NULL, too, where all are */
}

int tfd_value_regroup(tfd_strategy *strategy, tfd_value_kind kind,
                      tfd_object *const *components, int components_n,
                      tfd_object **whole_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_HANDLES(components, components_n, KINDS);
  TFD_GIVEN_POINTER(whole_p);

  tfd_object *whole =
      components_n > 0 ? common(components, components_n) : NULL;
  tfd_value *value = NULL;

  if (whole != NULL) {
    tfd__retain(whole);
    *whole_p = whole;
    return TFD_OK;
  }
  TFD_TRY(tfd_value_new(strategy, kind, components, components_n, &value));
  *whole_p = &value->object;
  return TFD_OK;
}

tfd_value_kind tfd_value_kind_of(const tfd_value *value) {
  TFD_GIVEN_OR(value, VALUE, TFD_VALUE_PER_REPLICA);
  return value->kind;
}

int tfd_value_count(const tfd_value *value) {
  TFD_GIVEN_OR(value, VALUE, 0);
  return value->n;
}

int tfd_value_component(tfd_value *value, int index, tfd_object **component_p) {
  TFD_GIVEN(value, VALUE);
  TFD_GIVEN_POINTER(component_p);
  if (index < 0 || index >= value->n) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "distributed value: no component %d; there are %d", index,
                     value->n);
  }
  tfd__retain(value->components[index]);
  *component_p = value->components[index];
  return TFD_OK;
}

int tfd_value_index(const tfd_value *value) {
  TFD_GIVEN_OR(value, VALUE, -1);
  return tfd__component_index(value->strategy, value->n);
}

int tfd_value_strategy(tfd_value *value, tfd_strategy **strategy_p) {
  TFD_GIVEN(value, VALUE);
  TFD_GIVEN_POINTER(strategy_p);
  tfd__retain(value->strategy);
  *strategy_p = value->strategy;
  return TFD_OK;
}
