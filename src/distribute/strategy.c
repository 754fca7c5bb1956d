/* What all strategies have in common; each kind has a file of its own. */
#include "distribute/distribute.h"

#include <string.h>

int tfd__strategy_list(tfd_device *const *from, int n, tfd_device ***to_p) {
  size_t bytes = (size_t)n * sizeof **to_p;

  if (n == 0) return TFD_OK;
  *to_p = tfd__alloc(bytes);
  if (*to_p == NULL) return tfd__no_memory(bytes, "strategy");
  memcpy(*to_p, from, bytes);
  return TFD_OK;
}

int tfd__strategy_check_devices(const tfd_strategy *s) {
  int i;
  int k;

  if (s->devices_n == 0) {
    return tfd__fail(TFD_ASSERTION_ERROR,
                     "%s: the list of devices is empty; at least one is needed",
                     s->ops->name);
  }
  if (s->devices_n > TFD_MAX_REPLICAS) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: %d devices; at most %d",
                     s->ops->name, s->devices_n, TFD_MAX_REPLICAS);
  }
  for (i = 1; i < s->devices_n; i++) {
    for (k = 0; k < i; k++) {
      if (s->devices[i] != s->devices[k]) continue;
      return tfd__fail(TFD_ASSERTION_ERROR,
                       "%s: device %s is there twice, at positions %d and %d; "
                       "every replica needs its own",
                       s->ops->name, s->devices[i]->short_name, k, i);
    }
  }
  return TFD_OK;
}

const char *tfd_strategy_kind(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, "");
  return strategy->ops->kind;
}

int tfd_strategy_replica_count(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, 0);
  return strategy->group->size;
}

int tfd_strategy_local_count(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, 0);
  return strategy->group->local;
}

int tfd_strategy_first_replica(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, 0);
  return strategy->group->base;
}

static int device_in(const tfd_strategy *s, tfd_device *const *list, int n,
                     int index, tfd_device **device_p) {
  if (index < 0 || index >= n) {
    return tfd__fail(TFD_INDEX_ERROR, "%s: no device %d; there are %d",
                     s->ops->name, index, n);
  }
  *device_p = list[index];
  return TFD_OK;
}

int tfd_strategy_device(const tfd_strategy *strategy, int index,
                        tfd_device **device_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(device_p);
  return device_in(strategy, strategy->devices, strategy->devices_n, index,
                   device_p);
}

int tfd_strategy_parameter_count(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, 0);
  return strategy->parameters_n;
}

int tfd_strategy_parameter_device(const tfd_strategy *strategy, int index,
                                  tfd_device **device_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(device_p);
  return device_in(strategy, strategy->parameters, strategy->parameters_n,
                   index, device_p);
}

int tfd__component_index(const tfd_strategy *s, int n) {
  const tfd_context *c = tfd__context();
  int i = c->replica - s->group->base;

  if (c->update > 0) return c->update <= n ? c->update - 1 : 0;
  if (c->replica < 0 || c->strategy != s) return -1;
  return i < n ? i : 0;
}

int tfd_context_set_update(int component, int *before_p) {
  TFD_GIVEN_POINTER(before_p);

  tfd_context *c = tfd__context();
  int before = c->update - 1;

  if (component < -1 || component >= TFD_MAX_REPLICAS) {
    return tfd__fail(TFD_VALUE_ERROR, "update: there is no copy %d", component);
  }
  c->update = component + 1;
  *before_p = before;
  return TFD_OK;
}
