"""Measures of networks that shrink and grow (paper 4): from a sweep's rows, and from architectures as printed.

A variant is a direction of npn_moons and npn_images, and a variant of npn_ablations; among rows at several tau those at
the paper's count. Without a stage its last epoch counts, with one the last epoch of that stage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial

import pandas as pd
import torch
from torch import nn

from lib.errors import BadInput
from lib.evaluation import accuracy
from lib.evaluation.cells import Values, cells
from lib.models.alexnet import alexnet
from lib.models.lenet import lenet5
from lib.models.plain import moons_mlp
from lib.pruners import plasticity

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
    """What a column holds in the end, seed by seed.

    Args:
        runs: one row a variant, seed and epoch.
        column: accuracy (percent) or a size.
        data: the sets that count; None: all.
        epoch: after this epoch (from 1) instead of in the end.

    Raises:
        BadInput: a variant that the runs do not have.
    """
    end = _ends(runs if epoch is None else runs[runs.epoch == epoch], variant, stage, data)
    return _cells(end, end[column])


def difference(
    runs: pd.DataFrame,
    variant: str,
    against: str,
    stage: int | None = None,
    against_stage: int | None = None,
    column: str = "accuracy",
    data: Sequence[str] | None = None,
) -> Values:
    """A variant's value minus that of another, or of itself at another stage, seed by seed.

    Args: as `value`.
    """
    both = _side_by_side(runs, {"one": (variant, stage), "other": (against, against_stage)}, column, data)
    return _cells(both, both.one - both.other)


def share(
    runs: pd.DataFrame,
    variant: str,
    against: str,
    column: str = "parameters",
    stage: int | None = None,
    data: Sequence[str] | None = None,
) -> Values:
    """A variant's value in percent of another's, seed by seed: 100 is as large.

    Args: as `value`.
    """
    both = _side_by_side(runs, {"one": (variant, stage), "other": (against, stage)}, column, data)
    return _cells(both, 100 * both.one / both.other)


def factor(
    runs: pd.DataFrame,
    variants: Sequence[str],
    column: str = "parameters",
    stage: int | None = None,
    data: Sequence[str] | None = None,
) -> Values:
    """How far variants are apart: the largest value over the smallest, seed by seed; 1 is the same.

    Args: as `value`.
    """
    both = _side_by_side(runs, {name: (name, stage) for name in variants}, column, data)
    return _cells(both, both[list(variants)].max(axis=1) / both[list(variants)].min(axis=1))


def over_taus(
    runs: pd.DataFrame, variant: str, taus: Sequence[float], stage: int, column: str = "accuracy", ratio: bool = False
) -> Values:
    """How far the same networks are apart at several tau, seed by seed: the largest value minus the smallest.

    Args:
        ratio: the largest value over the smallest instead; 1 is the same.

    Raises:
        BadInput: a tau that the runs do not have.
    """
    both = _side_by_side(runs, {tau: (variant, stage, tau) for tau in taus}, column)
    values = both[list(taus)]
    smallest, largest = values.min(axis=1), values.max(axis=1)
    return _cells(both, largest / smallest if ratio else largest - smallest)


def undecided(runs: pd.DataFrame, variant: str, taus: tuple[float, float], stage: int) -> Values:
    """Gates that are neither open nor closed for certain, in percent of all, seed by seed.

    They are those whose g lies between two thresholds: open at the lower, closed at the higher. All are open at the
    end of stage 1.
    """
    low, high = taus
    sides = {"low": (variant, stage, low), "high": (variant, stage, high), "whole": (variant, 1, low)}
    both = _side_by_side(runs, sides, "architecture")
    gates = both[list(sides)].map(_gates)
    return _cells(both, 100 * (gates.low - gates.high) / gates.whole)


def weights(network: str, architecture: str) -> int:
    """Weights of an architecture in the paper's notation, counted as its tables count: products of open gates.

    Args:
        network: a key of NETWORKS.
        architecture: open gates of each layer, such as "7-9-109-30"; of the moons "64-50".
    """
    layers, counts = _layers(network), [int(count) for count in architecture.split("-")]
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
    """The largest difference between weights as printed, {architecture: number}, and as counted, in percent."""
    counted = {name: weights(network, name) for name in printed}
    return max(100 * abs(number / counted[name] - 1) for name, number in printed.items())


def removed(network: str, whole: str, left: str) -> float:
    """Weights that one architecture has less than another, in percent of the other's."""
    return 100 * (1 - weights(network, left) / weights(network, whole))


def _gates(architecture: str) -> int:
    """How many gates are open, from the paper's notation."""
    return sum(map(int, architecture.split("-")))


@cache
def _layers(network: str) -> list[nn.Linear | nn.Conv2d]:
    """The layers with gates."""
    if network not in NETWORKS:
        raise BadInput(f"network {network!r}: known are {', '.join(NETWORKS)}")
    with torch.random.fork_rng(devices=[]):
        layers = plasticity.trace(NETWORKS[network]())
    return [layers[name].module for name in plasticity.gateable(layers)]


def _ends(
    runs: pd.DataFrame, variant: str, stage: int | None, data: Sequence[str] | None, tau: float = TAU
) -> pd.DataFrame:
    """The last row of each network and seed of a variant."""
    if "variant" not in runs:
        runs = runs.rename(columns={"direction": "variant"})
    if variant not in set(runs.variant):
        raise BadInput(f"the runs have no variant {variant!r}; they have: {', '.join(sorted(set(runs.variant)))}")
    chosen = runs[runs.variant == variant]
    if "tau" in chosen:
        chosen = chosen[chosen.tau == tau]
        if chosen.empty:
            raise BadInput(f"the runs have no tau {tau} of variant {variant!r}")
    if stage is not None:
        chosen = chosen[chosen.stage == stage]
    return accuracy.last(chosen if data is None else chosen[chosen.data.isin(data)])


def _side_by_side(
    runs: pd.DataFrame, sides: Mapping[Hashable, tuple], column: str, data: Sequence[str] | None = None
) -> pd.DataFrame:
    """One column of several sides, for the networks and seeds that have them all.

    Args:
        sides: {name: (variant, stage)}, or {name: (variant, stage, tau)}.
    """
    index = ["data", "network", "seed"]
    columns = {
        name: _ends(runs, variant, stage, data, *tau).set_index(index)[column]
        for name, (variant, stage, *tau) in sides.items()
    }
    return pd.concat(columns, axis=1).dropna().reset_index()


def _cells(rows: pd.DataFrame, values: pd.Series) -> Values:
    return cells(pd.Series(values.to_numpy(), pd.MultiIndex.from_frame(rows[["data", "network", "seed"]])))
