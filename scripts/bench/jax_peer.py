"""JAX's side of the benchmarks of strategies.

usage: python jax_peer.py DEVICES [BATCHES]
                                     answers requests from stdin, a line each;
                                     DEVICES CPU devices share the examples of
                                     a step, BATCHES (1) batches each
  step NAME             wall s of a training step of the networks of steps.c
                        and resnet, compiled
  first NAME            wall s of a step's first call beyond the next
  quit
"""
import os
import sys
import time

DEVICES = int(sys.argv[1])
BATCHES = int(sys.argv[2]) if len(sys.argv) > 2 else 1
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=%d" % DEVICES
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

WARM = 3
RATE = 1e-4
rng = np.random.default_rng(1)


def weights(*shapes):
    """A weight for each shape: uniform as Glorot has it, zeros for biases."""
    out = []
    for shape in shapes:
        limit = np.sqrt(6 / (np.prod(shape[:-1]) + shape[-1]))
        out.append(np.float32(rng.uniform(-limit, limit, shape)
                              if len(shape) > 1 else np.zeros(shape)))
    return out


def conv(x, kernel, bias, padding="VALID"):
    y = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jax.nn.relu(y + bias)


def pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1),
                                 (1, 2, 2, 1), "VALID")


def dense(x, w):
    """ReLU between layers of which w has kernels and biases by turns."""
    for i in range(0, len(w), 2):
        x = x @ w[i] + w[i + 1]
        if i + 2 < len(w):
            x = jax.nn.relu(x)
    return x


def lstm(x, kernel, recurrent, bias):
    """All outputs of a layer over {steps, rows, size}."""
    inner = x @ kernel + bias

    def step(state, gates):
        h, c = state
        i, f, g, o = jnp.split(gates + h @ recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], 512), x.dtype)
    return jax.lax.scan(step, (zeros, zeros), inner)[1]


def flat(x):
    return x.reshape(x.shape[0], -1)


def two_convolutions(x, w, padding):
    x = pool(conv(x, w[0], w[1], padding))
    return dense(flat(pool(conv(x, w[2], w[3]))), w[4:])


def sequence(x, w):
    x = lstm(lstm(jnp.swapaxes(x, 0, 1), *w[:3]), *w[3:6])
    return jnp.swapaxes(x, 0, 1) @ w[6] + w[7]


def norm(x, scale, offset):
    """Scales begin at 0: they say by how much more than 1."""
    centered = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centered).mean(-1, keepdims=True)
    return centered * jax.lax.rsqrt(variance + 1e-5) * (1 + scale) + offset


def attend(x, kernel, bias, outer, outer_bias):
    """4 heads over {rows, 128, 256}; none looks ahead."""
    rows = x.shape[0]
    parts = (x @ kernel + bias).reshape(rows, 128, 3, 4, 64)
    q, k, v = parts.transpose(2, 0, 3, 1, 4)
    mask = (1 - jnp.tri(128)) * -1e9
    shares = jax.nn.softmax(q @ k.swapaxes(2, 3) / 8 + mask)
    y = (shares @ v).transpose(0, 2, 1, 3).reshape(rows, 128, 256)
    return y @ outer + outer_bias


def gpt(tokens, w):
    h = w[0][tokens] + w[1]
    for i in range(2, len(w) - 3, 12):
        h = h + attend(norm(h, *w[i:i + 2]), *w[i + 2:i + 6])
        inner = norm(h, *w[i + 6:i + 8]) @ w[i + 8] + w[i + 9]
        h = h + jax.nn.gelu(inner) @ w[i + 10] + w[i + 11]
    return norm(h, w[-3], w[-2]) @ w[-1]


def convolved(x, kernel, scale, offset, strides=1):
    """Batch normalization without its moving averages: 16 to 64 numbers each."""
    y = jax.lax.conv_general_dilated(
        x, kernel, (strides, strides), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    centered = y - y.mean((0, 1, 2))
    variance = jnp.square(centered).mean((0, 1, 2))
    return centered * jax.lax.rsqrt(variance + 1e-3) * (1 + scale) + offset


def resnet(x, w):
    x, at = jax.nn.relu(convolved(x, *w[:3])), 3
    for _, filters, strides in STAGES:
        y = jax.nn.relu(convolved(x, *w[at:at + 3], strides))
        y = convolved(y, *w[at + 3:at + 6])
        at += 6
        if strides > 1:
            x = convolved(x, *w[at:at + 3], strides)
            at += 3
        x = jax.nn.relu(x + y)
    return x.mean((1, 2)) @ w[at] + w[at + 1]


def convolution(size, inputs, filters):
    return (size, size, inputs, filters), (filters,), (filters,)


# Of each block: channels that come and go, strides.
STAGES = ([(16, 16, 1)] * 3 + [(16, 32, 2)] + [(32, 32, 1)] * 2 +
          [(32, 64, 2)] + [(64, 64, 1)] * 2)
RESNET = convolution(3, 3, 16) + sum((
    convolution(3, a, b) + convolution(3, b, b)
    + (convolution(1, a, b) if s > 1 else ()) for a, b, s in STAGES), ())

NORM = (256,), (256,)
BLOCK = (NORM + ((256, 768), (768,), (256, 256), (256,)) + NORM +
         ((256, 1024), (1024,), (1024, 256), (256,)))
GATES = (512, 2048), (512, 2048), (2048,)
# name: (shape of an example, of its labels, classes, weights, function)
NETWORKS = {
    "tiny": ((4,), (), 2, ((4, 64), (64,), (64, 64), (64,), (64, 2), (2,)),
             dense),
    "mlp": ((784,), (), 10, ((784, 512), (512,), (512, 512), (512,),
                             (512, 10), (10,)), dense),
    "cnn": ((28, 28, 1), (), 10, (
        (3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (1600, 64), (64,),
        (64, 10), (10,)), lambda x, w: two_convolutions(x, w, "VALID")),
    "lenet": ((28, 28, 1), (), 10, (
        (5, 5, 1, 6), (6,), (5, 5, 6, 16), (16,), (400, 120), (120,),
        (120, 84), (84,), (84, 10), (10,)),
        lambda x, w: two_convolutions(x, w, "SAME")),
    "lstm": ((50, 512), (50,), 65, GATES + GATES + ((512, 65), (65,)),
             sequence),
    "resnet": ((32, 32, 3), (), 10, RESNET + ((64, 10), (10,)), resnet),
    "gpt": ((128,), (128,), 256,
            ((256, 256), (128, 256)) + BLOCK * 4 + NORM + ((256, 256),), gpt),
}
TIMES = {"lstm": 2, "tiny": 2000, "gpt": 2, "resnet": 4}
ROWS = {"lstm": 50, "tiny": 4, "gpt": 16}


def make_step(name):
    shape, labels, classes, shapes, forward = NETWORKS[name]
    rows = ROWS.get(name, 64) * DEVICES * BATCHES
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    shared = NamedSharding(mesh, PartitionSpec("batch"))
    copied = NamedSharding(mesh, PartitionSpec())
    if name == "gpt":
        x = rng.integers(0, classes, (rows,) + shape)
    else:
        x = np.float32(rng.normal(size=(rows,) + shape))
    x = jax.device_put(x, shared)
    y = jax.device_put(rng.integers(0, classes, (rows,) + labels), shared)
    state = jax.device_put(weights(*shapes), copied)

    def loss_of(w, x, y):
        logits = jax.nn.log_softmax(forward(x, w))
        return -jnp.take_along_axis(logits, y[..., None], -1).mean()

    @jax.jit
    def step(w, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(w, x, y)
        return loss, [a - RATE * g for a, g in zip(w, gradients)]

    def run():
        nonlocal state
        loss, state = step(state, x, y)
        return loss

    return run


steps, firsts = {}, {}


def ready_step(name):
    if name not in steps:
        step = make_step(name)
        begun = [time.monotonic()]
        for _ in range(1 + WARM):
            step().block_until_ready()
            begun.append(time.monotonic())
        firsts[name] = max(begun[1] - begun[0] - (begun[2] - begun[1]), 0)
        steps[name] = step
    return steps[name]


def time_first(name):
    ready_step(name)
    return firsts[name]


def time_step(name):
    step, times = ready_step(name), TIMES.get(name, 30)
    step().block_until_ready()
    start = time.monotonic()
    for _ in range(times):
        loss = step()
    loss.block_until_ready()
    return (time.monotonic() - start) / times


REQUESTS = {"step": time_step, "first": time_first}


def main():
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            break
        try:
            value = REQUESTS[words[0]](words[1])
            print("%.9g" % value, flush=True)
        except Exception as error:  # the driver prints it and goes on
            print("failed:", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
