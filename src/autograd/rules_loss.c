/* Gradients of softmax and the cross-entropies. */
#include "autograd/autograd.h"

static tfd_tensor *sum_last(tfd__grad *g, tfd_tensor *x, bool keepdims) {
  return tfd__e_sum(g, x, (int64_t[]){-1}, 1, keepdims);
}

/* {n...} as {n..., 1}. */
static tfd_tensor *as_column(tfd__grad *g, tfd_tensor *x) {
  int64_t dims[TFD_MAX_RANK];
  int i;

  if (x == NULL) return NULL;
  for (i = 0; i < x->view.rank; i++) dims[i] = x->view.dims[i];
  dims[i] = 1;
  return tfd__e_reshape(g, x, dims, x->view.rank + 1);
}

/* y * (dy - sum(dy * y)): a softmax's gradient from its own result. */
static tfd_tensor *softmax_backward(tfd__grad *g, tfd_tensor *y,
                                    tfd_tensor *dy) {
  tfd_tensor *mean = sum_last(g, E2(multiply, dy, y), true);

  return E2(multiply, y, E2(subtract, dy, mean));
}

int tfd__grad_softmax(tfd__grad *g) {
  tfd__grad_set(g, 0, softmax_backward(g, g->out[0], g->dy[0]));
  return g->status;
}

int tfd__grad_log_softmax(tfd__grad *g) {
  tfd_tensor *dy = g->dy[0];
  tfd_tensor *p = E1(exp, g->out[0]);

  tfd__grad_set(g, 0, E2(subtract, dy, E2(multiply, p, sum_last(g, dy, true))));
  return g->status;
}

/* Exact also for labels that do not add up to 1. */
int tfd__grad_softmax_cross_entropy(tfd__grad *g) {
  tfd_tensor *labels = g->in[0];
  tfd_tensor *dy = as_column(g, g->dy[0]);

  if (g->needs[1]) {
    tfd_tensor *p = E1(softmax, g->in[1]);
    tfd_tensor *mass = sum_last(g, labels, true);
    tfd_tensor *d = E2(subtract, E2(multiply, p, mass), labels);

    tfd__grad_set(g, 1, E2(multiply, d, dy));
  }
  if (g->needs[0]) {
    tfd_tensor *log_p = E1(log_softmax, g->in[1]);

    tfd__grad_set(g, 0, E1(negative, E2(multiply, log_p, dy)));
  }
  return g->status;
}

int tfd__grad_sparse_softmax_cross_entropy(tfd__grad *g) {
  if (g->needs[1]) {
    tfd__grad_set(
        g, 1,
        E3(sparse_softmax_cross_entropy_grad, g->in[0], g->in[1], g->dy[0]));
  }
  return g->status;
}

/* out = (p - one_hot) * w for p = softmax(logits) and weights w {n...}. */
int tfd__grad_sparse_softmax_cross_entropy_grad(tfd__grad *g) {
  tfd_tensor *up = g->dy[0];
  tfd_tensor *w = as_column(g, g->in[2]);

  if (g->needs[1]) {
    tfd_tensor *p = E1(softmax, g->in[1]);

    tfd__grad_set(g, 1, softmax_backward(g, p, E2(multiply, up, w)));
  }
  if (g->needs[2]) {
    tfd_tensor *ones = E2(add, tfd__e_zeros_like(g, g->in[2]),
                          tfd__e_scalar(g, g->in[2], 1.0));
    tfd_tensor *d =
        E3(sparse_softmax_cross_entropy_grad, g->in[0], g->in[1], ones);

    tfd__grad_set(g, 2, sum_last(g, E2(multiply, d, up), false));
  }
  return g->status;
}

/* --- activations -------------------------------------------------------------
 */

int tfd__grad_relu(tfd__grad *g) {
  tfd__grad_set(g, 0, tfd__e_gate(g));
  return g->status;
}

int tfd__grad_relu6(tfd__grad *g) {
  tfd__grad_set(g, 0, E2(relu6_grad, g->dy[0], g->out[0]));
  return g->status;
}

/* The gates are linear in the gradient and flat in the features: a second
** derivative is zeros, not nothing. */
static int gate(tfd__grad *g, int op) {
  if (g->needs[0]) {
    tfd_tensor *in[2] = {g->dy[0], g->in[1]};

    tfd__grad_set(g, 0, tfd__e(g, op, 2, in, NULL, g->reals));
  }
  if (g->needs[1]) tfd__grad_set(g, 1, tfd__e_zeros_like(g, g->in[1]));
  return g->status;
}

int tfd__grad_relu_grad(tfd__grad *g) {
  return gate(g, TFD_OP_relu_grad);
}

int tfd__grad_relu6_grad(tfd__grad *g) {
  return gate(g, TFD_OP_relu6_grad);
}

int tfd__grad_leaky_relu(tfd__grad *g) {
  tfd__grad_set(g, 0, E2A(leaky_relu_grad, g->dy[0], g->in[0], NULL, g->reals));
  return g->status;
}

int tfd__grad_leaky_relu_grad(tfd__grad *g) {
  return gate(g, TFD_OP_leaky_relu_grad);
}

/* dy where x >= 0, else dy * alpha * exp(x): at 0 the slope is the right one,
** and so is the second derivative. exp sees no x above 0, whose infinity would
** spoil the gradient of this. */
static tfd_tensor *two_sided(tfd__grad *g, tfd_tensor *dy, double alpha) {
  tfd_tensor *x = g->in[0];
  tfd_tensor *zero = tfd__e_scalar(g, x, 0.0);
  tfd_tensor *below = E2(less, x, zero);
  tfd_tensor *slope = E1(exp, E3(select, below, x, zero));

  return E3(select, below, E2(multiply, dy, tfd__e_scale(g, slope, alpha)), dy);
}

int tfd__grad_elu(tfd__grad *g) {
  tfd__grad_set(g, 0, two_sided(g, g->dy[0], g->reals[0]));
  return g->status;
}

#define SELU_ALPHA 1.6732632423543772848170429916717
#define SELU_SCALE 1.0507009873554804934193349852946

int tfd__grad_selu(tfd__grad *g) {
  tfd_tensor *dy = tfd__e_scale(g, g->dy[0], SELU_SCALE);

  tfd__grad_set(g, 0, two_sided(g, dy, SELU_ALPHA));
  return g->status;
}

/* Phi(x) + x phi(x), the normal distribution and its density. */
int tfd__grad_gelu(tfd__grad *g) {
  const double sqrt_half = 0.70710678118654752440084436210485;
  const double inv_sqrt_2pi = 0.39894228040143267793994605993438;
  tfd_tensor *x = g->in[0];
  tfd_tensor *one = tfd__e_scalar(g, x, 1.0);
  tfd_tensor *erf_x = E1(erf, tfd__e_scale(g, x, sqrt_half));
  tfd_tensor *phi = tfd__e_scale(g, E2(add, erf_x, one), 0.5);
  tfd_tensor *bell = E1(exp, tfd__e_scale(g, E1(square, x), -0.5));
  tfd_tensor *tail = tfd__e_scale(g, E2(multiply, x, bell), inv_sqrt_2pi);

  tfd__grad_set(g, 0, E2(multiply, g->dy[0], E2(add, phi, tail)));
  return g->status;
}

/* t = tanh(u), u = c (x + k x^3): (1 + t) / 2 + x (1 - t^2) u' / 2. */
int tfd__grad_gelu_tanh(tfd__grad *g) {
  const double c = 0.79788456080286535587989211986876;
  const double k = 0.044715;
  tfd_tensor *x = g->in[0];
  tfd_tensor *one = tfd__e_scalar(g, x, 1.0);
  tfd_tensor *x2 = E1(square, x);
  tfd_tensor *poly = E2(add, one, tfd__e_scale(g, x2, k));
  tfd_tensor *t = E1(tanh, tfd__e_scale(g, E2(multiply, x, poly), c));
  tfd_tensor *du =
      tfd__e_scale(g, E2(add, one, tfd__e_scale(g, x2, 3.0 * k)), c);
  tfd_tensor *bend = E2(multiply, E2(subtract, one, E1(square, t)), du);
  tfd_tensor *sum = E2(add, E2(add, one, t), E2(multiply, x, bend));

  tfd__grad_set(g, 0, E2(multiply, g->dy[0], tfd__e_scale(g, sum, 0.5)));
  return g->status;
}

/* s + x s (1 - s) for s = sigmoid(x). */
int tfd__grad_swish(tfd__grad *g) {
  tfd_tensor *x = g->in[0];
  tfd_tensor *s = E1(sigmoid, x);
  tfd_tensor *rest = E2(subtract, tfd__e_scalar(g, x, 1.0), s);
  tfd_tensor *slope = E2(add, s, E2(multiply, E2(multiply, x, s), rest));

  tfd__grad_set(g, 0, E2(multiply, g->dy[0], slope));
  return g->status;
}

/* 1 / (1 + |x|)^2. */
int tfd__grad_softsign(tfd__grad *g) {
  tfd_tensor *x = g->in[0];
  tfd_tensor *d = E2(add, E1(abs, x), tfd__e_scalar(g, x, 1.0));

  tfd__grad_set(g, 0, E2(divide, g->dy[0], E1(square, d)));
  return g->status;
}

/* The same stream drops the same elements. */
int tfd__grad_dropout(tfd__grad *g) {
  tfd__grad_set(g, 0, E1A(dropout, g->dy[0], g->ints, g->reals));
  return g->status;
}
