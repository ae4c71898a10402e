"""Make the two calls that most rivals are compared by: a training step and a forward pass of an ordinary network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def dense_step(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> Callable[[], None]:
    """Take one training step of an ordinary network, with torch's fused Adam."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(inputs), targets).backward()
        optimizer.step()

    return call


def inference(model: nn.Module, inputs: Tensor) -> Callable[[], Tensor]:
    """Take one forward pass without gradients, in the mode that the model is in."""

    def call() -> Tensor:
        with torch.no_grad():
            return model(inputs)

    return call
