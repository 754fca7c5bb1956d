#include "comm/schedule.h"

static int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

tfd__stretch tfd__stretch_of(int64_t numel, int n, int d) {
  int64_t each = (numel + n - 1) / n;
  tfd__stretch s;

  each = (each + TFD_STRETCH - 1) / TFD_STRETCH * TFD_STRETCH;
  s.begin = least(each * d, numel);
  s.end = least(each * (d + 1), numel);
  return s;
}

/* --- packs ---------------------------------------------------------------- */

/* Packs of whole values. lengths may be NULL. */
static int by_bytes(int64_t limit, const int64_t *sizes, int n,
                    int64_t element_bytes, int64_t *lengths) {
  int64_t size = 0;
  int packs = 0;
  int k;

  for (k = 0; k < n; k++) {
    size += sizes[k];
    if (limit <= 0 || size * element_bytes <= limit) continue;
    if (lengths != NULL) lengths[packs] = size;
    packs++;
    size = 0;
  }
  if (size == 0 && packs > 0) return packs;
  if (lengths != NULL) lengths[packs] = size;
  return packs + 1;
}

int tfd__packs(const tfd__pack_plan *plan, const int64_t *sizes, int n,
               int64_t element_bytes) {
  if (plan->packs > 0) return plan->packs;
  return by_bytes(plan->bytes, sizes, n, element_bytes, NULL);
}

void tfd__pack_lengths(const tfd__pack_plan *plan, const int64_t *sizes, int n,
                       int64_t element_bytes, int64_t *lengths) {
  int64_t total = 0;
  int k;

  if (plan->packs == 0) {
    (void)by_bytes(plan->bytes, sizes, n, element_bytes, lengths);
    return;
  }
  for (k = 0; k < n; k++) total += sizes[k];
  for (k = 0; k < plan->packs - 1; k++) lengths[k] = total / plan->packs;
  lengths[k] = total - total / plan->packs * k;
}
