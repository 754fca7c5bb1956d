"""Losses with weights and masks; gradients of the predictions."""
import numpy as np

from ops_math import choose
from program import apply, call, gradient, weigh

# name: (what predictions and targets are, options)
PROBABLE = dict(label_smoothing=[0.1, 0.3])
LOSSES = {
    "MeanSquaredError": ("real", {}), "MeanAbsoluteError": ("real", {}),
    "MeanAbsolutePercentageError": ("real", {}),
    "MeanSquaredLogarithmicError": ("positive", {}),
    "Huber": ("real", dict(delta=[0.5, 2.0])), "LogCosh": ("real", {}),
    "CosineSimilarity": ("real", dict(axis=[-1, 1])),
    "Hinge": ("sign", {}), "SquaredHinge": ("sign", {}),
    "CategoricalHinge": ("onehot", {}), "Poisson": ("positive", {}),
    "KLDivergence": ("shares", {}), "BinaryCrossentropy": ("binary", PROBABLE),
    "BinaryFocalCrossentropy": ("binary", dict(
        PROBABLE, gamma=[1.0, 3.0], apply_class_balancing=[True],
        alpha=[0.4])),
    "CategoricalCrossentropy": ("onehot", PROBABLE),
    "CategoricalFocalCrossentropy": ("onehot", dict(
        PROBABLE, gamma=[1.0, 3.0], alpha=[0.4])),
    "SparseCategoricalCrossentropy": ("sparse", dict(ignore_class=[0, -1])),
}
LOGITS = ("binary", "onehot", "sparse")
REDUCTIONS = ("sum_over_batch_size", "sum", "none", "mean",
              "mean_with_sample_weight")


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def examples(c, kind, shape, logits=False):
    """Targets and predictions of a kind."""
    classes = shape[-1]
    if kind == "real":
        return c.normal(shape), c.normal(shape)
    if kind == "positive":
        return c.uniform(shape, 0.1, 3), c.uniform(shape, 0.1, 3)
    if kind == "sign":
        y = c.integers(shape, 0, 2)
        y = y if c.chance(0.3) else y * 2 - 1
        return y.astype("float32"), c.normal(shape)
    if kind == "binary":
        return c.integers(shape, 0, 2).astype("float32"), (
            c.normal(shape) * 2 if logits else saturated(c, c.uniform(shape)))
    p = c.normal(shape) * 2
    p = p if logits or c.chance(0.15) and kind != "shares" else softmax(p)
    p = p if logits else np.abs(p)
    labels = c.integers(shape[:-1], 0, classes)
    if kind == "sparse":
        return labels, saturated(c, p) if not logits else p
    if kind == "shares":
        return softmax(c.normal(shape)), p
    return np.eye(classes, dtype="float32")[labels], p


def saturated(c, p):
    """Probabilities of which some are 0 or 1."""
    p = np.array(p)
    if c.chance(0.2):
        spots = c.rng.random(p.shape) < 0.3
        p[spots] = c.rng.integers(0, 2, p.shape)[spots]
    return p


def weights_of(c, shape):
    """Weights as users give them: for all, of examples, steps or elements.

    Those of examples alone, {n} for {n, steps}, Keras 3 takes for weights of
    steps where the sizes agree, and refuses else: they are not drawn."""
    kind = c.pick("one", "column", "elements", "elements", "elements")
    if kind == "one":
        return np.float32(c.number(0.2, 3))
    dims = shape
    if kind == "column":
        dims = [shape[0], 1] if len(shape) < 3 else shape[:-1] + [1]
    w = c.uniform(dims, 0, 2)
    w[c.rng.random(w.shape) < 0.2] = 0
    return w


def objects(c):
    name = c.pick(*LOSSES)
    kind, choices = LOSSES[name]
    shape = [c.whole(1, 5)] + [c.whole(1, 4) for _ in range(c.whole(0, 2))]
    shape += [c.whole(2, 4)]
    options = c.options(**choices)
    logits = kind in LOGITS and c.chance(0.5) and name[-5:] != "Hinge"
    if logits:
        options["from_logits"] = True
    if "axis" in options:
        options["axis"] = -1
    if c.chance(0.8):
        options["reduction"] = c.pick(*REDUCTIONS)
    y, p = (c.input(a) for a in examples(c, kind, shape, logits))
    calls = {}
    title = "%s %s" % (name, options.get("reduction", "default"))
    if c.chance(0.6):
        weights = weights_of(c, shape[:-1])
        calls["sample_weight"] = c.input(weights)
        title += ", weights of rank %d of %d" % (weights.ndim, len(shape) - 1)
    for option in ("from_logits", "label_smoothing", "ignore_class"):
        if option in options:
            title += ", " + option
    loss = c.let("loss", call("keras.losses." + name, **options))
    what = apply(loss, y, p, **calls)
    c.emit(what)
    c.emit(gradient(weigh(what), p), "gradient")
    return title


def functions(c):
    name = c.pick("squared_hinge", "hinge", "categorical_hinge", "poisson",
                  "kl_divergence", "cosine_similarity", "huber",
                  "binary_crossentropy", "categorical_crossentropy",
                  "sparse_categorical_crossentropy",
                  "binary_focal_crossentropy",
                  "categorical_focal_crossentropy")
    kind = {"squared_hinge": "sign", "hinge": "sign", "poisson": "positive",
            "kl_divergence": "shares", "categorical_hinge": "onehot"}.get(
                name, "sparse" if name.startswith("sparse") else
                "onehot" if name.startswith("cat") else
                "binary" if name.startswith("bin") else "real")
    shape = [c.whole(1, 4) for _ in range(c.whole(1, 2))] + [c.whole(2, 4)]
    options = {}
    if kind in LOGITS and c.chance(0.5) and name != "categorical_hinge":
        options["from_logits"] = True
    y, p = (c.input(a) for a in examples(c, kind, shape,
                                         bool(options)))
    what = call("keras.losses." + name, y, p, **options)
    c.emit(what)
    c.emit(gradient(weigh(what), p), "gradient")
    return name + (", from_logits" if options else "")


def masked(c):
    """The predictions carry the mask of a layer."""
    n, steps, k = c.whole(1, 4), c.whole(2, 5), c.whole(2, 3)
    x = c.uniform([n, steps, k], 0.1, 1)
    x[c.rng.random([n, steps]) < 0.4] = 0
    name = c.pick("MeanSquaredError", "BinaryCrossentropy", "Huber",
                  "CategoricalCrossentropy", "MeanAbsoluteError",
                  "SparseCategoricalCrossentropy")
    y, _ = examples(c, LOSSES[name][0], [n, steps, k])
    options, calls = {}, {}
    if c.chance(0.5):
        options["reduction"] = c.pick(*REDUCTIONS)
    if c.chance(0.5):
        calls["sample_weight"] = c.input(weights_of(c, [n, steps]))
    p = apply(call("keras.layers.Masking"), c.input(x))
    c.emit(apply(call("keras.losses." + name, **options), c.input(y), p,
                 **calls))
    return "masked %s %s%s" % (name, options.get("reduction", "default"),
                               ", weights" if calls else "")


def draw(c):
    return choose(c, ((objects, 20), (functions, 4), (masked, 4)))
