/* The idx format of the MNIST family: two zero bytes, a type, a rank, that
** many big-endian sizes, then the elements, big-endian, row-major. */
#include "io/input.h"

#include <string.h>

#define FIRST_BYTES ((size_t)64 << 10)
#define PIECE_BYTES ((size_t)256 << 20)
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
                     "%s: ends in its header, after %zu of %zu bytes",
                     in->path, HEAD_BYTES + n, h->bytes);
  }
  for (i = 0; i < h->rank; i++) {
    h->dims[i] = big_endian_32(data + HEAD_BYTES + 4 * i);
  }
  return TFD_OK;
}

/* Up to `need` bytes. Memory follows what was read, not what was claimed. */
static int read_elements(tfd__input *in, size_t need, tfd__bytes *b) {
  while (b->n < need) {
    size_t piece = b->n == 0 ? FIRST_BYTES : b->n;
    size_t n = 0;

    if (piece > PIECE_BYTES) piece = PIECE_BYTES;
    if (piece > need - b->n) piece = need - b->n;
    TFD_TRY(tfd__bytes_reserve(b, piece));
    TFD_TRY(tfd__input_read(in, b->data + b->n, piece, &n));
    b->n += n;
    if (n < piece) break;
  }
  return TFD_OK;
}

static int check_size(tfd__input *in, const idx_header *h,
                      const tfd__view *view, size_t found) {
  char shape[TFD_SHAPE_TEXT];
  unsigned char more;
  size_t n = 0;

  if (found == tfd__view_bytes(view)) {
    TFD_TRY(tfd__input_read(in, &more, 1, &n));
    if (n == 0) return TFD_OK;
  }
  return tfd__fail(TFD_DATA_LOSS,
                   "%s: %s%zu bytes of elements after offset %zu, but %s %s "
                   "has %zu",
                   in->path, n > 0 ? "more than " : "", found, h->bytes,
                   tfd__dtype_name(h->dtype), tfd__shape_text(view, shape),
                   tfd__view_bytes(view));
}

static int make_tensor(tfd__input *in, tfd__bytes *b, tfd_tensor **tensor_p) {
  idx_header h;
  tfd__view view;

  TFD_TRY(read_header(in, &h));
  if (tfd__view_set(&view, h.dtype, h.dims, h.rank) != TFD_OK) {
    return tfd__fail(TFD_DATA_LOSS,
                     "%s: the %d sizes at offset %d are more than a tensor has",
                     in->path, h.rank, HEAD_BYTES);
  }
  TFD_TRY(read_elements(in, tfd__view_bytes(&view), b));
  TFD_TRY(check_size(in, &h, &view, b->n));
  to_native(b->data, b->n, tfd__dtype_size(h.dtype));
  return tfd_tensor_from_bytes(b->n == 0 ? (const void *)"" : b->data, b->n,
                               (tfd_dtype)h.dtype, h.dims, h.rank, tensor_p);
}

int tfd_read_idx(const char *path, tfd_tensor **tensor_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_POINTER(tensor_p);

  tfd__input in;
  tfd__bytes bytes = {NULL, 0, 0};
  int rc;

  TFD_TRY(tfd__input_open_any(&in, path));
  rc = make_tensor(&in, &bytes, tensor_p);
  tfd__free(bytes.data);
  tfd__input_close(&in);
  return rc;
}
