/* Pooling windows of any geometry: each thread has one element of the result
** and goes over the window's taps, or over the windows that hold an element, in
** row-major order: the CPU's bits. */
#include "backend/cuda/kernels/dialect.h"
#include "backend/cuda/kernels/window_args.h"

/* An element: its image, channel and place. */
struct spot {
  int32_t image;
  int32_t channel;
  int32_t at[3];
};

DEVICE spot spot_of(const tfd_cu_pool &a, const int32_t *dims, int64_t i) {
  uint32_t rest = (uint32_t)i / (uint32_t)a.channels;
  spot s;

  s.channel = (int32_t)((uint32_t)i % (uint32_t)a.channels);
  for (int d = 2; d >= 0; d--) {
    s.at[d] = (int32_t)(rest % (uint32_t)dims[d]);
    rest /= (uint32_t)dims[d];
  }
  s.image = (int32_t)rest;
  return s;
}

/* Where the element of s at place `at` of an image of `dims` lies, from the
** image's beginning. */
DEVICE int32_t within(const tfd_cu_pool &a, const int32_t *dims, const spot &s,
                      const int32_t *at) {
  return ((at[0] * dims[1] + at[1]) * dims[2] + at[2]) * a.channels + s.channel;
}

DEVICE int32_t image_size(const tfd_cu_pool &a, const int32_t *dims) {
  return dims[0] * dims[1] * dims[2] * a.channels;
}

/* The inputs [begin, end) of a window; false when it has none. */
struct box {
  int32_t begin[3];
  int32_t end[3];
};
DEVICE bool box_of(const tfd_cu_pool &a, const int32_t *o, box &b) {
  bool some = true;

  for (int d = 0; d < 3; d++) {
    int32_t origin = o[d] * a.stride[d] - a.low[d];
    int32_t end = origin + a.kernel[d];

    b.begin[d] = origin > 0 ? origin : 0;
    b.end[d] = end < a.in[d] ? end : a.in[d];
    some = some && b.begin[d] < b.end[d];
  }
  return some;
}

DEVICE float inverse(float x) {
  return 1 / x;
}
/* A function of its own: the long code would take the loops' registers. */
DEVICE_CALL double inverse(double x) {
  return 1 / x;
}

/* How many inputs window o has. */
DEVICE int32_t taps_of(const tfd_cu_pool &a, const int32_t *o) {
  int32_t n = 1;
  box b;

  box_of(a, o, b);
  for (int d = 0; d < 3; d++) n *= b.end[d] - b.begin[d];
  return n;
}

#define EACH_PLACE(b, at)                                    \
  for (at[0] = b.begin[0]; at[0] < b.end[0]; at[0]++)        \
  ROLLED for (at[1] = b.begin[1]; at[1] < b.end[1]; at[1]++) \
      ROLLED for (at[2] = b.begin[2]; at[2] < b.end[2]; at[2]++)

/* --- forward -------------------------------------------------------------- */

/* The first place whose element is the largest; NaN never wins, unless it is
** the first. */
template <class T>
DEVICE int32_t largest(const tfd_cu_pool &a, const spot &s, const box &b,
                       const T *x) {
  int32_t best = within(a, a.in, s, b.begin);
  int32_t at[3];

  EACH_PLACE(b, at) {
    int32_t here = within(a, a.in, s, at);

    if (widen(x[here]) > widen(x[best])) best = here;
  }
  return best;
}

/* The first place whose x is y; -1: there is none, y is NaN. */
template <class T>
DEVICE int32_t found(const tfd_cu_pool &a, const spot &s, const box &b,
                     const T *x, T y) {
  int32_t at[3];

  EACH_PLACE(b, at) {
    int32_t here = within(a, a.in, s, at);

    if (widen(x[here]) == widen(y)) return here;
  }
  return -1;
}

template <class T>
DEVICE T average(const tfd_cu_pool &a, const spot &s, const box &b,
                 const T *x) {
  typedef typename wide_of<T>::type W;
  W sum = 0;
  int32_t at[3];

  EACH_PLACE(b, at) sum += widen(x[within(a, a.in, s, at)]);
  return narrow<T>(sum * inverse((W)taps_of(a, s.at)));
}

template <class T> DEVICE void maxima(const tfd_cu_pool &a, bool places) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    spot s = spot_of(a, a.outs, i);
    int32_t first = s.image * image_size(a, a.in);
    const T *x = (const T *)a.x + first;
    int32_t best = 0;
    box b;

    if (!box_of(a, s.at, b)) continue;
    best = largest(a, s, b, x);
    ((T *)a.out)[i] = x[best];
    if (!places) continue;
    if (a.whole_batch) best += first;
    if (a.wide) {
      ((int64_t *)a.places)[i] = best;
    } else {
      ((int32_t *)a.places)[i] = (int32_t)best;
    }
  }
}

template <class T> DEVICE void pool(const tfd_cu_pool &a) {
  typedef typename wide_of<T>::type W;

  if (a.op == TFD_CU_POOL_MAX || a.op == TFD_CU_POOL_PLACE) {
    maxima<T>(a, a.op == TFD_CU_POOL_PLACE);
    return;
  }
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    spot s = spot_of(a, a.outs, i);
    int32_t first = s.image * image_size(a, a.in);
    const T *x = (const T *)a.x + first;
    box b;

    if (!box_of(a, s.at, b)) continue;
    if (a.op == TFD_CU_POOL_SHARE) {
      ((W *)a.shares)[i] =
          widen(((const T *)a.dy)[i]) * inverse((W)taps_of(a, s.at));
    } else if (a.op == TFD_CU_POOL_AVG) {
      ((T *)a.out)[i] = average(a, s, b, x);
    } else {
      int32_t from = found(a, s, b, x, ((const T *)a.y)[i]);

      if (a.op == TFD_CU_POOL_FIND) {
        ((int32_t *)a.places)[i] = from;
      } else {
        ((T *)a.out)[i] =
            from < 0 ? narrow<T>((W)0) : ((const T *)a.dy)[first + from];
      }
    }
  }
}

/* --- gradients ------------------------------------------------------------ */

/* Windows [begin, end) that hold an element. */
DEVICE void windows_of(const tfd_cu_pool &a, const spot &s, box &b) {
  for (int d = 0; d < 3; d++) {
    int32_t last = (s.at[d] + a.low[d]) / a.stride[d];
    int32_t before = s.at[d] + a.low[d] - a.kernel[d];

    b.begin[d] = before < 0 ? 0 : before / a.stride[d] + 1;
    b.end[d] = last + 1 < a.outs[d] ? last + 1 : a.outs[d];
  }
}

template <class T, bool AVG> DEVICE void pool_grad(const tfd_cu_pool &a) {
  typedef typename wide_of<T>::type W;

  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    spot s = spot_of(a, a.in, i);
    int32_t mine = within(a, a.in, s, s.at);
    int32_t image = s.image * image_size(a, a.outs);
    int32_t o[3];
    W sum = 0;
    box windows;

    windows_of(a, s, windows);
    EACH_PLACE(windows, o) {
      int32_t from = image + within(a, a.outs, s, o);

      if (AVG) {
        sum += ((const W *)a.shares)[from];
      } else if (((const int32_t *)a.places)[from] == mine) {
        sum += widen(((const T *)a.dy)[from]);
      }
    }
    ((T *)a.out)[i] = narrow<T>(sum);
  }
}

#define POOL(suffix, T)                                 \
  KERNEL(256, pool_##suffix)(const tfd_cu_pool a) {     \
    pool<T>(a);                                         \
  }                                                     \
  END_KERNEL(256, pool_##suffix)                        \
  KERNEL(256, max_grad_##suffix)(const tfd_cu_pool a) { \
    pool_grad<T, false>(a);                             \
  }                                                     \
  END_KERNEL(256, max_grad_##suffix)                    \
  KERNEL(256, avg_grad_##suffix)(const tfd_cu_pool a) { \
    pool_grad<T, true>(a);                              \
  }                                                     \
  END_KERNEL(256, avg_grad_##suffix)
POOL(f32, float)
POOL(f64, double)
POOL(f16, f16)
POOL(bf16, bf16)

/* Integers have the maximum only. */
#define POOL_INT(suffix, T)                         \
  KERNEL(256, pool_##suffix)(const tfd_cu_pool a) { \
    maxima<T>(a, a.op == TFD_CU_POOL_PLACE);        \
  }                                                 \
  END_KERNEL(256, pool_##suffix)
POOL_INT(i8, int8_t)
POOL_INT(i16, int16_t)
POOL_INT(i32, int32_t)
POOL_INT(i64, int64_t)
POOL_INT(u8, uint8_t)
