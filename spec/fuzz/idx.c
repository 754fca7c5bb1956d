/* Any bytes as an idx file, plain or gzip: a tensor that fits them, or
** DataLoss; no memory beyond what the file really holds. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  setenv("TFDIST_CPU_DEVICES", "1", 1);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char path[64];
  tfd_tensor *t = NULL;
  int file = memfd_create("idx", 0);
  int rc;

  MUST(file >= 0);
  MUST(write(file, data, size) == (ssize_t)size);
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  rc = tfd_read_idx(path, &t);
  close(file);
  if (rc == TFD_OK) {
    MUST(tfd_tensor_rank(t) <= TFD_MAX_RANK);
    MUST(tfd_tensor_wait(t) == TFD_OK);
    tfd_release((tfd_object *)t);
  } else {
    MUST(t == NULL);
    MUST(rc == TFD_DATA_LOSS || rc == TFD_INVALID_ARGUMENT);
    MUST(tfd_error_message()[0] != '\0');
  }
  MUST(tfd_live_handles(TFD_HANDLE_TENSOR) == 0);
  return 0;
}
