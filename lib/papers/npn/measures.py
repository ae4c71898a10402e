"""Measure paper 4: from a sweep's rows and from architectures as printed; gates by themselves are in `definitions`.

A variant is a direction of npn_moons and npn_images, and a variant of npn_ablations; among rows at several tau those at
the paper's count. Without a stage its last epoch counts, with one the last epoch of that stage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from operator import lt

import numpy as np
import pandas as pd
import torch
from scipy.stats import beta, norm
from torch import nn

from lib.base import BadInput
from lib.companion.cells import Values, by_cell
from lib.companion.pairs import chosen, last, refuse_absent, side_by_side
from lib.companion.statistics import Interval, ratio_of_means
from lib.models.alexnet import alexnet
from lib.models.lenet import lenet5
from lib.models.plain import moons_mlp
from lib.papers.npn.definitions import (  # noqa: F401 (claims look all measures of a paper up here)
    estimate_over_gradient,
    learning_draws,
    probability,
    slope,
    variance_against_ar,
)
from lib.pruners import gates

INDEX = ["data", "network", "seed"]  # what the directions of a run share
TAU = 0.5  # the paper's
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "moons_mlp": moons_mlp,
    "lenet5": lenet5,
    "alexnet": alexnet,
    "alexnet100": partial(alexnet, 100),
}


def value(
    runs: pd.DataFrame,
    variant: str,
    column: str = "accuracy",
    stage: int | None = None,
    data: Sequence[str] | None = None,
    epoch: int | None = None,
) -> Values:
    """Measure what a column holds in the end, seed by seed.

    Args:
        runs: one row a variant, seed and epoch.
        column: accuracy (percent) or a size.
        data: the sets that count; None: all.
        epoch: after this epoch (from 1) instead of in the end.

    Raises:
        BadInput: a variant that the runs do not have.
    """
    runs = _of(runs)
    refuse_absent(runs, "variant", variant)
    runs = _of(runs, data)
    runs = runs if epoch is None else runs[runs.epoch == epoch]
    return by_cell(last(chosen(runs, _kind(runs, variant, stage)), INDEX).set_index(INDEX)[column])


def difference(
    runs: pd.DataFrame,
    variant: str,
    against: str,
    stage: int | None = None,
    against_stage: int | None = None,
    column: str = "accuracy",
    data: Sequence[str] | None = None,
) -> Values:
    """Subtract from a variant's value that of another, or of itself at another stage, seed by seed.

    Args: as `value`.
    """
    both = _side_by_side(runs, {"one": (variant, stage), "other": (against, against_stage)}, column, data)
    return by_cell(both.one - both.other)


def share(
    runs: pd.DataFrame,
    variant: str,
    against: str,
    column: str = "parameters",
    stage: int | None = None,
    against_stage: int | None = None,
    data: Sequence[str] | None = None,
) -> dict[str, Interval]:
    """Compute a variant's mean value over seeds in percent of another's, or of its own at another stage: 100 is as
    large.

    The mean of the seeds' own percentages would be above 100 even for two networks of one variant, because these
    differ, too. The interval is that of `ratio_of_means`.

    Args: as `value`.
    """
    both = _side_by_side(runs, {"one": (variant, stage), "other": (against, against_stage)}, column, data)
    return {
        "/".join(cell): ratio_of_means(mine.one, mine.other).through(lambda ratio: 100 * ratio)
        for cell, mine in both.groupby(level=INDEX[:-1])
    }


def moved(runs: pd.DataFrame, variant: str, stage: int, data: Sequence[str] | None = None) -> Values:
    """Measure how many percent of its weights a variant gains or loses after a stage, without sign, seed by seed.

    Args: as `value`.
    """
    both = _side_by_side(runs, {"end": (variant, None), "then": (variant, stage)}, "parameters", data)
    return by_cell(100 * (both.end / both.then - 1).abs())


def factor(
    runs: pd.DataFrame,
    variants: Sequence[str],
    column: str = "parameters",
    stage: int | None = None,
    data: Sequence[str] | None = None,
) -> Values:
    """Measure how far variants are apart: the largest value over the smallest, seed by seed; 1 is the same.

    Args: as `value`.
    """
    both = _side_by_side(runs, {name: (name, stage) for name in variants}, column, data)
    return by_cell(both.max(axis=1) / both.min(axis=1))


def apart(
    runs: pd.DataFrame,
    variants: tuple[str, str] | list[str],
    column: str = "parameters",
    stage: int | None = None,
    data: Sequence[str] | None = None,
) -> dict[str, Interval]:
    """Measure how far the means of two variants over seeds are apart: the larger mean over the smaller; 1 is the same.

    Means are compared for the reason that `share` has; the factor of each seed is `factor`. The interval is that of
    `ratio_of_means` and may begin below 1.

    Args: as `value`.
    """
    both = _side_by_side(runs, {name: (name, stage) for name in variants}, column, data)
    found = {}
    for cell, mine in both.groupby(level=INDEX[:-1]):
        smaller, larger = mine.mean().sort_values().index
        found["/".join(cell)] = ratio_of_means(mine[larger], mine[smaller])
    return found


def over_taus(
    runs: pd.DataFrame, variant: str, taus: Sequence[float], stage: int, column: str = "accuracy", ratio: bool = False
) -> Values:
    """Measure how far the same networks are apart at several tau, seed by seed: the largest value minus the smallest.

    Args:
        ratio: the largest value over the smallest instead; 1 is the same.

    Raises:
        BadInput: a tau that the runs do not have.
    """
    both = _side_by_side(runs, {tau: (variant, stage, tau) for tau in taus}, column)
    smallest, largest = both.min(axis=1), both.max(axis=1)
    return by_cell(largest / smallest if ratio else largest - smallest)


def undecided(runs: pd.DataFrame, variant: str, taus: tuple[float, float], stage: int) -> Values:
    """Count the gates that are neither open nor closed for certain, in percent of all, seed by seed.

    They are those whose g lies between two thresholds: open at the lower, closed at the higher. All are open at the
    end of stage 1.

    Raises:
        BadInput: thresholds that do not rise, or an expansion, which opens more gates than stage 1 has.
    """
    low, high = taus
    if not low < high:
        raise BadInput(f"taus={[low, high]}: expected the lower one first, then a higher one")
    sides = {"low": (variant, stage, low), "high": (variant, stage, high), "gates": (variant, 1, low)}
    both = _side_by_side(runs, sides, "architecture")
    counts = _gates(both).map(sum)
    if (counts.low > counts.gates).any():
        more = f"{variant} has more gates open in stage {stage} than at the end of stage 1"
        raise BadInput(f"{more}: those are all that there are only where none is added, as in a sparsification")
    return by_cell(100 * (counts.low - counts.high) / counts.gates)


def at_share(runs: pd.DataFrame, variant: str, share: float) -> Values:
    """Subtract the accuracy at the end of stage 1 from that where stage 2 first leaves no more than a share of the
    weights, seed by seed. A seed that never has so few is left out.

    Args:
        share: of the weights at the end of stage 1, in percent. Rows are needed of the epoch in which it is passed: see
            `shares` in `lib.papers.npn.experiments.directions`.
    """
    runs = _of(runs)
    before = last(chosen(runs, _kind(runs, variant, 1)), INDEX).set_index(INDEX)[["accuracy", "parameters"]]
    rows = chosen(runs, _kind(runs, variant, 2)).join(before.add_suffix("_before"), INDEX)
    rows = rows.sort_values("epoch", kind="stable")
    few = rows[100 * rows.parameters <= share * rows.parameters_before]
    first = few.drop_duplicates(INDEX).set_index(INDEX)
    return by_cell(first.accuracy - first.accuracy_before)


def has_to_spare(runs: pd.DataFrame, variant: str, against: str) -> dict[str, Interval]:
    """Count in how many percent of the seeds all layers of a network have a closed gate when stage 2 ends.

    A layer that is as large as that of `against`, the whole network, has none.
    """
    both = _side_by_side(runs, {"one": (variant, 2), "whole": (against, None)}, "architecture").astype(str)
    layers = _gates(both)
    spare = [all(map(lt, *pair)) for pair in zip(layers.one, layers.whole, strict=True)]
    return {cell: _share(list(of.values())) for cell, of in by_cell(pd.Series(spare, both.index)).items()}


def uneven(runs: pd.DataFrame, variant: str) -> Values:
    """Count by how many gates the layers' growth in an expansion's stage 2 differs, largest less smallest, by seed.

    One unit is woken in each layer at a time, so layers that grew by different numbers have closed some gate again.
    """
    both = _gates(_side_by_side(runs, {"end": (variant, 2), "start": (variant, 1)}, "architecture").astype(str))
    pairs = zip(both.end, both.start, strict=True)
    gains = [[end - start for end, start in zip(*pair, strict=True)] for pair in pairs]
    return by_cell(pd.Series([float(max(gain) - min(gain)) for gain in gains], both.index))


def ends_by_itself(
    runs: pd.DataFrame, variant: str, caps: Sequence[int], stage: int | None = None
) -> dict[str, Interval]:
    """Count in how many percent of the seeds a training, or one of its stages, ends and is not cut off.

    Args:
        caps: the epochs at which the schedules of the scales cut it off.
    """
    ends = value(runs, variant, "epoch", stage)
    return {cell: _share([epoch not in caps for epoch in of.values()]) for cell, of in ends.items()}


def _share(said: Sequence[bool]) -> Interval:
    """The percentage of seeds that say yes, with Clopper and Pearson's interval, which has a width at 0 and 100 too."""
    share, of = sum(map(bool, said)) / len(said), len(said)

    def ends(seeds: int = of, sure: float = 0.95) -> tuple[float, float]:
        yes, no = share * seeds, (1 - share) * seeds
        low = beta.ppf(0.5 - sure / 2, yes, no + 1) if yes else 0.0
        return 100 * float(low), 100 * float(beta.ppf(0.5 + sure / 2, yes + 1, no) if no else 1.0)

    return Interval(100 * share, *ends(), of, at=ends, sure=lambda sure: ends(sure=sure))


def weights(network: str, architecture: str) -> int:
    """Count the weights of an architecture in the paper's notation, counted as its tables count: products of open
    gates.

    Args:
        network: a key of NETWORKS.
        architecture: open gates of each layer, such as "7-9-109-30"; of the moons "64-50".

    Raises:
        BadInput: an unknown network, or an architecture that is not one whole number for each of its layers with gates.
    """
    layers, counts = _layers(network), _counts(architecture)
    if len(counts) != len(layers):
        raise BadInput(f"{architecture} has {len(counts)} numbers, {network} has {len(layers)} layers with gates")
    total = 0
    for number, layer in enumerate(layers):
        if isinstance(layer, nn.Conv2d):  # its gates are on its outputs
            inputs, outputs = counts[number - 1] if number else layer.in_channels, counts[number]
        else:  # on its inputs
            inputs, outputs = counts[number], [*counts, layer.out_features][number + 1]
        total += inputs * outputs * layer.weight[0, 0].numel()
    return total


def worst_gap(network: str, printed: Mapping[str, float]) -> float:
    """Find the largest difference between weights as printed, {architecture: number}, and as counted, in percent."""
    counted = {name: weights(network, name) for name in printed}
    return max(100 * abs(number / counted[name] - 1) for name, number in printed.items())


def widths_apart(pairs: Mapping[str, str]) -> float:
    """Find the widths of a layer that are farthest apart in two architectures, {one: other}: larger over smaller."""
    layers = [both for pair in pairs.items() for both in zip(*map(_counts, pair), strict=True)]
    return max(max(both) / min(both) for both in layers)


def lost_to_noise(noises: tuple[float, float], step: float = 0.02) -> float:
    """Compute how many points less the best of all classifiers gets right where the moons have the second noise.

    The best one says of each point which of the two half circles, smeared by the noise, is denser there; what it gets
    right is the integral of the larger density, on a grid with this step.
    """
    turn = np.linspace(0, np.pi, 500)
    arcs = (np.cos(turn), np.sin(turn)), (1 - np.cos(turn), 0.5 - np.sin(turn))  # as `sklearn.datasets.make_moons`
    grid = np.arange(-3, 4, step)

    def best(noise: float) -> float:
        along = [[norm.pdf(grid[:, None], axis, noise) for axis in arc] for arc in arcs]  # [grid, turn] of x and of y
        densities = [x @ y.T / len(turn) for x, y in along]  # of a point at each x and y
        return float(np.maximum(*densities).sum() * step**2 / 2)

    return 100 * (best(noises[0]) - best(noises[1]))


def removed(network: str, before: str, left: str) -> float:
    """Count the weights that one architecture has less than another, in percent of the other's."""
    return 100 * (1 - weights(network, left) / weights(network, before))


def _gates(architectures: pd.DataFrame) -> pd.DataFrame:
    """The open gates of each layer, from the paper's notation, which gives an MLP's inputs and classes as well."""

    def gated(network: str, architecture: str) -> list[int]:
        counts = _counts(architecture)
        return counts[1:-1] if network in NETWORKS and len(counts) > len(_layers(network)) else counts

    networks = architectures.index.get_level_values("network")
    return architectures.apply(lambda column: pd.Series(list(map(gated, networks, column)), column.index))


def _counts(architecture: str) -> list[int]:
    """The numbers of the paper's notation."""
    counts = architecture.split("-")
    if not all(count.isdecimal() for count in counts):
        raise BadInput(f"architecture {architecture!r}: expected whole numbers with - between, such as 7-9-109-30")
    return [int(count) for count in counts]


@cache
def _layers(network: str) -> list[nn.Linear | nn.Conv2d]:
    """The layers with gates."""
    if network not in NETWORKS:
        raise BadInput(f"network {network!r}: known are {', '.join(NETWORKS)}")
    with torch.random.fork_rng(devices=[]):
        layers = gates.trace(NETWORKS[network]())
    return [layers[name].module for name in gates.gateable(layers)]


def _of(runs: pd.DataFrame, data: Sequence[str] | None = None) -> pd.DataFrame:
    """Select the runs on some data, and call a direction a variant where there is no other."""
    runs = runs if "variant" in runs else runs.rename(columns={"direction": "variant"})
    return runs if data is None else runs[runs.data.isin(data)]


def _kind(runs: pd.DataFrame, variant: str, stage: int | None = None, tau: float = TAU) -> dict:
    """Say which rows are a variant's, at one of its stages; of runs at several tau those at the paper's or this one."""
    kind: dict = {"variant": variant} | ({} if stage is None else {"stage": stage})
    return kind | ({"tau": tau} if "tau" in runs else {})


def _side_by_side(
    runs: pd.DataFrame, sides: Mapping[Hashable, tuple], column: str, data: Sequence[str] | None = None
) -> pd.DataFrame:
    """Put one column of several sides beside each other, for the networks and seeds that have them all.

    Args:
        sides: {name: (variant, stage)}, or {name: (variant, stage, tau)}.
    """
    runs = _of(runs)
    refuse_absent(runs, "variant", *(variant for variant, *_ in sides.values()))
    kinds = {name: _kind(runs, *side) for name, side in sides.items()}
    if "tau" in runs:
        for kind in kinds.values():
            refuse_absent(runs[runs.variant == kind["variant"]], "tau", kind["tau"])
    return side_by_side(_of(runs, data), INDEX, kinds, column)
