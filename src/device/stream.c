/* Running a device's calls in order, and after those of other devices.
**
** An inline device runs a call inside submit. The work of a queued one is run
** by its back end's stream, which calls run_work when its turn has come: there
** failures are kept, and what follows them is dropped. The stream of an
** asynchronous back end finishes later (wait.c). */
#include "device/private.h"

/* Stands in for the streams of inline devices. */
static tfd__stream nothing_queued;

/* --- running -------------------------------------------------------------- */

/* What this thread runs, for the report of a crash: names live for ever. */
static _Thread_local const char *running;

const char *tfd__running_op(void) {
  return running;
}

/* A collective's name is its caller's. */
TFD_COLD static void note_kernel(const tfd__call *call, int64_t begin) {
  tfd__span_end(call->name == tfd__copy_name ? TFD_SPAN_TRANSFER : TFD_SPAN_OP,
                tfd__span_name(call->name), begin, call->replica);
}

/* Programs have no name, and note their calls themselves. */
static int run_kernel(const tfd__call *call) {
  int64_t begin = call->name != NULL ? tfd__span_begin() : 0;
  int rc;

  running = call->name;
  rc = call->kernel(call);
  running = NULL;
  if (!TFD_LIKELY(begin == 0)) note_kernel(call, begin);
  tfd__scratch_reset();
  return rc;
}

static int run_inline(tfd_device *device, const tfd__call *call) {
  int rc;

  tfd__use_threads(device->threads);
  rc = run_kernel(call);
  if (rc != TFD_OK && call->name != NULL) {
    (void)tfd__error_set_place(call->replica, NULL);
    (void)tfd__error_set_note(call->note);
    (void)tfd__blame(call->name, NULL, -1);
  }
  return rc;
}

static int run_host_work(tfd_device *d, const tfd__work *work) {
  const tfd__backend *b = d->backend;
  tfd__fetch *f = work->held[1];
  int rc;

  if (work->kind == TFD_WORK_WRITE) {
    rc = b->copy_in(d->stream, work->held[0], work->data, work->data_bytes);
  } else {
    rc = b->copy_out(d->stream, f->data, work->held[0], f->bytes);
  }
  if (TFD_LIKELY(rc == TFD_OK) || f == NULL) return rc;
  tfd__error_save(&f->error);
  return TFD_OK;
}

static void run_work(void *owner, const tfd__work *work, uint64_t seq) {
  tfd_device *d = owner;
  bool drop = tfd__failure_drops(d, work->epoch, seq);
  int rc = TFD_OK;

  if (TFD_LIKELY(work->call != NULL)) {
    if (!drop) rc = run_kernel(work->call);
  } else if (work->kind == TFD_WORK_FOLLOW) {
    tfd__failure_inherit(d, seq, work->held[0], work->seq, work->epoch);
  } else {
    rc = run_host_work(d, work);
  }
  if (!TFD_LIKELY(rc == TFD_OK)) tfd__failure_keep(d, work, seq);
  if (d->queue->orders != NULL) {
    atomic_store_explicit(&d->queue->orders[seq % TFD_ORDERS], work->order,
                          memory_order_relaxed);
  }
  if (work->kind == TFD_WORK_COPY && !d->backend->asynchronous) {
    tfd__let_go(work->held);
  }
}

static void drop_work(void *owner, const tfd__work *work) {
  (void)owner;
  if (work->kind == TFD_WORK_COPY) tfd__let_go(work->held);
}

static inline void stamp(tfd__work *work) {
  work->epoch = atomic_load_explicit(&tfd__rt.epoch, memory_order_relaxed);
  work->order =
      atomic_load_explicit(&tfd__rt.submitted, memory_order_relaxed) + 1;
  atomic_store_explicit(&tfd__rt.submitted, work->order, memory_order_relaxed);
}

int tfd__queue_submit(tfd_device *device, tfd__work *work, uint64_t *seq_p) {
  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  stamp(work);
  return device->backend->submit(device->stream, work, seq_p);
}

int tfd__stream_submit(tfd_device *device, tfd__call *call) {
  tfd__work work = {.call = call};
  uint64_t seq = 0;

  if (!device->queued) {
    if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
    return run_inline(device, call);
  }
  call->stream = device->stream;
  return tfd__queue_submit(device, &work, &seq);
}

/* --- after other devices -------------------------------------------------- */

int tfd__stream_after(tfd_device *waiter, tfd_device *device) {
  const tfd__backend *b = device->backend;
  uint64_t seq = tfd__stream_seq(device);

  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  if (waiter == device || !device->queued) return TFD_OK;
  if (b == waiter->backend && b->awaited != NULL) {
    seq = b->awaited(device->stream, waiter->stream);
  }
  return tfd__stream_after_seq(waiter, device, seq);
}

/* The waiter cannot wait for a stream of another kind: the host does. */
static int follow_foreign(tfd_device *waiter, tfd_device *device,
                          tfd__work *work) {
  uint64_t seq = 0;

  TFD_TRY(tfd__wait_done(device, work->seq, TFD_FOREVER));
  if (!tfd__failure_covers(device, work->seq)) return TFD_OK;
  if (!waiter->queued) {
    return tfd__stream_wait(device, work->seq, TFD_FOREVER);
  }
  return tfd__queue_submit(waiter, work, &seq);
}

int tfd__stream_after_seq(tfd_device *waiter, tfd_device *device,
                          uint64_t seq) {
  const tfd__backend *b = waiter->backend;
  tfd__work work = {
      .kind = TFD_WORK_FOLLOW, .held = {device, NULL}, .seq = seq};

  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  if (waiter == device || !device->queued) return TFD_OK;
  /* Done already: nothing to wait for, unless a failure must be passed on. */
  if (tfd__is_done(device, seq) &&
      atomic_load_explicit(&device->queue->failure, memory_order_acquire) ==
          NULL) {
    return TFD_OK;
  }
  if (!waiter->queued || b != device->backend) {
    return follow_foreign(waiter, device, &work);
  }
  stamp(&work);
  return b->after(waiter->stream, device->stream, work.seq, &work, &seq);
}

/* --- life ----------------------------------------------------------------- */

static int make_lists(tfd__queue *q, bool late) {
  size_t bytes = TFD_LOSSES * sizeof *q->losses;

  q->losses = tfd__calloc(1, bytes);
  if (q->losses == NULL) return tfd__no_memory(bytes, "stream");
  if (!late) return TFD_OK;
  bytes = TFD_ORDERS * sizeof *q->orders;
  q->orders = tfd__calloc(1, bytes);
  return q->orders == NULL ? tfd__no_memory(bytes, "stream") : TFD_OK;
}

static void free_queue(tfd__queue *q) {
  tfd__free(q->orders);
  tfd__free(q->losses);
  tfd__free(q);
}

int tfd__queue_new(tfd_device *device, void (*starting)(void)) {
  tfd__stream_config config = {.ordinal = device->ordinal,
                               .threads = device->threads,
                               .name = device->short_name,
                               .owner = device,
                               .run = run_work,
                               .drop = drop_work,
                               .starting = starting};
  tfd__queue *q = NULL;
  int rc;

  device->stream = &nothing_queued;
  if (!device->queued) return TFD_OK;
  q = tfd__calloc(1, sizeof *q);
  if (q == NULL) return tfd__no_memory(sizeof *q, "stream");
  rc = make_lists(q, device->backend->failed != NULL);
  if (rc == TFD_OK) rc = device->backend->stream_new(&config, &device->stream);
  if (rc != TFD_OK) {
    free_queue(q);
    return rc;
  }
  device->queue = q;
  return TFD_OK;
}

void tfd__queue_free(tfd_device *device) {
  tfd__queue *q = device->queue;

  if (q == NULL) return;
  tfd__failure_forget(device);
  tfd__end_holds(q, UINT64_MAX);
  device->backend->stream_free(device->stream);
  device->stream = &nothing_queued;
  free_queue(q);
  device->queue = NULL;
}
