/* A replica on each device, each variable on all of them. */
#include "distribute/distribute.h"

static int set_up(tfd_strategy *s, tfd_device *parameter_device) {
  (void)parameter_device;
  TFD_TRY(tfd__strategy_check_devices(s));
  s->parameters_n = s->devices_n;
  return tfd__strategy_list(s->devices, s->devices_n, &s->parameters);
}

static int place(const tfd_strategy *s, bool on_read, tfd_variable_kind *kind_p,
                 int *copies_p) {
  *kind_p = on_read ? TFD_VARIABLE_SYNC_ON_READ : TFD_VARIABLE_MIRRORED;
  *copies_p = s->devices_n;
  return TFD_OK;
}

const tfd__strategy_ops tfd__mirrored_strategy = {
    .kind = "mirrored",
    .name = "MirroredStrategy",
    .mirrors = true,
    .set_up = set_up,
    .place = place,
};
