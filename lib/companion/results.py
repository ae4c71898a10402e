"""Read and write what the pipeline passes on: runs, claims, tables, figures. Small files, fixed formats."""

from __future__ import annotations

import hashlib
import importlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from lib import base
from lib.base import BadInput
from lib.companion.csv_files import read_csv, write_csv, write_text
from lib.companion.statistics import VERDICTS
from lib.companion.sweep import provenance
from lib.companion.sweep.grid import CLOCKS, index_of, module_of, names, upgraded
from lib.companion.sweep.settings import SCALES

if TYPE_CHECKING:  # sweeps draw nothing, and matplotlib takes half a second to load
    from matplotlib.figure import Figure

CLAIMS = (  # columns of results/SCALE/claims.csv
    "id", "paper", "where", "says", "printed", "measured", "low", "high", "seeds", "cells", "data", "verdict", "needs",
    "why", "note", "runs",
)  # fmt: skip
COUNTED = ("seed", *CLOCKS)  # columns of whole numbers wherever they stand
SCORECARD = (*CLAIMS, "scale", "kind", "criterion")  # of results/claims.csv
CELLS = ("id", "cell", "measured", "low", "high", "seeds", "chance", "verdict", "reason")  # of results/SCALE/cells.csv


def scales_of(experiment: str, results: Path = base.RESULTS) -> list[str]:
    """Name the scales at which an experiment has runs, the largest first."""
    there = [scale for scale in SCALES if (results / scale / "runs" / f"{experiment}.csv").exists()]
    return there[::-1]


def _refuse_scale(scale: str) -> None:
    if scale not in SCALES:
        raise BadInput(f"no scale {scale!r}; there are: {', '.join(SCALES)}")


def read_runs(experiment: str, scale: str, results: Path = base.RESULTS) -> pd.DataFrame:
    """Read the rows of one experiment at one scale, in today's columns.

    A file that was computed before its experiment got a column is brought up to date by the experiment's own
    `upgrade(rows)`, where it has one.

    Raises:
        BadInput: there is no such file, it is no table, is cut off, is not the one that its provenance describes, has a
            word among numbers, lacks one of the experiment's columns, or has a row twice.
    """
    path = results / scale / "runs" / f"{experiment}.csv"
    _refuse_scale(scale)
    if not path.exists():
        module_of(experiment)  # refuses what is no experiment
        raise BadInput(f"{path.name} has no runs at scale {scale}; python -m lib.sweep {experiment} --scale {scale}")
    rows = read_csv(path)
    _refuse_altered(path)
    _refuse_words(rows, path.name)
    if experiment not in names():
        return rows
    module = importlib.import_module(module_of(experiment))
    return upgraded(rows, module, index_of(module, getattr(module, "KEYS", ())), path.name)


def _refuse_altered(path: Path) -> None:
    """Refuse a run file that is not, byte for byte, what was written; a cut in its last number would go unseen."""
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        raise BadInput(f"{path} is cut off in its last line; git checkout or sweep it again")
    beside = path.with_suffix(".provenance.yaml")
    if beside.exists():  # one line of it is wanted, so it is searched and not parsed: every claim's runs come in here
        # An indented one is of the file that was to be replaced when a kill came in between (`provenance.write`).
        told = re.findall(rb"^(?:  )?sha256: '?(\w+)", beside.read_bytes(), re.MULTILINE)
        if not told:
            raise BadInput(
                f"{beside} names no sha256, which tells whether {path.name} is whole; git checkout or sweep it"
            )
        if hashlib.sha256(content).hexdigest().encode() not in told:
            raise BadInput(f"{path} is not the file that {beside.name} describes; git checkout or sweep it again")


def _refuse_words(rows: pd.DataFrame, called: str) -> None:
    """Refuse a word, or a number with a unit, in a column of numbers, which makes texts of them all."""
    for name in rows.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in rows.dtypes]]:
        said = rows[name].dropna()
        numbers = pd.to_numeric(said, errors="coerce").notna()
        meant = pd.to_numeric(said.astype(str).str.rstrip(" %"), errors="coerce").notna()
        if not numbers.all() and (meant.mean() > 0.5 or name in COUNTED):
            place = numbers.idxmin()
            raise BadInput(f"{called}, line {place + 2}: {name} {said[place]!r:.40} is no number")


def read_every_scale(experiment: str, results: Path = base.RESULTS) -> dict[str, pd.DataFrame]:
    """Read the rows of one experiment at every scale there is, {scale: rows}, the largest first.

    Raises:
        BadInput: there is no scale with runs of it, or as `read_runs`.
    """
    found = {scale: read_runs(experiment, scale, results) for scale in scales_of(experiment, results)}
    if not found:
        module_of(experiment)  # refuses what is no experiment
        raise BadInput(f"there are no runs of {experiment}; python -m lib.sweep {experiment}")
    return found


def read_claims(scale: str, results: Path = base.RESULTS) -> pd.DataFrame:
    """Read the verdicts at one scale, as `lib.companion.claims` computed them.

    Raises:
        BadInput: there are none, or they are damaged.
    """
    path = results / scale / "claims.csv"
    _refuse_scale(scale)
    if not path.exists():
        raise BadInput(f"there are no claims at scale {scale}; python -m lib.claims")
    return _verdicts(path, CLAIMS)


def read_scorecard(results: Path = base.RESULTS) -> pd.DataFrame:
    """Read for each claim the verdict of the scale that counts (`scorecard.largest`); empty cells are empty strings.

    Raises:
        BadInput: there are none, or they are damaged.
    """
    path = results / "claims.csv"
    if not path.exists():
        raise BadInput(f"{path} is absent; python -m lib.claims")
    return _verdicts(path, SCORECARD)


def _verdicts(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """A table of claims; one that `lib.claims` did not write so is refused."""
    table = read_csv(path, columns, keep_default_na=False)
    checks = {"stands there twice": table.id.duplicated(), "has no known verdict": ~table.verdict.isin(VERDICTS)}
    for what, wrong in checks.items():
        if wrong.any():
            row = table[wrong].iloc[0]
            raise BadInput(f"{path} is damaged, {row.id} {what} ({row.verdict!r}); python -m lib.claims")
    return table


def read_cells(scorecard: pd.DataFrame, results: Path = base.RESULTS) -> pd.DataFrame:
    """Read the cells (networks, environments, devices) of the claims in a scorecard, each at the scale that counts
    there.

    Raises:
        BadInput: a scale's cells.csv is absent, no table, or lacks one of the columns CELLS.
    """
    found = []
    for scale, claims in scorecard[scorecard.scale != ""].groupby("scale"):
        cells = read_csv(results / scale / "cells.csv", CELLS, keep_default_na=False)
        found.append(cells[cells.id.isin(claims.id)].assign(scale=scale))
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=list(CELLS))


def read_costs(scale: str, results: Path = base.RESULTS) -> pd.DataFrame:
    """Read from the provenance of a scale's run files what they have cost.

    Returns:
        One row an experiment: how many of its configurations are finished, of how many, and the core-hours they took.

    Raises:
        BadInput: a provenance file that cannot be read.
    """
    _refuse_scale(scale)
    rows = []
    for path in sorted((results / scale / "runs").glob("*.provenance.yaml")):
        origin = provenance.read(path)
        told = re.fullmatch(r"(\d+) of (\d+)", str(origin.get("configurations")))
        if told is None or not isinstance(origin.get("experiment"), str):
            raise BadInput(f"{path.name} is damaged: it does not say how many configurations of what are finished")
        finished, every = map(int, told.groups())
        hours = sum(part["seconds"] for part in origin["parts"]) / 3600
        rows.append((origin["experiment"], finished, every, hours))
    return pd.DataFrame(rows, columns=["experiment", "finished", "of", "core_hours"])


def read_bench(name: str, results: Path = base.RESULTS) -> pd.DataFrame:
    """Read a benchmark's rows, with the device and the versions they were measured on.

    Raises:
        BadInput: it was not run yet, or its file is no table.
    """
    path = results / "bench" / f"{name}.csv"
    if not path.exists():
        there = ", ".join(sorted(one.stem for one in path.parent.glob("*.csv")))
        raise BadInput(f"results/bench/{path.name} is absent; python -m lib.bench measures, and there are: {there}")
    return read_csv(path)


def save_table(table: pd.DataFrame, name: str, out: str | None) -> None:
    """Keep a notebook's table as OUT/tables/NAME.csv; does nothing where there is no OUT (a notebook run by hand)."""
    if out is not None:
        write_csv(table, Path(out) / "tables" / f"{name}.csv")


def save_figure(figure: Figure, name: str, out: str | None) -> None:
    """Keep a notebook's figure as OUT/figures/NAME.svg; does nothing where there is no OUT (a notebook run by hand).

    It is drawn once: the notebook shows the same drawing (`drawn`).
    """
    if out is not None:
        figure.drawing = drawn(figure)
        write_text(figure.drawing, Path(out) / "figures" / f"{name}.svg")


def drawn(figure: Figure) -> str:
    """Draw a figure as SVG, with the same bytes each time; one that `save_figure` has kept is not drawn again."""
    if kept := getattr(figure, "drawing", ""):
        return kept
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return file.getvalue()
