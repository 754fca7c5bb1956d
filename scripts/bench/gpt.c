/* The network "gpt" of ours_dist.lua by hand: products by oneDNN's sgemm (its
** matmul primitive is slower for the small ones, as fast for the others), the
** rest in as few passes over the rows as there can be.
**
** Rows are padded: at a distance of a power of two they share few sets of the
** cache, which halves the speed of a product with a transposed operand. A step
** takes a piece of the batch through the network and back before the next one,
** so that what is kept for the way back stays in the cache. */
#include "net.h"

#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC optimize("O3", "fast-math", "fp-contract=fast")

/* Parts of FAST functions. */
#define WITHIN static inline __attribute__((always_inline))

enum {
  LAYERS = 4,
  WIDTH = 256,
  HEADS = 4,
  DEPTH = WIDTH / HEADS,
  STEPS = 128,
  HALF = STEPS / 2,
  TOKENS = 256,
  BATCH = 16,
  INNER = 3 * WIDTH, /* queries, keys, values */
  UP = 4 * WIDTH,
  PIECE = 4, /* sequences at a time */
  ROWS = PIECE * STEPS,
  PAD = 16,
  WIDTH_LD = WIDTH + PAD,
  INNER_LD = INNER + PAD,
  UP_LD = UP + PAD,
  STEPS_LD = STEPS + PAD
};

#define CHECK(call)                               \
  do {                                            \
    if ((call) != dnnl_success) {                 \
      fprintf(stderr, "gpt: %s failed\n", #call); \
      exit(1);                                    \
    }                                             \
  } while (0)

/* --- parameters ----------------------------------------------------------- */

/* Arrays of a block, in the order of the flat buffers. */
enum {
  SCALE_1,
  OFFSET_1,
  INNER_W,
  INNER_B,
  OUTER_W,
  OUTER_B,
  SCALE_2,
  OFFSET_2,
  UP_W,
  UP_B,
  DOWN_W,
  DOWN_B,
  BLOCK_ARRAYS
};

static const size_t block_sizes[BLOCK_ARRAYS] = {
    [SCALE_1] = WIDTH, [OFFSET_1] = WIDTH,        [INNER_W] = WIDTH * INNER,
    [INNER_B] = INNER, [OUTER_W] = WIDTH * WIDTH, [OUTER_B] = WIDTH,
    [SCALE_2] = WIDTH, [OFFSET_2] = WIDTH,        [UP_W] = WIDTH * UP,
    [UP_B] = UP,       [DOWN_W] = UP * WIDTH,     [DOWN_B] = WIDTH,
};

/* And of the network. */
enum {
  EMBEDDING,
  PLACES,
  BLOCKS,
  SCALE_OUT = BLOCKS + LAYERS * BLOCK_ARRAYS,
  OFFSET_OUT,
  HEAD_W,
  ARRAYS
};

typedef struct gpt_layer {
  float *h_1; /* what enters, before either norm */
  float *h_2;
  float *x_1; /* and after */
  float *x_2;
  float *stats_1; /* [rows][2]: mean, 1 / deviation */
  float *stats_2;
  float *inner;  /* queries, keys, values of all heads */
  float *shares; /* [sequence][head][step][step] */
  float *mixed;
  float *raised; /* after gelu */
  float *slope;  /* of gelu */
  float **w;     /* BLOCK_ARRAYS of each */
  float **g;
} gpt_layer;

typedef struct gpt {
  float *w[ARRAYS];
  float *g[ARRAYS];
  gpt_layer layers[LAYERS];
  float *h_out;
  float *x_out;
  float *stats_out;
  float *logits;
  float *wide;  /* what a product gives, of any width */
  float *dh;    /* gradient of the residual stream */
  float *dpart; /* of scores */
  int *tokens;  /* [BATCH * STEPS] */
  int *labels;
} gpt;

static size_t array_size(int k) {
  if (k == PLACES) return STEPS * WIDTH;
  if (k == EMBEDDING || k == HEAD_W) return TOKENS * WIDTH;
  if (k >= SCALE_OUT) return WIDTH;
  return block_sizes[(k - BLOCKS) % BLOCK_ARRAYS];
}

static size_t gpt_size(const net_spec *spec) {
  size_t total = 0;

  (void)spec;
  for (int k = 0; k < ARRAYS; k++) total += array_size(k);
  return total;
}

static size_t gpt_part(const void *self, int k) {
  (void)self;
  return k < ARRAYS ? array_size(k) : 0;
}

/* --- products ------------------------------------------------------------- */

typedef struct operand {
  const float *x;
  int ld;
  char way; /* 'N' as it lies, 'T' transposed */
} operand;

static operand as_is(const float *x, int ld) {
  return (operand){x, ld, 'N'};
}

static operand turned(const float *x, int ld) {
  return (operand){x, ld, 'T'};
}

/* c = beta * c + a b */
static void product(int m, int n, int k, operand a, operand b, float beta,
                    float *c, int ld) {
  CHECK(dnnl_sgemm(a.way, b.way, m, n, k, 1.0f, a.x, a.ld, b.x, b.ld, beta, c,
                   ld));
}

/* A dense layer forward, and back; the gradient of its weights adds up over
** the pieces. */
static void dense(const float *x, int in, const float *w, int out, float *y) {
  product(ROWS, out, in, as_is(x, in + PAD), as_is(w, out), 0, y, out + PAD);
}

static void dense_back(const float *x, int in, const float *w, int out,
                       const float *dy, float *g, int first, float *dx) {
  product(in, out, ROWS, turned(x, in + PAD), as_is(dy, out + PAD), !first, g,
          out);
  product(ROWS, in, out, as_is(dy, out + PAD), turned(w, out), 0, dx, in + PAD);
}

/* --- norms and residuals -------------------------------------------------- */

WITHIN void norm_row(const float *restrict h, const float *scale,
                     const float *offset, float *restrict x, float *stats) {
  float sum = 0;
  float squares = 0;
  float mean;
  float over;

  for (int c = 0; c < WIDTH; c++) sum += h[c];
  mean = sum / WIDTH;
  for (int c = 0; c < WIDTH; c++) squares += (h[c] - mean) * (h[c] - mean);
  over = 1 / sqrtf(squares / WIDTH + 1e-5f);
  for (int c = 0; c < WIDTH; c++)
    x[c] = (h[c] - mean) * over * scale[c] + offset[c];
  stats[0] = mean;
  stats[1] = over;
}

FAST static void embed(const gpt *n, const int *tokens, const float *scale,
                       const float *offset, const gpt_layer *l) {
  for (int r = 0; r < ROWS; r++) {
    const float *word = n->w[EMBEDDING] + tokens[r] * WIDTH;
    const float *place = n->w[PLACES] + r % STEPS * WIDTH;
    float *restrict h = l->h_1 + r * WIDTH_LD;

    for (int c = 0; c < WIDTH; c++) h[c] = word[c] + place[c];
    norm_row(h, scale, offset, l->x_1 + r * WIDTH_LD, l->stats_1 + 2 * r);
  }
}

/* h = from + y + bias, and its norm x. */
FAST static void join(const float *from, const float *y, const float *bias,
                      const float *scale, const float *offset, float *to,
                      float *x, float *stats) {
  for (int r = 0; r < ROWS; r++) {
    const float *a = from + r * WIDTH_LD;
    const float *b = y + r * WIDTH_LD;
    float *restrict h = to + r * WIDTH_LD;

    for (int c = 0; c < WIDTH; c++) h[c] = a[c] + b[c] + bias[c];
    norm_row(h, scale, offset, x + r * WIDTH_LD, stats + 2 * r);
  }
}

/* dh = [dh +] the gradient of h, of which dx is the norm's; its sum over the
** rows is the gradient of the bias that was added to h. */
FAST static void join_back(const float *h, const float *dx, const float *stats,
                           const float *scale, float *restrict dscale,
                           float *restrict doffset, float *restrict dbias,
                           float *dh, int is_last) {
  for (int r = 0; r < ROWS; r++) {
    const float *restrict a = h + r * WIDTH_LD;
    const float *restrict d = dx + r * WIDTH_LD;
    float *restrict to = dh + r * WIDTH_LD;
    float mean = stats[2 * r];
    float over = stats[2 * r + 1];
    float keep = is_last ? 0 : 1;
    float sum = 0;
    float along = 0;

    for (int c = 0; c < WIDTH; c++) {
      float x = (a[c] - mean) * over;

      dscale[c] += d[c] * x;
      doffset[c] += d[c];
      sum += d[c] * scale[c];
      along += d[c] * scale[c] * x;
    }
    sum /= WIDTH;
    along /= WIDTH;
    for (int c = 0; c < WIDTH; c++) {
      float x = (a[c] - mean) * over;

      to[c] = keep * to[c] + over * (d[c] * scale[c] - sum - x * along);
      dbias[c] += to[c];
    }
  }
}

FAST static void embed_back(const gpt *n, const int *tokens) {
  for (int r = 0; r < ROWS; r++) {
    const float *restrict d = n->dh + r * WIDTH_LD;
    float *restrict word = n->g[EMBEDDING] + tokens[r] * WIDTH;
    float *restrict place = n->g[PLACES] + r % STEPS * WIDTH;

    for (int c = 0; c < WIDTH; c++) word[c] += d[c];
    for (int c = 0; c < WIDTH; c++) place[c] += d[c];
  }
}

/* --- exponentials --------------------------------------------------------- */

/* Right to 1e-5 of its value; |x| < 87. */
WITHIN float exponential(float x) {
  float n = rintf(x * 1.44269504f);
  float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p =
      1 +
      r * (1 + r * (0.5f + r * (0.16666667f +
                                r * (0.041666667f + r * (0.0083333333f +
                                                         r * 0.0013888889f)))));
  union {
    int32_t bits;
    float value;
  } power = {((int32_t)n + 127) * (1 << 23)};

  return p * power.value;
}

/* Of u + bias, by tanh; its slope takes the place of u. */
FAST static void gelu(float *u, const float *bias, float *x) {
  const float a = 1.5957691216f; /* 2 sqrt(2 / pi) */
  const float b = 0.044715f * a;

  for (int r = 0; r < ROWS; r++) {
    float *restrict v = u + r * UP_LD;
    float *restrict y = x + r * UP_LD;

    for (int c = 0; c < UP; c++) {
      float t = v[c] + bias[c];
      float z = t * (a + b * t * t);
      float s;

      z = z < -80 ? -80 : z > 80 ? 80 : z;
      s = 1 / (1 + exponential(-z)); /* (1 + tanh(z / 2)) / 2 */
      y[c] = t * s;
      v[c] = s + t * s * (1 - s) * (a + 3 * b * t * t);
    }
  }
}

FAST static void gelu_back(float *dy, const float *slope, float *restrict sum) {
  for (int r = 0; r < ROWS; r++) {
    float *restrict d = dy + r * UP_LD;
    const float *restrict s = slope + r * UP_LD;

    for (int c = 0; c < UP; c++) {
      d[c] *= s[c];
      sum[c] += d[c];
    }
  }
}

/* Sum of the losses; the logits become their gradient. */
FAST static double cross_entropy(float *logits, const int *labels,
                                 float scale) {
  double loss = 0;

  for (int r = 0; r < ROWS; r++) {
    float *restrict z = logits + r * WIDTH_LD;
    float of_label = z[labels[r]];
    float most = z[0];
    float sum = 0;

    for (int c = 1; c < TOKENS; c++) most = z[c] > most ? z[c] : most;
    for (int c = 0; c < TOKENS; c++) {
      float x = z[c] - most;

      sum += z[c] = exponential(x < -80 ? -80 : x);
    }
    loss += most + logf(sum) - of_label;
    sum = scale / sum;
    for (int c = 0; c < TOKENS; c++) z[c] *= sum;
    z[labels[r]] -= scale;
  }
  return loss;
}

/* --- attention ------------------------------------------------------------ */

/* Step i looks at the steps up to i: of [step][step] matrices, the right half
** of the upper half is never touched. */

/* s = x y^T */
static void scores(const float *x, int x_ld, const float *y, int y_ld,
                   float *s) {
  product(HALF, HALF, DEPTH, as_is(x, x_ld), turned(y, y_ld), 0, s, STEPS_LD);
  product(HALF, STEPS, DEPTH, as_is(x + HALF * x_ld, x_ld), turned(y, y_ld), 0,
          s + HALF * STEPS_LD, STEPS_LD);
}

/* y = s x */
static void mix(const float *s, const float *x, int x_ld, float *y, int y_ld) {
  product(HALF, DEPTH, HALF, as_is(s, STEPS_LD), as_is(x, x_ld), 0, y, y_ld);
  product(HALF, DEPTH, STEPS, as_is(s + HALF * STEPS_LD, STEPS_LD),
          as_is(x, x_ld), 0, y + HALF * y_ld, y_ld);
}

/* y = s^T x */
static void mix_back(const float *s, const float *x, int x_ld, float *y,
                     int y_ld) {
  product(HALF, DEPTH, STEPS, turned(s, STEPS_LD), as_is(x, x_ld), 0, y, y_ld);
  product(HALF, DEPTH, HALF, turned(s + HALF * STEPS_LD + HALF, STEPS_LD),
          as_is(x + HALF * x_ld, x_ld), 0, y + HALF * y_ld, y_ld);
}

FAST static void softmax(float *s, float scale) {
  for (int r = 0; r < STEPS; r++) {
    float *restrict z = s + r * STEPS_LD;
    int end = r < HALF ? HALF : STEPS;
    float most = z[0];
    float sum = 0;

    for (int c = 1; c <= r; c++) most = z[c] > most ? z[c] : most;
    for (int c = 0; c <= r; c++) {
      float x = scale * (z[c] - most);

      sum += z[c] = exponential(x < -80 ? -80 : x);
    }
    sum = 1 / sum;
    for (int c = 0; c <= r; c++) z[c] *= sum;
    for (int c = r + 1; c < end; c++) z[c] = 0;
  }
}

FAST static void softmax_back(float *ds, const float *s, float scale) {
  for (int r = 0; r < STEPS; r++) {
    float *restrict d = ds + r * STEPS_LD;
    const float *restrict p = s + r * STEPS_LD;
    int end = r < HALF ? HALF : STEPS;
    float sum = 0;

    for (int c = 0; c < end; c++) sum += d[c] * p[c];
    for (int c = 0; c < end; c++) d[c] = scale * p[c] * (d[c] - sum);
  }
}

FAST static void add_bias(float *y, const float *bias) {
  for (int r = 0; r < STEPS; r++)
    for (int c = 0; c < INNER; c++) y[r * INNER_LD + c] += bias[c];
}

FAST static void sum_bias(const float *dy, float *restrict sum) {
  for (int r = 0; r < STEPS; r++)
    for (int c = 0; c < INNER; c++) sum[c] += dy[r * INNER_LD + c];
}

static float *shares_of(const gpt_layer *l, int sequence, int head) {
  return l->shares +
         (size_t)(sequence * HEADS + head) * ((size_t)STEPS * STEPS_LD);
}

static void attend(const gpt_layer *l) {
  for (int i = 0; i < PIECE; i++) {
    float *all = l->inner + i * STEPS * INNER_LD;

    add_bias(all, l->w[INNER_B]);
    for (int head = 0; head < HEADS; head++) {
      const float *q = all + head * DEPTH;
      float *s = shares_of(l, i, head);

      scores(q, INNER_LD, q + WIDTH, INNER_LD, s);
      softmax(s, 1 / sqrtf(DEPTH));
      mix(s, q + 2 * WIDTH, INNER_LD,
          l->mixed + i * STEPS * WIDTH_LD + head * DEPTH, WIDTH_LD);
    }
  }
}

/* dy: gradient of `mixed`; dall: of `inner`. */
static void attend_back(const gpt_layer *l, const float *dy, float *dall,
                        float *ds) {
  for (int i = 0; i < PIECE; i++) {
    for (int head = 0; head < HEADS; head++) {
      const float *d = dy + i * STEPS * WIDTH_LD + head * DEPTH;
      const float *q = l->inner + i * STEPS * INNER_LD + head * DEPTH;
      float *dq = dall + i * STEPS * INNER_LD + head * DEPTH;
      const float *s = shares_of(l, i, head);

      scores(d, WIDTH_LD, q + 2 * WIDTH, INNER_LD, ds);
      mix_back(s, d, WIDTH_LD, dq + 2 * WIDTH, INNER_LD);
      softmax_back(ds, s, 1 / sqrtf(DEPTH));
      mix(ds, q + WIDTH, INNER_LD, dq, INNER_LD);
      mix_back(ds, q, INNER_LD, dq + WIDTH, INNER_LD);
    }
    sum_bias(dall + i * STEPS * INNER_LD, l->g[INNER_B]);
  }
}

/* --- the network ---------------------------------------------------------- */

/* Sum of the piece's losses, with the gradient of its logits. */
static double forward(const gpt *n, int from, float scale) {
  const gpt_layer *l = n->layers;

  embed(n, n->tokens + from, l->w[SCALE_1], l->w[OFFSET_1], l);
  for (int i = 0; i < LAYERS; i++, l++) {
    dense(l->x_1, WIDTH, l->w[INNER_W], INNER, l->inner);
    attend(l);
    dense(l->mixed, WIDTH, l->w[OUTER_W], WIDTH, n->wide);
    join(l->h_1, n->wide, l->w[OUTER_B], l->w[SCALE_2], l->w[OFFSET_2], l->h_2,
         l->x_2, l->stats_2);
    dense(l->x_2, WIDTH, l->w[UP_W], UP, l->slope);
    gelu(l->slope, l->w[UP_B], l->raised);
    dense(l->raised, UP, l->w[DOWN_W], WIDTH, n->wide);
    if (i + 1 < LAYERS)
      join(l->h_2, n->wide, l->w[DOWN_B], l[1].w[SCALE_1], l[1].w[OFFSET_1],
           l[1].h_1, l[1].x_1, l[1].stats_1);
    else
      join(l->h_2, n->wide, l->w[DOWN_B], n->w[SCALE_OUT], n->w[OFFSET_OUT],
           n->h_out, n->x_out, n->stats_out);
  }
  dense(n->x_out, WIDTH, n->w[HEAD_W], TOKENS, n->logits);
  return cross_entropy(n->logits, n->labels + from, scale);
}

static void backward(const gpt *n, int from, int first) {
  float none[WIDTH] = {0}; /* the embedding has no bias */
  const gpt_layer *l = &n->layers[LAYERS - 1];

  dense_back(n->x_out, WIDTH, n->w[HEAD_W], TOKENS, n->logits, n->g[HEAD_W],
             first, n->wide);
  join_back(n->h_out, n->wide, n->stats_out, n->w[SCALE_OUT], n->g[SCALE_OUT],
            n->g[OFFSET_OUT], l->g[DOWN_B], n->dh, 1);
  for (int i = LAYERS - 1; i >= 0; i--, l--) {
    float *dx = n->logits; /* no longer needed */

    dense_back(l->raised, UP, l->w[DOWN_W], WIDTH, n->dh, l->g[DOWN_W], first,
               n->wide);
    gelu_back(n->wide, l->slope, l->g[UP_B]);
    dense_back(l->x_2, WIDTH, l->w[UP_W], UP, n->wide, l->g[UP_W], first, dx);
    join_back(l->h_2, dx, l->stats_2, l->w[SCALE_2], l->g[SCALE_2],
              l->g[OFFSET_2], l->g[OUTER_B], n->dh, 0);
    dense_back(l->mixed, WIDTH, l->w[OUTER_W], WIDTH, n->dh, l->g[OUTER_W],
               first, dx);
    attend_back(l, dx, n->wide, n->dpart);
    dense_back(l->x_1, WIDTH, l->w[INNER_W], INNER, n->wide, l->g[INNER_W],
               first, dx);
    join_back(l->h_1, dx, l->stats_1, l->w[SCALE_1], l->g[SCALE_1],
              l->g[OFFSET_1], i > 0 ? l[-1].g[DOWN_B] : none, n->dh, 0);
  }
  embed_back(n, n->tokens + from);
}

/* What is not the result of a product adds up from zero. */
static void clear_gradients(const gpt *n) {
  for (int k = 0; k < ARRAYS; k++) {
    int is_block = k >= BLOCKS && k < SCALE_OUT;
    int of_block = (k - BLOCKS) % BLOCK_ARRAYS;
    int is_matrix = k == HEAD_W ||
                    (is_block && (of_block == INNER_W || of_block == OUTER_W ||
                                  of_block == UP_W || of_block == DOWN_W));

    if (!is_matrix) memset(n->g[k], 0, array_size(k) * sizeof *n->g[k]);
  }
}

static double gpt_step(void *self, int replicas, int with_gradient) {
  const gpt *n = self;
  float scale = 1.0f / (float)(BATCH * STEPS * replicas);
  double loss = 0;

  if (with_gradient) clear_gradients(n);
  for (int from = 0; from < BATCH * STEPS; from += ROWS) {
    loss += forward(n, from, scale);
    if (with_gradient) backward(n, from, from == 0);
  }
  return loss * scale;
}

static void open_layer(gpt *n, gpt_layer *l, int index) {
  l->h_1 = net_need(ROWS * WIDTH_LD * sizeof *l->h_1);
  l->h_2 = net_need(ROWS * WIDTH_LD * sizeof *l->h_2);
  l->x_1 = net_need(ROWS * WIDTH_LD * sizeof *l->x_1);
  l->x_2 = net_need(ROWS * WIDTH_LD * sizeof *l->x_2);
  l->stats_1 = net_need(ROWS * 2 * sizeof *l->stats_1);
  l->stats_2 = net_need(ROWS * 2 * sizeof *l->stats_2);
  l->inner = net_need(ROWS * INNER_LD * sizeof *l->inner);
  l->shares = net_need(ROWS * HEADS * STEPS_LD * sizeof *l->shares);
  l->mixed = net_need(ROWS * WIDTH_LD * sizeof *l->mixed);
  l->raised = net_need(ROWS * UP_LD * sizeof *l->raised);
  l->slope = net_need(ROWS * UP_LD * sizeof *l->slope);
  l->w = n->w + BLOCKS + index * BLOCK_ARRAYS;
  l->g = n->g + BLOCKS + index * BLOCK_ARRAYS;
}

/* Norms begin as they are, biases at zero, matrices with deviation 0.02. */
static void fill(const gpt *n, int k, unsigned *state) {
  int of_block = (k - BLOCKS) % BLOCK_ARRAYS;
  int is_scale =
      k == SCALE_OUT || (k >= BLOCKS && k < SCALE_OUT &&
                         (of_block == SCALE_1 || of_block == SCALE_2));

  for (size_t i = 0; i < array_size(k); i++)
    if (is_scale)
      n->w[k][i] = 1;
    else if (array_size(k) > UP)
      n->w[k][i] = 0.02f * sqrtf(3.0f) * net_uniform(state);
}

static void *gpt_open(const net_spec *spec, float *w, float *g, unsigned seed) {
  gpt *n = net_need(sizeof *n);
  unsigned weights_seed = 1; /* replicas begin with the same weights */
  unsigned data_seed = seed;

  (void)spec;
  for (int k = 0; k < ARRAYS; k++) {
    n->w[k] = w;
    n->g[k] = g;
    w += array_size(k);
    g += array_size(k);
    fill(n, k, &weights_seed);
  }
  for (int i = 0; i < LAYERS; i++) open_layer(n, &n->layers[i], i);
  n->h_out = net_need(ROWS * WIDTH_LD * sizeof *n->h_out);
  n->x_out = net_need(ROWS * WIDTH_LD * sizeof *n->x_out);
  n->stats_out = net_need(ROWS * 2 * sizeof *n->stats_out);
  n->logits = net_need(ROWS * WIDTH_LD * sizeof *n->logits);
  n->wide = net_need(ROWS * UP_LD * sizeof *n->wide);
  n->dh = net_need(ROWS * WIDTH_LD * sizeof *n->dh);
  n->dpart = net_need(STEPS * STEPS_LD * sizeof *n->dpart);
  n->tokens = net_need(BATCH * STEPS * sizeof *n->tokens);
  n->labels = net_need(BATCH * STEPS * sizeof *n->labels);
  for (int r = 0; r < BATCH * STEPS; r++) {
    n->tokens[r] = net_draw(&data_seed, TOKENS);
    n->labels[r] = net_draw(&data_seed, TOKENS);
  }
  return n;
}

const net_calls gpt_calls = {gpt_size, gpt_part, gpt_open, gpt_step};
