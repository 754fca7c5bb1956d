/* Bytes between the host and a buffer, and between devices, all by the three
** copies of a back end. */
#include "device/private.h"

static int check_range(const char *what, const tfd__buffer *b, size_t offset,
                       size_t bytes) {
  if (offset <= b->bytes && bytes <= b->bytes - offset) return TFD_OK;
  return tfd__fail(TFD_OUT_OF_RANGE,
                   "%s: %zu bytes at offset %zu of a buffer of %zu", what,
                   bytes, offset, b->bytes);
}

static void *at(const tfd__buffer *b, size_t offset) {
  return (char *)b->data + offset;
}

/* --- the host's bytes ----------------------------------------------------- */

/* What became of work that has run. */
static int outcome(tfd__fetch *f) {
  int rc = f->error.code == TFD_OK ? TFD_OK : tfd__error_raise(&f->error);

  tfd__error_free(&f->error);
  return rc;
}

/* A write fills memory for the first time, mostly: what failed must not be
** taken for values. So the caller gets the error. */
int tfd__host_write(tfd__buffer *b, size_t offset, const void *data,
                    size_t bytes) {
  tfd_device *d = b->device;
  tfd__fetch f = {0};
  tfd__work work = {.kind = TFD_WORK_WRITE, .data = data, .data_bytes = bytes};

  TFD_TRY(check_range("host write", b, offset, bytes));
  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  if (bytes == 0) return TFD_OK;
  if (bytes == b->bytes) b->made_seq = 0;
  work.held[0] = at(b, offset);
  if (d->backend->host_visible && tfd__buffer_host_idle(b)) {
    int64_t begin = tfd__span_begin();
    int rc;

    tfd__use_threads(d->threads);
    rc = d->backend->copy_in(d->stream, work.held[0], data, bytes);
    tfd__span_end(TFD_SPAN_TRANSFER, "host write", begin, -1);
    return rc;
  }
  if (d->backend->asynchronous) work.held[1] = &f;
  TFD_TRY(tfd__queue_submit(d, &work, &b->use_seq));
  return outcome(&f);
}

/* To the end, whatever comes: `data` is the caller's. */
static int read_queued(const tfd__buffer *b, size_t offset, void *data,
                       size_t bytes) {
  tfd_device *d = b->device;
  tfd__fetch f = {.data = data, .bytes = bytes};
  tfd__work work = {.kind = TFD_WORK_READ, .held = {at(b, offset), &f}};
  uint64_t seq = 0;
  int rc;

  TFD_TRY(tfd__queue_submit(d, &work, &seq));
  while (!tfd__is_done(d, seq)) {
    TFD_TRY(tfd__check_running());
    d->backend->wait(d->stream, seq, TFD_FOREVER);
  }
  rc = outcome(&f);
  return rc == TFD_OK ? tfd__failure_of_device(d, seq) : rc;
}

/* Its values have been computed and are not lost. */
static int read_done(const tfd__buffer *b, size_t offset, void *data,
                     size_t bytes) {
  tfd_device *d = b->device;
  int64_t begin = tfd__span_begin();
  int rc;

  if (bytes == 0) return TFD_OK;
  if (d->backend->host_visible) {
    tfd__use_threads(d->threads);
    rc = d->backend->copy_out(d->stream, data, at(b, offset), bytes);
  } else {
    rc = read_queued(b, offset, data, bytes);
  }
  tfd__span_end(TFD_SPAN_TRANSFER, "host read", begin, -1);
  return rc;
}

int tfd__host_read(const tfd__buffer *b, size_t offset, void *data,
                   size_t bytes) {
  TFD_TRY(check_range("host read", b, offset, bytes));
  TFD_TRY(tfd__stream_wait(b->device, b->use_seq, TFD_FOREVER));
  TFD_TRY(tfd__buffer_check(b));
  return read_done(b, offset, data, bytes);
}

/* --- device to device ----------------------------------------------------- */

/* ints: the two devices */
static int copy_views(const tfd__call *call) {
  const tfd_device *to = (tfd_device *)(uintptr_t)call->ints[0];
  const tfd_device *from = (tfd_device *)(uintptr_t)call->ints[1];
  const tfd__view *out = tfd__out(call, 0);

  return to->backend->copy_across(to->stream, out->data, from->ordinal,
                                  tfd__in(call, 0)->data, tfd__view_bytes(out));
}

static int copy_queued(tfd__buffer *to, tfd__buffer *from, tfd__call *call) {
  tfd_device *d = to->device;
  tfd__work work = {.call = call, .kind = TFD_WORK_COPY, .held = {to, from}};
  tfd__hold *hold = NULL;
  uint64_t seq = 0;
  int rc;

  TFD_TRY(tfd__stream_after_seq(d, from->device, from->use_seq));
  if (d->backend->asynchronous) {
    hold = tfd__alloc(sizeof *hold);
    if (hold == NULL) return tfd__no_memory(sizeof *hold, "copy");
  }
  tfd__retain(to);
  tfd__retain(from);
  call->stream = d->stream;
  rc = tfd__queue_submit(d, &work, &seq);
  if (rc != TFD_OK) {
    tfd__release(from);
    tfd__release(to);
    tfd__free(hold);
    return rc;
  }
  if (hold != NULL) tfd__hold_until(d, hold, &work, seq);
  tfd__buffer_made(to, seq);
  return TFD_OK;
}

/* Devices of two kinds: the bytes go through the host, which waits for them. */
static int copy_foreign(tfd__buffer *to, const tfd__view *to_view,
                        tfd__buffer *from, const tfd__view *from_view) {
  size_t bytes = tfd__view_bytes(from_view);
  size_t to_offset = (size_t)((char *)to_view->data - (char *)to->data);
  size_t offset = (size_t)((char *)from_view->data - (char *)from->data);
  void *stage = NULL;
  int rc = TFD_OK;

  TFD_TRY(tfd__stream_after_seq(to->device, from->device, from->use_seq));
  if (tfd__failure_covers(from->device, from->use_seq)) {
    tfd__buffer_made(to, tfd__stream_seq(to->device));
    return TFD_OK; /* lost, as what follows there */
  }
  if (bytes == 0) return TFD_OK;
  if (from->device->backend->host_visible) {
    return tfd__host_write(to, to_offset, from_view->data, bytes);
  }
  if (to->device->backend->host_visible && tfd__buffer_host_idle(to)) {
    return read_done(from, offset, to_view->data, bytes);
  }
  stage = tfd__alloc(bytes);
  if (stage == NULL) return tfd__no_memory(bytes, "copy between devices");
  rc = read_done(from, offset, stage, bytes);
  if (rc == TFD_OK) rc = tfd__host_write(to, to_offset, stage, bytes);
  tfd__free(stage);
  return rc;
}

int tfd__copy_across(tfd__buffer *to, const tfd__view *to_view,
                     tfd__buffer *from, const tfd__view *from_view) {
  tfd__view views[2] = {*from_view, *to_view};
  int64_t ints[2] = {(int64_t)(uintptr_t)to->device,
                     (int64_t)(uintptr_t)from->device};
  tfd__call call = {.name = tfd__copy_name,
                    .kernel = copy_views,
                    .views = views,
                    .ints = ints,
                    .in_n = 1,
                    .out_n = 1,
                    .ints_n = 2,
                    .replica = -1};

  TFD_TRY(tfd__buffer_check(from));
  if (to->device->backend != from->device->backend) {
    return copy_foreign(to, to_view, from, from_view);
  }
  if (!to->device->queued) return tfd__stream_submit(to->device, &call);
  return copy_queued(to, from, &call);
}
