/* Whether float32 products may round their inputs to TF32. */
#include <stdatomic.h>

#include "base/environment.h"

static _Atomic int allowed = -1; /* -1: as the environment says */

bool tfd_tensor_float_32_is_enabled(void) {
  static const char *const words[] = {"0", "1"};
  int strict = 0;
  int is = atomic_load(&allowed);

  if (is >= 0) return is != 0;
  /* Who starts the runtime has heard of another word. */
  (void)tfd__env_word("TFDIST_STRICT_FP32", words, 2, "0 or 1", &strict);
  return strict == 0;
}

void tfd_tensor_float_32_enable(bool enabled) {
  atomic_store(&allowed, enabled ? 1 : 0);
}
