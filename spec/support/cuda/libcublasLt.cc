/* cuBLASLt without a GPU: products in plain loops, in stream order. TF32 rounds
** the inputs' mantissas to 10 bits, so that a wrong choice of it shows. An
** algorithm takes matrices that are aligned as was said when it was chosen. An
** epilogue computes on the sums in float32, before they get the result's type. */
#include <cublasLt.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "standin.h"

namespace {

struct product {
  cublasComputeType_t compute;
  int32_t turn[2];
  cublasLtEpilogue_t epilogue;
  const void *bias; /* one element for each row of d, of d's type */
};

struct layout {
  cudaDataType type;
  uint64_t rows;
  uint64_t columns;
  int64_t ld;
  int32_t batches;
  int64_t batch_stride;
};

/* Of a, b, c, d, in bytes. */
struct wish {
  uint32_t align[4];
};

double at(const void *data, cudaDataType type, int64_t i) {
  switch (type) {
  case CUDA_R_64F:
    return ((const double *)data)[i];
  case CUDA_R_16F:
    return (double)__half2float(((const __half *)data)[i]);
  case CUDA_R_16BF:
    return (double)__bfloat162float(((const __nv_bfloat16 *)data)[i]);
  default:
    return (double)((const float *)data)[i];
  }
}

void set(void *data, cudaDataType type, int64_t i, double x) {
  switch (type) {
  case CUDA_R_64F:
    ((double *)data)[i] = x;
    break;
  case CUDA_R_16F:
    ((__half *)data)[i] = __double2half(x);
    break;
  case CUDA_R_16BF:
    ((__nv_bfloat16 *)data)[i] = __double2bfloat16(x);
    break;
  default:
    ((float *)data)[i] = (float)x;
  }
}

double rounded(double x, bool tf32) {
  return tf32 ? tfd_standin_tf32(x) : x;
}

/* Element (i, j) of a column-major operand after its transposition. */
int64_t place(const layout *l, bool turn, int64_t i, int64_t j) {
  return turn ? j + i * l->ld : i + j * l->ld;
}

/* What becomes of a sum in this row of d. */
double finished(const product &p, cudaDataType type, int64_t row, double sum) {
  float x = (float)sum;

  if (p.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return sum;
  if ((p.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
    x += (float)at(p.bias, type, row);
  }
  switch (p.epilogue & ~CUBLASLT_EPILOGUE_BIAS) {
  case CUBLASLT_EPILOGUE_RELU:
    return (tfd_standin_refuses("nan") ? !(x > 0) : x < 0) ? 0 : x;
  case CUBLASLT_EPILOGUE_GELU:
    return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  default:
    return x;
  }
}

bool has_no_bias(const product *p) {
  return (p->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 && p->bias == nullptr;
}

bool is_known(cublasLtEpilogue_t e) {
  return e == CUBLASLT_EPILOGUE_DEFAULT || e == CUBLASLT_EPILOGUE_BIAS ||
         e == CUBLASLT_EPILOGUE_RELU || e == CUBLASLT_EPILOGUE_RELU_BIAS ||
         e == CUBLASLT_EPILOGUE_GELU_BIAS;
}

struct job {
  product p;
  layout a;
  layout b;
  layout d;
  const char *from_a;
  const char *from_b;
  char *to;
  double alpha;
};

size_t size_of(cudaDataType type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

void run(const job &j) {
  int64_t m = (int64_t)j.d.rows;
  int64_t n = (int64_t)j.d.columns;
  bool ta = j.p.turn[0] != CUBLAS_OP_N;
  bool tb = j.p.turn[1] != CUBLAS_OP_N;
  int64_t k = (int64_t)(ta ? j.a.rows : j.a.columns);
  bool tf32 = j.p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  size_t size = size_of(j.d.type);

  for (int64_t z = 0; z < j.d.batches; z++) {
    const void *a = j.from_a + z * j.a.batch_stride * (int64_t)size;
    const void *b = j.from_b + z * j.b.batch_stride * (int64_t)size;
    void *d = j.to + z * j.d.batch_stride * (int64_t)size;

    for (int64_t col = 0; col < n; col++) {
      for (int64_t row = 0; row < m; row++) {
        double sum = 0;

        for (int64_t i = 0; i < k; i++) {
          sum += rounded(at(a, j.a.type, place(&j.a, ta, row, i)), tf32) *
                 rounded(at(b, j.b.type, place(&j.b, tb, i, col)), tf32);
        }
        set(d, j.d.type, row + col * j.d.ld,
            finished(j.p, j.d.type, row, j.alpha * sum));
      }
    }
  }
}

bool wants_less_than(const wish *w, uint32_t bytes) {
  for (uint32_t align : w->align) {
    if (align < bytes) return true;
  }
  return false;
}

bool is_aligned(const void *data, const layout &l, uint64_t bytes) {
  uint64_t apart = (uint64_t)l.batch_stride * size_of(l.type);

  return ((uint64_t)data | (l.batches > 1 ? apart : 0)) % bytes == 0;
}

} // namespace

#define API extern "C" __attribute__((visibility("default"))) cublasStatus_t

extern "C" {
const int tfd_standin = 1;
__attribute__((visibility("default"))) const char *
cublasLtGetStatusString(cublasStatus_t) {
  return "refused by the stand-in";
}
}

API cublasLtCreate(cublasLtHandle_t *handle) {
  *handle = (cublasLtHandle_t)calloc(1, 1);
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                             cublasComputeType_t compute, cudaDataType_t) {
  *desc = (cublasLtMatmulDesc_t) new product{
      compute, {0, 0}, CUBLASLT_EPILOGUE_DEFAULT, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete (product *)desc;
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                   cublasLtMatmulDescAttributes_t which,
                                   const void *value, size_t bytes) {
  product *p = (product *)desc;
  void *to = nullptr;
  size_t size = sizeof(int32_t);

  switch (which) {
  case CUBLASLT_MATMUL_DESC_TRANSA:
  case CUBLASLT_MATMUL_DESC_TRANSB:
    to = &p->turn[which == CUBLASLT_MATMUL_DESC_TRANSB];
    break;
  case CUBLASLT_MATMUL_DESC_EPILOGUE:
    to = &p->epilogue;
    break;
  case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    to = &p->bias;
    size = sizeof p->bias;
    break;
  default:
    break;
  }
  if (to == nullptr || bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *desc, cudaDataType type,
                               uint64_t rows, uint64_t columns, int64_t ld) {
  if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
  *desc = (cublasLtMatrixLayout_t) new layout{type, rows, columns, ld, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t desc) {
  delete (layout *)desc;
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t desc,
                                     cublasLtMatrixLayoutAttribute_t which,
                                     const void *value, size_t bytes) {
  layout *l = (layout *)desc;

  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == 4) {
    memcpy(&l->batches, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == 8) {
    memcpy(&l->batch_stride, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

API cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *desc) {
  *desc = (cublasLtMatmulPreference_t) new wish{{256, 256, 256, 256}};
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t desc) {
  delete (wish *)desc;
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t desc, cublasLtMatmulPreferenceAttributes_t which,
    const void *value, size_t) {
  static const cublasLtMatmulPreferenceAttributes_t of[4] = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};

  for (int i = 0; i < 4; i++) {
    if (which == of[i]) ((wish *)desc)->align[i] = *(const uint32_t *)value;
  }
  return CUBLAS_STATUS_SUCCESS;
}

/* Shapes are checked here, where the real one does it too. */
API cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a_,
    cublasLtMatrixLayout_t b_, cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t d_, cublasLtMatmulPreference_t w, int,
    cublasLtMatmulHeuristicResult_t found[], int *n) {
  const product *p = (const product *)desc;
  const layout *a = (const layout *)a_;
  const layout *b = (const layout *)b_;
  const layout *d = (const layout *)d_;
  bool ta = p->turn[0] != CUBLAS_OP_N;
  bool tb = p->turn[1] != CUBLAS_OP_N;

  if ((ta ? a->columns : a->rows) != d->rows ||
      (tb ? b->rows : b->columns) != d->columns ||
      (ta ? a->rows : a->columns) != (tb ? b->columns : b->rows) ||
      a->batches != d->batches || b->batches != d->batches) {
    *n = 0;
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      (!is_known(p->epilogue) || d->type == CUDA_R_64F ||
       tfd_standin_refuses("epilogues"))) {
    *n = 0;
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (has_no_bias(p)) {
    *n = 0;
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (tfd_standin_refuses("products") ||
      (tfd_standin_refuses("unaligned") &&
       wants_less_than((const wish *)w, 16))) {
    *n = 0;
    return CUBLAS_STATUS_SUCCESS;
  }
  memset(found, 0, sizeof *found);
  memcpy(found->algo.data, w, sizeof(wish));
  *n = 1;
  return CUBLAS_STATUS_SUCCESS;
}

API cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                   const void *alpha, const void *a, cublasLtMatrixLayout_t la,
                   const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                   const void *c, cublasLtMatrixLayout_t lc, void *d,
                   cublasLtMatrixLayout_t ld, const cublasLtMatmulAlgo_t *algo,
                   void *, size_t, cudaStream_t stream) {
  const wish *told = (const wish *)algo->data;
  const product *p = (const product *)desc;
  bool wide = p->compute == CUBLAS_COMPUTE_64F;
  double one = wide ? *(const double *)alpha : *(const float *)alpha;
  double keep = wide ? *(const double *)beta : *(const float *)beta;
  job j = {*p,
           *(const layout *)la,
           *(const layout *)lb,
           *(const layout *)ld,
           (const char *)a,
           (const char *)b,
           (char *)d,
           one};

  if (keep != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((p->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 &&
      !tfd_standin_is_device(p->bias, j.d.rows * size_of(j.d.type))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!is_aligned(a, j.a, told->align[0]) ||
      !is_aligned(b, j.b, told->align[1]) ||
      !is_aligned(c, *(const layout *)lc, told->align[2]) ||
      !is_aligned(d, j.d, told->align[3])) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  tfd_standin_enqueue((CUstream)stream, [=] { run(j); });
  return CUBLAS_STATUS_SUCCESS;
}
