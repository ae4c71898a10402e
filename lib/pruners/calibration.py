"""Compute a trained network as int8 hardware does (paper 2, sections 4.4 and 5.1): calibrate, then simulate.

    small = calibration.simulated(model, batches)

Every layer that multiplies its input by a weight, adds a bias and does nothing else (`Kind.affine`: Linear,
convolutions, transposed ones), the first layer included, multiplies int8 codes of its input (one scale for the tensor,
entropy calibration) by int8 codes of its weight (one scale per output channel, max calibration) and adds them up
exactly. Everything else stays in floating point: biases, batch norms (which are not folded into the layer before them),
activations, and products inside other layers, such as nn.LSTM and attention. A layer that no batch calls, one that
shares its weight, has hooks or a computed bias, or one that `pruners.sparse` has made stays so too, with a warning that
names it.

Section 4.4 calibrates after pruning and retraining: hand over the retrained network. Masks may still be attached; their
zeros become code 0, so the pattern is kept and `kernels.two_four.compress` takes the codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Real

import pandas as pd
import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput, naming
from lib.kernels.int8 import LARGEST, Histogram, check_method, quantise, scale_of, threshold, weight_scales
from lib.pruners import kinds
from lib.pruners.behind import bake, called_besides
from lib.pruners.inputs import Inputs, duplicate, each, entering, feed, replaced, unnested
from lib.pruners.layers import leave_out, matrices, why_not_whole
from lib.pruners.masks import release
from lib.pruners.selected import Select, words
from lib.pruners.uses import leave_uncalled
from lib.pruners.weights import Prunable

EXACT = {torch.float32: 2**24, torch.float64: 2**53}  # every integer up to here has its own floating-point number


def simulated(model: nn.Module, batches: Iterable[Inputs], method: str = "entropy", select: Select = None) -> nn.Module:
    """Simulate the model in int8, calibrated on batches of inputs: `observe`, `threshold`, `quantised` in one step."""
    return quantised(model, ranges(model, batches, method, select))


def ranges(
    model: nn.Module, batches: Iterable[Inputs], method: str = "entropy", select: Select = None
) -> dict[str, float]:
    """Find the largest magnitude of each layer's input that is not clipped, {parameter name: amax}.

    Raises:
        BadInput: an unknown method.
    """
    check_method(method)
    return {name: threshold(histogram, method) for name, histogram in observe(model, batches, select).items()}


def codable(model: nn.Module, select: Select = None) -> list[Prunable]:
    """List the layers that int8 codes can stand for; one module a weight.

    Raises:
        BadInput: none that is selected can be, with the reason.
    """
    layers = pruners.prunable(model, select)
    whys = {layer.name: _why_not(layer) for layer in layers}
    if all(whys.values()):
        raise BadInput(f"int8 has no codes for {layers[0].name}, nor for others: {whys[layers[0].name]}")
    return [layer for layer in layers if not whys[layer.name]]


def _why_not(layer: Prunable) -> str:
    """Why codes cannot stand for a layer; "" where they can."""
    if why := why_not_whole(layer):
        return why
    if called_besides(layer.module):
        return "it has hooks, which would see codes"
    return "" if "bias" in layer.module._parameters else "its bias is computed"


def observe(model: nn.Module, batches: Iterable[Inputs], select: Select = None) -> dict[str, Histogram]:
    """Observe what enters each `codable` layer in evaluation mode, {parameter name: histogram}.

    A layer that runs more than once has one histogram of all its inputs. All positions count that the model computes,
    padding too, which torch's encoder leaves out. One that no batch calls, whose weight another layer has too, that has
    hooks or a bias that is computed, or of which `pruners.sparse` holds what is left, is left out with a warning.

    Args:
        batches: what the model is called with, see `pruners.inputs`: a tensor, or a tuple of arguments, without labels.
        select: as `pruners.prunable`; a layer that is named and that no batch calls is refused.

    Raises:
        BadInput: no batches, ones that the model does not take, an input that is not finite, or none but layers that no
            batch calls (by name).
    """
    model = duplicate(model).eval()
    layers = {layer.name: layer for layer in codable(model, select)}
    for layer in matrices(model, select):
        if layer.sparse:
            leave_out(layer.name, "pruners.sparse has made it and int8 codes are dense, so it stays in floating point")
        elif kinds.find(layer.module)[0].affine and (why := _why_not(layer)):
            leave_out(layer.name, f"{why}, so it stays in floating point")
    histograms = {name: Histogram() for name in layers}
    hooks = [
        layer.module.register_forward_pre_hook(_counting(name, histograms[name]), with_kwargs=True)
        for name, layer in layers.items()
    ]
    with torch.no_grad():
        for batch in each(batches):
            feed(model, batch)
    for hook in hooks:
        hook.remove()
    seen = {name: histogram for name, histogram in histograms.items() if histogram.counts.any()}
    leave_uncalled(model, layers, seen, words(select), [batch])  # of a stream the last batch is all that is left
    return seen


def _counting(name: str, histogram: Histogram):
    def hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
        with naming(f"the input of {name}"):
            histogram.add(unnested(entering(args, kwargs)))

    return hook


def quantised(model: nn.Module, amax: Mapping[str, float]) -> nn.Module:
    """Make a copy of the model, in evaluation mode, in which the layers that are named are `Int8`.

    Args:
        amax: {parameter name: largest magnitude of the layer's input that is not clipped}.

    Raises:
        BadInput: a name that int8 has no codes for, or a magnitude that is negative or not finite.
    """
    if not isinstance(amax, Mapping) or not all(isinstance(value, Real) for value in amax.values()):
        raise BadInput(f"amax={amax!r:.60}: expected {{parameter name: number}}, such as `ranges` returns")
    model = duplicate(model).eval()
    release(model)
    layers = {layer.name: layer for layer in codable(model)}
    if unknown := [name for name in amax if name not in layers] or ([] if amax else ["nothing"]):
        if others := [one for one in pruners.prunable(model) if one.name == unknown[0]]:
            raise BadInput(f"int8 has no codes for {unknown[0]}: {_why_not(others[0])}")
        raise BadInput(f"amax is given for {unknown[0]}; int8 can take {', '.join(layers)}")
    if bad := [name for name, value in amax.items() if not 0 <= value < math.inf]:
        raise BadInput(f"amax of {bad[0]} is {amax[bad[0]]}: expected the largest magnitude of an input, 0 or more")
    return replaced(model, {id(layers[name].module): Int8(layers[name].module, one) for name, one in amax.items()})


class Int8(nn.Module):
    """Multiply by a weight and add a bias, on int8 codes, with exact sums: a layer.

    The codes are multiplied as floating-point numbers, which is exact as long as no sum can pass 2^24 (float32) or 2^53
    (float64); the weight's own codes decide which is needed. On CUDA it is always float64, since float32 convolutions
    may take a short cut (Winograd) that is not exact.

    Args:
        layer: is taken over: its weight is codes from now on, and its bias is gone.
        amax: the largest magnitude of an input that is not clipped.

    Attributes:
        layer: the layer with its codes as weight and without bias.
        codes: the weight, int8 [out, ...].
        weight_scale, input_scale: steps, [out] or [out, 1, 1] like the output, and one number.
    """

    def __init__(self, layer: nn.Module, amax: float):
        super().__init__()
        bake(layer, "weight")
        kind = kinds.find(layer)[0]
        layout, shape = kind.weights(layer)["weight"], layer.weight.shape
        matrix = layout.matrix(layer.weight.detach().float())
        rows = matrix.reshape(layout.outputs(shape), -1)
        scales = weight_scales(rows)
        coded = quantise(rows, scales)
        codes = layout.tensor(coded.reshape(matrix.shape), shape).contiguous()
        like_output = (-1,) + (1,) * kind.channels
        self.register_buffer("weight_scale", scales.reshape(like_output))
        self.register_buffer("input_scale", scale_of(torch.tensor(float(amax), device=codes.device)))
        self.register_buffer("bias", None if layer.bias is None else layer.bias.detach().float().reshape(like_output))
        layer.weight = nn.Parameter(codes.double(), requires_grad=False)
        # a layer that is not torch's may need one
        layer.bias = None if type(layer).__module__.startswith("torch.nn") or layer.bias is None else _none(layer)
        self.layer = layer
        self._choose_type()
        self.register_load_state_dict_post_hook(Int8._choose_type)
        # torch's fused encoder layer would read the weight and never call this one; it does not where there is a hook
        self.register_forward_pre_hook(called)

    @property
    def weight(self) -> Tensor:
        """Return the weight that the codes stand for, for whoever reads it and multiplies by it elsewhere."""
        kind, shape = kinds.find(self.layer)[0], self.layer.weight.shape
        layout = kind.weights(self.layer)["weight"]
        matrix = layout.matrix(self.layer.weight.float())
        rows = matrix.reshape(layout.outputs(shape), -1) * self.weight_scale.reshape(-1, 1)
        return layout.tensor(rows.reshape(matrix.shape), shape)

    @property
    def codes(self) -> Tensor:
        """Return the weight as int8."""
        return self.layer.weight.to(torch.int8)

    def __getattr__(self, name: str) -> object:
        """Read what this module lacks, such as `in_features`, from the layer it stands for."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "layer":
                raise
            return getattr(self.layer, name)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Int8:
        """Go to another device, but not to another type: in half precision sums would not be exact, nor steps."""
        super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)
        self._choose_type()
        return self

    def _choose_type(self, *loaded: object) -> None:
        """Hold the codes in the faster type in which no sum is rounded, for these codes where they are now."""
        weight = self.layer.weight
        if weight.is_meta:
            return
        largest_sum = LARGEST * int(self._rows(weight.double()).abs().sum(1).max())
        fast = largest_sum <= EXACT[torch.float32] and weight.device.type == "cpu"
        if weight.dtype != (exact := torch.float32 if fast else torch.float64):
            self.layer.weight = nn.Parameter(weight.to(exact), requires_grad=False)
            if self.layer.bias is not None:
                self.layer.bias = _none(self.layer)

    def _rows(self, weight: Tensor) -> Tensor:
        """The weight as rows, one an output."""
        layout = kinds.find(self.layer)[0].weights(self.layer)["weight"]
        return layout.matrix(weight).reshape(layout.outputs(weight.shape), -1)

    def forward(self, input: Tensor, *args: object, **more: object) -> Tensor:
        """Quantise float values, sum products exactly, and return floats.

        The argument has torch's own name, since a model may call its layer by keyword. What else the layer takes, such
        as the `output_size` of a transposed convolution, is passed on. A nested tensor, as torch's encoder makes of
        padded examples, is computed example by example.
        """
        if input.is_nested and input.layout == torch.strided:  # what is jagged goes through as it is
            return torch.nested.as_nested_tensor([self.forward(one, *args, **more) for one in input.unbind()])
        with torch.autocast(input.device.type, enabled=False):
            codes = quantise(input.float(), self.input_scale)
            sums = self.layer(codes.to(self.layer.weight.dtype), *args, **more).float()
            product = sums * (self.input_scale * self.weight_scale)
            return (product if self.bias is None else product + self.bias).to(input.dtype)


def called(module: nn.Module, arguments: tuple) -> None:
    """Do nothing: the hook alone matters."""


def _none(layer: nn.Module) -> nn.Parameter:
    """A bias of zeros in the type of the codes."""
    return nn.Parameter(layer.weight.new_zeros(layer.bias.shape), requires_grad=False)


def report(model: nn.Module, histograms: Mapping[str, Histogram], amax: Mapping[str, float]) -> pd.DataFrame:
    """Tabulate one row a layer: layer, weight_amax (largest of its channels), input_amax (calibrated), input_max
    (seen), clipped (share of the observed inputs beyond input_amax).
    """
    rows = [
        {
            "layer": layer.name,
            "weight_amax": float(layer.weight.abs().max()),
            "input_amax": amax[layer.name],
            "input_max": histograms[layer.name].max,
            "clipped": histograms[layer.name].share_above(amax[layer.name]),
        }
        for layer in pruners.prunable(model)
        if layer.name in amax
    ]
    return pd.DataFrame(rows)
