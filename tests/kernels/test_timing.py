"""Rivals take turns, and a timing is a median. Nothing here asserts how fast anything is."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest

from lib import base
from lib.base import BadInput
from lib.kernels import timing
from lib.kernels.timing import in_turn, times_as_fast


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
    times = in_turn({name: partial(call, name) for name in takes}, seconds=0, warmup=1)
    assert times == {"a": pytest.approx(3), "b": pytest.approx(30)}


def test_a_turn_may_have_several_calls():
    calls: list[str] = []
    in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=0, warmup=1, block=3)
    assert calls == ["a", "b", *["a"] * 3, *["b"] * 3] + (["a"] * 3 + ["b"] * 3) * 4


def test_half_of_the_ratios_of_single_calls_lie_between_the_quartiles():
    """The ratios are 1, 2, 3, 4 and 50; the medians 6 and 2."""
    ratio, low, high = times_as_fast([2.0, 4.0, 6.0, 8.0, 100.0], [2.0] * 5)
    assert (ratio, low, high) == (3, 2, 4)
    assert times_as_fast([2.0, 100.0], [1.0, 50.0]) == (2, 2, 2)
    with pytest.raises(ValueError, match="zip"):
        times_as_fast([1.0, 2.0], [1.0])


def test_no_rivals_are_refused():
    with pytest.raises(BadInput, match="no rivals to time: at least one is needed"):
        in_turn({})


def test_the_peak_is_what_a_call_adds_to_what_the_process_held_before():
    """In a process of its own: one that has run other tests may give memory back meanwhile, or hold freed memory."""
    code = """
import numpy as np
from lib.kernels.timing import peak_bytes
held = []
print(peak_bytes(lambda: held.append(np.ones(2**23))) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=base.ROOT, capture_output=True, text=True, check=True)
    assert 63 <= float(done.stdout) < 96  # a few pages that were freed before may serve again
