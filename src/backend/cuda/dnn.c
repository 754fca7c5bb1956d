/* Convolution of images and volumes, and pooling of images, through cuDNN. What
** cuDNN is told about one geometry, and the algorithm it chose, is kept.
** TensorFlow's filters lie {rows, columns, in, out}, cuDNN's {out, rows,
** columns, in}: they are turned on the way in and out, and so are volumes whose
** channels come last, for which cuDNN lacks algorithms. cuDNN pads both ends
** alike: where TensorFlow does not, the input is padded before, or the gradient
** cut after. What cuDNN refuses, or is too large for it, runs elsewhere. */
#include <cudnn.h>
#include <pthread.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/window_args.h"
#include "backend/window.h"

enum { PLANS = 256, ALGORITHMS = 8 };

static struct {
#define DNN_FUNCTIONS(F)                           \
  F(cudnnCreate)                                   \
  F(cudnnSetStream)                                \
  F(cudnnGetErrorString)                           \
  F(cudnnCreateTensorDescriptor)                   \
  F(cudnnDestroyTensorDescriptor)                  \
  F(cudnnSetTensorNdDescriptor)                    \
  F(cudnnCreateFilterDescriptor)                   \
  F(cudnnDestroyFilterDescriptor)                  \
  F(cudnnSetFilterNdDescriptor)                    \
  F(cudnnCreateConvolutionDescriptor)              \
  F(cudnnDestroyConvolutionDescriptor)             \
  F(cudnnSetConvolutionNdDescriptor)               \
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
  int32_t channels_first; /* as cuDNN sees them */
  int32_t spatial;        /* axes: 2, or 3 of volumes */
  int32_t tf32;
  int32_t groups;
  int32_t batch;
  int32_t channels;
  int32_t filters;
  int32_t in[3];
  int32_t out[3];
  int32_t kernel[3];
  int32_t stride[3];
  int32_t dilation[3];
  int32_t pad[3];
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
  bool refused; /* there is no algorithm */
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

/* --- plans: the lock is held ---------------------------------------------- */

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

/* One side of it: cuDNN lists channels second, however they lie. */
static int describe_image(cudnnTensorDescriptor_t *d, const form *f,
                          int channels, const int32_t *sizes) {
  int dims[5] = {f->batch, channels};
  int strides[5] = {channels, 1};
  int inner = f->channels_first ? 1 : channels;
  int i;

  for (i = f->spatial - 1; i >= 0; i--) {
    dims[2 + i] = sizes[i];
    strides[2 + i] = inner;
    inner *= sizes[i];
    strides[0] *= sizes[i];
  }
  if (f->channels_first) strides[1] = inner;
  TFD_TRY(check(dnn.cudnnCreateTensorDescriptor(d), "tensor"));
  return check(dnn.cudnnSetTensorNdDescriptor(*d, type_of(f->dtype),
                                              f->spatial + 2, dims, strides),
               "tensor");
}

static int describe_images(plan *p) {
  const form *f = &p->form;

  TFD_TRY(describe_image(&p->x, f, f->channels, f->in));
  return describe_image(&p->y, f, f->filters, f->out);
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
  int filter[5] = {f->filters, f->channels / f->groups, f->kernel[0],
                   f->kernel[1], f->kernel[2]};

  TFD_TRY(check(dnn.cudnnCreateFilterDescriptor(&p->w), "filter"));
  TFD_TRY(check(dnn.cudnnSetFilterNdDescriptor(p->w, type_of(f->dtype),
                                               layout_of(f), f->spatial + 2,
                                               filter),
                "filter"));
  TFD_TRY(check(dnn.cudnnCreateConvolutionDescriptor(&p->convolution),
                "convolution"));
  TFD_TRY(check(dnn.cudnnSetConvolutionNdDescriptor(
                    p->convolution, f->spatial, f->pad, f->stride, f->dilation,
                    CUDNN_CROSS_CORRELATION, compute),
                "convolution"));
  TFD_TRY(check(dnn.cudnnSetConvolutionGroupCount(p->convolution, f->groups),
                "convolution"));
  return check(dnn.cudnnSetConvolutionMathType(p->convolution, math),
               "convolution");
}

/* The first algorithm that works and gives the same bits in each run; cuDNN
** lists them best first. */
#define CHOOSE(kind, call_)                               \
  do {                                                    \
    cudnnConvolution##kind##AlgoPerf_t found[ALGORITHMS]; \
                                                          \
    TFD_TRY(check(call_, "choosing an algorithm"));       \
    for (i = 0; i < n; i++) {                             \
      if (found[i].status != CUDNN_STATUS_SUCCESS ||      \
          found[i].determinism != CUDNN_DETERMINISTIC) {  \
        continue;                                         \
      }                                                   \
      p->algorithm = (int)found[i].algo;                  \
      p->workspace = found[i].memory;                     \
      return TFD_OK;                                      \
    }                                                     \
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

/* The plan of this form. Errors: NotImplemented where cuDNN refuses it. */
static int find_plan(const form *f, const plan **plan_p) {
  plan *p = &plans[tfd__cuda_hash(f, sizeof *f) % PLANS];
  cudnnHandle_t *handle = &handles[f->ordinal];

  TFD_TRY(open_library());
  if (*handle == NULL) TFD_TRY(check(dnn.cudnnCreate(handle), "starting"));
  if (!p->used || memcmp(&p->form, f, sizeof *f) != 0) {
    int rc;

    forget(p);
    p->form = *f;
    rc = make(p, *handle);
    if (rc != TFD_OK && rc != TFD_NOT_IMPLEMENTED) {
      forget(p);
      return rc;
    }
    p->used = true;
    p->refused = rc != TFD_OK;
  }
  *plan_p = p;
  if (!p->refused) return TFD_OK;
  return tfd__fail(TFD_NOT_IMPLEMENTED, "cuDNN has no algorithm for this");
}

/* Its workspace, too; the handle is set to the call's stream. */
static int plan_of(const tfd__call *call, const form *f, const plan **plan_p,
                   void **workspace_p) {
  TFD_TRY(find_plan(f, plan_p));
  TFD_TRY(check(dnn.cudnnSetStream(handles[f->ordinal], tfd__cuda_stream(call)),
                "stream"));
  return tfd__cuda_workspace(call, (*plan_p)->workspace, workspace_p);
}

/* --- geometry ------------------------------------------------------------- */

static void form_of(const tfd__call *call, const tfd__window *w, int way,
                    int dtype, form *f) {
  int i;

  memset(f, 0, sizeof *f);
  f->direction = way;
  f->dtype = dtype;
  f->ordinal = tfd__cuda_ordinal(call);
  f->spatial = w->spatial == 3 ? 3 : 2;
  f->channels_first = w->channels_first || f->spatial == 3;
  f->tf32 = dtype == TFD_FLOAT32 && tfd__cuda_tf32();
  f->groups = (int32_t)w->groups;
  f->batch = (int32_t)w->batch;
  f->channels = (int32_t)w->channels;
  f->filters = (int32_t)w->filters;
  for (i = 0; i < f->spatial; i++) {
    int axis = 3 - f->spatial + i;

    f->in[i] = (int32_t)w->in[axis];
    f->out[i] = (int32_t)w->out[axis];
    f->kernel[i] = (int32_t)w->kernel[axis];
    f->stride[i] = (int32_t)w->stride[axis];
    f->dilation[i] = (int32_t)w->dilation[axis];
    f->pad[i] = (int32_t)w->low[axis];
  }
}

static bool uneven(const tfd__window *w) {
  return w->low[0] != w->high[0] || w->low[1] != w->high[1] ||
         w->low[2] != w->high[2];
}

/* The padded input's geometry: cuDNN pads nothing. */
static void pad_form(const tfd__window *w, form *f) {
  int i;

  for (i = 0; i < f->spatial; i++) {
    int axis = 3 - f->spatial + i;

    f->in[i] += (int32_t)(w->low[axis] + w->high[axis]);
    f->pad[i] = 0;
  }
}

/* The product, or more than 32 bits hold where x and y are no less. */
static int64_t times(int64_t x, int64_t y) {
  return x > INT32_MAX || y > INT32_MAX ? INT64_MAX : x * y;
}

/* cuDNN counts in 32 bits. */
static bool fits(const tfd__window *w) {
  int64_t in = times(w->batch, w->channels);
  int64_t out = times(w->batch, w->filters);
  int i;

  for (i = 0; i < 3; i++) {
    int64_t pads = w->low[i] > INT32_MAX || w->high[i] > INT32_MAX
                       ? INT32_MAX
                       : w->low[i] + w->high[i];

    if (w->kernel[i] > INT32_MAX || w->stride[i] > INT32_MAX ||
        w->dilation[i] > INT32_MAX || pads >= INT32_MAX) {
      return false;
    }
    in = times(in, w->in[i] + pads);
    out = times(out, w->out[i]);
  }
  return in <= INT32_MAX && out <= INT32_MAX;
}

/* Does cuDNN take it? What goes wrong besides is told when it runs. */
static bool has(const tfd__call *call, const tfd__window *w, int way,
                int dtype) {
  const plan *p = NULL;
  form f;
  int rc;

  if (!fits(w)) return false;
  form_of(call, w, way, dtype, &f);
  if (way < MAX_POOL && uneven(w)) pad_form(w, &f);
  if (tfd__cuda_use(f.ordinal) != TFD_OK) return true;
  pthread_mutex_lock(&lock);
  rc = find_plan(&f, &p);
  pthread_mutex_unlock(&lock);
  return rc != TFD_NOT_IMPLEMENTED;
}

static tfd__view permuted(const tfd__view *v, const int *order) {
  tfd__view p = *v;
  int i;

  for (i = 0; i < v->rank; i++) {
    p.dims[i] = v->dims[order[i]];
    p.strides[i] = v->strides[order[i]];
  }
  tfd__view_refresh(&p);
  return p;
}

/* Dense, as cuDNN sees it. */
static tfd__view image(const form *f, int dtype, int32_t channels,
                       const int32_t *sizes) {
  int64_t dims[5] = {f->batch};
  tfd__view v;
  int i;

  memset(&v, 0, sizeof v);
  for (i = 0; i < f->spatial; i++) {
    dims[(f->channels_first ? 2 : 1) + i] = sizes[i];
  }
  dims[f->channels_first ? 1 : f->spatial + 1] = channels;
  (void)tfd__view_set(&v, dtype, dims, f->spatial + 2);
  return v;
}

static const int to_first[5] = {0, 4, 1, 2, 3};

/* Do channels lie elsewhere for cuDNN? */
static bool turned(const tfd__window *w, const form *f) {
  return f->channels_first != w->channels_first;
}

/* The input for cuDNN: padded where it must be, which changes the form, and
** turned. */
static int image_in(const tfd__call *call, const tfd__view *x,
                    const tfd__window *w, form *f, void **data_p) {
  int64_t before[5] = {0};
  tfd__view from = *x;
  tfd__view to;
  int i;

  *data_p = x->data;
  if (!uneven(w) && !turned(w, f)) return TFD_OK;
  if (turned(w, f)) {
    from = permuted(x, to_first);
  } else {
    /* With one spatial axis it is seen with two. */
    to = image(f, x->dtype, f->channels, f->in);
    (void)tfd__view_set(&from, x->dtype, to.dims, to.rank);
  }
  if (uneven(w)) pad_form(w, f);
  to = image(f, x->dtype, f->channels, f->in);
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(&to), data_p));
  to.data = *data_p;
  if (!uneven(w)) return tfd__cuda_move(call, &from, to.data);
  for (i = 0; i < f->spatial; i++) {
    before[(f->channels_first ? 2 : 1) + i] = w->low[3 - f->spatial + i];
  }
  return tfd__cuda_pad_into(call, &from, &to, before, 0);
}

/* The gradient of an output for cuDNN. */
static int gradient_in(const tfd__call *call, const tfd__view *dy,
                       const tfd__window *w, const form *f, void **data_p) {
  tfd__view from;

  *data_p = dy->data;
  if (!turned(w, f)) return TFD_OK;
  from = permuted(dy, to_first);
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(dy), data_p));
  return tfd__cuda_move(call, &from, *data_p);
}

/* Where cuDNN puts an output of these sizes: itself, or memory from which
** image_out fetches it. */
static int room_for(const tfd__call *call, const tfd__view *out,
                    const tfd__window *w, const form *f, bool padded,
                    int32_t channels, const int32_t *sizes, void **data_p) {
  tfd__view v = image(f, out->dtype, channels, sizes);

  *data_p = out->data;
  if (!padded && !turned(w, f)) return TFD_OK;
  return tfd__cuda_scratch(call, tfd__view_bytes(&v), data_p);
}

/* Without padding, channels where TensorFlow has them. */
static int image_out(const tfd__call *call, void *data, const tfd__window *w,
                     const form *f, bool padded, int32_t channels,
                     const int32_t *sizes, const tfd__view *out) {
  static const int to_last[5] = {0, 2, 3, 4, 1};
  tfd__view from = image(f, out->dtype, channels, sizes);
  int first = f->channels_first ? 2 : 1;
  int i;

  if (data == out->data) return TFD_OK;
  from.data = data;
  for (i = 0; padded && i < f->spatial; i++) {
    int axis = 3 - f->spatial + i;

    from.data = (char *)from.data + w->low[axis] * from.strides[first + i] *
                                        (int64_t)tfd__dtype_size(out->dtype);
    from.dims[first + i] = w->in[axis];
  }
  tfd__view_refresh(&from);
  if (turned(w, f)) from = permuted(&from, to_last);
  return tfd__cuda_move(call, &from, out->data);
}

/* {rows, columns, in, out} seen in cuDNN's order: {out, rows, columns, in}, or
** {out, in, rows, columns} for channels first. */
static tfd__view turned_filter(const tfd__view *w, const form *f) {
  static const int last[4] = {3, 0, 1, 2};
  static const int first[4] = {3, 2, 0, 1};
  static const int volume[5] = {4, 3, 0, 1, 2};
  tfd__view from = *w;

  if (w->rank == 5) return permuted(w, volume);
  if (w->rank == 3) {
    int64_t dims[4] = {1, w->dims[0], w->dims[1], w->dims[2]};

    (void)tfd__view_set(&from, w->dtype, dims, 4);
  }
  return permuted(&from, f->channels_first ? first : last);
}

/* A gradient in cuDNN's order, in the order of TensorFlow. */
static int turn_back(const tfd__call *call, void *data, const tfd__view *dw,
                     const form *f) {
  static const int last[4] = {1, 2, 3, 0};
  static const int first[4] = {2, 3, 1, 0};
  static const int volume[5] = {2, 3, 4, 1, 0};
  tfd__view stored = turned_filter(dw, f);
  tfd__view v;

  (void)tfd__view_set(&stored, dw->dtype, stored.dims, stored.rank);
  stored.data = data;
  v = permuted(&stored, stored.rank == 5    ? volume
                        : f->channels_first ? first
                                            : last);
  return tfd__cuda_move(call, &v, dw->data);
}

/* --- convolution ---------------------------------------------------------- */

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
                     const form *f, void **data_p) {
  tfd__view from = turned_filter(filter, f);

  if (from.dense) {
    *data_p = from.data;
    return TFD_OK;
  }
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(filter), data_p));
  return tfd__cuda_move(call, &from, *data_p);
}

static bool has_between(const tfd__call *call, const tfd__view *x,
                        const tfd__view *filter, const tfd__view *y, int way) {
  tfd__window_attrs attrs = tfd__conv_attrs(call->ints);
  tfd__window w;

  if (x->numel == 0 || filter->numel == 0 || y->numel == 0) return true;
  return tfd__window_of_filter(call->name, x, filter, &attrs, &w) != TFD_OK ||
         has(call, &w, way, x->dtype);
}

bool tfd__cuda_has_conv(const tfd__call *call) {
  return has_between(call, tfd__in(call, 0), tfd__in(call, 1),
                     tfd__out(call, 0), FORWARD);
}

bool tfd__cuda_has_conv_input(const tfd__call *call) {
  return has_between(call, tfd__out(call, 0), tfd__in(call, 0),
                     tfd__in(call, 1), INPUT);
}

bool tfd__cuda_has_conv_filter(const tfd__call *call) {
  return has_between(call, tfd__in(call, 0), tfd__out(call, 0),
                     tfd__in(call, 1), FILTER);
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
  void *in = NULL;
  void *out = NULL;
  form f;
  int rc;

  TFD_TRY(tfd__window_of_filter(call->name, x, filter, &attrs, &w));
  if (y->numel == 0) return TFD_OK;
  if (x->numel == 0) return tfd__cuda_zeros_like(call);
  form_of(call, &w, FORWARD, x->dtype, &f);
  TFD_TRY(image_in(call, x, &w, &f, &in));
  TFD_TRY(filter_in(call, filter, &f, &weights));
  TFD_TRY(room_for(call, y, &w, &f, false, f.filters, f.out, &out));
  pthread_mutex_lock(&lock);
  rc = plan_of(call, &f, &p, &workspace);
  if (rc == TFD_OK) {
    rc = check(dnn.cudnnConvolutionForward(
                   handles[f.ordinal], one(f.dtype), p->x, in, p->w, weights,
                   p->convolution, (cudnnConvolutionFwdAlgo_t)p->algorithm,
                   workspace, p->workspace, zero(f.dtype), p->y, out),
               call->name);
  }
  pthread_mutex_unlock(&lock);
  if (rc != TFD_OK) return rc;
  return image_out(call, out, &w, &f, false, f.filters, f.out, y);
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
  void *in = NULL;
  void *out = NULL;
  form f;
  bool padded = false;
  int rc;

  TFD_TRY(tfd__window_of_filter(call->name, dx, filter, &attrs, &w));
  if (dx->numel == 0) return TFD_OK;
  if (dy->numel == 0) return tfd__cuda_zeros_like(call);
  form_of(call, &w, INPUT, dy->dtype, &f);
  padded = uneven(&w);
  if (padded) pad_form(&w, &f);
  TFD_TRY(gradient_in(call, dy, &w, &f, &in));
  TFD_TRY(filter_in(call, filter, &f, &weights));
  TFD_TRY(room_for(call, dx, &w, &f, padded, f.channels, f.in, &out));
  pthread_mutex_lock(&lock);
  rc = plan_of(call, &f, &p, &workspace);
  if (rc == TFD_OK) {
    rc = check(dnn.cudnnConvolutionBackwardData(
                   handles[f.ordinal], one(f.dtype), p->w, weights, p->y, in,
                   p->convolution, (cudnnConvolutionBwdDataAlgo_t)p->algorithm,
                   workspace, p->workspace, zero(f.dtype), p->x, out),
               call->name);
  }
  pthread_mutex_unlock(&lock);
  if (rc != TFD_OK) return rc;
  return image_out(call, out, &w, &f, padded, f.channels, f.in, dx);
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
  void *in = NULL;
  void *grad = NULL;
  form f;
  int rc;

  TFD_TRY(tfd__window_of_filter(call->name, x, dw, &attrs, &w));
  if (dw->numel == 0) return TFD_OK;
  if (x->numel == 0 || dy->numel == 0) return tfd__cuda_zeros_like(call);
  form_of(call, &w, FILTER, x->dtype, &f);
  TFD_TRY(image_in(call, x, &w, &f, &in));
  TFD_TRY(gradient_in(call, dy, &w, &f, &grad));
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(dw), &weights));
  pthread_mutex_lock(&lock);
  rc = plan_of(call, &f, &p, &workspace);
  if (rc == TFD_OK) {
    rc =
        check(dnn.cudnnConvolutionBackwardFilter(
                  handles[f.ordinal], one(f.dtype), p->x, in, p->y, grad,
                  p->convolution, (cudnnConvolutionBwdFilterAlgo_t)p->algorithm,
                  workspace, p->workspace, zero(f.dtype), p->w, weights),
              call->name);
  }
  pthread_mutex_unlock(&lock);
  if (rc != TFD_OK) return rc;
  return turn_back(call, weights, dw, &f);
}

/* --- pooling -------------------------------------------------------------- */

static int pooling(const tfd__call *call, const tfd__view *input, int way,
                   form *f) {
  tfd__window w;

  TFD_TRY(tfd__window_of_pool(call->name, input, call->ints, &w));
  form_of(call, &w, way, input->dtype, f);
  return TFD_OK;
}

/* cuDNN pools images of floats, padded alike at both ends. */
static bool cudnn_pools(const tfd__call *call, const tfd__view *input,
                        int way) {
  tfd__window w;

  return input->rank <= 4 && tfd__is_float(input->dtype) &&
         tfd__window_of_pool(call->name, input, call->ints, &w) == TFD_OK &&
         !uneven(&w) && (input->numel == 0 || has(call, &w, way, input->dtype));
}

static int pool(const tfd__call *call, int way, int op) {
  const tfd__view *x = tfd__in(call, 0);
  const plan *p = NULL;
  void *workspace = NULL;
  form f;
  int rc;

  if (!cudnn_pools(call, x, way)) return tfd__cuda_windows(call, op);
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
  return pool(call, MAX_POOL, TFD_CU_POOL_MAX);
}

int tfd__cuda_avg_pool(const tfd__call *call) {
  return pool(call, AVG_POOL, TFD_CU_POOL_AVG);
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
  if (!cudnn_pools(call, tfd__out(call, 0), MAX_POOL)) {
    return tfd__cuda_windows_grad(call, TFD_CU_POOL_MAX);
  }
  return pool_grad(call, MAX_POOL, tfd__in(call, 0)->data,
                   tfd__in(call, 1)->data, tfd__in(call, 2)->data);
}

int tfd__cuda_avg_pool_grad(const tfd__call *call) {
  const void *dy = tfd__in(call, 0)->data;

  if (!cudnn_pools(call, tfd__out(call, 0), AVG_POOL)) {
    return tfd__cuda_windows_grad(call, TFD_CU_POOL_AVG);
  }
  return pool_grad(call, AVG_POOL, tfd__out(call, 0)->data, dy, dy);
}
