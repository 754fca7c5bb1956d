/* Kernels that draw by rejection: gamma and Poisson. Element i has 256 blocks
** of the stream to itself, more than any element ever needs (a block makes one
** attempt, and at least two of three attempts succeed), so it still depends on
** the stream, i and its parameter only. */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/random/random.h"

typedef struct tries {
  const tfd__philox *stream;
  uint64_t block; /* of the next attempt */
  double u[4];    /* of this attempt, in (0, 1), 32 bits each */
} tries;

static void next_try(tries *t) {
  uint32_t counter[4] = {(uint32_t)t->block, (uint32_t)(t->block >> 32),
                         t->stream->stream[0], t->stream->stream[1]};
  uint32_t words[4];

  tfd__philox_block(t->stream->key, counter, words);
  for (int i = 0; i < 4; i++) t->u[i] = (words[i] + 0.5) * 0x1p-32;
  t->block++;
}

/* Source: Marsaglia and Tsang, "A simple method for generating gamma
** variables", 2000. For alpha < 1 a draw of alpha + 1 is scaled down. */
static double draw_gamma(tries *t, double alpha) {
  double scale = 1;
  double d = 0;
  double c = 0;

  if (!(alpha > 0)) return alpha == 0 ? 0 : NAN;
  if (isinf(alpha)) return alpha; /* no try would ever be accepted */
  next_try(t);
  if (alpha < 1) {
    scale = pow(t->u[3], 1 / alpha);
    alpha += 1;
  }
  d = alpha - 1.0 / 3;
  c = 1 / sqrt(9 * d);
  for (;; next_try(t)) {
    double x = sqrt(-2 * log(t->u[0])) * cos(2 * M_PI * t->u[1]);
    double v = 1 + c * x;

    if (v <= 0) continue;
    v = v * v * v;
    if (log(t->u[2]) < 0.5 * x * x + d * (1 - v + log(v))) {
      return scale * d * v;
    }
  }
}

/* Small rates: the distribution is summed up to the uniform number. */
static double poisson_small(tries *t, double rate) {
  double p = exp(-rate);
  double sum = p;
  double k = 0;

  next_try(t);
  /* 64 bits of the block; the sum stops growing before it could reach 1. */
  for (double u = t->u[0] + (t->u[1] - 0.5) * 0x1p-32; u > sum && p > 0;) {
    k += 1;
    p *= rate / k;
    sum += p;
  }
  return k;
}

/* Source: W. Hörmann, "The transformed rejection method for generating Poisson
** random variables" (PTRS), 1993. */
static double poisson_large(tries *t, double rate) {
  double b = 0.931 + 2.53 * sqrt(rate);
  double a = -0.059 + 0.02483 * b;
  double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  double sure = 0.9277 - 3.6224 / (b - 2);

  for (;;) {
    double u = 0;
    double us = 0;
    double k = 0;
    int sign = 0;

    next_try(t);
    u = t->u[0] - 0.5;
    us = 0.5 - fabs(u);
    k = floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && t->u[1] <= sure) return k;
    if (k < 0 || (us < 0.013 && t->u[1] > us)) continue;
    if (log(t->u[1] * inverse_alpha / (a / (us * us) + b)) <=
        k * log(rate) - rate - lgamma_r(k + 1, &sign)) {
      return k;
    }
  }
}

static double draw_poisson(tries *t, double rate) {
  if (!(rate >= 0) || isinf(rate)) return NAN;
  return rate < 10 ? poisson_small(t, rate) : poisson_large(t, rate);
}

/* --- loops ---------------------------------------------------------------- */

typedef struct reject {
  double (*draw)(tries *t, double parameter);
  tfd__view parameter; /* broadcast against the output */
  const tfd__view *out;
  tfd__philox stream;
  double least; /* no result is smaller */
} reject;

/* Elements from the first to element i, row-major. */
static int64_t offset_of(const tfd__view *v, int64_t i) {
  int64_t offset = 0;

  for (int d = v->rank - 1; d >= 0; d--) {
    offset += i % v->dims[d] * v->strides[d];
    i /= v->dims[d];
  }
  return offset;
}

static void draw_range(void *arg, int64_t begin, int64_t end) {
  const reject *r = arg;
  const tfd__view *p = &r->parameter;
  const size_t size = tfd__dtype_size(p->dtype);
  const size_t out_size = tfd__dtype_size(r->out->dtype);

  for (int64_t i = begin; i < end; i++) {
    tries t = {.stream = &r->stream, .block = (uint64_t)i << 8};
    const char *parameter =
        (const char *)p->data + offset_of(p, i) * (int64_t)size;
    double x = r->draw(&t, tfd__load(parameter, p->dtype));

    if (x < r->least) x = r->least;
    tfd__store((char *)r->out->data + (size_t)i * out_size, r->out->dtype, x);
  }
}

static int draw_all(const tfd__call *call,
                    double (*draw)(tries *t, double parameter), double least) {
  const tfd__view *out = tfd__out(call, 0);
  reject r = {.draw = draw,
              .parameter =
                  tfd__broadcast_view(tfd__in(call, 0), out->dims, out->rank),
              .out = out,
              .stream = tfd__philox_of(call->ints, TFD_LIST_AFTER),
              .least = least};

  tfd__parallel_for(out->numel, 256, draw_range, &r);
  return TFD_OK;
}

int tfd__cpu_stateless_gamma(const tfd__call *call) {
  /* Never 0, so that logarithms stay finite: the smallest normal number. */
  switch (tfd__out(call, 0)->dtype) {
  case TFD_FLOAT64:
    return draw_all(call, draw_gamma, 0x1p-1022);
  case TFD_FLOAT16:
    return draw_all(call, draw_gamma, 0x1p-14);
  default:
    return draw_all(call, draw_gamma, 0x1p-126);
  }
}

int tfd__cpu_stateless_poisson(const tfd__call *call) {
  return draw_all(call, draw_poisson, 0);
}
