/* Convolution by unrolled windows and matrix products: every arithmetic
** dtype and geometry. Scratch memory: at most some 4 MiB of windows. */
#include <string.h>

#include "backend/cpu/onednn/onednn.h"
#include "backend/window.h"

#define COLUMN_BYTES ((int64_t)4 << 20)

/* One pass over a block of output positions of one image and group. */
typedef struct conv_job {
  const tfd__window *w;
  char *image;   /* first element of the image's group */
  char *columns; /* [positions][taps * depth] */
  int64_t size;  /* bytes of an element */
  int dtype;
  int64_t depth; /* input channels of the group */
  int64_t taps;
  int64_t first; /* position of column row 0 */
  int64_t positions;
  int64_t step[3]; /* element strides of the image's axes */
  int64_t channel; /* element stride of its channels */
} conv_job;

static int64_t volume(const int64_t *dims) {
  return dims[0] * dims[1] * dims[2];
}

/* Walks the taps of one output position in row-major order. */
typedef struct tap_walk {
  int64_t origin[3];
  int64_t k[3];
} tap_walk;

static inline void first_tap(const conv_job *job, int64_t position,
                             tap_walk *t) {
  for (int axis = 2; axis >= 0; axis--) {
    int64_t o = position % job->w->out[axis];

    t->origin[axis] = o * job->w->stride[axis] - job->w->low[axis];
    t->k[axis] = 0;
    position /= job->w->out[axis];
  }
}

static inline void next_tap(const conv_job *job, tap_walk *t) {
  for (int axis = 2; axis >= 0; axis--) {
    if (++t->k[axis] < job->w->kernel[axis]) return;
    t->k[axis] = 0;
  }
}

/* Element index under the tap; -1 in the padding. */
static inline int64_t tap_index(const conv_job *job, const tap_walk *t) {
  int64_t index = 0;

  for (int axis = 0; axis < 3; axis++) {
    int64_t at = t->origin[axis] + t->k[axis] * job->w->dilation[axis];

    if (at < 0 || at >= job->w->in[axis]) return -1;
    index += at * job->step[axis];
  }
  return index;
}

/* The channels under one tap, or zeros. */
static void gather_tap(const conv_job *job, int64_t index, char *to) {
  size_t size = (size_t)job->size;
  const char *from = job->image + index * job->size;

  if (index < 0) {
    memset(to, 0, (size_t)job->depth * size);
  } else if (job->channel == 1) {
    memcpy(to, from, (size_t)job->depth * size);
  } else {
    for (int64_t c = 0; c < job->depth; c++)
      memcpy(to + c * job->size, from + c * job->channel * job->size, size);
  }
}

/* Column rows [begin, end): the window of each position, zeros outside. */
static void gather_rows(void *arg, int64_t begin, int64_t end) {
  const conv_job *job = arg;
  int64_t bytes = job->depth * job->size;

  for (int64_t row = begin; row < end; row++) {
    char *to = job->columns + row * job->taps * bytes;
    tap_walk t;

    first_tap(job, job->first + row, &t);
    for (int64_t tap = 0; tap < job->taps; tap++, to += bytes) {
      gather_tap(job, tap_index(job, &t), to);
      next_tap(job, &t);
    }
  }
}

#define SCATTER(T, ID)                                                  \
  static void scatter_##ID(const conv_job *job, const char *columns,    \
                           int64_t index, int64_t begin, int64_t end) { \
    T *to = (T *)job->image + index;                                    \
    const T *from = (const T *)columns;                                 \
                                                                        \
    for (int64_t c = begin; c < end; c++)                               \
      to[c * job->channel] = (T)(to[c * job->channel] + from[c]);       \
  }
SCATTER(float, f32)
SCATTER(double, f64)
SCATTER(uint32_t, u32)
SCATTER(uint64_t, u64)

/* Add column rows back to the image, channels [begin, end): no two threads
** share a channel. */
static void scatter_channels(void *arg, int64_t begin, int64_t end) {
  const conv_job *job = arg;
  int64_t bytes = job->depth * job->size;

  for (int64_t row = 0; row < job->positions; row++) {
    tap_walk t;

    first_tap(job, job->first + row, &t);
    for (int64_t tap = 0; tap < job->taps; tap++, next_tap(job, &t)) {
      int64_t index = tap_index(job, &t);
      const char *from = job->columns + (row * job->taps + tap) * bytes;

      if (index < 0) continue;
      if (job->dtype == TFD_FLOAT32)
        scatter_f32(job, from, index, begin, end);
      else if (job->dtype == TFD_FLOAT64)
        scatter_f64(job, from, index, begin, end);
      else if (job->dtype == TFD_INT32)
        scatter_u32(job, from, index, begin, end);
      else
        scatter_u64(job, from, index, begin, end);
    }
  }
}

/* What the three directions share: operands and where blocks lie in them. */
typedef struct conv_run {
  tfd__window w;
  const tfd__view *x;
  const tfd__view *filter;
  const tfd__view *y;
  int64_t block; /* positions in one block */
  char *columns;
  int (*pass)(const struct conv_run *run, const conv_job *job, int64_t image,
              int64_t group);
} conv_run;

static void start_job(const conv_run *run, conv_job *job, int64_t image,
                      int64_t group) {
  const tfd__window *w = &run->w;
  bool first = w->channels_first;
  int64_t start = image * w->channels * volume(w->in);

  job->w = w;
  job->dtype = run->x->dtype;
  job->size = (int64_t)tfd__dtype_size(run->x->dtype);
  job->depth = w->channels / w->groups;
  job->taps = volume(w->kernel);
  job->channel = first ? volume(w->in) : 1;
  job->step[2] = first ? 1 : w->channels;
  job->step[1] = job->step[2] * w->in[2];
  job->step[0] = job->step[1] * w->in[1];
  start += group * job->depth * job->channel;
  job->image = (char *)run->x->data + start * job->size;
  job->columns = run->columns;
}

/* The block's part of y as a matrix [positions][filters / groups]. */
static void output_matrix(const conv_run *run, const conv_job *job,
                          int64_t image, int64_t group, void **data_p,
                          int64_t *row_p, int64_t *col_p) {
  const tfd__window *w = &run->w;
  int64_t positions = volume(w->out);
  int64_t start = image * positions * w->filters;
  int64_t filter = group * (w->filters / w->groups);

  *row_p = w->channels_first ? 1 : w->filters;
  *col_p = w->channels_first ? positions : 1;
  start += job->first * *row_p + filter * *col_p;
  *data_p = (char *)run->y->data + start * job->size;
}

static void *filter_matrix(const conv_run *run, const conv_job *job,
                           int64_t group) {
  int64_t offset = group * (run->w.filters / run->w.groups);

  return (char *)run->filter->data + offset * job->size;
}

static int each_block(conv_run *run) {
  const tfd__window *w = &run->w;
  int64_t positions = volume(w->out);
  conv_job job;
  int64_t row_bytes = 0;

  start_job(run, &job, 0, 0);
  row_bytes = job.depth * job.taps * job.size;
  run->block = 1 + COLUMN_BYTES / row_bytes;
  if (run->block > positions) run->block = positions;
  run->columns = tfd__scratch((size_t)(run->block * row_bytes));
  if (run->columns == NULL) return TFD_RESOURCE_EXHAUSTED;
  for (int64_t image = 0; image < w->batch; image++) {
    for (int64_t group = 0; group < w->groups; group++) {
      start_job(run, &job, image, group);
      for (job.first = 0; job.first < positions; job.first += run->block) {
        job.positions = positions - job.first;
        if (job.positions > run->block) job.positions = run->block;
        TFD_TRY(run->pass(run, &job, image, group));
      }
    }
  }
  return TFD_OK;
}

static void gather(const conv_job *job) {
  conv_job copy = *job;

  tfd__parallel_for(job->positions, 1 + TFD_GRAIN / (job->taps * job->depth),
                    gather_rows, &copy);
}

/* y = windows * filter, or its transpose for channels first. */
static int pass_forward(const conv_run *run, const conv_job *job, int64_t image,
                        int64_t group) {
  const tfd__window *w = &run->w;
  int64_t width = w->filters / w->groups;
  int64_t depth = job->taps * job->depth;
  tfd__gemm_args g = {.dtype = job->dtype, .k = depth};
  int64_t row = 0;
  int64_t col = 0;
  void *filter = filter_matrix(run, job, group);

  gather(job);
  output_matrix(run, job, image, group, &g.c, &row, &col);
  if (col == 1) {
    g.m = job->positions;
    g.n = width;
    g.a = job->columns;
    g.a_row = depth;
    g.a_col = 1;
    g.b = filter;
    g.b_row = w->filters;
    g.b_col = 1;
    g.c_row = row;
  } else {
    g.m = width;
    g.n = job->positions;
    g.a = filter;
    g.a_row = 1;
    g.a_col = w->filters;
    g.b = job->columns;
    g.b_row = 1;
    g.b_col = depth;
    g.c_row = col;
  }
  return tfd__gemm_plain(&g);
}

/* dx += scattered (dy * filter^T). */
static int pass_input(const conv_run *run, const conv_job *job, int64_t image,
                      int64_t group) {
  const tfd__window *w = &run->w;
  int64_t depth = job->taps * job->depth;
  conv_job copy = *job;
  void *dy = NULL;
  tfd__gemm_args g = {.dtype = job->dtype,
                      .m = job->positions,
                      .n = depth,
                      .k = w->filters / w->groups,
                      .b = filter_matrix(run, job, group),
                      .b_row = 1,
                      .b_col = w->filters,
                      .c = job->columns,
                      .c_row = depth};

  output_matrix(run, job, image, group, &dy, &g.a_row, &g.a_col);
  g.a = dy;
  TFD_TRY(tfd__gemm_plain(&g));
  tfd__parallel_for(job->depth,
                    1 + TFD_GRAIN / (1 + job->positions * job->taps),
                    scatter_channels, &copy);
  return TFD_OK;
}

/* dfilter += windows^T * dy. */
static int pass_filter(const conv_run *run, const conv_job *job, int64_t image,
                       int64_t group) {
  const tfd__window *w = &run->w;
  int64_t depth = job->taps * job->depth;
  void *dy = NULL;
  tfd__gemm_args g = {.dtype = job->dtype,
                      .m = depth,
                      .n = w->filters / w->groups,
                      .k = job->positions,
                      .a = job->columns,
                      .a_row = 1,
                      .a_col = depth,
                      .c = filter_matrix(run, job, group),
                      .c_row = w->filters,
                      .add = true};

  gather(job);
  output_matrix(run, job, image, group, &dy, &g.b_row, &g.b_col);
  g.b = dy;
  return tfd__gemm_plain(&g);
}

/* --- 1x1 ------------------------------------------------------------------ */

/* A window of one pixel over channels-last tensors is a matrix product. */
static bool is_product(const tfd__window *w) {
  bool single = !w->channels_first && w->groups == 1;

  for (int i = 0; i < 3; i++)
    single = single && w->kernel[i] == 1 && w->stride[i] == 1 &&
             w->low[i] == 0 && w->high[i] == 0;
  return single;
}

static int multiply(const conv_run *run, tfd__dnnl_conv kind) {
  const tfd__window *w = &run->w;
  int64_t rows = w->batch * volume(w->in);
  tfd__gemm_args forward = {run->x->dtype,
                            rows,
                            w->filters,
                            w->channels,
                            run->x->data,
                            w->channels,
                            1,
                            run->filter->data,
                            w->filters,
                            1,
                            run->y->data,
                            w->filters,
                            false};
  tfd__gemm_args input = {run->x->dtype,
                          rows,
                          w->channels,
                          w->filters,
                          run->y->data,
                          w->filters,
                          1,
                          run->filter->data,
                          1,
                          w->filters,
                          run->x->data,
                          w->channels,
                          false};
  tfd__gemm_args filter = {
      run->x->dtype, w->channels, w->filters,        rows,
      run->x->data,  1,           w->channels,       run->y->data,
      w->filters,    1,           run->filter->data, w->filters,
      false};

  return tfd__gemm(kind == TFD_DNNL_CONV_FORWARD ? &forward
                   : kind == TFD_DNNL_CONV_INPUT ? &input
                                                 : &filter);
}

/* --- the gradient of one channel ------------------------------------------ */

/* oneDNN's kernels compute a vector of channels, of which this needs one. Here
** the windows' gradients are a product, [taps][positions] = filter * dy^T,
** whose rows are added to the image where they lie. */
#define LONE_BYTES ((int64_t)256 << 10) /* of products: the cache keeps them */

typedef struct lone_job {
  const tfd__window *w;
  float *x;             /* of the first image */
  const float *columns; /* [images][taps][positions] */
} lone_job;

/* to[i * step] += from[i] */
static void add_line(float *to, const float *from, int64_t step, int64_t n) {
  if (step == 1)
    for (int64_t i = 0; i < n; i++) to[i] += from[i];
  else
    for (int64_t i = 0; i < n; i++) to[i * step] += from[i];
}

/* The outputs [*begin_p, *end_p) that see the input through tap k of this axis;
** the first sees it at the result. */
static int64_t seen(const tfd__window *w, int axis, int64_t k, int64_t *begin_p,
                    int64_t *end_p) {
  int64_t at = k * w->dilation[axis] - w->low[axis];
  int64_t step = w->stride[axis];
  int64_t begin = at < 0 ? (-at + step - 1) / step : 0;
  int64_t end = at < w->in[axis] ? (w->in[axis] - at + step - 1) / step : 0;

  *begin_p = begin;
  *end_p = end < w->out[axis] ? end : w->out[axis];
  return at + begin * step;
}

static void add_tap(const tfd__window *w, float *x, const float *from,
                    const int64_t *k) {
  int64_t begin[3];
  int64_t end[3];
  int64_t at[3];

  for (int axis = 0; axis < 3; axis++)
    at[axis] = seen(w, axis, k[axis], &begin[axis], &end[axis]);
  if (end[2] <= begin[2]) return;
  for (int64_t i = begin[0]; i < end[0]; i++) {
    int64_t plane = (at[0] + (i - begin[0]) * w->stride[0]) * w->in[1];

    for (int64_t j = begin[1]; j < end[1]; j++) {
      int64_t row = plane + at[1] + (j - begin[1]) * w->stride[1];
      int64_t line = (i * w->out[1] + j) * w->out[2] + begin[2];

      add_line(x + row * w->in[2] + at[2], from + line, w->stride[2],
               end[2] - begin[2]);
    }
  }
}

static void add_images(void *arg, int64_t begin, int64_t end) {
  const lone_job *job = arg;
  const tfd__window *w = job->w;
  int64_t positions = volume(w->out);
  int64_t taps = volume(w->kernel);

  for (int64_t image = begin; image < end; image++) {
    float *x = job->x + image * volume(w->in);
    const float *from = job->columns + image * taps * positions;

    memset(x, 0, (size_t)volume(w->in) * sizeof *x);
    for (int64_t tap = 0; tap < taps; tap++) {
      int64_t k[3] = {tap / w->kernel[2] / w->kernel[1],
                      tap / w->kernel[2] % w->kernel[1], tap % w->kernel[2]};

      add_tap(w, x, from + tap * positions, k);
    }
  }
}

static bool is_lone(const conv_run *run, tfd__dnnl_conv kind) {
  const tfd__window *w = &run->w;

  return kind == TFD_DNNL_CONV_INPUT && run->x->dtype == TFD_FLOAT32 &&
         w->channels == 1 && w->groups == 1 && !w->channels_first &&
         volume(w->out) * volume(w->kernel) * 4 <= COLUMN_BYTES;
}

/* Each image's product is one of its own: the same bits in any batch. */
static int multiply_images(const conv_run *run, int64_t first, int64_t images,
                           float *columns) {
  const tfd__window *w = &run->w;
  int64_t positions = volume(w->out);
  int64_t taps = volume(w->kernel);

  for (int64_t i = 0; i < images; i++) {
    tfd__gemm_args g = {.dtype = run->x->dtype,
                        .m = taps,
                        .n = positions,
                        .k = w->filters,
                        .a = run->filter->data,
                        .a_row = w->filters,
                        .a_col = 1,
                        .b = (float *)run->y->data +
                             (first + i) * positions * w->filters,
                        .b_row = 1,
                        .b_col = w->filters,
                        .c = columns + i * taps * positions,
                        .c_row = positions};

    TFD_TRY(tfd__gemm(&g));
  }
  return TFD_OK;
}

static int lone_input(const conv_run *run) {
  const tfd__window *w = &run->w;
  int64_t size = volume(w->kernel) * volume(w->out);
  int64_t most = 1 + LONE_BYTES / (size * 4);
  float *columns = NULL;
  int64_t images = 0;

  if (most > w->batch) most = w->batch;
  columns = tfd__scratch((size_t)(most * size) * sizeof *columns);
  if (columns == NULL) return TFD_RESOURCE_EXHAUSTED;
  for (int64_t first = 0; first < w->batch; first += images) {
    lone_job job = {w, (float *)run->x->data + first * volume(w->in), columns};

    images = w->batch - first < most ? w->batch - first : most;
    TFD_TRY(multiply_images(run, first, images, columns));
    tfd__parallel_for(images, 1 + TFD_GRAIN / size, add_images, &job);
  }
  return TFD_OK;
}

/* --- the kernels ---------------------------------------------------------- */

static int convolve(const tfd__call *call, conv_run *run, tfd__dnnl_conv kind,
                    tfd__kernel kernel) {
  tfd__window_attrs attrs = tfd__conv_attrs(call->ints);
  const tfd__view *out = tfd__out(call, 0);
  bool some = run->x->numel > 0 && run->y->numel > 0 && run->filter->numel > 0;
  bool half = tfd__is_half(out->dtype);
  int rc = TFD_OK;

  TFD_TRY(
      tfd__window_of_filter(call->name, run->x, run->filter, &attrs, &run->w));
  if (out->numel == 0) return TFD_OK;
  if (is_product(&run->w) && !half) return multiply(run, kind);
  if (some && is_lone(run, kind)) return lone_input(run);
  if (some && tfd__dnnl_takes(out->dtype) &&
      tfd__dnnl_convolve(call->name, kind, out->dtype, &run->w, run->x->data,
                         run->filter->data, run->y->data, &rc))
    return rc;
  if (half) return tfd__via_float(call, kernel);
  if (kind != TFD_DNNL_CONV_FORWARD || run->x->numel == 0)
    memset(out->data, 0, tfd__view_bytes(out));
  if (run->x->numel == 0 || run->y->numel == 0) return TFD_OK;
  return each_block(run);
}

int tfd__cpu_conv(const tfd__call *call) {
  conv_run run = {.x = tfd__in(call, 0),
                  .filter = tfd__in(call, 1),
                  .y = tfd__out(call, 0),
                  .pass = pass_forward};

  return convolve(call, &run, TFD_DNNL_CONV_FORWARD, tfd__cpu_conv);
}

int tfd__cpu_conv_backprop_input(const tfd__call *call) {
  conv_run run = {.x = tfd__out(call, 0),
                  .filter = tfd__in(call, 0),
                  .y = tfd__in(call, 1),
                  .pass = pass_input};

  return convolve(call, &run, TFD_DNNL_CONV_INPUT,
                  tfd__cpu_conv_backprop_input);
}

int tfd__cpu_conv_backprop_filter(const tfd__call *call) {
  conv_run run = {.x = tfd__in(call, 0),
                  .filter = tfd__out(call, 0),
                  .y = tfd__in(call, 1),
                  .pass = pass_filter};

  return convolve(call, &run, TFD_DNNL_CONV_FILTER,
                  tfd__cpu_conv_backprop_filter);
}
