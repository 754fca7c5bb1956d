/* Gradients of convolutions and pooling, and gradients of those. */
#include "autograd/autograd.h"

#include <string.h>

/* Slots of the attributes that all convolutions (and all poolings) share;
** gradient ops have the shape of what they compute behind them. */
#define SHARED_SLOTS 29
#define ALL_SLOTS (SHARED_SLOTS + TFD_LIST_SLOTS)

static void with_shape(const tfd__grad *g, const tfd_tensor *like,
                       int64_t ints[ALL_SLOTS]) {
  memset(ints, 0, ALL_SLOTS * sizeof *ints);
  memcpy(ints, g->ints, SHARED_SLOTS * sizeof *ints);
  ints[SHARED_SLOTS] = like->view.rank;
  memcpy(ints + SHARED_SLOTS + 1, like->view.dims,
         like->view.rank * sizeof *ints);
}

/* --- convolution: three ops that are bilinear in their two inputs --------- */

static tfd_tensor *conv_input(tfd__grad *g, tfd_tensor *filter, tfd_tensor *dy,
                              const tfd_tensor *like) {
  int64_t ints[ALL_SLOTS];

  with_shape(g, like, ints);
  return E2A(conv_backprop_input, filter, dy, ints, NULL);
}

static tfd_tensor *conv_filter(tfd__grad *g, tfd_tensor *x, tfd_tensor *dy,
                               const tfd_tensor *like) {
  int64_t ints[ALL_SLOTS];

  with_shape(g, like, ints);
  return E2A(conv_backprop_filter, x, dy, ints, NULL);
}

static tfd_tensor *conv(tfd__grad *g, tfd_tensor *x, tfd_tensor *filter) {
  return E2A(convolution, x, filter, g->ints, NULL);
}

int tfd__grad_conv(tfd__grad *g) {
  if (g->needs[0])
    tfd__grad_set(g, 0, conv_input(g, g->in[1], g->dy[0], g->in[0]));
  if (g->needs[1])
    tfd__grad_set(g, 1, conv_filter(g, g->in[0], g->dy[0], g->in[1]));
  return g->status;
}

/* Inputs: filter, dy; the arriving gradient has the shape of the input x. */
int tfd__grad_conv_backprop_input(tfd__grad *g) {
  if (g->needs[0])
    tfd__grad_set(g, 0, conv_filter(g, g->dy[0], g->in[1], g->in[0]));
  if (g->needs[1]) tfd__grad_set(g, 1, conv(g, g->dy[0], g->in[0]));
  return g->status;
}

/* Inputs: x, dy; the arriving gradient has the shape of the filter. */
int tfd__grad_conv_backprop_filter(tfd__grad *g) {
  if (g->needs[0])
    tfd__grad_set(g, 0, conv_input(g, g->dy[0], g->in[1], g->in[0]));
  if (g->needs[1]) tfd__grad_set(g, 1, conv(g, g->in[0], g->dy[0]));
  return g->status;
}

/* --- pooling -------------------------------------------------------------- */

/* Also of max_pool_with_argmax, whose second output has no gradient. */
int tfd__grad_max_pool(tfd__grad *g) {
  tfd_tensor *dy = g->dy[0];

  if (g->of_relu) dy = g->routed = E2(relu_grad, dy, g->out[0]);
  if (g->needs[0])
    tfd__grad_set(g, 0,
                  E3A(max_pool_grad, g->in[0], g->out[0], dy, g->ints, NULL));
  return g->status;
}

/* Where the maximum lies does not move under small changes. */
static void flat_in_place(tfd__grad *g) {
  for (int i = 0; i < 2; i++) {
    if (g->needs[i]) tfd__grad_set(g, i, tfd__e_zeros_like(g, g->in[i]));
  }
}

int tfd__grad_max_pool_grad(tfd__grad *g) {
  flat_in_place(g);
  if (g->needs[2])
    tfd__grad_set(
        g, 2,
        E3A(max_pool_grad_grad, g->in[0], g->in[1], g->dy[0], g->ints, NULL));
  return g->status;
}

int tfd__grad_max_pool_grad_grad(tfd__grad *g) {
  flat_in_place(g);
  if (g->needs[2])
    tfd__grad_set(
        g, 2, E3A(max_pool_grad, g->in[0], g->in[1], g->dy[0], g->ints, NULL));
  return g->status;
}

int tfd__grad_avg_pool(tfd__grad *g) {
  int64_t ints[ALL_SLOTS];

  with_shape(g, g->in[0], ints);
  if (g->needs[0])
    tfd__grad_set(g, 0, E1A(avg_pool_grad, g->dy[0], ints, NULL));
  return g->status;
}

int tfd__grad_avg_pool_grad(tfd__grad *g) {
  if (g->needs[0]) tfd__grad_set(g, 0, E1A(avg_pool, g->dy[0], g->ints, NULL));
  return g->status;
}
