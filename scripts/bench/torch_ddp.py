"""PyTorch's side of the strategy benchmarks: the networks of steps.c.

usage: python3 torch_ddp.py       answers requests from stdin, a line each:
  single NAME           wall s of a training step on one core
  ddp NAME              the same under DistributedDataParallel: two processes,
                        one core each, gloo
  gloo BYTES            wall s of an all-reduce between the two
  quit
Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1: Debian's build has two pools.
"""
import os
import socket
import sys
import time

import torch
from torch import nn
import torch.distributed as dist
import torch.multiprocessing as mp

torch.set_num_threads(1)
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
    if name == "mlp":
        return torch.randn(64, 784), torch.randint(0, 10, (64,))
    if name == "lstm":
        return torch.randn(50, 50, 512), torch.randint(0, 65, (2500,))
    return torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))


def train(name, model):
    x, y = data(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loss_fn = nn.CrossEntropyLoss()
    times = 2 if name == "lstm" else 30
    for turn in range(WARM + times):
        if turn == WARM:
            start = time.monotonic()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
    return (time.monotonic() - start) / times


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


def rank_main(rank, port, what, argument, queue):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.sched_setaffinity(0, {rank % os.cpu_count()})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    if what == "ddp":
        model = nn.parallel.DistributedDataParallel(network(argument))
        value = train(argument, model)
    else:
        value = all_reduce(int(argument) // 4)
    if rank == 0:
        queue.put(value)
    dist.destroy_process_group()


def two_ranks(what, argument):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(rank_main, (port, what, argument, queue), nprocs=2)
    return queue.get()


def answer(what, argument):
    if what == "single":
        return train(argument, network(argument))
    if what in ("ddp", "gloo"):
        return two_ranks(what, argument)
    raise ValueError("no such request: " + what)


def main():
    for line in sys.stdin:
        words = line.split()
        if words[0] == "quit":
            break
        try:
            print("%.9g" % answer(words[0], words[1]), flush=True)
        except Exception as error:  # the driver prints it and goes on
            print("failed:", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
