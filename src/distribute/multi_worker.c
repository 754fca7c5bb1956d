/* A replica on each device of each of several processes, each variable on all
** of them: the mirrored strategy, but for a variable's first value, which is
** that of the first process, the chief. Alone it is the mirrored strategy. */
#include "distribute/distribute.h"

#include <string.h>

#include "base/crc32c.h"

static int set_up(tfd_strategy *s, tfd_device *parameter_device) {
  return tfd__mirrored_strategy.set_up(s, parameter_device);
}

static int place(const tfd_strategy *s, bool on_read, tfd_variable_kind *kind_p,
                 int *copies_p) {
  return tfd__mirrored_strategy.place(s, on_read, kind_p, copies_p);
}

/* Cost: two rounds of messages for each variable. */
static int take_chiefs(tfd_strategy *s, tfd_variable *const *copies, int n,
                       const char *known_as) {
  uint32_t before = tfd__set_about(tfd__crc32c(0, known_as, strlen(known_as)));
  tfd_tensor *first = NULL;
  int rc = tfd__first_over_workers(s, false, "initial value", copies[0]->value,
                                   &first);
  int i;

  (void)tfd__set_about(before);
  if (rc != TFD_OK) return tfd__wrap("variable \"%s\"", copies[0]->name);
  for (i = 0; rc == TFD_OK && i < n; i++) {
    rc = tfd_variable_assign(copies[i], &first->object);
  }
  tfd__release(first);
  return rc;
}

static int create(tfd_strategy *s, tfd_variable *const *copies, int copies_n,
                  const char *known_as,
                  tfd_variable_synchronization synchronization,
                  tfd_variable_aggregation aggregation,
                  tfd_object **variable_p) {
  tfd_object *made = NULL;
  int rc = TFD_OK;
  int i;

  TFD_TRY(tfd__strategy_create(s, copies, copies_n, known_as, synchronization,
                               aggregation, &made));
  if (!tfd__group_is_alone(s->group)) {
    rc = take_chiefs(s, copies, copies_n, known_as);
  }
  if (rc != TFD_OK) {
    tfd__release(made);
    return rc;
  }
  s->made++;
  for (i = 0; i < copies_n; i++) copies[i]->number = s->made;
  *variable_p = made;
  return TFD_OK;
}

const tfd__strategy_ops tfd__multi_worker_strategy = {
    .kind = "multi_worker",
    .name = "MultiWorkerMirroredStrategy",
    .mirrors = true,
    .set_up = set_up,
    .place = place,
    .create = create,
};
