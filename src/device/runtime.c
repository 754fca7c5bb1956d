/* What the files of this layer share, and what others put into it. */
#include "device/private.h"

tfd__runtime tfd__rt;

bool tfd_is_started(void) {
  return atomic_load_explicit(&tfd__rt.started, memory_order_acquire);
}

int tfd__fork_error(void) {
  (void)tfd__fail(TFD_FAILED_PRECONDITION,
                  "tfdist cannot be used after fork()");
  return tfd__hint("start another process (os.execute, io.popen, the "
                   "launcher), or fork before the first tensor is made");
}

/* --- variables ------------------------------------------------------------ */

static void (*settle_hook)(bool reported);

void tfd__set_settle_hook(void (*fn)(bool reported)) {
  settle_hook = fn;
}

void tfd__unsettled_add(int n) {
  atomic_fetch_add(&tfd__rt.unsettled, n);
}

void tfd__settle(bool reported) {
  if (TFD_LIKELY(atomic_load_explicit(&tfd__rt.unsettled,
                                      memory_order_acquire) == 0)) {
    return;
  }
  settle_hook(reported);
}
