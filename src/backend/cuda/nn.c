/* Host side of softmax and its losses, bias, dropout, optimizers. */
#include <string.h>

#include "backend/cuda/cuda.h"
#include "backend/update_list.h"

enum { WIDE = 2048 }; /* a warp takes longer for such a row than a block */

static int rows(const tfd__call *call, const tfd__view *logits,
                tfd_cu_rows *a) {
  static tfd__cuda_kernels by_warp = {TFD_CUDA_FLOATS("rows", "rows")};
  static tfd__cuda_kernels by_block = {TFD_CUDA_FLOATS("rows", "wide_rows")};
  bool wide = false;
  int64_t blocks = 0;

  a->out = tfd__out(call, 0)->data;
  a->in = logits->data;
  a->width = logits->rank == 0 ? 1 : logits->dims[logits->rank - 1];
  a->rows = a->width == 0 ? 0 : logits->numel / a->width;
  wide = a->width > WIDE;
  blocks = wide ? a->rows : (a->rows + 7) / 8;
  return tfd__cuda_launch(call, &(wide ? by_block : by_warp)[logits->dtype],
                          blocks < 1 << 16 ? blocks : 1 << 16, a, sizeof *a);
}

int tfd__cuda_softmax(const tfd__call *call) {
  tfd_cu_rows a = {.op = TFD_CU_SOFTMAX};

  return rows(call, tfd__in(call, 0), &a);
}

int tfd__cuda_log_softmax(const tfd__call *call) {
  tfd_cu_rows a = {.op = TFD_CU_LOG_SOFTMAX};

  return rows(call, tfd__in(call, 0), &a);
}

int tfd__cuda_softmax_cross_entropy(const tfd__call *call) {
  tfd_cu_rows a = {.op = TFD_CU_LOSS, .labels = tfd__in(call, 0)->data};

  return rows(call, tfd__in(call, 1), &a);
}

static int sparse(const tfd__call *call, int op) {
  const tfd__view *labels = tfd__in(call, 0);
  const tfd__view *logits = tfd__in(call, 1);
  tfd_cu_rows a = {.op = op,
                   .labels = labels->data,
                   .wide_labels = labels->dtype == TFD_INT64};

  if (op == TFD_CU_SPARSE_GRAD) a.grad = tfd__in(call, 2)->data;
  TFD_TRY(tfd__cuda_error_word(call, "labels", labels,
                               logits->dims[logits->rank - 1], &a.error));
  return rows(call, logits, &a);
}

int tfd__cuda_sparse_softmax_cross_entropy(const tfd__call *call) {
  return sparse(call, TFD_CU_SPARSE_LOSS);
}

int tfd__cuda_sparse_softmax_cross_entropy_grad(const tfd__call *call) {
  return sparse(call, TFD_CU_SPARSE_GRAD);
}

/* --- bias ----------------------------------------------------------------- */

static int bias(const tfd__call *call, bool relu) {
  static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("nn", "bias")};
  const tfd__view *x = tfd__in(call, 0);
  const tfd__view *b = tfd__in(call, 1);
  tfd_cu_bias a = {.out = tfd__out(call, 0)->data,
                   .in = x->data,
                   .bias = b->data,
                   .n = x->numel,
                   .channels = b->numel,
                   .inner = 1,
                   .relu = relu};
  int i;

  if (call->ints[0] == 1) { /* NCHW */
    for (i = 2; i < x->rank; i++) a.inner *= x->dims[i];
  }
  return tfd__cuda_launch(call, &kernels[x->dtype], tfd__cuda_blocks(call, a.n),
                          &a, sizeof a);
}

int tfd__cuda_bias_add(const tfd__call *call) {
  return bias(call, false);
}

int tfd__cuda_bias_add_relu(const tfd__call *call) {
  return bias(call, true);
}

/* --- dropout -------------------------------------------------------------- */

int tfd__cuda_dropout(const tfd__call *call) {
  static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("nn", "dropout")};
  const tfd__view *x = tfd__in(call, 0);
  double rate = call->reals[0];
  tfd_cu_dropout a = {
      .out = tfd__out(call, 0)->data,
      .in = x->data,
      .n = x->numel,
      .scale = 1.0 / (1.0 - rate),
      .limit = (uint32_t)(rate * 4294967296.0),
      .key = {(uint32_t)call->ints[0], (uint32_t)call->ints[1]},
      .stream = {(uint32_t)call->ints[2], (uint32_t)call->ints[3]},
  };

  return tfd__cuda_launch(call, &kernels[x->dtype],
                          tfd__cuda_blocks(call, (a.n + 3) / 4), &a, sizeof a);
}

/* --- optimizers ----------------------------------------------------------- */

static int update(const tfd__call *call, int rule, int targets, int rest) {
  static tfd__cuda_kernels kernels = {TFD_CUDA_FLOATS("update", "update")};
  const tfd__view *x = tfd__in(call, 0);
  tfd_cu_update a;
  int i;

  if (tfd__has(call, call->in_n - 1)) {
    return tfd__cuda_update_rows(call, rule, targets, rest);
  }
  memset(&a, 0, sizeof a);
  TFD_TRY(tfd__cuda_stop(call, &a.stop));
  a.targets = targets;
  a.grads = call->in_n - call->out_n - 1;
  a.rule = rule;
  a.n = x->numel;
  for (i = 0; i < targets; i++) {
    a.in[i] = tfd__in(call, i)->data;
    a.out[i] = tfd__out(call, i)->data;
  }
  for (i = 0; i < a.grads; i++) a.grad[i] = tfd__in(call, targets + i)->data;
  for (i = 0; i < call->reals_n && i < TFD_CU_REALS; i++) {
    a.reals[i] = call->reals[i];
  }
  return tfd__cuda_launch(call, &kernels[x->dtype], tfd__cuda_blocks(call, a.n),
                          &a, sizeof a);
}

#define UPDATE(rule, targets, rest)                         \
  int tfd__cuda_update_##rule(const tfd__call *call) {      \
    return update(call, TFD_CU_RULE_##rule, targets, rest); \
  }
TFD_UPDATE_RULES(UPDATE)
