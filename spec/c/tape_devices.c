/* Gradients over two devices, each with a queue of its own. */
#include "tape.h"

static tfd_device *device(int i) {
  tfd_device *d = NULL;

  OK(tfd_device_at("CPU", i, &d));
  return d;
}

static int place_of(void *t) {
  tfd_device *d = NULL;

  OK(tfd_tensor_device(t, &d));
  return d == device(1);
}

static void gradient_comes_back_over_a_copy(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *copy = NULL;
  tfd_tensor *y = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  OK(tfd_tensor_to_device(x, device(1), &copy));
  y = multiply(copy, copy);
  assert_int_equal(1, place_of(y));
  grad = gradient(tape, y, x);
  assert_int_equal(0, place_of(grad));
  assert_true(item(grad) == 6.0);
  RELEASE(grad, y, copy, x, tape);
}

/* Uses on both devices: the sum lies where the variable lies. */
static void gradients_meet_on_the_variable_device(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *two = scalar(2.0);
  tfd_tensor *near = vector(3, 5.0);
  tfd_tensor *far = NULL;
  tfd_tensor *y = NULL;
  tfd_tensor *z = NULL;
  tfd_variable *v = NULL;
  tfd_walk *w = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tensor_to_device(near, device(1), &far));
  OK(tfd_variable_new(OBJECT(two), "v", true, device(1), &v));
  y = multiply(v, near);
  z = multiply(v, far);
  assert_int_equal(0, place_of(y));
  assert_int_equal(1, place_of(z));
  OK(tfd_walk_begin(tape, LIST(OBJECT(y), OBJECT(z)), 2, LIST(OBJECT(v)), 1,
                    NULL, 0, false, &w));
  assert_int_equal(TFD_WALK_DONE, next(w));
  grad = result(w, 0);
  assert_int_equal(1, place_of(grad));
  assert_true(item(grad) == 30.0);
  RELEASE(grad, w, z, y, v, far, near, two, tape);
}

/* The walk works where the data is, whatever device the caller has chosen. */
static void chosen_device_does_not_move_the_walk(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = vector(4, 3.0);
  tfd_tensor *y = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  OK(tfd_device_push(device(1)));
  grad = gradient(tape, y, x);
  assert_int_equal(1, tfd_device_depth());
  OK(tfd_device_pop());
  assert_int_equal(0, place_of(grad));
  assert_true(item(grad) == 6.0);
  RELEASE(grad, y, x, tape);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(gradient_comes_back_over_a_copy),
      TEST(gradients_meet_on_the_variable_device),
      TEST(chosen_device_does_not_move_the_walk),
  };

  if (tfd_config_set_cpu_devices(2) != TFD_OK) return 1;
  return cmocka_run_group_tests_name("autograd/tape_devices", tests, NULL,
                                     NULL);
}
