#ifndef TFD_BACKEND_CPU_RANDOM_H
#define TFD_BACKEND_CPU_RANDOM_H
/* Shared by the kernels that draw numbers. */

#include <string.h>

#include "backend/cpu/random/philox.h"
#include "backend/draw.h"

typedef struct tfd__draw tfd__draw;
/* Make TFD_PHILOX_WORDS / words elements from as many words; float32 for the
** half types. */
typedef void (*tfd__draw_fn)(const tfd__draw *d, const uint32_t *words,
                             void *out);
struct tfd__draw {
  tfd__draw_fn make;
  tfd__philox stream;
  int dtype;
  int words;      /* for each element: 1 or 2 */
  double a;       /* minval or mean */
  double b;       /* maxval or stddev */
  double top;     /* largest result of a uniform draw */
  uint64_t low;   /* integers: lowest, two's complement */
  uint64_t range; /* integers: how many; 0 = 2^64 */
};

/* Fill a dense output. */
int tfd__draw_fill(const tfd__draw *d, const tfd__view *out);

#endif
