/* Floor of the CPU kernels: oneDNN called directly, without tfdist.
**
** usage: onednn [threads] [what...]     (default: 1 thread, everything)
** Prints one line for each shape: GFLOP/s with plain operands, with weights
** in the library's own layout, and with that layout made in every call; and
** the implementation's name. Medians of 15 runs; operands are warm. */

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 15
#define MAX_ARGS 24

#define CHECK(call)                                  \
  do {                                               \
    if ((call) != dnnl_success) {                    \
      fprintf(stderr, "onednn: %s failed\n", #call); \
      exit(1);                                       \
    }                                                \
  } while (0)

static dnnl_engine_t engine;
static dnnl_stream_t stream;
/* One thread: processor time, which other load does not stretch. */
static clockid_t clock_id = CLOCK_PROCESS_CPUTIME_ID;

static double now(void) {
  struct timespec t;

  clock_gettime(clock_id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;

  return x < y ? -1 : x > y;
}

/* --- one primitive with its memories -------------------------------------- */

typedef struct job {
  dnnl_primitive_t primitive;
  dnnl_primitive_t reorder; /* NULL: none */
  dnnl_exec_arg_t args[MAX_ARGS];
  dnnl_exec_arg_t reorder_args[2];
  int args_n;
  const char *name;
} job;

static dnnl_memory_t make_memory(const dnnl_memory_desc_t *md) {
  size_t bytes = dnnl_memory_desc_get_size(md);
  dnnl_memory_t memory = NULL;
  float *data = aligned_alloc(64, (bytes + 127) & ~(size_t)63);

  if (data == NULL) exit(1);
  for (size_t i = 0; i < bytes / sizeof *data; i++)
    data[i] = (float)(i % 17) * 0.01f - 0.08f;
  CHECK(dnnl_memory_create(&memory, md, engine, data));
  return memory;
}

static dnnl_memory_t add_arg(job *j, const_dnnl_primitive_desc_t pd, int arg) {
  const dnnl_memory_desc_t *md =
      dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  dnnl_memory_t memory = NULL;

  if (md == NULL || dnnl_memory_desc_get_size(md) == 0) return NULL;
  memory = make_memory(md);
  j->args[j->args_n].arg = arg;
  j->args[j->args_n++].memory = memory;
  return memory;
}

static void start(job *j, const_dnnl_primitive_desc_t pd, const int *args,
                  int n) {
  memset(j, 0, sizeof *j);
  CHECK(dnnl_primitive_create(&j->primitive, pd));
  CHECK(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                  (void *)&j->name));
  for (int i = 0; i < n; i++) (void)add_arg(j, pd, args[i]);
}

/* Also bring argument `arg` from `plain` into the primitive's layout. */
static void add_reorder(job *j, const_dnnl_primitive_desc_t pd, int arg,
                        const dnnl_memory_desc_t *plain) {
  const dnnl_memory_desc_t *md =
      dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  dnnl_primitive_desc_t reorder = NULL;

  if (dnnl_memory_desc_equal(md, plain)) return;
  CHECK(dnnl_reorder_primitive_desc_create(&reorder, plain, engine, md, engine,
                                           NULL));
  CHECK(dnnl_primitive_create(&j->reorder, reorder));
  j->reorder_args[0] = (dnnl_exec_arg_t){DNNL_ARG_FROM, make_memory(plain)};
  for (int i = 0; i < j->args_n; i++)
    if (j->args[i].arg == arg)
      j->reorder_args[1] = (dnnl_exec_arg_t){DNNL_ARG_TO, j->args[i].memory};
  dnnl_primitive_desc_destroy(reorder);
}

static void run_once(const job *j, int with_reorder) {
  if (with_reorder && j->reorder != NULL)
    CHECK(dnnl_primitive_execute(j->reorder, stream, 2, j->reorder_args));
  CHECK(dnnl_primitive_execute(j->primitive, stream, j->args_n, j->args));
}

static double seconds(const job *j, int with_reorder) {
  double times[RUNS];
  int loops = 1;
  double t = now();

  run_once(j, with_reorder);
  t = now();
  run_once(j, with_reorder);
  t = now() - t;
  if (t < 2e-3) loops = (int)(2e-3 / (t + 1e-7)) + 1;
  for (int i = 0; i < RUNS; i++) {
    t = now();
    for (int k = 0; k < loops; k++) run_once(j, with_reorder);
    times[i] = (now() - t) / loops;
  }
  qsort(times, RUNS, sizeof *times, by_value);
  return times[RUNS / 2];
}

static void stop(job *j) {
  for (int i = 0; i < j->args_n; i++) {
    void *data = NULL;

    dnnl_memory_get_data_handle(j->args[i].memory, &data);
    dnnl_memory_destroy(j->args[i].memory);
    free(data);
  }
  if (j->reorder != NULL) {
    void *data = NULL;

    dnnl_memory_get_data_handle(j->reorder_args[0].memory, &data);
    dnnl_memory_destroy(j->reorder_args[0].memory);
    free(data);
    dnnl_primitive_destroy(j->reorder);
  }
  dnnl_primitive_destroy(j->primitive);
}

static dnnl_primitive_desc_t describe(const_dnnl_op_desc_t desc,
                                      const_dnnl_primitive_desc_t hint) {
  dnnl_primitive_desc_t pd = NULL;

  CHECK(dnnl_primitive_desc_create(&pd, desc, NULL, engine, hint));
  return pd;
}

/* --- products ------------------------------------------------------------- */

typedef struct product {
  const char *name;
  int64_t m;
  int64_t k;
  int64_t n;
  int ta;
  int tb;
} product;

static const product products[] = {
    {"128^3", 128, 128, 128, 0, 0},
    {"256^3", 256, 256, 256, 0, 0},
    {"512^3", 512, 512, 512, 0, 0},
    {"1024^3", 1024, 1024, 1024, 0, 0},
    {"64x784x512", 64, 784, 512, 0, 0},
    {"64x512x512 NT", 64, 512, 512, 0, 1},
    {"64x512x10", 64, 512, 10, 0, 0},
    {"784x64x512 TN", 784, 64, 512, 1, 0},
    {"512x64x512 TN", 512, 64, 512, 1, 0},
    {"50x1024x2048", 50, 1024, 2048, 0, 0},
    {"50x2048x512 NT", 50, 2048, 512, 0, 1},
    {"2500x512x2048", 2500, 512, 2048, 0, 0},
};

static void matrix(dnnl_memory_desc_t *md, int64_t rows, int64_t cols, int t) {
  dnnl_dims_t dims = {rows, cols};
  dnnl_dims_t strides = {t ? 1 : cols, t ? rows : 1};

  CHECK(dnnl_memory_desc_init_by_strides(md, 2, dims, dnnl_f32, strides));
}

static void any_matrix(dnnl_memory_desc_t *md, int64_t rows, int64_t cols) {
  dnnl_dims_t dims = {rows, cols};

  CHECK(
      dnnl_memory_desc_init_by_tag(md, 2, dims, dnnl_f32, dnnl_format_tag_any));
}

static void bench_product(const product *p) {
  static const int args[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
  double flops = 2e-9 * (double)p->m * (double)p->n * (double)p->k;
  dnnl_memory_desc_t a;
  dnnl_memory_desc_t b;
  dnnl_memory_desc_t any;
  dnnl_memory_desc_t c;
  dnnl_matmul_desc_t desc;
  dnnl_primitive_desc_t pd = NULL;
  job plain;
  job packed;

  matrix(&a, p->m, p->k, p->ta);
  matrix(&b, p->k, p->n, p->tb);
  any_matrix(&any, p->k, p->n);
  matrix(&c, p->m, p->n, 0);
  CHECK(dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c));
  pd = describe(&desc, NULL);
  start(&plain, pd, args, 3);
  dnnl_primitive_desc_destroy(pd);
  CHECK(dnnl_matmul_desc_init(&desc, &a, &any, NULL, &c));
  pd = describe(&desc, NULL);
  start(&packed, pd, args, 3);
  add_reorder(&packed, pd, DNNL_ARG_WEIGHTS, &b);
  printf("%-18s %7.1f %7.1f %7.1f  %s | %s\n", p->name,
         flops / seconds(&plain, 0), flops / seconds(&packed, 0),
         flops / seconds(&packed, 1), plain.name, packed.name);
  dnnl_primitive_desc_destroy(pd);
  stop(&plain);
  stop(&packed);
}

/* --- convolutions: the three directions ----------------------------------- */

typedef struct layer {
  const char *name;
  int64_t n;
  int64_t c;
  int64_t size;
  int64_t o;
  int64_t k;
  int64_t pad;
} layer;

static const layer layers[] = {
    {"64x32x13 64 3x3", 64, 32, 13, 64, 3, 0},
    {"8x64x56 64 3x3", 8, 64, 56, 64, 3, 1},
    {"8x256x14 256 3x3", 8, 256, 14, 256, 3, 1},
    {"64x64x8 64 3x3", 64, 64, 8, 64, 3, 1},
    {"64x1x28 32 3x3", 64, 1, 28, 32, 3, 0},
};

static void tagged(dnnl_memory_desc_t *md, const dnnl_dims_t dims,
                   dnnl_format_tag_t tag) {
  CHECK(dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32, tag));
}

/* What a direction needs: descriptions with the given layout of x and y. */
static dnnl_primitive_desc_t conv_desc(const layer *l, int direction,
                                       dnnl_format_tag_t tag) {
  int64_t out = l->size + 2 * l->pad - l->k + 1;
  dnnl_dims_t one = {1, 1};
  dnnl_dims_t pad = {l->pad, l->pad};
  dnnl_memory_desc_t x;
  dnnl_memory_desc_t w;
  dnnl_memory_desc_t y;
  dnnl_convolution_desc_t forward;
  dnnl_convolution_desc_t backward;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_primitive_desc_t pd = NULL;

  tagged(&x, (dnnl_dims_t){l->n, l->c, l->size, l->size}, tag);
  tagged(&w, (dnnl_dims_t){l->o, l->c, l->k, l->k}, dnnl_format_tag_any);
  tagged(&y, (dnnl_dims_t){l->n, l->o, out, out}, tag);
  CHECK(dnnl_convolution_forward_desc_init(&forward, dnnl_forward_training,
                                           dnnl_convolution_direct, &x, &w,
                                           NULL, &y, one, pad, pad));
  hint = describe(&forward, NULL);
  if (direction == 0) return hint;
  if (direction == 1)
    CHECK(dnnl_convolution_backward_data_desc_init(
        &backward, dnnl_convolution_direct, &x, &w, &y, one, pad, pad));
  else
    CHECK(dnnl_convolution_backward_weights_desc_init(
        &backward, dnnl_convolution_direct, &x, &w, NULL, &y, one, pad, pad));
  pd = describe(&backward, hint);
  dnnl_primitive_desc_destroy(hint);
  return pd;
}

static void bench_layer(const layer *l, int direction) {
  static const char *const names[3] = {"forward", "input", "filter"};
  static const int args[3][3] = {
      {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
      {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
      {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  static const dnnl_format_tag_t tags[3] = {dnnl_nhwc, dnnl_format_tag_any,
                                            dnnl_nchw};
  int64_t out = l->size + 2 * l->pad - l->k + 1;
  double flops =
      2e-9 * (double)(l->n * out * out * l->o) * (double)(l->c * l->k * l->k);
  const char *impl[3];
  char text[64];

  snprintf(text, sizeof text, "%s %s", l->name, names[direction]);
  printf("%-26s", text);
  for (int i = 0; i < 3; i++) {
    dnnl_primitive_desc_t pd = conv_desc(l, direction, tags[i]);
    job j;

    start(&j, pd, args[direction], 3);
    printf(" %7.1f",
           strstr(j.name, "ref") != NULL ? 0.0 : flops / seconds(&j, 0));
    impl[i] = j.name;
    dnnl_primitive_desc_destroy(pd);
    stop(&j);
  }
  printf("  %s | %s | %s\n", impl[0], impl[1], impl[2]);
}

/* --- LSTM ----------------------------------------------------------------- */

enum { STEPS = 50, BATCH = 50, UNITS = 512 };

typedef struct lstm {
  dnnl_memory_desc_t x;
  dnnl_memory_desc_t s;
  dnnl_memory_desc_t w;
  dnnl_memory_desc_t dw;
  dnnl_memory_desc_t b;
} lstm;

static void lstm_layouts(lstm *d) {
  dnnl_dims_t x = {STEPS, BATCH, UNITS};
  dnnl_dims_t s = {1, 1, BATCH, UNITS};
  dnnl_dims_t w = {1, 1, UNITS, 4, UNITS};
  dnnl_dims_t b = {1, 1, 4, UNITS};

  CHECK(dnnl_memory_desc_init_by_tag(&d->x, 3, x, dnnl_f32, dnnl_tnc));
  CHECK(dnnl_memory_desc_init_by_tag(&d->s, 4, s, dnnl_f32, dnnl_ldnc));
  CHECK(
      dnnl_memory_desc_init_by_tag(&d->w, 5, w, dnnl_f32, dnnl_format_tag_any));
  CHECK(dnnl_memory_desc_init_by_tag(&d->dw, 5, w, dnnl_f32, dnnl_ldigo));
  CHECK(dnnl_memory_desc_init_by_tag(&d->b, 4, b, dnnl_f32, dnnl_ldgo));
}

static void bench_lstm(void) {
  static const int args[] = {
      DNNL_ARG_SRC_LAYER,         DNNL_ARG_SRC_ITER,
      DNNL_ARG_SRC_ITER_C,        DNNL_ARG_WEIGHTS_LAYER,
      DNNL_ARG_WEIGHTS_ITER,      DNNL_ARG_BIAS,
      DNNL_ARG_DST_LAYER,         DNNL_ARG_DST_ITER,
      DNNL_ARG_DST_ITER_C,        DNNL_ARG_WORKSPACE,
      DNNL_ARG_DIFF_SRC_LAYER,    DNNL_ARG_DIFF_SRC_ITER,
      DNNL_ARG_DIFF_SRC_ITER_C,   DNNL_ARG_DIFF_WEIGHTS_LAYER,
      DNNL_ARG_DIFF_WEIGHTS_ITER, DNNL_ARG_DIFF_BIAS,
      DNNL_ARG_DIFF_DST_LAYER,    DNNL_ARG_DIFF_DST_ITER,
      DNNL_ARG_DIFF_DST_ITER_C};
  double flops = 2e-9 * STEPS * BATCH * 4.0 * UNITS * 2 * UNITS;
  dnnl_rnn_desc_t desc;
  dnnl_primitive_desc_t forward = NULL;
  dnnl_primitive_desc_t backward = NULL;
  lstm d;
  job j;

  lstm_layouts(&d);
  CHECK(dnnl_lstm_forward_desc_init(
      &desc, dnnl_forward_training, dnnl_unidirectional_left2right, &d.x, &d.s,
      &d.s, &d.w, &d.w, &d.b, &d.x, &d.s, &d.s, 0));
  forward = describe(&desc, NULL);
  start(&j, forward, args, 10);
  printf("%-26s %7.1f  %s\n", "lstm 50x50x512 forward", flops / seconds(&j, 0),
         j.name);
  stop(&j);
  CHECK(dnnl_lstm_backward_desc_init(
      &desc, dnnl_backward, dnnl_unidirectional_left2right, &d.x, &d.s, &d.s,
      &d.w, &d.w, &d.b, &d.x, &d.s, &d.s, &d.x, &d.s, &d.s, &d.dw, &d.dw, &d.b,
      &d.x, &d.s, &d.s, 0));
  backward = describe(&desc, forward);
  start(&j, backward, args, 19);
  printf("%-26s %7.1f  %s\n", "lstm 50x50x512 backward",
         2 * flops / seconds(&j, 0), j.name);
  stop(&j);
  dnnl_primitive_desc_destroy(backward);
  dnnl_primitive_desc_destroy(forward);
}

static int wanted(int argc, char **argv, const char *what) {
  if (argc < 3) return 1;
  for (int i = 2; i < argc; i++)
    if (strcmp(argv[i], what) == 0) return 1;
  return 0;
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;

  omp_set_num_threads(threads > 0 ? threads : 1);
  if (threads > 1) clock_id = CLOCK_MONOTONIC;
  CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
  CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
  if (wanted(argc, argv, "matmul")) {
    printf("%-18s %7s %7s %7s  GFLOP/s\n", "matmul", "plain", "packed",
           "packing");
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
      bench_product(&products[i]);
  }
  if (wanted(argc, argv, "conv")) {
    printf("%-26s %7s %7s %7s  GFLOP/s\n", "convolution", "nhwc", "any",
           "nchw");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
      for (int d = 0; d < 3; d++) bench_layer(&layers[i], d);
  }
  if (wanted(argc, argv, "lstm")) bench_lstm();
  return 0;
}
