"""Models of the tests, written here so that no other package is needed."""

import torch
from torch import nn


class Mlp(nn.Module):
    """Two matrices and what is between them."""

    def __init__(self, width=512):
        super().__init__()
        self.first = nn.Linear(256, width)
        self.norm = nn.BatchNorm1d(width)
        self.second = nn.Linear(width, 10)

    def forward(self, x):
        return self.second(torch.relu(self.norm(self.first(x))))


class Convolutional(nn.Module):
    """A small network for images."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        )

    def forward(self, x):
        return self.layers(x)


class Tied(nn.Module):
    """A language model whose head has the weight of its embedding."""

    def __init__(self, words=1000, width=64):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.inner = nn.Linear(width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(torch.relu(self.inner(self.embedding(tokens))))


class Branching(nn.Module):
    """A `forward` that depends on numbers, so that PyTorch does not export it."""

    def forward(self, x):
        if x.sum() > 0:  # the branch
            return x
        return -x


class WrongShape(nn.Module):
    """A mistake in `forward`, inside of a module."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(Mlp())

    def forward(self, x):
        return self.inner(x)


class DependsOnData(nn.Module):
    """A batch whose size is a count of numbers, which PyTorch exports."""

    def forward(self, x):
        return x[x[:, 0] > 0] * 2


class Computed(nn.Module):
    """A weight that is computed once, so that the module cannot be copied."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.scaled = self.first.weight * 2

    def forward(self, x):
        return x @ self.scaled


class Unknown(nn.Module):
    """An operation that gpumem does not have."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16)

    def forward(self, x):
        return torch.linalg.qr(self.first(x).reshape(-1, 4, 4))[0].flatten(1)
