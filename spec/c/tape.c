/* Tapes and the backward walk, without Lua. */
#include "tape.h"

/* --- first derivatives ---------------------------------------------------- */

static void chain_rule(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *y = NULL;
  tfd_tensor *z = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  z = multiply(y, x);
  assert_int_equal(2, tfd_tape_length(tape));
  grad = gradient(tape, z, x);
  assert_true(item(grad) == 27.0);
  assert_int_equal(0, tfd_tape_length(tape));
  RELEASE(grad, z, y, x, tape);
}

static void broadcast_inputs_get_their_own_shape(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(2.0);
  tfd_tensor *v = vector(5, 3.0);
  tfd_tensor *y = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, v);
  grad = gradient(tape, y, x);
  assert_int_equal(0, tfd_tensor_rank((tfd_tensor *)grad));
  assert_true(item(grad) == 15.0);
  RELEASE(grad, y, v, x, tape);
}

static void several_targets_and_their_gradients_add_up(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(2.0);
  tfd_tensor *ten = scalar(10.0);
  tfd_tensor *y = NULL;
  tfd_walk *w = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  OK(tfd_walk_begin(tape, LIST(OBJECT(y), OBJECT(x)), 2, LIST(OBJECT(x)), 1,
                    LIST(OBJECT(ten), NULL), 2, false, &w));
  assert_int_equal(TFD_WALK_DONE, next(w));
  grad = result(w, 0);
  assert_true(item(grad) == 41.0);
  RELEASE(grad, w, y, ten, x, tape);
}

static void source_may_be_a_target_unwatched(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(2.0);
  tfd_object *grad = gradient(tape, x, x);

  (void)state;
  assert_true(item(grad) == 1.0);
  RELEASE(grad, x, tape);
}

static void intermediate_values_are_sources_too(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *y = NULL;
  tfd_tensor *z = NULL;
  tfd_walk *w = NULL;
  tfd_object *dx = NULL;
  tfd_object *dy = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  z = multiply(y, y);
  OK(tfd_walk_begin(tape, LIST(OBJECT(z)), 1, LIST(OBJECT(x), OBJECT(y)), 2,
                    NULL, 0, false, &w));
  assert_int_equal(TFD_WALK_DONE, next(w));
  dx = result(w, 0);
  dy = result(w, 1);
  assert_true(item(dx) == 108.0);
  assert_true(item(dy) == 18.0);
  RELEASE(dx, dy, w, z, y, x, tape);
}

static void unconnected_is_nothing_or_zeros(void **state) {
  tfd_tape *tape = tape_new(true);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *other = vector(4, 1.0);
  tfd_tensor *y = NULL;
  tfd_walk *w = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  assert_null(gradient(tape, y, other));
  OK(tfd_walk_begin(tape, LIST(OBJECT(y)), 1, LIST(OBJECT(other)), 1, NULL, 0,
                    true, &w));
  assert_int_equal(TFD_WALK_DONE, next(w));
  grad = result(w, 0);
  assert_int_equal(4, tfd_tensor_size((tfd_tensor *)grad));
  assert_true(item(grad) == 0.0);
  RELEASE(grad, w, y, other, x, tape);
}

static void integers_are_not_followed(void **state) {
  double one = 1.0;
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = NULL;
  tfd_tensor *y = NULL;

  (void)state;
  OK(tfd_tensor_from_values(&one, 1, TFD_INT32, NULL, 0, &x));
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  assert_int_equal(0, tfd_tape_length(tape));
  assert_null(gradient(tape, y, x));
  RELEASE(y, x, tape);
}

/* --- variables ------------------------------------------------------------ */

static tfd_variable *variable(double value, bool trainable) {
  tfd_tensor *t = scalar(value);
  tfd_variable *v = NULL;

  OK(tfd_variable_new(OBJECT(t), "v", trainable, NULL, &v));
  RELEASE(t);
  return v;
}

static void trainable_variables_are_watched_in_order(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_variable *a = variable(2.0, true);
  tfd_variable *b = variable(5.0, true);
  tfd_variable *fixed = variable(7.0, false);
  tfd_variable *got = NULL;
  tfd_tensor *y = multiply(b, a);
  tfd_tensor *z = multiply(y, fixed);
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_variable(tape, 0, &got));
  assert_ptr_equal(b, got);
  RELEASE(got);
  OK(tfd_tape_variable(tape, 1, &got));
  assert_ptr_equal(a, got);
  RELEASE(got);
  assert_int_equal(TFD_INDEX_ERROR, tfd_tape_variable(tape, 2, &got));
  grad = gradient(tape, z, a);
  assert_true(item(grad) == 35.0);
  RELEASE(grad, z, y, fixed, b, a, tape);
}

static void tape_can_leave_variables_alone(void **state) {
  tfd_tape *tape = NULL;
  tfd_variable *a = variable(2.0, true);
  tfd_tensor *y = NULL;

  (void)state;
  OK(tfd_tape_new(false, false, &tape));
  y = multiply(a, a);
  assert_int_equal(0, tfd_tape_length(tape));
  RELEASE(y, a, tape);
}

/* The value a rule sees is the one the op saw, not a later one. */
static void assignment_does_not_change_what_was_recorded(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_variable *a = variable(2.0, true);
  tfd_tensor *later = scalar(100.0);
  tfd_tensor *y = multiply(a, a);
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_variable_assign(a, OBJECT(later)));
  grad = gradient(tape, y, a);
  assert_true(item(grad) == 4.0);
  RELEASE(grad, y, later, a, tape);
}

static void watched_variables_outlive_their_handles(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_variable *a = variable(2.0, true);
  tfd_variable *got = NULL;
  tfd_tensor *y = multiply(a, a);
  tfd_object *grad = NULL;

  (void)state;
  RELEASE(a);
  OK(tfd_tape_variable(tape, 0, &got));
  grad = gradient(tape, y, got);
  assert_true(item(grad) == 4.0);
  RELEASE(grad, got, y, tape);
}

static void values_of_tapes_around_are_followed(void **state) {
  tfd_tape *around = tape_new(true);
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *other = scalar(4.0);
  tfd_tensor *got = NULL;
  tfd_tensor *y = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(around, OBJECT(x)));
  OK(tfd_tape_follow_tape(tape, around));
  assert_int_equal(TFD_VALUE_ERROR, tfd_tape_follow_tape(tape, tape));
  y = multiply(x, other);
  assert_int_equal(1, tfd_tape_constant_count(tape));
  OK(tfd_tape_constant(tape, 0, &got));
  assert_ptr_equal(x, got);
  assert_int_equal(TFD_INDEX_ERROR, tfd_tape_constant(tape, 1, &got));
  grad = gradient(tape, y, x);
  assert_true(item(grad) == 4.0);
  RELEASE(grad, y, got, other, x, tape, around);
}

/* --- several walks -------------------------------------------------------- */

static void persistent_tapes_serve_again(void **state) {
  tfd_tape *tape = tape_new(true);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *y = NULL;
  tfd_tensor *z = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  z = multiply(y, y);
  OK(tfd_tape_stop(tape));
  grad = gradient(tape, z, x);
  assert_true(item(grad) == 108.0);
  RELEASE(grad);
  grad = gradient(tape, y, x);
  assert_true(item(grad) == 6.0);
  RELEASE(grad, z, y, x, tape);
}

static void other_tapes_serve_once(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *y = NULL;
  tfd_walk *w = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  grad = gradient(tape, y, x);
  assert_false(tfd_tape_is_recording(tape));
  assert_int_equal(TFD_RUNTIME_ERROR,
                   tfd_walk_begin(tape, LIST(OBJECT(y)), 1, LIST(OBJECT(x)), 1,
                                  NULL, 0, false, &w));
  assert_non_null(strstr(tfd_error_message(), "non-persistent"));
  assert_int_equal(TFD_RUNTIME_ERROR, tfd_tape_keep(tape));
  OK(tfd_tape_reset(tape));
  RELEASE(grad);
  grad = gradient(tape, y, x);
  assert_null(grad);
  RELEASE(y, x, tape);
}

static void second_derivative_of_a_cube(void **state) {
  tfd_tape *outer = tape_new(false);
  tfd_tape *inner = tape_new(false);
  tfd_tensor *x = scalar(2.0);
  tfd_tensor *y = NULL;
  tfd_tensor *z = NULL;
  tfd_object *first = NULL;
  tfd_object *second = NULL;

  (void)state;
  OK(tfd_tape_watch(outer, OBJECT(x)));
  OK(tfd_tape_watch(inner, OBJECT(x)));
  y = multiply(x, x);
  z = multiply(y, x);
  first = gradient(inner, z, x);
  assert_true(item(first) == 12.0);
  second = gradient(outer, first, x);
  assert_true(item(second) == 12.0);
  RELEASE(second, first, z, y, x, inner, outer);
}

static void persistent_tape_records_its_own_gradient(void **state) {
  tfd_tape *tape = tape_new(true);
  tfd_tensor *x = scalar(2.0);
  tfd_tensor *y = NULL;
  tfd_tensor *z = NULL;
  tfd_object *first = NULL;
  tfd_object *second = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  z = multiply(y, x);
  first = gradient(tape, z, x);
  second = gradient(tape, first, x);
  assert_true(item(second) == 12.0);
  RELEASE(second, first, z, y, x, tape);
}

/* --- what is recorded ----------------------------------------------------- */

static void stopped_and_paused_tapes_record_nothing(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tape *inner = NULL;
  tfd_tensor *x = scalar(2.0);

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  OK(tfd_tape_stop(tape));
  RELEASE(multiply(x, x));
  assert_int_equal(TFD_RUNTIME_ERROR, tfd_tape_stop(tape));
  OK(tfd_tape_resume(tape));
  assert_int_equal(TFD_RUNTIME_ERROR, tfd_tape_resume(tape));
  OK(tfd_tape_pause_all(true));
  assert_int_equal(0, tfd_tape_active());
  RELEASE(multiply(x, x));
  assert_int_equal(0, tfd_tape_length(tape));
  inner = tape_new(false); /* begun in a pause: records */
  OK(tfd_tape_watch(inner, OBJECT(x)));
  RELEASE(multiply(x, x));
  assert_int_equal(1, tfd_tape_length(inner));
  OK(tfd_tape_pause_all(false));
  RELEASE(multiply(x, x));
  assert_int_equal(1, tfd_tape_length(tape));
  RELEASE(inner, x, tape);
}

static void tape_released_while_recording_is_gone(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(2.0);

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  RELEASE(tape);
  assert_int_equal(0, tfd_tape_active());
  RELEASE(multiply(x, x), x);
}

static void contexts_have_tapes_of_their_own(void **state) {
  tfd_context *context = NULL;
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(2.0);

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  OK(tfd_context_new(&context));
  OK(tfd_context_enter(context));
  RELEASE(multiply(x, x));
  assert_int_equal(0, tfd_tape_active());
  OK(tfd_context_enter(NULL));
  assert_int_equal(0, tfd_tape_length(tape));
  RELEASE(context, x, tape);
}

/* --- host steps ----------------------------------------------------------- */

static void host_step_gets_and_gives_gradients(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *y = NULL;
  tfd_tensor *z = NULL;
  tfd_tensor *hundred = scalar(100.0);
  tfd_tensor *wrong = vector(2, 1.0);
  tfd_walk_event event = TFD_WALK_DONE;
  tfd_walk *w = NULL;
  tfd_object *dy = NULL;
  tfd_object *grad = NULL;
  int64_t number = 0;
  int n = 0;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = host_square(77, x);
  z = multiply(y, y);
  w = begin(tape, z, x);
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd_walk_host(w, &number, &n));
  assert_int_equal(TFD_WALK_HOST, next(w));
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd_walk_next(w, &event));
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd_walk_gradient(w, 0, &grad));
  OK(tfd_walk_host(w, &number, &n));
  assert_int_equal(77, number);
  assert_int_equal(1, n);
  OK(tfd_walk_output_grad(w, 0, &dy));
  assert_true(item(dy) == 18.0);
  assert_int_equal(TFD_INDEX_ERROR, tfd_walk_output_grad(w, 1, &grad));
  assert_int_equal(TFD_VALUE_ERROR, tfd_walk_supply(w, NULL, 0));
  OK(tfd_walk_supply(w, LIST(OBJECT(hundred)), 1));
  assert_int_equal(TFD_WALK_DONE, next(w));
  grad = result(w, 0);
  assert_true(item(grad) == 100.0);
  RELEASE(grad, dy, w, wrong, hundred, z, y, x, tape);
}

static void supplied_gradient_must_fit_its_input(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *wrong = vector(2, 1.0);
  tfd_walk_event event = TFD_WALK_DONE;
  tfd_tensor *y = NULL;
  tfd_walk *w = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = host_square(1, x);
  w = begin(tape, y, x);
  assert_int_equal(TFD_WALK_HOST, next(w));
  assert_int_equal(TFD_INVALID_ARGUMENT,
                   tfd_walk_supply(w, LIST(OBJECT(wrong)), 1));
  assert_non_null(strstr(tfd_error_message(), "float64 {2}"));
  assert_int_equal(TFD_FAILED_PRECONDITION, tfd_walk_next(w, &event));
  RELEASE(w, y, wrong, x, tape);
}

static void host_step_without_gradient_stops_the_flow(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *y = NULL;
  tfd_walk *w = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = host_square(1, x);
  w = begin(tape, y, x);
  assert_int_equal(TFD_WALK_HOST, next(w));
  OK(tfd_walk_supply(w, LIST(NULL), 1));
  assert_int_equal(TFD_WALK_DONE, next(w));
  assert_null(result(w, 0));
  RELEASE(w, y, x, tape);
}

/* Host steps off the path show that the walk does not go there. */
static void only_paths_to_sources_are_walked(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *other = scalar(4.0);
  tfd_tensor *unused = NULL;
  tfd_tensor *side = NULL;
  tfd_tensor *z = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  OK(tfd_tape_watch(tape, OBJECT(other)));
  unused = host_square(1, x);   /* not part of the target */
  side = host_square(2, other); /* not from the source */
  z = multiply(side, x);
  grad = gradient(tape, z, x); /* asserts that no host step comes up */
  assert_true(item(grad) == 16.0);
  RELEASE(grad, z, side, unused, other, x, tape);
}

/* --- sparse gradients ----------------------------------------------------- */

static tfd_slices *rows(int n, double value) {
  int64_t dims[2] = {n, 2};
  int64_t dense[2] = {4, 2};
  double zero = 0.0;
  tfd_tensor *values = NULL;
  tfd_tensor *indices = NULL;
  tfd_slices *s = NULL;

  OK(tfd_tensor_from_values(&value, 1, TFD_FLOAT64, dims, 2, &values));
  OK(tfd_tensor_from_values(&zero, 1, TFD_INT32, dims, 1, &indices));
  OK(tfd_slices_new(values, indices, dense, 2, &s));
  RELEASE(values, indices);
  return s;
}

static tfd_tensor *table(double value) {
  int64_t dims[2] = {4, 2};
  tfd_tensor *t = NULL;

  OK(tfd_tensor_from_values(&value, 1, TFD_FLOAT64, dims, 2, &t));
  return t;
}

static void sparse_gradients_are_joined(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = table(1.0);
  tfd_tensor *read = NULL;
  tfd_tensor *values = NULL;
  tfd_tensor *y[3] = {NULL, NULL, NULL};
  tfd_walk *w = NULL;
  tfd_object *grad = NULL;
  int i;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  OK(try_op("identity", OBJECT(x), NULL, &read));
  for (i = 0; i < 3; i++) y[i] = host_square(i, read);
  OK(tfd_walk_begin(tape, (tfd_object **)y, 3, LIST(OBJECT(x)), 1, NULL, 0,
                    false, &w));
  for (i = 2; i >= 0; i--) {
    tfd_slices *s = rows(i + 1, 1.0);

    assert_int_equal(TFD_WALK_HOST, next(w));
    OK(tfd_walk_supply(w, LIST(OBJECT(s)), 1));
    RELEASE(s);
  }
  assert_int_equal(TFD_WALK_DONE, next(w));
  grad = result(w, 0);
  assert_int_equal(2, tfd_slices_rank((tfd_slices *)grad));
  OK(tfd_slices_values((tfd_slices *)grad, &values));
  assert_int_equal(6, tfd_tensor_dim(values, 0));
  RELEASE(values, grad, w, y[0], y[1], y[2], read, x, tape);
}

static void sparse_and_dense_make_dense(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = table(1.0);
  tfd_tensor *y[3] = {NULL, NULL, NULL};
  tfd_slices *s = rows(3, 5.0);
  tfd_walk *w = NULL;
  tfd_object *grad = NULL;
  double last = 0.0;
  int i;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y[0] = multiply(x, x);
  for (i = 1; i < 3; i++) y[i] = host_square(i, x);
  OK(tfd_walk_begin(tape, (tfd_object **)y, 3, LIST(OBJECT(x)), 1, NULL, 0,
                    false, &w));
  for (i = 1; i < 3; i++) {
    assert_int_equal(TFD_WALK_HOST, next(w));
    OK(tfd_walk_supply(w, LIST(OBJECT(s)), 1));
  }
  assert_int_equal(TFD_WALK_DONE, next(w));
  grad = result(w, 0);
  assert_true(item(grad) == 32.0); /* 2x + 2 * 3 rows of 5 */
  OK(tfd_tensor_item((tfd_tensor *)grad, 7, &last));
  assert_true(last == 2.0);
  RELEASE(grad, w, s, y[0], y[1], y[2], x, tape);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(chain_rule),
      TEST(broadcast_inputs_get_their_own_shape),
      TEST(several_targets_and_their_gradients_add_up),
      TEST(source_may_be_a_target_unwatched),
      TEST(intermediate_values_are_sources_too),
      TEST(unconnected_is_nothing_or_zeros),
      TEST(integers_are_not_followed),
      TEST(trainable_variables_are_watched_in_order),
      TEST(tape_can_leave_variables_alone),
      TEST(assignment_does_not_change_what_was_recorded),
      TEST(watched_variables_outlive_their_handles),
      TEST(values_of_tapes_around_are_followed),
      TEST(persistent_tapes_serve_again),
      TEST(other_tapes_serve_once),
      TEST(second_derivative_of_a_cube),
      TEST(persistent_tape_records_its_own_gradient),
      TEST(stopped_and_paused_tapes_record_nothing),
      TEST(tape_released_while_recording_is_gone),
      TEST(contexts_have_tapes_of_their_own),
      TEST(host_step_gets_and_gives_gradients),
      TEST(supplied_gradient_must_fit_its_input),
      TEST(host_step_without_gradient_stops_the_flow),
      TEST(only_paths_to_sources_are_walked),
      TEST(sparse_gradients_are_joined),
      TEST(sparse_and_dense_make_dense),
  };

  return cmocka_run_group_tests_name("autograd/tape", tests, NULL, NULL);
}
