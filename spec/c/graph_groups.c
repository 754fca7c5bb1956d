/* Groups of elementwise nodes: what joins and what does not, by the text of the
** program; and random graphs fused against the same ones node by node. */
#include "seed.h"
#include "tape.h"

#include "graph/graph.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 24 };

/* Tensors of one trace, released at its end. */
static tfd_tensor *made[4096];
static int made_n;

static tfd_tensor *keep(tfd_tensor *t) {
  assert_true(made_n < (int)(sizeof made / sizeof made[0]));
  made[made_n++] = t;
  return t;
}

static void let_go(void) {
  while (made_n > 0) tfd__release(made[--made_n]);
}

static tfd_tensor *op(const char *name, tfd_tensor *a, tfd_tensor *b) {
  return keep(op2(name, a, b));
}

static tfd_tensor *product(tfd_tensor *a, tfd_tensor *b) {
  int64_t ints[TFD_MAX_INTS] = {0};
  tfd_tensor *t = NULL;
  int id = 0;
  int n = 0;

  OK(tfd_op_find("matmul", &id));
  OK(tfd__run(id, (tfd_tensor *[]){a, b}, 2, ints, NULL, &t, 1, &n));
  return keep(t);
}

static tfd_tensor *floats(int rows, int columns, double first) {
  int64_t dims[2] = {rows, columns};
  double values[MOST * 64];
  tfd_tensor *t = NULL;
  int n = rows * columns;
  int i;

  for (i = 0; i < n; i++) values[i] = first + 0.125 * (i * 7 % 11) - 0.5;
  OK(tfd_tensor_from_values(values, n, TFD_FLOAT32, dims, 2, &t));
  return keep(t);
}

static tfd_tensor *number(double value) {
  tfd_tensor *t = NULL;

  OK(tfd_tensor_from_values(&value, 1, TFD_FLOAT32, NULL, 0, &t));
  return keep(t);
}

static tfd_graph *begin_graph(tfd_tensor **x_p, int rows, int columns) {
  int64_t dims[2] = {rows, columns};
  tfd_graph *g = NULL;

  OK(tfd_graph_new("g", &g));
  OK(tfd_graph_input(g, TFD_FLOAT32, dims, 2, NULL, x_p));
  keep(*x_p);
  OK(tfd_graph_begin(g));
  return g;
}

static void run(tfd_graph *g, tfd_tensor *x, tfd_tensor **results, int n) {
  tfd_graph_event event = TFD_GRAPH_HOST;
  int i;

  OK(tfd_graph_start(g, &x, 1, NULL, 0, NULL, 0));
  OK(tfd_graph_next(g, &event));
  assert_int_equal(TFD_GRAPH_DONE, event);
  for (i = 0; i < n; i++) OK(tfd_graph_result(g, i, &results[i]));
  OK(tfd_graph_stop(g));
}

/* Complete the graph with one result, run it on x, compare its program. */
static void expect(tfd_graph *g, tfd_tensor *y, tfd_tensor *x,
                   const char *text) {
  tfd_tensor *result = NULL;

  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(y)), 1));
  run(g, x, &result, 1);
  assert_string_equal(tfd_graph_text(g, "lowered"), text);
  RELEASE(g, result);
  let_go();
}

/* --- what joins ----------------------------------------------------------- */

static void a_chain_is_one_call_without_memory(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 4, 8);
  tfd_tensor *row = floats(1, 8, 1.0);
  tfd_tensor *y = op("add", op("multiply", x, number(2.0)), row);

  (void)state;
  y = op("tanh", y, NULL);
  expect(g, y, floats(4, 8, 0.0),
         "program \"g\" on /cpu:0: 1 calls, arena of 64 bytes\n"
         "  fused(multiply, add, tanh)(*, *, *) -> * float32 {4, 8}\n");
}

static void costs_are_counted_by_hand(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 4, 4);
  tfd_tensor *y = op("add", op("square", x, NULL), floats(1, 4, 1.0));
  tfd_tensor *result = NULL;

  (void)state;
  y = product(y, x);
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(y)), 1));
  run(g, floats(4, 4, 0.0), &result, 1);
  /* 2 ops on 16 elements; 16 sums of 4 products. 4 bytes each: 16 in, a row of
  ** 4, 16 out; 16 and 16 in, 16 out. */
  assert_string_equal(
      tfd_graph_text(g, "costs"),
      "costs of \"g\": 2 calls, 160 flops, 336 bytes read and written\n"
      "              32 flops            144 bytes  fused(square, add)\n"
      "             128 flops            192 bytes  matmul\n");
  RELEASE(g, result);
  let_go();
}

static void what_others_need_leaves_the_group(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 4, 4);
  tfd_tensor *a = op("square", x, NULL);
  tfd_tensor *b = op("add", a, x);
  tfd_tensor *c = product(a, b);

  (void)state;
  expect(g, c, floats(4, 4, 0.0),
         "program \"g\" on /cpu:0: 2 calls, arena of 128 bytes\n"
         "  fused(square, add)(*) -> a+0 float32 {4, 4} a+64 float32 {4, 4}\n"
         "  matmul(a+0, a+64) -> * float32 {4, 4}\n");
}

static void a_kernel_between_two_keeps_them_apart(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 4, 4);
  tfd_tensor *a = op("square", op("abs", x, NULL), NULL);
  tfd_tensor *b = product(a, x);
  tfd_tensor *c = op("subtract", op("multiply", b, a), x);

  (void)state;
  /* multiply needs the product, and that all of a. */
  expect(g, c, floats(4, 4, 0.0),
         "program \"g\" on /cpu:0: 3 calls, arena of 64 bytes\n"
         "  fused(abs, square)(*) -> a+0 float32 {4, 4}\n"
         "  matmul(a+0, *) -> * float32 {4, 4}\n"
         "  fused(multiply, subtract)(*, a+0, *) -> * float32 {4, 4}\n");
}

static void a_group_waits_for_a_kernel_that_does_not_need_it(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 4, 4);
  tfd_tensor *a = op("square", x, NULL);
  tfd_tensor *b = product(x, x);
  tfd_tensor *c = op("multiply", b, a);

  (void)state;
  expect(g, c, floats(4, 4, 0.0),
         "program \"g\" on /cpu:0: 2 calls, arena of 64 bytes\n"
         "  matmul(*, *) -> * float32 {4, 4}\n"
         "  fused(square, multiply)(*, *) -> * float32 {4, 4}\n");
}

static void other_shapes_do_not_join(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 4, 4);
  tfd_tensor *row = product(floats(1, 4, 1.0), x);
  tfd_tensor *y = op("multiply", x, op("abs", row, NULL));

  (void)state;
  /* In a group a row would be made as often as there are rows. */
  expect(g, y, floats(4, 4, 0.0),
         "program \"g\" on /cpu:0: 3 calls, arena of 128 bytes\n"
         "  matmul(*, *) -> a+0 float32 {1, 4}\n"
         "  abs(a+0) -> a+64 float32 {1, 4}\n"
         "  multiply(*, a+64) -> * float32 {4, 4}\n");
}

static void a_bias_and_a_sum_of_many_are_adds(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 3, 4);
  int64_t dims[1] = {4};
  double values[4] = {0.5, -9.0, 0.25, -0.0};
  tfd_tensor *bias = NULL;
  tfd_tensor *y = NULL;
  tfd_tensor *list[3];
  int64_t format = 0;
  int number_of = 0;
  int n = 0;

  (void)state;
  OK(tfd_tensor_from_values(values, 4, TFD_FLOAT32, dims, 1, &bias));
  keep(bias);
  OK(tfd_op_find("bias_add_relu", &number_of));
  OK(tfd__run(number_of, (tfd_tensor *[]){x, bias}, 2, &format, NULL, &y, 1,
              &n));
  keep(y);
  list[0] = y;
  list[1] = op("abs", x, NULL);
  list[2] = x;
  OK(tfd_op_find("add_n", &number_of));
  OK(tfd__run(number_of, list, 3, NULL, NULL, &y, 1, &n));
  keep(y);
  expect(g, y, floats(3, 4, 0.0),
         "program \"g\" on /cpu:0: 1 calls, arena of 64 bytes\n"
         "  fused(bias_add_relu, abs, add_n)(*, *) -> * float32 {3, 4}\n");
}

static void groups_end_where_the_machine_does(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 2, 2);
  tfd_tensor *y = x;
  const tfd__program *p = NULL;
  tfd_tensor *result = NULL;
  int i;

  (void)state;
  for (i = 0; i < 2 * TFD_STRIP_OPS + 10; i++) y = op("abs", y, NULL);
  for (i = 0; i < TFD_STRIP_INPUTS + 4; i++) {
    y = op("add", y, floats(2, 2, (double)i));
  }
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(y)), 1));
  run(g, floats(2, 2, 0.0), &result, 1);
  p = g->programs[0];
  assert_int_equal(4, p->calls_n);
  for (i = 0; i < p->calls_n; i++) {
    assert_true(p->calls[i].in_n <= TFD_STRIP_INPUTS);
  }
  /* 0.5 and the sum of -0.5 + i for i from 0 to 19 */
  assert_true(item(result) == 0.5 - 0.5 * 20 + 190.0);
  RELEASE(g, result);
  let_go();
}

static void fusion_can_be_turned_off(void **state) {
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 4, 4);
  tfd_tensor *y = op("abs", op("square", x, NULL), NULL);
  tfd_graph_event event = TFD_GRAPH_HOST;
  tfd_tensor *value = floats(4, 4, 0.0);

  (void)state;
  setenv("TFDIST_FUSION", "perhaps", 1);
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(y)), 1));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_graph_start(g, &value, 1, NULL, 0, NULL, 0));
  assert_non_null(strstr(tfd_error_message(), "TFDIST_FUSION"));
  setenv("TFDIST_FUSION", "0", 1);
  OK(tfd_graph_start(g, &value, 1, NULL, 0, NULL, 0));
  OK(tfd_graph_next(g, &event));
  OK(tfd_graph_stop(g));
  unsetenv("TFDIST_FUSION");
  assert_string_equal(tfd_graph_text(g, "lowered"),
                      "program \"g\" on /cpu:0: 2 calls, arena of 64 bytes\n"
                      "  square(*) -> a+0 float32 {4, 4}\n"
                      "  abs(a+0) -> * float32 {4, 4}\n");
  RELEASE(g);
  let_go();
}

static void a_device_without_such_a_kernel_has_no_groups(void **state) {
  static tfd__kernel kernels[TFD_KERNEL_N];
  tfd__backend poor = tfd__cpu_backend;
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, 4, 4);
  tfd_tensor *y = op("abs", op("square", x, NULL), NULL);
  tfd__body b;
  int groups[2];

  (void)state;
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(y)), 1));
  memcpy(kernels, tfd__cpu_backend.kernels, sizeof kernels);
  poor.kernels = kernels;
  OK(tfd__body_copy(&g->body, &b));
  OK(tfd__pass_groups(&b, 0, &poor, NULL, groups));
  assert_int_equal(0, groups[0]);
  assert_int_equal(0, groups[1]);
  kernels[TFD_KERNEL_abs] = NULL;
  OK(tfd__pass_groups(&b, 0, &poor, NULL, groups));
  assert_int_equal(-1, groups[1]);
  kernels[TFD_KERNEL_abs] = tfd__cpu_backend.kernels[TFD_KERNEL_abs];
  kernels[TFD_KERNEL_strip] = NULL;
  OK(tfd__pass_groups(&b, 0, &poor, NULL, groups));
  assert_int_equal(-1, groups[0]);
  assert_int_equal(-1, groups[1]);
  tfd__body_free(&b);
  RELEASE(g);
  let_go();
}

/* --- variables ------------------------------------------------------------ */

static void reads_stay_before_the_next_write(void **state) {
  tfd_tensor *x = NULL;
  tfd_variable *v = NULL;
  tfd_graph *g = NULL;
  tfd_tensor *r[2];
  tfd_tensor *a = NULL;
  tfd_tensor *y = NULL;
  tfd_tensor *result = NULL;

  (void)state;
  OK(tfd_variable_new(OBJECT(floats(2, 2, 1.5)), "v", true, NULL, &v));
  g = begin_graph(&x, 2, 2);
  OK(tfd_variable_read(v, &r[0]));
  a = op("square", keep(r[0]), NULL);
  OK(tfd_variable_assign_add(v, OBJECT(x)));
  OK(tfd_variable_read(v, &r[1]));
  y = op("add", a, keep(r[1]));
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(y)), 1));
  run(g, floats(2, 2, 3.5), &result, 1);
  assert_true(item(v->value) == 4.0);
  assert_true(item(result) == 1.0 + 4.0); /* 1 * 1 + (1 + 3) */
  assert_string_equal(tfd_graph_text(g, "lowered"),
                      "program \"g\" on /cpu:0: 1 calls, arena of 64 bytes\n"
                      "  fused(square, add, add)(*, *) -> * float32 {2, 2} * "
                      "float32 {2, 2}\n");
  RELEASE(g, v, result);
  let_go();
}

/* w = w - 0.5 * x * 2, u = |w as it was|, as a program. */
static tfd_graph *updates(tfd_tensor **x_p, tfd_variable *w, tfd_variable *u) {
  tfd_graph *g = begin_graph(x_p, 2, 2);
  tfd_tensor *before = NULL;
  tfd_tensor *step = op("multiply", *x_p, number(0.5));
  int subtract = 0;

  OK(tfd_variable_read(w, &before));
  keep(before);
  step = op("multiply", step, number(2.0));
  OK(tfd_op_find("subtract", &subtract));
  OK(tfd_variable_update(w, subtract, LIST(OBJECT(step)), 1, NULL, 0, NULL, 0));
  OK(tfd_variable_assign(u, OBJECT(op("abs", before, NULL))));
  OK(tfd_graph_end(g));
  return g;
}

static void assignments_of_elementwise_values_join(void **state) {
  tfd_tensor *x = NULL;
  tfd_tensor *value = floats(2, 2, 3.5);
  tfd_variable *w = NULL;
  tfd_variable *u = NULL;
  tfd_graph *g = NULL;
  tfd_tensor *result = NULL;

  (void)state;
  OK(tfd_variable_new(OBJECT(floats(2, 2, 0.5)), "w", true, NULL, &w));
  OK(tfd_variable_new(OBJECT(floats(2, 2, 9.0)), "u", true, NULL, &u));
  keep(value);
  tfd__retain(value);
  g = updates(&x, w, u);
  OK(tfd_graph_complete(g, LIST(OBJECT(x)), 1));
  run(g, value, &result, 1);
  assert_true(item(w->value) == 0.0 - 3.0);
  assert_true(item(u->value) == 0.0);
  RELEASE(result);
  run(g, value, &result, 1);
  assert_true(item(w->value) == -6.0);
  assert_true(item(u->value) == 3.0);
  /* The first read is used after the write, so that it is a copy. */
  assert_string_equal(
      tfd_graph_text(g, "lowered"),
      "program \"g\" on /cpu:0: 3 calls, arena of 64 bytes\n"
      "  copy(*) -> a+0 float32 {2, 2}\n"
      "  fused(multiply, multiply, subtract)(*, *, *, *) -> * float32 {2, 2}\n"
      "  fused(abs, copy)(a+0) -> * float32 {2, 2}\n");
  RELEASE(g, w, u, result);
  let_go();
}

/* Adam as a user writes it: m, v and w are read after they were assigned. */
static void what_was_assigned_is_read_from_the_group(void **state) {
  tfd_variable *v[3];
  tfd_tensor *x = NULL;
  tfd_tensor *read = NULL;
  tfd_tensor *step = NULL;
  tfd_tensor *result = NULL;
  tfd_graph *g = NULL;
  int id = 0;
  int i;

  (void)state;
  for (i = 0; i < 3; i++) {
    OK(tfd_variable_new(OBJECT(floats(2, 2, 1.0)), "v", true, NULL, &v[i]));
  }
  g = begin_graph(&x, 2, 2);
  OK(tfd_op_find("add", &id));
  for (i = 0; i < 2; i++) {
    OK(tfd_variable_read(v[i], &read));
    keep(read);
    step =
        op("multiply", op("subtract", i == 0 ? x : op("square", x, NULL), read),
           number(0.5));
    OK(tfd_variable_update(v[i], id, LIST(OBJECT(step)), 1, NULL, 0, NULL, 0));
    OK(tfd_variable_read(v[i], &read));
    step = i == 0 ? keep(read)
                  : op("divide", result, op("sqrt", keep(read), NULL));
    result = step;
  }
  OK(tfd_op_find("subtract", &id));
  OK(tfd_variable_update(v[2], id, LIST(OBJECT(step)), 1, NULL, 0, NULL, 0));
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(x)), 1));
  run(g, floats(2, 2, 4.5), &result, 1);
  /* x = 4, m = v = w = 0.5: 2.25, 8.25 and 0.5 - 2.25 / 8.25^0.5 */
  assert_true(item(v[0]->value) == 2.25);
  assert_true(item(v[1]->value) == 8.25);
  assert_true(fabs(item(v[2]->value) - (0.5 - 2.25 / sqrt(8.25))) < 1e-6);
  assert_string_equal(
      tfd_graph_text(g, "lowered"),
      "program \"g\" on /cpu:0: 1 calls, arena of 64 bytes\n"
      "  fused(subtract, multiply, add, square, subtract, multiply, add, sqrt, "
      "divide, subtract)(*, *, *, *, *, *) -> * float32 {2, 2} * float32 {2, "
      "2} * "
      "float32 {2, 2}\n");
  RELEASE(g, v[0], v[1], v[2], result);
  let_go();
}

/* --- random graphs -------------------------------------------------------- */

static uint64_t seed = 1;

static int pick(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

enum { POOL = 14, STEPS = 60, RESULTS = 3 };

static tfd_tensor *random_op(tfd_tensor *const *pool, int n) {
  static const char *const ones[] = {"negative", "square",  "tanh",  "relu",
                                     "exp",      "sigmoid", "floor", "sign"};
  static const char *const twos[] = {
      "add",    "multiply",           "subtract", "maximum",
      "divide", "squared_difference", "add",      "atan2"};
  tfd_tensor *a = pool[pick(n)];
  tfd_tensor *b = pool[pick(n)];
  tfd_object *in[3] = {NULL, OBJECT(a), OBJECT(b)};
  tfd_tensor *t = NULL;
  int id = 0;
  int k = 0;

  switch (pick(8)) {
  case 0:
    return product(a, b);
  case 1:
    in[0] = OBJECT(op("less", a, b));
    OK(tfd_op_find("select", &id));
    OK(tfd_op_run(id, in, 3, NULL, 0, NULL, 0, &t, 1, &k));
    return keep(t);
  case 2:
  case 3:
    return op(ones[pick(8)], a, NULL);
  default:
    return op(twos[pick(8)], a, b);
  }
}

/* One of two variables is read or written. */
static tfd_tensor *meet_variable(tfd_variable *const *v, tfd_tensor *t) {
  int which = pick(2);
  int op_number = 0;

  switch (pick(4)) {
  case 0:
    OK(tfd_variable_assign(v[which], OBJECT(t)));
    return t;
  case 1:
    OK(tfd_op_find("subtract", &op_number));
    OK(tfd_variable_update(v[which], op_number, LIST(OBJECT(t)), 1, NULL, 0,
                           NULL, 0));
    return t;
  default:
    OK(tfd_variable_read(v[which], &t));
    return keep(t);
  }
}

/* Squares, rows, columns and numbers broadcast against each other; only those
** of full size go on. */
static tfd_graph *random_graph(unsigned start, tfd_variable *const *v,
                               int size) {
  tfd_tensor *pool[POOL];
  tfd_tensor *x = NULL;
  tfd_graph *g = begin_graph(&x, size, size);
  int n = 0;
  int i;

  seed = start * 2654435761u + 1;
  pool[n++] = x;
  for (i = 0; i < 2; i++) {
    OK(tfd_variable_read(v[i], &pool[n]));
    keep(pool[n++]);
  }
  pool[n++] = op("add", x, floats(1, size, 0.2));
  pool[n++] = op("subtract", floats(size, 1, 0.7), x);
  pool[n++] = op("multiply", number(0.3), x);
  for (i = 0; i < STEPS; i++) {
    tfd_tensor *t = random_op(pool, n);

    if (pick(4) == 0) t = meet_variable(v, t);
    pool[n < POOL ? n++ : pick(POOL)] = t;
  }
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(
      g, LIST(OBJECT(pool[n - 1]), OBJECT(pool[2]), OBJECT(pool[5])), RESULTS));
  return g;
}

/* Which NaN it is may differ. */
static void same_values(tfd_tensor *a, tfd_tensor *b, int n) {
  static float x[MOST * MOST];
  static float y[MOST * MOST];
  size_t bytes = (size_t)n * sizeof(float);
  int i;

  OK(tfd_tensor_read(a, x, bytes));
  OK(tfd_tensor_read(b, y, bytes));
  for (i = 0; i < n; i++) {
    if (x[i] != x[i] && y[i] != y[i]) continue;
    assert_memory_equal(&x[i], &y[i], sizeof x[i]);
  }
}

static void what_does_not_fit_is_not_written(void **state) {
  int on;

  (void)state;
  for (on = 0; on < 2; on++) {
    tfd_variable *v = NULL;
    tfd_tensor *x = NULL;
    tfd_tensor *large = floats(MOST, 2, 3.0);
    tfd_graph *g = NULL;

    OK(tfd_variable_new(OBJECT(floats(2, 2, 1.5)), "v", true, NULL, &v));
    g = begin_graph(&x, -1, 2);
    OK(tfd_variable_assign_add(v, OBJECT(x)));
    OK(tfd_graph_end(g));
    OK(tfd_graph_complete(g, NULL, 0));
    setenv("TFDIST_FUSION", on ? "1" : "0", 1);
    assert_int_equal(TFD_INVALID_ARGUMENT,
                     tfd_graph_start(g, &large, 1, NULL, 0, NULL, 0));
    unsetenv("TFDIST_FUSION");
    assert_true(item(v->value) == 1.0);
    RELEASE(g, v);
    let_go();
  }
}

static void random_graphs_have_the_bits_of_their_nodes(void **state) {
  unsigned from = (unsigned)seed_of_run();
  unsigned start;
  int fused = 0;

  (void)state;
  print_message("seeds from %u on\n", from);
  for (start = from; start < from + 60; start++) {
    tfd_tensor *results[2][RESULTS];
    tfd_variable *v[2][2];
    int calls[2];
    int size = 1 + (int)(start % MOST);
    int on;
    int i;

    for (on = 0; on < 2; on++) {
      tfd_graph *g = NULL;

      for (i = 0; i < 2; i++) {
        OK(tfd_variable_new(OBJECT(floats(size, size, 0.4 + 0.5 * i)), "v",
                            true, NULL, &v[on][i]));
      }
      g = random_graph(start, v[on], size);
      setenv("TFDIST_FUSION", on ? "1" : "0", 1);
      run(g, floats(size, size, 0.3), results[on], RESULTS);
      for (i = 0; i < RESULTS; i++) tfd__release(results[on][i]);
      run(g, floats(size, size, 0.1), results[on], RESULTS);
      assert_non_null(g->programs[0]);
      calls[on] = g->programs[0]->calls_n;
      RELEASE(g);
    }
    unsetenv("TFDIST_FUSION");
    assert_true(calls[1] <= calls[0]);
    fused += calls[0] - calls[1];
    for (i = 0; i < 2; i++) {
      same_values(v[0][i]->value, v[1][i]->value, size * size);
      RELEASE(v[0][i], v[1][i]);
    }
    for (i = 0; i < RESULTS; i++) {
      same_values(results[0][i], results[1][i], size * size);
      RELEASE(results[0][i], results[1][i]);
    }
    let_go();
  }
  assert_true(fused > 0);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, count_before, count_after)
  const struct CMUnitTest tests[] = {
      TEST(a_chain_is_one_call_without_memory),
      TEST(costs_are_counted_by_hand),
      TEST(what_others_need_leaves_the_group),
      TEST(a_kernel_between_two_keeps_them_apart),
      TEST(a_group_waits_for_a_kernel_that_does_not_need_it),
      TEST(other_shapes_do_not_join),
      TEST(a_bias_and_a_sum_of_many_are_adds),
      TEST(groups_end_where_the_machine_does),
      TEST(fusion_can_be_turned_off),
      TEST(a_device_without_such_a_kernel_has_no_groups),
      TEST(reads_stay_before_the_next_write),
      TEST(assignments_of_elementwise_values_join),
      TEST(what_was_assigned_is_read_from_the_group),
      TEST(what_does_not_fit_is_not_written),
      TEST(random_graphs_have_the_bits_of_their_nodes),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
