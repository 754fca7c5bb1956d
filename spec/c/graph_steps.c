/* A graph's steps without a script around: no allocation, no page, flat memory.
** TFD_LONG=1 runs a million. */
#include "tape.h"

#include "graph/graph.h"

#include <stdlib.h>
#include <sys/resource.h>

/* Sanitizer builds keep no memory for the next tensor: there, it is flat. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KEPT = 0, TRIES = 1 };
#else
enum { KEPT = 1, TRIES = 10 };
#endif

enum { WARM = 100, ROUND = 5000, SHORT = 1, LONG = 200 };

static int64_t faults(void) {
  struct rusage u;

  assert_int_equal(0, getrusage(RUSAGE_SELF, &u));
  return u.ru_minflt + u.ru_majflt;
}

static tfd_tensor *values(void) {
  const int64_t dims[2] = {16, 16};
  double list[256];
  tfd_tensor *t = NULL;
  int i;

  for (i = 0; i < 256; i++) list[i] = i * 0.01;
  OK(tfd_tensor_from_values(list, 256, TFD_FLOAT32, dims, 2, &t));
  return t;
}

/* v += tanh(x * x) */
static tfd_graph *make(tfd_variable *v) {
  const int64_t dims[2] = {16, 16};
  tfd_graph *g = NULL;
  tfd_tensor *x = NULL;
  tfd_tensor *product = NULL;
  tfd_tensor *y = NULL;

  OK(tfd_graph_new("steps", &g));
  OK(tfd_graph_input(g, TFD_FLOAT32, dims, 2, NULL, &x));
  OK(tfd_graph_begin(g));
  product = op2("multiply", x, x);
  y = op2("tanh", product, NULL);
  OK(tfd_variable_assign_add(v, OBJECT(y)));
  OK(tfd_graph_end(g));
  OK(tfd_graph_complete(g, LIST(OBJECT(y)), 1));
  RELEASE(y, product, x);
  return g;
}

/* Waits for its end: a queue that grows longer than it ever was takes memory.
 */
static void step(tfd_graph *g, tfd_tensor *x) {
  tfd_graph_event event = TFD_GRAPH_HOST;
  tfd_device *device = NULL;
  tfd_tensor *y = NULL;

  OK(tfd_graph_start(g, &x, 1, NULL, 0, NULL, 0));
  OK(tfd_graph_next(g, &event));
  OK(tfd_graph_result(g, 0, &y));
  OK(tfd_graph_stop(g));
  tfd_release(OBJECT(y));
  OK(tfd_device_find("CPU:0", &device));
  OK(tfd_device_synchronize(device));
}

/* The system may take a page away, so that not every round is one; where steps
** take pages, none is. */
static bool steps_take_no_page(tfd_graph *g, tfd_tensor *x) {
  int i;
  int k;

  for (i = 0; i < TRIES; i++) {
    int64_t before = faults();

    for (k = 0; k < ROUND; k++) step(g, x);
    if (faults() == before) return true;
  }
  return false;
}

static void steps_take_nothing(void **state) {
  int rounds = getenv("TFD_LONG") != NULL ? LONG : SHORT;
  tfd_tensor *x = values();
  tfd_variable *v = NULL;
  tfd_graph *g = NULL;
  int64_t bytes = 0;
  int i;

  (void)state;
  OK(tfd_variable_new(OBJECT(x), "v", true, NULL, &v));
  g = make(v);
  for (i = 0; i < WARM; i++) step(g, x);
  bytes = tfd_live_bytes();
  tfd_test_fail_allocation(KEPT); /* the next one fails */
  for (i = 0; i < rounds; i++) {
    bool none = steps_take_no_page(g, x);

    if (KEPT) assert_true(none);
  }
  tfd_test_fail_allocation(0);
  assert_int_equal(bytes, tfd_live_bytes());
  RELEASE(g, v, x);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(steps_take_nothing, count_before,
                                      count_after),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
