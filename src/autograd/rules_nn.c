/* Gradients of products and biases. */
#include "autograd/autograd.h"

/* --- matmul --------------------------------------------------------------- */

static tfd_tensor *product(tfd__grad *g, tfd_tensor *a, tfd_tensor *b, bool ta,
                           bool tb) {
  return E2A(matmul, a, b, ((int64_t[]){ta, tb, 0, 0}), NULL);
}

static int64_t leading(const tfd_tensor *x) {
  int64_t n = 1;

  for (int i = 0; i < x->view.rank - 1; i++) n *= x->view.dims[i];
  return n;
}

/* {n0, n1, ..., k} as a matrix of its last axis. */
static tfd_tensor *as_matrix(tfd__grad *g, tfd_tensor *x) {
  if (x == NULL || x->view.rank == 2) return x;
  return tfd__e_reshape(
      g, x, (int64_t[]){leading(x), x->view.dims[x->view.rank - 1]}, 2);
}

static void matmul_grad_a(tfd__grad *g, bool ta, bool tb) {
  tfd_tensor *b = g->in[1];
  tfd_tensor *dy = g->dy[0];
  tfd_tensor *da =
      ta ? product(g, b, dy, tb, true) : product(g, dy, b, false, !tb);

  tfd__grad_set(g, 0, tfd__e_unbroadcast(g, da, g->in[0]));
}

/* A matrix b used for a whole batch of a: one product over all rows, instead
** of a batch of products that are then summed. */
static void matmul_grad_b(tfd__grad *g, bool ta, bool tb) {
  tfd_tensor *a = g->in[0];
  tfd_tensor *dy = g->dy[0];
  tfd_tensor *db = NULL;

  if (!ta && g->in[1]->view.rank == 2) {
    a = as_matrix(g, a);
    dy = as_matrix(g, dy);
  }
  db = tb ? product(g, dy, a, true, ta) : product(g, a, dy, !ta, false);
  tfd__grad_set(g, 1, tfd__e_unbroadcast(g, db, g->in[1]));
}

int tfd__grad_matmul(tfd__grad *g) {
  bool ta = g->ints[0] || g->ints[2];
  bool tb = g->ints[1] || g->ints[3];

  if (g->needs[0]) matmul_grad_a(g, ta, tb);
  if (g->needs[1]) matmul_grad_b(g, ta, tb);
  return g->status;
}

/* --- bias_add ------------------------------------------------------------- */

/* dy: of the sum of value and bias. */
static int bias_gradients(tfd__grad *g, tfd_tensor *dy) {
  int rank = g->in[0]->view.rank;
  int channel = g->ints[0] == 1 ? 1 : rank - 1;
  int64_t axes[TFD_MAX_RANK];
  int n = 0;

  for (int i = 0; i < rank; i++)
    if (i != channel) axes[n++] = i;
  if (g->needs[0]) tfd__grad_set(g, 0, dy);
  if (g->routed != NULL && channel == rank - 1) dy = g->routed;
  if (g->needs[1]) tfd__grad_set(g, 1, tfd__e_sum(g, dy, axes, n, false));
  return g->status;
}

int tfd__grad_bias_add(tfd__grad *g) {
  return bias_gradients(g, g->dy[0]);
}

int tfd__grad_bias_add_relu(tfd__grad *g) {
  if (!g->gated) g->routed = NULL;
  return bias_gradients(g, tfd__e_gate(g));
}
