/* The optimizers' rules for n elements of type REAL, in place: x[0] is the
** variable, x[1..] its slots in the op's order, `grad` the gradient. The
** reals are the op's: a[0] is the share of the variable that weight decay
** takes off first (0: the variable stays bit by bit). R(name) names, SQRT,
** ABS and POW compute. Included once for each type. */

#define KEEP (REAL)(1 - a[0])
#define RULE(name)                                                            \
  static TFD_CLONES void R(name)(void *const *x, const void *grad, int64_t n, \
                                 const double *a)
/* Variable and gradient, what decay leaves, and the learning rate. */
#define BEGIN                                  \
  REAL *restrict w = (REAL *)x[0];             \
  const REAL *restrict g = (const REAL *)grad; \
  const REAL keep = KEEP;                      \
  const REAL lr = (REAL)a[1]

RULE(sgd) {
  BEGIN;

  for (int64_t i = 0; i < n; i++) w[i] = w[i] * keep - lr * g[i];
}

RULE(momentum) {
  BEGIN;
  REAL *restrict m = (REAL *)x[1];
  const REAL mu = (REAL)a[2];

  for (int64_t i = 0; i < n; i++) {
    m[i] = m[i] * mu - lr * g[i];
    w[i] = w[i] * keep + m[i];
  }
}

RULE(nesterov) {
  BEGIN;
  REAL *restrict m = (REAL *)x[1];
  const REAL mu = (REAL)a[2];

  for (int64_t i = 0; i < n; i++) {
    m[i] = m[i] * mu - lr * g[i];
    w[i] = w[i] * keep + (m[i] * mu - lr * g[i]);
  }
}

RULE(adam) {
  BEGIN;
  REAL *restrict m = (REAL *)x[1];
  REAL *restrict v = (REAL *)x[2];
  const REAL c1 = (REAL)(1 - a[2]);
  const REAL c2 = (REAL)(1 - a[3]);
  const REAL epsilon = (REAL)a[4];

  for (int64_t i = 0; i < n; i++) {
    m[i] += (g[i] - m[i]) * c1;
    v[i] += (g[i] * g[i] - v[i]) * c2;
    w[i] = w[i] * keep - m[i] * lr / (SQRT(v[i]) + epsilon);
  }
}

RULE(amsgrad) {
  BEGIN;
  REAL *restrict m = (REAL *)x[1];
  REAL *restrict v = (REAL *)x[2];
  REAL *restrict most = (REAL *)x[3];
  const REAL c1 = (REAL)(1 - a[2]);
  const REAL c2 = (REAL)(1 - a[3]);
  const REAL epsilon = (REAL)a[4];

  for (int64_t i = 0; i < n; i++) {
    m[i] += (g[i] - m[i]) * c1;
    v[i] += (g[i] * g[i] - v[i]) * c2;
    most[i] = most[i] >= v[i] ? most[i] : v[i];
    w[i] = w[i] * keep - m[i] * lr / (SQRT(most[i]) + epsilon);
  }
}

RULE(adamax) {
  BEGIN;
  REAL *restrict m = (REAL *)x[1];
  REAL *restrict v = (REAL *)x[2];
  const REAL c1 = (REAL)(1 - a[2]);
  const REAL beta_2 = (REAL)a[3];
  const REAL epsilon = (REAL)a[4];

  for (int64_t i = 0; i < n; i++) {
    REAL fading = v[i] * beta_2;
    REAL size = ABS(g[i]);

    m[i] += (g[i] - m[i]) * c1;
    v[i] = fading >= size ? fading : size;
    w[i] = w[i] * keep - m[i] * lr / (v[i] + epsilon);
  }
}

/* a[5], a[6]: weights of the gradient and of its mean; a[7]: of v. */
RULE(nadam) {
  BEGIN;
  REAL *restrict m = (REAL *)x[1];
  REAL *restrict v = (REAL *)x[2];
  const REAL c1 = (REAL)(1 - a[2]);
  const REAL c2 = (REAL)(1 - a[3]);
  const REAL epsilon = (REAL)a[4];
  const REAL of_g = (REAL)a[5];
  const REAL of_m = (REAL)a[6];
  const REAL of_v = (REAL)a[7];

  for (int64_t i = 0; i < n; i++) {
    m[i] += (g[i] - m[i]) * c1;
    v[i] += (g[i] * g[i] - v[i]) * c2;
    w[i] = w[i] * keep -
           (g[i] * of_g + m[i] * of_m) * lr / (SQRT(v[i] * of_v) + epsilon);
  }
}

RULE(rmsprop) {
  BEGIN;
  REAL *restrict s = (REAL *)x[1];
  const REAL c = (REAL)(1 - a[2]);
  const REAL epsilon = (REAL)a[3];

  for (int64_t i = 0; i < n; i++) {
    s[i] += (g[i] * g[i] - s[i]) * c;
    w[i] = w[i] * keep - g[i] * lr / SQRT(s[i] + epsilon);
  }
}

/* The mean of squares less the square of the mean cannot be negative, but
** rounding can make it so when gradients hardly change. */
RULE(rmsprop_centered) {
  BEGIN;
  REAL *restrict s = (REAL *)x[1];
  REAL *restrict mean = (REAL *)x[2];
  const REAL c = (REAL)(1 - a[2]);
  const REAL epsilon = (REAL)a[3];

  for (int64_t i = 0; i < n; i++) {
    REAL spread = 0;

    s[i] += (g[i] * g[i] - s[i]) * c;
    mean[i] += (g[i] - mean[i]) * c;
    spread = s[i] - mean[i] * mean[i];
    spread = spread < 0 ? 0 : spread;
    w[i] = w[i] * keep - g[i] * lr / SQRT(spread + epsilon);
  }
}

RULE(rmsprop_momentum) {
  BEGIN;
  REAL *restrict s = (REAL *)x[1];
  REAL *restrict m = (REAL *)x[2];
  const REAL c = (REAL)(1 - a[2]);
  const REAL epsilon = (REAL)a[3];
  const REAL mu = (REAL)a[4];

  for (int64_t i = 0; i < n; i++) {
    s[i] += (g[i] * g[i] - s[i]) * c;
    m[i] = m[i] * mu + g[i] * lr / SQRT(s[i] + epsilon);
    w[i] = w[i] * keep - m[i];
  }
}

RULE(rmsprop_both) {
  BEGIN;
  REAL *restrict s = (REAL *)x[1];
  REAL *restrict m = (REAL *)x[2];
  REAL *restrict mean = (REAL *)x[3];
  const REAL c = (REAL)(1 - a[2]);
  const REAL epsilon = (REAL)a[3];
  const REAL mu = (REAL)a[4];

  for (int64_t i = 0; i < n; i++) {
    REAL spread = 0;

    s[i] += (g[i] * g[i] - s[i]) * c;
    mean[i] += (g[i] - mean[i]) * c;
    spread = s[i] - mean[i] * mean[i];
    spread = spread < 0 ? 0 : spread;
    m[i] = m[i] * mu + g[i] * lr / SQRT(spread + epsilon);
    w[i] = w[i] * keep - m[i];
  }
}

RULE(adagrad) {
  BEGIN;
  REAL *restrict s = (REAL *)x[1];
  const REAL epsilon = (REAL)a[2];

  for (int64_t i = 0; i < n; i++) {
    s[i] += g[i] * g[i];
    w[i] = w[i] * keep - g[i] * lr / SQRT(s[i] + epsilon);
  }
}

RULE(adadelta) {
  BEGIN;
  REAL *restrict s = (REAL *)x[1];
  REAL *restrict u = (REAL *)x[2];
  const REAL rho = (REAL)a[2];
  const REAL c = (REAL)(1 - a[2]);
  const REAL epsilon = (REAL)a[3];

  for (int64_t i = 0; i < n; i++) {
    REAL move = 0;

    s[i] = s[i] * rho + g[i] * g[i] * c;
    move = SQRT(u[i] + epsilon) / SQRT(s[i] + epsilon) * g[i];
    u[i] = u[i] * rho + move * move * c;
    w[i] = w[i] * keep - move * lr;
  }
}

/* a[2]: -learning_rate_power; a[3..5]: l1, l2 and the shrinkage. */
#define FTRL(power_of)                                               \
  for (int64_t i = 0; i < n; i++) {                                  \
    REAL was = w[i] * keep;                                          \
    REAL all = s[i] + g[i] * g[i];                                   \
    REAL top = power_of(all);                                        \
    REAL pull = 0;                                                   \
    REAL rest = 0;                                                   \
                                                                     \
    z[i] += g[i] + shrink * was - (top - power_of(s[i])) / lr * was; \
    s[i] = all;                                                      \
    rest = z[i] > l1 ? l1 : z[i];                                    \
    rest = rest < -l1 ? -l1 : rest;                                  \
    pull = top / lr + l2;                                            \
    w[i] = (rest - z[i]) / pull;                                     \
  }
#define GENERAL_POWER(y) POW(y, power)

RULE(ftrl) {
  BEGIN;
  REAL *restrict s = (REAL *)x[1];
  REAL *restrict z = (REAL *)x[2];
  const REAL power = (REAL)a[2];
  const REAL l1 = (REAL)a[3];
  const REAL l2 = (REAL)(2 * a[4]);
  const REAL shrink = (REAL)(2 * a[5]);

  if (a[2] == 0.5) {
    FTRL(SQRT)
  } else {
    FTRL(GENERAL_POWER)
  }
}

/* x[0] is a running mean, "grad" the value that joins it; a[1] its weight. */
RULE(average) {
  REAL *restrict w = (REAL *)x[0];
  const REAL *restrict g = (const REAL *)grad;
  const REAL keep = KEEP;
  const REAL old = (REAL)a[1];
  const REAL c = (REAL)(1 - a[1]);

  for (int64_t i = 0; i < n; i++) w[i] = w[i] * keep * old + g[i] * c;
}

#undef KEEP
#undef RULE
#undef BEGIN
#undef FTRL
#undef GENERAL_POWER
