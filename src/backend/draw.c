#include "backend/draw.h"

#include <math.h>

/* The largest value of the type below `value`. */
static double below(int dtype, double value) {
  uint16_t h = 0;
  bool half = dtype == TFD_FLOAT16;

  if (dtype == TFD_FLOAT64) return nextafter(value, -INFINITY);
  if (dtype == TFD_FLOAT32) return nextafterf((float)value, -INFINITY);
  tfd__store(&h, dtype, value);
  if ((h & 0x7fff) == 0) return half ? -0x1p-24 : -0x1p-133;
  h = (uint16_t)((h & 0x8000) != 0 ? h + 1 : h - 1);
  return tfd__load(&h, dtype);
}

/* `value` as the type holds it. */
static double rounded(int dtype, double value) {
  double place = 0;

  tfd__store(&place, dtype, value);
  return tfd__load(&place, dtype);
}

tfd__uniform tfd__uniform_of(int dtype, double minval, double maxval) {
  tfd__uniform r = {rounded(dtype, minval), rounded(dtype, maxval), 0};

  r.top = below(dtype, r.high);
  if (r.top < r.low) r.top = r.low;
  return r;
}

int tfd__uniform_bits(int dtype) {
  if (dtype == TFD_FLOAT16) return 11;
  return dtype == TFD_BFLOAT16 ? 8 : 24;
}
