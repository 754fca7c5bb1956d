/* Elementwise ops: one kernel for each type and form, which branches on the op;
** the branch is the same for all threads and costs little beside memory.
** Cost: each input and output element once over the bus, 16 bytes at a time
** where all are dense.
** Compiled without contraction: a product and a sum round twice, as where they
** are two ops. */
#include "backend/cuda/kernels/functions.h"
#include "backend/cuda/kernels/loops.h"

/* --- what is computed ----------------------------------------------------- */

struct float_unary {
  template <class T> DEVICE T body(int op, T x, T, T, T A) {
    switch (op) {
#define FLOAT_UNARY(name, e) \
  case TFD_CU_U_##name:      \
    return e;
#include "backend/cuda/kernels/ops.def"
    }
    return x;
  }
  template <class T> DEVICE_CALL T of(int op, T x, T y, T z, T A) {
    return body(op, x, y, z, A);
  }
  /* In place: what a call must keep would not fit the registers. */
  DEVICE double of(int op, double x, double y, double z, double A) {
    return body(op, x, y, z, A);
  }
};

struct int_unary {
  template <class T> DEVICE_CALL T of(int op, T x, T, T, T) {
    typedef typename unsigned_of<T>::type U;
    switch (op) {
#define INT_UNARY(name, e) \
  case TFD_CU_IU_##name:   \
    return (T)(e);
#include "backend/cuda/kernels/ops.def"
    }
    return (T)(U)x;
  }
};

struct float_binary {
  template <class T> DEVICE T body(int op, T x, T y, T, T A) {
    switch (op) {
#define FLOAT_BINARY(name, e) \
  case TFD_CU_B_##name:       \
    return e;
#include "backend/cuda/kernels/ops.def"
    }
    return x;
  }
  template <class T> DEVICE_CALL T of(int op, T x, T y, T z, T A) {
    return body(op, x, y, z, A);
  }
  /* In place: what a call must keep would not fit the registers. */
  DEVICE double of(int op, double x, double y, double z, double A) {
    return body(op, x, y, z, A);
  }
};

struct int_binary {
  template <class T> DEVICE_CALL T of(int op, T x, T y, T, T) {
    typedef typename unsigned_of<T>::type U;
    switch (op) {
#define INT_BINARY(name, e) \
  case TFD_CU_IB_##name:    \
    return (T)(e);
#include "backend/cuda/kernels/ops.def"
    }
    return (T)(U)x;
  }
};

struct test {
  template <class T> DEVICE uint8_t of(int op, T x, T, T, T) {
    switch (op) {
#define TEST(name, e)   \
  case TFD_CU_T_##name: \
    return e;
#include "backend/cuda/kernels/ops.def"
    }
    return 0;
  }
};

struct compare {
  template <class T> DEVICE uint8_t of(int op, T x, T y, T, T) {
    switch (op) {
#define COMPARE(name, e) \
  case TFD_CU_C_##name:  \
    return e;
#include "backend/cuda/kernels/ops.def"
    }
    return 0;
  }
};

struct clip {
  template <class T> DEVICE T of(int, T x, T low, T high, T) {
    return clip_of(x, low, high);
  }
};

/* --- the loops ------------------------------------------------------------ */

/* Elements moved at once: 16 bytes of floats. Integers go one at a time: they
** are rare, and every form of a loop is code. */
template <class T> struct pack_of {
  enum { n = 1 };
};
template <> struct pack_of<float> {
  enum { n = 4 };
};
template <> struct pack_of<double> {
  enum { n = 2 };
};
template <> struct pack_of<f16> {
  enum { n = 8 };
};
template <> struct pack_of<bf16> {
  enum { n = 8 };
};

template <class F, class In, class Out, int INS, int N>
DEVICE void packed(const tfd_cu_elementwise &a) {
  typedef typename wide_of<In>::type W;
  typedef pack<In, N> In_pack;
  typedef pack<Out, N> Out_pack;

  for (int64_t i = thread_index(); i < a.n / N; i += thread_count()) {
    In_pack x[INS];
    Out_pack y;

    for (int k = 0; k < INS; k++) {
      if (a.scalar >> k & 1) {
        for (int j = 0; j < N; j++) x[k].v[j] = *(const In *)a.in[k];
      } else {
        x[k] = ((const In_pack *)a.in[k])[i];
      }
    }
    for (int j = 0; j < N; j++) {
      W w[3] = {};

      for (int k = 0; k < INS; k++) w[k] = widen(x[k].v[j]);
      y.v[j] = narrow<Out>(F::of(a.op, w[0], w[1], w[2], (W)a.a));
    }
    ((Out_pack *)a.out)[i] = y;
  }
}

template <class F, class In, class Out, int INS>
DEVICE void elementwise(const tfd_cu_elementwise &a) {
  const int N = pack_of<In>::n;
  bool together = N > 1 && a.vector != 0;

  if (stopped(a.stop)) return;
  if constexpr (N > 1) {
    if (together) packed<F, In, Out, INS, N>(a);
  }
  single<F, In, Out, INS>(a, together ? a.n / N * N : 0);
}

#define INSTANCE(name, F, In, Out, ins)           \
  KERNEL(256, name)(const tfd_cu_elementwise a) { \
    elementwise<F, In, Out, ins>(a);              \
  }                                               \
  END_KERNEL(256, name)
#define FLOATS(form, F, ins)                   \
  INSTANCE(form##_f32, F, float, float, ins)   \
  INSTANCE(form##_f64, F, double, double, ins) \
  INSTANCE(form##_f16, F, f16, f16, ins)       \
  INSTANCE(form##_bf16, F, bf16, bf16, ins)
#define INTS(form, F, ins)                       \
  INSTANCE(form##_i8, F, int8_t, int8_t, ins)    \
  INSTANCE(form##_i16, F, int16_t, int16_t, ins) \
  INSTANCE(form##_i32, F, int32_t, int32_t, ins) \
  INSTANCE(form##_i64, F, int64_t, int64_t, ins) \
  INSTANCE(form##_u8, F, uint8_t, uint8_t, ins)
#define TO_BOOL(form, F, ins)                   \
  INSTANCE(form##_f32, F, float, uint8_t, ins)  \
  INSTANCE(form##_f64, F, double, uint8_t, ins) \
  INSTANCE(form##_f16, F, f16, uint8_t, ins)    \
  INSTANCE(form##_bf16, F, bf16, uint8_t, ins)
#define INTS_TO_BOOL(form, F, ins)               \
  INSTANCE(form##_i8, F, int8_t, uint8_t, ins)   \
  INSTANCE(form##_i16, F, int16_t, uint8_t, ins) \
  INSTANCE(form##_i32, F, int32_t, uint8_t, ins) \
  INSTANCE(form##_i64, F, int64_t, uint8_t, ins) \
  INSTANCE(form##_u8, F, uint8_t, uint8_t, ins)

FLOATS(unary, float_unary, 1)
INTS(unary, int_unary, 1)
FLOATS(binary, float_binary, 2)
INTS(binary, int_binary, 2)
TO_BOOL(test, test, 1)
TO_BOOL(compare, compare, 2)
INTS_TO_BOOL(compare, compare, 2)
FLOATS(clip, clip, 3)
INTS(clip, clip, 3)

/* --- choosing: the condition is one byte, values are moved by their size -- */

template <class T> DEVICE void choose(const tfd_cu_elementwise &a) {
  const uint8_t *c = (const uint8_t *)a.in[0];
  const T *x = (const T *)a.in[1];
  const T *y = (const T *)a.in[2];

  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t at[3];

    if (a.rank > 0) {
      place<3>(a, i, at);
    } else {
      for (int k = 0; k < 3; k++) at[k] = a.scalar >> k & 1 ? 0 : i;
    }
    ((T *)a.out)[i] = c[at[0]] != 0 ? x[at[1]] : y[at[2]];
  }
}

#define CHOOSE(name, T)                           \
  KERNEL(256, name)(const tfd_cu_elementwise a) { \
    choose<T>(a);                                 \
  }                                               \
  END_KERNEL(256, name)
CHOOSE(select_1, uint8_t)
CHOOSE(select_2, uint16_t)
CHOOSE(select_4, uint32_t)
CHOOSE(select_8, uint64_t)

/* --- sums of several: half types are added in float32 and rounded once ---- */

DEVICE float plus(float x, float y) {
  return x + y;
}
DEVICE double plus(double x, double y) {
  return x + y;
}
template <class T> DEVICE T plus(T x, T y) {
  typedef typename unsigned_of<T>::type U;

  return (T)((U)x + (U)y);
}

template <class T> DEVICE void add_n(const tfd_cu_sum &a) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    typename wide_of<T>::type sum = widen(((const T *)a.in[0])[i]);

    for (int k = 1; k < a.ins; k++) {
      sum = plus(sum, widen(((const T *)a.in[k])[i]));
    }
    ((T *)a.out)[i] = narrow<T>(sum);
  }
}

#define ADD_N(suffix, T)                            \
  KERNEL(256, add_n_##suffix)(const tfd_cu_sum a) { \
    add_n<T>(a);                                    \
  }                                                 \
  END_KERNEL(256, add_n_##suffix)
ADD_N(f32, float)
ADD_N(f64, double)
ADD_N(f16, f16)
ADD_N(bf16, bf16)
ADD_N(i8, int8_t)
ADD_N(i16, int16_t)
ADD_N(i32, int32_t)
ADD_N(i64, int64_t)
ADD_N(u8, uint8_t)
