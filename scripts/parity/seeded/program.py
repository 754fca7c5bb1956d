"""Programs that TensorFlow and the library both run, and what they print.

A case is { id, family, name, program, inputs, outputs, ... }. Its program is a
list of statements:
  { "let": name, "be": X }     a variable of the program
  { "emit": X, "as": label }   its tensors and numbers are outputs
  { "fill": X }                the weights of a layer or model: the first run
                               draws them and makes them inputs
  { "elements": X, "most": n } the elements of a data set, then how many
An expression X is a number, string, boolean, list of expressions, or one of
  { "in": k }                              input k, a tensor
  { "var": name }                          a variable, or a lambda's parameter
  { "call": path, "args": [], "options": {} }     a function or class of tf
  { "apply": X, "args": [], "options": {} }       a call of an object
  { "method": name, "of": X, "args": [], "options": {} }
  { "field": name, "of": X }               { "item": i, "of": X }, from 0
  { "lambda": [names], "body": X }         { "tuple": [X...] }
  { "dict": {name: X} }                    { "nil": true }
  { "weigh": X }                           one number: all floats of X, each
                                           times its own of a fixed pattern
  { "gradient": X, "wrt": [X...] }         of the number X
  { "update": X, "gradients": [X...], "variables": [X...] }    by optimizer X
  { "mask_of": X }                         what a layer left with its output
  { "table": [[key, X]...] }               keys that are no strings
Arrays lie one behind the other in vectors, one for each dtype; what stands in
a case is [dtype, first, shape].
"""
import json

import numpy as np
import tensorflow as tf

KINDS = ("float32", "float64", "float16", "int8", "int16", "int32", "int64",
         "uint8", "bool")


class Store:
    """Arrays of a plan, one behind the other."""

    def __init__(self):
        self.parts = {kind: [] for kind in KINDS}
        self.counts = {kind: 0 for kind in KINDS}

    def add(self, array):
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        kind = array.dtype.name
        first = self.counts[kind]
        self.parts[kind].append(array.ravel())
        self.counts[kind] += array.size
        return [kind, first, list(array.shape)]

    def save(self, path, plan):
        text = np.frombuffer(json.dumps(plan).encode(), np.uint8)
        vectors = {kind: np.concatenate(parts)
                   for kind, parts in self.parts.items() if parts}
        np.savez_compressed(path, plan=text, **vectors)


# --- expressions -------------------------------------------------------------

def var(name):
    return {"var": name}


def call(path, *args, **options):
    return {"call": path, "args": list(args), "options": options}


def apply(what, *args, **options):
    return {"apply": what, "args": list(args), "options": options}


def method(of, name, *args, **options):
    return {"method": name, "of": of, "args": list(args), "options": options}


def field(of, name):
    return {"field": name, "of": of}


def item(of, i):
    return {"item": i, "of": of}


def function(names, body):
    return {"lambda": names.split(), "body": body}


def pair(*values):
    return {"tuple": list(values)}


def dictionary(**values):
    return {"dict": values}


def weigh(of):
    return {"weigh": of}


def gradient(of, *wrt):
    return {"gradient": of, "wrt": list(wrt)}


def update(optimizer, gradients, variables):
    return {"update": optimizer, "gradients": gradients,
            "variables": variables}


def mask_of(of):
    return {"mask_of": of}


def table(of):
    return {"table": [[key, value] for key, value in of.items()]}


NIL = {"nil": True}


class Case:
    """A case in the making; `rng` decides everything about it."""

    def __init__(self, rng):
        self.rng = rng
        self.program, self.arrays, self.fields = [], [], {}

    def input(self, array):
        self.arrays.append(np.asarray(array))
        return {"in": len(self.arrays) - 1}

    def let(self, name, be):
        self.program.append({"let": name, "be": be})
        return var(name)

    def emit(self, what, label="value"):
        self.program.append({"emit": what, "as": label})

    def fill(self, what):
        self.program.append({"fill": what})

    def elements(self, what, most=60):
        self.program.append({"elements": what, "most": most})

    # What is drawn.

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *values):
        return values[self.rng.integers(len(values))]

    def whole(self, low, high):
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def number(self, low, high, digits=3):
        return round(float(self.rng.uniform(low, high)), digits)

    def shape(self, low=0, high=4, most=5):
        dims = [self.whole(1, most) for _ in range(self.whole(low, high))]
        if dims and self.chance(0.03):
            dims[self.whole(0, len(dims) - 1)] = 0
        return dims

    def float(self):
        return self.pick("float32", "float32", "float32", "float64")

    def normal(self, shape, dtype="float32"):
        return self.rng.normal(size=shape).astype(dtype)

    def uniform(self, shape, low=0., high=1., dtype="float32"):
        return self.rng.uniform(low, high, shape).astype(dtype)

    def integers(self, shape, low, high, dtype="int32"):
        """From low to high - 1."""
        return self.rng.integers(low, high, shape).astype(dtype)

    def options(self, **choices):
        """Some of the options, each with one of its values."""
        return {name: self.pick(*values) for name, values in choices.items()
                if self.chance(0.5)}


# --- running a program on TensorFlow -----------------------------------------

def pattern(count):
    """-15/16, ..., 17/16: numbers that every float dtype has."""
    return (np.arange(count) * 37 % 17 - 8) / 8 + 1 / 16


def leaves(x):
    """Tensors, numbers and None of a structure in order."""
    if isinstance(x, (list, tuple)):
        return [leaf for each in x for leaf in leaves(each)]
    if isinstance(x, dict):
        return [leaf for key in sorted(x) for leaf in leaves(x[key])]
    return [x]


def weighed(x):
    total = None
    for leaf in leaves(x):
        if leaf is None:
            continue
        leaf = tf.convert_to_tensor(leaf)
        if not leaf.dtype.is_floating:
            continue
        weights = tf.constant(pattern(int(tf.size(leaf))), leaf.dtype)
        part = tf.reduce_sum(leaf * tf.reshape(weights, tf.shape(leaf)))
        total = part if total is None else total + tf.cast(part, total.dtype)
    return total


class Run:
    def __init__(self, case):
        self.case = case
        self.names, self.tensors = {}, {}
        self.out = []

    def tensor(self, k):
        """Input k: always the same tensor, for gradients."""
        if k not in self.tensors:
            with tf.init_scope():
                self.tensors[k] = tf.constant(self.case.arrays[k])
        return self.tensors[k]

    def value(self, x, names):
        if isinstance(x, list):
            return [self.value(each, names) for each in x]
        if not isinstance(x, dict):
            return x
        for kind, evaluate in EVALUATE.items():
            if kind in x:
                return evaluate(self, x, names)
        raise ValueError("no such expression: %s" % x)

    def called(self, fn, x, names):
        return fn(*self.value(x["args"], names),
                  **{k: self.value(v, names) for k, v in x["options"].items()})

    def method(self, x, names):
        of = self.value(x["of"], names)
        out = self.called(getattr(of, x["method"]), x, names)
        if x["method"] == "compile":  # tracing takes seconds, steps do not
            of.run_eagerly = not self.case.fields.get("traced", False)
        return out

    def closure(self, x, names):
        parameters = x["lambda"]

        def fn(*values):
            return self.value(x["body"], {**names,
                                          **dict(zip(parameters, values))})
        # Keras looks at the number of parameters.
        scope = {"fn": fn}
        text = ", ".join(parameters)
        return eval("lambda %s: fn(%s)" % (text, text), scope)

    def derivative(self, x, names):
        sources = leaves(self.value(x["wrt"], names))
        with tf.GradientTape() as tape:
            for source in sources:
                if tf.is_tensor(source) and not hasattr(source, "assign"):
                    tape.watch(source)
            target = self.value(x["gradient"], names)
        return tape.gradient(target, sources)

    def step(self, x, names):
        gradients = self.value(x["gradients"], names)
        variables = self.value(x["variables"], names)
        self.value(x["update"], names).apply_gradients(
            zip(gradients, variables))

    def emit(self, x, label="value"):
        for leaf in leaves(x):
            if leaf is None:
                self.out.append([label, None])
                continue
            if "seed_generator" in getattr(leaf, "path", ""):
                continue
            if isinstance(leaf, tf.IndexedSlices):
                leaf = tf.convert_to_tensor(leaf)
            if isinstance(leaf, float):  # as exact as what it was made from
                leaf = np.float32(leaf)
            self.out.append([label, np.asarray(leaf)])

    def fill(self, x):
        """Weights of a layer, or of all things in a list."""
        for owner in leaves(x):
            arrays = []
            for weight in owner.weights:
                draw = self.case.rng.normal(size=weight.shape) * 0.4
                if "variance" in weight.name:
                    draw = 0.5 + draw ** 2
                arrays.append(draw.astype(weight.dtype))
                self.case.input(arrays[-1])
            owner.set_weights(arrays)
        return len(self.case.arrays)

    def run(self):
        for statement in self.case.program:
            if "let" in statement:
                self.names[statement["let"]] = self.value(statement["be"],
                                                          self.names)
            elif "emit" in statement:
                self.emit(self.value(statement["emit"], self.names),
                          statement["as"])
            elif "fill" in statement:
                statement["first"] = len(self.case.arrays)
                self.fill(self.value(statement["fill"], self.names))
            else:
                self.elements(statement)
        return self.out

    def elements(self, statement):
        count = 0
        for element in self.value(statement["elements"], self.names):
            if count == statement["most"]:
                break
            self.emit(element, "element %d" % count)
            count += 1
        self.emit(count, "elements")


def found(path):
    at = tf
    for name in path.split("."):
        at = getattr(at, name)
    return at


EVALUATE = {
    "in": lambda run, x, names: run.tensor(x["in"]),
    "var": lambda run, x, names: names[x["var"]],
    "call": lambda run, x, names: run.called(found(x["call"]), x, names),
    "apply": lambda run, x, names: run.called(run.value(x["apply"], names), x,
                                              names),
    "method": lambda run, x, names: run.method(x, names),
    "field": lambda run, x, names: getattr(run.value(x["of"], names),
                                           x["field"]),
    "item": lambda run, x, names: run.value(x["of"], names)[x["item"]],
    "lambda": lambda run, x, names: run.closure(x, names),
    "tuple": lambda run, x, names: tuple(run.value(x["tuple"], names)),
    "dict": lambda run, x, names: {k: run.value(v, names)
                                   for k, v in x["dict"].items()},
    "nil": lambda run, x, names: None,
    "weigh": lambda run, x, names: weighed(run.value(x["weigh"], names)),
    "gradient": lambda run, x, names: run.derivative(x, names),
    "update": lambda run, x, names: run.step(x, names),
    "mask_of": lambda run, x, names: getattr(
        run.value(x["mask_of"], names), "_keras_mask", None),
    "table": lambda run, x, names: {key: run.value(each, names)
                                    for key, each in x["table"]},
}


def finish(case, store):
    """Run the case on TensorFlow; what stands in the plan."""
    out = Run(case).run()
    return {**case.fields, "program": case.program,
            "inputs": [store.add(a) for a in case.arrays],
            "outputs": [[label, None if a is None else store.add(a)]
                        for label, a in out]}
