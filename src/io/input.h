#ifndef TFD_IO_INPUT_H
#define TFD_IO_INPUT_H
/* Bytes of a file in order, plain or compressed: all of it, or a part.
**
** What is held in memory at once is bounded by the file: plain bytes by those
** that are there, unpacked ones by TFD_UNPACKED_TIMES as many as the file has
** or TFD_UNPACKED_BYTES, whichever is more (a deflated byte can stand for a
** thousand), bytes from a pipe by TFD_PIPE_BYTES. */

#include <stdatomic.h>
#include <zlib.h>

#include "io/io.h"

#define TFD_INPUT_BYTES ((size_t)64 << 10)
#define TFD_UNPACKED_BYTES ((uint64_t)64 << 20)
#define TFD_UNPACKED_TIMES 100
/* What deflate gives at most for a byte: 258 bytes for a length and a distance
** of one bit each. */
#define TFD_DEFLATED_TIMES 1032
#define TFD_PIPE_BYTES ((uint64_t)1 << 30)

typedef struct tfd__input {
  const char *path; /* borrowed; what messages call it */
  int file;         /* -1 = none open */
  bool plain_file;  /* reads of others may wait */
  bool compressed;
  bool raw; /* deflated, without head and tail, one stream */
  bool file_ended;
  bool ended; /* nothing more will come */
  bool zlib_open;
  bool between; /* a gzip member ended, another may follow */
  z_stream z;
  unsigned char *in;       /* owned, compressed bytes */
  uint64_t offset;         /* of the next byte given, uncompressed */
  uint64_t file_bytes;     /* of a plain file */
  uint64_t left;           /* bytes of the part not yet read from the file */
  uint64_t unpacked;       /* in tensors that were made from it */
  bool sums;               /* keep crc */
  uint32_t crc;            /* CRC-32 of the bytes given since the part began */
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
/* Go to these bytes of a plain file: as they are, or deflated. `name`: what
** messages call them from now on; borrowed. */
int tfd__input_part(tfd__input *s, const char *name, uint64_t offset,
                    uint64_t bytes, bool deflated);
/* The most bytes that may be held at once of what is to come. */
uint64_t tfd__input_most(const tfd__input *s);
/* Say that `bytes` are more than that. Returns ResourceExhausted, or DataLoss
** where no file of that size can hold them. */
int tfd__input_too_much(const tfd__input *s, uint64_t bytes);
/* Up to `need` more bytes to the end of b. Memory follows what was read, not
** what is wanted. */
int tfd__input_take(tfd__input *s, size_t need, tfd__bytes *b);
/* All that is left, as a tensor on the current device.
** Errors: DataLoss naming file and offset when it does not fit the shape. */
int tfd__input_tensor(tfd__input *s, int dtype, const int64_t *dims, int rank,
                      bool big_endian, tfd_tensor **tensor_p);
void tfd__input_close(tfd__input *s);

#endif
