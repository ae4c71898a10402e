"""Measures of accuracy for claims and tables: from a sweep's rows to one number a seed, in percentage points."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib.errors import BadInput
from lib.evaluation.cells import Values, cells


def last(runs: pd.DataFrame) -> pd.DataFrame:
    """The last epoch of each variant and seed: what is reported, never the best."""
    keys = ["data", "network", "variant", "seed"]
    return runs.loc[runs.groupby(keys).epoch.idxmax()].reset_index(drop=True)


def difference(
    runs: pd.DataFrame,
    variant: str,
    against: str,
    column: str = "accuracy",
    only: Mapping[str, object] | None = None,
) -> Values:
    """A variant's last value minus that of another, seed by seed: {"data/network": {seed: points}}.

    Args:
        column: what is compared, such as accuracy (percent).
        only: {column: value} of the rows that count, such as {"table": 3}; None: all rows.
    """
    for name, value in (only or {}).items():
        if name not in runs:
            raise BadInput(f"the runs have no column {name!r}; they have: {', '.join(runs.columns)}")
        runs = runs[runs[name] == value]
    if runs.empty:
        return {}
    end = last(runs).pivot(index=["data", "network", "seed"], columns="variant", values=column)
    for name in (variant, against):
        if name not in end:
            raise BadInput(f"the runs have no variant {name!r}; they have: {', '.join(end.columns)}")
    return cells((end[variant] - end[against]).dropna())
