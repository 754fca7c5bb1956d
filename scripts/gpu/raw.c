/* What calls of the driver, cuBLASLt and cuDNN take on the first GPU, without
** anything between: one "NAME: SECONDS" on each line, which bench.lua compares
** with.
**
** usage: gpu_raw [--standins]   as small as can be */
#include <cublasLt.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/cuda.h"
#include "tfdist.h"

enum { WORKSPACE = 32 << 20, NUMBERS = 1 << 20, ROUNDS = 5 };

static bool small;
static CUstream stream;
static void *workspace;
static void *numbers; /* NUMBERS bytes that the driver can copy */

/* --- time ----------------------------------------------------------------- */

typedef int piece(void *of);

static double now(void) {
  struct timespec t;

  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int settle(void) {
  return tfd__cuda_check(tfd__cu.cuStreamSynchronize(stream), "waiting");
}

/* The best of some rounds of `times` calls each, for one call. */
static int say_time(const char *name, int times, piece *run, void *of) {
  double best = 0;
  int i;
  int k;

  if (small) times = 1;
  TFD_TRY(run(of)); /* the first time loads code */
  for (i = 0; i < (small ? 1 : ROUNDS); i++) {
    double begin;
    double spent;

    TFD_TRY(settle());
    begin = now();
    for (k = 0; k < times; k++) TFD_TRY(run(of));
    TFD_TRY(settle());
    spent = (now() - begin) / times;
    if (i == 0 || spent < best) best = spent;
  }
  printf("%s: %.9g\n", name, best);
  return TFD_OK;
}

static int memory(size_t bytes, void **data_p) {
  CUdeviceptr data = 0;

  TFD_TRY(tfd__cuda_check(tfd__cu.cuMemAlloc(&data, bytes), "memory"));
  *data_p = (void *)(uintptr_t)data;
  return TFD_OK;
}

/* Numbers between 2^-7 and 2, whatever float type they are taken for: what a GPU
** may draw, and so its clock, depends on them. */
static int make_numbers(void) {
  uint32_t x = 1;
  size_t i;

  TFD_TRY(tfd__cuda_check(tfd__cu.cuMemHostAlloc(&numbers, NUMBERS, 0),
                          "memory of the host"));
  for (i = 0; i < NUMBERS / sizeof(uint16_t); i++) {
    x = x * 1664525u + 1013904223u;
    ((uint16_t *)numbers)[i] = (uint16_t)((x >> 16 & 0x83ffu) | 0x3c00u);
  }
  return TFD_OK;
}

static int filled(size_t bytes, void **data_p) {
  size_t at;

  TFD_TRY(memory(bytes, data_p));
  for (at = 0; at < bytes; at += NUMBERS) {
    size_t left = bytes - at;

    TFD_TRY(tfd__cuda_check(
        tfd__cu.cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)*data_p + at, numbers,
                                  left < NUMBERS ? left : NUMBERS, stream),
        "a copy"));
  }
  return settle();
}

static void let_go(void *data) {
  (void)tfd__cu.cuMemFree((CUdeviceptr)(uintptr_t)data);
}

/* --- the driver ----------------------------------------------------------- */

__asm__(".section .rodata\n.balign 64\nfatbin:\n"
        ".incbin \"" TFD_CUDA_FATBINS "/nn.fatbin\"\n.byte 0\n.previous\n");
extern const unsigned char fatbin[];

static int open_gpu(void) {
  CUdevice device = 0;
  CUcontext context = NULL;

  TFD_TRY(tfd__cuda_open());
  TFD_TRY(tfd__cuda_check(tfd__cu.cuInit(0), "starting the driver"));
  TFD_TRY(tfd__cuda_check(tfd__cu.cuDeviceGet(&device, 0), "finding the GPU"));
  TFD_TRY(tfd__cuda_check(tfd__cu.cuDevicePrimaryCtxRetain(&context, device),
                          "starting the GPU"));
  TFD_TRY(tfd__cuda_check(tfd__cu.cuCtxSetCurrent(context), "the context"));
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "a stream"));
  TFD_TRY(make_numbers());
  return memory(WORKSPACE, &workspace);
}

/* A kernel that finds nothing to do. */
static int launch(void *of) {
  tfd_cu_bias args = {.channels = 1, .inner = 1};
  void *list[] = {&args};

  return tfd__cuda_check(tfd__cu.cuLaunchKernel(*(CUfunction *)of, 1, 1, 1, 256,
                                                1, 1, 0, stream, list, NULL),
                         "a launch");
}

static int time_launches(void) {
  CUmodule module = NULL;
  CUfunction kernel = NULL;

  TFD_TRY(tfd__cuda_check(tfd__cu.cuModuleLoadData(&module, fatbin), "code"));
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuModuleGetFunction(&kernel, module, "bias_f32"), "a kernel"));
  return say_time("launch", 1000, launch, &kernel);
}

typedef struct copying {
  void *to;
  void *from;
  size_t bytes;
} copying;

static int copy(void *of) {
  const copying *c = of;

  return tfd__cuda_check(tfd__cu.cuMemcpyDtoDAsync(
                             (CUdeviceptr)(uintptr_t)c->to,
                             (CUdeviceptr)(uintptr_t)c->from, c->bytes, stream),
                         "a copy");
}

static int time_copies(void) {
  copying c = {.bytes = small ? 4000 : (size_t)4 << 27};

  TFD_TRY(memory(c.bytes, &c.to));
  TFD_TRY(memory(c.bytes, &c.from));
  TFD_TRY(say_time("copy", 20, copy, &c));
  let_go(c.to);
  let_go(c.from);
  return TFD_OK;
}

/* --- cuBLASLt ------------------------------------------------------------- */

#define BLAS_FUNCTIONS(F)                 \
  F(cublasLtCreate)                       \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceSetAttribute) \
  F(cublasLtMatmulAlgoGetHeuristic)
#define DNN_FUNCTIONS(F)                    \
  F(cudnnCreate)                            \
  F(cudnnSetStream)                         \
  F(cudnnCreateTensorDescriptor)            \
  F(cudnnSetTensorNdDescriptor)             \
  F(cudnnCreateFilterDescriptor)            \
  F(cudnnSetFilterNdDescriptor)             \
  F(cudnnCreateConvolutionDescriptor)       \
  F(cudnnSetConvolutionNdDescriptor)        \
  F(cudnnSetConvolutionMathType)            \
  F(cudnnGetConvolutionForwardAlgorithm_v7) \
  F(cudnnConvolutionForward)
static struct {
#define DECLARE(name) __typeof__(&name) name;
  BLAS_FUNCTIONS(DECLARE)
  DNN_FUNCTIONS(DECLARE)
} lib;

static cublasLtHandle_t blas;
static cudnnHandle_t dnn;

/* Both libraries begin their statuses with 0 for success. */
static int check(int status, const char *what) {
  if (status == 0) return TFD_OK;
  return tfd__fail(TFD_INTERNAL, "%s: status %d", what, status);
}

static int open_libraries(void) {
  void *library = NULL;

#define FIND(name) TFD_TRY(tfd__cuda_symbol(library, #name, &lib.name));
  TFD_TRY(tfd__cuda_library("libcublasLt.so.13:libcublasLt.so.12", &library));
  BLAS_FUNCTIONS(FIND)
  TFD_TRY(tfd__cuda_library("libcudnn.so.9", &library));
  DNN_FUNCTIONS(FIND)
  TFD_TRY(check((int)lib.cublasLtCreate(&blas), "cuBLASLt"));
  TFD_TRY(check((int)lib.cudnnCreate(&dnn), "cuDNN"));
  return check((int)lib.cudnnSetStream(dnn, stream), "cuDNN's stream");
}

typedef struct product {
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t layout; /* of all three */
  cublasLtMatmulAlgo_t algorithm;
  void *in;
  void *out;
} product;

static int multiply(void *of) {
  static const float one = 1;
  static const float zero = 0;
  const product *p = of;

  return check((int)lib.cublasLtMatmul(
                   blas, p->product, &one, p->in, p->layout, p->in, p->layout,
                   &zero, p->out, p->layout, p->out, p->layout, &p->algorithm,
                   workspace, WORKSPACE, stream),
               "cublasLtMatmul");
}

static int describe(product *p, cudaDataType_t type,
                    cublasComputeType_t compute, int n) {
  cublasLtMatmulPreference_t wish = NULL;
  cublasLtMatmulHeuristicResult_t found;
  size_t bytes = WORKSPACE;
  int count = 0;

  TFD_TRY(
      check((int)lib.cublasLtMatmulDescCreate(&p->product, compute, CUDA_R_32F),
            "product"));
  TFD_TRY(check((int)lib.cublasLtMatrixLayoutCreate(
                    &p->layout, type, (uint64_t)n, (uint64_t)n, n),
                "layout"));
  TFD_TRY(check((int)lib.cublasLtMatmulPreferenceCreate(&wish), "preference"));
  TFD_TRY(check(
      (int)lib.cublasLtMatmulPreferenceSetAttribute(
          wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
      "preference"));
  TFD_TRY(check((int)lib.cublasLtMatmulAlgoGetHeuristic(
                    blas, p->product, p->layout, p->layout, p->layout,
                    p->layout, wish, 1, &found, &count),
                "an algorithm"));
  p->algorithm = found.algo;
  return count == 1 ? TFD_OK : check(-1, "no algorithm");
}

static int time_products(void) {
  static const struct {
    const char *name;
    cudaDataType_t type;
    cublasComputeType_t compute;
  } kinds[] = {{"float32", CUDA_R_32F, CUBLAS_COMPUTE_32F},
               {"tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
               {"bfloat16", CUDA_R_16BF, CUBLAS_COMPUTE_32F},
               {"float16", CUDA_R_16F, CUBLAS_COMPUTE_32F}};
  size_t i;
  int n;

  for (i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    for (n = small ? 16 : 1024; n <= (small ? 16 : 8192); n *= 2) {
      size_t bytes = (size_t)n * (size_t)n * 4;
      int64_t cube = (int64_t)n * n * n;
      int64_t times = ((int64_t)1 << 38) / cube;
      product p;
      char name[64];

      TFD_TRY(describe(&p, kinds[i].type, kinds[i].compute, n));
      TFD_TRY(filled(bytes, &p.in));
      TFD_TRY(memory(bytes, &p.out));
      (void)snprintf(name, sizeof name, "matmul %s %d", kinds[i].name, n);
      TFD_TRY(say_time(name, times > 1 ? (int)times : 1, multiply, &p));
      let_go(p.in);
      let_go(p.out);
    }
  }
  return TFD_OK;
}

/* --- cuDNN: square images, channels last, as many places out as in -------- */

typedef struct convolution {
  cudnnTensorDescriptor_t x;
  cudnnTensorDescriptor_t y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t how;
  cudnnConvolutionFwdAlgoPerf_t algorithm;
  void *data[3];
  void *workspace;
} convolution;

static int convolve(void *of) {
  static const float one = 1;
  static const float zero = 0;
  const convolution *c = of;

  return check((int)lib.cudnnConvolutionForward(
                   dnn, &one, c->x, c->data[0], c->w, c->data[1], c->how,
                   c->algorithm.algo, c->workspace, c->algorithm.memory, &zero,
                   c->y, c->data[2]),
               "cudnnConvolutionForward");
}

static int image(cudnnTensorDescriptor_t *d, cudnnDataType_t type, int batch,
                 int channels, int side) {
  int dims[4] = {batch, channels, side, side};
  int strides[4] = {side * side * channels, 1, side * channels, channels};

  TFD_TRY(check((int)lib.cudnnCreateTensorDescriptor(d), "image"));
  return check((int)lib.cudnnSetTensorNdDescriptor(*d, type, 4, dims, strides),
               "image");
}

/* The first algorithm that works and gives the same bits in each run. */
static int choose(convolution *c) {
  cudnnConvolutionFwdAlgoPerf_t found[8];
  int n = 0;
  int i;

  TFD_TRY(check((int)lib.cudnnGetConvolutionForwardAlgorithm_v7(
                    dnn, c->x, c->w, c->how, c->y, 8, &n, found),
                "an algorithm"));
  for (i = 0; i < n; i++) {
    if (found[i].status == CUDNN_STATUS_SUCCESS &&
        found[i].determinism == CUDNN_DETERMINISTIC) {
      c->algorithm = found[i];
      return TFD_OK;
    }
  }
  return check(-1, "no algorithm");
}

static int set_up(convolution *c, cudnnDataType_t type, int batch,
                  const int *shape) {
  int side = shape[0];
  int window = shape[3];
  int filter[4] = {shape[2], shape[1], window, window};
  int pad[2] = {window / 2, window / 2};
  int ones[2] = {1, 1};
  bool wide = type == CUDNN_DATA_FLOAT;

  TFD_TRY(image(&c->x, type, batch, shape[1], side));
  TFD_TRY(image(&c->y, type, batch, shape[2], side));
  TFD_TRY(check((int)lib.cudnnCreateFilterDescriptor(&c->w), "filter"));
  TFD_TRY(check((int)lib.cudnnSetFilterNdDescriptor(
                    c->w, type, CUDNN_TENSOR_NHWC, 4, filter),
                "filter"));
  TFD_TRY(check((int)lib.cudnnCreateConvolutionDescriptor(&c->how), "window"));
  TFD_TRY(check((int)lib.cudnnSetConvolutionNdDescriptor(
                    c->how, 2, pad, ones, ones, CUDNN_CROSS_CORRELATION,
                    CUDNN_DATA_FLOAT),
                "window"));
  TFD_TRY(check((int)lib.cudnnSetConvolutionMathType(
                    c->how, wide ? CUDNN_DEFAULT_MATH : CUDNN_TENSOR_OP_MATH),
                "arithmetic"));
  return choose(c);
}

static int time_convolution(const char *dtype, cudnnDataType_t type,
                            const int *shape) {
  int batch = small ? 1 : 64;
  size_t places = (size_t)batch * (size_t)(shape[0] * shape[0]);
  size_t bytes[3] = {places * (size_t)shape[1] * 4,
                     (size_t)(shape[1] * shape[2] * shape[3] * shape[3]) * 4,
                     places * (size_t)shape[2] * 4};
  convolution c;
  char name[64];
  int i;

  memset(&c, 0, sizeof c);
  TFD_TRY(set_up(&c, type, batch, shape));
  for (i = 0; i < 3; i++) TFD_TRY(filled(bytes[i], &c.data[i]));
  TFD_TRY(memory(c.algorithm.memory + 1, &c.workspace));
  (void)snprintf(name, sizeof name, "conv %s %dx%d %d to %d", dtype, shape[0],
                 shape[0], shape[1], shape[2]);
  TFD_TRY(say_time(name, 20, convolve, &c));
  for (i = 0; i < 3; i++) let_go(c.data[i]);
  let_go(c.workspace);
  return TFD_OK;
}

static int time_convolutions(void) {
  /* Side, channels, filters, window. */
  static const int shapes[][4] = {{56, 64, 64, 3},
                                  {56, 64, 256, 1},
                                  {28, 128, 128, 3},
                                  {14, 256, 256, 3},
                                  {7, 512, 512, 3}};
  static const int least[4] = {4, 2, 2, 3};
  size_t n = small ? 1 : sizeof shapes / sizeof *shapes;
  size_t i;

  for (i = 0; i < n; i++) {
    const int *shape = small ? least : shapes[i];

    TFD_TRY(time_convolution("float32", CUDNN_DATA_FLOAT, shape));
    TFD_TRY(time_convolution("bfloat16", CUDNN_DATA_BFLOAT16, shape));
  }
  return TFD_OK;
}

static int time_all(void) {
  TFD_TRY(open_gpu());
  TFD_TRY(open_libraries());
  TFD_TRY(time_launches());
  TFD_TRY(time_copies());
  TFD_TRY(time_products());
  return time_convolutions();
}

int main(int argc, char **argv) {
  small = argc > 1 && strcmp(argv[1], "--standins") == 0;
  if (time_all() == TFD_OK) return 0;
  fprintf(stderr, "gpu_raw: %s\n", tfd_error_message());
  return 1;
}
