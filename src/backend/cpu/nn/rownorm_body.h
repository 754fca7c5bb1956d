/* Template: define NORM_T and NORM_ID(name). Normalisation of rows: each
** (sample, group) has its own mean and deviation. */

#include "backend/cpu/nn/norm_vec.h"

typedef struct NORM_ID(row_job) {
  row_shape d;
  const NORM_T *x;
  const NORM_T *dy;    /* gradients only */
  const NORM_T *scale; /* NULL: ones */
  const NORM_T *offset;
  const NORM_T *mean; /* gradients: input */
  const NORM_T *inv;
  NORM_T *mean_out;
  NORM_T *inv_out;
  NORM_T *out;
  NORM_T *part0; /* [parts][channels]: sums of dy */
  NORM_T *part1; /* sums of dy * xhat */
  double epsilon;
} NORM_ID(row_job);

/* Where segment `s` of row (sample, group) starts. */
static inline int64_t NORM_ID(segment)(const row_shape *d, int64_t row,
                                       int64_t s) {
  int64_t sample = row / d->groups;
  int64_t group = row % d->groups;

  return sample * d->sample + group * d->group_step + s * d->segment_step;
}

/* Index of scale for the first element of segment s; it moves with the
** elements unless `per_segment`. */
static inline int64_t NORM_ID(channel)(const row_shape *d, int64_t row,
                                       int64_t s) {
  return row % d->groups * d->width + (d->per_segment ? s : 0);
}

/* Sum of (x - shift)^power over n elements. */
static inline __attribute__((always_inline)) double
NORM_ID(moment)(const NORM_T *x, int64_t n, NORM_T shift, bool square) {
  NORM_ID(line) a = {0};
  double sum = 0;
  int64_t i = 0;

  for (; i + NORM_ID(width) <= n; i += NORM_ID(width)) {
    _Pragma("GCC unroll 4") for (int p = 0; p < NORM_ID(parts); p++) {
      NORM_ID(vec) v = NORM_PART(x + i, p) - shift;

      a.part[p] += square ? v * v : v;
    }
  }
  for (; i < n; i++) {
    double v = (double)(x[i] - shift);

    sum += square ? v * v : v;
  }
  return sum + NORM_ID(total)(&a);
}

static inline __attribute__((always_inline)) void
NORM_ID(forward_row)(const NORM_ID(row_job) * job, int64_t row) {
  const row_shape *d = &job->d;
  double count = (double)(d->segments * d->length);
  double sum = 0;
  NORM_T m = 0;
  NORM_T inv = 0;

  for (int64_t s = 0; s < d->segments; s++)
    sum += NORM_ID(moment)(job->x + NORM_ID(segment)(d, row, s), d->length, 0,
                           false);
  m = (NORM_T)(sum / count);
  sum = 0;
  for (int64_t s = 0; s < d->segments; s++)
    sum += NORM_ID(moment)(job->x + NORM_ID(segment)(d, row, s), d->length, m,
                           true);
  inv = (NORM_T)(1 / sqrt(sum / count + job->epsilon));
  job->mean_out[row] = m;
  job->inv_out[row] = inv;
  for (int64_t s = 0; s < d->segments; s++) {
    int64_t at = NORM_ID(segment)(d, row, s);
    int64_t c = NORM_ID(channel)(d, row, s);
    const NORM_T *restrict x = job->x + at;
    NORM_T *restrict out = job->out + at;
    const NORM_T *restrict g = job->scale != NULL ? job->scale + c : NULL;
    const NORM_T *restrict b = job->offset != NULL ? job->offset + c : NULL;

    for (int64_t i = 0; i < d->length; i++) out[i] = (x[i] - m) * inv;
    if (g != NULL && d->per_segment)
      for (int64_t i = 0; i < d->length; i++) out[i] *= g[0];
    else if (g != NULL)
      for (int64_t i = 0; i < d->length; i++) out[i] *= g[i];
    if (b != NULL && d->per_segment)
      for (int64_t i = 0; i < d->length; i++) out[i] += b[0];
    else if (b != NULL)
      for (int64_t i = 0; i < d->length; i++) out[i] += b[i];
  }
}

TFD_CLONES static void NORM_ID(forward_rows)(void *arg, int64_t begin,
                                             int64_t end) {
  for (int64_t row = begin; row < end; row++) NORM_ID(forward_row)(arg, row);
}

/* Add the sums of dy * g and dy * g * (x - m) over n elements; g may be NULL.
 */
static inline __attribute__((always_inline)) void
NORM_ID(weighted_sums)(const NORM_T *x, const NORM_T *dy, const NORM_T *g,
                       NORM_T m, int64_t n, double *s0, double *s1) {
  NORM_ID(line) a = {0};
  NORM_ID(line) b = {0};
  int64_t i = 0;

  for (; i + NORM_ID(width) <= n; i += NORM_ID(width)) {
    _Pragma("GCC unroll 4") for (int p = 0; p < NORM_ID(parts); p++) {
      NORM_ID(vec) v = NORM_PART(dy + i, p);

      if (g != NULL) v *= NORM_PART(g + i, p);
      a.part[p] += v;
      b.part[p] += v * (NORM_PART(x + i, p) - m);
    }
  }
  *s0 += NORM_ID(total)(&a);
  *s1 += NORM_ID(total)(&b);
  for (; i < n; i++) {
    double v = (double)(g != NULL ? dy[i] * g[i] : dy[i]);

    *s0 += v;
    *s1 += v * (double)(x[i] - m);
  }
}

/* Sums of dy * scale and dy * scale * (x - mean) over one segment. */
static inline __attribute__((always_inline)) void
NORM_ID(grad_moments)(const NORM_ID(row_job) * job, int64_t row, int64_t s,
                      double *s0, double *s1) {
  const row_shape *d = &job->d;
  int64_t at = NORM_ID(segment)(d, row, s);
  const NORM_T *g =
      job->scale != NULL ? job->scale + NORM_ID(channel)(d, row, s) : NULL;
  bool one = g != NULL && d->per_segment;
  double a = 0;
  double b = 0;

  NORM_ID(weighted_sums)
  (job->x + at, job->dy + at, one ? NULL : g, job->mean[row], d->length, &a,
   &b);
  *s0 += one ? a * (double)g[0] : a;
  *s1 += one ? b * (double)g[0] : b;
}

static inline __attribute__((always_inline)) void
NORM_ID(backward_row)(const NORM_ID(row_job) * job, int64_t row) {
  const row_shape *d = &job->d;
  double count = (double)(d->segments * d->length);
  double s0 = 0;
  double s1 = 0;
  double inv = (double)job->inv[row];
  NORM_T m = job->mean[row];
  NORM_T a = job->inv[row];
  NORM_T b = 0;
  NORM_T c = 0;

  for (int64_t s = 0; s < d->segments; s++)
    NORM_ID(grad_moments)(job, row, s, &s0, &s1);
  b = (NORM_T)(-inv * inv * inv * s1 / count);
  c = (NORM_T)(-inv * s0 / count);
  for (int64_t s = 0; s < d->segments; s++) {
    int64_t at = NORM_ID(segment)(d, row, s);
    const NORM_T *restrict x = job->x + at;
    const NORM_T *restrict dy = job->dy + at;
    const NORM_T *restrict g =
        job->scale != NULL ? job->scale + NORM_ID(channel)(d, row, s) : NULL;
    NORM_T *restrict out = job->out + at;

    if (g == NULL || d->per_segment) {
      NORM_T w = g == NULL ? a : a * g[0];

      for (int64_t i = 0; i < d->length; i++)
        out[i] = dy[i] * w + ((x[i] - m) * b + c);
    } else {
      for (int64_t i = 0; i < d->length; i++)
        out[i] = dy[i] * a * g[i] + ((x[i] - m) * b + c);
    }
  }
}

/* One segment's share of the gradients of scale and offset. */
static inline __attribute__((always_inline)) void
NORM_ID(weigh_segment)(const NORM_ID(row_job) * job, int64_t row, int64_t s,
                       NORM_T *restrict s0, NORM_T *restrict s1) {
  const row_shape *d = &job->d;
  int64_t at = NORM_ID(segment)(d, row, s);
  int64_t c = NORM_ID(channel)(d, row, s);
  const NORM_T *restrict x = job->x + at;
  const NORM_T *restrict dy = job->dy + at;
  NORM_T m = job->mean[row];
  NORM_T inv = job->inv[row];
  double a = 0;
  double b = 0;

  if (!d->per_segment) {
    for (int64_t i = 0; i < d->length; i++) {
      s0[c + i] += dy[i];
      s1[c + i] += dy[i] * (x[i] - m) * inv;
    }
    return;
  }
  NORM_ID(weighted_sums)(x, dy, NULL, m, d->length, &a, &b);
  s0[c] += (NORM_T)a;
  s1[c] += (NORM_T)(b * (double)inv);
}

/* Each row's three passes follow one another while it is in the cache. */
TFD_CLONES static void NORM_ID(backward_parts)(void *arg, int64_t begin,
                                               int64_t end) {
  const NORM_ID(row_job) *job = arg;
  const row_shape *d = &job->d;
  int64_t parts = norm_parts(d->samples);
  int64_t channels = d->groups * d->width;

  for (int64_t p = begin; p < end; p++) {
    NORM_T *s0 = job->part0 + p * channels;
    NORM_T *s1 = job->part1 + p * channels;
    int64_t last = (p + 1) * d->samples / parts * d->groups;

    memset(s0, 0, (size_t)channels * sizeof *s0);
    memset(s1, 0, (size_t)channels * sizeof *s1);
    for (int64_t r = p * d->samples / parts * d->groups; r < last; r++) {
      NORM_ID(backward_row)(job, r);
      for (int64_t s = 0; s < d->segments; s++)
        NORM_ID(weigh_segment)(job, r, s, s0, s1);
    }
  }
}

/* All gradients; scratch for the parts of those of scale and offset. */
static int NORM_ID(backward_all)(NORM_ID(row_job) * job, NORM_T *dscale,
                                 NORM_T *doffset) {
  int64_t parts = norm_parts(job->d.samples);
  int64_t n = job->d.groups * job->d.width;
  int64_t work = 1 + job->d.samples / parts * job->d.sample;

  job->part0 = tfd__scratch((size_t)(2 * parts * n) * sizeof(NORM_T));
  if (job->part0 == NULL) return TFD_RESOURCE_EXHAUSTED;
  job->part1 = job->part0 + parts * n;
  tfd__parallel_for(parts, 1 + TFD_GRAIN / work, NORM_ID(backward_parts), job);
  for (int64_t c = 0; c < n; c++) {
    double a = 0;
    double b = 0;

    for (int64_t p = 0; p < parts; p++) {
      a += (double)job->part0[p * n + c];
      b += (double)job->part1[p * n + c];
    }
    doffset[c] = (NORM_T)a;
    dscale[c] = (NORM_T)b;
  }
  return TFD_OK;
}

static int NORM_ID(row_forward)(const tfd__call *call, const row_shape *d) {
  int64_t work = d->segments * d->length;
  NORM_ID(row_job)
  job = {.d = *d,
         .x = tfd__in(call, 0)->data,
         .scale = tfd__in(call, 1)->data,
         .offset = tfd__in(call, 2)->data,
         .mean_out = tfd__out(call, 1)->data,
         .inv_out = tfd__out(call, 2)->data,
         .out = tfd__out(call, 0)->data,
         .epsilon = call->reals[0]};

  tfd__parallel_for(d->samples * d->groups, 1 + TFD_GRAIN / work,
                    NORM_ID(forward_rows), &job);
  return TFD_OK;
}

static int NORM_ID(row_backward)(const tfd__call *call, const row_shape *d) {
  NORM_ID(row_job)
  job = {.d = *d,
         .dy = tfd__in(call, 0)->data,
         .x = tfd__in(call, 1)->data,
         .mean = tfd__in(call, 2)->data,
         .inv = tfd__in(call, 3)->data,
         .scale = tfd__in(call, 4)->data,
         .out = tfd__out(call, 0)->data};

  return NORM_ID(backward_all)(&job, tfd__out(call, 1)->data,
                               tfd__out(call, 2)->data);
}
