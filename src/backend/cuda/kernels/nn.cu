/* Bias and dropout. */
#include "backend/cuda/kernels/dialect.h"
#include "backend/cuda/kernels/philox.h"

template <class T> DEVICE void bias(const tfd_cu_bias &a) {
  typedef typename wide_of<T>::type W;
  const T *in = (const T *)a.in;
  const T *b = (const T *)a.bias;

  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t outer = a.inner == 1 ? i : quotient(i, a.inner);
    int64_t channel = outer - quotient(outer, a.channels) * a.channels;
    W y = widen(in[i]) + widen(b[channel]);

    ((T *)a.out)[i] = narrow<T>(a.relu && y < 0 ? (W)0 : y);
  }
}

#define BIAS(suffix, T)                             \
  KERNEL(256, bias_##suffix)(const tfd_cu_bias a) { \
    bias<T>(a);                                     \
  }                                                 \
  END_KERNEL(256, bias_##suffix)
BIAS(f32, float)
BIAS(f64, double)
BIAS(f16, f16)
BIAS(bf16, bf16)

/* --- dropout -------------------------------------------------------------- */

template <class T> DEVICE void dropout(const tfd_cu_dropout &a) {
  typedef typename wide_of<T>::type W;
  int64_t blocks = (a.n + 3) / 4;

  for (int64_t b = thread_index(); b < blocks; b += thread_count()) {
    uint32_t words[4];

    philox(a.key, (uint64_t)b, a.stream, words);
    for (int j = 0; j < 4 && 4 * b + j < a.n; j++) {
      W x = widen(((const T *)a.in)[4 * b + j]);

      ((T *)a.out)[4 * b + j] =
          narrow<T>(words[j] < a.limit ? (W)0 : x * (W)a.scale);
    }
  }
}

#define DROPOUT(suffix, T)                                \
  KERNEL(256, dropout_##suffix)(const tfd_cu_dropout a) { \
    dropout<T>(a);                                        \
  }                                                       \
  END_KERNEL(256, dropout_##suffix)
DROPOUT(f32, float)
DROPOUT(f64, double)
DROPOUT(f16, f16)
DROPOUT(bf16, bf16)
