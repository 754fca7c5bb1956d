#ifndef TFD_CUDA_MODEL_H
#define TFD_CUDA_MODEL_H
/* The kernels' dialect on a processor: the model runs a launch's blocks one
** after the other and a block's threads in an order that a seed chooses, as
** coroutines that stop at barriers and shuffles. It reports what hardware would
** hang or corrupt on: barriers that not all threads reach, shuffles without
** all lanes, writes past shared arrays; with the checker (race.cc) also races,
** reads of what nobody wrote, accesses outside memory. What it cannot show:
** real overlap, memory ordering between blocks, speed. */

#ifndef TFD_OWN_HALVES
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct tfd_model_place {
  unsigned x;
  unsigned y;
  unsigned z;
};

/* Where the running thread is. */
struct tfd_model_now {
  tfd_model_place thread;
  tfd_model_place block;
  tfd_model_place block_dim;
  tfd_model_place grid_dim;
};
/* Seen by modules that are loaded later, too. */
extern thread_local tfd_model_now tfd_model
    __attribute__((visibility("default")));

#define threadIdx (tfd_model.thread)
#define blockIdx (tfd_model.block)
#define blockDim (tfd_model.block_dim)
#define gridDim (tfd_model.grid_dim)

void tfd_model_barrier(int line);
void tfd_model_warp_barrier(int line);
/* Every lane's value goes in, the value of lane `from` comes out. */
void tfd_model_shuffle(void *value, size_t bytes, unsigned from, int line);
void *tfd_model_shared(const void *key, size_t bytes);

template <class T>
static inline T tfd_model_exchange(T x, unsigned from, int line) {
  tfd_model_shuffle(&x, sizeof x, from, line);
  return x;
}

struct tfd_model_kernel {
  const char *name;
  unsigned threads; /* launch bound */
  size_t bytes;     /* of the argument */
  void (*run)(const void *args);
  tfd_model_kernel *next;
};
extern tfd_model_kernel *tfd_model_kernels;

template <class A> struct tfd_model_argument;
template <class A> struct tfd_model_argument<void (*)(A)> { typedef A type; };

#define KERNEL(threads, name) static void name
#define END_KERNEL(threads, name)                                              \
  static void name##_run(const void *args) {                                   \
    tfd_model_argument<decltype(&name)>::type a;                               \
    memcpy((void *)&a, args, sizeof a);                                        \
    name(a);                                                                   \
  }                                                                            \
  static struct name##_entry_type {                                            \
    tfd_model_kernel kernel;                                                   \
    name##_entry_type() {                                                      \
      kernel = {#name, threads,                                                \
                sizeof(tfd_model_argument<decltype(&name)>::type), name##_run, \
                tfd_model_kernels};                                            \
      tfd_model_kernels = &kernel;                                             \
    }                                                                          \
  } name##_entry;

#define DEVICE static inline
#define DEVICE_CALL static inline
#define DEVICE_SPECIAL inline
#define ROLLED
#define SHARED(type, name, dims)    \
  typedef type name##_type dims;    \
  static const char name##_key = 0; \
  name##_type &name =               \
      *(name##_type *)tfd_model_shared(&name##_key, sizeof(name##_type))
#define BARRIER() tfd_model_barrier(__LINE__)
#define WARP_BARRIER() tfd_model_warp_barrier(__LINE__)
#define SHUFFLE_XOR(value, by) \
  tfd_model_exchange(value, (threadIdx.x % 32) ^ (by), __LINE__)

unsigned long long tfd_model_atomic_min(unsigned long long *at,
                                        unsigned long long x);
#define atomicMin tfd_model_atomic_min

#endif
