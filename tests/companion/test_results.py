"""What the pipeline passes on: one number format, whole files or none, and how to get what is missing."""

import hashlib
import os
from pathlib import Path

import matplotlib.figure
import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion import results


def written(table: pd.DataFrame, folder: Path) -> str:
    results.write_csv(table, folder / "t.csv")
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
    results.write_text("old", path)

    def full_disk(descriptor: int) -> None:
        assert path.read_text() == "old"  # while the new one is being written
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        results.write_text("new", path)
    assert path.read_text() == "old"
    monkeypatch.undo()
    results.write_text("new", path)
    assert path.read_text() == "new"


def test_missing_runs_and_claims_say_which_command_makes_them(tmp_path: Path):
    with pytest.raises(BadInput, match=r"python -m lib\.sweep rl --scale real$"):
        results.read_runs("rl", "real", tmp_path)
    with pytest.raises(BadInput, match=r"no claims at scale real; python -m lib\.claims$"):
        results.read_claims("real", tmp_path)


def test_runs_and_claims_are_read_from_their_scale(tmp_path: Path):
    results.write_csv(pd.DataFrame({"a": [1]}), tmp_path / "quick" / "runs" / "rl.csv")
    results.write_csv(pd.DataFrame({"a": [2]}), tmp_path / "real" / "runs" / "rl.csv")
    assert results.read_runs("rl", "real", tmp_path).a.tolist() == [2]
    table = pd.DataFrame({name: "" for name in results.CLAIMS} | {"id": ["NA", "x"], "low": ["", 0.5]})
    results.write_csv(table.assign(verdict="differs"), tmp_path / "real" / "claims.csv")
    found = results.read_claims("real", tmp_path)
    assert found[["id", "low"]].values.tolist() == [["NA", ""], ["x", "0.5"]]  # nothing becomes NaN


def test_a_notebook_run_by_hand_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame({"a": [1.0]})
    results.save_table(table, "t", None)
    results.save_figure(None, "f", None)
    assert list(tmp_path.iterdir()) == []
    results.save_table(table, "t", str(tmp_path / "out"))
    assert (tmp_path / "out" / "tables" / "t.csv").read_text() == "a\n1\n"


def test_a_figure_is_the_same_bytes_every_time(tmp_path: Path):
    for name in "ab":
        with matplotlib.rc_context({"svg.hashsalt": "fixed"}):  # as lib.companion.plots sets it
            figure = matplotlib.figure.Figure()
            figure.subplots().plot([1, 2], label="x")
            results.save_figure(figure, name, str(tmp_path))
    first, second = ((tmp_path / "figures" / f"{name}.svg").read_text() for name in "ab")
    assert "<svg" in first
    assert "<dc:date>" not in first
    assert first == second


def test_scales_come_the_largest_first(tmp_path: Path):
    for scale in ("quick", "real"):
        results.write_csv(pd.DataFrame({"a": [scale]}), tmp_path / scale / "runs" / "rl.csv")
    results.write_csv(pd.DataFrame({"a": [0]}), tmp_path / "quick" / "runs" / "other.csv")
    assert results.scales_of("rl", tmp_path) == ["real", "quick"]
    assert results.scales_of("other", tmp_path) == ["quick"]
    found = results.read_every_scale("rl", tmp_path)
    assert [(scale, rows.a.tolist()) for scale, rows in found.items()] == [("real", ["real"]), ("quick", ["quick"])]
    with pytest.raises(BadInput, match=r"no runs of none; python -m lib\.sweep none$"):
        results.read_every_scale("none", tmp_path)


def test_an_old_run_file_is_read_in_todays_columns(tmp_path: Path):
    """offline_rl has got a column since its first files were computed, and its `upgrade` fills it in."""
    old = {"data": "d", "env": "hopper", "algorithm": ["bc", "bcq", "plain_bc"], "pruner": "dense", "sparsity": 0.0}
    old |= {"batches": 1, "seed": 0, "step": 100, "return": 1.0, "normalised_return": 2.0}
    results.write_csv(pd.DataFrame(old), tmp_path / "real" / "runs" / "offline_rl.csv")
    assert results.read_runs("offline_rl", "real", tmp_path).variant.tolist() == ["raw", "raw", "normalised"]
    results.write_csv(pd.DataFrame(old), tmp_path / "real" / "runs" / "skdfe.csv")  # which has none
    with pytest.raises(BadInput, match=r"skdfe\.csv has no column 'network'; expected data, network, "):
        results.read_runs("skdfe", "real", tmp_path)


def test_runs_that_are_not_those_of_their_provenance_are_refused(tmp_path: Path):
    path = tmp_path / "real" / "runs" / "rl.csv"
    results.write_csv(pd.DataFrame({"a": [1, 2]}), path)
    about = path.with_suffix(".provenance.yaml")
    about.write_text(f"scale: real\nsha256: {hashlib.sha256(path.read_bytes()).hexdigest()}\nrows: 2\n")
    assert results.read_runs("rl", "real", tmp_path).a.tolist() == [1, 2]
    for spoil in (lambda: path.write_text("a\n1\n3\n"), lambda: about.write_text("scale: real\n")):
        spoil()
        with pytest.raises(BadInput, match=r"rl\.csv is not the file that rl\.provenance\.yaml describes"):
            results.read_runs("rl", "real", tmp_path)


def test_a_word_among_names_is_none_among_numbers(tmp_path: Path):
    table = pd.DataFrame({"name": ["1", "b", "c"], "half": ["1", "2", "x"]})
    results.write_csv(table.drop(columns="half"), tmp_path / "real" / "runs" / "rl.csv")
    assert results.read_runs("rl", "real", tmp_path).name.tolist() == ["1", "b", "c"]
    results.write_csv(table, tmp_path / "real" / "runs" / "rl.csv")
    with pytest.raises(BadInput, match=r"^rl\.csv, line 4: half 'x' is no number$"):
        results.read_runs("rl", "real", tmp_path)


def test_cells_are_read_with_the_columns_that_are_written(tmp_path: Path):
    results.write_csv(pd.DataFrame({"id": ["a"], "measured": [1]}), tmp_path / "quick" / "cells.csv")
    with pytest.raises(BadInput, match=r"^cells\.csv has no column 'cell'; expected id, cell, "):
        results.read_cells(pd.DataFrame({"id": ["a"], "scale": ["quick"]}), tmp_path)
