"""Resizing with pixel centres at halves, pixel by pixel."""

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


KERNELS = {
    "triangle": (1, lambda x: max(0, 1 - x)),
    "bicubic": (2, lambda x: 1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else
                -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0),
    "mitchellcubic": (2, lambda x: (7 * x**3 - 12 * x**2 + 16 / 3) / 6
                      if x < 1 else
                      (-7 / 3 * x**3 + 12 * x**2 - 20 * x + 32 / 3) / 6
                      if x < 2 else 0),
    "gaussian": (1.5, lambda x: math.exp(-x * x / (2 * 0.5**2))
                 if x < 1.5 else 0),
    "lanczos3": (3, lambda x: np.sinc(x) * np.sinc(x / 3) if x < 3 else 0),
    "lanczos5": (5, lambda x: np.sinc(x) * np.sinc(x / 5) if x < 5 else 0),
}


def _kernel_rows(x, to, name, antialias):
    """Every pixel weighted by its distance, weights summing to 1."""
    _, kernel = KERNELS[name]
    n = x.shape[0]
    wide = max(n / to, 1) if antialias else 1
    rows = []
    for i in range(to):
        at = (i + 0.5) * n / to
        w = np.array([kernel(abs(j + 0.5 - at) / wide) for j in range(n)])
        rows.append(np.tensordot(w / w.sum(), x, 1))
    return np.stack(rows)


def filtered(x, height, width, name, antialias=False):
    x = _kernel_rows(x, height, name, antialias)
    return np.swapaxes(_kernel_rows(np.swapaxes(x, 0, 1), width, name,
                                    antialias), 0, 1)


def area(x, height, width):
    """Mean over what each pixel covers, on a grid that both sizes divide."""
    fine = np.repeat(np.repeat(x, height, 0), width, 1)
    return fine.reshape(height, x.shape[0], width, x.shape[1], -1).mean((1, 3))


def nearest(x, height, width):
    out = np.empty((height, width, x.shape[2]))
    for i in range(height):
        for j in range(width):
            out[i, j] = x[int((i + 0.5) * x.shape[0] / height),
                          int((j + 0.5) * x.shape[1] / width)]
    return out


def standardize(x):
    return (x - x.mean()) / max(x.std(), 1 / math.sqrt(x.size))
