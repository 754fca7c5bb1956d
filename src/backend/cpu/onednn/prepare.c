/* What oneDNN makes on first use and destroys at exit: lists of
** implementations, its cache, compiled code. Whoever joins other threads in an
** atexit handler must have it made before the handler is registered, else it
** is destroyed under threads that still run. Left out is the packing product of
** large matrices, which compiles for 60 ms.
**
** Cost: one tiny call of each kind, some 4 ms in all. */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/nn/recurrent_cpu.h"

enum { SIDE = 64, OPERAND_BYTES = SIDE * SIDE * 4 };

static void matmul(char *memory) {
  int64_t dims[2] = {SIDE, SIDE};
  tfd__view v[3];
  int rc = TFD_OK;
  int i;

  for (i = 0; i < 3; i++) {
    if (tfd__view_set(&v[i], TFD_FLOAT32, dims, 2) != TFD_OK) return;
    v[i].data = memory + (size_t)i * OPERAND_BYTES;
  }
  (void)tfd__dnnl_matmul("prepare", &v[0], &v[1], &v[2], &rc);
}

static void convolution(char *memory) {
  const tfd__window w = {.spatial = 2,
                         .batch = 1,
                         .channels = 16,
                         .filters = 16,
                         .groups = 1,
                         .in = {1, 8, 8},
                         .out = {1, 8, 8},
                         .kernel = {1, 3, 3},
                         .stride = {1, 1, 1},
                         .dilation = {1, 1, 1},
                         .low = {0, 1, 1},
                         .high = {0, 1, 1}};
  int rc = TFD_OK;
  int kind;

  for (kind = TFD_DNNL_CONV_FORWARD; kind <= TFD_DNNL_CONV_FILTER; kind++) {
    (void)tfd__dnnl_convolve("prepare", (tfd__dnnl_conv)kind, TFD_FLOAT32, &w,
                             memory, memory + OPERAND_BYTES,
                             memory + 2 * (size_t)OPERAND_BYTES, &rc);
  }
}

static void recurrent(char *memory, int gates, bool backward) {
  tfd__rnn rnn = {
      .name = "prepare",
      .r = {.steps = 1, .batch = 1, .depth = 8, .units = 8, .gates = gates},
      .dtype = TFD_FLOAT32,
      .training = true,
      .backward = backward,
      .workspace_bytes = OPERAND_BYTES};
  int rc = TFD_OK;
  int i;

  for (i = 0; i < RNN_OPERANDS; i++) {
    rnn.at[i] = memory + (size_t)i * OPERAND_BYTES;
  }
  (void)tfd__dnnl_recurrent(&rnn, &rc);
}

void tfd__cpu_prepare(void) {
  size_t bytes = (size_t)RNN_OPERANDS * OPERAND_BYTES;
  char *memory = tfd__alloc_aligned(64, bytes);
  int backward;

  if (memory == NULL) return; /* what is not made now is made when needed */
  memset(memory, 0, bytes);
  matmul(memory);
  convolution(memory);
  for (backward = 0; backward < 2; backward++) {
    recurrent(memory, 4, backward != 0);
    recurrent(memory, 3, backward != 0);
  }
  tfd__scratch_reset();
  tfd__free(memory);
}
