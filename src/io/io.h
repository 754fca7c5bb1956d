#ifndef TFD_IO_IO_H
#define TFD_IO_IO_H
/* L6 io: files in, tensors out, and back.
**
** A reader trusts nothing that a file says: sizes are checked against what is
** really there before memory is taken for them, and an error names file and
** offset. A file that is replaced is written under another name first.
** May include base .. ops; not autograd, dist. Specs: spec/io. */

#include "tensor/tensor.h"

/* What an errno means for a caller: NotFound, ResourceExhausted for a full
** disk, FailedPrecondition. */
tfd_status tfd__errno_status(int code);
/* The same for what kept an open file from being read: want of memory, or
** damage. */
tfd_status tfd__read_status(int code);

/* --- output that appears whole or not at all ------------------------------ */

typedef struct tfd__output {
  char *path;     /* owned */
  char *temp;     /* owned; the name until commit */
  int mode;       /* permissions of the file that is replaced, -1 = none */
  int file;       /* -1 = none open */
  uint64_t bytes; /* written so far */
} tfd__output;

/* Begin a file that will replace `path`. `expected`: bytes to come, checked
** against the space on the disk (0 = unknown). */
int tfd__output_open(tfd__output *o, const char *path, uint64_t expected);
int tfd__output_write(tfd__output *o, const void *data, size_t bytes);
/* Sync, rename, sync the folder. The old file stays if anything fails, its
** permissions in any case: they hold for the new content from its first byte.
*/
int tfd__output_commit(tfd__output *o);
/* Remove what was not committed; free. Safe to call at any time. */
void tfd__output_close(tfd__output *o);
/* Remove what ended processes began and did not commit in the folder of `path`.
** Cost: reads the folder. Nothing happens where that cannot be done. */
void tfd__output_sweep(const char *path);

/* Make durable that the file or folder `path` has its name: sync its folder. */
int tfd__sync_name(const char *path);

/* --- bytes that grow --------------------------------------------------------
 */

typedef struct tfd__bytes {
  unsigned char *data; /* tfd__alloc'ed or NULL */
  size_t n;
  size_t capacity;
} tfd__bytes;

int tfd__bytes_reserve(tfd__bytes *b, size_t more);
int tfd__bytes_add(tfd__bytes *b, const void *data, size_t n);

/* --- protobuf messages ------------------------------------------------------
** A message is a run of fields: a key (number and wire type), then a number, 4
** or 8 bytes, or a length and that many bytes. Reading checks every length
** against what is there. */

enum {
  TFD_WIRE_NUMBER = 0,
  TFD_WIRE_64 = 1,
  TFD_WIRE_BYTES = 2,
  TFD_WIRE_32 = 5
};

/* What is left to read of a message. */
typedef struct tfd__message {
  const unsigned char *p;
  size_t n;
  const char *what; /* for messages of errors */
} tfd__message;

/* Errors of all: DataLoss. */
int tfd__message_number(tfd__message *m, uint64_t *x_p);
int tfd__message_key(tfd__message *m, uint64_t *field_p, int *wire_p);
/* The bytes of a field that has just been named by its key; a number has
** none. */
int tfd__message_bytes(tfd__message *m, int wire, tfd__message *bytes_p);
/* Go behind a field of any kind. */
int tfd__message_skip(tfd__message *m, int wire);
int tfd__message_broken(const tfd__message *m, const char *why);

int tfd__bytes_number(tfd__bytes *b, uint64_t x);
int tfd__bytes_field(tfd__bytes *b, int field, const tfd__bytes *inner);

/* --- tensors as host bytes --------------------------------------------------
 */

/* A tensor's elements, row-major, readable by the host. */
typedef struct tfd__host_copy {
  tfd_tensor *dense; /* owned */
  void *stage;       /* owned; NULL when the host sees the tensor itself */
  const void *data;
  size_t bytes;
} tfd__host_copy;

int tfd__host_copy_begin(tfd__host_copy *c, tfd_tensor *t);
void tfd__host_copy_end(tfd__host_copy *c);

/* A new tensor on the current device, its bytes put in place by `read`: without
** a copy where the host may write into it. */
int tfd__tensor_filled(int dtype, const int64_t *dims, int rank,
                       int (*read)(void *arg, void *data, size_t bytes),
                       void *arg, tfd_tensor **tensor_p);

#endif
