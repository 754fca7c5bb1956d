/* Whether devices still take work: until the process begins to end. */
#include <stdatomic.h>

#include "backend/backend.h"

static atomic_bool closed;

void tfd__backends_close(void) {
  atomic_store(&closed, true);
}

int tfd__check_running(void) {
  if (TFD_LIKELY(!atomic_load_explicit(&closed, memory_order_relaxed))) {
    return TFD_OK;
  }
  return tfd__fail(TFD_FAILED_PRECONDITION,
                   "the devices have stopped, because the process ends");
}
