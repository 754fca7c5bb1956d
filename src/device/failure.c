/* Sticky errors. The first failing call of a stream leaves its record here;
** everything after it is dropped until a host wait reports it. Streams that
** go on with results of the failed one share the record, so that it surfaces
** wherever the host looks first, and once. Which calls were lost is kept: what
** they should have filled has no values. */
#include <stdio.h>
#include <string.h>

#include "device/private.h"

/* Stands in when there is no memory for a record. Never freed. */
static tfd__failure no_memory = {
    .refs = 1,
    .error = {.code = TFD_RESOURCE_EXHAUSTED, .replica = -1},
};

static void unref(tfd__failure *f) {
  if (f == NULL || --f->refs > 0) return;
  tfd__error_free(&f->error);
  tfd__free(f);
}

/* All below: tfd__rt.failures is held. */
static tfd__failure *get(_Atomic(tfd__failure *) *slot) {
  return atomic_load_explicit(slot, memory_order_relaxed);
}

static void put(_Atomic(tfd__failure *) *slot, tfd__failure *f) {
  atomic_store_explicit(slot, f, memory_order_release);
}

/* Does it concern work that was submitted in `epoch`? */
static bool concerns(const tfd__failure *f, uint32_t epoch) {
  return f != NULL && (!f->reported || epoch < f->end_epoch);
}

static void attach(tfd__queue *q, tfd__failure *f, uint64_t seq) {
  unref(get(&q->failure));
  q->failure_seq = seq;
  put(&q->failure, f);
}

static tfd__loss *newest(const tfd__queue *q) {
  return &q->losses[(q->losses_n - 1) % TFD_LOSSES];
}

/* What begins at `first` and ends at `last` is lost to the queue's failure. */
static void lose(tfd_device *d, uint64_t first, uint64_t last) {
  tfd__queue *q = d->queue;
  tfd__failure *f = get(&q->failure);

  if (q->losses_n == 0 || newest(q)->failure != f ||
      newest(q)->last + 1 != first) {
    q->losses_n++;
    unref(newest(q)->failure);
    f->refs++;
    *newest(q) = (tfd__loss){.first = first, .failure = f};
  }
  newest(q)->last = last;
  atomic_store_explicit(&d->lost_until, last, memory_order_relaxed);
}

static const tfd__loss *find_loss(const tfd__queue *q, uint64_t seq) {
  uint64_t kept = q->losses_n < TFD_LOSSES ? q->losses_n : TFD_LOSSES;
  uint64_t low = q->losses_n - kept;
  uint64_t high = q->losses_n;

  while (low < high) { /* the first that ends at seq or later */
    uint64_t middle = low + (high - low) / 2;

    if (q->losses[middle % TFD_LOSSES].last < seq) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == q->losses_n || q->losses[low % TFD_LOSSES].first > seq) {
    return NULL;
  }
  return &q->losses[low % TFD_LOSSES];
}

/* The thread's error, to be kept. */
static tfd__failure *new_record(uint64_t order) {
  tfd__failure *f = tfd__calloc(1, sizeof *f);

  if (f == NULL) {
    no_memory.refs++;
    no_memory.reported = false;
    no_memory.order = order;
    return &no_memory;
  }
  f->refs = 1;
  f->order = order;
  tfd__error_save(&f->error);
  return f;
}

void tfd__failure_keep(tfd_device *d, const tfd__work *work, uint64_t seq) {
  const tfd__call *call = work->call;
  char where[256] = "";

  if (call != NULL && call->file != NULL && call->line > 0) {
    (void)snprintf(where, sizeof where, "%s:%d", call->file, call->line);
  }
  if (call == NULL || call->name != NULL) {
    (void)tfd__error_set_place(call != NULL ? call->replica : -1, where);
    (void)tfd__error_set_note(call != NULL ? call->note : NULL);
    (void)tfd__blame(call != NULL ? call->name : NULL, NULL, -1);
  }
  tfd__lock(&tfd__rt.failures);
  attach(d->queue, new_record(work->order), seq);
  lose(d, seq, seq);
  tfd__unlock(&tfd__rt.failures);
}

/* Losses from seq on are forgotten, for another one takes their place. */
static void shorten(tfd__queue *q, uint64_t seq) {
  while (q->losses_n > 0 && newest(q)->failure != NULL &&
         newest(q)->last >= seq) {
    if (newest(q)->first < seq) {
      newest(q)->last = seq - 1;
      return;
    }
    unref(newest(q)->failure);
    *newest(q) = (tfd__loss){0};
    q->losses_n--;
  }
}

/* What was forgotten came before all that is known. */
static uint64_t order_of(const tfd_device *d, uint64_t seq) {
  if (seq + TFD_ORDERS <= tfd__stream_seq(d)) return 0;
  return atomic_load_explicit(&d->queue->orders[seq % TFD_ORDERS],
                              memory_order_relaxed);
}

/* What the host found out by itself since comes after it. An earlier one that
** nobody has seen yet stays the queue's: whoever waits for what is lost to that
** must get it, however late this one comes. */
void tfd__failure_late(tfd_device *d, uint64_t seq) {
  tfd__queue *q = d->queue;
  const tfd__failure *f = NULL;

  tfd__lock(&tfd__rt.failures);
  f = get(&q->failure);
  if (f == NULL || f->reported || q->failure_seq > seq) {
    attach(q, new_record(order_of(d, seq)), seq);
  }
  shorten(q, seq);
  lose(d, seq, tfd__stream_seq(d));
  tfd__unlock(&tfd__rt.failures);
}

bool tfd__failure_drops(tfd_device *d, uint32_t epoch, uint64_t seq) {
  tfd__queue *q = d->queue;
  bool drops = false;

  if (TFD_LIKELY(atomic_load_explicit(&q->failure, memory_order_acquire) ==
                 NULL)) {
    return false;
  }
  tfd__lock(&tfd__rt.failures);
  drops = concerns(get(&q->failure), epoch);
  if (drops) {
    lose(d, seq, seq);
  } else {
    attach(q, NULL, 0);
  }
  tfd__unlock(&tfd__rt.failures);
  return drops;
}

static bool covers(const tfd__queue *q, uint64_t seq, uint32_t epoch) {
  return concerns(get((_Atomic(tfd__failure *) *)&q->failure), epoch) &&
         q->failure_seq <= seq;
}

bool tfd__failure_covers(tfd_device *d, uint64_t seq) {
  bool covered = false;

  if (!d->queued ||
      TFD_LIKELY(atomic_load_explicit(&d->queue->failure,
                                      memory_order_acquire) == NULL)) {
    return false;
  }
  tfd__lock(&tfd__rt.failures);
  covered = covers(d->queue, seq, (uint32_t)atomic_load(&tfd__rt.epoch));
  tfd__unlock(&tfd__rt.failures);
  return covered;
}

void tfd__failure_inherit(tfd_device *d, uint64_t at, tfd_device *from,
                          uint64_t seq, uint32_t epoch) {
  tfd__failure *f = NULL;

  if (TFD_LIKELY(atomic_load_explicit(&from->queue->failure,
                                      memory_order_acquire) == NULL)) {
    return;
  }
  tfd__lock(&tfd__rt.failures);
  if (covers(from->queue, seq, epoch) &&
      !concerns(get(&d->queue->failure), epoch)) {
    f = get(&from->queue->failure);
    f->refs++;
    attach(d->queue, f, at);
    lose(d, at, at);
  }
  tfd__unlock(&tfd__rt.failures);
}

/* --- reports -------------------------------------------------------------- */

static int raise_record(const tfd__failure *f) {
  if (f != &no_memory) return tfd__error_raise(&f->error);
  return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                   "queued work failed and memory was too short for its "
                   "message");
}

static bool same_text(const tfd__failure *a, const tfd__failure *b) {
  return a->error.message != NULL && b->error.message != NULL &&
         strcmp(a->error.message, b->error.message) == 0;
}

/* What failed beside `f` ends with it and is named in the hint, once. */
static int report_all(tfd__failure *f) {
  uint32_t end = (uint32_t)atomic_fetch_add(&tfd__rt.epoch, 1) + 1;
  int rc = raise_record(f);
  bool named = f->error.hint != NULL;
  int i;

  f->reported = true;
  f->end_epoch = end;
  for (i = 0; i < tfd__rt.n; i++) {
    const tfd_device *d = tfd__rt.devices[i];
    tfd__failure *other = d->queued ? get(&d->queue->failure) : NULL;

    if (other == NULL || other->reported) continue;
    other->reported = true;
    other->end_epoch = end;
    if (named || other->error.message == NULL || same_text(f, other)) continue;
    rc = tfd__hint("%s failed too: %s", d->short_name, other->error.message);
    named = true;
  }
  return rc;
}

static bool is_due(tfd__queue *q, uint64_t seq) {
  const tfd__failure *f = get(&q->failure);

  return f != NULL && !f->reported && q->failure_seq <= seq;
}

/* Of all that failed and was not reported, what was submitted first. */
static tfd__failure *first_cause(void) {
  tfd__failure *first = NULL;
  int i;

  for (i = 0; i < tfd__rt.n; i++) {
    const tfd_device *d = tfd__rt.devices[i];
    tfd__failure *f = d->queued ? get(&d->queue->failure) : NULL;

    if (f == NULL || f->reported) continue;
    if (first == NULL || f->order < first->order) first = f;
  }
  return first;
}

bool tfd__failure_is_due(tfd_device *d, uint64_t seq) {
  tfd__queue *q = d->queue;
  bool due = false;

  if (q == NULL || TFD_LIKELY(atomic_load_explicit(
                                  &q->failure, memory_order_acquire) == NULL)) {
    return false;
  }
  tfd__lock(&tfd__rt.failures);
  due = is_due(q, seq);
  tfd__unlock(&tfd__rt.failures);
  return due;
}

int tfd__failure_raise(tfd_device *d, uint64_t seq, bool *raised_p) {
  int rc = TFD_OK;

  tfd__lock(&tfd__rt.failures);
  *raised_p = is_due(d->queue, seq);
  if (*raised_p) rc = report_all(first_cause());
  tfd__unlock(&tfd__rt.failures);
  return rc;
}

int tfd__failure_of_device(tfd_device *d, uint64_t seq) {
  const tfd__loss *loss = NULL;
  int rc = TFD_OK;

  if (TFD_LIKELY(atomic_load_explicit(&d->lost_until, memory_order_relaxed) <
                 seq)) {
    return TFD_OK;
  }
  tfd__lock(&tfd__rt.failures);
  loss = find_loss(d->queue, seq);
  if (loss != NULL && loss->failure->error.exit == TFD_EXIT_DEVICE_LOST) {
    rc = tfd__error_raise(&loss->failure->error);
  }
  tfd__unlock(&tfd__rt.failures);
  return rc;
}

bool tfd__failure_took(tfd_device *d, uint64_t seq) {
  bool lost = false;

  tfd__lock(&tfd__rt.failures);
  lost = find_loss(d->queue, seq) != NULL;
  tfd__unlock(&tfd__rt.failures);
  return lost;
}

int tfd__buffer_check_slow(const tfd__buffer *b) {
  const tfd__loss *loss = NULL;
  int rc = TFD_OK;

  tfd__lock(&tfd__rt.failures);
  loss = find_loss(b->device->queue, b->made_seq);
  if (loss != NULL && loss->failure->reported) {
    rc = raise_record(loss->failure);
  }
  tfd__unlock(&tfd__rt.failures);
  return rc;
}

void tfd__failure_forget(tfd_device *d) {
  tfd__queue *q = d->queue;
  uint64_t kept = q->losses_n < TFD_LOSSES ? q->losses_n : TFD_LOSSES;

  tfd__lock(&tfd__rt.failures);
  attach(q, NULL, 0);
  while (kept > 0) unref(q->losses[--kept].failure);
  q->losses_n = 0;
  tfd__unlock(&tfd__rt.failures);
}

uint32_t tfd__failures_reported(void) {
  return (uint32_t)atomic_load_explicit(&tfd__rt.epoch, memory_order_relaxed);
}
