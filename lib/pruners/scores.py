"""Score how much each prunable weight matters. High = keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from operator import index
from typing import Any

import torch
from torch import Tensor, nn

from lib.base import BadInput, type_of
from lib.pruners.gradients import tracked, twice_differentiable
from lib.pruners.layers import Scores, leave_out, prunable, stacked_runs
from lib.pruners.masks import attached, spread
from lib.pruners.selected import Select, words
from lib.pruners.weights import Prunable

Loss = Callable[[nn.Module], Tensor]


def magnitude(model: nn.Module, select: Select = None) -> Scores:
    """Score by |w|: small weights go first (paper 2, section 4.1; paper 5, Algorithm 2)."""
    layers = {layer.name: layer for layer in prunable(model, select)}
    return Scores({name: layer.weight.abs() for name, layer in layers.items()}, layers)


def random(model: nn.Module, seed: int | Sequence[int], select: Select = None) -> Scores:
    """Return uniform random scores: the control every other score has to beat. The same on every device.

    Args:
        seed: of a stack one a run; a run's scores are those of a single network with its seed.
        select: as `layers.prunable`.
    """
    layers = {layer.name: layer for layer in prunable(model, select)}
    runs = stacked_runs(layers.values())
    draws = seeded(seed, runs)
    tensors = {}
    for name, layer in layers.items():
        shape = layer.weight.shape if runs is None else layer.weight.shape[1:]
        drawn = torch.stack([torch.rand(shape, generator=draw) for draw in draws])
        tensors[name] = drawn.reshape(layer.weight.shape).to(layer.weight.device)
    return Scores(tensors, layers)


def shuffled(scores: Scores, seed: int | Sequence[int], within: Mapping[str, Tensor] | None = None) -> Scores:
    """Put the scores in another order within each layer: a control that keeps each layer's share and nothing else.

    Frankle et al. (2021, "Pruning neural networks at initialization: why are we missing the mark?") found that image
    networks lose nothing when SNIP's mask is shuffled within each layer, so that its choice of single weights is idle.

    Args:
        scores: of a network or of a stack.
        seed: of a stack one a run; a run's order is that of a single network with its seed.
        within: {layer's name: mask}; what it has removed stays where it is, and the others change places.

    Raises:
        BadInput: no `Scores`, seeds that are not one a run, or masks that do not fit the scores.
    """
    if not isinstance(scores, Scores):
        raise BadInput(f"expected Scores, such as of `magnitude`, found {type_of(scores)}")
    check_within(scores, within)
    draws = seeded(seed, stacked_runs(scores.layers.values()))
    tensors = {}
    for name, score in scores.items():
        rows = score.reshape(len(draws), -1).clone()
        left = (within or {}).get(name, torch.ones_like(score, dtype=torch.bool)).reshape(rows.shape)
        for row, kept, draw in zip(rows, left, draws, strict=True):
            places = kept.nonzero()[:, 0]
            row[places] = row[places[torch.randperm(len(places), generator=draw).to(places.device)]]
        tensors[name] = rows.reshape(score.shape)
    return Scores(tensors, scores.layers)


def snip_shuffled(
    model: nn.Module,
    loss: Loss | Sequence[Loss],
    seed: int | Sequence[int],
    select: Select = None,
    within: Mapping[str, Tensor] | None = None,
) -> Scores:
    """Put SNIP's scores in another order within each layer, see `snip` and `shuffled`; masks of the model count too."""
    return shuffled(snip(model, loss, select), seed, {**attached(model), **(within or {})})


def seeded(seed: int | Sequence[int], runs: int | None = None) -> list[torch.Generator]:
    """Seed a CPU generator for each run, for a single network one.

    Raises:
        BadInput: a seed that is no whole number, or none of 64 bits, or not one a run.
    """
    try:
        seeds = [index(one) for one in ([seed] if isinstance(seed, Integral) else seed)]  # torch takes none of NumPy's
    except TypeError as error:
        raise BadInput(f"seed={seed!r:.40}: expected a whole number, or one for each run of a stack") from error
    if wide := [one for one in seeds if not -(2**63) <= one < 2**64]:
        raise BadInput(f"seed={wide[0]}: expected a whole number from -2^63 to 2^64 - 1")
    if len(seeds) != (runs or 1):
        raise BadInput(f"{len(seeds)} seeds for {runs or 1} runs: give each run its own")
    return [torch.Generator().manual_seed(one) for one in seeds]


def snip(model: nn.Module, loss: Loss | Sequence[Loss], select: Select = None) -> Scores:
    """Score by |w dL/dw|: how much the loss changes, to first order, when a weight goes (paper 1, equation 1).

    Paper 2, section 4.1, may mean the same by "instantaneous gradients". The model is not changed. Its mode (training
    or evaluation) is the caller's choice: in training mode batch norms update their running statistics, and dropout
    draws from torch's global generator. Weights that are frozen are scored as if they were not. A layer on which the
    loss does not depend is left out, with a warning.

    Args:
        model: what is scored; a loss may use other networks too, which are then held as they are.
        loss: called with the model, returns a scalar; of a stack the sum of its runs' losses, which gives each run
            its own gradients. Of several losses, such as one a batch, the mean counts. What it makes of inputs must
            be differentiable; frozen layers are scored too, and so is a model under `torch.no_grad`.
        select: as `layers.prunable`; a layer that is named and on which the loss does not depend is refused.

    Raises:
        BadInput: no loss, one that is no real scalar or not a number, one that does not depend on any layer, or scores
            that are not finite or all 0.
    """
    layers = prunable(model, select)
    with tracked(layers) as trained:
        layers, gradients = _gradients(model, layers, trained, loss, select)
        products = _products(layers, trained, gradients)
    return _scores(layers, [product.abs() for product in products])


def grasp(
    model: nn.Module, loss: Loss | Sequence[Loss], select: Select = None, within: Mapping[str, Tensor] | None = None
) -> Scores:
    """Score by w * Hg: half of how much the squared gradient norm falls, to first order, when a weight goes.

    This is the gradient signal preservation of paper 1, equations 2 to 4, and of Wang et al. 2020 at temperature 1.
    Equation 4 scores a weight by -w * Hg, how much its removal raises the norm, and removes the highest. Scores here
    are high for what is to be kept, so the sign is turned: the score is w * Hg and may be negative. Gradient g and
    Hessian H are taken over the prunable weights alone, as in the authors' code; over those that are selected.

    Fused kernels have no second derivative: attention is computed by torch's mathematical kernel here, which a warning
    (`Slower`) says, and recurrent layers without oneDNN's and cuDNN's.

    Args:
        model, loss, select: as in `snip`; the loss must be twice differentiable.
        within: {layer's name: mask} of weights that have gone and are held at 0 by no mask that is attached: what has
            gone has no gradient to preserve.

    Raises:
        BadInput: as `snip`; a loss that is linear in the weights, or without second derivatives; or masks that do not
            fit the weights.
    """
    layers = prunable(model, select)
    check_within({layer.name: layer.weight for layer in layers}, within)
    with tracked(layers) as trained, twice_differentiable(layers):
        layers, gradients = _gradients(model, layers, trained, loss, select, create_graph=True)
        kept = [(within or {}).get(layer.name, True) for layer in layers]
        along = sum((one.detach() * mask * one).sum() for one, mask in zip(gradients, kept, strict=True))
        if not along.requires_grad:
            raise BadInput("the loss is linear in the weights, so its Hessian is zero and GraSP has nothing to go by")
        products = torch.autograd.grad(along, [trained[layer.name] for layer in layers], materialize_grads=True)
        products = _products(layers, trained, products)
    return _scores(layers, products)


def _gradients(
    model: nn.Module,
    layers: Sequence[Prunable],
    trained: Mapping[str, Tensor],
    loss: Loss | Sequence[Loss],
    select: Select,
    create_graph: bool = False,
) -> tuple[list[Prunable], tuple[Tensor, ...]]:
    """The layers that the mean of the losses depends on, and its gradient by what is trained of each."""
    several = isinstance(loss, Iterable) and not callable(loss) and getattr(loss, "ndim", 1)  # one number is no list
    losses = list(loss) if several else [loss]
    if not losses:
        raise BadInput("no losses: at least one is needed")
    if wrong := [one for one in losses if not callable(one)]:
        raise BadInput(f"loss={wrong[0]!r:.80}: expected a function of the model, or several of them")
    weights = [trained[layer.name] for layer in layers]
    found = []
    for one in losses:  # one graph after the other; only for second derivatives must all be kept
        value = scalar(one(model))
        if bool(value.isnan()):
            raise BadInput("the loss is nan, so that no weight can be scored by it: expected a number")
        if not value.requires_grad:
            raise BadInput(f"the loss does not depend on {layers[0].name}, nor on any other layer that is scored")
        found.append(torch.autograd.grad(value / len(losses), weights, create_graph=create_graph, allow_unused=True))
    kept, gradients = [], []
    asked = words(select)
    for layer, each in zip(layers, zip(*found, strict=True), strict=True):
        if any(gradient is not None for gradient in each):
            kept.append(layer)
            gradients.append(sum(gradient for gradient in each if gradient is not None))
        elif layer.name in asked or layer.network:
            raise BadInput(f"the loss does not depend on {layer.name}: score only the networks that it trains")
        else:
            leave_out(layer.name, "the loss does not depend on it")
    if not kept:
        raise BadInput(f"the loss does not depend on {layers[0].name}, nor on any other layer that is scored")
    return kept, tuple(gradients)


def scalar(value: object) -> Tensor:
    """Return what a loss gave.

    Raises:
        BadInput: it is no tensor with one real number.
    """
    if not isinstance(value, Tensor) or value.is_complex():
        raise BadInput(f"a loss must be a tensor with one real number, this is {value!r:.80}")
    if value.dim():
        raise BadInput(f"a loss must be a scalar, this has the shape {list(value.shape)}: of a stack, sum its runs'")
    return value


def _products(layers: Sequence[Prunable], trained: Mapping[str, Tensor], computed: Sequence[Tensor]) -> list[Tensor]:
    """Each weight times what was computed for what is trained: its own number, or the coefficient it shares."""
    products = []
    for layer, values in zip(layers, computed, strict=True):
        own = isinstance(trained[layer.name], nn.Parameter)  # and not zeros that are added to the weight itself
        products.append(product(layer.weight, spread(layer, values) if own else values))
    return products


def product(weight: Tensor, values: Tensor) -> Tensor:
    """Multiply weights by what was computed for them, in float32 at least: products of halves would have many ties."""
    wide = torch.promote_types(weight.dtype, torch.float32)
    return weight.to(wide) * values.to(weight.device, wide)


def _scores(layers: Sequence[Prunable], tensors: Sequence[Tensor]) -> Scores:
    """The tensors as scores, unless they rank nothing."""
    for layer, tensor in zip(layers, tensors, strict=True):
        if not bool(tensor.isfinite().all()):
            raise BadInput(f"the derivative of the loss by {layer.name} is not finite, so that it gives no scores")
    if not any(bool(tensor.any()) for tensor in tensors):
        why = "the gradient of the loss is, as before training where a last layer begins at zero"
        raise BadInput(f"every score is 0, so that none ranks above another: {why}")
    named = {layer.name: layer for layer in layers}
    return Scores(dict(zip(named, tensors, strict=True)), named)


def check_within(scores: Mapping[str, Tensor], within: Mapping[str, Tensor] | None) -> None:
    """Refuse masks that do not fit the scores which they are of, or the weights that are to be scored.

    Raises:
        BadInput: one that is not of bools, or has another shape; or they have no names.
    """
    if within is not None and not isinstance(within, Mapping):
        raise BadInput(f"within={described(within)}: expected {{parameter name: mask}}")
    for name, mask in (within or {}).items():
        if name in scores and not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
            raise BadInput(f"within: mask {name!r} is {described(mask)}, expected torch.bool (True = kept)")
        if name in scores and mask.shape != scores[name].shape:
            raise BadInput(f"within: mask {name!r} has shape {list(mask.shape)}, its scores {list(scores[name].shape)}")


def described(value: Any) -> str:
    """Say in a few words what was given, for the line that refuses it: of a tensor its shape and type."""
    if not isinstance(value, Tensor):
        return f"{value!r:.40}"
    return f"{list(value.shape)} of {value.dtype}" + (" on the meta device, without numbers" * value.is_meta)
