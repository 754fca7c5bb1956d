/* Long tapes, their memory, and failures on the way. */
#include "slower.h"
#include "tape.h"

/* --- size and memory ------------------------------------------------------ */

static void long_chain(void **state) {
  const int n = 1000000 / SHORTER;
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(1.0);
  tfd_tensor *y = NULL;
  tfd_object *grad = NULL;
  int i;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = add(x, x);
  for (i = 1; i < n; i++) {
    tfd_tensor *t = add(y, x);

    tfd_release(OBJECT(y));
    y = t;
  }
  assert_int_equal(n, tfd_tape_length(tape));
  grad = gradient(tape, y, x);
  assert_true(item(grad) == (double)n + 1.0);
  RELEASE(grad, y, x, tape);
}

static void chain_of_1000(void *unused) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(1.0);
  tfd_tensor *y = add(x, x);
  tfd_object *grad = NULL;
  int i;

  (void)unused;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  for (i = 0; i < 1000; i++) {
    tfd_tensor *t = add(y, x);

    RELEASE(y);
    y = t;
  }
  grad = gradient(tape, y, x);
  assert_true(item(grad) == 1000.0);
  RELEASE(grad, y, x, tape);
}

/* What a thread keeps for its next tapes goes when it ends. */
static void threads_leave_nothing(void **state) {
  int64_t live = 0;
  int i;

  (void)state;
  for (i = 0; i < 4; i++) {
    tfd__thread t;

    OK(tfd__thread_start(&t, "tape", chain_of_1000, NULL));
    tfd__thread_join(t);
    if (i == 0) live = tfd__alloc_live();
  }
  assert_int_equal(live, tfd__alloc_live());
}

/* Stopped in the middle of the walk by a host step, the later half of the
** saved values is gone already. */
static void saved_values_go_as_the_walk_goes(void **state) {
  const int n = 1 << 17;
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = vector(n, 1.0);
  tfd_tensor *y = host_square(1, x);
  tfd_walk *w = NULL;
  int64_t before = 0;
  int i;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  RELEASE(y);
  y = host_square(1, x);
  for (i = 0; i < 16; i++) {
    tfd_tensor *t = multiply(y, y);

    RELEASE(y);
    y = t;
  }
  before = tfd_live_bytes();
  assert_true(before - bytes_before >= 17 * (int64_t)n * 8);
  w = begin(tape, y, x);
  RELEASE(y);
  assert_int_equal(TFD_WALK_HOST, next(w));
  assert_true(tfd_live_bytes() - bytes_before <= 4 * (int64_t)n * 8);
  RELEASE(w, x, tape);
}

static void unneeded_values_are_not_kept(void **state) {
  const int n = 1 << 17;
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = vector(n, 1.0);
  tfd_tensor *y = NULL;
  int i;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = add(x, x);
  for (i = 0; i < 16; i++) {
    tfd_tensor *t = add(y, x);

    RELEASE(y);
    y = t;
  }
  assert_true(tfd_live_bytes() - bytes_before <= 3 * (int64_t)n * 8);
  RELEASE(y, x, tape);
}

/* --- failures ------------------------------------------------------------- */

static int walk_to_end(tfd_walk *w, tfd_object *host_grad) {
  tfd_walk_event event = TFD_WALK_HOST;

  while (event == TFD_WALK_HOST) {
    TFD_TRY(tfd_walk_next(w, &event));
    if (event == TFD_WALK_HOST) TFD_TRY(tfd_walk_supply(w, &host_grad, 1));
  }
  return TFD_OK;
}

/* Everything a tape does, written so that any call may fail. */
static int scenario(void) {
  double value = 2.0;
  int64_t dims[1] = {3};
  tfd_tensor *t[5] = {NULL, NULL, NULL, NULL, NULL};
  tfd_variable *v = NULL;
  tfd_tape *outer = NULL;
  tfd_tape *tape = NULL;
  tfd_walk *w[2] = {NULL, NULL};
  tfd_object *grad = NULL;
  int rc;
  int i;

  TFD_TRY_OR(rc =
                 tfd_tensor_from_values(&value, 1, TFD_FLOAT64, dims, 1, &t[0]),
             done);
  TFD_TRY_OR(rc = tfd_variable_new(OBJECT(t[0]), "v", true, NULL, &v), done);
  TFD_TRY_OR(rc = tfd_tape_new(false, true, &outer), done);
  TFD_TRY_OR(rc = tfd_tape_new(true, true, &tape), done);
  TFD_TRY_OR(rc = tfd_tape_watch(tape, OBJECT(t[0])), done);
  TFD_TRY_OR(rc = try_op("multiply", OBJECT(v), OBJECT(t[0]), &t[1]), done);
  TFD_TRY_OR(rc = try_op("identity", OBJECT(t[1]), NULL, &t[2]), done);
  TFD_TRY_OR(rc = tfd_tape_record_host(1, LIST(OBJECT(t[1])), 1, &t[2], 1),
             done);
  TFD_TRY_OR(rc = try_op("multiply", OBJECT(t[2]), OBJECT(v), &t[3]), done);
  TFD_TRY_OR(rc = tfd_walk_begin(tape, LIST(OBJECT(t[3])), 1,
                                 LIST(OBJECT(v), OBJECT(t[0])), 2, NULL, 0,
                                 true, &w[0]),
             done);
  TFD_TRY_OR(rc = walk_to_end(w[0], OBJECT(t[0])), done);
  TFD_TRY_OR(rc = tfd_walk_gradient(w[0], 0, &grad), done);
  TFD_TRY_OR(rc = tfd_walk_begin(outer, &grad, 1, LIST(OBJECT(v)), 1, NULL, 0,
                                 false, &w[1]),
             done);
  rc = walk_to_end(w[1], OBJECT(t[0]));

done:
  for (i = 0; i < 5; i++) tfd_release(OBJECT(t[i]));
  RELEASE(grad, w[1], w[0], tape, outer, v);
  return rc;
}

static void any_allocation_may_fail(void **state) {
  int rc = TFD_RESOURCE_EXHAUSTED;
  int n;

  (void)state;
  OK(scenario());
  for (n = 1; rc != TFD_OK; n++) {
    assert_true(n < 1000);
    tfd_test_fail_allocation(n);
    rc = scenario();
    tfd_test_fail_allocation(0);
    assert_true(rc == TFD_OK || rc == TFD_RESOURCE_EXHAUSTED);
    assert_true(balanced());
  }
  assert_true(n > 5); /* warm caches leave the handles' own */
}

static void failed_record_leaves_the_tape_usable(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_object *many[9] = {OBJECT(x), OBJECT(x), OBJECT(x), OBJECT(x), OBJECT(x),
                         OBJECT(x), OBJECT(x), OBJECT(x), OBJECT(x)};
  tfd_tensor *y = NULL;
  tfd_object *grad = NULL;
  int rc = TFD_OK;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  tfd_test_fail_allocation(1); /* its list of inputs */
  rc = tfd_tape_record_host(1, many, 9, &x, 1);
  tfd_test_fail_allocation(0);
  assert_int_equal(TFD_RESOURCE_EXHAUSTED, rc);
  assert_int_equal(0, tfd_tape_length(tape));
  y = multiply(x, x);
  grad = gradient(tape, y, x);
  assert_true(item(grad) == 6.0);
  RELEASE(grad, y, x, tape);
}

static void wrong_arguments_leave_the_tape_usable(void **state) {
  tfd_tape *tape = tape_new(false);
  tfd_tensor *x = scalar(3.0);
  tfd_tensor *wrong = vector(2, 1.0);
  tfd_tensor *y = NULL;
  tfd_walk *w = NULL;
  tfd_object *grad = NULL;

  (void)state;
  OK(tfd_tape_watch(tape, OBJECT(x)));
  y = multiply(x, x);
  assert_int_equal(TFD_TYPE_ERROR,
                   tfd_walk_begin(tape, LIST(OBJECT(tape)), 1, LIST(OBJECT(x)),
                                  1, NULL, 0, false, &w));
  assert_int_equal(TFD_TYPE_ERROR,
                   tfd_walk_begin(tape, LIST(OBJECT(y)), 1, LIST(NULL), 1, NULL,
                                  0, false, &w));
  assert_int_equal(TFD_INVALID_ARGUMENT,
                   tfd_walk_begin(tape, LIST(OBJECT(y)), 1, LIST(OBJECT(x)), 1,
                                  LIST(OBJECT(wrong)), 1, false, &w));
  assert_int_equal(TFD_VALUE_ERROR,
                   tfd_walk_begin(tape, LIST(OBJECT(y)), 1, LIST(OBJECT(x)), 1,
                                  LIST(NULL, NULL), 2, false, &w));
  assert_null(w);
  grad = gradient(tape, y, x);
  assert_true(item(grad) == 6.0);
  RELEASE(grad, y, wrong, x, tape);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(long_chain),
      TEST(threads_leave_nothing),
      TEST(saved_values_go_as_the_walk_goes),
      TEST(unneeded_values_are_not_kept),
      TEST(any_allocation_may_fail),
      TEST(failed_record_leaves_the_tape_usable),
      TEST(wrong_arguments_leave_the_tape_usable),
  };

  return cmocka_run_group_tests_name("autograd/tape_limits", tests, NULL, NULL);
}
