#include "backend/cpu/elementwise/special.h"

#define SPECIAL static
#define SPECIAL_LGAMMA(x) tfd__lgamma(x)
#include "backend/special_functions.h"

double tfd__lgamma(double x) {
  int sign = 0;

  return lgamma_r(x, &sign); /* lgamma itself writes a global */
}

double tfd__ndtri(double p) {
  return special_ndtri(p);
}

double tfd__erfinv(double x) {
  return special_erfinv(x);
}

double tfd__digamma(double x) {
  return special_digamma(x);
}

double tfd__zeta(double x, double q) {
  return special_zeta(x, q);
}

double tfd__polygamma(double n, double x) {
  return special_polygamma(n, x);
}

double tfd__igamma(double a, double x) {
  return special_igamma(a, x);
}

double tfd__igammac(double a, double x) {
  return special_igammac(a, x);
}
