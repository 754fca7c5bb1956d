/* Elements moved as they are, converted, or made from one number. The output
** is dense, the input may have any strides. */
#include "backend/cuda/kernels/dialect.h"
#include "backend/cuda/kernels/numbers.h"

#include <math.h>

DEVICE int64_t place_of(const tfd_cu_move &a, int64_t i) {
  int64_t at = 0;

  if (a.rank == 0) return i;
  for (int d = a.rank - 1; d > 0; d--) {
    int64_t rest = quotient(i, a.dims[d]);

    at += (i - rest * a.dims[d]) * a.strides[d];
    i = rest;
  }
  return at + i * a.strides[0];
}

template <class T> DEVICE void copy(const tfd_cu_move &a) {
  if (stopped(a.stop)) return;
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    ((T *)a.out)[i] = ((const T *)a.in)[place_of(a, i)];
  }
}

#define COPY(name, T)                      \
  KERNEL(256, name)(const tfd_cu_move a) { \
    copy<T>(a);                            \
  }                                        \
  END_KERNEL(256, name)
COPY(copy_1, uint8_t)
COPY(copy_2, uint16_t)
COPY(copy_4, uint32_t)
COPY(copy_8, uint64_t)

template <class T> DEVICE void lay(const tfd_cu_lay &a) {
  for (int64_t k = thread_index(); k < a.n; k += thread_count()) {
    int64_t i = k;
    int64_t to = 0;
    int64_t from = 0;

    for (int d = a.rank - 1; d > 0; d--) {
      int64_t rest = quotient(i, a.dims[d]);
      int64_t at = i - rest * a.dims[d];

      to += at * a.out_strides[d];
      from += at * a.in_strides[d];
      i = rest;
    }
    ((T *)a.out)[to + i * a.out_strides[0]] =
        ((const T *)a.in)[from + i * a.in_strides[0]];
  }
}

template <class T> DEVICE void one_hot(const tfd_cu_one_hot &a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t row = quotient(i, a.inner);
    int64_t outer = quotient(row, a.depth);
    int64_t at = outer * a.inner + i - row * a.inner;
    int64_t k = index_at(a.index, a.wide, at);

    ((T *)a.out)[i] = (T)(k == row - outer * a.depth ? a.on : a.off);
  }
}

#define ANY_SIZE(form, size, T)                       \
  KERNEL(256, form##_##size)(const tfd_cu_##form a) { \
    form<T>(a);                                       \
  }                                                   \
  END_KERNEL(256, form##_##size)
#define SIZES(form)           \
  ANY_SIZE(form, 1, uint8_t)  \
  ANY_SIZE(form, 2, uint16_t) \
  ANY_SIZE(form, 4, uint32_t) \
  ANY_SIZE(form, 8, uint64_t)
SIZES(lay)
SIZES(one_hot)

/* --- conversion ----------------------------------------------------------- */

template <class T> DEVICE void cast_reals(const tfd_cu_move &a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    put(a.out, i, a.to, widen(((const T *)a.in)[place_of(a, i)]));
  }
}

template <class T> DEVICE void cast_wholes(const tfd_cu_move &a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    put(a.out, i, a.to, (int64_t)((const T *)a.in)[place_of(a, i)]);
  }
}

#define CAST(name, form, T)                \
  KERNEL(256, name)(const tfd_cu_move a) { \
    cast_##form<T>(a);                     \
  }                                        \
  END_KERNEL(256, name)
CAST(cast_f32, reals, float)
CAST(cast_f64, reals, double)
CAST(cast_f16, reals, f16)
CAST(cast_bf16, reals, bf16)
CAST(cast_i8, wholes, int8_t)
CAST(cast_i16, wholes, int16_t)
CAST(cast_i32, wholes, int32_t)
CAST(cast_i64, wholes, int64_t)
CAST(cast_u8, wholes, uint8_t)

/* One number, rounded once, to all elements. */
KERNEL(256, fill)(const tfd_cu_move a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    put(a.out, i, a.to, a.value);
  }
}
END_KERNEL(256, fill)

KERNEL(256, range)(const tfd_cu_range a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    put(a.out, i, a.dtype, times_plus((double)i, a.delta, a.start));
  }
}
END_KERNEL(256, range)

/* --- padding -------------------------------------------------------------- */

template <class T> DEVICE void pad(const tfd_cu_pad &a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t rest = i;
    int64_t from = 0;
    bool inside = true;

    for (int d = a.rank - 1; d >= 0; d--) {
      int64_t next = quotient(rest, a.out_dims[d]);
      int64_t at = rest - next * a.out_dims[d] - a.before[d];

      inside = inside && at >= 0 && at < a.in_dims[d];
      from += at * a.in_strides[d];
      rest = next;
    }
    if (inside) {
      ((T *)a.out)[i] = ((const T *)a.in)[from];
    } else {
      put(a.out, i, a.dtype, a.value);
    }
  }
}

#define PAD(name, T)                      \
  KERNEL(256, name)(const tfd_cu_pad a) { \
    pad<T>(a);                            \
  }                                       \
  END_KERNEL(256, name)
PAD(pad_1, uint8_t)
PAD(pad_2, uint16_t)
PAD(pad_4, uint32_t)
PAD(pad_8, uint64_t)
