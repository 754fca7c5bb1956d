"""Products, windows, normalisation and recurrence as plain loops."""

import itertools

import numpy as np


def _list(x, n):
    return [x] * n if isinstance(x, int) else list(x)


def _window(shape, kernel, strides, padding, dilations):
    """Output sizes and low paddings of a window sliding over `shape`."""
    n = len(shape)
    s = _list(strides, n)
    d = _list(dilations, n)
    out, low = [], []
    for i in range(n):
        reach = (kernel[i] - 1) * d[i] + 1
        if padding == "SAME":
            size = -(-shape[i] // s[i])
            total = max((size - 1) * s[i] + reach - shape[i], 0)
            before = total // 2
        else:
            before, after = (0, 0) if padding == "VALID" else padding[i]
            size = (shape[i] + before + after - reach) // s[i] + 1
        out.append(size)
        low.append(before)
    return out, low, s, d


def _taps(shape, kernel, strides, padding, dilations):
    """(output position, tap, input position) of every tap inside the input."""
    out, low, s, d = _window(shape, kernel, strides, padding, dilations)
    for o in itertools.product(*map(range, out)):
        for k in itertools.product(*map(range, kernel)):
            at = tuple(o[i] * s[i] - low[i] + k[i] * d[i]
                       for i in range(len(o)))
            if all(0 <= at[i] < shape[i] for i in range(len(at))):
                yield o, k, at


def _last(x, first):
    return np.moveaxis(x, 1, -1) if first else x


def _back(x, first):
    return np.moveaxis(x, -1, 1) if first else x


def conv(x, f, strides, padding, dilations=1, first=False):
    x = _last(x, first)
    shape, kernel = x.shape[1:-1], f.shape[:-2]
    out = _window(shape, kernel, strides, padding, dilations)[0]
    groups = x.shape[-1] // f.shape[-2]
    depth, width = f.shape[-2], f.shape[-1] // groups
    y = np.zeros([x.shape[0]] + out + [f.shape[-1]], x.dtype)
    for o, k, at in _taps(shape, kernel, strides, padding, dilations):
        for g in range(groups):
            cols = slice(g * width, (g + 1) * width)
            rows = slice(g * depth, (g + 1) * depth)
            y[(slice(None),) + o + (cols,)] += (
                x[(slice(None),) + at + (rows,)] @ f[k][:, cols])
    return _back(y, first)


def conv_input(f, dy, sizes, strides, padding, dilations=1, first=False):
    dy = _last(dy, first)
    sizes = list(sizes)
    if first:
        sizes = [sizes[0]] + sizes[2:] + [sizes[1]]
    shape, kernel = sizes[1:-1], f.shape[:-2]
    groups = sizes[-1] // f.shape[-2]
    depth, width = f.shape[-2], f.shape[-1] // groups
    dx = np.zeros(sizes, dy.dtype)
    for o, k, at in _taps(shape, kernel, strides, padding, dilations):
        for g in range(groups):
            cols = slice(g * width, (g + 1) * width)
            rows = slice(g * depth, (g + 1) * depth)
            dx[(slice(None),) + at + (rows,)] += (
                dy[(slice(None),) + o + (cols,)] @ f[k][:, cols].T)
    return _back(dx, first)


def conv_filter(x, dy, sizes, strides, padding, dilations=1, first=False):
    x, dy = _last(x, first), _last(dy, first)
    shape, kernel = x.shape[1:-1], sizes[:-2]
    groups = x.shape[-1] // sizes[-2]
    depth, width = sizes[-2], sizes[-1] // groups
    df = np.zeros(sizes, dy.dtype)
    for o, k, at in _taps(shape, kernel, strides, padding, dilations):
        for g in range(groups):
            cols = slice(g * width, (g + 1) * width)
            rows = slice(g * depth, (g + 1) * depth)
            df[k][:, cols] += (x[(slice(None),) + at + (rows,)].T
                               @ dy[(slice(None),) + o + (cols,)])
    return df


def depthwise(x, f, strides, padding, dilations=1):
    """Channel c with filter m gives output channel c * M + m."""
    h, w, c, m = f.shape
    parts = [conv(x[..., i:i + 1], f[:, :, i:i + 1, :], strides, padding,
                  dilations) for i in range(c)]
    return np.concatenate(parts, -1)


def pool(x, kernel, strides, padding, kind, first=False):
    x = _last(x, first)
    shape = x.shape[1:-1]
    kernel = _list(kernel, len(shape))
    out = _window(shape, kernel, strides, padding, 1)[0]
    full = [x.shape[0]] + out + [x.shape[-1]]
    count = np.zeros(full)
    y = np.full(full, -np.inf) if kind == "max" else np.zeros(full)
    for o, _, at in _taps(shape, kernel, strides, padding, 1):
        to, part = (slice(None),) + o, x[(slice(None),) + at]
        count[to] += 1
        y[to] = np.maximum(y[to], part) if kind == "max" else y[to] + part
    if kind != "max":
        y = y / count
    return _back(y.astype(x.dtype), first)


def max_pool_grad(x, y, dy, kernel, strides, padding):
    """dy goes to the first tap that equals the maximum."""
    kernel = _list(kernel, x.ndim - 2)
    dx = np.zeros_like(x)
    open_ = np.array(dy)
    for o, _, at in _taps(x.shape[1:-1], kernel, strides, padding, 1):
        to, from_ = (slice(None),) + o, (slice(None),) + at
        hit = x[from_] == y[to]
        dx[from_] += np.where(hit, open_[to], 0)
        open_[to] = np.where(hit, 0, open_[to])
    return dx


def max_pool_pick(x, y, dx, kernel, strides, padding):
    kernel = _list(kernel, x.ndim - 2)
    out = np.zeros_like(y)
    open_ = np.ones(y.shape, bool)
    for o, _, at in _taps(x.shape[1:-1], kernel, strides, padding, 1):
        to, from_ = (slice(None),) + o, (slice(None),) + at
        hit = (x[from_] == y[to]) & open_[to]
        out[to] = np.where(hit, dx[from_], out[to])
        open_[to] &= ~hit
    return out


def argmax_pool(x, kernel, strides, padding, whole):
    kernel = _list(kernel, x.ndim - 2)
    y = pool(x, kernel, strides, padding, "max")
    where = np.full(y.shape, -1, np.int64)
    index = np.arange(x.size).reshape(x.shape)
    if not whole:
        index = index % (x.size // x.shape[0])
    for o, _, at in _taps(x.shape[1:-1], kernel, strides, padding, 1):
        to, from_ = (slice(None),) + o, (slice(None),) + at
        hit = (x[from_] == y[to]) & (where[to] < 0)
        where[to] = np.where(hit, index[from_], where[to])
    return y, where


def avg_pool_grad(dy, shape, kernel, strides, padding):
    kernel = _list(kernel, len(shape) - 2)
    count = np.zeros(dy.shape)
    dx = np.zeros(shape)
    taps = list(_taps(shape[1:-1], kernel, strides, padding, 1))
    for o, _, at in taps:
        count[(slice(None),) + o] += 1
    for o, _, at in taps:
        to = (slice(None),) + o
        dx[(slice(None),) + at] += dy[to] / count[to]
    return dx


def _channels(v, x, first):
    shape = [1] * x.ndim
    shape[1 if first else -1] = -1
    return v.reshape(shape)


def batch_norm(x, scale, offset, epsilon=0.001, first=False):
    axes = tuple(i for i in range(x.ndim)
                 if i != (1 if first else x.ndim - 1))
    mean, var = x.mean(axes), x.var(axes)
    n = x.size // mean.size
    y = ((x - _channels(mean, x, first))
         / np.sqrt(_channels(var, x, first) + epsilon)
         * _channels(scale, x, first) + _channels(offset, x, first))
    return y, mean, var * n / max(n - 1, 1)


def batch_norm_fixed(x, scale, offset, mean, var, epsilon=0.001, first=False):
    return ((x - _channels(mean, x, first))
            / np.sqrt(_channels(var, x, first) + epsilon)
            * _channels(scale, x, first) + _channels(offset, x, first))


def layer_norm(x, scale, offset, axis=-1, epsilon=0.001):
    axes = tuple(range(axis % x.ndim, x.ndim))
    y = ((x - x.mean(axes, keepdims=True))
         / np.sqrt(x.var(axes, keepdims=True) + epsilon))
    return y * scale + offset


def group_norm(x, scale, offset, groups, first=False, epsilon=0.001):
    z = np.moveaxis(x, 1, -1) if first else x
    n, c = z.shape[0], z.shape[-1]
    g = z.reshape(n, -1, groups, c // groups)
    y = ((g - g.mean((1, 3), keepdims=True))
         / np.sqrt(g.var((1, 3), keepdims=True) + epsilon)).reshape(z.shape)
    y = y * scale + offset
    return np.moveaxis(y, -1, 1) if first else y


def lrn(x, radius, bias, alpha, beta):
    y = np.zeros_like(x)
    c = x.shape[-1]
    for i in range(c):
        part = x[..., max(i - radius, 0):min(i + radius + 1, c)]
        y[..., i] = x[..., i] / (bias + alpha * (part ** 2).sum(-1)) ** beta
    return y


def weighted_moments(x, w, axes):
    w = np.broadcast_to(w, x.shape)
    mean = (w * x).sum(axes, keepdims=True) / w.sum(axes, keepdims=True)
    var = (w * (x - mean) ** 2).sum(axes) / w.sum(axes)
    return mean.squeeze(axes), var


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, w, u, b, h, c):
    out = np.zeros((x.shape[0],) + h.shape)
    for t in range(x.shape[0]):
        i, f, g, o = np.split(x[t] @ w + h @ u + b, 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        out[t] = h
    return out, h, c


def gru(x, w, u, b, h):
    out = np.zeros((x.shape[0],) + h.shape)
    for t in range(x.shape[0]):
        xz, xr, xh = np.split(x[t] @ w + b[0], 3, axis=1)
        hz, hr, hh = np.split(h @ u + b[1], 3, axis=1)
        z, r = _sigmoid(xz + hz), _sigmoid(xr + hr)
        h = z * h + (1 - z) * np.tanh(xh + r * hh)
        out[t] = h
    return out, h
