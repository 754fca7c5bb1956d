/* embed_mirrored.c: training on two devices from C. Fits y = 2 x + 1: every
** device has copies of the variables, and the library shares the batch, adds
** the gradients up and updates all copies.
**
**   cc examples/embed_mirrored.c $(pkg-config --cflags --libs tfdist) -o embed
**   ./embed
**
** prints
**   step   0  loss = 4.069630
**   …
**   w = 2.000  b = 1.000
*/
#include <stdio.h>
#include <stdlib.h>

#include <tfdist.h>

enum { DEVICES = 2, POINTS = 15, STEPS = 401, REPORT = 100, VARIABLES = 2 };

static void check(int status) {
  if (status == TFD_OK) return;
  fprintf(stderr, "%s: %s\n", tfd_status_kind(status), tfd_error_message());
  exit(1);
}

/* The only output of an op of one or two inputs. */
static tfd_tensor *call(const char *name, const char *attributes, void *a,
                        void *b) {
  tfd_object *inputs[2] = {a, b};
  tfd_tensor *out = NULL;
  int n = 0;

  check(tfd_op_call(name, attributes, inputs, b == NULL ? 1 : 2, &out, 1, &n));
  return out;
}

static tfd_tensor *floats(const double *values, int n) {
  int64_t dims[1] = {n};
  tfd_tensor *t = NULL;

  check(
      tfd_tensor_from_values(values, n, TFD_FLOAT32, dims, n > 1 ? 1 : 0, &t));
  return t;
}

typedef struct model {
  tfd_strategy *strategy;
  tfd_object *variables[VARIABLES]; /* w and b */
  tfd_variable *copies[VARIABLES * DEVICES];
  tfd_value *x; /* each replica's share of the points */
  tfd_value *y;
  tfd_tensor *points; /* how many there are in all */
} model;

/* sum((w x + b - y)^2) / points: what the replica here has of the mean. Every
** handle means this replica's copy or share. */
static tfd_tensor *loss_of(model *m) {
  tfd_tensor *product = call("multiply", NULL, m->variables[0], m->x);
  tfd_tensor *line = call("add", NULL, product, m->variables[1]);
  tfd_tensor *error = call("subtract", NULL, line, m->y);
  tfd_tensor *square = call("multiply", NULL, error, error);
  tfd_tensor *sum = call("reduce_sum", "axis=[0] keepdims=false", square, NULL);
  tfd_tensor *loss = call("divide", NULL, sum, m->points);

  tfd_release((tfd_object *)product);
  tfd_release((tfd_object *)line);
  tfd_release((tfd_object *)error);
  tfd_release((tfd_object *)square);
  tfd_release((tfd_object *)sum);
  return loss;
}

/* A replica's turn: its loss and its gradients. */
static void replica_step(model *m, tfd_object **loss_p, tfd_object **grads) {
  tfd_tape *tape = NULL;
  tfd_walk *walk = NULL;
  tfd_walk_event event = TFD_WALK_DONE;
  int k;

  check(tfd_tape_new(false, true, &tape));
  *loss_p = (tfd_object *)loss_of(m);
  check(tfd_tape_stop(tape));
  check(tfd_walk_begin(tape, loss_p, 1, m->variables, VARIABLES, NULL, 0, false,
                       &walk));
  check(tfd_walk_next(walk, &event));
  for (k = 0; k < VARIABLES; k++) {
    check(tfd_walk_gradient(walk, k, &grads[k * DEVICES]));
  }
  tfd_release((tfd_object *)walk);
  tfd_release((tfd_object *)tape);
}

/* One step on all replicas; returns the loss before it. */
static double train_step(model *m) {
  tfd_object *losses[DEVICES];
  tfd_object *grads[VARIABLES * DEVICES];
  tfd_device *device = NULL;
  tfd_run *run = NULL;
  tfd_run_event event = TFD_RUN_DONE;
  tfd_value *sum = NULL;
  tfd_object *loss = NULL;
  double value = 0;
  int replica = 0;
  int i;

  check(tfd_run_begin(m->strategy, &run));
  check(tfd_run_next(run, &event, &replica));
  while (event == TFD_RUN_RESUME) {
    replica_step(m, &losses[replica], &grads[replica]);
    check(tfd_run_pass(run, "", &event, &replica));
  }
  tfd_release((tfd_object *)run);

  check(tfd_strategy_apply(m->strategy, "update_sgd",
                           "weight_decay=0 learning_rate=0.5", m->copies,
                           VARIABLES * DEVICES, grads, VARIABLES * DEVICES));
  check(tfd_strategy_device(m->strategy, 0, &device));
  check(tfd_strategy_reduce(m->strategy, TFD_REDUCE_SUM, "loss", losses,
                            DEVICES, &device, 1, 0, &sum));
  check(tfd_value_component(sum, 0, &loss));
  check(tfd_tensor_item((tfd_tensor *)loss, 0, &value));

  tfd_release(loss);
  tfd_release((tfd_object *)sum);
  for (i = 0; i < DEVICES; i++) tfd_release(losses[i]);
  for (i = 0; i < VARIABLES * DEVICES; i++) tfd_release(grads[i]);
  return value;
}

static void make_strategy(model *m) {
  tfd_device *devices[DEVICES];
  int i;

  check(tfd_config_set_cpu_devices(DEVICES));
  for (i = 0; i < DEVICES; i++) check(tfd_device_at("CPU", i, &devices[i]));
  check(tfd_strategy_new("mirrored", devices, DEVICES, NULL, &m->strategy));
}

static void make_variables(model *m) {
  static const char *const names[VARIABLES] = {"w", "b"};
  double zero = 0;
  tfd_tensor *start = floats(&zero, 1);
  int k, i;

  for (k = 0; k < VARIABLES; k++) {
    check(tfd_strategy_variable(m->strategy, (tfd_object *)start, names[k],
                                true, TFD_SYNCHRONIZATION_AUTO,
                                TFD_AGGREGATION_NONE, &m->variables[k]));
    for (i = 0; i < DEVICES; i++) {
      check(tfd_mirrored_component((tfd_mirrored *)m->variables[k], i,
                                   &m->copies[k * DEVICES + i]));
    }
  }
  tfd_release((tfd_object *)start);
}

static void make_data(model *m) {
  double xs[POINTS];
  double ys[POINTS];
  double points = POINTS;
  tfd_tensor *x, *y;
  int i;

  for (i = 0; i < POINTS; i++) {
    xs[i] = (double)i / POINTS;
    ys[i] = 2 * xs[i] + 1;
  }
  x = floats(xs, POINTS);
  y = floats(ys, POINTS);
  check(tfd_strategy_split(m->strategy, x, POINTS, &m->x)); /* 8 and 7 */
  check(tfd_strategy_split(m->strategy, y, POINTS, &m->y));
  m->points = floats(&points, 1);
  tfd_release((tfd_object *)x);
  tfd_release((tfd_object *)y);
}

int main(void) {
  model m = {NULL};
  double result[VARIABLES] = {0, 0};
  int k;

  make_strategy(&m);
  make_variables(&m);
  make_data(&m);
  for (k = 0; k < STEPS; k++) {
    double loss = train_step(&m);

    if (k % REPORT == 0) printf("step %3d  loss = %.6f\n", k, loss);
  }
  for (k = 0; k < VARIABLES; k++) {
    tfd_tensor *value = NULL;

    check(tfd_mirrored_read((tfd_mirrored *)m.variables[k], &value));
    check(tfd_tensor_item(value, 0, &result[k]));
    tfd_release((tfd_object *)value);
  }
  printf("w = %.3f  b = %.3f\n", result[0], result[1]);

  for (k = 0; k < VARIABLES * DEVICES; k++) {
    tfd_release((tfd_object *)m.copies[k]);
  }
  for (k = 0; k < VARIABLES; k++) tfd_release(m.variables[k]);
  tfd_release((tfd_object *)m.x);
  tfd_release((tfd_object *)m.y);
  tfd_release((tfd_object *)m.points);
  tfd_release((tfd_object *)m.strategy);
  return tfd_live_bytes() == 0 ? 0 : 1;
}
