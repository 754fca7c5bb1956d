"""Plain loops that the cases of the array ops compare with."""

import numpy as np


def spread(dy, shape):
    out = np.zeros(shape)
    out[1:4:2, 5:-8:-2][:dy.shape[0], :dy.shape[1]] = dy
    return out


def one_hot(labels, depth):
    return (labels[..., None] == np.arange(depth)).astype(int)


def space_to_depth(x, b):
    n, h, w, c = x.shape
    out = np.zeros((n, h // b, w // b, b * b * c))
    for i in range(h):
        for j in range(w):
            at = ((i % b) * b + j % b) * c
            out[:, i // b, j // b, at:at + c] = x[:, i, j]
    return out


def diag(x, k, cols=None, fill=0):
    n = x.shape[-1]
    rows = n + (abs(k) if cols is None else max(-k, 0))
    cols = cols or rows
    out = np.full(x.shape[:-1] + (rows, cols), float(fill))
    for i in range(n):
        out[..., i + max(-k, 0), i + max(k, 0)] = x[..., i]
    return out


def set_diag(x, d, k):
    out = x.copy()
    for i in range(d.shape[-1]):
        out[..., i, i + k] = d[..., i]
    return out


def gather(x, at, axis, batch):
    if batch == 0:
        return np.take(x, at, axis)
    return np.stack([gather(x[i], at[i], axis - 1, batch - 1)
                     for i in range(x.shape[0])])


def gather_grad(dy, at, shape, axis, batch):
    out = np.zeros(shape)
    for b in range(shape[0]):
        for i, row in enumerate(at[b]):
            out[b, row] += dy[b, i]
    return out


def combine(f, x, at, updates):
    """Updates one after the other; f None replaces."""
    out = x.copy()
    depth = at.shape[-1]
    flat = updates.reshape((-1,) + x.shape[depth:])
    for row, u in zip(at.reshape(-1, depth), flat):
        where = tuple(row)
        out[where] = u if f is None else f(out[where], u)
    return out


def unique(x):
    values, at, counts = [], [], []
    for v in x:
        if v not in values:
            values.append(v)
            counts.append(0)
        i = values.index(v)
        at.append(i)
        counts[i] += 1
    return np.array(values), np.array(at), np.array(counts)


def descending(x):
    """Stable argsort from the largest down."""
    wide = x.astype(float) if x.dtype.kind != "i" else x.astype(np.int64)
    return np.argsort(-wide, axis=-1, kind="stable")


def in_top_k(targets, x, k):
    return np.array([0 <= t < x.shape[1] and (row > row[t]).sum() < k
                     for t, row in zip(targets, x)])


def searchsorted(x, v, side):
    return np.stack([np.searchsorted(np.sort(r), w, side)
                     for r, w in zip(x, v)])


def segments(kind, x, ids, n, ordered):
    start = {"prod": 1, "min": np.inf, "max": -np.inf}.get(kind, 0)
    if x.dtype.kind in "iu" and kind == "max":
        start = np.iinfo(x.dtype).min
    rows = []
    for s in range(n):
        mine = x[np.asarray(ids) == s]
        if len(mine) == 0 and ordered and kind in ("min", "max"):
            rows.append(np.zeros(x.shape[1:]))
        elif len(mine) == 0:
            rows.append(np.full(x.shape[1:], start))
        elif kind == "sqrt_n":
            rows.append(mine.sum(0) / np.sqrt(len(mine)))
        else:
            rows.append(getattr(mine, kind)(0))
    return np.stack(rows)
