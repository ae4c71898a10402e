"""Compare how well and how fast orders of columns for 2:4 are found (paper 2, section 4.1) with what others published.

Efficacy is in percent of what could be won (`pruners.permutation.efficacy`), kept in percent of the magnitude, seconds
are wall-clock after compilation. The search runs on the CPU whatever the device; the loop of `anneal` on one core.

The published figures are those of NVIDIA's apex library (README of its permutation search), for one uniform matrix; of
forty such matrices the efficacy of a search differs by 2 points (standard deviation).
Its two searches are here too, written anew from their description and compiled, so that rules are compared and not
programs: `channel_swap` and `eight_at_a_time`. Both end where no step gains anything, or when their time is over; the
random escapes from there, which apex offers, are left out.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations

import numba
import numpy as np
import torch
from torch import Tensor, nn

from lib.data import vision
from lib.models.lenet import small_lenet
from lib.models.resnet import small_resnet
from lib.pruners.layers import as_matrix
from lib.pruners.permutation import anneal, efficacy, greedy, kept_magnitude
from lib.training.examples import Examples
from lib.training.supervised import Training, train

DEVICE = "cpu"  # the search runs there
COLUMNS = ("matrix", "rows", "columns", "method", "seed", "efficacy", "kept", "seconds")
SEEDS = range(3)
PUBLISHED = {  # method: (efficacy, seconds)
    "published: channel swap (CPU of a V100 machine)": (32.1, 56.0),
    "published: exhaustive search of 8 columns at a time (CPU of a V100 machine)": (35.5, 61.0),
    "published: exhaustive search of 8 columns at a time (V100)": (35.5, 0.013),
    "published: channel swap, 1000 escapes (V100)": (36.0, 20.248),
    "published: exhaustive search of 12 columns at a time (V100)": (36.6, 0.86),
    "published: random, best of 100000 (V100)": (14.1, 11.51),
}
ROUNDING = 1e-7  # share of the magnitude: columns are float32, and a gain below it may be of two equal orders
CHUNK = 4096  # pairs of groups between two looks at the clock
EXHAUSTIVE = 12  # most columns for which all orders are tried: 5,775 that differ, with 16 it would be 2.6 million


def run(device: str) -> list[dict]:
    """Return one row a matrix, method and seed."""
    for search in (partial(anneal, proposals=100), channel_swap, eight_at_a_time):
        search(torch.ones(4, 8))  # compiles
    rows = measured("gaussian", gaussian(64, 8)) + measured("gaussian", gaussian(64, 12))
    rows += measured("gaussian", gaussian(256, 512), budgets=(0.5, 2))
    rows += measured("gaussian", gaussian(1024, 1024), draws=20, proposals=(10**6,), budgets=(5,))
    rows += measured("uniform", torch.rand(128, 64, generator=torch.Generator().manual_seed(0)), draws=10_000)
    for name, weight in trained():
        rows += measured(name, weight)
    return rows


def measured(
    name: str,
    weight: Tensor,
    draws: int = 1000,
    proposals: tuple[int, ...] = (10**6, 10**7),
    budgets: tuple[float, ...] = (),
) -> list[dict]:
    """Return the rows of one matrix [R, C].

    Args:
        draws: how many random orders the best is taken of.
        proposals: with how many `anneal` is tried.
        budgets: within how many seconds it is tried, and apex's searches beside it; these run to their end if there
            are none.
    """
    tries: list[tuple[str, int | None, Callable[[Tensor], Tensor]]] = [
        ("default", None, lambda weight: torch.arange(weight.shape[1])),
        (f"random, best of {draws}", 0, partial(best_of_random, draws=draws, seed=0)),
        ("greedy", None, greedy),
    ]
    for count in proposals:
        tries += [(f"anneal, {count:.0e}", seed, partial(anneal, proposals=count, seed=seed)) for seed in SEEDS]
    for time_left in budgets:
        within = partial(anneal, proposals=10**12, seconds=time_left)
        tries += [(f"anneal, {time_left:g} s", seed, partial(within, seed=seed)) for seed in SEEDS]
    for time_left in budgets or (math.inf,):
        end = "" if time_left == math.inf else f", {time_left:g} s"
        tries.append((f"apex's channel swap{end}", None, partial(channel_swap, seconds=time_left)))
        tries.append((f"apex's search of 8 columns{end}", None, partial(eight_at_a_time, seconds=time_left)))
    if weight.shape[1] <= EXHAUSTIVE:
        tries.append(("exhaustive", None, best_of_all))
    rows = []
    for method, seed, search in tries:
        began = time.perf_counter()
        order = search(weight)
        seconds = time.perf_counter() - began
        share = 100 * kept_magnitude(weight[:, order]) / float(weight.abs().double().sum())
        found = {"efficacy": efficacy(weight, order), "kept": share, "seconds": seconds}
        rows.append(dict(zip(COLUMNS, (name, *weight.shape, method, seed), strict=False)) | found)
    return rows


def published() -> list[dict]:
    """List what was published for a uniform matrix of 128 x 64; it was measured on no machine of ours."""
    matrix = {"matrix": "uniform", "rows": 128, "columns": 64}
    return [
        matrix | {"method": name, "efficacy": percent, "seconds": seconds}
        for name, (percent, seconds) in PUBLISHED.items()
    ]


def gaussian(rows: int, columns: int) -> Tensor:
    """Draw a weight [rows, columns] of normal numbers, always the same."""
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))


def best_of_random(weight: Tensor, draws: int, seed: int) -> Tensor:
    """Find the order of columns that keeps most among so many random ones."""
    draw = torch.Generator().manual_seed(seed)
    orders = (torch.randperm(weight.shape[1], generator=draw) for _ in range(draws))
    return max(orders, key=lambda order: kept_magnitude(weight[:, order]))


def channel_swap(weight: Tensor, seconds: float = math.inf) -> Tensor:
    """Find an order of columns [C] as apex's "channel swap" does: always the one swap of two columns that gains most.

    The gains of all swaps are computed once, and after each swap anew for the eight places of the two groups.

    Args:
        seconds: when it stops even if a swap still gains something; the first table is always finished.
    """
    began, columns = time.monotonic(), _columns(weight)
    order, stale = np.arange(len(columns)), np.arange(len(columns))
    second, first = np.empty_like(columns), np.empty(len(columns))
    gains = np.zeros((len(columns), len(columns)))
    while True:
        _swap_gains(columns, order, stale, first, second, gains)
        a, b = divmod(int(gains.argmax()), len(columns))
        if gains[a, b] <= ROUNDING * float(columns.sum()) or time.monotonic() - began >= seconds:
            return torch.from_numpy(order)
        order[[a, b]] = order[[b, a]]
        stale = (4 * np.array([a // 4, b // 4])[:, None] + np.arange(4)).ravel()


def eight_at_a_time(weight: Tensor, seconds: float = math.inf) -> Tensor:
    """Find an order of columns [C] as apex's exhaustive search does, two groups of four columns at a time.

    Of each pair of groups all 35 ways to share its eight columns are tried. The best pairs that have no group in common
    take their best way, and all pairs with a group that has changed are tried again.

    Args:
        seconds: when it stops even if a pair still gains something; pairs that were not tried by then stay.
    """
    began, columns = time.monotonic(), _columns(weight)
    order, count = np.arange(len(columns)), len(columns) // 4
    splits = np.array(list(partitions(tuple(range(8)))))
    pairs = np.array(list(combinations(range(count), 2)))
    gains, best = np.zeros(len(pairs)), np.zeros(len(pairs), np.int64)
    stale = np.arange(len(pairs))
    while True:
        gains[stale] = 0
        for part in range(0, len(stale), CHUNK):
            _pair_gains(columns, order, pairs, stale[part : part + CHUNK], splits, gains, best)
            if time.monotonic() - began >= seconds:
                break
        changed = np.zeros(count, np.bool_)
        for pair in np.argsort(-gains, kind="stable"):
            if gains[pair] <= ROUNDING * float(columns.sum()):
                break
            if not changed[pairs[pair]].any():
                places = (4 * pairs[pair][:, None] + np.arange(4)).ravel()
                order[places] = order[places[splits[best[pair]]]]
                changed[pairs[pair]] = True
        if not changed.any() or time.monotonic() - began >= seconds:
            return torch.from_numpy(order)
        stale = np.flatnonzero(changed[pairs].any(1))


def _columns(weight: Tensor) -> np.ndarray:
    """|w| as columns [C, R]."""
    return np.ascontiguousarray(weight.abs().float().T.numpy())


@numba.njit(nogil=True, fastmath=True)
def _swap_gains(columns, order, stale, first, second, gains):
    """What each swap with one of these places gains, `gains` [C, C]; none within a group.

    Of the other three of a place's group, `first` [C] is the sum over rows of the largest, `second` [C, R] the second.
    """
    rows = columns.shape[1]
    now = np.empty(len(order))
    for place in stale:
        begin, slot = place - place % 4, place % 4
        x, y = columns[order[begin + (slot + 1) % 4]], columns[order[begin + (slot + 2) % 4]]
        z = columns[order[begin + (slot + 3) % 4]]
        total = 0.0
        for row in range(rows):
            second[place, row] = max(min(x[row], y[row]), min(max(x[row], y[row]), z[row]))
            total += max(max(x[row], y[row]), z[row])
        first[place] = total
    for place in range(len(order)):
        total, own = first[place], columns[order[place]]
        for row in range(rows):
            total += max(second[place, row], own[row])
        now[place] = total
    for a in stale:
        for b in range(len(order)):
            if a // 4 == b // 4:
                continue
            x, y = columns[order[a]], columns[order[b]]
            total = 0.0
            for row in range(rows):
                total += max(second[a, row], y[row]) + max(second[b, row], x[row])
            gains[a, b] = gains[b, a] = total + first[a] + first[b] - now[a] - now[b]


@numba.njit(nogil=True, fastmath=True)
def _pair_gains(columns, order, pairs, stale, splits, gains, best):
    """What the best of the splits of each of these pairs of groups gains, and which it is."""
    for pair in stale:
        default, most = 0.0, -1.0
        for split in range(len(splits)):
            total = 0.0
            for half in range(2):
                four = splits[split, 4 * half : 4 * half + 4]
                a, b = _column(columns, order, pairs[pair], four[0]), _column(columns, order, pairs[pair], four[1])
                c, d = _column(columns, order, pairs[pair], four[2]), _column(columns, order, pairs[pair], four[3])
                for row in range(columns.shape[1]):
                    high, low = max(a[row], b[row]), min(a[row], b[row])
                    other, least = max(c[row], d[row]), min(c[row], d[row])
                    total += max(high, other) + max(min(high, other), max(low, least))
            default = total if split == 0 else default  # the first split is the groups as they are
            if total > most:
                most, best[pair] = total, split
        gains[pair] = most - default


@numba.njit(nogil=True)
def _column(columns, order, pair, place):
    """Column at one of the eight places of a pair of groups."""
    return columns[order[4 * pair[place // 4] + place % 4]]


def best_of_all(weight: Tensor) -> Tensor:
    """Find the order of columns that keeps most among all that differ in what shares a group."""
    splits = partitions(tuple(range(weight.shape[1])))
    return max((torch.tensor(split) for split in splits), key=lambda order: kept_magnitude(weight[:, order]))


def partitions(columns: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """List all ways to put columns into groups of four, each once: 35 for eight columns, 5,775 for twelve."""
    if not columns:
        yield ()
        return
    first, *rest = columns
    for three in combinations(rest, 3):  # the first column's group; the order of groups does not matter
        for others in partitions(tuple(column for column in rest if column not in three)):
            yield (first, *three, *others)


def trained(epochs: int = 10) -> Iterator[tuple[str, Tensor]]:
    """Train and return layers of networks trained on the digits: matrices as the search sees them, [K R S, C]."""
    examples = Examples.of(vision.load("digits"))
    layers = {
        ("small_resnet", small_resnet): ("blocks.1.conv2", "blocks.2.conv1", "blocks.2.conv2"),
        ("small_lenet", small_lenet): ("fc2",),
    }
    for (name, build), chosen in layers.items():
        torch.manual_seed(0)
        model: nn.Module = build()
        train(model, examples, Training(epochs, batch=64, learning_rate=0.1), seed=0)
        for path in chosen:
            weight = model.get_submodule(path).weight.detach()
            yield f"{name} {path}", as_matrix(weight).reshape(-1, weight.shape[1]).clone()
