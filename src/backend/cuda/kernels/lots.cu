/* Drawn by lot, from the words of the CPU's draws: classes by their log
** probabilities, permutations, and numbers by rejection. Permutations are the
** CPU's; the others are but for what logarithms and sums differ by in the last
** place of float64. */
#include "backend/cuda/kernels/lots_args.h"
#include "backend/cuda/kernels/numbers.h"
#include "backend/cuda/kernels/philox.h"
#include "backend/cuda/kernels/team.h"

#include <math.h>

/* 64 bits for element i. */
template <class A> DEVICE uint64_t bits64(const A &a, int64_t i) {
  uint32_t words[4];

  philox(a.key, (uint64_t)i / 2, a.stream, words);
  return i % 2 != 0 ? (uint64_t)words[3] << 32 | words[2]
                    : (uint64_t)words[1] << 32 | words[0];
}

/* --- classes -------------------------------------------------------------- */

DEVICE_CALL double weight_of(double x) {
  return exp(x);
}

/* A block for each row, whose threads have neighbouring pieces of it. Classes
** whose logit is not finite have no weight, as in TensorFlow. */
KERNEL(256, class_sums)(const tfd_cu_classes a) {
  SHARED(double, part, [256]);
  int t = (int)threadIdx.x;
  int64_t each = (a.classes + 255) / 256;
  int64_t begin = t * each < a.classes ? t * each : a.classes;
  int64_t end = begin + each < a.classes ? begin + each : a.classes;

  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    double *sums = a.sums + row * a.classes;
    double most = -INFINITY;
    double sum = 0;

    for (int64_t c = begin; c < end; c++) {
      double x = get_real(a.logits, row * a.classes + c, a.from);

      if (isfinite(x) && x > most) most = x;
    }
    most = team<double, 256>::all_max(most, part);
    for (int64_t c = begin; c < end; c++) {
      double x = get_real(a.logits, row * a.classes + c, a.from);

      if (isfinite(x)) sum += weight_of(x - most);
      sums[c] = sum;
    }
    BARRIER();
    part[t] = sum;
    BARRIER();
    sum = 0;
    for (int w = 0; w < t; w++) sum += part[w];
    for (int64_t c = begin; c < end; c++) sums[c] += sum;
    if (t == 255 && !(sum + part[t] > 0)) note_bad(a.error, row, 0);
    BARRIER();
  }
}
END_KERNEL(256, class_sums)

KERNEL(256, classes)(const tfd_cu_classes a) {
  int64_t n = a.rows * a.samples;

  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    const double *sums = a.sums + quotient(i, a.samples) * a.classes;
    double total = sums[a.classes - 1];
    double x = (double)(int64_t)(bits64(a, i) >> 11) * 0x1p-53 * total;
    int64_t low = 0;
    int64_t high = a.classes - 1;

    /* x is below the total but for rounding. */
    if (!(x < total)) x = nextafter(total, 0.0);
    while (low < high) {
      int64_t middle = low + (high - low) / 2;

      if (sums[middle] > x) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    put(a.out, i, a.dtype, low);
  }
}
END_KERNEL(256, classes)

/* --- permutations --------------------------------------------------------- */

/* Fisher and Yates: the swaps are drawn by all threads, done by one. */
KERNEL(256, permute)(const tfd_cu_permute a) {
  SHARED(uint16_t, order, [TFD_CU_PERMUTED]);
  SHARED(uint16_t, other, [TFD_CU_PERMUTED]);

  ROLLED
  for (int i = (int)threadIdx.x; i < (int)a.n; i += 256) {
    order[i] = (uint16_t)i;
    other[i] = (uint16_t)high_product(bits64(a, i), (uint64_t)i + 1);
  }
  BARRIER();
  if (threadIdx.x == 0) {
    ROLLED
    for (int i = (int)a.n - 1; i > 0; i--) {
      uint16_t kept = order[i];

      order[i] = order[other[i]];
      order[other[i]] = kept;
    }
  }
  BARRIER();
  ROLLED
  for (int i = (int)threadIdx.x; i < (int)a.n; i += 256) a.out[i] = order[i];
}
END_KERNEL(256, permute)

/* --- rejection ------------------------------------------------------------ */

/* One copy of the long code each, which needs many registers. */
DEVICE_CALL double logarithm(double x) {
  return log(x);
}
DEVICE_CALL double power(double x, double y) {
  return pow(x, y);
}
DEVICE_CALL double cosine(double x) {
  return cos(x);
}
/* The logarithm of k!. */
DEVICE_CALL double log_factorial(double k) {
#ifdef __CUDACC__
  return lgamma(k + 1);
#else
  int sign = 0;

  return lgamma_r(k + 1, &sign);
#endif
}

struct tries {
  uint64_t block; /* of the next one */
  double u[4];    /* of this one, in (0, 1), 32 bits each */
};

DEVICE void next_try(const tfd_cu_tries &a, tries &t) {
  uint32_t words[4];

  philox(a.key, t.block++, a.stream, words);
  for (int i = 0; i < 4; i++) t.u[i] = (words[i] + 0.5) * 0x1p-32;
}

/* Source: Marsaglia and Tsang, "A simple method for generating gamma
** variables", 2000. For alpha < 1 a draw of alpha + 1 is scaled down. */
DEVICE double draw_gamma(const tfd_cu_tries &a, tries &t, double alpha) {
  double scale = 1;

  if (!(alpha > 0)) return alpha == 0 ? 0 : (double)NAN;
  if (isinf(alpha)) return alpha; /* no try would ever be accepted */
  next_try(a, t);
  if (alpha < 1) {
    scale = power(t.u[3], 1 / alpha);
    alpha += 1;
  }
  ROLLED
  for (double d = alpha - 1.0 / 3, c = 1 / sqrt(9 * d);; next_try(a, t)) {
    double x = sqrt(-2 * logarithm(t.u[0])) *
               cosine(2 * 3.14159265358979323846 * t.u[1]);
    double v = 1 + c * x;

    if (v <= 0) continue;
    v = v * v * v;
    if (logarithm(t.u[2]) < 0.5 * x * x + d * (1 - v + logarithm(v))) {
      return scale * d * v;
    }
  }
}

/* Small rates: the distribution is summed up to the uniform number. */
DEVICE double poisson_small(const tfd_cu_tries &a, tries &t, double rate) {
  double p = weight_of(-rate);
  double sum = p;
  double k = 0;

  next_try(a, t);
  for (double u = t.u[0] + (t.u[1] - 0.5) * 0x1p-32; u > sum && p > 0;) {
    k += 1;
    p *= rate / k;
    sum += p;
  }
  return k;
}

/* Source: W. Hoermann, "The transformed rejection method for generating Poisson
** random variables" (PTRS), 1993. */
DEVICE double poisson_large(const tfd_cu_tries &a, tries &t, double rate) {
  double b = 0.931 + 2.53 * sqrt(rate);
  double c = -0.059 + 0.02483 * b;
  double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  double sure = 0.9277 - 3.6224 / (b - 2);

  ROLLED
  for (;;) {
    double u;
    double us;
    double k;

    next_try(a, t);
    u = t.u[0] - 0.5;
    us = 0.5 - fabs(u);
    k = floor((2 * c / us + b) * u + rate + 0.43);
    if (us >= 0.07 && t.u[1] <= sure) return k;
    if (k < 0 || (us < 0.013 && t.u[1] > us)) continue;
    if (logarithm(t.u[1] * inverse_alpha / (c / (us * us) + b)) <=
        k * logarithm(rate) - rate - log_factorial(k)) {
      return k;
    }
  }
}

DEVICE double draw_poisson(const tfd_cu_tries &a, tries &t, double rate) {
  if (!(rate >= 0) || isinf(rate)) return NAN;
  return rate < 10 ? poisson_small(a, t, rate) : poisson_large(a, t, rate);
}

KERNEL(256, draw_by_tries)(const tfd_cu_tries a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    tries t = {(uint64_t)i << 8, {0}};
    int64_t rest = i;
    int64_t at = 0;
    double x;

    for (int d = a.rank - 1; d >= 0; d--) {
      int64_t next = quotient(rest, a.dims[d]);

      at += (rest - next * a.dims[d]) * a.strides[d];
      rest = next;
    }
    x = get_real(a.in, at, a.from);
    x = a.what == TFD_CU_GAMMA ? draw_gamma(a, t, x) : draw_poisson(a, t, x);
    put(a.out, i, a.dtype, x < a.least ? a.least : x);
  }
}
END_KERNEL(256, draw_by_tries)
