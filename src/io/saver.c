/* Writing safetensors files: tensors are collected, then all is written under
** a temporary name and renamed. */
#include "io/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

typedef struct saver_entry {
  char *name; /* owned */
  const tfd__st_dtype *dtype;
  tfd_tensor *tensor;   /* owned */
  tfd__host_copy bytes; /* while writing */
  uint64_t begin;
} saver_entry;

struct tfd_saver {
  tfd_object object;
  json_t *names;    /* names so far, to refuse a second of the same */
  json_t *metadata; /* in order of insertion, which jansson keeps */
  saver_entry *entries;
  size_t entries_n;
  size_t capacity;
};

static void saver_destroy(void *self) {
  tfd_saver *s = self;
  size_t i;

  for (i = 0; i < s->entries_n; i++) {
    tfd__free(s->entries[i].name);
    tfd__release(s->entries[i].tensor);
  }
  tfd__free(s->entries);
  json_decref(s->names);
  json_decref(s->metadata);
  tfd__free(s);
}

static const tfd__type saver_type = {
    .name = "Saver",
    .kind = TFD_HANDLE_SAVER,
    .destroy = saver_destroy,
};

int tfd_saver_new(tfd_saver **saver_p) {
  TFD_GIVEN_POINTER(saver_p);

  tfd_saver *s = tfd__calloc(1, sizeof *s);

  if (s == NULL) return tfd__no_memory(sizeof *s, "saver");
  tfd__object_init(&s->object, &saver_type);
  tfd__json_begin();
  s->names = json_object();
  s->metadata = json_object();
  if (s->names == NULL || s->metadata == NULL ||
      json_object_set_new(s->metadata, "crc32c", json_string("00000000")) !=
          0 ||
      json_object_set_new(s->metadata, "format", json_string(TFD_ST_FORMAT)) !=
          0) {
    tfd__release(s);
    return tfd__no_memory(0, "saver");
  }
  *saver_p = s;
  return TFD_OK;
}

/* jansson does not take what is called `name`. */
static int not_text(const char *what, const char *name) {
  if (tfd__json_short()) return tfd__no_memory(strlen(name), "saver");
  return tfd__fail(TFD_INVALID_ARGUMENT, "save: %s \"%s\" is not valid UTF-8",
                   what, name);
}

static int grow(tfd_saver *s) {
  size_t capacity = s->capacity == 0 ? 64 : 2 * s->capacity;
  saver_entry *p;

  if (s->entries_n < s->capacity) return TFD_OK;
  p = tfd__realloc(s->entries, capacity * sizeof *p);
  if (p == NULL) return tfd__no_memory(capacity * sizeof *p, "saver");
  s->entries = p;
  s->capacity = capacity;
  return TFD_OK;
}

static int check_name(const tfd_saver *s, const char *name) {
  if (strlen(name) > TFD_ST_NAME_LIMIT) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "save: a name of %zu bytes, at most "
                     "%d are possible",
                     strlen(name), TFD_ST_NAME_LIMIT);
  }
  if (strcmp(name, "__metadata__") == 0 || name[0] == '\0') {
    return tfd__fail(TFD_INVALID_ARGUMENT, "save: \"%s\" cannot name a tensor",
                     name);
  }
  if (json_object_get(s->names, name) != NULL) {
    return tfd__fail(TFD_ALREADY_EXISTS, "save: two tensors are called \"%s\"",
                     name);
  }
  return TFD_OK;
}

int tfd_saver_add(tfd_saver *saver, const char *name, tfd_tensor *tensor) {
  TFD_GIVEN(saver, SAVER);
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN(tensor, TENSOR);

  const tfd__st_dtype *dtype = tfd__st_dtype_of(tensor->view.dtype);
  tfd_tensor *kept = NULL;
  char *own = NULL;
  saver_entry *e;

  TFD_TRY(check_name(saver, name));
  if (tensor->buffer == NULL) return tfd__no_values(tensor, "save");
  if (dtype == NULL) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "save: \"%s\" has no elements that "
                     "could be written",
                     name);
  }
  TFD_TRY(grow(saver));
  tfd__json_begin();
  if (json_object_set_new(saver->names, name, json_true()) != 0) {
    return not_text("the name", name);
  }
  TFD_TRY(tfd__tensor_snapshot(tensor, &kept));
  own = tfd__strdup(name);
  if (own == NULL) {
    tfd__release(kept);
    return tfd__no_memory(strlen(name), "name of a tensor");
  }
  e = &saver->entries[saver->entries_n++];
  memset(e, 0, sizeof *e);
  e->name = own;
  e->dtype = dtype;
  e->tensor = kept;
  return TFD_OK;
}

int tfd_saver_metadata(tfd_saver *saver, const char *key, const char *text) {
  TFD_GIVEN(saver, SAVER);
  TFD_GIVEN_POINTER(key);
  TFD_GIVEN_POINTER(text);

  json_t *value;

  if (json_object_get(saver->metadata, key) != NULL ||
      strncmp(key, TFD_ST_CRC_KEY, strlen(TFD_ST_CRC_KEY)) == 0) {
    return tfd__fail(TFD_ALREADY_EXISTS, "save: metadata \"%s\" is there", key);
  }
  tfd__json_begin();
  value = json_string(text);
  if (value == NULL || json_object_set_new(saver->metadata, key, value) != 0) {
    return not_text("metadata", key);
  }
  return TFD_OK;
}

/* --- writing ----------------------------------------------------------------
 */

/* Large elements first: every tensor lies aligned to its element size. */
static int by_alignment(const void *a, const void *b) {
  const saver_entry *x = a;
  const saver_entry *y = b;

  if (x->dtype->size != y->dtype->size) {
    return x->dtype->size > y->dtype->size ? -1 : 1;
  }
  return strcmp(x->name, y->name);
}

static int no_header_memory(void) {
  return tfd__no_memory(0, "header of a safetensors file");
}

static int note_crc(tfd_saver *s, const saver_entry *e) {
  char key[sizeof TFD_ST_CRC_KEY + TFD_ST_NAME_LIMIT];
  char text[TFD_ST_CRC_DIGITS + 1];

  snprintf(key, sizeof key, "%s%s", TFD_ST_CRC_KEY, e->name);
  snprintf(text, sizeof text, "%08x",
           tfd__crc32c(0, e->bytes.data, e->bytes.bytes));
  if (json_object_set_new(s->metadata, key, json_string(text)) != 0) {
    return no_header_memory();
  }
  return TFD_OK;
}

static json_t *describe(const saver_entry *e) {
  json_t *shape = json_array();
  json_t *entry;
  int i;

  for (i = 0; shape != NULL && i < e->tensor->view.rank; i++) {
    if (json_array_append_new(shape, json_integer(e->tensor->view.dims[i]))) {
      json_decref(shape);
      return NULL;
    }
  }
  entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", e->dtype->name, "shape",
                    shape, "data_offsets", (json_int_t)e->begin,
                    (json_int_t)(e->begin + e->bytes.bytes));
  return entry;
}

/* The header's text, padded, with its checksum in place. Owns: *text_p. */
static int make_header(tfd_saver *s, char **text_p, size_t *bytes_p) {
  json_t *root = json_object();
  size_t at = strlen(TFD_ST_PREFIX);
  char digits[TFD_ST_CRC_DIGITS + 1];
  char *plain = NULL;
  char *text = NULL;
  size_t need = 0;
  size_t n;
  size_t i;
  int rc = TFD_OK;

  if (root == NULL || json_object_set(root, "__metadata__", s->metadata) != 0) {
    rc = no_header_memory();
  }
  for (i = 0; rc == TFD_OK && i < s->entries_n; i++) {
    if (json_object_set_new(root, s->entries[i].name,
                            describe(&s->entries[i])) != 0) {
      rc = no_header_memory();
    }
  }
  if (rc == TFD_OK) rc = tfd__json_write(root, JSON_COMPACT, &plain, &need);
  n = (need + 7) / 8 * 8;
  if (rc == TFD_OK && n > TFD_ST_HEADER_LIMIT) {
    rc = tfd__fail(TFD_RESOURCE_EXHAUSTED,
                   "save: names and metadata need %zu "
                   "bytes, the format allows %llu",
                   n, (unsigned long long)TFD_ST_HEADER_LIMIT);
  }
  if (rc == TFD_OK) {
    text = tfd__realloc(plain, n + 1);
    if (text == NULL) rc = no_header_memory();
  }
  json_decref(root);
  if (rc != TFD_OK) {
    tfd__free(plain);
    return rc;
  }
  memset(text + need, ' ', n - need);
  snprintf(digits, sizeof digits, "%08x", tfd__crc32c(0, text, n));
  memcpy(text + at, digits, TFD_ST_CRC_DIGITS);
  *text_p = text;
  *bytes_p = n;
  return TFD_OK;
}

static int write_parts(tfd_saver *s, tfd__output *o, const char *header,
                       size_t header_bytes) {
  unsigned char length[TFD_ST_LENGTH_BYTES];
  size_t i;

  for (i = 0; i < sizeof length; i++) {
    length[i] = (unsigned char)((uint64_t)header_bytes >> (8 * i));
  }
  TFD_TRY(tfd__output_write(o, length, sizeof length));
  TFD_TRY(tfd__output_write(o, header, header_bytes));
  for (i = 0; i < s->entries_n; i++) {
    TFD_TRY(tfd__output_write(o, s->entries[i].bytes.data,
                              s->entries[i].bytes.bytes));
  }
  return tfd__output_commit(o);
}

static int write_file(tfd_saver *s, const char *path) {
  tfd__output output;
  char *header = NULL;
  size_t header_bytes = 0;
  uint64_t at = 0;
  size_t i;
  int rc;

  for (i = 0; i < s->entries_n; i++) {
    saver_entry *e = &s->entries[i];

    TFD_TRY(tfd__host_copy_begin(&e->bytes, e->tensor));
    e->begin = at;
    at += e->bytes.bytes;
    TFD_TRY(note_crc(s, e));
  }
  TFD_TRY(make_header(s, &header, &header_bytes));
  tfd__output_sweep(path); /* first: what it removes may be the room needed */
  rc = tfd__output_open(&output, path, TFD_ST_LENGTH_BYTES + header_bytes + at);
  if (rc == TFD_OK) {
    rc = write_parts(s, &output, header, header_bytes);
    tfd__output_close(&output);
  }
  tfd__free(header);
  return rc;
}

int tfd_saver_write(tfd_saver *saver, const char *path) {
  TFD_GIVEN(saver, SAVER);
  TFD_GIVEN_POINTER(path);

  size_t i;
  int rc;

  if (saver->entries_n > 1) {
    qsort(saver->entries, saver->entries_n, sizeof *saver->entries,
          by_alignment);
  }
  rc = write_file(saver, path);
  for (i = 0; i < saver->entries_n; i++) {
    tfd__host_copy_end(&saver->entries[i].bytes);
  }
  return rc;
}
