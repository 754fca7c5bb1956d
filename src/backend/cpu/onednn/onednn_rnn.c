#include "backend/cpu/nn/recurrent_cpu.h"

enum { PLAN_RNN = 32 };

/* Memory descriptions of every operand. */
typedef struct rnn_mds {
  dnnl_memory_desc_t layer_in;  /* t n c */
  dnnl_memory_desc_t layer_out; /* t n units */
  dnnl_memory_desc_t state;     /* layers directions n units */
  dnnl_memory_desc_t w;         /* layers directions in gates units */
  dnnl_memory_desc_t u;
  dnnl_memory_desc_t any_w;
  dnnl_memory_desc_t any_u;
  dnnl_memory_desc_t bias;
} rnn_mds;

static bool dense(dnnl_memory_desc_t *md, int rank, const int64_t *dims) {
  int64_t strides[5];
  int64_t step = 1;

  for (int i = rank - 1; i >= 0; i--) {
    strides[i] = step;
    step *= dims[i];
  }
  return tfd__dnnl_md(md, TFD_FLOAT32, rank, dims, strides);
}

static bool describe(const tfd__recurrent *r, rnn_mds *m) {
  int64_t w[5] = {1, 1, r->depth, r->gates, r->units};
  int64_t u[5] = {1, 1, r->units, r->gates, r->units};

  return dense(&m->layer_in, 3, (int64_t[]){r->steps, r->batch, r->depth}) &&
         dense(&m->layer_out, 3, (int64_t[]){r->steps, r->batch, r->units}) &&
         dense(&m->state, 4, (int64_t[]){1, 1, r->batch, r->units}) &&
         dense(&m->w, 5, w) && dense(&m->u, 5, u) &&
         tfd__dnnl_md_any(&m->any_w, TFD_FLOAT32, 5, w) &&
         tfd__dnnl_md_any(&m->any_u, TFD_FLOAT32, 5, u) &&
         dense(&m->bias, 4, (int64_t[]){1, 1, 4, r->units});
}

static bool init_forward(const tfd__rnn *rnn, const rnn_mds *m,
                         dnnl_rnn_desc_t *desc) {
  dnnl_prop_kind_t kind =
      rnn->training ? dnnl_forward_training : dnnl_forward_inference;
  dnnl_rnn_direction_t way = dnnl_unidirectional_left2right;

  if (rnn->r.gates == 4)
    return dnnl_lstm_forward_desc_init(desc, kind, way, &m->layer_in, &m->state,
                                       &m->state, &m->any_w, &m->any_u,
                                       &m->bias, &m->layer_out, &m->state,
                                       &m->state, 0) == dnnl_success;
  return dnnl_lbr_gru_forward_desc_init(
             desc, kind, way, &m->layer_in, &m->state, &m->any_w, &m->any_u,
             &m->bias, &m->layer_out, &m->state, 0) == dnnl_success;
}

static bool init_backward(const tfd__rnn *rnn, const rnn_mds *m,
                          dnnl_rnn_desc_t *desc) {
  dnnl_rnn_direction_t way = dnnl_unidirectional_left2right;

  if (rnn->r.gates == 4)
    return dnnl_lstm_backward_desc_init(
               desc, dnnl_backward, way, &m->layer_in, &m->state, &m->state,
               &m->any_w, &m->any_u, &m->bias, &m->layer_out, &m->state,
               &m->state, &m->layer_in, &m->state, &m->state, &m->w, &m->u,
               &m->bias, &m->layer_out, &m->state, &m->state,
               0) == dnnl_success;
  return dnnl_lbr_gru_backward_desc_init(
             desc, dnnl_backward, way, &m->layer_in, &m->state, &m->any_w,
             &m->any_u, &m->bias, &m->layer_out, &m->state, &m->layer_in,
             &m->state, &m->w, &m->u, &m->bias, &m->layer_out, &m->state,
             0) == dnnl_success;
}

/* All arguments in operand order; LSTM-only ones are left out for GRU, the
** backward ones for forward plans. Returns how many. */
static int list_args(const tfd__rnn *rnn, const rnn_mds *m,
                     tfd__dnnl_arg args[RNN_OPERANDS]) {
  bool fwd = !rnn->backward;
  const tfd__dnnl_arg all[RNN_OPERANDS] = {
      {DNNL_ARG_SRC_LAYER, RNN_X, false, &m->layer_in},
      {DNNL_ARG_SRC_ITER, RNN_H0, false, &m->state},
      {DNNL_ARG_SRC_ITER_C, RNN_C0, false, &m->state},
      {DNNL_ARG_WEIGHTS_LAYER, RNN_W, false, &m->w},
      {DNNL_ARG_WEIGHTS_ITER, RNN_U, false, &m->u},
      {DNNL_ARG_BIAS, RNN_BIAS, false, &m->bias},
      {DNNL_ARG_DST_LAYER, RNN_SEQUENCE, fwd, &m->layer_out},
      {DNNL_ARG_DST_ITER, RNN_H, fwd, &m->state},
      {DNNL_ARG_DST_ITER_C, RNN_C, fwd, &m->state},
      {DNNL_ARG_WORKSPACE, RNN_WORKSPACE, fwd, NULL},
      {DNNL_ARG_DIFF_DST_LAYER, RNN_DSEQUENCE, false, &m->layer_out},
      {DNNL_ARG_DIFF_DST_ITER, RNN_DH, false, &m->state},
      {DNNL_ARG_DIFF_DST_ITER_C, RNN_DC, false, &m->state},
      {DNNL_ARG_DIFF_SRC_LAYER, RNN_DX, true, &m->layer_in},
      {DNNL_ARG_DIFF_WEIGHTS_LAYER, RNN_DW, true, &m->w},
      {DNNL_ARG_DIFF_WEIGHTS_ITER, RNN_DU, true, &m->u},
      {DNNL_ARG_DIFF_BIAS, RNN_DBIAS, true, &m->bias},
      {DNNL_ARG_DIFF_SRC_ITER, RNN_DH0, true, &m->state},
      {DNNL_ARG_DIFF_SRC_ITER_C, RNN_DC0, true, &m->state}};
  int last = rnn->backward ? RNN_OPERANDS : RNN_DSEQUENCE;
  int n = 0;

  for (int i = 0; i < last; i++) {
    bool cell = i == RNN_C0 || i == RNN_C || i == RNN_DC || i == RNN_DC0;

    if (cell && rnn->r.gates != 4) continue;
    if (i == RNN_WORKSPACE && !rnn->training) continue;
    args[n++] = all[i];
  }
  return n;
}

static bool build(tfd__dnnl_plan *plan, const void *arg) {
  const tfd__rnn *rnn = arg;
  tfd__dnnl_arg args[RNN_OPERANDS];
  dnnl_rnn_desc_t forward;
  dnnl_rnn_desc_t backward;
  dnnl_primitive_desc_t hint = NULL;
  rnn_mds m;
  bool ok = false;
  int n = 0;

  if (!describe(&rnn->r, &m) || !init_forward(rnn, &m, &forward)) return false;
  n = list_args(rnn, &m, args);
  /* oneDNN calls its product-based cells "ref"; they are the fast ones. */
  if (!rnn->backward)
    return tfd__dnnl_add(plan, &forward, NULL, args, n, "ref");
  if (!init_backward(rnn, &m, &backward)) return false;
  hint = tfd__dnnl_describe(&forward, NULL);
  if (hint == NULL) return false;
  ok = tfd__dnnl_add(plan, &backward, hint, args, n, "ref");
  dnnl_primitive_desc_destroy(hint);
  return ok;
}

static bool run(tfd__rnn *rnn, int *rc_p) {
  const tfd__recurrent *r = &rnn->r;
  tfd__dnnl_key key;
  tfd__dnnl_plan *plan = NULL;

  tfd__dnnl_key_start(&key, PLAN_RNN);
  tfd__dnnl_key_add(&key, rnn->training * 2 + rnn->backward);
  tfd__dnnl_key_add(&key, r->steps);
  tfd__dnnl_key_add(&key, r->batch);
  tfd__dnnl_key_add(&key, r->depth);
  tfd__dnnl_key_add(&key, r->units);
  tfd__dnnl_key_add(&key, r->gates);
  plan = tfd__dnnl_plan_for(&key, build, rnn, rc_p);
  if (plan == NULL) return *rc_p != TFD_OK;
  if (rnn->training &&
      tfd__dnnl_external_bytes(plan, RNN_WORKSPACE) > rnn->workspace_bytes)
    return false;
  *rc_p = tfd__dnnl_run(plan, rnn->name, rnn->at);
  return true;
}

/* Steps follow each other: each is a product of its own. */
#define SHARED_STEP (1 << 18) /* multiply-adds */

bool tfd__dnnl_recurrent(tfd__rnn *rnn, int *rc_p) {
  const tfd__recurrent *r = &rnn->r;
  int threads = tfd__dnnl_begin_alone(
      (int64_t)r->batch * r->units * r->units * r->gates, SHARED_STEP);
  bool found = run(rnn, rc_p);

  tfd__dnnl_end_alone(threads);
  return found;
}
