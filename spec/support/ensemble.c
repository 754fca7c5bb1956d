/* A strategy of the specs, in one file: an ensemble. Every replica trains a
** member of its own on all of the data; what members have in common is their
** mean. It is linked into the library of the specs and adds itself to the
** list; spec/support/ensemble.lua is its class. */
#include "distribute/distribute.h"

static int set_up(tfd_strategy *s, tfd_device *parameter_device) {
  (void)parameter_device;
  TFD_TRY(tfd__strategy_check_devices(s));
  s->parameters_n = s->devices_n;
  return tfd__strategy_list(s->devices, s->devices_n, &s->parameters);
}

/* Members keep their copies apart until somebody reads them together. */
static int place(const tfd_strategy *s, bool on_read, tfd_variable_kind *kind_p,
                 int *copies_p) {
  (void)on_read;
  *kind_p = TFD_VARIABLE_SYNC_ON_READ;
  *copies_p = s->devices_n;
  return TFD_OK;
}

static int create(tfd_strategy *s, tfd_variable *const *copies, int copies_n,
                  const char *known_as,
                  tfd_variable_synchronization synchronization,
                  tfd_variable_aggregation aggregation,
                  tfd_object **variable_p) {
  (void)aggregation;
  return tfd__strategy_create(s, copies, copies_n, known_as, synchronization,
                              TFD_AGGREGATION_MEAN, variable_p);
}

static int reduce(tfd_strategy *s, tfd_reduce_op op, const char *what,
                  tfd_object *const *components, int components_n,
                  tfd_device *const *destinations, int destinations_n,
                  double timeout, tfd_value **result_p) {
  if (op == TFD_REDUCE_SUM) op = TFD_REDUCE_MEAN;
  return tfd__strategy_reduce(s, op, what, components, components_n,
                              destinations, destinations_n, timeout, result_p);
}

static int input_share(const tfd_strategy *s, int64_t rows, int64_t batch,
                       int replica, int64_t *first_p, int64_t *count_p) {
  (void)s;
  (void)batch;
  (void)replica;
  *first_p = 0;
  *count_p = rows;
  return TFD_OK;
}

static const tfd__strategy_ops ensemble = {
    .kind = "ensemble",
    .name = "EnsembleStrategy",
    .set_up = set_up,
    .place = place,
    .create = create,
    .reduce = reduce,
    .input_share = input_share,
};

__attribute__((constructor)) static void add(void) {
  tfd__strategy_register(&ensemble);
}
