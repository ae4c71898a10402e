"""Benchmarks: every row says what it was measured on, and other devices' rows stay. Nothing here asserts a time."""

import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import torch

from lib.bench import __main__ as bench


def test_each_row_says_device_threads_and_versions(monkeypatch: pytest.MonkeyPatch):
    toy = ModuleType("lib.bench.toy")
    toy.COLUMNS, toy.run = ("implementation", "ms"), lambda device: [{"ms": 1.5, "implementation": device}]
    monkeypatch.setitem(sys.modules, "lib.bench.toy", toy)
    table = bench.measure("toy", "cpu")
    assert list(table.columns) == ["device", "threads", "torch", "python", "implementation", "ms"]
    assert table.iloc[0][["implementation", "ms"]].tolist() == ["cpu", 1.5]
    assert "cores" in table.device.iloc[0]


def test_a_benchmark_may_ask_for_a_number_of_threads(monkeypatch: pytest.MonkeyPatch):
    toy = ModuleType("lib.bench.toy")
    toy.COLUMNS, toy.THREADS, toy.run = ("ms",), 2, lambda device: [{"ms": torch.get_num_threads()}]
    monkeypatch.setitem(sys.modules, "lib.bench.toy", toy)
    assert bench.measure("toy", "cpu")[["threads", "ms"]].to_numpy().tolist() == [[2, 2]]
    assert torch.get_num_threads() == 1


def test_rows_of_other_devices_stay_and_the_same_devices_are_replaced(tmp_path: Path, capsys: pytest.CaptureFixture):
    path = tmp_path / "toy.csv"
    new = pd.DataFrame({"device": ["H200", "H200"], "ms": [1, 2]})
    assert bench.beside_others(new, path) is new
    pd.DataFrame({"device": ["EPYC", "H200"], "ms": [8, 9]}).to_csv(path, index=False)
    assert bench.beside_others(new, path).to_numpy().tolist() == [["EPYC", 8], ["H200", 1], ["H200", 2]]
    pd.DataFrame({"device": ["EPYC"], "seconds": [8]}).to_csv(path, index=False)  # of another version of the benchmark
    assert bench.beside_others(new, path).equals(new)
    assert "toy.csv has rows of other devices in other columns; kept as toy.csv.damaged" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "toy.csv.damaged").seconds.tolist() == [8]
    pd.DataFrame({"device": ["H200"], "seconds": [8]}).to_csv(path, index=False)  # nothing that is not measured anew
    assert bench.beside_others(new, path).equals(new)
    assert path.exists()


def test_an_unknown_benchmark_is_one_line(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        bench.main(["nothing"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"lib.bench: no benchmark 'nothing'; there are: {', '.join(bench.names())}\n"


def test_an_unknown_benchmark_is_refused_before_those_named_earlier_are_measured(monkeypatch, capsys):
    monkeypatch.setattr(bench, "measure", lambda *given: pytest.fail("measured"))
    with pytest.raises(SystemExit):
        bench.main(["masks", "nothing", "--device", "cpu"])
    assert capsys.readouterr().err.startswith("lib.bench: no benchmark 'nothing'; there are: ")


def test_a_damaged_file_of_an_earlier_benchmark_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "masks.csv").write_bytes(b"\xff\xfe\x00")
    monkeypatch.setattr(bench, "measure", lambda *given: pytest.fail("measured"))
    with pytest.raises(SystemExit):
        bench.main(["masks", "--device", "cpu", "--results", str(tmp_path)])
    assert capsys.readouterr().err.startswith("lib.bench: masks.csv is no table: ")
