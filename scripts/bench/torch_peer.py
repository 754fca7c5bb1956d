"""PyTorch's side of the benchmarks: the requests of ours.lua, answered alike.

usage: python3 torch_peer.py            answer requests from stdin
       python3 torch_peer.py first      one training step, then end
Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1: Debian's build has two pools.
"""
import resource
import sys
import time

import torch

torch.set_num_threads(1)
clock = time.process_time
TAPE = 200

vector_a, vector_b = torch.randn(16), torch.randn(16)
matrix_a, matrix_b = torch.randn(4, 4), torch.randn(4, 4)
leaf = torch.randn(16, requires_grad=True)
leaf_matrix = torch.randn(4, 4, requires_grad=True)


def add(n, a=vector_a):
    b = vector_b
    for _ in range(n):
        c = a + b
    return c


def mul(n, a=vector_a):
    b = vector_b
    for _ in range(n):
        c = a * b
    return c


def matmul(n, a=matrix_a):
    b, product = matrix_b, torch.matmul
    for _ in range(n):
        c = product(a, b)
    return c


def backward(n):
    b = vector_b
    for _ in range(0, n, TAPE):
        y = leaf
        for _ in range(TAPE):
            y = y + b
        y.sum().backward()
        leaf.grad = None


def in_coroutine(n):
    a, b = vector_a, vector_b

    def step():
        while True:
            c = a + b
            yield c

    resume = step().__next__
    for _ in range(n):
        resume()


def zeros(n):
    for _ in range(n):
        c = torch.zeros(16)
    return c


OPS = {
    "add": add, "mul": mul, "matmul": matmul,
    "add_tape": lambda n: add(n, leaf),
    "mul_tape": lambda n: mul(n, leaf),
    "matmul_tape": lambda n: matmul(n, leaf_matrix),
    "backward": backward, "coroutine": in_coroutine, "zeros": zeros,
}
sizes = {}


def timed(name):
    run = OPS[name]
    if name not in sizes:
        n = 200
        while True:
            n *= 2
            start = clock()
            run(n)
            if clock() - start > 0.01:
                break
        sizes[name] = n
    n = sizes[name]
    start = clock()
    run(n)
    return (clock() - start) / n


class Elementwise:
    """The same ops as in floor.c and ours.lua."""

    def __init__(self, n):
        self.n = n
        self.x, self.a, self.b = (torch.randn(n) * 0.1 for _ in range(3))
        self.w, self.m, self.v = (torch.zeros(n) for _ in range(3))

    def chain(self):
        t = torch.relu(self.x * self.a + self.b)
        return t * t - self.x

    def sgd(self):
        self.w.sub_(self.a * 1e-9)

    def momentum(self):
        self.m = self.m * 0.9 - self.a * 1e-9
        self.w.add_(self.m)

    def adam(self):
        g = self.a
        self.m.add_((g - self.m) * 0.1)
        self.v.add_((g * g - self.v) * 0.001)
        self.w.sub_(self.m * 1e-9 / (torch.sqrt(self.v) + 1e-7))


arrays = None


def repeated(fn, least):
    calls, start = 0, clock()
    while True:
        more = max(calls, 1)
        for _ in range(more):
            fn()
        calls += more
        if clock() - start >= least:
            return (clock() - start) / calls


def elementwise(name, n):
    global arrays
    if arrays is None or arrays.n != n:
        arrays = Elementwise(n)
        repeated(arrays.chain, 0.1)
    return repeated(getattr(arrays, name), 0.02)


def make_step():
    x = torch.randn(64, 784)
    labels = torch.randint(0, 10, (64,))
    variables = [torch.randn(784, 128) * 0.05, torch.zeros(128),
                 torch.randn(128, 10) * 0.1, torch.zeros(10)]
    for v in variables:
        v.requires_grad_()

    def step():
        h = torch.relu(torch.matmul(x, variables[0]) + variables[1])
        logits = torch.matmul(h, variables[2]) + variables[3]
        loss = torch.nn.functional.cross_entropy(logits, labels)
        gradients = torch.autograd.grad(loss, variables)
        with torch.no_grad():
            for v, g in zip(variables, gradients):
                v.sub_(g * 0.01)
        return loss

    return step


step = None


def training():
    global step
    if step is None:
        step = make_step()
        for _ in range(100):
            step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    start, steps = clock(), 40
    for _ in range(steps):
        step()
    spent = (clock() - start) / steps
    after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return spent, (after - before) / steps


def answer(name, argument):
    if name in OPS:
        return (timed(name),)
    if name in ("chain", "sgd", "momentum", "adam"):
        return (elementwise(name, int(argument)),)
    if name == "step":
        return training()
    raise ValueError("no such request: " + name)


if sys.argv[1:] == ["first"]:
    print(make_step()().item())
    sys.exit(0)

for line in sys.stdin:
    words = line.split()
    if words[0] == "quit":
        break
    try:
        values = answer(words[0], words[1] if len(words) > 1 else "")
        print(" ".join("%.9g" % v for v in values), flush=True)
    except Exception as error:  # the driver prints it and goes on
        print("failed:", str(error).replace("\n", " "), flush=True)
