"""References of the elementwise cases that NumPy itself does not have."""

import math

import numpy as np


def each(fn, *args):
    return np.vectorize(fn, otypes=[np.float64])(*args)


def erf(x):
    return each(math.erf, x)


def erfc(x):
    return each(math.erfc, x)


def lgamma(x):
    return each(math.lgamma, x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.logaddexp(x, 0)


def solve(fn, y, low, high):
    """x in [low, high] with fn(x) = y, fn increasing; by bisection."""
    for _ in range(200):
        middle = (low + high) / 2
        if fn(middle) < y:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def erfinv(y):
    return each(lambda v: solve(math.erf, v, -6.0, 6.0), y)


def ndtri(p):
    return each(lambda v: solve(lambda x: math.erfc(-x / math.sqrt(2)) / 2, v,
                                -40.0, 40.0), p)


def zeta1(x, q):
    """Sum of (q + k)^-x: 100 terms, then Euler-Maclaurin."""
    n = 100
    total = sum((q + k) ** -x for k in range(n))
    end = q + n
    return (total + end ** (1 - x) / (x - 1) + end ** -x / 2
            + x * end ** (-x - 1) / 12
            - x * (x + 1) * (x + 2) * end ** (-x - 3) / 720)


def digamma1(x):
    total = 0.0
    while x < 100:
        total -= 1 / x
        x += 1
    return (total + math.log(x) - 1 / (2 * x) - 1 / (12 * x ** 2)
            + 1 / (120 * x ** 4))


def digamma(x):
    return each(digamma1, x)


def zeta(x, q):
    return each(zeta1, x, q)


def polygamma(n, x):
    return each(lambda m, v: digamma1(v) if m == 0 else
                (-1) ** (m + 1) * math.factorial(int(m)) * zeta1(m + 1, v),
                n, x)


def igamma(a, x):
    """Regularised lower incomplete gamma function: the power series."""
    def one(s, v):
        if v == 0:
            return 0.0
        term = total = 1 / s
        k = 1
        while term > total * 1e-18:
            term *= v / (s + k)
            total += term
            k += 1
        return total * math.exp(s * math.log(v) - v - math.lgamma(s))
    return each(one, a, x)


def wrap(x, dtype):
    """Exact integers into an integer dtype, modulo its range."""
    info = np.iinfo(dtype)
    span = int(info.max) - int(info.min) + 1
    fit = np.vectorize(lambda v: (int(v) - int(info.min)) % span
                       + int(info.min), otypes=[object])
    return fit(x).astype(dtype)


def truncated(x, y):
    """Quotient towards zero, and its remainder, of integers."""
    q = np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))
    return q.astype(x.dtype), (x - q * y).astype(x.dtype)


def cast_int(x, dtype):
    """Floats to an integer dtype: truncate, saturate, NaN is 0."""
    info = np.iinfo(dtype)
    x = np.where(np.isnan(x), 0, np.trunc(x))
    return np.vectorize(lambda v: min(max(int(v), int(info.min)),
                                      int(info.max)), otypes=[object])(x)


def as_float64(x):
    return np.asarray(x, np.float64)


def as_float32(x):
    return np.asarray(x, np.float32)


def as_float16(x):
    return np.asarray(x, np.float16)


def as_bfloat16(x):
    """Nearest, ties to even, in one step from float64."""
    x = np.asarray(x, np.float64)
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(mantissa * 256) / 256, exponent)
