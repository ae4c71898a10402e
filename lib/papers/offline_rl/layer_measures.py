"""Measure what paper 1's scores leave of the layers of a network before any training: rows of `offline_rl_layers`."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pandas.core.groupby import SeriesGroupBy

from lib.companion.cells import Values, by_cell
from lib.companion.pairs import chosen, refuse_wrong

INDEX = ["data", "env", "seed"]  # what a pruned agent shares with its rivals


def lead_of_last(runs: pd.DataFrame, pruner: str, sparsity: float, variant: str = "normalised") -> Values:
    """Measure how much more of a network's last layer is kept than of its fullest other (paper 1, figure 3), in points.

    Args:
        runs: columns data, env, variant, pruner, sparsity, seed, network, layer (from 1), kept (percent).
        variant: whether observations are "normalised" before they are scored, or "raw".

    Returns:
        {"data/env/network": {seed: points}}.
    """
    shares = _kept(runs, pruner, sparsity, variant)
    return by_cell(shares.agg(lambda layers: layers.iloc[-1] - layers.iloc[:-1].max()))


def spread(runs: pd.DataFrame, pruner: str, sparsity: float, variant: str = "normalised") -> Values:
    """Measure how much more a network's fullest layer keeps than its emptiest, in points; arguments as in
    `lead_of_last`.
    """
    shares = _kept(runs, pruner, sparsity, variant)
    return by_cell(shares.max() - shares.min())


def last_kept_more(
    runs: pd.DataFrame, pruner: str, against: str, sparsity: float, variant: str = "normalised"
) -> Values:
    """Measure how much more of each network's last layer one pruner keeps than another, as `lead_of_last`; {} without
    both.
    """
    one, other = (_kept(runs, name, sparsity, variant).last() for name in (pruner, against))
    return by_cell((one - other).dropna())


def emptiest_kept_more(
    runs: pd.DataFrame, pruner: str, against: str, sparsity: float, variant: str = "normalised"
) -> Values:
    """Measure how much more one pruner keeps of the layer of which it keeps least than another of its own: as
    `last_kept_more`.
    """
    one, other = (_kept(runs, name, sparsity, variant).min() for name in (pruner, against))
    return by_cell((one - other).dropna())


def flow(
    runs: pd.DataFrame, pruner: str, sparsity: float, against: str | None = None, variant: str = "normalised"
) -> Values:
    """Measure by which factor pruning changes a network's squared gradient norm, as its decimal logarithm.

    0 leaves it as it was, -1 leaves a tenth, 1 makes it ten times as large: norms differ by orders of magnitude, so the
    mean over seeds is one of logarithms. Keys as in `lead_of_last`.

    Args:
        runs: as there, with the column flow (percent of the network's norm before, which its layers share).
        against: divide by what another pruner leaves; {} without both.
    """
    names = [name for name in (pruner, against) if name is not None]
    one, *other = (np.log10(_kept(runs, name, sparsity, variant, "flow").sum() / 100) for name in names)
    return by_cell((one - other[0]).dropna() if other else one)


def same_pattern(runs: pd.DataFrame, pruner: str, against: str, sparsity: float, variant: str = "normalised") -> Values:
    """Measure how alike two pruners order all layers of an agent by what they keep of them: {"data/env": {seed:
    correlation}}.

    Spearman's rank correlation over the layers of all networks, from -1 (the other way round) to 1 (the same order). It
    is {} where one of the two is missing. Arguments as in `lead_of_last`.
    """
    both = chosen(runs, {"sparsity": sparsity, "variant": variant, "pruner": [pruner, against]})
    shares = both.pivot(index=[*INDEX, "network", "layer"], columns="pruner", values="kept").dropna()
    if not {pruner, against} <= set(shares):
        return {}
    return by_cell(shares.groupby(level=INDEX).apply(lambda one: one[pruner].corr(one[against], method="spearman")))


def _kept(runs: pd.DataFrame, pruner: str, sparsity: float, variant: str, column: str = "kept") -> SeriesGroupBy:
    """What a pruner keeps of the layers, in their order: a group a network and seed."""
    runs = chosen(runs, {"sparsity": sparsity, "variant": variant, "pruner": pruner})
    refuse_wrong(runs.set_index([*INDEX, "network", "layer"])[column])
    return runs.sort_values("layer").groupby(["data", "env", "network", "seed"])[column]
