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
#define PIECE_BYTES ((size_t)1 << 30)
/* Small enough that what was read is in the core's cache for its checksum. */
#define SUM_BYTES ((size_t)256 << 10)

static void *zlib_alloc(void *opaque, unsigned n, unsigned size) {
  (void)opaque;
  return tfd__calloc(n, size);
}

static void zlib_free(void *opaque, void *p) {
  (void)opaque;
  tfd__free(p);
}

static int begin_zlib(tfd__input *s) {
  memset(&s->z, 0, sizeof s->z);
  s->z.zalloc = zlib_alloc;
  s->z.zfree = zlib_free;
  if (s->in == NULL) s->in = tfd__alloc(TFD_INPUT_BYTES);
  if (s->in == NULL) return tfd__no_memory(TFD_INPUT_BYTES, "file buffer");
  if (inflateInit2(&s->z, s->raw ? -MAX_WBITS : MAX_WBITS + ANY_HEADER) !=
      Z_OK) {
    return tfd__no_memory(0, "decompression");
  }
  s->zlib_open = true;
  return TFD_OK;
}

static void end_zlib(tfd__input *s) {
  if (s->zlib_open) inflateEnd(&s->z);
  s->zlib_open = false;
}

int tfd__input_open(tfd__input *s, const char *path,
                    tfd_compression compression, const atomic_bool *stop) {
  struct stat st;
  int rc = TFD_OK;

  memset(s, 0, sizeof *s);
  s->path = path;
  s->stop = stop;
  s->left = UINT64_MAX;
  s->compressed = compression != TFD_COMPRESSION_NONE;
  s->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (s->file < 0 || fstat(s->file, &st) != 0) {
    rc = tfd__fail(tfd__errno_status(errno), "%s: %s", path, strerror(errno));
  } else if (S_ISDIR(st.st_mode)) {
    rc = tfd__fail(TFD_FAILED_PRECONDITION, "%s: is a folder", path);
  } else {
    s->plain_file = S_ISREG(st.st_mode);
    s->file_bytes = s->plain_file ? (uint64_t)st.st_size : 0;
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

int tfd__input_part(tfd__input *s, const char *name, uint64_t offset,
                    uint64_t bytes, bool deflated) {
  s->path = name;
  end_zlib(s);
  if (!s->plain_file) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "%s: not a plain file", name);
  }
  if (offset > s->file_bytes || bytes > s->file_bytes - offset) {
    return tfd__fail(
        TFD_DATA_LOSS, "%s: %llu bytes at offset %llu, the file ends at %llu",
        name, (unsigned long long)bytes, (unsigned long long)offset,
        (unsigned long long)s->file_bytes);
  }
  if (lseek(s->file, (off_t)offset, SEEK_SET) < 0) {
    return tfd__fail(tfd__errno_status(errno), "%s: %s", name, strerror(errno));
  }
  s->compressed = deflated;
  s->raw = deflated;
  s->between = false;
  s->file_ended = false;
  s->ended = false;
  s->offset = 0;
  s->left = bytes;
  s->sums = true;
  s->crc = 0;
  return deflated ? begin_zlib(s) : TFD_OK;
}

static bool is_stopped(const tfd__input *s) {
  return s->stop != NULL ? atomic_load(s->stop) : tfd__interrupt_get();
}

/* Some bytes of the file itself; *n_p == 0 at its end. */
static int read_file(tfd__input *s, void *data, size_t bytes, size_t *n_p) {
  if (bytes > s->left) bytes = (size_t)s->left;
  for (;;) {
    struct pollfd p = {.fd = s->file, .events = POLLIN};
    ssize_t n;

    if (is_stopped(s)) {
      return tfd__fail(TFD_CANCELLED, "%s: reading was stopped", s->path);
    }
    if (!s->plain_file && poll(&p, 1, POLL_MS) == 0) continue;
    n = read(s->file, data, bytes);
    if (n >= 0) {
      if (s->left != UINT64_MAX) s->left -= (uint64_t)n;
      *n_p = (size_t)n;
      return TFD_OK;
    }
    if (errno != EINTR && errno != EAGAIN) {
      return tfd__fail(tfd__read_status(errno),
                       "%s: cannot read after offset %llu: %s", s->path,
                       (unsigned long long)s->offset, strerror(errno));
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
    if (code == Z_STREAM_END && s->raw) {
      s->ended = true;
      if (s->z.avail_in > 0 || s->left > 0) return damaged(s, "more follows");
    } else if (code == Z_STREAM_END) {
      s->between = true;
    } else if (code == Z_MEM_ERROR) {
      return tfd__no_memory(0, "decompression");
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
    size_t most = s->sums ? SUM_BYTES : PIECE_BYTES;
    size_t piece = bytes - done < most ? bytes - done : most;
    size_t n = 0;

    if (s->compressed) {
      TFD_TRY(inflate_some(s, p + done, piece, &n));
    } else {
      TFD_TRY(read_file(s, p + done, piece, &n));
      s->offset += n;
      s->ended = n == 0;
    }
    if (s->sums) s->crc = (uint32_t)crc32_z(s->crc, p + done, n);
    done += n;
  }
  *n_p = done;
  return TFD_OK;
}

/* --- as much as there is ----------------------------------------------------
 */

/* What a compressed file of that size unpacks to at most, whatever is in it,
** beside the tensors that were made from it. */
static uint64_t holds(const tfd__input *s) {
  uint64_t most = s->file_bytes > UINT64_MAX / TFD_DEFLATED_TIMES
                      ? UINT64_MAX
                      : s->file_bytes * TFD_DEFLATED_TIMES;

  return most > s->unpacked ? most - s->unpacked : 0;
}

uint64_t tfd__input_most(const tfd__input *s) {
  uint64_t most = s->file_bytes;

  if (!s->plain_file) return TFD_PIPE_BYTES;
  if (!s->compressed && s->left != UINT64_MAX) return s->left;
  if (!s->compressed) return most > s->offset ? most - s->offset : 0;
  most = most > UINT64_MAX / TFD_UNPACKED_TIMES ? UINT64_MAX
                                                : most * TFD_UNPACKED_TIMES;
  if (most < TFD_UNPACKED_BYTES) most = TFD_UNPACKED_BYTES;
  most = most > s->unpacked ? most - s->unpacked : 0;
  return most < holds(s) ? most : holds(s);
}

int tfd__input_too_much(const tfd__input *s, uint64_t bytes) {
  if (!s->plain_file) {
    return tfd__fail(TFD_RESOURCE_EXHAUSTED,
                     "%s: %llu bytes from a pipe at "
                     "once, more than %llu",
                     s->path, (unsigned long long)bytes,
                     (unsigned long long)TFD_PIPE_BYTES);
  }
  if (s->compressed && bytes > holds(s)) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: %llu bytes to unpack at once, but a file of %llu "
                     "cannot hold more than %d times as many",
                     s->path, (unsigned long long)bytes,
                     (unsigned long long)s->file_bytes, TFD_DEFLATED_TIMES);
  }
  (void)tfd__fail(TFD_RESOURCE_EXHAUSTED,
                  "%s: %llu bytes to unpack at once; a file of %llu may unpack "
                  "to %llu",
                  s->path, (unsigned long long)bytes,
                  (unsigned long long)s->file_bytes,
                  (unsigned long long)(tfd__input_most(s) + s->unpacked));
  return tfd__hint("keep it uncompressed: that is as large as its contents");
}

int tfd__input_take(tfd__input *s, size_t need, tfd__bytes *b) {
  size_t begin = b->n;

  while (b->n - begin < need) {
    size_t piece =
        b->n - begin < TFD_INPUT_BYTES ? TFD_INPUT_BYTES : b->n - begin;
    size_t n = 0;

    if (piece > need - (b->n - begin)) piece = need - (b->n - begin);
    if (s->compressed && b->n - begin + piece > tfd__input_most(s)) {
      return tfd__input_too_much(s, need);
    }
    TFD_TRY(tfd__bytes_reserve(b, piece));
    TFD_TRY(tfd__input_read(s, b->data + b->n, piece, &n));
    b->n += n;
    if (n < piece) break;
  }
  return TFD_OK;
}

/* --- tensors ----------------------------------------------------------------
 */

typedef struct elements {
  tfd__input *input;
  const tfd__view *view;
  bool big_endian;
} elements;

/* `found` bytes, or more than those, are not what the shape needs. */
static int misfit(const tfd__input *s, const tfd__view *view, uint64_t offset,
                  uint64_t found, bool more) {
  char shape[TFD_SHAPE_TEXT];

  return tfd__fail(TFD_DATA_LOSS,
                   "%s: %s%llu bytes of elements after offset %llu, but %s %s "
                   "has %zu",
                   s->path, more ? "more than " : "", (unsigned long long)found,
                   (unsigned long long)offset, tfd__dtype_name(view->dtype),
                   tfd__shape_text(view, shape), tfd__view_bytes(view));
}

/* Turn elements of `size` bytes from big-endian into the machine's order. */
static void to_native(unsigned char *p, size_t bytes, size_t size) {
  const uint16_t probe = 1;
  size_t i;
  size_t k;

  if (size == 1 || *(const unsigned char *)&probe != 1) return;
  for (i = 0; i + size <= bytes; i += size) {
    for (k = 0; k < size / 2; k++) {
      unsigned char swap = p[i + k];

      p[i + k] = p[i + size - 1 - k];
      p[i + size - 1 - k] = swap;
    }
  }
}

static int check_bools(const tfd__input *s, const unsigned char *p, size_t n) {
  size_t i;

  for (i = 0; i < n; i++) {
    if (p[i] > 1) {
      return tfd__fail(TFD_DATA_LOSS,
                       "%s: byte %u at offset %llu is no boolean", s->path,
                       p[i], (unsigned long long)(s->offset - n + i));
    }
  }
  return TFD_OK;
}

static int read_elements(void *arg, void *data, size_t bytes) {
  elements *e = arg;
  uint64_t begin = e->input->offset;
  unsigned char more;
  size_t n = 0;

  TFD_TRY(tfd__input_read(e->input, data, bytes, &n));
  if (n < bytes) return misfit(e->input, e->view, begin, n, false);
  if (e->view->dtype == TFD_BOOL) TFD_TRY(check_bools(e->input, data, bytes));
  TFD_TRY(tfd__input_read(e->input, &more, 1, &n));
  if (n > 0) return misfit(e->input, e->view, begin, bytes, true);
  if (e->big_endian) to_native(data, bytes, tfd__dtype_size(e->view->dtype));
  return TFD_OK;
}

int tfd__input_tensor(tfd__input *s, int dtype, const int64_t *dims, int rank,
                      bool big_endian, tfd_tensor **tensor_p) {
  uint64_t most = tfd__input_most(s);
  tfd__view view;
  elements e = {s, &view, big_endian};
  size_t bytes;

  if (tfd__view_set(&view, dtype, dims, rank) != TFD_OK) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: the %d sizes before offset %llu are more than a "
                     "tensor has",
                     s->path, rank, (unsigned long long)s->offset);
  }
  bytes = tfd__view_bytes(&view);
  if (bytes > most && (s->compressed || !s->plain_file)) {
    return tfd__input_too_much(s, bytes);
  }
  if (bytes > most) return misfit(s, &view, s->offset, most, false);
  if (s->compressed) s->unpacked += bytes;
  return tfd__tensor_filled(dtype, dims, rank, read_elements, &e, tensor_p);
}

void tfd__input_close(tfd__input *s) {
  end_zlib(s);
  if (s->file >= 0) close(s->file);
  tfd__free(s->in);
  s->in = NULL;
  s->file = -1;
}
