"""Optimizers with their options over several steps, schedules."""
import numpy as np

from ops_math import choose
from program import NIL, apply, call, method, update

ADAM = dict(beta_1=[0.8, 0.95], beta_2=[0.9, 0.99], epsilon=[1e-3, 1e-7])
OPTIMIZERS = {
    "SGD": dict(momentum=[0.0, 0.9], nesterov=[True, False]),
    "Adam": dict(ADAM, amsgrad=[True, False]),
    "AdamW": dict(ADAM, amsgrad=[True, False], weight_decay=[0.1]),
    "Adamax": ADAM, "Nadam": ADAM,
    "RMSprop": dict(rho=[0.5, 0.95], momentum=[0.5], centered=[True, False],
                    epsilon=[1e-3]),
    "Adagrad": dict(initial_accumulator_value=[0.0, 0.5], epsilon=[1e-3]),
    "Adadelta": dict(rho=[0.5], epsilon=[1e-3]),
    "Ftrl": dict(learning_rate_power=[-0.7, -0.5], beta=[0.2],
                 initial_accumulator_value=[0.3],
                 l1_regularization_strength=[0.05],
                 l2_regularization_strength=[0.1],
                 l2_shrinkage_regularization_strength=[0.2]),
}
CLIPS = (("clipnorm", 0.5), ("clipvalue", 0.3), ("global_clipnorm", 0.7))


def schedule(c):
    """A learning-rate schedule and its name."""
    name = c.pick("ExponentialDecay", "CosineDecay", "CosineDecayRestarts",
                  "InverseTimeDecay", "PolynomialDecay",
                  "PiecewiseConstantDecay")
    rate, steps = c.number(0.01, 0.5), c.whole(2, 8)
    args, options = [rate, steps], {}
    if name in ("ExponentialDecay", "InverseTimeDecay"):
        args.append(c.number(0.3, 0.9))
        options = c.options(staircase=[True])
    elif name == "CosineDecay":
        options = c.options(alpha=[0.1])
        if c.chance(0.5):
            options.update(warmup_target=c.number(0.5, 1), warmup_steps=3)
    elif name == "CosineDecayRestarts":
        options = c.options(t_mul=[1.5], m_mul=[0.7], alpha=[0.1])
    elif name == "PolynomialDecay":
        options = c.options(end_learning_rate=[0.01], power=[2.0, 0.5],
                            cycle=[True])
    else:
        args = [[2, 5], [rate, rate / 2, rate / 4]]
    return call("keras.optimizers.schedules." + name, *args, **options), name


def settings(c, name):
    """Options of an optimizer, and what to call it."""
    options = c.options(**OPTIMIZERS[name])
    options["learning_rate"] = c.number(0.01, 0.3)
    title = ""
    if c.chance(0.2):
        options["learning_rate"], title = schedule(c)
    if c.chance(0.35):
        clip, value = c.pick(*CLIPS)
        options[clip] = value
    if c.chance(0.25):
        options["weight_decay"] = 0.05
    if c.chance(0.2):
        options["use_ema"] = True
        options.update(c.options(ema_momentum=[0.5, 0.9],
                                 ema_overwrite_frequency=[2]))
    return options, title


def steps(c):
    name = c.pick(*OPTIMIZERS)
    options, title = settings(c, name)
    dtype = "float64" if c.chance(0.1) else "float32"
    # Keras keeps rates as float32 and subtracts powers of beta from 1 there.
    c.fields["scale"] = 1e4 if dtype == "float64" else 10
    shapes = [[2, 3], [4]] if c.chance(0.7) else [[1], [3, 1, 2], []]
    rows = c.chance(0.2) and not options.get("weight_decay")
    names = []
    for i, shape in enumerate(shapes):
        names.append(c.let("v%d" % i, call("Variable", c.input(
            c.normal(shape, dtype)))))
    optimizer = c.let("optimizer", call("keras.optimizers." + name,
                                        **options))
    if "weight_decay" in options and c.chance(0.3):
        c.let("_", method(optimizer, "build", names))
        title += " excluded"
        c.program.pop()
        c.let("_", method(optimizer, "exclude_from_weight_decay",
                          var_list=[names[0]]))
    for turn in range(c.whole(2, 5)):
        gradients = []
        for i, shape in enumerate(shapes):
            if rows and len(shape) == 2 and turn % 2 == 0:
                gradients.append(call(
                    "IndexedSlices", c.input(c.normal([1, shape[1]], dtype)),
                    c.input(np.int32([c.whole(0, 1)])),
                    dense_shape=c.input(np.int64(shape))))
            else:
                gradients.append(c.input(
                    c.normal(shape, dtype) * np.asarray(c.pick(1, 1, 3),
                                                        dtype)))
        c.let("_", update(optimizer, gradients, names))
        c.emit(names, "variables after %d" % (turn + 1))
    if options.get("use_ema"):
        c.let("_", method(optimizer, "finalize_variable_values", names))
        c.emit(names, "variables at the end")
    given = ["learning_rate"]
    return "%s %s%s%s%s" % (
        name, dtype, " rows" if rows else "",
        "".join(", " + o for o in sorted(options) if o not in given),
        ", " + title if title else "")


def schedules(c):
    what, name = schedule(c)
    s = c.let("schedule", what)
    for step in (0, 1, 2, 3, 5, 7, 8, 9, 20):
        c.emit(apply(s, c.input(np.float32(step))), "step %d" % step)
    return name


def draw(c):
    return choose(c, ((steps, 12), (schedules, 1)))


__all__ = ["draw", "NIL"]
