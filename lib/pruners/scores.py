"""Scores: how much each prunable weight matters. High = keep."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lib.pruners.layers import Scores, original, prunable


def magnitude(model: nn.Module) -> Scores:
    """|w|: small weights go first (paper 2, section 4.1; paper 5, Algorithm 2)."""
    layers = {layer.name: layer for layer in prunable(model)}
    return Scores({name: layer.weight.abs() for name, layer in layers.items()}, layers)


def random(model: nn.Module, seed: int) -> Scores:
    """Uniform random scores: the control every other score has to beat. The same on every device."""
    generator = torch.Generator().manual_seed(seed)
    layers = {layer.name: layer for layer in prunable(model)}
    tensors = {
        name: torch.rand(layer.weight.shape, generator=generator).to(layer.weight.device)
        for name, layer in layers.items()
    }
    return Scores(tensors, layers)


def snip(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Scores:
    """|w dL/dw|: how much the loss changes, to first order, when a weight is switched off (paper 1, equation 1).

    Paper 2, section 4.1, calls the same idea "instantaneous gradients". The model is not changed. Its mode (training
    or evaluation) is the caller's choice: in training mode batch norms update their running statistics.

    Args:
        loss: called with the model, returns a scalar; average over several batches inside it to use more data.
    """
    layers = {layer.name: layer for layer in prunable(model)}
    gradients = torch.autograd.grad(loss(model), [original(layer.module) for layer in layers.values()])
    pairs = zip(layers.items(), gradients, strict=True)
    return Scores({name: (layer.weight * gradient).abs() for (name, layer), gradient in pairs}, layers)
