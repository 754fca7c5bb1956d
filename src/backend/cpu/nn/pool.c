/* Pooling and its gradients. Channels lie together in the inner loops;
** channels-first tensors are seen as more images of one channel. */
#include <string.h>

#include "backend/cpu/linalg/gemm.h"
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
  int64_t *argmax;
  bool whole_batch; /* positions count from the first image */
  bool apart;   /* windows share no input: gradients are stored, not added */
  bool covered; /* and leave none out: nothing is cleared before */
} pool_job;

static int start(const tfd__call *call, const tfd__view *input, pool_job *job) {
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
  job->apart = true;
  job->covered = true;
  for (int i = 0; i < 3; i++) {
    job->apart = job->apart && w->stride[i] >= w->kernel[i];
    job->covered = job->covered && w->stride[i] == w->kernel[i] &&
                   w->low[i] == 0 && w->out[i] * w->stride[i] >= w->in[i];
  }
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

  if (job->covered) return;
  out += (size_t)(image * job->pixels * channels + c0) * size;
  if (n == channels) {
    memset(out, 0, (size_t)(job->pixels * channels) * size);
    return;
  }
  for (int64_t i = 0; i < job->pixels; i++)
    memset(out + (size_t)(i * channels) * size, 0, (size_t)n * size);
}

/* The taps of one output position that lie inside the input: a box of n[0] *
** n[1] * n[2] of them, `step` elements apart. */
typedef struct tap_box {
  int64_t first; /* element of the first tap */
  int64_t n[3];
  int64_t step[3];
} tap_box;

/* Runs over a box with i = elements from its first tap. */
#define EACH_TAP(box, i)                                                  \
  for (int64_t d_ = 0; d_ < (box)->n[0]; d_++)                            \
    for (int64_t h_ = 0; h_ < (box)->n[1]; h_++)                          \
      for (int64_t w_ = 0, i = d_ * (box)->step[0] + h_ * (box)->step[1]; \
           w_ < (box)->n[2]; w_++, i += (box)->step[2])

/* false when every tap is in the padding. Inlined: plain code in a function of
** its own, called between wide vectors, waits hundreds of cycles for the
** registers' upper halves. */
static inline __attribute__((always_inline)) bool
box_at(const pool_job *job, const place *at, tap_box *box) {
  const tfd__window *w = &job->w;
  tfd__taps t;

  if (!tfd__taps_start(w, at->o, &t)) return false;
  box->first = (at->base + tfd__taps_index(w, &t)) * w->channels;
  for (int i = 0; i < 3; i++) box->n[i] = t.end[i] - t.begin[i];
  box->step[2] = w->channels;
  box->step[1] = box->step[2] * w->in[2];
  box->step[0] = box->step[1] * w->in[1];
  return true;
}

/* Calls loop(job, box, ...); what most windows are, 2 x 2, with a box whose
** loops the compiler knows and unrolls. */
#define AT_BOX(loop, job, box, ...)                                       \
  do {                                                                    \
    if ((box)->n[0] == 1 && (box)->n[1] == 2 && (box)->n[2] == 2) {       \
      tap_box four_ = {(box)->first,                                      \
                       {1, 2, 2},                                         \
                       {(box)->step[0], (box)->step[1], (box)->step[2]}}; \
      loop(job, &four_, __VA_ARGS__);                                     \
    } else {                                                              \
      loop(job, box, __VA_ARGS__);                                        \
    }                                                                     \
  } while (0)

/* Loops name(job, begin, end) around name_at: over output positions, or over
** (image, block of channels) pairs, whose windows may overlap. */
#define POSITIONS(T, name) POSITIONS_(T, name)
#define POSITIONS_(T, name)                                                 \
  TFD_CLONES static void name(void *arg, int64_t begin, int64_t end) {      \
    const pool_job *job = arg;                                              \
    tap_box box;                                                            \
                                                                            \
    for (place at = place_at(job, begin); at.p < end; place_next(job, &at)) \
      if (box_at(job, &at, &box))                                           \
        AT_BOX(at_##name, job, &box, at.p * job->w.channels, 0,             \
               job->w.channels);                                            \
  }
#define IMAGES(T, name) IMAGES_(T, name)
#define IMAGES_(T, name)                                                 \
  TFD_CLONES static void name(void *arg, int64_t begin, int64_t end) {   \
    const pool_job *job = arg;                                           \
    int64_t channels = job->w.channels;                                  \
    tap_box box;                                                         \
                                                                         \
    for (int64_t u = begin; u < end; u++) {                              \
      int64_t c = u % job->blocks * BLOCK;                               \
      int64_t last = c + BLOCK < channels ? c + BLOCK : channels;        \
      place at = place_at(job, u / job->blocks * job->positions);        \
                                                                         \
      clear_block(job, u / job->blocks, c, last - c, sizeof(T));         \
      for (int64_t p = 0; p < job->positions; p++, place_next(job, &at)) \
        if (box_at(job, &at, &box))                                      \
          AT_BOX(at_##name, job, &box, at.p *channels, c, last);         \
    }                                                                    \
  }

/* Integers have the forward maximum only. */
#define INT_MAXIMUM(T, ID)                                                 \
  static inline void at_max_##ID(const pool_job *job, const tap_box *taps, \
                                 int64_t out, int64_t c, int64_t end) {    \
    const T *x = (const T *)job->x + taps->first;                          \
    T *y = (T *)job->out + out;                                            \
                                                                           \
    memcpy(y + c, x + c, (size_t)(end - c) * sizeof(T));                   \
    EACH_TAP(taps, i)                                                      \
    for (int64_t k = c; k < end; k++)                                      \
      y[k] = x[i + k] > y[k] ? x[i + k] : y[k];                            \
  }                                                                        \
  POSITIONS(T, max_##ID)
INT_MAXIMUM(int8_t, i8)
INT_MAXIMUM(int16_t, i16)
INT_MAXIMUM(int32_t, i32)
INT_MAXIMUM(int64_t, i64)
INT_MAXIMUM(uint8_t, u8)

#define POOL_T float
#define POOL_WIDE 1
#define POOL_BITS int32_t
#define POOL_ID(name) name##_f32
#include "backend/cpu/nn/pool_body.h"
#undef POOL_T
#undef POOL_WIDE
#undef POOL_BITS
#undef POOL_ID

#define POOL_T double
#define POOL_WIDE 0
#define POOL_BITS int64_t
#define POOL_ID(name) name##_f64
#include "backend/cpu/nn/pool_body.h"
#undef POOL_T
#undef POOL_WIDE
#undef POOL_BITS
#undef POOL_ID

typedef void (*pool_loop)(void *arg, int64_t begin, int64_t end);
enum {
  LOOP_MAX,
  LOOP_GRAD,
  LOOP_PICK,
  LOOP_AVG,
  LOOP_AVG_GRAD,
  LOOP_ARGMAX,
  LOOP_MIXED, /* added to the first of the others */
  LOOP_MAX_MIXED = LOOP_MIXED,
  LOOP_GRAD_MIXED,
  LOOP_PICK_MIXED, /* there is none */
  LOOP_AVG_MIXED,
  LOOP_AVG_GRAD_MIXED,
  LOOPS
};

static const pool_loop loops[TFD_DTYPE_END][LOOPS] = {
    [TFD_FLOAT32] = {max_f32, max_grad_f32, max_pick_f32, avg_f32, avg_grad_f32,
                     argmax_f32, max_mixed_f32, max_grad_mixed_f32, NULL,
                     avg_mixed_f32, avg_grad_mixed_f32},
    [TFD_FLOAT64] = {max_f64, max_grad_f64, max_pick_f64, avg_f64, avg_grad_f64,
                     argmax_f64, max_mixed_f64, max_grad_mixed_f64, NULL,
                     avg_mixed_f64, avg_grad_mixed_f64},
    [TFD_INT8] = {max_i8},
    [TFD_INT16] = {max_i16},
    [TFD_INT32] = {max_i32},
    [TFD_INT64] = {max_i64},
    [TFD_UINT8] = {max_u8},
};

/* Narrow vectors pay where channels do not fill the wide ones; gradients of
** windows that lie apart are written once instead of cleared and added to. */
static pool_loop pick_loop(const pool_job *job, int dtype, int which) {
  int64_t channels = job->w.channels;
  int64_t wide = TFD_VECTOR_BYTES / (int64_t)tfd__dtype_size(dtype);
  bool is_grad = which == LOOP_GRAD || which == LOOP_AVG_GRAD;
  bool mixed = channels % wide != 0 || (is_grad && job->apart);

  mixed = mixed && channels >= (is_grad ? 2 : 4);
  if (mixed && which < LOOP_ARGMAX && loops[dtype][which + LOOP_MIXED] != NULL)
    which += LOOP_MIXED;
  return loops[dtype][which];
}

/* Outputs are independent of one another. */
static int run_positions(pool_job *job, const tfd__view *out, int which) {
  int64_t work = job->w.channels;

  /* A window may be larger than the image, by any factor. */
  for (int i = 0; i < 3; i++)
    work *= job->w.kernel[i] < job->w.in[i] ? job->w.kernel[i] : job->w.in[i];
  if (out->numel == 0) return TFD_OK;
  job->out = out->data;
  if (job->pixels == 0) {
    memset(out->data, 0, tfd__view_bytes(out));
    return TFD_OK;
  }
  tfd__parallel_for(job->w.batch * job->positions, 1 + TFD_GRAIN / (1 + work),
                    pick_loop(job, out->dtype, which), job);
  return TFD_OK;
}

/* Windows overlap, so a thread takes all of an image's block of channels. */
static int run_images(pool_job *job, const tfd__view *out, int which) {
  int64_t work =
      job->positions * (job->w.channels < BLOCK ? job->w.channels : BLOCK);
  pool_loop loop = pick_loop(job, out->dtype, which);

  if (out->numel == 0) return TFD_OK;
  /* What adds to its output needs it cleared. */
  job->covered = job->covered && loop != loops[out->dtype][which];
  job->out = out->data;
  if (job->positions == 0) { /* images smaller than the window */
    memset(out->data, 0, tfd__view_bytes(out));
    return TFD_OK;
  }
  tfd__parallel_for(job->w.batch * job->blocks, 1 + TFD_GRAIN / (1 + work),
                    loop, job);
  return TFD_OK;
}

int tfd__cpu_max_pool(const tfd__call *call) {
  pool_job job = {.x = tfd__in(call, 0)->data};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_max_pool);
  TFD_TRY(start(call, tfd__in(call, 0), &job));
  return run_positions(&job, tfd__out(call, 0), LOOP_MAX);
}

/* Positions are counted as int64 and narrowed afterwards if asked for. */
int tfd__cpu_max_pool_with_argmax(const tfd__call *call) {
  const tfd__view *argmax = tfd__out(call, 1);
  pool_job job = {.x = tfd__in(call, 0)->data,
                  .argmax = argmax->data,
                  .whole_batch = call->ints[30] != 0};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_max_pool_with_argmax);
  TFD_TRY(start(call, tfd__in(call, 0), &job));
  if (argmax->dtype == TFD_INT32) {
    job.argmax = tfd__scratch((size_t)argmax->numel * sizeof(int64_t) + 1);
    if (job.argmax == NULL) return TFD_RESOURCE_EXHAUSTED;
  }
  TFD_TRY(run_positions(&job, tfd__out(call, 0), LOOP_ARGMAX));
  for (int64_t i = 0; argmax->dtype == TFD_INT32 && i < argmax->numel; i++)
    ((int32_t *)argmax->data)[i] = (int32_t)job.argmax[i];
  return TFD_OK;
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
