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

/* All below: the board's mutex is held. */
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

static void attach(tfd__stream *s, tfd__failure *f, uint64_t seq) {
  unref(get(&s->failure));
  s->failure_seq = seq;
  put(&s->failure, f);
}

static tfd__loss *newest(const tfd__stream *s) {
  return &s->losses[(s->losses_n - 1) % TFD_LOSSES];
}

/* The call at seq is lost to the stream's failure. */
static void lose(tfd__stream *s, uint64_t seq) {
  tfd__failure *f = get(&s->failure);

  if (s->losses_n == 0 || newest(s)->failure != f ||
      newest(s)->last + 1 != seq) {
    s->losses_n++;
    unref(newest(s)->failure);
    f->refs++;
    *newest(s) = (tfd__loss){.first = seq, .failure = f};
  }
  newest(s)->last = seq;
  atomic_store_explicit(&s->device->lost_until, seq, memory_order_relaxed);
}

static const tfd__loss *find_loss(const tfd__stream *s, uint64_t seq) {
  uint64_t kept = s->losses_n < TFD_LOSSES ? s->losses_n : TFD_LOSSES;
  uint64_t low = s->losses_n - kept;
  uint64_t high = s->losses_n;

  while (low < high) { /* the first that ends at seq or later */
    uint64_t middle = low + (high - low) / 2;

    if (s->losses[middle % TFD_LOSSES].last < seq) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == s->losses_n || s->losses[low % TFD_LOSSES].first > seq) {
    return NULL;
  }
  return &s->losses[low % TFD_LOSSES];
}

static tfd__failure *record_of(const tfd__call *call) {
  tfd__failure *f = tfd__calloc(1, sizeof *f);
  char where[256] = "";

  if (f == NULL) {
    no_memory.refs++;
    no_memory.reported = false;
    return &no_memory;
  }
  f->refs = 1;
  if (call->file != NULL && call->line > 0) {
    (void)snprintf(where, sizeof where, "%s:%d", call->file, call->line);
  }
  (void)tfd__error_set_place(call->replica, where);
  tfd__error_save(&f->error);
  return f;
}

void tfd__failure_keep(tfd__stream *s, const tfd__call *call, uint64_t seq) {
  tfd__lock(&tfd__rt.board);
  attach(s, record_of(call), seq);
  lose(s, seq);
  tfd__unlock(&tfd__rt.board);
}

bool tfd__failure_drops(tfd__stream *s, const tfd__command *command,
                        uint64_t seq) {
  bool drops = false;

  if (TFD_LIKELY(atomic_load_explicit(&s->failure, memory_order_acquire) ==
                 NULL)) {
    return false;
  }
  tfd__lock(&tfd__rt.board);
  drops = concerns(get(&s->failure), command->epoch);
  if (drops) {
    lose(s, seq);
  } else {
    attach(s, NULL, 0);
  }
  tfd__unlock(&tfd__rt.board);
  return drops;
}

void tfd__failure_inherit(tfd__stream *s, uint64_t at, tfd__stream *from,
                          uint64_t seq, const tfd__command *command) {
  tfd__failure *f = NULL;

  if (TFD_LIKELY(atomic_load_explicit(&from->failure, memory_order_acquire) ==
                 NULL)) {
    return;
  }
  tfd__lock(&tfd__rt.board);
  f = get(&from->failure);
  if (concerns(f, command->epoch) && from->failure_seq <= seq &&
      !concerns(get(&s->failure), command->epoch)) {
    f->refs++;
    attach(s, f, at);
    lose(s, at);
  }
  tfd__unlock(&tfd__rt.board);
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
    tfd__failure *other = get(&d->stream->failure);

    if (other == NULL || other->reported) continue;
    other->reported = true;
    other->end_epoch = end;
    if (named || other->error.message == NULL || same_text(f, other)) continue;
    rc = tfd__hint("%s failed too: %s", d->short_name, other->error.message);
    named = true;
  }
  return rc;
}

static bool is_due(tfd__stream *s, uint64_t seq) {
  const tfd__failure *f = get(&s->failure);

  return f != NULL && !f->reported && s->failure_seq <= seq;
}

int tfd__failure_report(tfd__stream *s, uint64_t seq, tfd__deadline until) {
  bool due = false;
  int rc = TFD_OK;
  int i;

  if (TFD_LIKELY(atomic_load_explicit(&s->failure, memory_order_acquire) ==
                 NULL)) {
    return TFD_OK;
  }
  tfd__lock(&tfd__rt.board);
  due = is_due(s, seq);
  tfd__unlock(&tfd__rt.board);
  if (!due) return TFD_OK;
  for (i = 0; i < tfd__rt.n; i++) {
    tfd__stream *each = tfd__rt.devices[i]->stream;

    TFD_TRY(tfd__wait_done(each, tfd__counter_get(&each->head), until));
  }
  tfd__lock(&tfd__rt.board);
  due = is_due(s, seq);
  if (due) rc = report_all(get(&s->failure));
  tfd__unlock(&tfd__rt.board);
  if (due) tfd__settle(true);
  return rc;
}

int tfd__buffer_check_slow(const tfd__buffer *b) {
  const tfd__loss *loss = NULL;
  int rc = TFD_OK;

  tfd__lock(&tfd__rt.board);
  loss = find_loss(b->device->stream, b->made_seq);
  if (loss != NULL && loss->failure->reported) {
    rc = raise_record(loss->failure);
  }
  tfd__unlock(&tfd__rt.board);
  return rc;
}

tfd__buffer_state tfd__buffer_state_of(const tfd__buffer *b) {
  tfd__stream *s = b->device->stream;
  bool lost = false;

  if (b->made_seq == 0 || !s->queued) return TFD_BUFFER_GOOD;
  if (tfd__counter_get(&s->done) < b->made_seq) return TFD_BUFFER_PENDING;
  if (TFD_LIKELY(b->made_seq > atomic_load(&b->device->lost_until))) {
    return TFD_BUFFER_GOOD;
  }
  tfd__lock(&tfd__rt.board);
  lost = find_loss(s, b->made_seq) != NULL;
  tfd__unlock(&tfd__rt.board);
  return lost ? TFD_BUFFER_LOST : TFD_BUFFER_GOOD;
}

void tfd__buffer_finish(const tfd__buffer *b) {
  (void)tfd__wait_done(b->device->stream, b->made_seq, TFD_FOREVER);
}

void tfd__failure_forget(tfd__stream *s) {
  uint64_t kept = s->losses_n < TFD_LOSSES ? s->losses_n : TFD_LOSSES;

  tfd__lock(&tfd__rt.board);
  attach(s, NULL, 0);
  while (kept > 0) unref(s->losses[--kept].failure);
  s->losses_n = 0;
  tfd__unlock(&tfd__rt.board);
}

uint32_t tfd__failures_reported(void) {
  return (uint32_t)atomic_load_explicit(&tfd__rt.epoch, memory_order_relaxed);
}

/* --- variables ------------------------------------------------------------ */

static void (*settle_hook)(bool reported);

void tfd__set_settle_hook(void (*fn)(bool reported)) {
  settle_hook = fn;
}

void tfd__unsettled_add(int n) {
  atomic_fetch_add(&tfd__rt.unsettled, n);
}

void tfd__settle(bool reported) {
  if (TFD_LIKELY(atomic_load_explicit(&tfd__rt.unsettled,
                                      memory_order_acquire) == 0)) {
    return;
  }
  settle_hook(reported);
}
