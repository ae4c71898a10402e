"""Count how often an example uses each weight, be it in its own layer or in a function that reads it there.

`nn.MultiheadAttention` never calls its `out_proj`, it hands that one's weight to a function. So beside the calls of
layers each product that torch computes is watched: is one of its factors a weight, a part of it, or a copy of it with
a mask or in another type?
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lib.base import BadInput, naming
from lib.pruners import kinds
from lib.pruners.behind import behind
from lib.pruners.inputs import Inputs, entering, example, feed, mode
from lib.pruners.layers import leave_out, matrices
from lib.pruners.weights import Prunable

COPIES = ("index", "index_select", "index_put", "_to_copy", "clone")  # their results are weights still
PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "_grouped_mm": 0, "mv": 0, "addmv": 1}  # the first factor


def positions(
    model: nn.Module, shape: Sequence[int], modules: Mapping[str, nn.Module] | None = None
) -> dict[str, float]:
    """Count how often one example uses each weight of a layer, {name: positions}; an unused layer is left out.

    Of a weight of which only a part is used, as of experts, it is the mean over its numbers and need not be whole.

    Args:
        shape: of one example, without the batch axis.
        modules: Linear and Conv2d layers by a name; None: those of `matrices`, by their parameter's.

    Raises:
        BadInput: no shape, or one of which the model takes no examples.
    """
    if modules is None:
        layers = matrices(model)
    else:
        layouts = {name: next(iter(kinds.find(module)[0].weights(module).values())) for name, module in modules.items()}
        layers = [Prunable(name, "", module, layout=layouts[name]) for name, module in modules.items()]
    one = example(model, shape)
    with naming(f"shape={tuple(shape)}"):
        return uses(model, one, layers)


def uses(
    model: nn.Module, inputs: Inputs, layers: Iterable[Prunable] | None = None, training: bool = False
) -> dict[str, float]:
    """Count how many positions multiply by each weight in one call, all examples together; unused ones are left out.

    Of a weight of which only a part is used, as of experts, it is the mean over its numbers.

    Args:
        inputs: what the model is called with, see `inputs.arguments`.
        layers: of the model; None: those of `matrices`.
        training: whether in training mode; batch norms are in evaluation mode nevertheless.

    Raises:
        BadInput: the model cannot be called with these inputs.
    """
    layers = matrices(model) if layers is None else list(layers)
    called: dict[str, float] = {}
    handles, watch = [], _Watch(layers)
    for layer in layers:
        for module, attribute in layer.owners:
            if (kind := kinds.find(module)[0]) is not None and (kind.affine or layer.layout.stacked):
                handles.append(module.register_forward_pre_hook(_entering(layer, watch)))
                handles.append(module.register_forward_hook(_counting(layer, called, watch), with_kwargs=True))
            if parametrize.is_parametrized(module, attribute):
                handles.append(module.parametrizations[attribute].register_forward_hook(_marking(layer, watch)))
    try:
        with torch.no_grad(), mode(model, training), _slow_attention(), watch:
            feed(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    found = {layer.name: called.get(layer.name, 0.0) + watch.found.get(layer.name, 0.0) for layer in layers}
    return {name: count for name, count in found.items() if count}


def leave_uncalled(
    model: nn.Module,
    layers: Mapping[str, Prunable],
    seen: Collection[str],
    asked: Collection,
    batches: Sequence[Inputs],
) -> None:
    """Leave out with a warning the layers of which no batch has shown an input, and say why.

    Args:
        seen: names of the layers of which one has.
        asked: what the caller has selected by.
        batches: those by which it is told whether a weight is multiplied by nevertheless.

    Raises:
        BadInput: they are all, or were asked for by name.
    """
    if not (missed := [layer for name, layer in layers.items() if name not in seen]):
        return
    read = {name for batch in batches for name in uses(model, batch, missed)}
    whys = "never reached by the calibration data", "a function reads its weight, as attention does, and never calls it"
    said = {layer.name: f"{whys[layer.name in read]}, so nothing is known of its inputs" for layer in missed}
    if refused := [name for name in said if len(missed) == len(layers) or name in asked]:
        why = said[refused[0]]
        raise BadInput(f"{', '.join(name for name in refused if said[name] == why)}: {why}")
    for name, why in said.items():
        leave_out(name, why)


def _entering(layer: Prunable, watch: _Watch):
    """A hook that lets the watch look away from a layer's own products, which `_counting` counts."""

    def hook(module: nn.Module, args: tuple) -> None:
        watch.inside.append(layer.name)

    return hook


def _counting(layer: Prunable, called: dict[str, float], watch: _Watch):
    """A hook that counts the positions of a layer's call; a layer may run more than once."""
    layout, shape = layer.layout, layer.weight.shape

    def hook(module: nn.Module, args: tuple, kwargs: dict, output: Tensor) -> None:
        if "t" in layout.axes:  # each position of the input meets all of the kernel
            count = entering(args, kwargs).numel() / shape[layout.input]
        else:
            count = output.numel() / math.prod(
                n for n, letter in zip(shape, layout.axes, strict=True) if letter in "ro"
            )
        called[layer.name] = called.get(layer.name, 0) + count
        watch.inside.pop()

    return hook


def _marking(layer: Prunable, watch: _Watch):
    """A hook that lets the watch know a weight by what its parametrizations have computed."""

    def hook(chain: nn.Module, args: tuple, weight: Tensor) -> None:
        watch.mark(weight, layer)

    return hook


class _Watch(TorchDispatchMode):
    """Count products with weights.

    A weight is known by its memory. What is computed from one, element by element, counts as that weight.

    A weight with parametrizations is known only once they have computed it: their products, as those of a spectral
    norm, are none of the layer's.

    Attributes:
        found: {name: multiplications over numbers in the weight}.
        inside: names of the layers that are being called, whose products count by their calls.
    """

    def __init__(self, layers: Sequence[Prunable]):
        super().__init__()
        self.found: dict[str, float] = {}
        self.inside: list[str] = []
        self.names: dict[int, Prunable] = {}
        self.alive: list[Tensor] = []  # memory that is in use is nobody else's
        self.shapes = {layer.name: layer.weight.shape for layer in layers}
        for layer in layers:
            if not parametrize.is_parametrized(layer.module, layer.attribute):
                for parameter in behind(layer.module).get(layer.attribute, []):
                    if parameter.shape == self.shapes[layer.name] or layer.sparse:
                        self.mark(parameter, layer)

    def mark(self, tensor: Tensor, layer: Prunable) -> None:
        """Take this tensor's memory for the layer's weight from now on."""
        self.names[tensor.untyped_storage()._cdata] = layer
        self.alive.append(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = _dense((args, kwargs or {}))
        for tensor in given:
            layer = self.names.get(tensor.untyped_storage()._cdata)
            if layer is None:
                continue
            out = next(iter(_dense(result)), None)
            if out is None or out.untyped_storage()._cdata in self.names:
                continue  # a view of it
            name = func.overloadpacket.__name__
            if name in PRODUCTS:
                left, right = args[PRODUCTS[name]], args[PRODUCTS[name] + 1]
                columns = right.shape[-1] if right.dim() > 1 else 1
                self._count(layer, left.numel() * columns / self.shapes[layer.name].numel())
            elif name == "convolution":
                transposed = args[6]
                count = (args[0] if transposed else out).shape
                self._count(layer, count[0] * math.prod(count[2:]))
            elif name in COPIES or (out.shape == tensor.shape and name != "embedding"):
                self.mark(out, layer)
            elif name != "embedding" and out.shape[-tensor.dim() :] == tensor.shape:  # broadcast over the weight
                self._count(layer, out.numel() / tensor.numel())
            elif name != "embedding":
                self._count(layer, math.prod(out.shape[:-1]))
        return result

    def _count(self, layer: Prunable, count: float) -> None:
        if layer.name in self.inside:
            return
        self.found[layer.name] = self.found.get(layer.name, 0) + count


def _dense(tree: Any) -> list[Tensor]:
    """The tensors of a call that have memory of their own, which sparse ones have not."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.layout == torch.strided]


@contextmanager
def _slow_attention():
    """Attention by functions that can be watched one by one, not by torch's single one for evaluation."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
