#include <string.h>

#include "backend/cpu/onednn/onednn.h"

/* The last two axes of `v` exchanged when `transpose` is set. */
static tfd__view turned(const tfd__view *v, bool transpose) {
  tfd__view t = *v;
  int row = v->rank - 2;

  if (!transpose) return t;
  t.dims[row] = v->dims[row + 1];
  t.dims[row + 1] = v->dims[row];
  t.strides[row] = v->strides[row + 1];
  t.strides[row + 1] = v->strides[row];
  t.dense = false;
  return t;
}

static int64_t batch_of(const tfd__view *v) {
  int64_t n = 1;

  for (int i = 0; i < v->rank - 2; i++) n *= v->dims[i];
  return n;
}

/* One product instead of many when b is the same for the whole batch and the
** rows of a follow one another: makes a and c matrices. An axis of size 1 says
** nothing about where rows lie. */
static void fold_batch(tfd__view *a, const tfd__view *b, tfd__view *c) {
  int64_t rows = 1;
  int last = a->rank - 1;
  int64_t step = a->strides[last - 1];

  if (c->rank == 2 || a->rank != c->rank || batch_of(b) != 1) return;
  for (int i = last - 1; i >= 0; i--) {
    if (a->dims[i] != c->dims[i]) return;
    if (a->dims[i] == 1) continue;
    if (rows == 1) step = a->strides[i];
    if (a->strides[i] != step * rows) return;
    rows *= a->dims[i];
  }
  a->dims[0] = rows;
  a->strides[0] = step;
  a->dims[1] = a->dims[last];
  a->strides[1] = a->strides[last];
  c->dims[0] = rows;
  c->strides[0] = c->strides[last - 1];
  c->dims[1] = c->dims[last];
  c->strides[1] = 1;
  a->rank = c->rank = 2;
}

static void drop_batch(tfd__view *v) {
  int row = v->rank - 2;

  v->dims[0] = v->dims[row];
  v->dims[1] = v->dims[row + 1];
  v->strides[0] = v->strides[row];
  v->strides[1] = v->strides[row + 1];
  v->rank = 2;
}

/* Element offset of operand v for the batch position `at` of the result. */
static int64_t batch_offset(const tfd__view *v, const tfd__view *c,
                            const int64_t *at) {
  int pad = c->rank - v->rank;
  int64_t offset = 0;

  for (int i = 0; i < v->rank - 2; i++)
    if (v->dims[i] != 1) offset += at[i + pad] * v->strides[i];
  return offset;
}

/* One product for each batch position. */
static int each_batch(const tfd__view *a, const tfd__view *b,
                      const tfd__view *c) {
  int64_t size = (int64_t)tfd__dtype_size(c->dtype);
  int64_t at[TFD_MAX_RANK] = {0};
  int64_t batches = batch_of(c);
  tfd__gemm_args g = {.dtype = c->dtype,
                      .m = c->dims[c->rank - 2],
                      .n = c->dims[c->rank - 1],
                      .k = a->dims[a->rank - 1],
                      .a_row = a->strides[a->rank - 2],
                      .a_col = a->strides[a->rank - 1],
                      .b_row = b->strides[b->rank - 2],
                      .b_col = b->strides[b->rank - 1],
                      .c_row = c->dims[c->rank - 1]};

  for (int64_t done = 0; done < batches; done++) {
    int axis = c->rank - 3;

    g.a = (char *)a->data + batch_offset(a, c, at) * size;
    g.b = (char *)b->data + batch_offset(b, c, at) * size;
    g.c = (char *)c->data + done * g.m * g.n * size;
    TFD_TRY(tfd__gemm(&g));
    while (axis >= 0 && ++at[axis] == c->dims[axis]) at[axis--] = 0;
  }
  return TFD_OK;
}

/* int8, int16 and uint8 go through int32; the low bits are the same. */
static void convert_ints(const tfd__view *from, const tfd__view *to) {
  size_t from_size = tfd__dtype_size(from->dtype);
  const char *in = from->data;
  char *out = to->data;

  for (int64_t i = 0; i < from->numel; i++) {
    if (from->dtype == TFD_INT32) {
      memcpy(out + (size_t)i * tfd__dtype_size(to->dtype),
             in + (size_t)i * from_size, tfd__dtype_size(to->dtype));
    } else {
      int32_t wide =
          (int32_t)tfd__load(in + (size_t)i * from_size, from->dtype);

      memcpy(out + (size_t)i * sizeof wide, &wide, sizeof wide);
    }
  }
}

static int multiply(tfd__view a, tfd__view b, tfd__view c);

static int multiply_small_ints(const tfd__view *a, const tfd__view *b,
                               const tfd__view *c) {
  const tfd__view *from[3] = {a, b, c};
  tfd__view wide[3];

  for (int i = 0; i < 3; i++) {
    tfd__view dense;

    TFD_TRY(tfd__densify(from[i], &dense));
    wide[i] = dense;
    wide[i].dtype = TFD_INT32;
    wide[i].data = tfd__scratch((size_t)dense.numel * sizeof(int32_t) + 1);
    if (wide[i].data == NULL) return TFD_RESOURCE_EXHAUSTED;
    if (i < 2) convert_ints(&dense, &wide[i]);
  }
  TFD_TRY(multiply(wide[0], wide[1], wide[2]));
  convert_ints(&wide[2], c);
  return TFD_OK;
}

static int multiply(tfd__view a, tfd__view b, tfd__view c) {
  int rc = TFD_OK;

  if (a.dims[a.rank - 1] == 0) {
    memset(c.data, 0, tfd__view_bytes(&c));
    return TFD_OK;
  }
  if (c.dtype == TFD_INT8 || c.dtype == TFD_INT16 || c.dtype == TFD_UINT8)
    return multiply_small_ints(&a, &b, &c);
  fold_batch(&a, &b, &c);
  if (c.rank == 2) drop_batch(&b);
  if (c.dtype == TFD_FLOAT32 &&
      c.numel * a.dims[a.rank - 1] > TFD_SMALL_PRODUCT &&
      tfd__dnnl_matmul("matmul", &a, &b, &c, &rc))
    return rc;
  return each_batch(&a, &b, &c);
}

/* Two small matrices: nothing to fold, no views to copy. */
static int multiply_small(const tfd__call *call, bool turn_a, bool turn_b) {
  const tfd__view *a = tfd__in(call, 0);
  const tfd__view *b = tfd__in(call, 1);
  const tfd__view *c = tfd__out(call, 0);
  tfd__gemm_args g = {.dtype = c->dtype,
                      .m = c->dims[0],
                      .n = c->dims[1],
                      .k = a->dims[turn_a ? 0 : 1],
                      .a_row = a->strides[turn_a],
                      .a_col = a->strides[!turn_a],
                      .b_row = b->strides[turn_b],
                      .b_col = b->strides[!turn_b],
                      .c_row = c->dims[1],
                      .a = a->data,
                      .b = b->data,
                      .c = c->data};

  return tfd__gemm(&g);
}

static bool is_small(const tfd__call *call, int64_t k) {
  const tfd__view *c = tfd__out(call, 0);

  return c->rank == 2 && c->dtype == TFD_FLOAT32 && k > 0 &&
         tfd__in(call, 0)->rank == 2 && tfd__in(call, 1)->rank == 2 &&
         c->numel <= TFD_SMALL_PRODUCT && c->numel * k <= TFD_SMALL_PRODUCT;
}

static int multiply_any(const tfd__call *call, bool turn_a, bool turn_b) {
  const tfd__view *c = tfd__out(call, 0);
  tfd__view a = turned(tfd__in(call, 0), turn_a);
  tfd__view b = turned(tfd__in(call, 1), turn_b);
  int rc = TFD_OK;

  if (!tfd__is_half(c->dtype)) return multiply(a, b, *c);
  if (tfd__dnnl_takes(c->dtype) && a.dims[a.rank - 1] > 0 &&
      tfd__dnnl_matmul(call->name, &a, &b, c, &rc))
    return rc;
  return tfd__via_float(call, tfd__cpu_matmul);
}

int tfd__cpu_matmul(const tfd__call *call) {
  const tfd__view *c = tfd__out(call, 0);
  bool turn_a = call->ints[0] || call->ints[2];
  bool turn_b = call->ints[1] || call->ints[3];

  if (c->numel == 0) return TFD_OK;
  if (is_small(call, tfd__in(call, 0)->dims[turn_a ? 0 : 1]))
    return multiply_small(call, turn_a, turn_b);
  return multiply_any(call, turn_a, turn_b);
}

/* --- kept weights --------------------------------------------------------- */

/* The operands as one product of float32 matrices, false if they are none. */
static bool as_matrices(const tfd__call *call, tfd__view v[3]) {
  v[0] = turned(tfd__in(call, 0), call->ints[0] || call->ints[2]);
  v[1] = turned(tfd__in(call, 1), call->ints[1] || call->ints[3]);
  v[2] = *tfd__out(call, 0);
  if (v[2].dtype != TFD_FLOAT32 || v[2].numel == 0) return false;
  fold_batch(&v[0], &v[1], &v[2]);
  if (v[2].rank != 2) return false;
  drop_batch(&v[1]);
  return v[2].numel * v[0].dims[1] > TFD_SMALL_PRODUCT;
}

size_t tfd__cpu_kept_bytes(const tfd__call *call) {
  tfd__view v[3];

  if (!as_matrices(call, v)) return 0;
  return tfd__dnnl_kept_bytes(&v[0], &v[1], &v[2]);
}

int tfd__cpu_matmul_kept(const tfd__call *call) {
  tfd__kept_weight *kept = (tfd__kept_weight *)(uintptr_t)call->ints[4];
  tfd__view v[3];
  int rc = TFD_OK;

  if (kept->data == NULL || !as_matrices(call, v) ||
      !tfd__dnnl_matmul_kept(call->name, &v[0], &v[1], &v[2], kept, &rc))
    return tfd__cpu_matmul(call);
  return rc;
}

/* --- bias ----------------------------------------------------------------- */

typedef struct bias_job {
  const tfd__view *x;
  const tfd__view *bias;
  void *out;
  int64_t run; /* elements that share one bias value */
} bias_job;

/* Rows shorter than this are added several at a time. */
#define BIAS_WIDE 64
#define BIAS_TILE 256

#define BIAS_SUM(T, sum) (T)(sum)
/* Comparing this way round leaves NaN as it is. */
#define BIAS_RELU(T, sum) ((sum) < (T)0 ? (T)0 : (sum))
#define BIAS_ROWS(T, ID, OF)                                                 \
  TFD_CLONES static void bias_##ID(void *arg, int64_t begin, int64_t end) {  \
    const bias_job *job = arg;                                               \
    int64_t n = job->bias->dims[0];                                          \
    const T *bias = job->bias->data;                                         \
                                                                             \
    for (int64_t row = begin; row < end; row++) {                            \
      if (job->run == 1) {                                                   \
        const T *x = (const T *)job->x->data + row * n;                      \
        T *out = (T *)job->out + row * n;                                    \
                                                                             \
        for (int64_t i = 0; i < n; i++) out[i] = OF(T, x[i] + bias[i]);      \
      } else {                                                               \
        const T *x = (const T *)job->x->data + row * job->run;               \
        T *out = (T *)job->out + row * job->run;                             \
        T value = bias[row % n];                                             \
                                                                             \
        for (int64_t i = 0; i < job->run; i++) out[i] = OF(T, x[i] + value); \
      }                                                                      \
    }                                                                        \
  }                                                                          \
  TFD_CLONES static void short_##ID(void *arg, int64_t begin, int64_t end) { \
    const bias_job *job = arg;                                               \
    int64_t n = job->bias->dims[0];                                          \
    int64_t width = BIAS_TILE / n * n;                                       \
    const T *x = (const T *)job->x->data + begin * n;                        \
    T *out = (T *)job->out + begin * n;                                      \
    T tile[BIAS_TILE];                                                       \
                                                                             \
    for (int64_t i = 0; i < width; i++)                                      \
      tile[i] = ((const T *)job->bias->data)[i % n];                         \
    for (int64_t at = 0, all = (end - begin) * n; at < all; at += width) {   \
      int64_t here = all - at < width ? all - at : width;                    \
                                                                             \
      for (int64_t i = 0; i < here; i++)                                     \
        out[at + i] = OF(T, x[at + i] + tile[i]);                            \
    }                                                                        \
  }
BIAS_ROWS(float, f32, BIAS_SUM)
BIAS_ROWS(double, f64, BIAS_SUM)
BIAS_ROWS(uint8_t, u8, BIAS_SUM)
BIAS_ROWS(uint16_t, u16, BIAS_SUM)
BIAS_ROWS(uint32_t, u32, BIAS_SUM)
BIAS_ROWS(uint64_t, u64, BIAS_SUM)
BIAS_ROWS(float, relu_f32, BIAS_RELU)
BIAS_ROWS(double, relu_f64, BIAS_RELU)

typedef void (*bias_loop)(void *, int64_t, int64_t);

static int add_bias(const tfd__call *call, bias_loop wide, bias_loop few) {
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *bias = tfd__in(call, 1);
  bias_job job = {x, bias, tfd__out(call, 0)->data, 1};
  bool first = call->ints[0] == 1; /* channels before space */
  int64_t width = bias->dims[0];
  bias_loop loop = !first && width < BIAS_WIDE ? few : wide;

  if (first) {
    for (int i = 2; i < x->rank; i++) job.run *= x->dims[i];
    if (job.run > 1) width = job.run;
  }
  tfd__parallel_for(x->numel / width, 1 + TFD_GRAIN / width, loop, &job);
  return TFD_OK;
}

#define ADD_BIAS(ID) add_bias(call, bias_##ID, short_##ID)

int tfd__cpu_bias_add(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);

  if (x->numel == 0) return TFD_OK;
  if (tfd__is_half(x->dtype)) return tfd__via_float(call, tfd__cpu_bias_add);
  if (x->dtype == TFD_FLOAT32) return ADD_BIAS(f32);
  if (x->dtype == TFD_FLOAT64) return ADD_BIAS(f64);
  switch (tfd__dtype_size(x->dtype)) {
  case 1:
    return ADD_BIAS(u8);
  case 2:
    return ADD_BIAS(u16);
  case 4:
    return ADD_BIAS(u32);
  default:
    return ADD_BIAS(u64);
  }
}

int tfd__cpu_bias_add_relu(const tfd__call *call) {
  const tfd__view *x = tfd__in(call, 0);

  if (x->numel == 0) return TFD_OK;
  if (tfd__is_half(x->dtype))
    return tfd__via_float(call, tfd__cpu_bias_add_relu);
  return x->dtype == TFD_FLOAT32 ? ADD_BIAS(relu_f32) : ADD_BIAS(relu_f64);
}
