/* Inference of the fused recurrent layers. */
#include "backend/recurrent.h"
#include "ops/ops.h"

/* An optional operand of exactly these sizes and of the inputs' dtype. */
static int check_operand(tfd__infer *s, int i, const int64_t *dims, int rank) {
  if (s->in[i] == NULL) return TFD_OK;
  TFD_TRY(tfd__check_same_dtype(s, 0, i));
  return tfd__check_dims(s, i, dims, rank, "");
}

/* Sizes from inputs {steps, batch, depth} and recurrent_kernel {units, gates *
** units}; checks the four weights and h. */
static int sizes(tfd__infer *s, int64_t gates, tfd__recurrent *r) {
  const tfd__view *x = s->in[0];
  const tfd__view *u = s->in[2];
  char shape[TFD_SHAPE_TEXT];
  int64_t units = 0;
  int64_t wide = 0;
  int bias = gates == 4 ? 1 : 2;

  TFD_TRY(tfd__check_float(s, 0));
  TFD_TRY(tfd__check_rank(s, 0, 3));
  TFD_TRY(tfd__check_rank(s, 2, 2));
  /* Each of the two sizes tells the other. */
  units = u->dims[0] < 0 && u->dims[1] > 0 ? u->dims[1] / gates : u->dims[0];
  if (units == 0 || (units > 0 && (!tfd__mul_i64(gates, units, &wide) ||
                                   !tfd__sizes_agree(u->dims[1], wide))))
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: recurrent_kernel is %s; expected {units, %d * units}",
                     s->name, tfd__shape_text(u, shape), (int)gates);
  if (units < 0) wide = -1;
  *r = (tfd__recurrent){x->dims[0], x->dims[1], x->dims[2], units, gates};
  TFD_TRY(check_operand(s, 1, (int64_t[]){r->depth, wide}, 2));
  TFD_TRY(check_operand(s, 2, (int64_t[]){units, wide}, 2));
  TFD_TRY(check_operand(
      s, 3, bias == 1 ? (int64_t[]){wide, 0} : (int64_t[]){2, wide}, bias));
  return check_operand(s, 4, (int64_t[]){r->batch, units}, 2);
}

/* Bytes of the workspace; -1 where a size that counts is unknown. */
static int64_t workspace(const tfd__recurrent *r, int dtype) {
  if (r->steps < 0 || r->batch < 0 || r->depth < 0 || r->units < 0) return -1;
  return tfd__recurrent_workspace(r, dtype);
}

/* sequence, then one state for each of `states`, then the workspace. */
static int outputs(tfd__infer *s, const tfd__recurrent *r, int states) {
  int dtype = s->in[0]->dtype;
  int64_t bytes = 0;
  int64_t state[2] = {r->batch, r->units};

  TFD_TRY(tfd__infer_outputs(s, states + 2));
  TFD_TRY(tfd__infer_out(s, 0, dtype, (int64_t[]){r->steps, r->batch, r->units},
                         3));
  if (s->ints[0]) bytes = workspace(r, dtype);
  for (int i = 1; i <= states; i++)
    TFD_TRY(tfd__infer_out(s, i, dtype, state, 2));
  return tfd__infer_out(s, states + 1, TFD_UINT8, &bytes, 1);
}

int tfd__infer_lstm(tfd__infer *s) {
  tfd__recurrent r;

  TFD_TRY(sizes(s, 4, &r));
  TFD_TRY(check_operand(s, 5, (int64_t[]){r.batch, r.units}, 2));
  return outputs(s, &r, 2);
}

int tfd__infer_gru(tfd__infer *s) {
  tfd__recurrent r;

  TFD_TRY(sizes(s, 3, &r));
  return outputs(s, &r, 1);
}

/* Gradients of x, kernel, recurrent kernel, bias and the states; `at` is
** where the saved outputs start among the inputs. */
static int gradients(tfd__infer *s, const tfd__recurrent *r, int states) {
  int dtype = s->in[0]->dtype;
  int at = 4 + states;
  int64_t wide = r->units < 0 ? -1 : r->gates * r->units;
  int64_t state[2] = {r->batch, r->units};
  int64_t sequence[3] = {r->steps, r->batch, r->units};
  int64_t bytes = 0;

  TFD_TRY(check_operand(s, at, sequence, 3));
  bytes = workspace(r, dtype);
  for (int i = 0; i < states; i++) {
    TFD_TRY(check_operand(s, at + 1 + i, state, 2));
    TFD_TRY(check_operand(s, at + 3 + states + i, state, 2));
  }
  TFD_TRY(check_operand(s, at + 2 + states, sequence, 3));
  if (s->in[at + 1 + states]->dtype != TFD_UINT8 ||
      !tfd__sizes_agree(s->in[at + 1 + states]->numel, bytes))
    return tfd__fail(TFD_INVALID_ARGUMENT,
                     "%s: the workspace has %lld elements; expected that of a "
                     "forward pass with training = true (%lld bytes)",
                     s->name, (long long)s->in[at + 1 + states]->numel,
                     (long long)bytes);
  TFD_TRY(tfd__infer_outputs(s, 4 + states));
  TFD_TRY(tfd__infer_like(s, 0, s->in[0]));
  TFD_TRY(tfd__infer_like(s, 1, s->in[1]));
  TFD_TRY(tfd__infer_like(s, 2, s->in[2]));
  TFD_TRY(tfd__infer_out(s, 3, dtype,
                         r->gates == 4 ? &wide : (int64_t[]){2, wide},
                         r->gates == 4 ? 1 : 2));
  for (int i = 0; i < states; i++)
    TFD_TRY(tfd__infer_out(s, 4 + i, dtype, state, 2));
  return TFD_OK;
}

int tfd__infer_lstm_grad(tfd__infer *s) {
  tfd__recurrent r;

  TFD_TRY(sizes(s, 4, &r));
  TFD_TRY(check_operand(s, 5, (int64_t[]){r.batch, r.units}, 2));
  return gradients(s, &r, 2);
}

int tfd__infer_gru_grad(tfd__infer *s) {
  tfd__recurrent r;

  TFD_TRY(sizes(s, 3, &r));
  return gradients(s, &r, 1);
}
