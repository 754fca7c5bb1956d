"""PyTorch's training steps of the networks in networks.lua, one line of JSON each.

usage: python3 torch_peer.py [NAME...]
Modes: eager, and "graph": the whole step captured once and replayed, which is
what a traced step is compared with.
"""
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

from residual import convolved, residual, resnet_20 as cifar

torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch.backends.cudnn.benchmark = True
DEVICE = torch.device("cuda")


class Lstm(nn.Module):
    def __init__(self, units):
        super().__init__()
        self.lstm = nn.LSTM(units, units, num_layers=2, batch_first=True)
        self.out = nn.Linear(units, 10)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, steps, width = x.shape
        q, k, v = (t.view(batch, steps, self.heads, -1).transpose(1, 2)
                   for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, steps, width))
        y = F.gelu(self.wide(self.norms[1](x)), approximate="tanh")
        return x + self.back(y)


class Gpt(nn.Module):
    def __init__(self, blocks, width, heads, steps, words):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(steps, width) * 0.05)
        self.blocks = nn.Sequential(
            *(Transformer(heads, width) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        h = self.norm(self.blocks(self.words(x) + self.places))
        return F.linear(h, self.words.weight).flatten(0, 1)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512),
                         nn.ReLU(), nn.Linear(512, 10)), 128, (784,), 10


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3),
        nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1600, 64),
        nn.ReLU(), nn.Linear(64, 10)), 128, (1, 28, 28), 10


def resnet_20():
    return cifar(), 64, (3, 32, 32), 10


def resnet_50():
    stem = nn.Sequential(convolved(3, 64, 7, 2, True),
                         nn.MaxPool2d(3, 2, padding=1))
    return residual(stem, (3, 4, 6, 3), 64, True, 1000), 64, (3, 224, 224), 1000


def lstm():
    return Lstm(512), 100, (50, 512), 10


def gpt_2():
    return Gpt(12, 768, 12, 1024, 50257), 8, (1024,), 50257


NETWORKS = {"mlp": mlp, "cnn": cnn, "lstm": lstm, "resnet-20": resnet_20,
            "resnet-50": resnet_50, "gpt-2": gpt_2}
UNITS = {"lstm": "sequences", "gpt-2": "tokens"}


def make_step(name, policy):
    torch.manual_seed(3)
    model, batch, shape, classes = NETWORKS[name]()
    model = model.to(DEVICE)
    count = batch
    if name == "gpt-2":
        count = batch * shape[0]
        x = torch.randint(0, classes, (batch,) + shape, device=DEVICE)
    else:
        x = torch.randn((batch,) + shape, device=DEVICE)
    if len(shape) == 3:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (count,), device=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    half = policy == "mixed_bfloat16"

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=half):
            loss = F.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, count


def captured(step):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds(step):
    def spent(times):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(times):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / times

    for _ in range(4):
        step()
    times = max(1, int(0.4 / spent(1)))
    return min(spent(times) for _ in range(5))


def measure(name, policy, mode):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    step, count = make_step(name, policy)
    best = seconds(captured(step) if mode == "graph" else step)
    print(json.dumps({
        "name": "step " + name, "mode": mode, "policy": policy,
        "ms": 1e3 * best, UNITS.get(name, "images") + "_per_s": count / best,
        "peak_mib": torch.cuda.max_memory_allocated() / 2 ** 20,
        "peer": "PyTorch " + torch.__version__}), flush=True)


def main():
    failed = False
    for name in sys.argv[1:] or NETWORKS:
        for policy in ("float32", "mixed_bfloat16"):
            for mode in ("eager", "graph"):
                try:
                    measure(name, policy, mode)
                except RuntimeError as error:
                    failed = True
                    print(f"{name} {policy} {mode}: {error}", file=sys.stderr)
    sys.exit(failed)


main()
