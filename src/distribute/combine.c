/* Tensors of several replicas as one, in one place.
**
** Cost of a sum over n replicas of b bytes: n-1 copies to the reducing
** device, one pass of add_n (n-1 of a binary op for what is no sum), and a
** copy to each further destination. */
#include "distribute/distribute.h"

/* --- checks --------------------------------------------------------------- */

int tfd__components_differ(const tfd_strategy *s, const char *what, int i,
                           const tfd__view *v, const tfd__view *first,
                           const char *expected) {
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];

  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "%s: replica %d has %s %s, replica %d has %s %s; %s", what,
                   tfd__replica_of(s, i), tfd__dtype_name(v->dtype),
                   tfd__shape_text(v, a), tfd__replica_of(s, 0),
                   tfd__dtype_name(first->dtype), tfd__shape_text(first, b),
                   expected);
}

int tfd__check_components(const tfd_strategy *s, const char *what,
                          tfd_tensor *const *in, int n) {
  const tfd__view *first = &in[0]->view;
  int i;

  for (i = 1; i < n; i++) {
    const tfd__view *v = &in[i]->view;

    if (v->dtype == first->dtype && tfd__same_shape(v, first)) continue;
    return tfd__components_differ(s, what, i, v, first,
                                  "shapes and dtypes must match");
  }
  return TFD_OK;
}

/* --- steps, each an ordinary op ------------------------------------------- */

static int run_one(int op, tfd_tensor *const *in, int n, const int64_t *ints,
                   tfd_tensor **out_p) {
  int out_n = 0;

  return tfd__run(op, in, n, ints, NULL, out_p, 1, &out_n);
}

static int cast_to(tfd_tensor *t, int dtype, tfd_tensor **out_p) {
  const int64_t ints[1] = {dtype};

  if (t->view.dtype == dtype) {
    tfd__retain(t);
    *out_p = t;
    return TFD_OK;
  }
  return run_one(TFD_OP_cast, &t, 1, ints, out_p);
}

int tfd__divide(tfd_tensor *t, int n, tfd_tensor **out_p) {
  double value = n;
  tfd_tensor *in[2] = {t, NULL};
  int rc;

  TFD_TRY(tfd__tensor_from_doubles(t->device, t->view.dtype, NULL, 0, &value,
                                   &in[1]));
  rc = run_one(TFD_OP_divide, in, 2, NULL, out_p);
  tfd__release(in[1]);
  return rc;
}

/* Half types lose too much when sums of sums are rounded. */
static bool widens(int dtype) {
  return dtype == TFD_FLOAT16 || dtype == TFD_BFLOAT16;
}

static void release_all(tfd_tensor **list, int n) {
  while (n > 0) tfd__release(list[--n]);
}

/* The operation pair by pair, in replica order. */
static int fold(int op, tfd_tensor *const *in, int n, tfd_tensor **out_p) {
  tfd_tensor *total = in[0];
  int i;

  tfd__retain(total);
  for (i = 1; i < n; i++) {
    tfd_tensor *const pair[2] = {total, in[i]};
    tfd_tensor *next = NULL;
    int rc = run_one(op, pair, 2, NULL, &next);

    tfd__release(total);
    TFD_TRY(rc);
    total = next;
  }
  *out_p = total;
  return TFD_OK;
}

/* Everything but the division of the mean. */
static int accumulate(tfd_reduce_op op, tfd_tensor *const *in, int n,
                      tfd_tensor **out_p) {
  switch (op) {
  case TFD_REDUCE_MIN:
    return fold(TFD_OP_minimum, in, n, out_p);
  case TFD_REDUCE_MAX:
    return fold(TFD_OP_maximum, in, n, out_p);
  case TFD_REDUCE_PROD:
    return fold(TFD_OP_multiply, in, n, out_p);
  default:
    return run_one(TFD_OP_add_n, in, n, NULL, out_p);
  }
}

static int reduce_wide(tfd_reduce_op op, tfd_tensor *const *in, int n,
                       tfd_tensor **out_p) {
  tfd_tensor *wide[TFD_MAX_REPLICAS] = {NULL};
  tfd_tensor *sum = NULL;
  tfd_tensor *mean = NULL;
  int rc = TFD_OK;
  int k = 0;

  while (rc == TFD_OK && k < n) {
    rc = cast_to(in[k], TFD_FLOAT32, &wide[k]);
    if (rc == TFD_OK) k++;
  }
  if (rc == TFD_OK) rc = accumulate(op, wide, n, &sum);
  release_all(wide, k);
  TFD_TRY(rc);
  if (op == TFD_REDUCE_MEAN) {
    rc = tfd__divide(sum, n, &mean);
    tfd__release(sum);
    TFD_TRY(rc);
    sum = mean;
  }
  rc = cast_to(sum, in[0]->view.dtype, out_p);
  tfd__release(sum);
  return rc;
}

static int reduce_plain(tfd_reduce_op op, tfd_tensor *const *in, int n,
                        tfd_tensor **out_p) {
  tfd_tensor *sum = NULL;
  int rc;

  TFD_TRY(accumulate(op, in, n, &sum));
  if (op != TFD_REDUCE_MEAN) {
    *out_p = sum;
    return TFD_OK;
  }
  rc = tfd__divide(sum, n, out_p);
  tfd__release(sum);
  return rc;
}

int tfd__reduce_tensors(tfd_reduce_op op, tfd_tensor *const *in, int n,
                        tfd_device *device, tfd_tensor **out_p) {
  int rc;

  TFD_TRY(tfd_device_push(device));
  if (n == 1 && (op != TFD_REDUCE_MEAN || tfd__is_float(in[0]->view.dtype))) {
    rc = tfd_tensor_to_device(in[0], device, out_p);
  } else if (widens(in[0]->view.dtype)) {
    rc = reduce_wide(op, in, n, out_p);
  } else {
    rc = reduce_plain(op, in, n, out_p);
  }
  (void)tfd_device_pop();
  return rc;
}
