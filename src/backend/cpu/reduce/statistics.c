/* Reductions with more state than a sum: norms, moments, logarithms of sums of
** exponentials, and positions of extremes. */
/* Fusing products and sums makes the polynomials a third faster. Bodies and
** tails of a loop are fused alike, so results do not depend on positions. */
#include "backend/cpu/fused.h"

#include "backend/cpu/reduce/reduce.h"
#include "backend/cpu/elementwise/vmath.h"

/* --- Euclidean norm ----------------------------------------------------- */

/* In float64, so that float32 squares neither overflow nor underflow. */
#define NORM(name, type)                                                      \
  TFD_CLONES static void name(tfd__acc *s, const void *x_, int64_t n,         \
                              int64_t at) {                                   \
    const type *x = x_;                                                       \
    double t = 0.0;                                                           \
    (void)at;                                                                 \
    _Pragma("omp simd reduction(+ : t)") for (int64_t i = 0; i < n; i++) t += \
        (double)x[i] * (double)x[i];                                          \
    s->a += t;                                                                \
  }
NORM(norm_f32, float)
NORM(norm_f64, double)
NORM(norm_i8, int8_t)
NORM(norm_i16, int16_t)
NORM(norm_i32, int32_t)
NORM(norm_i64, int64_t)
NORM(norm_u8, uint8_t)
static void add_merge(tfd__acc *s, const tfd__acc *t) {
  s->a += t->a;
}
static double norm_real(const tfd__acc *s, int64_t n) {
  (void)n;
  return sqrt(s->a);
}
static int64_t norm_whole(const tfd__acc *s, int64_t n) {
  (void)n;
  return (int64_t)sqrt(s->a);
}

/* --- variance ------------------------------------------------------------ */

/* Mean a and sum of squared deviations b of n elements; joining two such is
** exact in real arithmetic. Source: Chan, Golub, LeVeque 1979. */
static void moments_merge(tfd__acc *s, const tfd__acc *t) {
  double n = (double)(s->n + t->n);
  double d = t->a - s->a;

  if (t->n == 0) return;
  s->a += d * ((double)t->n / n);
  s->b += t->b + d * d * ((double)s->n * (double)t->n / n);
  s->n += t->n;
}

/* A long row as blocks of REDUCE_BLOCK elements, merged in order. */
#define IN_BLOCKS(name, type, merge)                                        \
  static void name(tfd__acc *s, const void *x_, int64_t n, int64_t at) {    \
    const type *x = x_;                                                     \
    (void)at;                                                               \
    for (int64_t i = 0; i < n; i += REDUCE_BLOCK) {                         \
      tfd__acc t = {0};                                                     \
      block_##name(&t, x + i, n - i < REDUCE_BLOCK ? n - i : REDUCE_BLOCK); \
      merge(s, &t);                                                         \
    }                                                                       \
  }

#define MOMENTS(name, type)                                                    \
  TFD_CLONES static void block_##name(tfd__acc *t, const type *x, int64_t n) { \
    double sum = 0.0;                                                          \
    double squares = 0.0;                                                      \
    double mean = 0.0;                                                         \
    _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++)     \
        sum += (double)x[i];                                                   \
    mean = sum / (double)n;                                                    \
    _Pragma("omp simd reduction(+ : squares)") for (int64_t i = 0; i < n;      \
                                                    i++) {                     \
      double d = (double)x[i] - mean;                                          \
      squares += d * d;                                                        \
    }                                                                          \
    t->a = mean;                                                               \
    t->b = squares;                                                            \
    t->n = n;                                                                  \
  }                                                                            \
  IN_BLOCKS(name, type, moments_merge)
MOMENTS(moments_f32, float)
MOMENTS(moments_f64, double)

static double variance_real(const tfd__acc *s, int64_t n) {
  return s->b / (double)n;
}
static double std_real(const tfd__acc *s, int64_t n) {
  return sqrt(s->b / (double)n);
}

/* --- log of a sum of exponentials ----------------------------------------- */

/* Largest element a, and b = the sum of exp(x - shift(a)). */
static double shift_of(double largest) {
  return fabs(largest) < (double)INFINITY ? largest : 0.0;
}

static void logsumexp_merge(tfd__acc *s, const tfd__acc *t) {
  double largest = t->a > s->a || t->a != t->a ? t->a : s->a;
  double shift = shift_of(largest);

  /* A part of zeros only, exp(-inf), must not meet inf - inf. */
  s->b = (s->b == 0.0 ? 0.0 : s->b * exp(shift_of(s->a) - shift)) +
         (t->b == 0.0 ? 0.0 : t->b * exp(shift_of(t->a) - shift));
  s->a = largest;
}

#define LOGSUMEXP(name, type, fn)                                              \
  TFD_CLONES static void block_##name(tfd__acc *t, const type *x, int64_t n) { \
    type largest = x[0];                                                       \
    type shift = 0;                                                            \
    type sum = 0;                                                              \
    int nan = 0;                                                               \
    TFD_EXTREME_LOOP("omp simd reduction(max : largest) reduction(| : nan)")   \
    for (int64_t i = 0; i < n; i++) {                                          \
      largest = x[i] > largest ? x[i] : largest;                               \
      nan |= x[i] != x[i];                                                     \
    }                                                                          \
    t->a = nan != 0 ? (double)NAN : (double)largest;                           \
    shift = (type)shift_of(t->a);                                              \
    _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < n; i++)     \
        sum += fn(x[i] - shift);                                               \
    t->b = (double)sum;                                                        \
  }                                                                            \
  IN_BLOCKS(name, type, logsumexp_merge)
LOGSUMEXP(logsumexp_f32, float, tfd__expf)
LOGSUMEXP(logsumexp_f64, double, exp)

static double logsumexp_real(const tfd__acc *s, int64_t n) {
  (void)n;
  return log(s->b) + shift_of(s->a);
}

/* --- positions of extremes ---------------------------------------------- */

/* The first of equal elements; NaN never wins. Floats keep the value in a and
** set n when something was seen; integers, which must stay exact, keep the
** value in n and set b. The position is i. */
#define ARG_FLOAT(name, type, op, none, simd)                            \
  TFD_CLONES static type extreme_##name(const type *x, int64_t n) {      \
    type best = none;                                                    \
    TFD_EXTREME_LOOP(simd)                                               \
    for (int64_t i = 0; i < n; i++) best = x[i] op best ? x[i] : best;   \
    return best;                                                         \
  }                                                                      \
  static void name(tfd__acc *s, const void *x_, int64_t n, int64_t at) { \
    const type *x = x_;                                                  \
    type best = extreme_##name(x, n);                                    \
    if (s->n != 0 && !((double)best op s->a)) return;                    \
    for (int64_t i = 0; i < n; i++) {                                    \
      if (x[i] != best) continue;                                        \
      s->a = (double)best;                                               \
      s->i = at + i;                                                     \
      s->n = 1;                                                          \
      return;                                                            \
    }                                                                    \
  }
#define ARG_INT(name, type, op)                                          \
  static void name(tfd__acc *s, const void *x_, int64_t n, int64_t at) { \
    const type *x = x_;                                                  \
    for (int64_t i = 0; i < n; i++) {                                    \
      if ((int64_t)x[i] op s->n || s->b == 0.0) {                        \
        s->n = (int64_t)x[i];                                            \
        s->i = at + i;                                                   \
        s->b = 1.0;                                                      \
      }                                                                  \
    }                                                                    \
  }
#define ARG(base, op, none, simd)                         \
  ARG_FLOAT(base##_f32, float, op, (float)(none), simd)   \
  ARG_FLOAT(base##_f64, double, op, (double)(none), simd) \
  ARG_INT(base##_i8, int8_t, op)                          \
  ARG_INT(base##_i16, int16_t, op)                        \
  ARG_INT(base##_i32, int32_t, op)                        \
  ARG_INT(base##_i64, int64_t, op)                        \
  ARG_INT(base##_u8, uint8_t, op)
ARG(argmax, >, -INFINITY, "omp simd reduction(max : best)")
ARG(argmin, <, INFINITY, "omp simd reduction(min : best)")
static int64_t position(const tfd__acc *s, int64_t n) {
  (void)n;
  return s->i;
}

/* --- kernels ------------------------------------------------------------- */

#define STEP(dtype, fn, ...) [dtype] = {.step = fn, __VA_ARGS__}
#define FLOATS(base, ...)                         \
  STEP(TFD_FLOAT32, base##_f32, __VA_ARGS__),     \
      STEP(TFD_FLOAT64, base##_f64, __VA_ARGS__), \
      STEP(TFD_FLOAT16, base##_f32, __VA_ARGS__), \
      STEP(TFD_BFLOAT16, base##_f32, __VA_ARGS__)
#define INTS(base, ...)                         \
  STEP(TFD_INT8, base##_i8, __VA_ARGS__),       \
      STEP(TFD_INT16, base##_i16, __VA_ARGS__), \
      STEP(TFD_INT32, base##_i32, __VA_ARGS__), \
      STEP(TFD_INT64, base##_i64, __VA_ARGS__), \
      STEP(TFD_UINT8, base##_u8, __VA_ARGS__)

static int run(const tfd__call *call, const tfd__reducer *reducers,
               unsigned axes) {
  const tfd__view *in = tfd__in(call, 0);
  tfd__reduction plan;

  if (reducers[in->dtype].step == NULL) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "%s: no kernel for dtype %s",
                     call->name, tfd__dtype_name(in->dtype));
  }
  tfd__reduction_plan(&plan, in, axes);
  return tfd__reduce(&plan, &reducers[in->dtype], tfd__out(call, 0));
}

int tfd__cpu_euclidean_norm(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FLOATS(norm, .merge = add_merge, .real = norm_real),
      INTS(norm, .merge = add_merge, .whole = norm_whole)};

  return run(call, reducers, tfd__reduction_axes(tfd__in(call, 0), call->ints));
}

int tfd__cpu_reduce_variance(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FLOATS(moments, .merge = moments_merge, .real = variance_real)};

  return run(call, reducers, tfd__reduction_axes(tfd__in(call, 0), call->ints));
}

int tfd__cpu_reduce_std(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FLOATS(moments, .merge = moments_merge, .real = std_real)};

  return run(call, reducers, tfd__reduction_axes(tfd__in(call, 0), call->ints));
}

int tfd__cpu_reduce_logsumexp(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FLOATS(logsumexp, .start = {.a = -(double)INFINITY},
             .merge = logsumexp_merge, .real = logsumexp_real)};

  return run(call, reducers, tfd__reduction_axes(tfd__in(call, 0), call->ints));
}

static unsigned one_axis(const tfd__call *call) {
  int64_t axis = call->ints[0];

  return 1u << (axis < 0 ? axis + tfd__in(call, 0)->rank : axis);
}

int tfd__cpu_argmax(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FLOATS(argmax, .whole = position), INTS(argmax, .whole = position),
      STEP(TFD_BOOL, argmax_u8, .whole = position)};

  return run(call, reducers, one_axis(call));
}

int tfd__cpu_argmin(const tfd__call *call) {
  static const tfd__reducer reducers[TFD_DTYPE_END] = {
      FLOATS(argmin, .whole = position), INTS(argmin, .whole = position),
      STEP(TFD_BOOL, argmin_u8, .whole = position)};

  return run(call, reducers, one_axis(call));
}
