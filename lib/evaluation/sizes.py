"""How much a network computes and takes up: the one place every table has its sizes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from lib.pruners.layers import prunable


def flops(model: nn.Module, shape: Sequence[int]) -> int:
    """Multiplications and additions of one example's matrix products, counting only weights that are not zero.

    Each kept weight of a Linear is used once and of a Conv2d at every output position; each use is a multiplication
    and an addition. Biases, norms and activations are left out. A dense network counts all its weights, so one
    function serves both.

    Args:
        shape: of one example, without the batch axis.
    """
    uses: dict[str, int] = {}

    def count(name: str):
        def hook(module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
            positions = output.shape[2:] if isinstance(module, nn.Conv2d) else output.shape[1:-1]
            uses[name] = uses.get(name, 0) + math.prod(positions)  # a layer may run more than once

        return hook

    layers = prunable(model)
    handles = [layer.module.register_forward_hook(count(layer.name)) for layer in layers]
    training = model.training
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape, device=layers[0].weight.device))
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return sum(2 * int((layer.weight != 0).sum()) * uses.get(layer.name, 0) for layer in layers)
