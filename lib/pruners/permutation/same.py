"""Ask whether two networks compute the same, in evaluation and in training mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from lib.base import BadInput
from lib.pruners.inputs import Inputs, call, converted, duplicate, mode, tensors
from lib.pruners.layers import say

DROPOUTS = (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout)


class Unchecked(UserWarning):
    """A permuted network could not be compared with the first one in training mode."""


def outputs(model: nn.Module, inputs: Inputs, training: bool = False) -> list[Tensor]:
    """Compute what a network gives on inputs, all numbers in float64.

    In training mode too the same numbers come out each time: nothing is dropped out, batch norms do as in evaluation,
    and whatever else is drawn is drawn from the same seed.

    Raises:
        BadInput: it cannot take them, or gives no tensor, an empty one, or numbers that are not finite.
    """
    network = duplicate(model).double()
    try:
        with (
            torch.no_grad(),
            mode(network, training),
            torch.random.fork_rng(range(torch.cuda.device_count()), training),
            _Kept(training),
        ):
            if training:
                torch.manual_seed(0)
            given = tensors(call(network, converted(inputs, torch.double)))
    except Exception as error:  # whatever the model's own code raises
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"permute: {type(model).__name__} cannot take these inputs ({reason})") from error
    found = widened(given)
    if not sum(part.numel() for part in found):
        raise BadInput(f"permute: {type(model).__name__} gives no number on these inputs, so nothing can be checked")
    if not all(bool(torch.isfinite(part).all()) for part in found):
        raise BadInput("permute: outputs are not finite on these inputs: neither they nor weights may hold NaN or inf")
    return found


def widened(given: list[Tensor]) -> list[Tensor]:
    """Return numbers of any type as such of which one can be subtracted from another: float64, or complex128."""
    return [part.to(torch.promote_types(part.dtype, torch.double)) for part in given]


def difference(expected: list[Tensor], found: list[Tensor]) -> float:
    """Return the largest change of an output; 0 where it is no more than rounding."""
    parts = [(one, float((one - other).abs().max())) for one, other in zip(expected, found, strict=True) if one.numel()]
    return max((change for one, change in parts if not change <= 1e-6 * float(one.abs().max())), default=0.0)


def compare(model: nn.Module, permuted: nn.Module, inputs: Inputs) -> None:
    """Stop if the permuted network does not compute the same in both modes: a rule of `channels` is wrong then.

    Where the network does not run in training mode, as one that then wants targets, a warning says so (`Unchecked`).

    Raises:
        RuntimeError: an output has changed.
    """
    if change := difference(outputs(model, inputs), outputs(permuted, inputs)):
        raise RuntimeError(f"permute: an output changed by {change:.2g}; lib.pruners.permutation.channels is wrong")
    try:
        expected = outputs(model, inputs, training=True)
    except BadInput as error:
        say(f"{error} in training mode, so only evaluation mode was compared", Unchecked)
        return
    if change := difference(expected, outputs(permuted, inputs, training=True)):
        found = f"in training mode an output changed by {change:.2g}"
        raise RuntimeError(f"permute: {found}; lib.pruners.permutation.channels is wrong")


class _Kept(TorchFunctionMode):
    """All numbers stay in float64, and in training mode nothing is dropped out."""

    def __init__(self, training: bool):
        super().__init__()
        self.training = training

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.float:
            return args[0].double()
        if func in DROPOUTS:  # in evaluation, which calls them too, they change nothing; a random forward is another
            drops = kwargs.get("training", args[2] if len(args) > 2 else True)
            return (args[0] if args else kwargs["input"]) if drops and self.training else func(*args, **kwargs)
        if not self.training:
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            causal = {"is_causal": args[5]} if len(args) > 5 else {}
            args, kwargs = args[:4], causal | kwargs | {"dropout_p": 0.0}
        if func is F.multi_head_attention_forward:
            kwargs = kwargs | {"training": False}
        return func(*args, **kwargs)
