/* Running a processor device's work in order, and waiting for it.
**
** Every device but the first has a worker. The first has none and is run by
** whichever host thread waits ("caller runs"): a blocked host would otherwise
** cost a core a wake-up for each step. Deadlock is impossible because a wait
** always drains the first device's queue: work depends only on earlier work,
** so the earliest unfinished piece of all queues can always run, and somebody
** always runs it. Nobody spins when there are more runnable threads than
** cores. */
#include <string.h>

#include "backend/cpu/stream/stream.h"

/* The host's signal handler cannot signal a condition: parked host threads
** look at the interrupt flag this often. */
#define POLL_NS 20000000

/* Guards the list of streams and the board's preparation. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static tfd__cpu_stream *streams;
static tfd__cpu_stream *first; /* the one that waiting threads run */

static tfd__cpu_stream *mine(tfd__stream *stream) {
  return (tfd__cpu_stream *)(void *)stream;
}

/* --- running -------------------------------------------------------------- */

/* What a command still has to wait for; counter NULL = it can run. */
static tfd__target blocker(const tfd__command *c) {
  tfd__target t = {NULL, 0};

  if (c->on == NULL) return t;
  if (tfd__counter_get(&c->on->base.done) >= c->on_seq) return t;
  t.counter = &c->on->base.done;
  t.value = c->on_seq;
  return t;
}

static void run_command(tfd__cpu_stream *s, tfd__command *c) {
  uint64_t seq =
      atomic_load_explicit(&s->base.done.value, memory_order_relaxed) + 1;

  s->config.run(s->config.owner, &c->work, seq);
  tfd__ring_pop(s, c);
}

static void worker_main(void *arg) {
  tfd__cpu_stream *s = arg;
  int weight = s->config.threads;

  tfd__use_threads(weight);
  atomic_fetch_add(&tfd__board.running, weight);
  while (tfd__counter_get(&tfd__board.stop) == 0) {
    tfd__command *c = tfd__ring_peek(s);
    tfd__target targets[TFD_TARGETS] = {{&tfd__board.stop, 1}};

    if (c == NULL) {
      targets[1].counter = &s->base.taken;
      targets[1].value = tfd__counter_get(&s->base.done) + 1;
    } else {
      targets[1] = blocker(c);
      if (targets[1].counter == NULL) {
        run_command(s, c);
        continue;
      }
    }
    tfd__board_wait(targets, weight, TFD_FOREVER);
  }
  atomic_fetch_sub(&tfd__board.running, weight);
}

static int start_worker(tfd__cpu_stream *s) {
  int rc = TFD_OK;

  TFD_TRY(tfd__check_running());
  s->config.starting();
  tfd__lock(&tfd__board.lock);
  if (!atomic_load(&s->worker_started)) {
    char name[16] = "tfd";
    const char *from = s->config.name; /* "/cpu:1" */
    int i;

    for (i = 0; i < 12 && from[i] != '\0'; i++) name[3 + i] = from[i];
    rc = tfd__thread_start(&s->worker, name, worker_main, s);
    if (rc == TFD_OK) atomic_store(&s->worker_started, true);
  }
  tfd__unlock(&tfd__board.lock);
  return rc;
}

static int open_stream(tfd__cpu_stream *s) {
  if (!s->has_worker || TFD_LIKELY(atomic_load_explicit(
                            &s->worker_started, memory_order_acquire))) {
    return TFD_OK;
  }
  return start_worker(s);
}

/* Wait until `seq` has passed, whatever happens but the end of the process. */
static int wait_for_room(tfd__cpu_stream *s, uint64_t seq) {
  while (tfd__counter_get(&s->base.done) < seq) {
    TFD_TRY(tfd__check_running());
    if (tfd__interrupt_get()) {
      return tfd__fail(TFD_CANCELLED,
                       "interrupted while the queue of %s was full",
                       s->config.name);
    }
    tfd__cpu_wait(&s->base, seq, TFD_FOREVER);
  }
  return TFD_OK;
}

static int put(tfd__cpu_stream *s, const tfd__work *work, tfd__cpu_stream *on,
               uint64_t on_seq, uint64_t *seq_p) {
  bool full = false;

  TFD_TRY(open_stream(s));
  TFD_TRY(tfd__ring_put(s, work, on, on_seq, &full, seq_p));
  while (!TFD_LIKELY(!full)) {
    TFD_TRY(wait_for_room(s, *seq_p));
    TFD_TRY(tfd__ring_put(s, work, on, on_seq, &full, seq_p));
  }
  return TFD_OK;
}

int tfd__cpu_submit(tfd__stream *stream, const tfd__work *work,
                    uint64_t *seq_p) {
  return put(mine(stream), work, NULL, 0, seq_p);
}

int tfd__cpu_after(tfd__stream *stream, tfd__stream *on, uint64_t on_seq,
                   const tfd__work *work, uint64_t *seq_p) {
  return put(mine(stream), work, mine(on), on_seq, seq_p);
}

/* Waits for `waiter` at the end of `on` do not count: what `waiter` runs later
** comes after them anyway, and with what they inherit. So sums in a row need no
** answers. */
uint64_t tfd__cpu_awaited(tfd__stream *on, const tfd__stream *waiter) {
  tfd__cpu_stream *s = mine(on);
  uint64_t seq = 0;

  tfd__spin_lock(&s->submit_lock);
  seq = s->tail_on == (const void *)waiter
            ? s->tail_from
            : atomic_load_explicit(&on->taken.value, memory_order_relaxed);
  tfd__spin_unlock(&s->submit_lock);
  return seq;
}

/* --- waiting -------------------------------------------------------------- */

/* Run commands of the host's queue until `s` reaches seq, the queue is empty,
** or its next command must wait: *on_p then says for what. False when nothing
** could be run. */
static bool drain(tfd__cpu_stream *s, uint64_t seq, tfd__deadline until,
                  tfd__target *on_p) {
  tfd__cpu_stream *own = first;
  uint64_t releases = tfd__counter_get(&own->releases);
  bool progress = false;

  if (tfd__counter_get(&own->base.done) == tfd__counter_get(&own->base.taken)) {
    return false;
  }
  if (atomic_exchange(&own->draining, true)) {
    on_p->counter = &own->releases; /* another host thread is at it */
    on_p->value = releases + 1;
    return false;
  }
  tfd__use_threads(own->config.threads);
  while (tfd__counter_get(&s->base.done) < seq && !tfd__interrupt_get()) {
    tfd__command *c = tfd__ring_peek(own);

    if (c == NULL) break;
    *on_p = blocker(c);
    if (on_p->counter != NULL) break;
    run_command(own, c);
    progress = true;
    if (until != TFD_FOREVER && tfd__now_ns() >= until) break;
  }
  releases = tfd__counter_get(&own->releases);
  atomic_store(&own->draining, false);
  tfd__counter_set(&own->releases, releases + 1);
  return progress;
}

void tfd__cpu_wait(tfd__stream *stream, uint64_t seq, tfd__deadline until) {
  tfd__cpu_stream *s = mine(stream);
  tfd__target targets[TFD_TARGETS] = {{NULL, 0}};
  int64_t slice = 0;

  if (drain(s, seq, until, &targets[0])) return;
  targets[1].counter = &stream->done;
  targets[1].value = seq;
  slice = tfd__now_ns() + POLL_NS;
  tfd__board_wait(targets, first->config.threads,
                  slice < until ? slice : until);
}

/* --- life ----------------------------------------------------------------- */

/* The host's thread counts as running what the first device may use. */
static int prepare_board(const tfd__stream_config *config) {
  static bool prepared = false;

  if (!prepared) {
    TFD_TRY(tfd__mutex_init(&tfd__board.lock, 2));
    tfd__counter_init(&tfd__board.stop);
    tfd__board.cores = tfd__cores();
    prepared = true;
  }
  if (config->ordinal == 0) atomic_store(&tfd__board.running, config->threads);
  return TFD_OK;
}

static int add_stream(tfd__cpu_stream *s) {
  int rc;

  pthread_mutex_lock(&list_lock);
  rc = prepare_board(&s->config);
  if (rc == TFD_OK) {
    s->next = streams;
    streams = s;
    if (!s->has_worker) first = s;
  }
  pthread_mutex_unlock(&list_lock);
  return rc;
}

int tfd__cpu_stream_new(const tfd__stream_config *config,
                        tfd__stream **stream_p) {
  tfd__cpu_stream *s = tfd__alloc_aligned(64, sizeof *s);
  size_t ring = (size_t)TFD_RING_UNITS * TFD_UNIT;
  int rc;

  if (s == NULL) return tfd__no_memory(sizeof *s, "stream");
  *s = (tfd__cpu_stream){.config = *config, .has_worker = config->ordinal > 0};
  tfd__counter_init(&s->base.taken);
  tfd__counter_init(&s->base.done);
  tfd__counter_init(&s->releases);
  s->ring = tfd__alloc_aligned(TFD_UNIT, ring);
  rc = s->ring == NULL ? tfd__no_memory(ring, "stream") : add_stream(s);
  if (rc != TFD_OK) {
    tfd__free(s->ring);
    tfd__free(s);
    return rc;
  }
  *stream_p = &s->base;
  return TFD_OK;
}

void tfd__cpu_stream_free(tfd__stream *stream) {
  tfd__cpu_stream *s = mine(stream);
  tfd__cpu_stream **link = &streams;

  pthread_mutex_lock(&list_lock);
  while (*link != s) link = &(*link)->next;
  *link = s->next;
  if (streams == NULL) tfd__board_free();
  pthread_mutex_unlock(&list_lock);
  tfd__free(s->ring);
  tfd__free(s);
}

/* No worker runs, and no host thread drains. */
static void discard(tfd__cpu_stream *s) {
  tfd__command *c = NULL;

  if (atomic_exchange(&s->draining, true)) return;
  while ((c = tfd__ring_peek(s)) != NULL) {
    s->config.drop(s->config.owner, &c->work);
    tfd__ring_pop(s, c);
  }
}

void tfd__cpu_stop(void) {
  tfd__cpu_stream *s = NULL;

  if (streams == NULL) return;
  tfd__counter_set(&tfd__board.stop, 1);
  for (s = streams; s != NULL; s = s->next) {
    if (!atomic_load(&s->worker_started)) continue;
    tfd__thread_join(s->worker);
    atomic_store(&s->worker_started, false);
  }
  for (s = streams; s != NULL; s = s->next) discard(s);
}
