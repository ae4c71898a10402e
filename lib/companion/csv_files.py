"""Read and write tables and texts as the project keeps them: every CSV file of the pipeline goes through here, in
one format.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from lib.base import BadInput, atomic

DIGITS = "%.6g"  # one number format everywhere, so that the same numbers are the same bytes


def read_csv(path: Path | TextIO, columns: Sequence[str] = (), called: str = "", **options: Any) -> pd.DataFrame:
    """Read a table of the project's: every CSV file comes in here.

    Args:
        path: of the file, or one that is open for reading.
        columns: what it must have.
        called: how errors name it; the file's own name, if nothing is said.
        options: of `pandas.read_csv`.

    Raises:
        BadInput: no readable file, no text, no table (empty, or rows of several lengths), or a column is missing.
    """
    called = called or Path(path).name
    try:
        text = path.read_text(encoding="utf-8") if isinstance(path, Path) else path.read()
        lengths = {len(row) for row in csv.reader(io.StringIO(text)) if row}  # pandas shifts longer rows, fills others
        table = pd.read_csv(io.StringIO(text), **options)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, csv.Error, pd.errors.ParserError) as error:  # UnicodeDecodeError and EmptyDataError are such
        raise BadInput(f"{called} is no table: {' '.join(str(error).split())}") from error
    if len(lengths) > 1:
        raise BadInput(f"{called} is no table: it has rows of {min(lengths)} and of {max(lengths)} cells")
    refuse_lacking(table, columns, called)
    return table


def refuse_lacking(table: pd.DataFrame, columns: Sequence[str], called: str) -> None:
    """Refuse a table without one of these columns.

    Raises:
        BadInput: the first that is absent.
    """
    if absent := [name for name in columns if name not in table]:
        raise BadInput(f"{called} has no column {absent[0]!r}; expected {', '.join(columns)}")


def write_csv(table: pd.DataFrame, path: Path) -> None:
    """Write a table whole or not at all."""
    write_text(csv_text(table), path)


def csv_text(table: pd.DataFrame) -> str:
    """Write out a table as the project's files have it."""
    table = table.copy()
    for name in table.columns[table.dtypes == "float64"]:  # as which whole numbers are held where one is or was missing
        there = table[name].dropna()
        whole = len(there) and (there % 1 == 0).all() and there.abs().max() < 2**53
        if whole and any(float(DIGITS % x) != x for x in there):  # a number of six digits stays as it was written
            table[name] = table[name].astype("Int64")
    for name in table.columns[table.dtypes == "object"]:  # to_csv formats only columns that are all numbers
        table[name] = [DIGITS % x if isinstance(x, float) and x == x else x for x in table[name]]
    return table.to_csv(index=False, float_format=DIGITS, lineterminator="\n")


def write_text(text: str, path: Path) -> None:
    """Write a text file whole or not at all: a reader sees the old content or the new one."""
    with atomic(path) as file:
        file.write(text.encode())
