/* cuDNN without a GPU: convolution and pooling of images in plain loops over
** strides, in stream order. Algorithms are listed with one that fails first,
** and workspaces have an odd size with bytes behind that nobody may write. */
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
  int64_t dims[4]; /* images, channels, rows, columns */
  int64_t strides[4];
};

struct convolution {
  int pad[2];
  int stride[2];
  int dilation[2];
  int groups;
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

int64_t place(const tensor &t, int64_t n, int64_t c, int64_t h, int64_t w) {
  return n * t.strides[0] + c * t.strides[1] + h * t.strides[2] +
         w * t.strides[3];
}

int64_t count(const tensor &t) {
  return t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3];
}

void lay_out(tensor *t, cudnnTensorFormat_t format) {
  if (format == CUDNN_TENSOR_NHWC) {
    t->strides[1] = 1;
    t->strides[3] = t->dims[1];
    t->strides[2] = t->dims[3] * t->strides[3];
  } else {
    t->strides[3] = 1;
    t->strides[2] = t->dims[3];
    t->strides[1] = t->dims[2] * t->strides[2];
  }
  t->strides[0] = t->dims[1] * t->dims[2] * t->dims[3];
}

/* Calls f(x's place, w's place, y's place) for each product of a convolution.
 */
template <class F>
void each_product(const tensor &x, const tensor &w, const tensor &y,
                  const convolution &c, F f) {
  int64_t depth = w.dims[1];
  int64_t of_group = y.dims[1] / c.groups;

  for (int64_t n = 0; n < y.dims[0]; n++)
    for (int64_t k = 0; k < y.dims[1]; k++)
      for (int64_t oh = 0; oh < y.dims[2]; oh++)
        for (int64_t ow = 0; ow < y.dims[3]; ow++)
          for (int64_t d = 0; d < depth; d++)
            for (int64_t kh = 0; kh < w.dims[2]; kh++)
              for (int64_t kw = 0; kw < w.dims[3]; kw++) {
                int64_t h = oh * c.stride[0] - c.pad[0] + kh * c.dilation[0];
                int64_t v = ow * c.stride[1] - c.pad[1] + kw * c.dilation[1];

                if (h < 0 || h >= x.dims[2] || v < 0 || v >= x.dims[3]) {
                  continue;
                }
                f(place(x, n, k / of_group * depth + d, h, v),
                  place(w, k, d, kh, kw), place(y, n, k, oh, ow));
              }
}

bool shapes_fit(const tensor &x, const tensor &w, const tensor &y,
                const convolution &c) {
  for (int i = 0; i < 2; i++) {
    int64_t reach = (w.dims[2 + i] - 1) * c.dilation[i] + 1;
    int64_t out = (x.dims[2 + i] + 2 * c.pad[i] - reach) / c.stride[i] + 1;

    if (out != y.dims[2 + i]) return false;
  }
  return x.dims[0] == y.dims[0] && w.dims[0] == y.dims[1] &&
         w.dims[1] * c.groups == x.dims[1];
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

      if (h < 0 || h >= x.dims[2] || w < 0 || w >= x.dims[3]) continue;
      taps++;
      f(place(x, n, c, h, w));
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
API cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t_,
                               cudnnTensorFormat_t format, cudnnDataType_t type,
                               int n, int c, int h, int w) {
  tensor *t = (tensor *)t_;

  if (n < 1 || c < 1 || h < 1 || w < 1) return CUDNN_STATUS_BAD_PARAM;
  *t = {type, {n, c, h, w}, {0, 0, 0, 0}};
  lay_out(t, format);
  return CUDNN_STATUS_SUCCESS;
}
API cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *t) {
  *t = (cudnnFilterDescriptor_t) new tensor();
  return CUDNN_STATUS_SUCCESS;
}
API cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t t) {
  delete (tensor *)t;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t t, cudnnDataType_t type,
                               cudnnTensorFormat_t format, int k, int c, int h,
                               int w) {
  return cudnnSetTensor4dDescriptor((cudnnTensorDescriptor_t)t, format, type, k,
                                    c, h, w);
}
API cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c) {
  *c = (cudnnConvolutionDescriptor_t) new convolution();
  return CUDNN_STATUS_SUCCESS;
}
API cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c) {
  delete (convolution *)c;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int ph,
                                    int pw, int sh, int sw, int dh, int dw,
                                    cudnnConvolutionMode_t mode,
                                    cudnnDataType_t) {
  if (mode != CUDNN_CROSS_CORRELATION) return CUDNN_STATUS_NOT_SUPPORTED;
  *(convolution *)c = {{ph, pw}, {sh, sw}, {dh, dw}, 1};
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int n) {
  ((convolution *)c)->groups = n;
  return CUDNN_STATUS_SUCCESS;
}
API cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t, cudnnMathType_t) {
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
  *(pooling *)p = {mode, {wh, ww}, {ph, pw}, {sh, sw}};
  return CUDNN_STATUS_SUCCESS;
}

/* --- algorithms: the first of two has failed
 * ------------------------------------------ */

template <class P, class A>
static cudnnStatus_t list_two(P *found, A first, A second, int most, int *n) {
  memset(found, 0, sizeof *found * 2);
  if (most < 2) return CUDNN_STATUS_BAD_PARAM;
  found[0].algo = first;
  found[0].status = CUDNN_STATUS_NOT_SUPPORTED;
  found[1].algo = second;
  found[1].status = CUDNN_STATUS_SUCCESS;
  found[1].memory = WORKSPACE;
  *n = 2;
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
  return list_two(found, CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
                  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, most, n);
}

API cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, const cudnnFilterDescriptor_t w,
    const cudnnTensorDescriptor_t y, const cudnnConvolutionDescriptor_t c,
    const cudnnTensorDescriptor_t x, const int most, int *n,
    cudnnConvolutionBwdDataAlgoPerf_t *found) {
  if (!fit(x, w, y, c)) return CUDNN_STATUS_BAD_PARAM;
  return list_two(found, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
                  CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, most, n);
}

API cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t y, const cudnnConvolutionDescriptor_t c,
    const cudnnFilterDescriptor_t w, const int most, int *n,
    cudnnConvolutionBwdFilterAlgoPerf_t *found) {
  if (!fit(x, w, y, c)) return CUDNN_STATUS_BAD_PARAM;
  return list_two(found, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
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
  tfd_standin_enqueue(stream_of(h), [=] {
    double *sum = (double *)calloc((size_t)count(ty), sizeof *sum);

    mark(workspace, bytes);
    each_product(tx, tw, ty, c, [&](int64_t i, int64_t k, int64_t o) {
      sum[o] += at(tx, x, i) * at(tw, w, k);
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
  tfd_standin_enqueue(stream_of(h), [=] {
    double *sum = (double *)calloc((size_t)count(tx), sizeof *sum);

    mark(workspace, bytes);
    each_product(tx, tw, ty, c, [&](int64_t i, int64_t k, int64_t o) {
      sum[i] += at(ty, dy, o) * at(tw, w, k);
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
  tfd_standin_enqueue(stream_of(h), [=] {
    double *sum = (double *)calloc((size_t)count(tw), sizeof *sum);

    mark(workspace, bytes);
    each_product(tx, tw, ty, c, [&](int64_t i, int64_t k, int64_t o) {
      sum[k] += at(tx, x, i) * at(ty, dy, o);
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

  tfd_standin_enqueue(stream_of(h), [=] {
    bool most = p.mode == CUDNN_POOLING_MAX_DETERMINISTIC;

    for (int64_t n = 0; n < ty.dims[0]; n++)
      for (int64_t c = 0; c < ty.dims[1]; c++)
        for (int64_t i = 0; i < ty.dims[2]; i++)
          for (int64_t j = 0; j < ty.dims[3]; j++) {
            double got = most ? -INFINITY : 0;
            int taps = each_tap(tx, p, n, c, i, j, [&](int64_t k) {
              double v = at(tx, x, k);

              if (!most) {
                got += v;
              } else if (!(v <= got)) {
                got = v;
              }
            });

            set(ty, y, place(ty, n, c, i, j), most ? got : got / taps);
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

  tfd_standin_enqueue(stream_of(h), [=] {
    bool most = p.mode == CUDNN_POOLING_MAX_DETERMINISTIC;
    double *sum = (double *)calloc((size_t)count(tx), sizeof *sum);

    for (int64_t n = 0; n < ty.dims[0]; n++)
      for (int64_t c = 0; c < ty.dims[1]; c++)
        for (int64_t i = 0; i < ty.dims[2]; i++)
          for (int64_t j = 0; j < ty.dims[3]; j++) {
            int64_t out = place(ty, n, c, i, j);
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
