/* Bytes between the host and a buffer, and between devices. */
#include <string.h>

#include "device/private.h"

/* Below this a copy stays on one thread: waking others costs more. */
#define SHARE_BYTES ((int64_t)1 << 20)

typedef struct span {
  char *to;
  const char *from;
} span;

static void copy_part(void *arg, int64_t begin, int64_t end) {
  const span *s = arg;

  memcpy(s->to + begin, s->from + begin, (size_t)(end - begin));
}

void tfd__copy_bytes(void *to, const void *from, size_t bytes) {
  span s = {to, from};

  if (bytes < (size_t)SHARE_BYTES) {
    if (bytes > 0) memcpy(to, from, bytes);
    return;
  }
  tfd__parallel_for((int64_t)bytes, SHARE_BYTES / 2, copy_part, &s);
}

static int check_range(const char *what, const tfd__buffer *b, size_t offset,
                       size_t bytes) {
  if (offset <= b->bytes && bytes <= b->bytes - offset) return TFD_OK;
  return tfd__fail(TFD_OUT_OF_RANGE,
                   "%s: %zu bytes at offset %zu of a buffer of %zu", what,
                   bytes, offset, b->bytes);
}

/* --- host to buffer ------------------------------------------------------- */

/* In the ring: ints[0] = bytes, and the bytes behind the ints. */
static int write_staged(const tfd__call *call) {
  size_t bytes = (size_t)call->ints[0];

  tfd__copy_bytes((void *)(uintptr_t)call->ints[1], call->ints + 2, bytes);
  return TFD_OK;
}

static int stage(tfd__buffer *b, size_t offset, const void *data,
                 size_t bytes) {
  tfd__stream *s = b->device->stream;
  tfd__command *c = NULL;
  int64_t *payload = NULL;

  TFD_TRY(tfd__stream_open(s));
  TFD_TRY(tfd__ring_begin(s, TFD_COMMAND_WRITE, 2 * sizeof *payload + bytes,
                          &c));
  payload = tfd__ring_payload(c);
  payload[0] = (int64_t)bytes;
  payload[1] = (int64_t)(uintptr_t)((char *)b->data + offset);
  memcpy(payload + 2, data, bytes);
  c->call = (tfd__call){.name = "write",
                        .kernel = write_staged,
                        .ints = payload,
                        .ints_n = 2,
                        .replica = -1};
  b->use_seq = tfd__ring_publish(s, c);
  return TFD_OK;
}

int tfd__host_write(tfd__buffer *b, size_t offset, const void *data,
                    size_t bytes) {
  TFD_TRY(check_range("host write", b, offset, bytes));
  if (!TFD_LIKELY(!tfd__is_forked())) return tfd__fork_error();
  if (bytes == 0) return TFD_OK;
  if (bytes == b->bytes) b->made_seq = 0;
  if (!tfd__buffer_host_idle(b)) return stage(b, offset, data, bytes);
  tfd__use_threads(b->device->threads);
  tfd__copy_bytes((char *)b->data + offset, data, bytes);
  return TFD_OK;
}

int tfd__host_read(const tfd__buffer *b, size_t offset, void *data,
                   size_t bytes) {
  TFD_TRY(check_range("host read", b, offset, bytes));
  TFD_TRY(tfd__stream_wait(b->device, b->use_seq, TFD_FOREVER));
  TFD_TRY(tfd__buffer_check(b));
  tfd__use_threads(b->device->threads);
  tfd__copy_bytes(data, (const char *)b->data + offset, bytes);
  return TFD_OK;
}

/* --- device to device ----------------------------------------------------- */

static int copy_views(const tfd__call *call) {
  tfd__copy_bytes(tfd__out(call, 0)->data, tfd__in(call, 0)->data,
                  tfd__view_bytes(tfd__out(call, 0)));
  return TFD_OK;
}

int tfd__copy_across(tfd__buffer *to, const tfd__view *to_view,
                     tfd__buffer *from, const tfd__view *from_view) {
  tfd__stream *s = to->device->stream;
  tfd__view views[2] = {*from_view, *to_view};
  tfd__call call = {.name = "copy",
                    .kernel = copy_views,
                    .views = views,
                    .in_n = 1,
                    .out_n = 1,
                    .replica = -1};
  tfd__command *c = NULL;

  TFD_TRY(tfd__buffer_check(from));
  if (!s->queued) return tfd__stream_submit(to->device, &call);
  TFD_TRY(tfd__stream_after_seq(to->device, from->device, from->use_seq));
  TFD_TRY(tfd__stream_open(s));
  TFD_TRY(tfd__ring_call(s, TFD_COMMAND_COPY, &call, &c));
  tfd__retain(to);
  tfd__retain(from);
  c->u.copy.to = to;
  c->u.copy.from = from;
  tfd__buffer_made(to, tfd__ring_publish(s, c));
  return TFD_OK;
}
