/* A network for one replica: what steps.c runs several of. Parameters and
** gradients lie in flat buffers that the caller owns. */
#ifndef BENCH_NET_H
#define BENCH_NET_H

#include <stddef.h>
#include <stdint.h>

/* Loops that a floor must not lose time in. */
#if defined(__x86_64__)
#define FAST                                                     \
  __attribute__((optimize("O3"), target_clones("arch=x86-64-v4", \
                                               "arch=x86-64-v3", "default")))
#else
#define FAST __attribute__((optimize("O3")))
#endif

enum { NET_LAYERS = 8 };

typedef enum net_kind { NET_DENSE, NET_CONV, NET_POOL, NET_LSTM } net_kind;

/* What the user of the network says of a layer. */
typedef struct net_layer_spec {
  net_kind kind;
  int64_t out;  /* units or channels; 0: as the input */
  int64_t size; /* filter or pooling window */
  int64_t pad;
  int relu;
} net_layer_spec;

typedef struct net_spec net_spec;

/* What steps.c asks of a network. */
typedef struct net_calls {
  /* Number of parameters. */
  size_t (*size)(const net_spec *spec);
  /* Size of the k-th array of parameters, 0 when there are no more; they lie
  ** in the flat buffers in this order: matrices of a layer, then its bias. */
  size_t (*part)(const void *self, int k);
  /* A network; w and g hold `size` floats. Exits with a message when oneDNN
  ** refuses. */
  void *(*open)(const net_spec *spec, float *w, float *g, unsigned seed);
  /* Mean cross-entropy over rows * replicas; g gets its gradient if asked. */
  double (*step)(void *self, int replicas, int with_gradient);
} net_calls;

struct net_spec {
  const char *name;
  const net_calls *calls;
  int turns; /* of a measurement */
  int64_t batch;
  int64_t steps;  /* time steps of recurrent networks, else 1 */
  int64_t height; /* of images, else 1 */
  int64_t width;
  int64_t channels; /* or features */
  int64_t classes;
  int layers_n;
  net_layer_spec layers[NET_LAYERS];
};

extern const net_calls net_calls_of_layers; /* as the spec says */
extern const net_calls gpt_calls;           /* the spec says nothing of it */
extern const net_calls tiny_calls;          /* nor of it */

/* Zeros. Exits with a message when there is no memory. */
void *net_need(size_t bytes);
/* The next number in [-1, 1), and in [0, n). */
float net_uniform(unsigned *state);
int net_draw(unsigned *state, int n);

#endif
