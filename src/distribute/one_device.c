/* One replica, everything on its device. */
#include "distribute/distribute.h"

static int set_up(tfd_strategy *s, tfd_device *parameter_device) {
  (void)parameter_device;
  TFD_TRY(tfd__strategy_check_devices(s));
  if (s->devices_n != 1) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: %d devices; it takes one",
                     s->ops->name, s->devices_n);
  }
  s->parameters_n = 1;
  return tfd__strategy_list(s->devices, 1, &s->parameters);
}

const tfd__strategy_ops tfd__one_device_strategy = {
    .kind = "one_device",
    .name = "OneDeviceStrategy",
    .set_up = set_up,
};
