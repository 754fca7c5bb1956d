/* What tensors, variables, slices and devices need the context or ops for. */
#include "ops/ops.h"

#include <string.h>

/* Number of an op of another family, looked up once. */
static int op_number(const char *name, _Atomic int *cache, int *op_p) {
  int op = atomic_load(cache);

  if (op == 0) {
    TFD_TRY(tfd_op_find(name, &op));
    atomic_store(cache, op);
  }
  *op_p = op;
  return TFD_OK;
}

/* --- tensors from the host ------------------------------------------------ */

/* The view of a tensor to be made. Errors: TypeError, InvalidArgument. */
static int new_view(int dtype, const int64_t *dims, int rank, tfd__view *view) {
  if (!tfd__dtype_ok(dtype)) {
    return tfd__fail(TFD_TYPE_ERROR, "tensor: %d is no dtype", dtype);
  }
  return tfd__view_set(view, dtype, dims, rank);
}

int tfd_tensor_from_values(const double *values, int64_t values_n,
                           tfd_dtype dtype, const int64_t *dims, int dims_n,
                           tfd_tensor **tensor_p) {
  TFD_GIVEN_LIST(values, values_n);
  TFD_GIVEN_LIST(dims, dims_n);
  TFD_GIVEN_POINTER(tensor_p);

  tfd_device *device = NULL;
  tfd__view view;
  char text[TFD_SHAPE_TEXT];

  TFD_TRY(new_view((int)dtype, dims, dims_n, &view));
  if (values_n != 1 && values_n != view.numel) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "tensor: %lld values do not fill shape %s (%lld elements)",
                     (long long)values_n, tfd__shape_text(&view, text),
                     (long long)view.numel);
  }
  TFD_TRY(tfd__default_device(&device));
  return tfd__tensor_from_values(device, (int)dtype, dims, dims_n, values,
                                 values_n, tensor_p);
}

int tfd_tensor_from_bytes(const void *data, size_t data_bytes, tfd_dtype dtype,
                          const int64_t *dims, int dims_n,
                          tfd_tensor **tensor_p) {
  TFD_GIVEN_BYTES(data, data_bytes);
  TFD_GIVEN_LIST(dims, dims_n);
  TFD_GIVEN_POINTER(tensor_p);

  tfd_device *device = NULL;
  tfd__view view;
  char text[TFD_SHAPE_TEXT];

  TFD_TRY(new_view((int)dtype, dims, dims_n, &view));
  if (data_bytes != tfd__view_bytes(&view)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "tensor: %zu bytes given, %s %s needs %zu", data_bytes,
                     tfd__dtype_name((int)dtype), tfd__shape_text(&view, text),
                     tfd__view_bytes(&view));
  }
  TFD_TRY(tfd__default_device(&device));
  return tfd__tensor_from_bytes(device, (int)dtype, dims, dims_n, data,
                                tensor_p);
}

/* --- variables ------------------------------------------------------------ */

int tfd_variable_new(tfd_object *initial, const char *name, bool trainable,
                     tfd_device *device, tfd_variable **variable_p) {
  TFD_GIVEN_OPTIONAL(device, DEVICE);
  TFD_GIVEN_POINTER(variable_p);

  tfd_tensor *t = NULL;

  TFD_TRY(tfd__operand(initial, &t));
  if (device == NULL) TFD_TRY(tfd__default_device(&device));
  return tfd__variable_new(name, trainable, t, device, variable_p);
}

int tfd_variable_assign(tfd_variable *variable, tfd_object *value) {
  TFD_GIVEN(variable, VARIABLE);

  tfd_tensor *t = NULL;

  TFD_TRY(tfd__operand(value, &t));
  if (t == variable->value) return TFD_OK;
  TFD_TRY(tfd__variable_takes(variable, t));
  if (tfd__context()->recorder != NULL) {
    return tfd__run_update(TFD_OP_copy, &variable, 1, &t, 1, NULL, NULL);
  }
  return tfd__variable_set(variable, t);
}

int tfd_variable_read(tfd_variable *variable, tfd_tensor **value_p) {
  TFD_GIVEN(variable, VARIABLE);
  TFD_GIVEN_POINTER(value_p);

  int n = 0;

  return tfd__run(TFD_OP_identity, &variable->value, 1, NULL, NULL, value_p, 1,
                  &n);
}

/* Inputs 0..targets_n-1 are the targets' values, the rest may be absent. */
static int update_now(int op, tfd_variable *const *targets, int targets_n,
                      tfd_object *const *inputs, int inputs_n,
                      const int64_t *ints, int ints_n, const double *reals,
                      int reals_n) {
  tfd_tensor *in[TFD_CALL_VIEWS];
  const tfd__op *o;
  int i;

  if (op < 0 || op >= TFD_OP_N) {
    return tfd__fail(TFD_NOT_IMPLEMENTED, "there is no op number %d", op);
  }
  o = tfd__op_at(op);
  if (o->in_n != inputs_n + targets_n || o->in_n >= TFD_CALL_VIEWS ||
      o->ints_n != ints_n || o->reals_n != reals_n || o->list_input) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: cannot update a variable from %d inputs and %d "
                     "attributes",
                     o->name, inputs_n, ints_n + reals_n);
  }
  TFD_TRY(tfd__check_slots(o, ints));
  for (i = 0; i < targets_n; i++) in[i] = targets[i]->value;
  for (i = 0; i < inputs_n; i++) {
    in[targets_n + i] = NULL;
    if (inputs[i] == NULL && tfd__is_optional(o, targets_n + i)) continue;
    if (tfd__operand(inputs[i], &in[targets_n + i]) != TFD_OK) {
      return tfd__wrap("%s: input %d", o->name, targets_n + i);
    }
  }
  return tfd__run_update(op, targets, targets_n, in, o->in_n, ints, reals);
}

static int update(int op, tfd_variable *const *targets, int targets_n,
                  tfd_object *const *inputs, int inputs_n, const int64_t *ints,
                  int ints_n, const double *reals, int reals_n) {
  tfd_context *c = tfd__call_begin();
  int rc = update_now(op, targets, targets_n, inputs, inputs_n, ints, ints_n,
                      reals, reals_n);

  tfd__call_end(c);
  return rc;
}

int tfd_variable_update(tfd_variable *variable, int op,
                        tfd_object *const *inputs, int inputs_n,
                        const int64_t *ints, int ints_n, const double *reals,
                        int reals_n) {
  TFD_GIVEN(variable, VARIABLE);
  TFD_GIVEN_LIST(inputs, inputs_n);
  TFD_GIVEN_LIST(ints, ints_n);
  TFD_GIVEN_LIST(reals, reals_n);
  return update(op, &variable, 1, inputs, inputs_n, ints, ints_n, reals,
                reals_n);
}

int tfd_variables_update(tfd_variable *const *targets, int targets_n, int op,
                         tfd_object *const *inputs, int inputs_n,
                         const int64_t *ints, int ints_n, const double *reals,
                         int reals_n) {
  TFD_GIVEN_HANDLES(targets, targets_n, VARIABLE);
  TFD_GIVEN_LIST(inputs, inputs_n);
  TFD_GIVEN_LIST(ints, ints_n);
  TFD_GIVEN_LIST(reals, reals_n);
  if (targets_n < 1) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "variables_update: no variables to update");
  }
  return update(op, targets, targets_n, inputs, inputs_n, ints, ints_n, reals,
                reals_n);
}

static int assign_sum(tfd_variable *variable, tfd_object *delta,
                      const char *op_name, _Atomic int *cache) {
  tfd_tensor *t = NULL;
  const tfd__view *have = &variable->value->view;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  int op = 0;

  TFD_TRY(op_number(op_name, cache, &op));
  TFD_TRY(tfd__operand(delta, &t));
  if (!tfd__shapes_agree(&t->view, have) || t->view.dtype != have->dtype) {
    return tfd__fail(
        t->view.dtype != have->dtype ? TFD_VALUE_ERROR : TFD_INVALID_ARGUMENT,
        "assign_%s: variable \"%s\" is %s %s, the delta is %s %s",
        op_name[0] == 'a' ? "add" : "sub", variable->name,
        tfd__dtype_name(have->dtype), tfd__shape_text(have, a),
        tfd__dtype_name(t->view.dtype), tfd__shape_text(&t->view, b));
  }
  delta = &t->object; /* reading it again may be a collective again */
  return tfd_variable_update(variable, op, &delta, 1, NULL, 0, NULL, 0);
}

int tfd_variable_assign_add(tfd_variable *variable, tfd_object *delta) {
  TFD_GIVEN(variable, VARIABLE);

  static _Atomic int cache = 0;

  return assign_sum(variable, delta, "add", &cache);
}

int tfd_variable_assign_sub(tfd_variable *variable, tfd_object *delta) {
  TFD_GIVEN(variable, VARIABLE);

  static _Atomic int cache = 0;

  return assign_sum(variable, delta, "subtract", &cache);
}

/* --- devices and sparse rows ---------------------------------------------- */

/* `identity` for the device, which a recorder sees. */
static int record_copy(tfd_tensor *t, tfd_device *device, tfd_tensor **copy_p) {
  int n = 0;
  int rc;

  TFD_TRY(tfd_device_push(device));
  rc = tfd__run(TFD_OP_identity, &t, 1, NULL, NULL, copy_p, 1, &n);
  (void)tfd_device_pop();
  return rc;
}

int tfd_operand_tensor(tfd_object *operand, tfd_tensor **tensor_p) {
  TFD_GIVEN_POINTER(tensor_p);

  tfd_context *c = tfd__call_begin();
  tfd_tensor *t = NULL;
  int rc = tfd__operand(operand, &t);

  if (rc == TFD_OK) rc = tfd__value_of(t, tensor_p);
  tfd__call_end(c);
  return rc;
}

int tfd_operand_dtype(tfd_object *operand, tfd_dtype *dtype_p) {
  TFD_GIVEN_POINTER(dtype_p);

  tfd_context *c = tfd__call_begin();
  tfd_tensor *t = NULL;
  int rc = tfd__operand(operand, &t);

  if (rc == TFD_OK) *dtype_p = (tfd_dtype)tfd__dtype_taken(t);
  tfd__call_end(c);
  return rc;
}

int tfd_tensor_to_device(tfd_tensor *tensor, tfd_device *device,
                         tfd_tensor **copy_p) {
  TFD_GIVEN(tensor, TENSOR);
  TFD_GIVEN(device, DEVICE);
  TFD_GIVEN_POINTER(copy_p);

  tfd_context *c = tfd__context();
  tfd_tensor *copy = NULL;
  int rc;

  if (tensor->device == device) {
    return tfd__value_of(tensor, copy_p);
  }
  if (c->recorder != NULL) return record_copy(tensor, device, copy_p);
  TFD_TRY(tfd__tensor_to_device(tensor, device, &copy));
  if (c->tapes != NULL) {
    rc = c->record(c->tapes, tfd__op_at(TFD_OP_identity), &tensor, &tensor, 1,
                   &copy, 1, NULL, NULL);
    if (rc != TFD_OK) {
      tfd__release(copy);
      return rc;
    }
  }
  *copy_p = copy;
  return TFD_OK;
}

int tfd_slices_to_dense(tfd_slices *slices, tfd_tensor **tensor_p) {
  TFD_GIVEN(slices, SLICES);
  TFD_GIVEN_POINTER(tensor_p);

  static _Atomic int cache = 0;
  tfd_tensor *in[2] = {slices->values, slices->indices};
  int64_t ints[3] = {slices->dims[0], 0, 0}; /* no mean, ids in any order */
  int op = 0;
  int n = 0;

  if (slices->dims[0] < 0) {
    tfd__fail(TFD_VALUE_ERROR,
              "IndexedSlices without dense_shape cannot become a tensor: "
              "nothing says how many rows it has");
    return tfd__hint("tf.IndexedSlices(values, indices, { rows, ... })");
  }
  TFD_TRY(op_number("segment_sum", &cache, &op));
  return tfd__run(op, in, 2, ints, NULL, tensor_p, 1, &n);
}
