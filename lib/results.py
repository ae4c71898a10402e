"""Reading and writing what the pipeline passes on: runs, claims, tables, figures. Small files, fixed formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from lib import paths
from lib.errors import BadInput
from lib.whole import whole

if TYPE_CHECKING:  # sweeps draw nothing, and matplotlib takes half a second to load
    from matplotlib.figure import Figure

DIGITS = "%.6g"  # one number format everywhere, so that the same numbers are the same bytes


def read_runs(experiment: str, scale: str, results: Path = paths.RESULTS) -> pd.DataFrame:
    """The rows of one experiment at one scale."""
    path = results / scale / "runs" / f"{experiment}.csv"
    if not path.exists():
        raise BadInput(f"{path.name} has no runs at scale {scale}; python -m lib.sweep {experiment} --scale {scale}")
    return pd.read_csv(path)


def read_claims(scale: str, results: Path = paths.RESULTS) -> pd.DataFrame:
    """The verdicts at one scale, as `lib.claims` computed them."""
    path = results / scale / "claims.csv"
    if not path.exists():
        raise BadInput(f"there are no claims at scale {scale}; python -m lib.claims --scale {scale}")
    return pd.read_csv(path, keep_default_na=False)


def read_scorecard(results: Path = paths.RESULTS) -> pd.DataFrame:
    """For each claim the verdict of the largest scale that has one; empty cells are empty strings."""
    path = results / "claims.csv"
    if not path.exists():
        raise BadInput("results/claims.csv is absent; python -m lib.claims --largest")
    return pd.read_csv(path, keep_default_na=False)


def read_bench(name: str, results: Path = paths.RESULTS) -> pd.DataFrame:
    """A benchmark's rows, with the device and the versions they were measured on."""
    path = results / "bench" / f"{name}.csv"
    if not path.exists():
        raise BadInput(f"results/bench/{path.name} is absent; python -m lib.bench {name}")
    return pd.read_csv(path)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table whole or not at all."""
    table = table.copy()
    for name in table.columns[table.dtypes == "object"]:  # to_csv formats only columns that are all numbers
        table[name] = [DIGITS % x if isinstance(x, float) and x == x else x for x in table[name]]
    write_text(table.to_csv(index=False, float_format=DIGITS, lineterminator="\n"), path)


def write_text(text: str, path: Path) -> None:
    """Write a text file whole or not at all: a reader sees the old content or the new one."""
    with whole(path) as file:
        file.write(text.encode())


def save_table(table: pd.DataFrame, name: str, out: str | None) -> None:
    """Keep a notebook's table as OUT/tables/NAME.csv; does nothing where there is no OUT (a notebook run by hand)."""
    if out is not None:
        write_csv(table, Path(out) / "tables" / f"{name}.csv")


def save_figure(figure: Figure, name: str, out: str | None) -> None:
    """Keep a notebook's figure as OUT/figures/NAME.svg; does nothing where there is no OUT."""
    if out is not None:
        with whole(Path(out) / "figures" / f"{name}.svg") as file:
            figure.savefig(file, format="svg", metadata={"Date": None})
