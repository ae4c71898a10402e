"""Permute the channels of a whole network so that 2:4 keeps more of its weights (paper 2, section 4.1).

`channels.read` says which channels may change places. For each such set the layers that read it are stacked, because
they share one order; a search on that one matrix finds it; then rows, columns and all that follows are moved.
"""

from __future__ import annotations

import copy
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lib.base import BadInput
from lib.pruners.layers import as_matrix, eligible, prunable
from lib.pruners.masks import numbers, original
from lib.pruners.permutation.channels import Axis, Ties, leaves, read
from lib.pruners.permutation.search import anneal, bound, kept_magnitude

Moves = dict[int, int]  # {channel: the channel that comes to its places}


def permute(
    model: nn.Module,
    inputs: Tensor | tuple[Any, ...],
    only: Iterable[str] | None = None,
    search: Callable[..., Tensor] = anneal,
) -> tuple[nn.Module, pd.DataFrame]:
    """Copy a network into one that computes the same function, with its channels in an order of which 2:4 keeps more.

    Inputs and outputs stay in order. Layers that read the same channels share an order, the best for all of them
    together: one of them may lose a little where the others gain more. Whatever has no rule (see
    `channels.read`) keeps the channels it touches where they are. The result is checked on the inputs in float64.

    Args:
        inputs: an example of the network's input, or a tuple of its inputs. Few and small ones do.
        only: names of the weights that will be pruned; None: the `eligible` ones. The others follow, but what they
            would keep does not count.
        search: `anneal`, `greedy` or one like them, called with a matrix [R, C] and `movable`, bool [C].

    Returns:
        The permuted copy, and a table with one row a prunable layer: layer; kept_before and kept_after, percent of its
        magnitude that 2:4 keeps; efficacy, percent as in `search.efficacy`; permuted; and why it is not, or with
        which layers it shares its order. Layers that will not be pruned have no numbers.

    Raises:
        BadInput: a masked model, an unknown name, a model that `torch.fx` cannot trace, inputs that it cannot take, or
            outputs by which no result could be checked: none, not finite, or others a second time.
    """
    masked = [path for path, module in model.named_modules() if parametrize.is_parametrized(module)]
    if masked:
        raise BadInput(f"{masked[0]} has a mask or another parametrization: permute before pruning")
    for layer in prunable(model):
        original(layer)  # refuses a weight that is no parameter
    layers = {name: weight.abs().cpu() for name, weight in numbers(prunable(model)).items()}
    chosen = eligible(model) if only is None else list(only)
    unknown = [name for name in chosen if name not in layers]
    if unknown:
        raise BadInput(f"only: the model has no prunable layer {unknown[0]!r}; it has: {', '.join(layers)}")
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if change := difference(outputs(model, inputs), outputs(model, inputs)):
        raise BadInput(f"permute: {type(model).__name__} gives other numbers (by {change:.2g}) on the same inputs")
    ties = read(model, inputs)
    readers = {name: axis for name in chosen if (axis := ties.axes.get((name, 1))) and layers[name][0].numel() % 4 == 0}
    moves: Moves = {}
    for space in ties.spaces():
        affected = {name: axis for name, axis in readers.items() if not set(space).isdisjoint(axis.channel.tolist())}
        proposed = moves | _search(layers, affected, space, moves, search)
        before, after = (
            sum(kept_magnitude(as_matrix(_moved(layers[name], 1, axis, which))) for name, axis in affected.items())
            for which in (moves, proposed)
        )
        if after > before:
            moves = proposed
    permuted = copy.deepcopy(model)
    apply(permuted, ties, moves)
    compare(model, permuted, inputs)
    return permuted, pd.DataFrame([_row(name, layers[name], chosen, ties, moves) for name in layers])


def _search(
    layers: dict[str, Tensor], affected: dict[str, Axis], space: list[int], moves: Moves, search: Callable
) -> Moves:
    """The moves within one space that keep most in the layers that read it, taken together.

    Layers can be stacked when they see the channels in the same groups of four. Where they do not (a channel shuffle
    between them), those with the largest weights decide.
    """
    stacks: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
    for name, axis in affected.items():
        blocks = _blocks(_moved(layers[name], 1, axis, moves), axis.groups)
        for block, channels in zip(blocks, axis.channel.chunk(axis.groups), strict=True):
            places, columns = _quads(channels.tolist(), set(space))
            if len(places) >= 8:
                stacks[places].append(block[:, columns])
    if not stacks:
        return {}
    places, stack = max(stacks.items(), key=lambda item: sum(float(block.sum()) for block in item[1]))
    order = search(torch.cat(stack), movable=torch.tensor(places) >= 0).tolist()
    return {place: places[source] for place, source in zip(places, order, strict=True) if place >= 0}


def _quads(channels: list[int], space: set[int]) -> tuple[tuple[int, ...], list[int]]:
    """The groups of four that hold channels of a space: the channel of each place (-1: of no interest), its column.

    Sorted, so that layers that see the space in the same groups get the same places. Empty when the layer has no
    groups of four channels, or has a channel several times (after a flatten: they cannot move one by one).
    """
    count = Counter(channel for channel in channels if channel in space)
    if len(channels) % 4 or max(count.values(), default=2) > 1:
        return (), []
    quads = [range(first, first + 4) for first in range(0, len(channels), 4)]
    marked = [sorted((channels[i] if channels[i] in space else -1, i) for i in quad) for quad in quads]
    marked = sorted((quad for quad in marked if quad[-1][0] >= 0), key=lambda quad: quad[-1])
    return tuple(channel for quad in marked for channel, _ in quad), [i for quad in marked for _, i in quad]


def _blocks(magnitude: Tensor, groups: int) -> list[Tensor]:
    """For each group of a layer its matrix [rows, input channels]; each kernel position is another set of rows."""
    channels = magnitude.shape[1]
    return [as_matrix(block).reshape(-1, channels) for block in magnitude.chunk(groups)]


def _order(axis: Axis, moves: Moves) -> Tensor:
    """Which entry of an axis comes to each place."""
    seen: Counter = Counter()
    entries = []
    for entry in axis.entries():  # copies of a channel differ in nothing but their number
        entries.append((*entry, seen[entry]))
        seen[entry] += 1
    index = {entry: i for i, entry in enumerate(entries)}
    return torch.tensor([index[moves.get(channel, channel), *rest] for channel, *rest in entries])


def _moved(tensor: Tensor, dim: int, axis: Axis, moves: Moves) -> Tensor:
    """A parameter with one axis in its new order."""
    order = _order(axis, moves).to(tensor.device)
    if len(order) == tensor.shape[dim]:
        return tensor.index_select(dim, order)
    # the columns of a grouped convolution: each group's rows have an order of their own
    orders = (order.reshape(axis.groups, -1) % tensor.shape[dim]).unbind()
    parts = zip(tensor.chunk(axis.groups), orders, strict=True)
    return torch.cat([part.index_select(dim, order) for part, order in parts])


def apply(model: nn.Module, ties: Ties, moves: Moves) -> None:
    """Move everything that belongs to the channels."""
    tensors = dict([*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)])
    with torch.no_grad():
        for (name, dim), axis in ties.axes.items():
            tensors[name].copy_(_moved(tensors[name], dim, axis, moves))


def outputs(model: nn.Module, inputs: tuple[Any, ...]) -> list[Tensor]:
    """Say what a network gives on inputs in evaluation mode, all numbers in float64.

    Raises:
        BadInput: it cannot take them, or gives no tensor, an empty one, or numbers that are not finite.
    """
    double = tuple(x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs)
    network = copy.deepcopy(model).double().eval()
    try:
        with torch.no_grad():
            given = leaves(network(*double), Tensor)
    except Exception as error:  # whatever the model's own code raises
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"permute: {type(model).__name__} cannot take these inputs ({reason})") from error
    found = [part.to(torch.promote_types(part.dtype, torch.double)) for part in given]
    if not sum(part.numel() for part in found):
        raise BadInput(f"permute: {type(model).__name__} gives no number on these inputs, so nothing can be checked")
    if not all(bool(torch.isfinite(part).all()) for part in found):
        raise BadInput("permute: outputs are not finite on these inputs: neither they nor weights may hold NaN or inf")
    return found


def difference(expected: list[Tensor], found: list[Tensor]) -> float:
    """Return the largest change of an output; 0 where it is no more than rounding."""
    parts = [(one, float((one - other).abs().max())) for one, other in zip(expected, found, strict=True) if one.numel()]
    return max((change for one, change in parts if not change <= 1e-6 * float(one.abs().max())), default=0.0)


def compare(model: nn.Module, permuted: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Stop if the permuted network does not compute the same: a rule of `channels` is wrong then."""
    if change := difference(outputs(model, inputs), outputs(permuted, inputs)):
        raise RuntimeError(f"permute: an output changed by {change:.2g}; lib.pruners.permutation.channels is wrong")


def _row(name: str, magnitude: Tensor, chosen: list[str], ties: Ties, moves: Moves) -> dict:
    """A layer's row of the report."""
    inner, axis = magnitude[0].numel(), ties.axes.get((name, 1))
    row = {"layer": name, "kept_before": math.nan, "kept_after": math.nan, "efficacy": math.nan, "permuted": False}
    if name not in chosen:
        return row | {"why": "not among the layers to prune"}
    if inner % 4:
        return row | {"why": f"its inner dimension {inner} is not a multiple of 4"}
    found = magnitude if axis is None else _moved(magnitude, 1, axis, moves)
    before, after = kept_magnitude(as_matrix(magnitude)), kept_magnitude(as_matrix(found))
    best = sum(bound(block) for block in _blocks(magnitude, 1 if axis is None else axis.groups))
    total = float(magnitude.double().sum()) or math.nan
    row["kept_before"], row["kept_after"] = 100 * before / total, 100 * after / total
    row["efficacy"] = 100 * (after - before) / (best - before) if after != before else 0.0
    row["permuted"] = axis is not None and not moves.keys().isdisjoint(axis.channel.tolist())
    return row | {"why": _why(name, axis, chosen, ties, moves)}


def _why(name: str, axis: Axis | None, chosen: list[str], ties: Ties, moves: Moves) -> str:
    """With which layers a permuted layer shares its order, or why it is not permuted."""
    if axis is None:
        return "depth-wise: it follows its input" if (name, 0) in ties.axes else "no rule reads it: it stays as it is"
    channels = axis.channel.tolist()
    if moving := moves.keys() & set(channels):
        others = {other: ties.axes.get((other, 1)) for other in chosen if other != name}
        also = [other for other, reads in others.items() if reads and moving & set(reads.channel.tolist())]
        return f"shares its order with {', '.join(also)}" if also else ""
    if all(channel in ties.fixed for channel in channels):
        return ties.fixed[channels[0]]
    if len(channels) // axis.groups % 4:
        return "its groups of four do not lie within one kernel position"
    if max(Counter(channels).values()) > 1:
        return "flattened: each channel is several columns, which stay together"
    return "no better order was found"
