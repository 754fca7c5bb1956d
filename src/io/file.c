#include "io/io.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#define FIRST_BYTES ((size_t)64 << 10)
#define CHUNK_BYTES ((size_t)16 << 20)

/* Room for `need` bytes; memory follows what was read, not what was claimed. */
static int grow(unsigned char **data, size_t *capacity, size_t need) {
  size_t size = *capacity == 0 ? FIRST_BYTES : *capacity;
  unsigned char *p;

  if (need <= *capacity) return TFD_OK;
  while (size < need) size *= 2;
  p = tfd__realloc(*data, size);
  if (p == NULL) return tfd__no_memory(size, "file contents");
  *data = p;
  *capacity = size;
  return TFD_OK;
}

static int read_all(gzFile file, const char *path, size_t limit,
                    unsigned char **data, size_t *bytes) {
  size_t capacity = 0;

  for (;;) {
    size_t room;
    int n;
    int code = Z_OK;

    TFD_TRY(grow(data, &capacity, *bytes + 1));
    room = capacity - *bytes < CHUNK_BYTES ? capacity - *bytes : CHUNK_BYTES;
    n = gzread(file, *data + *bytes, (unsigned)room);
    if (n < 0) {
      const char *why = gzerror(file, &code);

      return tfd__fail(TFD_DATA_LOSS, "%s: damaged after byte %zu: %s", path,
                       *bytes, code == Z_ERRNO ? strerror(errno) : why);
    }
    if (n == 0) break;
    *bytes += (size_t)n;
    if (*bytes > limit) {
      return tfd__fail(TFD_DATA_LOSS, "%s: holds more than %zu bytes", path,
                       limit);
    }
  }
  /* gzread reports a stream that stops in the middle only through gzerror. */
  {
    int code = Z_OK;
    const char *why = gzerror(file, &code);

    if (code == Z_OK || code == Z_STREAM_END) return TFD_OK;
    return tfd__fail(TFD_DATA_LOSS, "%s: ends early, after byte %zu: %s", path,
                     *bytes, why);
  }
}

int tfd__read_file(const char *path, size_t limit, unsigned char **data_p,
                   size_t *bytes_p) {
  unsigned char *data = NULL;
  size_t bytes = 0;
  gzFile file;
  int rc;

  errno = 0;
  file = gzopen(path, "rbe");
  if (file == NULL) {
    return tfd__fail(errno == ENOENT ? TFD_NOT_FOUND : TFD_FAILED_PRECONDITION,
                     "%s: %s", path,
                     errno == 0 ? "out of memory" : strerror(errno));
  }
  rc = read_all(file, path, limit, &data, &bytes);
  gzclose(file);
  if (rc != TFD_OK) {
    tfd__free(data);
    return rc;
  }
  *data_p = data;
  *bytes_p = bytes;
  return TFD_OK;
}
