"""The program on a real experiment, in processes of its own: stopped, killed or gone on elsewhere, the same bytes."""

import contextlib
import io
import os
import re
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest
import yaml

from lib import base
from lib.base import BadInput
from lib.companion.sweep import program as sweep
from lib.companion.sweep import provenance
from lib.companion.sweep.context import Context


def test_a_real_sweep_stopped_and_gone_on_elsewhere_ends_with_the_same_bytes(
    tmp_path: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    task = {"data": "digits", "network": "small_lenet", "seeds": 2, "control_seeds": 0}
    task |= {"training": {"epochs": 1, "batch": 256, "learning_rate": 0.1}}
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump({"real": {"two_four_workflow": {"tasks": [task]}}}))

    def run(folder: str, *more: str) -> Path:
        words = ["two_four_workflow", "--scale", "real", "--jobs", "1", "--device", "cpu", "--params", str(params)]
        sweep.main([*words, "--results", str(tmp_path / folder), "--store", str(tmp_path / folder / "store"), *more])
        return tmp_path / folder / "real" / "runs" / "two_four_workflow.csv"

    whole = run("whole")
    units, on_progress = [], Context.report_progress

    def late(context: Context, label: str) -> None:
        units.append(label)
        clock.now += 1e6 * (len(units) == 5)
        on_progress(context, label)

    monkeypatch.setattr(Context, "report_progress", late)
    part = run("part", "--budget", "1h")
    assert len(units) == 5  # of 6: three sessions of one epoch, two seeds
    assert 0 < len(pd.read_csv(part)) < len(pd.read_csv(whole))
    moved = tmp_path / "moved.csv"
    part.rename(moved)
    provenance.beside(part).rename(provenance.beside(moved))
    assert run("elsewhere", "--resume-from", str(moved)).read_bytes() == whole.read_bytes()
    assert len(units) == 5 + 3
    assert run("part", "--budget", "1h").read_bytes() == whole.read_bytes()


def test_a_real_configuration_that_diverges_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture):
    task = {"data": "digits", "network": "small_lenet", "seeds": 1, "control_seeds": 0}
    training = {"epochs": 1, "batch": 256, "learning_rate": 0.1}
    absurd = task | {"network": "small_resnet", "training": training | {"learning_rate": 1e30}}
    params = tmp_path / "params.yaml"
    tasks = [absurd, task | {"training": training}]
    params.write_text(yaml.safe_dump({"real": {"two_four_workflow": {"tasks": tasks}}}))
    words = ["two_four_workflow", "--scale", "real", "--jobs", "1", "--device", "cpu", "--params", str(params)]
    with pytest.raises(SystemExit) as stop:
        sweep.main([*words, "--results", str(tmp_path), "--store", str(tmp_path / "store")])
    assert stop.value.code == 2
    line = capsys.readouterr().err.strip().split("\n")[-1]
    assert line.startswith(
        "lib.sweep: 1 of 2 configurations failed, 1 are finished and kept; the first: FloatingPointError: the loss is"
    )
    assert "FloatingPointError: the loss is " in Path(line.split()[-1]).read_text()
    assert len(list((tmp_path / "store").rglob("*.json"))) == 1
    (csv,) = (tmp_path / "real").rglob("*.csv")  # what is finished is found again when the sources have been mended
    assert set(pd.read_csv(csv).network) == {"small_lenet"}
    assert yaml.safe_load(csv.with_suffix(".provenance.yaml").read_text())["configurations"] == "1 of 2"


class Killable:
    """The program started again and again, each time in a process group of its own."""

    def __init__(self, program):
        self.program, self.groups = program, []

    def start(self) -> subprocess.Popen:
        words = self.program.words("--jobs", "2")
        started = subprocess.Popen(words, cwd=base.ROOT, start_new_session=True, stderr=subprocess.PIPE, text=True)
        self.groups.append(started.pid)
        return started

    def until(self, started: subprocess.Popen, reached: Callable[[], bool]) -> None:
        while not reached():
            assert started.poll() is None, started.stderr.read()
            time.sleep(0.01)

    def entries(self) -> int:
        return len(list(self.program.store.glob("*.json")))

    def progress(self) -> dict[Path, int]:
        """When each configuration has last said how far it is."""
        said = {}
        for path in self.program.store.glob("*/progress"):
            with contextlib.suppress(FileNotFoundError):  # it has just finished
                said[path] = path.stat().st_mtime_ns
        return said


@pytest.fixture
def killable(program) -> Iterator[Killable]:
    killable = Killable(program)
    # a shell that starts the tests in the background has them ignore Ctrl-C, and the sweep would inherit that
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield killable
    signal.signal(signal.SIGINT, before)
    for group in killable.groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def workers(started: subprocess.Popen) -> list[psutil.Process]:
    return [child for child in psutil.Process(started.pid).children() if "LokyProcess" in " ".join(child.cmdline())]


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_killed_at_several_moments_a_sweep_ends_with_the_bytes_of_an_undisturbed_one(
    killable: Killable, undisturbed: bytes
):
    # SIGKILL to all its processes, in the middle of the first configurations
    started = killable.start()
    killable.until(started, lambda: len(killable.progress()) > 0)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert killable.entries() == 0

    # SIGKILL to the main process alone, after the first configuration; its workers are frozen in their work
    started = killable.start()
    killable.until(started, lambda: killable.entries() > 0)
    orphans = workers(started)
    assert len(orphans) == 2
    for orphan in orphans:
        orphan.suspend()
    started.kill()
    started.wait()

    # the orphans wake up beside the workers of the next sweep, end by themselves and disturb nothing; then Ctrl-C. The
    # workers are frozen meanwhile, or a fast machine would be done before
    frozen = killable.progress()
    started = killable.start()
    killable.until(started, lambda: killable.progress() != frozen)
    os.killpg(started.pid, signal.SIGSTOP)  # all at once: looking for the workers first would give them time to finish
    busy = workers(started)
    main = psutil.Process(started.pid)
    for process in [main, *main.children(recursive=True)]:
        if process not in busy:
            process.resume()
    for orphan in orphans:
        orphan.resume()
    killable.until(started, lambda: all(ended(orphan) for orphan in orphans))
    os.killpg(started.pid, signal.SIGINT)
    for worker in busy:
        worker.resume()
    said = started.communicate()[1].replace("\r", "\n").split("\n")
    assert started.returncode == 130
    assert [line for line in said if line and not re.search("unit/s|s/unit", line)] == [
        "lib.sweep: stopped; what is finished is kept, the same command goes on"
    ]
    assert not killable.program.csv.exists()

    done = killable.program.run("--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert killable.program.csv.read_bytes() == undisturbed
    assert not killable.program.store.exists()


def test_an_undisturbed_sweep_has_every_row_of_its_grid(undisturbed: bytes):
    table = pd.read_csv(io.BytesIO(undisturbed))
    index = ["data", "network", "variant", "seed", "epoch"]
    assert table[index].to_numpy().tolist() == table[index].sort_values(index).to_numpy().tolist()
    counts = table.groupby("variant").size()
    # two epochs of each session and one row of pruned for each of 4 seeds; controls for two of the seeds
    everyone = ["dense", "dense_twice", "pruned", "retrained"]
    assert counts[everyone].tolist() == [8, 8, 4, 8]
    assert set(counts.drop(everyone)) == {4}


def test_quick_results_are_computed_on_the_processor(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert [sweep.choose_device("auto", scale) for scale in ("quick", "real")] == ["cpu", "cuda"]
    with pytest.raises(BadInput, match="--device cuda: quick results are the same everywhere"):
        sweep.choose_device("cuda", "quick")


def test_of_an_error_of_several_lines_the_first_is_said():
    try:
        raise ValueError("a\n\n  b\n")
    except ValueError:
        report = traceback.format_exc()
    assert sweep.error_of(f"{{}}\n\n{report}") == "ValueError: a"
    assert sweep.error_of("a worker died\n") == "a worker died"
