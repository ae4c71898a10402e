"""Compare two kinds of runs seed by seed: every comparison of a claim stands on this.

A kind says which rows are meant, by their columns: {"variant": "dense"}, or several values of a column in a list.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from lib.base import BadInput
from lib.companion.sweep.grid import CLOCKS

Kind = Mapping[str, object]


class WentWrong(BadInput):
    """A run that is there ended without a number; nobody may take it for one that is missing."""


def chosen(runs: pd.DataFrame, kind: Kind) -> pd.DataFrame:
    """Select the rows of a kind.

    Raises:
        BadInput: a column that the runs do not have.
    """
    for name in kind:
        if name not in runs:
            raise BadInput(f"the runs have no column {name!r}; they have: {', '.join(runs.columns)}")
    fits = [runs[name].isin(value if isinstance(value, list) else [value]) for name, value in kind.items()]
    return runs[np.logical_and.reduce(fits)] if fits else runs


def refuse_absent(runs: pd.DataFrame, column: str, *values: object) -> None:
    """Raise BadInput where no row of the runs has one of these values, and say which there are."""
    known = set(runs[column])
    for value in values:
        if value not in known:
            raise BadInput(f"the runs have no {column} {value!r}; they have: {', '.join(sorted(map(str, known)))}")


def last(runs: pd.DataFrame, index: Sequence[str]) -> pd.DataFrame:
    """Select each run's last row by its epoch or step: what is reported, never the best.

    Args:
        index: the columns that tell one run from another.

    Raises:
        BadInput: two rows stand at the same end of one run, because the index does not tell two runs apart.
    """
    for clock in CLOCKS:
        if clock in runs:
            runs = runs[runs[clock] == runs.groupby(list(index))[clock].transform("max")]
    twice = runs[runs.duplicated(list(index))]
    if len(twice):
        where = ", ".join(f"{name} {twice[name].iloc[0]}" for name in index)
        raise BadInput(f"several runs are meant by {where}: say which by more of their columns")
    return runs


def side_by_side(runs: pd.DataFrame, index: Sequence[str], kinds: Mapping[Hashable, Kind], column: str) -> pd.DataFrame:
    """Put the last values of several kinds of runs into columns, one row for each index that has them all.

    What has no partner is left out. A run whose value is NaN has not gone missing, it went wrong: it is refused.

    Args:
        index: the columns that partners share; the seed comes last.
        kinds: {name of the new column: kind}.
        column: what is compared.

    Raises:
        WentWrong: a value is NaN.
        BadInput: as `chosen` and `last`.
    """
    values = {name: last(chosen(runs, kind), index).set_index(list(index))[column] for name, kind in kinds.items()}
    for one in values.values():
        refuse_wrong(one)
    return pd.concat(values, axis=1).dropna().sort_index()


def refuse_wrong(ends: pd.Series) -> None:
    """Refuse last values of runs, by the columns that name a run, of which one is NaN: a mean would leave it out.

    Raises:
        WentWrong: which run it is.
    """
    if (wrong := ends[ends.isna()]).size:
        place = wrong.index[0] if isinstance(wrong.index[0], tuple) else (wrong.index[0],)
        where = ", ".join(f"{name} {value}" for name, value in zip(wrong.index.names, place, strict=True))
        raise WentWrong(f"the run of {where} ends without a number in {ends.name}")


def mean(runs: pd.DataFrame, index: Sequence[str], column: str) -> pd.Series:
    """Average a column over all rows of each run, by the columns that name a run.

    Raises:
        WentWrong: a value is NaN, which a mean of what is left would hide.
    """
    found = runs.groupby(list(index))[column].mean(skipna=False)
    refuse_wrong(found)
    return found


def paired(runs: pd.DataFrame, index: Sequence[str], one: Kind, other: Kind, column: str) -> pd.DataFrame:
    """Pair two kinds of runs over seeds at their last epoch or step: columns one and other, by the index.

    Swapping the kinds swaps the columns, so a difference changes its sign.
    """
    return side_by_side(runs, index, {"one": one, "other": other}, column)
