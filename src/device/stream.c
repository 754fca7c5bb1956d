/* Running a device's calls in order, and waiting for them.
**
** Who runs what: an inline stream runs a call inside submit. A queued stream
** is run by its worker; the first device has none and is run by whichever host
** thread waits ("caller runs"): a blocked host would otherwise cost a core a
** wake-up for each step. Deadlock is impossible because a wait always drains
** the first device's queue: commands depend only on earlier submitted ones, so
** the earliest unfinished command of all queues can always run, and somebody
** always runs it. */
#include "device/private.h"

/* The host's signal handler cannot signal a condition: parked host threads
** look at the interrupt flag this often. */
#define POLL_NS 20000000

static _Thread_local int threads_now = 0;

void tfd__use_threads(int n) {
  if (TFD_LIKELY(threads_now == n)) return;
  threads_now = n;
  tfd__threads_set(n);
}

/* --- running -------------------------------------------------------------- */

static int run_inline(tfd__stream *s, const tfd__call *call) {
  uint64_t seq = atomic_load_explicit(&s->head.value, memory_order_relaxed);
  int rc;

  tfd__use_threads(s->device->threads);
  rc = call->kernel(call);
  tfd__scratch_reset();
  atomic_store_explicit(&s->head.value, seq + 1, memory_order_relaxed);
  atomic_store_explicit(&s->done.value, seq + 1, memory_order_relaxed);
  if (rc != TFD_OK) (void)tfd__error_set_place(call->replica, NULL);
  return rc;
}

/* What a command still has to wait for; counter NULL = it can run. */
static tfd__target blocker(const tfd__command *c) {
  tfd__target t = {NULL, 0};

  if (c->kind != TFD_COMMAND_WAIT) return t;
  if (tfd__counter_get(&c->u.wait.stream->done) >= c->u.wait.seq) return t;
  t.counter = &c->u.wait.stream->done;
  t.value = c->u.wait.seq;
  return t;
}

/* Free what the command holds and count it as done. */
static void finish_command(tfd__stream *s, tfd__command *c) {
  if (c->kind == TFD_COMMAND_COPY) {
    tfd__release(c->u.copy.from);
    tfd__release(c->u.copy.to);
  }
  tfd__ring_pop(s, c);
}

/* Run or drop one command that can run. */
static void run_command(tfd__stream *s, tfd__command *c) {
  uint64_t seq =
      atomic_load_explicit(&s->done.value, memory_order_relaxed) + 1;
  bool drop = tfd__failure_drops(s, c, seq);

  if (c->kind == TFD_COMMAND_WAIT) {
    tfd__failure_inherit(s, seq, c->u.wait.stream, c->u.wait.seq, c);
  } else if (!drop || c->kind == TFD_COMMAND_WRITE) {
    int rc = c->call.kernel(&c->call);

    tfd__scratch_reset();
    if (!TFD_LIKELY(rc == TFD_OK)) tfd__failure_keep(s, &c->call, seq);
  }
  finish_command(s, c);
}

static void worker_main(void *arg) {
  tfd__stream *s = arg;
  int weight = s->device->threads;

  tfd__use_threads(weight);
  atomic_fetch_add(&tfd__rt.running, weight);
  while (tfd__counter_get(&tfd__rt.stop) == 0) {
    tfd__command *c = tfd__ring_peek(s);
    tfd__target targets[TFD_TARGETS] = {{&tfd__rt.stop, 1}};

    if (c == NULL) {
      targets[1].counter = &s->head;
      targets[1].value = tfd__counter_get(&s->done) + 1;
    } else {
      targets[1] = blocker(c);
      if (targets[1].counter == NULL) {
        run_command(s, c);
        continue;
      }
    }
    tfd__board_wait(targets, weight, TFD_FOREVER);
  }
  atomic_fetch_sub(&tfd__rt.running, weight);
}

static int check_running(void) {
  if (TFD_LIKELY(tfd__counter_get(&tfd__rt.stop) == 0)) return TFD_OK;
  return tfd__fail(TFD_FAILED_PRECONDITION,
                   "the devices have stopped, because the process ends");
}

static int start_worker(tfd__stream *s) {
  int rc = TFD_OK;

  TFD_TRY(check_running());
  tfd__stop_at_exit();
  tfd__lock(&tfd__rt.board);
  if (!atomic_load(&s->worker_started)) {
    char name[16] = "tfd";
    const char *from = s->device->short_name; /* "/cpu:1" */
    int i;

    for (i = 0; i < 12 && from[i] != '\0'; i++) name[3 + i] = from[i];
    rc = tfd__thread_start(&s->worker, name, worker_main, s);
    if (rc == TFD_OK) atomic_store(&s->worker_started, true);
  }
  tfd__unlock(&tfd__rt.board);
  return rc;
}

int tfd__stream_open(tfd__stream *s) {
  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  if (!s->has_worker || TFD_LIKELY(atomic_load_explicit(
                            &s->worker_started, memory_order_acquire))) {
    return TFD_OK;
  }
  return start_worker(s);
}

int tfd__stream_submit(tfd_device *device, const tfd__call *call) {
  tfd__stream *s = device->stream;
  tfd__command *c = NULL;

  TFD_TRY(tfd__stream_open(s));
  if (!s->queued) return run_inline(s, call);
  TFD_TRY(tfd__ring_call(s, TFD_COMMAND_CALL, call, &c));
  (void)tfd__ring_publish(s, c);
  return TFD_OK;
}

/* The position of `on` that `s` must wait for so that all of `on` is done.
** Waits for `s` itself at its end do not count: what `s` runs later comes after
** them anyway, and with what they inherit. So sums in a row need no answers. */
static uint64_t last_awaited(const tfd__stream *s, tfd__stream *on) {
  uint64_t seq = 0;

  tfd__spin_lock(&on->submit_lock);
  seq = on->tail_on == s ? on->tail_from
                         : atomic_load_explicit(&on->head.value,
                                                memory_order_relaxed);
  tfd__spin_unlock(&on->submit_lock);
  return seq;
}

int tfd__stream_after(tfd_device *waiter, tfd_device *device) {
  if (waiter == device || !waiter->stream->queued) {
    return tfd__stream_open(waiter->stream);
  }
  return tfd__stream_after_seq(waiter, device,
                               last_awaited(waiter->stream, device->stream));
}

int tfd__stream_after_seq(tfd_device *waiter, tfd_device *device,
                          uint64_t seq) {
  tfd__stream *s = waiter->stream;
  tfd__stream *on = device->stream;
  tfd__command *c = NULL;

  TFD_TRY(tfd__stream_open(s));
  if (waiter == device || !s->queued) return TFD_OK;
  /* Done already: nothing to wait for, unless a failure must be passed on. */
  if (tfd__counter_get(&on->done) >= seq &&
      atomic_load_explicit(&on->failure, memory_order_acquire) == NULL) {
    return TFD_OK;
  }
  TFD_TRY(tfd__ring_begin(s, TFD_COMMAND_WAIT, 0, &c));
  c->u.wait.stream = on;
  c->u.wait.seq = seq;
  (void)tfd__ring_publish(s, c);
  return TFD_OK;
}

/* --- waiting -------------------------------------------------------------- */

static int check_wait(const tfd__stream *s, uint64_t seq,
                      tfd__deadline until) {
  TFD_TRY(check_running());
  if (tfd__interrupt_get()) {
    return tfd__fail(TFD_CANCELLED, "interrupted while waiting for %s",
                     s->device->short_name);
  }
  if (until == TFD_FOREVER || tfd__now_ns() < until) return TFD_OK;
  return tfd__fail(TFD_DEADLINE_EXCEEDED,
                   "%s has finished %llu of %llu calls at the deadline",
                   s->device->short_name,
                   (unsigned long long)tfd__counter_get(&s->done),
                   (unsigned long long)seq);
}

/* Run commands of the host's queue until `s` reaches seq, the queue is empty,
** or its next command must wait: *on_p then says for what. False when nothing
** could be run. */
static bool drain(tfd__stream *own, tfd__stream *s, uint64_t seq,
                  tfd__deadline until, tfd__target *on_p) {
  uint64_t releases = tfd__counter_get(&own->releases);
  bool progress = false;

  if (tfd__counter_get(&own->done) == tfd__counter_get(&own->head)) {
    return false;
  }
  if (atomic_exchange(&own->draining, true)) {
    on_p->counter = &own->releases; /* another host thread is at it */
    on_p->value = releases + 1;
    return false;
  }
  tfd__use_threads(own->device->threads);
  while (tfd__counter_get(&s->done) < seq && !tfd__interrupt_get()) {
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

int tfd__wait_done(tfd__stream *s, uint64_t seq, tfd__deadline until) {
  tfd__stream *own = tfd__rt.devices[0]->stream;

  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  while (tfd__counter_get(&s->done) < seq) {
    tfd__target targets[TFD_TARGETS] = {{NULL, 0}};
    int64_t slice = 0;

    TFD_TRY(check_wait(s, seq, until));
    if (drain(own, s, seq, until, &targets[0])) continue;
    targets[1].counter = &s->done;
    targets[1].value = seq;
    slice = tfd__now_ns() + POLL_NS;
    tfd__board_wait(targets, own->device->threads,
                    slice < until ? slice : until);
  }
  return TFD_OK;
}

int tfd__stream_wait(tfd_device *device, uint64_t seq, tfd__deadline until) {
  tfd__stream *s = device->stream;
  uint64_t head = tfd__counter_get(&s->head);

  if (seq > head) seq = head;
  TFD_TRY(tfd__wait_done(s, seq, until));
  TFD_TRY(tfd__failure_report(s, seq, until));
  tfd__settle(false);
  return TFD_OK;
}

uint64_t tfd__stream_seq(const tfd_device *device) {
  return tfd__counter_get(&device->stream->head);
}

bool tfd__stream_is_inline(const tfd_device *device) {
  return !device->stream->queued;
}

/* --- life ----------------------------------------------------------------- */

int tfd__stream_new(tfd_device *device, bool queued, tfd__stream **s_p) {
  tfd__stream *s = tfd__alloc_aligned(64, sizeof *s);
  size_t ring = (size_t)TFD_RING_UNITS * TFD_UNIT;

  if (s == NULL) return tfd__no_memory(sizeof *s, "stream");
  *s = (tfd__stream){.device = device,
                     .queued = queued,
                     .has_worker = queued && device->index > 0};
  tfd__counter_init(&s->head);
  tfd__counter_init(&s->done);
  tfd__counter_init(&s->releases);
  if (queued) {
    s->ring = tfd__alloc_aligned(TFD_UNIT, ring);
    s->losses = tfd__calloc(TFD_LOSSES, sizeof *s->losses);
    if (s->ring == NULL || s->losses == NULL) {
      tfd__stream_free(s);
      return tfd__no_memory(ring, "stream");
    }
  }
  *s_p = s;
  return TFD_OK;
}

void tfd__stream_stop(tfd__stream *s) {
  if (!atomic_load(&s->worker_started)) return;
  tfd__thread_join(s->worker);
  atomic_store(&s->worker_started, false);
}

void tfd__stream_discard(tfd__stream *s) {
  tfd__command *c = NULL;

  if (!s->queued || atomic_exchange(&s->draining, true)) return;
  while ((c = tfd__ring_peek(s)) != NULL) finish_command(s, c);
}

void tfd__stream_free(tfd__stream *s) {
  if (s == NULL) return;
  tfd__failure_forget(s);
  tfd__free(s->losses);
  tfd__free(s->ring);
  tfd__free(s);
}
