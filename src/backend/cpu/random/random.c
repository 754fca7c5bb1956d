/* Kernels that draw numbers. Element i of a result depends on the stream and i
** only: work is done in spans of fixed size at fixed places, so neither the
** number of threads nor the cut of the range can change a bit. (The build fuses
** no multiply-add either, so that all machines draw the same numbers.) */
#include "backend/cpu/random/random.h"

#include <math.h>

#include "backend/cpu/loops.h"
#include "backend/cpu/elementwise/vmath.h"

/* --- spans ---------------------------------------------------------------- */

/* Words an element takes: one, or two for 8-byte elements. */
static int words_of(int dtype) {
  return tfd__dtype_size(dtype) == 8 ? 2 : 1;
}

typedef struct fill {
  const tfd__draw *draw;
  char *out;
  int64_t n;
  int64_t span; /* elements made from TFD_PHILOX_WORDS words */
} fill;

/* Make spans begin .. end-1; the last of all may be cut short. */
static void fill_spans(void *arg, int64_t begin, int64_t end) {
  const fill *f = arg;
  const tfd__draw *d = f->draw;
  const size_t size = tfd__dtype_size(d->dtype);
  uint32_t words[TFD_PHILOX_WORDS];
  double made[TFD_PHILOX_WORDS]; /* room for the widest span */
  uint16_t half[TFD_PHILOX_WORDS];

  for (int64_t s = begin; s < end; s++) {
    int64_t first = s * f->span;
    int64_t n = f->n - first < f->span ? f->n - first : f->span;
    const void *from = made;

    tfd__philox_bulk(&d->stream, (uint64_t)s * TFD_PHILOX_BLOCKS, words);
    d->make(d, words, made);
    if (tfd__is_half(d->dtype)) {
      tfd__floats_to_halves(d->dtype, half, (const float *)(void *)made,
                            f->span);
      from = half;
    }
    memcpy(f->out + (size_t)first * size, from, (size_t)n * size);
  }
}

int tfd__draw_fill(const tfd__draw *d, const tfd__view *out) {
  fill f = {.draw = d, .out = out->data, .n = out->numel};

  f.span = TFD_PHILOX_WORDS / d->words;
  tfd__parallel_for((f.n + f.span - 1) / f.span, TFD_GRAIN / f.span / 4,
                    fill_spans, &f);
  return TFD_OK;
}

/* --- uniform reals -------------------------------------------------------- */

enum { SPAN = TFD_PHILOX_WORDS, SPAN2 = TFD_PHILOX_WORDS / 2 };

/* 53 bits of words 2i and 2i + 1, in [0, 2^53). */
static inline uint64_t bits53(const uint32_t *words, int i) {
  return ((uint64_t)words[2 * i + 1] << 32 | words[2 * i]) >> 11;
}

TFD_CLONES static void uniform_f32(const tfd__draw *d, const uint32_t *words,
                                   void *out) {
  const int shift = 32 - tfd__uniform_bits(d->dtype);
  const float unit = 1.0f / (float)(1 << tfd__uniform_bits(d->dtype));
  const float low = (float)d->a;
  const float top = (float)d->top;
  const float width = (float)(d->b - d->a);
  float *to = out;

  for (int i = 0; i < SPAN; i++) {
    float u = (float)(int32_t)(words[i] >> shift) * unit;
    float x = low + u * width;

    to[i] = x < top ? x : top;
  }
}

static void uniform_f64(const tfd__draw *d, const uint32_t *words, void *out) {
  double *to = out;

  for (int i = 0; i < SPAN2; i++) {
    double u = (double)(int64_t)bits53(words, i) * 0x1p-53;
    double x = d->a + u * (d->b - d->a);

    to[i] = x < d->top ? x : d->top;
  }
}

int tfd__cpu_stateless_uniform(const tfd__call *call) {
  int dtype = tfd__out(call, 0)->dtype;
  tfd__uniform r = tfd__uniform_of(dtype, call->reals[0], call->reals[1]);
  tfd__draw d = {.stream = tfd__philox_of(call->ints, TFD_LIST_AFTER),
                 .dtype = dtype,
                 .words = words_of(dtype),
                 .a = r.low,
                 .b = r.high,
                 .top = r.top};

  d.make = dtype == TFD_FLOAT64 ? uniform_f64 : uniform_f32;
  return tfd__draw_fill(&d, tfd__out(call, 0));
}

/* A distribution by mean and deviation: `wide` makes float64. */
static int draw_reals(const tfd__call *call, tfd__draw_fn make,
                      tfd__draw_fn wide) {
  int dtype = tfd__out(call, 0)->dtype;
  tfd__draw d = {.make = dtype == TFD_FLOAT64 ? wide : make,
                 .stream = tfd__philox_of(call->ints, TFD_LIST_AFTER),
                 .dtype = dtype,
                 .words = words_of(dtype),
                 .a = call->reals[0],
                 .b = call->reals[1]};

  return tfd__draw_fill(&d, tfd__out(call, 0));
}

/* --- normal --------------------------------------------------------------- */

/* Box and Muller: words 2i, 2i + 1 make elements 2i, 2i + 1. The radius uses
** 31 bits, which bounds results by 6.7 standard deviations; the angle is
** reduced in integers, exactly. */
TFD_CLONES static void normal_f32(const tfd__draw *d, const uint32_t *words,
                                  void *out) {
  const float mean = (float)d->a;
  const float scale = (float)d->b;
  float *to = out;

  for (int i = 0; i < SPAN2; i++) {
    float u = (float)(int32_t)(words[2 * i] >> 1) * 0x1p-31f + 0x1p-32f;
    float radius = sqrtf(-2.0f * tfd__log_normal(u, 0.0f)) * scale;
    uint32_t turn = words[2 * i + 1];
    uint32_t quadrant = (turn + 0x20000000u) >> 30;
    float angle = (float)(int32_t)(turn - (quadrant << 30)) *
                  1.46291807926715968e-9f; /* 2 pi / 2^32 */
    float s = tfd__sin_poly(angle);
    float c = tfd__cos_poly(angle);
    float x = (quadrant & 1) != 0 ? s : c;
    float y = (quadrant & 1) != 0 ? c : s;

    x = ((quadrant + 1) & 2) != 0 ? -x : x;
    y = (quadrant & 2) != 0 ? -y : y;
    to[2 * i] = mean + radius * x;
    to[2 * i + 1] = mean + radius * y;
  }
}

static void normal_f64(const tfd__draw *d, const uint32_t *words, void *out) {
  double *to = out;

  for (int i = 0; i < SPAN2; i += 2) {
    double u = ((double)(int64_t)bits53(words, i) + 0.5) * 0x1p-53;
    double angle = (double)(int64_t)bits53(words, i + 1) * (2 * M_PI * 0x1p-53);
    double radius = sqrt(-2 * log(u)) * d->b;

    to[i] = d->a + radius * cos(angle);
    to[i + 1] = d->a + radius * sin(angle);
  }
}

int tfd__cpu_stateless_normal(const tfd__call *call) {
  return draw_reals(call, normal_f32, normal_f64);
}

/* --- normal cut at two standard deviations -------------------------------- */

#define ERF_SQRT2 0.95449973610364158560 /* probability within the bounds */

/* sqrt(2) erfinv(x) for |x| <= 0.9545: the inverse distribution needs no
** rejection, so every element takes one word.
** Source: M. Giles, "Approximating the erfinv function", 2010. */
TFD_INLINE float normal_quantile(float x) {
  float w = -tfd__log_normal((1.0f - x) * (1.0f + x), 0.0f) - 2.5f;
  float p = 2.81022636e-08f;

  p = 3.43273939e-07f + p * w;
  p = -3.5233877e-06f + p * w;
  p = -4.39150654e-06f + p * w;
  p = 0.00021858087f + p * w;
  p = -0.00125372503f + p * w;
  p = -0.00417768164f + p * w;
  p = 0.246640727f + p * w;
  p = 1.50140941f + p * w;
  return 1.41421356237f * p * x;
}

TFD_CLONES static void truncated_f32(const tfd__draw *d, const uint32_t *words,
                                     void *out) {
  const float mean = (float)d->a;
  const float scale = (float)d->b;
  float *to = out;

  for (int i = 0; i < SPAN; i++) {
    /* odd multiples of 2^-23 in (-1, 1) */
    float u = (float)((int32_t)(words[i] >> 8 | 1) - 0x800000) * 0x1p-23f;
    float z = normal_quantile(u * (float)ERF_SQRT2);

    z = z < 2.0f ? z : 2.0f;
    z = z > -2.0f ? z : -2.0f;
    to[i] = mean + scale * z;
  }
}

static void truncated_f64(const tfd__draw *d, const uint32_t *words,
                          void *out) {
  double *to = out;

  for (int i = 0; i < SPAN2; i++) {
    double u = ((double)(int64_t)bits53(words, i) + 0.5) * 0x1p-52 - 1;
    double p = u * ERF_SQRT2;
    double z = (double)normal_quantile((float)p) * M_SQRT1_2;
    /* One step of Halley's method triples the digits. */
    double e = (erf(z) - p) / (M_2_SQRTPI * exp(-z * z));

    z = M_SQRT2 * (z - e / (1 + z * e));
    z = z < 2 ? z : 2;
    z = z > -2 ? z : -2;
    to[i] = d->a + d->b * z;
  }
}

int tfd__cpu_stateless_truncated_normal(const tfd__call *call) {
  return draw_reals(call, truncated_f32, truncated_f64);
}

/* --- whole numbers -------------------------------------------------------- */

/* Two words make 64 bits whose product with the range, shifted down, is the
** result: every value's probability is right to range / 2^64. range 0 stands
** for 2^64. */
static inline uint64_t whole(const tfd__draw *d, const uint32_t *words, int i) {
  uint64_t bits = (uint64_t)words[2 * i + 1] << 32 | words[2 * i];

  if (d->range == 0) return bits;
  return d->low + (uint64_t)(((__uint128_t)bits * d->range) >> 64);
}

#define WHOLE(name, type)                                                  \
  static void name(const tfd__draw *d, const uint32_t *words, void *out) { \
    type *to = out;                                                        \
    for (int i = 0; i < SPAN2; i++) to[i] = (type)whole(d, words, i);      \
  }
WHOLE(whole_8, uint8_t)
WHOLE(whole_16, uint16_t)
WHOLE(whole_32, uint32_t)
WHOLE(whole_64, uint64_t)

int tfd__cpu_stateless_uniform_int(const tfd__call *call) {
  const int64_t *ints = call->ints + TFD_LIST_AFTER + TFD_STREAM_SLOTS;
  int dtype = tfd__out(call, 0)->dtype;
  tfd__draw d = {.stream = tfd__philox_of(call->ints, TFD_LIST_AFTER),
                 .dtype = dtype,
                 .words = 2,
                 .low = (uint64_t)ints[0],
                 .range = (uint64_t)ints[1] - (uint64_t)ints[0]};

  if (ints[2] != 0) d.range = 0;
  switch (tfd__dtype_size(dtype)) {
  case 1:
    d.make = whole_8;
    break;
  case 2:
    d.make = whole_16;
    break;
  case 4:
    d.make = whole_32;
    break;
  default:
    d.make = whole_64;
    break;
  }
  return tfd__draw_fill(&d, tfd__out(call, 0));
}
