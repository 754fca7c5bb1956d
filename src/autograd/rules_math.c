/* Gradient rules of elementwise ops. In comments dy is the gradient that
** arrives, y the op's output. Where a function is not differentiable the
** choice is TensorFlow's. */
#include "autograd/autograd.h"

#define TWO_OVER_ROOT_PI 1.12837916709551257390
#define ROOT_TWO_PI 2.50662827463100050242

static tfd_tensor *one(tfd__grad *g) {
  return tfd__e_scalar(g, g->dy[0], 1.0);
}

/* --- one input ------------------------------------------------------------ */

/* dx = expr; x, y and dy are the op's tensors. */
#define UNARY_RULE(name, expr)         \
  int tfd__grad_##name(tfd__grad *g) { \
    tfd_tensor *x = g->in[0];          \
    tfd_tensor *y = g->out[0];         \
    tfd_tensor *dy = g->dy[0];         \
    (void)x;                           \
    (void)dy;                          \
    (void)y;                           \
    tfd__grad_set(g, 0, expr);         \
    return g->status;                  \
  }
#define MUL(a, b) E2(multiply, a, b)
#define DIV(a, b) E2(divide, a, b)
#define ADD(a, b) E2(add, a, b)
#define SUB(a, b) E2(subtract, a, b)
#define NEG(a) E1(negative, a)
#define SQUARE(a) E1(square, a)
#define SCALE(a, v) tfd__e_scale(g, a, v)

UNARY_RULE(abs, MUL(dy, E1(sign, x)))
UNARY_RULE(negative, NEG(dy))
UNARY_RULE(sign, tfd__e_zeros_like(g, x))
UNARY_RULE(reciprocal, NEG(MUL(dy, SQUARE(y))))
UNARY_RULE(square, MUL(dy, SCALE(x, 2.0)))
UNARY_RULE(sqrt, DIV(SCALE(dy, 0.5), y))
UNARY_RULE(rsqrt, MUL(SCALE(dy, -0.5), MUL(y, SQUARE(y))))
UNARY_RULE(exp, MUL(dy, y))
UNARY_RULE(expm1, MUL(dy, ADD(y, one(g))))
UNARY_RULE(log, DIV(dy, x))
UNARY_RULE(log1p, DIV(dy, ADD(x, one(g))))
UNARY_RULE(sin, MUL(dy, E1(cos, x)))
UNARY_RULE(cos, NEG(MUL(dy, E1(sin, x))))
UNARY_RULE(tan, MUL(dy, ADD(SQUARE(y), one(g))))
UNARY_RULE(asin, MUL(dy, E1(rsqrt, SUB(one(g), SQUARE(x)))))
UNARY_RULE(acos, NEG(MUL(dy, E1(rsqrt, SUB(one(g), SQUARE(x))))))
UNARY_RULE(atan, DIV(dy, ADD(SQUARE(x), one(g))))
UNARY_RULE(sinh, MUL(dy, E1(cosh, x)))
UNARY_RULE(cosh, MUL(dy, E1(sinh, x)))
UNARY_RULE(tanh, E2(tanh_grad, y, dy))
UNARY_RULE(asinh, DIV(dy, E1(cosh, y)))
UNARY_RULE(acosh, DIV(dy, E1(sinh, y)))
UNARY_RULE(atanh, DIV(dy, SUB(one(g), SQUARE(x))))
UNARY_RULE(erf, MUL(SCALE(dy, TWO_OVER_ROOT_PI), E1(exp, NEG(SQUARE(x)))))
UNARY_RULE(erfc, MUL(SCALE(dy, -TWO_OVER_ROOT_PI), E1(exp, NEG(SQUARE(x)))))
UNARY_RULE(erfinv, MUL(SCALE(dy, 1.0 / TWO_OVER_ROOT_PI), E1(exp, SQUARE(y))))
UNARY_RULE(ndtri, MUL(SCALE(dy, ROOT_TWO_PI), E1(exp, SCALE(SQUARE(y), 0.5))))
UNARY_RULE(lgamma, MUL(dy, E1(digamma, x)))
UNARY_RULE(digamma, MUL(dy, E2(polygamma, one(g), x)))
UNARY_RULE(sigmoid, E2(sigmoid_grad, y, dy))
UNARY_RULE(log_sigmoid, MUL(dy, E1(sigmoid, NEG(x))))
UNARY_RULE(softplus, MUL(dy, E1(sigmoid, x)))

/* No gradient flows between integers and floats. */
int tfd__grad_cast(tfd__grad *g) {
  int from = g->in[0]->view.dtype;

  if (tfd__is_float(from) && tfd__is_float(g->dy[0]->view.dtype)) {
    tfd__grad_set(g, 0, tfd__e_cast(g, g->dy[0], from));
  }
  return g->status;
}

/* --- two inputs ----------------------------------------------------------- */

/* dx = ex, dy = ey, each summed over the axes it was broadcast along. The
** inputs are a and b, the output is out, its gradient d. */
#define BINARY_RULE(name, ex, ey)                                       \
  int tfd__grad_##name(tfd__grad *g) {                                  \
    tfd_tensor *a = g->in[0];                                           \
    tfd_tensor *b = g->in[1];                                           \
    tfd_tensor *out = g->out[0];                                        \
    tfd_tensor *d = g->dy[0];                                           \
    (void)out;                                                          \
    if (g->needs[0]) tfd__grad_set(g, 0, tfd__e_unbroadcast(g, ex, a)); \
    if (g->needs[1]) tfd__grad_set(g, 1, tfd__e_unbroadcast(g, ey, b)); \
    return g->status;                                                   \
  }

/* 1 where t is not 0, else 0, in t's dtype. */
static tfd_tensor *not_zero(tfd__grad *g, tfd_tensor *t) {
  tfd_tensor *mask = E2(not_equal, t, tfd__e_scalar(g, t, 0.0));

  return t == NULL ? NULL : tfd__e_cast(g, mask, t->view.dtype);
}

/* d where the mask holds, else 0, and the other way round. */
static tfd_tensor *where_true(tfd__grad *g, tfd_tensor *mask, tfd_tensor *d) {
  return E3(select, mask, d, tfd__e_scalar(g, d, 0.0));
}
static tfd_tensor *where_false(tfd__grad *g, tfd_tensor *mask, tfd_tensor *d) {
  return E3(select, mask, tfd__e_scalar(g, d, 0.0), d);
}

/* log(t) where t > 0, else 0; gradients of it are finite too. */
static tfd_tensor *log_or_zero(tfd__grad *g, tfd_tensor *t) {
  tfd_tensor *zero = tfd__e_scalar(g, t, 0.0);
  tfd_tensor *mask = E2(greater, t, zero);
  tfd_tensor *safe = E3(select, mask, t, one(g));

  return E3(select, mask, E1(log, safe), zero);
}

/* a^(b-1) b, which is 0 at b = 0 whatever a is. */
static tfd_tensor *pow_slope(tfd__grad *g, tfd_tensor *a, tfd_tensor *b) {
  return E2(multiply_no_nan, E2(pow, a, SUB(b, one(g))), b);
}

BINARY_RULE(add, d, d)
BINARY_RULE(subtract, d, NEG(d))
BINARY_RULE(multiply, MUL(d, b), MUL(d, a))
BINARY_RULE(multiply_no_nan, E2(multiply_no_nan, d, b),
            E2(multiply_no_nan, a, d))
BINARY_RULE(divide, DIV(d, b), NEG(DIV(MUL(d, out), b)))
BINARY_RULE(divide_no_nan, E2(divide_no_nan, d, b),
            NEG(E2(divide_no_nan, MUL(d, out), b)))
BINARY_RULE(floormod, d, NEG(MUL(d, E2(floordiv, a, b))))
BINARY_RULE(truncatemod, d, NEG(MUL(d, E2(truncatediv, a, b))))
BINARY_RULE(pow, MUL(d, pow_slope(g, a, b)),
            MUL(d, MUL(out, log_or_zero(g, a))))
BINARY_RULE(maximum, where_true(g, E2(greater_equal, a, b), d),
            where_false(g, E2(greater_equal, a, b), d))
BINARY_RULE(minimum, where_true(g, E2(less_equal, a, b), d),
            where_false(g, E2(less_equal, a, b), d))
BINARY_RULE(atan2, MUL(b, DIV(d, ADD(SQUARE(a), SQUARE(b)))),
            NEG(MUL(a, DIV(d, ADD(SQUARE(a), SQUARE(b))))))
BINARY_RULE(squared_difference, MUL(SCALE(d, 2.0), SUB(a, b)),
            MUL(SCALE(d, -2.0), SUB(a, b)))
BINARY_RULE(xdivy, MUL(d, E2(xdivy, not_zero(g, a), b)),
            MUL(d, E2(xdivy, NEG(a), SQUARE(b))))
BINARY_RULE(xlogy, MUL(d, E2(xlogy, not_zero(g, a), b)),
            MUL(d, E2(xdivy, a, b)))
BINARY_RULE(xlog1py, MUL(d, E2(xlog1py, not_zero(g, a), b)),
            MUL(d, E2(xdivy, a, ADD(b, one(g)))))

/* tanh_grad(a, b) = b (1 - a^2), sigmoid_grad(a, b) = b a (1 - a). */
BINARY_RULE(tanh_grad, SCALE(MUL(d, MUL(a, b)), -2.0), E2(tanh_grad, a, d))
BINARY_RULE(sigmoid_grad, MUL(MUL(d, b), SUB(one(g), SCALE(a, 2.0))),
            E2(sigmoid_grad, a, d))

/* Second arguments only: the first ones select a function. */
static int no_rule(const tfd__grad *g, const char *argument) {
  return tfd__fail(TFD_NOT_IMPLEMENTED,
                   "%s: there is no gradient with respect to %s", g->op->name,
                   argument);
}

int tfd__grad_polygamma(tfd__grad *g) {
  tfd_tensor *next = ADD(g->in[0], one(g));
  tfd_tensor *dx = MUL(g->dy[0], E2(polygamma, next, g->in[1]));

  if (g->needs[0]) return no_rule(g, "a");
  tfd__grad_set(g, 1, tfd__e_unbroadcast(g, dx, g->in[1]));
  return g->status;
}

int tfd__grad_zeta(tfd__grad *g) {
  tfd_tensor *x = g->in[0];
  tfd_tensor *slope = NEG(MUL(x, E2(zeta, ADD(x, one(g)), g->in[1])));

  if (g->needs[0]) return no_rule(g, "x");
  tfd__grad_set(g, 1, tfd__e_unbroadcast(g, MUL(g->dy[0], slope), g->in[1]));
  return g->status;
}

/* The gamma density x^(a-1) exp(-x) / gamma(a). */
static int incomplete_gamma(tfd__grad *g, double sign) {
  tfd_tensor *a = g->in[0];
  tfd_tensor *x = g->in[1];
  tfd_tensor *power = E2(xlogy, SUB(a, one(g)), x);
  tfd_tensor *density = E1(exp, SUB(SUB(power, x), E1(lgamma, a)));
  tfd_tensor *dx = MUL(SCALE(g->dy[0], sign), density);

  if (g->needs[0]) return no_rule(g, "a");
  tfd__grad_set(g, 1, tfd__e_unbroadcast(g, dx, x));
  return g->status;
}
int tfd__grad_igamma(tfd__grad *g) {
  return incomplete_gamma(g, 1.0);
}
int tfd__grad_igammac(tfd__grad *g) {
  return incomplete_gamma(g, -1.0);
}

/* --- more inputs ---------------------------------------------------------- */

int tfd__grad_select(tfd__grad *g) {
  tfd_tensor *mask = g->in[0];
  tfd_tensor *d = g->dy[0];

  if (g->needs[1]) {
    tfd__grad_set(g, 1,
                  tfd__e_unbroadcast(g, where_true(g, mask, d), g->in[1]));
  }
  if (g->needs[2]) {
    tfd__grad_set(g, 2,
                  tfd__e_unbroadcast(g, where_false(g, mask, d), g->in[2]));
  }
  return g->status;
}

int tfd__grad_clip_by_value(tfd__grad *g) {
  tfd_tensor *t = g->in[0];
  tfd_tensor *d = g->dy[0];
  tfd_tensor *low = E2(less, t, g->in[1]);
  tfd_tensor *high = E2(greater, t, g->in[2]);

  if (g->needs[0]) {
    tfd_tensor *outside = E2(logical_or, low, high);

    tfd__grad_set(g, 0, tfd__e_unbroadcast(g, where_false(g, outside, d), t));
  }
  if (g->needs[1]) {
    tfd__grad_set(g, 1, tfd__e_unbroadcast(g, where_true(g, low, d), g->in[1]));
  }
  if (g->needs[2]) {
    tfd__grad_set(g, 2,
                  tfd__e_unbroadcast(g, where_true(g, high, d), g->in[2]));
  }
  return g->status;
}

int tfd__grad_add_n(tfd__grad *g) {
  for (int i = 0; i < g->in_n; i++) tfd__grad_set(g, i, g->dy[0]);
  return g->status;
}
