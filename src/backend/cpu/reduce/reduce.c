/* Reductions over any set of axes.
**
** The axes split into kept and reduced ones, each coalesced by itself. Each
** output's elements are fed in row-major order to a reducer, in blocks whose
** size depends on the shape only; so the result does not depend on the number
** of threads. float32 sums run in float32 vector lanes for at most
** REDUCE_BLOCK elements and in float64 beyond: the error does not grow with
** the length. Sums down columns have a loop of their own (reduce_columns.c). */
#include "backend/cpu/reduce/reduce.h"

#include <string.h>

#define PART 65536 /* elements that one task reduces */

typedef struct job {
  const tfd__reduction *plan;
  const tfd__reducer *r;
  const tfd__view *out;
  int64_t parts;     /* tasks for each output */
  tfd__acc *partial; /* [outputs][parts], NULL when parts is 1 */
} job;

static void add_axis(int64_t *dims, int64_t *strides, int *n_p, int64_t size,
                     int64_t stride) {
  int n = *n_p;

  if (size == 1) return;
  if (n > 0 && strides[n - 1] == stride * size) {
    dims[n - 1] *= size;
    strides[n - 1] = stride;
    return;
  }
  dims[n] = size;
  strides[n] = stride;
  *n_p = n + 1;
}

void tfd__reduction_plan(tfd__reduction *p, const tfd__view *in,
                         unsigned axes) {
  memset(p, 0, sizeof *p);
  p->data = in->data;
  p->dtype = in->dtype;
  p->size = tfd__dtype_size(in->dtype);
  p->kept = 1;
  p->reduced = 1;
  for (int d = 0; d < in->rank; d++) {
    if ((axes >> d & 1u) != 0) {
      p->reduced *= in->dims[d];
      add_axis(p->red_dims, p->red_strides, &p->red_n, in->dims[d],
               in->strides[d]);
    } else {
      p->kept *= in->dims[d];
      add_axis(p->kept_dims, p->kept_strides, &p->kept_n, in->dims[d],
               in->strides[d]);
    }
  }
}

unsigned tfd__reduction_axes(const tfd__view *in, const int64_t *list) {
  unsigned axes = 0;

  if (list[0] < 0) return (1u << in->rank) - 1;
  for (int64_t i = 0; i < list[0]; i++) {
    int64_t axis = list[1 + i];

    axes |= 1u << (axis < 0 ? axis + in->rank : axis);
  }
  return axes;
}

int64_t tfd__reduction_offset(int n, const int64_t *dims,
                              const int64_t *strides, int64_t index) {
  int64_t offset = 0;

  for (int d = n - 1; d > 0; d--) {
    offset += index % dims[d] * strides[d];
    index /= dims[d];
  }
  return n > 0 ? offset + index * strides[0] : 0;
}

/* Feed reduced elements first .. first+n-1 of output k to the reducer. */
static void feed(const job *j, int64_t k, int64_t first, int64_t n,
                 tfd__acc *s) {
  const tfd__reduction *p = j->plan;
  int64_t base =
      tfd__reduction_offset(p->kept_n, p->kept_dims, p->kept_strides, k);
  const char *data = p->data + base * (int64_t)p->size;
  bool half = tfd__is_half(p->dtype);
  bool run = p->red_n == 0 || (p->red_n == 1 && p->red_strides[0] == 1);
  _Alignas(64) char raw[REDUCE_BLOCK * 8];
  _Alignas(64) float floats[REDUCE_BLOCK];

  if (run && !half) {
    j->r->step(s, data + first * (int64_t)p->size, n, first);
    return;
  }
  for (int64_t i = 0; i < n; i += REDUCE_BLOCK) {
    int64_t m = n - i < REDUCE_BLOCK ? n - i : REDUCE_BLOCK;
    const void *x = data + (first + i) * (int64_t)p->size;

    if (!run) {
      tfd__gather_span(raw, data, p->size, p->red_n, p->red_dims,
                       p->red_strides, first + i, m);
      x = raw;
    }
    if (half) {
      tfd__halves_to_floats(p->dtype, floats, x, m);
      x = floats;
    }
    j->r->step(s, x, m, first + i);
  }
}

#define STORE(type, value) ((type *)out->data)[k] = (type)(value)

void tfd__reduction_store(const tfd__view *out, int64_t k, double real,
                          int64_t whole) {
  float f = (float)real;

  switch (out->dtype) {
  case TFD_FLOAT32:
    STORE(float, real);
    break;
  case TFD_FLOAT64:
    STORE(double, real);
    break;
  case TFD_FLOAT16:
  case TFD_BFLOAT16:
    tfd__floats_to_halves(out->dtype, (uint16_t *)out->data + k, &f, 1);
    break;
  case TFD_INT8:
    STORE(int8_t, whole);
    break;
  case TFD_INT16:
    STORE(int16_t, whole);
    break;
  case TFD_INT32:
    STORE(int32_t, whole);
    break;
  case TFD_INT64:
    STORE(int64_t, whole);
    break;
  default:
    STORE(uint8_t, whole);
    break;
  }
}

static void finish(const job *j, int64_t k, const tfd__acc *s) {
  double real = 0.0;
  int64_t whole = 0;

  if (j->r->real != NULL) {
    real = j->r->real(s, j->plan->reduced);
  } else {
    whole = j->r->whole(s, j->plan->reduced);
  }
  tfd__reduction_store(j->out, k, real, whole);
}

static void run_tasks(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;

  for (int64_t t = begin; t < end; t++) {
    int64_t k = t / j->parts;
    int64_t first = t % j->parts * PART;
    int64_t left = j->plan->reduced - first;
    tfd__acc s = j->r->start;

    if (left > PART && j->parts > 1) left = PART;
    if (left > 0) feed(j, k, first, left, &s);
    if (j->partial == NULL) {
      finish(j, k, &s);
    } else {
      j->partial[t] = s;
    }
  }
}

int tfd__reduce(const tfd__reduction *plan, const tfd__reducer *r,
                const tfd__view *out) {
  job j = {plan, r, out, 1, NULL};
  int64_t work = plan->reduced < PART ? plan->reduced : PART;

  if (plan->kept == 0) return TFD_OK;
  if (plan->reduced > PART && r->merge != NULL) {
    j.parts = (plan->reduced + PART - 1) / PART;
    j.partial = tfd__scratch((size_t)(plan->kept * j.parts) * sizeof(tfd__acc));
    if (j.partial == NULL) return TFD_RESOURCE_EXHAUSTED;
  }
  tfd__parallel_for(plan->kept * j.parts, TFD_GRAIN / (work + 16) + 1,
                    run_tasks, &j);
  if (j.partial == NULL) return TFD_OK;
  for (int64_t k = 0; k < plan->kept; k++) {
    tfd__acc *s = j.partial + k * j.parts;

    for (int64_t i = 1; i < j.parts; i++) r->merge(&s[0], &s[i]);
    finish(&j, k, &s[0]);
  }
  return TFD_OK;
}
