#ifndef TFD_BASE_CRC32C_H
#define TFD_BASE_CRC32C_H
/* L0 base: CRC-32C (Castagnoli), the checksum of checkpoints and records. */

#include <stddef.h>
#include <stdint.h>

/* The checksum of `bytes` more bytes after those that gave `crc` (0 at the
** start). Cost: bytes in cache 45 GB/s with VPCLMULQDQ, 20 GB/s with SSE 4.2,
** 2 GB/s without. */
uint32_t tfd__crc32c(uint32_t crc, const void *data, size_t bytes);

/* How it is computed, with all bits of `crc` inverted before and after. */
typedef uint32_t (*tfd__crc32c_way)(uint32_t crc, const unsigned char *data,
                                    size_t bytes);
enum { TFD_CRC32C_WAYS = 3 };
/* Those of this machine, fastest first; NULL ends them. */
const tfd__crc32c_way *tfd__crc32c_ways(void);

/* The form that record files store: a checksum of data that holds checksums
** would be weak. */
uint32_t tfd__crc32c_mask(uint32_t crc);

#endif
