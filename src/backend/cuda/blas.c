/* Products through cuBLASLt. Row-major C = A B is column-major C' = B' A', so
** operands change places and need no transposing of their own. What cuBLASLt
** makes for one form of product is kept. */
#include <cublasLt.h>
#include <pthread.h>
#include <string.h>

#include "backend/cuda/cuda.h"

enum { PLANS = 256, WORKSPACE = 32 << 20, BIAS_ALIGN = 16, TILE = 16 };

static struct {
#define BLAS_FUNCTIONS(F)                 \
  F(cublasLtCreate)                       \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)          \
  F(cublasLtMatrixLayoutSetAttribute)     \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute) \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtGetStatusString)
#define DECLARE(name) __typeof__(&name) name;
  BLAS_FUNCTIONS(DECLARE)
} lt;

/* What a plan depends on. Filled from zeros, compared as bytes. */
typedef struct form {
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t lda;
  int64_t ldb;
  int64_t batches;
  int64_t batch_a;
  int64_t batch_b;
  int32_t align[3];
  int32_t dtype;
  int32_t turn_a;
  int32_t turn_b;
  int16_t tf32;
  int16_t epilogue;
  int32_t ordinal;
} form;

typedef struct plan {
  form form;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t a;
  cublasLtMatrixLayout_t b;
  cublasLtMatrixLayout_t c;
  cublasLtMatmulAlgo_t algorithm;
  bool used;
  bool refused; /* there is no algorithm */
} plan;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cublasLtHandle_t handles[TFD_CUDA_DEVICES];
static plan plans[PLANS];

static int check(cublasStatus_t status, const char *what) {
  if (TFD_LIKELY(status == CUBLAS_STATUS_SUCCESS)) return TFD_OK;
  return tfd__fail(TFD_INTERNAL, "cuBLASLt, %s: %s", what,
                   lt.cublasLtGetStatusString(status));
}

static int open_library(void) {
  static bool there;
  void *library = NULL;

  if (there) return TFD_OK;
  TFD_TRY(tfd__cuda_library("libcublasLt.so.13:libcublasLt.so.12", &library));
#define FIND(name) TFD_TRY(tfd__cuda_symbol(library, #name, &lt.name));
  BLAS_FUNCTIONS(FIND)
  there = true;
  return TFD_OK;
}

/* --- plans: the lock is held ---------------------------------------------- */

static cudaDataType_t type_of(int dtype) {
  switch (dtype) {
  case TFD_FLOAT64:
    return CUDA_R_64F;
  case TFD_FLOAT16:
    return CUDA_R_16F;
  case TFD_BFLOAT16:
    return CUDA_R_16BF;
  default:
    return CUDA_R_32F;
  }
}

static int set(plan *p, cublasLtMatmulDescAttributes_t which, const void *value,
               size_t bytes) {
  return check(
      lt.cublasLtMatmulDescSetAttribute(p->product, which, value, bytes),
      "product");
}

static bool adds_bias(int16_t epilogue) {
  return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
}

static int layout(cublasLtMatrixLayout_t *layout_p, const form *f, int64_t rows,
                  int64_t columns, int64_t stride, int64_t batch) {
  int32_t batches = (int32_t)f->batches;

  TFD_TRY(check(lt.cublasLtMatrixLayoutCreate(layout_p, type_of(f->dtype),
                                              (uint64_t)rows, (uint64_t)columns,
                                              stride),
                "layout"));
  TFD_TRY(check(lt.cublasLtMatrixLayoutSetAttribute(
                    *layout_p, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches,
                    sizeof batches),
                "layout"));
  return check(lt.cublasLtMatrixLayoutSetAttribute(
                   *layout_p, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                   &batch, sizeof batch),
               "layout");
}

/* Operands in cuBLASLt's order: its A is our B. */
static int describe(plan *p) {
  const form *f = &p->form;
  cublasComputeType_t compute = f->dtype == TFD_FLOAT64 ? CUBLAS_COMPUTE_64F
                                : f->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                          : CUBLAS_COMPUTE_32F;
  cublasOperation_t op_b = f->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t op_a = f->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue =
      f->epilogue == 0 ? CUBLASLT_EPILOGUE_DEFAULT : f->epilogue;
  /* An algorithm is found for a bias that is there; calls say which. */
  const void *some = (const void *)(uintptr_t)BIAS_ALIGN;

  TFD_TRY(check(lt.cublasLtMatmulDescCreate(
                    &p->product, compute,
                    f->dtype == TFD_FLOAT64 ? CUDA_R_64F : CUDA_R_32F),
                "product"));
  TFD_TRY(set(p, CUBLASLT_MATMUL_DESC_TRANSA, &op_b, sizeof op_b));
  TFD_TRY(set(p, CUBLASLT_MATMUL_DESC_TRANSB, &op_a, sizeof op_a));
  TFD_TRY(set(p, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  if (adds_bias(f->epilogue)) {
    TFD_TRY(set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &some, sizeof some));
  }
  TFD_TRY(layout(&p->b, f, f->turn_b ? f->k : f->n, f->turn_b ? f->n : f->k,
                 f->ldb, f->batch_b));
  TFD_TRY(layout(&p->a, f, f->turn_a ? f->m : f->k, f->turn_a ? f->k : f->m,
                 f->lda, f->batch_a));
  return layout(&p->c, f, f->n, f->m, f->n, f->m * f->n);
}

static int refuse(void) {
  return tfd__fail(TFD_NOT_IMPLEMENTED,
                   "cuBLASLt has no algorithm for this product");
}

static int choose(plan *p, cublasLtHandle_t handle) {
  static const cublasLtMatmulPreferenceAttributes_t of_operand[3] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES};
  cublasLtMatmulPreference_t wish = NULL;
  cublasLtMatmulHeuristicResult_t found;
  size_t workspace = WORKSPACE;
  uint32_t bytes = 0;
  cublasStatus_t status;
  int n = 0;
  int i;
  int rc;

  TFD_TRY(check(lt.cublasLtMatmulPreferenceCreate(&wish), "preference"));
  rc = check(lt.cublasLtMatmulPreferenceSetAttribute(
                 wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                 sizeof workspace),
             "preference");
  for (i = 0; rc == TFD_OK && i < 3; i++) {
    bytes = (uint32_t)p->form.align[i];
    rc = check(lt.cublasLtMatmulPreferenceSetAttribute(wish, of_operand[i],
                                                       &bytes, sizeof bytes),
               "preference");
  }
  bytes = (uint32_t)p->form.align[2];
  if (rc == TFD_OK) {
    rc = check(lt.cublasLtMatmulPreferenceSetAttribute(
                   wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &bytes,
                   sizeof bytes),
               "preference");
  }
  if (rc == TFD_OK) {
    status = lt.cublasLtMatmulAlgoGetHeuristic(handle, p->product, p->b, p->a,
                                               p->c, p->c, wish, 1, &found, &n);
    rc = status == CUBLAS_STATUS_NOT_SUPPORTED
             ? refuse()
             : check(status, "choosing an algorithm");
  }
  (void)lt.cublasLtMatmulPreferenceDestroy(wish);
  TFD_TRY(rc);
  if (n == 0) return refuse();
  p->algorithm = found.algo;
  return TFD_OK;
}

static void forget(plan *p) {
  if (p->a != NULL) (void)lt.cublasLtMatrixLayoutDestroy(p->a);
  if (p->b != NULL) (void)lt.cublasLtMatrixLayoutDestroy(p->b);
  if (p->c != NULL) (void)lt.cublasLtMatrixLayoutDestroy(p->c);
  if (p->product != NULL) (void)lt.cublasLtMatmulDescDestroy(p->product);
  memset(p, 0, sizeof *p);
}

/* The plan of this form; it takes the place of one that falls on it. */
static int plan_of(const form *f, plan **plan_p) {
  plan *p = &plans[tfd__cuda_hash(f, sizeof *f) % PLANS];
  cublasLtHandle_t *handle = &handles[f->ordinal];
  int rc;

  if (p->used && memcmp(&p->form, f, sizeof *f) == 0) {
    *plan_p = p;
    return p->refused ? refuse() : TFD_OK;
  }
  TFD_TRY(open_library());
  if (*handle == NULL) {
    TFD_TRY(check(lt.cublasLtCreate(handle), "starting"));
  }
  forget(p);
  p->form = *f;
  rc = describe(p);
  if (rc == TFD_OK) rc = choose(p, *handle);
  if (rc != TFD_OK && rc != TFD_NOT_IMPLEMENTED) {
    forget(p);
    return rc;
  }
  p->used = true;
  p->refused = rc != TFD_OK;
  *plan_p = p;
  return rc;
}

/* --- products ------------------------------------------------------------- */

/* Of matrices that lie `stride` elements apart, the first one at `data`. */
static int32_t alignment(const form *f, const void *data, int64_t stride) {
  uintptr_t apart = (uintptr_t)stride * tfd__dtype_size(f->dtype);
  uintptr_t bits = (uintptr_t)data | (f->batches > 1 ? apart : 0) | 256;

  return (int32_t)(bits & -bits);
}

static void align(form *f, const void *a, const void *b, const void *c) {
  f->align[0] = alignment(f, a, f->batch_a);
  f->align[1] = alignment(f, b, f->batch_b);
  f->align[2] = alignment(f, c, f->m * f->n);
}

/* What products of a call begin with, and what they end with. */
typedef struct task {
  form form;
  const void *bias;
} task;

/* The lock is held. A plan is used by one call at a time. */
static int start(CUstream stream, plan *p, const task *t, const void *a,
                 const void *b, void *c, void *workspace) {
  static const float one32 = 1;
  static const float zero32 = 0;
  static const double one64 = 1;
  static const double zero64 = 0;
  bool f64 = p->form.dtype == TFD_FLOAT64;

  if (adds_bias(p->form.epilogue)) {
    TFD_TRY(
        set(p, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &t->bias, sizeof t->bias));
  }
  return check(lt.cublasLtMatmul(handles[p->form.ordinal], p->product,
                                 f64 ? (const void *)&one64 : &one32, b, p->b,
                                 a, p->a, f64 ? (const void *)&zero64 : &zero32,
                                 c, p->c, c, p->c, &p->algorithm, workspace,
                                 WORKSPACE, stream),
               "matmul");
}

static int multiply(const tfd__call *call, const task *t, const void *a,
                    const void *b, void *c) {
  form f = t->form;
  plan *p = NULL;
  void *workspace = NULL;
  int rc;

  align(&f, a, b, c);
  TFD_TRY(tfd__cuda_workspace(call, WORKSPACE, &workspace));
  pthread_mutex_lock(&lock);
  rc = plan_of(&f, &p);
  if (rc == TFD_OK) {
    rc = start(tfd__cuda_stream(call), p, t, a, b, c, workspace);
  }
  pthread_mutex_unlock(&lock);
  return rc;
}

/* `v` as cuBLASLt takes it, its last axes exchanged if asked. True: that is a
** dense copy, where neither axis's elements are neighbours. */
static bool matrix_like(const tfd__view *v, bool turn, tfd__view *m) {
  int row = v->rank - 2;
  int64_t down = v->strides[row];
  int64_t right = v->strides[row + 1];
  bool copied = (!v->dense && down != 1 && right != 1) || down < 0 ||
                right < 0 || (down != 1 && down < v->dims[row + 1]) ||
                (right != 1 && right < v->dims[row]);

  *m = *v;
  if (copied) (void)tfd__view_set(m, v->dtype, v->dims, v->rank);
  if (turn) {
    int64_t dim = m->dims[row];
    int64_t stride = m->strides[row];

    m->dims[row] = m->dims[row + 1];
    m->strides[row] = m->strides[row + 1];
    m->dims[row + 1] = dim;
    m->strides[row + 1] = stride;
  }
  return copied;
}

static int matrix_of(const tfd__call *call, const tfd__view *v, bool turn,
                     tfd__view *m) {
  if (!matrix_like(v, turn, m)) return TFD_OK;
  TFD_TRY(tfd__cuda_scratch(call, tfd__view_bytes(v), &m->data));
  return tfd__cuda_move(call, v, m->data);
}

/* Stride along batch axis d of the result; 0 where the operand repeats. */
static int64_t batch_stride(const tfd__view *v, const tfd__view *c, int d) {
  int own = d - (c->rank - v->rank);

  if (own < 0 || v->dims[own] == 1) return 0;
  return v->strides[own];
}

/* The leading dimension of a matrix whose rows or columns are neighbours, and
** whether it is stored the other way round. */
static void stored(const tfd__view *m, int64_t *ld_p, int32_t *turn_p) {
  int row = m->rank - 2;
  int64_t rows = m->dims[row];
  int64_t columns = m->dims[row + 1];

  *turn_p = m->strides[row + 1] != 1 && columns != 1;
  *ld_p = *turn_p ? m->strides[row + 1] : m->strides[row];
  if (*turn_p ? columns == 1 : rows == 1) *ld_p = *turn_p ? rows : columns;
  if (*ld_p < (*turn_p ? rows : columns)) *ld_p = *turn_p ? rows : columns;
}

/* The batch's innermost axis goes to cuBLASLt, the others are walked here. */
static int walk(const tfd__call *call, const tfd__view *a, const tfd__view *b,
                const tfd__view *c, const task *t) {
  const form *f = &t->form;
  int64_t size = (int64_t)tfd__dtype_size(c->dtype);
  int axes = c->rank - 2;
  int64_t at[TFD_MAX_RANK] = {0};
  int64_t products = 1;
  int64_t i;
  int d;

  for (d = 0; d < axes - 1; d++) products *= c->dims[d];
  for (i = 0; i < products; i++) {
    int64_t from_a = 0;
    int64_t from_b = 0;

    for (d = 0; d < axes - 1; d++) {
      from_a += at[d] * batch_stride(a, c, d);
      from_b += at[d] * batch_stride(b, c, d);
    }
    TFD_TRY(multiply(call, t, (const char *)a->data + from_a * size,
                     (const char *)b->data + from_b * size,
                     (char *)c->data + i * f->batches * f->m * f->n * size));
    for (d = axes - 2; d >= 0 && ++at[d] == c->dims[d]; d--) at[d] = 0;
  }
  return TFD_OK;
}

/* One product instead of many where b is the same for the whole batch. */
static void fold(tfd__view *a, const tfd__view *b, tfd__view *c) {
  int64_t rows = 1;
  int last = a->rank - 1;
  int i;

  if (b->rank != 2 || c->rank == 2 || a->rank != c->rank || !a->dense) return;
  for (i = 0; i < last; i++) rows *= a->dims[i];
  a->dims[0] = c->dims[0] = rows;
  a->dims[1] = a->dims[last];
  c->dims[1] = c->dims[last];
  a->strides[0] = a->dims[1];
  c->strides[0] = c->dims[1];
  a->strides[1] = c->strides[1] = 1;
  a->rank = c->rank = 2;
}

static void form_of(const tfd__call *call, const tfd__view *a,
                    const tfd__view *b, const tfd__view *c, form *f) {
  int batch = c->rank - 3; /* the innermost axis of it */

  memset(f, 0, sizeof *f);
  f->dtype = c->dtype;
  f->m = c->dims[c->rank - 2];
  f->n = c->dims[c->rank - 1];
  f->k = a->dims[a->rank - 1];
  f->tf32 = c->dtype == TFD_FLOAT32 && tfd__cuda_tf32();
  f->ordinal = tfd__cuda_ordinal(call);
  f->batches = batch >= 0 ? c->dims[batch] : 1;
  f->batch_a = batch >= 0 ? batch_stride(a, c, batch) : 0;
  f->batch_b = batch >= 0 ? batch_stride(b, c, batch) : 0;
  stored(a, &f->lda, &f->turn_a);
  stored(b, &f->ldb, &f->turn_b);
}

static bool turns_a(const tfd__call *call) {
  return (call->ints[0] | call->ints[2]) != 0;
}

static bool turns_b(const tfd__call *call) {
  return (call->ints[1] | call->ints[3]) != 0;
}

/* Does cuBLASLt take it, where it lies if that is known? What goes wrong
** besides is told when it runs. */
static bool takes(const tfd__call *call, int16_t epilogue) {
  tfd__view a;
  tfd__view b;
  tfd__view c = *tfd__out(call, 0);
  plan *p = NULL;
  form f;
  int rc;

  if (c.numel == 0 || tfd__in(call, 0)->numel == 0) return epilogue == 0;
  if (matrix_like(tfd__in(call, 0), turns_a(call), &a)) a.data = NULL;
  if (matrix_like(tfd__in(call, 1), turns_b(call), &b)) b.data = NULL;
  if (!turns_a(call)) fold(&a, &b, &c);
  form_of(call, &a, &b, &c, &f);
  f.epilogue = epilogue;
  align(&f, a.data, b.data, c.data);
  if (f.batches > INT32_MAX) return false;
  if (tfd__cuda_use(f.ordinal) != TFD_OK) return true;
  pthread_mutex_lock(&lock);
  rc = plan_of(&f, &p);
  pthread_mutex_unlock(&lock);
  return rc != TFD_NOT_IMPLEMENTED;
}

static int run(const tfd__call *call, int16_t epilogue, const void *bias) {
  tfd__view a;
  tfd__view b;
  tfd__view c = *tfd__out(call, 0);
  task t = {.bias = bias};

  TFD_TRY(matrix_of(call, tfd__in(call, 0), turns_a(call), &a));
  TFD_TRY(matrix_of(call, tfd__in(call, 1), turns_b(call), &b));
  if (!turns_a(call)) fold(&a, &b, &c);
  form_of(call, &a, &b, &c, &t.form);
  t.form.epilogue = epilogue;
  return walk(call, &a, &b, &c, &t);
}

bool tfd__cuda_has_product(const tfd__call *call) {
  return takes(call, 0);
}

int tfd__cuda_matmul(const tfd__call *call) {
  if (tfd__out(call, 0)->numel == 0) return TFD_OK;
  if (tfd__in(call, 0)->numel == 0) return tfd__cuda_zeros_like(call);
  return run(call, 0, NULL);
}

/* --- products and what follows them --------------------------------------- */

/* cuBLASLt's bias lies along the rows of its column-major result, our last
** axis; its GELU is the one of tanh. 0 = it has none for this. */
static int16_t epilogue_of(const tfd__call *call) {
  bool bias = tfd__has(call, 2);

  switch (call->ints[4]) {
  case TFD_KERNEL_none:
    return bias ? CUBLASLT_EPILOGUE_BIAS : 0;
  case TFD_KERNEL_relu:
    return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  case TFD_KERNEL_gelu_tanh:
    return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : 0;
  default:
    return 0;
  }
}

/* RELU of NaN is NaN, which cuBLASLt does not promise: it is asked with a
** product of NaNs. */
typedef struct question {
  form form; /* TILE by TILE, one */
  size_t bytes;
  CUstream stream;    /* its own: what others wait for is not waited for */
  CUdeviceptr device; /* the workspace, NaNs, the result */
  char *host;         /* the last two */
} question;

static int put(const question *q) {
  CUdeviceptr nans = q->device + WORKSPACE;
  CUdeviceptr result = nans + q->bytes;
  task t = {.bias = (const void *)(uintptr_t)nans};
  plan *p = NULL;
  int rc;

  memset(q->host, 0xFF, q->bytes);
  memset(q->host + q->bytes, 0, q->bytes);
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuMemcpyHtoDAsync(nans, q->host, 2 * q->bytes, q->stream),
      "copying to the GPU"));
  pthread_mutex_lock(&lock);
  rc = plan_of(&q->form, &p);
  if (rc == TFD_OK) {
    rc = start(q->stream, p, &t, t.bias, t.bias, (void *)(uintptr_t)result,
               (void *)(uintptr_t)q->device);
  }
  pthread_mutex_unlock(&lock);
  TFD_TRY(rc);
  return tfd__cuda_check(tfd__cu.cuMemcpyDtoHAsync(q->host + q->bytes, result,
                                                   q->bytes, q->stream),
                         "copying from the GPU");
}

/* Nothing is freed before its stream has run: errors leave that to let_go. */
static int ask(question *q) {
  void *host = NULL;

  TFD_TRY(tfd__cuda_use(q->form.ordinal));
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuStreamCreate(&q->stream, CU_STREAM_NON_BLOCKING),
      "making a stream"));
  TFD_TRY(tfd__cuda_check(tfd__cu.cuMemHostAlloc(&host, 2 * q->bytes, 0),
                          "pinned memory"));
  q->host = host;
  TFD_TRY(tfd__cuda_check(
      tfd__cu.cuMemAllocAsync(&q->device, WORKSPACE + 2 * q->bytes, q->stream),
      "memory of the GPU"));
  TFD_TRY(put(q));
  return tfd__cuda_check(tfd__cu.cuStreamSynchronize(q->stream),
                         "asking cuBLASLt");
}

static void let_go(const question *q) {
  if (q->device != 0) (void)tfd__cu.cuMemFreeAsync(q->device, q->stream);
  if (q->stream != NULL) {
    (void)tfd__cu.cuStreamSynchronize(q->stream);
    (void)tfd__cu.cuStreamDestroy(q->stream);
  }
  if (q->host != NULL) (void)tfd__cu.cuMemFreeHost(q->host);
}

/* The last byte of a NaN ends in these bits. */
static bool is_nan(const question *q) {
  size_t size = tfd__dtype_size(q->form.dtype);
  size_t i;

  for (i = size - 1; i < q->bytes; i += size) {
    if ((q->host[q->bytes + i] & 0x7C) != 0x7C) return false;
  }
  return true;
}

/* Blocks: for a small product, once for each GPU, type and epilogue. Outside
** launches, which may be captured. */
static bool keeps_nan(const tfd__call *call, int16_t epilogue) {
  enum { UNKNOWN, KEEPS, LOSES };
  static atomic_char answers[TFD_CUDA_DEVICES][TFD_DTYPE_END][2][2];
  int dtype = tfd__out(call, 0)->dtype;
  bool tf32 = dtype == TFD_FLOAT32 && tfd__cuda_tf32();
  int ordinal = tfd__cuda_ordinal(call);
  atomic_char *known = &answers[ordinal][dtype][tf32][adds_bias(epilogue)];
  question q = {.form = {.m = TILE,
                         .n = TILE,
                         .k = TILE,
                         .lda = TILE,
                         .ldb = TILE,
                         .batches = 1,
                         .align = {256, 256, 256},
                         .dtype = dtype,
                         .tf32 = tf32,
                         .epilogue = epilogue,
                         .ordinal = ordinal},
                .bytes = TILE * TILE * tfd__dtype_size(dtype)};

  if (atomic_load(known) == UNKNOWN) {
    int rc = ask(&q);
    char answer = rc == TFD_OK && is_nan(&q) ? KEEPS : LOSES;

    let_go(&q);
    if (rc == TFD_RESOURCE_EXHAUSTED) return false; /* another time, perhaps */
    atomic_store(known, answer);
  }
  return atomic_load(known) == KEEPS;
}

static bool can_finish(const tfd__call *call) {
  int16_t epilogue = epilogue_of(call);

  return epilogue != 0 && tfd__out(call, 0)->dtype != TFD_FLOAT64 &&
         takes(call, epilogue) &&
         (call->ints[4] != TFD_KERNEL_relu || keeps_nan(call, epilogue));
}

/* One after the other, in place. */
static int finish_apart(const tfd__call *call) {
  tfd__view views[3] = {*tfd__out(call, 0), *tfd__in(call, 2),
                        *tfd__out(call, 0)};
  int64_t last_axis = 0;
  tfd__call end = *call;

  TFD_TRY(tfd__cuda_matmul(call));
  end.views = views;
  end.ints = &last_axis;
  end.ints_n = 1;
  end.in_n = 2;
  if (tfd__has(call, 2)) TFD_TRY(tfd__cuda_bias_add(&end));
  end.in_n = 1;
  views[1] = views[0];
  switch (call->ints[4]) {
  case TFD_KERNEL_relu:
    return tfd__cuda_relu(&end);
  case TFD_KERNEL_gelu_tanh:
    return tfd__cuda_gelu_tanh(&end);
  default:
    return TFD_OK;
  }
}

static int finish_product(const tfd__call *call) {
  const void *bias = tfd__has(call, 2) ? tfd__in(call, 2)->data : NULL;
  int rc = TFD_NOT_IMPLEMENTED;

  if ((uintptr_t)bias % BIAS_ALIGN == 0) {
    rc = run(call, epilogue_of(call), bias);
  }
  if (rc == TFD_NOT_IMPLEMENTED) rc = finish_apart(call);
  tfd__cuda_free_scratch(call->stream);
  return rc;
}

const tfd__finisher tfd__cuda_finisher = {.can_run = can_finish,
                                          .matmul = finish_product};
