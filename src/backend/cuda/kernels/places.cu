/* Elements by where they stand or which value they have: bands of matrices,
** masks, bins, positions of what is not 0, inverse permutations; cross
** products. What is counted is sorted first, so that sums have one order: the
** CPU's bits. */
#include "backend/cuda/kernels/numbers.h"
#include "backend/cuda/kernels/places_args.h"
#include "backend/cuda/kernels/sorted.h"

/* Element i of any type. */
DEVICE double number_at(const void *in, int64_t i, int dtype) {
  switch (dtype) {
  case TFD_CU_INT8:
    return (double)((const int8_t *)in)[i];
  case TFD_CU_INT16:
    return (double)((const int16_t *)in)[i];
  case TFD_CU_INT32:
    return (double)((const int32_t *)in)[i];
  case TFD_CU_INT64:
    return (double)((const int64_t *)in)[i];
  case TFD_CU_UINT8:
  case TFD_CU_BOOL:
    return (double)((const uint8_t *)in)[i];
  default:
    return get_real(in, i, dtype);
  }
}

/* --- by place ------------------------------------------------------------- */

template <class U> DEVICE void band(const tfd_cu_band &a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t row = quotient(i, a.columns);
    int64_t right =
        i - row * a.columns - (row - quotient(row, a.rows) * a.rows);
    bool stays =
        (a.lower < 0 || -right <= a.lower) && (a.upper < 0 || right <= a.upper);

    ((U *)a.out)[i] = stays ? ((const U *)a.in)[i] : (U)0;
  }
}

#define BAND(size, U)                             \
  KERNEL(256, band_##size)(const tfd_cu_band a) { \
    band<U>(a);                                   \
  }                                               \
  END_KERNEL(256, band_##size)
BAND(1, uint8_t)
BAND(2, uint16_t)
BAND(4, uint32_t)
BAND(8, uint64_t)

KERNEL(256, mask)(const tfd_cu_mask a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t row = quotient(i, a.width);
    int64_t length = index_at(a.lengths, a.wide, row);

    put(a.out, i, a.dtype, (int64_t)(i - row * a.width < length));
  }
}
END_KERNEL(256, mask)

KERNEL(256, cross)(const tfd_cu_cross a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    for (int k = 0; k < 3; k++) {
      int64_t p = 3 * i + (k == 2 ? 0 : k + 1);
      int64_t q = 3 * i + (k == 0 ? 2 : k - 1);
      double less = number_at(a.a, q, a.dtype) * number_at(a.b, p, a.dtype);

      put(a.out, 3 * i + k, a.dtype,
          times_plus(number_at(a.a, p, a.dtype), number_at(a.b, q, a.dtype),
                     -less));
    }
  }
}
END_KERNEL(256, cross)

/* --- bins ----------------------------------------------------------------- */

KERNEL(256, bin_keys)(const tfd_cu_bins a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t x = index_at(a.in, a.wide, i);

    if (x < 0) note_bad(a.error, i, x);
    a.keys[i] =
        (uint32_t)(x >= 0 && x < a.size ? quotient(i, a.width) * a.size + x
                                        : a.bins);
    a.order[i] = (uint32_t)i;
  }
}
END_KERNEL(256, bin_keys)

KERNEL(256, bins)(const tfd_cu_bins a) {
  for (int64_t b = thread_index(); b < a.bins; b += thread_count()) {
    int64_t k = keys_below(a.keys, a.n, b);
    int64_t end = keys_below(a.keys, a.n, b + 1);
    double sum = (double)(end - k);

    if (a.binary) {
      sum = end > k ? 1 : 0;
    } else if (a.weights != NULL) {
      for (sum = 0; k < end; k++) {
        sum += number_at(a.weights, a.order[k], a.weights_dtype);
      }
    }
    put(a.out, b, a.dtype, sum);
  }
}
END_KERNEL(256, bins)

/* --- what is not 0 -------------------------------------------------------- */

KERNEL(256, truth_keys)(const tfd_cu_truths a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    a.keys[i] = number_at(a.in, i, a.dtype) == 0 ? 1 : 0;
    a.order[i] = (uint32_t)i;
  }
}
END_KERNEL(256, truth_keys)

KERNEL(256, coordinates)(const tfd_cu_truths a) {
  int64_t found = keys_below(a.keys, a.n, 1);

  if (found != a.count) {
    if (thread_index() == 0) note_bad(a.error, a.count, found);
    return;
  }
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    int64_t rest = a.order[i];

    for (int d = a.rank - 1; d >= 0; d--) {
      int64_t next = quotient(rest, a.dims[d]);

      a.out[i * a.rank + d] = rest - next * a.dims[d];
      rest = next;
    }
  }
}
END_KERNEL(256, coordinates)

/* --- permutations --------------------------------------------------------- */

KERNEL(256, inverse)(const tfd_cu_inverse a) {
  if (*a.nothing) return;
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    if (i > 0 && a.keys[i - 1] == a.keys[i]) {
      note_bad(a.error, a.order[i], a.keys[i]);
    }
    put(a.out, i, a.dtype, (int64_t)a.order[i]);
  }
}
END_KERNEL(256, inverse)
