/* Commands by value in a ring of 64-byte units. A command never wraps: the
** end of the ring is padded. Payloads over an eighth of the ring go to the
** heap. Cost of a call with three views: one pass over about 600 bytes. */
#include <string.h>

#include "device/private.h"

#define MASK (TFD_RING_UNITS - 1)
#define LARGEST ((size_t)TFD_RING_UNITS * TFD_UNIT / 8)

static tfd__command *at(const tfd__stream *s, uint64_t pos) {
  return (tfd__command *)(void *)(s->ring + (pos & MASK) * TFD_UNIT);
}

/* Room for `units` in one piece, padding included? */
static bool fits(tfd__stream *s, uint64_t units) {
  if (s->write_pos + units - s->tail_seen <= TFD_RING_UNITS) return true;
  s->tail_seen = atomic_load_explicit(&s->tail, memory_order_acquire);
  return s->write_pos + units - s->tail_seen <= TFD_RING_UNITS;
}

/* Units to leave unused so that a command of `units` does not wrap. */
static uint64_t padding(const tfd__stream *s, uint64_t units) {
  uint64_t left = TFD_RING_UNITS - (s->write_pos & MASK);

  return units <= left ? 0 : left;
}

/* Take the submit lock with room for `units`. A full ring waits for half of
** its calls, so that the next submits find room without waiting. */
static int lock_with_room(tfd__stream *s, uint64_t units) {
  for (;;) {
    uint64_t done = 0;
    uint64_t behind = 0;

    tfd__spin_lock(&s->submit_lock);
    if (TFD_LIKELY(fits(s, units + padding(s, units)))) return TFD_OK;
    done = tfd__counter_get(&s->done);
    behind = tfd__counter_get(&s->head) - done;
    tfd__spin_unlock(&s->submit_lock);
    TFD_TRY(tfd__wait_done(s, done + (behind + 1) / 2, TFD_FOREVER));
  }
}

int tfd__ring_begin(tfd__stream *s, tfd__command_kind kind, size_t payload,
                    tfd__command **command_p) {
  void *heap = NULL;
  tfd__command *c = NULL;
  uint64_t units = 0;
  uint64_t pad = 0;
  int rc;

  if (payload > LARGEST) {
    heap = tfd__alloc(payload);
    if (heap == NULL) return tfd__no_memory(payload, "queued call");
    payload = 0;
  }
  units = (sizeof *c + payload + TFD_UNIT - 1) / TFD_UNIT;
  rc = lock_with_room(s, units);
  if (rc != TFD_OK) {
    tfd__free(heap);
    return rc;
  }
  pad = padding(s, units);
  if (pad > 0) {
    c = at(s, s->write_pos);
    c->units = (uint32_t)pad;
    c->kind = TFD_COMMAND_PAD;
    s->write_pos += pad;
  }
  c = at(s, s->write_pos);
  c->units = (uint32_t)units;
  c->epoch = atomic_load_explicit(&tfd__rt.epoch, memory_order_relaxed);
  c->kind = kind;
  c->heap = heap;
  *command_p = c;
  return TFD_OK;
}

void *tfd__ring_payload(tfd__command *command) {
  return command->heap != NULL ? command->heap : command + 1;
}

uint64_t tfd__ring_publish(tfd__stream *s, tfd__command *command) {
  uint64_t seq =
      atomic_load_explicit(&s->head.value, memory_order_relaxed) + 1;

  s->write_pos += command->units;
  if (command->kind != TFD_COMMAND_WAIT) {
    s->tail_on = NULL;
  } else if (command->u.wait.stream != s->tail_on) {
    s->tail_on = command->u.wait.stream;
    s->tail_from = seq - 1;
  }
  tfd__counter_set(&s->head, seq);
  tfd__spin_unlock(&s->submit_lock);
  return seq;
}

tfd__command *tfd__ring_peek(tfd__stream *s) {
  tfd__command *c = NULL;

  if (tfd__counter_get(&s->head) ==
      atomic_load_explicit(&s->done.value, memory_order_relaxed)) {
    return NULL;
  }
  c = at(s, s->read_pos);
  if (c->kind == TFD_COMMAND_PAD) {
    s->read_pos += c->units;
    c = at(s, s->read_pos);
  }
  return c;
}

void tfd__ring_pop(tfd__stream *s, tfd__command *command) {
  uint64_t done = atomic_load_explicit(&s->done.value, memory_order_relaxed);

  tfd__free(command->heap);
  s->read_pos += command->units;
  atomic_store_explicit(&s->tail, s->read_pos, memory_order_release);
  tfd__counter_set(&s->done, done + 1);
}

int tfd__ring_call(tfd__stream *s, tfd__command_kind kind,
                   const tfd__call *call, tfd__command **command_p) {
  size_t views = (size_t)(call->in_n + call->out_n) * sizeof *call->views;
  size_t ints = (size_t)call->ints_n * sizeof *call->ints;
  size_t reals = (size_t)call->reals_n * sizeof *call->reals;
  tfd__command *c = NULL;
  unsigned char *p = NULL;

  TFD_TRY(tfd__ring_begin(s, kind, views + ints + reals, &c));
  p = tfd__ring_payload(c);
  c->call = *call;
  c->call.views = (const tfd__view *)(void *)p;
  c->call.ints = (const int64_t *)(void *)(p + views);
  c->call.reals = (const double *)(void *)(p + views + ints);
  if (views > 0) memcpy(p, call->views, views);
  if (ints > 0) memcpy(p + views, call->ints, ints);
  if (reals > 0) memcpy(p + views + ints, call->reals, reals);
  *command_p = c;
  return TFD_OK;
}
