"""Compare how well and how fast orders of columns for 2:4 are found (paper 2, section 4.1) with what others published.

Efficacy is in percent of what could be won (`pruners.permutation.efficacy`), kept in percent of the magnitude, seconds
are wall-clock after compilation. The search runs on the CPU whatever the device; the loop of `anneal` on one core.

The published figures are those of NVIDIA's apex library (README of its permutation search), for a uniform matrix.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations

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
    "published: random, best of 100000": (14.1, None),
}
EXHAUSTIVE = 12  # most columns for which all orders are tried: 5,775 that differ, with 16 it would be 2.6 million


def run(device: str) -> list[dict]:
    """Return one row a matrix, method and seed."""
    anneal(torch.ones(4, 8), 100)  # compiles
    rows = measured("gaussian", gaussian(64, 8)) + measured("gaussian", gaussian(64, 12))
    rows += measured("gaussian", gaussian(256, 512), budgets=(0.5, 2))
    rows += measured("gaussian", gaussian(2048, 2048), draws=20, proposals=(10**6,), budgets=(30,))
    rows += measured("uniform", torch.rand(128, 64, generator=torch.Generator().manual_seed(0)), draws=10_000)
    rows += published()
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
        budgets: within how many seconds it is tried.
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
    """List the published rows, for a uniform matrix of 128 x 64."""
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
