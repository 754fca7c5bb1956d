/* Elementwise kernels, conversions and reductions of the CUDA back end. */
#include "backend_cuda.h"

static const named float_unary[] = {
    K(abs, 3, 0),        K(negative, 3, 0),  K(square, 3, 0),
    K(sign, 3, 0),       K(relu, 3, 0),      K(relu6, 9, 0),
    K(reciprocal, 1, 3), K(sqrt, 1, 2),      K(rsqrt, 1, 2),
    K(exp, 3, 0),        K(expm1, 3, 0),     K(log, 1, 2),
    K(log1p, 0.9, 0),    K(sin, 3, 0),       K(cos, 3, 0),
    K(tan, 1, 0),        K(asin, 0.9, 0),    K(acos, 0.9, 0),
    K(atan, 3, 0),       K(sinh, 3, 0),      K(cosh, 3, 0),
    K(tanh, 3, 0),       K(asinh, 3, 0),     K(acosh, 1, 3),
    K(atanh, 0.9, 0),    K(erf, 2, 0),       K(erfc, 2, 0),
    K(sigmoid, 5, 0),    K(softplus, 5, 0),  K(log_sigmoid, 5, 0),
    K(ceil, 3, 0),       K(floor, 3, 0),     K(rint, 3, 0),
    K(leaky_relu, 3, 0), K(elu, 3, 0),       K(selu, 3, 0),
    K(gelu, 3, 0),       K(gelu_tanh, 3, 0), K(swish, 3, 0),
    K(softsign, 3, 0)};
static const named int_unary[] = {
    K(abs, 3, 0),  K(negative, 3, 0), K(square, 3, 0), K(sign, 3, 0),
    K(relu, 3, 0), K(relu6, 3, 0),    K(invert, 3, 0)};
static const named float_binary[] = {K(add, 3, 0),
                                     K(subtract, 3, 0),
                                     K(multiply, 3, 0),
                                     K(divide, 3, 5),
                                     K(divide_no_nan, 3, 0),
                                     K(maximum, 3, 0),
                                     K(minimum, 3, 0),
                                     K(squared_difference, 3, 0),
                                     K(pow, 1, 2),
                                     K(atan2, 3, 0),
                                     K(multiply_no_nan, 3, 0),
                                     K(xdivy, 3, 0),
                                     K(xlogy, 1, 2),
                                     K(xlog1py, 1, 2),
                                     K(tanh_grad, 1, 0),
                                     K(sigmoid_grad, 1, 0),
                                     K(relu_grad, 3, 0),
                                     K(relu6_grad, 9, 0),
                                     K(leaky_relu_grad, 3, 0)};
static const named int_binary[] = {K(add, 3, 0),
                                   K(subtract, 3, 0),
                                   K(multiply, 3, 0),
                                   K(maximum, 3, 0),
                                   K(minimum, 3, 0),
                                   K(squared_difference, 3, 0),
                                   K(relu_grad, 3, 0),
                                   K(relu6_grad, 3, 0),
                                   K(bitwise_and, 3, 0),
                                   K(bitwise_or, 3, 0),
                                   K(bitwise_xor, 3, 0),
                                   K(left_shift, 0.2, 0.2),
                                   K(right_shift, 0.2, 0.2)};
static const named comparisons[] = {K(equal, 0.1, 0), K(not_equal, 0.1, 0),
                                    K(less, 1, 0),    K(less_equal, 1, 0),
                                    K(greater, 1, 0), K(greater_equal, 1, 0)};

/* Forms: 0 dense, 1 transposed, 2 with a broadcast axis, 3 odd offset. */
static tfd__view shaped(int dtype, int form, int seed, double scale,
                        double shift) {
  tfd__view v = make(dtype, DIMS(33, 65), seed, scale, shift);

  if (form == 1) {
    tfd__free(v.data);
    v = make(dtype, DIMS(65, 33), seed, scale, shift);
    v.dims[0] = 33;
    v.dims[1] = 65;
    v.strides[0] = 1;
    v.strides[1] = 33;
    tfd__view_refresh(&v);
  } else if (form == 2) {
    v.dims[0] = 33;
    v.strides[0] = 0;
    tfd__view_refresh(&v);
  } else if (form == 3) {
    v.dims[1] = 61;
    v.strides[1] = 1;
    v.strides[0] = 65;
    tfd__view_refresh(&v);
  }
  return v;
}

static void one(const named *k, int ins, int dtype, int to, int form) {
  int64_t dims[2] = {33, form == 3 ? 61 : 65};
  example e = {.id = k->id,
               .name = k->name,
               .in_n = ins,
               .out_n = 1,
               .reals = {0.3},
               .reals_n = 1,
               .tolerance = tolerance_of(dtype)};
  int i;

  for (i = 0; i < ins; i++) {
    e.v[i] =
        shaped(dtype, i == 0 || form == 3 ? form : 0, i, k->scale, k->shift);
  }
  if (k->id == TFD_KERNEL_pow && dtype == TFD_FLOAT32) e.tolerance = 2e-5;
  e.v[ins] = make(to, 2, dims, 9, 1, 0);
  check(&e);
  drop(&e);
}

static void test_unary(void **state) {
  (void)state;
  for (int form = 0; form < 4; form++) {
    for (int d = 0; d < 4; d++) {
      for (int i = 0; i < COUNT(float_unary); i++) {
        one(&float_unary[i], 1, floats[d], floats[d], form);
      }
    }
    for (int d = 4; d < COUNT(numbers); d++) {
      for (int i = 0; i < COUNT(int_unary); i++) {
        one(&int_unary[i], 1, numbers[d], numbers[d], form);
      }
    }
  }
}

/* Of infinities and others. */
static void test_kinds(void **state) {
  static const named all[] = {K(is_nan, 1, 0), K(is_inf, 1, 0),
                              K(is_finite, 1, 0)};

  (void)state;
  for (int d = 0; d < COUNT(floats); d++) {
    for (int i = 0; i < COUNT(all); i++) {
      example e = {.id = all[i].id, .name = all[i].name, .in_n = 1, .out_n = 1};

      e.v[0] = make(floats[d], DIMS(33, 5), 1, 1, 0);
      for (int64_t k = 0; k < e.v[0].numel; k += 2) {
        tfd__store((char *)e.v[0].data + (size_t)k * tfd__dtype_size(floats[d]),
                   floats[d], k % 4 == 0 ? HUGE_VAL : (double)NAN);
      }
      e.v[1] = make(TFD_BOOL, DIMS(33, 5), 2, 1, 0);
      check(&e);
      drop(&e);
    }
  }
}

static void test_binary(void **state) {
  (void)state;
  for (int form = 0; form < 4; form++) {
    for (int d = 0; d < 4; d++) {
      for (int i = 0; i < COUNT(float_binary); i++) {
        one(&float_binary[i], 2, floats[d], floats[d], form);
      }
    }
    for (int d = 4; d < COUNT(numbers); d++) {
      for (int i = 0; i < COUNT(int_binary); i++) {
        one(&int_binary[i], 2, numbers[d], numbers[d], form);
      }
    }
    for (int d = 0; d < COUNT(numbers); d++) {
      for (int i = 0; i < COUNT(comparisons); i++) {
        one(&comparisons[i], 2, numbers[d], TFD_BOOL, form);
      }
    }
  }
}

static void test_choice(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    example e = {
        .id = TFD_KERNEL_select, .name = "select", .in_n = 3, .out_n = 1};

    e.v[0] = make(TFD_BOOL, DIMS(33, 1), 1, 1, 0);
    e.v[1] = make(numbers[d], DIMS(33, 65), 2, 3, 0);
    e.v[2] = make(numbers[d], DIMS(65), 3, 3, 0);
    e.v[3] = make(numbers[d], DIMS(33, 65), 4, 3, 0);
    check(&e);
    drop(&e);
    e.id = TFD_KERNEL_clip_by_value;
    e.name = "clip_by_value";
    e.v[0] = make(numbers[d], DIMS(33, 65), 1, 3, 0);
    e.v[1] = make(numbers[d], 0, NULL, 2, 0, -1);
    e.v[2] = make(numbers[d], 0, NULL, 3, 0, 1);
    e.v[3] = make(numbers[d], DIMS(33, 65), 4, 3, 0);
    check(&e);
    drop(&e);
  }
}

static void test_add_n(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int ins = 1; ins < 6; ins += 2) {
      example e = {.id = TFD_KERNEL_add_n,
                   .name = "add_n",
                   .in_n = ins,
                   .out_n = 1,
                   .tolerance = tolerance_of(numbers[d])};

      for (int i = 0; i < ins; i++) {
        e.v[i] = make(numbers[d], DIMS(1003), i, 3, 0);
      }
      e.v[ins] = make(numbers[d], DIMS(1003), 9, 3, 0);
      check(&e);
      drop(&e);
    }
  }
}

static void test_cast(void **state) {
  static const int all[] = {TFD_FLOAT32, TFD_FLOAT64, TFD_FLOAT16, TFD_BFLOAT16,
                            TFD_INT8,    TFD_INT16,   TFD_INT32,   TFD_INT64,
                            TFD_UINT8,   TFD_BOOL};
  (void)state;
  for (int a = 0; a < COUNT(all); a++) {
    for (int b = 0; b < COUNT(all); b++) {
      for (int form = 0; form < 2; form++) {
        example e = {
            .id = TFD_KERNEL_cast, .name = "cast", .in_n = 1, .out_n = 1};

        e.v[0] = shaped(all[a], form, 1, 300, 0);
        e.v[1] = make(all[b], DIMS(33, 65), 2, 1, 0);
        check(&e);
        drop(&e);
      }
    }
  }
}

/* --- reductions ----------------------------------------------------------- */

static void reduce_one(const named *k, int dtype, int rank, const int64_t *dims,
                       unsigned axes) {
  example e = {.id = k->id,
               .name = k->name,
               .in_n = 1,
               .out_n = 1,
               .ints_n = 10,
               .tolerance = tolerance_of(dtype) * 4};
  int64_t kept[8];
  int n = 0;
  int d;

  e.ints[0] = 0;
  for (d = 0; d < rank; d++) {
    if (axes >> d & 1) {
      e.ints[1 + e.ints[0]++] = d;
    } else {
      kept[n++] = dims[d];
    }
  }
  e.v[0] = make(dtype, rank, dims, 1, k->scale, k->shift);
  e.v[1] = make(dtype, n, kept, 2, 1, 0);
  check(&e);
  drop(&e);
}

static void test_reduce(void **state) {
  static const named all[] = {K(reduce_sum, 1, 0.1), K(reduce_mean, 1, 0.1),
                              K(reduce_max, 1, 0), K(reduce_min, 1, 0),
                              K(reduce_prod, 0.001, 1)};
  static const named logic[] = {K(reduce_any, 1, -0.99),
                                K(reduce_all, 1, 0.99)};
  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int i = 0; i < COUNT(all); i++) {
      for (unsigned axes = 1; axes < 8; axes++) {
        reduce_one(&all[i], numbers[d], 3, (int64_t[]){5, 33, 70}, axes);
      }
    }
  }
  for (int i = 0; i < COUNT(all); i++) {
    reduce_one(&all[i], TFD_FLOAT32, 1, (int64_t[]){300007}, 1);
    reduce_one(&all[i], TFD_FLOAT32, 2, (int64_t[]){4099, 300}, 1);
    reduce_one(&all[i], TFD_FLOAT32, 2, (int64_t[]){300, 4099}, 2);
  }
  for (unsigned axes = 1; axes < 8; axes++) {
    reduce_one(&logic[0], TFD_BOOL, 3, (int64_t[]){5, 33, 70}, axes);
    reduce_one(&logic[1], TFD_BOOL, 3, (int64_t[]){5, 33, 70}, axes);
  }
}

static void test_extremes(void **state) {
  (void)state;
  for (int d = 0; d < COUNT(numbers); d++) {
    for (int axis = 0; axis < 2; axis++) {
      for (int k = 0; k < 2; k++) {
        example e = {.id = k ? TFD_KERNEL_argmax : TFD_KERNEL_argmin,
                     .name = k ? "argmax" : "argmin",
                     .in_n = 1,
                     .out_n = 1,
                     .ints = {axis, TFD_INT64},
                     .ints_n = 2};

        e.v[0] = make(numbers[d], DIMS(31, 17), 1, 3, 0);
        e.v[1] = make(axis ? TFD_INT64 : TFD_INT32, 1,
                      (int64_t[]){axis ? 31 : 17}, 2, 1, 0);
        check(&e);
        drop(&e);
      }
    }
  }
}

ON_GPU(test_unary)
ON_GPU(test_kinds)
ON_GPU(test_binary)
ON_GPU(test_choice)
ON_GPU(test_cast)
ON_GPU(test_add_n)
ON_GPU(test_reduce)
ON_GPU(test_extremes)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_unary_gpu),  cmocka_unit_test(test_binary_gpu),
      cmocka_unit_test(test_kinds_gpu),  cmocka_unit_test(test_choice_gpu),
      cmocka_unit_test(test_cast_gpu),   cmocka_unit_test(test_add_n_gpu),
      cmocka_unit_test(test_reduce_gpu), cmocka_unit_test(test_extremes_gpu)};

  return cmocka_run_group_tests(tests, find_gpu, count_examples);
}
