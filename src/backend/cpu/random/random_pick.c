/* Kernels that choose: classes by their log probabilities, permutations. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/loops.h"
#include "backend/cpu/random/random.h"

/* 64 bits for element i. */
static uint64_t bits64(const tfd__philox *p, uint64_t i) {
  uint64_t block = i / 2;
  uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), p->stream[0],
                         p->stream[1]};
  uint32_t words[4];

  tfd__philox_block(p->key, counter, words);
  return (uint64_t)words[2 * (i % 2) + 1] << 32 | words[2 * (i % 2)];
}

/* --- categorical ---------------------------------------------------------- */

typedef struct pick {
  const tfd__view *logits;
  const tfd__view *out;
  tfd__philox stream;
  double *sums; /* a row of running sums for each slot */
  int64_t rows;
  int64_t classes;
  int64_t samples;
  int64_t slots;
  atomic_int_least64_t bad_row; /* -1 = none */
} pick;

static void load_row(const tfd__view *v, int64_t row, int64_t n, double *to) {
  const size_t size = tfd__dtype_size(v->dtype);
  const char *from = (const char *)v->data + (size_t)(row * n) * size;

  if (v->dtype == TFD_FLOAT32) {
    const float *f = (const float *)(const void *)from;

    for (int64_t i = 0; i < n; i++) to[i] = (double)f[i];
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    to[i] = tfd__load(from + (size_t)i * size, v->dtype);
  }
}

/* Running sums of the classes' weights in place of their logits; the total.
** Classes whose logit is not finite have no weight, as in TensorFlow. */
static double running_sums(double *row, int64_t n) {
  double most = -INFINITY;
  double sum = 0;

  for (int64_t i = 0; i < n; i++) {
    if (isfinite(row[i]) && row[i] > most) most = row[i];
  }
  for (int64_t i = 0; i < n; i++) {
    if (isfinite(row[i])) sum += exp(row[i] - most);
    row[i] = sum;
  }
  return sum;
}

/* First class whose running sum exceeds x; x is below the total but for
** rounding, hence the last class with any weight at the end. */
static int64_t first_above(const double *sums, int64_t n, double x) {
  int64_t low = 0;
  int64_t high = n - 1;

  if (!(x < sums[n - 1])) x = nextafter(sums[n - 1], 0);
  while (low < high) {
    int64_t middle = low + (high - low) / 2;

    if (sums[middle] > x) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

static void pick_row(pick *p, int64_t row, double *sums) {
  double total = 0;

  load_row(p->logits, row, p->classes, sums);
  total = running_sums(sums, p->classes);
  if (!(total > 0)) {
    atomic_store_explicit(&p->bad_row, row, memory_order_relaxed);
    return;
  }
  for (int64_t s = 0; s < p->samples; s++) {
    int64_t i = row * p->samples + s;
    double u = (double)(int64_t)(bits64(&p->stream, (uint64_t)i) >> 11);
    int64_t class = first_above(sums, p->classes, u * 0x1p-53 * total);

    if (p->out->dtype == TFD_INT32) {
      ((int32_t *)p->out->data)[i] = (int32_t) class;
    } else {
      ((int64_t *)p->out->data)[i] = class;
    }
  }
}

/* Slot s has its own row of sums and does rows s, s + slots, ... */
static void pick_slots(void *arg, int64_t begin, int64_t end) {
  pick *p = arg;

  for (int64_t s = begin; s < end; s++) {
    for (int64_t row = s; row < p->rows; row += p->slots) {
      pick_row(p, row, p->sums + s * p->classes);
    }
  }
}

int tfd__cpu_stateless_categorical(const tfd__call *call) {
  const tfd__view *logits = tfd__in(call, 0);
  pick p = {.logits = logits,
            .out = tfd__out(call, 0),
            .stream = tfd__philox_of(call->ints, 1),
            .rows = logits->dims[0],
            .classes = logits->dims[1],
            .samples = call->ints[0],
            .slots = tfd__threads_get()};
  int64_t bad = 0;

  if (p.out->numel == 0) return TFD_OK;
  if (p.rows * (p.classes + p.samples) < TFD_GRAIN / 4) p.slots = 1;
  if (p.slots > p.rows) p.slots = p.rows;
  atomic_init(&p.bad_row, -1);
  p.sums = tfd__scratch((size_t)(p.slots * p.classes) * sizeof *p.sums);
  if (p.sums == NULL) {
    return tfd__no_memory((size_t)(p.slots * p.classes) * sizeof *p.sums,
                          call->name);
  }
  tfd__parallel_for(p.slots, 1, pick_slots, &p);
  bad = atomic_load_explicit(&p.bad_row, memory_order_relaxed);
  if (bad < 0) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: row %" PRId64 " of logits has no finite value; every "
                   "row needs a class that can be drawn",
                   call->name, bad);
}

/* --- shuffle -------------------------------------------------------------- */

typedef struct rows {
  const char *from;
  char *to;
  const int64_t *order;
  size_t bytes; /* of one row */
} rows;

static void copy_rows(void *arg, int64_t begin, int64_t end) {
  const rows *r = arg;

  for (int64_t i = begin; i < end; i++) {
    memcpy(r->to + (size_t)i * r->bytes,
           r->from + (size_t)r->order[i] * r->bytes, r->bytes);
  }
}

/* A permutation of 0 .. n-1 by Fisher and Yates; every one is equally likely
** up to n^2 / 2^64. */
static void permutation(const tfd__philox *p, int64_t *order, int64_t n) {
  for (int64_t i = 0; i < n; i++) order[i] = i;
  for (int64_t i = n - 1; i > 0; i--) {
    uint64_t bits = bits64(p, (uint64_t)i);
    int64_t j = (int64_t)(((__uint128_t)bits * (uint64_t)(i + 1)) >> 64);
    int64_t swap = order[i];

    order[i] = order[j];
    order[j] = swap;
  }
}

int tfd__cpu_stateless_shuffle(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);
  tfd__philox stream = tfd__philox_of(call->ints, 0);
  int64_t n = x->rank > 0 ? x->dims[0] : 1;
  rows r = {.from = x->data, .to = tfd__out(call, 0)->data};
  int64_t *order = NULL;
  int64_t grain = 0;

  if (x->numel == 0) return TFD_OK;
  order = tfd__scratch((size_t)n * sizeof *order);
  if (order == NULL) {
    return tfd__no_memory((size_t)n * sizeof *order, call->name);
  }
  permutation(&stream, order, n);
  r.order = order;
  r.bytes = tfd__view_bytes(x) / (size_t)n;
  grain = (int64_t)(4 * TFD_GRAIN /
                    (r.bytes < 4 * TFD_GRAIN ? r.bytes : 4 * TFD_GRAIN));
  tfd__parallel_for(n, grain, copy_rows, &r);
  return TFD_OK;
}
