#ifndef TFD_CUDA_NUMBERS_H
#define TFD_CUDA_NUMBERS_H
/* Elements whose type is known when the kernel runs, read and written. */
#include "backend/cuda/kernels/dialect.h"

/* The integer nearest to x that the type holds; NaN gives 0. */
template <class W>
DEVICE int64_t whole_of(W x, double low, double high, int64_t most) {
  if (x != x) return 0;
  if ((double)x <= low) return (int64_t)low;
  return (double)x >= high ? most : (int64_t)x;
}

/* Integers keep their low bits. */
DEVICE int64_t whole_of(int64_t x, double, double, int64_t) {
  return x;
}

/* Element i of type `to`, from a float32, a float64 or an int64. */
template <class W> DEVICE void put(void *out, int64_t i, int to, W x) {
  switch (to) {
  case TFD_CU_FLOAT32:
    ((float *)out)[i] = (float)x;
    break;
  case TFD_CU_FLOAT64:
    ((double *)out)[i] = (double)x;
    break;
  case TFD_CU_FLOAT16:
    ((f16 *)out)[i] = half_of(x);
    break;
  case TFD_CU_BFLOAT16:
    ((bf16 *)out)[i] = bfloat_of(x);
    break;
  case TFD_CU_INT8:
    ((int8_t *)out)[i] = (int8_t)whole_of(x, -128, 127, 127);
    break;
  case TFD_CU_INT16:
    ((int16_t *)out)[i] = (int16_t)whole_of(x, -32768, 32767, 32767);
    break;
  case TFD_CU_INT32:
    ((int32_t *)out)[i] =
        (int32_t)whole_of(x, -2147483648.0, 2147483647.0, 2147483647);
    break;
  case TFD_CU_INT64:
    ((int64_t *)out)[i] = whole_of(x, -0x1p63, 0x1p63, INT64_MAX);
    break;
  case TFD_CU_UINT8:
    ((uint8_t *)out)[i] = (uint8_t)whole_of(x, 0, 255, 255);
    break;
  default:
    ((uint8_t *)out)[i] = x != 0;
  }
}

/* Element i of a float type. */
DEVICE double get_real(const void *in, int64_t i, int from) {
  switch (from) {
  case TFD_CU_FLOAT32:
    return ((const float *)in)[i];
  case TFD_CU_FLOAT64:
    return ((const double *)in)[i];
  case TFD_CU_FLOAT16:
    return widen(((const f16 *)in)[i]);
  default:
    return widen(((const bf16 *)in)[i]);
  }
}

/* Index i of a list of int64 or int32. */
DEVICE int64_t index_at(const void *index, bool wide, int64_t i) {
  return wide ? ((const int64_t *)index)[i] : ((const int32_t *)index)[i];
}

#endif
