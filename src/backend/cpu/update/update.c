/* Optimizers: variable and slots in one pass, in place.
**
** Cost: every target is read once and written once, every gradient read once;
** sums and half types go through blocks that stay in the first-level cache. */
#include "backend/cpu/update/update.h"

#include <math.h>
#include <string.h>

enum { BLOCK = TFD_UPDATE_BLOCK, GRAIN_ELEMENTS = 1 << 14 };

#define REAL float
#define R(name) name##_f32
#define SQRT sqrtf
#define ABS fabsf
#define POW powf
#include "backend/update_rules.h"
#undef REAL
#undef R
#undef SQRT
#undef ABS
#undef POW

#define REAL double
#define R(name) name##_f64
#define SQRT sqrt
#define ABS fabs
#define POW pow
#include "backend/update_rules.h"

/* --- gradients ------------------------------------------------------------ */

TFD_CLONES static void add_f32(float *restrict sum, const float *restrict x,
                               int64_t n) {
  for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

TFD_CLONES static void add_f64(double *restrict sum, const double *restrict x,
                               int64_t n) {
  for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}

typedef union block {
  float f32[BLOCK];
  double f64[BLOCK];
} block;

/* Elements [at, at + n) of the sum of views[0..views_n), in the type that
** rules compute in: memory of the only gradient, or `sum`. */
static const void *sum_of(const tfd__view *views, int views_n, int64_t at,
                          int64_t n, block *sum) {
  int dtype = views[0].dtype;
  float other[BLOCK];
  uint16_t rounded[BLOCK];
  int i;

  if (dtype == TFD_FLOAT64) {
    const double *x = (const double *)views[0].data + at;

    if (views_n == 1) return x;
    memcpy(sum->f64, x, (size_t)n * sizeof *x);
    for (i = 1; i < views_n; i++) {
      add_f64(sum->f64, (const double *)views[i].data + at, n);
    }
    return sum;
  }
  if (dtype == TFD_FLOAT32) {
    const float *x = (const float *)views[0].data + at;

    if (views_n == 1) return x;
    memcpy(sum->f32, x, (size_t)n * sizeof *x);
    for (i = 1; i < views_n; i++) {
      add_f32(sum->f32, (const float *)views[i].data + at, n);
    }
    return sum;
  }
  tfd__halves_to_floats(dtype, sum->f32, (const uint16_t *)views[0].data + at,
                        n);
  if (views_n == 1) return sum;
  for (i = 1; i < views_n; i++) {
    tfd__halves_to_floats(dtype, other, (const uint16_t *)views[i].data + at,
                          n);
    add_f32(sum->f32, other, n);
  }
  tfd__floats_to_halves(dtype, rounded, sum->f32, n);
  tfd__halves_to_floats(dtype, sum->f32, rounded, n);
  return sum;
}

/* As `multiply` has it. */
TFD_CLONES static void scale_f32(float *restrict out, const float *x,
                                 float scale, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * scale;
}

/* --- all blocks ----------------------------------------------------------- */

typedef struct job {
  const tfd__call *call;
  const tfd__update_rule *rule;
  int copies;
  int grads;
  size_t size;
  const float *scale; /* of the only gradient, NULL = none */
  int64_t first;      /* element that position 0 of the loop stands for */
} job;

static char *at_element(const tfd__view *v, int64_t at, size_t size) {
  return (char *)v->data + at * (int64_t)size;
}

/* Does copy c hold the same bits as copy 0 from `at` on? */
static bool equals_first(const job *j, int c, int64_t at, int64_t n) {
  int targets = j->rule->targets;
  int t;

  for (t = 0; t < targets; t++) {
    if (memcmp(at_element(tfd__in(j->call, t), at, j->size),
               at_element(tfd__in(j->call, c * targets + t), at, j->size),
               (size_t)n * j->size) != 0) {
      return false;
    }
  }
  return true;
}

static void update_copy(const job *j, int c, int64_t at, const void *g,
                        int64_t n) {
  int targets = j->rule->targets;
  void *x[TFD_UPDATE_TARGETS];
  int t;

  for (t = 0; t < targets; t++) {
    const tfd__view *from = tfd__in(j->call, c * targets + t);

    x[t] = tfd__out(j->call, c * targets + t)->data;
    if (x[t] != from->data) {
      memcpy((char *)x[t] + at * (int64_t)j->size,
             at_element(from, at, j->size), (size_t)n * j->size);
    }
  }
  tfd__update_apply(j->rule, tfd__in(j->call, 0)->dtype, x, at, g, n,
                    j->call->reals);
}

static void copy_first(const job *j, int c, int64_t at, int64_t n) {
  int targets = j->rule->targets;
  int t;

  for (t = 0; t < targets; t++) {
    memcpy(at_element(tfd__out(j->call, c * targets + t), at, j->size),
           at_element(tfd__out(j->call, t), at, j->size), (size_t)n * j->size);
  }
}

static void update_range(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  uint64_t same = 0; /* a bit for each copy; strategies have 64 at most */
  block sum;
  int64_t at;
  int c;

  begin += j->first;
  end += j->first;
  for (at = begin; at < end; at += BLOCK) {
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    const void *g = sum_of(tfd__in(j->call, j->copies * j->rule->targets),
                           j->grads, at, n, &sum);

    if (j->scale != NULL) {
      scale_f32(sum.f32, g, *j->scale, n);
      g = &sum;
    }
    same = 0;
    for (c = 1; c < j->copies; c++) {
      if (equals_first(j, c, at, n)) same |= (uint64_t)1 << c;
    }
    update_copy(j, 0, at, g, n);
    for (c = 1; c < j->copies; c++) {
      if (same >> c & 1) {
        copy_first(j, c, at, n);
      } else {
        update_copy(j, c, at, g, n);
      }
    }
  }
}

/* ints, when there are any: first element, one past the last. */
static job job_of(const tfd__call *call, const tfd__update_rule *rule) {
  return (job){
      .call = call,
      .rule = rule,
      .copies = call->out_n / rule->targets,
      .grads = call->in_n - call->out_n - 1,
      .size = tfd__dtype_size(tfd__in(call, 0)->dtype),
      .first = call->ints_n > 0 ? call->ints[0] : 0,
  };
}

static int update(const tfd__call *call, const tfd__update_rule *rule) {
  int64_t numel = tfd__in(call, 0)->numel;
  job j = job_of(call, rule);

  if (tfd__has(call, call->in_n - 1)) return tfd__update_rows(call, rule);
  if (call->ints_n > 0) numel = call->ints[1] - call->ints[0];
  tfd__parallel_for(numel, GRAIN_ELEMENTS, update_range, &j);
  return TFD_OK;
}

/* --- the kernels ---------------------------------------------------------- */

#define RULE(name, targets, rest) \
  [TFD_KERNEL_update_##name] = {targets, rest, name##_f32, name##_f64},
static const tfd__update_rule rules[TFD_KERNEL_N] = {TFD_UPDATE_RULES(RULE)};
#undef RULE

#define RULE(name, targets, rest)                          \
  int tfd__cpu_update_##name(const tfd__call *call) {      \
    return update(call, &rules[TFD_KERNEL_update_##name]); \
  }
TFD_UPDATE_RULES(RULE)
#undef RULE

/* --- several calls as one ------------------------------------------------- */

/* Call i of those that a call of `updates` stands for. */
static tfd__call call_of(const tfd__call *all, int64_t i) {
  int64_t n = all->ints[1];
  int64_t views = all->ints[2] + all->ints[3] + all->ints[4];

  return (tfd__call){.views = all->views + i * views,
                     .in_n = (int16_t)all->ints[2],
                     .out_n = (int16_t)all->ints[3],
                     .reals = all->reals + i * (all->reals_n / n)};
}

/* Positions count through the elements of all calls. */
static void updates_range(void *arg, int64_t begin, int64_t end) {
  const tfd__call *all = arg;
  int64_t at = 0;
  int64_t i;

  for (i = 0; i < all->ints[1] && at < end; i++) {
    tfd__call call = call_of(all, i);
    job j = job_of(&call, &rules[all->ints[0]]);
    int64_t numel = tfd__in(&call, 0)->numel;
    int64_t from = begin > at ? begin - at : 0;
    int64_t to = end - at < numel ? end - at : numel;

    if (all->ints[4] != 0) j.scale = call.views[call.in_n + call.out_n].data;
    if (from < to) update_range(&j, from, to);
    at += numel;
  }
}

int tfd__cpu_updates(const tfd__call *all) {
  int64_t numel = 0;
  int64_t i;

  for (i = 0; i < all->ints[1]; i++) {
    tfd__call call = call_of(all, i);

    numel += tfd__in(&call, 0)->numel;
  }
  tfd__parallel_for(numel, GRAIN_ELEMENTS, updates_range, (void *)all);
  return TFD_OK;
}
