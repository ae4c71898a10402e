"""Search the order of columns with which 2:4 keeps most of the magnitude (paper 2, section 4.1, figure 6).

Columns that share a group of four compete row by row for two places. Putting large columns together loses much,
spreading them loses little, so the order matters; and permuting a layer's inputs changes nothing that the network
computes as long as what produces them is permuted too.

Two ideas carry the search. If column y takes the place of one of a group's four, the group then keeps in each row
x1 + max(x2, y), where x1 >= x2 are the larger two of the other three. And max(a, b) = (a + b + |a - b|) / 2, so the
gains of all pairs of swaps come from one matrix of L1 distances. `greedy` uses both; `anneal` uses the first, one
proposal at a time.
"""

from __future__ import annotations

import math
import time
from itertools import chain
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from lib.base import BadInput, refuse_uncounted
from lib.pruners.patterns import n_of_m

# Where the temperature starts, in units of a typical change, and what is left of it at the end. Chosen on a Gaussian
# matrix of 256 x 512 among 0.03 to 0.3 and 0.001 to 0.5, for a million and for ten million proposals together.
HOT, COOLING = 0.08, 0.3


def kept_magnitude(weight: Tensor) -> float:
    """Compute the magnitude that 2:4 keeps of a matrix [R, C], sum of |w|."""
    magnitude = weight.abs()
    return float(magnitude[n_of_m({"weight": magnitude}, 2, 4)["weight"]].double().sum())


def efficacy(weight: Tensor, order: Tensor) -> float:
    """Measure how much of what could be won the order wins, in percent: 0 for no change, 100 for the bound.

    The bound is pruning every row by half without a pattern; 2:4 cannot reach it in general. Loss is the sum of |w|
    that is removed, and the result 100 (default loss - found loss) / (default loss - bound's loss).

    Raises:
        BadInput: an order that does not name each column once.
    """
    if sorted(order.tolist()) != list(range(weight.shape[1])):
        raise BadInput(f"order: expected each of the weight's {weight.shape[1]} columns once")
    default, found = kept_magnitude(weight), kept_magnitude(weight[:, order])
    most = bound(weight)
    return 100 * (found - default) / (most - default) if most > default else 0.0


def bound(weight: Tensor) -> float:
    """Sum the magnitude that is kept of a matrix [R, C] when every row loses its smaller half, wherever it stands."""
    return float(weight.abs().double().sort(dim=1, descending=True).values[:, : weight.shape[1] // 2].sum())


def greedy(weight: Tensor, passes: int = 1000, movable: Tensor | None = None) -> Tensor:
    """Find an order of columns [C] by swaps: in each pass the best ones that do not touch each other's groups.

    Ends when no swap gains anything. Deterministic. The search and the order are on the CPU, wherever the weight is.

    Args:
        movable: bool [C], the columns that may move; None: all.

    Raises:
        BadInput: a matrix whose columns do not come in multiples of 4, at least 8, or that is not finite; or `movable`
            of another kind.
    """
    columns, free = _columns(weight), _movable(weight, movable)
    count, most = len(columns), -math.inf
    group = torch.arange(count) // 4
    allowed = (group[:, None] < group[None]) & free[:, None] & free[None]
    order, now, take = torch.arange(count), torch.zeros(count), torch.zeros(count, count)
    stale = torch.arange(count)  # places in groups that have changed: their rows of `take` are computed anew
    for _ in range(passes):
        groups = columns[order[stale]].reshape(-1, 4, columns.shape[1])
        first, second = _rivals(groups)
        # take[a, y]: what a's group keeps when column y stands in the place of a
        take[stale] = (second.sum(1)[:, None] + columns.sum(1)[None] + torch.cdist(second, columns, p=1)) / 2
        take[stale] += first.sum(1)[:, None]
        now[stale] = groups.topk(2, dim=1).values.sum((1, 2)).repeat_interleave(4)
        if (kept := float(now.double().sum())) <= most:  # where magnitudes are nearly equal, gains may be roundings
            break
        most, swapped = kept, take[:, order]
        gain = (swapped + swapped.T - now[:, None] - now[None]).where(allowed, 0)
        chosen = _disjoint(gain, 1e-9 * float(now.sum()))
        if not chosen:
            break
        for a, b in chosen:
            order[[a, b]] = order[[b, a]]
        changed = group[torch.tensor(chosen).flatten()]
        stale = (4 * changed[:, None] + torch.arange(4)).flatten()
    return order


def anneal(
    weight: Tensor,
    proposals: int = 1_000_000,
    seed: int = 0,
    seconds: float | None = None,
    movable: Tensor | None = None,
) -> Tensor:
    """Find an order of columns [C] by simulated annealing over swaps of two columns.

    Starts from the given order; the temperature falls geometrically, in steps of a hundredth of the proposals and at
    most 100 000. Returned is the best of the first order and those at the end of each step: one in between may have
    been better. The same seed gives the same order, unless a time budget ends the search. The search and the order are
    on the CPU, wherever the weight is.

    Args:
        proposals: swaps that are tried.
        seconds: stop after this time even if not all were tried. The temperature falls with the share of the time or
            of the proposals that is over, whichever is larger. None: try them all.
        movable: bool [C], the columns that may move; None: all.

    Raises:
        BadInput: as `greedy`; fewer than 100 proposals, a negative seed, or a time that is not finite and 0 or more.
    """
    check_budget(proposals, seed, seconds)
    columns = np.ascontiguousarray(_columns(weight).numpy())
    free = np.flatnonzero(_movable(weight, movable).numpy())
    if len(free) < 2:
        return torch.arange(len(columns))
    scale = float(columns.mean()) * np.sqrt(columns.shape[1])  # a typical swap changes about this much
    return torch.from_numpy(cooled(_State(columns, free), HOT * scale, proposals, 100_000, seed, seconds))


def check_budget(proposals: int, seed: int, seconds: float | None) -> None:
    """Refuse an annealing that cannot be.

    Raises:
        BadInput: fewer than 100 proposals, a negative seed, or a time that is not finite and 0 or more.
    """
    refuse_uncounted(100, proposals=proposals)
    refuse_uncounted(0, seed=seed)
    if seconds is not None and not 0 <= seconds < math.inf:
        raise BadInput(f"seconds={seconds}: expected a finite time, or None for all proposals")


def cooled(state: Any, hot: float, proposals: int, most: int, seed: int, seconds: float | None) -> Any:
    """Anneal a state, and return the best of its first orders and those at the end of each temperature.

    Args:
        state: of orders that `run(proposals, temperature, seed)` changes, `orders()` copies, and of which `total()` is
            kept.
        hot: the first temperature, of which COOLING is left at the end.
        proposals, seed, seconds: as in `anneal`.
        most: proposals at one temperature, if that is less than a hundredth of all.
    """
    rng = np.random.default_rng(seed)
    some = min(proposals // 100, most)
    best, best_kept = state.orders(), state.total()
    began, elapsed, done = time.monotonic(), 0.0, 0
    while done < proposals and (seconds is None or elapsed < seconds):
        over = max(done / proposals, elapsed / seconds if seconds else 0.0)
        state.run(some, hot * COOLING**over, int(rng.integers(2**31)))
        if state.total() > best_kept:
            best, best_kept = state.orders(), state.total()
        elapsed, done = time.monotonic() - began, done + some
    return best


class _State:
    """An order and what each column's rivals leave, kept up to date by the compiled loop."""

    def __init__(self, columns: np.ndarray, free: np.ndarray):
        self.columns, self.free = columns, free
        self.order = np.arange(len(columns))
        self.second = np.zeros_like(columns)  # [C, R]: x2 of the three others of the place's group
        self.first = np.zeros(len(columns))  # [C]: sum over rows of x1 of those three
        self.value = np.zeros(len(columns) // 4)  # [groups]: what the group keeps
        for group in range(len(columns) // 4):
            _refresh(group, self.columns, self.order, self.first, self.second, self.value)

    def total(self) -> float:
        return float(self.value.sum())

    def orders(self) -> np.ndarray:
        return self.order.copy()

    def run(self, proposals: int, temperature: float, seed: int) -> None:
        _loop(self.free, proposals, temperature, seed, self.columns, self.order, self.first, self.second, self.value)


@numba.njit(fastmath=True)
def _refresh(group, columns, order, first, second, value):
    """Rivals and value of one group, from scratch."""
    rows = columns.shape[1]
    keeps = 0.0
    for slot in range(4):
        first[4 * group + slot] = 0.0
    for row in range(rows):
        best, runner = 0.0, 0.0
        for slot in range(4):
            x1, x2 = 0.0, 0.0
            for other in range(4):
                if other != slot:
                    x = columns[order[4 * group + other], row]
                    if x > x1:
                        x1, x2 = x, x1
                    elif x > x2:
                        x2 = x
            first[4 * group + slot] += x1
            second[4 * group + slot, row] = x2
            mine = columns[order[4 * group + slot], row]
            if mine > best:
                best, runner = mine, best
            elif mine > runner:
                runner = mine
        keeps += best + runner
    value[group] = keeps


@numba.njit(fastmath=True)
def _loop(free, proposals, temperature, seed, columns, order, first, second, value):
    """So many proposals of swaps between free places at one temperature."""
    np.random.seed(seed)
    rows = columns.shape[1]
    for _ in range(proposals):
        a, b = free[np.random.randint(len(free))], free[np.random.randint(len(free))]
        if a // 4 == b // 4:
            continue
        x, y = columns[order[a]], columns[order[b]]
        with_y, with_x = 0.0, 0.0
        for row in range(rows):
            with_y += max(second[a, row], y[row])
            with_x += max(second[b, row], x[row])
        gain = first[a] + with_y - value[a // 4] + first[b] + with_x - value[b // 4]
        if gain >= 0 or np.random.random() < np.exp(gain / temperature):
            order[a], order[b] = order[b], order[a]
            _refresh(a // 4, columns, order, first, second, value)
            _refresh(b // 4, columns, order, first, second, value)


def _columns(weight: Tensor) -> Tensor:
    """|w| as columns [C, R] float32 on the CPU; what cannot be permuted for 2:4 is refused."""
    if weight.dim() != 2 or weight.shape[1] % 4 or weight.shape[1] < 8:
        found = tuple(weight.shape)
        raise BadInput(f"a permutation for 2:4 needs a matrix with columns in multiples of 4, at least 8; not {found}")
    if not bool(torch.isfinite(weight).all()):
        raise BadInput(f"{int((~torch.isfinite(weight)).sum())} of {weight.numel()} weights are not finite")
    return weight.detach().cpu().abs().float().T.contiguous()


def _movable(weight: Tensor, movable: Tensor | None) -> Tensor:
    """Which columns of a weight may move, bool [C] on the CPU."""
    if movable is None:
        return torch.ones(weight.shape[1], dtype=torch.bool)
    if not isinstance(movable, Tensor) or movable.dtype != torch.bool or movable.shape != weight.shape[1:]:
        found = f"{movable.dtype} {list(movable.shape)}" if isinstance(movable, Tensor) else type(movable).__name__
        raise BadInput(f"movable is {found}: expected bool, one a column of the weight")
    return movable.cpu()


def _rivals(groups: Tensor) -> tuple[Tensor, Tensor]:
    """For each place of groups [G, 4, R] the larger two of the other three, each [4 G, R]."""
    others = torch.stack([groups[:, [s for s in range(4) if s != slot]] for slot in range(4)], dim=1)
    top = others.topk(2, dim=2).values  # [G, 4, 2, R]
    return top[:, :, 0].flatten(0, 1), top[:, :, 1].flatten(0, 1)


def _disjoint(gain: Tensor, least: float) -> list[tuple[int, int]]:
    """The best swaps that gain more than the least and share no group, best first."""
    pairs = (gain > least).nonzero()
    best = gain[pairs[:, 0], pairs[:, 1]].sort(descending=True, stable=True).indices
    chosen: list[tuple[int, int]] = []
    used: set[int] = set()
    # piece by piece: few of the pairs are looked at, and Python's list of all would take far more than the tensor
    for a, b in chain.from_iterable(pairs[piece].tolist() for piece in best.split(4096)):
        if used.isdisjoint((a // 4, b // 4)):
            chosen.append((a, b))
            used |= {a // 4, b // 4}
            if 2 * len(chosen) == len(gain) // 4:
                break
    return chosen
