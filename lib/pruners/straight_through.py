"""Sparse from the first step on: masks that are chosen anew at each step, and weights that go on learning while masked.

    pruners.learn(model, partial(pruners.n_of_m, n=2, m=4))   # before training, instead of a mask
    ...                                                       # any loop, any optimizer
    pruners.settle(model)                                     # afterwards: an ordinary mask, as `attach` holds it

The layer computes with mask(W) W, and its gradient passes to all of W as if there were no mask: the straight-through
estimator, by which a weight that is masked today may come back. SR-STE (Zhou et al. 2021, equation 8) also draws masked
weights towards zero, so that they come back less often:

    W <- W - rate (gradient at mask(W) W  +  decay (1 - mask(W)) W)

With a transposable pattern (Hubara et al. 2021) the product that sends the gradient back to the inputs is sparse too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lib.base import BadInput
from lib.pruners.layers import eligible, prunable
from lib.pruners.masks import attach

DECAY = 2e-4  # the paper's lambda_W, for SGD


class _Refined(torch.autograd.Function):
    """mask * weight; all weights get the gradient of the product, and masked ones decay * weight beside it."""

    @staticmethod
    def forward(context, weight: Tensor, mask: Tensor, decay: float) -> Tensor:
        context.save_for_backward(weight, mask)
        context.decay = decay
        return weight * mask

    @staticmethod
    def backward(context, gradient: Tensor) -> tuple[Tensor, None, None]:
        weight, mask = context.saved_tensors
        return gradient + context.decay * (weight * ~mask), None, None


class StraightThrough(nn.Module):
    """A parametrization that masks a weight by its own magnitude each time the layer reads it.

    Attributes:
        mask: of the last read while training.
        flips, reads: entries of the mask that changed from one read to the next, summed over so many reads.
    """

    def __init__(self, weight: Tensor, pattern: Callable[..., dict[str, Tensor]], decay: float):
        super().__init__()
        self.pattern, self.decay = pattern, decay
        self.register_buffer("mask", self.choose(weight.detach()))
        self.register_buffer("flips", torch.zeros((), dtype=torch.int64, device=weight.device))
        self.register_buffer("reads", torch.zeros((), dtype=torch.int64, device=weight.device))

    def choose(self, weight: Tensor) -> Tensor:
        """The mask of a weight: its largest magnitudes, as many as the pattern lets stay."""
        return self.pattern({"weight": weight.abs()})["weight"]

    def forward(self, weight: Tensor) -> Tensor:
        """The masked weight; reads that learn are counted, those in evaluation are not."""
        mask = self.choose(weight.detach())
        if self.training and torch.is_grad_enabled():
            self.flips += (mask != self.mask).sum()
            self.reads += 1
            self.mask.copy_(mask)
        return _Refined.apply(weight, mask, self.decay)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The dense weight to begin with."""
        return weight


def learn(
    model: nn.Module,
    pattern: Callable[..., dict[str, Tensor]],
    decay: float = DECAY,
    only: Iterable[str] | None = None,
) -> None:
    """Let the masks of these layers follow their weights from now on, by SR-STE; with decay 0 by STE alone.

    Args:
        pattern: from {name: scores} to masks, such as `partial(n_of_m, n=2, m=4)` or `transposable`.
        decay: what draws masked weights towards zero, the paper's lambda_W.
        only: names of the weights; None: the `eligible` ones.

    Raises:
        BadInput: an unknown name, a layer that has a mask already, a negative decay.
    """
    if not decay >= 0:
        raise BadInput(f"decay={decay}: expected 0 (straight-through alone) or more")
    layers = {layer.name: layer for layer in prunable(model)}
    chosen = eligible(model) if only is None else list(only)
    for name in chosen:
        if name not in layers:
            raise BadInput(f"only: the model has no prunable layer {name!r}; it has: {', '.join(layers)}")
        if parametrize.is_parametrized(layers[name].module, "weight"):
            raise BadInput(f"{name} has a mask or another parametrization already: let it learn its mask from dense")
    made = {name: StraightThrough(layers[name].weight, pattern, decay) for name in chosen}  # refused before any is set
    for name, one in made.items():
        parametrize.register_parametrization(layers[name].module, "weight", one)
        one.reads.zero_()  # registering reads the weight too


def learning(model: nn.Module) -> dict[str, StraightThrough]:
    """The layers whose masks follow their weights, {parameter name: its parametrization}."""
    found = {}
    for layer in prunable(model):
        chain = layer.module.parametrizations.weight if parametrize.is_parametrized(layer.module, "weight") else ()
        for one in chain:
            if isinstance(one, StraightThrough):
                found[layer.name] = one
    return found


def flip_rate(model: nn.Module) -> float:
    """How many entries of the masks changed a step since this was last asked, in percent; nan where no mask follows.

    This is the flip rate of Hu et al. (2024, "Accelerating transformer pre-training with 2:4 sparsity"), a mean over
    steps: high while the network still looks for its mask, and close to 0 once it has one.
    """
    ones = list(learning(model).values())
    entries = sum(one.mask.numel() * int(one.reads) for one in ones)
    flips = sum(int(one.flips) for one in ones)
    for one in ones:
        one.flips.zero_()
        one.reads.zero_()
    return 100 * flips / entries if entries else float("nan")


def settle(model: nn.Module) -> dict[str, Tensor]:
    """Hold the masks as they are now, by `attach`; masked weights are set to zero. Returns the masks."""
    masks = {name: one.choose(layer.parametrizations.weight.original.detach()) for name, one, layer in _settling(model)}
    for _, _, layer in _settling(model):
        # torch deletes the parametrized `weight` from the layer's class, which deep copies of the layer share
        shared = type(layer)
        layer.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    attach(model, masks)
    return masks


def _settling(model: nn.Module) -> list[tuple[str, StraightThrough, nn.Module]]:
    owners = {layer.name: layer.module for layer in prunable(model)}
    return [(name, one, owners[name]) for name, one in learning(model).items()]
