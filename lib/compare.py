"""How far the results in the working tree are from the committed ones: one line a table, and the largest of all."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib import paths
from lib.errors import BadInput


@dataclass(frozen=True)
class Difference:
    """What two versions of a table differ in.

    Attributes:
        numbers: the largest absolute difference of two numbers in the same place.
        where: the column it is in; "" when there is none.
        shape: what makes the tables incomparable (other columns, rows or words); "" when nothing does.
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
            gap = float((new[column] - old[column]).abs().max()) if new[column].notna().any() else 0.0
            if gap > largest.numbers:
                largest = Difference(gap, column)
        elif not new[column].fillna("").astype(str).equals(old[column].fillna("").astype(str)):
            largest = Difference(largest.numbers, largest.where, f"words differ in column {column}")
    return largest


def against_commit(scale: str, root: Path = paths.ROOT) -> dict[str, Difference]:
    """Each CSV under results/SCALE against HEAD's, by its path."""
    folder = root / "results" / scale
    found = {}
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", f"results/{scale}/"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True).stdout.splitlines()
    known = [name for name in listed if name.endswith(".csv")]
    there = {path.relative_to(root).as_posix(): path for path in folder.rglob("*.csv")}
    for name in sorted({*known, *there}):
        if name not in there:
            found[name] = Difference(np.inf, shape="committed, but not there any more")
            continue
        path = there[name]
        committed = subprocess.run(["git", "show", f"HEAD:{name}"], cwd=root, capture_output=True, text=True)
        if committed.returncode:
            found[name] = Difference(np.inf, shape="not committed yet")
        else:
            found[name] = difference(pd.read_csv(path), pd.read_csv(io.StringIO(committed.stdout)))
    if not found:
        raise BadInput(f"there are no tables under results/{scale}")
    return found


def main(words: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser("python -m lib.compare", description=__doc__)
    parser.add_argument("--scale", default="quick")
    asked = parser.parse_args(words)
    try:
        tables = against_commit(asked.scale)
    except BadInput as error:
        print(f"lib.compare: {error}", file=sys.stderr)
        sys.exit(2)
    for name, found in tables.items():
        if found.shape:
            print(f"  {name}: {found.shape}")
    name, worst = max(tables.items(), key=lambda item: item[1].numbers)
    column = f" (column {worst.where} of {name})" if worst.where else ""
    print(
        f"largest difference of any number in {len(tables)} tables from the committed one: {worst.numbers:.4g}{column}"
    )


if __name__ == "__main__":
    main()
