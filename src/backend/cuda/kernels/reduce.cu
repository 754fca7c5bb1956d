/* Reductions. Each output's elements are cut into pieces whose number follows
** from the shape alone, each piece is reduced in a fixed order, and a second
** launch joins the pieces: the result does not depend on the GPU or on timing.
** Sums of float32 and half types run over few elements in float32 and beyond
** in float64, so the error does not grow with the length. */
#include "backend/cuda/kernels/dialect.h"

#include <math.h>

template <class A> struct limits;
template <> struct limits<double> {
  DEVICE double low() { return -INFINITY; }
  DEVICE double high() { return INFINITY; }
};
template <> struct limits<int64_t> {
  DEVICE int64_t low() { return INT64_MIN; }
  DEVICE int64_t high() { return INT64_MAX; }
};

template <class A> DEVICE A start_of(int op) {
  switch (op) {
  case TFD_CU_prod:
  case TFD_CU_all:
    return 1;
  case TFD_CU_max:
    return limits<A>::low();
  case TFD_CU_min:
    return limits<A>::high();
  default:
    return 0;
  }
}

/* Unsigned, so that integers wrap. */
DEVICE double sum_of(double a, double b) {
  return a + b;
}
DEVICE double product_of(double a, double b) {
  return a * b;
}
DEVICE int64_t sum_of(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}
DEVICE int64_t product_of(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

template <class A> DEVICE A join(int op, A a, A b) {
  switch (op) {
  case TFD_CU_prod:
    return product_of(a, b);
  case TFD_CU_max:
    return (a >= b) | (a != a) ? a : b;
  case TFD_CU_min:
    return (a <= b) | (a != a) ? a : b;
  case TFD_CU_any:
    return (a != 0) | (b != 0);
  case TFD_CU_all:
    return (a != 0) & (b != 0);
  default:
    return sum_of(a, b);
  }
}

template <class Out, class A>
DEVICE Out result_of(const tfd_cu_reduce &a, A x) {
  if (a.op == TFD_CU_mean) x = (A)(x / (A)a.divide);
  return (Out)x;
}
template <>
DEVICE_SPECIAL f16 result_of<f16, double>(const tfd_cu_reduce &a, double x) {
  return half_of(a.op == TFD_CU_mean ? x / a.divide : x);
}
template <>
DEVICE_SPECIAL bf16 result_of<bf16, double>(const tfd_cu_reduce &a, double x) {
  return bfloat_of(a.op == TFD_CU_mean ? x / a.divide : x);
}

DEVICE int64_t offset_of(int n, const int64_t *dims, const int64_t *strides,
                         int64_t i) {
  int64_t at = 0;

  for (int d = n - 1; d > 0; d--) {
    int64_t rest = quotient(i, dims[d]);

    at += (i - rest * dims[d]) * strides[d];
    i = rest;
  }
  return n > 0 ? at + i * strides[0] : 0;
}

/* Elements first, first + step, ... below end of one output. */
template <class In, class A>
DEVICE A reduce_span(const tfd_cu_reduce &a, const In *in, int64_t first,
                     int64_t end, int64_t step) {
  A total = start_of<A>(a.op);

  if (a.red_n <= 1) {
    int64_t stride = a.red_n == 0 ? 0 : a.red_strides[0];

    for (int64_t i = first; i < end; i += step) {
      total = join<A>(a.op, total, (A)widen(in[i * stride]));
    }
    return total;
  }
  for (int64_t i = first; i < end; i += step) {
    int64_t at = offset_of(a.red_n, a.red_dims, a.red_strides, i);

    total = join<A>(a.op, total, (A)widen(in[at]));
  }
  return total;
}

template <class In, class Out, class A>
DEVICE void store(const tfd_cu_reduce &a, int64_t k, int64_t part, A x) {
  if (a.parts > 1) {
    ((A *)a.partial)[part * a.kept + k] = x;
  } else {
    ((Out *)a.out)[k] = result_of<Out, A>(a, x);
  }
}

/* One thread for each output and piece: neighbours in memory belong to
** neighbouring outputs, or there are few elements. */
template <class In, class Out, class A>
DEVICE void by_thread(const tfd_cu_reduce &a) {
  int64_t tasks = a.kept * a.parts;

  for (int64_t t = thread_index(); t < tasks; t += thread_count()) {
    int64_t part = quotient(t, a.kept);
    int64_t k = t - part * a.kept;
    int64_t first = part * a.each;
    int64_t end = first + a.each < a.reduced ? first + a.each : a.reduced;
    const In *in =
        (const In *)a.in + offset_of(a.kept_n, a.kept_dims, a.kept_strides, k);

    store<In, Out, A>(a, k, part, reduce_span<In, A>(a, in, first, end, 1));
  }
}

/* One block for each output and piece. */
template <class In, class Out, class A>
DEVICE void by_block(const tfd_cu_reduce &a) {
  SHARED(A, sums, [TFD_CU_THREADS]);
  int64_t tasks = a.kept * a.parts;

  for (int64_t t = blockIdx.x; t < tasks; t += gridDim.x) {
    int64_t part = quotient(t, a.kept);
    int64_t k = t - part * a.kept;
    int64_t first = part * a.each;
    int64_t end = first + a.each < a.reduced ? first + a.each : a.reduced;
    const In *in =
        (const In *)a.in + offset_of(a.kept_n, a.kept_dims, a.kept_strides, k);

    sums[threadIdx.x] =
        reduce_span<In, A>(a, in, first + threadIdx.x, end, TFD_CU_THREADS);
    BARRIER();
    for (int half = TFD_CU_THREADS / 2; half > 0; half /= 2) {
      if ((int)threadIdx.x < half) {
        sums[threadIdx.x] =
            join<A>(a.op, sums[threadIdx.x], sums[threadIdx.x + half]);
      }
      BARRIER();
    }
    if (threadIdx.x == 0) store<In, Out, A>(a, k, part, sums[0]);
    BARRIER();
  }
}

/* The pieces of each output joined. */
template <class Out, class A> DEVICE void last(const tfd_cu_reduce &a) {
  const A *in = (const A *)a.partial;

  for (int64_t k = thread_index(); k < a.kept; k += thread_count()) {
    A total = in[k];

    for (int64_t p = 1; p < a.parts; p++) {
      total = join<A>(a.op, total, in[p * a.kept + k]);
    }
    ((Out *)a.out)[k] = result_of<Out, A>(a, total);
  }
}

#define REDUCE(suffix, T, A)                                    \
  KERNEL(256, reduce_threads_##suffix)(const tfd_cu_reduce a) { \
    by_thread<T, T, A>(a);                                      \
  }                                                             \
  END_KERNEL(256, reduce_threads_##suffix)                      \
  KERNEL(256, reduce_blocks_##suffix)(const tfd_cu_reduce a) {  \
    by_block<T, T, A>(a);                                       \
  }                                                             \
  END_KERNEL(256, reduce_blocks_##suffix)                       \
  KERNEL(256, reduce_last_##suffix)(const tfd_cu_reduce a) {    \
    last<T, A>(a);                                              \
  }                                                             \
  END_KERNEL(256, reduce_last_##suffix)
REDUCE(f32, float, double)
REDUCE(f64, double, double)
REDUCE(f16, f16, double)
REDUCE(bf16, bf16, double)
REDUCE(i8, int8_t, int64_t)
REDUCE(i16, int16_t, int64_t)
REDUCE(i32, int32_t, int64_t)
REDUCE(i64, int64_t, int64_t)
REDUCE(u8, uint8_t, int64_t)

/* --- the position of the largest or smallest ------------------------------ */

/* One warp's worth of threads would do for short axes; a thread for each
** output is enough: outputs are many where this is used. NaN never wins, the
** first of equals is taken. */
template <class T> DEVICE void extreme(const tfd_cu_reduce &a, bool largest) {
  int64_t stride = a.red_n == 0 ? 0 : a.red_strides[0];

  for (int64_t k = thread_index(); k < a.kept; k += thread_count()) {
    int64_t first = offset_of(a.kept_n, a.kept_dims, a.kept_strides, k);
    const T *in = (const T *)a.in + first;
    auto best = widen(in[0]);
    int64_t at = 0;

    ROLLED
    for (int64_t i = 1; i < a.reduced; i++) {
      auto x = widen(in[i * stride]);

      if ((largest ? x > best : x < best) || (best != best && x == x)) {
        best = x;
        at = i;
      }
    }
    if (a.divide == 8) {
      ((int64_t *)a.out)[k] = at;
    } else {
      ((int32_t *)a.out)[k] = (int32_t)at;
    }
  }
}

#define EXTREME(suffix, T)                               \
  KERNEL(256, extreme_##suffix)(const tfd_cu_reduce a) { \
    extreme<T>(a, a.op == TFD_CU_max);                   \
  }                                                      \
  END_KERNEL(256, extreme_##suffix)
EXTREME(f32, float)
EXTREME(f64, double)
EXTREME(f16, f16)
EXTREME(bf16, bf16)
EXTREME(i8, int8_t)
EXTREME(i16, int16_t)
EXTREME(i32, int32_t)
EXTREME(i64, int64_t)
EXTREME(u8, uint8_t)
