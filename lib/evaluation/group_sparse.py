"""Measures of group-sparse training for claims (paper 5): from a sweep's rows to one number a seed.

Which runs are meant is said by their columns: chosen = {"method": "gst", "block": [2, 4]}, a value or several a column.
What they are compared with has the same columns but those that `against` names.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.errors import BadInput
from lib.evaluation.cells import Values

KEYS = ["env", "method", "block", "shift", "conversion", "start", "reward", "seed"]  # what a run is
SINGLE = {"block": 1, "shift": 0.0, "conversion": "none"}
DENSE = {"method": "dense", **SINGLE, "start": 0, "reward": "none"}
OFFLINE_KEYS = ["data", "env", "block", "shift", "choice", "kept", "seed"]  # so learns from fixed data
OFFLINE_DENSE = {"block": 1, "shift": 0.0, "choice": "none", "kept": 1.0}
METHODS = {"dense": "dense", "gradual": "gradual pruning", "rwp": "reward-aware pruning", "gst": "GST"}
END = 0.2  # share of a training whose evaluations are averaged: a single one is noisy, the best would flatter


def ends(
    runs: pd.DataFrame, steps: int | None = None, part: tuple[float, float] | list[float] = (1 - END, 1.0)
) -> pd.DataFrame:
    """One row a run: its last row, the return averaged over the evaluations of the last fifth of its steps.

    Args:
        runs: one row an evaluation, columns KEYS, step, return and others.
        steps: only runs of at least so many; None: all.
        part: of the training, over which returns are averaged.
    """
    length = runs.groupby(KEYS).step.transform("max")
    within = (runs.step > part[0] * length) & (runs.step <= part[1] * length)
    late = runs[within].groupby(KEYS)["return"].mean()
    last = runs[(runs.step == length) & (length >= (steps or 0))]
    return last.assign(**{"return": late.reindex(pd.MultiIndex.from_frame(last[KEYS])).to_numpy()})


def lead(
    runs: pd.DataFrame,
    chosen: Mapping[str, object],
    against: Mapping[str, object] = DENSE,
    steps: int | None = None,
    part: tuple[float, float] | list[float] = (1 - END, 1.0),
) -> Values:
    """How much more the chosen runs earn than others of the same seed, in percent of the dense return in the end.

    Args:
        part: of the training, see `ends`.

    Raises:
        BadInput: a dense agent that earns nothing.
    """
    end = ends(runs, steps, part)
    rows = _beside(_chosen(end, chosen), end, against, "return", "other")
    rows = _beside(rows, ends(runs, steps), DENSE, "return", "dense")
    if (rows.dense <= 0).any():
        raise BadInput(f"a dense agent earns {rows.dense.min():g}, of which there is no percentage")
    return _cells(rows, 100 * (rows["return"] - rows.other) / rows.dense)


def recovery(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """How much nearer to the dense agent a run is in the end than after its shift, in percent of the dense return.

    After the shift: the evaluations of the first fifth of the steps that were left. A run without a shift, or without
    an evaluation there, is left out. A row has the return before its step's pruning and the sparsity after it
    (`lib.training.group_sparse_td3`): a run that shifts on the step of an evaluation was played before the shift there.
    """
    picked = _chosen(runs, chosen)
    picked = picked[picked["shift"] < 1].assign(length=picked.groupby(KEYS).step.transform("max"))
    begin = picked[picked.sparsity >= picked["shift"]].groupby(KEYS).step.min().rename("begin")
    picked = picked.merge(begin, on=KEYS)
    after = picked[picked.step.between(picked.begin, picked.begin + END * (picked.length - picked.begin))]
    dense = _chosen(runs, DENSE).set_index(["env", "seed", "step"])["return"]
    other = dense.reindex(pd.MultiIndex.from_frame(after[["env", "seed", "step"]])).to_numpy()
    gap = (after["return"] - other).groupby([after[key] for key in KEYS]).mean().rename("gap").reset_index()
    end = ends(runs, steps)
    rows = _beside(_chosen(end, chosen).merge(gap, on=KEYS), end, DENSE, "return", "dense")
    return _cells(rows, 100 * (rows["return"] - rows.dense - rows.gap) / rows.dense)


def pruned(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """The share of coefficients that is removed in the end, in percent."""
    found = _chosen(ends(runs, steps), chosen)
    return _cells(found, 100 * found.sparsity)


def ratio(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """The compression ratio by equation 3, averaged over training, in percent."""
    found = _chosen(ends(runs, steps), chosen)
    return _cells(found, 100 * found.compression_ratio)


def ratio_lead(
    runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object], steps: int | None = None
) -> Values:
    """How much higher that ratio is than that of others of the same seed, in points."""
    end = ends(runs, steps)
    rows = _beside(_chosen(end, chosen), end, against, "compression_ratio", "other")
    return _cells(rows, 100 * (rows.compression_ratio - rows.other))


def offline_lead(
    runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object] = OFFLINE_DENSE
) -> Values:
    """How many normalised points more the chosen runs earn than others of the same seed, at their last evaluation.

    Args:
        runs: one row an evaluation, columns OFFLINE_KEYS, step and normalised_return.
    """
    end = runs[runs.step == runs.groupby(OFFLINE_KEYS).step.transform("max")]
    rows = _beside(_chosen(end, chosen), end, against, "normalised_return", "other", OFFLINE_KEYS)
    cells: Values = {}
    for row in rows.itertuples():
        cells.setdefault(f"{row.env}, {offline_way(row)}", {})[row.seed] = row.normalised_return - row.other
    return cells


def offline_way(row: object) -> str:
    """What a way of training from fixed data is called: of a row with the columns OFFLINE_KEYS."""
    return grouping(row) if row.choice == "none" else f"{row.choice}, {grouping(row)}, {100 * row.kept:g} % kept"


def grouping(row: object) -> str:
    """How its weights share numbers: of a row with the columns block and shift."""
    if row.block == 1:
        return "single weights"
    return f"B = {row.block}, released at {row.shift:g}" if row.shift < 1 else f"B = {row.block} to the end"


def _chosen(table: pd.DataFrame, wanted: Mapping[str, object]) -> pd.DataFrame:
    unknown = [name for name in wanted if name not in table]
    if unknown:
        raise BadInput(f"runs have no column {unknown[0]!r}; there are: {', '.join(table.columns)}")
    kept = [table[name].isin(value if isinstance(value, list) else [value]) for name, value in wanted.items()]
    return table[np.logical_and.reduce(kept)] if kept else table


def _beside(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    against: Mapping[str, object],
    column: str,
    name: str,
    keys: list[str] = KEYS,
) -> pd.DataFrame:
    """Those of the rows that have a counterpart in the table, with its value in a new column."""
    counterparts = pd.MultiIndex.from_frame(rows[keys].assign(**against))
    values = table.set_index(keys)[column].reindex(counterparts)
    return rows.assign(**{name: values.to_numpy()}).dropna(subset=name)


def _cells(table: pd.DataFrame, values: pd.Series) -> Values:
    cells: Values = {}
    for row, value in zip(table.itertuples(), values, strict=True):
        cells.setdefault(f"{row.env}, {way(row)}", {})[row.seed] = float(value)
    return cells


def way(row: object) -> str:
    """What a run's way of training is called: of a row with the columns KEYS."""
    text = METHODS[row.method]
    if row.block > 1:
        text += f", B = {row.block}, released at {row.shift:g}"
    if row.conversion != "none":
        text += f", {row.conversion.replace('_', ' ')}"
    if row.start:
        text += f", from step {row.start}"
    return text + (", by evaluation" if row.reward == "evaluation" else "")
