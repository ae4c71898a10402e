"""Which channels of a network are one and the same, and what reads and writes them.

A permutation must move a channel in every place at once: the rows of the layers that produce it, the columns of those
that read it, its batch norms, and whatever it is added to. Here that is found by following labels through the graph of
`torch.fx`. Each number that flows through the network carries the channel it belongs to and a fingerprint of its place
in that channel. What happens to the labels depends on what happens to the numbers:

    moved       reshape, transpose, concatenation, split: the same function is run on the labels, so a channel shuffle
                or a head's view needs no rule of its own
    one by one  ReLU, sums, products: labels stay; channels that meet in one number are tied to each other
    summed up   mean, pooling: labels stay, as long as one channel is summed at a time
    layers      Linear, Conv2d, norms, embeddings, parameters: an axis of a parameter is tied to the channels it meets
    all else    fixes the channels it touches, with the reason why

Channels may change places if and only if the same entries of the same parameters belong to them (`Ties.spaces`). That
one rule covers siblings, groups, concatenations and splits.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate

from lib.base import BadInput


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MOVES = _words(
    """cat concat concatenate stack chunk split tensor_split unbind getitem narrow select reshape view flatten unflatten
    transpose permute movedim swapaxes squeeze unsqueeze expand repeat flip roll contiguous clone detach
    channel_shuffle pixel_shuffle pixel_unshuffle Flatten Unflatten ChannelShuffle PixelShuffle"""
)
ONE_BY_ONE = _words(
    """add sub mul div truediv iadd isub imul itruediv maximum minimum neg abs square sqrt rsqrt pow exp log clamp relu
    relu6 leaky_relu elu selu gelu silu mish sigmoid tanh hardswish hardsigmoid hardtanh softplus dropout float double
    half to Identity ReLU ReLU6 LeakyReLU PReLU ELU SELU GELU SiLU Mish Sigmoid Tanh Hardswish Hardsigmoid Hardtanh
    Softplus Dropout Dropout2d"""
)
POOLS = _words(
    """max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d interpolate MaxPool2d AvgPool2d AdaptiveAvgPool2d
    AdaptiveMaxPool2d Upsample ZeroPad2d"""
)
SUMS = _words("mean sum amax amin")
CONSTANTS = _words("new_zeros new_ones new_full zeros_like ones_like full_like")
ATTENTION = _words("matmul bmm baddbmm einsum scaled_dot_product_attention")


@dataclass(frozen=True)
class Value:
    """Hold a tensor of the network and, in its shape, which channel each number belongs to and where in it it stands.

    No two numbers of the network carry the same channel and place, unless one is a copy of the other.
    """

    numbers: Tensor
    channel: Tensor
    place: Tensor

    @property
    def varying(self) -> list[int]:
        """Find the axes, counted from the last, along which the channel changes."""
        axes = range(-self.channel.dim(), 0)
        return [axis for axis in axes if bool((self.channel != self.channel.narrow(axis, 0, 1)).any())]


@dataclass
class Axis:
    """Say what one axis of a parameter belongs to, entry by entry.

    Attributes:
        channel: [length].
        pattern: [length], a fingerprint of the places that meet the entry: after a flatten each channel has several
            entries, which differ in it.
        groups: of a grouped convolution. Its input channels are those of all groups one after the other.
    """

    channel: Tensor
    pattern: Tensor
    groups: int = 1

    def entries(self) -> list[tuple[int, int, int]]:
        """Return (channel, group, pattern) of each entry."""
        size = len(self.channel) // self.groups
        pairs = zip(self.channel.tolist(), self.pattern.tolist(), strict=True)
        return [(channel, i // size, pattern) for i, (channel, pattern) in enumerate(pairs)]


@dataclass(frozen=True)
class Ties:
    """Hold what `read` finds: {(parameter, axis): Axis}, tied channels under one number, and why some stay in order."""

    axes: dict[tuple[str, int], Axis]
    fixed: dict[int, str]

    def spaces(self) -> list[list[int]]:
        """Find the sets of at least two channels that may change places with each other in any way."""
        belongs: dict[int, list] = defaultdict(list)
        for name, axis in self.axes.items():
            for channel, *entry in axis.entries():
                belongs[channel].append((*name, *entry))
        alike: dict[tuple, list[int]] = defaultdict(list)
        for channel, entries in belongs.items():
            if channel not in self.fixed:
                alike[tuple(sorted(entries))].append(channel)
        return [channels for channels in alike.values() if len(channels) > 1]


def read(model: nn.Module, inputs: tuple[Any, ...]) -> Ties:
    """Follow the channels of a model through one forward pass in evaluation mode. The model is not changed.

    Raises:
        BadInput: `torch.fx` cannot trace the model.
    """
    model = copy.deepcopy(model).eval()
    # before tracing, which registers each constant of the forward pass as one more buffer
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    try:
        graph = fx.symbolic_trace(model)
    except Exception as error:  # whatever the model's own code raises when it is given a stand-in for numbers
        raise BadInput(f"torch.fx cannot trace {type(model).__name__}: {error}") from error
    reader = _Reader(graph, {name for name, _ in named})
    with torch.no_grad():
        reader.run(*inputs)
    return reader.ties()


class _Channels:
    """Numbers for channels, and which of them are the same (union-find)."""

    def __init__(self):
        self.parent: list[int] = []
        self.made: list[tuple[str, Tensor]] = []
        self.reasons: dict[int, str] = {}

    def new(self, count: int, source: str) -> Tensor:
        first = len(self.parent)
        self.parent += range(first, first + count)
        self.made.append((source, torch.arange(first, first + count)))
        return self.made[-1][1]

    def find(self, channel: int) -> int:
        while self.parent[channel] != channel:
            self.parent[channel] = channel = self.parent[self.parent[channel]]
        return channel

    def tie(self, first: Tensor, second: Tensor) -> None:
        first, second = torch.broadcast_tensors(first, second)
        differ = first != second
        for a, b in torch.stack([first[differ], second[differ]], dim=1).unique(dim=0).tolist():
            self.parent[self.find(b)] = self.find(a)

    def fix(self, channels: Tensor, why: str) -> None:
        for channel in channels.unique().tolist():
            self.reasons.setdefault(channel, why)

    def roots(self, channels: Tensor) -> Tensor:
        return torch.tensor([self.find(channel) for channel in channels.tolist()])

    def fixed(self) -> dict[int, str]:
        """{channel: why it stays}. A channel tied with another of the same layer has no room to move."""
        for source, channels in self.made:
            _, inverse, count = self.roots(channels).unique(return_inverse=True, return_counts=True)
            self.fix(channels[count[inverse] > 1], f"channels of {source} meet each other in one number")
        found: dict[int, str] = {}
        for channel, why in self.reasons.items():
            found.setdefault(self.find(channel), why)
        return found


class _Reader(fx.Interpreter):
    """Runs a traced model on `Value`s. Only the model's own tensors, given by their names, can be permuted."""

    def __init__(self, graph: fx.GraphModule, own: set[str]):
        super().__init__(graph)
        self.own = own
        self.channels = _Channels()
        self.axes: dict[tuple[str, int], Axis] = {}
        self.names = {id(tensor): name for name, tensor in [*graph.named_parameters(), *graph.named_buffers()]}
        self.draw = torch.Generator().manual_seed(0)

    def ties(self) -> Ties:
        """What was found, tied channels under one number."""
        roots = self.channels.roots
        axes = {name: Axis(roots(axis.channel), axis.pattern, axis.groups) for name, axis in self.axes.items()}
        return Ties(axes, self.channels.fixed())

    # Nodes of the graph

    def placeholder(self, target, args, kwargs):
        return self._fixed(super().placeholder(target, args, kwargs), "the network's input")

    def output(self, target, args, kwargs):
        for value in leaves(args, Value):
            self.channels.fix(value.channel, "the network's output")

    def get_attr(self, target, args, kwargs):
        """A tensor of the model used by itself: its last axis longer than one is taken for its channels."""
        tensor = super().get_attr(target, args, kwargs)
        if tensor.numel() == 1 or target not in self.own:
            return self._fixed(tensor, "a constant")
        axis = max(axis for axis in range(-tensor.dim(), 0) if tensor.shape[axis] > 1)
        rows = self._rows(tensor, tensor.dim() + axis)
        return self._spread(rows, torch.zeros_like(rows), tensor, axis)

    def call_function(self, target, args, kwargs):
        if target is getattr and isinstance(args[0], tuple):  # such as the values of max: they have their labels
            return getattr(*args)
        return self._call(target.__name__, target, args, kwargs)

    def call_method(self, target, args, kwargs):
        # labels need not lie in memory as the numbers do, so that a view of them may have to be a copy
        return self._call(target, getattr(torch.Tensor, "reshape" if target == "view" else target), args, kwargs)

    def call_module(self, target, args, kwargs):
        module = self.fetch_attr(target)
        if type(module) in LAYERS and len(args) == 1 and isinstance(args[0], Value):
            value = LAYERS[type(module)](self, module, args[0], module(args[0].numbers))
            if value is not None:
                return value
        return self._call(type(module).__name__, module, args, kwargs)

    def _call(self, name: str, function: Callable, args: tuple, kwargs: dict):
        """A function or method, or a module whose parameters do not matter."""
        name, values = name.rstrip("_"), leaves((args, kwargs), Value)
        result = function(*_part("numbers", args), **_part("numbers", kwargs))
        if not leaves(result, Tensor):
            return result  # such as a shape
        if name in MOVES and not leaves((args[1:], kwargs), Value):  # a computed index could be another next time
            return _zip(result, *(function(_part(part, args[0]), *args[1:], **kwargs) for part in ("channel", "place")))
        if name in ONE_BY_ONE and values:
            return self._one_by_one(values, result)
        if name in POOLS and len(values) == 1 and isinstance(result, Tensor) and result.dim() == 4:
            return self._pooled(values[0], result)
        dims = args[1] if len(args) > 1 else kwargs.get("dim")
        if name in SUMS and len(values) == 1 and dims is not None:
            return self._summed(values[0], result, (dims,) if isinstance(dims, int) else tuple(dims))
        if name in CONSTANTS or not values:
            return self._fixed(result, f"it meets a constant ({name})")
        products = "head structure: attention multiplies these channels with each other"
        why = products if name in ATTENTION else f"there is no rule for {name}, so what it touches stays in order"
        for value in values:
            self.channels.fix(value.channel, why)
        return self._fixed(result, why)

    # What happens to labels

    def _fixed(self, result: Any, why: str):
        """Labels of numbers that stay where they are: one channel of their own for all of them."""
        channel = self.channels.new(1, why)[0]
        self.channels.fix(channel, why)

        def label(part):
            return Value(part, channel.expand(part.shape), torch.zeros(part.shape, dtype=torch.long))

        found = map_aggregate(result, lambda part: label(part) if isinstance(part, Tensor) else part)
        # torch.fx makes plain tuples of torch's own named ones, such as that of max
        return type(result)(found) if type(result) in torch.return_types.all_return_types else found

    def _one_by_one(self, values: list[Value], result: Tensor) -> Value:
        """Each number of the result comes from one number of each value: their channels are tied."""
        main = max(values, key=lambda value: (len(value.varying), value.channel.numel()))
        varying = main.varying
        place = self._random(())
        for value in values:
            sizes = [1] * result.dim() + list(value.channel.shape)
            if varying and value is not main and all(sizes[axis] == 1 for axis in varying):
                self.channels.fix(value.channel, "one number for all channels of another layer")
            else:
                self.channels.tie(main.channel, value.channel)
            place = place + value.place * self._random(())
        return Value(result, main.channel.expand(result.shape), place.expand(result.shape))

    def _summed(self, value: Value, result: Tensor, dims: tuple[int, ...]) -> Value:
        """Numbers along some axes become one: their channels are tied."""
        first, sizes = value.channel, [1] * value.channel.dim()
        for axis in dims:
            first, sizes[axis] = first.narrow(axis, 0, 1), first.shape[axis]
        self.channels.tie(value.channel, first)
        place = (value.place * self._random(sizes)).sum(dims)
        return Value(result, first.reshape(result.shape), place.reshape(result.shape))

    def _pooled(self, value: Value, result: Tensor) -> Value:
        """Each image of a channel becomes another image."""
        image = self._summed(value, result[..., :1, :1], (-2, -1))
        place = image.place + self._random(result.shape[-2:])
        return Value(result, image.channel.expand(result.shape), place)

    def _along(self, value: Value, axis: int) -> tuple[Tensor, Tensor]:
        """The channel of each index of an axis, which are tied where they are several, and a fingerprint of places."""
        channel = value.channel.movedim(axis, 0).flatten(1)
        self.channels.tie(channel, channel[:, :1])
        place = value.place.movedim(axis, 0).flatten(1)
        return channel[:, 0], (place * self._random(place.shape[1])).sum(1)

    def _spread(self, channel: Tensor, pattern: Tensor, result: Tensor, axis: int) -> Value:
        """New numbers: their channels are given along an axis, and each of the other axes' indices is a place."""
        shape = [1] * result.dim()
        shape[axis] = -1
        places = list(result.shape)
        places[axis] = 1
        place = self._random(places) + pattern.reshape(shape) * self._random(())
        return Value(result, channel.reshape(shape).expand(result.shape), place)

    def _random(self, shape: Sequence[int] | int) -> Tensor:
        """Fingerprints are sums of products with random odd numbers of 64 bits: two are equal by chance about never."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        return torch.randint(-(2**62), 2**62, shape, generator=self.draw) * 2 + 1

    # Parameters

    def _rows(self, tensor: Tensor, axis: int, groups: int = 1) -> Tensor:
        """The channels that an axis of a parameter produces."""
        name = self.names[id(tensor)]
        if (name, axis) not in self.axes:
            channel = self.channels.new(tensor.shape[axis], name)
            self.axes[name, axis] = Axis(channel, torch.zeros_like(channel), groups)
        return self.axes[name, axis].channel

    def _tie(self, tensor: Tensor | None, axis: int, channel: Tensor, pattern: Tensor, groups: int = 1) -> None:
        """An axis of a parameter meets these channels."""
        if tensor is None:
            return
        known = self.axes.setdefault((self.names[id(tensor)], axis), Axis(channel, pattern, groups))
        if known.channel is not channel:  # a layer that is called twice
            self.channels.tie(known.channel, channel)
            known.pattern = known.pattern + pattern * self._random(())

    def _layer(self, module: nn.Linear | nn.Conv2d, value: Value, result: Tensor) -> Value:
        """A layer reads the channels of its input and writes its own. A depth-wise one passes its input's on."""
        axis, groups = (-3, module.groups) if isinstance(module, nn.Conv2d) else (-1, 1)
        channel, pattern = self._along(value, axis)
        if 1 < groups == module.in_channels == module.out_channels:
            self._tie(module.weight, 0, channel, pattern)
        else:
            self._tie(module.weight, 1, channel, pattern, groups)
            channel = self._rows(module.weight, 0, groups)
            pattern = torch.zeros_like(channel)
        self._tie(module.bias, 0, channel, pattern)
        return self._spread(channel, pattern, result, axis)

    def _norm(self, module: nn.Module, value: Value, result: Tensor) -> Value | None:
        """A vector for each channel: batch, group or layer norm, PReLU. What has none is left to `_call`."""
        axis = -1 if isinstance(module, nn.LayerNorm) else 1
        vectors = [getattr(module, name, None) for name in ("weight", "bias", "running_mean", "running_var")]
        sizes = {tuple(vector.shape) for vector in vectors if vector is not None}
        if sizes != {(value.numbers.shape[axis],)}:
            return None
        channel, pattern = self._along(value, axis)
        for vector in vectors:
            self._tie(vector, 0, channel, pattern, getattr(module, "num_groups", 1))
        return self._spread(channel, pattern, result, axis)

    def _embedding(self, module: nn.Embedding, value: Value, result: Tensor) -> Value:
        channel = self._rows(module.weight, 1)
        return self._spread(channel, torch.zeros_like(channel), result, -1)


LAYERS = {
    nn.Linear: _Reader._layer,
    nn.Conv2d: _Reader._layer,
    nn.BatchNorm1d: _Reader._norm,
    nn.BatchNorm2d: _Reader._norm,
    nn.GroupNorm: _Reader._norm,
    nn.LayerNorm: _Reader._norm,
    nn.PReLU: _Reader._norm,
    nn.Embedding: _Reader._embedding,
}


def leaves(tree: Any, kind: type) -> list:
    """Collect all of one type in nested tuples, lists and dicts."""
    found: list = []
    map_aggregate(tree, lambda leaf: found.append(leaf) if isinstance(leaf, kind) else None)
    return found


def _part(part: str, tree: Any) -> Any:
    """The same tree with one field of each Value instead."""
    return map_aggregate(tree, lambda leaf: getattr(leaf, part) if isinstance(leaf, Value) else leaf)


def _zip(numbers: Any, channel: Any, place: Any) -> Any:
    """A tree of Values from three trees of tensors."""
    if isinstance(numbers, Tensor):
        return Value(numbers, channel, place)
    return tuple(_zip(*parts) for parts in zip(numbers, channel, place, strict=True))
