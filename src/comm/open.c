/* Making groups: ranks, their provider, the meeting of all. */
#include "comm/flight.h"
#include "comm/private.h"
#include "comm/tcp/mesh.h"

#include <limits.h>
#include <string.h>

#define TIMEOUT 600.0
#define STALL 30.0

/* Groups with ranks of other processes, the newest first. */
static tfd__group *far;
static pthread_mutex_t far_lock = PTHREAD_MUTEX_INITIALIZER;

/* Of the next group with other processes: all make the same ones in the same
** order. */
static int next_id = 1;

static void list_add(tfd__group *g) {
  if (tfd__group_is_alone(g)) return;
  pthread_mutex_lock(&far_lock);
  g->next = far;
  far = g;
  pthread_mutex_unlock(&far_lock);
}

static void list_remove(const tfd__group *g) {
  tfd__group **at = &far;

  pthread_mutex_lock(&far_lock);
  while (*at != NULL && *at != g) at = &(*at)->next;
  if (*at != NULL) *at = g->next;
  pthread_mutex_unlock(&far_lock);
}

bool tfd__groups_are_far(void) {
  bool are = false;

  pthread_mutex_lock(&far_lock);
  are = far != NULL;
  pthread_mutex_unlock(&far_lock);
  return are;
}

void tfd__groups_abort(const char *reason) {
  tfd__group *g = NULL;

  pthread_mutex_lock(&far_lock);
  g = far;
  pthread_mutex_unlock(&far_lock);
  for (; g != NULL; g = g->next) tfd__group_abort(g, reason);
}

static atomic_int leaving_status = 0;

int tfd__leaving_status(void) {
  return atomic_load(&leaving_status);
}

void tfd__groups_leave(int status) {
  atomic_store(&leaving_status, status);
  for (;;) {
    const tfd__provider *provider = NULL;
    tfd__group *g = NULL;

    pthread_mutex_lock(&far_lock);
    g = far;
    if (g != NULL) far = g->next;
    pthread_mutex_unlock(&far_lock);
    if (g == NULL) return;
    provider = g->provider;
    g->provider = NULL;
    g->left = true;
    tfd__attendant_free(g->attendant);
    g->attendant = NULL;
    provider->close(g);
  }
}

static void group_destroy(void *self) {
  tfd__group *g = self;

  list_remove(g);

  tfd__attendant_free(g->attendant);
  if (g->provider != NULL) g->provider->close(g);
  tfd__error_free(&g->cause);
  tfd__mutex_destroy(&g->lock);
  tfd__free(g->devices);
  tfd__free(g);
}

static const tfd__type group_type = {
    .name = "group",
    .kind = TFD_HANDLE_GROUP,
    .destroy = group_destroy,
};

static int check_ranks(const tfd__group_config *c) {
  if (c->local >= 1 && c->local <= TFD_MAX_LOCAL_RANKS && c->base >= 0 &&
      c->base <= c->size - c->local) {
    return TFD_OK;
  }
  return tfd__fail(TFD_VALUE_ERROR,
                   "group: %d local ranks from %d on of %d; expected 1 to %d "
                   "that lie within the group",
                   c->local, c->base, c->size, TFD_MAX_LOCAL_RANKS);
}

static int group_make(const tfd__group_config *config, tfd__group **g_p) {
  size_t bytes = (size_t)config->local * sizeof *config->devices;
  tfd__group *g = tfd__calloc(1, sizeof *g);

  if (g == NULL) return tfd__no_memory(sizeof *g, "group");
  if (tfd__mutex_init(&g->lock, 4) != TFD_OK) {
    tfd__free(g);
    return tfd__fail(TFD_RESOURCE_EXHAUSTED, "group: no mutex");
  }
  tfd__object_init(&g->object, &group_type);
  g->local = config->local;
  g->base = config->base;
  g->size = config->size;
  g->timeout = config->timeout > 0 ? config->timeout : TIMEOUT;
  g->stall = config->stall > 0 ? config->stall : STALL;
  if (config->devices != NULL) {
    g->devices = tfd__alloc(bytes);
    if (g->devices == NULL) {
      tfd__release(g);
      return tfd__no_memory(bytes, "group");
    }
    memcpy(g->devices, config->devices, bytes);
  }
  *g_p = g;
  return TFD_OK;
}

/* A group whose ranks have met; *unfit_p when they are not for the provider. */
static int open_with(const tfd__group_config *config,
                     const tfd__provider *provider, tfd__group **group_p,
                     bool *unfit_p) {
  tfd__group *g = NULL;
  int rc;

  TFD_TRY(group_make(config, &g));
  if (config->network != NULL) {
    g->id = next_id;
    g->near = tfd__is_one_host(config->network);
    tfd__flight_join(config->network);
  }
  g->provider = provider; /* its threads may fail the group at once */
  rc = provider->open(g, config);
  if (rc != TFD_OK) {
    *unfit_p = g->unfit;
    g->provider = NULL; /* only what was opened is closed */
    tfd__release(g);
    return rc;
  }
  list_add(g);
  if (config->network != NULL) next_id++;
  *group_p = g;
  return TFD_OK;
}

int tfd__group_new(const tfd__group_config *config, tfd__group **group_p) {
  const tfd__provider *provider = NULL;
  const tfd__provider *before = NULL;
  tfd__error kept = {0};
  bool unfit = false;
  int rc = check_ranks(config);

  for (int score = INT_MAX; rc == TFD_OK; score = before->score) {
    rc = tfd__provider_find(config->provider, config, score, &provider);
    if (rc != TFD_OK) break;
    if (provider == before) { /* it was named */
      rc = tfd__error_raise(&kept);
      break;
    }
    tfd__error_free(&kept);
    unfit = false;
    rc = open_with(config, provider, group_p, &unfit);
    if (!unfit) break;
    tfd__error_save(&kept);
    tfd__log(TFD_LOG_INFO, "%s", kept.message);
    before = provider;
    rc = TFD_OK;
  }
  tfd__error_free(&kept);
  return rc;
}

int tfd__group_inner(const tfd__group_config *config, tfd__group **group_p) {
  const tfd__provider *provider = NULL;
  tfd__group *g = NULL;
  int rc;

  TFD_TRY(tfd__provider_find(config->provider, config, INT_MAX, &provider));
  TFD_TRY(group_make(config, &g));
  g->inner = true;
  g->provider = provider;
  rc = provider->open(g, config);
  if (rc != TFD_OK) {
    g->provider = NULL; /* only what was opened is closed */
    tfd__release(g);
    return rc;
  }
  *group_p = g;
  return TFD_OK;
}

int tfd__group_solo(tfd__group **group_p) {
  tfd__group_config config = {.local = 1, .size = 1};

  return group_make(&config, group_p);
}
