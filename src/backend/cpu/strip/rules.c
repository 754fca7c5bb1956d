/* Which kernels may be part of a program, and for which the register machine
** has steps. */
#include "backend/cpu/strip/program.h"

typedef struct code_rule {
  uint8_t args_n;
  bool takes_truth; /* the first operand; others are floats but for K, K */
  bool gives_truth;
} code_rule;

#define TRUTH_F false
#define TRUTH_K true
static const code_rule rules[TFD_CODE_N] = {
#define OWN(name, from, to, expr) \
  [TFD_CODE_##name] = {1, TRUTH_##from, TRUTH_##to},
#define UNARY OWN
#define BINARY(name, from, to, expr) \
  [TFD_CODE_##name] = {2, TRUTH_##from, TRUTH_##to},
#define TERNARY(name, from, to, expr) \
  [TFD_CODE_##name] = {3, TRUTH_##from, TRUTH_##to},
#include "backend/cpu/strip/ops.def"
#undef OWN
#undef UNARY
#undef BINARY
#undef TERNARY
};

static const uint8_t codes[TFD_KERNEL_N] = {
#define OWN(name, from, to, expr)
#define UNARY(name, from, to, expr) [TFD_KERNEL_##name] = TFD_CODE_##name,
#define BINARY UNARY
#define TERNARY UNARY
#include "backend/cpu/strip/ops.def"
#undef OWN
#undef UNARY
#undef BINARY
#undef TERNARY
};

/* Names of the kernels that may be part of a program; NULL = may not. */
static const char *const names[TFD_KERNEL_N] = {
#define KERNEL(name) [TFD_KERNEL_##name] = #name,
#include "backend/kernels/math.def"
    /* clang-format off */
    KERNEL(copy) KERNEL(relu) KERNEL(relu_grad) KERNEL(relu6)
    KERNEL(relu6_grad) KERNEL(leaky_relu) KERNEL(leaky_relu_grad)
    KERNEL(elu) KERNEL(selu) KERNEL(gelu) KERNEL(gelu_tanh) KERNEL(swish)
    KERNEL(softsign)
/* clang-format on */
#undef KERNEL
};

bool tfd__strip_gives_truth(tfd__strip_code code) {
  return rules[code].gives_truth;
}

bool tfd__strip_takes_truth(tfd__strip_code code) {
  return rules[code].takes_truth;
}

static tfd__strip_code move_or_cast(const uint8_t *dtypes, uint8_t result) {
  bool from_truth = dtypes[0] == TFD_BOOL;
  bool to_truth = result == TFD_BOOL;

  if ((!from_truth && dtypes[0] != TFD_FLOAT32) ||
      (!to_truth && result != TFD_FLOAT32))
    return TFD_CODE_none;
  if (from_truth) return to_truth ? TFD_CODE_move_k : TFD_CODE_from_bool;
  return to_truth ? TFD_CODE_to_bool : TFD_CODE_move;
}

tfd__strip_code tfd__strip_code_of(tfd__kernel_id kernel, int args_n,
                                   const uint8_t *dtypes, uint8_t result) {
  tfd__strip_code code = (tfd__strip_code)codes[kernel];
  const code_rule *r = &rules[code];
  int i;

  if (kernel == TFD_KERNEL_cast || kernel == TFD_KERNEL_copy)
    return move_or_cast(dtypes, result);
  if (code == TFD_CODE_none || r->args_n != args_n) return TFD_CODE_none;
  for (i = 0; i < args_n; i++) {
    bool truth = r->takes_truth && (i == 0 || args_n < TFD_STRIP_ARGS);

    if (dtypes[i] != (truth ? TFD_BOOL : TFD_FLOAT32)) return TFD_CODE_none;
  }
  return code;
}

/* Those whose integer forms raise errors. */
static bool can_fail(tfd__kernel_id kernel) {
  return kernel == TFD_KERNEL_floordiv || kernel == TFD_KERNEL_floormod ||
         kernel == TFD_KERNEL_truncatediv || kernel == TFD_KERNEL_truncatemod ||
         kernel == TFD_KERNEL_pow;
}

bool tfd__strip_takes(tfd__kernel_id kernel, int args_n,
                      const uint8_t *dtypes) {
  bool known = kernel > TFD_KERNEL_none && kernel < TFD_KERNEL_N &&
               names[kernel] != NULL;

  if (!known || args_n < 1 || args_n > TFD_STRIP_ARGS) return false;
  if (kernel == TFD_KERNEL_add_n) return false; /* does not broadcast */
  return !can_fail(kernel) || tfd__is_float(dtypes[0]);
}

const char *tfd__strip_name(tfd__kernel_id kernel) {
  return names[kernel];
}

uint8_t tfd__strip_arg_dtype(const tfd__strip_text *t,
                             const tfd__strip_arg *arg) {
  if (arg->from == TFD_STRIP_INPUT) return t->inputs[arg->index].dtype;
  if (arg->from == TFD_STRIP_RESULT) return t->ops[arg->index].dtype;
  return arg->dtype;
}
