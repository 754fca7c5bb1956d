"""Metrics over several updates, with weights."""
import numpy as np

from losses import examples, weights_of
from ops_math import choose
from program import apply, call, method

# name: (what is compared, options)
THRESHOLDS = dict(thresholds=[0.3, [0.2, 0.7]])
METRICS = {
    "MeanSquaredError": ("real", {}), "RootMeanSquaredError": ("real", {}),
    "MeanAbsoluteError": ("real", {}), "LogCoshError": ("real", {}),
    "MeanAbsolutePercentageError": ("real", {}),
    "MeanSquaredLogarithmicError": ("positive", {}),
    "CosineSimilarity": ("real", {}), "R2Score": ("real", dict(
        class_aggregation=["uniform_average", "variance_weighted_average"],
        num_regressors=[1])),
    "Hinge": ("sign", {}), "SquaredHinge": ("sign", {}),
    "CategoricalHinge": ("onehot", {}), "Poisson": ("positive", {}),
    "KLDivergence": ("shares", {}),
    "BinaryCrossentropy": ("binary", dict(label_smoothing=[0.1])),
    "CategoricalCrossentropy": ("onehot", dict(label_smoothing=[0.1])),
    "SparseCategoricalCrossentropy": ("sparse", {}),
    "Accuracy": ("labels", {}),
    "BinaryAccuracy": ("binary", dict(threshold=[0.3, 0.6])),
    "CategoricalAccuracy": ("onehot", {}),
    "SparseCategoricalAccuracy": ("sparse", {}),
    "TopKCategoricalAccuracy": ("onehot", dict(k=[1, 2])),
    "SparseTopKCategoricalAccuracy": ("sparse", dict(k=[1, 2])),
    "TruePositives": ("binary", THRESHOLDS),
    "TrueNegatives": ("binary", THRESHOLDS),
    "FalsePositives": ("binary", THRESHOLDS),
    "FalseNegatives": ("binary", THRESHOLDS),
    "Precision": ("binary", dict(THRESHOLDS, class_id=[1], top_k=[1])),
    "Recall": ("binary", dict(THRESHOLDS, class_id=[1], top_k=[1])),
    "AUC": ("binary", dict(
        num_thresholds=[5, 50], curve=["PR", "ROC"],
        summation_method=["interpolation", "minoring", "majoring"])),
    "PrecisionAtRecall": ("binary", dict(num_thresholds=[20])),
    "RecallAtPrecision": ("binary", dict(num_thresholds=[20])),
    "SensitivityAtSpecificity": ("binary", dict(num_thresholds=[20])),
    "SpecificityAtSensitivity": ("binary", dict(num_thresholds=[20])),
    "F1Score": ("onehot", dict(average=["micro", "macro", "weighted"],
                               threshold=[0.4])),
    "FBetaScore": ("onehot", dict(average=["micro", "macro", "weighted"],
                                  beta=[0.5, 2.0], threshold=[0.4])),
    "MeanIoU": ("labels", {}), "IoU": ("labels", {}),
    "BinaryIoU": ("binary", dict(target_class_ids=[[0], [1], [0, 1]],
                                 threshold=[0.3])),
    "OneHotIoU": ("onehot", {}), "OneHotMeanIoU": ("onehot", {}),
}
COUNTED = ("TruePositives", "TrueNegatives", "FalsePositives", "AUC",
           "FalseNegatives", "PrecisionAtRecall", "RecallAtPrecision",
           "SensitivityAtSpecificity", "SpecificityAtSensitivity",
           "BinaryIoU", "Precision", "Recall")
FLAT = ("R2Score", "F1Score", "FBetaScore", "OneHotIoU", "OneHotMeanIoU")


def arguments(c, name, classes):
    """What a constructor needs before its options."""
    if "At" in name:
        return [c.number(0.2, 0.8)]
    if name in ("MeanIoU", "OneHotMeanIoU"):
        return [classes]
    if name in ("IoU", "OneHotIoU"):
        return [classes, c.pick([0], [1], [0, 1])]
    return []


def comparing(c):
    name = c.pick(*METRICS)
    kind, choices = METRICS[name]
    options = c.options(**choices)
    classes = c.whole(2, 4)
    inner = [classes]
    if name not in FLAT and "top_k" not in options and c.chance(0.3):
        inner = [c.whole(1, 3), classes]
    if kind == "binary" and "class_id" not in options \
            and "top_k" not in options:
        inner[-1] = c.whole(1, 3)
    if "num_regressors" in options:
        options["num_regressors"] = 1
    first = arguments(c, name, classes)
    metric = c.let("metric", call("keras.metrics." + name, *first, **options))
    weighted = c.chance(0.5)
    for turn in range(3):
        shape = [c.whole(2, 6)] + inner
        if kind == "labels":
            y, p = (c.integers(shape, 0, classes) for _ in range(2))
        else:
            y, p = examples(c, kind, shape)
        calls = {}
        if weighted and c.chance(0.8):
            if name.endswith("IoU"):  # Keras 3 cuts weights to whole numbers
                w = c.integers(shape[:1] if kind == "onehot" else shape, 0,
                               4).astype("float32")
            elif kind == "labels" or name in FLAT:
                w = c.uniform(shape if kind == "labels" else shape[:1], 0.1,
                              2)
            elif name in COUNTED:
                w = c.uniform(c.pick(shape, shape[:-1] + [1]), 0.1, 2)
            else:
                w = weights_of(c, shape[:-1]) + np.float32(0.05)
            calls["sample_weight"] = c.input(w)
        c.let("_", method(metric, "update_state", c.input(y), c.input(p),
                          **calls))
        c.emit(method(metric, "result"), "result %d" % turn)
        if turn == 1 and c.chance(0.2):
            c.let("_", method(metric, "reset_state"))
    return "%s%s%s" % (name, " weighted" if weighted else "",
                       "".join(", " + o for o in sorted(options)))


def collecting(c):
    name = c.pick("Mean", "Sum", "Mean", "Sum", "MeanTensor")
    if name == "MeanTensor":
        name = "Mean"
    metric = c.let("metric", call("keras.metrics." + name))
    weighted = c.chance(0.6)
    for turn in range(3):
        shape = [c.whole(1, 4)] + c.shape(0, 2, 3)
        shape = [max(d, 1) for d in shape]
        calls = {}
        if weighted:
            w = weights_of(c, shape)
            calls["sample_weight"] = c.input(np.float32(w))
        x = c.input(c.normal(shape if c.chance(0.8) else []))
        if c.arrays[-1].ndim == 0:
            calls = {}
        c.let("_", method(metric, "update_state", x, **calls))
        c.emit(method(metric, "result"), "result %d" % turn)
    return name + (" weighted" if weighted else "")


def functions(c):
    name = c.pick("binary_accuracy", "categorical_accuracy",
                  "sparse_categorical_accuracy", "top_k_categorical_accuracy",
                  "sparse_top_k_categorical_accuracy")
    kind = "sparse" if "sparse" in name else "binary" if "bin" in name \
        else "onehot"
    y, p = examples(c, kind, [c.whole(1, 5), c.whole(2, 5)])
    options = {"k": c.whole(1, 2)} if "top" in name else {}
    c.emit(call("keras.metrics." + name, c.input(y), c.input(p), **options))
    return name


def draw(c):
    return choose(c, ((comparing, 20), (collecting, 4), (functions, 1)))


__all__ = ["draw", "apply"]
