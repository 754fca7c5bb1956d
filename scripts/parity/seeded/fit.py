"""compile and fit on one device, and on several with uneven batches.

TensorFlow trains on one device: what it gives there is what a share of every
batch for each of several replicas must add up to, unless a layer looks at the
whole batch.
"""
import numpy as np

from losses import LOSSES, examples
from ops_math import choose
from optimizers import settings
from program import NIL, call, dictionary, field, method, pair, table

ALL = [1, 2, 3]


def layer(name, *args, **options):
    return call("keras.layers." + name, *args, **options)


def network(c, kind, units, activation):
    """Layers, and the shape of an example."""
    end = layer("Dense", units, activation=activation)
    smooth = c.pick("tanh", "sigmoid", "softplus")
    if kind == "dense":
        return [layer("Dense", c.whole(2, 6), activation=smooth), end], [
            c.whole(2, 5)]
    if kind == "norm":
        # A bias in front has no gradient but rounding.
        return [layer("Dense", 4, use_bias=False),
                layer("BatchNormalization"),
                layer("Activation", smooth), end], [4]
    if kind == "conv":
        return [layer("Conv2D", 2, 3, activation=smooth),
                c.pick(layer("AveragePooling2D", 2), layer("Flatten")),
                layer("Flatten"), end], [6, 6, 2]
    if kind == "recurrent":
        return [layer(c.pick("LSTM", "GRU", "SimpleRNN"), 3), end], [4, 2]
    if kind == "masked":
        return [layer("Masking"), layer("LSTM", 3), end], [4, 2]
    if kind == "steps":
        return [layer("Masking"), layer(
            "SimpleRNN", 3, return_sequences=True), end], [4, 2]
    return [layer("Dense", 4, activation=smooth, kernel_regularizer=call(
        "keras.regularizers.L2", 0.01)), end], [3]


# loss: (units at the end, activation, metrics)
GOALS = {
    "MeanSquaredError": (2, "linear", ["mae", "RootMeanSquaredError"]),
    "Huber": (1, "linear", ["mse"]),
    "MeanAbsoluteError": (2, "linear", ["mse"]),
    "BinaryCrossentropy": (1, "sigmoid", ["accuracy", "AUC", "Precision"]),
    "CategoricalCrossentropy": (3, "softmax", ["accuracy", "mse"]),
    "SparseCategoricalCrossentropy": (3, "softmax", ["accuracy"]),
    "Poisson": (1, "softplus", ["mae"]),
}


def metrics_of(c, names):
    return [n if n.islower() else call("keras.metrics." + n, name=n.lower())
            for n in names if c.chance(0.5)]


def feed(c, kind, x, y, w, batch):
    """The arguments of fit behind self."""
    if kind == "arrays":
        options = {"batch_size": batch, "shuffle": False}
        if w is not None:
            options["sample_weight"] = w
        return [x, y], options
    parts = pair(x, y) if w is None else pair(x, y, w)
    ds = call("data.Dataset.from_tensor_slices", parts)
    return [method(ds, "batch", batch)], {}


def train(c):
    kind = c.pick("dense", "dense", "dense", "norm", "conv", "recurrent",
                  "masked", "steps", "penalty")
    loss = c.pick(*GOALS)
    units, activation, metrics = GOALS[loss]
    layers, shape = network(c, kind, units, activation)
    rows, batch = c.whole(5, 20), c.whole(2, 7)
    x = c.normal([rows] + shape)
    if kind in ("masked", "steps"):
        lengths = c.integers([rows, 1], 1, shape[0] + 1)
        x[np.arange(shape[0])[None, :] >= lengths] = 0
    steps = [shape[0]] if kind == "steps" else []
    y, _ = examples(c, LOSSES[loss][0], [rows] + steps + [units])
    weighted = c.chance(0.3)
    w = c.uniform([rows] + steps, 0.2, 2) if weighted else None
    inputs = [c.input(x), c.input(y), None if w is None else c.input(w)]
    name = c.pick("SGD", "Adam", "RMSprop", "SGD", "AdamW", "Nadam")
    rate, title = settings(c, name)
    model = c.let("model", call("keras.Sequential", [
        call("keras.Input", shape)] + layers))
    c.fill(model)
    made = metrics_of(c, metrics)
    compiled = {"loss": call("keras.losses." + loss),
                "optimizer": call("keras.optimizers." + name, **rate)}
    if made:
        key = "weighted_metrics" if weighted and c.chance(0.5) else "metrics"
        compiled[key] = made
    c.let("_", method(model, "compile", **compiled))
    way = c.pick("arrays", "arrays", "dataset")
    args, options = feed(c, way, *inputs, batch)
    options.update(epochs=c.whole(1, 3), verbose=0)
    extra = ""
    if way == "arrays" and not weighted and c.chance(0.2):
        options["validation_split"], extra = 0.3, ", validation"
    elif not weighted and not steps and units > 1 and c.chance(0.2) \
            and LOSSES[loss][0] in ("onehot", "sparse"):
        options["class_weight"] = table({0: 0.5, 1: 2.0, 2: 1.0})
        extra = ", class_weight"
    history = c.let("history", method(model, "fit", *args, **options))
    c.emit(field(history, "history"), "history")
    c.emit(field(model, "weights"), "weights")
    more = {} if way == "dataset" else {"batch_size": batch}
    if way == "arrays" and weighted:
        more["sample_weight"] = inputs[2]
    c.emit(method(model, "evaluate", *args, verbose=0, return_dict=True,
                  **more), "evaluate")
    c.emit(method(model, "predict", inputs[0], verbose=0, batch_size=batch),
           "predict")
    c.fields["scale"] = 20
    c.fields["traced"] = c.chance(0.1)
    c.fields["replicas"] = [1] if kind == "norm" else ALL
    given = "".join(", " + o for o in sorted(rate) if o in (
        "use_ema", "weight_decay", "clipnorm", "clipvalue",
        "global_clipnorm"))
    return "%s, %s, %s%s%s, %d rows by %d%s%s" % (
        kind, loss, name, given, ", " + title if title else "", rows, batch,
        ", weights" if weighted else "", extra)


def draw(c):
    return choose(c, ((train, 1),))


__all__ = ["draw", "NIL", "dictionary"]
