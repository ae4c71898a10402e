"""Keep removed weights at zero through any training, by masks on a model."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable, Mapping

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils import parametrizations, parametrize

from lib.base import BadInput, type_of
from lib.pruners.behind import bake, behind, mask_of, register, settle
from lib.pruners.layers import matrices, prunable, refuse_replicated, refused, say
from lib.pruners.weights import Prunable


class Masked(nn.Module):
    """Multiply a weight by its mask each time the layer reads it.

    Masking where the weight is read, not after the optimizer's step, makes the zeros independent of the optimizer:
    momentum, weight decay and state loaded from elsewhere act on the trained tensor, never on what is computed with.
    It must stay finite, though: should a state hold infinity where a weight is removed, that times zero would be NaN.
    """

    def __init__(self, mask: Tensor):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight: Tensor) -> Tensor:
        """Multiply, so that a removed weight's gradient is exactly zero too."""
        if torch.compiler.is_exporting() or torch.jit.is_tracing():  # what other programs read has no such view
            return weight * self.mask.to(weight.dtype)
        numbers = self.mask.view(torch.uint8).to(weight.dtype)  # from bool itself it takes torch four times as long
        return weight * numbers

    def _save_to_state_dict(self, destination: dict[str, Tensor], prefix: str, keep_vars: bool) -> None:
        """In a file that `save_pretrained` writes the weight stands baked, under the name that its reader looks for.

        That method of Hugging Face's packages takes the `state_dict()` for the weights of a plain model, and a model
        read from it would have new, random ones in place of the masked. Nothing tells what a state is for but its
        caller. Everywhere else it has the mask and what is trained behind it.

        Raises:
            BadInput: the mask acts on what another parametrization computes, so the state has no weight to bake.
        """
        if not any(frame.f_code.co_name == "save_pretrained" for frame, _ in traceback.walk_stack(None)):
            return super()._save_to_state_dict(destination, prefix, keep_vars)
        chain, _, place = prefix.removesuffix(".").rpartition(".")
        layer, _, attribute = chain.rpartition("parametrizations.")
        if place != "0":
            raise BadInput(
                f"save_pretrained: {layer}{attribute} is computed by more than its mask; pruners.detach first"
            )
        destination[f"{layer}{attribute}"] = self(destination.pop(f"{chain}.original"))


class Emptied(UserWarning):
    """A mask keeps no weight of a layer, which passes on its bias alone from then on."""


class Following(nn.Module):
    """Mask a weight by a mask that follows it in training, as `pruners.learn` does: `attach` puts no other there."""


def attach(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    """Hold the weights where a mask is False at zero from now on; a second call replaces the masks it names.

    A weight that a former mask removed and the new one keeps starts again from zero. A mask composes with other
    parametrizations of the weight: it acts on what they compute. If these share coefficients among groups of weights,
    a mask must keep or remove whole groups. If they cannot be inverted to one tensor (norms of weights), what is
    removed is zero all the same, but it comes back as they compute it. One that is registered after the mask computes
    with what that leaves, and a second mask acts where the first did: what is removed is zero in the weight too if the
    later one leaves zeros alone, as a spectral norm does.

    Warns (`Emptied`) where a mask keeps no weight of a layer and the one before, if there was one, kept some.

    A weight that several layers share has one mask, which acts in all of them, in an embedding too. A mask that
    torch.nn.utils.prune holds is replaced, and weights that its old `weight_norm` computes go over to its new one.

    Optimizers made before stay valid: the parameter object does not change. In `state_dict()` a masked weight "w"
    becomes "parametrizations.w.original" and "parametrizations.w.0.mask". A masked weight stands behind its layer's
    other parameters until `detach` puts it back; optimizers store their state by position. So where an optimizer was
    made before its model had masks, make it so again before its saved state is loaded.

    torch pickles, scripts and fuses no weight that is computed, nor can one be initialised: do these before `attach` or
    after `detach`. Buffers that are masks have no mean: give `AveragedModel` use_buffers=False.

    Args:
        masks: {parameter name: bool tensor of the parameter's shape, True = kept}.

    Raises:
        BadInput: a name that is no prunable parameter, a wrong shape, a mask that is not boolean or cuts a group, a
            weight that learns its mask or was made under `torch.inference_mode`; a first mask on a weight of a model
            that DistributedDataParallel has wrapped.
    """
    layers = checked(model, masks)  # all are checked before one is attached
    first = [layers[name] for name in masks if any(_masked(*owner) is None for owner in layers[name].owners)]
    refuse_replicated(model, first)
    hold(layers, masks)


def hold(layers: Mapping[str, Prunable], masks: Mapping[str, Tensor]) -> None:
    """Attach masks that are `checked`, also to a copy of a model that DistributedDataParallel has wrapped, which nobody
    trains as a replica.
    """
    emptied = [text for name, mask in masks.items() if (text := _emptied(layers[name], mask))]
    for name, mask in masks.items():
        layer = layers[name]
        mask = mask.detach().to(layer.weight.device)
        with torch.inference_mode(False):  # into a tensor of that mode no later mask could be written
            mask = mask.clone()
        weight = torch.where(mask, layer.weight, 0.0)  # a product would keep NaN and infinity
        for module, attribute in layer.owners:
            settle(module, attribute)
            if (masked := _masked(module, attribute)) is not None:
                masked.mask.copy_(mask)  # in place: a recorded CUDA graph reads it there
            else:
                register(module, attribute, Masked(mask))
        if inverts(layer):
            with torch.no_grad():
                original(layer).copy_(original_of(layer, weight))
    for text in emptied:
        say(text, Emptied)


def _emptied(layer: Prunable, mask: Tensor) -> str:
    """What is to be said of a mask that leaves nothing of a layer, or of one run, where the one before left some."""
    if mask.is_meta or isinstance(mask, FakeTensor):  # which have no values
        return ""
    before = _masked(layer.module, layer.attribute)
    left, there = (
        torch.ones(1) > 0 if one is None else one.flatten(0 if layer.runs is None else 1).any(-1).reshape(-1).cpu()
        for one in (mask, before and before.mask)
    )
    if not bool((lost := there & ~left).any()):
        return ""
    runs = "" if layer.runs is None else f" in run {', '.join(str(run) for run in lost.nonzero()[:, 0].tolist())}"
    why = "what comes before it is cut off; a pattern's floor keeps a share of each layer"
    return f"no weight of {layer.name} is left{runs}: {why}"


def checked(model: nn.Module, masks: Mapping[str, Tensor]) -> dict[str, Prunable]:
    """Refuse masks that do not fit the model's weights, and return all its prunable weights by their names.

    Args:
        masks: as `attach`.

    Raises:
        BadInput: as `attach`.
    """
    if not isinstance(masks, Mapping):
        raise BadInput(f"masks are {type_of(masks)}: expected {{parameter name: mask}}")
    layers = {layer.name: layer for layer in prunable(model)}
    for name, mask in masks.items():
        if name not in layers:
            if name in (whys := refused(model)):
                raise BadInput(f"mask {name!r}: {whys[name]}")
            raise BadInput(f"mask {name!r}: the model's prunable parameters are {', '.join(layers)}")
        expected = tuple(layers[name].weight.shape)
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            found = getattr(mask, "dtype", type(mask).__name__)
            raise BadInput(f"mask {name!r} is {found}, expected torch.bool (True = kept)")
        if tuple(mask.shape) != expected:
            raise BadInput(f"mask {name!r} has shape {tuple(mask.shape)}, its parameter {expected}")
        if mask.is_meta and not layers[name].weight.is_meta:
            raise BadInput(f"mask {name!r} is on the meta device, where it has no values")
        if any(isinstance(one, Following) for one in _chain(layers[name])):
            raise BadInput(f"mask {name!r}: the weight learns its mask: pruners.settle first")
        if not beneath(layers[name]) or not inverts(layers[name]):
            continue
        numbers = mask.to(layers[name].weight)
        found = weight_of(layers[name], original_of(layers[name], numbers))
        if not torch.allclose(found, numbers, atol=0.1):  # more than rounding: a cut group is off by a half at least
            raise BadInput(f"mask {name!r} cuts groups of weights that share a coefficient: keep or remove whole ones")
    refuse_inference([layers[name] for name in masks])
    return layers


def attached(model: nn.Module) -> dict[str, Tensor]:
    """Return the masks attached to the model, {parameter name: bool tensor}; those of torch.nn.utils.prune too."""
    found = {}
    for layer in matrices(model):
        if (masked := _masked(layer.module, layer.attribute)) is not None:
            found[layer.name] = masked.mask.clone()
        elif (mask := mask_of(layer.module, layer.attribute)) is not None:
            found[layer.name] = mask
    return found


def detach(model: nn.Module) -> None:
    """Bake masks and what they compose with in: weights become plain parameters again, removed ones free to train.

    So do weights that share coefficients or learn their masks. What others have registered on a weight without a mask
    stays. Each weight has the place among its layer's parameters again from which `attach` has moved it.

    Raises:
        BadInput: a computed weight of what DistributedDataParallel has wrapped.
    """
    layers = [layer for layer in matrices(model) if _ours(layer)]
    refuse_replicated(model, [layer for layer in layers if _computed(layer)])
    _bake(layers)


def release(model: nn.Module) -> None:
    """Bake all computed weights in that can be, also in a copy of a model that DistributedDataParallel has wrapped."""
    _bake(matrices(model))


def _bake(layers: Iterable[Prunable]) -> None:
    """Make plain parameters of the weights of these layers."""
    for layer in layers:
        if mask_of(layer.module, layer.attribute) is not None:
            for module, attribute in layer.owners:
                settle(module, attribute)
        if not _computed(layer):
            continue
        for module, attribute in layer.owners:
            bake(module, attribute)
            if (first := getattr(layer.module, layer.attribute)) is not getattr(module, attribute):
                setattr(module, attribute, first)  # of several parameters torch makes a new one in each layer
        with torch.no_grad():
            original(layer).add_(0.0)  # a mask makes -0.0 of a negative weight, this 0.0 of that


def _ours(layer: Prunable) -> bool:
    """Whether a mask is on a layer's weight, or something else of this package computes it."""
    held = any(type(one).__module__.startswith(f"{__package__}.") for one in _chain(layer))
    return held or mask_of(layer.module, layer.attribute) is not None


def _computed(layer: Prunable) -> bool:
    """Whether a mask, or what can be inverted to one tensor, computes a layer's weight."""
    return _masked(layer.module, layer.attribute) is not None or (bool(beneath(layer)) and inverts(layer))


def lift(model: nn.Module, names: Collection[str]) -> None:
    """Take the masks of these weights off and nothing else; what the weights are then is for the caller to set."""
    for layer in matrices(model):
        for module, attribute in layer.owners if layer.name in names else ():
            if (masked := _masked(module, attribute)) is None:
                continue
            if len(chain := module.parametrizations[attribute]) == 1:
                bake(module, attribute)
            else:
                del chain[list(chain).index(masked)]


def _chain_of(module: nn.Module, attribute: str) -> list[nn.Module]:
    """The parametrizations of a layer's weight."""
    held = parametrize.is_parametrized(module, attribute)
    return list(module.parametrizations[attribute]) if held else []


def _chain(layer: Prunable) -> list[nn.Module]:
    """The parametrizations of a weight in the layer that it is named after."""
    return _chain_of(layer.module, layer.attribute)


def _masked(module: nn.Module, attribute: str) -> Masked | None:
    """The mask on a layer's weight: the last of its parametrizations, unless another was registered after it."""
    return next((one for one in _chain_of(module, attribute) if isinstance(one, Masked)), None)


def is_parameter(layer: Prunable) -> bool:
    """Tell whether the weight is a parameter itself, which no mask, norm or hook computes from others."""
    return layer.attribute in layer.module._parameters


def beneath(layer: Prunable) -> list[nn.Module]:
    """Return the parametrizations that a mask on the layer's weight acts on, in the order of computation."""
    return [one for one in _chain(layer) if not isinstance(one, Masked)]


def inverts(layer: Prunable) -> bool:
    """Tell whether one trained parameter can be set to what gives any weight; torch's own norms say so and cannot."""
    others = [one for one in beneath(layer) if type(one).__module__ != parametrizations.__name__]
    single = len(behind(layer.module)[layer.attribute]) == 1 and len(others) == len(beneath(layer))
    return single and all(hasattr(one, "right_inverse") for one in others)


def copies(layer: Prunable) -> bool:
    """Tell whether each weight is a number of the one parameter, its own or one that it shares."""
    if not beneath(layer):
        return True
    some = 2.71828  # a number that no power, rounding or clipping leaves as it is
    values = torch.full_like(original(layer), some) if inverts(layer) else None
    return values is not None and torch.equal(weight_of(layer, values), torch.full_like(layer.weight, some))


def original(layer: Prunable) -> nn.Parameter:
    """Return the trained parameter behind a layer's weight, whether a mask is attached or not; of groups the
    coefficients.

    Raises:
        BadInput: it is computed from several.
    """
    parameters = behind(layer.module)[layer.attribute]
    if len(parameters) > 1:
        raise BadInput(f"{layer.name} is computed from {len(parameters)} parameters, none of which is its own")
    return parameters[0]


def original_of(layer: Prunable, weight: Tensor) -> Tensor:
    """Say what the trained parameter would be for such a weight, masks aside."""
    for one in reversed(beneath(layer)):
        weight = one.right_inverse(weight)
    return weight


def weight_of(layer: Prunable, values: Tensor) -> Tensor:
    """Say what the weight would be if the trained parameter had these values, masks aside."""
    for one in beneath(layer):
        values = one(values)
    return values


def spread(layer: Prunable, values: Tensor) -> Tensor:
    """Return values of the trained parameter, such as its gradient, at each place of a weight that `copies` it."""
    return weight_of(layer, values) if beneath(layer) else values


def refuse_inference(layers: Iterable[Prunable]) -> None:
    """Refuse weights that torch lets nobody change here.

    Raises:
        BadInput: one was made under `torch.inference_mode`, and this is outside of it.
    """
    for layer in () if torch.is_inference_mode_enabled() else layers:
        if any(parameter.is_inference() for parameter in behind(layer.module)[layer.attribute]):
            why = "which allows neither a gradient nor a mask: make it outside"
            raise BadInput(f"{layer.name} was made under torch.inference_mode, {why}")
