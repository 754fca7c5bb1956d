/* Making variables: where their copies go, what one variable of them is.
**
** A program that makes the copies itself (functions of its own may stand in
** between) asks tfd_strategy_place, makes them in order, each on its parameter
** device under its tfd_copy_name, the first from the initial value and the
** others from the first, and gives them to tfd_strategy_create.
** tfd_strategy_variable does just this. */
#include "distribute/distribute.h"

#include <stdio.h>
#include <string.h>

int tfd__strategy_place_plain(const tfd_strategy *s, bool on_read,
                              tfd_variable_kind *kind_p, int *copies_p) {
  (void)s;
  (void)on_read;
  *kind_p = TFD_VARIABLE_PLAIN;
  *copies_p = 1;
  return TFD_OK;
}

int tfd_strategy_place(const tfd_strategy *strategy,
                       tfd_variable_synchronization synchronization,
                       const char *name, tfd_variable_kind *kind_p,
                       int *copies_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_ENUM(synchronization, TFD_SYNCHRONIZATION_AUTO,
                 TFD_SYNCHRONIZATION_ON_READ);
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_POINTER(kind_p);
  TFD_GIVEN_POINTER(copies_p);
  if (synchronization == TFD_SYNCHRONIZATION_NONE && strategy->ops->mirrors) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "`NONE` variable synchronization mode is not supported "
                     "with %s: variable \"%s\"",
                     strategy->ops->name, name);
  }
  return strategy->ops->place(strategy,
                              synchronization == TFD_SYNCHRONIZATION_ON_READ,
                              kind_p, copies_p);
}

int tfd_copy_name(const char *name, int copy, const char **name_p) {
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_POINTER(name_p);

  static _Thread_local char *text = NULL; /* of the last call */
  size_t bytes = strlen(name) + 32;

  if (copy == 0) {
    *name_p = name;
    return TFD_OK;
  }
  tfd__free(text);
  text = tfd__alloc(bytes);
  if (text == NULL) return tfd__no_memory(bytes, "variable name");
  (void)snprintf(text, bytes, "%s/replica_%d", name, copy);
  *name_p = text;
  return TFD_OK;
}

int tfd__strategy_create(tfd_strategy *s, tfd_variable *const *copies,
                         int copies_n, const char *known_as,
                         tfd_variable_synchronization synchronization,
                         tfd_variable_aggregation aggregation,
                         tfd_object **variable_p) {
  tfd_variable_kind kind = TFD_VARIABLE_PLAIN;
  tfd_mirrored *m = NULL;
  int wanted = 0;

  (void)known_as;
  TFD_TRY(tfd_strategy_place(
      s, synchronization, copies_n > 0 ? copies[0]->name : "", &kind, &wanted));
  if (copies_n != wanted) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: a variable needs %d copies, got %d",
                     s->ops->name, wanted, copies_n);
  }
  if (kind == TFD_VARIABLE_PLAIN) {
    tfd__retain(copies[0]);
    *variable_p = &copies[0]->object;
    return TFD_OK;
  }
  if (synchronization == TFD_SYNCHRONIZATION_AUTO) {
    synchronization = TFD_SYNCHRONIZATION_ON_WRITE;
  }
  TFD_TRY(tfd_mirrored_new(s, kind, copies, copies_n, synchronization,
                           aggregation, &m));
  *variable_p = &m->object;
  return TFD_OK;
}

int tfd_strategy_create(tfd_strategy *strategy, tfd_variable *const *copies,
                        int copies_n, const char *known_as,
                        tfd_variable_synchronization synchronization,
                        tfd_variable_aggregation aggregation,
                        tfd_object **variable_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_HANDLES(copies, copies_n, VARIABLE);
  TFD_GIVEN_POINTER(known_as);
  TFD_GIVEN_ENUM(synchronization, TFD_SYNCHRONIZATION_AUTO,
                 TFD_SYNCHRONIZATION_ON_READ);
  TFD_GIVEN_ENUM(aggregation, TFD_AGGREGATION_NONE,
                 TFD_AGGREGATION_ONLY_FIRST_REPLICA);
  TFD_GIVEN_POINTER(variable_p);
  return strategy->ops->create(strategy, copies, copies_n, known_as,
                               synchronization, aggregation, variable_p);
}

static int check_modes(tfd_object *initial, tfd_variable_kind kind,
                       bool trainable,
                       tfd_variable_synchronization synchronization,
                       tfd_variable_aggregation aggregation) {
  tfd_tensor *t = NULL;

  TFD_TRY(tfd__operand(initial, &t));
  if (aggregation == TFD_AGGREGATION_MEAN && !tfd__is_float(t->view.dtype)) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "Variable: aggregation MEAN needs a floating-point dtype, "
                     "got %s",
                     tfd__dtype_name(t->view.dtype));
  }
  if (kind == TFD_VARIABLE_PLAIN && trainable &&
      synchronization == TFD_SYNCHRONIZATION_ON_READ) {
    return tfd__fail(TFD_VALUE_ERROR,
                     "Variable: synchronization ON_READ is for variables that "
                     "are not trainable");
  }
  return TFD_OK;
}

/* Copy i on its device, from `initial` or from the first copy. */
static int make_copy(tfd_strategy *s, int i, tfd_object *initial,
                     const char *name, bool trainable, tfd_variable **copies) {
  tfd_device *device = i < s->parameters_n ? s->parameters[i] : NULL;
  const char *own = NULL;

  TFD_TRY(tfd_copy_name(name, i, &own));
  return tfd_variable_new(i == 0 ? initial : &copies[0]->object, own, trainable,
                          device, &copies[i]);
}

int tfd_strategy_variable(tfd_strategy *strategy, tfd_object *initial,
                          const char *name, bool trainable,
                          tfd_variable_synchronization synchronization,
                          tfd_variable_aggregation aggregation,
                          tfd_object **variable_p) {
  TFD_GIVEN(strategy, STRATEGY);
  TFD_GIVEN_POINTER(name);
  TFD_GIVEN_ENUM(aggregation, TFD_AGGREGATION_NONE,
                 TFD_AGGREGATION_ONLY_FIRST_REPLICA);
  TFD_GIVEN_POINTER(variable_p);

  tfd_variable *copies[TFD_MAX_REPLICAS] = {NULL};
  tfd_variable_kind kind = TFD_VARIABLE_PLAIN;
  int wanted = 0;
  int n = 0;
  int rc = TFD_OK;

  TFD_TRY(tfd_strategy_place(strategy, synchronization, name, &kind, &wanted));
  TFD_TRY(check_modes(initial, kind, trainable, synchronization, aggregation));
  while (rc == TFD_OK && n < wanted) {
    rc = make_copy(strategy, n, initial, name, trainable, copies);
    if (rc == TFD_OK) {
      rc = tfd_variable_set_distribution(copies[n++],
                                         kind == TFD_VARIABLE_PLAIN
                                             ? synchronization
                                             : TFD_SYNCHRONIZATION_AUTO,
                                         aggregation);
    }
  }
  if (rc == TFD_OK) {
    rc = tfd_strategy_create(strategy, copies, n, name, synchronization,
                             aggregation, variable_p);
  }
  while (n > 0) tfd__release(copies[--n]);
  return rc;
}
