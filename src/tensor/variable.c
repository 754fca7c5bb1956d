#include "tensor/tensor.h"

#include <stdatomic.h>
#include <string.h>

static void variable_destroy(void *self) {
  tfd_variable *v = self;

  /* The header may outlive the variable on a tape: it is then immutable. */
  tfd__history_drop(v);
  if (v->value != NULL) v->value->variable = NULL;
  tfd__release(v->value);
  tfd__free(v->name);
  tfd__free(v);
}

static tfd_tensor *variable_operand(tfd_object *self) {
  return ((tfd_variable *)self)->value;
}

const tfd__type tfd__variable_type = {
    .name = "variable",
    .kind = TFD_HANDLE_VARIABLE,
    .destroy = variable_destroy,
    .operand = variable_operand,
};

/* A dense tensor on `device` whose buffer holds nothing else: shared with
** `t` when it already is one (copy-on-write protects both), else a copy. */
static int own_storage(tfd_tensor *t, tfd_device *device, tfd_tensor **p) {
  tfd_tensor *there = NULL;
  tfd_tensor *copy = NULL;
  tfd__view compact;
  int rc;

  if (t->buffer == NULL) return tfd__no_values(t, "variable");
  TFD_TRY(tfd__tensor_to_device(t, device, &there));
  if (there->view.dense &&
      there->buffer->bytes == tfd__view_bytes(&there->view)) {
    rc = tfd__tensor_alias(there, &there->view, p);
    tfd__release(there);
    return rc;
  }
  /* A window of a larger buffer: do not keep the whole alive. Reading it as
  ** non-dense makes tfd__tensor_dense copy. */
  compact = there->view;
  compact.dense = false;
  rc = tfd__tensor_alias(there, &compact, &copy);
  tfd__release(there);
  TFD_TRY(rc);
  rc = tfd__tensor_dense(copy, p);
  tfd__release(copy);
  return rc;
}

int tfd__variable_new(const char *name, bool trainable, tfd_tensor *t,
                      tfd_device *device, tfd_variable **variable_p) {
  tfd_variable *v = tfd__calloc(1, sizeof *v);
  int rc;

  if (v == NULL) return tfd__no_memory(sizeof *v, "variable");
  tfd__object_init(&v->object, &tfd__variable_type);
  v->trainable = trainable;
  v->name = tfd__strdup(name == NULL ? "Variable" : name);
  if (v->name == NULL) {
    rc = tfd__no_memory(64, "variable name");
    goto release_variable;
  }
  if (t->buffer == NULL) {
    tfd__no_values(t, "variable");
    rc = tfd__hint("a function gives an initial value at the trace: "
                   "tf.Variable(function() return ... end)");
    goto release_variable;
  }
  TFD_TRY_OR(rc = own_storage(t, device, &v->value), release_variable);
  /* A variable has nothing to go back to when its first values are lost, and
  ** may live long: wait, so that it is not made then. */
  TFD_TRY_OR(rc = tfd__tensor_sync(v->value), release_variable);
  v->value->variable = v;
  *variable_p = v;
  return TFD_OK;

release_variable:
  tfd__release(v);
  return rc;
}

void tfd__variable_move(tfd_variable *v, tfd__buffer *buffer) {
  tfd__history_replace(v, buffer);
  v->value->buffer = buffer;
  v->value->view.data = buffer->data;
}

void tfd__variable_replace(tfd_variable *v, tfd__buffer *buffer) {
  tfd__variable_move(v, buffer);
  v->version++;
}

int tfd__variable_takes(const tfd_variable *v, const tfd_tensor *t) {
  const tfd__view *have = &v->value->view;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  if (t->view.dtype == have->dtype && tfd__shapes_agree(&t->view, have)) {
    return TFD_OK;
  }
  return tfd__fail(
      TFD_VALUE_ERROR, "assign: variable \"%s\" is %s %s, the value is %s %s",
      v->name, tfd__dtype_name(have->dtype), tfd__shape_text(have, a),
      tfd__dtype_name(t->view.dtype), tfd__shape_text(&t->view, b));
}

int tfd__variable_set(tfd_variable *v, tfd_tensor *t) {
  tfd_tensor *own = NULL;

  if (t == v->value) return TFD_OK;
  TFD_TRY(own_storage(t, v->value->device, &own));
  tfd__retain(own->buffer);
  tfd__variable_replace(v, own->buffer);
  tfd__release(own);
  return TFD_OK;
}

const char *tfd_variable_name(const tfd_variable *variable) {
  TFD_GIVEN_OR(variable, VARIABLE, "");
  return variable->name;
}

bool tfd_variable_is_trainable(const tfd_variable *variable) {
  TFD_GIVEN_OR(variable, VARIABLE, false);
  return variable->trainable;
}

/* Whoever foresees a version, for a call will write once, must not find it
** where the call failed and something else has written once. */
enum { CALL_FAILED = 1 << 20 };
static atomic_int_least64_t ahead;

void tfd__versions_unforeseen(void) {
  ahead += CALL_FAILED;
}

int64_t tfd_variable_version(const tfd_variable *variable) {
  TFD_GIVEN_OR(variable, VARIABLE, 0);
  return (int64_t)variable->version + tfd__failures_reported() + ahead;
}

int tfd_variable_set_distribution(tfd_variable *variable,
                                  tfd_variable_synchronization synchronization,
                                  tfd_variable_aggregation aggregation) {
  TFD_GIVEN(variable, VARIABLE);
  TFD_GIVEN_ENUM(synchronization, TFD_SYNCHRONIZATION_AUTO,
                 TFD_SYNCHRONIZATION_ON_READ);
  TFD_GIVEN_ENUM(aggregation, TFD_AGGREGATION_NONE,
                 TFD_AGGREGATION_ONLY_FIRST_REPLICA);
  variable->synchronization = (uint8_t)synchronization;
  variable->aggregation = (uint8_t)aggregation;
  return TFD_OK;
}

int tfd_variable_set_autocast(tfd_variable *variable, bool autocast) {
  TFD_GIVEN(variable, VARIABLE);
  variable->autocast = autocast;
  return TFD_OK;
}

tfd_variable_synchronization
tfd_variable_synchronization_of(const tfd_variable *variable) {
  TFD_GIVEN_OR(variable, VARIABLE, TFD_SYNCHRONIZATION_AUTO);
  return (tfd_variable_synchronization)variable->synchronization;
}

tfd_variable_aggregation
tfd_variable_aggregation_of(const tfd_variable *variable) {
  TFD_GIVEN_OR(variable, VARIABLE, TFD_AGGREGATION_NONE);
  return (tfd_variable_aggregation)variable->aggregation;
}
