/* Sorting, selecting the largest, and searching.
**
** Every dtype is mapped to unsigned keys that sort the same way (NaN last,
** -0 equal to 0), so that one radix sort serves all. */
#include "backend/cpu/array/sort.h"

#include <stdlib.h>
#include <string.h>

/* --- keys ----------------------------------------------------------------- */

#define SIGN64 (UINT64_C(1) << 63)

static inline uint64_t key_of_double(double x) {
  union {
    double f;
    uint64_t u;
  } v = {x == 0 ? 0 : x};

  if (x != x) return UINT64_MAX;
  return (v.u & SIGN64) != 0 ? ~v.u : v.u | SIGN64;
}

static inline uint64_t key_of_int(int64_t x) {
  return (uint64_t)x ^ SIGN64;
}

#define KEYS(type, expr)      \
  do {                        \
    const type *p = data;     \
    for (i = 0; i < n; i++) { \
      const type x = p[i];    \
      keys[i].key = expr;     \
    }                         \
  } while (0)

void tfd__sort_keys(tfd__pair *keys, const void *data, int dtype, int64_t n) {
  int64_t i;

  for (i = 0; i < n; i++) keys[i].index = i;
  switch (dtype) {
  case TFD_FLOAT32:
    KEYS(float, key_of_double((double)x));
    break;
  case TFD_FLOAT64:
    KEYS(double, key_of_double(x));
    break;
  case TFD_FLOAT16:
    KEYS(uint16_t, key_of_double((double)tfd__half_to_float(x)));
    break;
  case TFD_BFLOAT16:
    KEYS(uint16_t, key_of_double((double)tfd__bf16_to_float(x)));
    break;
  case TFD_INT8:
    KEYS(int8_t, key_of_int(x));
    break;
  case TFD_INT16:
    KEYS(int16_t, key_of_int(x));
    break;
  case TFD_INT32:
    KEYS(int32_t, key_of_int(x));
    break;
  case TFD_INT64:
    KEYS(int64_t, key_of_int(x));
    break;
  default: /* uint8, bool */
    KEYS(uint8_t, key_of_int(x));
    break;
  }
}

/* Turn the order round; NaN stays last and equal keys keep theirs. */
static void descend(tfd__pair *keys, int64_t n) {
  int64_t i;

  for (i = 0; i < n; i++) {
    if (keys[i].key != UINT64_MAX) keys[i].key = ~keys[i].key;
  }
}

/* --- sorting -------------------------------------------------------------- */

#define FEW 48 /* below this, insertion beats counting */

static void insertion_sort(tfd__pair *x, int64_t n) {
  int64_t i;
  int64_t k;

  for (i = 1; i < n; i++) {
    tfd__pair moved = x[i];

    for (k = i; k > 0 && x[k - 1].key > moved.key; k--) x[k] = x[k - 1];
    x[k] = moved;
  }
}

/* One stable pass over byte `byte`; false when all agree in it. */
static bool radix_pass(tfd__pair *to, const tfd__pair *from, int64_t n,
                       int byte) {
  int64_t start[256] = {0};
  int64_t sum = 0;
  int64_t i;
  int b;

  for (i = 0; i < n; i++) start[from[i].key >> (8 * byte) & 255]++;
  if (start[from[0].key >> (8 * byte) & 255] == n) return false;
  for (b = 0; b < 256; b++) {
    int64_t count = start[b];

    start[b] = sum;
    sum += count;
  }
  for (i = 0; i < n; i++) {
    to[start[from[i].key >> (8 * byte) & 255]++] = from[i];
  }
  return true;
}

void tfd__sort_pairs(tfd__pair *x, tfd__pair *spare, int64_t n) {
  tfd__pair *from = x;
  tfd__pair *to = spare;
  int byte;

  if (n < FEW) {
    insertion_sort(x, n);
    return;
  }
  for (byte = 0; byte < 8; byte++) {
    if (radix_pass(to, from, n, byte)) {
      tfd__pair *other = from;

      from = to;
      to = other;
    }
  }
  if (from != x) memcpy(x, from, (size_t)n * sizeof *x);
}

/* --- packed sorting ------------------------------------------------------- */

/* Elements of up to 4 bytes: key above, position below, in one word. All
** words differ, so their plain order is the stable one. */

#define SIGN32 (UINT32_C(1) << 31)

static inline uint32_t key_of_float(float x) {
  union {
    float f;
    uint32_t u;
  } v = {x};
  uint32_t u = v.u == SIGN32 ? 0 : v.u;
  uint32_t key = u ^ ((uint32_t)((int32_t)u >> 31) | SIGN32);

  return (u & ~SIGN32) > 0x7f800000u ? UINT32_MAX : key;
}

static inline uint32_t key_of_small(int32_t x) {
  return (uint32_t)x ^ SIGN32;
}

/* NaN stays last whichever way: only a NaN has the key of all ones. */
#define PACK(type, expr, is_nan)                                              \
  do {                                                                        \
    const type *p = data;                                                     \
    for (i = 0; i < n; i++) {                                                 \
      const type x = p[i];                                                    \
      const uint32_t key = expr;                                              \
      words[i] = (uint64_t)(key ^ ((is_nan) ? 0 : turn)) << 32 | (uint32_t)i; \
    }                                                                         \
  } while (0)

TFD_CLONES static void pack_words(uint64_t *words, const void *data, int dtype,
                                  int64_t n, bool descending) {
  uint32_t turn = descending ? UINT32_MAX : 0;
  int64_t i;

  switch (dtype) {
  case TFD_FLOAT32:
    PACK(float, key_of_float(x), key == UINT32_MAX);
    break;
  case TFD_FLOAT16:
    PACK(uint16_t, key_of_float(tfd__half_to_float(x)), key == UINT32_MAX);
    break;
  case TFD_BFLOAT16:
    PACK(uint16_t, key_of_float(tfd__bf16_to_float(x)), key == UINT32_MAX);
    break;
  case TFD_INT8:
    PACK(int8_t, key_of_small(x), false);
    break;
  case TFD_INT16:
    PACK(int16_t, key_of_small(x), false);
    break;
  case TFD_INT32:
    PACK(int32_t, key_of_small(x), false);
    break;
  default: /* uint8, bool */
    PACK(uint8_t, key_of_small(x), false);
    break;
  }
}

static int by_word(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a;
  uint64_t y = *(const uint64_t *)b;

  return x < y ? -1 : x > y;
}

#define DIGIT 11 /* bits of a key sorted at a time */
#define DIGITS 3
#define BINS (1 << DIGIT)

static inline uint64_t digit(uint64_t word, int d) {
  return word >> (32 + d * DIGIT) & (BINS - 1);
}

static void insertion_sort_words(uint64_t *x, int64_t n) {
  int64_t i;
  int64_t k;

  for (i = 1; i < n; i++) {
    uint64_t moved = x[i];

    for (k = i; k > 0 && x[k - 1] > moved; k--) x[k] = x[k - 1];
    x[k] = moved;
  }
}

/* By key only: positions rise already, and the passes are stable. */
static void sort_words(uint64_t *x, uint64_t *spare, int64_t n) {
  uint32_t start[DIGITS][BINS];
  uint64_t *from = x;
  uint64_t *to = spare;
  int64_t i;
  int d;

  if (n < FEW) {
    insertion_sort_words(x, n);
    return;
  }
  memset(start, 0, sizeof start);
  for (i = 0; i < n; i++) {
    for (d = 0; d < DIGITS; d++) start[d][digit(x[i], d)]++;
  }
  for (d = 0; d < DIGITS; d++) {
    uint64_t *other = from;
    uint32_t sum = 0;
    int b;

    if (start[d][digit(x[0], d)] == n) continue;
    for (b = 0; b < BINS; b++) {
      uint32_t count = start[d][b];

      start[d][b] = sum;
      sum += count;
    }
    for (i = 0; i < n; i++) to[start[d][digit(from[i], d)]++] = from[i];
    from = to;
    to = other;
  }
  if (from != x) memcpy(x, from, (size_t)n * sizeof *x);
}

/* The smallest k words move to the front, in order: each smaller one that is
** met pushes the last out. Cost: n comparisons, and for random rows about
** k log(n/k) insertions. */
static void first_words(uint64_t *x, int64_t n, int64_t k) {
  int64_t i;

  qsort(x, (size_t)k, sizeof *x, by_word);
  for (i = k; i < n; i++) {
    int64_t at = k - 1;

    if (x[i] >= x[k - 1]) continue;
    for (; at > 0 && x[at - 1] > x[i]; at--) x[at] = x[at - 1];
    x[at] = x[i];
  }
}

/* --- rows ----------------------------------------------------------------- */

/* Rows of n elements, cut into `slots` shares with workspace of their own. */
typedef struct rows {
  const tfd__view *in;
  const tfd__view *values;
  const tfd__view *indices;
  tfd__pair *pairs; /* 2 n for each slot */
  int64_t n;
  int64_t k; /* how many of each row are kept */
  int64_t rows;
  int64_t slots;
  bool descending;
} rows;

#define FIRST_FEW 64 /* kept by insertion while a row is read */

/* Positions of the first k into `indices`. */
static void sort_small(const rows *w, const char *in, int32_t *indices,
                       tfd__pair *work) {
  uint64_t *words = (uint64_t *)(void *)work;
  int64_t i;

  pack_words(words, in, w->in->dtype, w->n, w->descending);
  if (w->k <= FIRST_FEW && w->k < w->n / 8) {
    first_words(words, w->n, w->k);
  } else {
    sort_words(words, words + w->n, w->n);
  }
  for (i = 0; i < w->k; i++) indices[i] = (int32_t)(uint32_t)words[i];
}

static void sort_wide(const rows *w, const char *in, int32_t *indices,
                      tfd__pair *pairs) {
  int64_t i;

  tfd__sort_keys(pairs, in, w->in->dtype, w->n);
  if (w->descending) descend(pairs, w->n);
  tfd__sort_pairs(pairs, pairs + w->n, w->n);
  for (i = 0; i < w->k; i++) indices[i] = (int32_t)pairs[i].index;
}

static void sort_row(const rows *w, int64_t row, tfd__pair *pairs) {
  size_t size = tfd__dtype_size(w->in->dtype);
  const char *in = (const char *)w->in->data + (size_t)(row * w->n) * size;
  char *values = (char *)w->values->data + (size_t)(row * w->k) * size;
  int32_t *indices = (int32_t *)w->indices->data + row * w->k;
  int64_t i;

  if (size <= 4) {
    sort_small(w, in, indices, pairs);
  } else {
    sort_wide(w, in, indices, pairs);
  }
  for (i = 0; i < w->k; i++) {
    memcpy(values + (size_t)i * size, in + (size_t)indices[i] * size, size);
  }
}

static void sort_slots(void *arg, int64_t begin, int64_t end) {
  const rows *w = arg;
  int64_t slot;
  int64_t row;

  for (slot = begin; slot < end; slot++) {
    int64_t last = (slot + 1) * w->rows / w->slots;

    for (row = slot * w->rows / w->slots; row < last; row++) {
      sort_row(w, row, w->pairs + slot * 2 * w->n);
    }
  }
}

/* Fill outputs 0 (values) and 1 (int32 positions) with the first k of each
** row of the last axis. */
static int sort_rows(const tfd__call *call, bool descending) {
  const tfd__view *in = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  rows w = {.in = in,
            .values = out,
            .indices = tfd__out(call, 1),
            .descending = descending};
  int64_t threads = tfd__threads_get();

  if (out->numel == 0) return TFD_OK;
  w.n = in->dims[in->rank - 1];
  w.k = out->dims[out->rank - 1];
  w.rows = in->numel / w.n;
  w.slots = in->numel < TFD_GRAIN ? 1 : w.rows < threads ? w.rows : threads;
  w.pairs = tfd__scratch((size_t)(w.slots * 2 * w.n) * sizeof *w.pairs);
  if (w.pairs == NULL) {
    return tfd__no_memory((size_t)(w.slots * 2 * w.n) * sizeof *w.pairs,
                          call->name);
  }
  tfd__parallel_for(w.slots, 1, sort_slots, &w);
  return TFD_OK;
}

/* ints: direction (0 ascending, 1 descending). */
int tfd__cpu_sort_pairs(const tfd__call *call) {
  return sort_rows(call, call->ints[0] == 1);
}

int tfd__cpu_top_k(const tfd__call *call) {
  return sort_rows(call, true);
}

/* --- membership and search ------------------------------------------------ */

/* A target is in the top k when fewer than k predictions are larger; never
** when it is no class or its prediction is not finite. ints: k. */
int tfd__cpu_in_top_k(const tfd__call *call) {
  const tfd__view *targets = tfd__in(call, 0);
  const tfd__view *x = tfd__in(call, 1);
  uint8_t *out = tfd__out(call, 0)->data;
  size_t size = tfd__dtype_size(x->dtype);
  int64_t classes = x->dims[1];
  int64_t i;
  int64_t j;

  for (i = 0; i < targets->numel; i++) {
    const char *row = (const char *)x->data + (size_t)(i * classes) * size;
    int64_t target = tfd__index_at(targets, i);
    int64_t larger = 0;
    bool ok = target >= 0 && target < classes;
    double mine = ok ? tfd__load(row + (size_t)target * size, x->dtype) : 0.0;

    ok = ok && mine - mine == 0;
    for (j = 0; ok && j < classes; j++) {
      double other = tfd__load(row + (size_t)j * size, x->dtype);

      ok = other == other; /* a NaN anywhere: unknown order */
      larger += other > mine;
    }
    out[i] = ok && larger < call->ints[0];
  }
  return TFD_OK;
}

/* First position whose key is not below `key` (or, to the right, above). */
static int64_t bound(const tfd__pair *row, int64_t n, uint64_t key,
                     bool right) {
  int64_t low = 0;

  while (n > 0) {
    int64_t half = n / 2;
    uint64_t here = row[low + half].key;

    if (here < key || (right && here == key)) {
      low += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return low;
}

/* ints: side (0 left, 1 right), out_type. */
int tfd__cpu_searchsorted(const tfd__call *call) {
  const tfd__view *sequence = tfd__in(call, 0);
  const tfd__view *values = tfd__in(call, 1);
  const tfd__view *out = tfd__out(call, 0);
  size_t size = tfd__dtype_size(out->dtype);
  int64_t n = sequence->dims[sequence->rank - 1];
  int64_t m = values->dims[values->rank - 1];
  size_t bytes = (size_t)(sequence->numel + values->numel) * sizeof(tfd__pair);
  tfd__pair *keys = tfd__scratch(bytes + 1);
  tfd__pair *wanted = NULL;
  int64_t i;

  if (keys == NULL) return tfd__no_memory(bytes, call->name);
  wanted = keys + sequence->numel;
  tfd__sort_keys(keys, sequence->data, sequence->dtype, sequence->numel);
  tfd__sort_keys(wanted, values->data, values->dtype, values->numel);
  for (i = 0; i < values->numel; i++) {
    tfd__store(
        (char *)out->data + (size_t)i * size, out->dtype,
        (double)bound(keys + i / m * n, n, wanted[i].key, call->ints[0] == 1));
  }
  return TFD_OK;
}
