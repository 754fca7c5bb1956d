/* cuDNN without a GPU: convolution of images and volumes, and pooling of
** images, in plain loops over strides, in stream order. Algorithms are listed
** with one that fails first and one whose bits differ from run to run, and
** workspaces have an odd size with bytes behind that nobody may write. TF32
** rounds as the hardware does. */
#include <cudnn.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "standin.h"

namespace {

enum { WORKSPACE = 1003 };

struct tensor {
  cudnnDataType_t type;
  int64_t dims[5]; /* images, channels, slices (1 of images), rows, columns */
  int64_t strides[5];
  int rank;
};

struct convolution {
  int pad[3];
  int stride[3];
  int dilation[3];
  int groups;
  cudnnMathType_t math;
};

struct pooling {
  cudnnPoolingMode_t mode;
  int window[2];
  int pad[2];
  int stride[2];
};

struct handle {
  cudaStream_t stream;
};

double at(const tensor &t, const void *data, int64_t i) {
  switch (t.type) {
  case CUDNN_DATA_DOUBLE:
    return ((const double *)data)[i];
  case CUDNN_DATA_HALF:
    return (double)__half2float(((const __half *)data)[i]);
  case CUDNN_DATA_BFLOAT16:
    return (double)__bfloat162float(((const __nv_bfloat16 *)data)[i]);
  default:
    return (double)((const float *)data)[i];
  }
}

void set(const tensor &t, void *data, int64_t i, double x) {
  switch (t.type) {
  case CUDNN_DATA_DOUBLE:
    ((double *)data)[i] = x;
    break;
  case CUDNN_DATA_HALF:
    ((__half *)data)[i] = __double2half(x);
    break;
  case CUDNN_DATA_BFLOAT16:
    ((__nv_bfloat16 *)data)[i] = __double2bfloat16(x);
    break;
  default:
    ((float *)data)[i] = (float)x;
  }
}

/* As a convolution takes it. */
double taken(const tensor &t, const void *data, int64_t i,
             const convolution &c) {
  double x = at(t, data, i);
  bool tf32 = t.type == CUDNN_DATA_FLOAT && c.math != CUDNN_FMA_MATH;

  return tf32 ? tfd_standin_tf32(x) : x;
}

int64_t place(const tensor &t, int64_t n, int64_t c, int64_t d, int64_t h,
              int64_t w) {
  return n * t.strides[0] + c * t.strides[1] + d * t.strides[2] +
         h * t.strides[3] + w * t.strides[4];
}

int64_t count(const tensor &t) {
  return t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3] * t.dims[4];
}

size_t bytes_of(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
}

/* What a tensor shows, from its first element to its last. */
size_t span_of(const tensor &t) {
  int64_t last = 0;

  for (int i = 0; i < 5; i++) last += (t.dims[i] - 1) * t.strides[i];
  return (size_t)(last + 1) * bytes_of(t.type);
}

/* Images are volumes of one slice. */
bool spread(tensor *t, cudnnDataType_t type, int rank, const int *dims,
            const int *strides) {
  if (rank != 4 && rank != 5) return false;
  *t = {type, {0, 0, 1, 1, 1}, {0, 0, 0, 0, 0}, rank};
  for (int i = 0; i < rank; i++) {
    int to = i < 2 ? i : i + 5 - rank;

    if (dims[i] < 1) return false;
    t->dims[to] = dims[i];
    t->strides[to] = strides[i];
  }
  return true;
}

void lay_out(cudnnTensorFormat_t format, int rank, const int *dims,
             int *strides) {
  int inner = format == CUDNN_TENSOR_NHWC ? dims[1] : 1;

  for (int i = rank - 1; i > 1; i--) {
    strides[i] = inner;
    inner *= dims[i];
  }
  strides[1] = format == CUDNN_TENSOR_NHWC ? 1 : inner;
  strides[0] = format == CUDNN_TENSOR_NHWC ? inner : inner * dims[1];
}

/* Slice, row and column of spatial position i. */
void split(int64_t i, const tensor &t, int64_t at[3]) {
  for (int d = 2; d >= 0; d--) {
    at[d] = i % t.dims[2 + d];
    i /= t.dims[2 + d];
  }
}

/* Calls f(x's place, w's place, y's place) for each product of a convolution.
 */
template <class F>
void each_product(const tensor &x, const tensor &w, const tensor &y,
                  const convolution &c, F f) {
  int64_t depth = w.dims[1];
  int64_t of_group = y.dims[1] / c.groups;
  int64_t taps = w.dims[2] * w.dims[3] * w.dims[4];
  int64_t outs = y.dims[2] * y.dims[3] * y.dims[4];

  for (int64_t n = 0; n < y.dims[0]; n++)
    for (int64_t k = 0; k < y.dims[1]; k++)
      for (int64_t o = 0; o < outs; o++)
        for (int64_t d = 0; d < depth; d++)
          for (int64_t t = 0; t < taps; t++) {
            int64_t to[3];
            int64_t tap[3];
            int64_t from[3];
            bool inside = true;

            split(o, y, to);
            split(t, w, tap);
            for (int i = 0; i < 3; i++) {
              from[i] = to[i] * c.stride[i] - c.pad[i] + tap[i] * c.dilation[i];
              inside = inside && from[i] >= 0 && from[i] < x.dims[2 + i];
            }
            if (!inside) continue;
            f(place(x, n, k / of_group * depth + d, from[0], from[1], from[2]),
              place(w, k, d, tap[0], tap[1], tap[2]),
              place(y, n, k, to[0], to[1], to[2]));
          }
}

bool shapes_fit(const tensor &x, const tensor &w, const tensor &y,
                const convolution &c) {
  for (int i = 0; i < 3; i++) {
    int64_t reach = (w.dims[2 + i] - 1) * c.dilation[i] + 1;
    int64_t out = (x.dims[2 + i] + 2 * c.pad[i] - reach) / c.stride[i] + 1;

    if (out != y.dims[2 + i]) return false;
  }
  return x.rank == w.rank && x.rank == y.rank && x.dims[0] == y.dims[0] &&
         w.dims[0] == y.dims[1] && w.dims[1] * c.groups == x.dims[1];
}

/* Calls f(place in x) for each element of a window that is inside. */
template <class F>
int each_tap(const tensor &x, const pooling &p, int64_t n, int64_t c,
             int64_t oh, int64_t ow, F f) {
  int taps = 0;

  for (int64_t kh = 0; kh < p.window[0]; kh++)
    for (int64_t kw = 0; kw < p.window[1]; kw++) {
      int64_t h = oh * p.stride[0] - p.pad[0] + kh;
      int64_t w = ow * p.stride[1] - p.pad[1] + kw;

      if (h < 0 || h >= x.dims[3] || w < 0 || w >= x.dims[4]) continue;
      taps++;
      f(place(x, n, c, 0, h, w));
    }
  return taps;
}

/* A canary behind the workspace: written when it is given, read when used. */
void mark(void *workspace, size_t bytes) {
  if (bytes == WORKSPACE) memset(workspace, 0xFC, bytes);
}

} // namespace

#define API extern "C" __attribute__((visibility("default"))) cudnnStatus_t

extern "C" {
const int tfd_standin = 1;
__attribute__((visibility("default"))) const char *
cudnnGetErrorString(cudnnStatus_t) {
  return "refused by the stand-in";
}
}

API cudnnCreate(cudnnHandle_t *h) {
  *h = (cudnnHandle_t) new handle{nullptr};
  return CUDNN_STATUS_SUCCESS;
}

API cudnnSetStream(cudnnHandle_t h, cudaStream_t stream) {
  ((handle *)h)->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

static CUstream stream_of(cudnnHandle_t h) {
  return (CUstream)((handle *)h)->stream;
}

/* All of it is memory of a device. */
static bool is_there(const tensor &t, const void *data) {
  return (uintptr_t)data % bytes_of(t.type) == 0 &&
         tfd_standin_is_device(data, span_of(t));
}

/* --- descriptions
 * ------------------------------------------------------------------- */

API cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *t) {
  *t = (cudnnTensorDescriptor_t) new tensor();
  return CUDNN_STATUS_SUCCESS;
}
API cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t) {
  delete (tensor *)t;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type,
                               int rank, const int dims[],
                               const int strides[]) {
  return spread((tensor *)t, type, rank, dims, strides)
             ? CUDNN_STATUS_SUCCESS
             : CUDNN_STATUS_BAD_PARAM;
}
API cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *t) {
  *t = (cudnnFilterDescriptor_t) new tensor();
  return CUDNN_STATUS_SUCCESS;
}
API cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t t) {
  delete (tensor *)t;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t t, cudnnDataType_t type,
                               cudnnTensorFormat_t format, int rank,
                               const int dims[]) {
  int strides[8];

  if (rank > 8) return CUDNN_STATUS_BAD_PARAM;
  lay_out(format, rank, dims, strides);
  return cudnnSetTensorNdDescriptor((cudnnTensorDescriptor_t)t, type, rank,
                                    dims, strides);
}
API cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c) {
  *c = (cudnnConvolutionDescriptor_t) new convolution();
  return CUDNN_STATUS_SUCCESS;
}
API cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c) {
  delete (convolution *)c;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t c_, int axes,
                                    const int pad[], const int stride[],
                                    const int dilation[],
                                    cudnnConvolutionMode_t mode,
                                    cudnnDataType_t) {
  convolution *c = (convolution *)c_;

  if (mode != CUDNN_CROSS_CORRELATION) return CUDNN_STATUS_NOT_SUPPORTED;
  if (axes != 2 && axes != 3) return CUDNN_STATUS_BAD_PARAM;
  *c = {{0, 0, 0}, {1, 1, 1}, {1, 1, 1}, 1, CUDNN_DEFAULT_MATH};
  for (int i = 0; i < axes; i++) {
    c->pad[3 - axes + i] = pad[i];
    c->stride[3 - axes + i] = stride[i];
    c->dilation[3 - axes + i] = dilation[i];
  }
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int n) {
  ((convolution *)c)->groups = n;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c,
                                cudnnMathType_t math) {
  ((convolution *)c)->math = math;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *p) {
  *p = (cudnnPoolingDescriptor_t) new pooling();
  return CUDNN_STATUS_SUCCESS;
}
API cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t p) {
  delete (pooling *)p;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t p,
                                cudnnPoolingMode_t mode, cudnnNanPropagation_t,
                                int wh, int ww, int ph, int pw, int sh,
                                int sw) {
  if (tfd_standin_refuses("pooling")) return CUDNN_STATUS_NOT_SUPPORTED;
  *(pooling *)p = {mode, {wh, ww}, {ph, pw}, {sh, sw}};
  return CUDNN_STATUS_SUCCESS;
}

/* --- algorithms: the first of three has failed, only the last one may be used
 * ------------------------------------------ */

template <class P, class A>
static cudnnStatus_t list(P *found, A failed, A random, A good, int most,
                          int *n) {
  memset(found, 0, sizeof *found * 3);
  if (most < 3) return CUDNN_STATUS_BAD_PARAM;
  found[0].algo = failed;
  found[0].status = CUDNN_STATUS_NOT_SUPPORTED;
  found[0].determinism = CUDNN_DETERMINISTIC;
  found[1].algo = random;
  found[1].determinism = CUDNN_NON_DETERMINISTIC;
  found[2].algo = good;
  found[2].determinism = CUDNN_DETERMINISTIC;
  if (tfd_standin_refuses("convolutions")) {
    found[2].status = CUDNN_STATUS_NOT_SUPPORTED;
  }
  found[1].memory = found[2].memory = WORKSPACE;
  *n = 3;
  return CUDNN_STATUS_SUCCESS;
}

static bool fit(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t c) {
  return shapes_fit(*(tensor *)x, *(tensor *)w, *(tensor *)y,
                    *(convolution *)c);
}

API cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x,
    const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t c,
    const cudnnTensorDescriptor_t y, const int most, int *n,
    cudnnConvolutionFwdAlgoPerf_t *found) {
  if (!fit(x, w, y, c)) return CUDNN_STATUS_BAD_PARAM;
  return list(found, CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
              CUDNN_CONVOLUTION_FWD_ALGO_FFT,
              CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, most, n);
}

API cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t w,
    const cudnnTensorDescriptor_t y, const cudnnConvolutionDescriptor_t c,
    const cudnnTensorDescriptor_t x, const int most, int *n,
    cudnnConvolutionBwdDataAlgoPerf_t *found) {
  if (!fit(x, w, y, c)) return CUDNN_STATUS_BAD_PARAM;
  return list(found, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
              CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
              CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, most, n);
}

API cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t y, const cudnnConvolutionDescriptor_t c,
    const cudnnFilterDescriptor_t w, const int most, int *n,
    cudnnConvolutionBwdFilterAlgoPerf_t *found) {
  if (!fit(x, w, y, c)) return CUDNN_STATUS_BAD_PARAM;
  return list(found, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
              CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
              CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, most, n);
}

/* --- convolution
 * ------------------------------------------------------------------------ */

API cudnnConvolutionForward(cudnnHandle_t h, const void *,
                            const cudnnTensorDescriptor_t xd, const void *x,
                            const cudnnFilterDescriptor_t wd, const void *w,
                            const cudnnConvolutionDescriptor_t cd,
                            cudnnConvolutionFwdAlgo_t algo, void *workspace,
                            size_t bytes, const void *,
                            const cudnnTensorDescriptor_t yd, void *y) {
  tensor tx = *(tensor *)xd;
  tensor tw = *(tensor *)wd;
  tensor ty = *(tensor *)yd;
  convolution c = *(convolution *)cd;

  if (algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM || bytes < WORKSPACE) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (!is_there(tx, x) || !is_there(tw, w) || !is_there(ty, y) ||
      !tfd_standin_is_device(workspace, bytes)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  tfd_standin_enqueue(stream_of(h), [=] {
    double *sum = (double *)calloc((size_t)count(ty), sizeof *sum);

    mark(workspace, bytes);
    each_product(tx, tw, ty, c, [&](int64_t i, int64_t k, int64_t o) {
      sum[o] += taken(tx, x, i, c) * taken(tw, w, k, c);
    });
    for (int64_t i = 0; i < count(ty); i++) set(ty, y, i, sum[i]);
    free(sum);
  });
  return CUDNN_STATUS_SUCCESS;
}

API cudnnConvolutionBackwardData(
    cudnnHandle_t h, const void *, const cudnnFilterDescriptor_t wd,
    const void *w, const cudnnTensorDescriptor_t yd, const void *dy,
    const cudnnConvolutionDescriptor_t cd, cudnnConvolutionBwdDataAlgo_t algo,
    void *workspace, size_t bytes, const void *,
    const cudnnTensorDescriptor_t xd, void *dx) {
  tensor tx = *(tensor *)xd;
  tensor tw = *(tensor *)wd;
  tensor ty = *(tensor *)yd;
  convolution c = *(convolution *)cd;

  if (algo != CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 || bytes < WORKSPACE) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (!is_there(tx, dx) || !is_there(tw, w) || !is_there(ty, dy) ||
      !tfd_standin_is_device(workspace, bytes)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  tfd_standin_enqueue(stream_of(h), [=] {
    double *sum = (double *)calloc((size_t)count(tx), sizeof *sum);

    mark(workspace, bytes);
    each_product(tx, tw, ty, c, [&](int64_t i, int64_t k, int64_t o) {
      sum[i] += taken(ty, dy, o, c) * taken(tw, w, k, c);
    });
    for (int64_t i = 0; i < count(tx); i++) set(tx, dx, i, sum[i]);
    free(sum);
  });
  return CUDNN_STATUS_SUCCESS;
}

API cudnnConvolutionBackwardFilter(
    cudnnHandle_t h, const void *, const cudnnTensorDescriptor_t xd,
    const void *x, const cudnnTensorDescriptor_t yd, const void *dy,
    const cudnnConvolutionDescriptor_t cd, cudnnConvolutionBwdFilterAlgo_t algo,
    void *workspace, size_t bytes, const void *,
    const cudnnFilterDescriptor_t wd, void *dw) {
  tensor tx = *(tensor *)xd;
  tensor tw = *(tensor *)wd;
  tensor ty = *(tensor *)yd;
  convolution c = *(convolution *)cd;

  if (algo != CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 || bytes < WORKSPACE) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (!is_there(tx, x) || !is_there(tw, dw) || !is_there(ty, dy) ||
      !tfd_standin_is_device(workspace, bytes)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  tfd_standin_enqueue(stream_of(h), [=] {
    double *sum = (double *)calloc((size_t)count(tw), sizeof *sum);

    mark(workspace, bytes);
    each_product(tx, tw, ty, c, [&](int64_t i, int64_t k, int64_t o) {
      sum[k] += taken(tx, x, i, c) * taken(ty, dy, o, c);
    });
    for (int64_t i = 0; i < count(tw); i++) set(tw, dw, i, sum[i]);
    free(sum);
  });
  return CUDNN_STATUS_SUCCESS;
}

/* --- pooling
 * -----------------------------------------------------------------------------
 */

API cudnnPoolingForward(cudnnHandle_t h, const cudnnPoolingDescriptor_t pd,
                        const void *, const cudnnTensorDescriptor_t xd,
                        const void *x, const void *,
                        const cudnnTensorDescriptor_t yd, void *y) {
  tensor tx = *(tensor *)xd;
  tensor ty = *(tensor *)yd;
  pooling p = *(pooling *)pd;

  if (!is_there(tx, x) || !is_there(ty, y)) return CUDNN_STATUS_BAD_PARAM;
  tfd_standin_enqueue(stream_of(h), [=] {
    bool most = p.mode == CUDNN_POOLING_MAX_DETERMINISTIC;

    for (int64_t n = 0; n < ty.dims[0]; n++)
      for (int64_t c = 0; c < ty.dims[1]; c++)
        for (int64_t i = 0; i < ty.dims[3]; i++)
          for (int64_t j = 0; j < ty.dims[4]; j++) {
            double got = most ? -INFINITY : 0;
            int taps = each_tap(tx, p, n, c, i, j, [&](int64_t k) {
              double v = at(tx, x, k);

              if (!most) {
                got += v;
              } else if (!(v <= got)) {
                got = v;
              }
            });

            set(ty, y, place(ty, n, c, 0, i, j), most ? got : got / taps);
          }
  });
  return CUDNN_STATUS_SUCCESS;
}

API cudnnPoolingBackward(cudnnHandle_t h, const cudnnPoolingDescriptor_t pd,
                         const void *, const cudnnTensorDescriptor_t yd,
                         const void *y, const cudnnTensorDescriptor_t,
                         const void *dy, const cudnnTensorDescriptor_t xd,
                         const void *x, const void *,
                         const cudnnTensorDescriptor_t, void *dx) {
  tensor tx = *(tensor *)xd;
  tensor ty = *(tensor *)yd;
  pooling p = *(pooling *)pd;

  if (!is_there(tx, x) || !is_there(tx, dx) || !is_there(ty, y) ||
      !is_there(ty, dy)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  tfd_standin_enqueue(stream_of(h), [=] {
    bool most = p.mode == CUDNN_POOLING_MAX_DETERMINISTIC;
    double *sum = (double *)calloc((size_t)count(tx), sizeof *sum);

    for (int64_t n = 0; n < ty.dims[0]; n++)
      for (int64_t c = 0; c < ty.dims[1]; c++)
        for (int64_t i = 0; i < ty.dims[3]; i++)
          for (int64_t j = 0; j < ty.dims[4]; j++) {
            int64_t out = place(ty, n, c, 0, i, j);
            double g = at(ty, dy, out);
            bool given = false;
            int taps = each_tap(tx, p, n, c, i, j, [](int64_t) {});

            each_tap(tx, p, n, c, i, j, [&](int64_t k) {
              if (!most) {
                sum[k] += g / taps;
              } else if (!given && at(tx, x, k) == at(ty, y, out)) {
                sum[k] += g;
                given = true;
              }
            });
          }
    for (int64_t i = 0; i < count(tx); i++) set(tx, dx, i, sum[i]);
    free(sum);
  });
  return CUDNN_STATUS_SUCCESS;
}
