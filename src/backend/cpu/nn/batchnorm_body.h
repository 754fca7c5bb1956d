/* Template: define NORM_T and NORM_ID(name). Statistics and application of
** batch normalisation for one float type. */

#include "backend/cpu/nn/norm_vec.h"

typedef struct NORM_ID(stat_job) {
  norm_shape d;
  const NORM_T *x;
  const NORM_T *dy;   /* gradients only */
  const NORM_T *mean; /* NULL: plain sums of x */
  NORM_T *part0;      /* [parts][channels] */
  NORM_T *part1;      /* sums of dy * (x - mean) */
} NORM_ID(stat_job);

/* Channels last: add rows [begin, end) to s0 and s1, a block of channels at a
** time so that the sums stay in the first-level cache. */
static inline __attribute__((always_inline)) void
NORM_ID(stat_block)(const NORM_ID(stat_job) * job, int64_t begin, int64_t end,
                    int64_t c0, int64_t n, NORM_T *s0, NORM_T *s1) {
  int64_t step = job->d.channels;
  const NORM_T *restrict x = job->x + begin * step + c0;
  const NORM_T *restrict dy = job->dy + begin * step + c0;
  NORM_T m[NORM_BLOCK] = {0};
  NORM_T a[NORM_BLOCK] = {0};
  NORM_T b[NORM_BLOCK] = {0};

  if (job->mean != NULL) memcpy(m, job->mean + c0, (size_t)n * sizeof *m);
  for (int64_t o = begin; o < end; o++, x += step, dy += step) {
    if (job->dy != NULL) {
      for (int64_t c = 0; c < n; c++) {
        a[c] += dy[c];
        b[c] += dy[c] * (x[c] - m[c]);
      }
    } else if (job->mean != NULL) {
      for (int64_t c = 0; c < n; c++) a[c] += (x[c] - m[c]) * (x[c] - m[c]);
    } else {
      for (int64_t c = 0; c < n; c++) a[c] += x[c];
    }
  }
  memcpy(s0 + c0, a, (size_t)n * sizeof *a);
  memcpy(s1 + c0, b, (size_t)n * sizeof *b);
}

static inline __attribute__((always_inline)) void
NORM_ID(stat_rows)(const NORM_ID(stat_job) * job, int64_t begin, int64_t end,
                   NORM_T *s0, NORM_T *s1) {
  for (int64_t c = 0; c < job->d.channels; c += NORM_BLOCK) {
    int64_t n = job->d.channels - c;

    /* The whole block's size is a constant for the compiler. */
    if (n >= NORM_BLOCK)
      NORM_ID(stat_block)(job, begin, end, c, NORM_BLOCK, s0, s1);
    else
      NORM_ID(stat_block)(job, begin, end, c, n, s0, s1);
  }
}

/* The same for one channel of one image, channels first. */
static inline __attribute__((always_inline)) void
NORM_ID(stat_plane)(const NORM_ID(stat_job) * job, int64_t plane, NORM_T *s0,
                    NORM_T *s1) {
  int64_t n = job->d.inner;
  const NORM_T *x = job->x + plane * n;
  const NORM_T *dy = job->dy != NULL ? job->dy + plane * n : NULL;
  bool square = job->mean != NULL;
  NORM_T m = square ? job->mean[plane % job->d.channels] : 0;
  NORM_ID(line) a = {0};
  NORM_ID(line) b = {0};
  double a_rest = 0;
  double b_rest = 0;
  int64_t i = 0;

  for (; i + NORM_ID(width) <= n; i += NORM_ID(width)) {
    _Pragma("GCC unroll 4") for (int p = 0; p < NORM_ID(parts); p++) {
      NORM_ID(vec) v = NORM_PART(x + i, p) - m;

      if (dy != NULL) {
        NORM_ID(vec) d = NORM_PART(dy + i, p);

        a.part[p] += d;
        b.part[p] += d * v;
      } else {
        a.part[p] += square ? v * v : v;
      }
    }
  }
  for (; i < n; i++) {
    double v = (double)(x[i] - m);

    a_rest += dy != NULL ? (double)dy[i] : square ? v * v : v;
    b_rest += dy != NULL ? (double)dy[i] * v : 0;
  }
  *s0 += (NORM_T)(NORM_ID(total)(&a) + a_rest);
  *s1 += (NORM_T)(NORM_ID(total)(&b) + b_rest);
}

TFD_CLONES static void NORM_ID(stat_parts)(void *arg, int64_t begin,
                                           int64_t end) {
  const NORM_ID(stat_job) *job = arg;
  int64_t parts = norm_parts(job->d.outer);
  int64_t n = job->d.channels;

  for (int64_t p = begin; p < end; p++) {
    NORM_T *s0 = job->part0 + p * n;
    NORM_T *s1 = job->part1 + p * n;
    int64_t first = p * job->d.outer / parts;
    int64_t last = (p + 1) * job->d.outer / parts;

    memset(s0, 0, (size_t)n * sizeof *s0);
    memset(s1, 0, (size_t)n * sizeof *s1);
    if (job->d.inner == 1) {
      NORM_ID(stat_rows)(job, first, last, s0, s1);
      continue;
    }
    for (int64_t plane = first * n; plane < last * n; plane++)
      NORM_ID(stat_plane)(job, plane, &s0[plane % n], &s1[plane % n]);
  }
}

/* Sums over everything but channels into sum0 and sum1 (may be NULL). */
static void NORM_ID(stat)(NORM_ID(stat_job) * job, double *sum0, double *sum1) {
  int64_t parts = norm_parts(job->d.outer);
  int64_t n = job->d.channels;
  int64_t work = 1 + job->d.outer / parts * n * job->d.inner;

  tfd__parallel_for(parts, 1 + TFD_GRAIN / work, NORM_ID(stat_parts), job);
  for (int64_t c = 0; c < n; c++) {
    sum0[c] = 0;
    for (int64_t p = 0; p < parts; p++)
      sum0[c] += (double)job->part0[p * n + c];
    if (sum1 == NULL) continue;
    sum1[c] = 0;
    for (int64_t p = 0; p < parts; p++)
      sum1[c] += (double)job->part1[p * n + c];
  }
}

/* out = (x - mean) * b + d, plus dy * a for gradients. */
typedef struct NORM_ID(apply_job) {
  norm_shape d;
  const NORM_T *x;
  const NORM_T *dy;
  const NORM_T *mean;
  const NORM_T *a;
  const NORM_T *b;
  const NORM_T *c;
  NORM_T *out;
} NORM_ID(apply_job);

static inline __attribute__((always_inline)) void
NORM_ID(apply_row)(const NORM_ID(apply_job) * job, int64_t o) {
  int64_t n = job->d.channels;
  const NORM_T *restrict x = job->x + o * n;
  const NORM_T *restrict m = job->mean;
  const NORM_T *restrict a = job->a;
  const NORM_T *restrict b = job->b;
  const NORM_T *restrict d = job->c;
  NORM_T *restrict out = job->out + o * n;

  if (job->dy != NULL) {
    const NORM_T *restrict dy = job->dy + o * n;

    for (int64_t c = 0; c < n; c++)
      out[c] = dy[c] * a[c] + (x[c] - m[c]) * b[c] + d[c];
  } else {
    for (int64_t c = 0; c < n; c++) out[c] = (x[c] - m[c]) * b[c] + d[c];
  }
}

static inline __attribute__((always_inline)) void
NORM_ID(apply_plane)(const NORM_ID(apply_job) * job, int64_t plane) {
  int64_t n = job->d.inner;
  int64_t channel = plane % job->d.channels;
  const NORM_T *restrict x = job->x + plane * n;
  NORM_T m = job->mean[channel];
  NORM_T b = job->b[channel];
  NORM_T c = job->c[channel];
  NORM_T *restrict out = job->out + plane * n;

  if (job->dy != NULL) {
    const NORM_T *restrict dy = job->dy + plane * n;
    NORM_T a = job->a[channel];

    for (int64_t i = 0; i < n; i++) out[i] = dy[i] * a + (x[i] - m) * b + c;
  } else {
    for (int64_t i = 0; i < n; i++) out[i] = (x[i] - m) * b + c;
  }
}

TFD_CLONES static void NORM_ID(apply)(void *arg, int64_t begin, int64_t end) {
  const NORM_ID(apply_job) *job = arg;

  for (int64_t o = begin; o < end; o++) {
    if (job->d.inner == 1) {
      NORM_ID(apply_row)(job, o);
      continue;
    }
    for (int64_t c = 0; c < job->d.channels; c++)
      NORM_ID(apply_plane)(job, o * job->d.channels + c);
  }
}

static void NORM_ID(apply_all)(NORM_ID(apply_job) * job) {
  int64_t work = job->d.channels * job->d.inner;

  tfd__parallel_for(job->d.outer, 1 + TFD_GRAIN / work, NORM_ID(apply), job);
}

/* Scratch of one call: per-channel numbers and the parts of sums. */
typedef struct NORM_ID(space) {
  NORM_T *part0;
  NORM_T *part1;
  double *sum0;
  double *sum1;
  NORM_T *a;
  NORM_T *b;
  NORM_T *c;
} NORM_ID(space);

static int NORM_ID(space_get)(const norm_shape *d, NORM_ID(space) * s) {
  int64_t n = d->channels;
  int64_t parts = norm_parts(d->outer);
  NORM_T *p = tfd__scratch((size_t)((2 * parts + 3) * n) * sizeof *p);

  s->sum0 = tfd__scratch((size_t)(2 * n) * sizeof *s->sum0);
  if (p == NULL || s->sum0 == NULL) return TFD_RESOURCE_EXHAUSTED;
  s->sum1 = s->sum0 + n;
  s->part0 = p;
  s->part1 = p + parts * n;
  s->a = p + 2 * parts * n;
  s->b = s->a + n;
  s->c = s->b + n;
  return TFD_OK;
}

/* Channel c's outputs from its mean and the sum of squared deviations.
** saved = {mean, 1 / sqrt(variance + epsilon)}; the results blend with the
** running values when the factor is not 1. */
static void NORM_ID(finish)(const tfd__call *call, const norm_shape *d,
                            NORM_ID(space) * s, int64_t c) {
  double factor = call->reals[1];
  double count = (double)(d->outer * d->inner);
  const NORM_T *old_mean = tfd__in(call, 3)->data;
  const NORM_T *old_variance = tfd__in(call, 4)->data;
  NORM_T *mean = tfd__out(call, 1)->data;
  NORM_T *variance = tfd__out(call, 2)->data;
  NORM_T *saved = tfd__out(call, 3)->data;
  double m = (double)saved[c];
  double v = s->sum0[c] / count;
  /* TensorFlow's running variance is unbiased, Keras' is not. */
  double wide = call->ints[2] != 0 && count > 1 ? s->sum0[c] / (count - 1) : v;

  if (call->ints[1] == 0) {
    m = (double)old_mean[c];
    v = wide = (double)old_variance[c];
  } else if (count <= 0) {
    m = v = wide = (double)NAN;
  }
  saved[c] = (NORM_T)m;
  saved[d->channels + c] = (NORM_T)(1 / sqrt(v + call->reals[0]));
  if (call->ints[1] != 0 && factor < 1) {
    m = m * factor + (double)old_mean[c] * (1 - factor);
    wide = wide * factor + (double)old_variance[c] * (1 - factor);
  }
  mean[c] = (NORM_T)m;
  variance[c] = (NORM_T)wide;
}

static int NORM_ID(batch_forward)(const tfd__call *call, const norm_shape *d) {
  const NORM_T *scale = tfd__in(call, 1)->data;
  const NORM_T *offset = tfd__in(call, 2)->data;
  NORM_T *saved = tfd__out(call, 3)->data;
  NORM_ID(space) s;
  NORM_ID(stat_job) stat = {.d = *d, .x = tfd__in(call, 0)->data};
  NORM_ID(apply_job)
  apply = {.d = *d, .x = stat.x, .mean = saved, .out = tfd__out(call, 0)->data};

  TFD_TRY(NORM_ID(space_get)(d, &s));
  stat.part0 = s.part0;
  stat.part1 = s.part1;
  if (call->ints[1] != 0 && tfd__in(call, 0)->numel > 0) {
    NORM_ID(stat)(&stat, s.sum0, NULL);
    for (int64_t c = 0; c < d->channels; c++)
      saved[c] = (NORM_T)(s.sum0[c] / (double)(d->outer * d->inner));
    stat.mean = saved;
    NORM_ID(stat)(&stat, s.sum0, NULL);
  }
  for (int64_t c = 0; c < d->channels; c++) {
    NORM_ID(finish)(call, d, &s, c);
    s.b[c] = saved[d->channels + c] * scale[c];
    s.c[c] = offset[c];
  }
  apply.b = s.b;
  apply.c = s.c;
  if (tfd__in(call, 0)->numel > 0) NORM_ID(apply_all)(&apply);
  return TFD_OK;
}

/* dx of training: scale * inv * (dy - mean(dy) - xhat * mean(dy * xhat)). */
static int NORM_ID(batch_backward)(const tfd__call *call, const norm_shape *d) {
  bool training = call->ints[1] != 0;
  double count = (double)(d->outer * d->inner);
  const NORM_T *scale = tfd__in(call, 2)->data;
  const NORM_T *saved = tfd__in(call, 3)->data;
  const NORM_T *inv = saved + d->channels;
  NORM_T *dscale = tfd__out(call, 1)->data;
  NORM_T *doffset = tfd__out(call, 2)->data;
  NORM_ID(space) s;
  NORM_ID(stat_job)
  stat = {.d = *d,
          .x = tfd__in(call, 1)->data,
          .dy = tfd__in(call, 0)->data,
          .mean = saved};
  NORM_ID(apply_job)
  apply = {.d = *d,
           .x = stat.x,
           .dy = stat.dy,
           .mean = saved,
           .out = tfd__out(call, 0)->data};

  TFD_TRY(NORM_ID(space_get)(d, &s));
  stat.part0 = s.part0;
  stat.part1 = s.part1;
  NORM_ID(stat)(&stat, s.sum0, s.sum1);
  for (int64_t c = 0; c < d->channels; c++) {
    double i = (double)inv[c];
    double a = (double)scale[c] * i;

    dscale[c] = (NORM_T)(s.sum1[c] * i);
    doffset[c] = (NORM_T)s.sum0[c];
    s.a[c] = (NORM_T)a;
    s.b[c] = training ? (NORM_T)(-a * s.sum1[c] * i * i / count) : 0;
    s.c[c] = training ? (NORM_T)(-a * s.sum0[c] / count) : 0;
  }
  apply.a = s.a;
  apply.b = s.b;
  apply.c = s.c;
  NORM_ID(apply_all)(&apply);
  return TFD_OK;
}
