/* Whether float32 products may round their inputs to TF32. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tfdist.h"

static _Atomic int allowed = -1; /* -1: as the environment says */

bool tfd_tensor_float_32_is_enabled(void) {
  const char *strict = NULL;
  int is = atomic_load(&allowed);

  if (is >= 0) return is != 0;
  strict = getenv("TFDIST_STRICT_FP32");
  return strict == NULL || strcmp(strict, "1") != 0;
}

void tfd_tensor_float_32_enable(bool enabled) {
  atomic_store(&allowed, enabled ? 1 : 0);
}
