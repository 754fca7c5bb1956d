/* Reading safetensors files. Nothing in the header is believed before it is
** checked, and no tensor is handed out before its checksum is. */
#define _GNU_SOURCE
#include "io/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

#define ENTRY_LIMIT 1000000
/* Small enough that what was read is in the core's cache for its checksum. */
#define PIECE_BYTES ((size_t)256 << 10)

typedef struct archive_entry {
  const char *name; /* borrowed from the header */
  const tfd__st_dtype *dtype;
  int64_t dims[TFD_MAX_RANK];
  size_t rank;    /* over TFD_MAX_RANK: cannot be read here */
  uint64_t begin; /* from the first byte after the header */
  uint64_t end;
  bool has_crc;
  uint32_t crc;
} archive_entry;

typedef struct archive_note {
  const char *key; /* borrowed from the header */
  const char *text;
} archive_note;

struct tfd_archive {
  tfd_object object;
  char *path;
  int file;
  char *texts; /* all names and texts of the header, without escapes */
  size_t texts_n;
  archive_note *notes; /* the metadata, in order of keys */
  size_t notes_n;
  archive_entry *entries; /* in order of names */
  size_t entries_n;
  uint64_t data_at; /* offset of the elements in the file */
  uint64_t data_bytes;
  bool ours;
};

static void archive_destroy(void *self) {
  tfd_archive *a = self;

  if (a->file >= 0) close(a->file);
  tfd__free(a->entries);
  tfd__free(a->notes);
  tfd__free(a->texts);
  tfd__free(a->path);
  tfd__free(a);
}

static const tfd__type archive_type = {
    .name = "Archive",
    .kind = TFD_HANDLE_ARCHIVE,
    .destroy = archive_destroy,
};

#define ST_ROW(dtype, name, size) {dtype, name, size},
static const tfd__st_dtype dtypes[] = {TFD_ST_DTYPES(ST_ROW)};
#define DTYPES_N (sizeof dtypes / sizeof dtypes[0])

const tfd__st_dtype *tfd__st_dtype_named(const char *name) {
  size_t i;

  for (i = 0; i < DTYPES_N; i++) {
    if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
  }
  return NULL;
}

const tfd__st_dtype *tfd__st_dtype_of(int dtype) {
  size_t i;

  for (i = 0; i < DTYPES_N; i++) {
    if (dtypes[i].dtype == dtype && dtype != 0) return &dtypes[i];
  }
  return NULL;
}

static int read_at(const tfd_archive *a, void *data, size_t bytes,
                   uint64_t offset) {
  char *p = data;

  while (bytes > 0) {
    size_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
    ssize_t n = pread(a->file, p, piece, (off_t)offset);

    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return tfd__fail(tfd__read_status(errno),
                       "%s: cannot read at offset %llu: %s", a->path,
                       (unsigned long long)offset, strerror(errno));
    }
    if (n == 0) {
      return tfd__fail(TFD_DATA_LOSS,
                       "%s: ends at offset %llu, %zu bytes early", a->path,
                       (unsigned long long)offset, bytes);
    }
    p += n;
    offset += (uint64_t)n;
    bytes -= (size_t)n;
  }
  return TFD_OK;
}

/* --- the header -------------------------------------------------------------
 */

static bool parse_crc(const char *text, uint32_t *crc_p) {
  uint32_t crc = 0;
  int i;

  for (i = 0; i < TFD_ST_CRC_DIGITS; i++) {
    char c = text[i];
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                       : -1;

    if (digit < 0) return false;
    crc = crc << 4 | (uint32_t)digit;
  }
  if (text[i] != '\0' && text[i] != '"') return false;
  *crc_p = crc;
  return true;
}

static int by_key(const void *a, const void *b) {
  return strcmp(((const archive_note *)a)->key, ((const archive_note *)b)->key);
}

static const char *metadata_text(const tfd_archive *a, const char *key) {
  archive_note want = {.key = key};
  const archive_note *note = NULL;

  if (a->notes_n > 0) {
    note = bsearch(&want, a->notes, a->notes_n, sizeof want, by_key);
  }
  return note == NULL ? NULL : note->text;
}

/* The header's own checksum, which files of ours begin with. */
static int check_header_crc(tfd_archive *a, char *text, size_t bytes) {
  size_t at = strlen(TFD_ST_PREFIX);
  uint32_t stored = 0;
  uint32_t found;

  if (bytes < at + TFD_ST_CRC_DIGITS + 1 ||
      memcmp(text, TFD_ST_PREFIX, at) != 0 || !parse_crc(text + at, &stored)) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: the header's checksum at offset %zu is damaged",
                     a->path, TFD_ST_LENGTH_BYTES + at);
  }
  memset(text + at, '0', TFD_ST_CRC_DIGITS);
  found = tfd__crc32c(0, text, bytes);
  if (found == stored) return TFD_OK;
  return tfd__fail(TFD_DATA_LOSS,
                   "%s: the header (offsets 8 to %zu) is damaged: checksum "
                   "%08x, stored %08x",
                   a->path, TFD_ST_LENGTH_BYTES + bytes, found, stored);
}

static int bad_entry(const tfd_archive *a, const char *name, const char *why) {
  return tfd__fail(TFD_DATA_LOSS, "%s: header entry \"%s\": %s", a->path, name,
                   why);
}

/* Sizes and their product. */
static int parse_shape(const tfd_archive *a, archive_entry *e, json_t *shape,
                       uint64_t *bytes_p) {
  uint64_t bytes = e->dtype->size;
  bool empty = false;
  size_t i;

  if (!json_is_array(shape)) return bad_entry(a, e->name, "no shape");
  e->rank = json_array_size(shape);
  for (i = 0; i < e->rank; i++) {
    json_t *x = json_array_get(shape, i);
    json_int_t dim = json_integer_value(x);

    if (!json_is_integer(x) || dim < 0) {
      return bad_entry(a, e->name, "a size of the shape is no whole number");
    }
    if (i < TFD_MAX_RANK) e->dims[i] = dim;
    empty = empty || dim == 0;
    if (dim > 0 && __builtin_mul_overflow(bytes, (uint64_t)dim, &bytes)) {
      return bad_entry(a, e->name, "the shape has too many elements");
    }
  }
  *bytes_p = empty ? 0 : bytes;
  return TFD_OK;
}

static int parse_crc_of(const tfd_archive *a, archive_entry *e) {
  char key[sizeof TFD_ST_CRC_KEY + TFD_ST_NAME_LIMIT];
  const char *text;

  snprintf(key, sizeof key, "%s%s", TFD_ST_CRC_KEY, e->name);
  text = metadata_text(a, key);
  if (text == NULL && !a->ours) return TFD_OK;
  if (text == NULL || strlen(text) != TFD_ST_CRC_DIGITS ||
      !parse_crc(text, &e->crc)) {
    return bad_entry(a, e->name, "its checksum is missing or damaged");
  }
  e->has_crc = true;
  return TFD_OK;
}

static int parse_entry(const tfd_archive *a, const char *name, json_t *value,
                       archive_entry *e) {
  json_t *offsets = json_object_get(value, "data_offsets");
  json_t *begin = json_array_get(offsets, 0);
  json_t *end = json_array_get(offsets, 1);
  const char *dtype = json_string_value(json_object_get(value, "dtype"));
  uint64_t bytes = 0;

  memset(e, 0, sizeof *e);
  e->name = name;
  if (strlen(name) > TFD_ST_NAME_LIMIT) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: a tensor's name has %zu bytes, more "
                     "than %d",
                     a->path, strlen(name), TFD_ST_NAME_LIMIT);
  }
  if (dtype == NULL) return bad_entry(a, name, "no dtype");
  e->dtype = tfd__st_dtype_named(dtype);
  if (e->dtype == NULL) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: header entry \"%s\": unknown dtype "
                     "\"%.32s\"",
                     a->path, name, dtype);
  }
  TFD_TRY(parse_shape(a, e, json_object_get(value, "shape"), &bytes));
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) ||
      !json_is_integer(end) || json_integer_value(begin) < 0 ||
      json_integer_value(end) < json_integer_value(begin)) {
    return bad_entry(a, name, "no data_offsets [begin, end]");
  }
  e->begin = (uint64_t)json_integer_value(begin);
  e->end = (uint64_t)json_integer_value(end);
  if (e->end > a->data_bytes || e->end - e->begin != bytes) {
    return tfd__fail(
        TFD_DATA_LOSS,
        "%s: tensor \"%s\" at offset %llu takes %llu bytes of %llu "
        "after the header; its shape and dtype %s need %llu",
        a->path, name, (unsigned long long)(a->data_at + e->begin),
        (unsigned long long)(e->end - e->begin),
        (unsigned long long)a->data_bytes, dtype, (unsigned long long)bytes);
  }
  return TFD_OK;
}

static int by_place(const void *a, const void *b) {
  const archive_entry *x = a;
  const archive_entry *y = b;

  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const archive_entry *)a)->name,
                ((const archive_entry *)b)->name);
}

/* Tensors must lie one after the other and fill the file. */
static int check_tiling(tfd_archive *a) {
  uint64_t at = 0;
  const char *before = "the header";
  size_t i;

  qsort(a->entries, a->entries_n, sizeof *a->entries, by_place);
  for (i = 0; i < a->entries_n; i++) {
    const archive_entry *e = &a->entries[i];

    if (e->begin != at) {
      return tfd__fail(TFD_DATA_LOSS,
                       "%s: tensor \"%s\" begins at offset %llu, but %s ends "
                       "at %llu (%s)",
                       a->path, e->name,
                       (unsigned long long)(a->data_at + e->begin), before,
                       (unsigned long long)(a->data_at + at),
                       e->begin < at ? "they overlap" : "a gap");
    }
    at = e->end;
    before = e->name;
  }
  if (at != a->data_bytes) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: %llu bytes after the last tensor, which ends at "
                     "offset %llu",
                     a->path, (unsigned long long)(a->data_bytes - at),
                     (unsigned long long)(a->data_at + at));
  }
  qsort(a->entries, a->entries_n, sizeof *a->entries, by_name);
  return TFD_OK;
}

/* --- the header's text -------------------------------------------------------
** It is cut into names and values here and each is parsed by itself: a tree of
** the whole would take some thirty times the text, which anybody may have
** written. */

/* Bytes of one tensor's entry: dtype, shape, offsets. */
#define VALUE_LIMIT ((size_t)64 << 10)

typedef struct scan {
  tfd_archive *archive;
  const char *text;
  size_t n;
  size_t at;
  bool counting; /* first pass: only count */
  bool has_metadata;
} scan;

static int not_json(const scan *s, size_t at, const char *why) {
  return tfd__fail(TFD_DATA_LOSS,
                   "%s: the header is not valid JSON at offset %zu: %s",
                   s->archive->path, at + TFD_ST_LENGTH_BYTES, why);
}

static char next_char(scan *s) {
  while (s->at < s->n && strchr(" \t\r\n", s->text[s->at]) != NULL &&
         s->text[s->at] != '\0') {
    s->at++;
  }
  return s->at < s->n ? s->text[s->at] : '\0';
}

static int expect(scan *s, char wanted, const char *why) {
  if (next_char(s) != wanted) return not_json(s, s->at, why);
  s->at++;
  return TFD_OK;
}

/* Go behind a string; its quotes are the first and the last byte passed. */
static int pass_string(scan *s) {
  TFD_TRY(expect(s, '"', "a name or a text is expected"));
  for (; s->at < s->n && s->text[s->at] != '"'; s->at++) {
    if (s->text[s->at] == '\\') s->at++;
  }
  if (s->at >= s->n) return not_json(s, s->n, "it ends inside quotes");
  s->at++;
  return TFD_OK;
}

/* Go behind an object, however deep. */
static int pass_object(scan *s) {
  size_t begin;
  size_t depth = 0;

  if (next_char(s) != '{') return not_json(s, s->at, "an object is expected");
  begin = s->at;
  do {
    char c = next_char(s);

    if (s->at >= s->n) return not_json(s, s->n, "it ends inside an object");
    depth += c == '{' || c == '[' ? 1 : 0;
    depth -= c == '}' || c == ']' ? 1 : 0;
    if (c == '"') {
      TFD_TRY(pass_string(s));
    } else {
      s->at++;
    }
    if (s->at - begin > VALUE_LIMIT) {
      return not_json(s, begin, "an entry is longer than 64 KiB");
    }
  } while (depth > 0);
  return TFD_OK;
}

/* The value in text[begin, at). */
static int parse_value(const scan *s, size_t begin, json_t **value_p) {
  json_error_t error;
  int rc = tfd__json_read(s->text + begin, s->at - begin, value_p, &error);

  if (rc != TFD_INVALID_ARGUMENT) return rc;
  return not_json(s, begin + (size_t)error.position, error.text);
}

static bool is_simple(const char *text, size_t n) {
  size_t i;

  for (i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text[i];

    if (c < ' ' || c == '\\' || c > '~') return false;
  }
  return true;
}

/* Keep the string in text[begin, at): never longer than it is written. */
static int keep_string(const scan *s, size_t begin, const char **text_p) {
  tfd_archive *a = s->archive;
  const char *from = s->text + begin + 1;
  size_t n = s->at - begin - 2;
  json_t *value = NULL;

  if (!is_simple(from, n)) {
    TFD_TRY(parse_value(s, begin, &value));
    from = json_string_value(value);
    n = json_string_length(value);
  }
  memcpy(a->texts + a->texts_n, from, n);
  a->texts[a->texts_n + n] = '\0';
  *text_p = a->texts + a->texts_n;
  a->texts_n += n + 1;
  json_decref(value);
  return TFD_OK;
}

/* A note of the metadata, behind its key's begin. */
static int scan_note(scan *s) {
  tfd_archive *a = s->archive;
  archive_note *note = s->counting ? NULL : &a->notes[a->notes_n];
  size_t begin = (next_char(s), s->at);

  a->notes_n++;
  TFD_TRY(pass_string(s));
  if (note != NULL) TFD_TRY(keep_string(s, begin, &note->key));
  TFD_TRY(expect(s, ':', "':' is expected"));
  if (next_char(s) != '"') {
    return bad_entry(a, "__metadata__", "a value is not a text");
  }
  begin = s->at;
  TFD_TRY(pass_string(s));
  return note == NULL ? TFD_OK : keep_string(s, begin, &note->text);
}

/* { member, member ... } */
static int scan_object(scan *s, int (*member)(scan *s)) {
  TFD_TRY(expect(s, '{', "'{' is expected"));
  if (next_char(s) != '}') {
    TFD_TRY(member(s));
    while (next_char(s) == ',') {
      s->at++;
      TFD_TRY(member(s));
    }
  }
  return expect(s, '}', "',' or '}' is expected");
}

static int scan_metadata(scan *s) {
  if (s->has_metadata) {
    return bad_entry(s->archive, "__metadata__", "there are two");
  }
  s->has_metadata = true;
  if (next_char(s) != '{') {
    return bad_entry(s->archive, "__metadata__", "not an object");
  }
  return scan_object(s, scan_note);
}

static int scan_entry(scan *s) {
  static const char metadata[] = "\"__metadata__\"";
  tfd_archive *a = s->archive;
  size_t begin = (next_char(s), s->at);
  const char *name = NULL;
  json_t *value = NULL;
  bool special;
  int rc;

  TFD_TRY(pass_string(s));
  special = s->at - begin == sizeof metadata - 1 &&
            memcmp(s->text + begin, metadata, sizeof metadata - 1) == 0;
  if (!special && !s->counting) TFD_TRY(keep_string(s, begin, &name));
  TFD_TRY(expect(s, ':', "':' is expected"));
  if (special) return scan_metadata(s);
  begin = (next_char(s), s->at);
  TFD_TRY(pass_object(s));
  if (s->counting) {
    a->entries_n++;
    return TFD_OK;
  }
  TFD_TRY(parse_value(s, begin, &value));
  rc = parse_entry(a, name, value, &a->entries[a->entries_n]);
  if (rc == TFD_OK) a->entries_n++;
  json_decref(value);
  return rc;
}

static int scan_header(tfd_archive *a, const char *text, size_t bytes,
                       bool counting) {
  scan s = {.archive = a, .text = text, .n = bytes, .counting = counting};

  a->entries_n = 0;
  a->notes_n = 0;
  TFD_TRY(scan_object(&s, scan_entry));
  if (next_char(&s) != '\0' || s.at < bytes) {
    return not_json(&s, s.at, "more follows");
  }
  return TFD_OK;
}

static int check_twins(const tfd_archive *a) {
  size_t i;

  for (i = 1; i < a->entries_n; i++) {
    if (strcmp(a->entries[i - 1].name, a->entries[i].name) == 0) {
      return bad_entry(a, a->entries[i].name, "there are two");
    }
  }
  for (i = 1; i < a->notes_n; i++) {
    if (strcmp(a->notes[i - 1].key, a->notes[i].key) == 0) {
      return bad_entry(a, "__metadata__", "a key is there twice");
    }
  }
  return TFD_OK;
}

/* Lists as long as the header says, once it is known how long that is. */
static int make_lists(tfd_archive *a, size_t bytes) {
  size_t entries_n = a->entries_n;
  size_t notes_n = a->notes_n;

  if (entries_n > ENTRY_LIMIT) {
    return tfd__fail(TFD_DATA_LOSS, "%s: %zu tensors, more than %d", a->path,
                     entries_n, ENTRY_LIMIT);
  }
  a->entries = tfd__calloc(entries_n + 1, sizeof *a->entries);
  if (a->entries == NULL) return tfd__no_memory(entries_n, "list of tensors");
  a->notes = tfd__calloc(notes_n + 1, sizeof *a->notes);
  if (a->notes == NULL) return tfd__no_memory(notes_n, "metadata");
  a->texts = tfd__alloc(bytes);
  if (a->texts == NULL) return tfd__no_memory(bytes, "names of tensors");
  return TFD_OK;
}

static int check_crcs(tfd_archive *a) {
  const char *format = metadata_text(a, "format");
  size_t i;

  /* Either mark alone is enough, so that damage to one cannot hide damage. */
  a->ours = (format != NULL && strcmp(format, TFD_ST_FORMAT) == 0) ||
            metadata_text(a, "crc32c") != NULL;
  for (i = 0; i < a->entries_n; i++) {
    TFD_TRY(parse_crc_of(a, &a->entries[i]));
  }
  return TFD_OK;
}

static int parse_header(tfd_archive *a, char *text, size_t bytes) {
  bool checked = bytes >= strlen(TFD_ST_PREFIX) &&
                 memcmp(text, TFD_ST_PREFIX, strlen(TFD_ST_PREFIX)) == 0;

  if (bytes == 0 || text[0] != '{') {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: the header at offset 8 does not begin "
                     "with '{'",
                     a->path);
  }
  if (checked) TFD_TRY(check_header_crc(a, text, bytes));
  TFD_TRY(scan_header(a, text, bytes, true));
  TFD_TRY(make_lists(a, bytes));
  TFD_TRY(scan_header(a, text, bytes, false));
  qsort(a->notes, a->notes_n, sizeof *a->notes, by_key);
  TFD_TRY(check_crcs(a));
  if (a->ours && !checked) TFD_TRY(check_header_crc(a, text, bytes));
  TFD_TRY(check_tiling(a));
  return check_twins(a);
}

/* What Python's libraries save by default is another kind of file. */
static int hint_at_kind(const unsigned char *start) {
  const char *kind = memcmp(start, "\x89HDF\r\n\x1a\n", 8) == 0 ? "HDF5 (.h5)"
                     : memcmp(start, "PK\x03\x04", 4) == 0
                         ? "a zip archive (.keras, .npz, .pt)"
                         : NULL;

  if (kind == NULL) return TFD_DATA_LOSS;
  return tfd__hint("it is %s; tf.train.load_variable reads values that "
                   "Python's safetensors has written",
                   kind);
}

static int read_header(tfd_archive *a, uint64_t file_bytes) {
  unsigned char length[TFD_ST_LENGTH_BYTES];
  uint64_t n = 0;
  char *text;
  int rc;
  int i;

  if (file_bytes < TFD_ST_LENGTH_BYTES) {
    return tfd__fail(TFD_DATA_LOSS, "%s: %llu bytes are no safetensors file",
                     a->path, (unsigned long long)file_bytes);
  }
  TFD_TRY(read_at(a, length, sizeof length, 0));
  for (i = TFD_ST_LENGTH_BYTES - 1; i >= 0; i--) n = n << 8 | length[i];
  if (n > TFD_ST_HEADER_LIMIT || n > file_bytes - TFD_ST_LENGTH_BYTES) {
    tfd__fail(TFD_DATA_LOSS,
              "%s: no safetensors file: a header of %llu bytes at offset 8 in "
              "a file of %llu (at most %llu)",
              a->path, (unsigned long long)n, (unsigned long long)file_bytes,
              (unsigned long long)TFD_ST_HEADER_LIMIT);
    return hint_at_kind(length);
  }
  a->data_at = TFD_ST_LENGTH_BYTES + n;
  a->data_bytes = file_bytes - a->data_at;
  text = tfd__alloc((size_t)n + 1);
  if (text == NULL) return tfd__no_memory((size_t)n, "safetensors header");
  text[n] = '\0';
  rc = read_at(a, text, (size_t)n, TFD_ST_LENGTH_BYTES);
  if (rc == TFD_OK) rc = parse_header(a, text, (size_t)n);
  tfd__free(text);
  return rc;
}

static int open_file(tfd_archive *a) {
  struct stat s;

  /* O_NONBLOCK: a pipe is refused, not waited for. */
  a->file = open(a->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (a->file < 0 || fstat(a->file, &s) != 0) {
    return tfd__fail(tfd__errno_status(errno), "%s: %s", a->path,
                     strerror(errno));
  }
  if (!S_ISREG(s.st_mode)) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "%s: not a plain file", a->path);
  }
  return read_header(a, (uint64_t)s.st_size);
}

int tfd_archive_open(const char *path, tfd_archive **archive_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_POINTER(archive_p);

  tfd_archive *a = tfd__calloc(1, sizeof *a);
  int rc;

  if (a == NULL) return tfd__no_memory(sizeof *a, "archive");
  tfd__object_init(&a->object, &archive_type);
  a->file = -1;
  a->path = tfd__strdup(path);
  rc = a->path == NULL ? tfd__no_memory(strlen(path), "file name")
                       : open_file(a);
  if (rc != TFD_OK) {
    tfd__release(a);
    return rc;
  }
  *archive_p = a;
  return TFD_OK;
}

/* --- what is in it ----------------------------------------------------------
 */

int tfd_archive_count(const tfd_archive *archive) {
  TFD_GIVEN_OR(archive, ARCHIVE, 0);
  return (int)archive->entries_n;
}

static int entry_at(const tfd_archive *a, int index,
                    const archive_entry **e_p) {
  if (index < 0 || (size_t)index >= a->entries_n) {
    return tfd__fail(TFD_INDEX_ERROR, "%s: tensor %d of %zu", a->path, index,
                     a->entries_n);
  }
  *e_p = &a->entries[index];
  return TFD_OK;
}

int tfd_archive_find(const tfd_archive *archive, const char *name,
                     int *position_p) {
  TFD_GIVEN(archive, ARCHIVE);
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_POINTER(position_p);

  archive_entry want = {.name = name};
  const archive_entry *e = NULL;

  if (archive->entries_n > 0) {
    e = bsearch(&want, archive->entries, archive->entries_n, sizeof want,
                by_name);
  }
  *position_p = e == NULL ? -1 : (int)(e - archive->entries);
  return TFD_OK;
}

int tfd_archive_entry(const tfd_archive *archive, int index,
                      const char **name_p, const char **dtype_p,
                      int64_t *offset_p, int64_t *bytes_p) {
  TFD_GIVEN(archive, ARCHIVE);
  TFD_GIVEN_POINTER(name_p);
  TFD_GIVEN_POINTER(dtype_p);
  TFD_GIVEN_POINTER(offset_p);
  TFD_GIVEN_POINTER(bytes_p);

  const archive_entry *e = NULL;

  TFD_TRY(entry_at(archive, index, &e));
  *name_p = e->name;
  *dtype_p =
      e->dtype->dtype != 0 ? tfd__dtype_name(e->dtype->dtype) : e->dtype->name;
  *offset_p = (int64_t)(archive->data_at + e->begin);
  *bytes_p = (int64_t)(e->end - e->begin);
  return TFD_OK;
}

int tfd_archive_dim(const tfd_archive *archive, int index, int axis,
                    int64_t *size_p) {
  TFD_GIVEN(archive, ARCHIVE);
  TFD_GIVEN_POINTER(size_p);

  const archive_entry *e = NULL;

  TFD_TRY(entry_at(archive, index, &e));
  *size_p = axis >= 0 && (size_t)axis < e->rank && axis < TFD_MAX_RANK
                ? e->dims[axis]
                : -1;
  return TFD_OK;
}

const char *tfd_archive_metadata(const tfd_archive *archive, const char *key) {
  TFD_GIVEN_OR(archive, ARCHIVE, NULL);
  TFD_GIVEN_POINTER_OR(key, NULL);
  return metadata_text(archive, key);
}

/* --- elements ---------------------------------------------------------------
 */

static int check_crc(const tfd_archive *a, const archive_entry *e,
                     uint32_t found) {
  if (!e->has_crc || found == e->crc) return TFD_OK;
  return tfd__fail(TFD_DATA_LOSS,
                   "%s: tensor \"%s\" at offset %llu (%llu bytes) is damaged: "
                   "checksum %08x, stored %08x",
                   a->path, e->name,
                   (unsigned long long)(a->data_at + e->begin),
                   (unsigned long long)(e->end - e->begin), found, e->crc);
}

/* Any other byte would be undefined behaviour in kernels. */
static int check_bools(const tfd_archive *a, const archive_entry *e,
                       const unsigned char *p, size_t n) {
  size_t i;

  for (i = 0; i < n; i++) {
    if (p[i] > 1) {
      return tfd__fail(
          TFD_DATA_LOSS,
          "%s: tensor \"%s\": byte %u at offset %llu is no boolean", a->path,
          e->name, p[i], (unsigned long long)(a->data_at + e->begin + i));
    }
  }
  return TFD_OK;
}

typedef struct element_source {
  const tfd_archive *archive;
  const archive_entry *entry;
} element_source;

/* Read all bytes of the entry, checksum and check them. */
static int read_checked(void *arg, void *to, size_t bytes) {
  const element_source *from = arg;
  const tfd_archive *a = from->archive;
  const archive_entry *e = from->entry;
  unsigned char *data = to;
  size_t done = 0;
  uint32_t crc = 0;

  while (done < bytes) {
    size_t n = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;

    TFD_TRY(read_at(a, data + done, n, a->data_at + e->begin + done));
    crc = tfd__crc32c(crc, data + done, n);
    done += n;
  }
  TFD_TRY(check_crc(a, e, crc));
  return e->dtype->dtype == TFD_BOOL ? check_bools(a, e, data, bytes) : TFD_OK;
}

int tfd_archive_read(tfd_archive *archive, int index, tfd_tensor **tensor_p) {
  TFD_GIVEN(archive, ARCHIVE);
  TFD_GIVEN_POINTER(tensor_p);

  element_source from = {archive, NULL};
  const archive_entry *e = NULL;

  TFD_TRY(entry_at(archive, index, &e));
  if (e->dtype->dtype == 0 || e->rank > TFD_MAX_RANK) {
    return tfd__fail(TFD_NOT_IMPLEMENTED,
                     "%s: tensor \"%s\" has dtype %s and rank %zu; there are "
                     "no such tensors here",
                     archive->path, e->name, e->dtype->name, e->rank);
  }
  from.entry = e;
  return tfd__tensor_filled(e->dtype->dtype, e->dims, (int)e->rank,
                            read_checked, &from, tensor_p);
}
