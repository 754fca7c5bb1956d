/* Softmax and its losses: a warp takes one row after the other, or a block
** where rows are wide. Computed in float32 (float64 for float64).
** Cost: a row is read three times, from cache after the first. */
#include "backend/cuda/kernels/numbers.h"
#include "backend/cuda/kernels/team.h"

#include <math.h>

template <class T, int G> DEVICE void rows(const tfd_cu_rows &a) {
  typedef typename wide_of<T>::type W;
  SHARED(W, shared, [TFD_CU_THREADS / 32]);
  int lane = threadIdx.x % G;
  int64_t step = (int64_t)gridDim.x * (TFD_CU_THREADS / G);
  int64_t first = (int64_t)blockIdx.x * (TFD_CU_THREADS / G) + threadIdx.x / G;

  /* A team's threads go round as often: they share shuffles and barriers. */
  for (int64_t row = first; row < a.rows; row += step) {
    const T *x = (const T *)a.in + row * a.width;
    T *out = (T *)a.out + row * a.width;
    W most = -INFINITY;
    W sum = 0;

    for (int64_t k = lane; k < a.width; k += G) {
      W v = widen(x[k]);

      most = most >= v || most != most ? most : v;
    }
    most = team<W, G>::all_max(most, shared);
    if (most == -(W)INFINITY) most = 0; /* a row of -inf gives NaN by 0/0 */
    for (int64_t k = lane; k < a.width; k += G) sum += exp(widen(x[k]) - most);
    sum = team<W, G>::all_sum(sum, shared);

    if (a.op == TFD_CU_SOFTMAX) {
      W share = 1 / sum;

      for (int64_t k = lane; k < a.width; k += G) {
        out[k] = narrow<T>(exp(widen(x[k]) - most) * share);
      }
    } else if (a.op == TFD_CU_LOG_SOFTMAX) {
      W total = most + log(sum);

      for (int64_t k = lane; k < a.width; k += G) {
        out[k] = narrow<T>(widen(x[k]) - total);
      }
    } else if (a.op == TFD_CU_LOSS) {
      const T *y = (const T *)a.labels + row * a.width;
      W total = most + log(sum);
      W loss = 0;

      for (int64_t k = lane; k < a.width; k += G) {
        W label = widen(y[k]);

        if (label != 0) loss += label * (total - widen(x[k]));
      }
      loss = team<W, G>::all_sum(loss, shared);
      if (lane == 0) ((T *)a.out)[row] = narrow<T>(loss);
    } else {
      int64_t label = index_at(a.labels, a.wide_labels, row);

      if (label < 0 || label >= a.width) {
        if (lane == 0) note_bad(a.error, row, label);
      } else if (a.op == TFD_CU_SPARSE_LOSS) {
        if (lane == 0) {
          ((T *)a.out)[row] = narrow<T>(most + log(sum) - widen(x[label]));
        }
      } else {
        W dy = widen(((const T *)a.grad)[row]);
        W share = 1 / sum;

        for (int64_t k = lane; k < a.width; k += G) {
          W p = exp(widen(x[k]) - most) * share;

          out[k] = narrow<T>(dy * (k == label ? p - 1 : p));
        }
      }
    }
  }
}

#define ROWS(suffix, T)                                  \
  KERNEL(256, rows_##suffix)(const tfd_cu_rows a) {      \
    rows<T, 32>(a);                                      \
  }                                                      \
  END_KERNEL(256, rows_##suffix)                         \
  KERNEL(256, wide_rows_##suffix)(const tfd_cu_rows a) { \
    rows<T, TFD_CU_THREADS>(a);                          \
  }                                                      \
  END_KERNEL(256, wide_rows_##suffix)
ROWS(f32, float)
ROWS(f64, double)
ROWS(f16, f16)
ROWS(bf16, bf16)
