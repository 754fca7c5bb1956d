"""Data pipelines: their elements in order, and how many they say there are."""
import numpy as np

from ops_math import choose
from program import (NIL, call, dictionary, field, function, item, method,
                     pair, var)

X, Y = var("x"), var("y")


def dataset(name, *args, **options):
    return call("data.Dataset." + name, *args, **options)


def numbers(c):
    """A data set of scalars."""
    which = c.whole(0, 2)
    if which == 0:
        return dataset("range", c.whole(0, 20))
    if which == 1:
        return dataset("range", c.whole(-5, 5), c.whole(6, 20), c.whole(1, 3))
    return dataset("from_tensor_slices", c.input(
        c.integers([c.whole(1, 15)], -9, 30, "int64")))


def whole(c, value):
    """A number of the pipeline's dtype, int64."""
    return c.input(np.int64(value))


def mapped(c):
    which = c.whole(0, 2)
    if which == 0:
        return call("add", call("multiply", X, whole(c, 3)), whole(c, 1))
    if which == 1:
        return call("math.floordiv", X, whole(c, 2))
    return call("math.square", X)


def test(c):
    return call("math.equal", call("math.floormod", X, whole(
        c, c.whole(2, 3))), whole(c, c.whole(0, 1)))


def stage(c, ds):
    """One more stage behind a data set of scalars."""
    which = c.whole(0, 16)
    if which == 0:
        return method(ds, "map", function("x", mapped(c)))
    if which == 1:
        return method(ds, "filter", function("x", test(c)))
    if which == 2:
        return method(ds, "take", c.whole(-1, 8))
    if which == 3:
        return method(ds, "skip", c.whole(0, 5))
    if which == 4:
        return method(ds, "repeat", c.whole(0, 3))
    if which == 5:
        n = c.whole(1, 4)
        return method(ds, "shard", n, c.whole(0, n - 1))
    if which == 6:
        return method(ds, "concatenate", dataset("range", c.whole(0, 6)))
    if which == 7:
        return method(ds, "cache")
    if which == 8:
        return method(ds, "prefetch", c.whole(1, 3))
    if which == 9:
        return method(ds, "take_while", function("x", call(
            "less", X, whole(c, c.whole(0, 20)))))
    if which == 10:
        return method(ds, "flat_map", function("x", call(
            "data.Dataset.from_tensor_slices", call(
                "stack", [X, call("negative", X)]))))
    if which == 11:
        return method(ds, "interleave", function("x", method(
            call("data.Dataset.from_tensors", X), "repeat", c.whole(1, 3))),
            # Without it, TensorFlow looks at the machine.
            cycle_length=c.whole(1, 3), **c.options(block_length=[1, 2]))
    if which == 12:
        return method(ds, "scan", whole(c, 0), function("s x", pair(
            call("add", var("s"), X), call("add", var("s"), X))))
    if which == 13:
        return method(method(ds, "batch", c.whole(1, 4)), "unbatch")
    if which == 14:
        return method(ds, "unique")
    if which == 15:
        ds = method(ds, "window", c.whole(1, 4), **c.options(
            shift=[1, 2, 3], stride=[1, 2], drop_remainder=[True, False]))
        return method(ds, "flat_map", function("x", method(
            method(X, "batch", 9), "map", function("y", call(
                "reduce_sum", Y)))))
    return method(method(ds, "batch", c.whole(2, 5), **c.options(
        drop_remainder=[True])), "map", function("x", call(
            "reduce_max", X)))


def last(c, ds):
    which = c.whole(0, 6)
    drop = c.options(drop_remainder=[True, False])
    if which == 0:
        return ds
    if which == 1:
        return method(ds, "batch", c.whole(1, 5), **drop)
    if which == 2:
        return method(ds, "enumerate", c.whole(0, 5))
    if which == 3:
        return method(method(ds, "batch", c.whole(2, 4)), "batch", 2, **drop)
    if which == 4:
        ds = method(ds, "map", function("x", pair(X, call(
            "math.square", X))))
        return method(ds, "batch", c.whole(1, 4))
    if which == 5:
        lengths = method(ds, "map", function("x", call(
            "fill", call("reshape", call("math.floormod", X, whole(c, 4)),
                         [1]), X)))
        return method(lengths, "padded_batch", c.whole(1, 4), **drop)
    ds = method(ds, "map", function("x", dictionary(
        a=X, b=call("cast", X, "float32"))))
    return method(ds, "batch", c.whole(1, 3))


def names_of(x):
    """The methods along a pipeline."""
    if not isinstance(x, dict):
        return []
    if "method" in x:
        return names_of(x["of"]) + [x["method"]]
    return [x.get("call", "").split(".")[-1]]


def chains(c):
    ds = numbers(c)
    for _ in range(c.whole(1, 5)):
        ds = stage(c, ds)
    ds = last(c, ds)
    d = c.let("d", ds)
    c.emit(method(d, "cardinality"), "cardinality")
    c.elements(d)
    if c.chance(0.3):
        c.elements(d)
    return " ".join(names_of(ds))


def grouped(c):
    ds = numbers(c)
    size = c.whole(2, 4)
    by = call("math.floormod", X, whole(c, size))
    c.elements(method(ds, "group_by_window", function("x", by), function(
        "k x", method(var("x"), "batch", 10)), window_size=c.whole(1, 4)))
    return "group_by_window"


def bucketed(c):
    ds = method(numbers(c), "map", function("x", call(
        "fill", call("reshape", call("math.floormod", X, whole(c, 7)), [1]),
        X)))
    c.elements(method(ds, "bucket_by_sequence_length", function(
        "x", call("size", X)), [2, 5], [c.whole(1, 3) for _ in range(3)],
        **c.options(drop_remainder=[True], pad_to_bucket_boundary=[False])))
    return "bucket_by_sequence_length"


def together(c):
    parts = [numbers(c) for _ in range(c.whole(2, 3))]
    if c.chance(0.5):
        c.elements(dataset("zip", pair(*parts)))
        return "zip"
    parts = [method(p, "repeat", c.whole(1, 2)) for p in parts]
    c.elements(dataset("choose_from_datasets", parts, dataset(
        "from_tensor_slices", c.input(c.integers([12], 0, len(parts),
                                                 "int64"))),
        stop_on_empty_dataset=c.pick(True, False)))
    return "choose_from_datasets"


def reduced(c):
    ds = stage(c, numbers(c))
    c.emit(method(ds, "reduce", whole(c, 1), function("s x", call(
        "add", var("s"), X))))
    return "reduce"


def components(c):
    n = c.whole(2, 9)
    a, b = c.input(c.normal([n, 2])), c.input(c.integers([n], 0, 5))
    ds = dataset("from_tensor_slices", pair(a, b))
    if c.chance(0.5):
        ds = method(ds, "map", function("x y", pair(call("multiply", X, X), Y,
                                                    call("size", X))))
    elif c.chance(0.5):
        ds = method(ds, "filter", function("x y", call("less", Y, c.input(
            np.int32(3)))))
    ds = method(ds, "batch", c.whole(1, 4), **c.options(
        drop_remainder=[True]))
    if c.chance(0.4):
        ds = method(ds, "rebatch", c.whole(1, 5))
    c.elements(method(ds, "repeat", c.whole(1, 2)))
    return "components " + " ".join(names_of(ds))


def draw(c):
    return choose(c, ((chains, 16), (grouped, 2), (bucketed, 1),
                      (together, 2), (reduced, 1), (components, 3)))


__all__ = ["draw", "NIL", "field", "item"]
