/* A replica on each device, each variable once, on the parameter device. */
#include "distribute/distribute.h"

static int set_up(tfd_strategy *s, tfd_device *parameter_device) {
  tfd_device *const *all = NULL;
  int n = 0;

  TFD_TRY(tfd__strategy_check_devices(s));
  if (parameter_device == NULL && s->devices_n == 1) {
    parameter_device = s->devices[0];
  }
  if (parameter_device == NULL) {
    TFD_TRY(tfd__devices(&all, &n));
    parameter_device = all[0]; /* CPU devices come first */
  }
  s->parameters_n = 1;
  return tfd__strategy_list(&parameter_device, 1, &s->parameters);
}

static int place(const tfd_strategy *s, bool on_read, tfd_variable_kind *kind_p,
                 int *copies_p) {
  (void)on_read;
  *kind_p = s->devices_n == 1 ? TFD_VARIABLE_PLAIN : TFD_VARIABLE_AGGREGATING;
  *copies_p = 1;
  return TFD_OK;
}

const tfd__strategy_ops tfd__central_storage_strategy = {
    .kind = "central_storage",
    .name = "CentralStorageStrategy",
    .set_up = set_up,
    .place = place,
};
