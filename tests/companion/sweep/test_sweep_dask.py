"""Over machines: the same calls on the workers of a Dask scheduler (here on loopback) give the same bytes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import distributed
import pytest
import torch
from distributed.client import FutureCancelledError

from lib import base
from lib.base import BadInput
from lib.companion.sweep import backend, provenance
from lib.companion.sweep import program as sweep
from lib.companion.sweep.context import Context

# A worker with two threads: runs in one process must not draw from each other's random numbers.
CLUSTER = """
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=1, threads_per_worker=2, host="127.0.0.1", dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


LOST = r"^a worker or the scheduler was killed"


@pytest.fixture
def scheduler() -> Iterator[str]:
    """The address of a scheduler with workers that know nothing of this process."""
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER], cwd=base.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        yield cluster.stdout.readline().strip()
        cluster.communicate("")
    assert cluster.returncode == 0


def test_a_sweep_whose_dask_worker_is_killed_goes_on_to_the_bytes_of_one_process(
    program, scheduler: str, undisturbed: bytes
):
    assert scheduler.startswith("tcp://127.0.0.1:")
    words = program.words("--scheduler", scheduler)
    with (
        distributed.Client(scheduler) as client,
        subprocess.Popen(words, cwd=base.ROOT, stderr=subprocess.PIPE, text=True) as sweeping,
    ):
        [worker] = client.run(os.getpid).values()
        while not list(program.store.glob("*/progress")):  # in the middle of a configuration
            assert sweeping.poll() is None, sweeping.stderr.read()
            time.sleep(0.01)
        os.kill(worker, signal.SIGKILL)
        _, said = sweeping.communicate()
        assert sweeping.returncode == 0, said
        assert worker not in client.run(os.getpid).values()  # the cluster has started another in its place
    assert program.csv.read_bytes() == undisturbed
    assert not program.store.exists()


def call(toy, tmp_path, **change) -> tuple[str, dict]:
    how = {
        "experiment": "toy",
        "source_hash": sweep.grid("toy", "quick", toy.params).source_hash,
        "environment": {},
        "device": ("cpu", "quick"),
        "folder": os.path.relpath(tmp_path / "store", base.ROOT),
        "deadline": None,
        "owner": None,
    }
    return sweep.call("k", {"name": "a", "steps": 2}, [], **how | change)


def test_a_worker_elsewhere_clears_its_checkpoints_up_when_it_has_finished(toy, tmp_path):
    assert call(toy, tmp_path, owner=os.getpid())[1]["status"] == "finished"
    assert (tmp_path / "store" / "k" / "state.json").exists()  # here the store does it, once the entry is safe
    key, outcome = call(toy, tmp_path)
    assert (key, outcome["status"], len(outcome["rows"])) == ("k", "finished", 2)
    assert list((tmp_path / "store").iterdir()) == []


def test_a_worker_elsewhere_keeps_the_checkpoints_of_what_is_not_finished(toy, tmp_path):
    def broken(name: str, step: int) -> None:
        assert step < 1, "it broke"

    toy.before = broken
    assert call(toy, tmp_path)[1]["status"] == "failed"
    assert (tmp_path / "store" / "k" / "state.json").exists()


def test_a_worker_elsewhere_uses_its_own_checkout(toy, tmp_path, monkeypatch: pytest.MonkeyPatch):
    seen = []
    monkeypatch.setattr(Context, "report_progress", lambda context, label: seen.append(context.folder))
    there = tmp_path / "another" / "checkout"
    monkeypatch.setattr(base, "ROOT", there)
    call(toy, tmp_path, folder=".sweep/quick/toy")
    assert set(seen) == {there / ".sweep" / "quick" / "toy" / "k"}


def test_workers_of_other_sources_are_refused(toy, tmp_path):
    outcome = call(toy, tmp_path, source_hash="of another checkout")[1]
    assert outcome["status"] == "failed"
    assert "the sources have changed, or this worker has other ones" in outcome["traceback"]


class Client:
    """Stands for a Dask client: what the program asks of it fails in each of the ways it can."""

    def __init__(self, address: str, timeout: str):
        if address == "tcp://127.0.0.1:1":
            raise OSError("Timed out trying to connect")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def wait_for_workers(self, count: int, timeout: float) -> None:
        raise TimeoutError

    status = "running"

    def nthreads(self) -> dict[str, int]:
        return {}


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("tcp://127.0.0.1:1", "no Dask scheduler answers at tcp://127.0.0.1:1; `dask scheduler` starts one"),
        ("tcp://127.0.0.1:2", "has no workers; `dask worker tcp://127.0.0.1:2 --nthreads 1` starts one"),
    ],
)
def test_a_scheduler_that_cannot_work_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, address: str, line: str):
    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(backend.joblib, "parallel_config", lambda *words, **more: contextlib.nullcontext())
    with pytest.raises(BadInput) as error, backend.backend(address, 1):
        pass
    assert line in str(error.value)


@pytest.mark.parametrize("lost", [distributed.KilledWorker("task", None, 3), FutureCancelledError("task", "lost")])
def test_lost_workers_and_a_lost_scheduler_are_said_in_one_line(monkeypatch: pytest.MonkeyPatch, lost: Exception):
    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(Client, "wait_for_workers", lambda client, count, timeout: None)
    monkeypatch.setattr(backend.joblib, "parallel_config", lambda *words, **more: contextlib.nullcontext())
    with pytest.raises(BadInput, match=LOST), backend.backend("tcp://127.0.0.1:2", 1):
        raise lost


def test_configurations_go_side_by_side_on_all_threads_of_all_workers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(Client, "wait_for_workers", lambda client, count, timeout: None)
    monkeypatch.setattr(Client, "nthreads", lambda client: {"one": 3, "another": 1})
    monkeypatch.setattr(backend.joblib, "parallel_config", lambda *words, **more: contextlib.nullcontext())
    with backend.backend("tcp://127.0.0.1:2", 1) as side_by_side:
        assert side_by_side == 4
    with backend.backend(None, 3) as side_by_side:
        assert side_by_side == 3


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A client whose scheduler answers and has lost all of its workers; it is looked at all the time."""
    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(Client, "wait_for_workers", lambda client, count, timeout: None)
    monkeypatch.setattr(backend.joblib, "parallel_config", lambda *words, **more: contextlib.nullcontext())
    monkeypatch.setattr(backend, "WATCH_SECONDS", 0.01)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is deaf to it
    yield
    signal.signal(signal.SIGINT, before)


def test_a_sweep_without_workers_says_once_that_it_waits(cluster, capsys: pytest.CaptureFixture):
    with backend.backend("tcp://127.0.0.1:2", 1):
        time.sleep(0.3)
    said = capsys.readouterr().err.strip()
    command = "dask worker tcp://127.0.0.1:2 --nthreads 1"
    said_once = f"the scheduler at tcp://127.0.0.1:2 has no workers; `{command}` starts one, the sweep waits for it"
    assert said == f"lib.sweep: {said_once}"


def test_a_sweep_ends_where_its_scheduler_is_gone(cluster, monkeypatch: pytest.MonkeyPatch):
    """Joblib would wait for ever for what a closed client has asked for."""

    def waiting() -> None:
        monkeypatch.setattr(Client, "status", "closed")
        for _ in range(1000):
            time.sleep(0.01)

    with pytest.raises(BadInput, match=LOST), backend.backend("tcp://127.0.0.1:2", 1):
        waiting()


def test_a_worker_says_what_it_computed_on(toy, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(provenance, "describe", lambda device: f"a machine's {device}")
    assert call(toy, tmp_path)[1]["device"] == "a machine's cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # there, whatever the machine has that asks
    assert call(toy, tmp_path, device=("auto", "real"))[1]["device"] == "a machine's cuda"
