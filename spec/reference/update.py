"""Optimizers' rules, one element after the other."""

import math

import numpy as np


def each(rule, arrays, grad):
    """rule(values, g) -> new values, for every element."""
    new = [np.array(x, dtype=np.float64) for x in arrays]
    g = np.asarray(grad, dtype=np.float64)
    for i in np.ndindex(new[0].shape):
        for x, y in zip(new, rule([float(x[i]) for x in new], float(g[i]))):
            x[i] = y
    return tuple(new) if len(new) > 1 else new[0]


def rows(rule, arrays, values, indices, rest="stays"):
    """The rule for the rows that indices name, repeated ones added up."""
    new = [np.array(x, dtype=np.float64) for x in arrays]
    total = np.zeros(new[0].shape)
    for j, row in enumerate(indices):
        total[row] += np.asarray(values, dtype=np.float64)[j]
    for row in range(new[0].shape[0]):
        if row not in list(indices) and rest == "stays":
            continue
        got = each(rule, [x[row] for x in new], total[row])
        got = got if isinstance(got, tuple) else (got,)
        for t, y in enumerate(got):
            if row in list(indices) or t > 0 or rest == "all":
                new[t][row] = y
    return tuple(new) if len(new) > 1 else new[0]


def sgd(lr, wd=0):
    return lambda x, g: [x[0] - x[0] * wd - lr * g]


def momentum(lr, mu, nesterov=False, wd=0):
    def rule(x, g):
        m = mu * x[1] - lr * g
        return [x[0] - x[0] * wd + (mu * m - lr * g if nesterov else m), m]
    return rule


def adam(lr, b1, b2, eps, wd=0):
    def rule(x, g):
        m = b1 * x[1] + (1 - b1) * g
        v = b2 * x[2] + (1 - b2) * g * g
        most = [max(x[3], v)] if len(x) > 3 else []
        root = math.sqrt((most or [v])[0])
        return [x[0] - x[0] * wd - lr * m / (root + eps), m, v] + most
    return rule


def adamax(lr, b1, b2, eps):
    def rule(x, g):
        m = b1 * x[1] + (1 - b1) * g
        u = max(b2 * x[2], abs(g))
        return [x[0] - lr * m / (u + eps), m, u]
    return rule


def nadam(lr, b1, b2, eps, of_g, of_m, of_v):
    def rule(x, g):
        m = b1 * x[1] + (1 - b1) * g
        v = b2 * x[2] + (1 - b2) * g * g
        return [x[0] - lr * (of_g * g + of_m * m)
                / (math.sqrt(v * of_v) + eps), m, v]
    return rule


def rmsprop(lr, rho, eps, centered=False, mu=None):
    """Slots: mean of squares, then momentum, then mean."""
    def rule(x, g):
        s = rho * x[1] + (1 - rho) * g * g
        out = [s]
        spread = s
        if centered:
            mean = rho * x[-1] + (1 - rho) * g
            spread = max(s - mean * mean, 0)
        if mu is None:
            w = x[0] - lr * g / math.sqrt(spread + eps)
        else:
            m = mu * x[2] + lr * g / math.sqrt(spread + eps)
            w = x[0] - m
            out.append(m)
        return [w] + out + ([mean] if centered else [])
    return rule


def adagrad(lr, eps):
    def rule(x, g):
        s = x[1] + g * g
        return [x[0] - lr * g / math.sqrt(s + eps), s]
    return rule


def adadelta(lr, rho, eps):
    def rule(x, g):
        s = rho * x[1] + (1 - rho) * g * g
        u = math.sqrt(x[2] + eps) / math.sqrt(s + eps) * g
        return [x[0] - lr * u, s, rho * x[2] + (1 - rho) * u * u]
    return rule


def ftrl(lr, power, l1, l2, shrinkage):
    def rule(x, g):
        s = x[1] + g * g
        z = x[2] + g + 2 * shrinkage * x[0] - (
            s ** power - x[1] ** power) / lr * x[0]
        q = s ** power / lr + 2 * l2
        w = 0.0 if abs(z) <= l1 else (math.copysign(l1, z) - z) / q
        return [w, s, z]
    return rule
