"""Small examples, and gates set by hand: what the tests of `lib.pruners.gates` share."""

import torch
from torch.nn import functional as F

from lib.pruners import gates

BINARY = ("sigmoid", "hard_sigmoid")


def examples(features, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(20, features, generator=draw).double(), torch.randint(3, (20,), generator=draw)


def loss_on(inputs, labels):
    return lambda model: F.cross_entropy(model(inputs), labels)


def phis(model):
    return [one.phi for one in gates.gates_of(model)]


def put(model, *values):
    """These phi."""
    for phi, value in zip(phis(model), values, strict=True):
        phi.data = torch.as_tensor(value, dtype=phi.dtype).expand(phi.shape).clone()
