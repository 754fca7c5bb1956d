/* What programs are told of providers and of who started them. */
#include "base/given.h"
#include "base/plugins.h"
#include "comm/ways.h"
#include "comm/private.h"

int tfd_world(const char *provider, double start_seconds, int *process_p,
              int *processes_p) {
  TFD_GIVEN_POINTER(provider);
  TFD_GIVEN_POINTER(process_p);
  TFD_GIVEN_POINTER(processes_p);

  tfd__world world = {0};

  TFD_TRY(tfd__provider_world(provider, start_seconds, &world));
  *process_p = world.process;
  *processes_p = world.processes;
  return TFD_OK;
}

int tfd_world_host(const char *provider, int process, const char **host_p) {
  TFD_GIVEN_POINTER(provider);
  TFD_GIVEN_POINTER(host_p);

  tfd__world world = {0};

  TFD_TRY(tfd__provider_world(provider, 0, &world));
  if (process < 0 || process >= world.processes) {
    return tfd__fail(TFD_INDEX_ERROR, "world_host: no process %d; there are %d",
                     process, world.processes);
  }
  *host_p = world.hosts[process];
  return TFD_OK;
}

/* --- which providers there are -------------------------------------------- */

static const tfd__provider *const built_in[] = {&tfd__shared_provider,
                                                &tfd__tcp_provider};
enum { BUILT_IN = sizeof built_in / sizeof built_in[0] };

/* Plug-in `index` of those that are providers, NULL = there are fewer. */
static const tfd__plugin *plugin_at(int index, int *n_p) {
  const tfd__plugin *list = NULL;
  const tfd__plugin *found = NULL;
  int all = 0;
  int n = 0;
  int i;

  tfd__plugins(&list, &all);
  for (i = 0; i < all; i++) {
    if (!list[i].is_provider) continue;
    if (n == index) found = &list[i];
    n++;
  }
  *n_p = n;
  return found;
}

int tfd_provider_count(int64_t *count_p) {
  TFD_GIVEN_POINTER(count_p);

  int n = 0;

  (void)plugin_at(-1, &n);
  *count_p = BUILT_IN + n;
  return TFD_OK;
}

int tfd_provider_at(int index, const char **name_p, const char **path_p,
                    const char **reason_p) {
  TFD_GIVEN_POINTER(name_p);
  TFD_GIVEN_POINTER(path_p);
  TFD_GIVEN_POINTER(reason_p);

  const tfd__plugin *plugin = NULL;
  int n = 0;

  if (index >= 0 && index < BUILT_IN) {
    *name_p = built_in[index]->name;
    *path_p = "";
    *reason_p = "";
    return TFD_OK;
  }
  plugin = plugin_at(index - BUILT_IN, &n);
  if (plugin == NULL) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "provider %d: there are %d, counted from 0", index,
                     BUILT_IN + n);
  }
  *name_p = plugin->name;
  *path_p = plugin->path;
  *reason_p = tfd__provider_try(plugin) == TFD_OK ? "" : tfd_error_message();
  return TFD_OK;
}

/* --- costs ---------------------------------------------------------------- */

int tfd_transport_costs(const char *transport, double *step_p,
                        double *message_p, double *byte_p, double *sum_p) {
  TFD_GIVEN_POINTER(transport);
  TFD_GIVEN_POINTER(step_p);
  TFD_GIVEN_POINTER(message_p);
  TFD_GIVEN_POINTER(byte_p);
  TFD_GIVEN_POINTER(sum_p);

  const tfd__costs *c = tfd__costs_of(transport);

  if (c == NULL) {
    return tfd__fail(TFD_NOT_FOUND,
                     "no costs are known of transport \"%s\"; expected shm or "
                     "tcp",
                     transport);
  }
  *step_p = c->step;
  *message_p = c->message;
  *byte_p = c->byte;
  *sum_p = c->sum;
  return TFD_OK;
}

int tfd_collective_cost(const char *way, int processes, double bytes,
                        double step, double message, double byte, double sum,
                        double *seconds_p) {
  TFD_GIVEN_POINTER(way);
  TFD_GIVEN_POINTER(seconds_p);

  const tfd__costs c = {step, message, byte, sum};
  tfd__way w = tfd__way_named(way);

  if (w == TFD_WAY_AUTO || w == TFD_WAYS) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "collective_cost: there is no way \"%s\"; expected whole, "
                     "direct, doubling, ring or halving",
                     way);
  }
  if (processes < 1) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "collective_cost: %d processes; expected 1 or more",
                     processes);
  }
  *seconds_p = tfd__way_cost(w, &c, processes, bytes);
  return TFD_OK;
}

int tfd_hosts_cost(int processes, int hosts, double bytes, double *by_hosts_p,
                   double *flat_p) {
  TFD_GIVEN_POINTER(by_hosts_p);
  TFD_GIVEN_POINTER(flat_p);

  if (hosts < 1 || hosts > processes) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "hosts_cost: %d hosts for %d processes; expected 1 to as "
                     "many",
                     hosts, processes);
  }
  *by_hosts_p = tfd__hosts_cost(tfd__costs_of("shm"), tfd__costs_of("tcp"),
                                processes, hosts, bytes);
  *flat_p = tfd__flat_cost(tfd__costs_of("tcp"), processes, hosts, bytes);
  return TFD_OK;
}
