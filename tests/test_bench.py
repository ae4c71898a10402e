"""Benchmarks: rivals take turns, and every row says what it was measured on. Nothing here asserts a time."""

import sys
from types import ModuleType

import pytest

from lib.bench import __main__ as bench
from lib.bench.timing import in_turn


def test_rivals_take_turns_and_each_is_called_as_often():
    calls: list[str] = []
    times = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0, warmup=2)
    assert list(times) == ["a", "b"]
    assert calls == ["a", "b"] * (2 + 5)
    assert all(milliseconds > 0 for milliseconds in times.values())


def test_each_row_says_device_threads_and_versions(monkeypatch: pytest.MonkeyPatch):
    toy = ModuleType("lib.bench.toy")
    toy.COLUMNS, toy.run = ("implementation", "ms"), lambda device: [{"ms": 1.5, "implementation": device}]
    monkeypatch.setitem(sys.modules, "lib.bench.toy", toy)
    table = bench.measure("toy", "cpu")
    assert list(table.columns) == ["device", "threads", "torch", "python", "implementation", "ms"]
    assert table.iloc[0][["implementation", "ms"]].tolist() == ["cpu", 1.5]
    assert "cores" in table.device.iloc[0]


def test_an_unknown_benchmark_is_one_line(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        bench.main(["nothing"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"lib.bench: no benchmark 'nothing'; there are: {', '.join(bench.names())}\n"
