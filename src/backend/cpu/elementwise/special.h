#ifndef TFD_BACKEND_CPU_SPECIAL_H
#define TFD_BACKEND_CPU_SPECIAL_H
/* Scalar special functions in float64, for which speed matters little. */

/* Inverse of the standard normal distribution function; NaN outside [0, 1],
** infinite at its ends. Relative error about 1e-15.
** Source: Wichura, algorithm AS 241 (PPND16). */
double tfd__ndtri(double p);
/* Inverse of erf; NaN outside [-1, 1]. Source: as above. */
double tfd__erfinv(double x);
/* log |gamma(x)|; +infinity at 0, -1, -2 ... */
double tfd__lgamma(double x);
/* d/dx lgamma(x); NaN at 0, -1, -2 ... */
double tfd__digamma(double x);
/* Hurwitz zeta, the sum over k >= 0 of (q + k)^-x, x > 1. +infinity at x = 1
** and where q is 0, -1, ... and x even or so; NaN where it is not real.
** Source: Euler-Maclaurin as in Cephes. */
double tfd__zeta(double x, double q);
/* n-th derivative of digamma, n = 0, 1, ...; NaN for other n. */
double tfd__polygamma(double n, double x);
/* Regularised incomplete gamma functions P(a, x) and Q(a, x) = 1 - P; NaN for
** a <= 0 or x < 0. Relative error about 1e-14.
** Source: series and Lentz's continued fraction. */
double tfd__igamma(double a, double x);
double tfd__igammac(double a, double x);

#endif
