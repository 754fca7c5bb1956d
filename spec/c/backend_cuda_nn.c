/* Losses, layers, optimizers, products and errors of the CUDA back end. */
#include "backend_cuda.h"

#include "backend/update_list.h"

/* --- losses, bias, dropout, gather ---------------------------------------- */

static void test_rows(void **state) {
  static const int64_t widths[] = {1, 10, 33, 2000, 5000};
  (void)state;
  for (int d = 0; d < 4; d++) {
    for (int w = 0; w < COUNT(widths); w++) {
      int dtype = floats[d];
      int64_t n = widths[w];
      double tolerance = tolerance_of(dtype) * 8;
      example s = {.id = TFD_KERNEL_softmax,
                   .name = "softmax",
                   .in_n = 1,
                   .out_n = 1,
                   .tolerance = tolerance};
      example l = {.id = TFD_KERNEL_sparse_softmax_cross_entropy,
                   .name = "sparse_softmax_cross_entropy",
                   .in_n = 2,
                   .out_n = 1,
                   .tolerance = tolerance};
      int64_t i;

      s.v[0] = make(dtype, 2, (int64_t[]){37, n}, 1, 5, 0);
      s.v[1] = make(dtype, 2, (int64_t[]){37, n}, 1, 5, 0);
      check(&s);
      s.id = TFD_KERNEL_log_softmax;
      s.name = "log_softmax";
      check(&s);
      drop(&s);
      s.id = TFD_KERNEL_softmax_cross_entropy;
      s.name = "softmax_cross_entropy";
      s.in_n = 2;
      s.v[0] = make(dtype, 2, (int64_t[]){37, n}, 1, 0.5, 0.5);
      s.v[1] = make(dtype, 2, (int64_t[]){37, n}, 2, 5, 0);
      s.v[2] = make(dtype, 1, (int64_t[]){37}, 3, 5, 0);
      s.tolerance = dtype == TFD_FLOAT32 ? 3e-4 : tolerance * 20;
      check(&s);
      drop(&s);
      l.v[0] = make(TFD_INT64, 1, (int64_t[]){37}, 1, 0, 0);
      for (i = 0; i < 37; i++) ((int64_t *)l.v[0].data)[i] = i % n;
      l.v[1] = make(dtype, 2, (int64_t[]){37, n}, 1, 5, 0);
      l.v[2] = make(dtype, 1, (int64_t[]){37}, 1, 5, 0);
      check(&l);
      l.id = TFD_KERNEL_sparse_softmax_cross_entropy_grad;
      l.name = "sparse_softmax_cross_entropy_grad";
      l.in_n = 3;
      l.v[3] = make(dtype, 2, (int64_t[]){37, n}, 1, 5, 0);
      check(&l);
      drop(&l);
    }
  }
}

static void test_nn(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    int dtype = floats[d];

    for (int first = 0; first < 2; first++) {
      example e = {.id = TFD_KERNEL_bias_add,
                   .name = "bias_add",
                   .in_n = 2,
                   .out_n = 1,
                   .ints = {first},
                   .ints_n = 1,
                   .tolerance = tolerance_of(dtype)};

      e.v[0] = make(dtype, DIMS(3, 7, 5, 7), 1, 3, 0);
      e.v[1] = make(dtype, DIMS(7), 2, 3, 0);
      e.v[2] = make(dtype, DIMS(3, 7, 5, 7), 3, 3, 0);
      check(&e);
      e.id = TFD_KERNEL_bias_add_relu;
      e.name = "bias_add_relu";
      check(&e);
      drop(&e);
    }
    {
      example e = {.id = TFD_KERNEL_dropout,
                   .name = "dropout",
                   .in_n = 1,
                   .out_n = 1,
                   .ints = {11, 22, 33, 44},
                   .ints_n = 4,
                   .reals = {0.3},
                   .reals_n = 1,
                   .tolerance = tolerance_of(dtype)};

      e.v[0] = make(dtype, DIMS(1003), 1, 3, 0);
      e.v[1] = make(dtype, DIMS(1003), 2, 3, 0);
      check(&e);
      drop(&e);
    }
  }
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int axis = 0; axis < 2; axis++) {
      example e = {.id = TFD_KERNEL_gather,
                   .name = "gather",
                   .in_n = 2,
                   .out_n = 1,
                   .ints = {0, 1, axis},
                   .ints_n = 11};
      int i;

      e.v[0] = make(numbers[d], DIMS(20, 30), 1, 3, 0);
      e.v[1] = make(TFD_INT32, DIMS(2, 3), 2, 0, 0);
      for (i = 0; i < 6; i++) ((int32_t *)e.v[1].data)[i] = i * 3;
      e.v[2] = axis ? make(numbers[d], DIMS(20, 2, 3), 3, 3, 0)
                    : make(numbers[d], DIMS(2, 3, 30), 3, 3, 0);
      check(&e);
      drop(&e);
    }
  }
}

/* --- optimizers ----------------------------------------------------------- */

static void test_update(void **state) {
#define RULE(rule, targets, rest) \
  {TFD_KERNEL_update_##rule, "update_" #rule, targets, 0},
  static const named rules[] = {TFD_UPDATE_RULES(RULE)};
  (void)state;
  for (int d = 0; d < 4; d++) {
    for (int i = 0; i < COUNT(rules); i++) {
      for (int grads = 1; grads < 4; grads += 2) {
        int targets = (int)rules[i].scale;
        example e = {.id = rules[i].id,
                     .name = rules[i].name,
                     .in_n = targets + grads + 1,
                     .out_n = targets,
                     .reals = {0.01, 0.1, 0.9, 0.99, 1e-3, 0.5, 0.3, 0.2},
                     .reals_n = 8,
                     .tolerance = tolerance_of(floats[d]) * 20};
        int t;

        if (rules[i].id == TFD_KERNEL_update_ftrl) e.reals[2] = 0.5;
        for (t = 0; t < targets + grads; t++) {
          e.v[t] = make(floats[d], DIMS(1003), t, 0.3, t == 0 ? 0 : 0.5);
        }
        for (t = 0; t < targets; t++) {
          e.v[e.in_n + t] = make(floats[d], DIMS(1003), t, 1, 0);
        }
        check(&e);
        drop(&e);
      }
    }
  }
}

/* --- products, convolution, pooling --------------------------------------- */

static void product(int dtype, const int64_t *a, int a_n, const int64_t *b,
                    int b_n, const int64_t *c, int c_n, int ta, int tb,
                    bool strided) {
  example e = {.id = TFD_KERNEL_matmul,
               .name = "matmul",
               .in_n = 2,
               .out_n = 1,
               .ints = {ta, tb, 0, 0},
               .ints_n = 4,
               .tolerance = tolerance_of(dtype) * 10};

  e.v[0] = make(dtype, a_n, a, 1, 1, 0);
  e.v[1] = make(dtype, b_n, b, 2, 1, 0);
  e.v[2] = make(dtype, c_n, c, 3, 1, 0);
  if (strided) { /* every second column of twice as many */
    int64_t wide[8];

    memcpy(wide, a, sizeof(int64_t) * (size_t)a_n);
    wide[a_n - 1] *= 2;
    tfd__free(e.v[0].data);
    e.v[0] = make(dtype, a_n, wide, 1, 1, 0);
    e.v[0].dims[a_n - 1] = a[a_n - 1];
    e.v[0].strides[a_n - 1] = 2;
    tfd__view_refresh(&e.v[0]);
  }
  check(&e);
  drop(&e);
}

static void test_matmul(void **state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    for (int ta = 0; ta < 2; ta++) {
      for (int tb = 0; tb < 2; tb++) {
        int dtype = floats[d];
        int64_t m = 37;
        int64_t k = 65;
        int64_t n = 51;

        for (int s = 0; s < 2; s++) {
          product(dtype, (int64_t[]){ta ? k : m, ta ? m : k}, 2,
                  (int64_t[]){tb ? n : k, tb ? k : n}, 2, (int64_t[]){m, n}, 2,
                  ta, tb, s);
        }
        product(dtype, (int64_t[]){4, ta ? k : m, ta ? m : k}, 3,
                (int64_t[]){tb ? n : k, tb ? k : n}, 2, (int64_t[]){4, m, n}, 3,
                ta, tb, false);
        product(dtype, (int64_t[]){3, 1, ta ? k : m, ta ? m : k}, 4,
                (int64_t[]){2, tb ? n : k, tb ? k : n}, 3,
                (int64_t[]){3, 2, m, n}, 4, ta, tb, false);
        product(dtype, (int64_t[]){ta ? k : 1, ta ? 1 : k}, 2,
                (int64_t[]){tb ? 1 : k, tb ? k : 1}, 2, (int64_t[]){1, 1}, 2,
                ta, tb, false);
      }
    }
  }
}

static void conv_ints(example *e, int stride, int padding, int first) {
  memset(e->ints, 0, sizeof e->ints);
  e->ints[0] = 1;
  e->ints[1] = stride;
  e->ints[9] = padding;
  e->ints[10] = first;
  e->ints[11] = -1;
  e->ints[20] = -1;
  e->ints_n = 29;
}

static void test_conv(void **state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    for (int stride = 1; stride < 3; stride++) {
      for (int padding = 0; padding < 2; padding++) {
        for (int first = 0; first < 2; first++) {
          int dtype = floats[d];
          int64_t out =
              padding ? (14 + stride - 1) / stride : (14 - 3 + stride) / stride;
          int64_t x[4] = {2, 14, 14, 4};
          int64_t y[4] = {2, out, out, 6};
          int64_t w[4] = {3, 3, 4, 6};
          example e = {.id = TFD_KERNEL_conv,
                       .name = "conv2d",
                       .in_n = 2,
                       .out_n = 1,
                       .tolerance = tolerance_of(dtype) * 20};

          if (first) {
            x[1] = 4;
            x[3] = 14;
            y[1] = 6;
            y[3] = out;
          }
          conv_ints(&e, stride, padding, first);
          e.v[0] = make(dtype, 4, x, 1, 1, 0);
          e.v[1] = make(dtype, 4, w, 2, 1, 0);
          e.v[2] = make(dtype, 4, y, 3, 1, 0);
          check(&e);
          drop(&e);
          e.id = TFD_KERNEL_conv_backprop_filter;
          e.name = "conv_backprop_filter";
          e.v[0] = make(dtype, 4, x, 1, 1, 0);
          e.v[1] = make(dtype, 4, y, 2, 1, 0);
          e.v[2] = make(dtype, 4, w, 3, 1, 0);
          check(&e);
          drop(&e);
          e.id = TFD_KERNEL_conv_backprop_input;
          e.name = "conv_backprop_input";
          e.v[0] = make(dtype, 4, w, 1, 1, 0);
          e.v[1] = make(dtype, 4, y, 2, 1, 0);
          e.v[2] = make(dtype, 4, x, 3, 1, 0);
          check(&e);
          drop(&e);
        }
      }
    }
  }
}

/* Volumes: channels first or last, padded alike or not, with groups. */
static void convolve_volume(int dtype, int stride, int padding, int first,
                            int64_t groups) {
  int64_t w[5] = {3, 2, 3, 4 / groups, 6};
  int64_t x[5] = {2, 4, 5, 6, 7};
  int64_t y[5] = {2, 6};
  const int64_t *order[3] = {x, w, y};
  static const tfd__kernel_id ids[3] = {TFD_KERNEL_conv,
                                        TFD_KERNEL_conv_backprop_filter,
                                        TFD_KERNEL_conv_backprop_input};

  for (int i = 0; i < 3; i++) {
    int64_t in = x[2 + i];

    y[2 + i] =
        padding ? (in + stride - 1) / stride : (in - w[i] + stride) / stride;
  }
  for (int v = 0; !first && v < 3; v += 2) { /* x and y: channels last */
    int64_t *dims = v == 0 ? x : y;
    int64_t channels = dims[1];

    memmove(dims + 1, dims + 2, 3 * sizeof *dims);
    dims[4] = channels;
  }
  for (int k = 0; k < 3; k++) {
    static const int which[3][3] = {{0, 1, 2}, {0, 2, 1}, {1, 2, 0}};
    example e = {.id = ids[k],
                 .name = "conv3d",
                 .in_n = 2,
                 .out_n = 1,
                 .tolerance = tolerance_of(dtype) * 20};

    conv_ints(&e, stride, padding, first);
    for (int v = 0; v < 3; v++) {
      e.v[v] = make(dtype, 5, order[which[k][v]], v + 1, 1, 0);
    }
    check(&e);
    drop(&e);
  }
}

static void test_conv_volumes(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(floats); d++) {
    for (int first = 0; first < 2; first++) {
      convolve_volume(floats[d], 1, 1, first, 1);
      convolve_volume(floats[d], 2, 1, first, 2);
      convolve_volume(floats[d], 1, 0, first, 2);
    }
  }
}

static void test_pool(void **state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    for (int average = 0; average < 2; average++) {
      int dtype = floats[d];
      example e = {.id = average ? TFD_KERNEL_avg_pool : TFD_KERNEL_max_pool,
                   .name = average ? "avg_pool" : "max_pool",
                   .in_n = 1,
                   .out_n = 1,
                   .ints_n = 29,
                   .tolerance = tolerance_of(dtype) * 4};

      e.ints[0] = 1;
      e.ints[1] = 2;
      e.ints[9] = 1;
      e.ints[10] = 2;
      e.ints[20] = -1;
      e.v[0] = make(dtype, DIMS(2, 14, 14, 5), 1, 1, 0);
      e.v[1] = make(dtype, DIMS(2, 7, 7, 5), 1, 1, 0);
      check(&e);
      if (average) {
        tfd__free(e.v[0].data);
        e.id = TFD_KERNEL_avg_pool_grad;
        e.name = "avg_pool_grad";
        e.v[0] = e.v[1];
        e.v[1] = make(dtype, DIMS(2, 14, 14, 5), 1, 1, 0);
      } else {
        e.id = TFD_KERNEL_max_pool_grad;
        e.name = "max_pool_grad";
        e.in_n = 3;
        e.v[2] = make(dtype, DIMS(2, 7, 7, 5), 2, 1, 0);
        e.v[3] = make(dtype, DIMS(2, 14, 14, 5), 3, 1, 0);
      }
      check(&e);
      drop(&e);
    }
  }
}

/* --- memory that the libraries are given ---------------------------------- */

typedef struct given {
  tfd__kernel_id id;
  int n;        /* views, the last is the output's */
  int small[4]; /* one element; the others have 16 */
} given;

/* What comes of view `bad`, moved by so many bytes; -1 = none is. */
static int said_of(const given *g, int bad, int64_t by) {
  static const int64_t dims[2][4] = {{1, 4, 4, 1}, {1, 1, 1, 1}};
  example e = {.id = g->id};
  tfd__view v[4];
  tfd__call call = {.name = "library",
                    .kernel = gpu->kernels[g->id],
                    .views = v,
                    .ints = e.ints,
                    .in_n = (int16_t)(g->n - 1),
                    .out_n = 1,
                    .ints_n = 29,
                    .replica = -1};
  tfd__work work = {.call = &call};
  uint64_t seq = 0;
  int i;

  conv_ints(&e, 1, 0, 0);
  if (g->id == TFD_KERNEL_max_pool || g->id == TFD_KERNEL_max_pool_grad) {
    memset(e.ints, 0, sizeof e.ints);
    e.ints[0] = e.ints[1] = e.ints[9] = e.ints[10] = 1; /* windows of one */
    e.ints[20] = -1;
  }
  for (i = 0; i < g->n; i++) {
    const int64_t *own = dims[g->small[i]];

    assert_int_equal(tfd__view_set(&v[i], TFD_FLOAT32, own, 4), TFD_OK);
    assert_int_equal(gpu->alloc(0, tfd__view_bytes(&v[i]), &v[i].data), TFD_OK);
  }
  if (bad >= 0) v[bad].data = (char *)v[bad].data + by;
  work_rc = TFD_OK;
  assert_int_equal(gpu->submit(stream, &work, &seq), TFD_OK);
  settle();
  if (bad >= 0) v[bad].data = (char *)v[bad].data - by;
  for (i = 0; i < g->n; i++) gpu->free(0, v[i].data, 0);
  return work_rc;
}

/* Behind its end, and before its beginning, between elements. */
static void test_memory(void **state) {
  static const given cases[] = {{TFD_KERNEL_conv, 3, {0, 1, 0}},
                                {TFD_KERNEL_conv_backprop_filter, 3, {0, 0, 1}},
                                {TFD_KERNEL_conv_backprop_input, 3, {1, 0, 0}},
                                {TFD_KERNEL_max_pool, 2, {0, 0}},
                                {TFD_KERNEL_max_pool_grad, 4, {0, 0, 0, 0}}};
  int i;
  int bad;

  (void)state;
  if (getenv("TFDIST_CUDA_STANDIN")[0] == '\0') skip();
  for (i = 0; i < COUNT(cases); i++) {
    assert_int_equal(said_of(&cases[i], -1, 0), TFD_OK);
    for (bad = 0; bad < cases[i].n; bad++) {
      if (cases[i].small[bad]) continue; /* filters are laid anew before */
      assert_int_equal(said_of(&cases[i], bad, 4), TFD_INTERNAL);
      assert_int_equal(said_of(&cases[i], bad, -2), TFD_INTERNAL);
    }
  }
}

/* --- errors that kernels find --------------------------------------------- */

static void test_bad_label(void **state) {
  tfd__view v[3];
  tfd__view there[3];
  tfd__call call = {.name = "sparse_softmax_cross_entropy",
                    .in_n = 2,
                    .out_n = 1,
                    .replica = -1,
                    .line = 7,
                    .file = "a.lua"};
  tfd__work work = {.call = &call};
  uint64_t seq = 0;
  uint64_t at = 0;

  (void)state;
  v[0] = make(TFD_INT32, DIMS(4), 1, 0, 0);
  ((int32_t *)v[0].data)[2] = 9;
  v[1] = make(TFD_FLOAT32, DIMS(4, 5), 1, 1, 0);
  v[2] = make(TFD_FLOAT32, DIMS(4), 1, 1, 0);
  for (int i = 0; i < 3; i++) {
    there[i] = v[i];
    assert_int_equal(gpu->alloc(0, 256, &there[i].data), TFD_OK);
    copy_host(true, there[i].data, v[i].data, tfd__view_bytes(&v[i]));
  }
  call.views = there;
  call.kernel = gpu->kernels[TFD_KERNEL_sparse_softmax_cross_entropy];
  assert_int_equal(gpu->submit(stream, &work, &seq), TFD_OK);
  assert_int_equal(work_rc, TFD_OK);
  settle();
  assert_int_equal(gpu->failed(stream, &at), TFD_INVALID_ARGUMENT);
  assert_int_equal(at, seq);
  assert_string_equal(tfd_error_message(),
                      "sparse_softmax_cross_entropy: label 9 at position 2 "
                      "is outside 0..4 (logits have 5 classes; labels count "
                      "from 0)");
  assert_int_equal(gpu->failed(stream, &at), TFD_OK);
  for (int i = 0; i < 3; i++) {
    gpu->free(0, there[i].data, 0);
    tfd__free(v[i].data);
  }
}

ON_GPU(test_rows)
ON_GPU(test_nn)
ON_GPU(test_update)
ON_GPU(test_conv_volumes)
ON_GPU(test_matmul)
ON_GPU(test_conv)
ON_GPU(test_pool)
ON_GPU(test_memory)
ON_GPU(test_bad_label)

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_gpu),
                                     cmocka_unit_test(test_nn_gpu),
                                     cmocka_unit_test(test_memory_gpu),
                                     cmocka_unit_test(test_update_gpu),
                                     cmocka_unit_test(test_conv_volumes_gpu),
                                     cmocka_unit_test(test_matmul_gpu),
                                     cmocka_unit_test(test_conv_gpu),
                                     cmocka_unit_test(test_pool_gpu),
                                     cmocka_unit_test(test_bad_label_gpu)};

  return cmocka_run_group_tests(tests, find_gpu, count_examples);
}
