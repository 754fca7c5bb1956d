#define _GNU_SOURCE
#include "io/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/thread.h"

#define POLL_MS 50
#define ANY_HEADER 32 /* zlib: gzip or zlib, whichever it is */

static int begin_zlib(tfd__input *s) {
  s->in = tfd__alloc(TFD_INPUT_BYTES);
  if (s->in == NULL) return tfd__no_memory(TFD_INPUT_BYTES, "file buffer");
  if (inflateInit2(&s->z, MAX_WBITS + ANY_HEADER) != Z_OK) {
    return tfd__no_memory(0, "decompression");
  }
  s->zlib_open = true;
  return TFD_OK;
}

int tfd__input_open(tfd__input *s, const char *path,
                     tfd_compression compression, const atomic_bool *stop) {
  struct stat st;
  int rc = TFD_OK;

  memset(s, 0, sizeof *s);
  s->path = path;
  s->stop = stop;
  s->compressed = compression != TFD_COMPRESSION_NONE;
  s->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (s->file < 0 || fstat(s->file, &st) != 0) {
    rc = tfd__fail(tfd__errno_status(errno), "%s: %s", path, strerror(errno));
  } else if (S_ISDIR(st.st_mode)) {
    rc = tfd__fail(TFD_FAILED_PRECONDITION, "%s: is a folder", path);
  } else {
    s->plain_file = S_ISREG(st.st_mode);
    if (s->compressed) rc = begin_zlib(s);
  }
  if (rc != TFD_OK) tfd__input_close(s);
  return rc;
}

int tfd__input_open_any(tfd__input *s, const char *path) {
  unsigned char first[2] = {0, 0};
  int rc;

  TFD_TRY(tfd__input_open(s, path, TFD_COMPRESSION_NONE, NULL));
  if (pread(s->file, first, sizeof first, 0) != (ssize_t)sizeof first ||
      first[0] != 0x1f || first[1] != 0x8b) {
    return TFD_OK;
  }
  s->compressed = true;
  rc = begin_zlib(s);
  if (rc != TFD_OK) tfd__input_close(s);
  return rc;
}

static bool is_stopped(const tfd__input *s) {
  return s->stop != NULL ? atomic_load(s->stop) : tfd__interrupt_get();
}

/* Some bytes of the file itself; *n_p == 0 at its end. */
static int read_file(tfd__input *s, void *data, size_t bytes, size_t *n_p) {
  for (;;) {
    struct pollfd p = {.fd = s->file, .events = POLLIN};
    ssize_t n;

    if (is_stopped(s)) {
      return tfd__fail(TFD_CANCELLED, "%s: reading was stopped", s->path);
    }
    if (!s->plain_file && poll(&p, 1, POLL_MS) == 0) continue;
    n = read(s->file, data, bytes);
    if (n >= 0) {
      *n_p = (size_t)n;
      return TFD_OK;
    }
    if (errno != EINTR && errno != EAGAIN) {
      return tfd__fail(TFD_DATA_LOSS, "%s: cannot read after offset %llu: %s",
                       s->path, (unsigned long long)s->offset,
                       strerror(errno));
    }
  }
}

static int damaged(const tfd__input *s, const char *why) {
  return tfd__fail(TFD_DATA_LOSS,
                   "%s: the compressed data is damaged after %llu bytes: %s",
                   s->path, (unsigned long long)s->offset, why);
}

static int refill(tfd__input *s) {
  size_t n = 0;

  if (s->z.avail_in > 0 || s->file_ended) return TFD_OK;
  TFD_TRY(read_file(s, s->in, TFD_INPUT_BYTES, &n));
  s->file_ended = n == 0;
  s->z.next_in = s->in;
  s->z.avail_in = (unsigned)n;
  return TFD_OK;
}

/* Decompress into data; members of a gzip file follow each other. */
static int inflate_some(tfd__input *s, unsigned char *data, size_t bytes,
                        size_t *n_p) {
  int code = Z_OK;

  s->z.next_out = data;
  s->z.avail_out = (unsigned)bytes;
  while (s->z.avail_out > 0 && !s->ended) {
    TFD_TRY(refill(s));
    if (s->z.avail_in == 0) {
      if (!s->between && (s->z.total_in > 0 || s->offset > 0)) {
        return damaged(s, "it ends early");
      }
      s->ended = true;
      break;
    }
    if (s->between && inflateReset(&s->z) != Z_OK) return damaged(s, "reset");
    s->between = false;
    code = inflate(&s->z, Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      s->between = true;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return damaged(s, s->z.msg != NULL ? s->z.msg : "not compressed data");
    }
  }
  *n_p = bytes - s->z.avail_out;
  s->offset += *n_p;
  return TFD_OK;
}

int tfd__input_read(tfd__input *s, void *data, size_t bytes, size_t *n_p) {
  unsigned char *p = data;
  size_t done = 0;

  while (done < bytes && !s->ended) {
    size_t piece = bytes - done < ((size_t)1 << 30) ? bytes - done
                                                    : (size_t)1 << 30;
    size_t n = 0;

    if (s->compressed) {
      TFD_TRY(inflate_some(s, p + done, piece, &n));
    } else {
      TFD_TRY(read_file(s, p + done, piece, &n));
      s->offset += n;
      s->ended = n == 0;
    }
    done += n;
  }
  *n_p = done;
  return TFD_OK;
}

void tfd__input_close(tfd__input *s) {
  if (s->zlib_open) inflateEnd(&s->z);
  if (s->file >= 0) close(s->file);
  tfd__free(s->in);
  s->zlib_open = false;
  s->in = NULL;
  s->file = -1;
}
