"""Find transposable masks by simple rules that others use, to be compared with the best: `by_rule(w, n, m, greedy)`.

All are compiled loops over the blocks of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import torch
from torch import Tensor

from lib.pruners.transposable import from_blocks, to_blocks


def by_rule(magnitude: Tensor, n: int, m: int, rule: Callable[[np.ndarray, int, np.ndarray], None]) -> Tensor:
    """Make the mask of a matrix when each block follows a compiled rule."""
    blocks = to_blocks(magnitude, m).contiguous()
    mask = torch.zeros(blocks.shape, dtype=torch.bool)
    rule(blocks.numpy(), n, mask.numpy())
    return from_blocks(mask, magnitude.shape)


@numba.njit(nogil=True)
def greedy(blocks, n, mask):
    """Take the entries of a block from the largest down, each as long as its row and its column have room.

    So does the kernel of torch's `_sparse_semi_structured_tile`, which came from xformers, for 2:4. It may end with
    rows and columns that could take another entry, but not the same one.
    """
    m = blocks.shape[1]
    in_row, in_column, order = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m * m, np.int64)
    for b in range(len(blocks)):
        in_row[:], in_column[:] = 0, 0
        _sort(blocks[b], order)
        for k in range(m * m):
            place = order[m * m - 1 - k]
            i, j = place // m, place % m
            if in_row[i] < n and in_column[j] < n:
                mask[b, i, j] = True
                in_row[i] += 1
                in_column[j] += 1


@numba.njit(nogil=True)
def two_approximation(blocks, n, mask):
    """Remove the entries of a block from the smallest up, each as long as its row or its column has to lose more.

    Hubara et al. (2021), Algorithm 1: what is removed weighs at most twice what an exact mask removes. A row may lose
    more than m - n.
    """
    m = blocks.shape[1]
    in_row, in_column, order = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m * m, np.int64)
    mask[:] = True
    for b in range(len(blocks)):
        in_row[:], in_column[:] = 0, 0
        _sort(blocks[b], order)
        for place in order:
            i, j = place // m, place % m
            if in_row[i] < m - n or in_column[j] < m - n:
                mask[b, i, j] = False
                in_row[i] += 1
                in_column[j] += 1


@numba.njit(nogil=True)
def _sort(block, order):
    """The places of a block from the smallest entry up, by Shell's method: fast for so few, and quick to compile."""
    values = block.ravel()
    for place in range(len(values)):
        order[place] = place
    for gap in (57, 23, 10, 4, 1):
        for end in range(gap, len(values)):
            place, slot = order[end], end
            while slot >= gap and values[order[slot - gap]] > values[place]:
                order[slot] = order[slot - gap]
                slot -= gap
            order[slot] = place
