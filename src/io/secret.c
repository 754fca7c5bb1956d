/* What a cluster's members know and nobody else does, kept in a file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/io.h"

enum { MOST_BYTES = 4096 };

static int cannot_read(const char *path) {
  return tfd__fail(errno == ENOENT ? TFD_NOT_FOUND : TFD_FAILED_PRECONDITION,
                   "secret: cannot read %s: %s", path, strerror(errno));
}

/* Its owner's alone. */
static int check_mode(int file, const char *path) {
  struct stat s;

  if (fstat(file, &s) != 0) return cannot_read(path);
  if (!S_ISREG(s.st_mode)) {
    return tfd__fail(TFD_FAILED_PRECONDITION, "secret: %s is no file", path);
  }
  if ((s.st_mode & 077) == 0) return TFD_OK;
  (void)tfd__fail(TFD_FAILED_PRECONDITION,
                  "secret: %s has mode %04o, so that others than its owner "
                  "reach it; expected 0600",
                  path, (unsigned)s.st_mode & 07777);
  return tfd__hint("chmod 600 %s", path);
}

static int read_all(int file, const char *path, char *text, size_t *n_p) {
  size_t n = 0;

  for (;;) {
    ssize_t got = read(file, text + n, MOST_BYTES + 1 - n);

    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(path);
    if (got == 0) break;
    n += (size_t)got;
    if (n <= MOST_BYTES) continue;
    return tfd__fail(TFD_INVALID_ARGUMENT, "secret: %s has more than %d bytes",
                     path, MOST_BYTES);
  }
  while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r')) n--;
  if (n == 0) {
    return tfd__fail(TFD_INVALID_ARGUMENT, "secret: %s is empty", path);
  }
  *n_p = n;
  return TFD_OK;
}

int tfd_secret_read(const char *path, const void **secret_p,
                    size_t *secret_bytes_p) {
  TFD_GIVEN_POINTER(path);
  TFD_GIVEN_POINTER(secret_p);
  TFD_GIVEN_POINTER(secret_bytes_p);

  /* Stays until the next call: the caller gets a borrowed text. */
  static _Thread_local char text[MOST_BYTES + 1];
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  int rc;

  if (file < 0) return cannot_read(path);
  rc = check_mode(file, path);
  if (rc == TFD_OK) rc = read_all(file, path, text, secret_bytes_p);
  (void)close(file);
  if (rc == TFD_OK) *secret_p = text;
  return rc;
}
