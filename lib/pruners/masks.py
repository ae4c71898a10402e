"""Masks on a model: keep removed weights at zero through any training, and say how sparse a model is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lib.base import BadInput
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

    A weight that a former mask removed and the new one keeps starts again from zero. A mask composes with another
    parametrization of the weight that can be inverted, such as groups of weights that share a coefficient: it acts on
    what that computes. Such a mask must keep or remove whole groups.

    Optimizers made before stay valid: the parameter object does not change. In `state_dict()` a masked weight "w"
    becomes "parametrizations.w.original" and "parametrizations.w.0.mask".

    Args:
        masks: {parameter name: bool tensor of the parameter's shape, True = kept}.

    Raises:
        BadInput: a name that is no prunable parameter, a wrong shape, a mask that is not boolean or cuts a group, or a
            layer with a parametrization that cannot be inverted.
    """
    layers = {layer.name: layer for layer in prunable(model)}
    for name, mask in masks.items():  # all are checked before one is attached
        if name not in layers:
            raise BadInput(f"mask {name!r}: the model's prunable parameters are {', '.join(layers)}")
        expected = tuple(layers[name].weight.shape)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            found = getattr(mask, "dtype", type(mask).__name__)
            raise BadInput(f"mask {name!r} is {found}, expected torch.bool (True = kept)")
        if tuple(mask.shape) != expected:
            raise BadInput(f"mask {name!r} has shape {tuple(mask.shape)}, its parameter {expected}")
        if mask.is_meta and not layers[name].weight.is_meta:
            raise BadInput(f"mask {name!r} is on the meta device, where it has no values")
        original(layers[name])  # refuses a weight that is no parameter
        if not beneath(layers[name]):
            continue
        numbers = mask.float()
        if not torch.equal(weight_of(layers[name], original_of(layers[name], numbers)), numbers):
            raise BadInput(f"mask {name!r} cuts groups of weights that share a coefficient: keep or remove whole ones")
    for name, mask in masks.items():
        layer = layers[name]
        mask = mask.detach().to(layer.weight.device).clone()
        weight = layer.weight * mask
        if (masked := _masked(layer)) is not None:
            masked.mask.copy_(mask)  # in place: a recorded CUDA graph reads it where it is
        else:
            parametrize.register_parametrization(layer.module, "weight", Masked(mask))
        with torch.no_grad():
            original(layer).copy_(original_of(layer, weight))


def attached(model: nn.Module) -> dict[str, Tensor]:
    """The masks attached to the model, {parameter name: bool tensor}."""
    return {layer.name: masked.mask.clone() for layer in prunable(model) if (masked := _masked(layer)) is not None}


def detach(model: nn.Module) -> None:
    """Bake masks and what they compose with in: weights become plain parameters again, removed ones free to train."""
    for layer in prunable(model):
        if _masked(layer) is not None or beneath(layer):
            # torch deletes the mask's `weight` from the layer's class, which deep copies of the layer share
            shared = type(layer.module)
            layer.module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
            parametrize.remove_parametrizations(layer.module, "weight", leave_parametrized=True)
            with torch.no_grad():
                layer.module.weight.add_(0.0)  # a mask makes -0.0 of a negative weight, this 0.0 of that


def _chain(layer: Prunable) -> list[nn.Module]:
    """The parametrizations of a layer's weight, a mask last; each of the others can be inverted.

    Raises:
        BadInput: one of them cannot, or makes several parameters of one weight.
    """
    if not parametrize.is_parametrized(layer.module, "weight"):
        return []
    chain = list(layer.module.parametrizations.weight)
    masked = chain[-1:] if isinstance(chain[-1], Masked) else []
    others = chain[: len(chain) - len(masked)]
    invertible = all(hasattr(one, "right_inverse") for one in others)
    if not invertible or not hasattr(layer.module.parametrizations.weight, "original"):
        raise BadInput(
            f"{layer.name} already has a parametrization of another kind, {type(others[0]).__name__}: remove it before "
            "pruning, or give it a right_inverse to one tensor"
        )
    return chain


def _masked(layer: Prunable) -> Masked | None:
    return next((one for one in _chain(layer) if isinstance(one, Masked)), None)


def beneath(layer: Prunable) -> list[nn.Module]:
    """The parametrizations that a mask on the layer's weight acts on, in the order in which they are computed."""
    return [one for one in _chain(layer) if not isinstance(one, Masked)]


def original(layer: Prunable) -> nn.Parameter:
    """The trained parameter behind a layer's weight, whether a mask is attached or not; of groups the coefficients.

    Raises:
        BadInput: the layer has a parametrization that cannot be inverted, or a weight that is computed by a hook.
    """
    if _chain(layer):
        return layer.module.parametrizations.weight.original
    if "weight" not in layer.module._parameters:
        raise BadInput(
            f"{layer.name} is no parameter: torch.nn.utils' older weight_norm, spectral_norm or prune computes it by a "
            "hook; remove that before pruning"
        )
    return layer.module.weight


def original_of(layer: Prunable, weight: Tensor) -> Tensor:
    """What the trained parameter would be for such a weight, masks aside."""
    for one in reversed(beneath(layer)):
        weight = one.right_inverse(weight)
    return weight


def weight_of(layer: Prunable, values: Tensor) -> Tensor:
    """What the weight would be if the trained parameter had these values, masks aside."""
    for one in beneath(layer):
        values = one(values)
    return values


def spread(layer: Prunable, values: Tensor) -> Tensor:
    """Values of the trained parameter, such as its gradient, at each place of the weight.

    Raises:
        BadInput: a weight is no copy of one number of the parameter, so that a value of the parameter has no place.
    """
    if not beneath(layer):
        return values
    placed = weight_of(layer, values)
    if not torch.equal(weight_of(layer, torch.ones_like(values)), torch.ones_like(placed)):
        raise BadInput(f"{layer.name}: a score by gradients needs weights that are trained numbers or copies of them")
    return placed


def sparsity(model: nn.Module) -> float:
    """The share of zeros among the prunable weights: the project's one definition of sparsity."""
    weights = numbers(prunable(model)).values()
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def numbers(layers: Sequence[Prunable]) -> dict[str, Tensor]:
    """The weights that layers compute with, by their parameters' names.

    Raises:
        BadInput: one on the meta device, where there is a shape and nothing in it.
    """
    weights = {layer.name: layer.weight for layer in layers}
    if empty := [name for name, weight in weights.items() if weight.is_meta]:
        raise BadInput(f"{empty[0]} is on the meta device, where it has no values: load the model first")
    return weights


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
    weights = numbers(layers)
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
