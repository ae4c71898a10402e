"""One shot without training: Wanda and SparseGPT, which look at what enters each layer and never at a gradient.

    small = pruners.one_shot(model, batches, pruners.Wanda(partial(pruners.n_of_m, n=2, m=4)))
    small = pruners.one_shot(model, batches, pruners.SparseGPT(partial(pruners.n_of_m, n=4, m=8), width=8))

Both know a layer by the second moments of its inputs, X X^T over calibration data, and want the layer's outputs W X to
change little. Wanda (Sun et al. 2023, equation 1) scores a weight by |W_ij| ||X_j||: what it adds to its output, in
root mean square. SparseGPT (Frantar and Alistarh 2023, Algorithm 1) also lets the weights that stay make up for those
that go. Layers are pruned in the order in which they run, each on the inputs that its pruned predecessors give it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.pruners.layers import Prunable, Scores, as_matrix, eligible, from_matrix, prunable
from lib.pruners.masks import attach, attached, original

Pattern = Callable[..., dict[str, Tensor]]
Batch = Tensor | Sequence[object] | Mapping[str, object]


class Solver(Protocol):
    """Prunes one layer by what enters it."""

    def __call__(self, weight: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
        """From a weight [R, C] and the second moments of its inputs [C, C], float64, to (new weight, mask) [R, C]."""


@dataclass(frozen=True)
class Wanda:
    """Removes the weights of the smallest |W_ij| ||X_j|| and moves none (Sun et al. 2023).

    Attributes:
        pattern: from {name: scores} to masks, such as `partial(n_of_m, n=2, m=4)`; for unstructured sparsity weights
            are ranked within their row, as in the paper: `partial(unstructured, sparsity=0.5, scope="row")`.
    """

    pattern: Pattern

    def __call__(self, weight: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
        mask = self.pattern({"weight": _wanda(weight, moments.diagonal())})["weight"]
        return weight * mask, mask


@dataclass(frozen=True)
class SparseGPT:
    """Removes weights column by column, and moves those to the right so that the outputs change least.

    When the weight in column j of a row goes, the columns after j change by -w_j / [H^-1]_jj [H^-1]_j:, with the
    inverse of the moments H of the columns from j on (Optimal Brain Surgeon; SparseGPT, equations 3 and 4). All these
    inverses stand in one Cholesky factor: H^-1 = U^T U, and row j of U is the row of the inverse that column j needs,
    divided by the square root of its first entry. So a weight's price, w_j^2 / [H^-1]_jj, is (w_j / U_jj)^2.

    Attributes:
        pattern: such as `partial(n_of_m, n=2, m=4)`; asked for a few columns at a time, whose weights have made up for
            all that went before.
        width: how many columns that is. For N:M the paper takes M, for unstructured sparsity 128.
        block: columns whose updates are summed up before they reach the rest of the matrix. It changes how long the
            solution takes, not what it is.
        dampening: share of the mean second moment that is added to the diagonal, so that the inverse exists.
    """

    pattern: Pattern
    width: int
    block: int = 128
    dampening: float = 0.01

    def __post_init__(self):
        if self.width < 1 or self.block < 1 or not self.dampening >= 0:
            given = f"width={self.width}, block={self.block}, dampening={self.dampening}"
            raise BadInput(f"SparseGPT: {given}: expected columns of 1 or more, and a share of 0 or more")

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
                    mask[:, some] = self.pattern({"weight": prices})["weight"]
                removed[:, j - begin] = work[:, j] * ~mask[:, j] / factor[j, j]
                work[:, j:end] -= torch.outer(removed[:, j - begin], factor[j, j:end])
            work[:, end:] -= removed @ factor[begin:end, end:]
        return (work * mask).to(weight.dtype), mask


def inverse_factor(moments: Tensor, dampening: float = 0.0) -> Tensor:
    """The upper Cholesky factor U of the inverse of second moments [C, C], so that their inverse is U^T U.

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
    if int(failed):
        raise BadInput(
            f"the second moments of {len(moments)} inputs have no inverse: a larger dampening gives them one"
        )
    return torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)


def one_shot(
    model: nn.Module, batches: Iterable[Batch], solver: Solver, only: Iterable[str] | None = None
) -> nn.Module:
    """A pruned copy of a network, each layer solved on what its pruned predecessors give it; nothing is trained.

    The calibration data pass through the network once a layer. The same model and batches give the same masks.

    Args:
        batches: inputs to calibrate on: tensors, tuples of arguments or dictionaries of keyword arguments.
        solver: `Wanda`, `SparseGPT`, or one like them.
        only: names of the weights to prune; None: the `eligible` ones.

    Returns:
        The copy in evaluation mode, its masks attached.

    Raises:
        BadInput: an unknown name, a stacked or masked layer, no batches, or a layer that no batch reaches.
    """
    model = copy.deepcopy(model).eval()
    batches = list(batches)
    layers = {layer.name: layer for layer in prunable(model)}
    for name in _order(model, batches, _chosen(model, layers, only)):
        layer = layers[name]
        moments = _moments(model, batches, {name: layer})[name]
        parts = as_matrix(layer.weight).chunk(len(moments))  # a group of a convolution has inputs of its own
        solved = [solver(part, own.to(part.device)) for part, own in zip(parts, moments, strict=True)]
        weight, mask = (torch.cat(found) for found in zip(*solved, strict=True))
        shape = layer.weight.shape
        with torch.no_grad():
            original(layer).copy_(from_matrix(weight, shape))
        attach(model, {name: from_matrix(mask, shape).contiguous()})
    return model


def wanda(model: nn.Module, batches: Iterable[Batch]) -> Scores:
    """|W_ij| ||X_j|| of all layers of a dense network at once, the norm in root mean square over positions.

    A score like any other, for any pattern and schedule (`functools.partial(wanda, batches=...)` for a `Pruner`). It
    differs from `one_shot` with `Wanda` in that no layer knows yet that others are pruned too.
    """
    layers = {layer.name: layer for layer in prunable(model)}
    moments = second_moments(model, batches)
    tensors = {}
    for name, layer in layers.items():
        parts = as_matrix(layer.weight).chunk(len(moments[name]))
        scores = [_wanda(part, own.diagonal()) for part, own in zip(parts, moments[name], strict=True)]
        tensors[name] = from_matrix(torch.cat(scores), layer.weight.shape)
    return Scores(tensors, layers)


def second_moments(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Tensor]:
    """Measure X X^T, over the number of columns, of what enters each layer; the model is left alone.

    Returns:
        {parameter name: float64 [groups, C, C]}, in the columns of `as_matrix`; one group but for grouped convolutions.
    """
    twin = copy.deepcopy(model).eval()
    return _moments(twin, list(batches), {layer.name: layer for layer in prunable(twin)})


def _wanda(weight: Tensor, squares: Tensor) -> Tensor:
    return weight.abs() * squares.sqrt().to(weight.device, weight.dtype)


def _chosen(model: nn.Module, layers: Mapping[str, Prunable], only: Iterable[str] | None) -> list[str]:
    chosen = eligible(model) if only is None else list(only)
    for name in chosen:
        if name not in layers:
            raise BadInput(f"only: the model has no prunable layer {name!r}; it has: {', '.join(layers)}")
    if masked := attached(model).keys() & set(chosen):
        raise BadInput(f"{min(masked)} has a mask already: one-shot pruning begins with a dense network")
    return chosen


def _order(model: nn.Module, batches: Sequence[Batch], names: Iterable[str]) -> list[str]:
    """The layers in the order in which they first run."""
    seen: list[str] = []
    layers = {layer.name: layer.module for layer in prunable(model)}
    names = set(names)
    handles = [
        layers[name].register_forward_pre_hook(lambda *_, name=name: seen.append(name) if name not in seen else None)
        for name in names
    ]
    try:
        if not batches:
            raise BadInput("no batches to calibrate on: one-shot pruning needs at least one")
        _feed(model, batches[0])
    finally:
        for handle in handles:
            handle.remove()
    if missed := sorted(names - set(seen)):
        raise BadInput(f"{', '.join(missed)}: never reached by the calibration data, so nothing is known of its inputs")
    return seen


def _moments(model: nn.Module, batches: Sequence[Batch], layers: Mapping[str, Prunable]) -> dict[str, Tensor]:
    """Mean second moments of what enters each layer, {name: float64 [groups, C, C]}, in the columns of `as_matrix`."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def watch(layer: Prunable) -> Callable:
        if not isinstance(layer.module, (nn.Linear, nn.Conv2d)):
            kind = type(layer.module).__name__
            raise BadInput(
                f"{layer.name} belongs to {kind}: one shot knows the inputs of Linear and Conv2d layers only"
            )

        def hook(module: nn.Module, arguments: tuple) -> None:
            columns = columns_of(module, arguments[0]).double()  # [groups, C, positions]
            if not bool(torch.isfinite(columns).all()):
                raise BadInput(f"the input of {layer.name} is not finite")
            sums[layer.name] = sums.get(layer.name, 0) + columns @ columns.mT
            counts[layer.name] = counts.get(layer.name, 0) + columns.shape[-1]

        return hook

    handles = [layer.module.register_forward_pre_hook(watch(layer)) for layer in layers.values()]
    try:
        for batch in batches:
            _feed(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    if missed := [name for name in layers if name not in sums]:
        raise BadInput(f"{', '.join(missed)}: never reached by the calibration data, so nothing is known of its inputs")
    return {name: sums[name] / counts[name] for name in layers}


def columns_of(module: nn.Module, inputs: Tensor) -> Tensor:
    """What a layer's matrix is multiplied by: its inputs as columns [groups, C, positions].

    Of a Linear each input is a column; of a Conv2d each place that the kernel takes, kernel positions first and input
    channels running fastest, which is the order of `as_matrix`.
    """
    if isinstance(module, nn.Linear):
        return inputs.detach().flatten(0, -2).T[None]
    padding = module._reversed_padding_repeated_twice  # left, right, top, bottom: whatever "same" or a number meant
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    padded = F.pad(inputs.detach(), padding, mode=mode)
    places = F.unfold(padded, module.kernel_size, module.dilation, stride=module.stride)
    count, size = module.in_channels, places.shape[1] // module.in_channels
    places = places.unflatten(1, (module.groups, count // module.groups, size))  # [N, groups, channels, R S, positions]
    return places.permute(1, 3, 2, 0, 4).flatten(3).flatten(1, 2)


def _feed(model: nn.Module, batch: Batch) -> None:
    with torch.no_grad():
        if isinstance(batch, Tensor):
            model(batch)
        elif isinstance(batch, Mapping):
            model(**batch)
        else:
            model(*batch)
