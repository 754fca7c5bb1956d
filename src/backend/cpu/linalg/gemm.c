#include "backend/cpu/linalg/gemm.h"

#include <string.h>

#include "backend/cpu/linalg/lapack.h"
#include "backend/cpu/onednn/onednn.h"
#include "backend/cpu/turn.h"

/* Fused multiply-add where the processor has it: half the instructions, one
** rounding less. oneDNN does the same. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#endif

#define GEMM_T float
#define GEMM_ID(name) name##_f32
#include "backend/cpu/linalg/gemm_body.h"
#undef GEMM_T
#undef GEMM_ID

#define GEMM_T double
#define GEMM_ID(name) name##_f64
#include "backend/cpu/linalg/gemm_body.h"
#undef GEMM_T
#undef GEMM_ID

/* Unsigned: integer products wrap around, whatever the sign. */
#define GEMM_T uint32_t
#define GEMM_ID(name) name##_u32
#include "backend/cpu/linalg/gemm_body.h"
#undef GEMM_T
#undef GEMM_ID

#define GEMM_T uint64_t
#define GEMM_ID(name) name##_u64
#include "backend/cpu/linalg/gemm_body.h"
#undef GEMM_T
#undef GEMM_ID

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/* --- products ------------------------------------------------------------- */

static void clear(const tfd__gemm_args *g) {
  size_t size = tfd__dtype_size(g->dtype);

  if (g->add) return;
  for (int64_t i = 0; i < g->m; i++)
    memset((char *)g->c + (size_t)(i * g->c_row) * size, 0,
           (size_t)g->n * size);
}

int tfd__gemm_plain(const tfd__gemm_args *g) {
  if (g->m == 0 || g->n == 0) return TFD_OK;
  if (g->k == 0) {
    clear(g);
    return TFD_OK;
  }
  switch (g->dtype) {
  case TFD_FLOAT32:
    return run_f32(g);
  case TFD_FLOAT64:
    return run_f64(g);
  case TFD_INT32:
    return run_u32(g);
  case TFD_INT64:
    return run_u64(g);
  default:
    return tfd__fail(TFD_INTERNAL, "gemm: no loop for dtype %s",
                     tfd__dtype_name(g->dtype));
  }
}

int tfd__gemm(const tfd__gemm_args *g) {
  int rc = TFD_OK;

  if (g->dtype == TFD_FLOAT32 && g->m * g->n * g->k > TFD_SMALL_PRODUCT &&
      tfd__dnnl_gemm(g, &rc))
    return rc;
  if (g->dtype == TFD_FLOAT64 && tfd__blas_gemm(g, &rc)) return rc;
  return tfd__gemm_plain(g);
}

/* --- half types ----------------------------------------------------------- */

typedef struct cast_job {
  const void *from;
  void *to;
  int dtype; /* of the half side */
} cast_job;

static void widen_part(void *arg, int64_t begin, int64_t end) {
  const cast_job *job = arg;
  const uint16_t *from = job->from;
  float *to = job->to;

  if (job->dtype == TFD_BFLOAT16) {
    for (int64_t i = begin; i < end; i++) to[i] = tfd__bf16_to_float(from[i]);
  } else {
    for (int64_t i = begin; i < end; i++) to[i] = tfd__half_to_float(from[i]);
  }
}

static void narrow_part(void *arg, int64_t begin, int64_t end) {
  const cast_job *job = arg;
  const float *from = job->from;
  uint16_t *to = job->to;

  if (job->dtype == TFD_BFLOAT16) {
    for (int64_t i = begin; i < end; i++) to[i] = tfd__float_to_bf16(from[i]);
  } else {
    for (int64_t i = begin; i < end; i++) to[i] = tfd__float_to_half(from[i]);
  }
}

void tfd__widen(const void *from, int dtype, float *to, int64_t n) {
  cast_job job = {from, to, dtype};

  tfd__parallel_for(n, TFD_GRAIN, widen_part, &job);
}

void tfd__narrow(const float *from, void *to, int dtype, int64_t n) {
  cast_job job = {from, to, dtype};

  tfd__parallel_for(n, TFD_GRAIN, narrow_part, &job);
}

/* Copy `v` row by row; `at` walks all axes but the last. */
static void copy_rows(const tfd__view *v, char *to) {
  size_t size = tfd__dtype_size(v->dtype);
  int last = v->rank - 1;
  int64_t at[TFD_MAX_RANK] = {0};
  int64_t cols = v->dims[last];
  size_t row_bytes = (size_t)cols * size;

  for (int64_t done = 0; done < v->numel; done += cols) {
    const char *from = v->data;
    int axis = last - 1;

    for (int i = 0; i < last; i++)
      from += at[i] * v->strides[i] * (int64_t)size;
    if (v->strides[last] == 1) {
      memcpy(to, from, row_bytes);
    } else {
      for (int64_t j = 0; j < cols; j++)
        memcpy(to + (size_t)j * size,
               from + j * v->strides[last] * (int64_t)size, size);
    }
    to += row_bytes;
    while (axis >= 0 && ++at[axis] == v->dims[axis]) at[axis--] = 0;
  }
}

int tfd__densify(const tfd__view *v, tfd__view *dense_p) {
  tfd__view dense = *v;

  TFD_TRY(tfd__view_set(&dense, v->dtype, v->dims, v->rank));
  dense.data = tfd__scratch(tfd__view_bytes(v) + 1);
  if (dense.data == NULL) return TFD_RESOURCE_EXHAUSTED;
  if (v->rank == 0) {
    memcpy(dense.data, v->data, tfd__dtype_size(v->dtype));
  } else if (v->numel > 0) {
    copy_rows(v, dense.data);
  }
  *dense_p = dense;
  return TFD_OK;
}

/* A float32 stand-in for `v`, filled when `read`. */
static int stand_in(const tfd__view *v, bool read, tfd__view *wide_p) {
  tfd__view wide = *v;

  if (read && !v->dense) {
    TFD_TRY(tfd__densify(v, &wide));
    v = &wide;
  }
  *wide_p = *v;
  wide_p->dtype = TFD_FLOAT32;
  wide_p->data = tfd__scratch((size_t)v->numel * sizeof(float) + 1);
  if (wide_p->data == NULL) return TFD_RESOURCE_EXHAUSTED;
  if (read) tfd__widen(v->data, v->dtype, wide_p->data, v->numel);
  return TFD_OK;
}

int tfd__via_float(const tfd__call *call, tfd__kernel kernel) {
  int n = call->in_n + call->out_n;
  tfd__view *views = tfd__scratch((size_t)n * sizeof *views);
  tfd__call wide = *call;

  if (views == NULL) return TFD_RESOURCE_EXHAUSTED;
  wide.views = views;
  for (int i = 0; i < n; i++) {
    views[i] = call->views[i];
    if (tfd__is_half(views[i].dtype))
      TFD_TRY(stand_in(&call->views[i], i < call->in_n, &views[i]));
  }
  TFD_TRY(kernel(&wide));
  for (int i = call->in_n; i < n; i++) {
    const tfd__view *v = &call->views[i];

    if (tfd__is_half(v->dtype))
      tfd__narrow(views[i].data, v->data, v->dtype, v->numel);
  }
  return TFD_OK;
}
