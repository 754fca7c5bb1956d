/* A provider of the smallest size: the workers are threads of one process, and
** a hub carries what one of them says to all. It has broadcasts alone; all
** other collectives are what the library makes of them.
**
** config.network is the beginning of the hub. A worker that fails or is aborted
** leaves the hub broken, and the others fail. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

/* What the n-th broadcast said; every worker reads it once. */
typedef struct message {
  struct message *next;
  uint64_t number;
  int readers;
  size_t bytes;
  char data[];
} message;

typedef struct toy_hub {
  tfd__network network;
  tfd__mutex lock;
  tfd__cond changed;
  int workers;
  bool broken;
  message *messages;
} toy_hub;

typedef struct toy {
  toy_hub *hub;
  uint64_t number; /* of the next broadcast */
} toy;

/* Where a broadcast goes when it has come. */
typedef struct toy_wish {
  uint64_t number;
  size_t bytes;
  int local;
  tfd__piece out[TFD_MAX_LOCAL_RANKS];
  size_t offset[TFD_MAX_LOCAL_RANKS];
} toy_wish;

static int toy_can(const tfd__group_config *c) {
  const toy_hub *hub = (const toy_hub *)c->network;

  if (hub != NULL && c->size == hub->workers * c->local) return TFD_OK;
  return tfd__fail(TFD_UNAVAILABLE, "toy: %d ranks need a hub for %d workers",
                   c->size, c->size / c->local);
}

static int toy_open(tfd__group *g, const tfd__group_config *c) {
  toy *own = calloc(1, sizeof *own);

  if (own == NULL) return tfd__no_memory(sizeof *own, "toy");
  own->hub = (toy_hub *)(uintptr_t)c->network;
  g->own = own;
  return TFD_OK;
}

static void toy_close(tfd__group *g) {
  free(g->own);
}

static int toy_say(toy *own, const tfd__piece *p) {
  size_t bytes = tfd__view_bytes(p->view);
  message *m = malloc(sizeof *m + bytes);
  size_t at = (size_t)((char *)p->view->data - (char *)p->buffer->data);
  int rc;

  if (m == NULL) return tfd__no_memory(bytes, "toy");
  rc = tfd__host_read(p->buffer, at, m->data, bytes);
  if (rc != TFD_OK) {
    free(m);
    return rc;
  }
  m->number = own->number;
  m->bytes = bytes;
  tfd__lock(&own->hub->lock);
  m->readers = own->hub->workers;
  m->next = own->hub->messages;
  own->hub->messages = m;
  tfd__cond_broadcast(&own->hub->changed);
  tfd__unlock(&own->hub->lock);
  return TFD_OK;
}

static int toy_broadcast(tfd__group *g, const tfd__collective *c,
                         tfd__ticket *t) {
  toy *own = g->own;
  toy_wish *wish = calloc(1, sizeof *wish);
  int here = c->root - g->base;
  int rc = TFD_OK;
  int i;

  if (wish == NULL) return tfd__no_memory(sizeof *wish, "toy");
  t->own = wish;
  if (here >= 0 && here < g->local) rc = toy_say(own, &c->in[here]);
  wish->number = own->number++;
  wish->bytes = tfd__view_bytes(c->out[0].view);
  wish->local = g->local;
  for (i = 0; i < g->local; i++) {
    const tfd__piece *p = &c->out[i];

    wish->out[i].buffer = p->buffer;
    wish->offset[i] = (size_t)((char *)p->view->data - (char *)p->buffer->data);
  }
  return rc;
}

/* The message of this number; called with the lock. */
static message **toy_find(toy_hub *hub, uint64_t number) {
  message **m = &hub->messages;

  while (*m != NULL && (*m)->number != number) m = &(*m)->next;
  return m;
}

static int toy_wait(tfd__ticket *t, tfd__deadline until, bool *done_p) {
  toy_hub *hub = ((toy *)t->group->own)->hub;
  toy_wish *wish = t->own;
  message *m = NULL;
  bool broken;
  int rc = TFD_OK;
  int i;

  tfd__lock(&hub->lock);
  while (*toy_find(hub, wish->number) == NULL && !hub->broken &&
         tfd__cond_wait(&hub->changed, &hub->lock, until)) {
    continue;
  }
  m = *toy_find(hub, wish->number);
  broken = hub->broken;
  tfd__unlock(&hub->lock);
  if (m == NULL && broken) {
    /* Its own abort broke the hub? */
    TFD_TRY(tfd__group_check(t->group, "toy"));
    (void)tfd__fail(TFD_UNAVAILABLE, "toy: another worker has gone");
    return tfd__group_fail(t->group);
  }
  if (m == NULL) return TFD_OK;
  if (m->bytes != wish->bytes) {
    (void)tfd__fail(TFD_INVALID_ARGUMENT,
                    "toy: %zu bytes came where %zu were expected", m->bytes,
                    wish->bytes);
    return tfd__group_fail(t->group);
  }
  for (i = 0; rc == TFD_OK && i < wish->local; i++) {
    rc = tfd__host_write(wish->out[i].buffer, wish->offset[i], m->data,
                         m->bytes);
  }
  tfd__lock(&hub->lock);
  if (--m->readers == 0) {
    *toy_find(hub, wish->number) = m->next;
    free(m);
  }
  tfd__unlock(&hub->lock);
  *done_p = rc == TFD_OK;
  return rc;
}

static void toy_end(tfd__ticket *t) {
  free(t->own);
}

static void toy_abort(tfd__group *g) {
  toy_hub *hub = ((toy *)g->own)->hub;

  tfd__lock(&hub->lock);
  hub->broken = true;
  tfd__cond_broadcast(&hub->changed);
  tfd__unlock(&hub->lock);
}

static const tfd__provider toy_provider = {
    .abi = TFD_PROVIDER_ABI,
    .name = "toy",
    .score = 10,
    .can = toy_can,
    .open = toy_open,
    .close = toy_close,
    .begin = {[TFD_COLLECTIVE_BROADCAST] = toy_broadcast},
    .wait = toy_wait,
    .end = toy_end,
    .abort = toy_abort,
};

static inline void toy_hub_init(toy_hub *hub, int workers) {
  memset(hub, 0, sizeof *hub);
  (void)tfd__mutex_init(&hub->lock, 4);
  (void)tfd__cond_init(&hub->changed);
  hub->workers = workers;
}

static inline void toy_hub_end(toy_hub *hub) {
  while (hub->messages != NULL) {
    message *m = hub->messages;

    hub->messages = m->next;
    free(m);
  }
  tfd__cond_destroy(&hub->changed);
  tfd__mutex_destroy(&hub->lock);
}
