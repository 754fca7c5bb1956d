/* Pooling and its gradients. Channels lie together in the inner loops;
** channels-first tensors are seen as more images of one channel. */
#include <string.h>

#include "backend/cpu/gemm.h"
#include "backend/window.h"

#define BLOCK 64 /* channels handled together in the gradients */

typedef struct pool_job {
  tfd__window w;
  int64_t positions; /* outputs of one image */
  int64_t pixels;    /* inputs of one image */
  int64_t blocks;    /* blocks of channels */
  const void *x;
  const void *y;
  const void *dy;
  void *out;
} pool_job;

static int start(const tfd__call *call, const tfd__view *input,
                 pool_job *job) {
  tfd__window *w = &job->w;

  TFD_TRY(tfd__window_of_pool(call->name, input, call->ints, w));
  if (w->channels_first) {
    w->batch *= w->channels;
    w->channels = w->filters = 1;
    w->channels_first = false;
  }
  job->positions = w->out[0] * w->out[1] * w->out[2];
  job->pixels = w->in[0] * w->in[1] * w->in[2];
  job->blocks = (w->channels + BLOCK - 1) / BLOCK;
  return TFD_OK;
}

/* An output position over all images, and where its image's input starts. */
typedef struct place {
  int64_t p;
  int64_t base;
  int64_t o[3];
} place;

static inline place place_at(const pool_job *job, int64_t p) {
  const tfd__window *w = &job->w;
  place at = {p, p / job->positions * job->pixels, {0, 0, 0}};

  at.o[2] = p % w->out[2];
  p /= w->out[2];
  at.o[1] = p % w->out[1];
  at.o[0] = p / w->out[1] % w->out[0];
  return at;
}

static inline void place_next(const pool_job *job, place *at) {
  at->p++;
  for (int i = 2; i >= 0; i--) {
    if (++at->o[i] < job->w.out[i]) return;
    at->o[i] = 0;
  }
  at->base += job->pixels;
}

/* Zeros for one image's block of channels, just before they are added to: the
** memory is still in the cache then. */
static inline void clear_block(const pool_job *job, int64_t image, int64_t c0,
                               int64_t n, size_t size) {
  int64_t channels = job->w.channels;
  char *out = job->out;

  out += (size_t)(image * job->pixels * channels + c0) * size;
  if (n == channels) {
    memset(out, 0, (size_t)(job->pixels * channels) * size);
    return;
  }
  for (int64_t i = 0; i < job->pixels; i++)
    memset(out + (size_t)(i * channels) * size, 0, (size_t)n * size);
}

/* Outputs [begin, end) over all images. */
#define MAX_FORWARD(T, ID)                                                     \
  TFD_CLONES static void max_##ID(void *arg, int64_t begin, int64_t end) {     \
    const pool_job *job = arg;                                                 \
    int64_t channels = job->w.channels;                                        \
                                                                               \
    for (place at = place_at(job, begin); at.p < end; place_next(job, &at)) {  \
      tfd__taps t;                                                             \
      T *restrict y = (T *)job->out + at.p * channels;                         \
      const T *restrict x = job->x;                                            \
                                                                               \
      if (!tfd__taps_start(&job->w, at.o, &t)) continue;                       \
      x += (at.base + tfd__taps_index(&job->w, &t)) * channels;                \
      memcpy(y, x, (size_t)channels * sizeof(T));                              \
      while (tfd__taps_next(&t)) {                                             \
        x = job->x;                                                            \
        x += (at.base + tfd__taps_index(&job->w, &t)) * channels;              \
        for (int64_t c = 0; c < channels; c++) y[c] = x[c] > y[c] ? x[c] : y[c]; \
      }                                                                        \
    }                                                                          \
  }

/* The tap that gave the maximum is the first one equal to it: `open` holds
** what is still to be handed out for each channel. */
#define MAX_BACKWARD(T, ID)                                                    \
  static inline __attribute__((always_inline)) void max_grad_at_##ID(          \
      const pool_job *job, const place *at, int64_t c0, int64_t n) {           \
    int64_t channels = job->w.channels;                                        \
    const T *restrict y = (const T *)job->y + at->p * channels + c0;           \
    T open[BLOCK];                                                             \
    tfd__taps t;                                                               \
                                                                               \
    if (!tfd__taps_start(&job->w, at->o, &t)) return;                          \
    memcpy(open, (const T *)job->dy + at->p * channels + c0,                   \
           (size_t)n * sizeof(T));                                             \
    do {                                                                       \
      int64_t i = (at->base + tfd__taps_index(&job->w, &t)) * channels + c0;   \
      const T *restrict x = (const T *)job->x + i;                             \
      T *restrict dx = (T *)job->out + i;                                      \
                                                                               \
      for (int64_t c = 0; c < n; c++) {                                        \
        dx[c] = (T)(dx[c] + (x[c] == y[c] ? open[c] : 0));                     \
        open[c] = x[c] == y[c] ? 0 : open[c];                                  \
      }                                                                        \
    } while (tfd__taps_next(&t));                                              \
  }                                                                            \
  TFD_CLONES static void max_grad_##ID(void *arg, int64_t begin,               \
                                       int64_t end) {                          \
    const pool_job *job = arg;                                                 \
                                                                               \
    for (int64_t u = begin; u < end; u++) {                                    \
      int64_t image = u / job->blocks;                                         \
      int64_t c0 = u % job->blocks * BLOCK;                                    \
      int64_t n = job->w.channels - c0 < BLOCK ? job->w.channels - c0 : BLOCK; \
      place at = place_at(job, image * job->positions);                        \
                                                                               \
      clear_block(job, image, c0, n, sizeof(T));                               \
      for (int64_t p = 0; p < job->positions; p++, place_next(job, &at))       \
        max_grad_at_##ID(job, &at, c0, n);                                     \
    }                                                                          \
  }

/* Picks dy at the tap that gave the maximum. */
#define MAX_PICK(T, ID)                                                        \
  static inline __attribute__((always_inline)) void max_pick_at_##ID(          \
      const pool_job *job, const place *at, int64_t c0, int64_t n) {           \
    int64_t channels = job->w.channels;                                        \
    const T *restrict y = (const T *)job->y + at->p * channels + c0;           \
    T *restrict out = (T *)job->out + at->p * channels + c0;                   \
    T open[BLOCK];                                                             \
    tfd__taps t;                                                               \
                                                                               \
    for (int64_t c = 0; c < n; c++) open[c] = 1;                               \
    memset(out, 0, (size_t)n * sizeof(T));                                     \
    if (!tfd__taps_start(&job->w, at->o, &t)) return;                          \
    do {                                                                       \
      int64_t i = (at->base + tfd__taps_index(&job->w, &t)) * channels + c0;   \
      const T *restrict x = (const T *)job->x + i;                             \
      const T *restrict dx = (const T *)job->dy + i;                           \
                                                                               \
      for (int64_t c = 0; c < n; c++) {                                        \
        bool hit = x[c] == y[c] && open[c] != 0;                               \
                                                                               \
        out[c] = hit ? dx[c] : out[c];                                         \
        open[c] = hit ? 0 : open[c];                                           \
      }                                                                        \
    } while (tfd__taps_next(&t));                                              \
  }                                                                            \
  TFD_CLONES static void max_pick_##ID(void *arg, int64_t begin,               \
                                       int64_t end) {                          \
    const pool_job *job = arg;                                                 \
                                                                               \
    for (place at = place_at(job, begin); at.p < end; place_next(job, &at))    \
      for (int64_t c0 = 0; c0 < job->w.channels; c0 += BLOCK) {                \
        int64_t n = job->w.channels - c0;                                      \
                                                                               \
        max_pick_at_##ID(job, &at, c0, n < BLOCK ? n : BLOCK);                 \
      }                                                                        \
  }

#define AVERAGE(T, ID)                                                         \
  TFD_CLONES static void avg_##ID(void *arg, int64_t begin, int64_t end) {     \
    const pool_job *job = arg;                                                 \
    int64_t channels = job->w.channels;                                        \
                                                                               \
    for (place at = place_at(job, begin); at.p < end; place_next(job, &at)) {  \
      tfd__taps t;                                                             \
      T *restrict y = (T *)job->out + at.p * channels;                         \
      T share = 0;                                                             \
                                                                               \
      memset(y, 0, (size_t)channels * sizeof(T));                              \
      if (!tfd__taps_start(&job->w, at.o, &t)) continue;                       \
      share = (T)1 / (T)tfd__taps_count(&t);                                   \
      do {                                                                     \
        const T *restrict x = job->x;                                          \
                                                                               \
        x += (at.base + tfd__taps_index(&job->w, &t)) * channels;              \
        for (int64_t c = 0; c < channels; c++) y[c] += x[c];                   \
      } while (tfd__taps_next(&t));                                            \
      for (int64_t c = 0; c < channels; c++) y[c] *= share;                    \
    }                                                                          \
  }                                                                            \
  static inline __attribute__((always_inline)) void avg_grad_at_##ID(          \
      const pool_job *job, const place *at, int64_t c0, int64_t n) {           \
    int64_t channels = job->w.channels;                                        \
    const T *restrict dy = (const T *)job->dy + at->p * channels + c0;         \
    tfd__taps t;                                                               \
    T share = 0;                                                               \
                                                                               \
    if (!tfd__taps_start(&job->w, at->o, &t)) return;                          \
    share = (T)1 / (T)tfd__taps_count(&t);                                     \
    do {                                                                       \
      int64_t i = (at->base + tfd__taps_index(&job->w, &t)) * channels + c0;   \
      T *restrict dx = (T *)job->out + i;                                      \
                                                                               \
      for (int64_t c = 0; c < n; c++) dx[c] += dy[c] * share;                  \
    } while (tfd__taps_next(&t));                                              \
  }                                                                            \
  TFD_CLONES static void avg_grad_##ID(void *arg, int64_t begin,               \
                                       int64_t end) {                          \
    const pool_job *job = arg;                                                 \
                                                                               \
    for (int64_t u = begin; u < end; u++) {                                    \
      int64_t image = u / job->blocks;                                         \
      int64_t c0 = u % job->blocks * BLOCK;                                    \
      int64_t n = job->w.channels - c0 < BLOCK ? job->w.channels - c0 : BLOCK; \
      place at = place_at(job, image * job->positions);                        \
                                                                               \
      clear_block(job, image, c0, n, sizeof(T));                               \
      for (int64_t p = 0; p < job->positions; p++, place_next(job, &at))       \
        avg_grad_at_##ID(job, &at, c0, n);                                     \
    }                                                                          \
  }

/* Every loop of one dtype; integers have the forward maximum only. */
typedef void (*pool_loop)(void *arg, int64_t begin, int64_t end);
enum { LOOP_MAX, LOOP_GRAD, LOOP_PICK, LOOP_AVG, LOOP_AVG_GRAD, LOOPS };

#define FLOATS(X)                                                              \
  X(TFD_FLOAT32, float, f32)                                                   \
  X(TFD_FLOAT64, double, f64)
#define INTS(X)                                                                \
  X(TFD_INT8, int8_t, i8)                                                      \
  X(TFD_INT16, int16_t, i16)                                                   \
  X(TFD_INT32, int32_t, i32)                                                   \
  X(TFD_INT64, int64_t, i64)                                                   \
  X(TFD_UINT8, uint8_t, u8)
#define DEFINE(dtype, T, ID)                                                   \
  MAX_FORWARD(T, ID) MAX_BACKWARD(T, ID) MAX_PICK(T, ID) AVERAGE(T, ID)
#define DEFINE_INT(dtype, T, ID) MAX_FORWARD(T, ID)
FLOATS(DEFINE)
INTS(DEFINE_INT)

static const pool_loop loops[TFD_DTYPE_END][LOOPS] = {
#define ROW(dtype, T, ID)                                                      \
  [dtype] = {max_##ID, max_grad_##ID, max_pick_##ID, avg_##ID, avg_grad_##ID},
#define ROW_INT(dtype, T, ID) [dtype] = {max_##ID},
    FLOATS(ROW) INTS(ROW_INT)
#undef ROW
#undef ROW_INT
};

/* Outputs are independent of one another. */
static int run_positions(pool_job *job, const tfd__view *out, int which) {
  int64_t work = job->w.kernel[0] * job->w.kernel[1] * job->w.kernel[2] *
                 job->w.channels;

  if (out->numel == 0) return TFD_OK;
  job->out = out->data;
  if (job->pixels == 0) {
    memset(out->data, 0, tfd__view_bytes(out));
    return TFD_OK;
  }
  tfd__parallel_for(job->w.batch * job->positions, 1 + TFD_GRAIN / work,
                    loops[out->dtype][which], job);
  return TFD_OK;
}

/* Windows overlap, so a thread takes all of an image's block of channels. */
static int run_images(pool_job *job, const tfd__view *out, int which) {
  int64_t work = job->positions * (job->w.channels < BLOCK ? job->w.channels
                                                           : BLOCK);

  if (out->numel == 0) return TFD_OK;
  job->out = out->data;
  tfd__parallel_for(job->w.batch * job->blocks, 1 + TFD_GRAIN / (1 + work),
                    loops[out->dtype][which], job);
  return TFD_OK;
}

int tfd__cpu_max_pool(const tfd__call *call) {
  pool_job job = {.x = tfd__in(call, 0)->data};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_max_pool);
  TFD_TRY(start(call, tfd__in(call, 0), &job));
  return run_positions(&job, tfd__out(call, 0), LOOP_MAX);
}

int tfd__cpu_max_pool_grad(const tfd__call *call) {
  pool_job job = {.x = tfd__in(call, 0)->data,
                  .y = tfd__in(call, 1)->data,
                  .dy = tfd__in(call, 2)->data};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_max_pool_grad);
  TFD_TRY(start(call, tfd__in(call, 0), &job));
  return run_images(&job, tfd__out(call, 0), LOOP_GRAD);
}

int tfd__cpu_max_pool_grad_grad(const tfd__call *call) {
  pool_job job = {.x = tfd__in(call, 0)->data,
                  .y = tfd__in(call, 1)->data,
                  .dy = tfd__in(call, 2)->data};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_max_pool_grad_grad);
  TFD_TRY(start(call, tfd__in(call, 0), &job));
  return run_positions(&job, tfd__out(call, 0), LOOP_PICK);
}

int tfd__cpu_avg_pool(const tfd__call *call) {
  pool_job job = {.x = tfd__in(call, 0)->data};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_avg_pool);
  TFD_TRY(start(call, tfd__in(call, 0), &job));
  return run_positions(&job, tfd__out(call, 0), LOOP_AVG);
}

int tfd__cpu_avg_pool_grad(const tfd__call *call) {
  pool_job job = {.dy = tfd__in(call, 0)->data};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_avg_pool_grad);
  TFD_TRY(start(call, tfd__out(call, 0), &job));
  return run_images(&job, tfd__out(call, 0), LOOP_AVG_GRAD);
}
