"""What a run says of itself while it works."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lib.companion.sweep import jobs
from lib.companion.sweep.jobs import Job, Stopped


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time that `lib.companion.sweep.jobs` sees, to be set."""
    now = [100.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now[0])
    return now


def test_progress_is_written_at_once_and_then_now_and_again(tmp_path: Path, clock: list[float]):
    job, file = Job(folder=tmp_path / "k"), tmp_path / "k" / "progress"
    job.advance("first")
    assert file.read_text() == "1 first"
    for _ in range(5):
        job.advance("soon")
    assert (job.done, file.read_text()) == (6, "1 first")
    clock[0] += jobs.SAY_SECONDS
    job.advance("later")
    assert file.read_text() == "7 later"


def test_the_last_unit_before_a_stop_is_written(tmp_path: Path, clock: list[float]):
    job, file = Job(folder=tmp_path / "k"), tmp_path / "k" / "progress"
    job.advance("first")
    job.deadline = time.time() - 1
    with pytest.raises(Stopped):
        job.advance("second")
    assert file.read_text() == "2 second"


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Job().advance("first")
    assert list(tmp_path.iterdir()) == []
