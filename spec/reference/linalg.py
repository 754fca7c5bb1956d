"""Plain helpers that the cases of the linear algebra ops compare with."""

import numpy as np


def large(x, n):
    row = np.arange(n)
    return np.sin(np.outer(row * 1.7, row) + x) + 2 * n * np.eye(n)


def triangular(a, b):
    """Solutions with the lower and the upper triangle, plain and adjoint."""
    out = []
    for half in (np.tril(a), np.triu(a)):
        out.append(np.linalg.solve(half, b))
        out.append(np.linalg.solve(np.swapaxes(half, -1, -2), b))
    return tuple(out)
