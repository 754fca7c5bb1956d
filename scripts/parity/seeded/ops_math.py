"""Elementwise math, reductions, scans, segments; with gradients."""
import numpy as np

from program import NIL, call, gradient, weigh

# Where a function is defined: how its inputs are drawn.
DOMAINS = {
    "normal": lambda c, s, d: c.normal(s, d),
    "positive": lambda c, s, d: c.uniform(s, 0.05, 4, d),
    "unit": lambda c, s, d: c.uniform(s, -0.95, 0.95, d),
    "probability": lambda c, s, d: c.uniform(s, 0.02, 0.98, d),
    "above": lambda c, s, d: c.uniform(s, 1.05, 4, d),
    "two": lambda c, s, d: c.uniform(s, 0.05, 1.95, d),
    "wide": lambda c, s, d: c.normal(s, d) * 4,
}

UNARY = {
    "math.abs": "normal", "math.acos": "unit", "math.acosh": "above",
    "math.asin": "unit", "math.asinh": "normal", "math.atan": "normal",
    "math.atanh": "unit", "math.ceil": "wide", "math.cos": "wide",
    "math.cosh": "normal", "math.digamma": "positive", "math.erf": "normal",
    "math.erfc": "normal", "math.erfcinv": "two", "math.erfinv": "unit",
    "math.exp": "normal", "math.expm1": "normal", "math.floor": "wide",
    "math.lgamma": "positive", "math.log": "positive",
    "math.log1p": "positive", "math.log_sigmoid": "wide",
    "math.ndtri": "probability", "math.negative": "normal",
    "math.reciprocal": "positive", "math.reciprocal_no_nan": "normal",
    "math.rint": "wide", "math.round": "wide", "math.rsqrt": "positive",
    "math.sigmoid": "wide", "math.sign": "normal", "math.sin": "wide",
    "math.sinh": "normal", "math.softplus": "wide", "math.softsign": "normal",
    "math.sqrt": "positive", "math.square": "normal", "math.tan": "unit",
    "math.tanh": "normal", "nn.relu": "normal", "nn.relu6": "wide",
    "nn.elu": "normal", "nn.selu": "normal", "nn.silu": "normal",
    "nn.swish": "normal", "identity": "normal", "nn.crelu": "normal",
    "keras.activations.hard_sigmoid": "wide",
    "keras.activations.mish": "normal",
    "keras.activations.softsign": "normal",
    "keras.activations.exponential": "normal",
    "keras.activations.selu": "normal", "keras.activations.elu": "normal",
}
# Kinks: what a gradient is there is part of what is compared.
KINKS = (0., -0., 1., -1., 2., 6., 3., -3., 0.5)

BINARY = {
    "math.add": "normal", "math.subtract": "normal",
    "math.multiply": "normal", "math.divide": "positive",
    "math.divide_no_nan": "normal", "math.multiply_no_nan": "normal",
    "math.maximum": "normal", "math.minimum": "normal",
    "math.squared_difference": "normal", "math.atan2": "normal",
    "math.pow": "positive", "math.floormod": "positive",
    "math.xdivy": "positive", "math.xlogy": "positive",
    "math.xlog1py": "positive", "math.floordiv": "positive",
    "truncatemod": "positive", "math.igamma": "positive",
    "math.igammac": "positive", "math.zeta": "above",
    "math.truediv": "positive",
}
NO_GRADIENT = ("math.floordiv", "math.igamma", "math.igammac", "math.zeta",
               "math.nextafter")
COMPARED = ("math.equal", "math.not_equal", "math.less", "math.less_equal",
            "math.greater", "math.greater_equal")
WHOLE = ("math.add", "math.subtract", "math.multiply", "math.maximum",
         "math.minimum", "math.floordiv", "math.floormod", "truncatediv",
         "truncatemod", "math.squared_difference", "math.truediv")
SMOOTH = ("math.asinh", "math.atan", "math.cos", "math.cosh", "math.erf",
          "math.exp", "math.expm1", "math.sigmoid", "math.sin", "math.sinh",
          "math.softplus", "math.square", "math.tanh", "math.log",
          "math.sqrt", "math.rsqrt", "math.reciprocal", "nn.elu", "nn.selu",
          "nn.relu", "nn.silu", "math.log_sigmoid", "math.log1p",
          "math.lgamma", "math.tan")


def report(c, what, *inputs, twice=False):
    """Emit a value with its gradients; `twice` those of the gradients too."""
    c.emit(what)
    if inputs:
        c.emit(gradient(weigh(what), *inputs), "gradient")
        if twice:
            first = gradient(weigh(what), *inputs)
            c.emit(gradient(weigh(first), *inputs), "second gradient")


def kinked(c, x):
    """Some elements become such as 0 and 1."""
    x = np.array(x)
    if c.chance(0.3):
        spots = c.rng.random(x.shape) < 0.4
        x[spots] = c.rng.choice(KINKS, x.shape)[spots]
    return x


def broadcast(c):
    """Two shapes that go together."""
    shape = c.shape(0, 4, 4)
    other = [1 if c.chance(0.25) else d for d in shape]
    return (shape, other[c.whole(0, len(other)):]) if c.chance(0.5) \
        else (other, shape)


def unary(c):
    name = c.pick(*UNARY)
    dtype = c.float()
    x = DOMAINS[UNARY[name]](c, c.shape(), dtype)
    if UNARY[name] in ("normal", "wide"):
        x = kinked(c, x)
    if name == "nn.crelu" and x.ndim == 0:
        x = x.reshape(1)
    x = c.input(x)
    report(c, call(name, x), x, twice=name in SMOOTH and c.chance(0.5))
    return "%s %s" % (name, dtype)


def binary(c):
    name = c.pick(*BINARY)
    dtype = c.float()
    a, b = (DOMAINS[BINARY[name]](c, s, dtype) for s in broadcast(c))
    if BINARY[name] == "normal":
        a, b = kinked(c, a), kinked(c, b)
    a, b = c.input(a), c.input(b)
    wrt = () if name in NO_GRADIENT else (a, b)
    if c.chance(0.1):
        b = a
        wrt = wrt and (a,)
    report(c, call(name, a, b), *wrt)
    return "%s %s" % (name, dtype)


def whole(c):
    name = c.pick(*WHOLE, *COMPARED)
    dtype = c.pick("int32", "int64", "int32", "int8", "uint8", "int16")
    low = 0 if dtype == "uint8" else -9
    a, b = (c.integers(s, low, 10, dtype) for s in broadcast(c))
    if "div" in name or "mod" in name:
        b = np.where(b == 0, 3, b).astype(dtype)
    c.emit(call(name, c.input(a), c.input(b)))
    return "%s %s" % (name, dtype)


def logic(c):
    a, b = (c.rng.random(s) < 0.5 for s in broadcast(c))
    name = c.pick("logical_and", "logical_or", "logical_not",
                  "math.logical_xor")
    inputs = [c.input(a), c.input(b)]
    c.emit(call(name, *inputs[:1 if name == "logical_not" else 2]))
    return name


def bits(c):
    name = c.pick("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift",
                  "right_shift", "invert")
    dtype = c.pick("int32", "int64", "uint8", "int8", "int16")
    a, b = (c.integers(s, 0 if dtype == "uint8" else -99, 100, dtype)
            for s in broadcast(c))
    if "shift" in name:
        b = np.abs(b) % 7
    inputs = [c.input(a), c.input(b)]
    c.emit(call("bitwise." + name, *inputs[:1 if name == "invert" else 2]))
    return "bitwise.%s %s" % (name, dtype)


def axes(c, rank, lists=True):
    if rank == 0 or c.chance(0.3):
        return NIL
    if lists and c.chance(0.4):
        some = [i for i in range(rank) if c.chance(0.5)] or [rank - 1]
        return [i - rank if c.chance(0.3) else i for i in some]
    return c.whole(-rank, rank - 1)


def reduced(c):
    name = c.pick("sum", "mean", "max", "min", "prod", "logsumexp", "std",
                  "variance", "euclidean_norm", "any", "all")
    dtype = c.float()
    shape = c.shape(0, 4, 4)
    if name in ("any", "all"):
        x = c.rng.random(shape) < 0.6
        dtype = "bool"
    elif c.chance(0.15) and name in ("sum", "max", "min", "prod", "mean"):
        dtype = c.pick("int32", "int64")
        x = c.integers(shape, -4, 5, dtype)
    else:
        x = c.normal(shape, dtype)
        if name in ("prod", "max", "min") and c.chance(0.4):
            x = np.round(x)
    x = c.input(x)
    options = {"axis": axes(c, len(shape))}
    if c.chance(0.4):
        options["keepdims"] = True
    report(c, call("math.reduce_" + name, x, **options),
           *([x] if dtype.startswith("float") else []),
           twice=name in ("sum", "mean", "prod", "logsumexp", "variance")
           and c.chance(0.4))
    return "reduce_%s %s%s" % (name, dtype,
                               " empty" if 0 in shape else "")


def scanned(c):
    name = c.pick("cumsum", "cumprod", "cumulative_logsumexp", "cumsum")
    dtype = c.float()
    shape = c.shape(1, 3)
    x = c.normal(shape, dtype)
    if name == "cumprod" and c.chance(0.4):
        x = np.round(x)
    x = c.input(x)
    report(c, call("math." + name, x, axis=c.whole(-len(shape),
                                                   len(shape) - 1),
                   **c.options(exclusive=[True, False],
                               reverse=[True, False])), x)
    return "%s %s" % (name, dtype)


def segments(c):
    name = c.pick("sum", "mean", "max", "min", "prod")
    sort = c.chance(0.5)
    rows = c.whole(1, 8)
    shape = [rows] + c.shape(0, 2, 3)
    x = c.normal(shape)
    if c.chance(0.3):
        x = np.round(x)
    x = c.input(x)
    ids = c.integers([rows], 0, 5)
    if sort:
        what = call("math.segment_" + name, x, c.input(np.sort(ids)))
    else:
        name = c.pick(name, "sqrt_n")
        if c.chance(0.2):
            ids[0] = -1
        what = call("math.unsorted_segment_" + name, x, c.input(ids),
                    c.whole(5, 7))
    report(c, what, x)
    return "%ssegment_%s" % ("" if sort else "unsorted_", name)


def chain(c):
    """Several functions on the same values."""
    dtype = c.float()
    shape = c.shape(1, 3, 4)
    a, b = c.input(c.normal(shape, dtype)), c.input(c.normal(shape, dtype))
    x = c.let("x", a)
    pool = [a, b]
    c.program.pop()
    for _ in range(c.whole(2, 6)):
        if c.chance(0.5):
            x = call(c.pick("tanh", "sigmoid", "sin", "nn.softplus", "atan",
                            "square", "nn.relu", "nn.elu"), c.pick(*pool))
        elif c.chance(0.7):
            x = call(c.pick("add", "multiply", "subtract", "maximum"),
                     c.pick(*pool), c.pick(*pool))
        else:
            x = call("nn.softmax", c.pick(*pool), axis=c.pick(-1, 0))
        pool.append(x)
    report(c, x, a, b, twice=c.chance(0.3))
    return "chain %s" % dtype


def clipped(c):
    dtype = c.float()
    x = c.input(kinked(c, c.normal(c.shape(1, 3), dtype)))
    name = c.pick("clip_by_value", "clip_by_norm", "clip_by_global_norm",
                  "clip_by_average_norm")
    if name == "clip_by_value":
        if c.chance(0.3):
            low = c.input(np.array(-1, dtype))
            high = c.input(np.array(0.5, dtype))
            report(c, call(name, x, low, high), x, low, high)
        else:
            report(c, call(name, x, c.pick(-1., -0.5), c.pick(1., 0.5)), x)
    elif name == "clip_by_norm":
        options = {"axes": [0]} if c.chance(0.4) else {}
        report(c, call(name, x, c.number(0.1, 3), **options), x)
    elif name == "clip_by_average_norm":
        name = "clip_by_norm"
        report(c, call(name, x, c.number(0.5, 30)), x)
    else:
        y = c.input(c.normal(c.shape(1, 2), dtype))
        report(c, call(name, [x, y], c.number(0.1, 4)), x, y)
    return "%s %s" % (name, dtype)


def other(c):
    which = c.whole(0, 9)
    x = c.input(c.normal(c.shape(1, 3, 4)))
    if which == 0:
        report(c, call("math.l2_normalize", x, axis=c.pick(-1, 0)), x)
        return "l2_normalize"
    if which == 1:
        list_ = [c.input(c.normal([2, 3])) for _ in range(c.whole(1, 4))]
        report(c, call(c.pick("add_n", "math.accumulate_n"), list_), *list_)
        return "add_n"
    if which == 2:
        parts = [c.input(c.normal([3])) for _ in range(c.whole(1, 4))]
        y = c.input(c.normal([3]))
        report(c, call("math.polyval", parts, y), y, *parts)
        return "polyval"
    if which == 3:
        y = c.input(c.uniform([2, 3], 0.3, 3))
        report(c, call("math.polygamma", c.input(
            np.float32([[1], [2]])), y))
        return "polygamma"
    if which == 4:
        y = c.input(c.uniform([2, 4], 0.3, 3))
        report(c, call("math.lbeta", y), y)
        return "lbeta"
    if which == 5:
        n = c.whole(1, 20)
        arr = c.input(c.integers([n], 0, 8))
        options = c.options(minlength=[3, 12], maxlength=[5])
        if c.chance(0.5):
            options["weights"] = c.input(c.normal([n]))
        c.emit(call("math.bincount", arr, **options))
        return "bincount"
    if which == 6:
        n = c.whole(1, 20)
        options = c.options(num_classes=[6])
        if c.chance(0.5):
            options["weights"] = c.input(c.integers([n], 0, 5))
        c.emit(call("math.confusion_matrix", c.input(c.integers([n], 0, 5)),
                    c.input(c.integers([n], 0, 5)), **options))
        return "confusion_matrix"
    if which == 7:
        y = c.input(np.round(c.normal(c.shape(1, 3))))
        c.emit(call("math.count_nonzero", y, axis=c.pick(NIL, 0, -1),
                    **c.options(keepdims=[True])))
        c.emit(call("math.zero_fraction", y))
        return "count_nonzero"
    if which == 8:
        y = kinked(c, c.normal([3, 4]))
        y[0, 0], y[1, 1] = np.inf, np.nan
        name = c.pick("is_nan", "is_inf", "is_finite")
        c.emit(call("math." + name, c.input(y)))
        return name
    name = c.pick("argmax", "argmin")
    y = c.input(np.round(c.normal(c.shape(1, 3) or [3])))
    c.emit(call("math." + name, y, axis=c.pick(0, -1), **c.options(
        output_type=["int32", "int64"])))
    return name


def cast(c):
    source = c.pick("float32", "float64", "int32", "int64", "bool", "uint8",
                    "float16")
    target = c.pick("float32", "float64", "int32", "int64", "bool", "float16",
                    "int8")
    x = (c.normal(c.shape()) * 5)
    if source == "uint8":
        x = np.abs(x)
    x = c.input(np.asarray(x).astype(source))
    wrt = [x] if "float" in source and "float" in target else []
    name = "cast"
    if "bool" not in (source, target) and "float" not in target:
        name = c.pick("cast", "saturate_cast")
    report(c, call(name, x, target), *wrt)
    return "cast %s to %s" % (source, target)


KINDS = ((unary, 26), (binary, 16), (whole, 8), (logic, 2), (bits, 2),
         (reduced, 18), (scanned, 5), (segments, 6), (chain, 8), (clipped, 4),
         (other, 6), (cast, 4))


def choose(c, kinds):
    total = sum(share for _, share in kinds)
    spot = c.whole(0, total - 1)
    for kind, share in kinds:
        spot -= share
        if spot < 0:
            return kind(c)
    raise AssertionError


def draw(c):
    return choose(c, KINDS)
