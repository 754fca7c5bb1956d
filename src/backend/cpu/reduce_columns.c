/* Reductions down columns: the kept axis is contiguous, so whole rows are
** combined into a tile of accumulators. Four rows at a time, to load and store
** the accumulators less often. Sums move to float64 after BATCH rows, so the
** error does not grow with the number of rows. */
#include "backend/cpu/reduce.h"

#include <math.h>
#include <string.h>

#define TILE 256  /* columns: the accumulators stay in L1 */
#define BATCH 64  /* rows summed in the compute type */
#define PART 1024 /* rows that one task takes */

typedef struct job {
  const tfd__reduction *p;
  const tfd__view *out;
  tfd__column_op op;
  int64_t width; /* columns of one group: the innermost kept axis */
  int64_t tiles; /* for each group */
  int64_t parts; /* tasks for each tile */
  double *partial; /* [groups][parts][width], sums only */
} job;

/* acc[c] = combination of acc[c] and the four rows' element c. */
#define COMBINE(name, type, expr)                                              \
  TFD_CLONES static void name(type *acc, const type *const *rows, int64_t n) { \
    const type *r0 = rows[0];                                                  \
    const type *r1 = rows[1];                                                  \
    const type *r2 = rows[2];                                                  \
    const type *r3 = rows[3];                                                  \
    TFD_IVDEP                                                                  \
    for (int64_t i = 0; i < n; i++) {                                          \
      const type a = acc[i];                                                   \
      const type x = r0[i];                                                    \
      const type y = r1[i];                                                    \
      const type z = r2[i];                                                    \
      const type w = r3[i];                                                    \
      acc[i] = expr;                                                           \
    }                                                                          \
  }
/* A NaN wins. */
#define MAX2(a, b) ((a) >= (b) || (a) != (a) ? (a) : (b))
#define MIN2(a, b) ((a) <= (b) || (a) != (a) ? (a) : (b))
#define BIG(m) m(a, m(m(x, y), m(z, w)))
COMBINE(sum4_f32, float, a + ((x + y) + (z + w)))
COMBINE(sum4_f64, double, a + ((x + y) + (z + w)))
COMBINE(max4_f32, float, BIG(MAX2))
COMBINE(max4_f64, double, BIG(MAX2))
COMBINE(min4_f32, float, BIG(MIN2))
COMBINE(min4_f64, double, BIG(MIN2))

typedef struct tile {
  _Alignas(64) double acc[TILE]; /* floats or doubles */
  _Alignas(64) double sum[TILE];
  _Alignas(64) double lost[TILE];
  _Alignas(64) float rows[4][TILE];
  _Alignas(64) double neutral[TILE];
} tile;

static void fill_as(const job *j, double *to, double value) {
  if (j->p->dtype == TFD_FLOAT64) {
    for (int i = 0; i < TILE; i++) to[i] = value;
    return;
  }
  for (int i = 0; i < TILE; i++) ((float *)to)[i] = (float)value;
}

static double neutral_of(tfd__column_op op) {
  return op == TFD_COLUMN_MAX   ? -(double)INFINITY
         : op == TFD_COLUMN_MIN ? (double)INFINITY
                                : 0.0;
}

static void combine(const job *j, tile *t, const void *const *rows,
                    int64_t n) {
  bool wide = j->p->dtype == TFD_FLOAT64;
  const float *const *r32 = (const float *const *)rows;
  const double *const *r64 = (const double *const *)rows;

  switch (j->op) {
    case TFD_COLUMN_MAX:
      if (wide) max4_f64(t->acc, r64, n);
      else max4_f32((float *)t->acc, r32, n);
      break;
    case TFD_COLUMN_MIN:
      if (wide) min4_f64(t->acc, r64, n);
      else min4_f32((float *)t->acc, r32, n);
      break;
    default:
      if (wide) sum4_f64(t->acc, r64, n);
      else sum4_f32((float *)t->acc, r32, n);
      break;
  }
}

static double acc_at(const job *j, const tile *t, int64_t i) {
  return j->p->dtype == TFD_FLOAT64 ? t->acc[i]
                                    : (double)((const float *)t->acc)[i];
}

/* Move the accumulators into the float64 sums and clear them. */
static void flush(const job *j, tile *t, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double v = acc_at(j, t, i);
    double s = t->sum[i] + v;
    double u = s - t->sum[i];

    t->lost[i] += (t->sum[i] - (s - u)) + (v - u);
    t->sum[i] = s;
  }
  fill_as(j, t->acc, 0.0);
}

/* Rows first .. last of n columns that start at `data`. */
static void run_rows(const job *j, tile *t, const char *data, int64_t first,
                     int64_t last, int64_t n) {
  const tfd__reduction *p = j->p;
  bool sums = j->op == TFD_COLUMN_SUM || j->op == TFD_COLUMN_MEAN;

  for (int64_t r = first; r < last; r += 4) {
    const void *rows[4] = {t->neutral, t->neutral, t->neutral, t->neutral};

    for (int k = 0; k < 4 && r + k < last; k++) {
      int64_t offset =
          tfd__reduction_offset(p->red_n, p->red_dims, p->red_strides, r + k);

      rows[k] = data + offset * (int64_t)p->size;
      if (!tfd__is_half(p->dtype)) continue;
      tfd__halves_to_floats(p->dtype, t->rows[k], rows[k], n);
      rows[k] = t->rows[k];
    }
    combine(j, t, rows, n);
    if (sums && (r + 4 - first) % BATCH == 0) flush(j, t, n);
  }
  if (sums) flush(j, t, n);
}

static double finished(const job *j, const tile *t, int64_t i) {
  if (j->op == TFD_COLUMN_MAX || j->op == TFD_COLUMN_MIN) {
    return acc_at(j, t, i);
  }
  return t->lost[i] - t->lost[i] == 0.0 ? t->sum[i] + t->lost[i] : t->sum[i];
}

static void run_task(const job *j, tile *t, int64_t task) {
  const tfd__reduction *p = j->p;
  int64_t part = task % j->parts;
  int64_t column = task / j->parts % j->tiles * TILE;
  int64_t group = task / j->parts / j->tiles;
  int64_t n = j->width - column < TILE ? j->width - column : TILE;
  int64_t first = part * PART;
  int64_t last = j->parts == 1 || p->reduced - first < PART ? p->reduced
                                                            : first + PART;
  int64_t k = group * j->width + column;
  int64_t base =
      tfd__reduction_offset(p->kept_n, p->kept_dims, p->kept_strides, k);

  fill_as(j, t->acc, neutral_of(j->op));
  memset(t->sum, 0, sizeof t->sum);
  memset(t->lost, 0, sizeof t->lost);
  run_rows(j, t, p->data + base * (int64_t)p->size, first, last, n);
  if (j->partial != NULL) {
    double *to = j->partial + (group * j->parts + part) * j->width + column;

    for (int64_t i = 0; i < n; i++) to[i] = finished(j, t, i);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    double v = finished(j, t, i);

    if (j->op == TFD_COLUMN_MEAN) v /= (double)p->reduced;
    tfd__reduction_store(j->out, k + i, v, 0);
  }
}

static void run_tasks(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  tile t;

  fill_as(j, t.neutral, neutral_of(j->op));
  for (int64_t i = begin; i < end; i++) run_task(j, &t, i);
}

/* Join the parts of each output, in order. */
static void join(const job *j) {
  for (int64_t k = 0; k < j->p->kept; k++) {
    const double *v =
        j->partial + k / j->width * j->parts * j->width + k % j->width;
    double r = v[0];

    for (int64_t i = 1; i < j->parts; i++) {
      double x = v[i * j->width];

      r = j->op == TFD_COLUMN_MAX   ? MAX2(r, x)
          : j->op == TFD_COLUMN_MIN ? MIN2(r, x)
                                    : r + x;
    }
    if (j->op == TFD_COLUMN_MEAN) r /= (double)j->p->reduced;
    tfd__reduction_store(j->out, k, r, 0);
  }
}

bool tfd__columns_suit(const tfd__reduction *p) {
  return tfd__is_float(p->dtype) && p->kept_n > 0 && p->red_n > 0 &&
         p->kept_strides[p->kept_n - 1] == 1 &&
         p->kept_dims[p->kept_n - 1] >= 8 && p->reduced > 1 && p->kept > 0;
}

int tfd__reduce_columns(const tfd__reduction *p, tfd__column_op op,
                        const tfd__view *out) {
  job j = {.p = p, .out = out, .op = op, .parts = 1};
  int64_t groups = 0;

  j.width = p->kept_dims[p->kept_n - 1];
  j.tiles = (j.width + TILE - 1) / TILE;
  groups = p->kept / j.width;
  if (p->reduced > 2 * PART) {
    j.parts = (p->reduced + PART - 1) / PART;
    j.partial = tfd__scratch((size_t)(p->kept * j.parts) * sizeof(double));
    if (j.partial == NULL) return TFD_RESOURCE_EXHAUSTED;
  }
  tfd__parallel_for(groups * j.tiles * j.parts,
                    TFD_GRAIN / ((p->reduced < PART ? p->reduced : PART) *
                                 (j.width < TILE ? j.width : TILE)) + 1,
                    run_tasks, &j);
  if (j.partial != NULL) join(&j);
  return TFD_OK;
}
