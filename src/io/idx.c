/* The idx format of the MNIST family: two zero bytes, a type, a rank, that
** many big-endian sizes, then the elements, big-endian, row-major. */
#include "io/io.h"

#include <string.h>

#define LIMIT_BYTES ((size_t)4 << 30)

/* dtype for the format's type byte, 0 when it has none. */
static int dtype_of(unsigned char type) {
  switch (type) {
  case 0x08:
    return TFD_UINT8;
  case 0x09:
    return TFD_INT8;
  case 0x0B:
    return TFD_INT16;
  case 0x0C:
    return TFD_INT32;
  case 0x0D:
    return TFD_FLOAT32;
  case 0x0E:
    return TFD_FLOAT64;
  default:
    return 0;
  }
}

static int64_t big_endian_32(const unsigned char *p) {
  return ((int64_t)p[0] << 24) | ((int64_t)p[1] << 16) | ((int64_t)p[2] << 8) |
         (int64_t)p[3];
}

/* Turn elements of `size` bytes from big-endian into the machine's order. */
static void to_native(unsigned char *p, size_t bytes, size_t size) {
  const uint16_t probe = 1;
  size_t i;
  size_t k;

  if (size == 1 || *(const unsigned char *)&probe != 1) return;
  for (i = 0; i + size <= bytes; i += size) {
    for (k = 0; k < size / 2; k++) {
      unsigned char swap = p[i + k];

      p[i + k] = p[i + size - 1 - k];
      p[i + size - 1 - k] = swap;
    }
  }
}

typedef struct idx_header {
  int dtype;
  int rank;
  int64_t dims[TFD_MAX_RANK];
  size_t bytes; /* of the header itself */
} idx_header;

static int parse_header(const char *path, const unsigned char *data,
                        size_t bytes, idx_header *h) {
  int i;

  if (bytes < 4 || data[0] != 0 || data[1] != 0) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: not an idx file (it does not begin with two zero "
                     "bytes, a type and a rank)",
                     path);
  }
  h->dtype = dtype_of(data[2]);
  h->rank = data[3];
  if (h->dtype == 0 || h->rank > TFD_MAX_RANK) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: idx type 0x%02x of rank %d at offset 2 is not known",
                     path, data[2], data[3]);
  }
  h->bytes = 4 + 4 * (size_t)h->rank;
  if (bytes < h->bytes) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: ends in its header, after %zu of %zu bytes", path,
                     bytes, h->bytes);
  }
  for (i = 0; i < h->rank; i++) h->dims[i] = big_endian_32(data + 4 + 4 * i);
  return TFD_OK;
}

static int make_tensor(const char *path, unsigned char *data, size_t bytes,
                       tfd_tensor **tensor_p) {
  idx_header h;
  tfd__view view;
  char shape[TFD_SHAPE_TEXT];

  TFD_TRY(parse_header(path, data, bytes, &h));
  if (tfd__view_set(&view, h.dtype, h.dims, h.rank) != TFD_OK) {
    return tfd__wrap("%s: sizes at offset 4", path);
  }
  if (bytes - h.bytes != tfd__view_bytes(&view)) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: %zu bytes of elements after offset %zu, but %s %s "
                     "has %zu",
                     path, bytes - h.bytes, h.bytes, tfd__dtype_name(h.dtype),
                     tfd__shape_text(&view, shape), tfd__view_bytes(&view));
  }
  to_native(data + h.bytes, bytes - h.bytes, tfd__dtype_size(h.dtype));
  return tfd_tensor_from_bytes(data + h.bytes, bytes - h.bytes,
                               (tfd_dtype)h.dtype, h.dims, h.rank, tensor_p);
}

int tfd_read_idx(const char *path, tfd_tensor **tensor_p) {
  unsigned char *data = NULL;
  size_t bytes = 0;
  int rc;

  TFD_TRY(tfd__read_file(path, LIMIT_BYTES, &data, &bytes));
  rc = make_tensor(path, data, bytes, tensor_p);
  tfd__free(data);
  return rc;
}
