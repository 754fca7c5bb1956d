"""Bilinear and nearest resizing with pixel centres at halves, pixel by pixel."""

import math

import numpy as np


def _bilinear_rows(x, to):
    """Resize axis 0 to `to` rows."""
    n = x.shape[0]
    rows = []
    for i in range(to):
        at = (i + 0.5) * n / to - 0.5
        below = math.floor(at)
        low, high = max(below, 0), min(below + 1, n - 1)
        rows.append(x[low] * (1 - (at - below)) + x[high] * (at - below))
    return np.stack(rows)


def bilinear(x, height, width):
    """x is {H, W, C}."""
    x = _bilinear_rows(x, height)
    return np.swapaxes(_bilinear_rows(np.swapaxes(x, 0, 1), width), 0, 1)


def batch(x, fn, *args):
    return np.stack([fn(image, *args) for image in x])


def nearest(x, height, width):
    out = np.empty((height, width, x.shape[2]))
    for i in range(height):
        for j in range(width):
            out[i, j] = x[int((i + 0.5) * x.shape[0] / height),
                          int((j + 0.5) * x.shape[1] / width)]
    return out


def standardize(x):
    return (x - x.mean()) / max(x.std(), 1 / math.sqrt(x.size))
