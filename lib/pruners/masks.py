"""Masks on a model: keep removed weights at zero through any training, and say how sparse a model is."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lib.errors import BadInput
from lib.pruners.layers import Prunable, original, prunable


class Masked(nn.Module):
    """Multiplies a weight by its mask each time the layer reads it.

    Masking where the weight is read, not after the optimizer's step, makes the zeros independent of the optimizer:
    momentum, weight decay and state loaded from elsewhere act on the trained tensor, never on what is computed with.
    """

    def __init__(self, mask: Tensor):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask  # a removed weight's gradient is then exactly zero too


def attach(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Hold the weights where a mask is False at zero from now on; a second call replaces the masks it names.

    A weight that a former mask removed and the new one keeps starts again from zero.

    Optimizers made before stay valid: the parameter object does not change. In `state_dict()` a masked weight "w"
    becomes "parametrizations.w.original" and "parametrizations.w.0.mask".

    Args:
        masks: {parameter name: bool tensor of the parameter's shape, True = kept}.

    Raises:
        BadInput: a name that is no prunable parameter, a wrong shape, a mask that is not boolean, or a layer with
            a parametrization of another kind.
    """
    layers = {layer.name: layer for layer in prunable(model)}
    for name, mask in masks.items():  # all are checked before one is attached
        if name not in layers:
            raise BadInput(f"mask {name!r}: the model's prunable parameters are {', '.join(layers)}")
        expected = tuple(layers[name].weight.shape)
        if mask.dtype != torch.bool:
            raise BadInput(f"mask {name!r} is {mask.dtype}, expected torch.bool (True = kept)")
        if tuple(mask.shape) != expected:
            raise BadInput(f"mask {name!r} has shape {tuple(mask.shape)}, its parameter {expected}")
        _masked(layers[name])
    for name, mask in masks.items():
        layer = layers[name]
        mask = mask.detach().to(layer.weight.device).clone()
        weight = layer.weight * mask
        if (masked := _masked(layer)) is not None:
            masked.mask = mask
        else:
            parametrize.register_parametrization(layer.module, "weight", Masked(mask))
        with torch.no_grad():
            original(layer.module).copy_(weight)


def attached(model: nn.Module) -> dict[str, Tensor]:
    """The masks attached to the model, {parameter name: bool tensor}."""
    return {layer.name: masked.mask for layer in prunable(model) if (masked := _masked(layer)) is not None}


def detach(model: nn.Module) -> None:
    """Bake the masks in: weights become plain parameters again, removed ones are zero but free to train."""
    for layer in prunable(model):
        if _masked(layer) is not None:
            # torch deletes the mask's `weight` from the layer's class, which deep copies of the layer share
            shared = type(layer.module)
            layer.module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
            parametrize.remove_parametrizations(layer.module, "weight", leave_parametrized=True)


def _masked(layer: Prunable) -> Masked | None:
    if not parametrize.is_parametrized(layer.module, "weight"):
        return None
    chain = layer.module.parametrizations.weight
    if len(chain) != 1 or not isinstance(chain[0], Masked):
        raise BadInput(f"{layer.name} already has a parametrization of another kind: remove it before pruning")
    return chain[0]


def sparsity(model: nn.Module) -> float:
    """The share of zeros among the prunable weights: the project's one definition of sparsity."""
    weights = [layer.weight for layer in prunable(model)]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def report(model: nn.Module) -> pd.DataFrame:
    """One row a layer, then the total: `layer, shape, weights, kept, sparsity`."""
    rows = [
        {
            "layer": layer.name,
            "shape": " x ".join(map(str, layer.weight.shape)),
            "weights": layer.weight.numel(),
            "kept": int((layer.weight != 0).sum()),
        }
        for layer in prunable(model)
    ]
    table = pd.DataFrame(rows)
    total = {"layer": "total", "shape": "", "weights": table.weights.sum(), "kept": table.kept.sum()}
    table.loc[len(table)] = total
    return table.assign(sparsity=1 - table.kept / table.weights)
