"""Cut closed units out: from gates that are closed to a network that is smaller."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from lib.base import BadInput
from lib.pruners.gates.gate import Gated, gates_of
from lib.pruners.gates.structure import Layer, live, spread, trace
from lib.pruners.inputs import duplicate, replaced
from lib.pruners.layers import unwrapped
from lib.pruners.masks import attached


class Picked(nn.Module):
    """Pass on some of the features: skip the gaps that closed positions leave in a flattened image."""

    def __init__(self, indices: Tensor):
        super().__init__()
        self.register_buffer("indices", indices)

    def forward(self, inputs: Tensor) -> Tensor:
        """Pick features: [..., features] -> [..., len(indices)]."""
        return inputs.index_select(-1, self.indices)


@torch.no_grad()
def harden(model: nn.Module) -> nn.Module:
    """Build an ordinary, smaller network without gates that computes what the gated one computes at test time.

    Units that are not live are cut out of the layers at both of their ends, a channel's flattened positions with it and
    its batch norm too; the values of open gates (equation 13) go into the weights beside them. Positions that are
    closed while their channel is open are skipped by a `Picked`. What is called in training alone stays as it is. The
    result is in evaluation mode and shares nothing with the model. No class builds a network of its sizes anew: keep it
    by `torch.save(network, path)`, if no parametrization is left in it, or as ONNX by `pruners.export`.

    Raises:
        BadInput: a model without gates or with masks, a layer whose gates are all closed, gates on a layer that is
            called in training alone, a forward hook on a layer or its norm, or a batch norm without running statistics.
    """
    gates_of(model)
    if masked := attached(model):
        raise BadInput(f"{min(masked)} has a mask, which cutting units would lose: pruners.detach the model first")
    model = duplicate(unwrapped(model)).eval()
    layers = trace(model)
    ends = live(layers)
    made: dict[int, nn.Module] = {}
    for name, layer in layers.items():
        if layer.wall:
            continue
        inputs, outputs = ends[name]
        there = torch.ones_like(inputs) if layer.source is None else spread(ends[layer.source][1], len(inputs))
        made[id(_hookless(name, model))] = _layer(layer, inputs, outputs, there)
        if layer.norm is not None:
            norm = _hookless(layer.norm, model)
            made[id(norm)] = _norm(norm.layer if isinstance(norm, Gated) else norm, layer, outputs)
    model = replaced(model, made)
    if left := [path for path, module in model.named_modules() if isinstance(module, Gated)]:
        raise BadInput(f"{left[0]} has gates and is called in training alone: put none there, as it cannot be cut")
    return model.eval()


def _hookless(path: str, model: nn.Module) -> nn.Module:
    """The module there, if no forward hook would be lost with it."""
    module = model.get_submodule(path)
    if any(one._forward_hooks or one._forward_pre_hooks for one in module.modules()):
        raise BadInput(f"{path} has a forward hook, which cutting it would lose: remove the hook first")
    return module


def _layer(layer: Layer, inputs: Tensor, outputs: Tensor, there: Tensor) -> nn.Module:
    """The layer with its live units alone; `there` says which of its inputs still arrive."""
    old = layer.module
    weight, bias = old.weight, old.bias
    if layer.inputs is not None:
        weight = weight * layer.inputs.value()
    if layer.outputs is not None and layer.norm is None:
        values = layer.outputs.value()
        weight, bias = weight * values[:, None, None, None], None if bias is None else bias * values
    rows, columns = (_indices(units, weight) for units in (outputs, inputs))
    sizes, more = (len(columns), len(rows)), {"bias": bias is not None, "device": weight.device, "dtype": weight.dtype}
    if isinstance(old, nn.Linear):
        new = skip_init(nn.Linear, *sizes, **more)  # without drawing random numbers for weights that go at once
    else:
        shape = (old.kernel_size, old.stride, old.padding, old.dilation)
        new = skip_init(nn.Conv2d, *sizes, *shape, padding_mode=old.padding_mode, **more)
    new.weight = nn.Parameter(weight[rows][:, columns], layer.learns)
    if bias is not None:
        new.bias = nn.Parameter(bias[rows], old.bias.requires_grad)
    selected = _indices(inputs[there], weight)
    return new if len(selected) == int(there.sum()) else nn.Sequential(Picked(selected), new)


def _norm(old: nn.BatchNorm2d, layer: Layer, outputs: Tensor) -> nn.BatchNorm2d:
    """The batch norm of the live channels, times the values of the gates behind it."""
    if old.running_mean is None:
        raise BadInput(f"{layer.norm} has no running statistics, so it cannot be cut: use track_running_stats=True")
    values = 1.0 if layer.outputs is None else layer.outputs.value()
    stay = _indices(outputs, old.running_mean)
    new = nn.BatchNorm2d(len(stay), old.eps, old.momentum, device=old.running_mean.device, dtype=old.running_mean.dtype)
    plain = new.weight.new_ones(len(outputs)), new.bias.new_zeros(len(outputs))
    weight, bias = (old.weight, old.bias) if old.affine else plain
    for name, value in (("weight", weight), ("bias", bias)):
        learns = old.affine and getattr(old, name).requires_grad
        setattr(new, name, nn.Parameter((value * values)[stay], learns))
    new.running_mean, new.running_var = old.running_mean[stay], old.running_var[stay]
    new.num_batches_tracked.copy_(old.num_batches_tracked)
    return new.eval()


def _indices(units: Tensor, like: Tensor) -> Tensor:
    return units.nonzero()[:, 0].to(like.device)
