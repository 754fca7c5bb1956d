/* One call of a function on every replica: whose turn it is.
**
** Replicas take turns in order and run until they return or reach a sync
** point. When all have stopped they must be at the same point.
**
** A strategy keeps its last finished run: the next one costs no allocation
** where nothing has kept or changed the replicas' contexts. */
#include "distribute/distribute.h"

#include <stdio.h>
#include <string.h>

enum { POINT_TEXT = 64 };

typedef enum replica_state { READY = 0, WAITING, RETURNED } replica_state;

typedef struct replica {
  tfd_context *context; /* owned reference */
  replica_state state;
  char point[POINT_TEXT];
} replica;

struct tfd_run {
  tfd_object object;
  tfd_strategy *strategy; /* owned reference */
  tfd_context *outer;     /* owned reference: the caller's */
  bool running;           /* replica `at` has its turn */
  bool cancelled;
  int64_t turn; /* when it began, for a timeline */
  int at;       /* next replica to look at */
  int n;
  replica replicas[];
};

/* Replicas record where the caller does. */
static void set_recorder(tfd_run *run, tfd__recorder *recorder) {
  int i;

  for (i = 0; i < run->n; i++) {
    tfd_context *c = run->replicas[i].context;

    if (recorder != NULL) tfd__retain(recorder);
    tfd__release(c->recorder);
    tfd__release(c->paused);
    c->recorder = recorder;
    c->paused = NULL;
  }
}

/* Before the next replica is looked at. */
TFD_COLD static void note_turn(const tfd_run *run) {
  int number = tfd__context()->replica;
  char name[32];

  (void)snprintf(name, sizeof name, "replica %d", number);
  tfd__span_end(TFD_SPAN_REPLICA, tfd__span_name(name), run->turn, number);
}

static void leave(tfd_run *run) {
  if (!TFD_LIKELY(run->turn == 0)) note_turn(run);
  run->turn = 0;
  run->running = false;
  tfd_context_enter(run->outer);
}

void tfd__run_discard(tfd_run *run) {
  int i;

  for (i = 0; i < run->n; i++) tfd__release(run->replicas[i].context);
  tfd__free(run);
}

/* Nothing but this run knows the contexts, and they are as they were made. */
static bool is_clean(const tfd_run *run) {
  const tfd_strategy *s = run->strategy;
  int i;

  for (i = 0; i < run->n; i++) {
    const tfd_context *c = run->replicas[i].context;

    if (atomic_load_explicit(&c->object.refs, memory_order_acquire) != 1 ||
        c->tapes != NULL || c->update != 0 ||
        c->device_depth != (s->devices_n > 0) ||
        (s->devices_n > 0 && c->device_stack[0] != s->devices[i])) {
      return false;
    }
  }
  return run->n == s->group->local;
}

static void run_destroy(void *self) {
  tfd_run *run = self;
  tfd_strategy *s = run->strategy;

  if (run->running) leave(run);
  set_recorder(run, NULL);
  tfd__release(run->outer);
  run->outer = NULL;
  run->strategy = s;
  if (s->spare == NULL && is_clean(run)) {
    s->spare = run;
  } else {
    tfd__run_discard(run);
  }
  tfd__release(s); /* may be the last one, and end the spare run too */
}

static const tfd__type run_type = {
    .name = "run",
    .kind = TFD_HANDLE_RUN,
    .destroy = run_destroy,
};

/* Replica i's context: on its device, with nothing of the caller's. */
static int make_context(tfd_run *run, int i) {
  tfd_strategy *s = run->strategy;
  tfd_context *c = NULL;

  TFD_TRY(tfd_context_new(&c));
  run->replicas[i].context = c;
  c->replica = tfd__replica_of(s, i);
  c->strategy = s;
  if (i < s->devices_n) c->device_stack[c->device_depth++] = s->devices[i];
  return TFD_OK;
}

static int make_run(tfd_strategy *strategy, int n, tfd_run **run_p) {
  size_t bytes = sizeof(tfd_run) + (size_t)n * sizeof(replica);
  tfd_run *run = tfd__calloc(1, bytes);
  int rc = TFD_OK;

  if (run == NULL) return tfd__no_memory(bytes, "strategy:run");
  run->strategy = strategy;
  while (rc == TFD_OK && run->n < n) {
    rc = make_context(run, run->n);
    if (rc == TFD_OK) run->n++;
  }
  if (rc != TFD_OK) {
    tfd__run_discard(run);
    return rc;
  }
  *run_p = run;
  return TFD_OK;
}

int tfd_run_begin(tfd_strategy *strategy, tfd_run **run_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(run_p);

  tfd_context *outer = tfd__context();
  tfd_run *run = strategy->spare;
  int i;

  if (outer->replica >= 0) {
    tfd__fail(TFD_RUNTIME_ERROR,
              "strategy:run requires cross-replica context, but replica %d "
              "called it",
              outer->replica);
    return tfd__hint("a replica function cannot start another run");
  }
  if (run == NULL) {
    TFD_TRY(make_run(strategy, strategy->group->local, &run));
  }
  strategy->spare = NULL;
  tfd__object_init(&run->object, &run_type);
  tfd__retain(strategy);
  tfd__retain(outer);
  run->outer = outer;
  run->cancelled = false;
  run->turn = 0;
  run->at = 0;
  for (i = 0; i < run->n; i++) {
    replica *r = &run->replicas[i];

    r->state = READY;
    r->point[0] = 0;
    r->context->line = outer->line;
    r->context->file = outer->file;
    r->context->note = outer->note;
  }
  set_recorder(run, outer->recorder);
  *run_p = run;
  return TFD_OK;
}

static bool same_point(const replica *a, const replica *b) {
  int i = 0;

  if (a->state != b->state) return false;
  if (a->state != WAITING) return true;
  while (a->point[i] != 0 && a->point[i] == b->point[i]) i++;
  return a->point[i] == b->point[i];
}

/* All replicas have stopped: where? */
static void judge(tfd_run *run, tfd_run_event *event_p, int *replica_p) {
  int i;

  *replica_p = 0;
  if (run->cancelled) {
    *event_p = TFD_RUN_DONE;
    return;
  }
  for (i = 1; i < run->n; i++) {
    if (same_point(&run->replicas[0], &run->replicas[i])) continue;
    *event_p = TFD_RUN_DIVERGED;
    *replica_p = i;
    return;
  }
  if (run->replicas[0].state == RETURNED) {
    *event_p = TFD_RUN_DONE;
    return;
  }
  for (i = 0; i < run->n; i++) run->replicas[i].state = READY;
  run->at = 0;
  *event_p = TFD_RUN_MERGE;
}

int tfd_run_next(tfd_run *run, tfd_run_event *event_p, int *replica_p) {
  TFD_GIVEN(run, RUN);
  TFD_GIVEN_POINTER(event_p);
  TFD_GIVEN_POINTER(replica_p);
  if (run->running) {
    return tfd__fail(TFD_RUNTIME_ERROR,
                     "strategy:run: replica %d has not stopped",
                     tfd__replica_of(run->strategy, run->at));
  }
  while (run->at < run->n && run->replicas[run->at].state != READY) run->at++;
  if (run->at == run->n) {
    judge(run, event_p, replica_p);
    return TFD_OK;
  }
  TFD_TRY(tfd_context_enter(run->replicas[run->at].context));
  run->running = true;
  run->turn = tfd__span_begin();
  *event_p = TFD_RUN_RESUME;
  *replica_p = run->at;
  return TFD_OK;
}

static void copy_point(char *to, const char *point) {
  size_t n = strlen(point);

  if (n >= POINT_TEXT) n = POINT_TEXT - 1;
  memcpy(to, point, n);
  to[n] = 0;
}

int tfd_run_stopped(tfd_run *run, const char *point) {
  TFD_GIVEN(run, RUN);
  TFD_GIVEN_POINTER(point);

  replica *r = NULL;

  if (!run->running) {
    return tfd__fail(TFD_RUNTIME_ERROR, "strategy:run: no replica runs");
  }
  r = &run->replicas[run->at++];
  r->state = point[0] == 0 ? RETURNED : WAITING;
  copy_point(r->point, point);
  leave(run);
  return TFD_OK;
}

int tfd_run_pass(tfd_run *run, const char *point, tfd_run_event *event_p,
                 int *replica_p) {
  TFD_GIVEN(run, RUN);
  TFD_GIVEN_POINTER(point);
  TFD_GIVEN_POINTER(event_p);
  TFD_GIVEN_POINTER(replica_p);
  TFD_TRY(tfd_run_stopped(run, point));
  return tfd_run_next(run, event_p, replica_p);
}

int tfd_run_cancel(tfd_run *run) {
  TFD_GIVEN(run, RUN);

  int i;

  if (run->running) {
    run->replicas[run->at].state = RETURNED;
    leave(run);
  }
  run->cancelled = true;
  run->at = 0;
  for (i = 0; i < run->n; i++) {
    replica *r = &run->replicas[i];

    /* One that waits is woken once; one that never began need not. */
    if (r->state == WAITING) {
      r->state = READY;
    } else if (r->point[0] == 0) {
      r->state = RETURNED;
    }
  }
  return TFD_OK;
}

/* "reached all_reduce at train.lua:31" */
static void describe(const replica *r, const char *where, char *text,
                     size_t n) {
  const char *at = where[0] != 0 ? " at " : "";

  if (r->state == RETURNED) {
    snprintf(text, n, "returned%s%s without it", at, where);
  } else {
    snprintf(text, n, "reached %s%s%s", r->point, at, where);
  }
}

int tfd_run_diverge(tfd_run *run, int replica_number, const char *where_first,
                    const char *where_other) {
  TFD_GIVEN(run, RUN);
  TFD_GIVEN_POINTER(where_first);
  TFD_GIVEN_POINTER(where_other);

  char first[256];
  char other[256];
  int first_number = 0;
  const replica *a = &run->replicas[0];
  const replica *b = NULL;

  if (replica_number < 0 || replica_number >= run->n) replica_number = 0;
  b = &run->replicas[replica_number];
  if (a->state == RETURNED) {
    /* The one that reached a point comes first: "it" is that point. */
    const replica *swap = a;
    const char *where = where_first;

    a = b;
    b = swap;
    where_first = where_other;
    where_other = where;
    first_number = replica_number;
    replica_number = 0;
  }
  describe(a, where_first, first, sizeof first);
  describe(b, where_other, other, sizeof other);
  tfd__fail(TFD_RUNTIME_ERROR,
            "replicas took different paths: replica %d %s, replica %d %s",
            tfd__replica_of(run->strategy, first_number), first,
            tfd__replica_of(run->strategy, replica_number), other);
  return tfd__hint("a condition around a sync point must be the same on every "
                   "replica; all need the same number of merge calls");
}
