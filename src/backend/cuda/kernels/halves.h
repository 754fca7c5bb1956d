#ifndef TFD_CUDA_HALVES_H
#define TFD_CUDA_HALVES_H
/* The half types without the toolkit's headers, under its names. Rounded to
** nearest, ties to even; NaN becomes one NaN. Included by dialect.h. */

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

DEVICE uint32_t bits_of(float x) {
#ifdef __CUDACC__
  return __float_as_uint(x);
#else
  uint32_t bits;

  memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}
DEVICE float float_of(uint32_t bits) {
#ifdef __CUDACC__
  return __uint_as_float(bits);
#else
  float x;

  memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

DEVICE float __half2float(f16 h) {
  uint32_t size = h.bits & 0x7fffu;
  uint32_t x = bits_of(float_of(size << 13) * 0x1p112f);

  if (size >= 0x7c00) x = 0x7f800000u | size << 13;
  return float_of(x | (uint32_t)(h.bits & 0x8000u) << 16);
}

DEVICE f16 __float2half_rn(float f) {
  uint32_t x = bits_of(f);
  uint32_t sign = x >> 16 & 0x8000u;
  uint32_t h;

  x &= 0x7fffffffu;
  if (x > 0x7f800000u) {
    h = 0x7fff;
    sign = 0;
  } else if (x >= 0x47800000u) {
    h = 0x7c00;
  } else if (x < 0x38800000u) { /* a half's steps are those of 0.5f */
    h = bits_of(float_of(x) + 0.5f) - 0x3f000000u;
  } else {
    h = (x - 0x38000000u + 0xfffu + (x >> 13 & 1u)) >> 13;
  }
  return f16{(uint16_t)(h | sign)};
}

DEVICE float __bfloat162float(bf16 b) {
  return float_of((uint32_t)b.bits << 16);
}

DEVICE bf16 __float2bfloat16_rn(float f) {
  uint32_t x = bits_of(f);

  if (f != f) return bf16{0x7fff};
  return bf16{(uint16_t)((x + 0x7fffu + (x >> 16 & 1u)) >> 16)};
}

/* To a float whose last bit is 1 where bits were lost: rounding that once more
** is rounding x. */
DEVICE float odd_of(double x) {
  float f = (float)x;
  uint32_t bits = bits_of(f);

  if (x != x || (double)f == x || (bits & 0x7fffffffu) == 0x7f800000u) {
    return f;
  }
  if (fabs((double)f) > fabs(x)) bits--;
  return float_of(bits | 1u);
}
DEVICE f16 __double2half(double x) {
  return __float2half_rn(odd_of(x));
}
DEVICE bf16 __double2bfloat16(double x) {
  return __float2bfloat16_rn(odd_of(x));
}

#endif
