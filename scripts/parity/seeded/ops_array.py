"""Shapes, slices, gathering and scattering; with gradients."""
import numpy as np

from ops_math import choose, report
from program import NIL, call, item


def some(c, low=1, high=4, dtype=None):
    """An input of any kind, and its shape; gradients where it has floats."""
    shape = c.shape(low, high, 4)
    dtype = dtype or c.pick("float32", "float32", "float64", "int32", "int64",
                            "bool")
    if dtype == "bool":
        x = c.rng.random(shape) < 0.5
    elif dtype.startswith("int"):
        x = c.integers(shape, -20, 20, dtype)
    else:
        x = c.normal(shape, dtype)
    x = c.input(x)
    return x, shape, [x] if dtype.startswith("float") else []


def axis_of(c, shape, extra=0):
    rank = len(shape) + extra
    return c.whole(-rank, rank - 1)


def reshaped(c):
    x, shape, wrt = some(c, 0)
    which = c.whole(0, 5)
    size = int(np.prod(shape))
    if which == 0:
        name, what = "reshape", call("reshape", x, [-1] if size else shape)
        for d in (2, 3, 4):
            if size and size % d == 0 and c.chance(0.4):
                what = call("reshape", x, [d, -1])
    elif which == 1:
        axis = axis_of(c, shape, 1)
        name, what = "expand_dims", call("expand_dims", x, axis)
    elif which == 2:
        name, what = "squeeze", call("squeeze", x)
    elif which == 3:
        options = {}
        if c.chance(0.6):
            options["perm"] = [int(i) for i in c.rng.permutation(len(shape))]
        name, what = "transpose", call("transpose", x, **options)
    elif which == 4:
        target = [c.whole(1, 3)] * c.whole(0, 2) + [
            c.whole(1, 4) if d == 1 else d for d in shape]
        name, what = "broadcast_to", call("broadcast_to", x, target)
    else:
        name = c.pick("zeros_like", "ones_like", "shape", "size", "rank")
        c.emit(call(name, x))
        return name
    report(c, what, *wrt)
    return name


def joined(c):
    shape = c.shape(1, 3, 4)
    dtype = c.pick("float32", "float64", "int32")
    axis = axis_of(c, shape)
    concat = c.chance(0.5)
    parts = []
    for _ in range(c.whole(1, 4)):
        own = list(shape)
        if concat:
            own[axis] = c.whole(0, 3)
        parts.append(c.input(c.normal(own).astype(dtype)))
    wrt = parts if dtype != "int32" else []
    if concat:
        report(c, call("concat", parts, axis), *wrt)
        return "concat"
    report(c, call("stack", parts, axis=axis_of(c, shape, 1)), *wrt)
    return "stack"


def divided(c):
    x, shape, wrt = some(c, 1, 3)
    axis = axis_of(c, shape)
    size = shape[axis]
    if c.chance(0.3):
        report(c, call("unstack", x, axis=axis), *wrt)
        return "unstack"
    if size >= 2 and c.chance(0.5):
        first = c.whole(0, size)
        report(c, call("split", x, [first, size - first], axis=axis), *wrt)
    else:
        report(c, call("split", x, c.pick(*[n for n in (1, 2, 3, 4)
                                            if size % n == 0]), axis=axis),
               *wrt)
    return "split"


def sliced(c):
    x, shape, wrt = some(c, 1, 3)
    if c.chance(0.5):
        begin = [c.whole(0, d) for d in shape]
        sizes = [c.pick(-1, c.whole(0, d - b)) for d, b in zip(shape, begin)]
        report(c, call("slice", x, begin, sizes), *wrt)
        return "slice"
    begin, end, strides = [], [], []
    for d in shape:
        begin.append(c.whole(-d - 1, d + 1))
        end.append(c.whole(-d - 1, d + 1))
        strides.append(c.pick(1, 1, 2, -1, -2))
    options = c.options(begin_mask=[0, 1, 3], end_mask=[0, 1, 2],
                        shrink_axis_mask=[0])
    report(c, call("strided_slice", x, begin, end, strides, **options), *wrt)
    return "strided_slice"


def padded(c):
    x, shape, wrt = some(c, 1, 3, c.pick("float32", "float64", "int32"))
    mode = c.pick("CONSTANT", "REFLECT", "SYMMETRIC")
    most = {"CONSTANT": lambda d: 3, "REFLECT": lambda d: max(d - 1, 0),
            "SYMMETRIC": lambda d: d}[mode]
    paddings = [[c.whole(0, most(d)), c.whole(0, most(d))] for d in shape]
    options = {}
    if mode == "CONSTANT" and c.chance(0.4):
        options["constant_values"] = c.pick(0, 2, -3)
    report(c, call("pad", x, paddings, mode=mode, **options), *wrt)
    return "pad " + mode


def repeated(c):
    x, shape, wrt = some(c, 1, 3)
    which = c.whole(0, 4)
    if which == 0:
        report(c, call("tile", x, [c.whole(0, 3) if c.chance(.2)
                                   else c.whole(1, 3) for _ in shape]), *wrt)
        return "tile"
    if which == 1:
        axis = axis_of(c, shape)
        repeats = c.whole(0, 3) if c.chance(0.5) else [
            c.whole(0, 3) for _ in range(shape[axis])]
        if repeats == []:
            repeats = 2
        report(c, call("repeat", x, repeats, axis=axis), *wrt)
        return "repeat"
    if which == 2:
        report(c, call("reverse", x, [axis_of(c, shape)]), *wrt)
        return "reverse"
    if which == 3:
        report(c, call("roll", x, c.whole(-5, 5), axis_of(c, shape)), *wrt)
        return "roll"
    x, shape, wrt = some(c, 2, 3)
    lengths = c.integers([shape[0]], 0, shape[1] + 1)
    report(c, call("reverse_sequence", x, c.input(lengths), seq_axis=1,
                   batch_axis=0), *wrt)
    return "reverse_sequence"


def gathered(c):
    x, shape, wrt = some(c, 1, 4)
    shape = [max(d, 1) for d in shape]
    which = c.whole(0, 3)
    if which == 0:
        axis = axis_of(c, shape)
        indices = c.integers(c.shape(0, 2, 4), 0, shape[axis],
                             c.pick("int32", "int64"))
        report(c, call("gather", x, c.input(indices), axis=axis), *wrt)
        return "gather"
    if which == 1 and len(shape) >= 2:
        batch = c.whole(1, len(shape) - 1)
        axis = c.whole(batch, len(shape) - 1)
        indices = c.integers(shape[:batch] + c.shape(0, 2, 3), 0, shape[axis])
        report(c, call("gather", x, c.input(indices), axis=axis,
                       batch_dims=batch), *wrt)
        return "gather batch_dims"
    if which == 2:
        report(c, call("nn.embedding_lookup", x, c.input(
            c.integers(c.shape(0, 2, 4), 0, shape[0]))), *wrt)
        return "embedding_lookup"
    depth = c.whole(1, len(shape))
    batch = c.whole(0, depth - 1)
    rows = shape[:batch] + c.shape(0, 2, 3)
    parts = [c.integers(rows, 0, d) for d in shape[batch:depth]]
    indices = np.stack(parts, -1)
    report(c, call("gather_nd", x, c.input(indices), **(
        {"batch_dims": batch} if batch else {})), *wrt)
    return "gather_nd"


def scattered(c):
    shape = c.shape(1, 3, 4)
    shape = [max(d, 1) for d in shape]
    depth = c.whole(1, len(shape))
    rows = [c.whole(1, 5)]
    name = c.pick("scatter_nd", "update", "add", "sub", "max", "min")
    indices = np.stack([c.integers(rows, 0, d) for d in shape[:depth]], -1)
    if name == "update":  # which of equal rows wins is nobody's promise
        indices = np.unique(indices, axis=0)
        rows = [len(indices)]
    dtype = c.pick("float32", "float64", "int32")
    updates = c.input((c.normal(rows + shape[depth:]) * 3).astype(dtype))
    wrt = [updates] if dtype != "int32" else []
    indices = c.input(indices)
    if name == "scatter_nd":
        report(c, call(name, indices, updates, shape), *wrt)
        return name
    x = c.input((c.normal(shape) * 3).astype(dtype))
    name = "tensor_scatter_nd_" + name
    report(c, call(name, x, indices, updates), *(wrt and [x] + wrt))
    return name


def chosen(c):
    which = c.whole(0, 3)
    if which == 0:
        shape = c.shape(0, 3, 4)
        condition = c.input(c.rng.random(
            [1 if c.chance(0.2) else d for d in shape]) < 0.5)
        a, b = c.input(c.normal(shape)), c.input(c.normal(
            [1 if c.chance(0.2) else d for d in shape]))
        report(c, call("where", condition, a, b), a, b)
        return "where"
    if which == 1:
        c.emit(call("where", c.input(c.rng.random(c.shape(1, 3)) < 0.5)))
        return "where indices"
    x, shape, wrt = some(c, 1, 3)
    if which == 2:
        depth = c.whole(1, len(shape))
        mask = c.input(c.rng.random(shape[:depth]) < 0.6)
        report(c, call("boolean_mask", x, mask), *wrt)
        return "boolean_mask"
    indices = c.input(c.integers(c.shape(0, 2, 4), -1, 6))
    c.emit(call("one_hot", indices, c.whole(1, 6), **c.options(
        on_value=[2.0], off_value=[-1.0], axis=[-1, 0],
        dtype=["float32", "float64"])))
    return "one_hot"


def ordered(c):
    which = c.whole(0, 4)
    shape = c.shape(1, 3, 6)
    dtype = c.pick("float32", "float64", "int32")
    x = c.normal(shape) * 5
    if which != 1 and dtype != "int32":
        x = x + np.arange(x.size).reshape(x.shape) * 1e-3
    x = c.input(x.astype(dtype))
    wrt = [x] if dtype != "int32" else []
    axis = axis_of(c, shape)
    direction = c.options(direction=["ASCENDING", "DESCENDING"])
    if which == 0:
        report(c, call("sort", x, axis=axis, **direction), *wrt)
        return "sort"
    if which == 1:
        c.emit(call("argsort", x, axis=axis, stable=True, **direction))
        return "argsort"
    if which == 2:
        report(c, call("math.top_k", x, k=c.whole(0, shape[-1])), *wrt)
        return "top_k"
    if which == 3:
        v = c.input(c.integers([c.whole(1, 9)], 0, 5))
        c.emit(call(c.pick("unique", "unique_with_counts"), v))
        return "unique"
    rows = c.whole(1, 3)
    sorted_ = c.input(np.sort(c.integers([rows, 6], 0, 9)))
    c.emit(call("searchsorted", sorted_, c.input(
        c.integers([rows, 4], 0, 9)), side=c.pick("left", "right")))
    return "searchsorted"


def made(c):
    which = c.whole(0, 7)
    if which == 0:
        c.emit(call("linspace", c.number(-2, 2), c.number(3, 5),
                    c.whole(1, 7)))
        return "linspace"
    if which == 1:
        c.emit(call("range", c.whole(-3, 3), c.whole(4, 9), c.whole(1, 3)))
        return "range"
    if which == 2:
        c.emit(call("sequence_mask", c.input(c.integers(c.shape(0, 2), 0, 5)),
                    c.whole(1, 6)))
        return "sequence_mask"
    if which == 3:
        parts = [c.input(c.normal([c.whole(1, 3)])) for _ in
                 range(c.whole(1, 3))]
        report(c, call("meshgrid", *parts, **c.options(
            indexing=["xy", "ij"])), *parts)
        return "meshgrid"
    if which == 4:
        c.emit(call("eye", c.whole(1, 4), **c.options(
            num_columns=[2, 5], batch_shape=[[2], [1, 2]])))
        return "eye"
    if which == 5:
        dims = [c.whole(2, 4), c.whole(2, 4)]
        c.emit(call("unravel_index", c.input(
            c.integers([4], 0, dims[0] * dims[1])), dims))
        return "unravel_index"
    if which == 6:
        n = c.whole(1, 6)
        x = c.input(c.normal([n, 2]))
        parts = c.input(c.integers([n], 0, 3))
        report(c, call("dynamic_partition", x, parts, 3), x)
        return "dynamic_partition"
    n = c.whole(2, 6)
    order = c.rng.permutation(n).astype("int32")
    cut = c.whole(1, n - 1)
    a, b = c.input(c.normal([cut, 2])), c.input(c.normal([n - cut, 2]))
    report(c, call("dynamic_stitch", [c.input(order[:cut]),
                                      c.input(order[cut:])], [a, b]), a, b)
    return "dynamic_stitch"


def summed(c):
    """einsum and tensordot."""
    equation = c.pick("ij,jk->ik", "ij,ij->", "bij,bjk->bik", "ij->ji",
                      "ij->", "ii->i", "ii->", "i,j->ij", "abc,cd->abd",
                      "...ij,...jk->...ik", "bhqd,bhkd->bhqk", "ijk->k",
                      "abc,abd->acd")
    size = {letter: c.whole(1, 4) for letter in "abcdhijkq"}
    inputs = []
    for part in equation.split("->")[0].split(","):
        shape = []
        if part.startswith("..."):
            shape, part = [2], part[3:]
        inputs.append(c.input(c.normal(shape + [size[i] for i in part])))
    report(c, call("einsum", equation, *inputs), *inputs, twice=False)
    return "einsum " + equation


KINDS = ((reshaped, 12), (joined, 8), (divided, 6), (sliced, 10), (padded, 6),
         (repeated, 10), (gathered, 12), (scattered, 10), (chosen, 8),
         (ordered, 9), (made, 10), (summed, 5))


def draw(c):
    return choose(c, KINDS)


__all__ = ["draw", "NIL", "item"]
