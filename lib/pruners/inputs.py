"""Call a model with what it takes, wherever this library runs one: a tensor, several, a dictionary, or (args,
kwargs).

A tuple or a list is so many arguments. A DataLoader's pairs of inputs and labels are two, of which the model wants one:
give `(inputs for inputs, _ in loader)`.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils import _pytree

from lib.base import BadInput, type_of
from lib.pruners.layers import refuse_no_model, unwrapped

# norms whose running statistics move in training mode; spectral norm's are those of its power iteration
REMEMBERING = (nn.modules.batchnorm._NormBase, parametrizations._SpectralNorm)

Inputs = Any  # a tensor; a tuple or list of arguments; a mapping of them by name; a pair (tuple, mapping) of both


def arguments(inputs: Inputs) -> tuple[tuple, dict[str, Any]]:
    """Split inputs into (args, kwargs): a tensor is the one argument, a mapping holds arguments by name."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        if len(inputs) == 2 and isinstance(inputs[0], (tuple, list)) and isinstance(inputs[1], Mapping):
            return tuple(inputs[0]), dict(inputs[1])
        return tuple(inputs), {}
    return (inputs,), {}


def call(model: nn.Module, inputs: Inputs) -> Any:
    """Call the model with inputs, as it was written even if it is compiled, so that hooks set since are called too."""
    args, kwargs = arguments(inputs)
    with _as_written():
        return model(*args, **kwargs)


def feed(model: nn.Module, batch: Inputs) -> Any:
    """Call the model with one of the batches that it is calibrated on.

    Raises:
        BadInput: the batch holds other arguments than the model takes, or tensors that it cannot compute with.
    """
    if batch is None:
        raise BadInput("a batch is None: expected what the model is called with")
    args, kwargs = arguments(batch)
    if odd := [one for one in (*args, *kwargs.values()) if isinstance(one, np.ndarray)]:
        raise BadInput(
            f"a batch holds tensors, this one an array of {odd[0].dtype}: torch.from_numpy makes a tensor of it"
        )
    try:
        return call(model, batch)
    except TypeError as error:
        try:
            inspect.signature(unwrapped(model).forward).bind(*args, **kwargs)
        except TypeError as reason:
            name, why = type(unwrapped(model)).__name__, "a tuple or a list is so many arguments, drop labels from it"
            raise BadInput(f"{name} cannot be called with this batch ({reason}): {why}") from error
        raise  # from within the model
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, IndexError, ValueError) as error:  # shapes, types or tokens that do not fit
        reason = str(error).splitlines()[0]
        raise BadInput(f"{type(unwrapped(model)).__name__} cannot compute with this batch: {reason}") from error


def each(batches: Iterable[Inputs]) -> Iterator[Inputs]:
    """Yield batches to calibrate on.

    Raises:
        BadInput: there is none, or it is something that has none, or one batch and no list of them.
    """
    try:
        found = None if isinstance(batches, (Mapping, Tensor, str)) else iter(batches)
    except TypeError:
        found = None
    if found is None:
        raise BadInput(
            f"batches is {type_of(batches)}: expected batches to calibrate on, one after the other, such as [inputs]"
        )
    none = True
    for batch in found:
        none = False
        yield batch
    if none:
        raise BadInput("no batches to calibrate on: at least one is needed")


def _as_written() -> AbstractContextManager:
    """Run no compiled code while the block lasts, of a part of a network neither: it knows no hooks set after it."""
    if "torch._dynamo" not in sys.modules:  # nothing is compiled, and to import it takes a second
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def entering(args: tuple, kwargs: Mapping[str, Any]) -> Any:
    """Return what enters a layer: its first argument by place, or the one named `input`, or the first by name."""
    if args:
        return args[0]
    return kwargs["input"] if "input" in kwargs else next(iter(kwargs.values()))


def unnested(entered: Any) -> Any:
    """Return what enters a layer as one tensor: of a nested one, as torch's encoder makes of padded examples, its
    examples one after the other.
    """
    nested = isinstance(entered, Tensor) and entered.is_nested
    return torch.cat(list(entered.unbind())) if nested else entered


def example(model: nn.Module, shape: Sequence[int]) -> Tensor:
    """Return a batch of one example of zeros, of the model's type and on its device.

    Raises:
        BadInput: the shape is not the sizes of the example's axes.
    """
    if not isinstance(shape, Sequence) or not all(isinstance(size, Integral) and size > 0 for size in shape):
        raise BadInput(f"shape={shape!r:.60}: expected the sizes of an example without its batch, such as (1, 28, 28)")
    some = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), torch.zeros(()))
    return torch.zeros(1, *shape, device=some.device, dtype=some.dtype)


def cloned(inputs: Inputs) -> Inputs:
    """Return the inputs with copies of their tensors, which a model may change in place."""
    return _pytree.tree_map_only(Tensor, lambda x: x.detach().clone(), tuple(arguments(inputs)))


def converted(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Return the inputs with their floating-point tensors in another type."""
    return _pytree.tree_map_only(
        Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, tuple(arguments(inputs))
    )


def batch_of(inputs: Inputs) -> int:
    """Count how many examples there are: the length of the first axis of the first tensor.

    Raises:
        BadInput: there is no tensor with an axis.
    """
    args, kwargs = arguments(inputs)
    found = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.dim()]
    if not found:
        raise BadInput("the inputs hold no tensor with a batch axis: give what the model is called with")
    return len(found[0])


def tensors(tree: Any) -> list[Tensor]:
    """Return all tensors in what a model gives: nested tuples, lists, dictionaries, or objects that hold them, each of
    these once.
    """
    found: list[Tensor] = []
    stack: list = [tree]
    seen: dict[int, Any] = {}  # an object may refer to itself
    while stack:
        one = stack.pop()
        if isinstance(one, Tensor):
            found.append(one)
            continue
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, Mapping):
            stack += list(one.values())[::-1]
        elif isinstance(one, (tuple, list)):
            stack += list(one)[::-1]
        elif hasattr(one, "__dict__") and not isinstance(one, (nn.Module, type)):
            stack += list(vars(one).values())[::-1]
    return found


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[nn.Module]:
    """Hold the model in training or evaluation mode for a while; norms that remember stay in evaluation and keep what
    they know.

    Each module goes back to its own mode: one may be frozen inside a model that trains.
    """
    before = {module: module.training for module in model.modules()}
    try:
        model.train(training)
        for module in model.modules():
            if isinstance(module, REMEMBERING):
                module.eval()
        yield model
    finally:
        for module, own in before.items():
            module.training = own


def replaced(model: nn.Module, made: Mapping[int, nn.Module]) -> nn.Module:
    """Put other modules in the places of a model's own, {id of its own: the other}, and return the model.

    A module that stands at several places is replaced at all of them; the model itself may be one. What comes in trains
    or evaluates as what goes did.
    """
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # named_children() names a shared module only once
            if id(child) in made:
                parent._modules[name] = made[id(child)].train(child.training)
    return made[id(model)].train(model.training) if id(model) in made else model


def duplicate(model: nn.Module) -> nn.Module:
    """Copy a model deeply, one too that holds tensors which are not leaves, as torch's old hooks leave them.

    Raises:
        BadInput: it is no model.
    """
    refuse_no_model(model)
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in _pytree.tree_leaves(vars(module)):  # in a list or a dictionary, too
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(model, memo)
