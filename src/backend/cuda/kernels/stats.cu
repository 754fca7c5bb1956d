/* Norms, moments, logarithms of sums of exponentials, and counts. A piece of
** an output's elements is looked at twice: for its centre (the mean, or the
** largest), then for the sum about it. Pieces are joined in their order, which
** is exact in real arithmetic (Chan, Golub, LeVeque 1979). */
#include "backend/cuda/kernels/numbers.h"
#include "backend/cuda/kernels/spans.h"
#include "backend/cuda/kernels/team.h"

#include <math.h>

struct piece {
  double centre;
  double sum;
  int64_t n;
};

DEVICE double shift_of(double largest) {
  return fabs(largest) < INFINITY ? largest : 0.0;
}

DEVICE bool has_mean(int op) {
  return op == TFD_CU_VARIANCE || op == TFD_CU_STD;
}

DEVICE piece join(int op, piece p, piece q) {
  if (q.n == 0) return p;
  if (p.n == 0) return q;
  if (has_mean(op)) {
    double n = (double)(p.n + q.n);
    double d = q.centre - p.centre;

    return {p.centre + d * ((double)q.n / n),
            p.sum + q.sum + d * d * ((double)p.n * (double)q.n / n), p.n + q.n};
  }
  if (op == TFD_CU_LOGSUMEXP) {
    double largest =
        q.centre > p.centre || q.centre != q.centre ? q.centre : p.centre;
    double shift = shift_of(largest);

    /* A part of zeros only, exp(-inf), must not meet inf - inf. */
    return {largest,
            (p.sum == 0 ? 0 : p.sum * exp(shift_of(p.centre) - shift)) +
                (q.sum == 0 ? 0 : q.sum * exp(shift_of(q.centre) - shift)),
            p.n + q.n};
  }
  return {0, p.sum + q.sum, p.n + q.n};
}

/* What a centre begins with, and what an element makes of it. */
DEVICE double first_centre(int op) {
  return op == TFD_CU_LOGSUMEXP ? -INFINITY : 0.0;
}
DEVICE double centre_join(int op, double x, double y) {
  if (op == TFD_CU_LOGSUMEXP) return (y > x) | (y != y) ? y : x;
  return x + y;
}
DEVICE double exp_of(float x) {
  return expf(x);
}
DEVICE double exp_of(double x) {
  return exp(x);
}
/* Of integers: no operation asks for it. */
template <class W> DEVICE double exp_of(W) {
  return 0;
}
template <class W> DEVICE double about(int op, W x, W centre) {
  switch (op) {
  case TFD_CU_LOGSUMEXP:
    return exp_of(x - centre);
  case TFD_CU_COUNT:
    return x != 0;
  case TFD_CU_NORM:
    return (double)x * (double)x;
  default:
    return 0;
  }
}
DEVICE double deviation(double x, double mean) {
  return (x - mean) * (x - mean);
}

DEVICE void put(const tfd_cu_reduce &a, int64_t k, piece p) {
  double x = p.sum;

  if (has_mean(a.op)) x = p.sum / a.divide;
  if (a.op == TFD_CU_LOGSUMEXP) x = log(p.sum) + shift_of(p.centre);
  if (a.op == TFD_CU_STD || a.op == TFD_CU_NORM) x = sqrt(x);
  put(a.out, k, a.dtype, x);
}

DEVICE void store(const tfd_cu_reduce &a, int64_t k, int64_t part, piece p) {
  if (a.parts > 1) {
    ((piece *)a.partial)[part * a.kept + k] = p;
  } else {
    put(a, k, p);
  }
}

/* The centre's share of elements first, first + step, ... below end. */
template <class In>
DEVICE double centre_of(const tfd_cu_reduce &a, const In *in, int64_t first,
                        int64_t end, int64_t step) {
  double c = first_centre(a.op);

  if (!has_mean(a.op) && a.op != TFD_CU_LOGSUMEXP) return c;
  for (int64_t i = first; i < end; i += step) {
    c = centre_join(a.op, c, widen(in[span_at(a, i)]));
  }
  return c;
}

template <class In>
DEVICE double sum_of(const tfd_cu_reduce &a, const In *in, int64_t first,
                     int64_t end, int64_t step, double centre) {
  typedef typename wide_of<In>::type W;
  double sum = 0;

  if (has_mean(a.op)) {
    for (int64_t i = first; i < end; i += step) {
      sum += deviation(widen(in[span_at(a, i)]), centre);
    }
    return sum;
  }
  for (int64_t i = first; i < end; i += step) {
    sum += about<W>(a.op, widen(in[span_at(a, i)]), (W)shift_of(centre));
  }
  return sum;
}

/* A team works on one output's piece: a block, or a thread by itself. */
template <class In, bool BLOCK> DEVICE void pieces(const tfd_cu_reduce &a) {
  SHARED(double, shared, [TFD_CU_THREADS]);
  int64_t tasks = a.kept * a.parts;
  int64_t task = BLOCK ? (int64_t)blockIdx.x : thread_index();
  int64_t jump = BLOCK ? (int64_t)gridDim.x : thread_count();
  int64_t lane = BLOCK ? threadIdx.x : 0;
  int64_t step = BLOCK ? TFD_CU_THREADS : 1;

  for (; task < tasks; task += jump) {
    int64_t part = (uint32_t)task / (uint32_t)a.kept;
    int64_t k = task - part * a.kept;
    int64_t first = part * a.each;
    int64_t end = first + a.each < a.reduced ? first + a.each : a.reduced;
    const In *in =
        (const In *)a.in + span_of(a.kept_n, a.kept_dims, a.kept_strides, k);
    double c = centre_of<In>(a, in, first + lane, end, step);
    piece p = {0, 0, end - first};

    if (BLOCK) {
      c = a.op == TFD_CU_LOGSUMEXP
              ? team<double, TFD_CU_THREADS>::all_max(c, shared)
              : team<double, TFD_CU_THREADS>::all_sum(c, shared);
    }
    p.centre = has_mean(a.op) && p.n > 0 ? c / (double)p.n : c;
    p.sum = sum_of<In>(a, in, first + lane, end, step, p.centre);
    if (BLOCK) p.sum = team<double, TFD_CU_THREADS>::all_sum(p.sum, shared);
    if (lane == 0) store(a, k, part, p);
  }
}

KERNEL(256, stats_last)(const tfd_cu_reduce a) {
  const piece *in = (const piece *)a.partial;

  for (int64_t k = thread_index(); k < a.kept; k += thread_count()) {
    piece total = in[k];

    for (int64_t p = 1; p < a.parts; p++) {
      total = join(a.op, total, in[p * a.kept + k]);
    }
    put(a, k, total);
  }
}
END_KERNEL(256, stats_last)

#define STATS(suffix, T)                                       \
  KERNEL(256, stats_threads_##suffix)(const tfd_cu_reduce a) { \
    pieces<T, false>(a);                                       \
  }                                                            \
  END_KERNEL(256, stats_threads_##suffix)                      \
  KERNEL(256, stats_blocks_##suffix)(const tfd_cu_reduce a) {  \
    pieces<T, true>(a);                                        \
  }                                                            \
  END_KERNEL(256, stats_blocks_##suffix)
STATS(f32, float)
STATS(f64, double)
STATS(f16, f16)
STATS(bf16, bf16)
STATS(i8, int8_t)
STATS(i16, int16_t)
STATS(i32, int32_t)
STATS(i64, int64_t)
STATS(u8, uint8_t)
