#ifndef TFD_IO_IO_H
#define TFD_IO_IO_H
/* L6 io: files in, tensors out.
**
** A reader trusts nothing that a file says: sizes are checked against what is
** really there before memory is taken for them, and an error names file and
** offset. May include base .. ops; not autograd, dist. Specs: spec/io. */

#include "tensor/tensor.h"

/* The whole of a file, plain or gzip, at most `limit` bytes.
** Owns: *data_p is tfd__alloc'ed. Errors: NotFound, DataLoss. */
int tfd__read_file(const char *path, size_t limit, unsigned char **data_p,
                   size_t *bytes_p);

#endif
