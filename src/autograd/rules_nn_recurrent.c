/* Gradients of the fused recurrent layers. */
#include "autograd/autograd.h"

/* The gradient ops take all inputs and outputs of the forward op, then the
** gradients that arrive at sequence and states. */
static int recurrent_grad(tfd__grad *g, int op, int inputs, int outputs) {
  tfd_tensor *in[13] = {NULL};
  tfd_tensor *out[6] = {NULL};
  int n = 0;
  bool some = false;

  for (int i = 0; i < inputs; i++) in[n++] = g->in[i];
  for (int i = 0; i < outputs; i++) in[n++] = g->out[i];
  for (int i = 0; i < outputs - 1; i++) {
    some = some || g->dy[i] != NULL;
    in[n++] = g->dy[i];
  }
  if (!some) return g->status;
  if (g->ints[0] == 0)
    return tfd__fail(TFD_FAILED_PRECONDITION,
                     "%s: gradients need the workspace of a pass with "
                     "training = true",
                     g->op->name);
  if (tfd__e_many(g, op, n, in, NULL, NULL, out, inputs) != TFD_OK)
    return g->status;
  for (int i = 0; i < inputs; i++)
    if (g->needs[i] && g->in[i] != NULL) tfd__grad_set(g, i, out[i]);
  return g->status;
}

int tfd__grad_lstm(tfd__grad *g) {
  return recurrent_grad(g, TFD_OP_lstm_grad, 6, 4);
}

int tfd__grad_gru(tfd__grad *g) {
  return recurrent_grad(g, TFD_OP_gru_grad, 5, 3);
}
