#ifndef TFD_CUDA_DIALECT_H
#define TFD_CUDA_DIALECT_H
/* The language kernels are written in: CUDA C++ that a C++ compiler can build
** for the CPU too, over an execution model (spec/support/cuda), so that kernels
** run and races show where there is no GPU.
**
** A kernel takes one structure of args.h by value:
**   KERNEL(256, name)(const tfd_cu_x a) { ... } END_KERNEL(256, name)
** 256 is its launch bound. What is between barriers, shuffles and votes is
** plain C++. Not in the dialect: inline PTX, tensor core and copy engine
** instructions, clusters, cooperative groups, spinning on flags. */

#include <stdint.h>

/* Where the toolkit's headers are not at hand (programs made at run time). */
#ifdef __CUDACC_RTC__
#define TFD_OWN_HALVES
#endif

#ifdef __CUDACC__

#ifndef TFD_OWN_HALVES
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#define KERNEL(threads, name) \
  extern "C" __global__ void __launch_bounds__(threads) name
#define END_KERNEL(threads, name)
#define DEVICE static __device__ __forceinline__
/* A function of its own: its code is there once, and a call is cheap beside
** what it computes. */
#define DEVICE_CALL static __device__ __noinline__
/* Of a template that was declared with DEVICE. */
#define DEVICE_SPECIAL __device__ __forceinline__
/* Before a loop whose body must stay there once: copies of it would not fit the
** registers. */
#define ROLLED _Pragma("unroll 1")
#define SHARED(type, name, dims) __shared__ type name dims
#define BARRIER() __syncthreads()
#define WARP_BARRIER() __syncwarp()
#define SHUFFLE_DOWN(value, by) __shfl_down_sync(0xffffffffu, value, by)
#define SHUFFLE_XOR(value, by) __shfl_xor_sync(0xffffffffu, value, by)

#else
#include "cuda_model.h"
#endif

#include "backend/cuda/kernels/args.h"

/* x * y + z, rounded twice, as the CPU's kernels do. */
DEVICE float times_plus(float x, float y, float z) {
#ifdef __CUDACC__
  return __fadd_rn(__fmul_rn(x, y), z);
#else
  return x * y + z;
#endif
}
DEVICE double times_plus(double x, double y, double z) {
#ifdef __CUDACC__
  return __dadd_rn(__dmul_rn(x, y), z);
#else
  return x * y + z;
#endif
}
/* 1 / sqrt(x), to a unit in the last place. */
DEVICE double inverse_root(double x) {
#ifdef __CUDACC__
  return rsqrt(x);
#else
  return 1 / sqrt(x);
#endif
}
/* The high 64 bits of a product. */
DEVICE uint64_t high_product(uint64_t x, uint64_t y) {
#ifdef __CUDACC__
  return __umul64hi(x, y);
#else
  return (uint64_t)((unsigned __int128)x * y >> 64);
#endif
}

#ifdef TFD_OWN_HALVES
#include "backend/cuda/kernels/halves.h"
#else
typedef __half f16;
typedef __nv_bfloat16 bf16;
#endif

/* The type a stored type is computed in: float32 for the half types. */
template <class T> struct wide_of { typedef T type; };
template <> struct wide_of<f16> { typedef float type; };
template <> struct wide_of<bf16> { typedef float type; };

template <class T> DEVICE T widen(T x) {
  return x;
}
DEVICE float widen(f16 x) {
  return __half2float(x);
}
DEVICE float widen(bf16 x) {
  return __bfloat162float(x);
}

template <class T> struct narrowing {
  template <class W> DEVICE T of(W x) { return (T)x; }
};
template <> struct narrowing<f16> {
  DEVICE f16 of(float x) { return __float2half_rn(x); }
};
template <> struct narrowing<bf16> {
  DEVICE bf16 of(float x) { return __float2bfloat16_rn(x); }
};
template <class T, class W> DEVICE T narrow(W x) {
  return narrowing<T>::of(x);
}

/* Rounded once, from float32 and from float64; integers by way of float32. */
DEVICE f16 half_of(float x) {
  return __float2half_rn(x);
}
DEVICE f16 half_of(double x) {
  return __double2half(x);
}
DEVICE f16 half_of(int64_t x) {
  return __float2half_rn((float)x);
}
DEVICE bf16 bfloat_of(float x) {
  return __float2bfloat16_rn(x);
}
DEVICE bf16 bfloat_of(double x) {
  return __double2bfloat16(x);
}
DEVICE bf16 bfloat_of(int64_t x) {
  return __float2bfloat16_rn((float)x);
}

/* This thread's first element and how many threads there are. */
DEVICE int64_t thread_index() {
  return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
DEVICE int64_t thread_count() {
  return (int64_t)gridDim.x * blockDim.x;
}

/* i / d of numbers that are not negative. Most fit 32 bits, and dividing 64
** takes ten times as long. */
DEVICE int64_t quotient(int64_t i, int64_t d) {
  if ((uint64_t)(i | d) >> 32 == 0) return (uint32_t)i / (uint32_t)d;
  return i / d;
}

/* Must what shows stay as it is? */
DEVICE bool stopped(const uint64_t *stop) {
  return stop != NULL && *stop != TFD_CU_GO_ON;
}

/* Element `at` has a value that cannot be taken; the first one is kept. */
DEVICE void note_bad(uint64_t *error, int64_t at, int64_t value) {
  uint64_t place = at < 0xffffffff ? (uint64_t)at : 0xfffffffe;

  atomicMin((unsigned long long *)error,
            (unsigned long long)(place << 32 | (uint32_t)value));
}

#endif
