"""Keep removed weights at zero through any training, by masks on a model, and say how sparse it is."""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrizations, parametrize

from lib.base import BadInput
from lib.pruners.behind import bake, behind, mask_of, register, settle
from lib.pruners.layers import (
    Select,
    matrices,
    prunable,
    refuse_replicated,
    refused,
    say,
    say_partial,
    stacked_runs,
    survey,
)
from lib.pruners.weights import Prunable, Refused

BESIDE = "not in the total: "  # how a table's row of what cannot be pruned begins


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

    Warns (`Emptied`) where a mask keeps no weight of a layer that had some.

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
    if any(_masked(*owner) is None for name in masks for owner in layers[name].owners):
        refuse_replicated(model)
    for name, mask in masks.items():
        layer = layers[name]
        mask = mask.detach().to(layer.weight.device)
        with torch.inference_mode(False):  # into a tensor of that mode no later mask could be written
            mask = mask.clone()
        weight = torch.where(mask, layer.weight, 0.0)  # a product would keep NaN and infinity
        _say_emptied(layer, mask)
        for module, attribute in layer.owners:
            settle(module, attribute)
            if (masked := _masked(module, attribute)) is not None:
                masked.mask.copy_(mask)  # in place: a recorded CUDA graph reads it there
            else:
                register(module, attribute, Masked(mask))
        if inverts(layer):
            with torch.no_grad():
                original(layer).copy_(original_of(layer, weight))


def _say_emptied(layer: Prunable, mask: Tensor) -> None:
    """Warn where a mask leaves nothing of a layer, or of one in a run of a stack, that was there before."""
    if mask.is_meta:
        return
    left, before = (one.flatten(0 if layer.runs is None else 1).any(-1) for one in (mask, layer.weight != 0))
    if bool((before & ~left).any()):
        why = "what comes before it is cut off; a pattern's floor keeps a share of each layer"
        say(f"no weight of {layer.name} is left: {why}", Emptied)


def checked(model: nn.Module, masks: Mapping[str, Tensor]) -> dict[str, Prunable]:
    """Refuse masks that do not fit the model's weights, and return all its prunable weights by their names.

    Args:
        masks: as `attach`.

    Raises:
        BadInput: as `attach`.
    """
    if not isinstance(masks, Mapping):
        raise BadInput(f"masks are a {type(masks).__name__}: expected {{parameter name: mask}}")
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

    Each weight has its old place among its layer's parameters again.

    Raises:
        BadInput: a model that DistributedDataParallel has wrapped.
    """
    refuse_replicated(model)
    for layer in matrices(model):
        if mask_of(layer.module, layer.attribute) is not None:
            for module, attribute in layer.owners:
                settle(module, attribute)
        masked = _masked(layer.module, layer.attribute) is not None
        if not (masked or (beneath(layer) and inverts(layer))):
            continue
        for module, attribute in layer.owners:
            bake(module, attribute)
            if (first := getattr(layer.module, layer.attribute)) is not getattr(module, attribute):
                setattr(module, attribute, first)  # of several parameters torch makes a new one in each layer
        with torch.no_grad():
            original(layer).add_(0.0)  # a mask makes -0.0 of a negative weight, this 0.0 of that


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


def sparsity(model: nn.Module, select: Select = None) -> float:
    """Compute the share of zeros among the prunable weights: the project's one definition of sparsity.

    Zeros are those that products see, and those that `pruners.sparse` has left out.

    Warns (`Partial`) where these are less than nine tenths of the network's matrix weights (`coverage`).

    Args:
        select: as `prunable`; who selects is not warned.
    """
    weights = numbers(matrices(model, select)).values()
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    count = sum(weight.numel() for weight in weights)
    if select is None:
        say_partial(model, "this sparsity")
    return zeros / count


def numbers(layers: Sequence[Prunable | Refused]) -> dict[str, Tensor]:
    """Collect the weights that layers compute with, by their parameters' names.

    Raises:
        BadInput: one on the meta device, where there is a shape and nothing in it.
    """
    weights = {layer.name: layer.weight for layer in layers}
    if empty := [name for name, weight in weights.items() if weight.is_meta]:
        raise BadInput(f"{empty[0]} is on the meta device, where it has no values: load the model first")
    return weights


def refuse_inference(layers: Iterable[Prunable]) -> None:
    """Refuse weights that torch lets nobody change here.

    Raises:
        BadInput: one was made under `torch.inference_mode`, and this is outside of it.
    """
    for layer in () if torch.is_inference_mode_enabled() else layers:
        if any(parameter.is_inference() for parameter in behind(layer.module)[layer.attribute]):
            why = "which allows neither a gradient nor a mask: make it outside"
            raise BadInput(f"{layer.name} was made under torch.inference_mode, {why}")


def sparsity_per_run(model: nn.Module) -> list[float]:
    """Compute the sparsity of each run of a stack.

    Raises:
        BadInput: the model is no stack.
    """
    table = report(model)
    if "run" not in table:
        raise BadInput(f"{type(model).__name__} is not a stack of runs: ask for its `sparsity`")
    return table.sparsity[table.layer == "total"].tolist()


def report(model: nn.Module, select: Select = None) -> pd.DataFrame:
    """Give one row a layer, then the total: `layer, shape, weights, kept, sparsity`; of a stack so for each `run`.

    What looks like a matrix of weights and cannot be pruned (`refused`) has a row before the total, which is named
    "not in the total: NAME".

    Args:
        select: as `prunable`; the total is that of the selected layers, and others have no row.
    """
    layers = matrices(model, select)
    runs = stacked_runs(layers)
    weights, others = numbers(layers), numbers(survey(model)[1] if select is None else [])
    if runs is None:
        return _counts(weights, others)
    tables = [_counts({name: weight[run] for name, weight in weights.items()}, others) for run in range(runs)]
    return pd.concat(tables, keys=range(runs), names=["run", None]).reset_index("run").reset_index(drop=True)


def empty_layers(model: nn.Module, share: float = 0.0, select: Select = None) -> pd.DataFrame:
    """Return the rows of `report` of layers that keep no more than this share of their weights; no row of others.

    A layer without weights passes on its bias only: whatever comes before it is cut off.

    Args:
        select: as `prunable`.

    Raises:
        BadInput: a share that is none.
    """
    if not isinstance(share, Real) or not 0 <= share <= 1:
        raise BadInput(f"share={share!r:.40} is not in [0, 1]")
    table = report(model, select)
    of_layers = (table.layer != "total") & ~table.layer.str.startswith(BESIDE)
    return table[(table.kept <= share * table.weights) & of_layers].reset_index(drop=True)


def counts(name: str, weight: Tensor) -> dict[str, str | int]:
    """Count what a table says of a weight: layer, shape, weights, kept; of one without a shape yet there are none."""
    if is_lazy(weight):
        return {"layer": name, "shape": "", "weights": 0, "kept": 0}
    shape = " x ".join(map(str, weight.shape))
    return {"layer": name, "shape": shape, "weights": weight.numel(), "kept": int((weight != 0).sum())}


def _counts(weights: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> pd.DataFrame:
    """The table of one network, and what its total does not count."""
    rows = [counts(name, weight) for name, weight in weights.items()]
    total = {"layer": "total", "shape": "", **{what: sum(row[what] for row in rows) for what in ("weights", "kept")}}
    beside = [counts(f"{BESIDE}{name}", weight) for name, weight in others.items()]
    table = pd.DataFrame([*rows, *beside, total])
    return table.assign(sparsity=1 - table.kept / table.weights)
