"""Compute gradients by weights, whatever is trained behind them, and second ones where torch's fast kernels have
none.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from lib.base import BadInput
from lib.pruners.behind import hook_of
from lib.pruners.counted import refuse_valueless
from lib.pruners.layers import say
from lib.pruners.masks import copies, original, refuse_inference
from lib.pruners.weights import Prunable


class Slower(UserWarning):
    """A slower kernel was taken, because the faster one has no second derivative."""


class _Plus(nn.Module):
    """Adds a tensor of zeros to a weight: by it the gradient of the weight can be had, wherever that comes from."""

    def __init__(self, zeros: Tensor):
        super().__init__()
        self.zeros = zeros  # no parameter of the model's

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.zeros


def direct(layer: Prunable) -> bool:
    """Tell whether the gradient is had by the one parameter behind the weight, not by the weight itself."""
    return hook_of(layer.module, layer.attribute) is None and copies(layer)


@contextmanager
def tracked(layers: Sequence[Prunable]) -> Iterator[dict[str, Tensor]]:
    """Yield what to differentiate a loss by, {name: tensor}.

    It is the parameter behind the weight or, where no single parameter is behind it, zeros that are added to the weight
    while the block lasts. Frozen parameters have gradients while it lasts, and so has what is computed under
    `torch.no_grad`.

    Raises:
        BadInput: weights without values, or made under `torch.inference_mode`.
    """
    trained: dict[str, Tensor] = {}
    undo = []
    refuse_valueless(layers)
    with torch.inference_mode(False):  # as the block is
        refuse_inference(layers)
    try:
        for layer in layers:
            if direct(layer):
                trained[layer.name] = parameter = original(layer)
                if not parameter.requires_grad:
                    parameter.requires_grad_(True)
                    undo.append(lambda parameter=parameter: parameter.requires_grad_(False))
                continue
            trained[layer.name] = zeros = torch.zeros_like(layer.weight).requires_grad_()
            for module, attribute in layer.owners:
                undo.append(_added(module, attribute, zeros))
        with torch.inference_mode(False), torch.enable_grad():
            yield trained
    finally:
        for step in reversed(undo):
            step()


def _added(module: nn.Module, attribute: str, zeros: Tensor):
    """Add zeros to a layer's weight; returns what takes them away again."""
    if parametrize.is_parametrized(module, attribute):
        chain = module.parametrizations[attribute]
        chain.append(_Plus(zeros))
        return lambda: chain.__delitem__(-1)
    handle = module.register_forward_pre_hook(
        lambda module, args: setattr(module, attribute, getattr(module, attribute) + zeros)
    )
    return handle.remove


@contextmanager
def twice_differentiable(layers: Sequence[Prunable]) -> Iterator[None]:
    """Choose kernels that have second derivatives; where attention would have had a fused one a warning says so.

    Raises:
        BadInput: torch has no second derivative of a function within the block.
    """
    seen = _Seen()
    fused = any(isinstance(layer.module, nn.RNNBase) for layer in layers)  # the only ones torch has no others for
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if fused:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "TF32 acceleration")  # torch's, of Intel's GPUs
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        stack.enter_context(seen)
        try:
            yield
        except RuntimeError as error:
            if "is not implemented" not in str(error):
                raise
            reason = str(error).splitlines()[0]
            raise BadInput(
                f"grasp needs second derivatives, and torch has none of a function here: {reason}"
            ) from error
    if seen.attention:
        text = "attention is computed by the mathematical kernel: the fused ones have no second derivative"
        say(f"grasp: {text}", Slower)


class _Seen(TorchFunctionMode):
    """Notices attention."""

    attention = False

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.attention |= func in (F.scaled_dot_product_attention, F.multi_head_attention_forward)
        return func(*args, **(kwargs or {}))
