"""PyTorch's side of the parity tests, for the cases that plan.json calls
common: layers written out as Keras defines them, in NumPy's order of axes.

usage: python3 torch_peer.py FOLDER      (see plan.py)
"""
import sys

import numpy as np
import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
import plan as plans  # noqa: E402

torch.set_num_threads(1)
ACTIVATIONS = {None: lambda x: x, "linear": lambda x: x, "tanh": torch.tanh,
               "sigmoid": torch.sigmoid, "relu": torch.relu}


def glorot(shape, rng):
    window = int(np.prod(shape[:-2]))
    limit = np.sqrt(6 / (window * (shape[-2] + shape[-1])))
    return rng.uniform(-limit, limit, shape)


def pair(x):
    return tuple(x) if isinstance(x, list) else (x, x)


class Dense:
    def __init__(self, shape, rng, units, activation=None):
        self.weights = [glorot((shape[-1], units), rng), np.zeros(units)]
        self.activation = ACTIVATIONS[activation]

    def __call__(self, x, w):
        return self.activation(x @ w[0] + w[1])


class Conv2D:
    def __init__(self, shape, rng, filters, size, strides=1, padding="valid",
                 use_bias=True, activation=None):
        self.weights = [glorot(pair(size) + (shape[-1], filters), rng)]
        if use_bias:
            self.weights.append(np.zeros(filters))
        self.options = {"stride": pair(strides), "padding": padding}
        self.activation = ACTIVATIONS[activation]

    def __call__(self, x, w):
        y = F.conv2d(x.permute(0, 3, 1, 2), w[0].permute(3, 2, 0, 1),
                     *w[1:], **self.options)
        return self.activation(y.permute(0, 2, 3, 1))


class Pooling:
    weights = []

    def __init__(self, shape, rng, size=2):
        self.size = size

    def __call__(self, x, w):
        return self.pool(x.permute(0, 3, 1, 2), self.size).permute(0, 2, 3, 1)


class MaxPooling2D(Pooling):
    pool = staticmethod(F.max_pool2d)


class AveragePooling2D(Pooling):
    pool = staticmethod(F.avg_pool2d)


class Flatten:
    weights = []

    def __init__(self, shape, rng):
        pass

    def __call__(self, x, w):
        return x.reshape(len(x), -1)


class Activation:
    weights = []

    def __init__(self, shape, rng, name):
        self.activation = ACTIVATIONS[name]

    def __call__(self, x, w):
        return self.activation(x)


class BatchNormalization:
    """Training only: moments of the batch. The last two weights are the moving
    statistics, which no loss sees."""

    def __init__(self, shape, rng):
        n = shape[-1]
        self.weights = [np.ones(n), np.zeros(n), np.zeros(n), np.ones(n)]
        self.frozen = 2

    def __call__(self, x, w):
        axes = tuple(range(x.dim() - 1))
        mean = x.mean(axes)
        variance = ((x - mean) ** 2).mean(axes)
        return (x - mean) / torch.sqrt(variance + 1e-3) * w[0] + w[1]


class LSTM:
    def __init__(self, shape, rng, units):
        n = shape[-1]
        square, _ = np.linalg.qr(rng.standard_normal((4 * units, units)))
        self.weights = [glorot((n, 4 * units), rng), square.T,
                        np.repeat([0., 1., 0., 0.], units)]
        self.units = units

    def __call__(self, x, w):
        h = c = x.new_zeros(len(x), self.units)
        for t in range(x.shape[1]):
            i, f, g, o = (x[:, t] @ w[0] + h @ w[1] + w[2]).split(
                self.units, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


class Model:
    def __init__(self, case):
        rng = np.random.default_rng(1000 + case["id"])
        x = torch.zeros((2,) + plans.SHAPES[case["x"]])
        self.layers, self.weights, self.trained = [], [], []
        for entry in case["layers"]:
            layer = globals()[entry["class"].split(".")[-1]](
                x.shape, rng, *entry["args"], **entry["options"])
            own = [torch.tensor(np.asarray(w, np.float32))
                   for w in layer.weights]
            x = layer(x, own)
            for w in own[:len(own) - getattr(layer, "frozen", 0)]:
                self.trained.append(w.requires_grad_())
            self.layers.append((layer, own))
            self.weights += own

    def __call__(self, x):
        for layer, own in self.layers:
            x = layer(x, own)
        return x

    def arrays(self):
        return [w.detach().numpy() for w in self.weights]


def optimizer_of(case, weights):
    name = case["optimizer"]["class"].split(".")[-1]
    rate = (case["optimizer"]["args"] or [1e-3])[0]
    if name == "SGD":
        return torch.optim.SGD(weights, rate)
    # epsilon stands beside the root of the corrected mean here, in Keras beside
    # that of the mean itself.
    return torch.optim.Adam(weights, rate, eps=1e-7)


def train(plan, case, replicas):
    model = Model(case)
    plans.save(case, "w", model.arrays())
    optimizer = optimizer_of(case, model.trained)
    adam = isinstance(optimizer, torch.optim.Adam)
    losses, batch = [], case["batch"]
    for i in range(case["steps"]):
        if adam:
            optimizer.param_groups[0]["eps"] = 1e-7 / np.sqrt(
                1 - 0.999 ** (i + 1))
        x = torch.tensor(plan.examples(case["x"], i * batch, batch))
        y = torch.tensor(plan.targets(case["y"], i * batch, batch)).long()
        optimizer.zero_grad()
        # A replica sees its own share: moments are those of the share.
        parts = [F.cross_entropy(model(a), b, reduction="sum")
                 for a, b in zip(x.chunk(replicas), y.chunk(replicas))]
        loss = sum(parts) / batch
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return model, {"losses": losses}


def main(folder):
    plan = plans.Plan(folder)
    for case in plan.cases:
        for n in plan.replicas:
            model, found = train(plan, case, n)
            if len(model.trained) == len(model.weights):
                plans.save(case, f"{n}-f", model.arrays())
            plan.answer(case, n, found)
    plan.finish(f"PyTorch {torch.__version__}")


main(sys.argv[1])
