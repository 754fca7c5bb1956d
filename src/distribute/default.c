/* The default strategy: one replica, wherever the program says. */
#include "distribute/distribute.h"

static int set_up(tfd_strategy *s, tfd_device *parameter_device) {
  (void)parameter_device;
  if (s->devices_n == 0) return TFD_OK;
  return tfd__fail(TFD_VALUE_ERROR, "%s: takes no devices", s->ops->name);
}

const tfd__strategy_ops tfd__default_strategy = {
    .kind = "default",
    .name = "DefaultStrategy",
    .set_up = set_up,
};
