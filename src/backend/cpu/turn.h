#ifndef TFD_BACKEND_CPU_TURN_H
#define TFD_BACKEND_CPU_TURN_H
/* 4 x 4 elements of 4 bytes turned in registers: column c of `from` becomes row
** c of `to`. Steps in elements, from one row to the next. */

#include <stdint.h>
#include <string.h>

typedef uint32_t tfd__turn_lanes __attribute__((vector_size(16)));

static inline void tfd__turn_4x4(uint32_t *to, int64_t to_step,
                                 const uint32_t *from, int64_t from_step) {
  tfd__turn_lanes x[4];
  tfd__turn_lanes low[2];
  tfd__turn_lanes high[2];
  int k;

  for (k = 0; k < 4; k++) memcpy(&x[k], from + k * from_step, 16);
  for (k = 0; k < 2; k++) {
    low[k] = __builtin_shufflevector(x[k], x[k + 2], 0, 4, 1, 5);
    high[k] = __builtin_shufflevector(x[k], x[k + 2], 2, 6, 3, 7);
  }
  x[0] = __builtin_shufflevector(low[0], low[1], 0, 4, 1, 5);
  x[1] = __builtin_shufflevector(low[0], low[1], 2, 6, 3, 7);
  x[2] = __builtin_shufflevector(high[0], high[1], 0, 4, 1, 5);
  x[3] = __builtin_shufflevector(high[0], high[1], 2, 6, 3, 7);
  for (k = 0; k < 4; k++) memcpy(to + k * to_step, &x[k], 16);
}

#endif
