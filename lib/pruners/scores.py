"""Scores: how much each prunable weight matters. High = keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral

import torch
from torch import Tensor, nn

from lib.base import BadInput
from lib.pruners.layers import Prunable, Scores, prunable, stacked_runs
from lib.pruners.masks import original, spread

Loss = Callable[[nn.Module], Tensor]


def magnitude(model: nn.Module) -> Scores:
    """Score by |w|: small weights go first (paper 2, section 4.1; paper 5, Algorithm 2)."""
    layers = {layer.name: layer for layer in prunable(model)}
    return Scores({name: layer.weight.abs() for name, layer in layers.items()}, layers)


def random(model: nn.Module, seed: int | Sequence[int]) -> Scores:
    """Draw uniform random scores: the control every other score has to beat. The same on every device.

    Args:
        seed: of a stack one a run; a run's scores are those of a single network with its seed.
    """
    layers = {layer.name: layer for layer in prunable(model)}
    runs = stacked_runs(layers.values())
    draws = [torch.Generator().manual_seed(one) for one in _seeds(seed, runs)]
    tensors = {}
    for name, layer in layers.items():
        shape = layer.weight.shape if runs is None else layer.weight.shape[1:]
        drawn = torch.stack([torch.rand(shape, generator=draw) for draw in draws])
        tensors[name] = drawn.reshape(layer.weight.shape).to(layer.weight.device)
    return Scores(tensors, layers)


def shuffled(scores: Scores, seed: int | Sequence[int]) -> Scores:
    """Put the scores in another order within each layer: a control that keeps each layer's share and nothing else.

    Frankle et al. (2021, "Pruning neural networks at initialization: why are we missing the mark?") found that image
    networks lose nothing when SNIP's mask is shuffled within each layer, so that its choice of single weights is idle.

    Args:
        scores: of a network or of a stack.
        seed: of a stack one a run; a run's order is that of a single network with its seed.
    """
    runs = stacked_runs(scores.layers.values())
    draws = [torch.Generator().manual_seed(one) for one in _seeds(seed, runs)]
    tensors = {}
    for name, score in scores.items():
        rows = score.reshape(len(draws), -1)
        orders = torch.stack([torch.randperm(rows.shape[1], generator=draw) for draw in draws]).to(rows.device)
        tensors[name] = rows.gather(1, orders).reshape(score.shape)
    return Scores(tensors, scores.layers)


def snip_shuffled(model: nn.Module, loss: Loss | Sequence[Loss], seed: int | Sequence[int]) -> Scores:
    """Put SNIP's scores in another order within each layer, see `snip` and `shuffled`."""
    return shuffled(snip(model, loss), seed)


def _seeds(seed: int | Sequence[int], runs: int | None) -> list[int]:
    """One seed a run, of a single network one."""
    try:
        seeds = [seed] if isinstance(seed, Integral) else [int(one) for one in seed]
    except (TypeError, ValueError) as error:
        raise BadInput(f"seed={seed!r}: expected a whole number, or one for each run of a stack") from error
    if len(seeds) != (runs or 1):
        raise BadInput(f"{len(seeds)} seeds for {runs or 1} runs: give each run its own")
    return seeds


def snip(model: nn.Module, loss: Loss | Sequence[Loss]) -> Scores:
    """Score by |w dL/dw|: how much the loss changes, to first order, when a weight goes (paper 1, equation 1).

    Paper 2, section 4.1, calls the same idea "instantaneous gradients". The model is not changed. Its mode (training
    or evaluation) is the caller's choice: in training mode batch norms update their running statistics.

    Args:
        model: what is scored; a loss may use other networks too, which are then held as they are.
        loss: called with the model, returns a scalar; of a stack the sum of its runs' losses, which gives each run
            its own gradients. Of several losses, such as one a batch, the mean counts. What it makes of inputs must
            be differentiable; frozen layers are scored too, and so is a model under `torch.no_grad`.

    Raises:
        BadInput: no loss, one that is no real scalar, or one that does not depend on a layer.
    """
    layers = prunable(model)
    with _differentiable(layers):
        gradients = _gradients(model, layers, loss)
    return _scores(layers, [product.abs() for product in _products(layers, gradients)])


def grasp(model: nn.Module, loss: Loss | Sequence[Loss]) -> Scores:
    """Compute w * Hg: half of how much the squared gradient norm falls, to first order, when a weight is switched off.

    This is the gradient signal preservation of paper 1, equations 2 to 4, and of Wang et al. 2020 at temperature 1.
    Equation 4 scores a weight by -w * Hg, how much its removal raises the norm, and removes the highest. Scores here
    are high for what is to be kept, so the sign is turned: the score is w * Hg and may be negative. Gradient g and
    Hessian H are taken over the prunable weights alone, as in the authors' code.

    Args:
        model, loss: as in `snip`; the loss must be twice differentiable.
    """
    layers = prunable(model)
    with _differentiable(layers):
        gradients = _gradients(model, layers, loss, create_graph=True)
        along = sum((gradient.detach() * gradient).sum() for gradient in gradients)
        if not along.requires_grad:
            raise BadInput("the loss is linear in the weights, so its Hessian is zero and GraSP has nothing to go by")
        products = torch.autograd.grad(along, [original(layer) for layer in layers], materialize_grads=True)
    return _scores(layers, _products(layers, products))


@contextmanager
def _differentiable(layers: Sequence[Prunable]) -> Iterator[None]:
    """Inside, a loss can be differentiated by each layer's weight, whether it is frozen or gradients are off."""
    weights = [original(layer) for layer in layers]
    if made := [layer.name for layer, weight in zip(layers, weights, strict=True) if weight.is_inference()]:
        raise BadInput(f"{made[0]} was made under torch.inference_mode, which allows no gradient: make it outside")
    before = [weight.requires_grad for weight in weights]
    try:
        with torch.inference_mode(False), torch.enable_grad():
            for weight in weights:
                weight.requires_grad_(True)
            yield
    finally:
        for weight, required in zip(weights, before, strict=True):
            weight.requires_grad_(required)


def _gradients(
    model: nn.Module, layers: Sequence[Prunable], loss: Loss | Sequence[Loss], create_graph: bool = False
) -> tuple[Tensor, ...]:
    """Of the mean of the losses, by each layer's weight."""
    losses = [loss] if callable(loss) else list(loss)
    if not losses:
        raise BadInput("no losses: at least one is needed")
    weights = [original(layer) for layer in layers]
    found = []
    for one in losses:  # one graph after the other: together they would fill the memory
        value = one(model)
        if not isinstance(value, Tensor) or value.is_complex():
            raise BadInput(f"a loss must be a tensor with one real number, this is {value!r:.80}")
        if value.dim():
            raise BadInput(
                f"a loss must be a scalar, this has the shape {list(value.shape)}: of a stack, sum its runs'"
            )
        if not value.requires_grad:
            raise BadInput(f"the loss does not depend on {layers[0].name}, nor on any other layer that is scored")
        gradients = torch.autograd.grad(value / len(losses), weights, create_graph=create_graph, allow_unused=True)
        for layer, gradient in zip(layers, gradients, strict=True):
            if gradient is None:
                raise BadInput(f"the loss does not depend on {layer.name}: score only the networks that it trains")
        found.append(gradients)
    return tuple(sum(each) for each in zip(*found, strict=True))


def _products(layers: Sequence[Prunable], trained: Sequence[Tensor]) -> list[Tensor]:
    """Each weight times what was computed for the parameter behind it: its own, or the coefficient it shares."""
    return [layer.weight * spread(layer, values) for layer, values in zip(layers, trained, strict=True)]


def _scores(layers: Sequence[Prunable], tensors: Sequence[Tensor]) -> Scores:
    named = {layer.name: layer for layer in layers}
    return Scores(dict(zip(named, tensors, strict=True)), named)
