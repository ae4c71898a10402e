"""Benchmarks: rivals take turns, and every row says what it was measured on. Nothing here asserts a time."""

import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest
import torch

from lib.bench import __main__ as bench
from lib.bench import timing
from lib.bench.timing import in_turn


def test_rivals_take_turns_and_each_is_called_as_often():
    calls: list[str] = []
    times = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0, warmup=2)
    assert list(times) == ["a", "b"]
    assert calls == ["a", "b"] * (2 + 5)
    assert all(milliseconds > 0 for milliseconds in times.values())


def test_a_timing_is_the_median_of_what_a_clock_says(monkeypatch: pytest.MonkeyPatch):
    """Calls of a and b take so many milliseconds; one of each is far slower, and the median does not see it."""
    now = [0.0]
    takes = {"a": [9.0, 1, 2, 500, 3, 4], "b": [9.0, 40, 10, 30, 20, 9000]}  # the first calls warm up

    def call(name: str):
        now[0] += takes[name].pop(0) / 1000

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    times = timing.in_turn({name: partial(call, name) for name in takes}, seconds=0, warmup=1)
    assert times == {"a": pytest.approx(3), "b": pytest.approx(30)}


def test_a_turn_may_have_several_calls():
    calls: list[str] = []
    in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0, warmup=1, block=3)
    assert calls == ["a", "b", *["a"] * 3, *["b"] * 3] + (["a"] * 3 + ["b"] * 3) * 4


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


def test_rows_of_other_devices_stay_and_the_same_devices_are_replaced(tmp_path: Path):
    path = tmp_path / "toy.csv"
    new = pd.DataFrame({"device": ["H200", "H200"], "ms": [1, 2]})
    assert bench.beside_others(new, path) is new
    pd.DataFrame({"device": ["EPYC", "H200"], "ms": [8, 9]}).to_csv(path, index=False)
    assert bench.beside_others(new, path).to_numpy().tolist() == [["EPYC", 8], ["H200", 1], ["H200", 2]]
    pd.DataFrame({"device": ["EPYC"], "seconds": [8]}).to_csv(path, index=False)  # of another version of the benchmark
    assert bench.beside_others(new, path).equals(new)


def test_an_unknown_benchmark_is_one_line(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        bench.main(["nothing"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"lib.bench: no benchmark 'nothing'; there are: {', '.join(bench.names())}\n"


def test_a_damaged_file_of_an_earlier_benchmark_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "masks.csv").write_bytes(b"\xff\xfe\x00")
    monkeypatch.setattr(bench, "measure", lambda *given: pytest.fail("measured"))
    with pytest.raises(SystemExit):
        bench.main(["masks", "--device", "cpu", "--results", str(tmp_path)])
    assert capsys.readouterr().err.startswith("lib.bench: masks.csv is no table: ")
