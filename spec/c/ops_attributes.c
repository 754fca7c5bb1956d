/* What schemas say of arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/attributes.h"

static const tfd__op *op_named(const char *name) {
  int op = -1;

  assert_int_equal(tfd_op_find(name, &op), TFD_OK);
  return tfd__op_at(op);
}

static const tfd__param *param(const tfd__op *op, const char *name) {
  return tfd__param_find(op, name, strlen(name));
}

static void names_are_found_whole(void **state) {
  const tfd__op *op = op_named("matmul");

  (void)state;
  assert_int_equal(param(op, "a")->slot, 0);
  assert_int_equal(param(op, "b")->slot, 1);
  assert_int_equal(param(op, "transpose_b")->slot, 1);
  assert_null(param(op, "transpose"));
  assert_null(param(op, "transpose_bb"));
  assert_null(param(op, ""));
}

static void arguments_are_required_unless_the_schema_says_more(void **state) {
  const tfd__op *norm = op_named("layer_normalization");
  const tfd__op *hot = op_named("one_hot");

  (void)state;
  assert_true(param(norm, "x")->required);
  assert_false(param(norm, "scale")->required);
  assert_true(tfd__is_optional(norm, 1));
  assert_false(tfd__is_optional(norm, 3)); /* an attribute */
  assert_true(param(hot, "depth")->required);
  assert_false(param(hot, "axis")->required);
  assert_true(param(op_named("concat"), "values")->list);
}

static void defaults_fill_the_slots(void **state) {
  const tfd__op *op = op_named("max_pool_with_argmax");
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];

  (void)state;
  tfd__op_defaults(op, ints, reals);
  assert_int_equal(ints[param(op, "data_format")->slot], 0);
  assert_int_equal(ints[param(op, "explicit_paddings")->slot], -1);
  assert_int_equal(ints[param(op, "output_dtype")->slot], TFD_INT64);
  op = op_named("avg_pool3d");
  tfd__op_defaults(op, ints, reals);
  assert_int_equal(ints[param(op, "data_format")->slot], 4);
  op = op_named("leaky_relu");
  tfd__op_defaults(op, ints, reals);
  assert_true(reals[0] == 0.2);
  op = op_named("top_k");
  tfd__op_defaults(op, ints, reals);
  assert_int_equal(ints[param(op, "k")->slot], 1);
  assert_int_equal(ints[param(op, "sorted")->slot], 1);
}

static void choices_have_positions(void **state) {
  const tfd__param *p = param(op_named("pad"), "mode");

  (void)state;
  assert_int_equal(tfd__param_choice(p, "CONSTANT", 8), 0);
  assert_int_equal(tfd__param_choice(p, "SYMMETRIC", 9), 2);
  assert_int_equal(tfd__param_choice(p, "SYMM", 4), -1);
  assert_int_equal(tfd__param_choice(p, "symmetric", 9), -1);
}

/* What the rule says of `x` in the slot of an attribute. */
static int check(const char *name, const char *attribute, int64_t x) {
  const tfd__op *op = op_named(name);
  const tfd__param *p = param(op, attribute);
  int64_t ints[TFD_MAX_INTS];
  double reals[TFD_MAX_REALS];

  tfd__op_defaults(op, ints, reals);
  ints[p->slot] = x;
  assert_int_equal(tfd__check_slots(op, ints), tfd__param_check(op, p, ints));
  return tfd__param_check(op, p, ints);
}

static void slots_hold_what_there_is(void **state) {
  (void)state;
  assert_int_equal(check("pad", "mode", 2), TFD_OK);
  assert_int_equal(check("pad", "mode", 3), TFD_VALUE_ERROR);
  assert_string_equal(tfd_error_message(), "pad: mode is 3; expected 0 to 2");
  assert_int_equal(check("matmul", "transpose_b", -1), TFD_VALUE_ERROR);
  assert_int_equal(check("cast", "dtype", TFD_DTYPE_END), TFD_VALUE_ERROR);
  assert_int_equal(check("reduce_sum", "axis", -1), TFD_OK);
  assert_int_equal(check("reduce_sum", "axis", -2), TFD_VALUE_ERROR);
  assert_int_equal(check("reshape", "shape", -1), TFD_VALUE_ERROR);
  assert_int_equal(check("reshape", "shape", 9), TFD_VALUE_ERROR);
  assert_string_equal(tfd_error_message(),
                      "reshape: shape has 9 entries; 8 is the most");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_are_found_whole),
      cmocka_unit_test(arguments_are_required_unless_the_schema_says_more),
      cmocka_unit_test(defaults_fill_the_slots),
      cmocka_unit_test(choices_have_positions),
      cmocka_unit_test(slots_hold_what_there_is),
  };

  return cmocka_run_group_tests(tests, NULL, NULL);
}
