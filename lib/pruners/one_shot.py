"""Prune in one shot without training: Wanda and SparseGPT look at what enters each layer and never at a gradient.

    small = pruners.one_shot(model, batches, pruners.Wanda(partial(pruners.n_of_m, n=2, m=4)))
    small = pruners.one_shot(model, batches, pruners.SparseGPT(partial(pruners.n_of_m, n=4, m=8), width=8))

Both know a layer by the second moments of its inputs, X X^T over calibration data, and want the layer's outputs W X to
change little. Wanda (Sun et al. 2023, equation 1) scores a weight by |W_ij| ||X_j||: what it adds to its output, in
root mean square. SparseGPT (Frantar and Alistarh 2023, Algorithm 1) also lets the weights that stay make up for those
that go. Layers are pruned in the order in which they run, each on the inputs that its pruned predecessors give it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput, naming, refuse_uncounted, type_of
from lib.pruners import kinds
from lib.pruners.inputs import Inputs, duplicate, each, entering, feed, unnested
from lib.pruners.layers import Scores, leave_out, prunable
from lib.pruners.masks import attached, hold, inverts, original, original_of
from lib.pruners.patterns import Pattern, check_pattern, fitting, mask_by, unstructured
from lib.pruners.scores import product
from lib.pruners.selected import Select, words
from lib.pruners.straight_through import learning
from lib.pruners.uses import leave_uncalled
from lib.pruners.weights import Prunable

TOLERATED = 0.01  # how far the share that SparseGPT removes may be from the one that its pattern was given


class Solver(Protocol):
    """Prune one layer by what enters it."""

    def __call__(self, weight: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
        """Go from a weight [R, C] and second moments of its inputs [C, C], float64, to (new weight, mask) [R, C]."""


@dataclass(frozen=True)
class Wanda:
    """Remove the weights of the smallest |W_ij| ||X_j|| and move none (Sun et al. 2023).

    Attributes:
        pattern: from {name: scores} to masks, such as `partial(n_of_m, n=2, m=4)`; for unstructured sparsity weights
            are ranked within their row, as in the paper: `partial(unstructured, sparsity=0.5, scope="row")`.
    """

    pattern: Pattern

    def __post_init__(self):
        check_pattern(self.pattern, alone=True)

    def __call__(self, weight: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
        mask = mask_by(self.pattern, wanda_scores(weight, moments.diagonal()))
        return weight * mask, mask


@dataclass(frozen=True)
class SparseGPT:
    """Remove weights column by column, and move those to the right so that the outputs change least.

    When the weight in column j of a row goes, the columns after j change by -w_j / [H^-1]_jj [H^-1]_j:, with the
    inverse of the moments H of the columns from j on (Optimal Brain Surgeon; SparseGPT, equations 3 and 4). All these
    inverses stand in one Cholesky factor: H^-1 = U^T U, and row j of U is the row of the inverse that column j needs,
    divided by the square root of its first entry. So a weight's price, w_j^2 / [H^-1]_jj, is (w_j / U_jj)^2.

    Attributes:
        pattern: such as `partial(n_of_m, n=2, m=4)`; asked for a few columns at a time, whose weights have made up for
            all that went before.
        width: how many columns that is. For N:M the paper takes M, for unstructured sparsity 128. A pattern rounds
            each time, so that of few columns it may remove another share; `partial(unstructured, ...)` is refused then.
        block: columns whose updates are summed up before they reach the rest of the matrix. It changes how long the
            solution takes, not what it is.
        dampening: share of the mean second moment that is added to the diagonal, so that the inverse exists. As in the
            authors' code an input that is never there counts as 1 in this mean.
    """

    pattern: Pattern
    width: int
    block: int = 128
    dampening: float = 0.01

    def __post_init__(self):
        check_pattern(self.pattern, alone=True)
        refuse_uncounted(width=self.width, block=self.block)
        if not isinstance(self.dampening, Real) or not 0 <= self.dampening < math.inf:
            raise BadInput(f"dampening={self.dampening!r:.40}: expected a share of 0 or more, and a finite one")

    def __call__(self, weight: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
        work = weight.to(torch.float64, copy=True)
        factor = inverse_factor(moments, self.dampening)
        work[:, moments.diagonal() == 0] = 0  # inputs that are never there need no weights
        mask = torch.ones_like(work, dtype=torch.bool)
        columns = work.shape[1]
        block = max(self.block // self.width, 1) * self.width  # a whole number of choices
        for begin in range(0, columns, block):
            end = min(begin + block, columns)
            removed = torch.zeros_like(work[:, begin:end])  # of each column what went, over U_jj
            for j in range(begin, end):
                if (j - begin) % self.width == 0:
                    some = slice(j, min(j + self.width, end))
                    prices = (work[:, some] / factor.diagonal()[some]) ** 2
                    mask[:, some] = mask_by(self.pattern, prices)
                removed[:, j - begin] = work[:, j] * ~mask[:, j] / factor[j, j]
                work[:, j:end] -= torch.outer(removed[:, j - begin], factor[j, j:end])
            work[:, end:] -= removed @ factor[begin:end, end:]
        _refuse_another_share(self.pattern, mask, self.width)
        return (work * mask).to(weight.dtype), mask


def _refuse_another_share(pattern: Pattern, mask: Tensor, width: int) -> None:
    """Refuse a mask of another sparsity than `partial` has given `unstructured`, whole rows' rounding aside."""
    given = pattern.keywords if isinstance(pattern, partial) and pattern.func is unstructured else {}
    asked, found = given.get("sparsity"), float((~mask).double().mean())
    if isinstance(asked, Real) and abs(found - asked) > TOLERATED + 0.5 / mask.shape[1]:
        why = f"as it rounds for each {width} columns: take a larger width"
        raise BadInput(f"the pattern removes {found:.1%} of the weights and not {asked:.1%}, {why}")


def inverse_factor(moments: Tensor, dampening: float = 0.0) -> Tensor:
    """Compute the upper Cholesky factor U of the inverse of second moments [C, C], so that their inverse is U^T U.

    A column whose input is always 0 counts as independent of the others, with a second moment of 1.

    Args:
        dampening: share of the mean second moment that is added to the diagonal.

    Raises:
        BadInput: moments without an inverse.
    """
    moments = moments.double().clone()
    diagonal = moments.diagonal()  # a view
    diagonal[diagonal == 0] = 1
    diagonal += dampening * diagonal.mean()
    lower, failed = torch.linalg.cholesky_ex(moments)
    if not int(failed):
        upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
    if int(failed):  # the first or, of moments that nearly have none, the second
        raise BadInput(
            f"the second moments of {len(moments)} inputs have no inverse: a larger dampening gives them one"
        )
    return upper


def one_shot(model: nn.Module, batches: Iterable[Inputs], solver: Solver, select: Select = None) -> nn.Module:
    """Prune a copy of a network, each layer solved on what its pruned predecessors give it; nothing is trained.

    For each layer the calibration data pass through the network as far as this layer: a forward pass ends once it has
    called the layer as often as it did in the dense network. Where data find their way by what they are, as among
    experts, pruning may lead more of them to a layer; these further calls go unseen. The same model and batches give
    the same masks.

    Args:
        batches: what the model is called with, see `pruners.inputs`: a tensor, or a tuple of arguments, without labels.
        solver: `Wanda`, `SparseGPT`, or one like them.
        select: as `prunable`; None: the `eligible` ones. Layers whose products cannot be watched (`Kind.affine` says
            which can), whose weight another layer shares, or that no batch calls are left out with a warning.

    Returns:
        The copy in evaluation mode, its masks attached.

    Raises:
        BadInput: an unknown name, no layer that fits, one that is masked or learns its mask, a weight that is computed
            by a norm, no batches, batches that the model does not take, or layers of which no batch calls any, or not
            one that was asked for by name.
    """
    if isinstance(solver, type) or not callable(solver):
        raise BadInput(f"solver={solver!r:.60}: expected an object such as pruners.Wanda(pattern)")
    model = duplicate(model).eval()
    batches = list(each(batches))
    names = fitting(model) if select is None else [layer.name for layer in prunable(model, select)]
    if masked := attached(model).keys() & set(names):
        raise BadInput(f"{min(masked)} has a mask already: one-shot pruning begins with a dense network")
    if learned := learning(model).keys() & set(names):
        raise BadInput(f"{min(learned)} learns its mask: one-shot pruning begins with a dense network")
    layers = _watched(model, names)
    if odd := [name for name, layer in layers.items() if not inverts(layer)]:
        raise BadInput(f"{odd[0]} is computed by a norm of weights: make it a plain weight first")
    for name, calls in _calls(model, batches, layers, words(select)).items():
        layer = layers[name]
        moments = _moments(model, batches, {name: layer}, calls)[name]
        parts = layer.matrix().chunk(len(moments))  # a group of a convolution has inputs of its own
        with naming(name):
            solved = [_solved(solver, part, own.to(part.device)) for part, own in zip(parts, moments, strict=True)]
        weight, mask = (
            layer.layout.tensor(torch.cat(found), layer.weight.shape) for found in zip(*solved, strict=True)
        )
        with torch.no_grad():
            original(layer).copy_(original_of(layer, weight))
        hold({name: layer}, {name: mask.contiguous()})
    return model


def _solved(solver: Solver, weight: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    """What a solver gives, if it is a weight and a mask."""
    found = solver(weight, moments)
    pair = isinstance(found, (tuple, list)) and len(found) == 2 and all(isinstance(one, Tensor) for one in found)
    if not pair or any(one.shape != weight.shape for one in found) or found[1].dtype != torch.bool:
        raise BadInput(f"the solver gives {found!r:.60}: expected (weight, bool mask), each {list(weight.shape)}")
    return found


def wanda(model: nn.Module, batches: Iterable[Inputs], select: Select = None) -> Scores:
    """Score |W_ij| ||X_j|| in all layers of a dense network at once, the norm in root mean square over positions.

    It goes with any pattern and schedule (`functools.partial(wanda, batches=...)` for a `Pruner`). It differs from
    `one_shot` with `Wanda` in that no layer knows yet that others are pruned too.

    Args:
        batches, select: as in `one_shot`; None: all layers whose products can be watched.

    Raises:
        BadInput: as `one_shot`, masks and norms aside.
    """
    moments = second_moments(model, batches, select)
    layers = {layer.name: layer for layer in prunable(model) if layer.name in moments}
    tensors = {}
    for name, layer in layers.items():
        parts = layer.matrix().chunk(len(moments[name]))
        scores = [wanda_scores(part, own.diagonal()) for part, own in zip(parts, moments[name], strict=True)]
        tensors[name] = layer.layout.tensor(torch.cat(scores), layer.weight.shape).contiguous()
    return Scores(tensors, layers)


def second_moments(model: nn.Module, batches: Iterable[Inputs], select: Select = None) -> dict[str, Tensor]:
    """Measure X X^T, over the number of columns, of what enters each layer; the model is left alone.

    Args:
        batches, select: as in `one_shot`; None: all layers whose products can be watched.

    Returns:
        {parameter name: float64 [groups, C, C]}, in the columns of `Prunable.matrix`; one group but for grouped
        convolutions.
    """
    twin, batches = duplicate(model).eval(), list(each(batches))
    layers = _watched(twin, [layer.name for layer in prunable(twin, select)])
    return _moments(twin, batches, layers, asked=words(select))


def columns_of(layer: Prunable, inputs: Tensor) -> Tensor:
    """Return what a layer's matrix is multiplied by: its inputs as columns [groups, C, positions].

    Of a Linear each input is a column, of a transposed convolution each input position; of a convolution each place
    that the kernel takes, kernel positions first and input channels running fastest, as in `Prunable.matrix`.
    """
    module, axes, inputs = layer.module, layer.layout.axes, inputs.detach()
    if inputs.dim() <= axes.count("t") + axes.count("k") + 1:  # one example without a batch axis
        inputs = inputs[None]
    if "t" in axes:
        return inputs.movedim(1, 0).flatten(1).unflatten(0, (layer.layout.groups, -1))
    if "k" not in axes:
        return inputs.flatten(0, -2).T[None]
    padding = module._reversed_padding_repeated_twice  # of each axis, the last first: whatever "same" or a number meant
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    places = F.pad(inputs, padding, mode=mode)
    for axis, (size, step, apart) in enumerate(zip(module.kernel_size, module.stride, module.dilation, strict=True), 2):
        places = places.unfold(axis, apart * (size - 1) + 1, step)[..., ::apart]
    count = len(module.kernel_size)
    places = places.unflatten(1, (module.groups, -1))  # [N, groups, channels, positions ..., kernel ...]
    kernel, positions = list(range(3 + count, 3 + 2 * count)), list(range(3, 3 + count))
    return places.permute(1, *kernel, 2, 0, *positions).flatten(2 + count).flatten(1, 1 + count)


def wanda_scores(weight: Tensor, squares: Tensor) -> Tensor:
    """Score |W_ij| ||X_j||, from the weights of a layer [R, C] and the squared norms of its inputs [C]."""
    return product(weight.abs(), squares.sqrt())


def _watched(model: nn.Module, names: Iterable[str]) -> dict[str, Prunable]:
    """The layers of these names whose inputs can be watched; the others are left out with a warning."""
    there = {layer.name: layer for layer in prunable(model)}
    layers = {}
    for name in names:
        layer = there[name]
        if layer.tied:
            leave_out(name, "other layers share it and have other inputs")
        elif not kinds.find(layer.module)[0].affine:
            leave_out(name, f"it is inside {type_of(layer.module)}, whose own inputs alone can be seen")
        else:
            layers[name] = layer
    if not layers:
        raise BadInput("no layer is left whose inputs can be seen: one shot knows Linear layers and convolutions")
    return layers


class _Enough(BaseException):
    """End a forward pass of whose rest nothing is needed."""


def _calls(
    model: nn.Module, batches: Sequence[Inputs], layers: Mapping[str, Prunable], asked: Collection[str]
) -> dict[str, list[int]]:
    """How often each batch calls each layer, in the order in which the layers first run."""
    calls: dict[str, list[int]] = {}
    seen: set[str] = set()
    for number, batch in enumerate(batches):

        def count(layer: Prunable, inputs: Tensor, number: int = number) -> None:
            calls.setdefault(layer.name, [0] * len(batches))[number] += 1
            seen.update([layer.name] if inputs.numel() else [])

        _feed(model, [batch], layers, count)
    leave_uncalled(model, layers, seen, asked, batches)
    return {name: often for name, often in calls.items() if name in seen}


def _moments(
    model: nn.Module,
    batches: Sequence[Inputs],
    layers: Mapping[str, Prunable],
    calls: Sequence[int] | None = None,
    asked: Collection[str] = (),
) -> dict[str, Tensor]:
    """Second moments of what enters each layer, see `second_moments`; `calls` as in `_feed`, `asked` as in
    `leave_uncalled`.
    """
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(layer: Prunable, inputs: Tensor) -> None:
        columns = columns_of(layer, inputs).double()  # [groups, C, positions]
        if not bool(torch.isfinite(columns).all()):
            raise BadInput(f"the input of {layer.name} is not finite")
        sums[layer.name] = sums.get(layer.name, 0) + columns @ columns.mT
        counts[layer.name] = counts.get(layer.name, 0) + columns.shape[-1]

    _feed(model, batches, layers, add, calls)
    seen = [name for name, count in counts.items() if count]  # a call may come without an example
    leave_uncalled(model, layers, seen, asked, batches)
    return {name: sums[name] / counts[name] for name in seen}


def _feed(
    model: nn.Module,
    batches: Sequence[Inputs],
    layers: Mapping[str, Prunable],
    watch: Callable[[Prunable, Tensor], object],
    calls: Sequence[int] | None = None,
) -> None:
    """Call the model on each batch, and `watch` with what enters each layer.

    Args:
        calls: how often each batch calls these layers. It goes no further than the last of these calls, and not at all
            where there are none. None: each batch goes through the whole model.
    """
    left = None

    def hook(layer: Prunable) -> Callable:
        def seen(module: nn.Module, args: tuple, kwargs: dict) -> None:
            nonlocal left
            watch(layer, unnested(entering(args, kwargs)))
            if left is not None and (left := left - 1) == 0:
                raise _Enough

        return seen

    handles = [layer.module.register_forward_pre_hook(hook(layer), with_kwargs=True) for layer in layers.values()]
    try:
        with torch.no_grad():
            for number, batch in enumerate(batches):
                left = calls[number] if calls else None
                if left != 0:
                    with suppress(_Enough):
                        feed(model, batch)
    finally:
        for handle in handles:
            handle.remove()
