/* A group's thread that moves collectives on while their caller computes.
**
** It lets the devices come to what is given first, and hears of none of their
** failures: those are the caller's, as all errors of tickets are. */
#include "comm/private.h"

/* Of a look at a ticket: so long a recall may take. */
#define LOOK_NS 1000000

typedef struct tfd__attendant tfd__attendant;

struct tfd__attendant {
  tfd__mutex lock;
  tfd__cond changed;
  tfd__thread thread;
  tfd__ticket **list; /* borrowed; all below: under the lock */
  int list_n, list_room;
  int next;  /* those before it are over */
  bool busy; /* with that one */
  bool recalled;
  bool ends;
};

/* --- the thread ----------------------------------------------------------- */

/* One look; true when it need not be looked at again here. */
static bool look(tfd__ticket *t) {
  const tfd__group *g = t->group;
  tfd__deadline until = tfd__now_ns() + LOOK_NS;
  bool done = false;
  int i;

  for (i = 0; i < g->local; i++) {
    int rc = tfd__wait_done(g->devices[i], t->seqs[i], until);

    if (rc != TFD_OK) return rc != TFD_DEADLINE_EXCEEDED;
    if (!tfd__stream_has_passed(g->devices[i], t->seqs[i])) return true;
  }
  return tfd__ticket_look(t, until, &done) != TFD_OK || done;
}

/* The lock is held, but not meanwhile. */
static void move(tfd__attendant *a) {
  tfd__ticket *t = a->list[a->next];
  int64_t begin = tfd__span_begin();
  bool over = false;

  a->busy = true;
  while (!over && !a->recalled && !a->ends) {
    tfd__unlock(&a->lock);
    over = look(t);
    tfd__lock(&a->lock);
  }
  a->next += over;
  a->busy = false;
  tfd__span_end(TFD_SPAN_COLLECTIVE, tfd__collective_name(t->kind), begin, -1);
  tfd__cond_broadcast(&a->changed);
}

static void attend(void *arg) {
  tfd__attendant *a = arg;

  tfd__use_threads(1);
  tfd__lock(&a->lock);
  while (!a->ends) {
    if (a->next < a->list_n && !a->recalled) {
      move(a);
    } else {
      (void)tfd__cond_wait(&a->changed, &a->lock, TFD_FOREVER);
    }
  }
  tfd__unlock(&a->lock);
}

/* --- life ----------------------------------------------------------------- */

static tfd__attendant *attendant_new(void) {
  tfd__attendant *a = tfd__calloc(1, sizeof *a);

  if (a == NULL) return NULL;
  if (tfd__mutex_init(&a->lock, 4) != TFD_OK) {
    tfd__free(a);
    return NULL;
  }
  if (tfd__cond_init(&a->changed) != TFD_OK) {
    tfd__mutex_destroy(&a->lock);
    tfd__free(a);
    return NULL;
  }
  if (tfd__thread_start(&a->thread, "tfd/sums", attend, a) != TFD_OK) {
    tfd__cond_destroy(&a->changed);
    tfd__mutex_destroy(&a->lock);
    tfd__free(a);
    return NULL;
  }
  return a;
}

void tfd__attendant_free(tfd__attendant *a) {
  if (a == NULL) return;
  tfd__lock(&a->lock);
  a->ends = true;
  tfd__cond_broadcast(&a->changed);
  tfd__unlock(&a->lock);
  tfd__thread_join(a->thread);
  tfd__cond_destroy(&a->changed);
  tfd__mutex_destroy(&a->lock);
  tfd__free(a->list);
  tfd__free(a);
}

/* --- callers -------------------------------------------------------------- */

static bool make_room(tfd__attendant *a) {
  int room = a->list_room * 2 + 16;
  tfd__ticket **list = NULL;

  if (a->list_n < a->list_room) return true;
  list = tfd__realloc(a->list, (size_t)room * sizeof *list);
  if (list == NULL) return false;
  a->list = list;
  a->list_room = room;
  return true;
}

void tfd__ticket_attend(tfd__ticket *t) {
  tfd__group *g = t->group;
  tfd__attendant *a = NULL;

  if (g->attendant == NULL) g->attendant = attendant_new();
  a = g->attendant;
  if (a == NULL) return;
  tfd__lock(&a->lock);
  if (make_room(a)) {
    a->list[a->list_n++] = t;
    tfd__cond_broadcast(&a->changed);
  }
  tfd__unlock(&a->lock);
}

void tfd__group_recall(tfd__group *g) {
  tfd__attendant *a = g->attendant;

  if (a == NULL) return;
  tfd__lock(&a->lock);
  a->recalled = true;
  while (a->busy) (void)tfd__cond_wait(&a->changed, &a->lock, TFD_FOREVER);
  a->list_n = a->next = 0;
  a->recalled = false;
  tfd__unlock(&a->lock);
}
