/* Any bytes as a tf.train.Example: features that can be read, or DataLoss.
** What was read and written again is read as the same. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  setenv("TFDIST_CPU_DEVICES", "1", 1);
  return 0;
}

static void read_feature(tfd_example *e, int i) {
  tfd_feature_kind kind = TFD_FEATURE_NONE;
  const char *name = NULL;
  const void *text = NULL;
  size_t bytes = 0;
  tfd_tensor *t = NULL;
  int64_t n = 0;
  int64_t k;
  int at = -1;

  MUST(tfd_example_feature(e, i, &name, &kind, &n) == TFD_OK && n >= 0);
  MUST(tfd_example_find(e, name, &at) == TFD_OK && at == i);
  for (k = 0; k < n && kind == TFD_FEATURE_BYTES; k++) {
    MUST(tfd_example_text(e, i, k, &text, &bytes) == TFD_OK);
    MUST(text != NULL);
  }
  if (kind == TFD_FEATURE_FLOAT || kind == TFD_FEATURE_INT64) {
    MUST(tfd_example_tensor(e, i, &t) == TFD_OK);
    MUST(tfd_tensor_size(t) == n);
    tfd_release((tfd_object *)t);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tfd_example *e = NULL;
  tfd_example *again = NULL;
  const void *wire = NULL;
  const void *wire_again = NULL;
  size_t n = 0;
  size_t n_again = 0;
  int i;

  if (tfd_example_parse(data, size, &e) != TFD_OK) {
    MUST(e == NULL && tfd_error_message()[0] != '\0');
    return 0;
  }
  for (i = 0; i < tfd_example_count(e); i++) read_feature(e, i);
  MUST(tfd_example_serialize(e, &wire, &n) == TFD_OK);
  MUST(tfd_example_parse(wire, n, &again) == TFD_OK);
  MUST(tfd_example_serialize(again, &wire_again, &n_again) == TFD_OK);
  MUST(n == n_again && (n == 0 || memcmp(wire, wire_again, n) == 0));
  tfd_release((tfd_object *)again);
  tfd_release((tfd_object *)e);
  MUST(tfd_live_handles(TFD_HANDLE_EXAMPLE) == 0);
  return 0;
}
