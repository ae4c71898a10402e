"""Time one step of training a network dense, with 2:4 masks attached, and with them baked in.

Masks do not make a network faster, they make it slower; only a kernel that skips the zeros can gain. This says how much
is paid for holding a pattern during training.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.kernels.timing import in_turn
from lib.models.lenet import lenet5
from lib.models.resnet import resnet20

COLUMNS = ("network", "implementation", "batch", "ms", "ratio_to_dense")
BLOCK = 10  # steps a turn: training takes one after the other, with its weights at hand
NETWORKS = {"lenet5": (lenet5, (1, 28, 28)), "resnet20": (resnet20, (3, 32, 32))}  # and the shape of an example


def run(device: str) -> list[dict]:
    """Return one row a network, implementation and batch."""
    rows = []
    for name, (build, shape) in NETWORKS.items():
        for batch in (16, 128):
            torch.manual_seed(0)
            dense = build().to(device)
            masked = copy.deepcopy(dense)
            pruners.attach(masked, pruners.two_four(masked))
            baked = copy.deepcopy(masked)
            pruners.detach(baked)
            images, labels = torch.randn(batch, *shape, device=device), torch.randint(10, (batch,), device=device)
            rivals = {"dense": dense, "masked": masked, "baked": baked}
            steps = {key: step(model, images, labels) for key, model in rivals.items()}
            times = in_turn(steps, block=BLOCK)
            for key, milliseconds in times.items():
                row = {"network": name, "implementation": key, "batch": batch, "ms": milliseconds}
                rows.append(row | {"ratio_to_dense": milliseconds / times["dense"]})
    return rows


def step(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Callable[[], None]:
    """Take one training step: forward, backward, update."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return call
