"""What the pipeline passes on, and how to get what is missing."""

import hashlib
from pathlib import Path

import matplotlib.figure
import pandas as pd
import pytest
import yaml

from lib.base import BadInput
from lib.companion import csv_files, results


def test_missing_runs_and_claims_say_which_command_makes_them(tmp_path: Path):
    with pytest.raises(BadInput, match=r"python -m lib\.sweep npn_moons --scale real$"):
        results.read_runs("npn_moons", "real", tmp_path)
    with pytest.raises(BadInput, match=r"^no experiment 'npn_mons'; there are: gst_bc, "):
        results.read_runs("npn_mons", "real", tmp_path)
    with pytest.raises(BadInput, match=r"^no scale 'rael'; there are: quick, real, paper$"):
        results.read_runs("npn_moons", "rael", tmp_path)
    with pytest.raises(BadInput, match=r"no claims at scale real; python -m lib\.claims$"):
        results.read_claims("real", tmp_path)


def test_runs_and_claims_are_read_from_their_scale(tmp_path: Path):
    csv_files.write_csv(pd.DataFrame({"a": [1]}), tmp_path / "quick" / "runs" / "rl.csv")
    csv_files.write_csv(pd.DataFrame({"a": [2]}), tmp_path / "real" / "runs" / "rl.csv")
    assert results.read_runs("rl", "real", tmp_path).a.tolist() == [2]
    table = pd.DataFrame({name: "" for name in results.CLAIMS} | {"id": ["NA", "x"], "low": ["", 0.5]})
    csv_files.write_csv(table.assign(verdict="differs"), tmp_path / "real" / "claims.csv")
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
        csv_files.write_csv(pd.DataFrame({"a": [scale]}), tmp_path / scale / "runs" / "rl.csv")
    csv_files.write_csv(pd.DataFrame({"a": [0]}), tmp_path / "quick" / "runs" / "other.csv")
    assert results.scales_of("rl", tmp_path) == ["real", "quick"]
    assert results.scales_of("other", tmp_path) == ["quick"]
    found = results.read_every_scale("rl", tmp_path)
    assert [(scale, rows.a.tolist()) for scale, rows in found.items()] == [("real", ["real"]), ("quick", ["quick"])]
    with pytest.raises(BadInput, match=r"no runs of offline_rl; python -m lib\.sweep offline_rl$"):
        results.read_every_scale("offline_rl", tmp_path)
    with pytest.raises(BadInput, match="'none'"):  # is no experiment, which no sweep would mend
        results.read_every_scale("none", tmp_path)
    for read in (results.read_claims, results.read_costs):
        with pytest.raises(BadInput, match="no scale 'quikc'; there are: quick, real, paper"):
            read("quikc", tmp_path)


def test_an_old_run_file_is_read_in_todays_columns(tmp_path: Path):
    """offline_rl has got a column since its first files were computed, and its `upgrade` fills it in."""
    old = {"data": "d", "env": "hopper", "algorithm": ["bc", "bcq", "plain_bc"], "pruner": "dense", "sparsity": 0.0}
    old |= {"batches": 1, "seed": 0, "step": 100, "return": 1.0, "normalised_return": 2.0}
    csv_files.write_csv(pd.DataFrame(old), tmp_path / "real" / "runs" / "offline_rl.csv")
    assert results.read_runs("offline_rl", "real", tmp_path).variant.tolist() == ["raw", "raw", "normalised"]
    csv_files.write_csv(pd.DataFrame(old), tmp_path / "real" / "runs" / "skdfe.csv")  # which has none
    with pytest.raises(BadInput, match=r"skdfe\.csv has no column 'network'; expected data, network, "):
        results.read_runs("skdfe", "real", tmp_path)


def test_runs_that_are_not_those_of_their_provenance_are_refused(tmp_path: Path):
    path = tmp_path / "real" / "runs" / "rl.csv"
    csv_files.write_csv(pd.DataFrame({"a": [1, 2]}), path)
    about = path.with_suffix(".provenance.yaml")
    about.write_text(f"scale: real\nsha256: {hashlib.sha256(path.read_bytes()).hexdigest()}\nrows: 2\n")
    assert results.read_runs("rl", "real", tmp_path).a.tolist() == [1, 2]
    to_come = "0" * 64  # killed between the provenance and the table that it is of: the old one is told as `before`
    about.write_text(f"sha256: {to_come}\nbefore:\n  sha256: {hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    assert results.read_runs("rl", "real", tmp_path).a.tolist() == [1, 2]
    path.write_text("a\n1\n3\n")
    with pytest.raises(BadInput, match=r"rl\.csv is not the file that rl\.provenance\.yaml describes"):
        results.read_runs("rl", "real", tmp_path)
    about.write_text("scale: real\n")
    with pytest.raises(BadInput, match=r"rl\.provenance\.yaml names no sha256, which tells whether rl\.csv is whole"):
        results.read_runs("rl", "real", tmp_path)


def test_a_word_among_names_is_none_among_numbers(tmp_path: Path):
    table = pd.DataFrame({"name": ["1", "b", "c"], "half": ["1", "2", "x"]})
    csv_files.write_csv(table.drop(columns="half"), tmp_path / "real" / "runs" / "rl.csv")
    assert results.read_runs("rl", "real", tmp_path).name.tolist() == ["1", "b", "c"]
    csv_files.write_csv(table, tmp_path / "real" / "runs" / "rl.csv")
    with pytest.raises(BadInput, match=r"^rl\.csv, line 4: half 'x' is no number$"):
        results.read_runs("rl", "real", tmp_path)


def test_cells_are_read_with_the_columns_that_are_written(tmp_path: Path):
    csv_files.write_csv(pd.DataFrame({"id": ["a"], "measured": [1]}), tmp_path / "quick" / "cells.csv")
    with pytest.raises(BadInput, match=r"^cells\.csv has no column 'cell'; expected id, cell, "):
        results.read_cells(pd.DataFrame({"id": ["a"], "scale": ["quick"]}), tmp_path)


def test_costs_are_summed_over_the_parts_of_a_provenance(tmp_path: Path):
    folder = tmp_path / "real" / "runs"
    folder.mkdir(parents=True)
    for name, seconds, done in (("b", [3600, 1800], "2 of 9"), ("a", [36], "1 of 1")):
        parts = [{"commit": "c", "source_hash": "s", "seconds": one, "finished": []} for one in seconds]
        about = {"experiment": name, "configurations": done, "sha256": "0", "parts": parts}
        (folder / f"{name}.provenance.yaml").write_text(yaml.safe_dump(about))
    found = results.read_costs("real", tmp_path).to_dict("records")
    assert found == [
        {"experiment": "a", "finished": 1, "of": 1, "core_hours": 0.01},
        {"experiment": "b", "finished": 2, "of": 9, "core_hours": 1.5},
    ]
    assert results.read_costs("paper", tmp_path).empty


@pytest.mark.parametrize("lost", ["configurations", "experiment", "parts", "sha256"])
def test_costs_of_a_damaged_provenance_are_refused(tmp_path: Path, lost: str):
    part = {"commit": "c", "source_hash": "s", "seconds": 3600, "finished": ["k"]}
    about = {"experiment": "a", "configurations": "1 of 2", "sha256": "0", "parts": [part]}
    path = tmp_path / "real" / "runs" / "a.provenance.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({name: value for name, value in about.items() if name != lost}))
    with pytest.raises(BadInput, match=r"a\.provenance\.yaml is damaged: it (lacks|does not say)"):
        results.read_costs("real", tmp_path)
    path.write_text("")
    with pytest.raises(BadInput, match=r"a\.provenance\.yaml"):
        results.read_costs("real", tmp_path)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("digits,0,98.2%", r"line 2: accuracy '98\.2%' is no number"),
        ("digits,s5,98.2", "line 2: seed 's5' is no number"),
    ],
)
def test_a_unit_or_a_letter_in_a_column_of_numbers_is_named(tmp_path: Path, lines: str, said: str):
    path = tmp_path / "quick" / "runs" / "rl.csv"
    path.parent.mkdir(parents=True)
    path.write_text(f"data,seed,accuracy\n{lines}\n")
    with pytest.raises(BadInput, match=said):
        results.read_runs("rl", "quick", tmp_path)
