"""Train sparse from the first step on: masks are chosen anew at each step, and weights go on learning while masked.

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

import math
from numbers import Real

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from lib.base import BadInput, naming
from lib.pruners.behind import bake, register
from lib.pruners.kinds import Layout
from lib.pruners.layers import leave_out, prunable, refuse_replicated
from lib.pruners.masks import Following, attach, beneath, is_parameter, refuse_inference
from lib.pruners.patterns import Pattern, check_pattern, fitting, mask_by
from lib.pruners.selected import Select, words
from lib.pruners.weights import Prunable

DECAY = 2e-4  # the paper's lambda_W, for SGD


class Refined(torch.autograd.Function):
    """Compute mask * weight; all weights get the gradient of the product, and masked ones decay * weight beside it."""

    @staticmethod
    def forward(context: FunctionCtx, weight: Tensor, mask: Tensor, owner: StraightThrough) -> Tensor:
        """Mask the weight."""
        context.save_for_backward(weight, mask)
        context.owner = owner
        return weight * mask

    @staticmethod
    def backward(context: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Pass the gradient to all weights, and draw masked ones towards zero (SR-STE, equation 8)."""
        weight, mask = context.saved_tensors
        context.owner.count(mask)
        return gradient + context.owner.decay * (weight * ~mask), None, None


class StraightThrough(Following):
    """Mask a weight by its own magnitude each time the layer reads it: a parametrization.

    Attributes:
        mask: of the last step.
        flips, steps: entries of the mask that changed from one step to the next, summed over so many steps. A step is a
            use of the weight whose gradient is asked for; a look at the weight is none.
    """

    def __init__(self, weight: Tensor, layout: Layout, pattern: Pattern, decay: float):
        super().__init__()
        self.layout, self.pattern, self.decay = layout, pattern, decay
        self.register_buffer("mask", self.choose(weight.detach()))
        self.register_buffer("flips", torch.zeros((), dtype=torch.int64, device=weight.device))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=weight.device))

    def choose(self, weight: Tensor) -> Tensor:
        """Choose the mask of a weight: its largest magnitudes, as many as the pattern lets stay."""
        mask = mask_by(self.pattern, self.layout.matrix(weight).abs())
        return self.layout.tensor(mask, weight.shape).contiguous()

    def forward(self, weight: Tensor) -> Tensor:
        """Mask the weight; by the last mask where it is not finite, as its loss will not be either."""
        values = weight.detach()
        return Refined.apply(weight, self.choose(values) if values.isfinite().all() else self.mask, self)

    def count(self, mask: Tensor) -> None:
        """Count what has changed since the step before."""
        self.flips += (mask != self.mask).sum()
        self.steps += 1
        self.mask.copy_(mask)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Begin with the dense weight."""
        return weight


def learn(model: nn.Module, pattern: Pattern, decay: float = DECAY, select: Select = None) -> None:
    """Let the masks of these layers follow their weights from now on, by SR-STE; with decay 0 by STE alone.

    Args:
        pattern: from {name: scores} to masks, such as `partial(n_of_m, n=2, m=4)` or `transposable`.
        decay: what draws masked weights towards zero, the paper's lambda_W. It is added to the gradient at each use of
            the weight: where a step adds up the gradients of k batches, or a layer is called k times, give decay / k,
            and do not scale the loss (as `torch.amp.GradScaler` does).
        select: as `prunable`; None: the `eligible` ones. A layer whose weight another one shares is left out with a
            warning, unless it is asked for by its name.

    Raises:
        BadInput: an unknown name, no layer that fits, a layer that has a mask already, one that shares its weight and
            is asked for by its name or is the only one, weights made under `torch.inference_mode`, a negative decay, a
            pattern that gives no masks, a model that DistributedDataParallel has wrapped.
    """
    check_pattern(pattern, alone=True)
    if not isinstance(decay, Real) or not 0 <= decay < math.inf:
        raise BadInput(f"decay={decay!r:.40}: expected 0 (straight-through alone) or more, and a finite number")
    layers = {layer.name: layer for layer in prunable(model)}
    names = fitting(model) if select is None else [layer.name for layer in prunable(model, select)]
    shared = [name for name in names if layers[name].tied]
    own = [name for name in names if name not in shared]
    why = "shared with another layer, which would not see the mask that it learns"
    if refused := [name for name in shared if not own or name in words(select)]:
        raise BadInput(f"{refused[0]} is {why}")
    for name in own:
        if not is_parameter(layers[name]):
            raise BadInput(f"{name} has a mask or another parametrization already: let it learn its mask from dense")
    refuse_inference([layers[name] for name in own])
    refuse_replicated(model, [layers[name] for name in own])
    made = {}
    for name in own:  # all are made before one is set: a pattern may refuse a layer
        with naming(name):
            made[name] = StraightThrough(layers[name].weight, layers[name].layout, pattern, decay)
    for name in shared:
        leave_out(name, f"it is {why}")
    for name, one in made.items():
        register(layers[name].module, layers[name].attribute, one)


def learning(model: nn.Module) -> dict[str, StraightThrough]:
    """Find the layers whose masks follow their weights, {parameter name: its parametrization}."""
    return {layer.name: one for layer, one in _learning(model)}


def _learning(model: nn.Module) -> list[tuple[Prunable, StraightThrough]]:
    return [(layer, one) for layer in prunable(model) for one in beneath(layer) if isinstance(one, StraightThrough)]


def flip_rate(model: nn.Module) -> float:
    """Measure how many entries of masks changed a step since this was last asked, in percent; nan where none follows.

    This is the flip rate of Hu et al. (2024, "Accelerating transformer pre-training with 2:4 sparsity"), a mean over
    steps: high while the network still looks for its mask, and close to 0 once it has one. The first step after `learn`
    compares with the mask that was made there, of the same weights, so that nothing can flip in it; it counts as a
    step all the same. Of the first n steps the mean is therefore (n - 1) / n of the one over changes from mask to mask.
    """
    ones = list(learning(model).values())
    entries = sum(one.mask.numel() * int(one.steps) for one in ones)
    flips = sum(int(one.flips) for one in ones)
    for one in ones:
        one.flips.zero_()
        one.steps.zero_()
    return 100 * flips / entries if entries else float("nan")


def settle(model: nn.Module) -> dict[str, Tensor]:
    """Hold the masks as they are now, by `attach`; masked weights are set to zero. Return the masks.

    Raises:
        BadInput: a model that DistributedDataParallel has wrapped.
    """
    masks, found = {}, _learning(model)
    refuse_replicated(model, [layer for layer, _ in found])
    for layer, one in found:
        masks[layer.name] = one.choose(layer.module.parametrizations[layer.attribute].original.detach())
        bake(layer.module, layer.attribute)
    attach(model, masks)
    return masks
