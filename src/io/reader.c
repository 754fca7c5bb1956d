/* Records of a file, read ahead by a thread.
**
** The thread cuts the file into records and puts them into blocks; the caller
** takes blocks in order. At most QUEUE_BLOCKS wait, so memory stays bounded
** whatever the file is. A failure travels behind the records before it. */
#define _GNU_SOURCE
#include "io/input.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/thread.h"

#define MUTEX_RANK 6
#define BLOCK_BYTES ((size_t)256 << 10)
#define QUEUE_BLOCKS 4
#define WAIT_SECONDS 0.1
#define PIECE_BYTES ((size_t)1 << 20)
#define LINE_LIMIT ((size_t)1 << 30)

typedef struct reader_block {
  struct reader_block *next;
  tfd__bytes data;
  tfd__bytes ends; /* size_t for each record: where it ends in data */
} reader_block;

struct tfd_reader {
  tfd_object object;
  tfd_reader_kind kind;
  char *path; /* owned */
  size_t record_bytes;
  size_t footer_bytes;
  atomic_bool stop;
  /* The thread's side. */
  tfd__input stream;
  unsigned char *window; /* owned; bytes read and not yet cut */
  size_t window_at;
  size_t window_n;
  int64_t record; /* number of the next record */
  /* Between both, under the mutex. */
  tfd__mutex mutex;
  tfd__cond changed;
  tfd__thread thread;
  bool started;
  reader_block *first;
  reader_block *last;
  int waiting; /* blocks in the queue */
  bool done;
  tfd__error error;
  /* The caller's side. */
  reader_block *current;
  size_t position; /* of the next record in current */
};

/* --- the window -------------------------------------------------------------
 */

/* More bytes into an empty window; *any_p is false at the end. */
static int fill(tfd_reader *r, bool *any_p) {
  if (r->window_at == r->window_n) {
    r->window_at = 0;
    r->window_n = 0;
    TFD_TRY(
        tfd__input_read(&r->stream, r->window, TFD_INPUT_BYTES, &r->window_n));
  }
  *any_p = r->window_n > 0;
  return TFD_OK;
}

/* Offset in the (uncompressed) file of the next byte of the window. */
static uint64_t offset_of(const tfd_reader *r) {
  return r->stream.offset - (r->window_n - r->window_at);
}

/* Take up to n bytes to the end of `to`; *n_p says how many there were. Memory
** follows what is there, not n. */
static int take(tfd_reader *r, tfd__bytes *to, size_t n, size_t *n_p) {
  size_t done = 0;
  bool any = true;

  while (done < n) {
    size_t piece;

    TFD_TRY(fill(r, &any));
    if (!any) break;
    piece = r->window_n - r->window_at;
    if (piece > n - done) piece = n - done;
    TFD_TRY(tfd__bytes_add(to, r->window + r->window_at, piece));
    r->window_at += piece;
    done += piece;
  }
  *n_p = done;
  return TFD_OK;
}

/* --- cutting records --------------------------------------------------------
 */

static int damaged(const tfd_reader *r, uint64_t offset, const char *what) {
  return tfd__fail(TFD_DATA_LOSS, "%s: record %lld at offset %llu: %s", r->path,
                   (long long)r->record, (unsigned long long)offset, what);
}

/* A record that goes on behind the end of the file: `argument` of the failure
** is "end". */
static int cut_short(const tfd_reader *r, uint64_t offset, const char *what) {
  (void)damaged(r, offset, what);
  return tfd__blame(NULL, "end", -1);
}

/* A record that takes more memory than its compressed file may. */
static int check_unpacked(const tfd_reader *r, uint64_t offset,
                          uint64_t bytes) {
  if (!r->stream.compressed || bytes <= tfd__input_most(&r->stream)) {
    return TFD_OK;
  }
  (void)tfd__input_too_much(&r->stream, bytes);
  return tfd__wrap("record %lld at offset %llu", (long long)r->record,
                   (unsigned long long)offset);
}

static uint32_t little_32(const unsigned char *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
         (uint32_t)p[3] << 24;
}

/* length, its checksum, data, its checksum. *more_p is false at the end. */
static int cut_record(tfd_reader *r, tfd__bytes *to, bool *more_p) {
  enum { HEAD = 12, TAIL = 4 };
  uint64_t at = offset_of(r);
  size_t begin = to->n;
  size_t n = 0;
  uint64_t length;
  uint32_t stored;
  uint32_t found;

  TFD_TRY(take(r, to, HEAD, &n));
  *more_p = n > 0;
  if (n == 0) return TFD_OK;
  if (n < HEAD) return cut_short(r, at, "the file ends in its length");
  length = little_32(to->data + begin) |
           (uint64_t)little_32(to->data + begin + 4) << 32;
  stored = little_32(to->data + begin + 8);
  if (tfd__crc32c_mask(tfd__crc32c(0, to->data + begin, 8)) != stored) {
    return damaged(r, at, "the checksum of its length is wrong");
  }
  to->n = begin;
  if (length > SIZE_MAX / 4) return damaged(r, at, "it is too long");
  TFD_TRY(check_unpacked(r, at, length));
  TFD_TRY(take(r, to, (size_t)length, &n));
  if (n < length) return cut_short(r, at, "the file ends in its data");
  TFD_TRY(take(r, to, TAIL, &n));
  if (n < TAIL) return cut_short(r, at, "the file ends in its checksum");
  stored = little_32(to->data + begin + length);
  found = tfd__crc32c_mask(tfd__crc32c(0, to->data + begin, (size_t)length));
  if (found != stored)
    return damaged(r, at, "the checksum of its data is wrong");
  to->n = begin + (size_t)length;
  return TFD_OK;
}

/* One more stretch of the window up to a line's end (outside of quotes when
** `rows`); *ended_p when the line is complete. */
static int cut_stretch(tfd_reader *r, tfd__bytes *to, bool rows, bool *quoted,
                       bool *ended_p) {
  const unsigned char *p = r->window + r->window_at;
  size_t n = r->window_n - r->window_at;
  const unsigned char *end = *quoted ? NULL : memchr(p, '\n', n);
  size_t i = end == NULL ? n : (size_t)(end - p);

  /* Only the line is searched for quotes: a window has many. */
  if (rows && (*quoted || memchr(p, '"', i) != NULL)) {
    for (i = 0; i < n && (p[i] != '\n' || *quoted); i++) {
      if (p[i] == '"') *quoted = !*quoted;
    }
  }
  *ended_p = i < n;
  r->window_at += i + (*ended_p ? 1 : 0);
  return tfd__bytes_add(to, p, i);
}

static int cut_line(tfd_reader *r, tfd__bytes *to, bool *more_p) {
  uint64_t at = offset_of(r);
  size_t begin = to->n;
  bool quoted = false;
  bool ended = false;
  bool any = false;

  TFD_TRY(fill(r, &any));
  *more_p = any;
  while (any && !ended) {
    TFD_TRY(cut_stretch(r, to, r->kind == TFD_READER_ROWS, &quoted, &ended));
    if (to->n - begin > LINE_LIMIT) return damaged(r, at, "a line over 1 GiB");
    TFD_TRY(check_unpacked(r, at, to->n - begin));
    if (!ended) TFD_TRY(fill(r, &any));
  }
  if (quoted) return damaged(r, at, "the file ends inside quotes");
  if (to->n > begin && to->data[to->n - 1] == '\r') to->n--;
  return TFD_OK;
}

/* The window must hold a record and the footer before the record is one. */
static int cut_fixed(tfd_reader *r, tfd__bytes *to, bool *more_p) {
  uint64_t at = r->stream.offset - (r->window_n - r->window_at);
  size_t need = r->record_bytes + r->footer_bytes;
  size_t have = r->window_n - r->window_at;
  size_t n = 0;

  if (have < need) {
    memmove(r->window, r->window + r->window_at, have);
    r->window_at = 0;
    r->window_n = have;
    TFD_TRY(tfd__input_read(&r->stream, r->window + have,
                            need + TFD_INPUT_BYTES - have, &n));
    r->window_n += n;
  }
  have = r->window_n - r->window_at;
  if (have >= need) {
    TFD_TRY(tfd__bytes_add(to, r->window + r->window_at, r->record_bytes));
    r->window_at += r->record_bytes;
    *more_p = true;
    return TFD_OK;
  }
  *more_p = false;
  if (have == r->footer_bytes) return TFD_OK;
  return tfd__fail(TFD_DATA_LOSS,
                   "%s: record %lld at offset %llu: %zu bytes are left, not a "
                   "record of %zu and a footer of %zu",
                   r->path, (long long)r->record, (unsigned long long)at, have,
                   r->record_bytes, r->footer_bytes);
}

static int cut(tfd_reader *r, tfd__bytes *to, bool *more_p) {
  switch (r->kind) {
  case TFD_READER_RECORDS:
    return cut_record(r, to, more_p);
  case TFD_READER_FIXED:
    return cut_fixed(r, to, more_p);
  default:
    return cut_line(r, to, more_p);
  }
}

/* --- the thread
 * --------------------------------------------------------------- */

static void block_free(reader_block *b) {
  if (b == NULL) return;
  tfd__free(b->data.data);
  tfd__free(b->ends.data);
  tfd__free(b);
}

/* Fill a block; on failure it holds the records before. */
static int make_block(tfd_reader *r, reader_block *b, bool *more_p) {
  *more_p = true;
  while (b->data.n < BLOCK_BYTES && b->ends.n < BLOCK_BYTES) {
    size_t before = b->data.n;
    int rc = cut(r, &b->data, more_p);

    if (rc != TFD_OK || !*more_p) {
      b->data.n = before;
      return rc;
    }
    TFD_TRY(tfd__bytes_add(&b->ends, &b->data.n, sizeof b->data.n));
    r->record++;
  }
  return TFD_OK;
}

/* Hand a block over once there is room; false when the reader closes. */
static bool put(tfd_reader *r, reader_block *b) {
  bool open;

  tfd__lock(&r->mutex);
  while (r->waiting >= QUEUE_BLOCKS && !atomic_load(&r->stop)) {
    tfd__cond_wait(&r->changed, &r->mutex, tfd__deadline_in(WAIT_SECONDS));
  }
  open = !atomic_load(&r->stop);
  if (open) {
    if (r->last == NULL) {
      r->first = b;
    } else {
      r->last->next = b;
    }
    r->last = b;
    r->waiting++;
    tfd__cond_broadcast(&r->changed);
  }
  tfd__unlock(&r->mutex);
  return open;
}

static void run(void *arg) {
  tfd_reader *r = arg;
  bool more = true;
  int rc = TFD_OK;

  while (more && rc == TFD_OK && !atomic_load(&r->stop)) {
    reader_block *b = tfd__calloc(1, sizeof *b);

    if (b == NULL) {
      rc = tfd__no_memory(sizeof *b, "records");
      break;
    }
    rc = make_block(r, b, &more);
    if (b->ends.n == 0 || !put(r, b)) block_free(b);
  }
  tfd__lock(&r->mutex);
  if (rc != TFD_OK) tfd__error_save(&r->error);
  r->done = true;
  tfd__cond_broadcast(&r->changed);
  tfd__unlock(&r->mutex);
}

/* --- the caller
 * ----------------------------------------------------------------- */

static void reader_destroy(void *self) {
  tfd_reader *r = self;

  if (r->started) {
    tfd__lock(&r->mutex);
    atomic_store(&r->stop, true);
    tfd__cond_broadcast(&r->changed);
    tfd__unlock(&r->mutex);
    tfd__thread_join(r->thread);
  }
  while (r->first != NULL) {
    reader_block *next = r->first->next;

    block_free(r->first);
    r->first = next;
  }
  block_free(r->current);
  tfd__input_close(&r->stream);
  tfd__error_free(&r->error);
  tfd__cond_destroy(&r->changed);
  tfd__mutex_destroy(&r->mutex);
  tfd__free(r->window);
  tfd__free(r->path);
  tfd__free(r);
}

static const tfd__type reader_type = {
    .name = "Reader",
    .kind = TFD_HANDLE_READER,
    .destroy = reader_destroy,
};

/* sizes: record, header, footer, for fixed records only. */
static int set_sizes(tfd_reader *r, const int64_t *sizes, int sizes_n,
                     int64_t *header_p) {
  int i;

  *header_p = 0;
  if (r->kind != TFD_READER_FIXED) return TFD_OK;
  for (i = 0; i < sizes_n; i++) {
    if (sizes[i] < (i == 0 ? 1 : 0) || sizes[i] > (int64_t)LINE_LIMIT) {
      return tfd__fail(TFD_VALUE_ERROR,
                       "FixedLengthRecordDataset: sizes must be in %d..%lld, "
                       "got %lld",
                       i == 0, (long long)LINE_LIMIT, (long long)sizes[i]);
    }
  }
  if (sizes_n != 3) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "fixed records need three sizes: record, "
                     "header, footer; got %d",
                     sizes_n);
  }
  r->record_bytes = (size_t)sizes[0];
  *header_p = sizes[1];
  r->footer_bytes = (size_t)sizes[2];
  return TFD_OK;
}

static int skip_header(tfd_reader *r, int64_t bytes) {
  while (bytes > 0) {
    size_t piece =
        bytes < (int64_t)TFD_INPUT_BYTES ? (size_t)bytes : TFD_INPUT_BYTES;
    size_t n = 0;

    TFD_TRY(tfd__input_read(&r->stream, r->window, piece, &n));
    if (n < piece) {
      return tfd__fail(TFD_DATA_LOSS, "%s: ends at offset %llu, in its header",
                       r->path, (unsigned long long)r->stream.offset);
    }
    bytes -= (int64_t)n;
  }
  return TFD_OK;
}

static int begin(tfd_reader *r, const char *path, tfd_compression compression,
                 int64_t header) {
  size_t room = r->record_bytes + r->footer_bytes + TFD_INPUT_BYTES;

  r->path = tfd__strdup(path);
  r->window = tfd__alloc(room);
  if (r->path == NULL || r->window == NULL) {
    return tfd__no_memory(room, "reader");
  }
  TFD_TRY(tfd__input_open(&r->stream, r->path, compression, &r->stop));
  return skip_header(r, header);
}

int tfd_reader_open(tfd_reader_kind kind, const char *path,
                    tfd_compression compression, const int64_t *sizes,
                    int sizes_n, tfd_reader **reader_p) {
  TFD_GIVEN_ENUM(kind, TFD_READER_RECORDS, TFD_READER_FIXED);
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_ENUM(compression, TFD_COMPRESSION_NONE, TFD_COMPRESSION_ZLIB);
  TFD_GIVEN_LIST(sizes, sizes_n);
  TFD_GIVEN_POINTER(reader_p);

  tfd_reader *r = tfd__calloc(1, sizeof *r);
  int64_t header = 0;
  int rc;

  if (r == NULL) return tfd__no_memory(sizeof *r, "reader");
  tfd__object_init(&r->object, &reader_type);
  r->kind = kind;
  r->stream.file = -1;
  rc = tfd__mutex_init(&r->mutex, MUTEX_RANK);
  if (rc == TFD_OK) rc = tfd__cond_init(&r->changed);
  if (rc == TFD_OK) rc = set_sizes(r, sizes, sizes_n, &header);
  if (rc == TFD_OK) rc = begin(r, path, compression, header);
  if (rc == TFD_OK) {
    rc = tfd__thread_start(&r->thread, "tfd-reader", run, r);
    r->started = rc == TFD_OK;
  }
  if (rc != TFD_OK) {
    tfd__release(r);
    return rc;
  }
  *reader_p = r;
  return TFD_OK;
}

/* The next block into current; none at the end. */
static int next_block(tfd_reader *r) {
  int rc = TFD_OK;

  block_free(r->current);
  r->current = NULL;
  r->position = 0;
  tfd__lock(&r->mutex);
  while (r->first == NULL && !r->done && rc == TFD_OK) {
    tfd__cond_wait(&r->changed, &r->mutex, tfd__deadline_in(WAIT_SECONDS));
    if (tfd__interrupt_get()) {
      rc = tfd__fail(TFD_CANCELLED, "%s: interrupted", r->path);
    }
  }
  if (rc == TFD_OK && r->first != NULL) {
    r->current = r->first;
    r->first = r->current->next;
    if (r->first == NULL) r->last = NULL;
    r->waiting--;
    tfd__cond_broadcast(&r->changed);
  } else if (rc == TFD_OK && r->error.code != TFD_OK) {
    rc = tfd__error_raise(&r->error);
  }
  tfd__unlock(&r->mutex);
  return rc;
}

static size_t block_count(const reader_block *b) {
  return b == NULL ? 0 : b->ends.n / sizeof(size_t);
}

static size_t block_end(const reader_block *b, size_t i) {
  size_t end;

  memcpy(&end, b->ends.data + i * sizeof end, sizeof end);
  return end;
}

int tfd_reader_next(tfd_reader *reader, const void **record_p,
                    size_t *record_bytes_p) {
  TFD_GIVEN(reader, READER);
  TFD_GIVEN_POINTER(record_p);
  TFD_GIVEN_POINTER(record_bytes_p);

  size_t from;
  size_t to;

  if (reader->position == block_count(reader->current)) {
    TFD_TRY(next_block(reader));
  }
  if (reader->current == NULL) {
    *record_p = NULL;
    *record_bytes_p = 0;
    return TFD_OK;
  }
  from = reader->position == 0
             ? 0
             : block_end(reader->current, reader->position - 1);
  to = block_end(reader->current, reader->position);
  reader->position++;
  /* An empty block of records has no memory to point to. */
  *record_p = reader->current->data.data == NULL
                  ? (const void *)""
                  : (const void *)(reader->current->data.data + from);
  *record_bytes_p = to - from;
  return TFD_OK;
}

int tfd_reader_skip(tfd_reader *reader, int64_t n, int64_t *skipped_p) {
  TFD_GIVEN(reader, READER);
  TFD_GIVEN_POINTER(skipped_p);

  int64_t done = 0;

  while (done < n) {
    size_t left = block_count(reader->current) - reader->position;

    if (left == 0) {
      TFD_TRY(next_block(reader));
      left = block_count(reader->current);
      if (left == 0) break;
    }
    if ((int64_t)left > n - done) left = (size_t)(n - done);
    reader->position += left;
    done += (int64_t)left;
  }
  *skipped_p = done;
  return TFD_OK;
}
