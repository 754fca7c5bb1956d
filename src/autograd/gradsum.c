/* Sums of gradients: dense, sparse, or a list of sparse ones not yet joined. */
#include "autograd/gradsum.h"
#include "ops/attributes.h"

#include <string.h>

/* Sparse gradients waiting to be joined. Joining once at the end keeps a
** table that is read k times at k copies of its rows instead of k*k/2. */
typedef struct bundle {
  tfd_object object;
  tfd_slices **items; /* owned references */
  int n;
  int capacity;
} bundle;

static void bundle_destroy(void *self) {
  bundle *b = self;

  while (b->n > 0) tfd__release(b->items[--b->n]);
  tfd__free(b->items);
  tfd__free(b);
}

static const tfd__type bundle_type = {
    .name = "list of IndexedSlices",
    .kind = TFD_HANDLE_SLICES,
    .destroy = bundle_destroy,
};

bool tfd__gradient_is_dense(const tfd_object *grad) {
  return grad->type == &tfd__tensor_type;
}

/* Takes over the reference to `s`, on success only. */
static int bundle_add(bundle *b, tfd_slices *s) {
  if (b->n == b->capacity) {
    int capacity = b->n < 4 ? 4 : b->n * 2;
    size_t bytes = (size_t)capacity * sizeof *b->items;
    tfd_slices **items = tfd__realloc(b->items, bytes);

    if (items == NULL) return tfd__no_memory(bytes, "sparse gradients");
    b->items = items;
    b->capacity = capacity;
  }
  b->items[b->n++] = s;
  return TFD_OK;
}

static int bundle_new(tfd_slices *first, bundle **b_p) {
  bundle *b = tfd__calloc(1, sizeof *b);
  int rc;

  if (b == NULL) return tfd__no_memory(sizeof *b, "sparse gradients");
  tfd__object_init(&b->object, &bundle_type);
  rc = bundle_add(b, first);
  if (rc != TFD_OK) {
    tfd__release(b);
    return rc;
  }
  *b_p = b;
  return TFD_OK;
}

/* --- joining -------------------------------------------------------------- */

static int cast_int64(tfd_tensor *t, tfd_tensor **p) {
  static _Atomic int cache = 0;
  int64_t dtype = TFD_INT64;
  int op = 0;
  int n = 0;

  if (t->view.dtype == TFD_INT64) {
    tfd__retain(t);
    *p = t;
    return TFD_OK;
  }
  TFD_TRY(tfd__op_named("cast", &cache, &op));
  return tfd__run(op, &t, 1, &dtype, NULL, p, 1, &n);
}

static int concat(tfd_tensor *const *parts, int parts_n, tfd_tensor **p) {
  static _Atomic int cache = 0;
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];
  int op = 0;
  int n = 0;

  TFD_TRY(tfd__op_named("concat", &cache, &op));
  tfd__op_defaults(tfd__op_at(op), ints, reals);
  ints[0] = 0; /* along the rows */
  return tfd__run(op, parts, parts_n, ints, reals, p, 1, &n);
}

static bool same_index_dtype(const bundle *b) {
  int i;

  for (i = 1; i < b->n; i++) {
    if (b->items[i]->indices->view.dtype != b->items[0]->indices->view.dtype) {
      return false;
    }
  }
  return true;
}

static int concat_indices(const bundle *b, tfd_tensor **parts, tfd_tensor **p) {
  int rc = TFD_OK;
  int n = 0;

  if (same_index_dtype(b)) {
    for (n = 0; n < b->n; n++) parts[n] = b->items[n]->indices;
    return concat(parts, n, p);
  }
  while (rc == TFD_OK && n < b->n) {
    rc = cast_int64(b->items[n]->indices, &parts[n]);
    if (rc == TFD_OK) n++;
  }
  if (rc == TFD_OK) rc = concat(parts, n, p);
  while (n > 0) tfd__release(parts[--n]);
  return rc;
}

static int bundle_join(const bundle *b, tfd_slices **s_p) {
  size_t bytes = (size_t)b->n * sizeof(tfd_tensor *);
  tfd_tensor **parts = tfd__alloc(bytes);
  tfd_tensor *values = NULL;
  tfd_tensor *indices = NULL;
  int rc;
  int i;

  if (parts == NULL) return tfd__no_memory(bytes, "sparse gradients");
  for (i = 0; i < b->n; i++) parts[i] = b->items[i]->values;
  TFD_TRY_OR(rc = concat(parts, b->n, &values), free_parts);
  TFD_TRY_OR(rc = concat_indices(b, parts, &indices), release_values);
  rc = tfd_slices_new(values, indices, b->items[0]->dims, b->items[0]->rank,
                      s_p);
  tfd__release(indices);

release_values:
  tfd__release(values);
free_parts:
  tfd__free(parts);
  return rc;
}

int tfd__gradient_join(tfd_object **grad_p) {
  tfd_slices *s = NULL;

  if (*grad_p == NULL || (*grad_p)->type != &bundle_type) return TFD_OK;
  TFD_TRY(bundle_join((bundle *)*grad_p, &s));
  tfd__release(*grad_p);
  *grad_p = &s->object;
  return TFD_OK;
}

int tfd__gradient_densify(tfd_object **grad_p) {
  tfd_tensor *t = NULL;

  if (*grad_p == NULL || tfd__gradient_is_dense(*grad_p)) return TFD_OK;
  TFD_TRY(tfd__gradient_join(grad_p));
  TFD_TRY(tfd_slices_to_dense((tfd_slices *)*grad_p, &t));
  tfd__release(*grad_p);
  *grad_p = &t->object;
  return TFD_OK;
}

/* --- adding --------------------------------------------------------------- */

static int add_dense(tfd_object **sum_p, tfd_object **grad_p) {
  static _Atomic int cache = 0;
  tfd_tensor *in[2] = {NULL, NULL};
  tfd_tensor *sum = NULL;
  int op = 0;
  int n = 0;

  TFD_TRY(tfd__gradient_densify(sum_p));
  TFD_TRY(tfd__gradient_densify(grad_p));
  TFD_TRY(tfd__op_named("add", &cache, &op));
  in[0] = (tfd_tensor *)*sum_p;
  in[1] = (tfd_tensor *)*grad_p;
  TFD_TRY(tfd__run(op, in, 2, NULL, NULL, &sum, 1, &n));
  tfd__release(*sum_p);
  *sum_p = &sum->object;
  return TFD_OK;
}

static int add_sparse(tfd_object **sum_p, tfd_slices *s) {
  bundle *b = (bundle *)*sum_p;

  if (b->object.type != &bundle_type) {
    TFD_TRY(bundle_new((tfd_slices *)*sum_p, &b));
    *sum_p = &b->object;
  }
  TFD_TRY(bundle_add(b, s));
  tfd__retain(s);
  return TFD_OK;
}

int tfd__gradient_add(tfd_object **sum_p, tfd_object *grad) {
  int rc;

  if (*sum_p == NULL) {
    *sum_p = grad;
    return TFD_OK;
  }
  if (tfd__gradient_is_dense(*sum_p) || grad->type != &tfd__slices_type) {
    rc = add_dense(sum_p, &grad);
  } else {
    rc = add_sparse(sum_p, (tfd_slices *)grad);
  }
  tfd__release(grad);
  return rc;
}

/* --- devices -------------------------------------------------------------- */

static int slices_to_device(tfd_object **grad_p, tfd_device *device) {
  tfd_slices *s = (tfd_slices *)*grad_p;
  tfd_slices *moved = NULL;
  tfd_tensor *values = NULL;
  tfd_tensor *indices = NULL;
  int rc;

  TFD_TRY(tfd_tensor_to_device(s->values, device, &values));
  TFD_TRY_OR(rc = tfd_tensor_to_device(s->indices, device, &indices),
             release_values);
  rc = tfd_slices_new(values, indices, s->dims, s->rank, &moved);
  tfd__release(indices);
  if (rc != TFD_OK) goto release_values;
  tfd__release(s);
  *grad_p = &moved->object;

release_values:
  tfd__release(values);
  return rc;
}

int tfd__gradient_to_device(tfd_object **grad_p, tfd_device *device) {
  tfd_tensor *moved = NULL;

  if (!tfd__gradient_is_dense(*grad_p)) {
    if (((tfd_slices *)*grad_p)->values->device == device) return TFD_OK;
    return slices_to_device(grad_p, device);
  }
  if (TFD_LIKELY(((tfd_tensor *)*grad_p)->device == device)) return TFD_OK;
  TFD_TRY(tfd_tensor_to_device((tfd_tensor *)*grad_p, device, &moved));
  tfd__release(*grad_p);
  *grad_p = &moved->object;
  return TFD_OK;
}
