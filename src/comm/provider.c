/* Which providers there are, and their tables made complete. */
#include "comm/private.h"

#include <string.h>

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
  count++;
  return TFD_OK;
}

static int add_built_in(void) {
  if (count > 0) return TFD_OK;
  TFD_TRY(add(&tfd__shared_provider));
  return add(&tfd__tcp_provider);
}

static int add_other(const tfd__provider *p) {
  TFD_TRY(add_built_in());
  if (p->abi != TFD_PROVIDER_ABI) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "provider: made for another version of tfdist (table %d, "
                     "here %d)",
                     p->abi, TFD_PROVIDER_ABI);
  }
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

static int find_named(const char *name, const tfd__group_config *config,
                      const tfd__provider **provider_p) {
  const tfd__provider *p = find(name);

  if (p == NULL) {
    return tfd__fail(TFD_NOT_FOUND, "group: there is no provider \"%s\"", name);
  }
  TFD_TRY(p->can(config));
  *provider_p = p;
  return TFD_OK;
}

/* The failure is that of the best one. */
static int find_best(const tfd__group_config *config,
                     const tfd__provider **provider_p) {
  const tfd__provider *best = NULL;
  int before = 0;
  int i;

  for (i = 0; i < count; i++) {
    if (best != NULL && list[i].score <= best->score) continue;
    if (list[i].can(config) == TFD_OK) best = &list[i];
  }
  for (i = 0; best == NULL && i < count; i++) {
    if (list[i].score > list[before].score) before = i;
  }
  if (best == NULL) return list[before].can(config);
  *provider_p = best;
  return TFD_OK;
}

int tfd__provider_find(const char *name, const tfd__group_config *config,
                       const tfd__provider **provider_p) {
  int rc;

  pthread_mutex_lock(&lock);
  rc = add_built_in();
  if (rc == TFD_OK) {
    rc = name == NULL ? find_best(config, provider_p)
                      : find_named(name, config, provider_p);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}
