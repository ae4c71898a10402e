"""What a run says of itself while it works."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lib.companion.sweep import context as surroundings
from lib.companion.sweep.context import Context, Stopped


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time that `lib.companion.sweep.context` sees, to be set."""
    now = [100.0]
    monkeypatch.setattr(surroundings.time, "monotonic", lambda: now[0])
    return now


def test_progress_is_written_at_once_and_then_now_and_again(tmp_path: Path, clock: list[float]):
    context, file = Context(folder=tmp_path / "k"), tmp_path / "k" / "progress"
    context.report_progress("first")
    assert file.read_text() == "1 first"
    for _ in range(5):
        context.report_progress("soon")
    assert (context.done, file.read_text()) == (6, "1 first")
    clock[0] += surroundings.SAY_SECONDS
    context.report_progress("later")
    assert file.read_text() == "7 later"


def test_the_last_unit_before_a_stop_is_written(tmp_path: Path, clock: list[float]):
    context, file = Context(folder=tmp_path / "k"), tmp_path / "k" / "progress"
    context.report_progress("first")
    context.deadline = time.time() - 1
    with pytest.raises(Stopped):
        context.report_progress("second")
    assert file.read_text() == "2 second"


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Context().report_progress("first")
    assert list(tmp_path.iterdir()) == []
