/* Batch, layer and group normalisation, with their gradients. Sums run in
** float64 over pieces whose number follows from the shape alone; the rest is
** computed in float32 (float64 for float64), rounded as on the CPU. */
#include "backend/cuda/kernels/numbers.h"
#include "backend/cuda/kernels/team.h"

#include <math.h>

/* The host sees to it that all positions fit 32 bits: a division that might
** take 64 is a call, and what it must keep would not fit the registers. */
DEVICE int64_t divided(int64_t i, int64_t d) {
  return (uint32_t)i / (uint32_t)d;
}

/* --- sums for each channel ------------------------------------------------ */

/* A block sums one piece of `lanes` channels: its threads are rows of `lanes`
** neighbours. */
template <class T, bool ROWS>
DEVICE void channel_sums(const tfd_cu_norm_sums &a) {
  typedef typename wide_of<T>::type W;
  SHARED(double, first, [TFD_CU_THREADS]);
  SHARED(double, second, [TFD_CU_THREADS]);
  const T *x = (const T *)a.x;
  const T *dy = (const T *)a.dy;
  int lane = (int)threadIdx.x % a.lanes;
  int row = (int)threadIdx.x / a.lanes;
  int rows = TFD_CU_THREADS / a.lanes;
  int64_t tiles = (a.channels + a.lanes - 1) / a.lanes;

  for (int64_t t = blockIdx.x; t < tiles * a.parts; t += gridDim.x) {
    int64_t part = divided(t, tiles);
    int64_t c = (t - part * tiles) * a.lanes + lane;
    int64_t all = a.outer * a.inner;
    int64_t end = (part + 1) * a.each < all ? (part + 1) * a.each : all;
    int64_t i = part * a.each + row;
    double p = 0;
    double q = 0;
    W m = 0;

    if (c >= a.channels) i = end;
    if (!ROWS && i < end && a.op != TFD_CU_NORM_SUM) {
      m = (W)get_real(a.mean, c, a.small);
    }
    for (; i < end; i += rows) {
      int64_t o = a.inner == 1 ? i : divided(i, a.inner);
      int64_t at = (o * a.channels + c) * a.inner + i - o * a.inner;
      W v = widen(x[at]) - m;

      if (!ROWS && a.op == TFD_CU_NORM_SUM) {
        p += v;
      } else if (!ROWS && a.op == TFD_CU_NORM_SQUARES) {
        p += v * v;
      } else {
        W d = widen(dy[at]);

        p += d;
        if (ROWS) {
          int64_t r = divided(o, a.space) * a.groups + divided(c, a.width);

          v = (v - (W)get_real(a.mean, r, a.small)) *
              (W)get_real(a.inv, r, a.small);
        }
        q += d * v;
      }
    }
    first[threadIdx.x] = p;
    second[threadIdx.x] = q;
    BARRIER();
    for (int half = rows / 2; half > 0; half /= 2) {
      if (row < half) {
        first[threadIdx.x] += first[threadIdx.x + half * a.lanes];
        second[threadIdx.x] += second[threadIdx.x + half * a.lanes];
      }
      BARRIER();
    }
    if (row == 0 && c < a.channels) {
      a.partial[(part * a.channels + c) * 2] = first[threadIdx.x];
      a.partial[(part * a.channels + c) * 2 + 1] = second[threadIdx.x];
    }
    BARRIER();
  }
}

/* --- channels' numbers ---------------------------------------------------- */

template <class W>
DEVICE void forward_of(const tfd_cu_norm_finish &a, int64_t c, double squares) {
  W *work = (W *)a.work;
  double m = work[c];
  double v = squares / a.count;
  double wide = a.unbiased && a.count > 1 ? squares / (a.count - 1) : v;
  W inv;

  if (!a.training) {
    m = get_real(a.old_mean, c, a.running);
    v = wide = get_real(a.old_variance, c, a.running);
  } else if (a.count <= 0) {
    m = v = wide = NAN;
  }
  inv = (W)(1 / sqrt(v + a.epsilon));
  work[c] = (W)m;
  work[2 * a.channels + c] = inv * (W)get_real(a.scale, c, a.weights);
  work[3 * a.channels + c] = (W)get_real(a.offset, c, a.weights);
  put(a.saved, c, a.small, (W)m);
  put(a.saved, a.channels + c, a.small, inv);
  if (a.training && a.factor < 1) {
    double keep = 1 - a.factor;

    m = times_plus(get_real(a.old_mean, c, a.running), keep, m * a.factor);
    wide = times_plus(get_real(a.old_variance, c, a.running), keep,
                      wide * a.factor);
  }
  put(a.mean, c, a.weights, (W)m);
  put(a.variance, c, a.weights, (W)wide);
}

template <class W>
DEVICE void backward_of(const tfd_cu_norm_finish &a, int64_t c, double sum,
                        double product) {
  W *work = (W *)a.work;
  double inv = (W)get_real(a.saved_in, a.channels + c, a.small);
  double share = (W)get_real(a.scale, c, a.weights) * inv;

  put(a.dscale, c, a.weights, (W)(product * inv));
  put(a.doffset, c, a.weights, (W)sum);
  work[c] = (W)get_real(a.saved_in, c, a.small);
  work[a.channels + c] = (W)share;
  work[2 * a.channels + c] =
      a.training ? (W)(-share * product * inv * inv / a.count) : (W)0;
  work[3 * a.channels + c] = a.training ? (W)(-share * sum / a.count) : (W)0;
}

template <class W, int OP> DEVICE void finish(const tfd_cu_norm_finish &a) {
  for (int64_t c = thread_index(); c < a.channels; c += thread_count()) {
    double p = 0;
    double q = 0;

    for (int64_t i = 0; i < a.parts; i++) {
      p += a.partial[(i * a.channels + c) * 2];
      q += a.partial[(i * a.channels + c) * 2 + 1];
    }
    if (OP == TFD_CU_NORM_MEAN) {
      ((W *)a.work)[c] = (W)(p / a.count);
    } else if (OP == TFD_CU_NORM_FORWARD) {
      forward_of<W>(a, c, p);
    } else if (OP == TFD_CU_NORM_BACKWARD) {
      backward_of<W>(a, c, p, q);
    } else {
      put(a.doffset, c, a.weights, (W)p);
      put(a.dscale, c, a.weights, (W)q);
    }
  }
}

#define FINISH(name, W, op)                       \
  KERNEL(256, name)(const tfd_cu_norm_finish a) { \
    finish<W, op>(a);                             \
  }                                               \
  END_KERNEL(256, name)
FINISH(norm_mean_f32, float, TFD_CU_NORM_MEAN)
FINISH(norm_mean_f64, double, TFD_CU_NORM_MEAN)
FINISH(norm_forward_f32, float, TFD_CU_NORM_FORWARD)
FINISH(norm_forward_f64, double, TFD_CU_NORM_FORWARD)
FINISH(norm_backward_f32, float, TFD_CU_NORM_BACKWARD)
FINISH(norm_backward_f64, double, TFD_CU_NORM_BACKWARD)
FINISH(norm_weights_f32, float, TFD_CU_NORM_WEIGHTS)
FINISH(norm_weights_f64, double, TFD_CU_NORM_WEIGHTS)

template <class T> DEVICE void apply(const tfd_cu_norm_apply &a) {
  typedef typename wide_of<T>::type W;
  const W *work = (const W *)a.work;

  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t outer = a.inner == 1 ? i : divided(i, a.inner);
    int64_t c = outer - divided(outer, a.channels) * a.channels;
    W v = widen(((const T *)a.x)[i]) - work[c];
    W b = work[2 * a.channels + c];
    W d = work[3 * a.channels + c];

    if (a.dy != NULL) {
      W y =
          times_plus(v, b, widen(((const T *)a.dy)[i]) * work[a.channels + c]);

      ((T *)a.out)[i] = narrow<T>(y + d);
    } else {
      ((T *)a.out)[i] = narrow<T>(times_plus(v, b, d));
    }
  }
}

/* --- rows ----------------------------------------------------------------- */

/* Element k of a row: where it lies, and its place in scale and offset. */
DEVICE int64_t row_place(const tfd_cu_norm_rows &a, int64_t base, int64_t group,
                         int64_t k, int64_t *weight_p) {
  int64_t s = a.length == a.count ? 0 : divided(k, a.length);
  int64_t i = k - s * a.length;

  *weight_p = group * a.width + (a.per_segment ? s : i);
  return base + s * a.segment_step + i;
}

template <class T, int G>
DEVICE void row_forward(const tfd_cu_norm_rows &a, int64_t row, int64_t base,
                        int64_t group, double *shared) {
  typedef typename wide_of<T>::type W;
  const T *x = (const T *)a.x;
  int lane = threadIdx.x % G;
  double sum = 0;
  double squares = 0;
  int64_t w;
  W m;
  W inv;

  for (int64_t k = lane; k < a.count; k += G) {
    sum += widen(x[row_place(a, base, group, k, &w)]);
  }
  m = (W)(team<double, G>::all_sum(sum, shared) * a.share);
  for (int64_t k = lane; k < a.count; k += G) {
    W v = widen(x[row_place(a, base, group, k, &w)]) - m;

    squares += v * v;
  }
  squares = team<double, G>::all_sum(squares, shared);
  inv = (W)inverse_root(times_plus(squares, a.share, a.epsilon));
  if (lane == 0) {
    put(a.mean, row, a.small, m);
    put(a.inv, row, a.small, inv);
  }
  for (int64_t k = lane; k < a.count; k += G) {
    int64_t at = row_place(a, base, group, k, &w);
    W y = (widen(x[at]) - m) * inv;
    W scale = a.scale != NULL ? (W)get_real(a.scale, w, a.weights) : (W)1;
    W offset = a.offset != NULL ? (W)get_real(a.offset, w, a.weights) : (W)-0.0;

    ((T *)a.out)[at] = narrow<T>(times_plus(y, scale, offset));
  }
}

template <class T, int G>
DEVICE void row_backward(const tfd_cu_norm_rows &a, int64_t row, int64_t base,
                         int64_t group, double *shared) {
  typedef typename wide_of<T>::type W;
  const T *x = (const T *)a.x;
  const T *dy = (const T *)a.dy;
  int lane = threadIdx.x % G;
  W m = (W)get_real(a.mean, row, a.small);
  W share = (W)get_real(a.inv, row, a.small);
  double inv = share;
  double sum = 0;
  double product = 0;
  int64_t w;
  W b;
  W c;

  for (int64_t k = lane; k < a.count; k += G) {
    int64_t at = row_place(a, base, group, k, &w);
    W v = widen(dy[at]);

    if (a.scale != NULL) v *= (W)get_real(a.scale, w, a.weights);
    sum += v;
    product += v * (widen(x[at]) - m);
  }
  sum = team<double, G>::all_sum(sum, shared);
  product = team<double, G>::all_sum(product, shared);
  b = (W)(-inv * inv * inv * product * a.share);
  c = (W)(-inv * sum * a.share);
  for (int64_t k = lane; k < a.count; k += G) {
    int64_t at = row_place(a, base, group, k, &w);
    W y = widen(dy[at]) * share;
    W scale = a.scale != NULL ? (W)get_real(a.scale, w, a.weights) : (W)1;

    ((T *)a.out)[at] =
        narrow<T>(times_plus(y, scale, times_plus(widen(x[at]) - m, b, c)));
  }
}

template <class T, int G, bool GRAD>
DEVICE void norm_rows(const tfd_cu_norm_rows &a) {
  SHARED(double, shared, [TFD_CU_THREADS / 32]);
  int64_t step = (int64_t)gridDim.x * (TFD_CU_THREADS / G);
  int64_t first = (int64_t)blockIdx.x * (TFD_CU_THREADS / G) + threadIdx.x / G;

  /* A team's threads go round as often: they share shuffles and barriers. */
  for (int64_t row = first; row < a.rows; row += step) {
    int64_t sample = divided(row, a.groups);
    int64_t group = row - sample * a.groups;
    int64_t base = sample * a.sample + group * a.group_step;

    if (GRAD) {
      row_backward<T, G>(a, row, base, group, shared);
    } else {
      row_forward<T, G>(a, row, base, group, shared);
    }
  }
}

#define ROWS(name, T, G, grad)                  \
  KERNEL(256, name)(const tfd_cu_norm_rows a) { \
    norm_rows<T, G, grad>(a);                   \
  }                                             \
  END_KERNEL(256, name)
#define NORM(suffix, T)                                           \
  KERNEL(256, norm_sums_##suffix)(const tfd_cu_norm_sums a) {     \
    channel_sums<T, false>(a);                                    \
  }                                                               \
  END_KERNEL(256, norm_sums_##suffix)                             \
  KERNEL(256, norm_row_sums_##suffix)(const tfd_cu_norm_sums a) { \
    channel_sums<T, true>(a);                                     \
  }                                                               \
  END_KERNEL(256, norm_row_sums_##suffix)                         \
  KERNEL(256, norm_apply_##suffix)(const tfd_cu_norm_apply a) {   \
    apply<T>(a);                                                  \
  }                                                               \
  END_KERNEL(256, norm_apply_##suffix)                            \
  ROWS(norm_rows_##suffix, T, 32, false)                          \
  ROWS(norm_wide_rows_##suffix, T, TFD_CU_THREADS, false)         \
  ROWS(norm_rows_grad_##suffix, T, 32, true)                      \
  ROWS(norm_wide_rows_grad_##suffix, T, TFD_CU_THREADS, true)
NORM(f32, float)
NORM(f64, double)
NORM(f16, f16)
NORM(bf16, bf16)
