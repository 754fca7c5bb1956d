"""PyTorch's side of the strategy benchmarks: the networks of steps.c.

usage: python3 torch_ddp.py [all]   answers requests from stdin, a line each:
  single NAME           wall s of a training step on one core
  ddp NAME              the same under DistributedDataParallel: two processes,
                        one core each, gloo
  gloo BYTES            wall s of an all-reduce between the two
  fit NAME IMAGES       wall s of an epoch over so many images of Fashion-MNIST
                        (Adam, loss and accuracy counted), and its accuracy,
                        on one core
  ddpfit NAME IMAGES    the same under DistributedDataParallel
  quit
With "all" as an argument, single and fit run on all cores, and a step of
single has the examples of two ranks. Otherwise set OMP_NUM_THREADS=1 and
OPENBLAS_NUM_THREADS=1: Debian's build has two pools.
"""
import os
import socket
import sys
import time

import torch
from torch import nn
import torch.distributed as dist
import torch.multiprocessing as mp

import fashion

ALL = sys.argv[1:] == ["all"]
torch.set_num_threads(os.cpu_count() if ALL else 1)
WARM = 3


class Sequence(nn.Module):
    """Two LSTM layers and a dense one over all steps."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(512, 512, 2)
        self.dense = nn.Linear(512, 65)

    def forward(self, x):
        return self.dense(self.lstm(x)[0].reshape(-1, 512))


def network(name):
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(),
                             nn.Linear(512, 512), nn.ReLU(),
                             nn.Linear(512, 10))
    if name == "cnn":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Flatten(), nn.Linear(1600, 64), nn.ReLU(),
                             nn.Linear(64, 10))
    if name == "lenet":
        return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear(400, 120), nn.ReLU(),
                             nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    if name == "lstm":
        return Sequence()
    raise ValueError("no network called " + name)


def data(name):
    rows = (50 if name == "lstm" else 64) * (2 if ALL else 1)
    if name == "mlp":
        return torch.randn(rows, 784), torch.randint(0, 10, (rows,))
    if name == "lstm":
        return torch.randn(50, rows, 512), torch.randint(0, 65, (50 * rows,))
    return torch.randn(rows, 1, 28, 28), torch.randint(0, 10, (rows,))


class Training:
    """A network with its data, ready for more steps."""

    def __init__(self, name, wrap=lambda model: model):
        self.x, self.y = data(name)
        self.model = wrap(network(name))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.loss_fn = nn.CrossEntropyLoss()
        self.times = 2 if name == "lstm" else 30
        self.run(WARM)

    def run(self, times):
        for _ in range(times):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss_fn(self.model(self.x), self.y)
            loss.backward()
            self.optimizer.step()
            loss.item()

    def time(self):
        start = time.monotonic()
        self.run(self.times)
        return ((time.monotonic() - start) / self.times,)


def all_reduce(count):
    times = 20 if count > 1 << 18 else 200
    spent = 0
    for turn in range(WARM + times):
        buffer = torch.ones(count)
        dist.barrier()
        start = time.monotonic()
        dist.all_reduce(buffer)
        if turn >= WARM:
            spent += time.monotonic() - start
    return spent / times


class Epochs:
    """A network and the images; batches of 128 are cut for all ranks alike.

    A loop by hand over shuffled rows of one tensor: faster than DataLoader,
    which fetches row by row."""

    def __init__(self, name, limit, wrap=lambda model: model, rank=0, ranks=1):
        x, y = fashion.load(limit)
        self.x, self.y = torch.tensor(x), torch.tensor(y)
        self.shape = (-1, 784) if name == "mlp" else (-1, 1, 28, 28)
        self.model = wrap(network(name))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.loss_fn = nn.CrossEntropyLoss()
        self.rank, self.ranks, self.epoch = rank, ranks, 0
        self.run()

    def run(self):
        generator = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(len(self.x), generator=generator)
        self.epoch += 1
        total, right = torch.zeros(()), torch.zeros((), dtype=torch.int64)
        for batch in order.split(128):
            rows = batch[self.rank::self.ranks]
            x = (self.x[rows].float() / 255).reshape(self.shape)
            y = self.y[rows]
            self.optimizer.zero_grad(set_to_none=True)
            logits = self.model(x)
            loss = self.loss_fn(logits, y)
            loss.backward()
            self.optimizer.step()
            with torch.no_grad():
                total += loss * len(rows)
                right += (logits.argmax(1) == y).sum()
        total.item()
        return right.item() * self.ranks / len(self.x)

    def time(self):
        start = time.monotonic()
        accuracy = self.run()
        return time.monotonic() - start, accuracy


# --- two ranks, which stay for all requests -----------------------------------

def make(what, arguments, wrap=lambda model: model, rank=0, ranks=1):
    if what == "fit":
        return Epochs(arguments[0], int(arguments[1]), wrap, rank, ranks)
    return Training(arguments[0], wrap)


def rank_main(rank, port, pipe):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    made = {}
    while True:
        what, *arguments = pipe.recv()
        try:
            if what == "gloo":
                value = (all_reduce(int(arguments[0]) // 4),)
            else:
                key = (what, *arguments)
                if key not in made:
                    made[key] = make(what[3:], arguments,
                                     nn.parallel.DistributedDataParallel,
                                     rank, 2)
                value = made[key].time()
        except Exception as error:  # told to whoever asked
            value = str(error)
        pipe.send(value)


ranks = []


def start_ranks():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    for rank in range(2):
        ours, theirs = context.Pipe()
        context.Process(target=rank_main, args=(rank, port, theirs),
                        daemon=True).start()
        theirs.close()
        ranks.append(ours)


def two_ranks(words):
    if not ranks:
        start_ranks()
    for pipe in ranks:
        pipe.send(words)
    values = [pipe.recv() for pipe in ranks]
    for value in values:
        if isinstance(value, str):
            raise RuntimeError(value)
    return values[0]


# --- requests ------------------------------------------------------------------

alone = {}


def answer(words):
    if words[0] in ("ddp", "ddpfit", "gloo"):
        return two_ranks(words)
    if words[0] not in ("single", "fit"):
        raise ValueError("no such request: " + words[0])
    key = tuple(words)
    if key not in alone:
        alone[key] = make(words[0], words[1:])
    return alone[key].time()


def main():
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            break
        try:
            print(*("%.9g" % v for v in answer(words)), flush=True)
        except Exception as error:  # the driver prints it and goes on
            print("failed:", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
