"""Masks on a model: keep removed weights at zero through any training, and say how sparse a model is."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lib.errors import BadInput
from lib.pruners.grouped import Grouped
from lib.pruners.layers import Prunable, prunable, stacked_runs


class Masked(nn.Module):
    """Multiplies a weight by its mask each time the layer reads it.

    Masking where the weight is read, not after the optimizer's step, makes the zeros independent of the optimizer:
    momentum, weight decay and state loaded from elsewhere act on the trained tensor, never on what is computed with.
    """

    def __init__(self, mask: Tensor):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        """A product, so that a removed weight's gradient is exactly zero too."""
        numbers = self.mask.view(torch.uint8).to(weight.dtype)  # from bool itself it takes torch four times as long
        return weight * numbers


def attach(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Hold the weights where a mask is False at zero from now on; a second call replaces the masks it names.

    A weight that a former mask removed and the new one keeps starts again from zero. Where weights share coefficients
    (`group_sparse`) a mask must keep or remove whole groups, as `group_sparse.whole_groups` does.

    Optimizers made before stay valid: the parameter object does not change. In `state_dict()` a masked weight "w"
    becomes "parametrizations.w.original" and "parametrizations.w.0.mask".

    Args:
        masks: {parameter name: bool tensor of the parameter's shape, True = kept}.

    Raises:
        BadInput: a name that is no prunable parameter, a wrong shape, a mask that is not boolean or cuts a group, or a
            layer with a parametrization of another kind.
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
        if (own := grouped(layers[name])) is not None:
            numbers = mask.float()
            if not torch.equal(own(own.right_inverse(numbers)), numbers):
                raise BadInput(f"mask {name!r} cuts groups of weights that share a coefficient: use whole_groups")
    for name, mask in masks.items():
        layer = layers[name]
        mask = mask.detach().to(layer.weight.device).clone()
        weight = layer.weight * mask
        if (masked := _masked(layer)) is not None:
            masked.mask.copy_(mask)  # in place: a recorded CUDA graph reads it where it is
        else:
            parametrize.register_parametrization(layer.module, "weight", Masked(mask))
        own = grouped(layer)
        with torch.no_grad():
            original(layer).copy_(weight if own is None else own.right_inverse(weight))


def attached(model: nn.Module) -> dict[str, Tensor]:
    """The masks attached to the model, {parameter name: bool tensor}."""
    return {layer.name: masked.mask.clone() for layer in prunable(model) if (masked := _masked(layer)) is not None}


def detach(model: nn.Module) -> None:
    """Bake masks and groups in: weights become plain parameters again, removed ones are zero but free to train."""
    for layer in prunable(model):
        if _own(layer) != (None, None):
            # torch deletes the mask's `weight` from the layer's class, which deep copies of the layer share
            shared = type(layer.module)
            layer.module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
            parametrize.remove_parametrizations(layer.module, "weight", leave_parametrized=True)


def _masked(layer: Prunable) -> Masked | None:
    return _own(layer)[1]


def _own(layer: Prunable) -> tuple[Grouped | None, Masked | None]:
    """The layer's parametrizations: groups of weights, then a mask on what they expand to; either may be missing."""
    chain = list(layer.module.parametrizations.weight) if parametrize.is_parametrized(layer.module, "weight") else []
    grouped = chain.pop(0) if chain and isinstance(chain[0], Grouped) else None
    masked = chain.pop(0) if chain and isinstance(chain[0], Masked) else None
    if chain:
        raise BadInput(f"{layer.name} already has a parametrization of another kind: remove it before pruning")
    return grouped, masked


def original(layer: Prunable) -> nn.Parameter:
    """The trained parameter behind a layer's weight, whether a mask is attached or not; of groups the coefficients.

    Raises:
        BadInput: the layer has a parametrization of another kind.
    """
    return layer.module.weight if _own(layer) == (None, None) else layer.module.parametrizations.weight.original


def grouped(layer: Prunable) -> Grouped | None:
    """How the layer's weights share coefficients, None if they do not."""
    return _own(layer)[0]


def spread(layer: Prunable, values: Tensor) -> Tensor:
    """Values of the trained parameter, such as its gradient, at each place of the weight."""
    own = grouped(layer)
    return values if own is None else own(values)


def sparsity(model: nn.Module) -> float:
    """The share of zeros among the prunable weights: the project's one definition of sparsity."""
    weights = [layer.weight for layer in prunable(model)]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def sparsity_per_run(model: nn.Module) -> list[float]:
    """The sparsity of each run of a stack.

    Raises:
        BadInput: the model is no stack.
    """
    table = report(model)
    if "run" not in table:
        raise BadInput(f"{type(model).__name__} is not a stack of runs: ask for its `sparsity`")
    return table.sparsity[table.layer == "total"].tolist()


def report(model: nn.Module) -> pd.DataFrame:
    """One row a layer, then the total: `layer, shape, weights, kept, sparsity`; of a stack so for each `run`."""
    layers = prunable(model)
    runs = stacked_runs(layers)
    weights = {layer.name: layer.weight for layer in layers}
    if runs is None:
        return _counts(weights)
    tables = [_counts({name: weight[run] for name, weight in weights.items()}) for run in range(runs)]
    return pd.concat(tables, keys=range(runs), names=["run", None]).reset_index("run").reset_index(drop=True)


def empty_layers(model: nn.Module, share: float = 0.0) -> pd.DataFrame:
    """The rows of `report` of layers that keep no more than this share of their weights, the total left out.

    A layer without weights passes on its bias only: whatever comes before it is cut off.
    """
    table = report(model)
    return table[(table.kept <= share * table.weights) & (table.layer != "total")].reset_index(drop=True)


def _counts(weights: Mapping[str, Tensor]) -> pd.DataFrame:
    """The table of one network."""
    rows = [
        {
            "layer": name,
            "shape": " x ".join(map(str, weight.shape)),
            "weights": weight.numel(),
            "kept": int((weight != 0).sum()),
        }
        for name, weight in weights.items()
    ]
    table = pd.DataFrame(rows)
    total = {"layer": "total", "shape": "", "weights": table.weights.sum(), "kept": table.kept.sum()}
    table.loc[len(table)] = total
    return table.assign(sparsity=1 - table.kept / table.weights)
