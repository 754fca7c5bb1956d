"""Layers of Keras as plain NumPy, independent of the library's ops."""

import importlib.util
import os

import numpy as np

_here = os.path.dirname(os.path.abspath(__file__))
_spec = importlib.util.spec_from_file_location(
    "reference_nn", os.path.join(_here, "nn.py"))
nn = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(nn)


def relu(x):
    return np.maximum(x, 0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def conv(x, k, b=0, strides=1, padding="VALID", dilations=1):
    return nn.conv(x, k, strides, padding, dilations) + b


def causal(x, k, b, dilation=1):
    left = dilation * (k.shape[0] - 1)
    x = np.pad(x, ((0, 0), (left, 0), (0, 0)))
    return nn.conv(x, k, 1, "VALID", dilation) + b


def transposed(x, k, b, sizes, strides, padding):
    """Every input element spreads its kernel over the output."""
    n = x.ndim - 2
    s = [strides] * n if isinstance(strides, int) else strides
    full = [(x.shape[i + 1] - 1) * s[i] + k.shape[i] for i in range(n)]
    y = np.zeros([x.shape[0]] + full + [k.shape[-2]])
    for at in np.ndindex(*x.shape[1:-1]):
        part = np.einsum("bi,...oi->b...o",
                         x[(slice(None),) + at], k)
        where = tuple(slice(at[i] * s[i], at[i] * s[i] + k.shape[i])
                      for i in range(n))
        y[(slice(None),) + where] += part
    for i in range(n):
        low = 0
        if padding == "SAME":
            low = max(full[i] - sizes[i], 0) // 2
        y = np.take(np.pad(y, [(0, 0)] * (i + 1) + [(0, sizes[i])]
                           + [(0, 0)] * (y.ndim - i - 2)),
                    range(low, low + sizes[i]), i + 1)
    return y + b


def depthwise(x, k, b=0, strides=1, padding="VALID"):
    return nn.depthwise(x, k, strides, padding) + b


def pool(x, size, strides, padding, kind):
    return nn.pool(x, size, strides, padding, kind)


def batch_norm(x, gamma, beta, mean, var, training=False, eps=1e-3):
    axes = tuple(range(x.ndim - 1))
    if training:
        mean, var = x.mean(axes), x.var(axes)
    return (x - mean) / np.sqrt(var + eps) * gamma + beta


def steps(x, mask, size, step, reverse=False, states=1):
    """Run step(x_t, states) over axis 1; masked steps keep the old ones."""
    n, t = x.shape[:2]
    state = [np.zeros((n, size)) for _ in range(states)]
    out, last = np.zeros((n, t, size)), np.zeros((n, size))
    order = range(t - 1, -1, -1) if reverse else range(t)
    for k, at in enumerate(order):
        y, new = step(x[:, at], state)
        if mask is not None:
            m = np.asarray(mask)[:, at][:, None]
            y = np.where(m, y, last)
            new = [np.where(m, a, b) for a, b in zip(new, state)]
        out[:, k], last, state = y, y, new
    return out, last, state


def simple_rnn(x, w, u, b, mask=None, reverse=False):
    def step(xt, s):
        h = np.tanh(xt @ w + s[0] @ u + b)
        return h, [h]
    return steps(x, mask, u.shape[0], step, reverse)


def lstm(x, w, u, b, mask=None, reverse=False, gate=sigmoid):
    def step(xt, s):
        i, f, c, o = np.split(xt @ w + s[0] @ u + b, 4, 1)
        cell = gate(f) * s[1] + gate(i) * np.tanh(c)
        h = gate(o) * np.tanh(cell)
        return h, [h, cell]
    return steps(x, mask, u.shape[0], step, reverse, 2)


def gru(x, w, u, b, mask=None, reverse=False, after=True):
    size = u.shape[0]

    def step(xt, s):
        h = s[0]
        bx = b[0] if after else b
        xz, xr, xh = np.split(xt @ w + bx, 3, 1)
        if after:
            hz, hr, hh = np.split(h @ u + b[1], 3, 1)
            z, r = sigmoid(xz + hz), sigmoid(xr + hr)
            c = np.tanh(xh + r * hh)
        else:
            z = sigmoid(xz + h @ u[:, :size])
            r = sigmoid(xr + h @ u[:, size:2 * size])
            c = np.tanh(xh + (r * h) @ u[:, 2 * size:])
        h = z * h + (1 - z) * c
        return h, [h]
    return steps(x, mask, size, step, reverse)


def attention(q, v, k=None, mask=None, scale=1.0):
    k = v if k is None else k
    s = np.einsum("bid,bjd->bij", q, k) * scale
    if mask is not None:
        s = np.where(mask, s, -1e9)
    return np.einsum("bij,bjd->bid", softmax(s), v)


def multi_head(q, v, wq, wk, wv, wo, mask=None):
    out = 0
    for h in range(wq.shape[1]):
        a, b, c = q @ wq[:, h], v @ wk[:, h], v @ wv[:, h]
        out = out + attention(a, c, b, mask, wq.shape[2] ** -0.5) @ wo[h]
    return out


def upsample(x, size):
    for i, n in enumerate(size):
        x = np.repeat(x, n, i + 1)
    return x
