#ifndef TFD_SPEC_BACKEND_CUDA_H
#define TFD_SPEC_BACKEND_CUDA_H
/* Shared by the tests of the CUDA back end: an example is run by the CPU's
** kernel and by the GPU's, through the back ends' tables, on the same views
** with values from a formula. On the stand-ins, where kernels run on a model of
** a GPU; TFDIST_CUDA_STANDIN= (empty) takes a real one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/thread.h"
#include "tfdist.h"

enum { MAX_VIEWS = 20 };

static const tfd__backend *gpu;
static tfd__stream *stream;

static void run_work(void *owner, const tfd__work *work, uint64_t seq) {
  tfd__call call = *work->call;
  int *rc_p = owner;

  (void)seq;
  call.stream = stream;
  *rc_p = call.kernel(&call);
}

static int work_rc;

/* --- values --------------------------------------------------------------- */

static double value_at(int64_t i, int seed) {
  uint32_t x = (uint32_t)(i * 2654435761u + (uint32_t)seed * 40503u + 12345u);

  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  return (double)(x % 2001) / 1000.0 - 1.0;
}

typedef struct example {
  tfd__kernel_id id;
  const char *name;
  int in_n;
  int out_n;
  tfd__view v[MAX_VIEWS]; /* host memory */
  int64_t ints[64];
  int ints_n;
  double reals[8];
  int reals_n;
  double tolerance; /* relative to 1 + |expected| */
  bool in_place;    /* on the GPU output i is input i */
} example;

TFD_UNUSED static tfd__view make(int dtype, int rank, const int64_t *dims,
                                 int seed, double scale, double shift) {
  tfd__view v;
  int64_t i;
  size_t size = tfd__dtype_size(dtype);

  memset(&v, 0, sizeof v);
  assert_int_equal(tfd__view_set(&v, dtype, dims, rank), TFD_OK);
  v.data = tfd__alloc_aligned(64, (size_t)v.numel * size + 64);
  for (i = 0; i < v.numel; i++) {
    double x = value_at(i, seed) * scale + shift;

    if (!tfd__is_float(dtype)) x = floor(x * (dtype == TFD_BOOL ? 1 : 20));
    if (dtype == TFD_BOOL) x = x >= 0;
    if (dtype == TFD_UINT8) x = fabs(x);
    tfd__store((char *)v.data + (size_t)i * size, dtype, x);
  }
  return v;
}

#define DIMS(...)                                            \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) { \
    __VA_ARGS__                                              \
  }

/* The span of memory that a view shows, and its first byte. */
static size_t span_of(const tfd__view *v, char **first_p) {
  int64_t low = 0;
  int64_t high = 0;
  size_t size = tfd__dtype_size(v->dtype);
  int d;

  for (d = 0; d < v->rank; d++) {
    int64_t reach = (v->dims[d] - 1) * v->strides[d];

    if (reach < 0) low += reach;
    if (reach > 0) high += reach;
  }
  *first_p = (char *)v->data + low * (int64_t)size;
  return v->numel == 0 ? 0 : (size_t)(high - low + 1) * size;
}

static void copy_host(bool in, void *device, void *host, size_t bytes) {
  if (bytes == 0) return;
  if (in) {
    assert_int_equal(gpu->copy_in(stream, device, host, bytes), TFD_OK);
  } else {
    assert_int_equal(gpu->copy_out(stream, host, device, bytes), TFD_OK);
  }
}

static void settle(void) {
  uint64_t seq = tfd__counter_get(&stream->taken);

  while (gpu->poll(stream) < seq) gpu->wait(stream, seq, TFD_FOREVER);
}

static int nothing_to_do(const tfd__call *call) {
  (void)call;
  return TFD_OK;
}

static void barrier_work(void) {
  tfd__call call = {.name = "nothing", .kernel = nothing_to_do};
  tfd__work work = {.call = &call};
  uint64_t seq = 0;

  assert_int_equal(gpu->submit(stream, &work, &seq), TFD_OK);
  settle();
}

static int examples_run;

TFD_UNUSED static void check(example *e) {
  tfd__view there[MAX_VIEWS];
  void *memory[MAX_VIEWS] = {NULL};
  int n = e->in_n + e->out_n;
  tfd__call call = {.name = e->name,
                    .ints = e->ints,
                    .reals = e->reals,
                    .in_n = (int16_t)e->in_n,
                    .out_n = (int16_t)e->out_n,
                    .ints_n = (int16_t)e->ints_n,
                    .reals_n = (int16_t)e->reals_n,
                    .replica = -1,
                    .stream = stream};
  tfd__work work = {.call = &call};
  uint64_t seq = 0;
  int i;

  call.views = e->v;
  assert_non_null(gpu->kernels[e->id]);
  if (!gpu->can_run(e->id, &call)) {
    fail_msg("%s: can_run says no", e->name);
  }
  for (i = 0; i < n; i++) {
    char *first = NULL;
    size_t bytes = span_of(&e->v[i], &first);

    there[i] = e->v[i];
    if (e->v[i].dtype == 0) continue;
    assert_int_equal(gpu->alloc(0, bytes + 256, &memory[i]), TFD_OK);
    copy_host(true, memory[i], first, bytes);
    there[i].data = (char *)memory[i] + ((char *)e->v[i].data - first);
  }
  for (i = 0; e->in_place && i < e->out_n; i++) {
    there[e->in_n + i].data = there[i].data;
  }
  /* The CPU first (the device has its copies), then the GPU. */
  barrier_work();
  call.kernel = tfd__cpu_backend.kernels[e->id];
  if (call.kernel(&call) != TFD_OK) {
    fail_msg("%s on the CPU: %s", e->name, tfd_error_message());
  }
  tfd__scratch_reset();
  call.kernel = gpu->kernels[e->id];
  call.views = there;
  work_rc = TFD_OK;
  assert_int_equal(gpu->submit(stream, &work, &seq), TFD_OK);
  if (work_rc != TFD_OK) {
    fail_msg("%s on the GPU: %s", e->name, tfd_error_message());
  }
  for (i = e->in_n; i < n; i++) {
    size_t size = tfd__dtype_size(e->v[i].dtype);
    size_t bytes = (size_t)e->v[i].numel * size;
    char *got = malloc(bytes + 1);
    int64_t k;

    copy_host(false, there[i].data, got, bytes);
    barrier_work();
    for (k = 0; k < e->v[i].numel; k++) {
      double want =
          tfd__load((char *)e->v[i].data + (size_t)k * size, e->v[i].dtype);
      double have = tfd__load(got + (size_t)k * size, e->v[i].dtype);

      if (want == have || (want != want && have != have)) continue;
      if (fabs(want - have) <= e->tolerance * (1 + fabs(want))) continue;
      fail_msg("%s (%s), output %d, element %lld: CPU %.9g, GPU %.9g", e->name,
               tfd__dtype_name(e->v[0].dtype), i - e->in_n, (long long)k, want,
               have);
    }
    free(got);
  }
  for (i = 0; i < n; i++) {
    if (memory[i] != NULL) gpu->free(0, memory[i], 0);
  }
  examples_run++;
}

TFD_UNUSED static void drop(example *e) {
  int i;

  for (i = 0; i < e->in_n + e->out_n; i++) tfd__free(e->v[i].data);
}

TFD_UNUSED static double tolerance_of(int dtype) {
  switch (dtype) {
  case TFD_FLOAT64:
    return 1e-12;
  case TFD_FLOAT16:
    return 2e-3;
  case TFD_BFLOAT16:
    return 2e-2;
  case TFD_FLOAT32:
    return 5e-6;
  default:
    return 0;
  }
}

static const int floats[] = {TFD_FLOAT32, TFD_FLOAT64, TFD_FLOAT16,
                             TFD_BFLOAT16};
static const int numbers[] = {TFD_FLOAT32,  TFD_FLOAT64, TFD_FLOAT16,
                              TFD_BFLOAT16, TFD_INT8,    TFD_INT16,
                              TFD_INT32,    TFD_INT64,   TFD_UINT8};

/* --- cases ---------------------------------------------------------------- */

typedef struct named {
  tfd__kernel_id id;
  const char *name;
  double scale;
  double shift;
} named;
#define K(name, scale, shift) \
  { TFD_KERNEL_##name, #name, scale, shift }

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static int find_gpu(void **state) {
  tfd__stream_config config = {
      .name = "/gpu:0", .owner = &work_rc, .run = run_work};
  const tfd__backend_entry *list = NULL;
  int n = 0;
  int i;

  (void)state;
  setenv("TFDIST_STRICT_FP32", "1", 1);
  setenv("TFDIST_CUDA_STANDIN", TFD_SPEC_BUILD "/standin", 0);
  setenv("TFDIST_PLUGINS", TFD_SPEC_BUILD "/plugins", 0);
  tfd__backends(&list, &n);
  for (i = 0; i < n; i++) {
    if (gpu != NULL || strcmp(list[i].name, "cuda") != 0) continue;
    gpu = list[i].backend;
    if (gpu == NULL) print_message("%s\n", list[i].reason);
  }
  if (gpu == NULL) {
    print_message("skipped: neither a GPU nor the stand-ins (make standins)\n");
    return 0;
  }
  return gpu->stream_new(&config, &stream) == TFD_OK ? 0 : -1;
}

static int count_examples(void **state) {
  (void)state;
  print_message("%d examples\n", examples_run);
  if (stream != NULL) gpu->stream_free(stream);
  return 0;
}

#define ON_GPU(name)                 \
  static void name##_gpu(void **s) { \
    if (gpu == NULL) skip();         \
    name(s);                         \
  }

#endif
