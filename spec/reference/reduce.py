"""References of reductions that NumPy itself does not have."""

import numpy as np


def lowest_int(dtype, largest=False):
    info = np.iinfo(dtype)
    return info.max if largest else info.min


def logsumexp(x, axis=None, keepdims=False):
    top = x.max(axis=axis, keepdims=True)
    out = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return out if keepdims else out.reshape(
        x.max(axis=axis, keepdims=False).shape)


def running(fn, x, axis=0, exclusive=False, reverse=False, start=0):
    """out[i] = fn of all x[j] with j <= i, one after the other."""
    moved = np.moveaxis(x, axis, 0)
    if reverse:
        moved = moved[::-1]
    out = []
    state = np.full(moved.shape[1:], start, dtype=moved.dtype)
    for row in moved:
        before = state
        state = fn(state, row)
        out.append(before if exclusive else state)
    out = np.array(out, dtype=moved.dtype).reshape(moved.shape)
    return np.moveaxis(out[::-1] if reverse else out, 0, axis)


def cumsum(x, **options):
    return running(lambda s, v: s + v, x, **options)


def cumprod(x, **options):
    return running(lambda s, v: s * v, x, start=1, **options)


def cumlogsumexp(x, **options):
    return running(np.logaddexp, x, start=-np.inf, **options)


def int_mean(x, axis=None):
    """Rounded towards zero."""
    total = x.astype(np.int64).sum(axis=axis)
    count = x.size // max(total.size, 1)
    return (np.sign(total) * (np.abs(total) // count)).astype(x.dtype)


def bincount(x, size, weights=None):
    out = np.zeros(size)
    for i, v in enumerate(x.reshape(-1)):
        if v < size:
            out[v] += 1 if weights is None else weights.reshape(-1)[i]
    return out
