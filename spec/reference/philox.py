"""Random draws in plain Python integers and NumPy's float64.

A stream is Philox4x32-10 with the key (a, a >> 32) and the counter
(block, block >> 32, b, b >> 32) for the stateless seed {a, b}.
(Not called random.py: NumPy itself imports a module of that name.)
"""

import math

import numpy as np

MASK = 0xFFFFFFFF


def block(key, counter):
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(10):
        p0 = x0 * 0xD2511F53
        p1 = x2 * 0xCD9E8D57
        x0, x1, x2, x3 = ((p1 >> 32) ^ x1 ^ k0, p1 & MASK,
                          (p0 >> 32) ^ x3 ^ k1, p0 & MASK)
        k0 = (k0 + 0x9E3779B9) & MASK
        k1 = (k1 + 0xBB67AE85) & MASK
    return x0, x1, x2, x3


def words(seed, n):
    """The first n 32-bit words of the stream of the stateless seed {a, b}."""
    a, b = (s % 2**53 for s in seed)
    out = []
    for i in range((n + 3) // 4):
        out += block((a & MASK, a >> 32),
                     (i & MASK, i >> 32, b & MASK, b >> 32))
    return out[:n]


def wide(seed, n):
    """The first n 64-bit numbers: two words each, the lower one first."""
    w = words(seed, 2 * n)
    return [w[2 * i + 1] << 32 | w[2 * i] for i in range(n)]


def count(shape):
    return int(np.prod(shape, dtype=np.int64))


def uniform(dtype, shape, seed, low=0.0, high=1.0):
    n = count(shape)
    if dtype == "float64":
        u = [(x >> 11) * 2.0**-53 for x in wide(seed, n)]
    else:
        bits = {"float32": 24, "float16": 11, "bfloat16": 8}[dtype]
        u = [(x >> (32 - bits)) * 2.0**-bits for x in words(seed, n)]
    return (low + np.array(u) * (high - low)).reshape(shape)


def normal(dtype, shape, seed, mean=0.0, stddev=1.0):
    n = count(shape)
    out = []
    if dtype == "float64":
        pairs = [((x >> 11) + 0.5, y >> 11, 53) for x, y in
                 zip(*[iter(wide(seed, n + n % 2))] * 2)]
    else:
        pairs = [((x >> 1) + 0.5, y, 31) for x, y in
                 zip(*[iter(words(seed, n + n % 2))] * 2)]
    for x, y, bits in pairs:
        radius = math.sqrt(-2 * math.log(x * 2.0**-bits))
        angle = 2 * math.pi * y * 2.0**-(53 if dtype == "float64" else 32)
        out += [radius * math.cos(angle), radius * math.sin(angle)]
    return mean + stddev * np.array(out[:n]).reshape(shape)


def quantile(p):
    """z with erf(z / sqrt(2)) = p, by bisection."""
    low, high = -2.5, 2.5
    for _ in range(80):
        z = (low + high) / 2
        if math.erf(z / math.sqrt(2)) < p:
            low = z
        else:
            high = z
    return (low + high) / 2


def truncated(dtype, shape, seed, mean=0.0, stddev=1.0):
    n = count(shape)
    if dtype == "float64":
        u = [((x >> 11) + 0.5) * 2.0**-52 - 1 for x in wide(seed, n)]
    else:
        u = [((x >> 8 | 1) - 2**23) * 2.0**-23 for x in words(seed, n)]
    inside = math.erf(math.sqrt(2))
    z = np.array([quantile(x * inside) for x in u])
    return mean + stddev * z.reshape(shape)


def integers(shape, seed, low, high):
    values = [low + (x * (high - low) >> 64) for x in wide(seed, count(shape))]
    return np.array(values, np.int64).reshape(shape)


def categorical(logits, samples, seed):
    rows, classes = logits.shape
    draws = wide(seed, rows * samples)
    out = np.zeros((rows, samples), np.int64)
    for r in range(rows):
        sums = np.cumsum(np.exp(logits[r] - logits[r].max()))
        for s in range(samples):
            x = (draws[r * samples + s] >> 11) * 2.0**-53 * sums[-1]
            out[r, s] = int(np.searchsorted(sums, x, side="right"))
    return out


def shuffle(x, seed):
    n = x.shape[0]
    order = list(range(n))
    draws = wide(seed, n)
    for i in range(n - 1, 0, -1):
        j = draws[i] * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    return x[order]


def tries(seed, i):
    """Attempts of element i: four numbers in (0, 1) each."""
    a, b = (s % 2**53 for s in seed)
    n = i << 8
    while True:
        w = block((a & MASK, a >> 32), (n & MASK, n >> 32, b & MASK, b >> 32))
        yield [(x + 0.5) * 2.0**-32 for x in w]
        n += 1


def gamma_one(attempts, alpha):
    u = next(attempts)
    scale = 1.0
    if alpha < 1:
        scale = u[3] ** (1 / alpha)
        alpha += 1
    d = alpha - 1.0 / 3
    while True:
        x = math.sqrt(-2 * math.log(u[0])) * math.cos(2 * math.pi * u[1])
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v > 0 and math.log(u[2]) < x * x / 2 + d * (1 - v + math.log(v)):
            return scale * d * v
        u = next(attempts)


def poisson_one(attempts, rate):
    u = next(attempts)
    if rate < 10:
        target = (u[0] * 2.0**32 + u[1] - 0.5) * 2.0**-32
        k, p = 0, math.exp(-rate)
        total = p
        while target > total:
            k += 1
            p *= rate / k
            total += p
        return k
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    while True:
        us = 0.5 - abs(u[0] - 0.5)
        k = math.floor((2 * a / us + b) * (u[0] - 0.5) + rate + 0.43)
        if us >= 0.07 and u[1] <= 0.9277 - 3.6224 / (b - 2):
            return k
        if k >= 0 and not (us < 0.013 and u[1] > us):
            ratio = u[1] * (1.1239 + 1.1328 / (b - 3.4)) / (a / us**2 + b)
            if math.log(ratio) <= (k * math.log(rate) - rate
                                   - math.lgamma(k + 1)):
                return k
        u = next(attempts)


def rejection(one, shape, seed, parameter):
    parameter = np.broadcast_to(parameter, shape).reshape(-1)
    return np.array([one(tries(seed, i), float(p))
                     for i, p in enumerate(parameter)]).reshape(shape)


def gamma(shape, seed, alpha):
    return rejection(gamma_one, shape, seed, alpha)


def poisson(shape, seed, rate):
    return rejection(poisson_one, shape, seed, rate)
