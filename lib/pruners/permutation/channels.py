"""Find which channels of a network are one and the same, and what reads and writes them.

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

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate

from lib.base import BadInput
from lib.pruners import kinds
from lib.pruners.inputs import Inputs, arguments, call, cloned, duplicate, tensors
from lib.pruners.permutation.labels import (
    ABOUT,
    ATTENTION,
    CONSTANTS,
    IN_PLACE,
    MOVES,
    NUMBERS,
    ONE_BY_ONE,
    POOLS,
    SUMS,
    Axis,
    Channels,
    Ties,
    Value,
)
from lib.pruners.permutation.same import difference, widened


def read(model: nn.Module, inputs: Inputs, unused: Iterable[str] = ()) -> Ties:
    """Follow the channels of a model through one forward pass in evaluation mode. The model is not changed.

    If there are parameters that it does not reach, as of branches for training, a pass in training mode is followed
    too. What is then still not reached, `unused` aside, might read any channel: all stay where they are.

    Raises:
        BadInput: `torch.fx` cannot trace the model, or traces another function.
    """
    model = duplicate(model).eval()
    # before tracing, which registers each constant of the forward pass as one more buffer
    named = {name: id(tensor) for name, tensor in model.named_buffers()}
    named |= {name: id(parameter) for name, parameter in model.named_parameters()}
    traced = _traced(model, cloned(inputs))
    _check(model, inputs, *traced)
    reader = _Reader(*traced, named)
    reader.follow()
    idle = tuple(unused)
    left = [n for n, p in model.named_parameters() if id(p) not in reader.reached and not _within(n, idle)]
    if left:
        try:
            again = _Reader(*_traced(model.train(), cloned(inputs)), named, reader)
            model.eval()  # layers compute as in evaluation, only the way through the model is that of training
            with torch.random.fork_rng(devices=[]):  # dropout draws on this way
                again.follow()
        except Exception as error:  # whatever the model's own code raises in training
            why = f"{left[0]} is not reached in evaluation mode, and training mode cannot be followed: {error}"
            reader.channels.fix_all(why.splitlines()[0])
        left = [n for n in left if id(model.get_parameter(n)) not in reader.reached]
    if left:
        why = "these inputs do not reach it, in neither mode, and it might read any channel: see `unused`"
        reader.channels.fix_all(f"{left[0]}: {why}")
    return reader.ties()


def _traced(model: nn.Module, inputs: Inputs) -> tuple[fx.GraphModule, list]:
    """The graph of a model's forward pass, and a value for each of its arguments.

    An argument that says yes, no, nothing or a number is what it says.
    """
    args, kwargs = arguments(inputs)
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        said = (bool, int, float, type(None))
        constant = {name: value for name, value in bound.arguments.items() if isinstance(value, said)}
        graph = fx.Tracer().trace(model, constant or None)
    except Exception as error:  # whatever the model's own code raises when it is given a stand-in for numbers
        raise BadInput(f"torch.fx cannot trace {type(model).__name__}: {error}") from error
    starred = {p.name for p in inspect.signature(model.forward).parameters.values() if p.kind is p.VAR_POSITIONAL}
    values = [bound.arguments[name] for name in bound.arguments if name not in starred]
    return fx.GraphModule(model, graph), [*values, *(one for name in starred for one in bound.arguments.get(name, ()))]


def _check(model: nn.Module, inputs: Inputs, graph: fx.GraphModule, values: list) -> None:
    """Refuse a graph that computes something else: it has no `+=` on a part of a tensor, and no hook of the whole."""
    with torch.no_grad():
        expected = widened(tensors(call(model, cloned(inputs))))
        found = widened(tensors(fx.Interpreter(graph).run(*cloned(values)[0])))
    if len(expected) != len(found) or difference(expected, found):
        raise BadInput(
            f"torch.fx sees another function than {type(model).__name__} computes, "
            "as of `x[:, :8] += y` or a hook on the whole network: expected a network that it can trace"
        )


def _within(name: str, wholes: Sequence[str]) -> bool:
    return any(name == whole or name.startswith(f"{whole}.") or fnmatchcase(name, whole) for whole in wholes)


class _Reader(fx.Interpreter):
    """Runs a traced model on `Value`s. Only the model's own tensors, given by their names, can be permuted."""

    def __init__(self, graph: fx.GraphModule, values: list, own: dict[str, int], before: _Reader | None = None):
        super().__init__(graph)
        self.values = values
        self.names = {number: name for name, number in own.items()}  # of the model's own tensors
        self.channels = before.channels if before else Channels()
        self.axes: dict[tuple[str, int], Axis] = before.axes if before else {}
        self.bare: dict[str, int] = before.bare if before else {}  # tensors used by themselves: the axis of channels
        self.reached: set[int] = before.reached if before else set()
        self.draw = before.draw if before else torch.Generator().manual_seed(0)

    def follow(self) -> None:
        with torch.no_grad():
            self.run(*self.values)

    def ties(self) -> Ties:
        """What was found, tied channels under one number."""
        for (name, dim), axis in self.axes.items():
            if dim != self.bare.get(name, dim):
                self.channels.fix(axis.channel, f"{name} is used by itself too, which reads its channels in order")
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
        self.reached.add(id(tensor))
        if not isinstance(tensor, Tensor) or tensor.numel() == 1 or id(tensor) not in self.names:
            return self._fixed(tensor, "a constant")
        axis = max(axis for axis in range(-tensor.dim(), 0) if tensor.shape[axis] > 1)
        self.bare[self.names[id(tensor)]] = tensor.dim() + axis
        rows = self._rows(tensor, tensor.dim() + axis)
        return self._spread(rows, torch.zeros_like(rows), tensor, axis)

    def call_function(self, target, args, kwargs):
        if target is getattr and isinstance(args[0], tuple):  # such as the values of max: they have their labels
            return getattr(*args)
        return self._call(target.__name__, target, args, kwargs)

    def call_method(self, target, args, kwargs):
        if not isinstance(args[0], Value):  # such as a part in TorchScript, whose `forward` is called
            return self._call(target, getattr(args[0], target), args[1:], kwargs)
        # labels need not lie in memory as the numbers do, so that a view of them may have to be a copy
        return self._call(target, getattr(torch.Tensor, "reshape" if target == "view" else target), args, kwargs)

    def call_module(self, target, args, kwargs):
        module = self.fetch_attr(target)
        self.reached.update(id(parameter) for parameter in module.parameters())
        plain = not (module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))
        if plain and type(module) in LAYERS and len(args) == 1 and isinstance(args[0], Value):
            value = LAYERS[type(module)](self, module, args[0], module(args[0].numbers))
            if value is not None:
                return value
        return self._call(type(module).__name__, module, args, kwargs)

    def _call(self, name: str, function: Callable, args: tuple, kwargs: dict):
        """A function or method, or a module whose parameters do not matter."""
        if in_place(name, function, kwargs) and args and isinstance(args[0], Value):
            whole = args[0].numbers._base
            if whole is not None and whole.numel() != args[0].numbers.numel():
                self.channels.fix(args[0].channel, f"{name} changes a part of a tensor in place")
        name = name.rstrip("_")
        if name == "to":  # like another tensor, of which only type and device count
            args, kwargs = (*args[:1], *_part("numbers", args[1:])), _part("numbers", kwargs)
        values = leaves((args, kwargs), Value)
        result = function(*_part("numbers", args), **_part("numbers", kwargs))
        if not leaves(result, Tensor):
            if name in NUMBERS or not isinstance(result, ABOUT):
                for value in values:
                    self.channels.fix(value.channel, f"{name} takes numbers out of tensors")
            return result
        if name in MOVES and not leaves((args[1:], kwargs), Value):  # a computed index could be another next time
            return _zip(result, *(function(_part(part, args[0]), *args[1:], **kwargs) for part in ("channel", "place")))
        if name in ONE_BY_ONE and values:
            return self._one_by_one(values, result)
        if name in POOLS and len(values) == 1 and isinstance(result, Tensor):
            axes = next((int(letter) for letter in name if letter in "123"), result.dim() - 2)
            if result.dim() == axes + 2 >= 3:  # a batch of images, not one alone
                return self._pooled(values[0], result, axes)
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

    def _pooled(self, value: Value, result: Tensor, axes: int) -> Value:
        """Each image of a channel becomes another image, of so many axes."""
        image = self._summed(value, result[(..., *[slice(1)] * axes)], tuple(range(-axes, 0)))
        place = image.place + self._random(result.shape[-axes:])
        return Value(result, image.channel.expand(result.shape), place)

    def _along(self, value: Value, axis: int) -> tuple[Tensor, Tensor]:
        """The channel of each index of an axis, which are tied where they are several, and a fingerprint of places."""
        size = value.channel.shape[axis]
        channel = value.channel.movedim(axis, 0).reshape(size, -1)  # one vector has no other axes
        self.channels.tie(channel, channel[:, :1])
        place = value.place.movedim(axis, 0).reshape(size, -1)
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

    def _layer(self, module: nn.Module, value: Value, result: Tensor) -> Value | None:
        """A layer reads the channels of its input and writes its own. A depth-wise one passes its input's on.

        A transposed convolution has its input channels along the first axis; one in groups is left to `_call`.
        """
        layout = kinds.find(module)[0].weights(module)["weight"]
        axis, groups = min(1 - module.weight.dim(), -1), getattr(module, "groups", 1)
        deep = 1 < groups == module.in_channels == module.out_channels if groups > 1 else False
        if id(module.weight) not in self.names or (layout.groups > 1 and not deep):
            return None
        channel, pattern = self._along(value, axis)
        if deep:
            self._tie(module.weight, 0, channel, pattern)
        else:
            self._tie(module.weight, layout.input, channel, pattern, groups)
            channel = self._rows(module.weight, layout.output, groups)
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
    nn.Conv1d: _Reader._layer,
    nn.Conv2d: _Reader._layer,
    nn.Conv3d: _Reader._layer,
    nn.ConvTranspose1d: _Reader._layer,
    nn.ConvTranspose2d: _Reader._layer,
    nn.ConvTranspose3d: _Reader._layer,
    nn.BatchNorm1d: _Reader._norm,
    nn.BatchNorm2d: _Reader._norm,
    nn.BatchNorm3d: _Reader._norm,
    nn.InstanceNorm1d: _Reader._norm,
    nn.InstanceNorm2d: _Reader._norm,
    nn.InstanceNorm3d: _Reader._norm,
    nn.GroupNorm: _Reader._norm,
    nn.LayerNorm: _Reader._norm,
    nn.PReLU: _Reader._norm,
    nn.Embedding: _Reader._embedding,
}


def in_place(name: str, function: Callable, kwargs: Mapping[str, Any]) -> bool:
    """Say whether a function, method or module writes into its first argument."""
    named = (name.endswith("_") and not name.endswith("__")) or name in IN_PLACE
    return named or bool(getattr(function, "inplace", False)) or bool(kwargs.get("inplace"))


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
