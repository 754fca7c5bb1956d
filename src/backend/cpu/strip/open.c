/* Activations as the ops that they are made of, so that a program computes what
** they share with their gradients once: tanh of gelu_tanh, erf of gelu, sigmoid
** of swish. The eager kernels have the bits of these ops (activations.c). */
#include "backend/cpu/strip/program.h"

#include <string.h>

#define SQRT_HALF 0.70710678118654752440084436210485
#define SQRT_2_OVER_PI 0.79788456080286535587989211986876

enum { MOST_PARTS = 9 }; /* of one activation */

static tfd__strip_arg number(double value) {
  return (tfd__strip_arg){
      .from = TFD_STRIP_LITERAL, .dtype = TFD_FLOAT32, .value = value};
}

/* --- the same op twice ---------------------------------------------------- */

/* Is it a number that is known, which? */
static bool known(const tfd__strip_text *t, const tfd__strip_arg *arg,
                  uint64_t *bits_p) {
  const tfd__strip_input *in = NULL;

  *bits_p = 0;
  if (arg->from == TFD_STRIP_LITERAL) {
    tfd__store(bits_p, arg->dtype, arg->value);
    return true;
  }
  if (arg->from != TFD_STRIP_INPUT) return false;
  in = &t->inputs[arg->index];
  if (in->known) tfd__store(bits_p, in->dtype, in->value);
  return in->known;
}

static bool same_arg(const tfd__strip_text *t, const tfd__strip_arg *x,
                     const tfd__strip_arg *y) {
  uint64_t a = 0;
  uint64_t b = 0;

  if (known(t, x, &a) && known(t, y, &b)) {
    return a == b && tfd__strip_arg_dtype(t, x) == tfd__strip_arg_dtype(t, y);
  }
  return x->from == y->from && x->from != TFD_STRIP_LITERAL &&
         x->index == y->index;
}

static bool same_op(const tfd__strip_text *t, const tfd__strip_op *x,
                    const tfd__strip_op *y) {
  bool turns = x->kernel == TFD_KERNEL_add || x->kernel == TFD_KERNEL_multiply;
  int i;

  if (x->kernel != y->kernel || x->dtype != y->dtype ||
      x->args_n != y->args_n || x->ints_n + x->reals_n > 0) {
    return false;
  }
  for (i = 0; i < x->args_n; i++) {
    if (!same_arg(t, &x->args[i], &y->args[i])) break;
  }
  if (i == x->args_n) return true;
  return turns && same_arg(t, &x->args[0], &y->args[1]) &&
         same_arg(t, &x->args[1], &y->args[0]);
}

/* --- ops ------------------------------------------------------------------ */

/* An op of those that are there by now, or one more; each leaves once. */
static tfd__strip_arg add(tfd__strip_opened *o, const tfd__strip_op *op,
                          bool leaves) {
  int i;

  for (i = 0; i < o->text.ops_n; i++) {
    if (same_op(&o->text, &o->ops[i], op) && !(leaves && o->leaves[i])) break;
  }
  if (i == o->text.ops_n) {
    o->was[i] = o->op;
    o->leaves[i] = false;
    o->ops[o->text.ops_n++] = *op;
  }
  if (leaves) o->leaves[i] = true;
  return (tfd__strip_arg){.from = TFD_STRIP_RESULT, .index = (int16_t)i};
}

static tfd__strip_arg part(tfd__strip_opened *o, tfd__kernel_id kernel,
                           tfd__strip_arg x) {
  return add(
      o,
      &(tfd__strip_op){
          .kernel = kernel, .dtype = TFD_FLOAT32, .args_n = 1, .args = {x}},
      false);
}

static tfd__strip_arg pair(tfd__strip_opened *o, tfd__kernel_id kernel,
                           tfd__strip_arg x, tfd__strip_arg y, bool leaves) {
  return add(
      o,
      &(tfd__strip_op){
          .kernel = kernel, .dtype = TFD_FLOAT32, .args_n = 2, .args = {x, y}},
      leaves);
}

#define SUM(x, y) pair(o, TFD_KERNEL_add, x, y, false)
#define PRODUCT(x, y) pair(o, TFD_KERNEL_multiply, x, y, false)

static tfd__strip_arg open_gelu(tfd__strip_opened *o, tfd__strip_arg x,
                                bool leaves) {
  tfd__strip_arg erf = part(o, TFD_KERNEL_erf, PRODUCT(x, number(SQRT_HALF)));

  return pair(o, TFD_KERNEL_multiply, x,
              PRODUCT(SUM(erf, number(1)), number(0.5)), leaves);
}

static tfd__strip_arg open_gelu_tanh(tfd__strip_opened *o, tfd__strip_arg x,
                                     bool leaves) {
  tfd__strip_arg square = part(o, TFD_KERNEL_square, x);
  tfd__strip_arg poly = SUM(PRODUCT(square, number(0.044715)), number(1));
  tfd__strip_arg tanh = part(o, TFD_KERNEL_tanh,
                             PRODUCT(PRODUCT(x, poly), number(SQRT_2_OVER_PI)));

  return pair(o, TFD_KERNEL_multiply, PRODUCT(x, number(0.5)),
              SUM(tanh, number(1)), leaves);
}

static tfd__strip_arg open_swish(tfd__strip_opened *o, tfd__strip_arg x,
                                 bool leaves) {
  return pair(o, TFD_KERNEL_multiply, x, part(o, TFD_KERNEL_sigmoid, x),
              leaves);
}

/* --- all ------------------------------------------------------------------ */

typedef tfd__strip_arg opener(tfd__strip_opened *o, tfd__strip_arg x,
                              bool leaves);

/* How op `op` is opened; NULL = it stays one. `left`: ops from it on. */
static opener *opener_of(const tfd__strip_opened *o, const tfd__strip_op *op,
                         int left) {
  if (op->dtype != TFD_FLOAT32 ||
      o->text.ops_n + MOST_PARTS + left - 1 > TFD_STRIP_OPS) {
    return NULL;
  }
  switch (op->kernel) {
  case TFD_KERNEL_gelu:
    return open_gelu;
  case TFD_KERNEL_gelu_tanh:
    return open_gelu_tanh;
  case TFD_KERNEL_swish:
    return open_swish;
  default:
    return NULL;
  }
}

static bool is_output(const tfd__strip_text *t, int op) {
  int i;

  for (i = 0; i < t->outputs_n && t->outputs[i] != op; i++) continue;
  return i < t->outputs_n;
}

void tfd__strip_open(const tfd__strip_text *text, tfd__strip_opened *o) {
  int16_t now[TFD_STRIP_OPS]; /* op of the text -> op here */
  int i;
  int k;

  o->text = *text;
  o->text.ops = o->ops;
  o->text.ops_n = 0;
  o->text.outputs = o->outputs;
  for (i = 0; i < text->ops_n; i++) {
    tfd__strip_op op = text->ops[i];
    opener *open = opener_of(o, &op, text->ops_n - i);
    bool leaves = is_output(text, i);

    o->op = (int16_t)i;
    for (k = 0; k < op.args_n; k++) {
      if (op.args[k].from == TFD_STRIP_RESULT)
        op.args[k].index = now[op.args[k].index];
    }
    now[i] = (open != NULL ? open(o, op.args[0], leaves) : add(o, &op, leaves))
                 .index;
  }
  for (i = 0; i < text->outputs_n; i++) {
    o->outputs[i] = now[text->outputs[i]];
  }
}
