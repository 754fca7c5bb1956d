/* Sticky errors. The first failing call of a stream leaves its record here;
** everything after it is dropped until a host wait reports it. Streams that
** go on with results of the failed one share the record, so that it surfaces
** wherever the host looks first, and once. */
#include <stdio.h>

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
  unref(get(&s->past));
  put(&s->past, get(&s->failure));
  s->past_seq = s->failure_seq;
  s->failure_seq = seq;
  put(&s->failure, f);
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
  tfd__unlock(&tfd__rt.board);
}

bool tfd__failure_drops(tfd__stream *s, const tfd__command *command) {
  bool drops = false;

  if (TFD_LIKELY(atomic_load_explicit(&s->failure, memory_order_acquire) ==
                 NULL)) {
    return false;
  }
  tfd__lock(&tfd__rt.board);
  drops = concerns(get(&s->failure), command->epoch);
  if (!drops && get(&s->failure) != NULL) attach(s, NULL, 0);
  tfd__unlock(&tfd__rt.board);
  return drops;
}

void tfd__failure_inherit(tfd__stream *s, uint64_t at, tfd__stream *from,
                          uint64_t seq, const tfd__command *command) {
  tfd__failure *f = NULL;

  if (TFD_LIKELY(atomic_load_explicit(&from->failure, memory_order_acquire) ==
                     NULL &&
                 atomic_load_explicit(&from->past, memory_order_acquire) ==
                     NULL)) {
    return;
  }
  tfd__lock(&tfd__rt.board);
  if (concerns(get(&from->failure), command->epoch) &&
      from->failure_seq <= seq) {
    f = get(&from->failure);
  } else if (concerns(get(&from->past), command->epoch) &&
             from->past_seq <= seq) {
    f = get(&from->past);
  }
  if (f != NULL && !concerns(get(&s->failure), command->epoch)) {
    f->refs++;
    attach(s, f, at);
  }
  tfd__unlock(&tfd__rt.board);
}

int tfd__failure_report(tfd__stream *s, uint64_t seq) {
  tfd__failure *f = NULL;
  int rc = TFD_OK;

  if (TFD_LIKELY(atomic_load_explicit(&s->failure, memory_order_acquire) ==
                 NULL)) {
    return TFD_OK;
  }
  tfd__lock(&tfd__rt.board);
  f = get(&s->failure);
  if (f != NULL && !f->reported && s->failure_seq <= seq) {
    f->reported = true;
    f->end_epoch = (uint32_t)atomic_fetch_add(&tfd__rt.epoch, 1) + 1;
    if (f == &no_memory) {
      rc = tfd__fail(TFD_RESOURCE_EXHAUSTED,
                     "queued work failed and memory was too short for its "
                     "message");
    } else {
      rc = tfd__error_raise(&f->error);
      tfd__error_free(&f->error);
    }
  }
  tfd__unlock(&tfd__rt.board);
  return rc;
}

void tfd__failure_forget(tfd__stream *s) {
  tfd__lock(&tfd__rt.board);
  attach(s, NULL, 0);
  attach(s, NULL, 0);
  tfd__unlock(&tfd__rt.board);
}
