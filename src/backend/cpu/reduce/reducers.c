/* The reductions: what each does with a run of elements. */
#include "backend/cpu/reduce/reduce.h"
#include "backend/cpu/elementwise/vmath.h"

/* s->a + s->b grows by v without losing the low part (two-sum). */
static inline void add_exactly(tfd__acc *s, double v) {
  double t = s->a + v;
  double u = t - s->a;

  s->b += (s->a - (t - u)) + (v - u);
  s->a = t;
}

/* --- sum and mean --------------------------------------------------------- */

/* Four runs at once: independent chains of additions, each shorter. */
#define SUM_BLOCK(name, type)                                                \
  TFD_CLONES static type name(const type *x, int64_t n) {                    \
    int64_t q = n / 4;                                                       \
    type t = 0;                                                              \
    type u = 0;                                                              \
    type v = 0;                                                              \
    type w = 0;                                                              \
    _Pragma("omp simd reduction(+ : t, u, v, w)") for (int64_t i = 0; i < q; \
                                                       i++) {                \
      t += x[i];                                                             \
      u += x[i + q];                                                         \
      v += x[i + 2 * q];                                                     \
      w += x[i + 3 * q];                                                     \
    }                                                                        \
    for (int64_t i = 4 * q; i < n; i++) t += x[i];                           \
    return (t + u) + (v + w);                                                \
  }
SUM_BLOCK(block_sum_f32, float)
SUM_BLOCK(block_sum_f64, double)

/* Short runs are not worth a vector loop; float64 gives them no error. */
#define SHORT_SUM 24
#define SUM_FLOAT(name, type)                                            \
  static void name(tfd__acc *s, const void *x_, int64_t n, int64_t at) { \
    const type *x = x_;                                                  \
    (void)at;                                                            \
    if (n <= SHORT_SUM) {                                                \
      double even = (n & 1) != 0 ? (double)x[n - 1] : 0.0;               \
      double odd = 0.0;                                                  \
      for (int64_t i = 0; i + 1 < n; i += 2) {                           \
        even += (double)x[i];                                            \
        odd += (double)x[i + 1];                                         \
      }                                                                  \
      add_exactly(s, even + odd);                                        \
      return;                                                            \
    }                                                                    \
    for (int64_t i = 0; i < n; i += REDUCE_BLOCK) {                      \
      int64_t m = n - i < REDUCE_BLOCK ? n - i : REDUCE_BLOCK;           \
      add_exactly(s, (double)block_##name(x + i, m));                    \
    }                                                                    \
  }
SUM_FLOAT(sum_f32, float)
SUM_FLOAT(sum_f64, double)

static void sum_merge(tfd__acc *s, const tfd__acc *t) {
  add_exactly(s, t->a);
  s->b += t->b;
}
/* An infinite or NaN sum leaves NaN in b. */
static double sum_real(const tfd__acc *s, int64_t n) {
  (void)n;
  return s->b - s->b == 0.0 ? s->a + s->b : s->a;
}
static double mean_real(const tfd__acc *s, int64_t n) {
  return sum_real(s, n) / (double)n;
}

/* Lines of float32, each one block: what the reducer would give, without its
** way to runs of any length. */
typedef struct lines {
  const float *x;
  int64_t step; /* from one to the next */
  int64_t n;    /* elements of each */
  float *out;
  bool mean;
} lines;

static bool are_lines(const tfd__reduction *p, const tfd__view *out) {
  return p->dtype == TFD_FLOAT32 && out->dtype == TFD_FLOAT32 &&
         p->red_n == 1 && p->red_strides[0] == 1 && p->kept_n == 1 &&
         p->reduced > SHORT_SUM && p->reduced <= REDUCE_BLOCK;
}

static void sum_lines(void *arg, int64_t begin, int64_t end) {
  const lines *l = arg;

  for (int64_t k = begin; k < end; k++) {
    /* A sum of nothing but -0 is 0. */
    double sum = 0.0 + (double)block_sum_f32(l->x + k * l->step, l->n);

    l->out[k] = (float)(l->mean ? sum / (double)l->n : sum);
  }
}

#define SUM_INT(name, type)                                           \
  TFD_CLONES static void name(tfd__acc *s, const void *x_, int64_t n, \
                              int64_t at) {                           \
    const type *x = x_;                                               \
    uint64_t t = (uint64_t)s->i;                                      \
    (void)at;                                                         \
    for (int64_t i = 0; i < n; i++) t += (uint64_t)x[i];              \
    s->i = (int64_t)t;                                                \
  }
SUM_INT(sum_i8, int8_t)
SUM_INT(sum_i16, int16_t)
SUM_INT(sum_i32, int32_t)
SUM_INT(sum_i64, int64_t)
SUM_INT(sum_u8, uint8_t)

static void count_merge(tfd__acc *s, const tfd__acc *t) {
  s->i = (int64_t)((uint64_t)s->i + (uint64_t)t->i);
}
static int64_t count_whole(const tfd__acc *s, int64_t n) {
  (void)n;
  return s->i;
}
static int64_t mean_whole(const tfd__acc *s, int64_t n) {
  return n > 0 ? s->i / n : 0;
}

/* --- product -------------------------------------------------------------- */

/* float32 too multiplies in float64, beyond float32's range in between. */
#define PROD_FLOAT(name, type)                                                \
  TFD_CLONES static void name(tfd__acc *s, const void *x_, int64_t n,         \
                              int64_t at) {                                   \
    const type *x = x_;                                                       \
    double t = 1.0;                                                           \
    (void)at;                                                                 \
    _Pragma("omp simd reduction(* : t)") for (int64_t i = 0; i < n; i++) t *= \
        (double)x[i];                                                         \
    s->a *= t;                                                                \
  }
PROD_FLOAT(prod_f32, float)
PROD_FLOAT(prod_f64, double)
static void prod_merge(tfd__acc *s, const tfd__acc *t) {
  s->a *= t->a;
}
static double value_real(const tfd__acc *s, int64_t n) {
  (void)n;
  return s->a;
}

#define PROD_INT(name, type)                                             \
  static void name(tfd__acc *s, const void *x_, int64_t n, int64_t at) { \
    const type *x = x_;                                                  \
    uint64_t t = (uint64_t)s->i;                                         \
    (void)at;                                                            \
    for (int64_t i = 0; i < n; i++) t *= (uint64_t)x[i];                 \
    s->i = (int64_t)t;                                                   \
  }
PROD_INT(prod_i8, int8_t)
PROD_INT(prod_i16, int16_t)
PROD_INT(prod_i32, int32_t)
PROD_INT(prod_i64, int64_t)
PROD_INT(prod_u8, uint8_t)
static void prod_int_merge(tfd__acc *s, const tfd__acc *t) {
  s->i = (int64_t)((uint64_t)s->i * (uint64_t)t->i);
}

/* --- maximum and minimum -------------------------------------------------- */

#define SIMD_MAX "omp simd reduction(max : t) reduction(| : nan)"
#define SIMD_MIN "omp simd reduction(min : t) reduction(| : nan)"
/* Any NaN makes the result NaN, as in TensorFlow and NumPy. */
#define EXTREME_FLOAT(name, type, op, kind)                           \
  TFD_CLONES static void name(tfd__acc *s, const void *x_, int64_t n, \
                              int64_t at) {                           \
    const type *x = x_;                                               \
    type t = x[0];                                                    \
    int nan = 0;                                                      \
    (void)at;                                                         \
    TFD_EXTREME_LOOP(kind) for (int64_t i = 0; i < n; i++) {          \
      t = x[i] op t ? x[i] : t;                                       \
      nan |= x[i] != x[i];                                            \
    }                                                                 \
    if (nan != 0) {                                                   \
      s->a = (double)NAN;                                             \
    } else if ((double)t op s->a) {                                   \
      s->a = (double)t;                                               \
    }                                                                 \
  }
EXTREME_FLOAT(max_f32, float, >, SIMD_MAX)
EXTREME_FLOAT(max_f64, double, >, SIMD_MAX)
EXTREME_FLOAT(min_f32, float, <, SIMD_MIN)
EXTREME_FLOAT(min_f64, double, <, SIMD_MIN)
static void max_merge(tfd__acc *s, const tfd__acc *t) {
  if (t->a > s->a || t->a != t->a) s->a = t->a;
}
static void min_merge(tfd__acc *s, const tfd__acc *t) {
  if (t->a < s->a || t->a != t->a) s->a = t->a;
}

#define EXTREME_INT(name, type, op)                                   \
  TFD_CLONES static void name(tfd__acc *s, const void *x_, int64_t n, \
                              int64_t at) {                           \
    const type *x = x_;                                               \
    type t = x[0];                                                    \
    (void)at;                                                         \
    for (int64_t i = 0; i < n; i++) t = x[i] op t ? x[i] : t;         \
    if (s->n == 0 || (int64_t)t op s->i) s->i = (int64_t)t;           \
    s->n = 1;                                                         \
  }
#define EXTREME_INTS(base, op)         \
  EXTREME_INT(base##_i8, int8_t, op)   \
  EXTREME_INT(base##_i16, int16_t, op) \
  EXTREME_INT(base##_i32, int32_t, op) \
  EXTREME_INT(base##_i64, int64_t, op) \
  EXTREME_INT(base##_u8, uint8_t, op)
EXTREME_INTS(max, >)
EXTREME_INTS(min, <)
static void max_int_merge(tfd__acc *s, const tfd__acc *t) {
  if (t->i > s->i) s->i = t->i;
}
static void min_int_merge(tfd__acc *s, const tfd__acc *t) {
  if (t->i < s->i) s->i = t->i;
}

/* --- any, all, count_nonzero ---------------------------------------------- */

static void any_b(tfd__acc *s, const void *x_, int64_t n, int64_t at) {
  const uint8_t *x = x_;
  uint8_t t = 0;

  (void)at;
  for (int64_t i = 0; i < n; i++) t |= x[i];
  s->i |= t != 0;
}
static void any_merge(tfd__acc *s, const tfd__acc *t) {
  s->i |= t->i;
}

static void all_b(tfd__acc *s, const void *x_, int64_t n, int64_t at) {
  const uint8_t *x = x_;
  uint8_t t = 1;

  (void)at;
  for (int64_t i = 0; i < n; i++) t &= x[i];
  s->i &= t != 0;
}
static void all_merge(tfd__acc *s, const tfd__acc *t) {
  s->i &= t->i;
}

#define COUNT(name, type)                                             \
  TFD_CLONES static void name(tfd__acc *s, const void *x_, int64_t n, \
                              int64_t at) {                           \
    const type *x = x_;                                               \
    int64_t t = 0;                                                    \
    (void)at;                                                         \
    for (int64_t i = 0; i < n; i++) t += x[i] != 0;                   \
    s->i += t;                                                        \
  }
COUNT(count_f32, float)
COUNT(count_f64, double)
COUNT(count_i8, int8_t)
COUNT(count_i16, int16_t)
COUNT(count_i32, int32_t)
COUNT(count_i64, int64_t)
COUNT(count_u8, uint8_t)

/* --- kernels -------------------------------------------------------------- */

#define FOR_FLOATS(base, ...)                        \
  [TFD_FLOAT32] = {__VA_ARGS__, .step = base##_f32}, \
  [TFD_FLOAT64] = {__VA_ARGS__, .step = base##_f64}, \
  [TFD_FLOAT16] = {__VA_ARGS__, .step = base##_f32}, \
  [TFD_BFLOAT16] = {__VA_ARGS__, .step = base##_f32}
#define FOR_INT(dtype, suffix, base, initial, ...) \
  [dtype] = {.start = {.i = initial}, __VA_ARGS__, .step = base##_##suffix}
#define FOR_INTS(base, initial, ...)                              \
  FOR_INT(TFD_INT8, i8, base, initial(INT8), __VA_ARGS__),        \
      FOR_INT(TFD_INT16, i16, base, initial(INT16), __VA_ARGS__), \
      FOR_INT(TFD_INT32, i32, base, initial(INT32), __VA_ARGS__), \
      FOR_INT(TFD_INT64, i64, base, initial(INT64), __VA_ARGS__), \
      FOR_INT(TFD_UINT8, u8, base, initial(UINT8), __VA_ARGS__)
#define ZERO(type) 0
#define ONE(type) 1
#define UINT8_MIN 0
#define LOWEST(type) type##_MIN
#define HIGHEST(type) type##_MAX

static int run(const tfd__call *call, const tfd__reducer *reducers,
               int column_op) {
  const tfd__view *in = tfd__in(call, 0);
  tfd__reduction plan;

  tfd__reduction_plan(&plan, in, tfd__reduction_axes(in, call->ints));
  if (column_op >= 0 && tfd__columns_suit(&plan)) {
    return tfd__reduce_columns(&plan, (tfd__column_op)column_op,
                               tfd__out(call, 0));
  }
  if ((column_op == TFD_COLUMN_SUM || column_op == TFD_COLUMN_MEAN) &&
      are_lines(&plan, tfd__out(call, 0))) {
    lines l = {.x = (const float *)(const void *)plan.data,
               .step = plan.kept_strides[0],
               .n = plan.reduced,
               .out = tfd__out(call, 0)->data,
               .mean = column_op == TFD_COLUMN_MEAN};

    tfd__parallel_for(plan.kept, TFD_GRAIN / (plan.reduced + 16) + 1, sum_lines,
                      &l);
    return TFD_OK;
  }
  if (reducers[in->dtype].step == NULL) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "%s: no kernel for dtype %s",
                     call->name, tfd__dtype_name(in->dtype));
  }
  return tfd__reduce(&plan, &reducers[in->dtype], tfd__out(call, 0));
}

int tfd__cpu_reduce_sum(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FOR_FLOATS(sum, .merge = sum_merge, .real = sum_real),
      FOR_INTS(sum, ZERO, .merge = count_merge, .whole = count_whole)};

  return run(call, reducers, TFD_COLUMN_SUM);
}

int tfd__cpu_reduce_mean(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FOR_FLOATS(sum, .merge = sum_merge, .real = mean_real),
      FOR_INTS(sum, ZERO, .merge = count_merge, .whole = mean_whole)};

  return run(call, reducers, TFD_COLUMN_MEAN);
}

int tfd__cpu_reduce_prod(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FOR_FLOATS(prod, .start = {.a = 1.0}, .merge = prod_merge,
                 .real = value_real),
      FOR_INTS(prod, ONE, .merge = prod_int_merge, .whole = count_whole)};

  return run(call, reducers, -1);
}

int tfd__cpu_reduce_max(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FOR_FLOATS(max, .start = {.a = -(double)INFINITY}, .merge = max_merge,
                 .real = value_real),
      FOR_INTS(max, LOWEST, .merge = max_int_merge, .whole = count_whole)};

  return run(call, reducers, TFD_COLUMN_MAX);
}

int tfd__cpu_reduce_min(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FOR_FLOATS(min, .start = {.a = (double)INFINITY}, .merge = min_merge,
                 .real = value_real),
      FOR_INTS(min, HIGHEST, .merge = min_int_merge, .whole = count_whole)};

  return run(call, reducers, TFD_COLUMN_MIN);
}

int tfd__cpu_reduce_any(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FOR_INT(TFD_BOOL, b, any, 0, .merge = any_merge, .whole = count_whole)};

  return run(call, reducers, -1);
}

int tfd__cpu_reduce_all(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FOR_INT(TFD_BOOL, b, all, 1, .merge = all_merge, .whole = count_whole)};

  return run(call, reducers, -1);
}

int tfd__cpu_count_nonzero(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FOR_FLOATS(count, .merge = count_merge, .whole = count_whole),
      FOR_INTS(count, ZERO, .merge = count_merge, .whole = count_whole),
      FOR_INT(TFD_BOOL, u8, count, 0, .merge = count_merge,
              .whole = count_whole)};

  return run(call, reducers, -1);
}
