"""Find what there is to prune. Scores, patterns, masks and every table stand on `prunable`."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from lib.base import BadInput, type_of
from lib.pruners import kinds
from lib.pruners.behind import behind, computed
from lib.pruners.kinds import Layout, layout_of
from lib.pruners.selected import Select, chosen
from lib.pruners.weights import Prunable, Refused

SPOKEN = 0.9  # what speaks of less than this share of a network's matrix weights says so
SPARSE = "its layer holds only what is left of it: prune the model before pruners.sparse, or after pruners.dense"


class LeftOut(UserWarning):
    """A layer was left out, and why; the others were not."""


class Partial(UserWarning):
    """A number speaks of a part of a network only."""


def as_matrix(tensor: Tensor) -> Tensor:
    """View a Linear's or a Conv2d's weight, or scores like it, as the matrix of its product: [rows, reduction].

    A Linear weight [out, in] is that already. A Conv2d weight [out, in, R, S] becomes [out, R*S*in] with the input
    channels running fastest, the order in which sparse hardware reads it (paper 2, sections 3.2 and 4.2: GEMM-K is
    C x R x S). Groups of consecutive elements are then groups of input channels. Of any other layer `Prunable.matrix`
    knows.
    """
    return layout_of(tensor).matrix(tensor)


class Scores(dict):
    """Hold {parameter name: tensor like it}, high = matters, which also knows the layers the tensors belong to.

    A pattern takes this or a plain dict; in a plain dict all tensors belong to one network.
    """

    def __init__(self, tensors: Mapping[str, Tensor], layers: Mapping[str, Prunable]):
        super().__init__(tensors)
        self.layers = dict(layers)

    def only(self, select: Select) -> Scores:
        """Return the scores of these parameters alone, as `prunable` selects them."""
        names = chosen(self.layers.values(), select, {}, "there are scores for")
        return Scores({name: self[name] for name in names}, {name: self.layers[name] for name in names})


def layout(scores: Mapping[str, Tensor], name: str) -> Layout:
    """Return how scores lie: as their layer's weight, or as their shape says if no layer is known or a run is taken."""
    layers = getattr(scores, "layers", {})
    known = layers[name].layout if name in layers else None
    return known if known is not None and len(known.axes) == scores[name].dim() else layout_of(scores[name])


def prunable(model: nn.Module, select: Select = None) -> list[Prunable]:
    """List each weight of the model that enters a matrix product, in the order of its modules; no biases, no norms.

    What has a matrix and is not here `refused` names.

    Args:
        select: names of weights or of modules ("encoder", with all that is in it), patterns of names ("*.conv?.*"),
            types of layers; a string that begins with "!" leaves out what it names. One of them or several; None: all.
            Several means at least one: an empty list is refused, because it is neither none nor all.

    Raises:
        BadInput: the model has no layer that is selected.
    """
    return _selected(model, [layer for layer in survey(model)[0] if not layer.sparse], select)


def matrices(model: nn.Module, select: Select = None) -> list[Prunable]:
    """List what tables speak of: what is `prunable`, and the weights of which `pruners.sparse` holds what is left.

    Args and errors as of `prunable`.
    """
    return _selected(model, survey(model)[0], select)


def _selected(model: nn.Module, layers: list[Prunable], select: Select) -> list[Prunable]:
    """Those of these layers of a model that are selected."""
    whys = {} if layers and select is None else refused(model)
    if not layers:
        why = f": {': '.join(next(iter(whys.items())))}" if whys else ""
        raise BadInput(f"{type(model).__name__} has no layer with a matrix, so there is nothing to prune{why}")
    names = {layer.name for layer in layers} if select is None else set(chosen(layers, select, whys, "there are"))
    return [layer for layer in layers if layer.name in names]


def refused(model: nn.Module) -> dict[str, str]:
    """Return {name: why} of each tensor that looks like a matrix of weights and is not `prunable`."""
    layers, refusals = survey(model)
    return {one.name: one.why for one in refusals} | {layer.name: SPARSE for layer in layers if layer.sparse}


def coverage(model: nn.Module) -> float:
    """Return the share of a network's matrix weights of which `sparsity` speaks, that of its `matrices`.

    Matrix weights are tensors with at least two axes longer than one, an embedding's table left out unless a layer
    shares it. As long as one has no shape yet the share is NaN.
    """
    layers, refusals = survey(model)
    spoken = sum(layer.weight.numel() for layer in layers)
    return spoken / (spoken + sum(one.size for one in refusals) or 1)


def say_partial(model: nn.Module, what: str) -> None:
    """Warn (`Partial`) where `what`, such as "this sparsity", speaks of less than SPOKEN of the matrix weights."""
    share = coverage(model)
    if share >= SPOKEN:
        return
    others = sorted(survey(model)[1], key=lambda one: (not math.isnan(one.size), -one.size))  # without a shape first
    some = "; ".join(f"{one.name} ({one.why})" for one in others[:3]) + ("; ..." if len(others) > 3 else "")
    part = "an unknown share" if math.isnan(share) else f"{100 * share:.3g} %"
    say(f"{what} speaks of {part} of the network's matrix weights, not of {some}", Partial)


def refuse_no_model(model: object) -> None:
    """Refuse what is no model.

    Raises:
        BadInput: it is a class of models, a `state_dict()`, or anything else.
    """
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise BadInput(f"{model.__name__} is a class: expected a model of it, such as {model.__name__}(...)")
    if not isinstance(model, nn.Module):
        raise BadInput(f"expected a model, a torch.nn.Module, found {type_of(model)}")


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the network that torch.compile or (Distributed)DataParallel has wrapped, which can be traced, or the model
    itself.

    Raises:
        BadInput: what is no module.
    """
    refuse_no_model(model)
    parallel = (nn.DataParallel.forward, nn.parallel.DistributedDataParallel.forward)  # a subclass may add something
    inner = dict(model.named_children()).get(
        "module" if getattr(type(model), "forward", None) in parallel else "_orig_mod"
    )
    return model if inner is None else unwrapped(inner)


def refuse_replicated(model: nn.Module, layers: Iterable[Prunable]) -> None:
    """Refuse to let weights be computed otherwise that DistributedDataParallel trains as replicas.

    It hangs its hooks on the parameters that are there when it wraps a model: without them a training step fails, or
    replicas drift apart.

    Raises:
        BadInput: one of these layers of the model lies in what it has wrapped.
    """
    parallel = nn.parallel.DistributedDataParallel
    inside = {id(part) for one in model.modules() if isinstance(one, parallel) for part in one.modules()}
    for layer in layers:
        if any(id(module) in inside for module, _ in layer.owners):
            why = "does not see how it is computed from now on: change the model within, `.module`, and wrap that anew"
            raise BadInput(f"DistributedDataParallel has wrapped {layer.name} already and {why}")


def survey(model: nn.Module) -> tuple[list[Prunable], list[Refused]]:
    """Find what is prunable or `sparse`, and what looks as if it were and is not.

    Raises:
        BadInput: no model, or a layer without the weight that its rule in `kinds` names.
    """
    refuse_no_model(model)
    found, refusals = _owners(model)
    judged = [verdict for owners in found if (verdict := _judged(owners, model)) is not None]
    order = {id(module): place for place, module in enumerate(model.modules())}
    layers = sorted((one for one in judged if isinstance(one, Prunable)), key=lambda layer: order[id(layer.module)])
    return layers, refusals + [one for one in judged if isinstance(one, Refused)]


class _Owner(NamedTuple):
    """A module with a weight; its `layout` is None where no rule of `kinds` names the weight, and `why` says why that
    is refused: "" of a look-up, or of a type about which there is nothing to say.
    """

    path: str
    module: nn.Module
    attribute: str
    layout: Layout | None
    why: str

    @property
    def name(self) -> str:
        return f"{self.path}.{self.attribute}" if self.path else self.attribute


def _owners(model: nn.Module) -> tuple[list[list[_Owner]], list[Refused]]:
    """The owners of each parameter that is or looks like a weight, and the weights that are no parameters."""
    found: dict[int, list[_Owner]] = {}  # by the parameter that is behind the weight
    refusals: list[Refused] = []
    for path, module in model.named_modules():
        if isinstance(module, (parametrize.ParametrizationList, *kinds.VECTORS)) or unwrapped(module) is not module:
            continue  # what wraps a layer passes on all that the layer has
        kind, why = kinds.find(module)
        layouts = {} if kind is None else kind.weights(module)
        trained = behind(module)
        if missing := [name for name in layouts if name not in trained and not hasattr(module, name)]:
            raise BadInput(f"{type_of(module)} has no {missing[0]!r}, which its rule of `kinds` names")
        for attribute in (name for name in layouts if name not in trained):
            if isinstance(weight := getattr(module, attribute, None), Tensor):
                name = f"{path}.{attribute}" if path else attribute
                refusals.append(Refused(name, weight, "it is no parameter: a hook computes it, or nothing does"))
        for attribute, parameters in trained.items():
            if layouts and attribute not in layouts:
                continue  # a bias of a known layer is no matrix, whatever its shape
            own = "" if isinstance(module, kinds.LOOKUPS) else why
            owner = _Owner(path, module, attribute, layouts.get(attribute), own)
            found.setdefault(id(parameters[0]), []).append(owner)
    return list(found.values()), refusals


def _judged(owners: Sequence[_Owner], model: nn.Module) -> Prunable | Refused | None:
    """What a weight is by all that have it; None of what is no matrix, or is looked up in alone."""
    first = min(owners, key=lambda owner: owner.layout is None)
    weight = computed(first.module, first.attribute)
    if why := _why(owners):
        return None if _vector(weight, first.layout is not None) else Refused(first.name, weight, why)
    if first.layout is None:
        return None  # a look-up that nobody shares
    axes = first.layout.axes
    if len(axes) != weight.dim():
        raise BadInput(f"{first.name} has {weight.dim()} axes, its rule of `kinds` has letters for {axes!r}")
    network = first.path.split(".")[0] if isinstance(model, nn.ModuleDict) else ""
    others = tuple((owner.module, owner.attribute) for owner in owners if owner is not first)
    return Prunable(first.name, network, first.module, first.attribute, first.layout, others)


def _vector(weight: Tensor, known: bool) -> bool:
    """Whether a tensor is no matrix; one without numbers is a matrix if its layer is `known` to multiply by it."""
    if is_lazy(weight) or not weight.numel():
        return not known
    return sum(length > 1 for length in weight.shape) < 2


def _why(owners: Sequence[_Owner]) -> str:
    """Why a weight that these have is not prunable; empty if it is."""
    layouts = {owner.layout for owner in owners} - {None}
    unknown = next((owner for owner in owners if owner.why), None)
    if unknown is not None:
        shared = f"it is shared with {unknown.path or 'the model'}: " if layouts or len(owners) > 1 else ""
        return shared + unknown.why
    if not layouts:
        return ""
    if renormed := [owner.path for owner in owners if getattr(owner.module, "max_norm", None) is not None]:
        return f"it is shared with {renormed[0]}, an embedding whose max_norm changes it in place at each look-up"
    if len(layouts) > 1:
        return f"{' and '.join(owner.path for owner in owners)} share it and sum along different axes"
    weight = computed(owners[0].module, owners[0].attribute)
    if is_lazy(weight):
        return "it has no shape yet: run the model once"
    if not weight.numel():
        return "it is empty"
    return "" if weight.is_floating_point() else f"its numbers are {weight.dtype}"


def why_not_whole(layer: Prunable) -> str:
    """Say why a layer cannot be hooked or replaced as a whole, for its one product; "" where it can."""
    if not kinds.find(layer.module)[0].affine:
        return f"it is inside {type_of(layer.module)}"
    return "another layer shares its weight" if layer.tied else ""


def leave_out(name: str, why: str) -> None:
    """Warn that a layer is left out, and the others are not."""
    say(f"{name} is left out: {why}", LeftOut)


def say(text: str, category: type[Warning]) -> None:
    """Warn where this library was called from."""
    frame, level = sys._getframe(1), 2
    inside = ("lib.pruners", "contextlib")
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(inside):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def stacked_runs(layers: Iterable[Prunable]) -> int | None:
    """Count how many runs these layers of a model hold, each of them; None: they are one network's.

    Raises:
        BadInput: they differ in it, so that no run has a network of its own.
    """
    runs = {layer.runs: layer.name for layer in layers}
    if len(runs) > 1:
        found = ", ".join(f"{name} ({'not stacked' if count is None else count})" for count, name in runs.items())
        raise BadInput(f"all layers of a stack must have the same number of runs, these differ: {found}")
    return next(iter(runs), None)


@dataclass(frozen=True)
class LayerRule:
    """Say whether the 2:4 workflow prunes a layer, and why not when it does not."""

    name: str
    pruned: bool
    why: str


def layer_rule(
    model: nn.Module, bits: int = 16, leave: Mapping[str, str] | None = None, select: Select = None
) -> list[LayerRule]:
    """Say which layers the 2:4 workflow prunes (paper 2, section 4.2), and for each of the others why not.

    A layer is pruned when it has weights, leads to a matrix product, and its inner dimension (GEMM-K: inputs of a
    Linear, C x R x S of a Conv2d) is a multiple of 16 for 16-bit values or of 32 for 8-bit ones. Vectors (biases,
    norms) lead to no matrix product and are not listed.

    Args:
        bits: width of the values the network will be deployed with, 16 or 8.
        leave: {module name: reason} of layers to leave dense whatever their size: heads that are used in training
            only, which section 4.2 leaves too. Their sub-modules are left with them.
        select: as `prunable`; the others are left dense.

    Raises:
        BadInput: another width, a module to leave that the model has not, or as `prunable`.
    """
    if bits not in (8, 16):
        raise BadInput(f"bits={bits}: section 4.2 has a rule for 16-bit and 8-bit values")
    multiple = {16: 16, 8: 32}[bits]
    refuse_no_model(model)
    if not isinstance(leave, Mapping | None):
        raise BadInput(f"leave={leave!r:.60}: expected {{module name: reason}}")
    leave = dict(leave or {})
    modules = dict(model.named_modules())
    unknown = [name for name in leave if name not in modules]
    if unknown:
        raise BadInput(f"leave: the model has no module {unknown[0]!r}; it has: {', '.join(m for m in modules if m)}")
    wanted = {layer.name for layer in prunable(model, select)}
    layers, refusals = survey(model)
    rules: dict[str, LayerRule] = {}
    for layer in layers:
        fits = layer.inner % multiple == 0
        why = f"inner dimension {layer.inner} is {'' if fits else 'not '}a multiple of {multiple}"
        why = SPARSE if layer.sparse else why if layer.name in wanted else "it is not selected"
        rules[layer.name] = LayerRule(layer.name, fits and layer.name in wanted, why)
    rules |= {one.name: LayerRule(one.name, False, one.why) for one in refusals}
    tied = {id(module) for layer in layers for module, _ in layer.tied}
    lookups = [path for path, module in modules.items() if isinstance(module, kinds.LOOKUPS) and id(module) not in tied]
    why = "an embedding is a look-up, not a matrix product"
    names = [f"{path}.weight" if path else "weight" for path in lookups]
    rules |= {name: LayerRule(name, False, why) for name in names if name not in rules}
    for name, rule in rules.items():
        reason = next((why for module, why in leave.items() if name.startswith(f"{module}." if module else "")), None)
        rules[name] = LayerRule(name, rule.pruned and reason is None, reason or rule.why)
    order = {path: place for place, path in enumerate(modules)}
    return sorted(rules.values(), key=lambda rule: order[rule.name.rpartition(".")[0]])


def eligible(model: nn.Module, select: Select = None) -> list[str]:
    """Return names of the weights that the 2:4 workflow prunes: those that `layer_rule` lets it."""
    return [rule.name for rule in layer_rule(model, select=select) if rule.pruned]
