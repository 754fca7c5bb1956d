/* A rule on a stretch of elements; half types go through blocks that stay in
** the first-level cache. */
#include "backend/cpu/update/update.h"

enum { BLOCK = TFD_UPDATE_BLOCK };

static void apply_half(const tfd__update_rule *rule, int dtype,
                       void *const *targets, int64_t begin, const float *g,
                       int64_t n, const double *reals) {
  float values[TFD_UPDATE_TARGETS][BLOCK];
  void *x[TFD_UPDATE_TARGETS];
  int64_t at;
  int t;

  for (at = 0; at < n; at += BLOCK) {
    int64_t k = n - at < BLOCK ? n - at : BLOCK;

    for (t = 0; t < rule->targets; t++) {
      x[t] = values[t];
      tfd__halves_to_floats(dtype, values[t],
                            (const uint16_t *)targets[t] + begin + at, k);
    }
    rule->f32(x, g + at, k, reals);
    for (t = 0; t < rule->targets; t++) {
      tfd__floats_to_halves(dtype, (uint16_t *)targets[t] + begin + at,
                            values[t], k);
    }
  }
}

void tfd__update_apply(const tfd__update_rule *rule, int dtype,
                       void *const *targets, int64_t begin, const void *g,
                       int64_t n, const double *reals) {
  void *x[TFD_UPDATE_TARGETS];
  int t;

  if (tfd__is_half(dtype)) {
    apply_half(rule, dtype, targets, begin, g, n, reals);
    return;
  }
  for (t = 0; t < rule->targets; t++) {
    x[t] = dtype == TFD_FLOAT32 ? (void *)((float *)targets[t] + begin)
                                : (void *)((double *)targets[t] + begin);
  }
  (dtype == TFD_FLOAT32 ? rule->f32 : rule->f64)(x, g, n, reals);
}
