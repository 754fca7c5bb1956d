/* Special functions, computed in float64 whatever the type. */
#include "backend/cuda/kernels/loops.h"

#include <math.h>

#define SPECIAL DEVICE_CALL
#define SPECIAL_LGAMMA(x) lgamma(x)
#include "backend/special_functions.h"

DEVICE float next_after(float x, float y) {
  return nextafterf(x, y);
}
DEVICE double next_after(double x, double y) {
  return nextafter(x, y);
}

template <int OP> struct special {
  template <class T> DEVICE T of(int, T x, T y, T, T) {
    double a = x;
    double b = y;

    switch (OP) {
    case TFD_CU_S_erfinv:
      return (T)special_erfinv(a);
    case TFD_CU_S_ndtri:
      return (T)special_ndtri(a);
    case TFD_CU_S_lgamma:
      return (T)SPECIAL_LGAMMA(a);
    case TFD_CU_S_digamma:
      return (T)special_digamma(a);
    case TFD_CU_S_zeta:
      return (T)special_zeta(a, b);
    case TFD_CU_S_polygamma:
      return (T)special_polygamma(a, b);
    case TFD_CU_S_igamma:
      return (T)special_igamma(a, b);
    case TFD_CU_S_igammac:
      return (T)special_igammac(a, b);
    default:
      return next_after(x, y);
    }
  }
};

#define INSTANCE(op, ins, suffix, T)                       \
  KERNEL(256, op##_##suffix)(const tfd_cu_elementwise a) { \
    single<special<TFD_CU_S_##op>, T, T, ins>(a, 0);       \
  }                                                        \
  END_KERNEL(256, op##_##suffix)
#define FLOATS(op, ins)          \
  INSTANCE(op, ins, f32, float)  \
  INSTANCE(op, ins, f64, double) \
  INSTANCE(op, ins, f16, f16)    \
  INSTANCE(op, ins, bf16, bf16)
TFD_CU_SPECIALS(FLOATS)
