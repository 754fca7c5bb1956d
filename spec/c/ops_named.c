/* Ops by name with attributes as text: what may be written, what is refused. */
#include "distribute_support.h"

static const double six[6] = {1, 2, 3, 4, 5, 6};

/* {2, 3}: 1 .. 6 */
static tfd_tensor *matrix(void) {
  static const int64_t dims[2] = {2, 3};
  tfd_tensor *t = NULL;

  OK(tfd_tensor_from_values(six, 6, TFD_FLOAT32, dims, 2, &t));
  return t;
}

static int call(const char *name, const char *attributes, tfd_tensor *a,
                tfd_tensor *b, tfd_tensor **out_p) {
  tfd_object *in[2] = {(tfd_object *)a, (tfd_object *)b};
  int n = 0;

  return tfd_op_call(name, attributes, in, b == NULL ? 1 : 2, out_p, 1, &n);
}

static void expect_call(const char *name, const char *attributes, int rank,
                        int n, const double *wanted) {
  tfd_tensor *t = matrix();
  tfd_tensor *out = NULL;
  double got[6] = {0};
  int i;

  OK(call(name, attributes, t, NULL, &out));
  assert_int_equal(rank, tfd_tensor_rank(out));
  assert_int_equal(n, tfd_tensor_size(out));
  OK(tfd_tensor_values(out, got, n));
  for (i = 0; i < n; i++) assert_true(wanted[i] == got[i]);
  tfd_release((tfd_object *)out);
  tfd_release((tfd_object *)t);
}

static void attributes_stand_by_their_names(void **state) {
  static const double all[] = {21};
  static const double columns[] = {5, 7, 9};
  static const double rows[] = {6, 15};
  static const double turned[] = {1, 4, 2, 5, 3, 6};

  (void)state;
  expect_call("reduce_sum", NULL, 0, 1, all);
  expect_call("reduce_sum", "", 0, 1, all);
  expect_call("reduce_sum", "axis=[0]", 1, 3, columns);
  expect_call("reduce_sum", " axis=-1 ", 1, 2, rows);
  expect_call("reduce_sum", "keepdims=true  axis=[1]", 2, 2, rows);
  expect_call("reduce_sum", "axis=[0,1] keepdims=false", 0, 1, all);
  expect_call("transpose", "perm=[1,0]", 2, 6, turned);
}

static void words_and_dtypes_are_read(void **state) {
  tfd_tensor *t = matrix();
  tfd_tensor *out = NULL;

  (void)state;
  OK(call("cast", "dtype=int32", t, NULL, &out));
  assert_int_equal(TFD_INT32, tfd_tensor_dtype(out));
  tfd_release((tfd_object *)out);
  tfd_release((tfd_object *)t);
}

static void flags_of_matmul(void **state) {
  static const double wanted[] = {14, 32, 32, 77}; /* t t' */
  tfd_tensor *t = matrix();
  tfd_tensor *out = NULL;
  double got[4] = {0};
  int i;

  (void)state;
  OK(call("matmul", "transpose_b=true", t, t, &out));
  OK(tfd_tensor_values(out, got, 4));
  for (i = 0; i < 4; i++) assert_true(wanted[i] == got[i]);
  tfd_release((tfd_object *)out);
  tfd_release((tfd_object *)t);
}

static void what_cannot_be_meant_is_told(void **state) {
  static const struct {
    const char *name;
    const char *attributes;
    const char *message;
  } cases[] = {
      {"reduce_sum", "axes=[0]",
       "there is no attribute \"axes\"; there are: "
       "axis, keepdims"},
      {"reduce_sum", "input_tensor=1", "no attribute \"input_tensor\""},
      {"negative", "x=1", "there is no attribute \"x\"; there are: none"},
      {"reduce_sum", "axis=[0] axis=[1]", "axis is given twice"},
      {"reduce_sum", "axis", "\"axis\" in the attributes; expected name=value"},
      {"reduce_sum", "axis=", "axis=; expected whole numbers as in [0,1]"},
      {"reduce_sum", "axis=[0", "axis=[0; expected whole numbers"},
      {"reduce_sum", "axis=[0,x]", "axis=[0,x]; expected whole numbers"},
      {"reduce_sum", "axis=[0 ,1]", "axis=[0; expected whole numbers"},
      {"reduce_sum", "axis=[1,2,3,4,5,6,7,8,9]", "expected whole numbers"},
      {"reduce_sum", "axis=1e3", "axis=1e3; expected whole numbers"},
      {"reduce_sum", "axis=99999999999999999999", "expected whole numbers"},
      {"reduce_sum", "keepdims=1", "keepdims=1; expected true or false"},
      {"cast", "", "cast: the attribute dtype is missing"},
      {"cast", "dtype=float99", "dtype=float99; expected a dtype's name"},
      {"one_hot", "depth=x", "expected"},
  };
  tfd_tensor *t = matrix();
  tfd_tensor *out = NULL;
  size_t k;

  (void)state;
  for (k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    expect_failure(TFD_VALUE_ERROR,
                   call(cases[k].name, cases[k].attributes, t, NULL, &out),
                   cases[k].message);
    assert_null(out);
  }
  expect_failure(TFD_NOT_IMPLEMENTED, call("no_op", NULL, t, NULL, &out),
                 "there is no op \"no_op\"");
  tfd_release((tfd_object *)t);
}

static void every_op_takes_its_own_defaults(void **state) {
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];
  int op;

  (void)state; /* or says which attribute is missing */
  for (op = 0; op < tfd_op_count(); op++) {
    const tfd__op *o = tfd__op_at(op);
    int rc = tfd__attributes_read(o, "", ints, reals);

    if (rc == TFD_OK) {
      OK(tfd__check_slots(o, ints));
    } else {
      expect_failure(TFD_VALUE_ERROR, rc, "is missing");
    }
  }
}

static void addresses_are_looked_at(void **state) {
  tfd_tensor *t = matrix();
  tfd_object *in[1] = {(tfd_object *)t};
  tfd_tensor *out = NULL;
  int n = 0;

  (void)state;
  assert_int_not_equal(TFD_OK, tfd_op_call(NULL, "", in, 1, &out, 1, &n));
  assert_int_not_equal(TFD_OK, tfd_op_call("abs", "", NULL, 1, &out, 1, &n));
  assert_int_not_equal(TFD_OK, tfd_op_call("abs", "", in, -1, &out, 1, &n));
  assert_int_not_equal(TFD_OK, tfd_op_call("abs", "", in, 9, &out, 1, &n));
  assert_int_not_equal(TFD_OK, tfd_op_call("abs", "", in, 0, &out, 1, &n));
  assert_int_not_equal(TFD_OK, tfd_op_call("abs", "", in, 1, NULL, 1, &n));
  assert_int_not_equal(TFD_OK, tfd_op_call("abs", "", in, 1, &out, 1, NULL));
  assert_int_not_equal(
      TFD_OK, tfd_strategy_apply(NULL, "update_sgd", "", NULL, 0, NULL, 0));
  assert_null(out);
  tfd_release((tfd_object *)t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attributes_stand_by_their_names),
      cmocka_unit_test(words_and_dtypes_are_read),
      cmocka_unit_test(flags_of_matmul),
      cmocka_unit_test(what_cannot_be_meant_is_told),
      cmocka_unit_test(every_op_takes_its_own_defaults),
      cmocka_unit_test(addresses_are_looked_at),
  };

  alarm(300); /* a hang ends the program */
  return cmocka_run_group_tests(tests, NULL, nothing_left);
}
