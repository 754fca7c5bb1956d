"""The residual networks of networks.lua for PyTorch, here and in scripts/bench."""
from torch import nn
from torch.nn import functional as F


def convolved(inputs, filters, size, stride, activation=False):
    layers = [nn.Conv2d(inputs, filters, size, stride, size // 2, bias=False),
              nn.BatchNorm2d(filters)]
    return nn.Sequential(*layers, *([nn.ReLU()] if activation else []))


class Block(nn.Module):
    def __init__(self, inputs, filters, stride, narrow):
        super().__init__()
        out = 4 * filters if narrow else filters
        first = [convolved(inputs, filters, 1, 1, True)] if narrow else []
        self.way = nn.Sequential(
            *first,
            convolved(filters if narrow else inputs, filters, 3, stride, True),
            convolved(filters, out, 1 if narrow else 3, 1))
        self.past = nn.Identity()
        if stride > 1 or inputs != out:
            self.past = convolved(inputs, out, 1, stride)

    def forward(self, x):
        return F.relu(self.past(x) + self.way(x))


def residual(stem, stages, filters, narrow, classes):
    layers, inputs = [stem], filters
    for stage, blocks in enumerate(stages):
        for i in range(blocks):
            width = filters * 2 ** stage
            layers.append(Block(inputs, width, 2 if i == 0 and stage else 1,
                                narrow))
            inputs = 4 * width if narrow else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(inputs, classes))


def resnet_20():
    return residual(convolved(3, 16, 3, 1, True), (3, 3, 3), 16, False, 10)
