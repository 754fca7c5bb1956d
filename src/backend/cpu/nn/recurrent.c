/* LSTM and GRU (reset after the product) fused over time. */
#include <math.h>
#include <string.h>

#include "backend/cpu/nn/recurrent_cpu.h"

#define RNN_T float
#define RNN_DTYPE TFD_FLOAT32
#define RNN_EXP expf
#define RNN_TANH tanhf
#define RNN_ID(name) name##_f32
#include "backend/cpu/nn/recurrent_body.h"
#undef RNN_T
#undef RNN_DTYPE
#undef RNN_EXP
#undef RNN_TANH
#undef RNN_ID

#define RNN_T double
#define RNN_DTYPE TFD_FLOAT64
#define RNN_EXP exp
#define RNN_TANH tanh
#define RNN_ID(name) name##_f64
#include "backend/cpu/nn/recurrent_body.h"
#undef RNN_T
#undef RNN_DTYPE
#undef RNN_EXP
#undef RNN_TANH
#undef RNN_ID

int tfd__rnn_plain(tfd__rnn *rnn) {
  if (rnn->dtype == TFD_FLOAT64)
    return rnn->backward ? backward_f64(rnn) : forward_f64(rnn);
  return rnn->backward ? backward_f32(rnn) : forward_f32(rnn);
}

/* --- operands ------------------------------------------------------------- */

static void *zeros(size_t bytes) {
  void *p = tfd__scratch(bytes + 1);

  if (p != NULL) memset(p, 0, bytes);
  return p;
}

/* Stand-ins for absent states, biases and gradients. */
static int fill_absent(tfd__rnn *rnn) {
  const tfd__recurrent *r = &rnn->r;
  size_t size = tfd__dtype_size(rnn->dtype);
  size_t state = (size_t)(r->batch * r->units) * size;
  int last = rnn->backward ? RNN_DC : RNN_BIAS;

  for (int i = 0; i <= last; i++) {
    size_t bytes = state;

    if (rnn->at[i] != NULL || (i >= RNN_SEQUENCE && i <= RNN_WORKSPACE))
      continue;
    if (i == RNN_BIAS) bytes = (size_t)(8 * r->units) * size;
    if (i == RNN_DSEQUENCE) bytes = state * (size_t)r->steps;
    rnn->at[i] = zeros(bytes);
    if (rnn->at[i] == NULL) return TFD_RESOURCE_EXHAUSTED;
  }
  return TFD_OK;
}

/* oneDNN adds up the GRU's two biases of the update and reset gates. */
static float *joined_bias(const tfd__rnn *rnn) {
  int64_t n = rnn->r.units;
  const float *from = rnn->at[RNN_BIAS];
  float *to = tfd__scratch((size_t)(4 * n) * sizeof *to + 1);

  if (to == NULL) return NULL;
  for (int64_t j = 0; j < 2 * n; j++) to[j] = from[j] + from[3 * n + j];
  memcpy(to + 2 * n, from + 2 * n, (size_t)n * sizeof *to);
  memcpy(to + 3 * n, from + 5 * n, (size_t)n * sizeof *to);
  return to;
}

static void split_bias(const tfd__rnn *rnn, const float *from, float *to) {
  int64_t n = rnn->r.units;

  memcpy(to, from, (size_t)(3 * n) * sizeof *to);
  memcpy(to + 3 * n, from, (size_t)(2 * n) * sizeof *to);
  memcpy(to + 5 * n, from + 3 * n, (size_t)n * sizeof *to);
}

/* oneDNN adds to the gradients of weights and biases: clear them first. */
static void clear_gradients(const tfd__rnn *rnn) {
  const tfd__recurrent *r = &rnn->r;
  size_t row = (size_t)(r->gates * r->units) * sizeof(float);

  memset(rnn->at[RNN_DW], 0, (size_t)r->depth * row);
  memset(rnn->at[RNN_DU], 0, (size_t)r->units * row);
  memset(rnn->at[RNN_DBIAS], 0, (size_t)(4 * r->units) * sizeof(float));
}

static bool run_onednn(tfd__rnn *rnn, int *rc_p) {
  void *bias = rnn->at[RNN_BIAS];
  void *dbias = rnn->at[RNN_DBIAS];
  bool gru = rnn->r.gates == 3;
  bool taken = false;

  if (rnn->dtype != TFD_FLOAT32 || rnn->r.steps * rnn->r.batch == 0 ||
      rnn->r.depth * rnn->r.units == 0)
    return false;
  if (gru) {
    rnn->at[RNN_BIAS] = joined_bias(rnn);
    if (rnn->backward)
      rnn->at[RNN_DBIAS] =
          tfd__scratch((size_t)(4 * rnn->r.units) * sizeof(float));
    if (rnn->at[RNN_BIAS] == NULL ||
        (rnn->backward && rnn->at[RNN_DBIAS] == NULL)) {
      *rc_p = TFD_RESOURCE_EXHAUSTED;
      return true;
    }
  }
  if (rnn->backward) clear_gradients(rnn);
  taken = tfd__dnnl_recurrent(rnn, rc_p);
  if (taken && *rc_p == TFD_OK && gru && rnn->backward)
    split_bias(rnn, rnn->at[RNN_DBIAS], dbias);
  rnn->at[RNN_BIAS] = bias;
  rnn->at[RNN_DBIAS] = dbias;
  return taken;
}

static void set_sizes(const tfd__view *x, const tfd__view *recurrent,
                      int64_t gates, tfd__rnn *rnn) {
  rnn->dtype = x->dtype;
  rnn->r = (tfd__recurrent){x->dims[0], x->dims[1], x->dims[2],
                            recurrent->dims[0], gates};
}

/* --- forward -------------------------------------------------------------- */

/* Outputs: sequence, h, [c,] workspace. */
static int run_forward(tfd__rnn *rnn, const tfd__view *workspace) {
  int64_t *header = workspace->data;
  int rc = TFD_OK;

  rnn->training = workspace->numel > 0;
  TFD_TRY(fill_absent(rnn));
  if (rnn->training) {
    memset(header, 0, TFD_WORKSPACE_HEADER);
    rnn->at[RNN_WORKSPACE] = (char *)workspace->data + TFD_WORKSPACE_HEADER;
    rnn->workspace_bytes = (size_t)workspace->numel - TFD_WORKSPACE_HEADER;
  }
  if (run_onednn(rnn, &rc)) {
    if (rnn->training) header[0] = TFD_WORKSPACE_ONEDNN;
    return rc;
  }
  if (rnn->training) {
    header[0] = TFD_WORKSPACE_PLAIN;
  } else {
    rnn->at[RNN_WORKSPACE] =
        tfd__scratch((size_t)(5 * rnn->r.steps * rnn->r.batch * rnn->r.units) *
                         tfd__dtype_size(rnn->dtype) +
                     1);
    if (rnn->at[RNN_WORKSPACE] == NULL) return TFD_RESOURCE_EXHAUSTED;
  }
  return tfd__rnn_plain(rnn);
}

/* What both kinds begin with. */
static void set_inputs(const tfd__call *call, int64_t gates, tfd__rnn *rnn) {
  static const tfd__rnn_operand in[] = {RNN_X, RNN_W, RNN_U, RNN_BIAS, RNN_H0};

  set_sizes(tfd__in(call, 0), tfd__in(call, 2), gates, rnn);
  for (int i = 0; i < 5; i++) rnn->at[in[i]] = tfd__in(call, i)->data;
}

int tfd__cpu_lstm(const tfd__call *call) {
  tfd__rnn rnn = {.name = call->name};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_lstm);
  set_inputs(call, 4, &rnn);
  rnn.at[RNN_C0] = tfd__in(call, 5)->data;
  rnn.at[RNN_SEQUENCE] = tfd__out(call, 0)->data;
  rnn.at[RNN_H] = tfd__out(call, 1)->data;
  rnn.at[RNN_C] = tfd__out(call, 2)->data;
  return run_forward(&rnn, tfd__out(call, 3));
}

int tfd__cpu_gru(const tfd__call *call) {
  tfd__rnn rnn = {.name = call->name};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_gru);
  set_inputs(call, 3, &rnn);
  rnn.at[RNN_SEQUENCE] = tfd__out(call, 0)->data;
  rnn.at[RNN_H] = tfd__out(call, 1)->data;
  return run_forward(&rnn, tfd__out(call, 2));
}

/* --- backward ------------------------------------------------------------- */

static int run_backward(tfd__rnn *rnn, const tfd__view *workspace) {
  const int64_t *header = workspace->data;
  int rc = TFD_OK;

  rnn->training = true;
  rnn->backward = true;
  rnn->at[RNN_WORKSPACE] = (char *)workspace->data + TFD_WORKSPACE_HEADER;
  rnn->workspace_bytes = (size_t)workspace->numel - TFD_WORKSPACE_HEADER;
  TFD_TRY(fill_absent(rnn));
  if (header[0] == TFD_WORKSPACE_PLAIN) return tfd__rnn_plain(rnn);
  if (header[0] == TFD_WORKSPACE_ONEDNN && run_onednn(rnn, &rc)) return rc;
  return tfd__fail(TFD_INTERNAL,
                   "%s: the workspace was not written by this op's forward "
                   "pass on a device with as many threads",
                   rnn->name);
}

/* Inputs: x, kernel, recurrent, bias, h0, c0, sequence, h, c, workspace,
** dsequence, dh, dc. */
int tfd__cpu_lstm_grad(const tfd__call *call) {
  static const tfd__rnn_operand in[] = {
      RNN_X, RNN_W, RNN_U,         RNN_BIAS,      RNN_H0, RNN_C0, RNN_SEQUENCE,
      RNN_H, RNN_C, RNN_WORKSPACE, RNN_DSEQUENCE, RNN_DH, RNN_DC};
  static const tfd__rnn_operand out[] = {RNN_DX,    RNN_DW,  RNN_DU,
                                         RNN_DBIAS, RNN_DH0, RNN_DC0};
  tfd__rnn rnn = {.name = call->name};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_lstm_grad);
  set_sizes(tfd__in(call, 0), tfd__in(call, 2), 4, &rnn);
  for (int i = 0; i < 13; i++) rnn.at[in[i]] = tfd__in(call, i)->data;
  for (int i = 0; i < 6; i++) rnn.at[out[i]] = tfd__out(call, i)->data;
  return run_backward(&rnn, tfd__in(call, 9));
}

/* Inputs: x, kernel, recurrent, bias, h0, sequence, h, workspace, dsequence,
** dh. */
int tfd__cpu_gru_grad(const tfd__call *call) {
  static const tfd__rnn_operand in[] = {
      RNN_X,        RNN_W, RNN_U,         RNN_BIAS,      RNN_H0,
      RNN_SEQUENCE, RNN_H, RNN_WORKSPACE, RNN_DSEQUENCE, RNN_DH};
  static const tfd__rnn_operand out[] = {RNN_DX, RNN_DW, RNN_DU, RNN_DBIAS,
                                         RNN_DH0};
  tfd__rnn rnn = {.name = call->name};

  if (tfd__is_half(tfd__in(call, 0)->dtype))
    return tfd__via_float(call, tfd__cpu_gru_grad);
  set_sizes(tfd__in(call, 0), tfd__in(call, 2), 3, &rnn);
  for (int i = 0; i < 10; i++) rnn.at[in[i]] = tfd__in(call, i)->data;
  for (int i = 0; i < 5; i++) rnn.at[out[i]] = tfd__out(call, i)->data;
  return run_backward(&rnn, tfd__in(call, 7));
}
