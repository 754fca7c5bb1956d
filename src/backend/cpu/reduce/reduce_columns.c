/* Reductions down columns: the kept axis is contiguous, so whole rows are
** combined into a tile of accumulators. Four rows at a time, to load and store
** the accumulators less often. Sums move to float64 after BATCH rows, so the
** error does not grow with the number of rows. */
#include "backend/blocks.h"
#include "backend/cpu/reduce/reduce.h"

#include <math.h>
#include <string.h>

#define TILE 256             /* columns: the accumulators stay in L1 */
#define BATCH TFD_BLOCKS_SUM /* rows summed in the compute type */
#define PART 1024            /* rows that one task takes */

typedef struct job {
  const tfd__reduction *p;
  const tfd__view *out;
  tfd__column_op op;
  int64_t width;   /* columns of one group: the innermost kept axis */
  int64_t tiles;   /* for each group */
  int64_t parts;   /* tasks for each tile */
  double *partial; /* [groups][parts][width], sums only */
} job;

/* acc[c] = combination of acc[c] and element c of `count` rows, a multiple of
** four. */
#define COMBINE(name, type, expr)                                            \
  TFD_CLONES static void name(type *acc, const void *const *rows, int count, \
                              int64_t n) {                                   \
    for (int k = 0; k < count; k += 4) {                                     \
      const type *r0 = rows[k];                                              \
      const type *r1 = rows[k + 1];                                          \
      const type *r2 = rows[k + 2];                                          \
      const type *r3 = rows[k + 3];                                          \
      TFD_IVDEP                                                              \
      for (int64_t i = 0; i < n; i++) {                                      \
        const type a = acc[i];                                               \
        const type x = r0[i];                                                \
        const type y = r1[i];                                                \
        const type z = r2[i];                                                \
        const type w = r3[i];                                                \
        acc[i] = expr;                                                       \
      }                                                                      \
    }                                                                        \
  }
/* A NaN wins. */
#define PAIR(name, type, op)                                               \
  static inline __attribute__((always_inline)) type name(type a, type b) { \
    const type best = a op b ? a : b; /* b when it is NaN */               \
    return a == a ? best : a;                                              \
  }
PAIR(max_f32, float, >=)
PAIR(max_f64, double, >=)
PAIR(min_f32, float, <=)
PAIR(min_f64, double, <=)
#define EXTREME(pair) pair(a, pair(pair(x, y), pair(z, w)))
COMBINE(sum4_f32, float, a + ((x + y) + (z + w)))
COMBINE(sum4_f64, double, a + ((x + y) + (z + w)))
COMBINE(max4_f32, float, EXTREME(max_f32))
COMBINE(max4_f64, double, EXTREME(max_f64))
COMBINE(min4_f32, float, EXTREME(min_f32))
COMBINE(min4_f64, double, EXTREME(min_f64))

/* Values of the compute type. */
typedef union values {
  _Alignas(64) float f32[TILE];
  double f64[TILE];
} values;

typedef struct tile {
  values acc;
  values neutral;
  _Alignas(64) double sum[TILE];
  _Alignas(64) double lost[TILE];
  _Alignas(64) float rows[4][TILE];
} tile;

static void fill_as(const job *j, values *to, double value) {
  if (j->p->dtype == TFD_FLOAT64) {
    for (int i = 0; i < TILE; i++) to->f64[i] = value;
    return;
  }
  for (int i = 0; i < TILE; i++) to->f32[i] = (float)value;
}

static double neutral_of(tfd__column_op op) {
  return op == TFD_COLUMN_MAX   ? -(double)INFINITY
         : op == TFD_COLUMN_MIN ? (double)INFINITY
                                : 0.0;
}

static bool is_sum(const job *j) {
  return j->op == TFD_COLUMN_SUM || j->op == TFD_COLUMN_MEAN;
}

static void combine(const job *j, tile *t, const void *const *rows, int count,
                    int64_t n) {
  bool wide = j->p->dtype == TFD_FLOAT64;

  switch (j->op) {
  case TFD_COLUMN_MAX:
    if (wide)
      max4_f64(t->acc.f64, rows, count, n);
    else
      max4_f32(t->acc.f32, rows, count, n);
    break;
  case TFD_COLUMN_MIN:
    if (wide)
      min4_f64(t->acc.f64, rows, count, n);
    else
      min4_f32(t->acc.f32, rows, count, n);
    break;
  default:
    if (wide)
      sum4_f64(t->acc.f64, rows, count, n);
    else
      sum4_f32(t->acc.f32, rows, count, n);
    break;
  }
}

/* Move accumulators into the float64 sums, keeping what those lose (two-sum),
** and clear them. */
#define FLUSH(name, type)                                           \
  TFD_CLONES static void name(double *sum, double *lost, type *acc, \
                              int64_t n) {                          \
    TFD_IVDEP                                                       \
    for (int64_t i = 0; i < n; i++) {                               \
      double v = (double)acc[i];                                    \
      double s = sum[i] + v;                                        \
      double u = s - sum[i];                                        \
      lost[i] += (sum[i] - (s - u)) + (v - u);                      \
      sum[i] = s;                                                   \
      acc[i] = 0;                                                   \
    }                                                               \
  }
FLUSH(flush_f32, float)
FLUSH(flush_f64, double)

static void flush(const job *j, tile *t, int64_t n) {
  if (j->p->dtype == TFD_FLOAT64) {
    flush_f64(t->sum, t->lost, t->acc.f64, n);
  } else {
    flush_f32(t->sum, t->lost, t->acc.f32, n);
  }
}

/* The tile's results as float64, into t->sum. An infinite or NaN sum has left
** NaN in lost. */
TFD_CLONES static void join_lost(double *sum, const double *lost, int64_t n) {
  TFD_IVDEP
  for (int64_t i = 0; i < n; i++) {
    double whole = sum[i] + lost[i];

    sum[i] = lost[i] - lost[i] == 0.0 ? whole : sum[i];
  }
}

static void finish(const job *j, tile *t, int64_t n) {
  if (is_sum(j)) {
    join_lost(t->sum, t->lost, n);
  } else if (j->p->dtype == TFD_FLOAT64) {
    memcpy(t->sum, t->acc.f64, (size_t)n * sizeof(double));
  } else {
    for (int64_t i = 0; i < n; i++) t->sum[i] = (double)t->acc.f32[i];
  }
}

/* Results k .. k+n-1, divided for means. */
static void store(const job *j, int64_t k, double *v, int64_t n) {
  float f[TILE];

  if (j->op == TFD_COLUMN_MEAN) {
    for (int64_t i = 0; i < n; i++) v[i] /= (double)j->p->reduced;
  }
  if (j->out->dtype == TFD_FLOAT64) {
    memcpy((double *)j->out->data + k, v, (size_t)n * sizeof *v);
    return;
  }
  for (int64_t i = 0; i < n; i++) f[i] = (float)v[i];
  if (j->out->dtype == TFD_FLOAT32) {
    memcpy((float *)j->out->data + k, f, (size_t)n * sizeof *f);
  } else {
    tfd__floats_to_halves(j->out->dtype, (uint16_t *)j->out->data + k, f, n);
  }
}

/* Addresses of `count` rows from row r on; half types are converted. */
static void fetch_rows(const job *j, tile *t, const char *data, int64_t r,
                       int count, int64_t n, const void **rows) {
  const tfd__reduction *p = j->p;

  for (int k = 0; k < count; k++) {
    int64_t offset = p->red_n == 1
                         ? (r + k) * p->red_strides[0]
                         : tfd__reduction_offset(p->red_n, p->red_dims,
                                                 p->red_strides, r + k);

    rows[k] = data + offset * (int64_t)p->size;
    if (!tfd__is_half(p->dtype)) continue;
    tfd__halves_to_floats(p->dtype, t->rows[k], rows[k], n);
    rows[k] = t->rows[k];
  }
}

/* Rows first .. last-1 of n columns that start at `data`. */
static void run_rows(const job *j, tile *t, const char *data, int64_t first,
                     int64_t last, int64_t n) {
  int step = tfd__is_half(j->p->dtype) ? 4 : BATCH;

  for (int64_t r = first; r < last; r += step) {
    const void *rows[BATCH];
    int count = last - r < step ? (int)(last - r) : step;

    fetch_rows(j, t, data, r, count, n, rows);
    while (count % 4 != 0) rows[count++] = &t->neutral;
    combine(j, t, rows, count, n);
    if (is_sum(j) && (r + step - first) % BATCH == 0) flush(j, t, n);
  }
  if (is_sum(j)) flush(j, t, n);
}

static void run_task(const job *j, tile *t, int64_t task) {
  const tfd__reduction *p = j->p;
  int64_t part = task % j->parts;
  int64_t column = task / j->parts % j->tiles * TILE;
  int64_t group = task / j->parts / j->tiles;
  int64_t n = j->width - column < TILE ? j->width - column : TILE;
  int64_t first = part * PART;
  int64_t last =
      j->parts == 1 || p->reduced - first < PART ? p->reduced : first + PART;
  int64_t k = group * j->width + column;
  int64_t base =
      tfd__reduction_offset(p->kept_n, p->kept_dims, p->kept_strides, k);

  fill_as(j, &t->acc, neutral_of(j->op));
  memset(t->sum, 0, (size_t)n * sizeof(double));
  memset(t->lost, 0, (size_t)n * sizeof(double));
  run_rows(j, t, p->data + base * (int64_t)p->size, first, last, n);
  finish(j, t, n);
  if (j->partial == NULL) {
    store(j, k, t->sum, n);
  } else {
    memcpy(j->partial + (group * j->parts + part) * j->width + column, t->sum,
           (size_t)n * sizeof(double));
  }
}

static void run_tasks(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  tile t;

  fill_as(j, &t.neutral, neutral_of(j->op));
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

      r = j->op == TFD_COLUMN_MAX   ? max_f64(r, x)
          : j->op == TFD_COLUMN_MIN ? min_f64(r, x)
                                    : r + x;
    }
    store(j, k, &r, 1);
  }
}

bool tfd__columns_suit(const tfd__reduction *p) {
  return tfd__is_float(p->dtype) && p->kept_n > 0 && p->red_n > 0 &&
         p->kept_strides[p->kept_n - 1] == 1 &&
         p->kept_dims[p->kept_n - 1] >= 8 && p->reduced > 1 && p->kept > 0;
}

/* Tasks that a column's rows are shared out to. */
static int64_t parts_of(int64_t rows) {
  return rows > 2 * PART ? (rows + PART - 1) / PART : 1;
}

int tfd__reduce_columns(const tfd__reduction *p, tfd__column_op op,
                        const tfd__view *out) {
  job j = {.p = p, .out = out, .op = op};
  int64_t groups = 0;

  j.width = p->kept_dims[p->kept_n - 1];
  j.tiles = (j.width + TILE - 1) / TILE;
  groups = p->kept / j.width;
  j.parts = parts_of(p->reduced);
  if (j.parts > 1) {
    j.partial = tfd__scratch((size_t)(p->kept * j.parts) * sizeof(double));
    if (j.partial == NULL) return TFD_RESOURCE_EXHAUSTED;
  }
  tfd__parallel_for(groups * j.tiles * j.parts,
                    TFD_GRAIN / ((p->reduced < PART ? p->reduced : PART) *
                                 (j.width < TILE ? j.width : TILE)) +
                        1,
                    run_tasks, &j);
  if (j.partial != NULL) join(&j);
  return TFD_OK;
}

/* --- by those who have some rows at a time -------------------------------- */

void tfd__columns_add(float *acc, const float *rows, int64_t n, int64_t width) {
  static const float zeros[TILE];

  for (int64_t column = 0; column < width; column += TILE) {
    int64_t m = width - column < TILE ? width - column : TILE;
    const void *list[BATCH];
    int count = 0;

    for (; count < n; count++) list[count] = rows + count * width + column;
    while (count % 4 != 0) list[count++] = zeros;
    sum4_f32(acc + column, list, count, m);
  }
}

typedef struct batches {
  job j;
  float *sums;
  int64_t stride;
} batches;

/* As run_task, of batches that are done: one more is empty. */
static void end_part(const batches *b, tile *t, int64_t column, int64_t first,
                     int64_t last, int64_t n) {
  memset(t->sum, 0, (size_t)n * sizeof(double));
  memset(t->lost, 0, (size_t)n * sizeof(double));
  for (int64_t r = first; r < last; r += BATCH) {
    flush_f32(t->sum, t->lost, b->sums + r / BATCH * b->stride + column, n);
  }
  flush_f32(t->sum, t->lost, t->acc.f32, n);
  join_lost(t->sum, t->lost, n);
}

static void end_tiles(void *arg, int64_t begin, int64_t end) {
  const batches *b = arg;
  int64_t rows = b->j.p->reduced;
  tile t;

  memset(&t.acc, 0, sizeof t.acc);
  for (int64_t i = begin; i < end; i++) {
    int64_t column = i * TILE;
    int64_t n = b->j.width - column < TILE ? b->j.width - column : TILE;
    double total[TILE];

    for (int64_t part = 0; part < b->j.parts; part++) {
      int64_t last = b->j.parts == 1 ? rows : (part + 1) * PART;

      end_part(b, &t, column, part * PART, last < rows ? last : rows, n);
      for (int64_t k = 0; k < n; k++) {
        total[k] = part == 0 ? t.sum[k] : total[k] + t.sum[k];
      }
    }
    store(&b->j, column, total, n);
  }
}

void tfd__columns_end(float *sums, int64_t stride, int64_t rows, int64_t width,
                      bool mean, const tfd__view *out) {
  const tfd__reduction p = {.dtype = TFD_FLOAT32, .reduced = rows};
  batches b = {.j = {.p = &p,
                     .out = out,
                     .op = mean ? TFD_COLUMN_MEAN : TFD_COLUMN_SUM,
                     .width = width,
                     .parts = parts_of(rows)},
               .sums = sums,
               .stride = stride};

  tfd__parallel_for((width + TILE - 1) / TILE,
                    TFD_GRAIN / ((rows / BATCH + 1) * TILE) + 1, end_tiles, &b);
}
