/* Passes over graphs, by the text of what is left; and the edges of the API. */
#include "tape.h"

#include "graph/graph.h"

#define FAILS(code, call) assert_int_equal(code, call)
#define SAYS(text) assert_non_null(strstr(tfd_error_message(), text))

static tfd_tensor *input(tfd_graph *g) {
  int64_t dims[1] = {2};
  tfd_tensor *t = NULL;

  OK(tfd_graph_input(g, TFD_FLOAT64, dims, 1, NULL, &t));
  return t;
}

static void complete(tfd_graph *g, tfd_tensor *result) {
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(result)), 1));
}

static tfd_tensor *call_graph(tfd_graph *g, tfd_tensor *x) {
  tfd_graph_event event = TFD_GRAPH_HOST;
  tfd_tensor *y = NULL;

  OK(tfd_graph_start(g, &x, 1, NULL, 0, NULL, 0));
  OK(tfd_graph_next(g, &event));
  assert_int_equal(TFD_GRAPH_DONE, event);
  OK(tfd_graph_result(g, 0, &y));
  OK(tfd_graph_stop(g));
  return y;
}

static void dead_code_goes_effects_stay(void **state) {
  tfd_graph *g = NULL;
  tfd_tensor *one = scalar(1.0);
  tfd_variable *v = NULL;
  tfd_tensor *x = NULL;
  tfd_tensor *a = NULL;
  tfd_tensor *b = NULL;
  tfd_tensor *c = NULL;

  (void)state;
  OK(tfd_variable_new(OBJECT(one), "count", true, NULL, &v));
  OK(tfd_graph_new("g", &g));
  x = input(g);
  OK(tfd_graph_begin(g));
  a = multiply(x, x);
  b = multiply(a, x); /* nobody uses it */
  OK(tfd_variable_assign_add(v, OBJECT(one)));
  c = add(a, x);
  complete(g, c);
  assert_string_equal(tfd_graph_text(g, "recorded"),
                      "graph \"g\": 1 inputs, 1 variables, 1 constants, "
                      "3 nodes\n"
                      "  x0: float64 {2}\n"
                      "  %1 = multiply(x0, x0) float64 {2}\n"
                      "  \"count\" = add(\"count\", c0) float64 {}\n"
                      "  %6 = add(%1, x0) float64 {2}\n"
                      "  results: %6\n");
  RELEASE(g, one, v, x, a, b, c);
}

static void equal_nodes_are_one_call(void **state) {
  tfd_graph *g = NULL;
  tfd_tensor *value = vector(2, 3.0);
  tfd_tensor *x = NULL;
  tfd_tensor *a = NULL;
  tfd_tensor *b = NULL;
  tfd_tensor *c = NULL;
  tfd_tensor *y = NULL;

  (void)state;
  OK(tfd_graph_new("g", &g));
  x = input(g);
  OK(tfd_graph_begin(g));
  a = multiply(x, x);
  b = multiply(x, x);
  c = add(a, b);
  complete(g, c);
  y = call_graph(g, value);
  assert_true(item(y) == 18.0);
  assert_string_equal(tfd_graph_text(g, "lowered"),
                      "program \"g\" on /cpu:0: 1 calls, arena of 64 bytes\n"
                      "  fused(multiply, add)(*) -> * float64 {2}\n");
  RELEASE(g, value, x, a, b, c, y);
}

static void reads_are_one_between_two_writes(void **state) {
  tfd_graph *g = NULL;
  tfd_tensor *value = vector(2, 1.0);
  tfd_variable *v = NULL;
  tfd_tensor *x = NULL;
  tfd_tensor *r[3];
  tfd_tensor *sum[2];
  tfd_tensor *y = NULL;

  (void)state;
  OK(tfd_variable_new(OBJECT(value), "v", true, NULL, &v));
  OK(tfd_graph_new("g", &g));
  x = input(g);
  OK(tfd_graph_begin(g));
  OK(tfd_variable_read(v, &r[0]));
  OK(tfd_variable_read(v, &r[1]));
  OK(tfd_variable_assign_add(v, OBJECT(x)));
  OK(tfd_variable_read(v, &r[2]));
  sum[0] = add(r[0], r[1]);
  sum[1] = add(sum[0], r[2]);
  complete(g, sum[1]);
  y = call_graph(g, value);
  assert_true(item(y) == 4.0); /* 1 + 1 + (1 + 1) */
  assert_true(item(v->value) == 2.0);
  /* The first read outlives the write, so that it is a copy: the result's
  ** place, which nobody else needs then. */
  assert_string_equal(tfd_graph_text(g, "lowered"),
                      "program \"g\" on /cpu:0: 3 calls, arena of 64 bytes\n"
                      "  copy(*) -> * float64 {2}\n"
                      "  add(*, *) -> * float64 {2}\n"
                      "  fused(add, add)(*, *) -> * float64 {2}\n");
  RELEASE(g, value, v, x, r[0], r[1], r[2], sum[0], sum[1], y);
}

static void results_belong_to_the_caller(void **state) {
  tfd_graph *g = NULL;
  tfd_tensor *one = vector(2, 1.0);
  tfd_tensor *two = vector(2, 2.0);
  tfd_tensor *x = NULL;
  tfd_tensor *a = NULL;
  tfd_tensor *first = NULL;
  tfd_tensor *second = NULL;

  (void)state;
  OK(tfd_graph_new("g", &g));
  x = input(g);
  OK(tfd_graph_begin(g));
  a = add(x, x);
  complete(g, a);
  first = call_graph(g, one);
  second = call_graph(g, two);
  assert_true(item(first) == 2.0);
  assert_true(item(second) == 4.0);
  RELEASE(g, one, two, x, a, first, second);
}

static void a_variable_that_is_shown_is_written_elsewhere(void **state) {
  tfd_graph *g = NULL;
  tfd_tensor *value = vector(2, 1.0);
  tfd_variable *v = NULL;
  tfd_tensor *before = NULL;
  tfd_tensor *x = NULL;
  tfd_tensor *y = NULL;
  int64_t version = 0;

  (void)state;
  OK(tfd_variable_new(OBJECT(value), "v", true, NULL, &v));
  OK(tfd_operand_tensor(OBJECT(v), &before));
  version = tfd_variable_version(v);
  OK(tfd_graph_new("g", &g));
  x = input(g);
  OK(tfd_graph_begin(g));
  OK(tfd_variable_assign_add(v, OBJECT(x)));
  complete(g, x);
  y = call_graph(g, value);
  assert_true(item(before) == 1.0);
  assert_true(item(v->value) == 2.0);
  assert_true(tfd_variable_version(v) > version);
  assert_true(item(y) == 1.0);
  RELEASE(g, value, v, before, x, y);
}

static void calls_are_checked(void **state) {
  tfd_graph *g = NULL;
  tfd_tensor *wrong = vector(3, 1.0);
  tfd_tensor *x = NULL;
  tfd_tensor *y = NULL;
  tfd_graph_event event = TFD_GRAPH_DONE;
  int64_t number = 0;
  int n = 0;

  (void)state;
  OK(tfd_graph_new("g", &g));
  x = input(g);
  FAILS(TFD_FAILED_PRECONDITION, tfd_graph_start(g, NULL, 0, NULL, 0, NULL, 0));
  SAYS("is not complete");
  OK(tfd_graph_begin(g));
  FAILS(TFD_FAILED_PRECONDITION, tfd_graph_begin(g));
  assert_string_equal("g", tfd_graph_recording());
  FAILS(TFD_FAILED_PRECONDITION, tfd_graph_complete(g, LIST(OBJECT(x)), 1));
  complete(g, x);
  assert_null(tfd_graph_recording());
  FAILS(TFD_FAILED_PRECONDITION, tfd_graph_begin(g));
  FAILS(TFD_INVALID_ARGUMENT, tfd_graph_start(g, NULL, 0, NULL, 0, NULL, 0));
  SAYS("0 arguments");
  FAILS(TFD_INVALID_ARGUMENT, tfd_graph_start(g, &wrong, 1, NULL, 0, NULL, 0));
  SAYS("argument 1 is float64 {3}, it was traced with float64 {2}");
  FAILS(TFD_TYPE_ERROR, tfd_graph_start(g, &x, 1, NULL, 0, NULL, 0));
  FAILS(TFD_FAILED_PRECONDITION, tfd_graph_next(g, &event));
  FAILS(TFD_FAILED_PRECONDITION, tfd_graph_due(g, &number, &n));
  FAILS(TFD_FAILED_PRECONDITION, tfd_graph_result(g, 0, &y));
  FAILS(TFD_TYPE_ERROR, tfd_graph_next(NULL, &event));
  RELEASE(g, wrong, x);
}

static void steps_of_the_host_come_in_their_place(void **state) {
  tfd_graph *g = NULL;
  tfd_tensor *value = vector(2, 1.0);
  tfd_variable *v = NULL;
  tfd_tensor *x = NULL;
  tfd_tensor *seen = NULL;
  tfd_graph_event event = TFD_GRAPH_DONE;
  int64_t number = -1;
  int n = 0;

  (void)state;
  OK(tfd_variable_new(OBJECT(value), "v", true, NULL, &v));
  OK(tfd_graph_new("g", &g));
  x = input(g);
  OK(tfd_graph_begin(g));
  OK(tfd_variable_assign_add(v, OBJECT(x)));
  OK(tfd_graph_host(g, LIST(OBJECT(x)), 1, &number));
  OK(tfd_variable_assign_add(v, OBJECT(x)));
  complete(g, x);
  OK(tfd_graph_start(g, &value, 1, NULL, 0, NULL, 0));
  OK(tfd_graph_next(g, &event));
  assert_int_equal(TFD_GRAPH_HOST, event);
  OK(tfd_graph_due(g, &number, &n));
  assert_int_equal(0, number);
  assert_int_equal(1, n);
  OK(tfd_graph_value(g, 0, &seen));
  assert_true(item(seen) == 1.0);
  assert_true(item(v->value) == 2.0);
  FAILS(TFD_FAILED_PRECONDITION,
        tfd_graph_start(g, &value, 1, NULL, 0, NULL, 0));
  OK(tfd_graph_next(g, &event));
  assert_int_equal(TFD_GRAPH_DONE, event);
  assert_true(item(v->value) == 3.0);
  OK(tfd_graph_stop(g));
  RELEASE(g, value, v, x, seen);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, count_before, count_after)
  const struct CMUnitTest tests[] = {
      TEST(dead_code_goes_effects_stay),
      TEST(equal_nodes_are_one_call),
      TEST(reads_are_one_between_two_writes),
      TEST(results_belong_to_the_caller),
      TEST(a_variable_that_is_shown_is_written_elsewhere),
      TEST(calls_are_checked),
      TEST(steps_of_the_host_come_in_their_place),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
