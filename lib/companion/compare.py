"""Compare the results in the working tree with the committed ones, in ten lines; with --all a line a table."""

from __future__ import annotations

import argparse
import io
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib import base
from lib.base import BadInput
from lib.companion.csv_files import read_csv
from lib.companion.results import read_claims
from lib.companion.statistics import VERDICTS
from lib.companion.sweep.settings import SCALES

SHOWN = 4  # claims whose verdict has changed that are named; more are counted


@dataclass(frozen=True)
class Difference:
    """Say what two versions of a table differ in.

    Attributes:
        numbers: the largest absolute difference of two numbers in the same place.
        where: the column it is in; "" when there is none.
        shape: what makes the tables incomparable (other columns, rows or words, or a number that only one of them
            has, or has as an infinite one); "" when nothing does.
    """

    numbers: float
    where: str = ""
    shape: str = ""


def difference(new: pd.DataFrame, old: pd.DataFrame) -> Difference:
    """Compare two versions of a table, row by row in their order."""
    if list(new.columns) != list(old.columns):
        return Difference(np.inf, shape=f"columns {list(new.columns)}, committed {list(old.columns)}")
    if len(new) != len(old):
        return Difference(np.inf, shape=f"{len(new)} rows, committed {len(old)}")
    largest = Difference(0.0)
    for column in new.columns:
        if all(pd.api.types.is_numeric_dtype(t[column]) and t[column].dtype != bool for t in (new, old)):
            if (new[column].isna() != old[column].isna()).any():
                return Difference(np.inf, column, f"{column}: a number on one side only")
            infinite = np.isinf(new[column]) | np.isinf(old[column])  # two of them differ by NaN, which is no largest
            if (infinite & (new[column] != old[column])).any():
                return Difference(np.inf, column, f"{column}: infinite on one side only")
            gap = float((new[column] - old[column]).abs().max()) if new[column].notna().any() else 0.0
            if gap > largest.numbers:
                largest = Difference(gap, column, largest.shape)
        elif not new[column].fillna("").astype(str).equals(old[column].fillna("").astype(str)):
            largest = Difference(largest.numbers, largest.where, f"words differ in column {column}")
    return largest


def committed(name: str, root: Path = base.ROOT) -> pd.DataFrame | None:
    """Read a table as HEAD has it, by its path; None where it has none."""
    shown = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=root, capture_output=True, text=True)
    return None if shown.returncode else read_csv(io.StringIO(shown.stdout), called=f"HEAD's {name}")


def against_commit(scale: str, root: Path = base.ROOT) -> dict[str, Difference]:
    """Compare each CSV under results/SCALE and results/tables with HEAD's: {path: difference}.

    Raises:
        BadInput: no such scale, no git checkout, there are no tables of it, or one that is no table.
    """
    if scale not in SCALES:
        raise BadInput(f"no scale {scale!r}; there are: {', '.join(SCALES)}")
    if subprocess.run(["git", "rev-parse", "--verify", "HEAD"], cwd=root, capture_output=True).returncode:
        raise BadInput(f"{root} is no git checkout with a commit: there is nothing to compare with")
    folders = [root / "results" / scale, root / "results" / "tables"]
    found = {}
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", f"results/{scale}/", "results/tables/"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True).stdout.splitlines()
    known = [name for name in listed if name.endswith(".csv")]
    there = {path.relative_to(root).as_posix(): path for folder in folders for path in folder.rglob("*.csv")}
    for name in sorted({*known, *there}):
        if name not in there:
            found[name] = Difference(np.inf, shape="committed, but not there any more")
            continue
        old = committed(name, root)
        if old is None:
            found[name] = Difference(np.inf, shape="not committed yet")
        else:
            found[name] = difference(read_csv(there[name], called=name), old)
    if not any(name.startswith(f"results/{scale}/") for name in found):
        raise BadInput(f"there are no tables under results/{scale}")
    return found


def summary(scale: str, tables: Mapping[str, Difference], root: Path = base.ROOT) -> list[str]:
    """Write at most ten lines: how many claims have which verdict, which verdicts are not as committed, how large the
    largest difference of a number is, and where to read.

    Raises:
        BadInput: there are no claims at the scale, or their file is no table of verdicts.
    """
    name = f"results/{scale}/claims.csv"
    if not (root / name).exists():
        raise BadInput(f"there are no claims at scale {scale}; python -m lib.claims")
    new, old = read_claims(scale, root / "results").set_index("id"), committed(name, root)
    counted = new.verdict.value_counts()
    counts = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if verdict in counted)
    lines = [f"{len(new)} claims at the {scale} scale: {counts}"]
    if old is None:
        lines.append("none of them is committed yet")
    else:
        before = old.set_index("id").verdict.reindex(new.index).fillna("not there")
        changed = new[new.verdict != before]
        lines.append(f"{len(new) - len(changed)} verdicts are as committed, {len(changed)} are not")
        lines += [f"  {row.says}: {before[row.Index]} -> {row.verdict}" for row in changed.head(SHOWN).itertuples()]
        lines += [f"  and {len(changed) - SHOWN} more"] if len(changed) > SHOWN else []
        if gone := [name for name in old.id if name not in new.index]:
            lines.append(f"  {len(gone)} that are committed are not there any more, such as {gone[0]}")
    runs = {path: found for path, found in tables.items() if np.isfinite(found.numbers) and "/runs/" in path}
    path, worst = max(runs.items(), key=lambda item: item[1].numbers, default=("", Difference(0.0)))
    where = f" ({worst.where}, {path})" if worst.where else ""
    largest = f"largest difference of a number in a run file from the committed one: {worst.numbers:.4g}{where}"
    if all(found == Difference(0.0) for found in tables.values()):
        largest = (
            f"largest difference 0: every number and word of {len(tables)} tables of the {scale} scale is as committed"
        )
    elif others := sum(found != Difference(0.0) for name, found in tables.items() if name != path):
        largest += f"; {'other ' * bool(where)}tables that differ: {others} of {len(tables)}"
    lines.append(largest)
    lines.append("read results/notebooks/ or results/claims.md; every table: python -m lib.compare --all")
    return lines


def details(tables: Mapping[str, Difference], scale: str) -> list[str]:
    """Write a line for each table of a scale that is not as committed."""
    lines = []
    for name, found in tables.items():
        gap = f"up to {found.numbers:.4g} in {found.where}" if found.where and np.isfinite(found.numbers) else ""
        if text := "; ".join(part for part in (found.shape, gap) if part):
            lines.append(f"{name}: {text}")
    return lines or [f"all {len(tables)} tables of the {scale} scale are as committed"]


def main(words: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m lib.compare", description=__doc__)
    parser.add_argument("--scale", default="quick", help="quick or real (default: quick)")
    parser.add_argument("--all", action="store_true", help="a line for each table that is not as committed")
    asked = parser.parse_args(words)
    with base.program("lib.compare"):
        tables = against_commit(asked.scale)
        print("\n".join(details(tables, asked.scale) if asked.all else summary(asked.scale, tables)))


if __name__ == "__main__":
    main()
