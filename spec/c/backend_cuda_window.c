/* Pooling windows of any geometry and recurrent layers of the CUDA back end.
 */
#include "backend_cuda.h"

#include "backend/recurrent.h"

#include "backend/recurrent.h"

/* --- pooling -------------------------------------------------------------- */

enum { SAME = 1 };

typedef struct geometry {
  int rank;
  int64_t in[5];
  int64_t out[5];
  int64_t kernel;
  int64_t stride;
  bool first; /* channels come first */
} geometry;

static const geometry geometries[] = {
    {5, {2, 5, 6, 7, 3}, {2, 3, 3, 4, 3}, 3, 2, false},
    {5, {2, 3, 5, 6, 7}, {2, 3, 3, 3, 4}, 2, 2, true},
    {4, {2, 9, 8, 5}, {2, 5, 4, 5}, 2, 2, false}, /* pads one end of rows */
    {4, {1, 4, 7, 6}, {1, 4, 7, 6}, 4, 1, true},
    {3, {3, 11, 4}, {3, 6, 4}, 4, 2, false}};

static tfd__view input_of(const geometry *g, int dtype, int seed) {
  return make(dtype, g->rank, g->in, seed, 1, 0);
}

static tfd__view output_of(const geometry *g, int dtype, int seed) {
  return make(dtype, g->rank, g->out, seed, 1, 0);
}

static example pool_of(const named *k, const geometry *g, int in_n, int out_n) {
  example e = {
      .id = k->id, .name = k->name, .in_n = in_n, .out_n = out_n, .ints_n = 31};

  e.ints[0] = e.ints[9] = 1;
  e.ints[1] = g->kernel;
  e.ints[10] = g->stride;
  e.ints[18] = SAME;
  e.ints[19] = g->first;
  e.ints[20] = -1;
  return e;
}

static void finish(example *e) {
  check(e);
  drop(e);
}

static void test_pools(void **state) {
  static const named max = K(max_pool, 1, 0);
  static const named avg = K(avg_pool, 1, 0);
  static const named place = K(max_pool_with_argmax, 1, 0);

  (void)state;
  for (int i = 0; i < COUNT(geometries); i++) {
    const geometry *g = &geometries[i];

    for (int d = 0; d < COUNT(numbers); d++) {
      example e = pool_of(&max, g, 1, 1);

      e.v[0] = input_of(g, numbers[d], 1);
      e.v[1] = output_of(g, numbers[d], 2);
      finish(&e);
    }
    for (int d = 0; d < COUNT(floats); d++) {
      example e = pool_of(&avg, g, 1, 1);
      int to = d % 2 ? TFD_INT32 : TFD_INT64;

      e.tolerance = tolerance_of(floats[d]);
      e.v[0] = input_of(g, floats[d], 1);
      e.v[1] = output_of(g, floats[d], 2);
      finish(&e);
      e = pool_of(&place, g, 1, 2);
      e.ints[29] = to;
      e.ints[30] = i % 2;
      e.v[0] = input_of(g, floats[d], 1);
      e.v[1] = output_of(g, floats[d], 2);
      e.v[2] = output_of(g, to, 2);
      finish(&e);
    }
  }
}

/* y = max_pool(x), on the CPU. */
static void largest(const geometry *g, tfd__view *views) {
  static const named max = K(max_pool, 1, 0);
  example e = pool_of(&max, g, 1, 1);
  tfd__call call = {.name = "max_pool",
                    .ints = e.ints,
                    .ints_n = 31,
                    .in_n = 1,
                    .out_n = 1,
                    .views = views};

  assert_int_equal(tfd__cpu_backend.kernels[max.id](&call), TFD_OK);
}

static void test_pool_gradients(void **state) {
  static const named max = K(max_pool_grad, 1, 0);
  static const named avg = K(avg_pool_grad, 1, 0);
  static const named second = K(max_pool_grad_grad, 1, 0);

  (void)state;
  for (int i = 0; i < COUNT(geometries); i++) {
    const geometry *g = &geometries[i];

    for (int d = 0; d < COUNT(floats); d++) {
      int dtype = floats[d];
      example e = pool_of(&avg, g, 1, 1);

      e.tolerance = tolerance_of(dtype);
      e.v[0] = output_of(g, dtype, 1);
      e.v[1] = input_of(g, dtype, 2);
      finish(&e);
      e = pool_of(&max, g, 3, 1);
      e.tolerance = tolerance_of(dtype);
      e.v[0] = input_of(g, dtype, 1);
      e.v[1] = output_of(g, dtype, 2);
      largest(g, e.v);
      e.v[2] = output_of(g, dtype, 3);
      e.v[3] = input_of(g, dtype, 4);
      finish(&e);
      e = pool_of(&second, g, 3, 1);
      e.v[0] = input_of(g, dtype, 1);
      e.v[1] = output_of(g, dtype, 2);
      largest(g, e.v);
      e.v[2] = input_of(g, dtype, 3);
      e.v[3] = output_of(g, dtype, 4);
      finish(&e);
    }
  }
}

/* --- recurrence ----------------------------------------------------------- */

enum { STEPS = 3, BATCH = 4, DEPTH = 5, UNITS = 6 };

static const tfd__view absent;

/* x, kernel, recurrent, bias, h0, [c0]: how many. `full`: none is absent. */
static int layer_inputs(int dtype, int gates, bool full, tfd__view *v) {
  int64_t n = gates * UNITS;
  int k = 3;

  v[0] = make(dtype, DIMS(STEPS, BATCH, DEPTH), 1, 1, 0);
  v[1] = make(dtype, DIMS(DEPTH, n), 2, 0.5, 0);
  v[2] = make(dtype, DIMS(UNITS, n), 3, 0.5, 0);
  v[k++] = !full        ? absent
           : gates == 4 ? make(dtype, DIMS(n), 4, 0.3, 0)
                        : make(dtype, DIMS(2, n), 4, 0.3, 0);
  v[k++] = full ? make(dtype, DIMS(BATCH, UNITS), 5, 1, 0) : absent;
  if (gates == 4)
    v[k++] = full ? make(dtype, DIMS(BATCH, UNITS), 6, 1, 0) : absent;
  return k;
}

/* sequence, h, [c,] workspace; its layout is each device's own affair. */
static int layer_outputs(int dtype, int gates, tfd__view *v) {
  int k = 0;

  v[k++] = make(dtype, DIMS(STEPS, BATCH, UNITS), 1, 1, 0);
  v[k++] = make(dtype, DIMS(BATCH, UNITS), 1, 1, 0);
  if (gates == 4) v[k++] = make(dtype, DIMS(BATCH, UNITS), 1, 1, 0);
  return k;
}

static void forward(int dtype, int gates, bool full) {
  static const named names[] = {K(gru, 1, 0), K(lstm, 1, 0)};
  const named *k = &names[gates == 4];
  example e = {.id = k->id,
               .name = k->name,
               .ints = {0},
               .ints_n = 1,
               .tolerance = tolerance_of(dtype) * 8};

  e.in_n = layer_inputs(dtype, gates, full, e.v);
  e.out_n = layer_outputs(dtype, gates, e.v + e.in_n);
  e.v[e.in_n + e.out_n++] = make(TFD_UINT8, DIMS(0), 1, 1, 0);
  finish(&e);
}

static void test_layers(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(floats); d++) {
    for (int full = 0; full < 2; full++) {
      forward(floats[d], 3, full);
      forward(floats[d], 4, full);
    }
  }
}

/* As a forward pass may have left it: gates of all steps, cells. */
static tfd__view workspace_of(int dtype, int gates) {
  tfd__recurrent r = {STEPS, BATCH, DEPTH, UNITS, gates};
  tfd__view v =
      make(TFD_UINT8, DIMS(tfd__recurrent_workspace(&r, dtype)), 1, 0, 0);
  int64_t numbers_n = (int64_t)STEPS * BATCH * UNITS * 5;

  *(int64_t *)v.data = TFD_WORKSPACE_PLAIN;
  for (int64_t i = 0; i < numbers_n; i++) {
    tfd__store((char *)v.data + TFD_WORKSPACE_HEADER +
                   (size_t)i * tfd__dtype_size(dtype),
               dtype, value_at(i, 7) / 2 + 0.5);
  }
  return v;
}

/* Of what layer_inputs has, of all of them. */
static int layer_gradients(int dtype, int gates, tfd__view *v) {
  tfd__view like[6];
  int n = layer_inputs(dtype, gates, true, like);
  int i;

  for (i = 0; i < n; i++) {
    v[i] = make(dtype, like[i].rank, like[i].dims, 1, 1, 0);
    tfd__free(like[i].data);
  }
  return n;
}

static void backward(int dtype, int gates) {
  static const named names[] = {K(gru_grad, 1, 0), K(lstm_grad, 1, 0)};
  const named *k = &names[gates == 4];
  example e = {
      .id = k->id, .name = k->name, .tolerance = tolerance_of(dtype) * 32};

  e.in_n = layer_inputs(dtype, gates, true, e.v);
  e.in_n += layer_outputs(dtype, gates, e.v + e.in_n);
  e.v[e.in_n++] = workspace_of(dtype, gates);
  e.in_n += layer_outputs(dtype, gates, e.v + e.in_n);
  e.out_n = layer_gradients(dtype, gates, e.v + e.in_n);
  finish(&e);
}

static void test_layer_gradients(void **state) {
  (void)state;
  for (int gates = 3; gates <= 4; gates++) {
    backward(TFD_FLOAT32, gates);
    backward(TFD_FLOAT64, gates);
  }
}

ON_GPU(test_pools)
ON_GPU(test_pool_gradients)
ON_GPU(test_layers)
ON_GPU(test_layer_gradients)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pools_gpu),
      cmocka_unit_test(test_pool_gradients_gpu),
      cmocka_unit_test(test_layers_gpu),
      cmocka_unit_test(test_layer_gradients_gpu)};

  return cmocka_run_group_tests(tests, find_gpu, count_examples);
}
