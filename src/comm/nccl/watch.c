/* The thread that sees whether collectives under way get on: nobody else does,
** for the host does not wait for them, and a GPU that waits for one that has
** stopped waits for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/nccl/nccl.h"

enum { LOOK_MS = 50 };

tfd__nccl_watch tfd__nccl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int made;
static tfd__thread thread;
static pid_t process; /* whose thread it is */

static void make_lock(void) {
  made = tfd__mutex_init(&tfd__nccl.lock, 5);
  if (made == TFD_OK) made = tfd__cond_init(&tfd__nccl.changed);
}

/* --- one group: the lock is held --------------------------------------------
 */

/* All GPUs are asked: one that is lost is waited for by the others. */
static int has_passed(const tfd__nccl_group *own, const tfd__nccl_mark *m,
                      bool *passed_p) {
  bool passed = m->recorded;
  int i;

  *passed_p = false;
  for (i = 0; i < own->local && m->recorded; i++) {
    const tfd__nccl_rank *r = &own->ranks[i];
    CUresult result = CUDA_SUCCESS;

    TFD_TRY(r->native->use(r->native->ordinal));
    result = r->native->driver->cuEventQuery(m->over[i]);
    if (result == CUDA_ERROR_NOT_READY) {
      passed = false;
    } else {
      TFD_TRY(r->native->check(result, r->device->short_name));
    }
  }
  *passed_p = passed;
  return TFD_OK;
}

int tfd__nccl_drop_passed(tfd__nccl_group *own) {
  while (own->marks_n > 0) {
    bool passed = false;

    TFD_TRY(has_passed(own, &own->marks[own->marks_first], &passed));
    if (!passed) return TFD_OK;
    own->marks_first = (own->marks_first + 1) % TFD_NCCL_MARKS;
    own->marks_n--;
    own->until = tfd__deadline_in(own->timeout);
  }
  return TFD_OK;
}

static int check_deadline(const tfd__nccl_group *own) {
  const tfd__nccl_mark *m = &own->marks[own->marks_first];
  tfd__deadline until = m->until != 0 ? m->until : own->until;
  char within[48] = "at its deadline";

  if (own->marks_n == 0 || tfd__now_ns() < until) return TFD_OK;
  if (m->until == 0) {
    (void)snprintf(within, sizeof within, "within %g s", own->timeout);
  }
  (void)tfd__fail(TFD_DEADLINE_EXCEEDED, "%s: not done by NCCL on %s to %s %s",
                  m->name, own->ranks[0].device->short_name,
                  own->ranks[own->local - 1].device->short_name, within);
  if (m->until != 0) return TFD_DEADLINE_EXCEEDED;
  return tfd__hint("TFDIST_OP_TIMEOUT sets the seconds; the next collective "
                   "connects the GPUs anew");
}

static void look_after(tfd__nccl_group *own) {
  int rc = TFD_OK;

  if (own->ending || !own->there) return;
  rc = tfd__nccl_drop_passed(own);
  if (rc == TFD_OK) {
    rc =
        tfd__nccl_look(own, own->marks_n > 0 ? own->marks[own->marks_first].name
                                             : "watching GPUs");
  }
  if (rc == TFD_OK) rc = check_deadline(own);
  if (rc != TFD_OK) (void)tfd__nccl_break(own);
}

/* --- the thread -------------------------------------------------------------
 */

/* The lock is let go of meanwhile: list and group may change, so one at the
** most, and then all anew. */
static bool free_one(void) {
  tfd__nccl_group **at = &tfd__nccl.groups;

  for (; *at != NULL; at = &(*at)->next) {
    tfd__nccl_group *own = *at;

    if (!own->closing || own->ending) continue;
    *at = own->next;
    tfd__nccl_group_free(own);
    return true;
  }
  return false;
}

static bool is_under_way(void) {
  const tfd__nccl_group *own = tfd__nccl.groups;

  while (own != NULL && own->marks_n == 0) own = own->next;
  return own != NULL;
}

static bool look_after_all(void) {
  tfd__nccl_group *own = NULL;

  for (own = tfd__nccl.groups; own != NULL; own = own->next) look_after(own);
  while (!is_under_way() && free_one()) continue;
  return is_under_way();
}

static void watch(void *arg) {
  (void)arg;
  tfd__lock(&tfd__nccl.lock);
  while (!tfd__nccl.leaving) {
    bool more = look_after_all();
    tfd__deadline until =
        more ? tfd__now_ns() + LOOK_MS * 1000000 : TFD_FOREVER;

    (void)tfd__cond_wait(&tfd__nccl.changed, &tfd__nccl.lock, until);
  }
  tfd__nccl.over = true;
  tfd__cond_broadcast(&tfd__nccl.changed);
  tfd__unlock(&tfd__nccl.lock);
}

/* Before CUDA's libraries are torn down. A forked child has no such thread. */
static void leave(void) {
  tfd__deadline until = tfd__deadline_in(TFD_NCCL_END_SECONDS);
  bool over = false;

  if (getpid() != process) return;
  tfd__lock(&tfd__nccl.lock);
  tfd__nccl.leaving = true;
  tfd__cond_broadcast(&tfd__nccl.changed);
  while (!tfd__nccl.over && tfd__now_ns() < until) {
    (void)tfd__cond_wait(&tfd__nccl.changed, &tfd__nccl.lock, until);
  }
  over = tfd__nccl.over;
  tfd__unlock(&tfd__nccl.lock);
  if (over) (void)pthread_join(thread, NULL);
}

static int start(void) {
  if (tfd__nccl.started) return TFD_OK;
  TFD_TRY(tfd__thread_start(&thread, "tfd-nccl", watch, NULL));
  tfd__nccl.started = true;
  process = getpid();
  (void)atexit(leave);
  return TFD_OK;
}

int tfd__nccl_watch_add(tfd__nccl_group *own) {
  int rc;

  (void)pthread_once(&once, make_lock);
  TFD_TRY(made);
  tfd__lock(&tfd__nccl.lock);
  rc = start();
  if (rc == TFD_OK) rc = tfd__nccl_ranks_new(own);
  if (rc == TFD_OK) {
    own->next = tfd__nccl.groups;
    tfd__nccl.groups = own;
  }
  tfd__unlock(&tfd__nccl.lock);
  return rc;
}

void tfd__nccl_watch_wake(void) {
  tfd__cond_broadcast(&tfd__nccl.changed);
}
