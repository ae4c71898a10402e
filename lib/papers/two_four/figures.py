"""Make the tables of paper 2's notebooks: where the variants of its workflow end, and how far they are apart."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.companion import plots
from lib.companion.pairs import last
from lib.papers.two_four.measures import INDEX, difference


def variants(runs: pd.DataFrame, scale: str) -> pd.DataFrame:
    """Tabulate where each variant of each network ends: one row a network and variant, in the figures' order."""
    rows = []
    for (data, network), chosen in last(runs, ["variant", *INDEX]).groupby(["data", "network"], sort=False):
        for variant in (name for name in plots.VARIANTS if name in set(chosen.variant)):
            mine = chosen[chosen.variant == variant]
            rows.append(
                {
                    "network": plots.task(data, network),
                    "variant": plots.label(variant),
                    "scale": scale,
                    "seeds": len(mine),
                    "epochs": mine.epoch.max(),
                    "accuracy, %": plots.percent(mine.accuracy.tolist()),
                    "sparsity, %": round(100 * mine.sparsity.mean(), 2),
                    "MFLOPs": round(mine.flops.mean() / 1e6, 2),
                }
            )
    return pd.DataFrame(rows)


def side_by_side(runs: pd.DataFrame, chosen: Sequence[str], scale: str) -> pd.DataFrame:
    """Put the accuracy of some variants in columns, in percent with intervals: one row a network, as the papers print
    it.
    """
    rows = []
    for (data, network), mine in last(runs, ["variant", *INDEX]).groupby(["data", "network"], sort=False):
        of_variant = {variant: mine.accuracy[mine.variant == variant].tolist() for variant in chosen}
        counts = {len(values) for values in of_variant.values() if values}
        least, most = min(counts, default=0), max(counts, default=0)
        seeds = least if least == most else f"{least} to {most}"
        row = {"network": plots.task(data, network), "scale": scale, "seeds": seeds}
        row |= {"epochs a session": mine.epoch[mine.variant == "dense"].max()}
        row |= {plots.label(v): plots.percent(values) if values else "" for v, values in of_variant.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def differences(runs: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Subtract another variant's accuracy from one variant's, paired by seed, in points: one row a pair and network."""
    rows = [
        {
            "difference in points": f"{plots.label(variant)} - {plots.label(against)}",
            "network": plots.task(*cell.split("/")),
            "mean [95 % interval]": plots.with_interval(list(points.values())),
        }
        for variant, against in pairs
        for cell, points in difference(runs, variant, against).items()
    ]
    return pd.DataFrame(rows)
