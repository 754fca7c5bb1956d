/* tf.train.Example: a protobuf of named features, each a list of byte strings,
** floats or integers. Reading checks every length against what is there;
** writing sorts by name, so equal examples give equal bytes.
**
** Example { Features features = 1 }, Features { map<string, Feature> feature =
** 1 }, Feature { oneof BytesList = 1, FloatList = 2, Int64List = 3 }, each list
** `repeated value = 1`, packed or not. */
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

#define FEATURE_LIMIT 100000
#define NAME_LIMIT 4096

typedef struct feature {
  char *name; /* owned */
  tfd_feature_kind kind;
  tfd__bytes values; /* for bytes the ends of texts, else elements */
  tfd__bytes text;   /* bytes features: all strings, one after the other */
  size_t order;      /* of appearance */
} feature;

struct tfd_example {
  tfd_object object;
  feature *features; /* sorted by name once read */
  size_t n;
  size_t capacity;
  tfd__bytes wire; /* what serialize returned */
};

static void feature_clear(feature *f) {
  tfd__free(f->name);
  tfd__free(f->values.data);
  tfd__free(f->text.data);
}

static void example_destroy(void *self) {
  tfd_example *e = self;
  size_t i;

  for (i = 0; i < e->n; i++) feature_clear(&e->features[i]);
  tfd__free(e->features);
  tfd__free(e->wire.data);
  tfd__free(e);
}

static const tfd__type example_type = {
    .name = "Example",
    .kind = TFD_HANDLE_EXAMPLE,
    .destroy = example_destroy,
};

int tfd_example_new(tfd_example **example_p) {
  TFD_GIVEN_POINTER(example_p);

  tfd_example *e = tfd__calloc(1, sizeof *e);

  if (e == NULL) return tfd__no_memory(sizeof *e, "Example");
  tfd__object_init(&e->object, &example_type);
  *example_p = e;
  return TFD_OK;
}

/* A feature of this name, replacing one of the same (the last wins, as for
** any protobuf map). */
static int add_feature(tfd_example *e, const void *name, size_t name_bytes,
                       feature **f_p) {
  feature *f;
  char *own;
  size_t i;

  if (name_bytes > NAME_LIMIT || memchr(name, 0, name_bytes) != NULL) {
    return tfd__fail(TFD_DATA_LOSS,
                     "Example: a feature name of %zu bytes, or "
                     "with a zero byte",
                     name_bytes);
  }
  if (e->n >= FEATURE_LIMIT) {
    return tfd__fail(TFD_DATA_LOSS, "Example: more than %d features",
                     FEATURE_LIMIT);
  }
  if (e->n == e->capacity) {
    size_t capacity = e->capacity == 0 ? 8 : 2 * e->capacity;
    feature *p = tfd__realloc(e->features, capacity * sizeof *p);

    if (p == NULL) return tfd__no_memory(capacity * sizeof *p, "Example");
    e->features = p;
    e->capacity = capacity;
  }
  own = tfd__alloc(name_bytes + 1);
  if (own == NULL) return tfd__no_memory(name_bytes, "feature name");
  memcpy(own, name, name_bytes);
  own[name_bytes] = '\0';
  i = e->n++;
  f = &e->features[i];
  memset(f, 0, sizeof *f);
  f->name = own;
  f->order = i;
  *f_p = f;
  return TFD_OK;
}

/* --- reading ----------------------------------------------------------------
 */

static int add_int(feature *f, uint64_t x) {
  return tfd__bytes_add(&f->values, &x, sizeof x);
}

static int add_text(feature *f, const void *data, size_t n) {
  TFD_TRY(tfd__bytes_add(&f->text, data, n));
  return tfd__bytes_add(&f->values, &f->text.n, sizeof f->text.n);
}

static int read_ints(tfd__message packed, feature *f) {
  while (packed.n > 0) {
    uint64_t x = 0;

    TFD_TRY(tfd__message_number(&packed, &x));
    TFD_TRY(add_int(f, x));
  }
  return TFD_OK;
}

/* One value (or packed values) of a list. */
static int read_value(tfd__message *s, int wire, feature *f) {
  tfd__message inner = {NULL, 0, s->what};
  uint64_t x = 0;

  if (wire == TFD_WIRE_BYTES) TFD_TRY(tfd__message_bytes(s, wire, &inner));
  if (f->kind == TFD_FEATURE_BYTES && wire == TFD_WIRE_BYTES) {
    return add_text(f, inner.p, inner.n);
  }
  if (f->kind == TFD_FEATURE_FLOAT && wire == TFD_WIRE_BYTES) {
    if (inner.n % 4 != 0) return tfd__message_broken(s, "floats are cut off");
    return tfd__bytes_add(&f->values, inner.p, inner.n);
  }
  if (f->kind == TFD_FEATURE_FLOAT && wire == TFD_WIRE_32) {
    const unsigned char *p = s->p;

    TFD_TRY(tfd__message_skip(s, wire));
    return tfd__bytes_add(&f->values, p, 4);
  }
  if (f->kind == TFD_FEATURE_INT64 && wire == TFD_WIRE_BYTES) {
    return read_ints(inner, f);
  }
  if (f->kind == TFD_FEATURE_INT64 && wire == TFD_WIRE_NUMBER) {
    TFD_TRY(tfd__message_number(s, &x));
    return add_int(f, x);
  }
  return tfd__message_broken(s, "a value of the wrong wire type");
}

static int read_list(tfd__message s, feature *f) {
  while (s.n > 0) {
    uint64_t field = 0;
    int wire = 0;

    TFD_TRY(tfd__message_key(&s, &field, &wire));
    if (field == 1) {
      TFD_TRY(read_value(&s, wire, f));
    } else {
      TFD_TRY(tfd__message_skip(&s, wire));
    }
  }
  return TFD_OK;
}

static int read_feature(tfd__message s, feature *f) {
  while (s.n > 0) {
    uint64_t field = 0;
    int wire = 0;
    tfd__message inner;

    TFD_TRY(tfd__message_key(&s, &field, &wire));
    if (field > 3 || wire != TFD_WIRE_BYTES) {
      TFD_TRY(tfd__message_skip(&s, wire));
      continue;
    }
    TFD_TRY(tfd__message_bytes(&s, wire, &inner));
    if (f->kind != (tfd_feature_kind)field) {
      f->kind = (tfd_feature_kind)field;
      f->values.n = 0;
      f->text.n = 0;
    }
    TFD_TRY(read_list(inner, f));
  }
  return TFD_OK;
}

/* One entry of the map: key = 1, value = 2. */
static int read_entry(tfd_example *e, tfd__message s) {
  tfd__message name = {(const unsigned char *)"", 0, s.what};
  tfd__message value = {(const unsigned char *)"", 0, s.what};
  feature *f = NULL;

  while (s.n > 0) {
    uint64_t field = 0;
    int wire = 0;

    TFD_TRY(tfd__message_key(&s, &field, &wire));
    if ((field == 1 || field == 2) && wire == TFD_WIRE_BYTES) {
      TFD_TRY(tfd__message_bytes(&s, wire, field == 1 ? &name : &value));
    } else {
      TFD_TRY(tfd__message_skip(&s, wire));
    }
  }
  TFD_TRY(add_feature(e, name.p, name.n, &f));
  return read_feature(value, f);
}

/* Calls itself once: Example holds Features, which hold entries. */
static int read_level(tfd_example *e, tfd__message s, bool entries) {
  while (s.n > 0) {
    uint64_t field = 0;
    int wire = 0;
    tfd__message inner;

    TFD_TRY(tfd__message_key(&s, &field, &wire));
    if (field != 1 || wire != TFD_WIRE_BYTES) {
      TFD_TRY(tfd__message_skip(&s, wire));
      continue;
    }
    TFD_TRY(tfd__message_bytes(&s, wire, &inner));
    TFD_TRY(entries ? read_entry(e, inner) : read_level(e, inner, true));
  }
  return TFD_OK;
}

static int by_name(const void *a, const void *b) {
  const feature *x = a;
  const feature *y = b;
  int order = strcmp(x->name, y->name);

  if (order != 0) return order;
  return x->order < y->order ? -1 : x->order > y->order;
}

/* Sort; of features with one name the last stays. */
static void settle(tfd_example *e) {
  size_t kept = 0;
  size_t i;

  if (e->n > 1) qsort(e->features, e->n, sizeof *e->features, by_name);
  for (i = 0; i < e->n; i++) {
    if (i + 1 < e->n &&
        strcmp(e->features[i].name, e->features[i + 1].name) == 0) {
      feature_clear(&e->features[i]);
    } else {
      e->features[kept++] = e->features[i];
    }
  }
  e->n = kept;
}

int tfd_example_parse(const void *data, size_t data_bytes,
                      tfd_example **example_p) {
  TFD_GIVEN_BYTES(data, data_bytes);
  TFD_GIVEN_POINTER(example_p);

  tfd_example *e = NULL;
  tfd__message s = {data, data_bytes, "Example"};
  int rc;

  TFD_TRY(tfd_example_new(&e));
  rc = read_level(e, s, false);
  if (rc != TFD_OK) {
    tfd__release(e);
    return rc;
  }
  settle(e);
  *example_p = e;
  return TFD_OK;
}

/* --- access -----------------------------------------------------------------
 */

static size_t value_size(const feature *f) {
  return f->kind == TFD_FEATURE_FLOAT ? 4 : 8;
}

static int feature_at(const tfd_example *e, int index, const feature **f_p) {
  if (index < 0 || (size_t)index >= e->n) {
    return tfd__fail(TFD_INDEX_ERROR, "Example: feature %d of %zu", index,
                     e->n);
  }
  *f_p = &e->features[index];
  return TFD_OK;
}

int tfd_example_count(const tfd_example *example) {
  TFD_GIVEN_OR(example, EXAMPLE, 0);
  return (int)example->n;
}

int tfd_example_find(const tfd_example *example, const char *name,
                     int *position_p) {
  TFD_GIVEN(example, EXAMPLE);
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_POINTER(position_p);

  size_t low = 0;
  size_t high = example->n;

  *position_p = -1;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(name, example->features[middle].name);

    if (order == 0) {
      *position_p = (int)middle;
      return TFD_OK;
    }
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return TFD_OK;
}

int tfd_example_feature(const tfd_example *example, int index,
                        const char **name_p, tfd_feature_kind *kind_p,
                        int64_t *values_p) {
  TFD_GIVEN(example, EXAMPLE);
  TFD_GIVEN_POINTER(name_p);
  TFD_GIVEN_POINTER(kind_p);
  TFD_GIVEN_POINTER(values_p);

  const feature *f = NULL;

  TFD_TRY(feature_at(example, index, &f));
  *name_p = f->name;
  *kind_p = f->kind;
  *values_p = (int64_t)(f->values.n / value_size(f));
  return TFD_OK;
}

int tfd_example_tensor(tfd_example *example, int index, tfd_tensor **tensor_p) {
  TFD_GIVEN(example, EXAMPLE);
  TFD_GIVEN_POINTER(tensor_p);

  const feature *f = NULL;
  int64_t n;

  TFD_TRY(feature_at(example, index, &f));
  if (f->kind != TFD_FEATURE_FLOAT && f->kind != TFD_FEATURE_INT64) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "Example: feature \"%s\" holds no "
                     "numbers",
                     f->name);
  }
  n = (int64_t)(f->values.n / value_size(f));
  return tfd_tensor_from_bytes(
      f->values.data, f->values.n,
      f->kind == TFD_FEATURE_FLOAT ? TFD_FLOAT32 : TFD_INT64, &n, 1, tensor_p);
}

int tfd_example_text(const tfd_example *example, int index, int64_t value,
                     const void **text_p, size_t *text_bytes_p) {
  TFD_GIVEN(example, EXAMPLE);
  TFD_GIVEN_POINTER(text_p);
  TFD_GIVEN_POINTER(text_bytes_p);

  const feature *f = NULL;
  size_t begin = 0;
  size_t end = 0;

  TFD_TRY(feature_at(example, index, &f));
  if (f->kind != TFD_FEATURE_BYTES || value < 0 ||
      (uint64_t)value >= f->values.n / sizeof end) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "Example: feature \"%s\" has no text %lld", f->name,
                     (long long)value);
  }
  memcpy(&end, f->values.data + (size_t)value * sizeof end, sizeof end);
  if (value > 0) {
    memcpy(&begin, f->values.data + (size_t)(value - 1) * sizeof end,
           sizeof begin);
  }
  *text_p = f->text.data == NULL ? (const void *)""
                                 : (const void *)(f->text.data + begin);
  *text_bytes_p = end - begin;
  return TFD_OK;
}

/* --- writing ----------------------------------------------------------------
 */

int tfd_example_add(tfd_example *example, const char *name,
                    tfd_feature_kind kind) {
  TFD_GIVEN(example, EXAMPLE);
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_ENUM(kind, TFD_FEATURE_NONE, TFD_FEATURE_INT64);

  feature *f = NULL;

  TFD_TRY(add_feature(example, name, strlen(name), &f));
  f->kind = kind;
  return TFD_OK;
}

static int last_feature(tfd_example *e, tfd_feature_kind kind, feature **f_p) {
  if (e->n == 0 || e->features[e->n - 1].kind != kind) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "Example: the last feature added is of another kind");
  }
  *f_p = &e->features[e->n - 1];
  return TFD_OK;
}

int tfd_example_put_text(tfd_example *example, const void *text,
                         size_t text_bytes) {
  TFD_GIVEN(example, EXAMPLE);
  TFD_GIVEN_BYTES(text, text_bytes);

  feature *f = NULL;

  TFD_TRY(last_feature(example, TFD_FEATURE_BYTES, &f));
  return add_text(f, text, text_bytes);
}

int tfd_example_put_tensor(tfd_example *example, tfd_tensor *tensor) {
  TFD_GIVEN(example, EXAMPLE);
  TFD_GIVEN(tensor, TENSOR);

  int dtype = tensor->view.dtype;
  tfd__host_copy copy;
  feature *f = NULL;
  int rc;

  if (dtype != TFD_FLOAT32 && dtype != TFD_INT64) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "Example: numbers must be float32 or "
                     "int64, got %s",
                     tfd__dtype_name(dtype));
  }
  TFD_TRY(last_feature(
      example, dtype == TFD_FLOAT32 ? TFD_FEATURE_FLOAT : TFD_FEATURE_INT64,
      &f));
  TFD_TRY(tfd__host_copy_begin(&copy, tensor));
  rc = tfd__bytes_add(&f->values, copy.data, copy.bytes);
  tfd__host_copy_end(&copy);
  return rc;
}

/* The list's message: packed numbers, or one field for each text. */
static int write_list(const feature *f, tfd__bytes *list, tfd__bytes *packed) {
  size_t n = f->values.n / value_size(f);
  size_t begin = 0;
  size_t i;

  for (i = 0; i < n && f->kind == TFD_FEATURE_INT64; i++) {
    uint64_t x;

    memcpy(&x, f->values.data + 8 * i, sizeof x);
    TFD_TRY(tfd__bytes_number(packed, x));
  }
  if (f->kind == TFD_FEATURE_INT64)
    return n > 0 ? tfd__bytes_field(list, 1, packed) : TFD_OK;
  if (f->kind == TFD_FEATURE_FLOAT) {
    return n > 0 ? tfd__bytes_field(list, 1, &f->values) : TFD_OK;
  }
  for (i = 0; i < n; i++) {
    tfd__bytes text = {f->text.data == NULL ? NULL : f->text.data + begin, 0,
                       0};
    size_t end;

    memcpy(&end, f->values.data + i * sizeof end, sizeof end);
    text.n = end - begin;
    TFD_TRY(tfd__bytes_field(list, 1, &text));
    begin = end;
  }
  return TFD_OK;
}

/* scratch: list, packed, feature, entry. */
static int write_feature(const feature *f, tfd__bytes scratch[4],
                         tfd__bytes *features) {
  tfd__bytes name = {(unsigned char *)f->name, strlen(f->name), 0};
  int i;

  for (i = 0; i < 4; i++) scratch[i].n = 0;
  if (f->kind != TFD_FEATURE_NONE) {
    TFD_TRY(write_list(f, &scratch[0], &scratch[1]));
    TFD_TRY(tfd__bytes_field(&scratch[2], (int)f->kind, &scratch[0]));
  }
  TFD_TRY(tfd__bytes_field(&scratch[3], 1, &name));
  TFD_TRY(tfd__bytes_field(&scratch[3], 2, &scratch[2]));
  return tfd__bytes_field(features, 1, &scratch[3]);
}

int tfd_example_serialize(tfd_example *example, const void **data_p,
                          size_t *data_bytes_p) {
  TFD_GIVEN(example, EXAMPLE);
  TFD_GIVEN_POINTER(data_p);
  TFD_GIVEN_POINTER(data_bytes_p);

  tfd__bytes scratch[4] = {{NULL, 0, 0}};
  tfd__bytes features = {NULL, 0, 0};
  size_t i;
  int rc = TFD_OK;

  settle(example);
  for (i = 0; rc == TFD_OK && i < example->n; i++) {
    rc = write_feature(&example->features[i], scratch, &features);
  }
  example->wire.n = 0;
  if (rc == TFD_OK) rc = tfd__bytes_field(&example->wire, 1, &features);
  for (i = 0; i < 4; i++) tfd__free(scratch[i].data);
  tfd__free(features.data);
  if (rc != TFD_OK) return rc;
  *data_p = example->wire.data;
  *data_bytes_p = example->wire.n;
  return TFD_OK;
}
