"""Layers forward and backward, with masks and states."""
import numpy as np

from ops_math import choose
from program import (apply, call, field, gradient, mask_of, method, weigh)

ACTIVATIONS = ["relu", "tanh", "sigmoid", "elu", "softplus", "gelu", "swish",
               "linear", "hard_sigmoid", "selu"]


def layer(name, *args, **options):
    return call("keras.layers." + name, *args, **options)


def play(c, what, x, weights=True, states=False, **calls):
    """Build, give it weights, call it, take gradients."""
    made = c.let("layer", what)
    floats = [i for i in (x if isinstance(x, list) else [x])
              if c.arrays[i["in"]].dtype.kind == "f"]
    if weights:
        c.let("_", apply(made, x, **calls))
        if states:
            c.let("_", method(made, "reset_states"))
        c.fill(made)
    c.emit(apply(made, x, **calls))
    if states:
        c.emit(apply(made, x, **calls), "second call")
        return
    sources = floats + ([field(made, "trainable_variables")] if weights
                        else [])
    if sources:
        c.emit(gradient(weigh(apply(made, x, **calls)), *sources), "gradient")
    if weights:
        c.emit(field(made, "non_trainable_variables"), "statistics")


def dense(c):
    shape = [c.whole(1, 4)] + [c.whole(1, 4) for _ in range(c.whole(1, 3))]
    options = c.options(activation=ACTIVATIONS, use_bias=[False])
    play(c, layer("Dense", c.whole(1, 5), **options), c.input(c.normal(shape)))
    return "Dense"


def activated(c):
    name = c.pick("ReLU", "LeakyReLU", "ELU", "PReLU", "Softmax",
                  "Activation", "UnitNormalization")
    shape = [c.whole(1, 3)] + [c.whole(1, 4) for _ in range(c.whole(1, 3))]
    args, options = [], {}
    c.fields["scale"] = 10  # sums that cancel
    if name == "ReLU":
        options = c.options(max_value=[1.0], negative_slope=[0.2],
                            threshold=[0.3])
    elif name == "LeakyReLU":
        options = c.options(negative_slope=[0.1])
    elif name == "ELU":
        options = c.options(alpha=[0.5])
    elif name == "Softmax":
        options = c.options(axis=[-1, 1])
    elif name == "Activation":
        args = [c.pick(*ACTIVATIONS, "softmax", "softsign", "exponential",
                       "mish", "relu6")]
    elif name == "PReLU" and len(shape) > 2:
        options = c.options(shared_axes=[[1]])
    play(c, layer(name, *args, **options), c.input(c.normal(shape)),
         weights=name == "PReLU")
    return name


def spatial(c, dims, low=4, high=7, channels=None):
    return c.normal([c.whole(1, 3)] + [c.whole(low, high) for _ in range(dims)]
                    + [channels or c.whole(1, 4)])


def convolved(c):
    dims = c.pick(1, 2, 2, 3)
    kind = c.pick("Conv", "Conv", "Conv", "Depthwise", "Separable",
                  "Transpose")
    options = c.options(activation=ACTIVATIONS, use_bias=[False])
    options["padding"] = c.pick("valid", "same")
    if c.chance(0.4):
        options["strides"] = c.pick(2, 1)
    elif c.chance(0.4) and dims < 3 and kind in ("Conv", "Separable"):
        options["dilation_rate"] = 2
    size = c.whole(1, 3)
    channels = None
    if kind == "Conv":
        args = [c.whole(1, 4), size]
        name = "Conv%dD" % dims
        if dims == 1 and c.chance(0.3):
            options["padding"] = "causal"
        if dims == 2 and c.chance(0.2) and "dilation_rate" not in options:
            options["groups"], channels, args[0] = 2, 4, 4
    elif kind == "Depthwise":
        name, args, dims = "DepthwiseConv2D", [size], 2
        options.update(c.options(depth_multiplier=[2]))
    elif kind == "Separable":
        dims = min(dims, 2)
        name, args = "SeparableConv%dD" % dims, [c.whole(1, 4), size]
        options.update(c.options(depth_multiplier=[2]))
    else:
        name, args = "Conv%dDTranspose" % dims, [c.whole(1, 3), size]
        if options.get("strides") == 2 and c.chance(0.4) and dims < 3:
            options["output_padding"] = 1
    play(c, layer(name, *args, **options),
         c.input(spatial(c, dims, channels=channels)))
    return "%s%s" % (name, "".join(", " + o for o in sorted(options)
                                   if o not in ("activation", "use_bias")))


def pooled(c):
    dims = c.pick(1, 2, 3)
    kind = c.pick("Max", "Average")
    if c.chance(0.3):
        options = c.options(keepdims=[True])
        name = "Global%sPooling%dD" % (kind, dims)
        play(c, layer(name, **options), c.input(spatial(c, dims)), False)
        return name
    name = "%sPooling%dD" % (kind, dims)
    options = c.options(strides=[1, 2, 3], padding=["same", "valid"])
    play(c, layer(name, c.whole(1, 3), **options), c.input(spatial(c, dims)),
         False)
    return name


def normalised(c):
    name = c.pick("BatchNormalization", "BatchNormalization",
                  "LayerNormalization", "GroupNormalization")
    rank = c.whole(2, 4)
    c.fields["scale"] = 10  # means that cancel
    shape = [c.whole(2, 5)] + [c.whole(2, 4) for _ in range(rank - 1)]
    options = c.options(center=[False], scale=[False], epsilon=[1e-2, 1e-5])
    calls = {}
    if name == "BatchNormalization":
        options.update(c.options(momentum=[0.5, 0.9]))
        if c.chance(0.2):
            options["axis"] = 1
        calls["training"] = c.chance(0.6)
        if rank == 3 and c.chance(0.4):
            mask = c.rng.random(shape[:2]) < 0.6
            mask[0, 0] = True
            calls["mask"] = c.input(mask)
            options.pop("axis", None)
    elif name == "LayerNormalization" and rank > 2:
        options.update(c.options(axis=[[1, 2], -1, 1]))
    elif name == "GroupNormalization":
        shape[-1] = 4
        options["groups"] = c.pick(1, 2, 4, -1)
    play(c, layer(name, **options), c.input(c.normal(shape)), **calls)
    return "%s rank %d%s%s" % (
        name, rank, " training" if calls.get("training") else "",
        " masked" if "mask" in calls else "")


def shaped(c):
    dims = c.pick(1, 2, 3)
    x = spatial(c, dims, 3, 5)
    name = c.pick("Flatten", "Reshape", "Permute", "RepeatVector",
                  "ZeroPadding", "Cropping", "UpSampling", "Rescaling",
                  "Resizing", "CenterCrop")
    args, options = [], {}
    if name == "Reshape":
        args = [[-1, x.shape[-1]]]
    elif name == "Permute":
        args = [[int(i) + 1 for i in c.rng.permutation(dims + 1)]]
    elif name == "RepeatVector":
        x, args = c.normal([2, 3]), [c.whole(1, 3)]
    elif name in ("ZeroPadding", "Cropping"):
        name += "%dD" % dims
        pairs = [[c.whole(0, 1), c.whole(0, 1)] for _ in range(dims)]
        args = [pairs[0] if dims == 1 else c.pick(1, pairs)]
    elif name == "UpSampling":
        name += "%dD" % dims
        args = [c.whole(1, 3)]
        if dims == 2:
            options = c.options(interpolation=["nearest", "bilinear"])
    elif name == "Rescaling":
        args = [c.number(0.1, 2)]
        options = c.options(offset=[-1.0, 0.5])
    elif name in ("Resizing", "CenterCrop"):
        x = spatial(c, 2, 3, 5)
        args = [c.whole(2, 3), c.whole(2, 3)]
        if name == "Resizing":
            options = c.options(interpolation=["bilinear", "nearest"])
    play(c, layer(name, *args, **options), c.input(x), False)
    return name


def mask_for(c, x):
    """Some steps do not count; sometimes those at the end alone."""
    n, steps = x.shape[:2]
    if c.chance(0.5):
        lengths = c.integers([n, 1], 0, steps + 1)
        return np.arange(steps)[None, :] < lengths
    return c.rng.random((n, steps)) < 0.6


def recurrent(c):
    name = c.pick("LSTM", "GRU", "SimpleRNN")
    units, n = c.whole(1, 4), c.whole(1, 4)
    x = c.normal([n, c.whole(1, 5), c.whole(1, 4)])
    options = c.options(use_bias=[False], go_backwards=[True],
                        return_sequences=[True, True], return_state=[True],
                        activation=["tanh", "relu", "sigmoid"],
                        unroll=[True], zero_output_for_mask=[True])
    if options.get("zero_output_for_mask"):
        options.pop("unroll", None)
    options.pop("zero_output_for_mask", None)
    if name == "GRU":
        options.update(c.options(reset_after=[False, True],
                                 recurrent_activation=["hard_sigmoid"]))
    elif name == "LSTM":
        options.update(c.options(unit_forget_bias=[False]))
    calls = {}
    if c.chance(0.4):
        calls["mask"] = c.input(mask_for(c, x))
    states = c.chance(0.15)
    if states:
        options["stateful"] = True
    elif c.chance(0.3):
        count = 2 if name == "LSTM" else 1
        initial = [c.input(c.normal([n, units])) for _ in range(count)]
        calls["initial_state"] = initial if count == 2 else initial[0]
    play(c, layer(name, units, **options), c.input(x), states=states, **calls)
    return "%s%s%s" % (
        name, "".join(", " + o for o in sorted(options)
                      if o not in ("activation", "use_bias")),
        "".join(", " + o for o in sorted(calls)))


def cells(c):
    kinds = [c.pick("LSTMCell", "GRUCell", "SimpleRNNCell")
             for _ in range(c.whole(1, 2))]
    made = [layer(kind, c.whole(1, 3)) for kind in kinds]
    options = c.options(return_sequences=[True], go_backwards=[True])
    x = c.normal([2, c.whole(1, 4), 3])
    calls = {"mask": c.input(mask_for(c, x))} if c.chance(0.4) else {}
    play(c, layer("RNN", made if len(made) > 1 else made[0], **options),
         c.input(x), **calls)
    return "RNN of " + " and ".join(kinds) + (" masked" if calls else "")


def wrapped(c):
    x = c.normal([c.whole(1, 3), c.whole(2, 5), c.whole(1, 3)])
    calls = {"mask": c.input(mask_for(c, x))} if c.chance(0.4) else {}
    if c.chance(0.3):
        what = layer("TimeDistributed", layer(
            "Dense", c.whole(1, 3), activation=c.pick(*ACTIVATIONS)))
        play(c, what, c.input(x))
        return "TimeDistributed"
    name = c.pick("LSTM", "GRU", "SimpleRNN")
    options = c.options(return_sequences=[True, True], return_state=[True])
    inner = layer(name, c.whole(1, 3), **options)
    merge = c.options(merge_mode=["concat", "sum", "mul", "ave"])
    play(c, layer("Bidirectional", inner, **merge), c.input(x), **calls)
    return "Bidirectional %s%s%s" % (
        name, "".join(", " + o for o in sorted(options)),
        " masked" if calls else "")


def merged(c):
    name = c.pick("Add", "Subtract", "Multiply", "Average", "Maximum",
                  "Minimum", "Concatenate", "Dot")
    shape = [c.whole(1, 3), c.whole(1, 4), c.whole(1, 4)]
    count = 2 if name in ("Subtract", "Dot") else c.whole(2, 3)
    inputs = []
    for _ in range(count):
        own = list(shape)
        if name == "Concatenate":
            own[-1] = c.whole(1, 3)
        elif c.chance(0.2) and name != "Dot":
            own[1] = 1
        inputs.append(c.input(c.normal(own)))
    args, options = [], {}
    if name == "Dot":
        options = dict(axes=c.pick(1, 2), **c.options(normalize=[True]))
    play(c, layer(name, *args, **options), inputs, False)
    return name


def attending(c):
    n, q, k, d = c.whole(1, 3), c.whole(1, 4), c.whole(1, 4), c.whole(1, 4)
    query, value = c.input(c.normal([n, q, d])), c.input(c.normal([n, k, d]))
    name = c.pick("MultiHeadAttention", "MultiHeadAttention", "Attention",
                  "AdditiveAttention")
    calls = {}
    if c.chance(0.3):
        calls["return_attention_scores"] = True
    if c.chance(0.3) and name != "AdditiveAttention":
        calls["use_causal_mask"] = True
    if name == "MultiHeadAttention":
        options = c.options(value_dim=[2], use_bias=[False],
                            output_shape=[3])
        made = c.let("layer", layer(name, c.whole(1, 3), c.whole(1, 3),
                                    **options))
        if c.chance(0.4):
            mask = c.rng.random((n, q, k)) < 0.7
            mask[:, :, 0] = True
            calls["attention_mask"] = c.input(mask)
        c.let("_", apply(made, query, value, **calls))
        c.fill(made)
        c.emit(apply(made, query, value, **calls))
        c.emit(gradient(weigh(apply(made, query, value, **calls)), query,
                        value, field(made, "trainable_variables")),
               "gradient")
    else:
        options = c.options(use_scale=[True, False])
        if name == "Attention":
            options.update(c.options(score_mode=["dot", "concat"]))
            options.pop("use_scale", None)
        inputs = [query, value]
        if c.chance(0.3):
            inputs.append(c.input(c.normal([n, k, d])))
        if c.chance(0.4):
            masks = [c.rng.random((n, q)) < 0.7, c.rng.random((n, k)) < 0.7]
            masks[1][:, 0] = True
            calls["mask"] = [c.input(m) for m in masks]
        play(c, layer(name, **options), inputs, weights=True, **calls)
    return "%s%s" % (name, "".join(", " + o for o in sorted(calls)))


def embedded(c):
    """Masks that layers make, on their way through others."""
    ids = c.integers([c.whole(1, 4), c.whole(1, 5)], 0, 6)
    made = c.let("embedding", layer("Embedding", 6, c.whole(1, 3),
                                    mask_zero=c.chance(0.7)))
    ids = c.input(ids)
    c.let("_", apply(made, ids))
    c.fill(made)
    x = c.let("x", apply(made, ids))
    c.emit(x)
    c.emit(mask_of(x), "mask")
    c.emit(gradient(weigh(apply(made, ids)), field(
        made, "trainable_variables")), "gradient")
    follow = c.pick("LSTM", "GlobalAveragePooling1D", "Dense", "Dropout",
                    "Add", "Masking", "Concatenate")
    if follow == "LSTM":
        second = layer(follow, 2, return_sequences=c.chance(0.5))
    elif follow == "Dense":
        second = layer(follow, 2)
    elif follow == "Dropout":
        second = layer(follow, 0.5)
    else:
        second = layer(follow)
    second = c.let("second", second)
    inputs = [x, x] if follow in ("Add", "Concatenate") else x
    c.let("_", apply(second, inputs))
    if follow in ("LSTM", "Dense"):
        c.fill(second)
    y = c.let("y", apply(second, inputs))
    c.emit(y, "second layer")
    c.emit(mask_of(y), "mask after")
    return "Embedding, " + follow


def encoded(c):
    which = c.whole(0, 3)
    if which == 0:
        c.emit(apply(layer("CategoryEncoding", 5, output_mode=c.pick(
            "multi_hot", "one_hot", "count")), c.input(
                c.integers([3] if c.chance(0.5) else [3, 2], 0, 5))))
        return "CategoryEncoding"
    if which == 1:
        c.emit(apply(layer("Discretization", [-1., 0., 0.5]), c.input(
            c.normal([2, 3]))))
        return "Discretization"
    if which == 2:
        made = c.let("layer", layer("Normalization"))
        c.let("_", method(made, "adapt", c.input(c.normal([6, 3]))))
        c.emit(apply(made, c.input(c.normal([2, 3]))))
        return "Normalization"
    equation, out, bias = c.pick(("abc,cd->abd", [3, 4], "d"),
                                 ("ab,bc->ac", [4], "c"),
                                 ("abc,cde->abde", [3, 2, 2], "de"))
    shape = [2, 3, 4] if equation[2] == "c" else [2, 5]
    play(c, layer("EinsumDense", equation, out, bias_axes=bias,
                  activation=c.pick(*ACTIVATIONS)), c.input(c.normal(shape)))
    return "EinsumDense " + equation


def regularised(c):
    kind = c.pick("L1", "L2", "L1L2", "OrthogonalRegularizer")
    x = c.input(c.normal([3, 4]))
    made = call("keras.regularizers." + kind, **(
        {"factor": 0.1} if kind[0] == "O" else {}))
    c.emit(apply(made, x))
    c.emit(gradient(weigh(apply(made, x)), x), "gradient")
    kind2 = c.pick("MaxNorm", "UnitNorm", "NonNeg", "MinMaxNorm")
    c.emit(apply(call("keras.constraints." + kind2), x), "constraint")
    return kind + ", " + kind2


KINDS = ((dense, 4), (activated, 6), (convolved, 16), (pooled, 6),
         (normalised, 12), (shaped, 8), (recurrent, 18), (cells, 4),
         (wrapped, 8), (merged, 6), (attending, 9), (embedded, 8),
         (encoded, 4), (regularised, 2))


def draw(c):
    return choose(c, KINDS)
