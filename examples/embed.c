/* embed.c: tfdist in a C program. Fits y = 2 x + 1 by gradient descent.
**
**   cc examples/embed.c $(pkg-config --cflags --libs tfdist) -o embed
**   ./embed
**
** prints  w = 2.000  b = 1.000  loss = 0.000000
*/
#include <stdio.h>
#include <stdlib.h>

#include <tfdist.h>

enum { POINTS = 16, STEPS = 400 };

static void check(int status) {
  if (status == TFD_OK) return;
  fprintf(stderr, "%s: %s\n", tfd_status_kind(status), tfd_error_message());
  exit(1);
}

/* The only output of a binary op without attributes. */
static tfd_tensor *binary(const char *name, void *a, void *b) {
  tfd_object *inputs[2] = {a, b};
  tfd_tensor *out = NULL;
  int op = 0;
  int n = 0;

  check(tfd_op_find(name, &op));
  check(tfd_op_run(op, inputs, 2, NULL, 0, NULL, 0, &out, 1, &n));
  return out;
}

static tfd_tensor *floats(const double *values, int n) {
  int64_t dims[1] = {n};
  tfd_tensor *t = NULL;

  check(
      tfd_tensor_from_values(values, n, TFD_FLOAT32, dims, n > 1 ? 1 : 0, &t));
  return t;
}

/* mean((w x + b - y)^2), recorded on the tapes that are open. */
static tfd_tensor *loss_of(tfd_variable *w, tfd_variable *b, tfd_tensor *x,
                           tfd_tensor *y) {
  tfd_tensor *product = binary("multiply", w, x);
  tfd_tensor *line = binary("add", product, b);
  tfd_tensor *error = binary("subtract", line, y);
  tfd_tensor *square = binary("multiply", error, error);
  tfd_object *input = (tfd_object *)square;
  tfd_tensor *loss = NULL;
  /* Attributes stand in slots, ten for "axis" (its length first; -1 means
  ** all axes) and one for "keepdims". */
  int64_t ints[10] = {-1};
  int op = 0;
  int n = 0;

  check(tfd_op_find("reduce_mean", &op));
  check(tfd_op_run(op, &input, 1, ints, 10, NULL, 0, &loss, 1, &n));
  tfd_release((tfd_object *)product);
  tfd_release((tfd_object *)line);
  tfd_release((tfd_object *)error);
  tfd_release((tfd_object *)square);
  return loss;
}

int main(void) {
  double xs[POINTS];
  double ys[POINTS];
  double zero = 0;
  double rate = 0.5;
  double result[3] = {0, 0, 0};
  tfd_tensor *x, *y, *start, *step, *loss = NULL;
  tfd_variable *w = NULL;
  tfd_variable *b = NULL;
  int i, k;

  for (i = 0; i < POINTS; i++) {
    xs[i] = (double)i / POINTS;
    ys[i] = 2 * xs[i] + 1;
  }
  x = floats(xs, POINTS);
  y = floats(ys, POINTS);
  start = floats(&zero, 1);
  step = floats(&rate, 1);
  check(tfd_variable_new((tfd_object *)start, "w", true, NULL, &w));
  check(tfd_variable_new((tfd_object *)start, "b", true, NULL, &b));

  for (i = 0; i < STEPS; i++) {
    tfd_tape *tape = NULL;
    tfd_walk *walk = NULL;
    tfd_walk_event event = TFD_WALK_DONE;
    tfd_object *target = NULL;
    tfd_object *sources[2] = {(tfd_object *)w, (tfd_object *)b};
    tfd_variable *variables[2] = {w, b};

    tfd_release((tfd_object *)loss);
    check(tfd_tape_new(false, true, &tape));
    loss = loss_of(w, b, x, y);
    check(tfd_tape_stop(tape));
    target = (tfd_object *)loss;
    check(tfd_walk_begin(tape, &target, 1, sources, 2, NULL, 0, false, &walk));
    check(tfd_walk_next(walk, &event));
    for (k = 0; k < 2; k++) {
      tfd_object *gradient = NULL;
      tfd_tensor *delta = NULL;

      check(tfd_walk_gradient(walk, k, &gradient));
      delta = binary("multiply", gradient, step);
      check(tfd_variable_assign_sub(variables[k], (tfd_object *)delta));
      tfd_release((tfd_object *)delta);
      tfd_release(gradient);
    }
    tfd_release((tfd_object *)walk);
    tfd_release((tfd_object *)tape);
  }

  for (k = 0; k < 2; k++) {
    tfd_tensor *value = NULL;

    check(tfd_variable_read(k == 0 ? w : b, &value));
    check(tfd_tensor_item(value, 0, &result[k]));
    tfd_release((tfd_object *)value);
  }
  check(tfd_tensor_item(loss, 0, &result[2]));
  printf("w = %.3f  b = %.3f  loss = %.6f\n", result[0], result[1], result[2]);

  tfd_release((tfd_object *)loss);
  tfd_release((tfd_object *)w);
  tfd_release((tfd_object *)b);
  tfd_release((tfd_object *)x);
  tfd_release((tfd_object *)y);
  tfd_release((tfd_object *)start);
  tfd_release((tfd_object *)step);
  return tfd_live_bytes() == 0 ? 0 : 1;
}
