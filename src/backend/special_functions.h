/* Scalar special functions in float64, for every back end. Included once, with
** SPECIAL(what stands before a function) and SPECIAL_LGAMMA(x), log |gamma(x)|.
** What they compute: backend/cpu/elementwise/special.h. */

#include <math.h>

SPECIAL double special_ratio(const double *num, const double *den, int n,
                             double r) {
  double a = num[n - 1];
  double b = den[n - 1];

  for (int i = n - 2; i >= 0; i--) {
    a = a * r + num[i];
    b = b * r + den[i];
  }
  return a / b;
}

/* q = p - 1/2, |q| <= 0.425. */
SPECIAL double special_ppnd_center(double q) {
  static const double a[8] = {
      3.3871328727963666080e0,  1.3314166789178437745e+2,
      1.9715909503065514427e+3, 1.3731693765509461125e+4,
      4.5921953931549871457e+4, 6.7265770927008700853e+4,
      3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static const double b[8] = {1.0,
                              4.2313330701600911252e+1,
                              6.8718700749205790830e+2,
                              5.3941960214247511077e+3,
                              2.1213794301586595867e+4,
                              3.9307895800092710610e+4,
                              2.8729085735721942674e+4,
                              5.2264952788528545610e+3};

  return q * special_ratio(a, b, 8, 0.180625 - q * q);
}

/* The positive quantile whose upper tail is p <= 0.075. */
SPECIAL double special_ppnd_tail(double p) {
  static const double c[8] = {
      1.42343711074968357734e0,  4.63033784615654529590e0,
      5.76949722146069140550e0,  3.64784832476320460504e0,
      1.27045825245236838258e0,  2.41780725177450611770e-1,
      2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static const double d[8] = {1.0,
                              2.05319162663775882187e0,
                              1.67638483018380384940e0,
                              6.89767334985100004550e-1,
                              1.48103976427480074590e-1,
                              1.51986665636164571966e-2,
                              5.47593808499534494600e-4,
                              1.05075007164441684324e-9};
  static const double e[8] = {
      6.65790464350110377720e0,  5.46378491116411436990e0,
      1.78482653991729133580e0,  2.96560571828504891230e-1,
      2.65321895265761230930e-2, 1.24266094738807843860e-3,
      2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static const double f[8] = {1.0,
                              5.99832206555887937690e-1,
                              1.36929880922735805310e-1,
                              1.48753612908506148525e-2,
                              7.86869131145613259100e-4,
                              1.84631831751005468180e-5,
                              1.42151175831644588870e-7,
                              2.04426310338993978564e-15};
  double r = sqrt(-log(p));

  return r <= 5.0 ? special_ratio(c, d, 8, r - 1.6)
                  : special_ratio(e, f, 8, r - 5.0);
}

SPECIAL double special_ndtri(double p) {
  double q = p - 0.5;

  if (!(p >= 0.0 && p <= 1.0)) return NAN;
  if (p == 0.0) return -INFINITY;
  if (p == 1.0) return INFINITY;
  if (fabs(q) <= 0.425) return special_ppnd_center(q);
  return q < 0.0 ? -special_ppnd_tail(p) : special_ppnd_tail(1.0 - p);
}

SPECIAL double special_erfinv(double x) {
  const double root_half = 0.70710678118654752440;
  double a = fabs(x);

  if (!(a <= 1.0)) return NAN;
  if (a == 1.0) return copysign(INFINITY, x);
  if (a <= 0.85) return root_half * special_ppnd_center(0.5 * x);
  return copysign(root_half * special_ppnd_tail(0.5 * (1.0 - a)), x);
}

SPECIAL double special_digamma(double x) {
  const double pi = 3.14159265358979323846;
  double reflected = 0.0;
  double sum = 0.0;
  double z = 0.0;

  if (x <= 0.0) {
    if (floor(x) == x) return NAN;
    reflected = pi / tan(pi * (x - floor(x)));
    x = 1.0 - x;
  }
  if (!(x < INFINITY)) return x;
  for (; x < 12.0; x += 1.0) sum += 1.0 / x;
  z = 1.0 / (x * x);
  /* Asymptotic series with Bernoulli numbers B2 .. B14. */
  z *= 1.0 / 12 -
       z * (1.0 / 120 -
            z * (1.0 / 252 -
                 z * (1.0 / 240 -
                      z * (1.0 / 132 - z * (691.0 / 32760 - z / 12)))));
  return log(x) - 0.5 / x - z - sum - reflected;
}

/* Sum of the Euler-Maclaurin tail of zeta at a = q + n. */
SPECIAL double special_zeta_tail(double x, double a) {
  /* (2k)! / B2k */
  static const double coefficient[12] = {12.0,
                                         -720.0,
                                         30240.0,
                                         -1209600.0,
                                         47900160.0,
                                         -1.8924375803183791606e9,
                                         7.47242496e10,
                                         -2.950130727918164224e12,
                                         1.1646782814350067249e14,
                                         -4.5979787224074726105e15,
                                         1.8152105401943546773e17,
                                         -7.1661652561756670113e18};
  double power = pow(a, -x);
  double sum = power * a / (x - 1.0) - 0.5 * power;
  double factor = 1.0;
  double k = 0.0;

  for (int i = 0; i < 12; i++) {
    double term = 0.0;

    factor *= x + k;
    power /= a;
    term = factor * power / coefficient[i];
    sum += term;
    if (fabs(term) < fabs(sum) * 1e-17) break;
    k += 1.0;
    factor *= x + k;
    power /= a;
    k += 1.0;
  }
  return sum;
}

SPECIAL double special_zeta(double x, double q) {
  double sum = 0.0;
  double a = q;

  if (x != x || q != q || x < 1.0) return NAN;
  if (x == 1.0) return INFINITY;
  /* A pole, of one sign on both sides where x is even. */
  if (q <= 0.0 && floor(q) == q) return fmod(x, 2.0) == 0.0 ? INFINITY : NAN;
  if (q <= 0.0 && floor(x) != x) return NAN;
  if (q > 1e8) return (1.0 / (x - 1.0) + 0.5 / q) * pow(q, 1.0 - x);
  for (int i = 0; i < 9 || a <= 9.0; i++) {
    sum += pow(a, -x);
    a += 1.0;
  }
  return sum + pow(a, -x) + special_zeta_tail(x, a);
}

SPECIAL double special_polygamma(double n, double x) {
  double sign = 0.0;

  if (!(n >= 0.0) || floor(n) != n) return NAN;
  if (n == 0.0) return special_digamma(x);
  sign = fmod(n, 2.0) == 1.0 ? 1.0 : -1.0;
  return sign * exp(SPECIAL_LGAMMA(n + 1.0)) * special_zeta(n + 1.0, x);
}

/* x^a exp(-x) / gamma(a) */
SPECIAL double special_gamma_factor(double a, double x) {
  return exp(a * log(x) - x - SPECIAL_LGAMMA(a));
}

SPECIAL double special_igamma_series(double a, double x) {
  double term = 1.0 / a;
  double sum = term;

  for (int i = 1; i < 10000 && term > sum * 1e-17; i++) {
    term *= x / (a + i);
    sum += term;
  }
  return sum * special_gamma_factor(a, x);
}

SPECIAL double special_igammac_fraction(double a, double x) {
  const double tiny = 1e-300;
  double b = x + 1.0 - a;
  double c = 1.0 / tiny;
  double d = 1.0 / b;
  double h = d;

  for (int i = 1; i < 10000; i++) {
    double an = -i * (i - a);
    double step = 0.0;

    b += 2.0;
    d = an * d + b;
    c = b + an / c;
    d = 1.0 / (fabs(d) < tiny ? tiny : d);
    c = fabs(c) < tiny ? tiny : c;
    step = d * c;
    h *= step;
    if (fabs(step - 1.0) < 1e-16) break;
  }
  return h * special_gamma_factor(a, x);
}

SPECIAL double special_igamma(double a, double x) {
  if (!(a > 0.0) || !(x >= 0.0)) return NAN;
  if (x == 0.0) return 0.0;
  if (x == INFINITY) return 1.0;
  return x < a + 1.0 ? special_igamma_series(a, x)
                     : 1.0 - special_igammac_fraction(a, x);
}

SPECIAL double special_igammac(double a, double x) {
  if (!(a > 0.0) || !(x >= 0.0)) return NAN;
  if (x == 0.0) return 1.0;
  if (x == INFINITY) return 0.0;
  return x < a + 1.0 ? 1.0 - special_igamma_series(a, x)
                     : special_igammac_fraction(a, x);
}
