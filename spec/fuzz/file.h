#ifndef SPEC_FUZZ_FILE_H
#define SPEC_FUZZ_FILE_H
/* A fuzzer's bytes as a file that has a name. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "input.h"

typedef struct memory_file {
  int file;
  char path[64];
} memory_file;

static inline memory_file file_of(const void *data, size_t size) {
  memory_file f = {.file = memfd_create("fuzz", 0)};

  MUST(f.file >= 0);
  MUST(write(f.file, data, size) == (ssize_t)size);
  snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.file);
  return f;
}

/* What every error of a reader has: a kind that says "damaged" (or that there
** is no such thing here), and a message. */
static inline void check_failure(int rc, const char *path) {
  MUST(rc == TFD_DATA_LOSS || rc == TFD_NOT_IMPLEMENTED);
  MUST(strstr(tfd_error_message(), path) != NULL);
}

#endif
