/* A network over raw oneDNN, for one replica: what steps.c runs several of.
** Parameters and gradients lie in flat buffers that the caller owns. */
#ifndef BENCH_NET_H
#define BENCH_NET_H

#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>
#include <stdint.h>

/* Loops that a floor must not lose time in. */
#if defined(__x86_64__)
#define FAST \
  __attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default")))
#else
#define FAST __attribute__((optimize("O3")))
#endif

enum { NET_LAYERS = 8, NET_JOBS = 4 };

typedef enum net_kind { NET_DENSE, NET_CONV, NET_POOL, NET_LSTM } net_kind;

/* What the user of the network says of a layer. */
typedef struct net_layer_spec {
  net_kind kind;
  int64_t out;  /* units or channels; 0: as the input */
  int64_t size; /* filter or pooling window */
  int64_t pad;
  int relu;
} net_layer_spec;

typedef struct net_spec {
  const char *name;
  int64_t batch;
  int64_t steps;  /* time steps of recurrent networks, else 1 */
  int64_t height; /* of images, else 1 */
  int64_t width;
  int64_t channels; /* or features */
  int64_t classes;
  int layers_n;
  net_layer_spec layers[NET_LAYERS];
} net_spec;

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

/* Number of parameters. */
size_t net_size(const net_spec *spec);
/* Size of the k-th array of parameters, 0 when there are no more; they lie in
** the flat buffers in this order: matrices of a layer, then its bias. */
size_t net_part(const net *n, int k);
/* w and g hold net_size floats. Exits with a message when oneDNN refuses. */
void net_open(net *n, const net_spec *spec, float *w, float *g, unsigned seed);
/* Mean cross-entropy over rows * replicas; g gets its gradient if asked. */
double net_step(net *n, int replicas, int with_gradient);

#endif
