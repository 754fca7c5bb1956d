/* Exact algebra: a node that gives the bits of what it takes is left out, the
** values are those of its operand: x * 1, x / 1, x - 0 and x + -0 (x + 0 makes
** 0 of -0) with a constant of the trace; -(-x); a cast to a type that holds all
** values and back. A NaN stays the one it is; arithmetic makes a quiet one of
** those that signal, and on a GPU the same one of all.
**
** The operand must not be a variable's memory, which may be written before the
** value is used, and lie dense, as what a kernel makes does. Transposes,
** reshapes and what turns an operand of a product are views as it is: they cost
** nothing, one upon the other, too. */
#include <math.h>

#include "graph/graph.h"

typedef struct algebra {
  const tfd_graph *g;
  tfd__body *b;
  int *maker; /* value -> node, -1 = none */
  int *same;  /* value -> value that stands for it */
} algebra;

/* Binary digits of the whole numbers that a type holds, or of its fraction. */
static int digits_of(int dtype) {
  switch (dtype) {
  case TFD_BOOL:
    return 1;
  case TFD_INT8:
    return 7;
  case TFD_UINT8:
  case TFD_BFLOAT16:
    return 8;
  case TFD_FLOAT16:
    return 11;
  case TFD_INT16:
    return 15;
  case TFD_FLOAT32:
    return 24;
  case TFD_INT32:
    return 31;
  case TFD_FLOAT64:
    return 53;
  case TFD_INT64:
    return 63;
  default:
    return 0;
  }
}

/* Does a cast to `to` keep every value? */
static bool holds(int to, int from) {
  int digits = digits_of(from);

  if (digits == 0 || to == TFD_BOOL) return false;
  if (tfd__is_float(from)) {
    return to == TFD_FLOAT64 ||
           (to == TFD_FLOAT32 && from != TFD_FLOAT32 && from != TFD_FLOAT64);
  }
  return digits_of(to) >= digits && (to != TFD_UINT8 || from == TFD_BOOL);
}

/* Is value v one constant that leaves what a kernel takes beside it as it is?
 */
static int is_neutral(const algebra *a, int kernel, int v, bool *is_p) {
  const tfd__graph_value *value = &a->b->values[v];
  bool whole = !tfd__is_float(value->view.dtype);
  double x = 0.0;

  *is_p = false;
  if (value->origin != TFD_FROM_CONSTANT || value->view.numel != 1) {
    return TFD_OK;
  }
  TFD_TRY(tfd_tensor_item(a->g->constants[value->of], 0, &x));
  if (kernel == TFD_KERNEL_multiply || kernel == TFD_KERNEL_divide) {
    *is_p = x == 1;
  } else {
    *is_p =
        x == 0 && (whole || (signbit(x) != 0) == (kernel == TFD_KERNEL_add));
  }
  return TFD_OK;
}

/* May value v stand for what node n gives? */
static bool may_stand(const algebra *a, const tfd__node *n, int v) {
  const tfd__view *x = &a->b->values[v].view;
  const tfd__view *out = &a->b->values[n->out].view;

  return x->dtype == out->dtype && x->dense && tfd__same_shape(x, out) &&
         tfd__body_keeps(a->b, a->maker, v);
}

static int with_constant(const algebra *a, const tfd__node *n, bool turns,
                         int *v_p) {
  const int *in = a->b->operands + n->in;
  bool is = false;
  int i;

  for (i = turns ? 0 : 1; i < 2; i++) {
    if (!may_stand(a, n, in[1 - i])) continue;
    TFD_TRY(is_neutral(a, n->op->kernel, in[i], &is));
    if (!is) continue;
    *v_p = in[1 - i];
    return TFD_OK;
  }
  return TFD_OK;
}

/* What was before two nodes of one kernel that undo each other. */
static void undone(const algebra *a, const tfd__node *n, int *v_p) {
  const tfd__body *b = a->b;
  int between = b->operands[n->in];
  const tfd__node *first = NULL;
  int v = -1;

  if (a->maker[between] < 0) return;
  first = &b->nodes[a->maker[between]];
  if (first->op == NULL || first->op != n->op || first->alias) return;
  v = b->operands[first->in];
  if (n->op->kernel == TFD_KERNEL_cast &&
      !holds(b->values[between].view.dtype, b->values[v].view.dtype)) {
    return;
  }
  if (may_stand(a, n, v)) *v_p = v;
}

static int visit(algebra *a, int k) {
  tfd__body *b = a->b;
  tfd__node *n = &b->nodes[k];
  int v = -1;
  int i;

  for (i = 0; i < n->in_n; i++) {
    int *in = &b->operands[n->in + i];

    if (*in >= 0) *in = a->same[*in];
  }
  for (i = 0; i < n->out_n; i++) a->maker[n->out + i] = k;
  if (n->op == NULL || n->alias || n->targets_n > 0) return TFD_OK;
  switch (n->op->kernel) {
  case TFD_KERNEL_multiply:
  case TFD_KERNEL_add:
    TFD_TRY(with_constant(a, n, true, &v));
    break;
  case TFD_KERNEL_divide:
  case TFD_KERNEL_subtract:
    TFD_TRY(with_constant(a, n, false, &v));
    break;
  case TFD_KERNEL_negative:
  case TFD_KERNEL_cast:
    undone(a, n, &v);
    break;
  default:
    break;
  }
  if (v < 0) return TFD_OK;
  a->same[n->out] = v;
  n->dead = true;
  return TFD_OK;
}

int tfd__pass_algebra(const tfd_graph *g, tfd__body *b) {
  size_t n = 2 * (size_t)b->values_n + 1;
  algebra a = {.g = g, .b = b, .maker = tfd__alloc(n * sizeof(int))};
  int rc = TFD_OK;
  int i;

  if (a.maker == NULL) return tfd__no_memory(n * sizeof(int), "graph");
  a.same = a.maker + b->values_n;
  for (i = 0; i < b->values_n; i++) {
    a.maker[i] = -1;
    a.same[i] = i;
  }
  for (i = 0; rc == TFD_OK && i < b->nodes_n; i++) {
    if (!b->nodes[i].dead) rc = visit(&a, i);
  }
  for (i = 0; i < b->results_n; i++) b->results[i] = a.same[b->results[i]];
  tfd__free(a.maker);
  TFD_TRY(rc);
  return tfd__pass_dead(b);
}
