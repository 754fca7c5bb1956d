#ifndef TFD_CUDA_FUSED_H
#define TFD_CUDA_FUSED_H
/* What the text of a fused kernel (source.c) is written in: the ops as
** functions of the type that is computed in. Each rounds its result as the
** op's own kernel does, and is compiled without contraction as that is, so the
** bits are the same. */
#include "backend/cuda/kernels/functions.h"
#include "backend/cuda/kernels/loops.h"
#include "backend/cuda/kernels/numbers.h"

#define FLOAT_UNARY(name, e)                       \
  template <class T> DEVICE T U_##name(T x, T A) { \
    return e;                                      \
  }
#define INT_UNARY(name, e)                     \
  template <class T> DEVICE T IU_##name(T x) { \
    typedef typename unsigned_of<T>::type U;   \
                                               \
    (void)(U)0;                                \
    return (T)(e);                             \
  }
#define FLOAT_BINARY(name, e)                           \
  template <class T> DEVICE T B_##name(T x, T y, T A) { \
    return e;                                           \
  }
#define INT_BINARY(name, e)                         \
  template <class T> DEVICE T IB_##name(T x, T y) { \
    typedef typename unsigned_of<T>::type U;        \
                                                    \
    (void)(U)0;                                     \
    return (T)(e);                                  \
  }
#define TEST(name, e)                               \
  template <class T> DEVICE uint8_t T_##name(T x) { \
    return e;                                       \
  }
#define COMPARE(name, e)                                 \
  template <class T> DEVICE uint8_t C_##name(T x, T y) { \
    return e;                                            \
  }
#include "backend/cuda/kernels/ops.def"
#undef FLOAT_UNARY
#undef INT_UNARY
#undef FLOAT_BINARY
#undef INT_BINARY
#undef TEST
#undef COMPARE

/* x as it is read again after it was stored as an S. */
template <class S, class W> DEVICE W stored(W x) {
  return widen(narrow<S>(x));
}

template <class S, class W>
DEVICE typename wide_of<S>::type cast_real(int to, W x) {
  S y;

  put(&y, 0, to, x);
  return widen(y);
}
template <class S>
DEVICE typename wide_of<S>::type cast_whole(int to, int64_t x) {
  S y;

  put(&y, 0, to, x);
  return widen(y);
}

/* An attribute, as its bits. */
DEVICE double number(unsigned long long bits) {
#ifdef __CUDACC__
  return __longlong_as_double((long long)bits);
#else
  double x;

  memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

/* Pack i, or N times the one element. */
template <class T, int N>
DEVICE pack<T, N> packed(const void *data, int64_t i, bool one) {
  pack<T, N> p;

  if (!one) return ((const pack<T, N> *)data)[i];
  for (int j = 0; j < N; j++) p.v[j] = *(const T *)data;
  return p;
}

#endif
