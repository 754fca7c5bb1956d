/* One stretch of a sum over replicas: element j of every output is the sum (or
** mean) of element j of all inputs, added in order. Several devices share a
** sum by taking stretches; all write every replica's result.
**
** Cost: each input is read once and each output written once; sums of a block
** stay in the first-level cache. Results too large for the caches are written
** past them, which saves reading the lines that are about to be overwritten: a
** third of the traffic. They go line by line, so that reads and writes overlap:
** block by block takes a third longer. */
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "backend/cpu/cpu.h"

enum { BLOCK = 2048, GRAIN_ELEMENTS = 1 << 16 };

/* Bytes written past the caches at a time, to one output after the other: two
** lines; and how far ahead of them inputs are fetched. */
enum { STEP = 128, READ_AHEAD = 1024 };

/* Inputs and outputs together; below it the last-level cache holds them. */
#define PAST_CACHES ((size_t)32 << 20)

typedef struct sum_job {
  const tfd__call *call;
  bool mean;
  bool past_caches;
  int64_t first; /* element that position 0 of the loop stands for */
} sum_job;

static inline float load_half(uint16_t x) {
  return tfd__half_to_float(x);
}
static inline float load_bf16(uint16_t x) {
  return tfd__bf16_to_float(x);
}
static inline uint16_t store_half(float x) {
  return tfd__float_to_half(x);
}
static inline uint16_t store_bf16(float x) {
  return tfd__float_to_bf16(x);
}
#define SAME(x) (x)

#if defined(__SSE2__)
/* Both ends are aligned to 64 bytes; so is `bytes`. */
static inline void copy_past_caches(void *to, const void *from, size_t bytes) {
  __m128i *t = to;
  const __m128i *f = from;

  for (size_t k = 0; k < bytes / sizeof *t; k++) {
    _mm_stream_si128(t + k, _mm_load_si128(f + k));
  }
}

/* Stores past the caches are not in order with others. */
static void order_stores(void) {
  _mm_sfence();
}
#else
static inline void copy_past_caches(void *to, const void *from, size_t bytes) {
  memcpy(to, from, bytes);
}

static void order_stores(void) {}
#endif

/* Sums of elements [begin, end) of type T, added up in type A. */
#define DEFINE_SUM(name, T, A, LOAD, STORE, MEAN)                            \
  TFD_CLONES static void name(const sum_job *job, int64_t begin,             \
                              int64_t end) {                                 \
    const tfd__call *c = job->call;                                          \
    A sums[BLOCK];                                                           \
                                                                             \
    for (int64_t at = begin; at < end; at += BLOCK) {                        \
      int64_t n = end - at < BLOCK ? end - at : BLOCK;                       \
      const T *x = (const T *)tfd__in(c, 0)->data + at;                      \
                                                                             \
      for (int64_t j = 0; j < n; j++) sums[j] = LOAD(x[j]);                  \
      for (int i = 1; i < c->in_n; i++) {                                    \
        const T *y = (const T *)tfd__in(c, i)->data + at;                    \
                                                                             \
        for (int64_t j = 0; j < n; j++) sums[j] = (A)(sums[j] + LOAD(y[j])); \
      }                                                                      \
      if (job->mean) {                                                       \
        for (int64_t j = 0; j < n; j++) sums[j] = MEAN(sums[j]);             \
      }                                                                      \
      for (int i = 0; i < c->out_n; i++) {                                   \
        T *z = (T *)tfd__out(c, i)->data + at;                               \
                                                                             \
        for (int64_t j = 0; j < n; j++) z[j] = STORE(sums[j]);               \
      }                                                                      \
    }                                                                        \
  }

/* The same past the caches, from a multiple of STEP bytes on. Returns where it
** stops: less than STEP bytes before `end`. */
#define DEFINE_PAST_CACHES(name, T, MEAN)                               \
  TFD_CLONES static int64_t name(const sum_job *job, int64_t begin,     \
                                 int64_t end) {                         \
    enum { EACH = STEP / sizeof(T), AHEAD = READ_AHEAD / sizeof(T) };   \
    const tfd__call *c = job->call;                                     \
    _Alignas(64) T sums[EACH];                                          \
    int64_t at = begin;                                                 \
                                                                        \
    for (; end - at >= EACH; at += EACH) {                              \
      for (int i = 0; i < c->in_n; i++) {                               \
        const T *x = (const T *)tfd__in(c, i)->data + at;               \
                                                                        \
        __builtin_prefetch(x + AHEAD);                                  \
        __builtin_prefetch(x + AHEAD + EACH / 2);                       \
        if (i == 0) {                                                   \
          memcpy(sums, x, STEP);                                        \
        } else {                                                        \
          for (int j = 0; j < EACH; j++) sums[j] = (T)(sums[j] + x[j]); \
        }                                                               \
      }                                                                 \
      if (job->mean) {                                                  \
        for (int j = 0; j < EACH; j++) sums[j] = MEAN(sums[j]);         \
      }                                                                 \
      for (int i = 0; i < c->out_n; i++) {                              \
        copy_past_caches((T *)tfd__out(c, i)->data + at, sums, STEP);   \
      }                                                                 \
    }                                                                   \
    return at;                                                          \
  }

#define MEAN_F32(x) ((x) / (float)c->in_n)
#define MEAN_F64(x) ((x) / (double)c->in_n)

DEFINE_SUM(sum_f32, float, float, SAME, SAME, MEAN_F32)
DEFINE_SUM(sum_f64, double, double, SAME, SAME, MEAN_F64)
DEFINE_SUM(sum_f16, uint16_t, float, load_half, store_half, MEAN_F32)
DEFINE_SUM(sum_bf16, uint16_t, float, load_bf16, store_bf16, MEAN_F32)
DEFINE_SUM(sum_i32, uint32_t, uint32_t, SAME, SAME, SAME)
DEFINE_SUM(sum_i64, uint64_t, uint64_t, SAME, SAME, SAME)

DEFINE_PAST_CACHES(past_f32, float, MEAN_F32)
DEFINE_PAST_CACHES(past_f64, double, MEAN_F64)
DEFINE_PAST_CACHES(past_i32, uint32_t, SAME)
DEFINE_PAST_CACHES(past_i64, uint64_t, SAME)

/* As much of [begin, end) as can be written past the caches: fresh outputs
** begin at a line, and so do the parts of a loop. Returns where the rest
** begins. */
static int64_t sum_past_caches(const sum_job *job, int64_t begin, int64_t end) {
  for (int i = 0; i < job->call->out_n; i++) {
    const char *z = tfd__out(job->call, i)->data;
    size_t at = (size_t)begin * tfd__dtype_size(tfd__out(job->call, i)->dtype);

    if (((uintptr_t)z + at) % 64 != 0) return begin;
  }
  switch (tfd__in(job->call, 0)->dtype) {
  case TFD_FLOAT32:
    begin = past_f32(job, begin, end);
    break;
  case TFD_FLOAT64:
    begin = past_f64(job, begin, end);
    break;
  case TFD_INT32:
    begin = past_i32(job, begin, end);
    break;
  case TFD_INT64:
    begin = past_i64(job, begin, end);
    break;
  default:
    return begin; /* half types: their sums are wider */
  }
  order_stores();
  return begin;
}

static void sum_range(void *arg, int64_t begin, int64_t end) {
  const sum_job *job = arg;

  begin += job->first;
  end += job->first;
  if (job->past_caches) begin = sum_past_caches(job, begin, end);
  switch (tfd__in(job->call, 0)->dtype) {
  case TFD_FLOAT32:
    sum_f32(job, begin, end);
    break;
  case TFD_FLOAT64:
    sum_f64(job, begin, end);
    break;
  case TFD_FLOAT16:
    sum_f16(job, begin, end);
    break;
  case TFD_BFLOAT16:
    sum_bf16(job, begin, end);
    break;
  case TFD_INT32:
    sum_i32(job, begin, end);
    break;
  default:
    sum_i64(job, begin, end);
    break; /* the caller's only other one */
  }
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
