/* Any bytes as a safetensors file. The first byte says whether the length of
** the header is part of the bytes (which no fuzzer finds often) or comes from
** the next two. What opens has tensors that fit, and can be read. */
#include "file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  setenv("TFDIST_CPU_DEVICES", "1", 1);
  return 0;
}

static memory_file make_file(const uint8_t *data, size_t size) {
  uint8_t head[8] = {0};
  memory_file f;

  if (size < 3 || data[0] % 2 == 0) {
    return file_of(data + (size > 0), size - (size > 0));
  }
  memcpy(head, data + 1, 2);
  f = file_of(head, sizeof head);
  MUST(write(f.file, data + 3, size - 3) == (ssize_t)(size - 3));
  return f;
}

static void read_one(tfd_archive *a, int i, size_t size, const char *path) {
  const char *name = NULL;
  const char *dtype = NULL;
  int64_t offset = 0;
  int64_t bytes = 0;
  int at = -1;
  tfd_tensor *t = NULL;
  int rc;

  MUST(tfd_archive_entry(a, i, &name, &dtype, &offset, &bytes) == TFD_OK);
  MUST(offset >= 8 && bytes >= 0 && (size_t)(offset + bytes) <= size + 8);
  MUST(tfd_archive_find(a, name, &at) == TFD_OK && at == i);
  rc = tfd_archive_read(a, i, &t);
  if (rc == TFD_OK) {
    MUST((int64_t)tfd__view_bytes(&t->view) == bytes);
    tfd_release((tfd_object *)t);
  } else {
    check_failure(rc, path);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  memory_file f = make_file(data, size);
  tfd_archive *a = NULL;
  int rc = tfd_archive_open(f.path, &a);
  int i;

  if (rc == TFD_OK) {
    for (i = 0; i < tfd_archive_count(a); i++) read_one(a, i, size, f.path);
    tfd_release((tfd_object *)a);
  } else {
    MUST(a == NULL && rc == TFD_DATA_LOSS);
    check_failure(rc, f.path);
  }
  close(f.file);
  MUST(tfd_live_handles(TFD_HANDLE_ARCHIVE) == 0);
  MUST(tfd_live_handles(TFD_HANDLE_TENSOR) == 0);
  return 0;
}
