#include "tensor/tensor.h"

#include <string.h>

static void slices_destroy(void *self) {
  tfd_slices *s = self;

  tfd__release(s->values);
  tfd__release(s->indices);
  tfd__free(s);
}

/* No operand: ops take the dense tensor that tfd_slices_to_dense makes. */
const tfd__type tfd__slices_type = {
    .name = "IndexedSlices",
    .kind = TFD_HANDLE_SLICES,
    .destroy = slices_destroy,
};

static int check_parts(const tfd_tensor *values, const tfd_tensor *indices,
                       const int64_t *dims, int dims_n) {
  const tfd__view *v = &values->view;
  const tfd__view *x = &indices->view;
  char a[TFD_SHAPE_TEXT];
  char b[TFD_SHAPE_TEXT];
  bool fits = v->rank == dims_n && v->rank > 0;
  int i;

  if (x->rank != 1 || (x->dtype != TFD_INT32 && x->dtype != TFD_INT64)) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "IndexedSlices: indices are %s %s; expected int32 or "
                     "int64 of rank 1",
                     tfd__dtype_name(x->dtype), tfd__shape_text(x, a));
  }
  if (fits) fits = dims[0] >= -1;
  for (i = 1; fits && i < dims_n; i++) fits = v->dims[i] == dims[i];
  if (!fits || v->dims[0] != x->dims[0]) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "IndexedSlices: values %s with %lld indices do not fit "
                     "the dense shape %s",
                     tfd__shape_text(v, a), (long long)x->dims[0],
                     tfd__dims_text(dims, dims_n, b));
  }
  return TFD_OK;
}

int tfd_slices_new(tfd_tensor *values, tfd_tensor *indices, const int64_t *dims,
                   int dims_n, tfd_slices **slices_p) {
  TFD_GIVEN(values, TENSOR);
  TFD_GIVEN(indices, TENSOR);
  TFD_GIVEN_LIST(dims, dims_n);
  TFD_GIVEN_POINTER(slices_p);

  tfd_slices *s = NULL;

  TFD_TRY(check_parts(values, indices, dims, dims_n));
  s = tfd__calloc(1, sizeof *s);
  if (s == NULL) return tfd__no_memory(sizeof *s, "IndexedSlices");
  tfd__object_init(&s->object, &tfd__slices_type);
  tfd__retain(values);
  tfd__retain(indices);
  s->values = values;
  s->indices = indices;
  s->rank = dims_n;
  memcpy(s->dims, dims, (size_t)dims_n * sizeof *dims);
  *slices_p = s;
  return TFD_OK;
}

int tfd_slices_values(tfd_slices *slices, tfd_tensor **values_p) {
  TFD_GIVEN(slices, SLICES);
  TFD_GIVEN_POINTER(values_p);
  tfd__retain(slices->values);
  *values_p = slices->values;
  return TFD_OK;
}

int tfd_slices_indices(tfd_slices *slices, tfd_tensor **indices_p) {
  TFD_GIVEN(slices, SLICES);
  TFD_GIVEN_POINTER(indices_p);
  tfd__retain(slices->indices);
  *indices_p = slices->indices;
  return TFD_OK;
}

int tfd_slices_rank(const tfd_slices *slices) {
  TFD_GIVEN_OR(slices, SLICES, 0);
  return slices->rank;
}

int64_t tfd_slices_dim(const tfd_slices *slices, int axis) {
  TFD_GIVEN_OR(slices, SLICES, -1);
  if (axis < 0 || axis >= slices->rank) return -1;
  return slices->dims[axis];
}
