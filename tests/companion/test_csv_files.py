"""Tables and texts as the project keeps them: one number format, whole files or none."""

import os
from pathlib import Path

import pandas as pd
import pytest

from lib.companion import csv_files


def written(table: pd.DataFrame, folder: Path) -> str:
    csv_files.write_csv(table, folder / "t.csv")
    return (folder / "t.csv").read_text()


def test_numbers_have_six_digits_and_lines_end_in_a_newline(tmp_path: Path):
    table = pd.DataFrame({"name": ["a", "b"], "count": [10000000, 2], "value": [1 / 3, 25.0]})
    assert written(table, tmp_path) == "name,count,value\na,10000000,0.333333\nb,2,25\n"


def test_a_number_is_the_same_bytes_whatever_else_its_column_holds(tmp_path: Path):
    numbers = [25.0, 1 / 3, 1234567.0, -0.5, float("nan"), float("inf")]
    alone = written(pd.DataFrame({"i": 1, "value": numbers}), tmp_path)
    mixed = written(pd.DataFrame({"i": 1, "value": [*numbers, ""]}), tmp_path)
    assert mixed == alone + "1,\n"
    assert alone == "i,value\n1,25\n1,0.333333\n1,1.23457e+06\n1,-0.5\n1,\n1,inf\n"


def test_a_whole_number_keeps_its_digits_where_another_of_its_column_is_missing(tmp_path: Path):
    held = pd.DataFrame({"count": [1234567.0, 2.0]})  # as after a merge that found all
    assert written(held, tmp_path) == "count\n1234567\n2\n"
    table = pd.DataFrame([{"count": 1234567, "return": 1234567.8}, {"count": None, "return": None}])
    assert written(table, tmp_path) == "count,return\n1234567,1.23457e+06\n,\n"
    assert written(pd.read_csv(tmp_path / "t.csv"), tmp_path) == "count,return\n1234567,1.23457e+06\n,\n"


def test_writing_what_was_read_gives_the_same_bytes(tmp_path: Path):
    first = written(pd.DataFrame({"a": [1, 2], "b": [2 / 3, 1e-9], "c": ["x", "y"]}), tmp_path)
    assert written(pd.read_csv(tmp_path / "t.csv"), tmp_path) == first


def test_writing_does_not_change_the_table(tmp_path: Path):
    table = pd.DataFrame({"value": [1 / 3, ""]})
    written(table, tmp_path)
    assert table.value.tolist() == [1 / 3, ""]


def test_a_file_is_written_whole_or_the_old_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "deep" / "t.txt"
    csv_files.write_text("old", path)

    def full_disk(descriptor: int) -> None:
        assert path.read_text() == "old"  # while the new one is being written
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        csv_files.write_text("new", path)
    assert path.read_text() == "old"
    monkeypatch.undo()
    csv_files.write_text("new", path)
    assert path.read_text() == "new"
