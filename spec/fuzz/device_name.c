/* Any text as a device's name: found, or an error that quotes it. */
#include "device/private.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc;
  (void)argv;
  setenv("TFDIST_CPU_DEVICES", "3", 1);
  return 0;
}

/* A name that was read leads to the same device when written in full. */
static void check_name(const tfd__name *name) {
  char text[64];
  tfd__name again;

  MUST(strlen(name->type) < sizeof name->type);
  MUST(name->ordinal >= 0 && name->ordinal <= 999999);
  snprintf(text, sizeof text, "/device:%s:%d", name->type, name->ordinal);
  MUST(tfd__name_parse(text, &again) == TFD_OK);
  MUST(strcmp(again.type, name->type) == 0);
  MUST(again.ordinal == name->ordinal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = malloc(size + 1);
  tfd_device *device = NULL;
  tfd__name name;
  int dtype = 0;
  int rc;

  MUST(text != NULL);
  if (size > 0) memcpy(text, data, size);
  text[size] = '\0';
  if (tfd__name_parse(text, &name) == TFD_OK) check_name(&name);
  rc = tfd_device_find(text, &device);
  if (rc == TFD_OK) {
    tfd_device *same = NULL;

    MUST(tfd_device_find(tfd_device_name(device), &same) == TFD_OK);
    MUST(same == device);
  } else {
    MUST(device == NULL);
    MUST(rc == TFD_VALUE_ERROR || rc == TFD_INVALID_ARGUMENT);
    MUST(tfd_error_message()[0] != '\0');
  }
  if (tfd_dtype_find(text, &dtype) == TFD_OK) {
    MUST(strcmp(tfd_dtype_name(dtype), text) == 0);
  }
  free(text);
  return 0;
}
