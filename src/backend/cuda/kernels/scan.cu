/* Running sums, products and log-sums along an axis. Floats run in float64 and
** are rounded for each output. A thread walks along a line, as the CPU does;
** where lines are long and few, a block takes one and joins its pieces. */
#include "backend/cuda/kernels/dialect.h"

#include <math.h>

/* What is known of the elements so far. */
struct reals {
  double a;
  double b; /* log-sums: the sum of exp(x - a) */
};

DEVICE reals none_of(int op, reals *) {
  if (op == TFD_CU_SCAN_PRODUCT) return {1, 0};
  if (op == TFD_CU_SCAN_LOG) return {-INFINITY, 0};
  return {0, 0};
}
DEVICE uint64_t none_of(int op, uint64_t *) {
  return op == TFD_CU_SCAN_PRODUCT;
}

DEVICE_CALL reals log_join(reals x, reals y) {
  double high = y.a > x.a || y.a != y.a ? y.a : x.a;
  double sum = 0;

  if (fabs(high) < INFINITY) {
    sum = x.b == 0 ? 0 : x.b * exp(x.a - high);
    sum += y.b == 0 ? 0 : y.b * exp(y.a - high);
  } else if (high != -INFINITY) {
    sum = 1; /* infinite or NaN from here on */
  } else {
    sum = x.b + y.b;
  }
  return {high, sum};
}
DEVICE reals join(int op, reals x, reals y) {
  if (op == TFD_CU_SCAN_LOG) return log_join(x, y);
  return {op == TFD_CU_SCAN_PRODUCT ? x.a * y.a : x.a + y.a, 0};
}
DEVICE uint64_t join(int op, uint64_t x, uint64_t y) {
  return op == TFD_CU_SCAN_PRODUCT ? x * y : x + y;
}

template <class T> struct state_of { typedef uint64_t type; };
template <> struct state_of<float> { typedef reals type; };
template <> struct state_of<double> { typedef reals type; };
template <> struct state_of<f16> { typedef reals type; };
template <> struct state_of<bf16> { typedef reals type; };

template <class T> DEVICE uint64_t state(int, T x, uint64_t *) {
  return (uint64_t)x;
}
template <class T> DEVICE reals state(int op, T x, reals *) {
  double v = widen(x);

  /* exp(-inf) adds nothing. */
  return {v, op == TFD_CU_SCAN_LOG && v != -INFINITY ? 1.0 : 0.0};
}

template <class T> DEVICE T value(int, uint64_t s) {
  return (T)s;
}
template <class T> DEVICE T value(int op, reals s) {
  typedef typename wide_of<T>::type W;
  double x = s.a;

  if (op == TFD_CU_SCAN_LOG) x = s.b == 0 ? -INFINITY : s.a + log(s.b);
  return narrow<T>((W)x);
}

/* Where element k of a line lies, in the order of the scan. */
DEVICE int64_t at_of(const tfd_cu_scan &a, int64_t base, int64_t k) {
  return base + (a.reverse ? a.length - 1 - k : k) * a.inner;
}
DEVICE int64_t base_of(const tfd_cu_scan &a, uint32_t line) {
  uint32_t outer = line / (uint32_t)a.inner;

  return outer * a.length * a.inner + line - outer * a.inner;
}

template <class T> DEVICE void by_thread(const tfd_cu_scan &a) {
  typedef typename state_of<T>::type S;
  S *const kind = NULL;

  for (int64_t line = thread_index(); line < a.lines; line += thread_count()) {
    int64_t base = base_of(a, (uint32_t)line);
    int64_t at = at_of(a, base, 0);
    int64_t step = a.reverse ? -a.inner : a.inner;
    S so_far = none_of(a.op, kind);

    ROLLED
    for (int64_t k = 0; k < a.length; k++, at += step) {
      S next = join(a.op, so_far, state(a.op, ((const T *)a.in)[at], kind));

      ((T *)a.out)[at] = value<T>(a.op, a.exclusive ? so_far : next);
      so_far = next;
    }
  }
}

/* A thread's share of a tile: neighbours in the order of the scan. */
enum { SHARE = 8 };

template <class T> DEVICE void by_block(const tfd_cu_scan &a) {
  typedef typename state_of<T>::type S;
  SHARED(S, totals, [TFD_CU_THREADS]);
  S *const kind = NULL;

  for (int64_t line = blockIdx.x; line < a.lines; line += gridDim.x) {
    int64_t base = base_of(a, (uint32_t)line);
    S before = none_of(a.op, kind);

    for (int64_t tile = 0; tile < a.length; tile += TFD_CU_THREADS * SHARE) {
      int64_t first = tile + threadIdx.x * SHARE;
      int64_t end = first + SHARE < a.length ? first + SHARE : a.length;
      S so_far = none_of(a.op, kind);

      for (int64_t k = first; k < end; k++) {
        so_far = join(a.op, so_far,
                      state(a.op, ((const T *)a.in)[at_of(a, base, k)], kind));
      }
      totals[threadIdx.x] = so_far;
      BARRIER();
      for (int by = 1; by < TFD_CU_THREADS; by *= 2) {
        S left = none_of(a.op, kind);

        if ((int)threadIdx.x >= by) left = totals[threadIdx.x - by];
        BARRIER();
        totals[threadIdx.x] = join(a.op, left, totals[threadIdx.x]);
        BARRIER();
      }
      so_far = threadIdx.x == 0 ? before
                                : join(a.op, before, totals[threadIdx.x - 1]);
      before = join(a.op, before, totals[TFD_CU_THREADS - 1]);
      for (int64_t k = first; k < end; k++) {
        int64_t at = at_of(a, base, k);
        S next = join(a.op, so_far, state(a.op, ((const T *)a.in)[at], kind));

        ((T *)a.out)[at] = value<T>(a.op, a.exclusive ? so_far : next);
        so_far = next;
      }
      BARRIER();
    }
  }
}

#define SCAN(suffix, T)                                     \
  KERNEL(256, scan_threads_##suffix)(const tfd_cu_scan a) { \
    by_thread<T>(a);                                        \
  }                                                         \
  END_KERNEL(256, scan_threads_##suffix)                    \
  KERNEL(256, scan_blocks_##suffix)(const tfd_cu_scan a) {  \
    by_block<T>(a);                                         \
  }                                                         \
  END_KERNEL(256, scan_blocks_##suffix)
SCAN(f32, float)
SCAN(f64, double)
SCAN(f16, f16)
SCAN(bf16, bf16)
SCAN(i8, int8_t)
SCAN(i16, int16_t)
SCAN(i32, int32_t)
SCAN(i64, int64_t)
SCAN(u8, uint8_t)
