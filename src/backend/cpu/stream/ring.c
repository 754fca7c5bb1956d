/* Work by value in a ring of 64-byte units. A command never wraps: the end of
** the ring is padded. Payloads over an eighth of the ring go to the heap. Cost
** of a call with three views: one pass over about 700 bytes. */
#include <string.h>

#include "backend/cpu/stream/stream.h"

#define MASK (TFD_RING_UNITS - 1)
#define LARGEST ((size_t)TFD_RING_UNITS * TFD_UNIT / 8)

static tfd__command *at(const tfd__cpu_stream *s, uint64_t pos) {
  return (tfd__command *)(void *)(s->ring + (pos & MASK) * TFD_UNIT);
}

/* Room for `units` in one piece, padding included? */
static bool fits(tfd__cpu_stream *s, uint64_t units) {
  if (s->write_pos + units - s->tail_seen <= TFD_RING_UNITS) return true;
  s->tail_seen = atomic_load_explicit(&s->tail, memory_order_acquire);
  return s->write_pos + units - s->tail_seen <= TFD_RING_UNITS;
}

/* Units to leave unused so that a command of `units` does not wrap. */
static uint64_t padding(const tfd__cpu_stream *s, uint64_t units) {
  uint64_t left = TFD_RING_UNITS - (s->write_pos & MASK);

  return units <= left ? 0 : left;
}

/* Take the submit lock with room for `units`. In a full ring the lock is not
** taken and *seq_p is the position where half of its work is done, so that the
** next submits find room without waiting. */
static bool lock_with_room(tfd__cpu_stream *s, uint64_t units,
                           uint64_t *seq_p) {
  uint64_t done = 0;
  uint64_t behind = 0;

  tfd__spin_lock(&s->submit_lock);
  if (TFD_LIKELY(fits(s, units + padding(s, units)))) return true;
  done = tfd__counter_get(&s->base.done);
  behind = tfd__counter_get(&s->base.taken) - done;
  tfd__spin_unlock(&s->submit_lock);
  *seq_p = done + (behind + 1) / 2;
  return false;
}

/* Reserve room for a command with `payload` bytes after the header, with the
** submit lock held from here on; NULL in *command_p when the ring is full. */
static int begin(tfd__cpu_stream *s, size_t payload, tfd__command **command_p,
                 uint64_t *seq_p) {
  void *heap = NULL;
  tfd__command *c = NULL;
  uint64_t units = 0;
  uint64_t pad = 0;

  if (payload > LARGEST) {
    heap = tfd__alloc(payload);
    if (heap == NULL) return tfd__no_memory(payload, "queued call");
    payload = 0;
  }
  units = (sizeof *c + payload + TFD_UNIT - 1) / TFD_UNIT;
  if (!TFD_LIKELY(lock_with_room(s, units, seq_p))) {
    tfd__free(heap);
    *command_p = NULL;
    return TFD_OK;
  }
  pad = padding(s, units);
  if (pad > 0) {
    c = at(s, s->write_pos);
    c->units = (uint32_t)pad;
    c->pad = true;
    s->write_pos += pad;
  }
  c = at(s, s->write_pos);
  c->units = (uint32_t)units;
  c->pad = false;
  c->heap = heap;
  *command_p = c;
  return TFD_OK;
}

static uint64_t publish(tfd__cpu_stream *s, tfd__command *c) {
  uint64_t seq =
      atomic_load_explicit(&s->base.taken.value, memory_order_relaxed) + 1;

  s->write_pos += c->units;
  if (c->on == NULL) {
    s->tail_on = NULL;
  } else if (c->on != s->tail_on) {
    s->tail_on = c->on;
    s->tail_from = seq - 1;
  }
  tfd__counter_set(&s->base.taken, seq);
  tfd__spin_unlock(&s->submit_lock);
  return seq;
}

/* Bytes of n things of this size, at `*p`, which goes on behind the copy. */
static const void *append(unsigned char **p, const void *from, size_t bytes) {
  const void *to = *p;

  if (bytes > 0) memcpy(*p, from, bytes);
  *p += bytes;
  return to;
}

static void copy_call(tfd__command *c, const tfd__call *call,
                      unsigned char **p) {
  c->call = *call;
  c->call.views = append(
      p, call->views, (size_t)(call->in_n + call->out_n) * sizeof *call->views);
  c->call.ints =
      append(p, call->ints, (size_t)call->ints_n * sizeof *call->ints);
  c->call.reals =
      append(p, call->reals, (size_t)call->reals_n * sizeof *call->reals);
  c->work.call = &c->call;
}

static size_t payload_of(const tfd__work *work) {
  const tfd__call *call = work->call;
  size_t bytes = work->data_bytes;

  if (call == NULL) return bytes;
  return bytes + (size_t)(call->in_n + call->out_n) * sizeof *call->views +
         (size_t)call->ints_n * sizeof *call->ints +
         (size_t)call->reals_n * sizeof *call->reals;
}

int tfd__ring_put(tfd__cpu_stream *s, const tfd__work *work,
                  tfd__cpu_stream *on, uint64_t on_seq, bool *full_p,
                  uint64_t *seq_p) {
  tfd__command *c = NULL;
  unsigned char *p = NULL;

  TFD_TRY(begin(s, payload_of(work), &c, seq_p));
  *full_p = c == NULL;
  if (c == NULL) return TFD_OK;
  p = c->heap != NULL ? c->heap : (unsigned char *)(c + 1);
  c->on = on;
  c->on_seq = on_seq;
  c->work = *work;
  if (TFD_LIKELY(work->call != NULL)) copy_call(c, work->call, &p);
  c->work.data = append(&p, work->data, work->data_bytes);
  *seq_p = publish(s, c);
  return TFD_OK;
}

tfd__command *tfd__ring_peek(tfd__cpu_stream *s) {
  tfd__command *c = NULL;

  if (tfd__counter_get(&s->base.taken) ==
      atomic_load_explicit(&s->base.done.value, memory_order_relaxed)) {
    return NULL;
  }
  c = at(s, s->read_pos);
  if (c->pad) {
    s->read_pos += c->units;
    c = at(s, s->read_pos);
  }
  return c;
}

void tfd__ring_pop(tfd__cpu_stream *s, tfd__command *command) {
  uint64_t done =
      atomic_load_explicit(&s->base.done.value, memory_order_relaxed);

  tfd__free(command->heap);
  s->read_pos += command->units;
  atomic_store_explicit(&s->tail, s->read_pos, memory_order_release);
  tfd__counter_set(&s->base.done, done + 1);
}
