/* Turns: one list of all, in the order in which they began. */
#include <poll.h>

#include "comm/tcp/turns.h"

enum { NAP_MS = 1 };

/* Of a wait, while there are others to look after. */
#define SHORT_NS 1000000

/* That others get then: devices that need this thread for what is given to a
** collective get on in it. */
#define MOMENT_NS 100000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tfd__turn *turns;
static uint64_t rounds;

void tfd__turn_begin(tfd__turn *t, tfd__group *group,
                     int (*move)(tfd__turn *, tfd__deadline, bool *)) {
  tfd__turn **at = &turns;

  *t = (tfd__turn){.group = group, .move = move};
  pthread_mutex_lock(&lock);
  while (*at != NULL) at = &(*at)->next;
  *at = t;
  pthread_mutex_unlock(&lock);
}

/* The lock is held, as below. */
static void remove_turn(const tfd__turn *t) {
  tfd__turn **at = &turns;

  while (*at != NULL && *at != t) at = &(*at)->next;
  if (*at != NULL) *at = t->next;
}

static tfd__turn *oldest_of(const tfd__group *g) {
  tfd__turn *t = turns;

  while (t != NULL && t->group != g) t = t->next;
  return t;
}

/* The group's oldest; NULL while somebody else moves it. *alone_p: no other
** group has one. */
static tfd__turn *take(const tfd__group *g, bool *alone_p) {
  const tfd__turn *other = NULL;
  tfd__turn *t = NULL;

  pthread_mutex_lock(&lock);
  for (other = turns; other != NULL && other->group == g;) other = other->next;
  *alone_p = other == NULL;
  t = oldest_of(g);
  if (t != NULL && t->busy) t = NULL;
  if (t != NULL) t->busy = true;
  pthread_mutex_unlock(&lock);
  return t;
}

/* Another group's oldest that was not there in this round; g may be NULL. */
static tfd__turn *take_other(const tfd__group *g, uint64_t round) {
  tfd__turn *t = NULL;

  pthread_mutex_lock(&lock);
  for (t = turns; t != NULL; t = t->next) {
    if (t->group == g || t->busy || t->round == round) continue;
    if (oldest_of(t->group) == t) break;
  }
  if (t != NULL) {
    t->round = round;
    t->busy = true;
  }
  pthread_mutex_unlock(&lock);
  return t;
}

/* Move what was taken; true when it is over. Where another one is waited for,
** its error is the group's: who waits there would wait in vain. */
static bool move(tfd__turn *t, tfd__deadline until, const tfd__turn *waited) {
  bool done = false;
  int rc = t->move(t, until, &done);
  bool over = done || rc != TFD_OK;

  if (rc != TFD_OK) tfd__error_save(&t->error);
  if (rc != TFD_OK && t != waited) (void)tfd__group_fail(t->group);
  pthread_mutex_lock(&lock);
  t->over = over;
  if (over) remove_turn(t);
  t->busy = false; /* from here on it may be gone */
  pthread_mutex_unlock(&lock);
  return over;
}

/* Of all groups but the one of what is waited for. */
static bool move_others(const tfd__turn *waited) {
  const tfd__group *g = waited == NULL ? NULL : waited->group;
  tfd__error kept = {0};
  tfd__turn *t = NULL;
  uint64_t round = 0;
  bool some = false;

  pthread_mutex_lock(&lock);
  round = ++rounds;
  pthread_mutex_unlock(&lock);
  tfd__error_save(&kept);
  while ((t = take_other(g, round)) != NULL) {
    some = true;
    (void)move(t, tfd__now_ns() + MOMENT_NS, waited);
  }
  (void)tfd__error_raise(&kept);
  tfd__error_free(&kept);
  return some;
}

bool tfd__turns_tend(void) {
  bool some = false;

  pthread_mutex_lock(&lock);
  some = turns != NULL;
  pthread_mutex_unlock(&lock);
  return some && move_others(NULL);
}

static bool is_over(const tfd__turn *t) {
  bool over = false;

  pthread_mutex_lock(&lock);
  over = t->over;
  pthread_mutex_unlock(&lock);
  return over;
}

int tfd__turn_wait(tfd__turn *t, tfd__deadline until, bool *done_p) {
  while (!is_over(t)) {
    bool alone = true;
    tfd__turn *first = take(t->group, &alone);
    int64_t soon = tfd__now_ns() + SHORT_NS;

    if (!alone && soon < until) until = soon;
    if (first == NULL) {
      (void)poll(NULL, 0, NAP_MS);
      if (tfd__now_ns() >= until) return TFD_OK;
    } else if (!move(first, until, t)) {
      (void)move_others(t);
      return TFD_OK;
    }
  }
  if (t->error.code != TFD_OK) return tfd__error_raise(&t->error);
  *done_p = true;
  return TFD_OK;
}

void tfd__turn_end(tfd__turn *t) {
  bool busy = false;

  do {
    if (busy) (void)poll(NULL, 0, NAP_MS);
    pthread_mutex_lock(&lock);
    remove_turn(t);
    busy = t->busy;
    pthread_mutex_unlock(&lock);
  } while (busy);
  tfd__error_free(&t->error);
}
