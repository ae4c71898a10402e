"""Measures of accuracy for claims and tables: from a sweep's rows to one number a seed, in percentage points."""

from __future__ import annotations

import pandas as pd

from lib.errors import BadInput


def last(runs: pd.DataFrame) -> pd.DataFrame:
    """The last epoch of each variant and seed: what is reported, never the best."""
    keys = ["data", "network", "variant", "seed"]
    return runs.loc[runs.groupby(keys).epoch.idxmax()].reset_index(drop=True)


def difference(runs: pd.DataFrame, variant: str, against: str) -> dict[str, dict[int, float]]:
    """Accuracy of a variant minus that of another, seed by seed: {"data/network": {seed: points}}."""
    end = last(runs).pivot(index=["data", "network", "seed"], columns="variant", values="accuracy")
    for name in (variant, against):
        if name not in end:
            raise BadInput(f"the runs have no variant {name!r}; they have: {', '.join(end.columns)}")
    points = (end[variant] - end[against]).dropna()
    return {
        f"{data}/{network}": dict(zip(cell.index.get_level_values("seed"), cell, strict=True))
        for (data, network), cell in points.groupby(level=["data", "network"])
    }
