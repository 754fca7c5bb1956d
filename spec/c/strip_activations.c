/* Activations in fused programs share with their gradients what both are made
** of, at the bits of the ops one by one. */
#include "backend/cpu/strip/program.h"
#include "strip_support.h"

static tfd__strip_arg add_float(trial *t, tfd__kernel_id kernel,
                                tfd__strip_arg x, const tfd__strip_arg *y) {
  tfd__strip_op *o = &t->ops[t->ops_n];

  o->kernel = kernel;
  o->dtype = TFD_FLOAT32;
  o->args_n = y == NULL ? 1 : 2;
  o->args[0] = x;
  if (y != NULL) o->args[1] = *y;
  return (tfd__strip_arg){.from = TFD_STRIP_RESULT,
                          .index = (int16_t)(t->ops_n++)};
}

/* A number as a literal, or as an input that is known. */
static tfd__strip_arg given_number(trial *t, double value, bool literal) {
  tfd__strip_arg arg = {
      .from = TFD_STRIP_LITERAL, .dtype = TFD_FLOAT32, .value = value};
  int k = t->inputs_n;

  if (literal) return arg;
  allot(&t->in[k], TFD_FLOAT32, NULL, 0);
  tfd__store(t->in[k].memory, TFD_FLOAT32, value);
  t->inputs[k] = (tfd__strip_input){.dtype = TFD_FLOAT32,
                                    .scalar = true,
                                    .known = true,
                                    .value = (float)value};
  t->inputs_n++;
  return (tfd__strip_arg){.from = TFD_STRIP_INPUT, .index = (int16_t)k};
}

#define THEN(kernel, x) add_float(&t, TFD_KERNEL_##kernel, x, NULL)
#define WITH(kernel, x, y) add_float(&t, TFD_KERNEL_##kernel, x, &(y))

/* Functions of library kind in a program, by turns for each way of numbers. */
static int calls_of(tfd__kernel_id activation, bool literals) {
  tfd__strip_arg x = {.from = TFD_STRIP_INPUT};
  tfd__strip_arg one;
  tfd__strip_arg a;
  tfd__strip_arg b;
  tfd__strip_text text;
  tfd__strip *p = NULL;
  int refused = 0;
  int calls = 0;
  trial t;

  memset(&t, 0, sizeof t);
  t.rank = 1;
  t.dims[0] = SPECIAL * SPECIAL;
  t.inputs_n = 1;
  t.inputs[0].dtype = TFD_FLOAT32;
  allot(&t.in[0], TFD_FLOAT32, t.dims, 1);
  specials(&t, 0);
  (void)add_float(&t, activation, x, NULL);
  if (activation == TFD_KERNEL_gelu_tanh) {
    one = given_number(&t, 1.0, literals);
    a = given_number(&t, 0.044715, literals);
    b = THEN(square, x);
    a = WITH(multiply, a, b);
    a = WITH(add, one, a);
    a = WITH(multiply, a, x);
    b = given_number(&t, 0.79788456080286535588, literals);
    a = WITH(multiply, a, b);
    a = THEN(tanh, a);
    a = WITH(subtract, one, a);
  } else if (activation == TFD_KERNEL_gelu) {
    a = given_number(&t, 0.70710678118654752440, literals);
    a = WITH(multiply, a, x);
    a = THEN(erf, a);
  } else {
    a = THEN(sigmoid, x);
  }
  t.outputs_n = 2;
  t.outputs[0] = 0;
  t.outputs[1] = a.index;
  text = text_of(&t, 0);
  assert_int_equal(TFD_OK, tfd__strip_compile(&text, &p, &refused));
  calls = p->calls_n;
  tfd__strip_free(p);
  check(&t);
  return calls;
}

static void test_shared_with_gradients(void **s) {
  (void)s;
  for (int literals = 0; literals < 2; literals++) {
    assert_int_equal(1, calls_of(TFD_KERNEL_gelu_tanh, literals == 1));
    assert_int_equal(1, calls_of(TFD_KERNEL_gelu, literals == 1));
    assert_int_equal(1, calls_of(TFD_KERNEL_swish, literals == 1));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shared_with_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
