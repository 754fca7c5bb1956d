#ifndef TFD_CUDA_FUNCTIONS_H
#define TFD_CUDA_FUNCTIONS_H
/* What the expressions of ops.def call. */
#include "backend/cuda/kernels/dialect.h"

#include <math.h>

template <class T> DEVICE T sigmoid_of(T x) {
  T e = exp(-fabs(x));

  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}
template <class T> DEVICE T softplus_of(T x) {
  return (x > 0 ? x : (x != x ? x : (T)0)) + log1p(exp(-fabs(x)));
}
template <class T> DEVICE T floor_mod(T x, T y) {
  T r = fmod(x, y);

  return r != 0 && (y < 0) != (r < 0) ? r + y : r;
}
/* Counts outside the type are clamped. */
template <class T> DEVICE int shift_of(T y) {
  const int most = (int)sizeof(T) * 8 - 1;

  return y < 0 ? 0 : (y > most ? most : (int)y);
}

template <class T> struct unsigned_of { typedef uint32_t type; };
template <> struct unsigned_of<int64_t> { typedef uint64_t type; };

template <class T> DEVICE T clip_of(T x, T low, T high) {
  T y = x < low ? low : x;

  return y > high ? high : y;
}

#endif
