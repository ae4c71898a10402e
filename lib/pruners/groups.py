"""Group weights (paper 5): weights of a block share coefficients, whole groups are pruned, groups are released.

    groups.group(model, {"fc2.weight": block_circulant.circulant(4)}, releasable=True)
    masks = groups.whole_groups(pruners.magnitude(model), 0.5, groups.tables(model))
    pruners.attach(model, masks)
    groups.regroup(model, {"fc2.weight": blocks.single(4)}, optimizers=[optimizer])  # the phase shift

A change of the block size is a change of the table (`lib.pruners.blocks`): where the new groups are parts of the old
ones no value changes, otherwise the new coefficients are the nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from lib.base import BadInput, refuse_uncounted
from lib.kernels.block_circulant import members, number
from lib.pruners import behind
from lib.pruners.blocks import refines
from lib.pruners.grouped import Grouped, grouped
from lib.pruners.layers import Scores, layout, prunable, refuse_replicated
from lib.pruners.masks import attach, attached, is_parameter, original, refuse_inference
from lib.pruners.patterns import per_run, selected, unstructured
from lib.pruners.registry import PATTERNS, register
from lib.pruners.scores import check_within, described
from lib.pruners.selected import Select
from lib.pruners.weights import Prunable

STARTS = ("drawn", "projected")
CARRIES = ("shared", "copied")
SCOPES = ("layer", "network", "global")  # of `patterns.SCOPES`: a group lies in several rows
NO_GRADIENTS = ("acc_delta", "ax", "step_size")  # Adadelta's steps, ASGD's weights, Rprop's steps


def group(
    model: nn.Module, chosen: Mapping[str, Tensor], start: str = "drawn", pad: bool = False, releasable: bool = False
) -> None:
    """Let the weights of blocks share coefficients from now on; the coefficients become the trained parameters.

    Call it before optimizers are made. Masks come after it. `pruners.detach` makes plain weights of them again.

    Args:
        chosen: {parameter name: table [B, B]}.
        start: "drawn": the projection of the weights there are, scaled so that coefficients have the variance of
            freshly drawn dense weights. "projected": the projection itself, the nearest to trained weights; of fresh
            ones it has 1 / B of the variance.
        pad: let the last blocks reach over the end of a weight whose size B does not divide.
        releasable: keep room for a coefficient a weight, so that `regroup` can release groups in place, of each run
            of a stack by itself. Room that is not used has no effect.

    Raises:
        BadInput: an unknown name, what is no table, a size that B does not divide, a layer that has groups or a mask
            already or whose weight is computed otherwise, one of another kind than a Linear, a stack of them or a
            Conv2d, one that shares its weight with another, or one made under `torch.inference_mode`; a model
            that DistributedDataParallel has wrapped.
    """
    if start not in STARTS:
        raise BadInput(f"start={start!r}: known are {', '.join(STARTS)}")
    _refuse_no_tables(chosen)
    layers = _named(model, chosen)
    for name, table in chosen.items():  # all are checked before one is changed
        block, size = len(table), _size(layers[name])
        if layers[name].layout.axes not in ("oi", "roi", "oikk") or layers[name].attribute != "weight":
            raise BadInput(f"{name}: blocks are those of a Linear, a stack of them or a Conv2d")
        if layers[name].tied:
            raise BadInput(f"{name} is shared with another layer, which would read its coefficients")
        if not is_parameter(layers[name]):
            raise BadInput(f"{name} has groups, a mask or another parametrization already: group first, then prune")
        for what, count in zip(("outputs", "inputs"), size, strict=True):
            if count % block and not pad:
                raise BadInput(f"{name}: block size {block} does not divide its {count} {what}; pad=True fills up")
    refuse_inference(layers.values())
    refuse_replicated(model, layers.values())
    for name, table in chosen.items():
        layer, block = layers[name], len(table)
        own = table.to(layer.weight.device)
        own = own.repeat(layer.runs, 1, 1) if layer.runs is not None else own.clone()
        form = Grouped(own, _size(layer), block**2 if releasable else number(table))
        behind.register(layer.module, "weight", form)
        if start == "drawn":
            with torch.no_grad():
                original(layer).mul_(_counts(form).sqrt().to(layer.weight))


def _counts(form: Grouped) -> Tensor:
    """Count how many weights each coefficient stands for, float64 [..., rows, columns, room]."""
    return members(form.size, form.table, form.room)


def tables(model: nn.Module) -> dict[str, Tensor]:
    """Return {parameter name: table [B, B] or [run, B, B]} of the layers whose weights share coefficients."""
    return {layer.name: own.table for layer in prunable(model) if (own := grouped(layer)) is not None}


def coefficients(model: nn.Module) -> dict[str, Tensor]:
    """Return {parameter name: coefficients}, masked, without gradient: what is to be stored of the layers that share
    them.
    """
    layers = {layer.name: layer for layer in prunable(model)}
    return {
        name: Grouped(table, _size(layers[name]), number(table)).right_inverse(layers[name].weight)
        for name, table in tables(model).items()
    }


@torch.no_grad()
def regroup(
    model: nn.Module,
    chosen: Mapping[str, Tensor],
    run: int | None = None,
    optimizers: Iterable[torch.optim.Optimizer] = (),
    carry: str = "shared",
) -> None:
    """Change tables in place: the phase shift of Algorithm 1, or a conversion of section 3.3.

    Parameters stay the same objects. A new coefficient is the mean of its weights as they are, masks applied: where
    the new groups are parts of the old ones no value changes. A new group is removed if all of its weights were.

    Args:
        chosen: {parameter name: new table [B, B]}, of the same B.
        run: of a stack, the one to change, from 0; None: all.
        optimizers: whose state goes over to the new coefficients (Adam's moments, a momentum).
        carry: "shared": each new coefficient takes its share of the gradients remembered, the first moment times the
            weights that it stands for over those of the old one, the second times the square of it: Adam's next step
            is as large as the last. "copied": moments as they are; as gradients of single weights are smaller than
            their sums, Adam's steps are then smaller until it has forgotten.

    Raises:
        BadInput: an unknown name, what is no table, a layer without groups, or without room for so many coefficients,
            a run that there is not, or weights that are not finite. Nothing is changed then.
        AssertionError: a weight has changed though groups were only released: an error of this module.
    """
    if carry not in CARRIES:
        raise BadInput(f"carry={carry!r}: known are {', '.join(CARRIES)}")
    _refuse_no_tables(chosen)
    layers, masks, optimizers = _named(model, chosen), attached(model), list(optimizers)
    places = {name: _places(layer, run) for name, layer in layers.items()}
    for name, table in chosen.items():  # all are checked before one is changed
        layer, own = layers[name], grouped(layers[name])
        if own is None or own.table.shape[-2:] != table.shape or own.room < number(table):
            raise BadInput(f"{name} has no groups in blocks of {len(table)} with room for {number(table)} coefficients")
        weight = layer.weight
        if not all(torch.isfinite(weight[place]).all() for place in places[name]):
            raise BadInput(f"{name} holds numbers that are not finite: has training diverged?")
    for name, table in chosen.items():
        layer, own = layers[name], grouped(layers[name])
        trained, weight = original(layer), layer.weight.clone()
        state = [(values, power, own(values)) for values, power, _ in moments(trained, optimizers)]
        before, part = own.table.clone(), own(1 / _counts(own).clamp(min=1).to(trained))
        for place in places[name]:
            own.table[place] = table.to(before.device)
        share = own.right_inverse(part) * _counts(own) if carry == "shared" else torch.ones_like(trained)
        for place in places[name]:
            for values, power, wide in state:
                values[place] = share[place].to(values) ** power * own.right_inverse(wide)[place]
        if name in masks:
            attach(model, {name: own(own.right_inverse(masks[name].to(weight.dtype))) > 0})
        new = own.right_inverse(weight)
        for place in places[name]:
            trained[place] = new[place]
            if refines(own.table[place], before[place]) and not torch.equal(layer.weight[place], weight[place]):
                raise AssertionError(f"{name}: groups were released, and yet a weight has changed")


def moments(parameter: nn.Parameter, optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[tuple[Tensor, int, bool]]:
    """Find what optimizers remember of a parameter, number by number, with the power of the gradient by which it grows,
    and whether it is made of gradients at all and not of steps or of the parameter itself.
    """
    for optimizer in optimizers:
        for name, values in optimizer.state.get(parameter, {}).items():
            if isinstance(values, Tensor) and values.shape == parameter.shape:
                power = 2 if "sq" in name or name == "sum" else 1  # Adagrad's is of squares
                if name == "momentum_buffer" and isinstance(optimizer, torch.optim.RMSprop):
                    power = 0  # each gradient in it has been divided by its own size
                yield values, power * (name not in NO_GRADIENTS), name not in NO_GRADIENTS


@torch.no_grad()
def forget(model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Let optimizers forget the gradients of what masks have removed, so that it does not move any more."""
    masks, optimizers = attached(model), list(optimizers)
    for name, layer in _named(model, masks).items():
        mask, own = masks[name].to(layer.weight.dtype), grouped(layer)
        for values, _, of_gradients in moments(original(layer), optimizers):
            if of_gradients:
                values.mul_(mask if own is None else own.right_inverse(mask) > 0)


# Pattern


@register(PATTERNS, "whole_groups")
def whole_groups(
    scores: Mapping[str, Tensor],
    sparsity: float | Sequence[float],
    groups: Mapping[str, Tensor] | None = None,
    scope: str = "layer",
    within: Mapping[str, Tensor] | None = None,
    select: Select = None,
) -> dict[str, Tensor]:
    """Remove whole groups, those with the lowest mean score first (paper 5, section 3.1 and Algorithm 2).

    Exactly round(sparsity * n) of the n coefficients ranked together go, see `unstructured`. Scores of weights that
    share a coefficient are the same if the score is a function of the coefficient, as magnitude and SNIP's are.

    Args:
        scores: {parameter name: tensor like the weight}.
        sparsity: share of coefficients to remove, in [0, 1); of a stack one number, or one a run.
        groups: of `tables`; weights of layers that it does not name are single. None: those that the layers have whose
            scores these are.
        scope: what is ranked together, one of SCOPES; "layer" as the paper's.
        within: {parameter name: mask that keeps or removes whole groups}; what these have removed goes first.
        select: which of the scores count, as `layers.prunable`; the others get no mask.

    Raises:
        BadInput: groups that are no tables, another scope, and as `unstructured`.
    """
    if scope not in SCOPES:
        raise BadInput(f"scope={scope!r}: a group lies in several rows; known are {', '.join(SCOPES)}")
    scores = selected(scores, select)
    shares, layers = per_run(sparsity, scores), getattr(scores, "layers", {})
    check_within(scores, within)
    if groups is None:
        groups = {name: own.table for name, layer in layers.items() if (own := grouped(layer)) is not None}
    _refuse_no_tables(groups, axes=(2, 3))
    masks: dict[str, list[Tensor]] = {name: [] for name in scores}
    stacked = {name: layout(scores, name).stacked for name in scores}
    for run, share in enumerate(shares):
        pools, backs, left = {}, {}, {}
        for name, score in scores.items():
            own = score[run] if stacked[name] else score
            own = own if own.is_floating_point() else own.double()  # means of whole numbers are none
            table = groups.get(name)
            flat, backs[name] = _coefficients(own, table[run] if table is not None and table.dim() == 3 else table)
            pools[name] = flat(own)
            if within is not None and name in within:
                mask = within[name][run] if stacked[name] else within[name]
                left[name] = flat(mask.to(own.dtype)) > 0
        allowed = unstructured(Scores(pools, layers), share, scope, within=left)
        for name, back in backs.items():
            masks[name].append(back(allowed[name]))
    return {name: torch.stack(parts) if stacked[name] else parts[0] for name, parts in masks.items()}


def _coefficients(like: Tensor, table: Tensor | None) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """How a tensor such as this becomes its coefficients [1, n], and a mask of these one of the tensor's shape; without
    a table each weight is its own.
    """
    if table is None:
        return lambda values: values.reshape(1, -1), lambda kept: kept.reshape(like.shape)
    form = Grouped(table, like.shape[:2], number(table))
    real = _counts(form) > 0  # a padded block may hold coefficients of nothing
    real = real.expand_as(form.right_inverse(like))

    def back(kept: Tensor) -> Tensor:
        return form(torch.zeros(real.shape, device=real.device).masked_scatter_(real, kept.float())) > 0

    return lambda values: form.right_inverse(values)[real][None], back


def _refuse_no_tables(tables: object, axes: Sequence[int] = (2,)) -> None:
    """Refuse what is not {parameter name: table}.

    Args:
        axes: how many a table may have; of three the first are runs.

    Raises:
        BadInput: no mapping, or a table that is no square of whole numbers from 0 on, or leaves one of them out.
    """
    if not isinstance(tables, Mapping):
        raise BadInput(f"groups are {described(tables)}: expected {{parameter name: table}}")
    for name, table in tables.items():
        square = isinstance(table, Tensor) and table.dim() in axes and 0 < table.shape[-1] == table.shape[-2]
        if not square or table.dtype != torch.int64 or int(table.min()) < 0:
            raise BadInput(f"{name}: {described(table)} is no table of int64 [B, B] from 0 on, such as circulant(4)")
        for one in table.reshape(-1, *table.shape[-2:]):  # of a stack each run has its own
            if len(one.unique()) < number(one):
                raise BadInput(f"{name}: the table leaves out some of 0 to {number(one) - 1}, expected each at a place")


def _named(model: nn.Module, names: Iterable[str]) -> dict[str, Prunable]:
    layers = {layer.name: layer for layer in prunable(model)}
    for name in names:
        if name not in layers:
            raise BadInput(f"no weight called {name!r}; there are: {', '.join(layers)}")
    return {name: layers[name] for name in names}


def _places(layer: Prunable, run: int | None) -> list:
    """Which parts of a layer's weight a change is of: all of it, each run of a stack or one of them.

    Raises:
        BadInput: a run of what is no stack, or one that the stack does not have.
    """
    if run is None:
        return [...] if layer.runs is None else list(range(layer.runs))
    if layer.runs is None:
        raise BadInput(f"run={run!r}: {layer.name} is of one network, no stack of runs: leave run out")
    refuse_uncounted(0, run=run)
    if run >= layer.runs:
        raise BadInput(f"run={run}: {layer.name} is of {layer.runs} runs, which are counted from 0")
    return [run]


def _size(layer: Prunable) -> tuple[int, int]:
    """Outputs and inputs; of a convolution channels."""
    shape = layer.weight.shape if layer.runs is None else layer.weight.shape[1:]
    return shape[0], shape[1]
