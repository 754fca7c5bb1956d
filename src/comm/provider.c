/* Which providers there are, and their tables made complete; plug-ins are
** opened when they are asked for. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "base/plugins.h"
#include "comm/plugin.h"

#define MOST 16 /* providers */

/* Complete copies; entries never change once `count` covers them. */
static tfd__provider list[MOST];
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const tfd__provider *find(const char *name) {
  int i;

  for (i = 0; i < count; i++) {
    if (strcmp(list[i].name, name) == 0) return &list[i];
  }
  return NULL;
}

static int add(const tfd__provider *p) {
  TFD_TRY(tfd__provider_complete(memcpy(&list[count], p, sizeof *p)));
  tfd__tended(list[count].tend);
  count++;
  return TFD_OK;
}

static int add_built_in(void) {
  if (count > 0) return TFD_OK;
  TFD_TRY(add(&tfd__shared_provider));
  TFD_TRY(add(&tfd__shm_provider));
  TFD_TRY(add(&tfd__tcp_provider));
  TFD_TRY(add(&tfd__ring_provider));
  TFD_TRY(add(&tfd__halving_provider));
  TFD_TRY(add(&tfd__doubling_provider));
  TFD_TRY(add(&tfd__staged_provider));
  return add(&tfd__hosts_provider);
}

/* Later members are looked at only when the first one fits. */
static int check_version(const tfd__provider *p) {
  if (p->abi == TFD_PROVIDER_ABI) return TFD_OK;
  return tfd__fail(TFD_FAILED_PRECONDITION,
                   "provider: made for another version of tfdist (table %d, "
                   "here %d)",
                   p->abi, TFD_PROVIDER_ABI);
}

static int add_other(const tfd__provider *p) {
  TFD_TRY(add_built_in());
  TFD_TRY(check_version(p));
  if (find(p->name) != NULL) {
    return tfd__fail(TFD_ALREADY_EXISTS, "provider \"%s\" is there already",
                     p->name);
  }
  if (count == MOST) {
    return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                     "provider \"%s\": there are %d already", p->name, MOST);
  }
  return add(p);
}

int tfd__provider_register(const tfd__provider *p) {
  int rc;

  pthread_mutex_lock(&lock);
  rc = add_other(p);
  pthread_mutex_unlock(&lock);
  return rc;
}

/* --- plug-ins ------------------------------------------------------------- */

static const tfd__provider_host host = {
    .abi = TFD_PROVIDER_ABI,
    .fail = tfd__fail,
    .hint = tfd__hint,
    .log = tfd__log,
#define TFD_LEND(type, name, params, args) .name = name,
#include "comm/lent.def"
#undef TFD_LEND
};

const char *tfd__starter(void) {
  static const struct {
    const char *variable;
    const char *plugin;
  } starters[] = {{"OMPI_COMM_WORLD_SIZE", "mpi_openmpi"},
                  {"PMI_SIZE", "mpi_mpich"},
                  {"PMIX_NAMESPACE", "mpi_openmpi"}};
  size_t i;

  for (i = 0; i < sizeof starters / sizeof starters[0]; i++) {
    if (getenv(starters[i].variable) != NULL) return starters[i].plugin;
  }
  return NULL;
}

/* UCX, on which MPI may stand, patches the first instructions of mmap and its
** kin to hear of memory that goes: a thread that is in the middle of them dies.
** It reads its environment while it is loaded, and MPI itself adds to the
** environment later, in a thread of its own. Cost: memory that goes over
** InfiniBand is registered anew each time, unless the user asks for the
** events. */
static void spare_mmap(const tfd__plugin *plugin) {
  if (strncmp(plugin->name, "mpi", 3) == 0) {
    (void)setenv("UCX_MEM_EVENTS", "n", 0);
  }
}

static int open_plugin(const tfd__plugin *plugin, const tfd__provider **p_p) {
  void (*function)(void) = NULL;

  spare_mmap(plugin);
  TFD_TRY(tfd__plugin_open(plugin, TFD_PROVIDER_PLUGIN, &function));
  return ((tfd__provider_plugin *)function)(&host, p_p);
}

int tfd__provider_try(const struct tfd__plugin *plugin) {
  const tfd__provider *p = NULL;

  TFD_TRY(open_plugin(plugin, &p));
  return check_version(p);
}

/* Of several builds of provider "mpi", the one that TFDIST_MPI names or that
** fits who started the process; NULL = any. */
static const char *wanted_build(const char *name, char text[TFD_ENV_TEXT]) {
  const char *starter = tfd__starter();
  size_t n = strlen(name);
  char variable[64];
  size_t i;

  (void)snprintf(variable, sizeof variable, "TFDIST_%s", name);
  for (i = 0; variable[i] != '\0'; i++) {
    variable[i] = (char)toupper((unsigned char)variable[i]);
  }
  if (tfd__env_text(variable, text)) return text;
  if (starter != NULL && strncmp(starter, name, n) == 0) return starter + n + 1;
  return NULL;
}

/* Which build of provider `name` the plug-in is, NULL = of none. */
static const char *build_of(const tfd__plugin *plugin, const char *name) {
  size_t n = strlen(name);

  if (!plugin->is_provider || strncmp(plugin->name, name, n) != 0 ||
      plugin->name[n] != '_') {
    return NULL;
  }
  return plugin->name + n + 1;
}

/* The first build that can be opened; the failure is that of the last one. */
static int open_provider(const char *name) {
  const tfd__plugin *plugins = NULL;
  const tfd__provider *p = NULL;
  char text[TFD_ENV_TEXT];
  const char *wanted = wanted_build(name, text);
  int rc = TFD_NOT_FOUND;
  int n = 0;
  int i;

  tfd__plugins(&plugins, &n);
  for (i = 0; i < n && rc != TFD_OK; i++) {
    const char *build = build_of(&plugins[i], name);

    if (build == NULL || (wanted != NULL && strcmp(build, wanted) != 0)) {
      continue;
    }
    rc = open_plugin(&plugins[i], &p);
    if (rc == TFD_OK) rc = add_other(p);
    if (rc != TFD_OK) (void)tfd__wrap("%s", plugins[i].path);
  }
  if (rc != TFD_NOT_FOUND) return rc;
  (void)tfd__fail(TFD_NOT_FOUND, "group: there is no provider \"%s\"%s%s", name,
                  wanted == NULL ? "" : " built for ",
                  wanted == NULL ? "" : wanted);
  return tfd__hint(
      "plug-ins tfdist_%s_*.so are looked for beside tfdist and in "
      "TFDIST_PLUGINS; `make` says what they need",
      name);
}

static int find_or_open(const char *name, const tfd__provider **provider_p) {
  const tfd__provider *p = find(name);

  if (p == NULL) {
    TFD_TRY(open_provider(name));
    p = find(name);
  }
  if (p == NULL) {
    return tfd__fail(TFD_INTERNAL, "the plug-in for \"%s\" has another name",
                     name);
  }
  *provider_p = p;
  return TFD_OK;
}

/* --- finding -------------------------------------------------------------- */

/* One between hosts serves devices whose memory it does not reach, too, if it
** can serve the hosts: opening the group will tell. */
static int find_named(const char *name, const tfd__group_config *config,
                      const tfd__provider **provider_p) {
  const tfd__provider *p = NULL;

  TFD_TRY(find_or_open(name, &p));
  if (!p->ordered && tfd__staged_provider.can(config) == TFD_OK) {
    return find_or_open(tfd__staged_provider.name, provider_p);
  }
  TFD_TRY(p->can(config));
  *provider_p = p;
  return TFD_OK;
}

/* The failure is that of the best one; between processes, of those that wait
** for them: the others' says nothing of what connects processes. */
static int find_best(const tfd__group_config *config, int score,
                     const tfd__provider **provider_p) {
  const tfd__provider *best = NULL;
  const tfd__provider *first = NULL;
  int i;

  for (i = 0; i < count; i++) {
    const tfd__provider *p = &list[i];

    if (p->score >= score) continue;
    if ((config->network == NULL || !p->ordered) &&
        (first == NULL || p->score > first->score)) {
      first = p;
    }
    if (best != NULL && p->score <= best->score) continue;
    if (p->can(config) != TFD_OK) continue;
    if (p->pays == NULL || p->pays(config)) best = p;
  }
  if (first == NULL) return tfd__fail(TFD_NOT_FOUND, "group: no provider");
  if (best == NULL) return first->can(config);
  *provider_p = best;
  return TFD_OK;
}

/* The provider that the devices' back end names for them is among those to
** choose from, if it can be opened. Its failure is told once. */
static void open_devices_own(const tfd__group_config *config) {
  static const char *refused;
  const tfd__backend *b = NULL;
  const tfd__provider *p = NULL;
  int i;

  if (config->devices == NULL || config->size < 2) return;
  b = config->devices[0]->backend;
  for (i = 1; i < config->local; i++) {
    if (config->devices[i]->backend != b) return;
  }
  if (b->provider == NULL || b->provider == refused) return;
  if (find_or_open(b->provider, &p) == TFD_OK) return;
  refused = b->provider;
  tfd__log(TFD_LOG_INFO, "%s", tfd_error_message());
}

/* The lock is held. */
static int refuse_transport(const char *name) {
  char names[256] = "";
  size_t n = 0;
  int i;

  for (i = 0; i < count && n < sizeof names; i++) {
    if (list[i].ordered) continue;
    n += (size_t)snprintf(names + n, sizeof names - n, "%s, ", list[i].name);
  }
  return tfd__wrap("TFDIST_TRANSPORT is \"%s\", expected %sor the name of a "
                   "plug-in that is there, as mpi",
                   name, names);
}

int tfd__provider_find(const char *name, const tfd__group_config *config,
                       int score, const tfd__provider **provider_p) {
  char text[TFD_ENV_TEXT];
  bool is_set = name == NULL && config->network != NULL &&
                tfd__env_text("TFDIST_TRANSPORT", text);
  int rc;

  if (is_set) name = text;
  pthread_mutex_lock(&lock);
  rc = add_built_in();
  if (rc == TFD_OK && name == NULL) open_devices_own(config);
  if (rc == TFD_OK) {
    rc = name == NULL ? find_best(config, score, provider_p)
                      : find_named(name, config, provider_p);
  }
  if (rc == TFD_NOT_FOUND && is_set) rc = refuse_transport(name);
  pthread_mutex_unlock(&lock);
  return rc;
}

int tfd__provider_world(const char *name, double start_timeout,
                        tfd__world *world_p) {
  const tfd__provider *p = NULL;
  int rc;

  pthread_mutex_lock(&lock);
  rc = add_built_in();
  if (rc == TFD_OK) rc = find_or_open(name, &p);
  pthread_mutex_unlock(&lock);
  TFD_TRY(rc);
  if (p->world == NULL) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "provider \"%s\" knows of no other processes", name);
  }
  return p->world(start_timeout, world_p);
}
