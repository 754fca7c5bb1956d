/* The elementwise part of a step of LSTM and GRU, forward and backward: one
** thread for each unit of each row. Gates are kept for the way back as the
** CPU's own loops keep them. */
#include "backend/cuda/kernels/dialect.h"
#include "backend/cuda/kernels/recurrent_args.h"

#include <math.h>

DEVICE float hyperbolic(float x) {
  return tanhf(x);
}
/* One copy of the long code, which needs many registers. */
DEVICE_CALL double hyperbolic(double x) {
  return tanh(x);
}
DEVICE float logistic(float x) {
  return 1 / (1 + expf(-x));
}
DEVICE_CALL double logistic(double x) {
  return 1 / (1 + exp(-x));
}

template <class T> DEVICE T at_or_zero(const void *x, int64_t i) {
  return x == NULL ? (T)0 : ((const T *)x)[i];
}

template <class T> DEVICE void lstm_cell(const tfd_cu_cell &a) {
  int64_t u = a.units;

  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t row = quotient(i, u);
    int64_t j = i - row * u;
    const T *x = (const T *)a.in + row * 4 * u + j;
    const T *m = (const T *)a.mixed + row * 4 * u + j;
    T p[4];
    T c;

    for (int k = 0; k < 4; k++) {
      p[k] = x[k * u] + m[k * u] + at_or_zero<T>(a.bias, k * u + j);
      p[k] = k == 2 ? hyperbolic(p[k]) : logistic(p[k]);
    }
    c = p[1] * at_or_zero<T>(a.c_prev, i) + p[0] * p[2];
    ((T *)a.c)[i] = c;
    ((T *)a.h)[i] = p[3] * hyperbolic(c);
    if (a.gates == NULL) continue;
    for (int k = 0; k < 4; k++) {
      ((T *)a.gates)[row * 4 * u + k * u + j] = p[k];
    }
  }
}

template <class T> DEVICE void gru_cell(const tfd_cu_cell &a) {
  int64_t u = a.units;

  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t row = quotient(i, u);
    int64_t j = i - row * u;
    const T *x = (const T *)a.in + row * 3 * u + j;
    const T *m = (const T *)a.mixed + row * 3 * u + j;
    T mixed = m[2 * u] + at_or_zero<T>(a.bias, 5 * u + j);
    T gate[2];
    T n;

    for (int k = 0; k < 2; k++) {
      gate[k] = logistic(x[k * u] + at_or_zero<T>(a.bias, k * u + j) +
                         m[k * u] + at_or_zero<T>(a.bias, (3 + k) * u + j));
    }
    n = hyperbolic(x[2 * u] + at_or_zero<T>(a.bias, 2 * u + j) +
                   gate[1] * mixed);
    ((T *)a.h)[i] = gate[0] * at_or_zero<T>(a.h_prev, i) + (1 - gate[0]) * n;
    if (a.gates != NULL) {
      T *kept = (T *)a.gates + row * 4 * u + j;

      kept[0] = gate[0];
      kept[u] = gate[1];
      kept[2 * u] = n;
      kept[3 * u] = mixed;
    }
  }
}

/* --- backward ------------------------------------------------------------- */

/* A workspace that other code filled is none of ours. */
DEVICE void check_header(const tfd_cu_cell_back &a) {
  if (thread_index() == 0 && *a.header != 1) note_bad(a.error, 0, *a.header);
}

template <class T> DEVICE void lstm_back(const tfd_cu_cell_back &a) {
  int64_t u = a.units;

  check_header(a);
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t row = quotient(i, u);
    int64_t at = row * 4 * u + i - row * u;
    const T *g = (const T *)a.gates + at;
    T *d = (T *)a.dgates + at;
    T y = hyperbolic(((const T *)a.c)[i]);
    T dh = ((const T *)a.dh)[i] + at_or_zero<T>(a.dsequence, i);
    T dc = ((const T *)a.dc)[i] + dh * g[3 * u] * (1 - y * y);

    d[0] = dc * g[2 * u] * g[0] * (1 - g[0]);
    d[u] = dc * at_or_zero<T>(a.c_prev, i) * g[u] * (1 - g[u]);
    d[2 * u] = dc * g[0] * (1 - g[2 * u] * g[2 * u]);
    d[3 * u] = dh * y * g[3 * u] * (1 - g[3 * u]);
    ((T *)a.dc)[i] = dc * g[u];
  }
}

template <class T> DEVICE void gru_back(const tfd_cu_cell_back &a) {
  int64_t u = a.units;

  check_header(a);
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    int64_t row = quotient(i, u);
    int64_t j = i - row * u;
    const T *g = (const T *)a.gates + row * 4 * u + j;
    T *d = (T *)a.dgates + row * 3 * u + j;
    T *m = (T *)a.dmixed + row * 3 * u + j;
    T n = g[2 * u];
    T dh = ((const T *)a.dh)[i] + at_or_zero<T>(a.later, i) +
           at_or_zero<T>(a.dsequence, i);
    T dn = dh * (1 - g[0]) * (1 - n * n);

    d[0] = m[0] = dh * (at_or_zero<T>(a.h_prev, i) - n) * g[0] * (1 - g[0]);
    d[u] = m[u] = dn * g[3 * u] * g[u] * (1 - g[u]);
    d[2 * u] = dn;
    m[2 * u] = dn * g[u];
    ((T *)a.dh)[i] = dh * g[0];
  }
}

#define CELLS(suffix, T)                                      \
  KERNEL(256, lstm_cell_##suffix)(const tfd_cu_cell a) {      \
    lstm_cell<T>(a);                                          \
  }                                                           \
  END_KERNEL(256, lstm_cell_##suffix)                         \
  KERNEL(256, gru_cell_##suffix)(const tfd_cu_cell a) {       \
    gru_cell<T>(a);                                           \
  }                                                           \
  END_KERNEL(256, gru_cell_##suffix)                          \
  KERNEL(256, lstm_back_##suffix)(const tfd_cu_cell_back a) { \
    lstm_back<T>(a);                                          \
  }                                                           \
  END_KERNEL(256, lstm_back_##suffix)                         \
  KERNEL(256, gru_back_##suffix)(const tfd_cu_cell_back a) {  \
    gru_back<T>(a);                                           \
  }                                                           \
  END_KERNEL(256, gru_back_##suffix)
CELLS(f32, float)
CELLS(f64, double)
