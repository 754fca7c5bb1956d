"""Networks, linear algebra and images; with gradients."""
import numpy as np

from ops_math import axes, choose, report
from program import NIL, call, item


def product(c):
    dtype = c.float()
    rank = c.whole(2, 4)
    batch = [c.whole(1, 3) for _ in range(rank - 2)]
    m, k, n = c.whole(1, 5), c.whole(1, 5), c.whole(1, 5)
    options, a, b = {}, [m, k], [k, n]
    if c.chance(0.3):
        options["transpose_a"], a = True, [k, m]
    if c.chance(0.3):
        options["transpose_b"], b = True, [n, k]
    other = batch if c.chance(0.5) else batch[c.whole(0, len(batch)):]
    x, y = c.input(c.normal(batch + a, dtype)), c.input(
        c.normal(other + b, dtype))
    report(c, call("matmul", x, y, **options), x, y, twice=c.chance(0.3))
    return "matmul %s" % dtype


def activation(c):
    x = c.input(c.normal(c.shape(1, 3)))
    name = c.pick("nn.softmax", "nn.log_softmax", "nn.leaky_relu", "nn.gelu",
                  "keras.activations.relu", "keras.activations.softmax",
                  "keras.activations.leaky_relu", "keras.activations.gelu")
    if "softmax" in name:
        options = {"axis": -1} if "keras" in name or c.chance(0.5) else {
            "axis": 0}
        if "keras" in name:
            x = c.input(c.normal([2, 3]))
    elif name == "nn.leaky_relu":
        options = c.options(alpha=[0.1, 0.3])
    elif name == "keras.activations.relu":
        options = c.options(negative_slope=[0.1], max_value=[1.0],
                            threshold=[0.3])
    elif name == "keras.activations.leaky_relu":
        options = c.options(negative_slope=[0.1])
    else:
        options = c.options(approximate=[True, False])
    report(c, call(name, x, **options), x, twice=c.chance(0.3))
    return name


def window(c, dims):
    return [c.whole(1, 3) for _ in range(dims)]


def convolved(c):
    dims = c.pick(1, 2, 2, 3)
    size = [c.whole(4, 7) for _ in range(dims)]
    inner, outer = c.whole(1, 3), c.whole(1, 3)
    x = c.input(c.normal([c.whole(1, 2)] + size + [inner]))
    padding = c.pick("SAME", "VALID")
    strides = dilations = 1
    if c.chance(0.5):
        strides = c.pick(1, 2)
    elif dims < 3:
        dilations = c.pick(1, 2)
    if c.chance(0.25) and dims == 2:
        kernel = c.input(c.normal(window(c, 2) + [inner, c.whole(1, 2)]))
        what = call("nn.depthwise_conv2d", x, kernel,
                    [1, strides, strides, 1], padding,
                    **({"dilations": [dilations] * 2}
                       if dilations > 1 else {}))
        report(c, what, x, kernel)
        return "depthwise_conv2d"
    kernel = c.input(c.normal(window(c, dims) + [inner, outer]))
    if dims == 3:
        what = call("nn.conv3d", x, kernel, [1] + [strides] * 3 + [1], padding)
    else:
        what = call("nn.conv%dd" % dims, x, kernel, strides, padding,
                    dilations=dilations)
    report(c, what, x, kernel)
    return "conv%dd" % dims


def transposed(c):
    dims = c.pick(1, 2, 2, 3)
    size = [c.whole(2, 4) for _ in range(dims)]
    inner, outer = c.whole(1, 3), c.whole(1, 3)
    batch, stride = c.whole(1, 2), c.pick(1, 2)
    x = c.input(c.normal([batch] + size + [inner]))
    kernel = c.input(c.normal([3] * dims + [outer, inner]))
    padding = c.pick("SAME", "VALID")
    out = [(s * stride) if padding == "SAME" else (s - 1) * stride + 3
           for s in size]
    report(c, call("nn.conv%dd_transpose" % dims, x, kernel,
                   [batch] + out + [outer], stride, padding), x, kernel)
    return "conv%dd_transpose" % dims


def pooled(c):
    dims = c.pick(1, 2, 2, 3)
    kind = c.pick("max", "avg")
    size = [c.whole(3, 7) for _ in range(dims)]
    x = c.input(c.normal([c.whole(1, 2)] + size + [c.whole(1, 3)]))
    report(c, call("nn.%s_pool%dd" % (kind, dims), x, c.whole(1, 3),
                   c.whole(1, 3), c.pick("SAME", "VALID")), x)
    return "%s_pool%dd" % (kind, dims)


def normalised(c):
    which = c.whole(0, 5)
    shape = c.shape(2, 4, 4)
    shape = [max(d, 1) for d in shape]
    x = c.input(c.normal(shape))
    if which == 0:
        some = axes(c, len(shape))
        report(c, call("nn.moments", x, [0] if some is NIL else some,
                       **c.options(keepdims=[True])), x)
        return "moments"
    if which == 1:
        weights = c.input(c.uniform(shape, 0.1, 2))
        report(c, call("nn.weighted_moments", x, c.pick([0], [1]), weights,
                       **c.options(keepdims=[True])), x)
        return "weighted_moments"
    if which == 2:
        n = shape[-1]
        parts = [c.input(c.normal([n])), c.input(c.uniform([n], .5, 2)),
                 c.input(c.normal([n])), c.input(c.normal([n]))]
        report(c, call("nn.batch_normalization", x, *parts,
                       c.pick(1e-3, 1e-5)), x, *parts)
        return "batch_normalization"
    if which == 3:
        x = c.input(c.normal([2, 3, 3, c.whole(1, 6)]))
        options = c.options(depth_radius=[1, 2], bias=[2.0], alpha=[0.5],
                            beta=[0.7])
        report(c, call("nn.local_response_normalization", x, **options), x)
        return "lrn"
    if which == 4:
        n = c.whole(1, 3)
        x = c.input(c.normal([c.whole(2, 3), 3, 3, n]))
        scale, offset = c.input(c.normal([n])), c.input(c.normal([n]))
        c.emit(call("nn.l2_loss", x))
        report(c, call("nn.bias_add", call("multiply", x, scale), offset), x,
               scale, offset)
        return "bias_add"
    report(c, call("nn.l2_loss", x), x, twice=True)
    return "l2_loss"


def loss(c):
    n, k = c.whole(1, 5), c.whole(1, 5)
    dtype = c.float()
    logits = c.input(c.normal([n, k], dtype) * c.pick(1, 1, 20))
    which = c.whole(0, 3)
    if which == 0:
        labels = c.rng.random((n, k)).astype(dtype)
        labels = c.input((labels / labels.sum(1, keepdims=True)))
        report(c, call("nn.softmax_cross_entropy_with_logits", labels,
                       logits), logits, labels)
        return "softmax_cross_entropy_with_logits"
    if which == 1:
        report(c, call("nn.sparse_softmax_cross_entropy_with_logits",
                       c.input(c.integers([n], 0, k)), logits), logits,
               twice=c.chance(0.4))
        return "sparse_softmax_cross_entropy_with_logits"
    labels = c.input(c.uniform([n, k], 0, 1, dtype))
    if which == 2:
        report(c, call("nn.sigmoid_cross_entropy_with_logits", labels,
                       logits), logits, labels, twice=c.chance(0.4))
        return "sigmoid_cross_entropy_with_logits"
    report(c, call("nn.weighted_cross_entropy_with_logits", labels, logits,
                   c.number(0.2, 3)), logits, labels)
    return "weighted_cross_entropy_with_logits"


def matrix(c, n, m, dtype, batch):
    return c.normal(batch + [n, m], dtype)


def linear(c):
    dtype = c.pick("float64", "float64", "float32")
    batch = c.pick([], [], [2], [2, 1])
    n, m = c.whole(1, 4), c.whole(1, 4)
    square = matrix(c, n, n, dtype, batch) + (2 * n * np.eye(n)).astype(dtype)
    spd = (square @ np.swapaxes(square, -1, -2) + np.eye(n)).astype(dtype)
    which = c.pick("inv", "det", "slogdet", "cholesky", "solve",
                   "triangular_solve", "logdet", "eigh", "svd", "qr", "pinv",
                   "cholesky_solve", "lstsq", "matrix_rank")
    c.fields["scale"] = 20
    if which in ("inv", "slogdet", "det"):
        x = c.input(square)
        report(c, call("linalg." + which, x), x)
    elif which in ("cholesky", "logdet"):
        x = c.input(spd)
        report(c, call("linalg." + which, x), x)
    elif which == "eigh":
        x = c.input(spd)
        report(c, call("linalg.eigvalsh", x), x)
    elif which == "svd":
        x = c.input(matrix(c, n, m, dtype, batch))
        report(c, call("linalg.svd", x, compute_uv=False), x)
    elif which == "qr":
        x = c.input(matrix(c, n + m, n, dtype, batch))
        # Signs of columns are free: the product is not.
        c.emit(call("abs", item(call("linalg.qr", x), 1)))
    elif which == "pinv":
        x = c.input(matrix(c, n + m, n, dtype, batch))
        report(c, call("linalg.pinv", x))
    elif which == "matrix_rank":
        c.emit(call("linalg.matrix_rank", c.input(
            matrix(c, n, m, dtype, batch))))
    elif which == "lstsq":
        x = c.input(matrix(c, n + m, n, dtype, batch))
        y = c.input(matrix(c, n + m, 2, dtype, batch))
        report(c, call("linalg.lstsq", x, y, **c.options(
            l2_regularizer=[0.1])), x, y)
    elif which == "cholesky_solve":
        x = c.input(np.linalg.cholesky(spd).astype(dtype))
        y = c.input(matrix(c, n, 2, dtype, batch))
        report(c, call("linalg.cholesky_solve", x, y), x, y)
    else:
        x = c.input(square)
        y = c.input(matrix(c, n, 2, dtype, batch))
        report(c, call("linalg." + which, x, y, **c.options(
            adjoint=[True, False], **({"lower": [True, False]}
                                      if which[0] == "t" else {}))), x, y)
    return "linalg.%s %s" % (which, dtype)


def linear_parts(c):
    batch = c.pick([], [], [2])
    n, m = c.whole(1, 4), c.whole(1, 4)
    x = c.input(c.normal(batch + [n, m]))
    which = c.pick("diag", "diag_part", "band_part", "trace", "set_diag",
                   "norm", "normalize", "matvec", "matrix_transpose",
                   "tensor_diag", "tensor_diag_part", "cross", "tensordot",
                   "global_norm")
    options = {}
    if which == "diag":
        x = c.input(c.normal(batch + [n]))
        report(c, call("linalg.diag", x, k=c.whole(-2, 2), **c.options(
            padding_value=[3.0])), x)
    elif which == "diag_part":
        k = c.whole(1 - n, m - 1)
        report(c, call("linalg.diag_part", x, k=k), x)
    elif which == "set_diag":
        k = c.whole(1 - n, m - 1)
        size = min(n + min(k, 0), m - max(k, 0))
        d = c.input(c.normal(batch + [size]))
        report(c, call("linalg.set_diag", x, d, k=k), x, d)
    elif which == "band_part":
        report(c, call("linalg.band_part", x, c.whole(-1, n), c.whole(-1, m)),
               x)
    elif which == "norm":
        kind = c.pick("euclidean", 1, 2, 3, float("inf"), "fro")
        if kind == float("inf"):
            kind = 1
        axis = c.pick(NIL, 0, -1, [-2, -1])
        if axis == [-2, -1] and kind in (2, 3):
            kind = "euclidean"
        if kind == "fro" and axis != [-2, -1]:
            kind = "euclidean"
        report(c, call("norm", x, ord=kind, axis=axis, **c.options(
            keepdims=[True])), x)
    elif which == "normalize":
        report(c, call("linalg.normalize", x, axis=c.pick(NIL, 0, -1)), x)
    elif which == "matvec":
        v = c.input(c.normal(batch + [m]))
        report(c, call("linalg.matvec", x, v), x, v)
    elif which == "tensor_diag":
        x = c.input(c.normal(c.shape(1, 2, 3)))
        report(c, call("linalg.tensor_diag", x), x)
    elif which == "tensor_diag_part":
        x = c.input(c.normal([n, m, n, m]))
        report(c, call("linalg.tensor_diag_part", x), x)
    elif which == "cross":
        a, b = c.input(c.normal(batch + [3])), c.input(c.normal(batch + [3]))
        report(c, call("linalg.cross", a, b), a, b)
    elif which == "tensordot":
        a = c.input(c.normal([2, n, m]))
        b = c.input(c.normal([n, m, 3]))
        report(c, call("tensordot", a, b, c.pick(2, [[1], [0]],
                                                 [[2, 1], [1, 0]])), a, b)
    elif which == "global_norm":
        y = c.input(c.normal([3]))
        report(c, call("linalg.global_norm", [x, y]), x, y)
    else:
        report(c, call("linalg." + which, x, **options), x)
    return "linalg." + which


def image(c):
    rank3 = c.chance(0.3)
    h, w = c.whole(1, 6), c.whole(1, 6)
    shape = ([] if rank3 else [c.whole(1, 2)]) + [h, w, c.pick(1, 3)]
    x = c.input(c.uniform(shape))
    rgb = c.input(c.uniform(shape[:-1] + [3]))
    which = c.pick("resize", "resize", "resize", "flip_left_right",
                   "flip_up_down", "rot90", "transpose", "adjust_brightness",
                   "adjust_contrast", "rgb_to_grayscale", "grayscale_to_rgb",
                   "crop_to_bounding_box", "pad_to_bounding_box",
                   "resize_with_crop_or_pad", "resize_with_pad",
                   "central_crop", "per_image_standardization",
                   "space_to_depth", "convert_image_dtype")
    name, wrt = "image." + which, [x]
    if which == "resize":
        kind = c.pick("bilinear", "nearest", "bicubic", "area", "lanczos3",
                      "lanczos5", "gaussian", "mitchellcubic")
        options = {}
        if kind not in ("nearest", "area"):
            options = c.options(antialias=[True, False])
        if kind == "area":
            wrt = []
        what = call(name, x, [c.whole(1, 9), c.whole(1, 9)], method=kind,
                    **options)
        name += " " + kind
    elif which in ("flip_left_right", "flip_up_down", "transpose"):
        what = call(name, x)
    elif which == "rot90":
        what = call(name, x, k=c.whole(0, 5))
    elif which == "adjust_brightness":
        what = call(name, x, c.number(-1, 1))
    elif which == "adjust_contrast":
        what = call(name, x, c.number(0, 2))
    elif which == "rgb_to_grayscale":
        what, wrt = call(name, rgb), [rgb]
    elif which == "grayscale_to_rgb":
        x = c.input(c.uniform(shape[:-1] + [1]))
        what, wrt = call(name, x), [x]
    elif which == "crop_to_bounding_box":
        top, left = c.whole(0, h - 1), c.whole(0, w - 1)
        what = call(name, x, top, left, c.whole(1, h - top),
                    c.whole(1, w - left))
    elif which == "pad_to_bounding_box":
        top, left = c.whole(0, 3), c.whole(0, 3)
        what = call(name, x, top, left, h + top + c.whole(0, 3),
                    w + left + c.whole(0, 3))
    elif which in ("resize_with_crop_or_pad", "resize_with_pad"):
        what = call(name, x, c.whole(1, 9), c.whole(1, 9))
    elif which == "central_crop":
        what = call(name, x, c.pick(0.3, 0.5, 0.75, 0.9, 1.0))
    elif which == "per_image_standardization":
        what = call(name, x)
    elif which == "convert_image_dtype":
        x = c.input(c.integers(shape, 0, 255, "uint8"))
        what, wrt = call(name, x, c.pick("float32", "float64", "int32",
                                         "uint8")), []
    else:
        x = c.input(c.normal([2, 4, 6, c.pick(1, 4)]))
        name, wrt = "nn.space_to_depth", [x]
        what = call(name, x, 2)
        if c.chance(0.5):
            what = call("nn.depth_to_space", what, 2)
    report(c, what, *wrt)
    return name


KINDS = ((product, 10), (activation, 10), (convolved, 14), (transposed, 6),
         (pooled, 10), (normalised, 12), (loss, 12), (linear, 12),
         (linear_parts, 12), (image, 16))


def draw(c):
    return choose(c, KINDS)
