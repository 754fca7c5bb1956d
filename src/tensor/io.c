/* Tensors from host values and back. */
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

#include "base/crc32c.h"

/* Values staged on the stack; larger ones take the heap. */
#define STAGE_BYTES 512

/* Convert n doubles (or one repeated) into memory of `dtype`. */
static void convert(void *data, int dtype, int64_t n, const double *values,
                    int64_t values_n) {
  size_t size = tfd__dtype_size(dtype);
  char *p = data;
  int64_t i;

  if (dtype == TFD_FLOAT32) {
    float *f = data;

    for (i = 0; i < n; i++) f[i] = (float)values[values_n == 1 ? 0 : i];
    return;
  }
  for (i = 0; i < n; i++, p += size) {
    tfd__store(p, dtype, values[values_n == 1 ? 0 : i]);
  }
}

static int write_doubles(tfd_tensor *t, const double *values,
                         int64_t values_n) {
  char small[STAGE_BYTES];
  size_t bytes = tfd__view_bytes(&t->view);
  void *stage = small;
  int rc;

  if (t->device->backend->host_visible && tfd__buffer_host_idle(t->buffer)) {
    convert(t->view.data, t->view.dtype, t->view.numel, values, values_n);
    return TFD_OK;
  }
  if (bytes > sizeof small) {
    stage = tfd__alloc(bytes);
    if (stage == NULL) return tfd__no_memory(bytes, "tensor from values");
  }
  convert(stage, t->view.dtype, t->view.numel, values, values_n);
  rc = tfd__host_write(t->buffer, 0, stage, bytes);
  if (stage != small) tfd__free(stage);
  return rc;
}

int tfd__tensor_from_values(tfd_device *device, int dtype, const int64_t *dims,
                            int rank, const double *values, int64_t values_n,
                            tfd_tensor **t_p) {
  tfd_tensor *t = NULL;
  int rc;

  TFD_TRY(tfd__tensor_new(device, dtype, dims, rank, &t));
  rc = write_doubles(t, values, values_n);
  if (rc != TFD_OK) {
    tfd__release(t);
    return rc;
  }
  *t_p = t;
  return TFD_OK;
}

int tfd__tensor_from_doubles(tfd_device *device, int dtype, const int64_t *dims,
                             int rank, const double *values, tfd_tensor **t_p) {
  return tfd__tensor_from_values(device, dtype, dims, rank, values, 0, t_p);
}

int tfd__tensor_from_bytes(tfd_device *device, int dtype, const int64_t *dims,
                           int rank, const void *data, tfd_tensor **t_p) {
  tfd_tensor *t = NULL;
  size_t bytes = 0;
  int rc = TFD_OK;

  TFD_TRY(tfd__tensor_new(device, dtype, dims, rank, &t));
  bytes = tfd__view_bytes(&t->view);
  if (bytes > 0) rc = tfd__host_write(t->buffer, 0, data, bytes);
  if (rc != TFD_OK) {
    tfd__release(t);
    return rc;
  }
  *t_p = t;
  return TFD_OK;
}

/* Dense and readable by the host. Owns: *dense_p. */
static int readable(tfd_tensor *tensor, tfd_tensor **dense_p) {
  tfd_tensor *dense = NULL;
  int rc;

  TFD_TRY(tfd__tensor_dense(tensor, &dense));
  rc = tfd__tensor_sync(dense);
  if (rc != TFD_OK) {
    tfd__release(dense);
    return rc;
  }
  *dense_p = dense;
  return TFD_OK;
}

static size_t byte_offset(const tfd_tensor *t) {
  return (size_t)((const char *)t->view.data - (const char *)t->buffer->data);
}

int tfd_tensor_read(tfd_tensor *tensor, void *data, size_t data_bytes) {
  TFD_GIVEN(tensor, TENSOR);
  TFD_GIVEN_BYTES(data, data_bytes);

  tfd_tensor *dense = NULL;
  size_t bytes = tfd__view_bytes(&tensor->view);
  int rc;

  if (tensor->buffer == NULL) return tfd__no_values(tensor, "tensor read");
  if (data_bytes != bytes) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "tensor read: room for %zu bytes, the tensor has %zu",
                     data_bytes, bytes);
  }
  TFD_TRY(readable(tensor, &dense));
  rc = bytes == 0
           ? TFD_OK
           : tfd__host_read(dense->buffer, byte_offset(dense), data, bytes);
  tfd__release(dense);
  return rc;
}

int tfd_tensor_crc(tfd_tensor *tensor, int64_t *crc_p) {
  TFD_GIVEN(tensor, TENSOR);
  TFD_GIVEN_POINTER(crc_p);

  tfd_tensor *dense = NULL;
  size_t bytes = tfd__view_bytes(&tensor->view);
  const void *p = NULL;
  void *stage = NULL;
  int rc = TFD_OK;

  if (tensor->buffer == NULL) return tfd__no_values(tensor, "tensor crc");
  TFD_TRY(readable(tensor, &dense));
  p = dense->view.data;
  if (!dense->device->backend->host_visible && bytes > 0) {
    stage = tfd__alloc(bytes);
    rc = stage == NULL
             ? tfd__no_memory(bytes, "tensor crc")
             : tfd__host_read(dense->buffer, byte_offset(dense), stage, bytes);
    p = stage;
  }
  if (rc == TFD_OK) *crc_p = bytes == 0 ? 0 : tfd__crc32c(0, p, bytes);
  tfd__free(stage);
  tfd__release(dense);
  return rc;
}

/* Element `index` of any view, without making it dense. */
static void *element(const tfd__view *v, int64_t index) {
  int64_t offset = 0;
  int axis;

  for (axis = v->rank - 1; axis >= 0; axis--) {
    offset += index % v->dims[axis] * v->strides[axis];
    index /= v->dims[axis];
  }
  return (char *)v->data + offset * (int64_t)tfd__dtype_size(v->dtype);
}

/* The one NaN that LuaJIT takes for a number: others, read from memory that
** its FFI shares, stand for its own objects. */
static double plain_nan(double x) {
  return x == x ? x : (double)NAN;
}

int tfd__tensor_cell(tfd_tensor *tensor, int64_t index, void *cell) {
  const char *p;
  size_t size = tfd__dtype_size(tensor->view.dtype);

  if (!TFD_LIKELY(tensor->buffer != NULL)) {
    return tfd__no_values(tensor, "item");
  }
  if (index < 0 || index >= tensor->view.numel) {
    return tfd__fail(TFD_INDEX_ERROR,
                     "item: position %lld is outside a tensor of %lld elements",
                     (long long)index, (long long)tensor->view.numel);
  }
  TFD_TRY(tfd__tensor_sync(tensor));
  p = element(&tensor->view, index);
  if (!tensor->device->backend->host_visible) {
    size_t offset = (size_t)(p - (const char *)tensor->buffer->data);

    return tfd__host_read(tensor->buffer, offset, cell, size);
  }
  memcpy(cell, p, size);
  return TFD_OK;
}

int tfd_tensor_item(tfd_tensor *tensor, int64_t index, double *value_p) {
  TFD_GIVEN(tensor, TENSOR);
  TFD_GIVEN_POINTER(value_p);

  int64_t cell = 0; /* room for an element of any dtype, aligned */

  TFD_TRY(tfd__tensor_cell(tensor, index, &cell));
  *value_p = plain_nan(tfd__load(&cell, tensor->view.dtype));
  return TFD_OK;
}

int tfd_tensor_values(tfd_tensor *tensor, double *values, int64_t values_n) {
  TFD_GIVEN(tensor, TENSOR);
  TFD_GIVEN_LIST(values, values_n);

  tfd_tensor *dense = NULL;
  const char *p;
  void *stage = NULL;
  size_t size = tfd__dtype_size(tensor->view.dtype);
  size_t bytes = tfd__view_bytes(&tensor->view);
  int64_t i;
  int rc = TFD_OK;

  if (tensor->buffer == NULL) return tfd__no_values(tensor, "tensor values");
  if (values_n != tensor->view.numel) {
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "tensor values: room for %lld, the tensor has %lld",
                     (long long)values_n, (long long)tensor->view.numel);
  }
  TFD_TRY(readable(tensor, &dense));
  p = dense->view.data;
  if (!dense->device->backend->host_visible && bytes > 0) {
    stage = tfd__alloc(bytes);
    rc = stage == NULL
             ? tfd__no_memory(bytes, "tensor values")
             : tfd__host_read(dense->buffer, byte_offset(dense), stage, bytes);
    p = stage;
  }
  for (i = 0; rc == TFD_OK && i < values_n; i++, p += size) {
    values[i] = plain_nan(tfd__load(p, tensor->view.dtype));
  }
  tfd__free(stage);
  tfd__release(dense);
  return rc;
}

int tfd_tensor_wait(tfd_tensor *tensor) {
  TFD_GIVEN(tensor, TENSOR);
  return tfd__tensor_sync(tensor);
}

int tfd_tensor_data(tfd_tensor *tensor, void **data_p) {
  TFD_GIVEN(tensor, TENSOR);
  TFD_GIVEN_POINTER(data_p);
  if (tensor->buffer == NULL) return tfd__no_values(tensor, "data");
  if (!tensor->device->backend->host_visible) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "data: the tensor lies on %s, which the host cannot read",
                     tensor->device->short_name);
  }
  if (!tensor->view.dense) {
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "data: the tensor is a view with gaps; copy it first");
  }
  TFD_TRY(tfd__tensor_sync(tensor));
  *data_p = tensor->view.data;
  return TFD_OK;
}

tfd_dtype tfd_tensor_dtype(const tfd_tensor *tensor) {
  TFD_GIVEN_OR(tensor, TENSOR, (tfd_dtype)0);
  return (tfd_dtype)tensor->view.dtype;
}

int tfd_tensor_rank(const tfd_tensor *tensor) {
  TFD_GIVEN_OR(tensor, TENSOR, 0);
  return tensor->view.rank;
}

int64_t tfd_tensor_dim(const tfd_tensor *tensor, int axis) {
  TFD_GIVEN_OR(tensor, TENSOR, -1);
  if (axis < 0 || axis >= tensor->view.rank) return -1;
  return tensor->view.dims[axis];
}

int64_t tfd_tensor_size(const tfd_tensor *tensor) {
  TFD_GIVEN_OR(tensor, TENSOR, 0);
  return tensor->view.numel;
}

bool tfd_tensor_is_dense(const tfd_tensor *tensor) {
  TFD_GIVEN_OR(tensor, TENSOR, false);
  return tensor->view.dense;
}

int64_t tfd_tensor_id(const tfd_tensor *tensor) {
  TFD_GIVEN_OR(tensor, TENSOR, 0);
  return (int64_t)tensor->id;
}

int tfd_tensor_device(tfd_tensor *tensor, tfd_device **device_p) {
  TFD_GIVEN(tensor, TENSOR);
  TFD_GIVEN_POINTER(device_p);
  *device_p = tensor->device;
  return TFD_OK;
}
