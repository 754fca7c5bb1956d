/* Host side of the elementwise kernels: shapes to strides, ops to numbers. */
#include <string.h>

#include "backend/cuda/cuda.h"

static void place(const tfd__call *call, tfd_cu_elementwise *a) {
  int ins = call->in_n < TFD_CU_INS ? call->in_n : TFD_CU_INS;
  tfd__cuda_places at;
  int i;

  tfd__cuda_place(call, ins, &at);
  a->out = tfd__out(call, 0)->data;
  a->n = tfd__out(call, 0)->numel;
  for (i = 0; i < ins; i++) {
    a->in[i] = tfd__in(call, i)->data;
    memcpy(a->strides[i], at.strides[i], sizeof a->strides[i]);
  }
  memcpy(a->dims, at.dims, sizeof a->dims);
  a->rank = at.rank;
  a->scalar = at.scalar;
  a->vector = at.vector;
}

static int run(const tfd__call *call, tfd__cuda_kernel *kernel, int op) {
  tfd_cu_elementwise a;
  int64_t n = tfd__out(call, 0)->numel;

  memset(&a, 0, sizeof a);
  a.op = op;
  if (call->reals_n > 0) a.a = call->reals[0];
  TFD_TRY(tfd__cuda_stop(call, &a.stop));
  place(call, &a);
  if (a.vector != 0 && tfd__is_float(tfd__in(call, 0)->dtype)) n = (n + 3) / 4;
  return tfd__cuda_launch(call, kernel, tfd__cuda_blocks(call, n), &a,
                          sizeof a);
}

static tfd__cuda_kernels unary = {TFD_CUDA_FLOATS("elementwise", "unary"),
                                  TFD_CUDA_INTS("elementwise", "unary")};
static tfd__cuda_kernels binary = {TFD_CUDA_FLOATS("elementwise", "binary"),
                                   TFD_CUDA_INTS("elementwise", "binary")};
static tfd__cuda_kernels test = {TFD_CUDA_FLOATS("elementwise", "test")};
static tfd__cuda_kernels compare = {
    TFD_CUDA_FLOATS("elementwise", "compare"),
    TFD_CUDA_INTS("elementwise", "compare"),
    [TFD_BOOL] = {"elementwise", "compare_u8", {0}}};
static tfd__cuda_kernels clip = {TFD_CUDA_FLOATS("elementwise", "clip"),
                                 TFD_CUDA_INTS("elementwise", "clip")};

static int any(const tfd__call *call, tfd__cuda_kernels kernels, int of_floats,
               int of_ints) {
  int dtype = tfd__in(call, 0)->dtype;

  return run(call, &kernels[dtype], tfd__is_float(dtype) ? of_floats : of_ints);
}

/* Ops that floats and integers have, those that only one kind has. */
#define BOTH(form, letter, name)                     \
  int tfd__cuda_##name(const tfd__call *call) {      \
    return any(call, form, TFD_CU_##letter##_##name, \
               TFD_CU_I##letter##_##name);           \
  }
#define FLOATS(form, letter, name)                        \
  int tfd__cuda_##name(const tfd__call *call) {           \
    return any(call, form, TFD_CU_##letter##_##name, -1); \
  }
#define INTS(form, letter, name)                           \
  int tfd__cuda_##name(const tfd__call *call) {            \
    return any(call, form, -1, TFD_CU_I##letter##_##name); \
  }
#define ALL(form, letter, name)                      \
  int tfd__cuda_##name(const tfd__call *call) {      \
    return run(call, &form[tfd__in(call, 0)->dtype], \
               TFD_CU_##letter##_##name);            \
  }

BOTH(unary, U, abs)
BOTH(unary, U, negative)
BOTH(unary, U, square)
BOTH(unary, U, sign)
BOTH(unary, U, relu)
BOTH(unary, U, relu6)
INTS(unary, U, invert)
/* Of bytes that are 0 or 1. */
int tfd__cuda_logical_not(const tfd__call *call) {
  return run(call, &unary[TFD_UINT8], TFD_CU_IU_logical_not);
}
#define UNARY(name) FLOATS(unary, U, name)
UNARY(reciprocal)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(exp)
UNARY(expm1)
UNARY(log)
UNARY(log1p)
UNARY(sin)
UNARY(cos)
UNARY(tan)
UNARY(asin)
UNARY(acos)
UNARY(atan)
UNARY(sinh)
UNARY(cosh)
UNARY(tanh)
UNARY(asinh)
UNARY(acosh)
UNARY(atanh)
UNARY(erf)
UNARY(erfc)
UNARY(sigmoid)
UNARY(softplus)
UNARY(log_sigmoid)
UNARY(ceil)
UNARY(floor)
UNARY(rint)
UNARY(leaky_relu)
UNARY(elu)
UNARY(selu)
UNARY(gelu)
UNARY(gelu_tanh)
UNARY(swish)
UNARY(softsign)

BOTH(binary, B, add)
BOTH(binary, B, subtract)
BOTH(binary, B, multiply)
BOTH(binary, B, maximum)
BOTH(binary, B, minimum)
BOTH(binary, B, squared_difference)
BOTH(binary, B, relu_grad)
BOTH(binary, B, relu6_grad)
INTS(binary, B, bitwise_and)
INTS(binary, B, bitwise_or)
INTS(binary, B, bitwise_xor)
INTS(binary, B, left_shift)
INTS(binary, B, right_shift)
#define BINARY(name) FLOATS(binary, B, name)
BINARY(divide)
BINARY(divide_no_nan)
BINARY(floordiv)
BINARY(truncatediv)
BINARY(floormod)
BINARY(truncatemod)
BINARY(pow)
BINARY(atan2)
BINARY(multiply_no_nan)
BINARY(xdivy)
BINARY(xlogy)
BINARY(xlog1py)
BINARY(tanh_grad)
BINARY(sigmoid_grad)
BINARY(leaky_relu_grad)

FLOATS(test, T, is_nan)
FLOATS(test, T, is_inf)
FLOATS(test, T, is_finite)

ALL(compare, C, equal)
ALL(compare, C, not_equal)
ALL(compare, C, less)
ALL(compare, C, less_equal)
ALL(compare, C, greater)
ALL(compare, C, greater_equal)
ALL(compare, C, logical_and)
ALL(compare, C, logical_or)
ALL(compare, C, logical_xor)

int tfd__cuda_clip_by_value(const tfd__call *call) {
  return run(call, &clip[tfd__in(call, 0)->dtype], 0);
}

int tfd__cuda_select(const tfd__call *call) {
  static tfd__cuda_kernel by_size[9] = {[1] = {"elementwise", "select_1", {0}},
                                        [2] = {"elementwise", "select_2", {0}},
                                        [4] = {"elementwise", "select_4", {0}},
                                        [8] = {"elementwise", "select_8", {0}}};

  return run(call, &by_size[tfd__dtype_size(tfd__out(call, 0)->dtype)], 0);
}

int tfd__cuda_add_n(const tfd__call *call) {
  static tfd__cuda_kernels sums = {TFD_CUDA_FLOATS("elementwise", "add_n"),
                                   TFD_CUDA_INTS("elementwise", "add_n")};
  const tfd__view *out = tfd__out(call, 0);
  tfd_cu_sum a = {.out = out->data, .n = out->numel};
  int i = 0;

  do { /* what there is so far comes first in the next launch */
    for (; i < call->in_n && a.ins < TFD_CU_SUMMANDS; i++) {
      a.in[a.ins++] = tfd__in(call, i)->data;
    }
    TFD_TRY(tfd__cuda_launch(call, &sums[out->dtype],
                             tfd__cuda_blocks(call, a.n), &a, sizeof a));
    a.in[0] = out->data;
    a.ins = 1;
  } while (i < call->in_n);
  return TFD_OK;
}

/* --- special functions ---------------------------------------------------- */

#define SPECIAL(op, inputs)                                               \
  int tfd__cuda_##op(const tfd__call *call) {                             \
    static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("special", #op)}; \
                                                                          \
    return run(call, &kernels[tfd__in(call, 0)->dtype], 0);               \
  }
TFD_CU_SPECIALS(SPECIAL)
