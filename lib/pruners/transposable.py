"""Find transposable masks: N:M along the rows and along the columns of a matrix at once, and nothing better exists.

A mask that is N:M along its rows speeds up the forward product only; training also multiplies by the transposed
weight, for the gradient of the inputs. A mask that is N:M along both serves both (Hubara et al. 2021, "Accelerated
sparse neural training", section 3).

The mask falls into blocks of m x m that do not touch each other. In each, exactly n of each row and n of each column
stay, and the sum of their scores is to be as large as possible. 2:4 has 90 such patterns, which are all tried. Any
other N:M is a maximum-weight assignment in which each row takes n columns and each column n rows:

    maximise   sum_ij s_ij x_ij          with   sum_j x_ij = n,   sum_i x_ij = n,   0 <= x_ij <= 1
    minimise   n (sum_i u_i + sum_j v_j) + sum_ij max(0, s_ij - u_i - v_j)                        over all u and v

The two values are equal at the optimum, and the second is never below the first. So the prices u of the rows and v of
the columns, which the search finds on its way, prove that no mask with n in each row and column keeps more (`gaps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import combinations, product

import numpy as np
import torch
from torch import Tensor, nn

from lib.base import BadInput
from lib.pruners.layers import eligible, layout, prunable
from lib.pruners.patterns import check, check_n_of_m, selected, still_gone
from lib.pruners.scores import check_within
from lib.pruners.selected import Select

CHUNK = 4096  # blocks of 4 x 4 whose 90 sums are held at a time: 1.5 MB, which stays in the cache of a core


def transposable(
    scores: Mapping[str, Tensor],
    n: int = 2,
    m: int = 4,
    sparsity: float | None = None,
    within: Mapping[str, Tensor] | None = None,
    select: Select = None,
) -> dict[str, Tensor]:
    """Keep n of every m along the rows and along the columns, so that the scores kept add up to the most there is.

    Rows and columns are those of the layer's matrix product (`kinds.Layout`): outputs and inputs of a Linear; of a
    Conv2d outputs, and input channels at each kernel position in turn. Where m divides the input channels, the mask
    is also N:M along the outputs at each kernel position, which is what the gradient of the inputs sums over.

    Which of several equally good masks is returned is fixed, but nothing more is promised about ties. Sums are
    compared in float32 (2:4, unless the scores are float64 or some are gone) or in float64 (any other), on the CPU
    unless it is 2:4.

    Args:
        scores: {parameter name: tensor}, high = keep; magnitudes, say, but scores may be negative too.
        n, m: how many stay of how many.
        sparsity: what a schedule asks for. The pattern has only one, 1 - n / m, which this must be if it is given.
        within: {parameter name: mask}; what these have removed goes before anything else and stays removed, so that
            fewer than n may be left.
        select: which of the scores count, as `layers.prunable`; the others get no mask.

    Raises:
        BadInput: a layer whose rows or inner dimension m does not divide. `eligible_both_ways` names those that fit.
            Another sparsity than the pattern's.
    """
    check_n_of_m("transposable", n, m, sparsity)
    scores = selected(scores, select)
    check(scores)
    check_within(scores, within)
    masks = {}
    for name, score in scores.items():
        if within and name in within:
            score = _gone_last(score, within[name], m)
        matrix = layout(scores, name).matrix(score)
        _refuse_uneven(name, matrix, n, m)
        blocks = to_blocks(matrix, m)
        mask = best_two_four(blocks) if (n, m) == (2, 4) else assignment(blocks, n)[0]
        masks[name] = layout(scores, name).tensor(from_blocks(mask, matrix.shape), score.shape).contiguous()
    return still_gone(masks, within)


def _gone_last(score: Tensor, within: Tensor, m: int) -> Tensor:
    """Scores in [0, 1], float64, and -m * m for what is gone: no sum of a block's scores makes up for one of these."""
    low, high = score.double().aminmax()
    level = (score.double() - low) / (high - low).clamp(min=torch.finfo(torch.float64).tiny)
    return level.masked_fill(~within.to(score.device), -m * m)


def eligible_both_ways(model: nn.Module, m: int = 4, select: Select = None) -> list[str]:
    """Name the weights that the 2:4 workflow prunes (`eligible`) and whose rows and inner dimension m divides.

    Args:
        select: as `prunable`.
    """
    fitting = set(eligible(model, select))
    sizes = {layer.name: layer.matrix().shape for layer in prunable(model) if layer.name in fitting}
    return [name for name, size in sizes.items() if size[0] % m == size[1] % m == 0]


def gaps(scores: Mapping[str, Tensor], masks: Mapping[str, Tensor], n: int = 2, m: int = 4) -> dict[str, Tensor]:
    """Compute how much more than a mask's a block's scores could add up to at most, {name: float64 [blocks]}; 0 =
    optimal.

    The upper bound is the dual value at the prices that `assignment` finds, and bounds every mask that keeps exactly
    n both ways, wherever it comes from. It is computed from the prices alone, so that a wrong price makes a gap larger
    and never hides one. A mask that keeps fewer than n somewhere is free of a constraint: its gap may be negative.

    Raises:
        BadInput: n and m that are not whole numbers with 0 < n < m, a mask that is missing, or a layer whose rows
            or inner dimension m does not divide.
    """
    check_n_of_m("gaps", n, m, None)
    check(scores)
    found = {}
    for name, score in scores.items():
        if name not in masks or masks[name].shape != score.shape:
            raise BadInput(f"{name}: expected a mask of the scores' shape {tuple(score.shape)}")
        matrix = layout(scores, name).matrix(score)
        _refuse_uneven(name, matrix, n, m)
        blocks, mask = to_blocks(matrix, m).double().cpu(), to_blocks(layout(scores, name).matrix(masks[name]), m).cpu()
        _, rows, columns = assignment(blocks, n)
        found[name] = dual(blocks, n, rows, columns) - (blocks * mask).sum((1, 2))
    return found


def dual(blocks: Tensor, n: int, rows: Tensor, columns: Tensor) -> Tensor:
    """Find the dual value of each block [blocks] for any prices of its rows and columns [blocks, m]: an upper bound."""
    excess = blocks - rows[:, :, None] - columns[:, None, :]
    return n * (rows.sum(1) + columns.sum(1)) + excess.clamp(min=0).sum((1, 2))


@cache
def patterns() -> Tensor:
    """List the 90 ways to keep two in each row and each column of a 4 x 4 block, bool [90, 4, 4]."""
    pairs = [[place in pair for place in range(4)] for pair in combinations(range(4), 2)]
    every = torch.tensor(list(product(pairs, repeat=4)))  # two in each row
    return every[(every.sum(1) == 2).all(1)]


def best_two_four(blocks: Tensor) -> Tensor:
    """Find of the 90 patterns the one that keeps most of each block, bool [blocks, 4, 4]; of equal ones the first.

    One product gives the sums of all patterns, of a few thousand blocks at a time. The largest sum and the first
    pattern that has it are sought one after the other: two maxima are much faster here than one that keeps places.
    """
    kind = torch.float64 if blocks.dtype == torch.float64 else torch.float32
    every = patterns().flatten(1).to(blocks.device)
    weights, last = every.to(kind), len(every)
    countdown = torch.arange(last, 0, -1, dtype=torch.uint8, device=blocks.device)[:, None]  # highest at the first
    first = []
    for part in blocks.split(CHUNK):
        sums = weights @ part.to(kind).flatten(1).T
        first.append(((sums == sums.amax(0)) * countdown).amax(0))
    return every[last - torch.cat(first).long()].reshape(blocks.shape)


def assignment(blocks: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Find the best mask of each block [blocks, m, m], and the prices of rows and columns that prove it, on the CPU.

    Each row begins with its n highest scores, which is optimal as long as columns are free. Columns that are taken
    too often then hand over to those taken too rarely, one unit at a time, along the path that loses least: shortest
    paths with prices, so that Dijkstra's algorithm applies (Ahuja, Magnanti and Orlin, "Network flows", section 9.7).
    On Gaussian scores about 13 such paths are needed for 8:16 where a search from nothing needs 128.

    Returns:
        masks (bool [blocks, m, m]), prices of rows and of columns (float64 [blocks, m]).
    """
    kind = blocks.dtype if blocks.dtype in (torch.float32, torch.float64) else torch.float64
    scores = blocks.detach().cpu().to(kind).contiguous().numpy()
    count, m = scores.shape[:2]
    mask = np.zeros((count, m, m), dtype=np.bool_)
    rows, columns = np.zeros((count, m)), np.zeros((count, m))
    from lib.kernels.assignment import assign  # numba takes a second to load, and 2:4 does without

    assign(scores, n, mask, rows, columns)
    return torch.from_numpy(mask).to(blocks.device), torch.from_numpy(rows), torch.from_numpy(columns)


def to_blocks(matrix: Tensor, m: int) -> Tensor:
    """Cut out the blocks of a matrix [R, C], row of blocks after row of blocks: [R/m * C/m, m, m]."""
    rows, columns = matrix.shape
    return matrix.reshape(rows // m, m, columns // m, m).transpose(1, 2).reshape(-1, m, m)


def from_blocks(blocks: Tensor, shape: tuple[int, int]) -> Tensor:
    """Invert `to_blocks` for a matrix of the given shape."""
    (rows, columns), m = shape, blocks.shape[-1]
    return blocks.reshape(rows // m, columns // m, m, m).transpose(1, 2).reshape(rows, columns)


def _refuse_uneven(name: str, matrix: Tensor, n: int, m: int) -> None:
    for axis, length in zip(("rows", "inner dimension"), matrix.shape, strict=True):
        if length % m:
            raise BadInput(f"{name}: {axis} {length} not a multiple of {m}, so transposable {n}:{m} does not fit it")
