#ifndef TFD_BACKEND_CPU_VMATH_H
#define TFD_BACKEND_CPU_VMATH_H
/* float32 functions without branches or calls, so that loops over them
** vectorise. Errors are in units of the last place (ulp) against the exact
** result, over all finite arguments; infinities, NaN, zeros and denormals give
** what C99 says. Polynomials for exp, log, sin and cos are those of Cephes
** (S. Moshier); erf's are minimax fits made for this file. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define TFD_INLINE static inline __attribute__((always_inline))

typedef union tfd__f32bits {
  uint32_t u;
  float f;
} tfd__f32bits;

typedef union tfd__f64bits {
  uint64_t u;
  double f;
} tfd__f64bits;

TFD_INLINE float tfd__f32_of(uint32_t u) {
  tfd__f32bits x = {u};
  return x.f;
}
TFD_INLINE uint32_t tfd__f32_bits(float f) {
  tfd__f32bits x = {.f = f};
  return x.u;
}
TFD_INLINE double tfd__f64_of(uint64_t u) {
  tfd__f64bits x = {u};
  return x.f;
}
TFD_INLINE uint64_t tfd__f64_bits(double f) {
  tfd__f64bits x = {.f = f};
  return x.u;
}

/* 2^n for -126 <= n <= 127; other n give garbage, not a trap. */
TFD_INLINE float tfd__pow2i(int32_t n) {
  return tfd__f32_of((uint32_t)(n + 127) << 23);
}

/* exp(x) = 2^n (1 + p): returns p, |p| <= 0.42. */
TFD_INLINE float tfd__exp_parts(float x, int32_t *n_p) {
  const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds */
  float t = x * 1.44269504088896341f + magic;
  float nf = t - magic;
  float r = x - nf * 0.693359375f;
  float p = 1.9875691500e-4f;

  *n_p = (int32_t)(tfd__f32_bits(t) - tfd__f32_bits(magic));
  r = r + nf * 2.12194440e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return p * (r * r) + r;
}

/* < 1.1 ulp. The power is applied in two steps for denormal results. */
TFD_INLINE float tfd__expf(float x) {
  float c = x > 89.0f ? 89.0f : x;
  float p = 0.0f;
  int32_t n = 0;
  int32_t half = 0;

  c = c < -104.0f ? -104.0f : c;
  p = tfd__exp_parts(c, &n);
  half = n >> 1;
  return (p + 1.0f) * tfd__pow2i(half) * tfd__pow2i(n - half);
}

/* exp(x) - 1; < 1.6 ulp. A zero keeps its sign, which the sum below loses. */
TFD_INLINE float tfd__expm1f(float x) {
  float c = x > 89.0f ? 89.0f : x;
  float p = 0.0f;
  float s = 0.0f;
  float r = 0.0f;
  int32_t n = 0;
  int32_t half = 0;

  c = c < -25.0f ? -25.0f : c;
  p = tfd__exp_parts(c, &n);
  half = n >> 1;
  s = tfd__pow2i(half);
  /* 2^n p + (2^n - 1), kept finite until the last product. */
  r = n > 64 ? (p + 1.0f) * s * tfd__pow2i(n - half)
             : p * tfd__pow2i(n) + (tfd__pow2i(n) - 1.0f);
  return x == 0.0f ? x : r;
}

/* log of a finite positive normal number; < 1 ulp. */
TFD_INLINE float tfd__log_normal(float x, float shift) {
  uint32_t u = tfd__f32_bits(x);
  float e = (float)((int32_t)(u >> 23) - 126) + shift;
  float m = tfd__f32_of((u & 0x007fffffu) | 0x3f000000u);
  bool low = m < 0.707106781186547524f;
  float p = 7.0376836292e-2f;
  float z = 0.0f;

  e = low ? e - 1.0f : e;
  m = (low ? m + m : m) - 1.0f;
  z = m * m;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  p = p * m * z - e * 2.12194440e-4f;
  p = p - 0.5f * z;
  return (m + p) + e * 0.693359375f;
}

/* < 1 ulp. */
TFD_INLINE float tfd__logf(float x) {
  bool tiny = x < 1.17549435e-38f;
  float r = tfd__log_normal(tiny ? x * 33554432.0f : x, tiny ? -25.0f : 0.0f);

  r = x < INFINITY ? r : x; /* +inf and NaN */
  r = x == 0.0f ? -INFINITY : r;
  return x < 0.0f ? NAN : r;
}

/* log(1 + x); < 2 ulp. The second term restores what 1 + x lost; a zero keeps
** its sign. */
TFD_INLINE float tfd__log1pf(float x) {
  float u = 1.0f + x;
  float lost = (x - (u - 1.0f)) / u;
  float r = tfd__logf(u);

  r = u > 0.0f && u < INFINITY ? r + lost : r;
  return x == 0.0f ? x : r;
}

/* < 2.5 ulp. */
TFD_INLINE float tfd__sigmoidf(float x) {
  float e = tfd__expf(-fabsf(x));
  float s = 1.0f / (1.0f + e);

  return x < 0.0f ? e * s : s;
}

/* < 2.5 ulp. Of expm1 for negative numbers, whose powers never overflow. */
TFD_INLINE float tfd__tanhf(float x) {
  float c = -2.0f * fabsf(x);
  float p = 0.0f;
  float s = 0.0f;
  float e = 0.0f;
  int32_t n = 0;

  c = c < -25.0f ? -25.0f : c;
  p = tfd__exp_parts(c, &n);
  s = tfd__pow2i(n);
  e = p * s + (s - 1.0f);
  return copysignf(e / (e + 2.0f), x);
}

/* log(1 + exp(x)); < 1.9 ulp. */
TFD_INLINE float tfd__softplusf(float x) {
  float e = tfd__expf(-fabsf(x));
  float u = 1.0f + e; /* in [1, 2], NaN aside, which x itself carries on */
  float tail = tfd__log_normal(u, 0.0f) + (e - (u - 1.0f)) / u;

  return (x < 0.0f ? 0.0f : x) + tail;
}

/* < 3.5 ulp, cosh < 3. exp of half the argument cannot overflow. */
TFD_INLINE float tfd__sinhf(float x) {
  float a = fabsf(x);
  float h = tfd__expf(0.5f * a);
  float z = x * x;
  float big = (0.5f * h) * h - (0.5f / h) / h;
  float p = 2.03721912945e-4f;

  p = p * z + 8.33028376239e-3f;
  p = p * z + 1.66667160211e-1f;
  return a < 1.0f ? p * z * x + x : copysignf(big, x);
}
TFD_INLINE float tfd__coshf(float x) {
  float h = tfd__expf(0.5f * fabsf(x));

  return (0.5f * h) * h + (0.5f / h) / h;
}

/* < 2.1 ulp each. Beyond 2^30 the square would lose all to rounding. */
TFD_INLINE float tfd__asinhf(float x) {
  float a = fabsf(x);
  bool huge = a > 1073741824.0f;
  float s = huge ? 1.0f : a;
  float small = tfd__log1pf(s + s * s / (sqrtf(s * s + 1.0f) + 1.0f));
  float large = tfd__logf(a) + 0.69314718055994530942f;

  return copysignf(huge ? large : small, x);
}
TFD_INLINE float tfd__acoshf(float x) {
  bool huge = x > 1073741824.0f;
  float t = huge ? 1.0f : x - 1.0f;
  float small = tfd__log1pf(t + sqrtf(t * (t + 2.0f)));
  float large = tfd__logf(x) + 0.69314718055994530942f;

  return huge ? large : (x < 1.0f ? NAN : small);
}
TFD_INLINE float tfd__atanhf(float x) {
  float a = fabsf(x);

  return copysignf(0.5f * tfd__log1pf(2.0f * a / (1.0f - a)), x);
}

/* < 2.8 ulp. */
TFD_INLINE float tfd__atanf(float x) {
  float a = fabsf(x);
  bool high = a > 2.414213562373095f;    /* tan(3 pi / 8) */
  bool middle = a > 0.4142135623730950f; /* tan(pi / 8) */
  float t = high ? -1.0f / a : (middle ? (a - 1.0f) / (a + 1.0f) : a);
  float base =
      high ? 1.5707963267948966f : (middle ? 0.78539816339744831f : 0.0f);
  float z = t * t;
  float p = 8.05374449538e-2f;

  p = p * z - 1.38776856032e-1f;
  p = p * z + 1.99777106478e-1f;
  p = p * z - 3.33329491539e-1f;
  return copysignf(base + (p * z * t + t), x);
}

/* asin(a) for 0 <= a <= 1/2, and the tail of it as a polynomial. */
TFD_INLINE float tfd__asin_poly(float a, float z) {
  float p = 4.2163199048e-2f;

  p = p * z + 2.4181311049e-2f;
  p = p * z + 4.5470025998e-2f;
  p = p * z + 7.4953002686e-2f;
  p = p * z + 1.6666752422e-1f;
  return p * z * a + a;
}
/* < 2.5 ulp each; NaN outside [-1, 1]. */
TFD_INLINE float tfd__asinf(float x) {
  float a = fabsf(x);
  bool high = a > 0.5f;
  float z = high ? 0.5f * (1.0f - a) : a * a;
  float v = tfd__asin_poly(high ? sqrtf(z) : a, z);

  return copysignf(high ? 1.57079632679489661923f - (v + v) : v, x);
}
TFD_INLINE float tfd__acosf(float x) {
  float a = fabsf(x);
  bool high = a > 0.5f;
  float z = high ? 0.5f * (1.0f - a) : a * a;
  float v = tfd__asin_poly(high ? sqrtf(z) : a, z);
  float far = x < 0.0f ? 3.14159265358979323846f - 2.0f * v : 2.0f * v;

  return high ? far : 1.57079632679489661923f - copysignf(v, x);
}

/* < 1.5 ulp. */
TFD_INLINE float tfd__erff(float x) {
  float a = fabsf(x);
  float t = a > 4.0f ? 4.0f : a;
  float s = x * x;
  float p = 7.889119297033176e-05f;
  float q = 1.9822070316877216e-4f;

  p = p * s - 8.020841050893068e-4f;
  p = p * s + 5.189535208046436e-3f;
  p = p * s - 2.6854444295167923e-2f;
  p = p * s + 1.1283600330352783e-1f;
  p = p * s - 3.7612625956535339e-1f;
  p = p * s + 1.2837916612625122e-1f;
  q = q * t - 3.065499709919095e-3f;
  q = q * t + 2.231524884700775e-2f;
  q = q * t - 1.0411374270915985e-1f;
  q = q * t - 6.369760036468506e-1f;
  q = q * t - 1.127797245979309f;
  q = q * t - 1.664390874793753e-4f;
  q = copysignf(1.0f - tfd__expf(q), x);
  q = x != x ? x : q;
  return a < 1.0f ? x + x * p : q;
}

/* Quadrant and remainder in [-pi/4, pi/4] of |x| < 2^28. Callers take other
** way for larger arguments. */
TFD_INLINE double tfd__trig_reduce(float x, int32_t *quadrant_p) {
  const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
  double d = (double)x;
  double n = (d * 6.36619772367581382433e-01 + magic) - magic;

  *quadrant_p = (int32_t)n;
  return (d - n * 1.57079631090164184570e+00) - n * 1.58932547735281966916e-08;
}
#define TFD_TRIG_MAX 2.0e8f

TFD_INLINE float tfd__sin_poly(float r) {
  float z = r * r;
  float p = -1.9515295891e-4f;

  p = p * z + 8.3321608736e-3f;
  p = p * z - 1.6666654611e-1f;
  return p * z * r + r;
}
TFD_INLINE float tfd__cos_poly(float r) {
  float z = r * r;
  float p = 2.443315711809948e-5f;

  p = p * z - 1.388731625493765e-3f;
  p = p * z + 4.166664568298827e-2f;
  return p * z * z - 0.5f * z + 1.0f;
}

/* |x| <= TFD_TRIG_MAX (else unspecified); < 1.6 ulp, tan < 3.2. */
TFD_INLINE float tfd__sinf(float x) {
  int32_t q = 0;
  float r = (float)tfd__trig_reduce(x, &q);
  float v = (q & 1) != 0 ? tfd__cos_poly(r) : tfd__sin_poly(r);

  v = x == 0.0f ? x : v;
  return (q & 2) != 0 ? -v : v;
}
TFD_INLINE float tfd__cosf(float x) {
  int32_t q = 0;
  float r = (float)tfd__trig_reduce(x, &q);
  float v = (q & 1) != 0 ? tfd__sin_poly(r) : tfd__cos_poly(r);

  return ((q + 1) & 2) != 0 ? -v : v;
}
TFD_INLINE float tfd__tanf(float x) {
  int32_t q = 0;
  float r = (float)tfd__trig_reduce(x, &q);
  float s = tfd__sin_poly(r);
  float c = tfd__cos_poly(r);
  float v = (q & 1) != 0 ? -c / s : s / c;

  return x == 0.0f ? x : v;
}

/* log2 of a positive normal double, relative error < 1e-13. */
TFD_INLINE double tfd__log2_normal(double x) {
  uint64_t u = tfd__f64_bits(x);
  /* Biased exponent counted so that m lies in [sqrt(1/2), sqrt(2)). */
  uint64_t e = (u + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu)) >> 52;
  double m = tfd__f64_of(u - ((e - 1023) << 52));
  double k = tfd__f64_of(e | 0x4330000000000000u) - (4503599627370496.0 + 1023);
  double s = (m - 1.0) / (m + 1.0);
  double z = s * s;
  double p = 1.0 / 15;

  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  return k + 2.88539008177792681472 * (s + s * z * p);
}

/* 2^w, relative error < 1e-9; w is clipped to [-160, 160]. NaN stays NaN. */
TFD_INLINE double tfd__exp2_clipped(double w) {
  const double magic = 6755399441055744.0;
  double c = w > 160.0 ? 160.0 : w;
  double t = 0.0;
  double r = 0.0;
  double p = 1.3215486790144309e-6;

  c = c < -160.0 ? -160.0 : c;
  t = c + magic;
  r = c - (t - magic);
  p = p * r + 1.5252733804059840e-5;
  p = p * r + 1.5403530393381609e-4;
  p = p * r + 1.3333558146428443e-3;
  p = p * r + 9.6181291076284771e-3;
  p = p * r + 5.5504108664821579e-2;
  p = p * r + 2.4022650695910071e-1;
  p = p * r + 6.9314718055994530e-1;
  p = p * r + 1.0;
  return p * tfd__f64_of((tfd__f64_bits(t) + 1023) << 52);
}

/* x - y trunc(x / y), exact, of finite y with |x / y| < 2^28; for others *far
** is raised. In float64, where the product is exact; a
** quotient that was rounded up shows in the sign of the remainder. */
TFD_INLINE float tfd__fmodf(float x, float y, int *far) {
  double a = fabs((double)x);
  double b = fabs((double)y);
  double q = a / b;
  double r = a - trunc(q) * b;

  r = r < 0.0 ? r + b : r;
  *far |= q < 268435456.0 && b < (double)INFINITY ? 0 : 1;
  return copysignf((float)r, x);
}

/* < 0.6 ulp. */
TFD_INLINE float tfd__powf(float x, float y) {
  float a = fabsf(x);
  double lg = tfd__log2_normal((double)a);
  bool whole = floorf(y) == y;
  bool odd = whole && floorf(y * 0.5f) * 2.0f != y;
  float r = 0.0f;

  lg = a < INFINITY ? lg : (double)a;
  lg = a == 0.0f ? -(double)INFINITY : lg;
  r = (float)tfd__exp2_clipped((double)y * lg);
  r = a == 1.0f && fabsf(y) == INFINITY ? 1.0f : r;
  r = x < 0.0f && a < INFINITY && !whole ? NAN : r;
  r = odd ? copysignf(r, x) : r;
  r = x != x || y != y ? x + y : r;
  return x == 1.0f || y == 0.0f ? 1.0f : r;
}

#endif
