/* Convolution and pooling of images through cuDNN. What cuDNN is told about one
** geometry, and the algorithm it chose, is kept. TensorFlow's filters lie
** {rows, columns, in, out}, cuDNN's {out, rows, columns, in}: they are turned
** on the way in and out. cuDNN pads both ends alike: where TensorFlow does not,
** the input is padded before, or the gradient cut after.
** Errors: NotImplemented for what cuDNN refuses. */
#include <cudnn.h>
#include <pthread.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/window.h"

enum { PLANS = 256, ALGORITHMS = 8 };

static struct {
#define DNN_FUNCTIONS(F)                           \
  F(cudnnCreate)                                   \
  F(cudnnSetStream)                                \
  F(cudnnGetErrorString)                           \
  F(cudnnCreateTensorDescriptor)                   \
  F(cudnnDestroyTensorDescriptor)                  \
  F(cudnnSetTensor4dDescriptor)                    \
  F(cudnnCreateFilterDescriptor)                   \
  F(cudnnDestroyFilterDescriptor)                  \
  F(cudnnSetFilter4dDescriptor)                    \
  F(cudnnCreateConvolutionDescriptor)              \
  F(cudnnDestroyConvolutionDescriptor)             \
  F(cudnnSetConvolution2dDescriptor)               \
  F(cudnnSetConvolutionGroupCount)                 \
  F(cudnnSetConvolutionMathType)                   \
  F(cudnnGetConvolutionForwardAlgorithm_v7)        \
  F(cudnnGetConvolutionBackwardDataAlgorithm_v7)   \
  F(cudnnGetConvolutionBackwardFilterAlgorithm_v7) \
  F(cudnnConvolutionForward)                       \
  F(cudnnConvolutionBackwardData)                  \
  F(cudnnConvolutionBackwardFilter)                \
  F(cudnnCreatePoolingDescriptor)                  \
  F(cudnnDestroyPoolingDescriptor)                 \
  F(cudnnSetPooling2dDescriptor)                   \
  F(cudnnPoolingForward)                           \
  F(cudnnPoolingBackward)
#define DECLARE(name) __typeof__(&name) name;
  DNN_FUNCTIONS(DECLARE)
} dnn;

typedef enum direction { FORWARD, INPUT, FILTER, MAX_POOL, AVG_POOL } direction;

/* What a plan depends on. Filled from zeros, compared as bytes. */
typedef struct form {
  int32_t direction;
  int32_t dtype;
  int32_t ordinal;
  int32_t channels_first;
  int32_t tf32;
  int32_t groups;
  int32_t batch;
  int32_t channels;
  int32_t filters;
  int32_t in[2];
  int32_t out[2];
  int32_t kernel[2];
  int32_t stride[2];
  int32_t dilation[2];
  int32_t pad[2];
} form;

typedef struct plan {
  form form;
  cudnnTensorDescriptor_t x;
  cudnnTensorDescriptor_t y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t convolution;
  cudnnPoolingDescriptor_t pooling;
  int algorithm;
  size_t workspace;
  bool used;
} plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudnnHandle_t handles[TFD_CUDA_DEVICES];
static plan plans[PLANS];

static int check(cudnnStatus_t status, const char *what) {
  if (TFD_LIKELY(status == CUDNN_STATUS_SUCCESS)) return TFD_OK;
  return tfd__fail(status == CUDNN_STATUS_NOT_SUPPORTED ? TFD_NOT_IMPLEMENTED
                                                        : TFD_INTERNAL,
                   "cuDNN, %s: %s", what, dnn.cudnnGetErrorString(status));
}

static int open_library(void) {
  static bool there;
  void *library = NULL;

  if (there) return TFD_OK;
  TFD_TRY(tfd__cuda_library("libcudnn.so.9", &library));
#define FIND(name) TFD_TRY(tfd__cuda_symbol(library, #name, &dnn.name));
  DNN_FUNCTIONS(FIND)
  there = true;
  return TFD_OK;
}

/* --- plans: the lock is held
 * ---------------------------------------------------- */

static cudnnDataType_t type_of(int dtype) {
  switch (dtype) {
  case TFD_FLOAT64:
    return CUDNN_DATA_DOUBLE;
  case TFD_FLOAT16:
    return CUDNN_DATA_HALF;
  case TFD_BFLOAT16:
    return CUDNN_DATA_BFLOAT16;
  default:
    return CUDNN_DATA_FLOAT;
  }
}

static cudnnTensorFormat_t layout_of(const form *f) {
  return f->channels_first ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC;
}

static int describe_images(plan *p) {
  const form *f = &p->form;
  cudnnDataType_t type = type_of(f->dtype);

  TFD_TRY(check(dnn.cudnnCreateTensorDescriptor(&p->x), "tensor"));
  TFD_TRY(check(dnn.cudnnCreateTensorDescriptor(&p->y), "tensor"));
  TFD_TRY(
      check(dnn.cudnnSetTensor4dDescriptor(p->x, layout_of(f), type, f->batch,
                                           f->channels, f->in[0], f->in[1]),
            "tensor"));
  return check(dnn.cudnnSetTensor4dDescriptor(p->y, layout_of(f), type,
                                              f->batch, f->filters, f->out[0],
                                              f->out[1]),
               "tensor");
}

static int describe_pooling(plan *p) {
  const form *f = &p->form;

  TFD_TRY(check(dnn.cudnnCreatePoolingDescriptor(&p->pooling), "pooling"));
  return check(dnn.cudnnSetPooling2dDescriptor(
                   p->pooling,
                   f->direction == MAX_POOL
                       ? CUDNN_POOLING_MAX_DETERMINISTIC
                       : CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
                   CUDNN_PROPAGATE_NAN, f->kernel[0], f->kernel[1], f->pad[0],
                   f->pad[1], f->stride[0], f->stride[1]),
               "pooling");
}

static int describe_convolution(plan *p) {
  const form *f = &p->form;
  cudnnDataType_t compute =
      f->dtype == TFD_FLOAT64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  cudnnMathType_t math = f->dtype == TFD_FLOAT64   ? CUDNN_DEFAULT_MATH
                         : f->dtype != TFD_FLOAT32 ? CUDNN_TENSOR_OP_MATH
                         : f->tf32                 ? CUDNN_DEFAULT_MATH
                                                   : CUDNN_FMA_MATH;

  TFD_TRY(check(dnn.cudnnCreateFilterDescriptor(&p->w), "filter"));
  TFD_TRY(check(dnn.cudnnSetFilter4dDescriptor(
                    p->w, type_of(f->dtype), layout_of(f), f->filters,
                    f->channels / f->groups, f->kernel[0], f->kernel[1]),
                "filter"));
  TFD_TRY(check(dnn.cudnnCreateConvolutionDescriptor(&p->convolution),
                "convolution"));
  TFD_TRY(check(dnn.cudnnSetConvolution2dDescriptor(
                    p->convolution, f->pad[0], f->pad[1], f->stride[0],
                    f->stride[1], f->dilation[0], f->dilation[1],
                    CUDNN_CROSS_CORRELATION, compute),
                "convolution"));
  TFD_TRY(check(dnn.cudnnSetConvolutionGroupCount(p->convolution, f->groups),
                "convolution"));
  return check(dnn.cudnnSetConvolutionMathType(p->convolution, math),
               "convolution");
}

/* The first algorithm that works; cuDNN lists them best first. */
#define CHOOSE(kind, call_)                                  \
  do {                                                       \
    cudnnConvolution##kind##AlgoPerf_t found[ALGORITHMS];    \
                                                             \
    TFD_TRY(check(call_, "choosing an algorithm"));          \
    for (i = 0; i < n; i++) {                                \
      if (found[i].status != CUDNN_STATUS_SUCCESS) continue; \
      p->algorithm = (int)found[i].algo;                     \
      p->workspace = found[i].memory;                        \
      return TFD_OK;                                         \
    }                                                        \
  } while (0)

static int choose(plan *p, cudnnHandle_t handle) {
  int n = 0;
  int i;

  switch (p->form.direction) {
  case FORWARD:
    CHOOSE(Fwd, dnn.cudnnGetConvolutionForwardAlgorithm_v7(
                    handle, p->x, p->w, p->convolution, p->y, ALGORITHMS, &n,
                    found));
    break;
  case INPUT:
    CHOOSE(BwdData, dnn.cudnnGetConvolutionBackwardDataAlgorithm_v7(
                        handle, p->w, p->y, p->convolution, p->x, ALGORITHMS,
                        &n, found));
    break;
  default:
    CHOOSE(BwdFilter, dnn.cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                          handle, p->x, p->y, p->convolution, p->w, ALGORITHMS,
                          &n, found));
    break;
  }
  return tfd__fail(TFD_NOT_IMPLEMENTED,
                   "cuDNN has no algorithm for this convolution");
}

static void forget(plan *p) {
  if (p->x != NULL) (void)dnn.cudnnDestroyTensorDescriptor(p->x);
  if (p->y != NULL) (void)dnn.cudnnDestroyTensorDescriptor(p->y);
  if (p->w != NULL) (void)dnn.cudnnDestroyFilterDescriptor(p->w);
  if (p->convolution != NULL) {
    (void)dnn.cudnnDestroyConvolutionDescriptor(p->convolution);
  }
  if (p->pooling != NULL) (void)dnn.cudnnDestroyPoolingDescriptor(p->pooling);
  memset(p, 0, sizeof *p);
}

static int make(plan *p, cudnnHandle_t handle) {
  TFD_TRY(describe_images(p));
  if (p->form.direction >= MAX_POOL) return describe_pooling(p);
  TFD_TRY(describe_convolution(p));
  return choose(p, handle);
}

/* The plan of this form and its workspace; the handle is set to the call's
** stream. */
static int plan_of(const tfd__call *call, const form *f, const plan **plan_p,
                   void **workspace_p) {
  plan *p = &plans[tfd__cuda_hash(f, sizeof *f) % PLANS];
  cudnnHandle_t *handle = &handles[f->ordinal];

  TFD_TRY(open_library());
  if (*handle == NULL) TFD_TRY(check(dnn.cudnnCreate(handle), "starting"));
  TFD_TRY(check(dnn.cudnnSetStream(*handle, tfd__cuda_stream(call)), "stream"));
  if (!p->used || memcmp(&p->form, f, sizeof *f) != 0) {
    int rc;

    forget(p);
    p->form = *f;
    rc = make(p, *handle);
    if (rc != TFD_OK) {
      forget(p);
      return rc;
    }
    p->used = true;
  }
  *plan_p = p;
  return tfd__cuda_workspace(call, p->workspace, workspace_p);
}

/* --- geometry
 * ---------------------------------------------------------------------- */

static void form_of(const tfd__call *call, const tfd__window *w, int way,
                    int dtype, form *f) {
  int i;

  memset(f, 0, sizeof *f);
  f->direction = way;
  f->dtype = dtype;
  f->ordinal = tfd__cuda_ordinal(call);
  f->channels_first = w->channels_first;
  f->tf32 = dtype == TFD_FLOAT32 && tfd__cuda_tf32();
  f->groups = (int32_t)w->groups;
  f->batch = (int32_t)w->batch;
  f->channels = (int32_t)w->channels;
  f->filters = (int32_t)w->filters;
  for (i = 0; i < 2; i++) {
    f->in[i] = (int32_t)w->in[1 + i];
    f->out[i] = (int32_t)w->out[1 + i];
    f->kernel[i] = (int32_t)w->kernel[1 + i];
    f->stride[i] = (int32_t)w->stride[1 + i];
    f->dilation[i] = (int32_t)w->dilation[1 + i];
    f->pad[i] = (int32_t)w->low[1 + i];
  }
}

static bool uneven(const tfd__window *w) {
  return w->low[1] != w->high[1] || w->low[2] != w->high[2];
}

/* The padded input's geometry: cuDNN pads nothing. */
static void pad_form(const tfd__window *w, form *f) {
  int i;

  for (i = 0; i < 2; i++) {
    f->in[i] += (int32_t)(w->low[1 + i] + w->high[1 + i]);
    f->pad[i] = 0;
  }
}

static void padded_view(const form *f, int dtype, void *data, tfd__view *v) {
  int64_t first[4] = {f->batch, f->channels, f->in[0], f->in[1]};
  int64_t last[4] = {f->batch, f->in[0], f->in[1], f->channels};

  v->data = data;
  (void)tfd__view_set(v, dtype, f->channels_first ? first : last, 4);
}

/* The image with one spatial axis seen as one with two. */
static tfd__view image_of(const tfd__view *v, const tfd__window *w) {
  tfd__view image = *v;
  int64_t dims[4];
  int i;

  if (v->rank == 4) return image;
  for (i = 0; i < 4; i++) dims[i] = i < 2 ? v->dims[i] : v->dims[i - 1];
  dims[w->channels_first ? 2 : 1] = 1;
  (void)tfd__view_set(&image, v->dtype, dims, 4);
  return image;
}

static int pad_input(const tfd__call *call, const tfd__view *x,
                     const tfd__window *w, const form *f, void **data_p) {
  int64_t before[4] = {0};
  tfd__view from = image_of(x, w);
  tfd__view to;
  int first = w->channels_first ? 2 : 1;

  memset(&to, 0, sizeof to);
  padded_view(f, x->dtype, NULL, &to);
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(&to), data_p));
  to.data = *data_p;
  before[first] = w->low[1];
  before[first + 1] = w->low[2];
  return tfd__cuda_pad_into(call, &from, &to, before, 0);
}

/* The part of a padded gradient that belongs to the input. */
static int cut_padding(const tfd__call *call, void *padded, const form *f,
                       const tfd__window *w, const tfd__view *dx) {
  tfd__view from;
  int first = w->channels_first ? 2 : 1;
  int i;

  memset(&from, 0, sizeof from);
  padded_view(f, dx->dtype, padded, &from);
  for (i = 0; i < 2; i++) {
    from.data = (char *)from.data + w->low[1 + i] * from.strides[first + i] *
                                        (int64_t)tfd__dtype_size(dx->dtype);
    from.dims[first + i] = w->in[1 + i];
  }
  tfd__view_refresh(&from);
  return tfd__cuda_move(call, &from, dx->data);
}

/* {rows, columns, in, out} seen in cuDNN's order: {out, rows, columns, in}, or
** {out, in, rows, columns} for channels first. */
static tfd__view turned_filter(const tfd__view *w, bool channels_first) {
  static const int last[4] = {3, 0, 1, 2};
  static const int first[4] = {3, 2, 0, 1};
  const int *order = channels_first ? first : last;
  tfd__view from = *w;
  tfd__view v = *w;
  int i;

  if (w->rank == 3) {
    int64_t dims[4] = {1, w->dims[0], w->dims[1], w->dims[2]};

    (void)tfd__view_set(&from, w->dtype, dims, 4);
  }
  v.rank = 4;
  for (i = 0; i < 4; i++) {
    v.dims[i] = from.dims[order[i]];
    v.strides[i] = from.strides[order[i]];
  }
  tfd__view_refresh(&v);
  return v;
}

/* A gradient in cuDNN's order, in the order of TensorFlow. */
static int turn_back(const tfd__call *call, void *data, const tfd__view *dw,
                     bool channels_first) {
  static const int last[4] = {1, 2, 3, 0};
  static const int first[4] = {2, 3, 1, 0};
  const int *order = channels_first ? first : last;
  tfd__view stored = turned_filter(dw, channels_first);
  tfd__view v;
  int i;

  (void)tfd__view_set(&stored, dw->dtype, stored.dims, 4);
  v = stored;
  v.data = data;
  for (i = 0; i < 4; i++) {
    v.dims[i] = stored.dims[order[i]];
    v.strides[i] = stored.strides[order[i]];
  }
  tfd__view_refresh(&v);
  return tfd__cuda_move(call, &v, dw->data);
}

/* --- convolution
 * --------------------------------------------------------------------- */

static const float one32 = 1;
static const float zero32 = 0;
static const double one64 = 1;
static const double zero64 = 0;

static const void *one(int dtype) {
  return dtype == TFD_FLOAT64 ? (const void *)&one64 : &one32;
}
static const void *zero(int dtype) {
  return dtype == TFD_FLOAT64 ? (const void *)&zero64 : &zero32;
}

static int filter_in(const tfd__call *call, const tfd__view *filter,
                     bool channels_first, void **data_p) {
  tfd__view turned = turned_filter(filter, channels_first);

  if (turned.dense) {
    *data_p = turned.data;
    return TFD_OK;
  }
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(filter), data_p));
  return tfd__cuda_move(call, &turned, *data_p);
}

int tfd__cuda_conv(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *filter = tfd__in(call, 1);
  const tfd__view *y = tfd__out(call, 0);
  tfd__window_attrs attrs = tfd__conv_attrs(call->ints);
  tfd__window w;
  const plan *p = NULL;
  void *workspace = NULL;
  void *weights = NULL;
  void *image = x->data;
  form f;
  int rc;

  TFD_TRY(tfd__window_of_filter(call->name, x, filter, &attrs, &w));
  if (y->numel == 0) return TFD_OK;
  if (x->numel == 0) return tfd__cuda_zeros_like(call);
  form_of(call, &w, FORWARD, x->dtype, &f);
  if (uneven(&w)) {
    pad_form(&w, &f);
    TFD_TRY(pad_input(call, x, &w, &f, &image));
  }
  TFD_TRY(filter_in(call, filter, w.channels_first, &weights));
  pthread_mutex_lock(&lock);
  rc = plan_of(call, &f, &p, &workspace);
  if (rc == TFD_OK) {
    rc = check(dnn.cudnnConvolutionForward(
                   handles[f.ordinal], one(f.dtype), p->x, image, p->w, weights,
                   p->convolution, (cudnnConvolutionFwdAlgo_t)p->algorithm,
                   workspace, p->workspace, zero(f.dtype), p->y, y->data),
               call->name);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

int tfd__cuda_conv_backprop_input(const tfd__call *call) {
  const tfd__view *filter = tfd__in(call, 0);
  const tfd__view *dy = tfd__in(call, 1);
  const tfd__view *dx = tfd__out(call, 0);
  tfd__window_attrs attrs = tfd__conv_attrs(call->ints);
  tfd__window w;
  const plan *p = NULL;
  void *workspace = NULL;
  void *weights = NULL;
  void *image = dx->data;
  form f;
  int rc;

  TFD_TRY(tfd__window_of_filter(call->name, dx, filter, &attrs, &w));
  if (dx->numel == 0) return TFD_OK;
  if (dy->numel == 0) return tfd__cuda_zeros_like(call);
  form_of(call, &w, INPUT, dy->dtype, &f);
  if (uneven(&w)) {
    tfd__view padded;

    memset(&padded, 0, sizeof padded);
    pad_form(&w, &f);
    padded_view(&f, dx->dtype, NULL, &padded);
    TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(&padded), &image));
  }
  TFD_TRY(filter_in(call, filter, w.channels_first, &weights));
  pthread_mutex_lock(&lock);
  rc = plan_of(call, &f, &p, &workspace);
  if (rc == TFD_OK) {
    rc = check(dnn.cudnnConvolutionBackwardData(
                   handles[f.ordinal], one(f.dtype), p->w, weights, p->y,
                   dy->data, p->convolution,
                   (cudnnConvolutionBwdDataAlgo_t)p->algorithm, workspace,
                   p->workspace, zero(f.dtype), p->x, image),
               call->name);
  }
  pthread_mutex_unlock(&lock);
  if (rc != TFD_OK || image == dx->data) return rc;
  return cut_padding(call, image, &f, &w, dx);
}

int tfd__cuda_conv_backprop_filter(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *dy = tfd__in(call, 1);
  const tfd__view *dw = tfd__out(call, 0);
  tfd__window_attrs attrs = tfd__conv_attrs(call->ints);
  tfd__window w;
  const plan *p = NULL;
  void *workspace = NULL;
  void *weights = NULL;
  void *image = x->data;
  form f;
  int rc;

  TFD_TRY(tfd__window_of_filter(call->name, x, dw, &attrs, &w));
  if (dw->numel == 0) return TFD_OK;
  if (x->numel == 0 || dy->numel == 0) return tfd__cuda_zeros_like(call);
  form_of(call, &w, FILTER, x->dtype, &f);
  if (uneven(&w)) {
    pad_form(&w, &f);
    TFD_TRY(pad_input(call, x, &w, &f, &image));
  }
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(dw), &weights));
  pthread_mutex_lock(&lock);
  rc = plan_of(call, &f, &p, &workspace);
  if (rc == TFD_OK) {
    rc =
        check(dnn.cudnnConvolutionBackwardFilter(
                  handles[f.ordinal], one(f.dtype), p->x, image, p->y, dy->data,
                  p->convolution, (cudnnConvolutionBwdFilterAlgo_t)p->algorithm,
                  workspace, p->workspace, zero(f.dtype), p->w, weights),
              call->name);
  }
  pthread_mutex_unlock(&lock);
  if (rc != TFD_OK) return rc;
  return turn_back(call, weights, dw, w.channels_first);
}

/* --- pooling
 * ------------------------------------------------------------------------- */

static int pooling(const tfd__call *call, const tfd__view *input, int way,
                   form *f) {
  tfd__window w;

  TFD_TRY(tfd__window_of_pool(call->name, input, call->ints, &w));
  form_of(call, &w, way, input->dtype, f);
  return TFD_OK;
}

static int pool(const tfd__call *call, int way) {
  const tfd__view *x = tfd__in(call, 0);
  const plan *p = NULL;
  void *workspace = NULL;
  form f;
  int rc;

  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  TFD_TRY(pooling(call, x, way, &f));
  pthread_mutex_lock(&lock);
  rc = plan_of(call, &f, &p, &workspace);
  if (rc == TFD_OK) {
    rc = check(dnn.cudnnPoolingForward(
                   handles[f.ordinal], p->pooling, one(f.dtype), p->x, x->data,
                   zero(f.dtype), p->y, tfd__out(call, 0)->data),
               call->name);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

int tfd__cuda_max_pool(const tfd__call *call) {
  return pool(call, MAX_POOL);
}

int tfd__cuda_avg_pool(const tfd__call *call) {
  return pool(call, AVG_POOL);
}

/* The average's gradient reads neither input nor output; cuDNN wants pointers
** all the same. */
static int pool_grad(const tfd__call *call, int way, const void *x,
                     const void *y, const void *dy) {
  const tfd__view *dx = tfd__out(call, 0);
  const plan *p = NULL;
  void *workspace = NULL;
  form f;
  int rc;

  if (dx->numel == 0) return TFD_OK;
  if (tfd__in(call, call->in_n - 1)->numel == 0) {
    return tfd__cuda_zeros_like(call);
  }
  TFD_TRY(pooling(call, dx, way, &f));
  pthread_mutex_lock(&lock);
  rc = plan_of(call, &f, &p, &workspace);
  if (rc == TFD_OK) {
    rc = check(dnn.cudnnPoolingBackward(handles[f.ordinal], p->pooling,
                                        one(f.dtype), p->y, y, p->y, dy, p->x,
                                        x, zero(f.dtype), p->x, dx->data),
               call->name);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

int tfd__cuda_max_pool_grad(const tfd__call *call) {
  return pool_grad(call, MAX_POOL, tfd__in(call, 0)->data,
                   tfd__in(call, 1)->data, tfd__in(call, 2)->data);
}

int tfd__cuda_avg_pool_grad(const tfd__call *call) {
  const void *dy = tfd__in(call, 0)->data;

  return pool_grad(call, AVG_POOL, tfd__out(call, 0)->data, dy, dy);
}
