/* Files of records. Half of the inputs are any bytes as a file of any kind:
** records, then an end or DataLoss, and the same after it was skipped to. The
** others are records that a writer writes and a reader gives back; with one
** byte changed it gives no other ones.
**
** The reader's thread makes what is covered differ from run to run, and with it
** which inputs a seed leads to. */
#include "file.h"

#define RECORDS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* How many records come before the end or the damage. */
static int64_t read_all(int kind, int compression, const int64_t *sizes,
                        const char *path, int *rc_p) {
  tfd_reader *r = NULL;
  const void *record = NULL;
  size_t bytes = 0;
  int64_t n = 0;

  *rc_p = tfd_reader_open((tfd_reader_kind)kind, path,
                          (tfd_compression)compression, sizes, 3, &r);
  if (*rc_p != TFD_OK) return 0;
  for (;;) {
    *rc_p = tfd_reader_next(r, &record, &bytes);
    if (*rc_p != TFD_OK || record == NULL) break;
    if (kind == TFD_READER_FIXED) MUST(bytes == (size_t)sizes[0]);
    n++;
  }
  /* The end stays the end, and the damage stays. */
  MUST(tfd_reader_next(r, &record, &bytes) == *rc_p);
  tfd_release((tfd_object *)r);
  return n;
}

static void any_bytes(input in) {
  int64_t sizes[3] = {1 + input_below(&in, 40), input_below(&in, 40),
                      input_below(&in, 40)};
  int compression = input_below(&in, 3);
  int kind = input_below(&in, 4);
  memory_file f = file_of(in.p, in.left);
  int rc = TFD_OK;
  int64_t n = read_all(kind, compression, sizes, f.path, &rc);
  tfd_reader *r = NULL;
  int64_t skipped = 0;

  if (rc != TFD_OK) check_failure(rc, f.path);
  rc = tfd_reader_open((tfd_reader_kind)kind, f.path,
                       (tfd_compression)compression, sizes, 3, &r);
  if (rc == TFD_OK) {
    MUST(tfd_reader_skip(r, n, &skipped) == TFD_OK && skipped == n);
    tfd_release((tfd_object *)r);
  }
  close(f.file);
}

typedef struct parts {
  const uint8_t *p[RECORDS];
  size_t n[RECORDS];
  int count;
} parts;

/* The records are as they were written, as far as there are any. */
static int compare(const parts *all, int compression, const char *path,
                   int *rc_p) {
  tfd_reader *r = NULL;
  const void *record = NULL;
  size_t bytes = 0;
  int i = 0;

  *rc_p = tfd_reader_open(TFD_READER_RECORDS, path,
                          (tfd_compression)compression, NULL, 0, &r);
  if (*rc_p != TFD_OK) return 0;
  for (;; i++) {
    *rc_p = tfd_reader_next(r, &record, &bytes);
    if (*rc_p != TFD_OK || record == NULL) break;
    MUST(i < all->count && bytes == all->n[i]);
    MUST(bytes == 0 || memcmp(record, all->p[i], bytes) == 0);
  }
  tfd_release((tfd_object *)r);
  return i;
}

static void round_trip(input in) {
  int compression = input_below(&in, 3);
  int change = input_integer(&in) & 0xffff;
  memory_file f = file_of("", 0);
  tfd_writer *w = NULL;
  parts all = {.count = 0};
  uint8_t byte = 0;
  off_t bytes;
  int rc = TFD_OK;

  MUST(tfd_writer_open(f.path, (tfd_compression)compression, &w) == TFD_OK);
  while (in.left > 0 && all.count < RECORDS) {
    size_t n = (size_t)input_below(&in, 200);

    if (n > in.left) n = in.left;
    all.p[all.count] = in.p;
    all.n[all.count++] = n;
    MUST(tfd_writer_record(w, in.p, n) == TFD_OK);
    in.p += n;
    in.left -= n;
  }
  MUST(tfd_writer_close(w) == TFD_OK);
  tfd_release((tfd_object *)w);
  MUST(compare(&all, compression, f.path, &rc) == all.count && rc == TFD_OK);
  bytes = lseek(f.file, 0, SEEK_END);
  if (bytes > 0) {
    off_t at = change % bytes;

    MUST(pread(f.file, &byte, 1, at) == 1);
    byte ^= (uint8_t)(1 << change % 8);
    MUST(pwrite(f.file, &byte, 1, at) == 1);
    compare(&all, compression, f.path, &rc);
    if (compression == TFD_COMPRESSION_NONE) MUST(rc == TFD_DATA_LOSS);
    if (rc != TFD_OK) check_failure(rc, f.path);
  }
  close(f.file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input in = {data, size};

  if (input_below(&in, 2) == 0) {
    any_bytes(in);
  } else {
    round_trip(in);
  }
  MUST(tfd_live_handles(TFD_HANDLE_READER) == 0);
  MUST(tfd_live_handles(TFD_HANDLE_WRITER) == 0);
  return 0;
}
