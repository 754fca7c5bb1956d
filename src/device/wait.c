/* Waiting for a device's stream, and what is due once it has come so far:
** memory to let go of, failures to report. */
#include <stdio.h>

#include "device/private.h"

void tfd__let_go(void *const held[2]) {
  tfd__release(held[1]);
  tfd__release(held[0]);
}

#define HOLDS_BETWEEN_LOOKS 32

void tfd__hold_until(tfd_device *d, tfd__hold *hold, const tfd__work *work,
                     uint64_t seq) {
  tfd__queue *q = d->queue;
  bool look = false;

  *hold = (tfd__hold){.seq = seq, .held = {work->held[0], work->held[1]}};
  tfd__spin_lock(&q->holds_lock);
  hold->next = q->holds;
  q->holds = hold;
  look = ++q->holds_n % HOLDS_BETWEEN_LOOKS == 0;
  tfd__spin_unlock(&q->holds_lock);
  if (look) (void)tfd__look_slow(d, seq);
}

void tfd__end_holds(tfd__queue *q, uint64_t done) {
  tfd__hold **link = &q->holds;
  tfd__hold *over = NULL;

  tfd__spin_lock(&q->holds_lock);
  while (*link != NULL) {
    tfd__hold *h = *link;

    if (h->seq > done) {
      link = &h->next;
      continue;
    }
    *link = h->next;
    h->next = over;
    over = h;
  }
  tfd__spin_unlock(&q->holds_lock);
  while (over != NULL) {
    tfd__hold *next = over->next;

    tfd__let_go(over->held);
    tfd__free(over);
    over = next;
  }
}

/* Who sees that a position has passed must see its failure too. */
bool tfd__look_slow(tfd_device *device, uint64_t seq) {
  const tfd__backend *b = device->backend;
  tfd__counter *done = &device->stream->done;
  uint64_t now = b->poll(device->stream);
  uint64_t before = tfd__counter_get(done);
  uint64_t at = 0;

  if (now <= before) return before >= seq;
  /* Another thread may have a failure that is not kept yet: look again. */
  if (atomic_exchange(&device->queue->telling, true)) return false;
  if (b->failed != NULL && b->failed(device->stream, &at) != TFD_OK) {
    tfd__failure_late(device, at);
  }
  atomic_store(&device->queue->telling, false);
  while (before < now &&
         !atomic_compare_exchange_weak(&done->value, &before, now)) {
    continue;
  }
  tfd__end_holds(device->queue, now);
  return now >= seq;
}

static int check_wait(const tfd_device *d, uint64_t seq, tfd__deadline until) {
  TFD_TRY(tfd__check_running());
  if (tfd__interrupt_get()) {
    return tfd__fail(TFD_CANCELLED, "interrupted while waiting for %s",
                     d->short_name);
  }
  if (until == TFD_FOREVER || tfd__now_ns() < until) return TFD_OK;
  return tfd__fail(TFD_DEADLINE_EXCEEDED,
                   "%s has finished %llu of %llu calls at the deadline",
                   d->short_name,
                   (unsigned long long)tfd__counter_get(&d->stream->done),
                   (unsigned long long)seq);
}

static int wait_until_done(tfd_device *device, uint64_t seq,
                           tfd__deadline until) {
  while (!tfd__is_done(device, seq)) {
    TFD_TRY(check_wait(device, seq, until));
    device->backend->wait(device->stream, seq, until);
  }
  return TFD_OK;
}

/* The caller may run the device's work itself meanwhile: it is inside. */
TFD_COLD static void note_wait(const tfd_device *device, int64_t begin) {
  char name[64];

  (void)snprintf(name, sizeof name, "wait for %s", device->short_name);
  tfd__span_end(TFD_SPAN_WAIT, tfd__span_name(name), begin, -1);
}

int tfd__wait_done(tfd_device *device, uint64_t seq, tfd__deadline until) {
  int64_t begin = 0;
  int rc;

  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  if (tfd__is_done(device, seq)) return TFD_OK;
  begin = tfd__span_begin();
  rc = wait_until_done(device, seq, until);
  if (begin != 0) note_wait(device, begin);
  return rc;
}

int tfd__wait_all(tfd_device *device, tfd__deadline until) {
  return tfd__wait_done(device, tfd__stream_seq(device), until);
}

/* Raise and end the failure of a call up to seq, if there is one, once all
** streams have finished what they have. */
static int report(tfd_device *d, uint64_t seq, tfd__deadline until) {
  bool raised = false;
  int rc = TFD_OK;
  int i;

  if (TFD_LIKELY(!tfd__failure_is_due(d, seq))) return TFD_OK;
  for (i = 0; i < tfd__rt.n; i++) {
    TFD_TRY(tfd__wait_all(tfd__rt.devices[i], until));
  }
  rc = tfd__failure_raise(d, seq, &raised);
  if (raised) tfd__settle(true);
  return rc;
}

int tfd__stream_wait(tfd_device *device, uint64_t seq, tfd__deadline until) {
  uint64_t taken = tfd__stream_seq(device);

  if (seq > taken) seq = taken;
  TFD_TRY(tfd__wait_done(device, seq, until));
  TFD_TRY(report(device, seq, until));
  tfd__settle(false);
  return TFD_OK;
}

bool tfd__stream_has_passed(tfd_device *device, uint64_t seq) {
  return tfd__is_done(device, seq) && !tfd__failure_is_due(device, seq);
}

tfd__buffer_state tfd__buffer_state_of(const tfd__buffer *b) {
  if (b->made_seq == 0 || !b->device->queued) return TFD_BUFFER_GOOD;
  if (!tfd__is_done(b->device, b->made_seq)) return TFD_BUFFER_PENDING;
  if (TFD_LIKELY(b->made_seq > atomic_load(&b->device->lost_until))) {
    return TFD_BUFFER_GOOD;
  }
  return tfd__failure_took(b->device, b->made_seq) ? TFD_BUFFER_LOST
                                                   : TFD_BUFFER_GOOD;
}

void tfd__buffer_finish(const tfd__buffer *b) {
  (void)tfd__wait_done(b->device, b->made_seq, TFD_FOREVER);
}
