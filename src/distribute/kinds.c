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

static int make_group(tfd_strategy *s) {
  tfd__group_config config = {
      .devices = s->devices, .local = s->devices_n, .size = s->devices_n};

  if (s->group != NULL) return TFD_OK;
  if (s->devices_n == 0) return tfd__group_solo(&s->group);
  return tfd__group_new(&config, &s->group);
}

int tfd_strategy_new(const char *kind, tfd_device *const *devices,
                     int devices_n, tfd_device *parameter_device,
                     tfd_strategy **strategy_p) {
  TFD_GIVEN_POINTER(kind);
  TFD_GIVEN_HANDLES(devices, devices_n, DEVICE);
  TFD_GIVEN_OPTIONAL(parameter_device, DEVICE);
  TFD_GIVEN_POINTER(strategy_p);

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
  TFD_TRY_OR(rc = make_group(s), release);
  *strategy_p = s;
  return TFD_OK;

release:
  tfd__release(s);
  return rc;
}
