"""Hold what a measure gives for a claim: for each cell, such as a network on a data set, one number a seed."""

from __future__ import annotations

import pandas as pd

Values = dict[str, dict[int, float]]  # {"data/network": {seed: value}}


def by_cell(values: pd.Series) -> Values:
    """Sort a series into cells: its index ends with the seed, levels before it, joined by slashes, name the cell."""
    found: Values = {}
    for (*cell, seed), value in values.sort_index().items():
        found.setdefault("/".join(map(str, cell)), {})[int(seed)] = float(value)
    return found


def by_seed(values: pd.Series) -> dict[int, float]:
    """Turn a series whose index is the seed into {seed: value}."""
    return {int(seed): float(value) for seed, value in values.items()}
