"""Hold what a measure gives for a claim: for each cell, such as a network on a data set, one number a seed."""

from __future__ import annotations

import pandas as pd

from lib.base import BadInput

Values = dict[str, dict[int, float]]  # {"data/network": {seed: value}}


def by_cell(values: pd.Series) -> Values:
    """Sort a series into cells: its index ends with the seed, levels before it, joined by slashes, name the cell.

    Raises:
        BadInput: a cell has a seed twice, because the index does not tell two numbers apart.
    """
    found: Values = {}
    for (*cell, seed), value in values.sort_index().items():
        name = "/".join(map(str, cell))
        if int(seed) in (seeds := found.setdefault(name, {})):
            raise BadInput(f"{name} has two numbers for seed {seed}, expected one: say which by more of the columns")
        seeds[int(seed)] = float(value)
    return found


def by_seed(values: pd.Series) -> dict[int, float]:
    """Turn a series whose index is the seed into {seed: value}.

    Raises:
        BadInput: a seed stands there twice.
    """
    if (twice := values.index.duplicated()).any():
        raise BadInput(f"there are two numbers for seed {values.index[twice][0]}, expected one")
    return {int(seed): float(value) for seed, value in values.items()}
