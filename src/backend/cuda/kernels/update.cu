/* Optimizers: variable and slots in one pass, by the CPU's rules. A thread
** takes one element at a time; half types are computed in float32. */
#include "backend/cuda/kernels/update_args.h"
#include "backend/cuda/kernels/rounded.h"
#include "backend/cuda/kernels/sorted.h"

#include <math.h>

#define TFD_CLONES __device__ __forceinline__
#define restrict __restrict__

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

/* One copy of the long code, which needs many registers. */
DEVICE_CALL double power_of(double x, double y) {
  return pow(x, y);
}

#define REAL double
#define R(name) name##_f64
#define SQRT sqrt
#define ABS fabs
#define POW power_of
#include "backend/update_rules.h"

DEVICE void apply(int rule, void *const *x, const float *g, const double *a) {
  switch (rule) {
#define CASE(rule, targets) \
  case TFD_CU_RULE_##rule:  \
    rule##_f32(x, g, 1, a); \
    break;
    TFD_CU_RULES(CASE)
#undef CASE
  }
}
DEVICE void apply(int rule, void *const *x, const double *g, const double *a) {
  switch (rule) {
#define CASE(rule, targets) \
  case TFD_CU_RULE_##rule:  \
    rule##_f64(x, g, 1, a); \
    break;
    TFD_CU_RULES(CASE)
#undef CASE
  }
}

template <class T> DEVICE void update(const tfd_cu_update &a) {
  typedef typename wide_of<T>::type W;

  if (stopped(a.stop)) return;
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    W value[TFD_CU_TARGETS];
    void *x[TFD_CU_TARGETS];
    W g = widen(((const T *)a.grad[0])[i]);

    for (int k = 1; k < a.grads; k++) g += widen(((const T *)a.grad[k])[i]);
    if (a.grads > 1) g = widen(narrow<T>(g));
    for (int t = 0; t < TFD_CU_TARGETS; t++) {
      x[t] = &value[t];
      if (t < a.targets) value[t] = widen(((const T *)a.in[t])[i]);
    }
    apply(a.rule, x, &g, a.reals);
    for (int t = 0; t < TFD_CU_TARGETS; t++) {
      if (t < a.targets) ((T *)a.out[t])[i] = narrow<T>(value[t]);
    }
  }
}

/* --- rows ----------------------------------------------------------------- */

/* Element i of the variable, of which weight decay has taken its share. */
template <class T, class W>
DEVICE W decayed(const tfd_cu_update_rows &a, int64_t i) {
  W x = widen(((const T *)a.in[0])[i]);

  if (a.decay == 0) return x;
  return widen(rounded<T>::of((double)x * (1 - a.decay)));
}

/* What is named several times is added up in the order in which it is named, to
** where it stands first. */
template <class T> DEVICE void sum_rows(const tfd_cu_update_rows &a) {
  typedef typename wide_of<T>::type W;

  for (int64_t i = thread_index(); i < a.count * a.inner; i += thread_count()) {
    int64_t k = quotient(i, a.inner);
    int64_t c = i - k * a.inner;
    uint32_t key = a.keys[k];
    W sum = 0;

    if (k > 0 && a.keys[k - 1] == key) continue;
    for (; k < a.count && a.keys[k] == key; k++) {
      sum += widen(((const T *)a.values)[a.order[k] * a.inner + c]);
    }
    ((W *)a.sums)[i] = sum;
  }
}

/* Element i of the variable; element g of the sums is its gradient, if any. */
template <class T>
DEVICE void update_one(const tfd_cu_update_rows &a, int64_t i, int64_t g) {
  typedef typename wide_of<T>::type W;
  W value[TFD_CU_TARGETS];
  void *x[TFD_CU_TARGETS];
  W grad = g < 0 ? (W)0 : ((const W *)a.sums)[g];

  for (int t = 0; t < TFD_CU_TARGETS; t++) {
    x[t] = &value[t];
    if (t < a.targets) value[t] = widen(((const T *)a.in[t])[i]);
  }
  value[0] = decayed<T, W>(a, i);
  if (g >= 0 || a.fade) apply(a.rule, x, &grad, a.reals);
  if (g < 0 && a.stay) value[0] = decayed<T, W>(a, i);
  for (int t = 0; t < TFD_CU_TARGETS; t++) {
    if (t < a.targets) ((T *)a.out[t])[i] = narrow<T>(value[t]);
  }
}

template <class T> DEVICE void update_rows(const tfd_cu_update_rows &a) {
  int64_t n = a.all ? a.n : a.count * a.inner;

  if (*a.nothing) return;
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    int64_t k = quotient(i, a.inner);
    int64_t c = i - k * a.inner;

    if (a.all) {
      int64_t first = keys_below(a.keys, a.count, k);
      bool named = first < a.count && a.keys[first] == k;

      update_one<T>(a, i, named ? first * a.inner + c : -1);
    } else if (k == 0 || a.keys[k - 1] != a.keys[k]) {
      update_one<T>(a, a.keys[k] * a.inner + c, i);
    }
  }
}

#define UPDATE(suffix, T)                                         \
  KERNEL(256, update_##suffix)(const tfd_cu_update a) {           \
    update<T>(a);                                                 \
  }                                                               \
  END_KERNEL(256, update_##suffix)                                \
  KERNEL(256, sum_rows_##suffix)(const tfd_cu_update_rows a) {    \
    sum_rows<T>(a);                                               \
  }                                                               \
  END_KERNEL(256, sum_rows_##suffix)                              \
  KERNEL(256, update_rows_##suffix)(const tfd_cu_update_rows a) { \
    update_rows<T>(a);                                            \
  }                                                               \
  END_KERNEL(256, update_rows_##suffix)
UPDATE(f32, float)
UPDATE(f64, double)
UPDATE(f16, f16)
UPDATE(bf16, bf16)
