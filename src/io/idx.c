/* The idx format of the MNIST family: two zero bytes, a type, a rank, that
** many big-endian sizes, then the elements, big-endian, row-major. */
#include "io/input.h"

#include <string.h>

#define HEAD_BYTES 4 /* before the sizes */

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

typedef struct idx_header {
  int dtype;
  int rank;
  int64_t dims[TFD_MAX_RANK];
  size_t bytes; /* of the header itself */
} idx_header;

static int read_header(tfd__input *in, idx_header *h) {
  unsigned char data[HEAD_BYTES + 4 * TFD_MAX_RANK];
  size_t n = 0;
  int i;

  TFD_TRY(tfd__input_read(in, data, HEAD_BYTES, &n));
  if (n < HEAD_BYTES || data[0] != 0 || data[1] != 0) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: not an idx file (it does not begin with two zero "
                     "bytes, a type and a rank)",
                     in->path);
  }
  h->dtype = dtype_of(data[2]);
  h->rank = data[3];
  if (h->dtype == 0 || h->rank > TFD_MAX_RANK) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: idx type 0x%02x of rank %d at offset 2 is not known",
                     in->path, data[2], data[3]);
  }
  h->bytes = HEAD_BYTES + 4 * (size_t)h->rank;
  TFD_TRY(tfd__input_read(in, data + HEAD_BYTES, h->bytes - HEAD_BYTES, &n));
  if (n < h->bytes - HEAD_BYTES) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: ends in its header, after %zu of %zu bytes", in->path,
                     HEAD_BYTES + n, h->bytes);
  }
  for (i = 0; i < h->rank; i++) {
    h->dims[i] = big_endian_32(data + HEAD_BYTES + 4 * i);
  }
  return TFD_OK;
}

int tfd_read_idx(const char *path, tfd_tensor **tensor_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_POINTER(tensor_p);

  tfd__input in;
  idx_header h;
  int rc;

  TFD_TRY(tfd__input_open_any(&in, path));
  rc = read_header(&in, &h);
  if (rc == TFD_OK) {
    rc = tfd__input_tensor(&in, h.dtype, h.dims, h.rank, true, tensor_p);
  }
  tfd__input_close(&in);
  return rc;
}
