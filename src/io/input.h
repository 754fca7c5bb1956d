#ifndef TFD_IO_INPUT_H
#define TFD_IO_INPUT_H
/* Bytes of a file in order, plain or compressed. */

#include <stdatomic.h>
#include <zlib.h>

#include "io/io.h"

#define TFD_INPUT_BYTES ((size_t)64 << 10)

typedef struct tfd__input {
  const char *path; /* borrowed */
  int file;         /* -1 = none open */
  bool plain_file;  /* reads of others may wait */
  bool compressed;
  bool file_ended;
  bool ended;       /* nothing more will come */
  bool zlib_open;
  bool between;     /* a gzip member ended, another may follow */
  z_stream z;
  unsigned char *in; /* owned, compressed bytes */
  uint64_t offset;   /* of the next byte given, uncompressed */
  const atomic_bool *stop; /* borrowed; set = waiting reads give up;
                              NULL = an interrupt ends them */
} tfd__input;

int tfd__input_open(tfd__input *s, const char *path,
                     tfd_compression compression, const atomic_bool *stop);
/* A plain file or, told by its first bytes, a gzip one. An interrupt ends
** waiting reads. */
int tfd__input_open_any(tfd__input *s, const char *path);
/* Up to `bytes` more bytes; *n_p < bytes only at the end.
** Errors: DataLoss naming file and offset. */
int tfd__input_read(tfd__input *s, void *data, size_t bytes, size_t *n_p);
void tfd__input_close(tfd__input *s);

#endif
