/* Running sums, products and log-sums along one axis.
**
** The tensor is seen as [outer, length, inner]. A task takes up to COLUMNS
** neighbouring inner positions of one outer index and walks along the axis;
** sums and products of floats run in float64, rounded for each output. */
#include <stdbool.h>

#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/vmath.h"

#define COLUMNS 64

/* One step for n columns: combine x into the state. */
typedef struct state {
  double real[COLUMNS];
  double second[COLUMNS]; /* logsumexp: the sum; real is the maximum */
  uint64_t whole[COLUMNS];
} state;

typedef struct job {
  const tfd__view *in;
  const tfd__view *out;
  void (*add)(state *s, const double *x, int64_t n);
  double (*value)(const state *s, int64_t i); /* NULL: real itself */
  bool product;                               /* integers: product, else sum */
  bool exclusive;
  bool reverse;
  double start; /* real and second at the beginning */
  double second;
  int64_t length;
  int64_t inner;
  int64_t groups; /* column groups for each outer index */
} job;

static void add_sum(state *s, const double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) s->real[i] += x[i];
}
static void add_product(state *s, const double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) s->real[i] *= x[i];
}
static void add_logsumexp(state *s, const double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double high = x[i] > s->real[i] || x[i] != x[i] ? x[i] : s->real[i];

    if (fabs(high) < (double)INFINITY) {
      s->second[i] =
          (s->second[i] == 0.0 ? 0.0 : s->second[i] * exp(s->real[i] - high)) +
          exp(x[i] - high);
    } else if (high != -(double)INFINITY) {
      s->second[i] = 1.0; /* infinite or NaN from here on */
    }
    s->real[i] = high;
  }
}
static double logsumexp_value(const state *s, int64_t i) {
  return s->second[i] == 0.0 ? -(double)INFINITY
                             : s->real[i] + log(s->second[i]);
}

static void load_reals(const job *j, int64_t at, int64_t n, double *x) {
  const void *data = j->in->data;
  float f[COLUMNS];

  switch (j->in->dtype) {
  case TFD_FLOAT64:
    for (int64_t i = 0; i < n; i++) x[i] = ((const double *)data)[at + i];
    return;
  case TFD_FLOAT32:
    for (int64_t i = 0; i < n; i++) x[i] = ((const float *)data)[at + i];
    return;
  default:
    tfd__halves_to_floats(j->in->dtype, f, (const uint16_t *)data + at, n);
    for (int64_t i = 0; i < n; i++) x[i] = (double)f[i];
  }
}

static void store_reals(const job *j, int64_t at, int64_t n, const state *s) {
  void *data = j->out->data;
  float f[COLUMNS];

  if (j->out->dtype == TFD_FLOAT64) {
    for (int64_t i = 0; i < n; i++) {
      ((double *)data)[at + i] = j->value == NULL ? s->real[i] : j->value(s, i);
    }
    return;
  }
  if (j->value == NULL) {
    for (int64_t i = 0; i < n; i++) f[i] = (float)s->real[i];
  } else {
    for (int64_t i = 0; i < n; i++) f[i] = (float)j->value(s, i);
  }
  if (j->out->dtype == TFD_FLOAT32) {
    for (int64_t i = 0; i < n; i++) ((float *)data)[at + i] = f[i];
    return;
  }
  tfd__floats_to_halves(j->out->dtype, (uint16_t *)data + at, f, n);
}

static void real_step(const job *j, int64_t at, int64_t n, state *s) {
  double x[COLUMNS];

  if (j->exclusive) store_reals(j, at, n, s);
  load_reals(j, at, n, x);
  j->add(s, x, n);
  if (!j->exclusive) store_reals(j, at, n, s);
}

#define INT_STEP(type)                                       \
  {                                                          \
    const type *in = j->in->data;                            \
    type *out = j->out->data;                                \
    for (int64_t i = 0; i < n; i++) {                        \
      uint64_t before = s->whole[i];                         \
      uint64_t x = (uint64_t)in[at + i];                     \
      uint64_t after = j->product ? before * x : before + x; \
      s->whole[i] = after;                                   \
      out[at + i] = (type)(j->exclusive ? before : after);   \
    }                                                        \
    return;                                                  \
  }

static void step(const job *j, int64_t at, int64_t n, state *s) {
  switch (j->in->dtype) {
  case TFD_INT8:
    INT_STEP(int8_t)
  case TFD_INT16:
    INT_STEP(int16_t)
  case TFD_INT32:
    INT_STEP(int32_t)
  case TFD_INT64:
    INT_STEP(int64_t)
  case TFD_UINT8:
    INT_STEP(uint8_t)
  default:
    real_step(j, at, n, s);
  }
}

/* Sums and products along contiguous floats: COLUMNS elements of one row at a
** time, whose running values take the places of the columns. */
static void real_row(const job *j, int64_t base) {
  state s;
  double x[COLUMNS];
  double t = j->start;

  for (int64_t k = 0; k < j->length; k += COLUMNS) {
    int64_t n = j->length - k < COLUMNS ? j->length - k : COLUMNS;
    int64_t at = base + (j->reverse ? j->length - k - n : k);

    load_reals(j, at, n, x);
    for (int64_t i = 0; i < n; i++) {
      int64_t p = j->reverse ? n - 1 - i : i;
      double next = j->product ? t * x[p] : t + x[p];

      s.real[p] = j->exclusive ? t : next;
      t = next;
    }
    store_reals(j, at, n, &s);
  }
}

static void run_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;

  for (int64_t r = begin; r < end; r++) real_row(j, r * j->length);
}

static void run_tasks(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;

  for (int64_t t = begin; t < end; t++) {
    int64_t column = t % j->groups * COLUMNS;
    int64_t n = j->inner - column < COLUMNS ? j->inner - column : COLUMNS;
    int64_t base = t / j->groups * j->length * j->inner + column;
    state s;

    for (int64_t i = 0; i < n; i++) {
      s.real[i] = j->start;
      s.second[i] = j->second;
      s.whole[i] = j->product ? 1 : 0;
    }
    for (int64_t k = 0; k < j->length; k++) {
      int64_t row = j->reverse ? j->length - 1 - k : k;

      step(j, base + row * j->inner, n, &s);
    }
  }
}

static int run(const tfd__call *call, job *j) {
  const tfd__view *in = tfd__in(call, 0);
  int64_t axis = call->ints[0] < 0 ? call->ints[0] + in->rank : call->ints[0];
  int64_t outer = 1;
  int64_t work = 0;

  if (in->numel == 0) return TFD_OK;
  j->in = in;
  j->out = tfd__out(call, 0);
  j->exclusive = call->ints[1] != 0;
  j->reverse = call->ints[2] != 0;
  j->length = in->dims[axis];
  j->inner = 1;
  for (int64_t d = 0; d < axis; d++) outer *= in->dims[d];
  for (int64_t d = axis + 1; d < in->rank; d++) j->inner *= in->dims[d];
  j->groups = (j->inner + COLUMNS - 1) / COLUMNS;
  work = j->length * (j->inner < COLUMNS ? j->inner : COLUMNS);
  tfd__parallel_for(
      outer * j->groups, TFD_GRAIN / (work + 16) + 1,
      j->inner == 1 && j->value == NULL && tfd__is_float(in->dtype) ? run_rows
                                                                    : run_tasks,
      j);
  return TFD_OK;
}

int tfd__cpu_cumsum(const tfd__call *call) {
  job j = {.add = add_sum};

  return run(call, &j);
}

int tfd__cpu_cumprod(const tfd__call *call) {
  job j = {.add = add_product, .product = true, .start = 1.0};

  return run(call, &j);
}

int tfd__cpu_cumulative_logsumexp(const tfd__call *call) {
  job j = {.add = add_logsumexp,
           .value = logsumexp_value,
           .start = -(double)INFINITY};

  return run(call, &j);
}
