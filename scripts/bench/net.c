/* Networks of a few kinds of layers over raw oneDNN. Layouts are those of the
** library: NHWC images, HWIO filters, [in, out] matrices, [time, batch,
** features] sequences. */
#include "net.h"

#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                               \
  do {                                            \
    if ((call) != dnnl_success) {                 \
      fprintf(stderr, "net: %s failed\n", #call); \
      exit(1);                                    \
    }                                             \
  } while (0)

/* A primitive with its memories; `before` and `after` bring weights into its
** layout and gradients out of it. */
typedef struct net_job {
  dnnl_primitive_t primitive;
  dnnl_primitive_t before[2];
  dnnl_exec_arg_t before_args[2][2];
  dnnl_primitive_t after[2];
  dnnl_exec_arg_t after_args[2][2];
  dnnl_exec_arg_t args[20];
  int args_n;
  int before_n;
  int after_n;
} net_job;

typedef struct net_layer {
  net_layer_spec spec;
  int64_t in[3];  /* height, width, channels */
  int64_t out[3]; /* the same of what comes out */
  size_t x_n;     /* elements in, out, parameters */
  size_t y_n;
  size_t weights_n;
  float *x;
  float *y;
  float *dx; /* NULL for the first layer */
  float *dy;
  float *w; /* weights, then bias, in the flat buffers */
  float *g;
  net_job forward;
  net_job backward; /* of the input */
  net_job gradient; /* of the parameters */
} net_layer;

typedef struct net {
  const net_spec *spec;
  dnnl_engine_t engine;
  dnnl_stream_t stream;
  net_layer layers[NET_LAYERS];
  int64_t rows; /* of logits */
  int *labels;  /* [rows] */
  float *x;     /* the input, [batch, height, width, channels] */
} net;

void *net_need(size_t bytes) {
  void *p = aligned_alloc(64, (bytes + 127) & ~(size_t)63);

  if (p == NULL) {
    fprintf(stderr, "net: out of memory\n");
    exit(1);
  }
  memset(p, 0, bytes);
  return p;
}

float net_uniform(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

int net_draw(unsigned *state, int n) {
  return (int)((net_uniform(state) + 1) * 0.5f * (float)n) % n;
}

/* --- descriptions --------------------------------------------------------- */

static dnnl_memory_desc_t strided(int rank, const int64_t *dims,
                                  const int64_t *strides) {
  dnnl_memory_desc_t md;

  CHECK(dnnl_memory_desc_init_by_strides(&md, rank, dims, dnnl_f32, strides));
  return md;
}

static dnnl_memory_desc_t tagged(int rank, const int64_t *dims,
                                 dnnl_format_tag_t tag) {
  dnnl_memory_desc_t md;

  CHECK(dnnl_memory_desc_init_by_tag(&md, rank, dims, dnnl_f32, tag));
  return md;
}

static dnnl_memory_desc_t matrix(int64_t rows, int64_t cols, int transposed) {
  int64_t dims[2] = {rows, cols};
  int64_t strides[2] = {transposed ? 1 : cols, transposed ? rows : 1};

  return strided(2, dims, strides);
}

static dnnl_memory_desc_t images(const net *n, const int64_t *shape) {
  int64_t dims[4] = {n->spec->batch, shape[2], shape[0], shape[1]};

  return tagged(4, dims, dnnl_nhwc);
}

static dnnl_memory_desc_t filters(const net_layer *l, dnnl_format_tag_t tag) {
  int64_t dims[4] = {l->spec.out, l->in[2], l->spec.size, l->spec.size};

  return tagged(4, dims, tag);
}

/* Memory for intermediate values is the caller's: the library's own belongs to
** the thread that makes a primitive, and another one runs it. */
static dnnl_primitive_attr_t new_attr(void) {
  dnnl_primitive_attr_t attr = NULL;

  CHECK(dnnl_primitive_attr_create(&attr));
  CHECK(
      dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
  return attr;
}

static dnnl_primitive_desc_t describe(const net *n, const_dnnl_op_desc_t desc,
                                      const_dnnl_primitive_attr_t attr,
                                      const_dnnl_primitive_desc_t hint) {
  dnnl_primitive_attr_t own = attr == NULL ? new_attr() : NULL;
  dnnl_primitive_desc_t pd = NULL;

  CHECK(dnnl_primitive_desc_create(&pd, desc, own != NULL ? own : attr,
                                   n->engine, hint));
  if (own != NULL) dnnl_primitive_attr_destroy(own);
  return pd;
}

static dnnl_memory_t memory_of(const net *n, const dnnl_memory_desc_t *md,
                               float *data) {
  dnnl_memory_t m = NULL;

  if (data == NULL) data = net_need(dnnl_memory_desc_get_size(md));
  CHECK(dnnl_memory_create(&m, md, n->engine, data));
  return m;
}

/* --- primitives ----------------------------------------------------------- */

static void add(net_job *j, int arg, dnnl_memory_t m) {
  j->args[j->args_n++] = (dnnl_exec_arg_t){arg, m};
}

/* Argument in the layout of `md`, which is the primitive's. */
static void bind(const net *n, net_job *j, int arg,
                 const dnnl_memory_desc_t *md, float *data) {
  add(j, arg, memory_of(n, md, data));
}

/* Argument that lies in another layout: a copy comes in, or goes out. */
static void bind_packed(const net *n, net_job *j,
                        const_dnnl_primitive_desc_t pd, int arg,
                        const dnnl_memory_desc_t *plain, float *data,
                        int is_output) {
  const dnnl_memory_desc_t *md =
      dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  const dnnl_memory_desc_t *from = is_output ? md : plain;
  const dnnl_memory_desc_t *to = is_output ? plain : md;
  dnnl_primitive_desc_t reorder = NULL;
  dnnl_memory_t inner = NULL;
  dnnl_memory_t outer = NULL;
  dnnl_primitive_t *p =
      is_output ? &j->after[j->after_n] : &j->before[j->before_n];
  dnnl_exec_arg_t *args =
      is_output ? j->after_args[j->after_n] : j->before_args[j->before_n];

  if (dnnl_memory_desc_equal(md, plain)) {
    bind(n, j, arg, plain, data);
    return;
  }
  inner = memory_of(n, md, NULL);
  outer = memory_of(n, plain, data);
  CHECK(dnnl_reorder_primitive_desc_create(&reorder, from, n->engine, to,
                                           n->engine, NULL));
  CHECK(dnnl_primitive_create(p, reorder));
  dnnl_primitive_desc_destroy(reorder);
  args[0] = (dnnl_exec_arg_t){DNNL_ARG_FROM, is_output ? inner : outer};
  args[1] = (dnnl_exec_arg_t){DNNL_ARG_TO, is_output ? outer : inner};
  if (is_output)
    j->after_n++;
  else
    j->before_n++;
  add(j, arg, inner);
}

static void run(const net *n, const net_job *j) {
  int i;

  if (j->primitive == NULL) return;
  for (i = 0; i < j->before_n; i++)
    CHECK(
        dnnl_primitive_execute(j->before[i], n->stream, 2, j->before_args[i]));
  CHECK(dnnl_primitive_execute(j->primitive, n->stream, j->args_n, j->args));
  for (i = 0; i < j->after_n; i++)
    CHECK(dnnl_primitive_execute(j->after[i], n->stream, 2, j->after_args[i]));
}

/* A slow kernel would make the floor a ceiling. */
static void create(const net *n, net_job *j, dnnl_primitive_desc_t pd,
                   int is_recurrent) {
  const dnnl_memory_desc_t *scratch =
      dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
  const char *name = NULL;

  CHECK(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                  (void *)&name));
  if (strncmp(name, "ref", 3) == 0 && !is_recurrent) {
    fprintf(stderr, "net: oneDNN chose \"%s\"\n", name);
    exit(1);
  }
  if (scratch != NULL && dnnl_memory_desc_get_size(scratch) > 0)
    bind(n, j, DNNL_ARG_SCRATCHPAD, scratch, NULL);
  CHECK(dnnl_primitive_create(&j->primitive, pd));
  dnnl_primitive_desc_destroy(pd);
}

static dnnl_primitive_attr_t with_relu(int relu) {
  dnnl_primitive_attr_t attr = new_attr();
  dnnl_post_ops_t ops = NULL;

  if (!relu) return attr;
  CHECK(dnnl_post_ops_create(&ops));
  CHECK(dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f));
  CHECK(dnnl_primitive_attr_set_post_ops(attr, ops));
  dnnl_post_ops_destroy(ops);
  return attr;
}

/* --- dense ---------------------------------------------------------------- */

static void product(const net *n, net_job *j, dnnl_memory_desc_t a, float *x,
                    dnnl_memory_desc_t b, float *y, dnnl_memory_desc_t c,
                    float *z, float *bias, int relu) {
  int64_t row[2] = {1, c.dims[1]};
  dnnl_memory_desc_t any = tagged(2, b.dims, dnnl_format_tag_any);
  dnnl_memory_desc_t bias_md = tagged(2, row, dnnl_ab);
  dnnl_primitive_attr_t attr = with_relu(relu);
  dnnl_primitive_desc_t pd = NULL;
  dnnl_matmul_desc_t desc;

  CHECK(dnnl_matmul_desc_init(&desc, &a, &any, bias ? &bias_md : NULL, &c));
  pd = describe(n, &desc, attr, NULL);
  bind(n, j, DNNL_ARG_SRC, &a, x);
  bind_packed(n, j, pd, DNNL_ARG_WEIGHTS, &b, y, 0);
  bind(n, j, DNNL_ARG_DST, &c, z);
  if (bias != NULL) bind(n, j, DNNL_ARG_BIAS, &bias_md, bias);
  create(n, j, pd, 0);
  dnnl_primitive_attr_destroy(attr);
}

static void open_dense(const net *n, net_layer *l) {
  int64_t in = l->in[0] * l->in[1] * l->in[2];
  int64_t out = l->spec.out;
  int64_t rows = n->rows;

  product(n, &l->forward, matrix(rows, in, 0), l->x, matrix(in, out, 0), l->w,
          matrix(rows, out, 0), l->y, l->w + l->weights_n, l->spec.relu);
  product(n, &l->gradient, matrix(in, rows, 1), l->x, matrix(rows, out, 0),
          l->dy, matrix(in, out, 0), l->g, NULL, 0);
  if (l->dx != NULL)
    product(n, &l->backward, matrix(rows, out, 0), l->dy, matrix(out, in, 1),
            l->w, matrix(rows, in, 0), l->dx, NULL, 0);
}

/* --- convolution and pooling ---------------------------------------------- */

static void open_conv(const net *n, net_layer *l) {
  int64_t bias_dims[1] = {l->spec.out};
  dnnl_dims_t one = {1, 1};
  dnnl_dims_t pad = {l->spec.pad, l->spec.pad};
  dnnl_memory_desc_t x = images(n, l->in);
  dnnl_memory_desc_t y = images(n, l->out);
  dnnl_memory_desc_t any = filters(l, dnnl_format_tag_any);
  dnnl_memory_desc_t plain = filters(l, dnnl_hwio);
  dnnl_memory_desc_t bias = tagged(1, bias_dims, dnnl_a);
  dnnl_primitive_attr_t attr = with_relu(l->spec.relu);
  dnnl_convolution_desc_t desc;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_primitive_desc_t pd = NULL;

  CHECK(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training,
                                           dnnl_convolution_direct, &x, &any,
                                           &bias, &y, one, pad, pad));
  hint = describe(n, &desc, attr, NULL);
  bind(n, &l->forward, DNNL_ARG_SRC, &x, l->x);
  bind_packed(n, &l->forward, hint, DNNL_ARG_WEIGHTS, &plain, l->w, 0);
  bind(n, &l->forward, DNNL_ARG_BIAS, &bias, l->w + l->weights_n);
  bind(n, &l->forward, DNNL_ARG_DST, &y, l->y);
  CHECK(dnnl_convolution_backward_weights_desc_init(
      &desc, dnnl_convolution_direct, &x, &any, &bias, &y, one, pad, pad));
  pd = describe(n, &desc, NULL, hint);
  bind(n, &l->gradient, DNNL_ARG_SRC, &x, l->x);
  bind(n, &l->gradient, DNNL_ARG_DIFF_DST, &y, l->dy);
  bind_packed(n, &l->gradient, pd, DNNL_ARG_DIFF_WEIGHTS, &plain, l->g, 1);
  bind(n, &l->gradient, DNNL_ARG_DIFF_BIAS, &bias, l->g + l->weights_n);
  create(n, &l->gradient, pd, 0);
  if (l->dx != NULL) {
    CHECK(dnnl_convolution_backward_data_desc_init(
        &desc, dnnl_convolution_direct, &x, &any, &y, one, pad, pad));
    pd = describe(n, &desc, NULL, hint);
    bind(n, &l->backward, DNNL_ARG_DIFF_DST, &y, l->dy);
    bind_packed(n, &l->backward, pd, DNNL_ARG_WEIGHTS, &plain, l->w, 0);
    bind(n, &l->backward, DNNL_ARG_DIFF_SRC, &x, l->dx);
    create(n, &l->backward, pd, 0);
  }
  create(n, &l->forward, hint, 0);
  dnnl_primitive_attr_destroy(attr);
}

static void open_pool(const net *n, net_layer *l) {
  dnnl_dims_t window = {l->spec.size, l->spec.size};
  dnnl_dims_t none = {0, 0};
  dnnl_memory_desc_t x = images(n, l->in);
  dnnl_memory_desc_t y = images(n, l->out);
  const dnnl_memory_desc_t *ws = NULL;
  dnnl_memory_t workspace = NULL;
  dnnl_pooling_desc_t desc;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_primitive_desc_t pd = NULL;

  CHECK(dnnl_pooling_forward_desc_init(&desc, dnnl_forward_training,
                                       dnnl_pooling_max, &x, &y, window, window,
                                       none, none));
  hint = describe(n, &desc, NULL, NULL);
  ws = dnnl_primitive_desc_query_md(hint, dnnl_query_workspace_md, 0);
  workspace = memory_of(n, ws, NULL);
  bind(n, &l->forward, DNNL_ARG_SRC, &x, l->x);
  bind(n, &l->forward, DNNL_ARG_DST, &y, l->y);
  add(&l->forward, DNNL_ARG_WORKSPACE, workspace);
  CHECK(dnnl_pooling_backward_desc_init(&desc, dnnl_pooling_max, &x, &y, window,
                                        window, none, none));
  pd = describe(n, &desc, NULL, hint);
  bind(n, &l->backward, DNNL_ARG_DIFF_DST, &y, l->dy);
  bind(n, &l->backward, DNNL_ARG_DIFF_SRC, &x, l->dx);
  add(&l->backward, DNNL_ARG_WORKSPACE, workspace);
  create(n, &l->backward, pd, 0);
  create(n, &l->forward, hint, 0);
}

/* --- LSTM ----------------------------------------------------------------- */

typedef struct recurrent {
  dnnl_memory_desc_t x;
  dnnl_memory_desc_t y;
  dnnl_memory_desc_t state;
  dnnl_memory_desc_t none;
  dnnl_memory_desc_t any_x; /* weights, layout left to the library */
  dnnl_memory_desc_t any_h;
  dnnl_memory_desc_t w_x; /* as they lie in the flat buffers */
  dnnl_memory_desc_t w_h;
  dnnl_memory_desc_t b;
} recurrent;

static recurrent lstm_layouts(const net *n, const net_layer *l) {
  int64_t units = l->spec.out;
  int64_t x[3] = {n->spec->steps, n->spec->batch, l->in[2]};
  int64_t y[3] = {n->spec->steps, n->spec->batch, units};
  int64_t state[4] = {1, 1, n->spec->batch, units};
  int64_t w_x[5] = {1, 1, l->in[2], 4, units};
  int64_t w_h[5] = {1, 1, units, 4, units};
  int64_t b[4] = {1, 1, 4, units};
  recurrent r;

  memset(&r, 0, sizeof r);
  r.x = tagged(3, x, dnnl_tnc);
  r.y = tagged(3, y, dnnl_tnc);
  r.state = tagged(4, state, dnnl_ldnc);
  r.any_x = tagged(5, w_x, dnnl_format_tag_any);
  r.any_h = tagged(5, w_h, dnnl_format_tag_any);
  r.w_x = tagged(5, w_x, dnnl_ldigo);
  r.w_h = tagged(5, w_h, dnnl_ldigo);
  r.b = tagged(4, b, dnnl_ldgo);
  return r;
}

/* What both directions read. The state starts from zero, which has to be said:
** without a first state oneDNN 2.6 gives U a wrong gradient. */
static void bind_lstm(const net *n, net_layer *l, net_job *j,
                      const_dnnl_primitive_desc_t pd, const recurrent *r,
                      dnnl_memory_t workspace) {
  float *w_h = l->w + l->in[2] * 4 * l->spec.out;

  bind(n, j, DNNL_ARG_SRC_LAYER, &r->x, l->x);
  bind(n, j, DNNL_ARG_SRC_ITER, &r->state, NULL);
  bind(n, j, DNNL_ARG_SRC_ITER_C, &r->state, NULL);
  bind_packed(n, j, pd, DNNL_ARG_WEIGHTS_LAYER, &r->w_x, l->w, 0);
  bind_packed(n, j, pd, DNNL_ARG_WEIGHTS_ITER, &r->w_h, w_h, 0);
  bind(n, j, DNNL_ARG_BIAS, &r->b, l->w + l->weights_n);
  bind(n, j, DNNL_ARG_DST_LAYER, &r->y, l->y);
  add(j, DNNL_ARG_WORKSPACE, workspace);
}

/* One primitive gives all gradients: that of the input is computed too. */
static void open_lstm(const net *n, net_layer *l) {
  float *g_h = l->g + l->in[2] * 4 * l->spec.out;
  recurrent r = lstm_layouts(n, l);
  dnnl_memory_t workspace = NULL;
  dnnl_rnn_desc_t desc;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_primitive_desc_t pd = NULL;

  CHECK(dnnl_lstm_forward_desc_init(
      &desc, dnnl_forward_training, dnnl_unidirectional_left2right, &r.x,
      &r.state, &r.state, &r.any_x, &r.any_h, &r.b, &r.y, &r.none, &r.none, 0));
  hint = describe(n, &desc, NULL, NULL);
  workspace = memory_of(
      n, dnnl_primitive_desc_query_md(hint, dnnl_query_workspace_md, 0), NULL);
  bind_lstm(n, l, &l->forward, hint, &r, workspace);
  CHECK(dnnl_lstm_backward_desc_init(
      &desc, dnnl_backward, dnnl_unidirectional_left2right, &r.x, &r.state,
      &r.state, &r.any_x, &r.any_h, &r.b, &r.y, &r.none, &r.none, &r.x,
      &r.state, &r.state, &r.w_x, &r.w_h, &r.b, &r.y, &r.none, &r.none, 0));
  pd = describe(n, &desc, NULL, hint);
  bind_lstm(n, l, &l->gradient, pd, &r, workspace);
  bind(n, &l->gradient, DNNL_ARG_DIFF_DST_LAYER, &r.y, l->dy);
  bind(n, &l->gradient, DNNL_ARG_DIFF_SRC_LAYER, &r.x, l->dx);
  bind(n, &l->gradient, DNNL_ARG_DIFF_SRC_ITER, &r.state, NULL);
  bind(n, &l->gradient, DNNL_ARG_DIFF_SRC_ITER_C, &r.state, NULL);
  bind(n, &l->gradient, DNNL_ARG_DIFF_WEIGHTS_LAYER, &r.w_x, l->g);
  bind(n, &l->gradient, DNNL_ARG_DIFF_WEIGHTS_ITER, &r.w_h, g_h);
  bind(n, &l->gradient, DNNL_ARG_DIFF_BIAS, &r.b, l->g + l->weights_n);
  create(n, &l->gradient, pd, 1);
  create(n, &l->forward, hint, 1);
}

/* --- the network ---------------------------------------------------------- */

/* Sizes of layer l, whose input has shape `in`. */
static void measure(const net_spec *spec, net_layer *l, const int64_t *in) {
  const net_layer_spec *s = &l->spec;
  size_t examples = (size_t)(spec->batch * spec->steps);
  int i;

  for (i = 0; i < 3; i++) l->in[i] = in[i];
  l->out[0] = l->out[1] = 1;
  l->out[2] = s->out;
  l->weights_n = (size_t)(in[0] * in[1] * in[2] * s->out);
  if (s->kind == NET_CONV) {
    l->out[0] = in[0] + 2 * s->pad - s->size + 1;
    l->out[1] = in[1] + 2 * s->pad - s->size + 1;
    l->weights_n = (size_t)(s->size * s->size * in[2] * s->out);
  } else if (s->kind == NET_POOL) {
    l->out[0] = in[0] / s->size;
    l->out[1] = in[1] / s->size;
    l->out[2] = in[2];
    l->weights_n = 0;
  } else if (s->kind == NET_LSTM) {
    l->weights_n = (size_t)((in[2] + s->out) * 4 * s->out);
  }
  l->x_n = examples * (size_t)(in[0] * in[1] * in[2]);
  l->y_n = examples * (size_t)(l->out[0] * l->out[1] * l->out[2]);
}

static size_t bias_n(const net_layer *l) {
  if (l->spec.kind == NET_POOL) return 0;
  return (size_t)l->spec.out * (l->spec.kind == NET_LSTM ? 4 : 1);
}

static size_t net_size(const net_spec *spec) {
  int64_t shape[3] = {spec->height, spec->width, spec->channels};
  size_t total = 0;
  int i;

  for (i = 0; i < spec->layers_n; i++) {
    net_layer l = {.spec = spec->layers[i]};

    measure(spec, &l, shape);
    total += l.weights_n + bias_n(&l);
    memcpy(shape, l.out, sizeof shape);
  }
  return total;
}

/* Floats of an LSTM's W, which U follows; of other layers, all weights. */
static size_t input_weights_n(const net_layer *l) {
  if (l->spec.kind != NET_LSTM) return l->weights_n;
  return (size_t)(l->in[2] * 4 * l->spec.out);
}

static size_t net_part(const void *self, int k) {
  const net *n = self;
  int i;
  int s;

  for (i = 0; i < n->spec->layers_n; i++) {
    const net_layer *l = &n->layers[i];
    size_t sizes[3] = {input_weights_n(l), l->weights_n - input_weights_n(l),
                       bias_n(l)};

    for (s = 0; s < 3; s++)
      if (sizes[s] > 0 && k-- == 0) return sizes[s];
  }
  return 0;
}

static void fill(net_layer *l, unsigned *state) {
  int64_t fan = l->spec.kind == NET_CONV
                    ? l->spec.size * l->spec.size * l->in[2]
                    : l->in[0] * l->in[1] * l->in[2];
  float scale = sqrtf(3.0f / (float)fan);
  size_t i;

  for (i = 0; i < l->weights_n; i++) l->w[i] = scale * net_uniform(state);
}

static void *net_open(const net_spec *spec, float *w, float *g, unsigned seed) {
  net *n = net_need(sizeof *n);
  int64_t shape[3] = {spec->height, spec->width, spec->channels};
  unsigned weights_seed = 1; /* replicas begin with the same weights */
  unsigned data_seed = seed;
  int i;
  size_t k;

  n->spec = spec;
  n->rows = spec->batch * spec->steps;
  CHECK(dnnl_engine_create(&n->engine, dnnl_cpu, 0));
  CHECK(dnnl_stream_create(&n->stream, n->engine, dnnl_stream_default_flags));
  for (i = 0; i < spec->layers_n; i++) {
    net_layer *l = &n->layers[i];

    l->spec = spec->layers[i];
    measure(spec, l, shape);
    l->w = w;
    l->g = g;
    w += l->weights_n + bias_n(l);
    g += l->weights_n + bias_n(l);
    fill(l, &weights_seed);
    l->x = i > 0 ? l[-1].y : net_need(l->x_n * sizeof *l->x);
    l->y = net_need(l->y_n * sizeof *l->y);
    l->dy = net_need(l->y_n * sizeof *l->dy);
    /* A recurrent primitive writes the input's gradient in any case. */
    if (i > 0) l->dx = l[-1].dy;
    if (i == 0 && l->spec.kind == NET_LSTM)
      l->dx = net_need(l->x_n * sizeof *l->x);
    memcpy(shape, l->out, sizeof shape);
    switch (l->spec.kind) {
    case NET_DENSE:
      open_dense(n, l);
      break;
    case NET_CONV:
      open_conv(n, l);
      break;
    case NET_POOL:
      open_pool(n, l);
      break;
    case NET_LSTM:
      open_lstm(n, l);
      break;
    }
  }
  n->x = n->layers[0].x;
  n->labels = net_need((size_t)n->rows * sizeof *n->labels);
  for (k = 0; k < n->layers[0].x_n; k++) n->x[k] = net_uniform(&data_seed);
  for (k = 0; k < (size_t)n->rows; k++)
    n->labels[k] = net_draw(&data_seed, (int)spec->classes);
  return n;
}

/* Mean loss; the logits' gradient goes where the last layer wants it. */
static double cross_entropy(const net *n, int replicas) {
  const net_layer *l = &n->layers[n->spec->layers_n - 1];
  int64_t classes = n->spec->classes;
  float scale = 1.0f / (float)(n->rows * replicas);
  double loss = 0;
  int64_t r, c;

  for (r = 0; r < n->rows; r++) {
    const float *z = l->y + r * classes;
    float *d = l->dy + r * classes;
    float most = z[0];
    float sum = 0;

    for (c = 1; c < classes; c++) most = z[c] > most ? z[c] : most;
    for (c = 0; c < classes; c++) sum += d[c] = expf(z[c] - most);
    loss -= z[n->labels[r]] - most - logf(sum);
    for (c = 0; c < classes; c++) d[c] *= scale / sum;
    d[n->labels[r]] -= scale;
  }
  return loss * scale;
}

FAST static void sum_rows(float *restrict sum, const float *restrict x,
                          int64_t rows, int64_t cols) {
  memset(sum, 0, (size_t)cols * sizeof *sum);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) sum[c] += x[r * cols + c];
}

FAST static void relu_gradient(float *restrict dy, const float *restrict y,
                               size_t n) {
  for (size_t k = 0; k < n; k++) dy[k] = y[k] > 0 ? dy[k] : 0;
}

static double net_step(void *self, int replicas, int with_gradient) {
  const net *n = self;
  double loss = 0;
  int i;

  for (i = 0; i < n->spec->layers_n; i++) run(n, &n->layers[i].forward);
  loss = cross_entropy(n, replicas);
  if (!with_gradient) return loss;
  for (i = n->spec->layers_n - 1; i >= 0; i--) {
    const net_layer *l = &n->layers[i];

    if (l->spec.relu) relu_gradient(l->dy, l->y, l->y_n);
    /* Its primitive adds to what is there. */
    if (l->spec.kind == NET_LSTM)
      memset(l->g, 0, (l->weights_n + bias_n(l)) * sizeof *l->g);
    run(n, &l->gradient);
    if (l->spec.kind == NET_DENSE)
      sum_rows(l->g + l->weights_n, l->dy, n->rows, l->spec.out);
    run(n, &l->backward);
  }
  return loss;
}

const net_calls net_calls_of_layers = {net_size, net_part, net_open, net_step};
