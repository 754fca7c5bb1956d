/* Draws of random numbers from the words of the CPU's. Uniform ones and whole
** numbers are the CPU's to the bit, others to a few last places: logarithms and
** sines are the device's. */
#include "backend/cuda/kernels/philox.h"

#include <math.h>

/* 53 bits of words 2 i and 2 i + 1, in [0, 2^53). */
DEVICE uint64_t bits53(const uint32_t *words, int i) {
  return ((uint64_t)words[2 * i + 1] << 32 | words[2 * i]) >> 11;
}

/* --- a block of numbers --------------------------------------------------- */

DEVICE void uniform(const tfd_cu_draw &a, const uint32_t words[4], float *x) {
  float unit = 1.0f / (float)(1 << a.bits);
  float width = (float)(a.b - a.a);

  for (int i = 0; i < 4; i++) {
    float u = (float)(int32_t)(words[i] >> (32 - a.bits)) * unit;
    float y = times_plus(u, width, (float)a.a);

    x[i] = y < (float)a.top ? y : (float)a.top;
  }
}

DEVICE void uniform(const tfd_cu_draw &a, const uint32_t words[4], double *x) {
  for (int i = 0; i < 2; i++) {
    double u = (double)(int64_t)bits53(words, i) * 0x1p-53;
    double y = times_plus(u, a.b - a.a, a.a);

    x[i] = y < a.top ? y : a.top;
  }
}

/* Box and Muller; the angle is reduced in integers, exactly. */
DEVICE void normal(const tfd_cu_draw &a, const uint32_t words[4], float *x) {
  for (int i = 0; i < 2; i++) {
    float u = (float)(int32_t)(words[2 * i] >> 1) * 0x1p-31f + 0x1p-32f;
    float radius = sqrtf(-2.0f * logf(u)) * (float)a.b;
    uint32_t turn = words[2 * i + 1];
    uint32_t quadrant = (turn + 0x20000000u) >> 30;
    float angle = (float)(int32_t)(turn - (quadrant << 30)) *
                  1.46291807926715968e-9f; /* 2 pi / 2^32 */
    float s = sinf(angle);
    float c = cosf(angle);
    float p = (quadrant & 1) != 0 ? s : c;
    float q = (quadrant & 1) != 0 ? c : s;

    p = ((quadrant + 1) & 2) != 0 ? -p : p;
    q = (quadrant & 2) != 0 ? -q : q;
    x[2 * i] = times_plus(radius, p, (float)a.a);
    x[2 * i + 1] = times_plus(radius, q, (float)a.a);
  }
}

DEVICE void normal(const tfd_cu_draw &a, const uint32_t words[4], double *x) {
  const double turn = 6.283185307179586476925 * 0x1p-53;
  double u = ((double)(int64_t)bits53(words, 0) + 0.5) * 0x1p-53;
  double angle = (double)(int64_t)bits53(words, 1) * turn;
  double radius = sqrt(-2 * log(u)) * a.b;

  x[0] = times_plus(radius, cos(angle), a.a);
  x[1] = times_plus(radius, sin(angle), a.a);
}

/* sqrt(2) erfinv(x) for |x| <= 0.9545.
** Source: M. Giles, "Approximating the erfinv function", 2010. */
DEVICE float normal_quantile(float x) {
  float w = -logf((1.0f - x) * (1.0f + x)) - 2.5f;
  float p = 2.81022636e-08f;

  p = times_plus(p, w, 3.43273939e-07f);
  p = times_plus(p, w, -3.5233877e-06f);
  p = times_plus(p, w, -4.39150654e-06f);
  p = times_plus(p, w, 0.00021858087f);
  p = times_plus(p, w, -0.00125372503f);
  p = times_plus(p, w, -0.00417768164f);
  p = times_plus(p, w, 0.246640727f);
  p = times_plus(p, w, 1.50140941f);
  return 1.41421356237f * p * x;
}

#define WITHIN 0.95449973610364158560 /* two deviations' probability */

DEVICE void truncated(const tfd_cu_draw &a, const uint32_t words[4], float *x) {
  for (int i = 0; i < 4; i++) {
    /* odd multiples of 2^-23 in (-1, 1) */
    float u = (float)((int32_t)(words[i] >> 8 | 1) - 0x800000) * 0x1p-23f;
    float z = normal_quantile(u * (float)WITHIN);

    z = fminf(fmaxf(z, -2.0f), 2.0f);
    x[i] = times_plus((float)a.b, z, (float)a.a);
  }
}

DEVICE void truncated(const tfd_cu_draw &a, const uint32_t words[4],
                      double *x) {
  for (int i = 0; i < 2; i++) {
    double u = ((double)(int64_t)bits53(words, i) + 0.5) * 0x1p-52 - 1;
    double p = u * WITHIN;
    double z = (double)normal_quantile((float)p) * 0.70710678118654752440;
    /* One step of Halley's method triples the digits. */
    double e = (erf(z) - p) / (1.12837916709551257390 * exp(-z * z));

    z = 1.41421356237309504880 * (z - e / (1 + z * e));
    z = fmin(fmax(z, -2.0), 2.0);
    x[i] = times_plus(a.b, z, a.a);
  }
}

/* --- kernels -------------------------------------------------------------- */

template <class T> DEVICE void draw(const tfd_cu_draw &a) {
  typedef typename wide_of<T>::type W;
  const int each = sizeof(W) == 8 ? 2 : 4;

  for (int64_t b = thread_index(); b < (a.n + each - 1) / each;
       b += thread_count()) {
    uint32_t words[4];
    W x[4];

    philox(a.key, (uint64_t)b, a.stream, words);
    if (a.what == TFD_CU_UNIFORM) {
      uniform(a, words, x);
    } else if (a.what == TFD_CU_NORMAL) {
      normal(a, words, x);
    } else {
      truncated(a, words, x);
    }
    for (int i = 0; i < each && each * b + i < a.n; i++) {
      ((T *)a.out)[each * b + i] = narrow<T>(x[i]);
    }
  }
}

#define DRAW(suffix, T)                             \
  KERNEL(256, draw_##suffix)(const tfd_cu_draw a) { \
    draw<T>(a);                                     \
  }                                                 \
  END_KERNEL(256, draw_##suffix)
DRAW(f32, float)
DRAW(f64, double)
DRAW(f16, f16)
DRAW(bf16, bf16)

/* Two words make 64 bits whose product with the range, shifted down, is the
** result. */
template <class T> DEVICE void draw_whole(const tfd_cu_draw &a) {
  for (int64_t b = thread_index(); b < (a.n + 1) / 2; b += thread_count()) {
    uint32_t words[4];

    philox(a.key, (uint64_t)b, a.stream, words);
    for (int i = 0; i < 2 && 2 * b + i < a.n; i++) {
      uint64_t bits = (uint64_t)words[2 * i + 1] << 32 | words[2 * i];

      if (a.range != 0) bits = a.low + high_product(bits, a.range);
      ((T *)a.out)[2 * b + i] = (T)bits;
    }
  }
}

#define DRAW_WHOLE(size, T)                             \
  KERNEL(256, draw_whole_##size)(const tfd_cu_draw a) { \
    draw_whole<T>(a);                                   \
  }                                                     \
  END_KERNEL(256, draw_whole_##size)
DRAW_WHOLE(1, uint8_t)
DRAW_WHOLE(2, uint16_t)
DRAW_WHOLE(4, uint32_t)
DRAW_WHOLE(8, uint64_t)
