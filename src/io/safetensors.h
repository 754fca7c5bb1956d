#ifndef TFD_IO_SAFETENSORS_H
#define TFD_IO_SAFETENSORS_H
/* The safetensors layout, shared by reader and writer: 8 bytes little-endian
** length of the header, the header (JSON, padded with spaces), then the
** tensors' elements without gaps. Header: name -> { dtype, shape,
** data_offsets } and "__metadata__": text -> text.
**
** Files of ours are told by metadata "format" = "tfdist" and carry checksums
** in the metadata, CRC-32C as 8 hexadecimal digits: "crc32c:NAME" of each
** tensor's bytes, and as the very first entry "crc32c" of the header itself
** with these digits read as zeros. */

#include "base/json.h"
#include "io/io.h"

#define TFD_ST_LENGTH_BYTES 8
#define TFD_ST_HEADER_LIMIT ((uint64_t)100 << 20)
#define TFD_ST_NAME_LIMIT 4096
#define TFD_ST_FORMAT "tfdist"
#define TFD_ST_PREFIX "{\"__metadata__\":{\"crc32c\":\""
#define TFD_ST_CRC_DIGITS 8
#define TFD_ST_CRC_KEY "crc32c:"

/* X(dtype or 0, name in files, bytes of an element) */
#define TFD_ST_DTYPES(X)     \
  X(TFD_FLOAT32, "F32", 4)   \
  X(TFD_FLOAT64, "F64", 8)   \
  X(TFD_FLOAT16, "F16", 2)   \
  X(TFD_BFLOAT16, "BF16", 2) \
  X(TFD_INT8, "I8", 1)       \
  X(TFD_INT16, "I16", 2)     \
  X(TFD_INT32, "I32", 4)     \
  X(TFD_INT64, "I64", 8)     \
  X(TFD_UINT8, "U8", 1)      \
  X(TFD_BOOL, "BOOL", 1)     \
  X(0, "U16", 2)             \
  X(0, "U32", 4)             \
  X(0, "U64", 8)             \
  X(0, "F8_E4M3", 1)         \
  X(0, "F8_E5M2", 1)         \
  X(0, "C64", 8)

typedef struct tfd__st_dtype {
  int dtype; /* 0 = known to the format, not here */
  const char *name;
  size_t size;
} tfd__st_dtype;

/* By the name in files, or by our dtype; NULL when there is none. */
const tfd__st_dtype *tfd__st_dtype_named(const char *name);
const tfd__st_dtype *tfd__st_dtype_of(int dtype);

#endif
