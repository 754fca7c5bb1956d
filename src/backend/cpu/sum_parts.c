/* One stretch of a sum over replicas: element j of every output is the sum (or
** mean) of element j of all inputs, added in order. Several devices share a
** sum by taking stretches; all write every replica's result.
**
** Cost: each input is read once and each output written once; sums of a block
** stay in the first-level cache. Results too large for the caches are written
** past them, which saves reading the lines that are about to be overwritten: a
** third of the traffic. */
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "backend/cpu/cpu.h"

enum { BLOCK = 2048, GRAIN_ELEMENTS = 1 << 16 };

/* Inputs and outputs together; below it the last-level cache holds them. */
#define PAST_CACHES ((size_t)32 << 20)

typedef struct sum_job {
  const tfd__call *call;
  bool mean;
  bool past_caches;
  int64_t first; /* element that position 0 of the loop stands for */
} sum_job;

static inline float load_half(uint16_t x) { return tfd__half_to_float(x); }
static inline float load_bf16(uint16_t x) { return tfd__bf16_to_float(x); }
static inline uint16_t store_half(float x) { return tfd__float_to_half(x); }
static inline uint16_t store_bf16(float x) { return tfd__float_to_bf16(x); }
#define SAME(x) (x)

#if defined(__SSE2__)
static void copy_past_caches(void *to, const void *from, size_t bytes) {
  char *t = to;
  const char *f = from;
  size_t head = (16 - ((uintptr_t)t & 15)) & 15;

  if (head > bytes) head = bytes;
  memcpy(t, f, head);
  t += head;
  f += head;
  for (bytes -= head; bytes >= 16; bytes -= 16, t += 16, f += 16) {
    _mm_stream_si128((__m128i *)(void *)t,
                     _mm_loadu_si128((const __m128i *)(const void *)f));
  }
  memcpy(t, f, bytes);
}

/* Stores past the caches are not in order with others. */
static void order_stores(void) {
  _mm_sfence();
}
#else
static void copy_past_caches(void *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
}

static void order_stores(void) {}
#endif

/* Sums of elements [begin, end) of type T, added up in type A. */
#define DEFINE_SUM(name, T, A, LOAD, STORE, MEAN)                              \
  TFD_CLONES static void name(const sum_job *job, int64_t begin,               \
                              int64_t end) {                                   \
    const tfd__call *c = job->call;                                            \
    A sums[BLOCK];                                                             \
                                                                               \
    for (int64_t at = begin; at < end; at += BLOCK) {                          \
      int64_t n = end - at < BLOCK ? end - at : BLOCK;                         \
      const T *x = (const T *)tfd__in(c, 0)->data + at;                        \
                                                                               \
      for (int64_t j = 0; j < n; j++) sums[j] = LOAD(x[j]);                    \
      for (int i = 1; i < c->in_n; i++) {                                      \
        const T *y = (const T *)tfd__in(c, i)->data + at;                      \
                                                                               \
        for (int64_t j = 0; j < n; j++) sums[j] = (A)(sums[j] + LOAD(y[j]));   \
      }                                                                        \
      if (job->mean) {                                                         \
        for (int64_t j = 0; j < n; j++) sums[j] = MEAN(sums[j]);               \
      }                                                                        \
      for (int i = 0; i < c->out_n; i++) {                                     \
        T *z = (T *)tfd__out(c, i)->data + at;                                 \
                                                                               \
        if (job->past_caches && sizeof(T) == sizeof(A)) {                      \
          copy_past_caches(z, sums, (size_t)n * sizeof(T));                    \
          continue;                                                            \
        }                                                                      \
        for (int64_t j = 0; j < n; j++) z[j] = STORE(sums[j]);                 \
      }                                                                        \
    }                                                                          \
  }

#define MEAN_F32(x) ((x) / (float)c->in_n)
#define MEAN_F64(x) ((x) / (double)c->in_n)

DEFINE_SUM(sum_f32, float, float, SAME, SAME, MEAN_F32)
DEFINE_SUM(sum_f64, double, double, SAME, SAME, MEAN_F64)
DEFINE_SUM(sum_f16, uint16_t, float, load_half, store_half, MEAN_F32)
DEFINE_SUM(sum_bf16, uint16_t, float, load_bf16, store_bf16, MEAN_F32)
DEFINE_SUM(sum_i32, uint32_t, uint32_t, SAME, SAME, SAME)
DEFINE_SUM(sum_i64, uint64_t, uint64_t, SAME, SAME, SAME)

static void sum_range(void *arg, int64_t begin, int64_t end) {
  const sum_job *job = arg;

  begin += job->first;
  end += job->first;
  switch (tfd__in(job->call, 0)->dtype) {
  case TFD_FLOAT32: sum_f32(job, begin, end); break;
  case TFD_FLOAT64: sum_f64(job, begin, end); break;
  case TFD_FLOAT16: sum_f16(job, begin, end); break;
  case TFD_BFLOAT16: sum_bf16(job, begin, end); break;
  case TFD_INT32: sum_i32(job, begin, end); break;
  default: sum_i64(job, begin, end); break; /* the caller's only other one */
  }
  if (job->past_caches) order_stores();
}

/* ints: mean, first element, one past the last. */
int tfd__cpu_sum_parts(const tfd__call *call) {
  size_t each = tfd__view_bytes(tfd__in(call, 0));
  sum_job job = {
      .call = call,
      .mean = call->ints[0] != 0,
      .past_caches = each * (size_t)(call->in_n + call->out_n) > PAST_CACHES,
      .first = call->ints[1],
  };

  tfd__parallel_for(call->ints[2] - call->ints[1], GRAIN_ELEMENTS, sum_range,
                    &job);
  return TFD_OK;
}
