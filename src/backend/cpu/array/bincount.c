/* Counting whole numbers.
**
** Inputs arr {..} (int32 or int64) and optional weights like it; the output
** has `size` bins, or as many for each row of a matrix. Numbers of `size` and
** above are left out. Integers: size, dtype, binary_output, by_row. */
#include <string.h>

#include "backend/cpu/loops.h"

static int64_t number_at(const tfd__view *v, int64_t i) {
  return v->dtype == TFD_INT32 ? (int64_t)((const int32_t *)v->data)[i]
                               : ((const int64_t *)v->data)[i];
}

/* Weights of each bin, summed in float64; integer sums are exact to 2^53. */
static int count_row(const tfd__call *call, int64_t first, int64_t n,
                     double *bins) {
  const tfd__view *arr = tfd__in(call, 0);
  int64_t size = call->ints[0];
  bool binary = call->ints[2] != 0;

  memset(bins, 0, (size_t)size * sizeof *bins);
  for (int64_t i = first; i < first + n; i++) {
    int64_t value = number_at(arr, i);

    if (value < 0) {
      return tfd__fail(TFD_INVALID_ARGUMENT,
                       "%s: arr holds %lld at position %lld; expected 0 or "
                       "more",
                       call->name, (long long)value, (long long)i);
    }
    if (value >= size) continue;
    if (binary) {
      bins[value] = 1.0;
    } else if (tfd__has(call, 1)) {
      const tfd__view *w = tfd__in(call, 1);

      bins[value] += tfd__load((const char *)w->data +
                                   i * (int64_t)tfd__dtype_size(w->dtype),
                               w->dtype);
    } else {
      bins[value] += 1.0;
    }
  }
  return TFD_OK;
}

int tfd__cpu_bincount(const tfd__call *call) {
  const tfd__view *arr = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  int64_t size = call->ints[0];
  bool by_row = call->ints[3] != 0;
  int64_t rows = by_row ? arr->dims[0] : 1;
  int64_t n = by_row ? arr->dims[1] : arr->numel;
  double *bins = tfd__scratch((size_t)size * sizeof *bins + 1);
  char *to = out->data;

  if (bins == NULL) return TFD_RESOURCE_EXHAUSTED;
  for (int64_t r = 0; r < rows; r++) {
    TFD_TRY(count_row(call, r * n, n, bins));
    for (int64_t i = 0; i < size; i++) {
      tfd__store(to, out->dtype, bins[i]);
      to += tfd__dtype_size(out->dtype);
    }
  }
  return TFD_OK;
}
