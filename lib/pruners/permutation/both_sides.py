"""Order rows and columns so that a transposable 2:4 mask keeps more (beyond paper 2, section 4.1).

A transposable mask falls into blocks of 4 x 4, so that the order of the rows matters as much as that of the columns.
The search is simulated annealing over swaps of two rows or of two columns, as in `lib.pruners.permutation.search`.

One idea makes a proposal cheap. Take one line (a row or a column) out of a block. For each of the six ways to keep two
of that line, let `rest` be the most that the three others can then keep, so that all is 2:4 both ways. If another
line y takes the place, the block keeps the largest of six sums, y_a + y_b + rest: no pattern has to be tried.

The table itself needs no search over all 90 patterns either. Lines 0 and 1 together keep 0, 1 or 2 of each place, in
19 ways, and lines 2 and 3 must keep what is missing to 2. So the best of each pair of lines is found for each of the
19, and a line meets its neighbour's six ways and the other pair's best.
"""

from __future__ import annotations

from itertools import combinations

import numba
import numpy as np
import torch
from torch import Tensor

from lib.base import BadInput
from lib.pruners.permutation.search import check_budget, cooled
from lib.pruners.transposable import transposable

# Where the temperature starts, in units of a typical change. Chosen on a Gaussian matrix of 256 x 512 among 0.05 to
# 0.8, and what is left of it at the end (`search.COOLING`) among 0.1 to 0.3, for one and for five million proposals.
HOT = 0.12

PAIRS = np.array(list(combinations(range(4), 2)))  # which two of a line are kept, six ways


def _counts() -> tuple[np.ndarray, np.ndarray]:
    """For two ways to keep two of a line: which of the 19 counts they make together, and which one is missing to 2."""
    kept = np.zeros((6, 4), np.int64)
    np.put_along_axis(kept, PAIRS, 1, axis=1)
    sums = (kept[:, None] + kept[None]).reshape(36, 4)
    codes, index = np.unique(sums @ 3 ** np.arange(4), return_inverse=True)
    missing = np.searchsorted(codes, (2 - sums) @ 3 ** np.arange(4))
    return index.reshape(6, 6), missing.reshape(6, 6)


TOGETHER, MISSING = _counts()
COUNTS = int(TOGETHER.max()) + 1  # 19


def kept_both_ways(weight: Tensor) -> float:
    """Compute the magnitude that the best transposable 2:4 mask keeps of a matrix [R, C], sum of |w|."""
    magnitude = weight.abs()
    return float(magnitude[transposable({"weight": magnitude}, 2, 4)["weight"]].double().sum())


def anneal_both(
    weight: Tensor, proposals: int = 1_000_000, seed: int = 0, seconds: float | None = None
) -> tuple[Tensor, Tensor]:
    """Find an order of the rows [R] and one of the columns [C] of a matrix, so that `weight[rows][:, columns]` keeps
    more.

    Starts from the given orders; half of the proposals swap two rows, half two columns. The temperature falls
    geometrically, in steps of a hundredth of the proposals and at most 10 000. Returned is the best of the first
    orders and those at the end of each step. The same seed gives the same orders, unless a time budget ends the
    search. The search and the orders are on the CPU, wherever the weight is.

    Args:
        proposals: swaps that are tried.
        seconds: stop after this time even if not all were tried. The temperature falls with the share of the time or
            of the proposals that is over, whichever is larger. None: try them all.

    Raises:
        BadInput: a matrix whose rows or columns do not come in multiples of 4, at least 8, or that is not finite; or
            as `search.anneal`.
    """
    check_budget(proposals, seed, seconds)
    state = _State(_magnitude(weight))
    blocks = sum(weight.shape) / 8  # along a line, on average
    scale = float(state.sides[0].lines.mean()) * np.sqrt(blocks)  # a typical swap changes about this much
    rows, columns = cooled(state, HOT * scale, proposals, 10_000, seed, seconds)
    return torch.from_numpy(rows), torch.from_numpy(columns)


class _Side:
    """One direction: lines [L, S] of |w| in their present order, and what their blocks keep without one of them."""

    def __init__(self, lines: np.ndarray):
        count, length = lines.shape
        self.lines = lines
        self.order = np.arange(count)
        self.rest = np.zeros((count, 6, length // 4), np.float32)  # [line's place, way, block along the line]
        self.value = np.zeros((count // 4, length // 4), np.float32)  # [group of lines, block along the line]


class _State:
    """Both directions, kept up to date by the compiled loop."""

    def __init__(self, magnitude: np.ndarray):
        self.sides = _Side(magnitude.copy()), _Side(magnitude.T.copy())
        rows, columns = self.sides
        for group in range(len(rows.value)):
            for block in range(len(columns.value)):
                _refresh(group, block, rows.lines, rows.rest, rows.value, columns.rest, columns.value)

    def total(self) -> float:
        return float(self.sides[0].value.sum(dtype=np.float64))

    def orders(self) -> tuple[np.ndarray, np.ndarray]:
        return self.sides[0].order.copy(), self.sides[1].order.copy()

    def run(self, proposals: int, temperature: float, seed: int) -> None:
        rows, columns = ((side.lines, side.order, side.rest, side.value) for side in self.sides)
        _loop(proposals, temperature, seed, rows, columns)


@numba.njit(fastmath=True)
def _pairs(y, ways):
    """What each of the six ways keeps of a line of four."""
    ways[0], ways[1], ways[2] = y[0] + y[1], y[0] + y[2], y[0] + y[3]
    ways[3], ways[4], ways[5] = y[1] + y[2], y[1] + y[3], y[2] + y[3]


@numba.njit(fastmath=True)
def _without_each(block, ways, pair, rest):
    """rest[slot, way]: the most that the three other lines of a block [4, 4] keep beside that way of the line."""
    for slot in range(4):
        _pairs(block[slot], ways[slot])
    for half in range(2):
        for count in range(COUNTS):
            pair[half, count] = -1.0  # below all sums of magnitudes; fastmath knows no infinity
        for p in range(6):
            for q in range(6):
                both = ways[2 * half, p] + ways[2 * half + 1, q]
                pair[half, TOGETHER[p, q]] = max(pair[half, TOGETHER[p, q]], both)
    for slot in range(4):
        other, half = slot ^ 1, 1 - slot // 2
        for p in range(6):
            most = -1.0
            for q in range(6):
                most = max(most, ways[other, q] + pair[half, MISSING[p, q]])
            rest[slot, p] = most


@numba.njit(fastmath=True)
def _refresh(i, j, lines, rest, value, other_rest, other_value):
    """The tables of the block in the group of lines i at j along them, in both directions, from scratch."""
    block, ways = np.empty((4, 4), np.float32), np.empty((4, 6), np.float32)
    pair, found = np.empty((2, COUNTS), np.float32), np.empty((4, 6), np.float32)
    for a in range(4):
        for b in range(4):
            block[a, b] = lines[4 * i + a, 4 * j + b]
    _without_each(block, ways, pair, found)
    most = np.float32(0.0)
    for way in range(6):
        most = max(most, ways[0, way] + found[0, way])
    value[i, j], other_value[j, i] = most, most
    for slot in range(4):
        for way in range(6):
            rest[4 * i + slot, way, j] = found[slot, way]
    for a in range(4):
        for b in range(4):
            block[a, b] = lines[4 * i + b, 4 * j + a]
    _without_each(block, ways, pair, found)
    for slot in range(4):
        for way in range(6):
            other_rest[4 * j + slot, way, i] = found[slot, way]


@numba.njit(fastmath=True)
def _with_line(y, rest):
    """What the blocks of a group keep when line y stands where `rest` [6, blocks] was computed without it."""
    total = np.float32(0.0)
    for j in range(rest.shape[1]):
        a, b, c, d = y[4 * j], y[4 * j + 1], y[4 * j + 2], y[4 * j + 3]
        first = max(a + b + rest[0, j], a + c + rest[1, j], a + d + rest[2, j])
        second = max(b + c + rest[3, j], b + d + rest[4, j], c + d + rest[5, j])
        total += max(first, second)
    return total


@numba.njit(fastmath=True)
def _propose(a, b, temperature, lines, order, rest, value, other_lines, other_rest, other_value):
    """Swap lines a and b if that gains, or by chance if it loses."""
    with_b, with_a = _with_line(lines[b], rest[a]), _with_line(lines[a], rest[b])
    gain = with_b + with_a - value[a // 4].sum() - value[b // 4].sum()
    if gain < 0 and np.random.random() >= np.exp(gain / temperature):
        return
    order[a], order[b] = order[b], order[a]
    for place in range(lines.shape[1]):
        lines[a, place], lines[b, place] = lines[b, place], lines[a, place]
        other_lines[place, a], other_lines[place, b] = lines[a, place], lines[b, place]
    for group in (a // 4, b // 4):
        for block in range(lines.shape[1] // 4):
            _refresh(group, block, lines, rest, value, other_rest, other_value)


@numba.njit(fastmath=True)
def _loop(proposals, temperature, seed, rows, columns):
    """So many proposals at one temperature, rows and columns in turn; of each lines, order, rest and value."""
    np.random.seed(seed)
    for number in range(proposals):
        count = len(rows[0]) if number % 2 else len(columns[0])
        a, b = np.random.randint(count), np.random.randint(count)
        if a // 4 == b // 4:
            continue
        if number % 2:
            _propose(a, b, temperature, *rows, columns[0], columns[2], columns[3])
        else:
            _propose(a, b, temperature, *columns, rows[0], rows[2], rows[3])


def _magnitude(weight: Tensor) -> np.ndarray:
    """|w| [R, C] float32 on the CPU; what cannot be permuted is refused."""
    if weight.dim() != 2 or any(size % 4 or size < 8 for size in weight.shape):
        found = tuple(weight.shape)
        raise BadInput(f"both orders need a matrix with rows and columns in multiples of 4, at least 8; not {found}")
    if not bool(torch.isfinite(weight).all()):
        raise BadInput(f"{int((~torch.isfinite(weight)).sum())} of {weight.numel()} weights are not finite")
    return weight.detach().cpu().abs().float().contiguous().numpy()
