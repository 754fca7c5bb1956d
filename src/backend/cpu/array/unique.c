/* Kernels whose results depend on which values occur: distinct values,
** positions of true elements, inverse permutations. */
#include "backend/cpu/array/sort.h"

#include <string.h>

/* --- distinct values ------------------------------------------------------ */

static inline uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= UINT64_C(0xd6e8feb86659fd93);
  x ^= x >> 32;
  return x;
}

/* Outputs: the distinct values in order of first occurrence (then undefined),
** the number of each element's value, how often each occurs, how many there
** are. Cost: one look into a table of 2n to 4n entries for each element. */
int tfd__cpu_unique(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *numbers = tfd__out(call, 1);
  size_t size = tfd__dtype_size(x->dtype);
  size_t out_size = tfd__dtype_size(numbers->dtype);
  char *y = tfd__out(call, 0)->data;
  int64_t *counts = tfd__out(call, 2)->data;
  uint64_t slots = 16;
  tfd__pair *keys = tfd__scratch((size_t)x->numel * sizeof *keys + 1);
  int64_t *table = NULL; /* number of a value + 1, 0 = free */
  uint64_t *known = NULL;
  int64_t found = 0;
  int64_t i;

  while (slots < 2 * (uint64_t)x->numel) slots *= 2;
  table = tfd__scratch(slots * sizeof *table);
  known = tfd__scratch((size_t)x->numel * sizeof *known + 1);
  if (keys == NULL || table == NULL || known == NULL) {
    return tfd__no_memory(slots * sizeof *table, call->name);
  }
  memset(table, 0, slots * sizeof *table);
  tfd__sort_keys(keys, x->data, x->dtype, x->numel);
  for (i = 0; i < x->numel; i++) {
    uint64_t at = mix(keys[i].key) & (slots - 1);

    while (table[at] != 0 && known[table[at] - 1] != keys[i].key) {
      at = (at + 1) & (slots - 1);
    }
    if (table[at] == 0) {
      known[found] = keys[i].key;
      counts[found] = 0;
      memcpy(y + (size_t)found * size, (const char *)x->data + (size_t)i * size,
             size);
      table[at] = ++found;
    }
    counts[table[at] - 1]++;
    tfd__store((char *)numbers->data + (size_t)i * out_size, numbers->dtype,
               (double)(table[at] - 1));
  }
  for (i = found; i < x->numel; i++) counts[i] = 0;
  memset(y + (size_t)found * size, 0, (size_t)(x->numel - found) * size);
  *(int64_t *)tfd__out(call, 3)->data = found;
  return TFD_OK;
}

/* --- true elements -------------------------------------------------------- */

/* One byte of truth for each element; the input's own for bool. */
static const uint8_t *truths(const tfd__call *call, const tfd__view *x) {
  size_t size = tfd__dtype_size(x->dtype);
  uint8_t *truth = NULL;
  int64_t i;

  if (x->dtype == TFD_BOOL) return x->data;
  truth = tfd__scratch((size_t)x->numel + 1);
  if (truth == NULL) {
    (void)tfd__no_memory((size_t)x->numel, call->name);
    return NULL;
  }
  for (i = 0; i < x->numel; i++) {
    truth[i] =
        tfd__load((const char *)x->data + (size_t)i * size, x->dtype) != 0;
  }
  return truth;
}

static int64_t count_true(const uint8_t *truth, int64_t n) {
  int64_t count = 0;
  int64_t i;

  for (i = 0; i < n; i++) count += truth[i] != 0;
  return count;
}

/* ints: count, the number of true elements. */
int tfd__cpu_where_indices(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);
  const uint8_t *truth = truths(call, x);
  int64_t *out = tfd__out(call, 0)->data;
  int64_t i;
  int k;

  if (truth == NULL) return TFD_RESOURCE_EXHAUSTED;
  if (count_true(truth, x->numel) != call->ints[0]) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: count is %lld but %lld elements are true", call->name,
                     (long long)call->ints[0],
                     (long long)count_true(truth, x->numel));
  }
  for (i = 0; i < x->numel; i++) {
    int64_t rest = i;

    if (truth[i] == 0) continue;
    for (k = x->rank - 1; k >= 0; k--) {
      out[k] = rest % x->dims[k];
      rest /= x->dims[k];
    }
    out += x->rank;
  }
  return TFD_OK;
}

/* --- permutations --------------------------------------------------------- */

int tfd__cpu_invert_permutation(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *out = tfd__out(call, 0);
  size_t size = tfd__dtype_size(out->dtype);
  uint8_t *seen = tfd__scratch((size_t)x->numel + 1);
  int64_t i;

  if (seen == NULL) return tfd__no_memory((size_t)x->numel, call->name);
  TFD_TRY(tfd__check_indices(call, "x", x, x->numel));
  memset(seen, 0, (size_t)x->numel);
  for (i = 0; i < x->numel; i++) {
    int64_t to = tfd__index_at(x, i);

    if (seen[to]) {
      return tfd__fail(TFD_INVALID_ARGUMENT, "%s: %lld occurs twice in x",
                       call->name, (long long)to);
    }
    seen[to] = 1;
    tfd__store((char *)out->data + (size_t)to * size, out->dtype, (double)i);
  }
  return TFD_OK;
}
