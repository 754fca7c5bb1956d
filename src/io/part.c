/* A file that is read part by part: what formats of several pieces (npy, npz)
** are taken from, whose heads are text for the host language. */
#include "io/input.h"

#include <string.h>

struct tfd_input {
  tfd_object object;
  char *path; /* owned */
  char *name; /* owned; of the part; NULL = the whole file */
  tfd__input stream;
  tfd__bytes text; /* what the last read gave */
};

static void input_destroy(void *self) {
  tfd_input *input = self;

  tfd__input_close(&input->stream);
  tfd__free(input->text.data);
  tfd__free(input->name);
  tfd__free(input->path);
  tfd__free(input);
}

static const tfd__type input_type = {
    .name = "Input",
    .kind = TFD_HANDLE_INPUT,
    .destroy = input_destroy,
};

int tfd_input_open(const char *path, tfd_input **input_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_POINTER(input_p);

  tfd_input *input = tfd__calloc(1, sizeof *input);
  int rc;

  if (input == NULL) return tfd__no_memory(sizeof *input, "input");
  tfd__object_init(&input->object, &input_type);
  input->stream.file = -1;
  input->path = tfd__strdup(path);
  rc = input->path == NULL ? tfd__no_memory(strlen(path), "file name")
                           : tfd__input_open(&input->stream, input->path,
                                             TFD_COMPRESSION_NONE, NULL);
  if (rc != TFD_OK) {
    tfd__release(input);
    return rc;
  }
  *input_p = input;
  return TFD_OK;
}

int64_t tfd_input_size(const tfd_input *input) {
  TFD_GIVEN_OR(input, INPUT, -1);
  return input->stream.plain_file ? (int64_t)input->stream.file_bytes : -1;
}

int tfd_input_part(tfd_input *input, const char *name, int64_t offset,
                   int64_t bytes, bool deflated) {
  TFD_GIVEN(input, INPUT);
  TFD_GIVEN_POINTER(name);

  char *copy;

  if (offset < 0 || bytes < 0) {
    return tfd__fail(TFD_VALUE_ERROR, "%s: %lld bytes at offset %lld", name,
                     (long long)bytes, (long long)offset);
  }
  copy = tfd__strdup(name);
  if (copy == NULL) return tfd__no_memory(strlen(name), "name");
  tfd__free(input->name);
  input->name = copy;
  return tfd__input_part(&input->stream, copy, (uint64_t)offset,
                         (uint64_t)bytes, deflated);
}

int tfd_input_read(tfd_input *input, int64_t bytes, const void **text_p,
                   size_t *text_bytes_p) {
  TFD_GIVEN(input, INPUT);
  TFD_GIVEN_POINTER(text_p);
  TFD_GIVEN_POINTER(text_bytes_p);

  input->text.n = 0;
  if (bytes > 0) {
    TFD_TRY(tfd__input_take(&input->stream, (size_t)bytes, &input->text));
  }
  *text_p = input->text.n == 0 ? (const void *)"" : input->text.data;
  *text_bytes_p = input->text.n;
  return TFD_OK;
}

int tfd_input_tensor(tfd_input *input, tfd_dtype dtype, const int64_t *dims,
                     int dims_n, bool big_endian, tfd_tensor **tensor_p) {
  TFD_GIVEN(input, INPUT);
  TFD_GIVEN_ENUM(dtype, TFD_FLOAT32, TFD_BOOL);
  TFD_GIVEN_LIST(dims, dims_n);
  TFD_GIVEN_POINTER(tensor_p);
  return tfd__input_tensor(&input->stream, (int)dtype, dims, dims_n, big_endian,
                           tensor_p);
}

int64_t tfd_input_crc(const tfd_input *input) {
  TFD_GIVEN_OR(input, INPUT, -1);
  return (int64_t)input->stream.crc;
}
