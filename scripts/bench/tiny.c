/* The network "tiny" of ours_dist.lua by hand: six times as fast as by net.c,
** since calls of oneDNN cost more than such small products. */
#include "net.h"

#include <math.h>
#include <string.h>

#pragma GCC optimize("O3", "fast-math", "fp-contract=fast")

enum { ROWS = 4, IN = 4, UNITS = 64, OUT = 2, LANES = 8 };

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));

#define AT(x, i) (*(const lanes *)((x) + (i)))

/* In the order of the flat buffers. */
typedef struct parameters {
  float w_1[IN][UNITS];
  float b_1[UNITS];
  float w_2[UNITS][UNITS];
  float b_2[UNITS];
  float w_3[UNITS][OUT];
  float b_3[OUT];
} parameters;

static const size_t sizes[] = {IN * UNITS, UNITS,      UNITS *UNITS,
                               UNITS,      UNITS *OUT, OUT};

typedef struct tiny {
  parameters *w;
  parameters *g;
  float x[ROWS][IN];
  int labels[ROWS];
} tiny;

typedef float hidden[ROWS][UNITS];
typedef float logits[ROWS][OUT];

static size_t tiny_size(const net_spec *spec) {
  (void)spec;
  return sizeof(parameters) / sizeof(float);
}

static size_t tiny_part(const void *self, int k) {
  (void)self;
  return k < (int)(sizeof sizes / sizeof *sizes) ? sizes[k] : 0;
}

/* y = relu(x w + b), in stretches of columns whose sums stay in registers. */
FAST static void hidden_layer(const float *restrict x, int in,
                              const float (*restrict w)[UNITS],
                              const float *restrict b, hidden y) {
  for (int from = 0; from < UNITS; from += 2 * LANES) {
    lanes sum[ROWS][2];

    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < 2; c++) sum[r][c] = AT(b, from + c * LANES);
    for (int k = 0; k < in; k++)
      for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < 2; c++)
          sum[r][c] += x[r * in + k] * AT(w[k], from + c * LANES);
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < 2 * LANES; c++) {
        float v = sum[r][c / LANES][c % LANES];

        y[r][from + c] = v > 0 ? v : 0;
      }
  }
}

/* Gradients of a hidden layer's parameters from that of its sums. */
FAST static void hidden_gradient(const float *restrict x, int in,
                                 const hidden d, float (*restrict w)[UNITS],
                                 float *restrict b) {
  for (int c = 0; c < UNITS; c++) b[c] = d[0][c] + d[1][c] + d[2][c] + d[3][c];
  for (int k = 0; k < in; k++)
    for (int c = 0; c < UNITS; c++)
      w[k][c] = x[k] * d[0][c] + x[in + k] * d[1][c] + x[2 * in + k] * d[2][c] +
                x[3 * in + k] * d[3][c];
}

/* Sums of neighbours in a and b, as vhaddps orders them. */
#define PAIRS(a, b)                                           \
  (__builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + \
   __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15))

/* Gradient of the first layer's sums, y its units. */
FAST static void hidden_back(const hidden d, const float (*restrict w)[UNITS],
                             const hidden y, hidden dx) {
  for (int k = 0; k < UNITS; k += LANES)
    for (int r = 0; r < ROWS; r++) {
      lanes s[LANES] = {{0}};
      lanes low;
      lanes high;

      for (int c = 0; c < UNITS; c += LANES)
        for (int i = 0; i < LANES; i++) s[i] += AT(d[r], c) * AT(w[k + i], c);
      low = PAIRS(PAIRS(s[0], s[1]), PAIRS(s[2], s[3]));
      high = PAIRS(PAIRS(s[4], s[5]), PAIRS(s[6], s[7]));
      low = __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11) +
            __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15);
      for (int i = 0; i < LANES; i++)
        dx[r][k + i] = y[r][k + i] > 0 ? low[i] : 0;
    }
}

/* The last layer and the loss, d the gradient of its sums. */
FAST static double last_layer(const tiny *n, const hidden y, float scale,
                              logits d) {
  double loss = 0;

  for (int r = 0; r < ROWS; r++) {
    float z[OUT] = {n->w->b_3[0], n->w->b_3[1]};
    float most;
    float sum;

    for (int k = 0; k < UNITS; k++)
      for (int c = 0; c < OUT; c++) z[c] += y[r][k] * n->w->w_3[k][c];
    most = z[0] > z[1] ? z[0] : z[1];
    for (int c = 0; c < OUT; c++) d[r][c] = expf(z[c] - most);
    sum = d[r][0] + d[r][1];
    loss += most + logf(sum) - z[n->labels[r]];
    for (int c = 0; c < OUT; c++) d[r][c] *= scale / sum;
    d[r][n->labels[r]] -= scale;
  }
  return loss * scale;
}

FAST static void last_gradient(const tiny *n, const hidden y, const logits d,
                               hidden dy) {
  for (int c = 0; c < OUT; c++)
    n->g->b_3[c] = d[0][c] + d[1][c] + d[2][c] + d[3][c];
  for (int k = 0; k < UNITS; k++)
    for (int c = 0; c < OUT; c++)
      n->g->w_3[k][c] = y[0][k] * d[0][c] + y[1][k] * d[1][c] +
                        y[2][k] * d[2][c] + y[3][k] * d[3][c];
  for (int r = 0; r < ROWS; r++)
    for (int k = 0; k < UNITS; k++) {
      float sum = d[r][0] * n->w->w_3[k][0] + d[r][1] * n->w->w_3[k][1];

      dy[r][k] = y[r][k] > 0 ? sum : 0;
    }
}

static double tiny_step(void *self, int replicas, int with_gradient) {
  const tiny *n = self;
  hidden y_1;
  hidden y_2;
  hidden d_1;
  hidden d_2;
  logits d_3;
  double loss;

  hidden_layer(n->x[0], IN, n->w->w_1, n->w->b_1, y_1);
  hidden_layer(y_1[0], UNITS, n->w->w_2, n->w->b_2, y_2);
  loss = last_layer(n, y_2, 1.0f / (float)(ROWS * replicas), d_3);
  if (!with_gradient) return loss;
  last_gradient(n, y_2, d_3, d_2);
  hidden_gradient(y_1[0], UNITS, d_2, n->g->w_2, n->g->b_2);
  hidden_back(d_2, n->w->w_2, y_1, d_1);
  hidden_gradient(n->x[0], IN, d_1, n->g->w_1, n->g->b_1);
  return loss;
}

static void fill(float *w, int n, int fan, unsigned *state) {
  for (int k = 0; k < n; k++)
    w[k] = sqrtf(3.0f / (float)fan) * net_uniform(state);
}

static void *tiny_open(const net_spec *spec, float *w, float *g,
                       unsigned seed) {
  tiny *n = net_need(sizeof *n);
  unsigned weights_seed = 1; /* replicas begin with the same weights */
  unsigned data_seed = seed;

  (void)spec;
  memset(w, 0, sizeof *n->w);
  n->w = (parameters *)w;
  n->g = (parameters *)g;
  fill(n->w->w_1[0], IN * UNITS, IN, &weights_seed);
  fill(n->w->w_2[0], UNITS * UNITS, UNITS, &weights_seed);
  fill(n->w->w_3[0], UNITS * OUT, UNITS, &weights_seed);
  fill(n->x[0], ROWS * IN, 3, &data_seed);
  for (int r = 0; r < ROWS; r++) n->labels[r] = net_draw(&data_seed, OUT);
  return n;
}

const net_calls tiny_calls = {tiny_size, tiny_part, tiny_open, tiny_step};
