/* Which kinds of strategies there are, and making one. */
#include "distribute/distribute.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* --- kinds ---------------------------------------------------------------- */

static tfd__strategy_ops kinds[TFD_MAX_STRATEGIES];
static int kinds_n = 0;

void tfd__strategy_register(const tfd__strategy_ops *ops) {
  tfd__strategy_ops *own = &kinds[kinds_n];

  assert(kinds_n < TFD_MAX_STRATEGIES);
  *own = *ops;
  if (own->place == NULL) own->place = tfd__strategy_place_plain;
  if (own->create == NULL) own->create = tfd__strategy_create;
  if (own->reduce == NULL) own->reduce = tfd__strategy_reduce;
  if (own->input_share == NULL) own->input_share = tfd__strategy_input_share;
  kinds_n++;
}

/* Before main, as tables of other libraries that are linked in: afterwards the
** list is only read. */
__attribute__((constructor)) static void register_own(void) {
  tfd__strategy_register(&tfd__default_strategy);
  tfd__strategy_register(&tfd__one_device_strategy);
  tfd__strategy_register(&tfd__mirrored_strategy);
  tfd__strategy_register(&tfd__central_storage_strategy);
  tfd__strategy_register(&tfd__multi_worker_strategy);
}

static int find_kind(const char *kind, const tfd__strategy_ops **ops_p) {
  char known[256] = "";
  size_t at = 0;
  int i;

  for (i = 0; i < kinds_n; i++) {
    if (strcmp(kinds[i].kind, kind) == 0) {
      *ops_p = &kinds[i];
      return TFD_OK;
    }
    at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
                           i == 0 ? "" : ", ", kinds[i].kind);
    if (at >= sizeof known) at = sizeof known - 1;
  }
  return tfd__fail(TFD_VALUE_ERROR,
                   "strategy: there is no kind \"%s\"; there are %s", kind,
                   known);
}

/* --- making one ----------------------------------------------------------- */

static void strategy_destroy(void *self) {
  tfd_strategy *s = self;

  if (s->spare != NULL) tfd__run_discard(s->spare);
  tfd__release(s->group);
  tfd__free(s->devices);
  tfd__free(s->parameters);
  tfd__free(s);
}

static const tfd__type strategy_type = {
    .name = "strategy",
    .kind = TFD_HANDLE_STRATEGY,
    .destroy = strategy_destroy,
};

/* Among the processes of `config`'s network, NULL = in this one alone. */
static int make_group(tfd_strategy *s, const tfd__group_config *config) {
  tfd__group_config own = {.provider = NULL};

  if (s->group != NULL) return TFD_OK;
  if (s->devices_n == 0) return tfd__group_solo(&s->group);
  if (config != NULL) own = *config;
  own.devices = s->devices;
  own.local = s->devices_n;
  own.size = s->devices_n;
  if (own.network != NULL) {
    own.base = own.network->process * own.local;
    own.size = own.network->processes * own.local;
  }
  return tfd__group_new(&own, &s->group);
}

static int make(const char *kind, tfd_device *const *devices, int devices_n,
                tfd_device *parameter_device, const tfd__group_config *config,
                tfd_strategy **strategy_p) {
  const tfd__strategy_ops *ops = NULL;
  tfd_strategy *s = NULL;
  int rc;

  TFD_TRY(find_kind(kind, &ops));
  s = tfd__calloc(1, sizeof *s);
  if (s == NULL) return tfd__no_memory(sizeof *s, "strategy");
  tfd__object_init(&s->object, &strategy_type);
  s->ops = ops;
  s->devices_n = devices_n;
  TFD_TRY_OR(rc = tfd__strategy_list(devices, devices_n, &s->devices), release);
  TFD_TRY_OR(rc = s->ops->set_up(s, parameter_device), release);
  TFD_TRY_OR(rc = make_group(s, config), release);
  *strategy_p = s;
  return TFD_OK;

release:
  tfd__release(s);
  return rc;
}

int tfd_strategy_new(const char *kind, tfd_device *const *devices,
                     int devices_n, tfd_device *parameter_device,
                     tfd_strategy **strategy_p) {
  TFD_GIVEN_POINTER(kind);
  TFD_GIVEN_HANDLES(devices, devices_n, DEVICE);
  TFD_GIVEN_OPTIONAL(parameter_device, DEVICE);
  TFD_GIVEN_POINTER(strategy_p);
  return make(kind, devices, devices_n, parameter_device, NULL, strategy_p);
}

/* --- one of several processes --------------------------------------------- */

/* "a:1,b:2" as a list; *text_p, owned, holds what the entries point to. */
static int split(const char *addresses, char **text_p, const char ***list_p,
                 int *n_p) {
  size_t bytes = strlen(addresses) + 1;
  size_t n = 1;
  size_t i;

  for (i = 0; i < bytes; i++) n += addresses[i] == ',';
  *text_p = tfd__alloc(bytes);
  *list_p = tfd__calloc(n, sizeof **list_p);
  if (*text_p == NULL || *list_p == NULL) {
    return tfd__no_memory(bytes, "strategy");
  }
  memcpy(*text_p, addresses, bytes);
  (*list_p)[0] = *text_p;
  n = 1;
  for (i = 0; i < bytes; i++) {
    if ((*text_p)[i] != ',') continue;
    (*text_p)[i] = '\0';
    (*list_p)[n++] = *text_p + i + 1;
  }
  *n_p = (int)n;
  return TFD_OK;
}

int tfd_strategy_join(const char *kind, tfd_device *const *devices,
                      int devices_n, const char *addresses, int process,
                      const void *secret, size_t secret_bytes, bool insecure,
                      const char *provider, double start_seconds,
                      double beat_seconds, double timeout_seconds,
                      double stall_seconds, int64_t pack_bytes,
                      tfd_strategy **strategy_p) {
  TFD_GIVEN_POINTER(kind);
  TFD_GIVEN_HANDLES(devices, devices_n, DEVICE);
  TFD_GIVEN_POINTER(addresses);
  TFD_GIVEN_POINTER(provider);
  TFD_GIVEN_POINTER(strategy_p);

  tfd__network network = {.process = process,
                          .secret = secret,
                          .secret_bytes = secret_bytes,
                          .insecure = insecure,
                          .start_timeout = start_seconds,
                          .beat_timeout = beat_seconds};
  tfd__group_config config = {.provider = provider[0] == 0 ? NULL : provider,
                              .timeout = timeout_seconds,
                              .stall = stall_seconds,
                              .network = &network};
  const char **list = NULL;
  char *text = NULL;
  int rc = split(addresses, &text, &list, &network.processes);

  network.addresses = list;
  if (rc == TFD_OK && (process < 0 || process >= network.processes)) {
    rc =
        tfd__fail(TFD_INDEX_ERROR, "strategy_join: no process %d; there are %d",
                  process, network.processes);
  }
  if (rc == TFD_OK) {
    rc = make(kind, devices, devices_n, NULL, &config, strategy_p);
  }
  if (rc == TFD_OK) {
    (*strategy_p)->pack_bytes = pack_bytes;
    rc = tfd__find_overlap(*strategy_p);
    if (rc != TFD_OK) tfd__release(*strategy_p);
  }
  tfd__free(list);
  tfd__free(text);
  return rc;
}

void tfd_workers_leave(int status) {
  tfd__groups_leave(status);
}

const char *tfd_strategy_provider(const tfd_strategy *strategy) {
  TFD_GIVEN_OR(strategy, STRATEGY, "");
  return strategy->group->provider == NULL ? ""
                                           : strategy->group->provider->name;
}
