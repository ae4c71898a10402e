"""Prune what enters a layer instead of its weight: of every four numbers the two largest stay (paper 2, section 6).

    activations.prune(model)     # from now on, in training and in use
    activations.release(model)   # as it was

Sparse tensor cores take one sparse factor of a product, whichever of the two it is. What goes depends on the input, so
that no mask is kept: it is found at each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lib.base import BadInput
from lib.kernels.selection import highest_of_each
from lib.pruners import kinds
from lib.pruners.inputs import entering
from lib.pruners.layers import leave_out, prunable, why_not_whole
from lib.pruners.patterns import check_n_of_m, fitting
from lib.pruners.selected import Select
from lib.pruners.weights import Prunable


def prune(model: nn.Module, n: int = 2, m: int = 4, select: Select = None) -> None:
    """Let only the n largest magnitudes of every m consecutive numbers enter these layers from now on; a second call
    replaces.

    Consecutive means next to each other in the layer's matrix product: inputs of a Linear, channels of a convolution at
    one position (paper 2, sections 3.1 and 4.2). A copy of the model has its inputs pruned too; its state has not
    changed. Weights may be masked besides.

    Args:
        select: as `pruners.prunable`; None: the layers whose weights the 2:4 workflow prunes. Of these, one that does
            more than one product, shares its weight, or has channels that m does not divide is left out with a warning.

    Raises:
        BadInput: n and m that are not whole numbers with 0 < n < m, a layer that is named and does not fit, or none
            that does.
    """
    check_n_of_m("activations.prune", n, m, None)
    layers = prunable(model, fitting(model) if select is None else select)
    whys = {layer.name: _why_not(layer, m) for layer in layers}
    if all(whys.values()) or (select is not None and any(whys.values())):
        name = next(name for name in whys if whys[name])
        raise BadInput(f"the inputs of {name} cannot be pruned {n}:{m}: {whys[name]}")
    for layer in layers:
        if whys[layer.name]:
            leave_out(layer.name, f"{whys[layer.name]}, so all of its inputs stay")
            continue
        release(layer.module)
        hook = Largest(n, m, axis=-1 - kinds.find(layer.module)[0].channels)
        layer.module.register_forward_pre_hook(hook, with_kwargs=True)


def release(model: nn.Module) -> None:
    """Let all inputs in again; a model whose inputs are not pruned stays as it is."""
    for module in model.modules():
        for key in [key for key, hook in module._forward_pre_hooks.items() if isinstance(hook, Largest)]:
            del module._forward_pre_hooks[key], module._forward_pre_hooks_with_kwargs[key]


def largest(x: Tensor, n: int, m: int, axis: int = -1) -> Tensor:
    """Keep the n largest magnitudes of every m consecutive numbers along an axis, and make zeros of the others.

    Among equal ones those that come first stay. The gradient passes to what stays alone.

    Args:
        x: of any shape, without NaN; m divides its size along the axis.
    """
    last = x.movedim(axis, -1)
    kept = highest_of_each(last.detach().abs().reshape(-1, m), n)
    return torch.where(kept.reshape(last.shape).movedim(-1, axis), x, 0.0)


@dataclass(frozen=True)
class Largest:
    """Prune what a layer is called with: the hook that `prune` puts before it."""

    n: int
    m: int
    axis: int

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Replace the layer's input."""
        entered = entering(args, kwargs)
        if entered.is_nested and entered.layout == torch.strided:  # as torch's encoder makes of padded examples
            x = torch.nested.as_nested_tensor([largest(one, self.n, self.m, self.axis) for one in entered.unbind()])
        else:
            x = largest(entered, self.n, self.m, self.axis)
        if args:
            return (x, *args[1:]), kwargs
        return args, {key: x if value is entered else value for key, value in kwargs.items()}


def _why_not(layer: Prunable, m: int) -> str:
    """Why the inputs of a layer cannot be pruned; "" where they can."""
    if why := why_not_whole(layer):
        return why
    channels = layer.weight.shape[layer.layout.axes.index("i")] // layer.layout.groups
    return "" if channels % m == 0 else f"a product sums over {channels} channels, which {m} does not divide"
