/* Rows that indices choose: read, or joined to others. What is joined is sorted
** by its target first, so each target is one thread's, which takes its rows in
** the order in which they are named: the CPU's bits, without atomics. */
#include "backend/cuda/kernels/index_args.h"
#include "backend/cuda/kernels/numbers.h"
#include "backend/cuda/kernels/rounded.h"

/* --- reading -------------------------------------------------------------- */

template <class U> DEVICE void gather(const tfd_cu_gather &a) {
  int64_t n = a.outer * a.count * a.inner;

  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    int64_t row = quotient(i, a.inner);
    int64_t k = i - row * a.inner;
    int64_t o = quotient(row, a.count);
    int64_t which = quotient(o, a.shared) * a.count + row - o * a.count;
    int64_t from = index_at(a.index, a.wide, which);

    if (from < 0 && a.zeros) {
      ((U *)a.out)[i] = 0;
      continue;
    }
    if (from < 0 || from >= a.bound) {
      if (k == 0) note_bad(a.error, which, from);
      continue;
    }
    ((U *)a.out)[i] = ((const U *)a.in)[(o * a.bound + from) * a.inner + k];
  }
}

#define GATHER(name, U)                      \
  KERNEL(256, name)(const tfd_cu_gather a) { \
    gather<U>(a);                            \
  }                                          \
  END_KERNEL(256, name)
GATHER(gather_1, uint8_t)
GATHER(gather_2, uint16_t)
GATHER(gather_4, uint32_t)
GATHER(gather_8, uint64_t)

/* --- choosing ------------------------------------------------------------- */

KERNEL(256, choose)(const tfd_cu_choose a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t block = quotient(i, a.each);
    int64_t at = quotient(block, a.outer) * a.each + i - block * a.each;
    int64_t row = block;
    int64_t x = 0;
    bool ok = true;

    for (int d = 0; d < a.depth && ok; d++) {
      x = index_at(a.index, a.wide, at * a.depth + d);
      ok = x >= 0 && x < a.bounds[d];
      row = row * a.bounds[d] + x;
    }
    if (a.negative == TFD_CU_RISING && ok && at > 0) {
      ok = x >= index_at(a.index, a.wide, at - 1);
    }
    if (!ok && !(a.negative == TFD_CU_LEAVE_OUT && x < 0)) {
      note_bad(a.error, at, x);
    }
    a.keys[i] = (uint32_t)(ok ? row : a.rows);
    if (a.order != NULL) a.order[i] = (uint32_t)i;
  }
}
END_KERNEL(256, choose)

/* One thread: is there something noted, and what was it? */
KERNEL(256, refuse)(const tfd_cu_choose a) {
  uint64_t noted = 0;
  int64_t at = 0;

  if (thread_index() > 0) return;
  noted = *a.error;
  *a.nothing = noted != UINT64_MAX || stopped(a.stop);
  if (noted == UINT64_MAX) return;
  at = (int64_t)(noted >> 32);
  for (int d = 0; d < a.depth; d++) {
    a.refused[d] = index_at(a.index, a.wide, at * a.depth + d);
  }
  if (a.negative == TFD_CU_RISING) {
    a.refused[1] = at > 0 ? index_at(a.index, a.wide, at - 1) : 0;
  }
}
END_KERNEL(256, refuse)

/* --- joining -------------------------------------------------------------- */

/* The type rows are joined in. */
template <class T> struct joined_in { typedef int64_t type; };
template <> struct joined_in<float> { typedef float type; };
template <> struct joined_in<double> { typedef double type; };
template <> struct joined_in<f16> { typedef float type; };
template <> struct joined_in<bf16> { typedef float type; };

template <class W> DEVICE W joined(int op, W x, W y) {
  switch (op) {
  case TFD_CU_JOIN_SUB:
    return x - y;
  case TFD_CU_JOIN_MUL:
    return x * y;
  case TFD_CU_JOIN_DIV:
    return x / y;
  case TFD_CU_JOIN_MIN:
    return y < x || y != y ? y : x;
  case TFD_CU_JOIN_MAX:
    return y > x || y != y ? y : x;
  default:
    return x + y;
  }
}
/* Integers wrap around. */
DEVICE int64_t joined(int op, int64_t x, int64_t y) {
  switch (op) {
  case TFD_CU_JOIN_SUB:
    return (int64_t)((uint64_t)x - (uint64_t)y);
  case TFD_CU_JOIN_MUL:
    return (int64_t)((uint64_t)x * (uint64_t)y);
  case TFD_CU_JOIN_MIN:
    return y < x ? y : x;
  case TFD_CU_JOIN_MAX:
    return y > x ? y : x;
  default:
    return (int64_t)((uint64_t)x + (uint64_t)y);
  }
}

/* Positions [k, end) name the row that element `at` of out belongs to; c is its
** column. */
template <class T>
DEVICE void join_one(const tfd_cu_join &a, int64_t k, int64_t end, int64_t c,
                     int64_t at) {
  typedef typename joined_in<T>::type W;
  const T *in = (const T *)a.in;
  T *out = (T *)a.out;
  bool sum = a.op == TFD_CU_JOIN_SUM;
  W x = 0;

  if (a.op == TFD_CU_JOIN_UPDATE) {
    out[at] = in[(int64_t)a.order[end - 1] * a.inner + c];
    return;
  }
  if (!sum && !a.fresh) x = (W)widen(out[at]);
  for (int64_t j = k; j < end; j++) {
    W y = (W)widen(in[(int64_t)a.order[j] * a.inner + c]);

    x = a.fresh && j == k ? y : joined(a.op, x, y);
    if (!sum) x = (W)widen(narrow<T>(x));
  }
  out[at] = narrow<T>(x);
  if (a.dtype == TFD_CU_BOOL) out[at] = narrow<T>((W)(x != 0));
  if (a.mean && end - k > 1) {
    out[at] = rounded<T>::of((double)widen(out[at]) / (double)(end - k));
  }
}

template <class T> DEVICE void join(const tfd_cu_join &a) {
  int64_t n = a.n * a.inner;

  if (*a.nothing) return;
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    int64_t k = quotient(i, a.inner);
    uint32_t key = a.keys[k];
    int64_t end = k + 1;

    if (key == (uint32_t)a.rows || (k > 0 && a.keys[k - 1] == key)) continue;
    while (end < a.n && a.keys[end] == key) end++;
    join_one<T>(a, k, end, i - k * a.inner, key * a.inner + i - k * a.inner);
  }
}

#define JOIN(suffix, T)                             \
  KERNEL(256, join_##suffix)(const tfd_cu_join a) { \
    join<T>(a);                                     \
  }                                                 \
  END_KERNEL(256, join_##suffix)
JOIN(f32, float)
JOIN(f64, double)
JOIN(f16, f16)
JOIN(bf16, bf16)
JOIN(i8, int8_t)
JOIN(i16, int16_t)
JOIN(i32, int32_t)
JOIN(i64, int64_t)
JOIN(u8, uint8_t)
