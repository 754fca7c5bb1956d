/* Any bytes as an idx file, plain or gzip: a tensor that fits them, or
** DataLoss; no memory beyond what the file really holds. */
#include "file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  setenv("TFDIST_CPU_DEVICES", "1", 1);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  memory_file f = file_of(data, size);
  tfd_tensor *t = NULL;
  int rc = tfd_read_idx(f.path, &t);

  close(f.file);
  if (rc == TFD_OK) {
    MUST(tfd_tensor_rank(t) <= TFD_MAX_RANK);
    MUST(tfd_tensor_wait(t) == TFD_OK);
    tfd_release((tfd_object *)t);
  } else {
    MUST(t == NULL);
    check_failure(rc, f.path);
  }
  MUST(tfd_live_handles(TFD_HANDLE_TENSOR) == 0);
  return 0;
}
