/* Writing records one after the other, plain or compressed. */
#define _GNU_SOURCE
#include "io/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"

#define BUFFER_BYTES ((size_t)64 << 10)
#define GZIP_HEADER 16 /* zlib: write gzip's header */

struct tfd_writer {
  tfd_object object;
  char *path;
  int file; /* -1 = closed */
  bool compressed;
  bool zlib_open;
  z_stream z;
  unsigned char *buffer; /* what goes to the file next */
  size_t n;
  uint64_t bytes; /* in the file so far */
};

static int to_file(tfd_writer *w) {
  size_t done = 0;

  while (done < w->n) {
    ssize_t n = write(w->file, w->buffer + done, w->n - done);

    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      int code = errno;

      memmove(w->buffer, w->buffer + done, w->n - done);
      w->n -= done;
      return tfd__fail(tfd__errno_status(code),
                       "%s: cannot write after byte %llu: %s", w->path,
                       (unsigned long long)w->bytes, strerror(code));
    }
    done += (size_t)n;
    w->bytes += (uint64_t)n;
  }
  w->n = 0;
  return TFD_OK;
}

static int deflate_all(tfd_writer *w, const void *data, size_t bytes,
                       int flush) {
  int code = Z_OK;

  w->z.next_in = (unsigned char *)(uintptr_t)data;
  w->z.avail_in = (unsigned)bytes;
  do {
    w->z.next_out = w->buffer + w->n;
    w->z.avail_out = (unsigned)(BUFFER_BYTES - w->n);
    code = deflate(&w->z, flush);
    w->n = BUFFER_BYTES - w->z.avail_out;
    if (w->n == BUFFER_BYTES) TFD_TRY(to_file(w));
  } while (w->z.avail_in > 0 || w->z.avail_out == 0 ||
           (flush == Z_FINISH && code == Z_OK));
  return TFD_OK;
}

static int put(tfd_writer *w, const void *data, size_t bytes) {
  const char *p = data;

  while (bytes > 0) {
    size_t room = BUFFER_BYTES - w->n;
    size_t n = bytes < room ? bytes : room;

    if (w->compressed) {
      n = bytes < ((size_t)1 << 30) ? bytes : (size_t)1 << 30;
      TFD_TRY(deflate_all(w, p, n, Z_NO_FLUSH));
    } else {
      memcpy(w->buffer + w->n, p, n);
      w->n += n;
      if (w->n == BUFFER_BYTES) TFD_TRY(to_file(w));
    }
    p += n;
    bytes -= n;
  }
  return TFD_OK;
}

static int finish(tfd_writer *w) {
  int file = w->file;
  int rc = TFD_OK;

  if (file < 0) return TFD_OK;
  if (w->compressed) rc = deflate_all(w, NULL, 0, Z_FINISH);
  if (rc == TFD_OK) rc = to_file(w);
  w->file = -1;
  if (close(file) != 0 && rc == TFD_OK) {
    rc = tfd__fail(tfd__errno_status(errno), "%s: cannot close: %s", w->path,
                   strerror(errno));
  }
  return rc;
}

static void writer_destroy(void *self) {
  tfd_writer *w = self;

  if (w->file >= 0 && finish(w) != TFD_OK) {
    tfd__log(TFD_LOG_ERROR, "%s", tfd_error_message());
  }
  if (w->zlib_open) deflateEnd(&w->z);
  tfd__free(w->buffer);
  tfd__free(w->path);
  tfd__free(w);
}

static const tfd__type writer_type = {
    .name = "Writer",
    .kind = TFD_HANDLE_WRITER,
    .destroy = writer_destroy,
};

static int begin(tfd_writer *w, const char *path, tfd_compression compression) {
  w->path = tfd__strdup(path);
  w->buffer = tfd__alloc(BUFFER_BYTES);
  if (w->path == NULL || w->buffer == NULL) {
    return tfd__no_memory(BUFFER_BYTES, "writer");
  }
  w->compressed = compression != TFD_COMPRESSION_NONE;
  if (w->compressed) {
    int bits =
        MAX_WBITS + (compression == TFD_COMPRESSION_GZIP ? GZIP_HEADER : 0);

    if (deflateInit2(&w->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, bits, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
      return tfd__no_memory(0, "compression");
    }
    w->zlib_open = true;
  }
  w->file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (w->file < 0) {
    return tfd__fail(tfd__errno_status(errno), "%s: cannot create: %s", path,
                     strerror(errno));
  }
  return TFD_OK;
}

int tfd_writer_open(const char *path, tfd_compression compression,
                    tfd_writer **writer_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_ENUM(compression, TFD_COMPRESSION_NONE, TFD_COMPRESSION_ZLIB);
  TFD_GIVEN_POINTER(writer_p);

  tfd_writer *w = tfd__calloc(1, sizeof *w);
  int rc;

  if (w == NULL) return tfd__no_memory(sizeof *w, "writer");
  tfd__object_init(&w->object, &writer_type);
  w->file = -1;
  rc = begin(w, path, compression);
  if (rc != TFD_OK) {
    tfd__release(w);
    return rc;
  }
  *writer_p = w;
  return TFD_OK;
}

static int check_open(const tfd_writer *w, const char *what) {
  if (w->file >= 0) return TFD_OK;
  return tfd__fail(TFD_FAILED_PRECONDITION, "%s: the writer of %s is closed",
                   what, w->path);
}

static void little(unsigned char *p, uint64_t x, int n) {
  for (; n > 0; n--, x >>= 8) *p++ = (unsigned char)x;
}

int tfd_writer_record(tfd_writer *writer, const void *record,
                      size_t record_bytes) {
  TFD_GIVEN(writer, WRITER);
  TFD_GIVEN_BYTES(record, record_bytes);

  unsigned char head[12];
  unsigned char tail[4];

  TFD_TRY(check_open(writer, "write"));
  little(head, record_bytes, 8);
  little(head + 8, tfd__crc32c_mask(tfd__crc32c(0, head, 8)), 4);
  little(tail, tfd__crc32c_mask(tfd__crc32c(0, record, record_bytes)), 4);
  TFD_TRY(put(writer, head, sizeof head));
  TFD_TRY(put(writer, record, record_bytes));
  return put(writer, tail, sizeof tail);
}

int tfd_writer_flush(tfd_writer *writer) {
  TFD_GIVEN(writer, WRITER);
  TFD_TRY(check_open(writer, "flush"));
  if (writer->compressed) {
    TFD_TRY(deflate_all(writer, NULL, 0, Z_SYNC_FLUSH));
  }
  return to_file(writer);
}

int tfd_writer_close(tfd_writer *writer) {
  TFD_GIVEN(writer, WRITER);
  return finish(writer);
}
