/* Optimizers: variable and slots in one pass, by the CPU's rules. A thread
** takes one element at a time; half types are computed in float32. */
#include "backend/cuda/kernels/dialect.h"

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

#define UPDATE(suffix, T)                               \
  KERNEL(256, update_##suffix)(const tfd_cu_update a) { \
    update<T>(a);                                       \
  }                                                     \
  END_KERNEL(256, update_##suffix)
UPDATE(f32, float)
UPDATE(f64, double)
UPDATE(f16, f16)
UPDATE(bf16, bf16)
