/* Kernels with the bugs that the model and its checker have to find, and
** without them. Two blocks of 256 threads. */
#include "backend/cuda/kernels/dialect.h"

#include "planted.h"

#ifdef __CUDACC__
#error "these are wrong on purpose: no GPU runs them"
#endif

/* One element of a tile is read by another thread than wrote it. */
KERNEL(256, no_barrier)(const planted_args a) {
  SHARED(float, tile, [256]);

  tile[threadIdx.x] = a.in[thread_index()];
  if (a.right) BARRIER();
  a.out[thread_index()] = tile[255 - threadIdx.x];
}
END_KERNEL(256, no_barrier)

/* Two sums of a block through the same array: the second may be written before
** all have read the first. */
KERNEL(256, write_after_read)(const planted_args a) {
  SHARED(float, parts, [8]);
  float total = 0;

  for (int round = 0; round < 2; round++) {
    float x = a.in[thread_index()] + (float)round;

    for (int by = 16; by > 0; by /= 2) x += SHUFFLE_XOR(x, by);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    BARRIER();
    for (int w = 0; w < 8; w++) total += parts[w];
    if (a.right) BARRIER();
  }
  a.out[thread_index()] = total;
}
END_KERNEL(256, write_after_read)

/* A tree in each warp: shared memory between lanes wants a warp barrier. */
KERNEL(256, no_warp_barrier)(const planted_args a) {
  SHARED(float, x, [256]);
  unsigned lane = threadIdx.x % 32;

  x[threadIdx.x] = a.in[thread_index()];
  for (unsigned by = 16; by > 0; by /= 2) {
    if (a.right) WARP_BARRIER();
    if (lane < by) x[threadIdx.x] += x[threadIdx.x + by];
  }
  a.out[thread_index()] = x[threadIdx.x];
}
END_KERNEL(256, no_warp_barrier)

KERNEL(256, some_leave)(const planted_args a) {
  if (!a.right && threadIdx.x >= 100) return;
  BARRIER();
  a.out[thread_index()] = a.in[thread_index()];
}
END_KERNEL(256, some_leave)

KERNEL(256, two_barriers)(const planted_args a) {
  if (a.right || threadIdx.x < 128) {
    BARRIER();
  } else {
    BARRIER();
  }
  a.out[thread_index()] = a.in[thread_index()];
}
END_KERNEL(256, two_barriers)

KERNEL(256, few_lanes)(const planted_args a) {
  float x = a.in[thread_index()];

  if (a.right || threadIdx.x % 32 < 8) x += SHUFFLE_XOR(x, 1);
  a.out[thread_index()] = x;
}
END_KERNEL(256, few_lanes)

KERNEL(256, past_shared)(const planted_args a) {
  SHARED(float, tile, [256]);
  volatile int past = a.right ? 0 : 1;

  tile[threadIdx.x + past] = a.in[thread_index()];
  BARRIER();
  a.out[thread_index()] = tile[255 - threadIdx.x];
}
END_KERNEL(256, past_shared)

KERNEL(256, past_device)(const planted_args a) {
  a.out[thread_index() + (a.right ? 0 : 1)] = a.in[thread_index()];
}
END_KERNEL(256, past_device)

KERNEL(256, never_written)(const planted_args a) {
  SHARED(float, tile, [256]);

  if (a.right || threadIdx.x < 255) tile[threadIdx.x] = a.in[thread_index()];
  BARRIER();
  a.out[thread_index()] = tile[255 - threadIdx.x];
}
END_KERNEL(256, never_written)

/* Both blocks count in one place. */
KERNEL(256, two_blocks)(const planted_args a) {
  if (threadIdx.x != 0) return;
  if (a.right) {
    atomicMin((unsigned long long *)a.out, blockIdx.x);
  } else {
    a.out[0] += 1;
  }
}
END_KERNEL(256, two_blocks)

struct alignas(16) four {
  float x[4];
};

KERNEL(256, misaligned)(const planted_args a) {
  int64_t i = thread_index();

  if (i >= PLANTED_N / 4 - 1) return;
  *(four *)(a.out + 4 * i + (a.right ? 0 : 1)) = *(const four *)(a.in + 4 * i);
}
END_KERNEL(256, misaligned)
