"""PyTorch's side of the strategy benchmarks: the networks of steps.c, wide
and resnet.

usage: python3 torch_ddp.py [all]   answers requests from stdin, a line each:
  single NAME           wall s of a training step on one core
  compiled NAME         the same with torch.compile
  first NAME            wall s of a compiled step's first call beyond the next
  ddp NAME              a step under DistributedDataParallel: two processes,
                        one core each, gloo
  gloo BYTES            wall s of an all-reduce between the two
  fit NAME IMAGES       wall s of an epoch over so many images of Fashion-MNIST
                        (Adam, loss and accuracy counted), and its accuracy,
                        on one core
  ddpfit NAME IMAGES    the same under DistributedDataParallel
  version               PyTorch's, its first number
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

sys.path.append(os.path.join(os.path.dirname(__file__), "../gpu"))
from residual import resnet_20  # noqa: E402

ALL = sys.argv[1:] == ["all"]
torch.set_num_threads(os.cpu_count() if ALL else 1)
WARM = 3
ROWS = {"lstm": 50, "gpt": 16, "tiny": 4}  # else 64
TIMES = {"lstm": 2, "gpt": 2, "tiny": 1000, "wide": 5, "resnet": 4}  # else 30


class Sequence(nn.Module):
    """Two LSTM layers and a dense one over all steps."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(512, 512, 2)
        self.dense = nn.Linear(512, 65)

    def forward(self, x):
        return self.dense(self.lstm(x)[0].reshape(-1, 512))


class Block(nn.Module):
    """Attention of 4 heads, none of which looks ahead, and two dense layers."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(256) for _ in range(2))
        self.inner, self.outer = nn.Linear(256, 768), nn.Linear(256, 256)
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)
        self.gelu = nn.GELU(approximate="tanh")
        mask = (1 - torch.ones(128, 128).tril()) * -1e9
        self.register_buffer("mask", mask)

    def attend(self, x):
        parts = self.inner(x).reshape(-1, 128, 3, 4, 64)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind()
        shares = (q @ k.transpose(2, 3) / 8 + self.mask).softmax(-1)
        return self.outer((shares @ v).transpose(1, 2).reshape(-1, 128, 256))

    def forward(self, h):
        h = h + self.attend(self.norms[0](h))
        return h + self.down(self.gelu(self.up(self.norms[1](h))))


class Gpt(nn.Module):
    """4 layers, 256 wide, over 128 tokens out of 256."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(256, 256)
        self.places = nn.Parameter(torch.randn(128, 256) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.norm = nn.LayerNorm(256)
        self.head = nn.Linear(256, 256, bias=False)

    def forward(self, x):
        h = self.blocks(self.embedding(x) + self.places)
        return self.head(self.norm(h)).reshape(-1, 256)


def network(name):
    if name == "gpt":
        return Gpt()
    if name == "resnet":
        return resnet_20()
    if name == "tiny":
        return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64),
                             nn.ReLU(), nn.Linear(64, 2))
    if name == "wide":
        hidden = (m for _ in range(3) for m in (nn.Linear(2048, 2048),
                                                nn.ReLU()))
        return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), *hidden,
                             nn.Linear(2048, 10))
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
    rows = ROWS.get(name, 64) * (2 if ALL else 1)
    if name == "gpt":
        return (torch.randint(0, 256, (rows, 128)),
                torch.randint(0, 256, (rows * 128,)))
    if name == "tiny":
        return torch.randn(rows, 4), torch.randint(0, 2, (rows,))
    if name in ("mlp", "wide"):
        size = 784 if name == "mlp" else 1024
        return torch.randn(rows, size), torch.randint(0, 10, (rows,))
    if name == "lstm":
        return torch.randn(50, rows, 512), torch.randint(0, 65, (50 * rows,))
    shape = (3, 32, 32) if name == "resnet" else (1, 28, 28)
    return torch.randn(rows, *shape), torch.randint(0, 10, (rows,))


class Training:
    """A network with its data, ready for more steps."""

    def __init__(self, name, wrap=lambda model: model):
        self.x, self.y = data(name)
        self.model = wrap(network(name))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        self.loss_fn = nn.CrossEntropyLoss()
        self.times = TIMES.get(name, 30)
        first, second = self.seconds(1), self.seconds(1)
        self.first = max(first - second, 0)
        self.run(WARM)

    def run(self, times):
        for _ in range(times):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss_fn(self.model(self.x), self.y)
            loss.backward()
            self.optimizer.step()
            loss.item()

    def seconds(self, times):
        start = time.monotonic()
        self.run(times)
        return time.monotonic() - start

    def time(self):
        return (self.seconds(self.times) / self.times,)


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
    if what == "compiled":
        return Training(arguments[0], torch.compile)
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
    if words[0] == "version":
        return (int(torch.__version__.split(".")[0]),)
    if words[0] in ("ddp", "ddpfit", "gloo"):
        return two_ranks(words)
    if words[0] == "first":
        answer(["compiled", words[1]])
        return (alone["compiled", words[1]].first,)
    if words[0] not in ("single", "compiled", "fit"):
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
