#ifndef TFD_CUDA_ROUNDED_H
#define TFD_CUDA_ROUNDED_H
/* Float64 to other types, rounded once. */
#include "backend/cuda/kernels/dialect.h"

template <class T> struct rounded {
  DEVICE T of(double x) { return (T)x; }
};
template <> struct rounded<f16> {
  DEVICE f16 of(double x) { return half_of(x); }
};
template <> struct rounded<bf16> {
  DEVICE bf16 of(double x) { return bfloat_of(x); }
};

#endif
