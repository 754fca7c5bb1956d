/* Small images as PNG files, for summaries. Source: RFC 2083. */
#include "io/io.h"

#include <string.h>
#include <zlib.h>

/* Small enough for TensorBoard, and fast. */
#define LEVEL 1
#define HEAD_BYTES 13

static void put_number(unsigned char *to, uint32_t x) {
  int i;

  for (i = 0; i < 4; i++) to[i] = (unsigned char)(x >> (24 - 8 * i));
}

/* Length, type, content, checksum of the last two. */
static int add_chunk(tfd__bytes *png, const char *type, const void *data,
                     size_t n) {
  unsigned char number[4];
  size_t begin = png->n + sizeof number;

  put_number(number, (uint32_t)n);
  TFD_TRY(tfd__bytes_add(png, number, sizeof number));
  TFD_TRY(tfd__bytes_add(png, type, 4));
  TFD_TRY(tfd__bytes_add(png, data, n));
  put_number(number, (uint32_t)crc32_z(0, png->data + begin, png->n - begin));
  return tfd__bytes_add(png, number, sizeof number);
}

static int add_head(tfd__bytes *png, const tfd__view *v) {
  static const unsigned char colors[] = {0, 0, 4, 2, 6}; /* by channels */
  unsigned char head[HEAD_BYTES] = {0};

  put_number(head, (uint32_t)v->dims[1]);
  put_number(head + 4, (uint32_t)v->dims[0]);
  head[8] = 8; /* bits of a channel */
  head[9] = colors[v->dims[2]];
  TFD_TRY(tfd__bytes_add(png, "\211PNG\r\n\032\n", 8));
  return add_chunk(png, "IHDR", head, sizeof head);
}

/* Each row begins with its filter, which is none; deflated as a whole. */
static int add_pixels(tfd__bytes *png, const tfd__view *v,
                      const unsigned char *pixels) {
  size_t row = (size_t)(v->dims[1] * v->dims[2]);
  size_t rows = (size_t)v->dims[0];
  size_t n = (row + 1) * rows;
  uLongf packed_n = compressBound(n);
  unsigned char *plain = tfd__alloc(n);
  unsigned char *packed = tfd__alloc(packed_n);
  int rc = TFD_OK;
  size_t y;

  for (y = 0; plain != NULL && y < rows; y++) {
    plain[y * (row + 1)] = 0;
    memcpy(plain + y * (row + 1) + 1, pixels + y * row, row);
  }
  if (plain == NULL || packed == NULL ||
      compress2(packed, &packed_n, plain, n, LEVEL) != Z_OK) {
    rc = tfd__no_memory(n, "PNG image");
  } else {
    rc = add_chunk(png, "IDAT", packed, packed_n);
  }
  tfd__free(packed);
  tfd__free(plain);
  return rc;
}

static int check_image(const tfd__view *v) {
  char text[TFD_SHAPE_TEXT];
  int i;

  for (i = 0; v->rank == 3 && i < 3; i++) {
    if (v->dims[i] < 1 || v->dims[i] > (i < 2 ? INT32_MAX : 4)) break;
  }
  if (v->dtype == TFD_UINT8 && i == 3 && v->numel <= INT32_MAX) return TFD_OK;
  return tfd__fail(TFD_INVALID_ARGUMENT,
                   "png: the image is %s %s; expected uint8 {height, width, 1 "
                   "to 4 channels}, at most 2 GiB",
                   tfd__dtype_name(v->dtype), tfd__shape_text(v, text));
}

static int encode(tfd__bytes *png, const tfd__view *v,
                  const unsigned char *pixels) {
  png->n = 0;
  TFD_TRY(add_head(png, v));
  TFD_TRY(add_pixels(png, v, pixels));
  return add_chunk(png, "IEND", "", 0);
}

int tfd_png_encode(tfd_tensor *image, const void **png_p, size_t *png_bytes_p) {
  TFD_GIVEN(image, TENSOR);
  TFD_GIVEN_POINTER(png_p);
  TFD_GIVEN_POINTER(png_bytes_p);

  /* Stays until the next call: the caller gets a borrowed text. */
  static _Thread_local tfd__bytes png;
  tfd__host_copy pixels;
  int rc = check_image(&image->view);

  if (rc != TFD_OK) return rc;
  TFD_TRY(tfd__host_copy_begin(&pixels, image));
  rc = encode(&png, &image->view, pixels.data);
  tfd__host_copy_end(&pixels);
  if (rc != TFD_OK) return rc;
  *png_p = png.data;
  *png_bytes_p = png.n;
  return TFD_OK;
}
