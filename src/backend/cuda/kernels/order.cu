/* Sorting rows, and searching in them. Elements become unsigned keys that sort
** as they do (NaN last, -0 equal to 0); keys are sorted with their positions,
** four bits at a time from the lowest, each pass keeping the order of equals:
** the result is the one stable order, whatever the launch. Positions fit 32
** bits. Cost: two passes over keys and positions for every four bits. */
#include "backend/cuda/kernels/numbers.h"

#include <string.h>

/* --- keys ----------------------------------------------------------------- */

DEVICE uint64_t key_of(double x) {
  const uint64_t sign = (uint64_t)1 << 63;
  double clean = x == 0 ? 0 : x;
  uint64_t u;

  if (x != x) return UINT64_MAX;
  memcpy(&u, &clean, sizeof u);
  return (u & sign) != 0 ? ~u : u | sign;
}
DEVICE uint32_t key_of(float x) {
  const uint32_t sign = (uint32_t)1 << 31;
  float clean = x == 0 ? 0 : x;
  uint32_t u;

  if (x != x) return UINT32_MAX;
  memcpy(&u, &clean, sizeof u);
  return (u & sign) != 0 ? ~u : u | sign;
}
DEVICE uint64_t key_of(int64_t x) {
  return (uint64_t)x ^ (uint64_t)1 << 63;
}
DEVICE uint32_t key_of(int32_t x) {
  return (uint32_t)x ^ (uint32_t)1 << 31;
}

/* Types of up to four bytes. */
DEVICE uint32_t short_key(const void *in, int64_t i, int dtype) {
  switch (dtype) {
  case TFD_CU_FLOAT32:
    return key_of(((const float *)in)[i]);
  case TFD_CU_FLOAT16:
    return key_of(widen(((const f16 *)in)[i]));
  case TFD_CU_BFLOAT16:
    return key_of(widen(((const bf16 *)in)[i]));
  case TFD_CU_INT8:
    return key_of((int32_t)((const int8_t *)in)[i]);
  case TFD_CU_INT16:
    return key_of((int32_t)((const int16_t *)in)[i]);
  case TFD_CU_INT32:
    return key_of(((const int32_t *)in)[i]);
  default:
    return key_of((int32_t)((const uint8_t *)in)[i]);
  }
}
DEVICE uint64_t long_key(const void *in, int64_t i, int dtype) {
  return dtype == TFD_CU_FLOAT64 ? key_of(((const double *)in)[i])
                                 : key_of(((const int64_t *)in)[i]);
}

/* Descending turns the order round; NaN stays last. */
template <class K> DEVICE K turned(K key, bool is_float, bool descending) {
  return descending && !(is_float && key == (K)-1) ? (K)~key : key;
}

KERNEL(256, keys_4)(const tfd_cu_keys a) {
  bool is_float = a.dtype <= TFD_CU_BFLOAT16;

  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    uint32_t row = (uint32_t)i / (uint32_t)a.width;

    ((uint32_t *)a.keys)[i] =
        turned(short_key(a.in, i, a.dtype), is_float, a.descending);
    a.order[i] = (uint32_t)i - row * (uint32_t)a.width;
  }
}
END_KERNEL(256, keys_4)

KERNEL(256, keys_8)(const tfd_cu_keys a) {
  bool is_float = a.dtype <= TFD_CU_BFLOAT16;

  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    uint32_t row = (uint32_t)i / (uint32_t)a.width;

    ((uint64_t *)a.keys)[i] =
        turned(long_key(a.in, i, a.dtype), is_float, a.descending);
    a.order[i] = (uint32_t)i - row * (uint32_t)a.width;
  }
}
END_KERNEL(256, keys_8)

/* --- one pass: four bits -------------------------------------------------- */

typedef uint32_t tally[TFD_CU_DIGITS][TFD_CU_THREADS];

/* How many of each digit each thread has in its part of the tile, and how many
** there are in each sixteenth of the threads: thread 16 d + j sums digit d. */
template <class K>
DEVICE void count_digits(const tfd_cu_radix &a, const K *keys, int64_t first,
                         int64_t end, tally &seen, uint32_t *sums) {
  int digit = threadIdx.x / TFD_CU_DIGITS;
  int part = threadIdx.x % TFD_CU_DIGITS;
  uint32_t sum = 0;

  for (int d = 0; d < TFD_CU_DIGITS; d++) seen[d][threadIdx.x] = 0;
  for (int64_t i = first; i < end; i++) {
    seen[keys[i] >> a.shift & (TFD_CU_DIGITS - 1)][threadIdx.x]++;
  }
  BARRIER();
  for (int k = 0; k < TFD_CU_DIGITS; k++) {
    sum += seen[digit][part * TFD_CU_DIGITS + k];
  }
  sums[threadIdx.x] = sum;
  BARRIER();
}

/* A tile of a row: its number among all, its row's keys, and this thread's
** elements. */
struct share {
  int64_t row;
  int64_t tile;
  int64_t first;
  int64_t end;
};
DEVICE share share_of(const tfd_cu_radix &a, uint32_t task) {
  share s;

  s.row = task / (uint32_t)a.tiles;
  s.tile = task - s.row * a.tiles;
  s.first = s.tile * TFD_CU_TILE + threadIdx.x * TFD_CU_EACH;
  s.end = s.first + TFD_CU_EACH < a.width ? s.first + TFD_CU_EACH : a.width;
  return s;
}

template <class K> DEVICE void radix_count(const tfd_cu_radix &a) {
  SHARED(uint32_t, seen, [TFD_CU_DIGITS][TFD_CU_THREADS]);
  SHARED(uint32_t, sums, [TFD_CU_THREADS]);
  int64_t tasks = a.rows * a.tiles;

  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    share s = share_of(a, (uint32_t)task);

    count_digits<K>(a, (const K *)a.keys + s.row * a.width, s.first, s.end,
                    seen, sums);
    if (threadIdx.x < TFD_CU_DIGITS) {
      uint32_t sum = 0;

      for (int k = 0; k < TFD_CU_DIGITS; k++) {
        sum += sums[threadIdx.x * TFD_CU_DIGITS + k];
      }
      a.counts[(s.row * TFD_CU_DIGITS + threadIdx.x) * a.tiles + s.tile] = sum;
    }
    BARRIER();
  }
}

/* Counts of a row to where each tile's elements of a digit begin. */
KERNEL(256, radix_begin)(const tfd_cu_radix a) {
  SHARED(uint32_t, sums, [TFD_CU_THREADS]);
  int64_t n = a.tiles * TFD_CU_DIGITS;
  int64_t each = (n + TFD_CU_THREADS - 1) / TFD_CU_THREADS;
  int64_t first = threadIdx.x * each;
  int64_t end = first + each < n ? first + each : n;

  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    uint32_t *counts = a.counts + row * n;
    uint32_t sum = 0;

    for (int64_t i = first; i < end; i++) sum += counts[i];
    sums[threadIdx.x] = sum;
    BARRIER();
    sum = 0;
    for (unsigned k = 0; k < threadIdx.x; k++) sum += sums[k];
    for (int64_t i = first; i < end; i++) {
      uint32_t here = counts[i];

      counts[i] = sum;
      sum += here;
    }
    BARRIER();
  }
}
END_KERNEL(256, radix_begin)

template <class K> DEVICE void radix_place(const tfd_cu_radix &a) {
  SHARED(uint32_t, seen, [TFD_CU_DIGITS][TFD_CU_THREADS]);
  SHARED(uint32_t, sums, [TFD_CU_THREADS]);
  int64_t tasks = a.rows * a.tiles;
  int digit = threadIdx.x / TFD_CU_DIGITS;
  int part = threadIdx.x % TFD_CU_DIGITS;

  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    share s = share_of(a, (uint32_t)task);
    int64_t row = s.row * a.width;
    const K *keys = (const K *)a.keys + row;
    uint32_t at = a.counts[(s.row * TFD_CU_DIGITS + digit) * a.tiles + s.tile];

    count_digits<K>(a, keys, s.first, s.end, seen, sums);
    for (int k = 0; k < part; k++) at += sums[digit * TFD_CU_DIGITS + k];
    for (int k = 0; k < TFD_CU_DIGITS; k++) {
      uint32_t here = seen[digit][part * TFD_CU_DIGITS + k];

      seen[digit][part * TFD_CU_DIGITS + k] = at;
      at += here;
    }
    BARRIER();
    for (int64_t i = s.first; i < s.end; i++) {
      K key = keys[i];
      int64_t to =
          row + seen[key >> a.shift & (TFD_CU_DIGITS - 1)][threadIdx.x]++;

      ((K *)a.keys_out)[to] = key;
      a.order_out[to] = a.order[row + i];
    }
    BARRIER();
  }
}

#define RADIX(size, K)                                    \
  KERNEL(256, radix_count_##size)(const tfd_cu_radix a) { \
    radix_count<K>(a);                                    \
  }                                                       \
  END_KERNEL(256, radix_count_##size)                     \
  KERNEL(256, radix_place_##size)(const tfd_cu_radix a) { \
    radix_place<K>(a);                                    \
  }                                                       \
  END_KERNEL(256, radix_place_##size)
RADIX(4, uint32_t)
RADIX(8, uint64_t)

/* --- results -------------------------------------------------------------- */

/* The first `kept` of each row, and where they were. */
template <class T> DEVICE void take(const tfd_cu_take &a) {
  int64_t n = a.rows * a.kept;

  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    int64_t row = (uint32_t)i / (uint32_t)a.kept;
    uint32_t at = a.order[row * a.width + i - row * a.kept];

    ((T *)a.out)[i] = ((const T *)a.in)[row * a.width + at];
    a.positions[i] = (int32_t)at;
  }
}

#define TAKE(size, T)                             \
  KERNEL(256, take_##size)(const tfd_cu_take a) { \
    take<T>(a);                                   \
  }                                               \
  END_KERNEL(256, take_##size)
TAKE(1, uint8_t)
TAKE(2, uint16_t)
TAKE(4, uint32_t)
TAKE(8, uint64_t)

DEVICE uint64_t any_key(const void *in, int64_t i, int dtype) {
  if (dtype == TFD_CU_FLOAT64 || dtype == TFD_CU_INT64) {
    return long_key(in, i, dtype);
  }
  return short_key(in, i, dtype);
}

/* The first position whose key is not below the value's (to the right: above).
 */
KERNEL(256, search)(const tfd_cu_search a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    uint64_t key = any_key(a.values, i, a.dtype);
    int64_t row = (uint32_t)i / (uint32_t)a.each * a.width;
    int64_t low = 0;
    int64_t n = a.width;

    while (n > 0) {
      int64_t half = n / 2;
      uint64_t here = any_key(a.sequence, row + low + half, a.dtype);

      if (here < key || (a.right && here == key)) {
        low += half + 1;
        n -= half + 1;
      } else {
        n = half;
      }
    }
    put(a.out, i, a.out_dtype, low);
  }
}
END_KERNEL(256, search)

/* A target is in the top k when fewer than k predictions are larger; never
** when it is no class, its prediction is not finite, or one is NaN. */
KERNEL(256, in_top_k)(const tfd_cu_top a) {
  for (int64_t i = thread_index(); i < a.rows; i += thread_count()) {
    int64_t target = index_at(a.targets, a.wide, i);
    bool ok = target >= 0 && target < a.classes;
    double mine = ok ? get_real(a.in, i * a.classes + target, a.dtype) : 0;
    int64_t larger = 0;

    ok = ok && mine - mine == 0;
    for (int64_t j = 0; ok && j < a.classes; j++) {
      double other = get_real(a.in, i * a.classes + j, a.dtype);

      ok = other == other;
      larger += other > mine;
    }
    ((uint8_t *)a.out)[i] = ok && larger < a.k;
  }
}
END_KERNEL(256, in_top_k)
