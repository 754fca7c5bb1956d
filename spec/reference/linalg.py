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


def eigen(a):
    e, v = np.linalg.eigh(a)
    lower = np.tril(a) + np.swapaxes(np.tril(a, -1), -1, -2)
    eye = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    return e, lower, eye, e, v ** 2


def singular(a):
    u, s, v = np.linalg.svd(a, full_matrices=False)
    return (s, a, u ** 2, np.swapaxes(v, -1, -2) ** 2,
            (u * s[..., None, :] ** 2) @ v)


def qr(a):
    if a.ndim == 2:
        return tuple(np.linalg.qr(a))
    parts = [np.linalg.qr(x) for x in a]
    return np.stack([p[0] for p in parts]), np.stack([p[1] for p in parts])
