/* Gradients of normalisation. */
#include "autograd/autograd.h"

static void set_wanted(tfd__grad *g, tfd_tensor *const *out, int n) {
  for (int i = 0; i < n; i++)
    if (g->needs[i] && g->in[i] != NULL) tfd__grad_set(g, i, out[i]);
}

/* Only y passes gradients on: the statistics are for running averages. */
int tfd__grad_fused_batch_norm(tfd__grad *g) {
  tfd_tensor *in[4] = {g->dy[0], g->in[0], g->in[1], g->out[3]};
  tfd_tensor *out[3] = {NULL, NULL, NULL};

  if (g->dy[0] == NULL) return g->status;
  if (tfd__e_many(g, TFD_OP_fused_batch_norm_grad, 4, in, g->ints, NULL, out,
                  3) == TFD_OK)
    set_wanted(g, out, 3);
  return g->status;
}

static int row_gradients(tfd__grad *g, int op) {
  tfd_tensor *in[5] = {g->dy[0], g->in[0], g->out[1], g->out[2], g->in[1]};
  tfd_tensor *out[3] = {NULL, NULL, NULL};

  if (g->dy[0] == NULL) return g->status;
  if (tfd__e_many(g, op, 5, in, g->ints, NULL, out, 3) == TFD_OK)
    set_wanted(g, out, 3);
  return g->status;
}

int tfd__grad_layer_normalization(tfd__grad *g) {
  return row_gradients(g, TFD_OP_layer_normalization_grad);
}

int tfd__grad_group_normalization(tfd__grad *g) {
  return row_gradients(g, TFD_OP_group_normalization_grad);
}

/* Fused backward passes have no rule of their own. */
int tfd__grad_no_second(tfd__grad *g) {
  return tfd__fail(TFD_NOT_IMPLEMENTED,
                   "%s: no second derivatives through this fused operation; "
                   "write the forward pass with elementary operations",
                   g->op->name);
}
