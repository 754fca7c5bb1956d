#ifndef TFD_CUDA_LOOPS_H
#define TFD_CUDA_LOOPS_H
/* Elementwise loops over inputs with any strides. */
#include "backend/cuda/kernels/dialect.h"

/* Where the elements with row-major number `i` lie. */
template <int INS, class A>
DEVICE void place(const A &a, int64_t i, int64_t *at) {
  for (int k = 0; k < INS; k++) at[k] = 0;
  for (int d = a.rank - 1; d >= 0; d--) {
    int64_t rest = quotient(i, a.dims[d]);
    int64_t here = i - rest * a.dims[d];

    for (int k = 0; k < INS; k++) at[k] += here * a.strides[k][d];
    i = rest;
  }
}

/* Likewise where rank 0 says that all are dense or one element. */
template <int INS, class A>
DEVICE void places(const A &a, int64_t i, int64_t *at) {
  if (a.rank > 0) {
    place<INS>(a, i, at);
  } else {
    for (int k = 0; k < INS; k++) at[k] = a.scalar >> k & 1 ? 0 : i;
  }
}

/* Elements that are moved at once. */
template <class T, int N> struct alignas(sizeof(T) * N) pack { T v[N]; };

/* Elements `first` and on, one at a time. */
template <class F, class In, class Out, int INS>
DEVICE void single(const tfd_cu_elementwise &a, int64_t first) {
  typedef typename wide_of<In>::type W;

  for (int64_t i = first + thread_index(); i < a.n; i += thread_count()) {
    W x[3] = {};
    int64_t at[INS];

    places<INS>(a, i, at);
    for (int k = 0; k < INS; k++) x[k] = widen(((const In *)a.in[k])[at[k]]);
    ((Out *)a.out)[i] = narrow<Out>(F::of(a.op, x[0], x[1], x[2], (W)a.a));
  }
}

#endif
