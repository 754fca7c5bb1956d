/* Strategies: which devices, and what variables become on them. */
#include "distribute/distribute.h"

#include <string.h>

static void strategy_destroy(void *self) {
  tfd_strategy *s = self;

  if (s->spare != NULL) tfd__run_discard(s->spare);
  tfd__free(s->devices);
  tfd__free(s->parameters);
  tfd__free(s);
}

static const tfd__type strategy_type = {
    .name = "strategy",
    .kind = TFD_HANDLE_STRATEGY,
    .destroy = strategy_destroy,
};

static int copy_devices(tfd_device *const *from, int n, tfd_device ***to_p) {
  size_t bytes = (size_t)n * sizeof **to_p;

  if (n == 0) return TFD_OK;
  *to_p = tfd__alloc(bytes);
  if (*to_p == NULL) return tfd__no_memory(bytes, "strategy");
  memcpy(*to_p, from, bytes);
  return TFD_OK;
}

static int check_devices(const tfd_strategy *s) {
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

/* --- default -------------------------------------------------------------- */

static int default_set_up(tfd_strategy *s, tfd_device *parameter_device) {
  (void)parameter_device;
  if (s->devices_n == 0) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR, "%s: takes no devices", s->ops->name);
}

static int place_plain(const tfd_strategy *s, bool on_read,
                       tfd_variable_kind *kind_p, int *copies_p) {
  (void)s;
  (void)on_read;
  *kind_p = TFD_VARIABLE_PLAIN;
  *copies_p = 1;
  return TFD_OK;
}

static const tfd__strategy_ops default_ops = {
    .name = "DefaultStrategy",
    .set_up = default_set_up,
    .place = place_plain,
};

/* --- one device ----------------------------------------------------------- */

static int one_device_set_up(tfd_strategy *s, tfd_device *parameter_device) {
  (void)parameter_device;
  TFD_TRY(check_devices(s));
  if (s->devices_n != 1) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: %d devices; it takes one",
                     s->ops->name, s->devices_n);
  }
  s->parameters_n = 1;
  return copy_devices(s->devices, 1, &s->parameters);
}

static const tfd__strategy_ops one_device_ops = {
    .name = "OneDeviceStrategy",
    .set_up = one_device_set_up,
    .place = place_plain,
};

/* --- mirrored ------------------------------------------------------------- */

static int mirrored_set_up(tfd_strategy *s, tfd_device *parameter_device) {
  (void)parameter_device;
  TFD_TRY(check_devices(s));
  s->parameters_n = s->devices_n;
  return copy_devices(s->devices, s->devices_n, &s->parameters);
}

static int mirrored_place(const tfd_strategy *s, bool on_read,
                          tfd_variable_kind *kind_p, int *copies_p) {
  *kind_p = on_read ? TFD_VARIABLE_SYNC_ON_READ : TFD_VARIABLE_MIRRORED;
  *copies_p = s->devices_n;
  return TFD_OK;
}

static const tfd__strategy_ops mirrored_ops = {
    .name = "MirroredStrategy",
    .set_up = mirrored_set_up,
    .place = mirrored_place,
};

/* --- central storage ------------------------------------------------------ */

static int central_set_up(tfd_strategy *s, tfd_device *parameter_device) {
  tfd_device *const *all = NULL;
  int n = 0;

  TFD_TRY(check_devices(s));
  if (parameter_device == NULL && s->devices_n == 1) {
    parameter_device = s->devices[0];
  }
  if (parameter_device == NULL) {
    TFD_TRY(tfd__devices(&all, &n));
    parameter_device = all[0]; /* CPU devices come first */
  }
  s->parameters_n = 1;
  return copy_devices(&parameter_device, 1, &s->parameters);
}

static int central_place(const tfd_strategy *s, bool on_read,
                         tfd_variable_kind *kind_p, int *copies_p) {
  (void)on_read;
  *kind_p = s->devices_n == 1 ? TFD_VARIABLE_PLAIN : TFD_VARIABLE_AGGREGATING;
  *copies_p = 1;
  return TFD_OK;
}

static const tfd__strategy_ops central_ops = {
    .name = "CentralStorageStrategy",
    .set_up = central_set_up,
    .place = central_place,
};

/* --- the public interface ------------------------------------------------- */

static const tfd__strategy_ops *const tables[] = {
    [TFD_STRATEGY_DEFAULT] = &default_ops,
    [TFD_STRATEGY_ONE_DEVICE] = &one_device_ops,
    [TFD_STRATEGY_MIRRORED] = &mirrored_ops,
    [TFD_STRATEGY_CENTRAL_STORAGE] = &central_ops,
};

int tfd_strategy_new(tfd_strategy_kind kind, tfd_device *const *devices,
                     int devices_n, tfd_device *parameter_device,
                     tfd_strategy **strategy_p) {
  TFD_GIVEN_HANDLES(devices, devices_n, DEVICE);
  TFD_GIVEN_OPTIONAL(parameter_device, DEVICE);
  TFD_GIVEN_POINTER(strategy_p);

  tfd_strategy *s = NULL;
  int rc;

  if ((int)kind < 0 || (size_t)kind >= sizeof tables / sizeof tables[0]) {
    return tfd__fail(TFD_VALUE_ERROR, "strategy: there is no kind %d",
                     (int)kind);
  }
  s = tfd__calloc(1, sizeof *s);
  if (s == NULL) return tfd__no_memory(sizeof *s, "strategy");
  tfd__object_init(&s->object, &strategy_type);
  s->ops = tables[kind];
  s->kind = kind;
  s->devices_n = devices_n;
  TFD_TRY_OR(rc = copy_devices(devices, devices_n, &s->devices), release);
  TFD_TRY_OR(rc = s->ops->set_up(s, parameter_device), release);
  *strategy_p = s;
  return TFD_OK;

release:
  tfd__release(s);
  return rc;
}

tfd_strategy_kind tfd_strategy_kind_of(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, TFD_STRATEGY_DEFAULT);
  return strategy->kind;
}

int tfd__strategy_replicas(const tfd_strategy *s) {
  return s->devices_n > 0 ? s->devices_n : 1;
}

int tfd_strategy_replica_count(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, 0);
  return tfd__strategy_replicas(strategy);
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

int tfd_strategy_place(const tfd_strategy *strategy,
                       tfd_variable_synchronization synchronization,
                       const char *name, tfd_variable_kind *kind_p,
                       int *copies_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_ENUM(synchronization, TFD_SYNCHRONIZATION_AUTO,
                 TFD_SYNCHRONIZATION_ON_READ);
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_POINTER(kind_p);
  TFD_GIVEN_POINTER(copies_p);
  if (synchronization == TFD_SYNCHRONIZATION_NONE &&
      strategy->kind == TFD_STRATEGY_MIRRORED) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "`NONE` variable synchronization mode is not supported "
                     "with %s: variable \"%s\"",
                     strategy->ops->name, name);
  }
  return strategy->ops->place(
      strategy, synchronization == TFD_SYNCHRONIZATION_ON_READ, kind_p,
      copies_p);
}

int tfd__component_index(const tfd_strategy *s, int n) {
  const tfd_context *c = tfd__context();

  if (c->update > 0) return c->update <= n ? c->update - 1 : 0;
  if (c->replica < 0 || c->strategy != s) return -1;
  return c->replica < n ? c->replica : 0;
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
