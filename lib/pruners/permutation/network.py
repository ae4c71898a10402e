"""Permute the channels of a whole network so that 2:4 keeps more of its weights (paper 2, section 4.1).

`channels.read` says which channels may change places. For each such set the layers that read it are stacked, because
they share one order; a search on that one matrix finds it; then rows, columns and all that follows are moved.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
import torch
from torch import Tensor, nn

from lib.base import BadInput
from lib.pruners.behind import behind
from lib.pruners.counted import refuse_valueless
from lib.pruners.inputs import Inputs, duplicate
from lib.pruners.kinds import Layout
from lib.pruners.layers import eligible, prunable, unwrapped
from lib.pruners.masks import attached
from lib.pruners.permutation.channels import read
from lib.pruners.permutation.labels import Axis, Ties
from lib.pruners.permutation.same import compare, difference, outputs
from lib.pruners.permutation.search import anneal, bound, kept_magnitude
from lib.pruners.selected import Select
from lib.pruners.weights import Prunable

Moves = dict[int, int]  # {channel: the channel that comes to its places}


def permute(
    model: nn.Module,
    inputs: Inputs,
    select: Select = None,
    search: Callable[..., Tensor] = anneal,
    unused: Iterable[str] = (),
) -> tuple[nn.Module, pd.DataFrame]:
    """Copy a network into one that computes the same function, with its channels in an order of which 2:4 keeps more.

    Inputs and outputs stay in order. Layers that read the same channels share an order, the best for all of them
    together: one of them may lose a little where the others gain more. Whatever has no rule (see
    `channels.read`) keeps the channels it touches where they are. The result is checked on the inputs in float64, in
    evaluation and in training mode.

    Parameters that these inputs do not reach, in neither mode, might read any channel. If there are any, nothing is
    permuted, unless `unused` says that they never do.

    Args:
        inputs: an example of what the network is called with, see `pruners.inputs`. Few and small ones do.
        select: the weights that will be pruned, as `layers.prunable`; None: the `eligible` ones. The others follow, but
            what they would keep does not count.
        search: `anneal`, `greedy` or one like them, called with a matrix [R, C] and `movable`, bool [C].
        unused: names of parameters, of modules with all that is in them, or patterns, that nobody ever calls; "*" for
            all that these inputs do not reach.

    Returns:
        The permuted copy, and a table with one row a prunable layer: layer; kept_before and kept_after, percent of its
        magnitude that 2:4 keeps; efficacy, percent as in `search.efficacy`; permuted; and why it is not, or with
        which layers it shares its order. Layers that will not be pruned have no numbers.

    Raises:
        BadInput: a masked model, an unknown name, a search that is no function, a model that `torch.fx` cannot trace,
            inputs that it cannot take, or outputs by which no result could be checked: none, not finite, or others a
            second time.
    """
    if not callable(search):
        raise BadInput(f"search={search!r:.40}: expected a function such as permutation.search.anneal")
    model = unwrapped(model)
    masked = attached(model)
    if masked:
        raise BadInput(f"{next(iter(masked))} has a mask: permute before pruning")
    layers = {layer.name: layer for layer in prunable(model)}
    refuse_valueless(layers.values())
    chosen = eligible(model) if select is None else [layer.name for layer in prunable(model, select)]
    if change := difference(outputs(model, inputs), outputs(model, inputs)):
        raise BadInput(f"permute: {type(model).__name__} gives other numbers (by {change:.2g}) on the same inputs")
    ties = read(model, inputs, unused)
    layers = {layer.name: _Layer.of(layer, model, ties) for layer in layers.values()}
    readers = {name: layers[name] for name in chosen if layers[name].axis and layers[name].inner % 4 == 0}
    moves: Moves = {}
    for space in ties.spaces():
        affected = [one for one in readers.values() if not set(space).isdisjoint(one.axis.channel.tolist())]
        proposed = moves | _search(affected, space, moves, search)
        before, after = (sum(kept_magnitude(one.matrix(which)) for one in affected) for which in (moves, proposed))
        if after > before:
            moves = proposed
    permuted = duplicate(model)
    apply(permuted, ties, moves)
    compare(model, permuted, inputs)
    return permuted, pd.DataFrame([_row(layer, chosen, layers, ties, moves) for layer in layers.values()])


@dataclass(frozen=True)
class _Layer:
    """A layer as the search sees it.

    Attributes:
        magnitude: of its weight, on the CPU.
        inner: GEMM-K.
        first: the name by which the reader knows its parameter, which other layers may have too.
        axis: what its input channels are; None: no rule reads it.
    """

    name: str
    layout: Layout
    magnitude: Tensor
    inner: int
    first: str
    axis: Axis | None

    @classmethod
    def of(cls, layer: Prunable, model: nn.Module, ties: Ties) -> _Layer:
        own = {id(parameter) for parameter in behind(layer.module)[layer.attribute]}
        first = next((name for name, parameter in model.named_parameters() if id(parameter) in own), layer.name)
        axis = ties.axes.get((first, layer.layout.input))
        return cls(layer.name, layer.layout, layer.weight.abs().cpu(), layer.inner, first, axis)

    def moved(self, moves: Moves) -> Tensor:
        """Its magnitude with its input channels in another order."""
        return self.magnitude if self.axis is None else _moved(self.magnitude, self.layout.input, self.axis, moves)

    def matrix(self, moves: Moves) -> Tensor:
        return self.layout.matrix(self.moved(moves))

    def blocks(self, moves: Moves) -> list[Tensor]:
        """For each of its groups the matrix [rows, input channels]; each kernel position is another set of rows."""
        parts = self.moved(moves).chunk(1 if self.axis is None else self.axis.groups)
        return [
            replace(self.layout, groups=1).matrix(part).reshape(-1, part.shape[self.layout.input]) for part in parts
        ]


def _search(affected: Sequence[_Layer], space: list[int], moves: Moves, search: Callable) -> Moves:
    """The moves within one space that keep most in the layers that read it, taken together.

    Layers can be stacked when they see the channels in the same groups of four. Where they do not (a channel shuffle
    between them), those with the largest weights decide.
    """
    stacks: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
    for layer in affected:
        for block, channels in zip(layer.blocks(moves), layer.axis.channel.chunk(layer.axis.groups), strict=True):
            places, columns = _quads(channels.tolist(), set(space))
            if len(places) >= 8:
                stacks[places].append(block[:, columns])
    if not stacks:
        return {}
    places, stack = max(stacks.items(), key=lambda item: sum(float(block.sum()) for block in item[1]))
    order = search(torch.cat(stack), movable=torch.tensor(places) >= 0)
    if not isinstance(order, Tensor) or order.dim() != 1 or sorted(order.tolist()) != list(range(len(places))):
        raise BadInput(f"search gives {order!r:.40}: expected each of 0 to {len(places) - 1} once, a tensor")
    order = order.tolist()
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


def _row(layer: _Layer, chosen: list[str], layers: Mapping[str, _Layer], ties: Ties, moves: Moves) -> dict:
    """A layer's row of the report."""
    row = {"layer": layer.name, "kept_before": math.nan, "kept_after": math.nan, "efficacy": math.nan}
    row["permuted"] = False
    if layer.name not in chosen:
        return row | {"why": "not among the layers to prune"}
    if layer.inner % 4:
        return row | {"why": f"its inner dimension {layer.inner} is not a multiple of 4"}
    before, after = kept_magnitude(layer.matrix({})), kept_magnitude(layer.matrix(moves))
    best = sum(bound(block) for block in layer.blocks({}))
    total = float(layer.magnitude.double().sum()) or math.nan
    row["kept_before"], row["kept_after"] = 100 * before / total, 100 * after / total
    row["efficacy"] = 100 * (after - before) / (best - before) if after != before else 0.0
    row["permuted"] = layer.axis is not None and not moves.keys().isdisjoint(layer.axis.channel.tolist())
    return row | {"why": _why(layer, [layers[name] for name in chosen], ties, moves)}


def _why(layer: _Layer, chosen: Sequence[_Layer], ties: Ties, moves: Moves) -> str:
    """With which layers a permuted layer shares its order, or why it is not permuted."""
    axis = layer.axis
    if axis is None:
        follows = (layer.first, 0) in ties.axes
        return "depth-wise: it follows its input" if follows else "no rule reads it: it stays as it is"
    channels = axis.channel.tolist()
    if moving := moves.keys() & set(channels):
        readers = [other for other in chosen if other is not layer and other.axis]
        also = [other.name for other in readers if moving & set(other.axis.channel.tolist())]
        return f"shares its order with {', '.join(also)}" if also else ""
    if all(channel in ties.fixed for channel in channels):
        return ties.fixed[channels[0]]
    if len(channels) // axis.groups % 4:
        return "its groups of four do not lie within one kernel position"
    if max(Counter(channels).values()) > 1:
        return "flattened: each channel is several columns, which stay together"
    return "no better order was found"
