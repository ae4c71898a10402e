"""A toy experiment that runs in this process, and a small real one that runs as a program."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import yaml

from lib import base
from lib.companion.sweep import context as surroundings
from lib.companion.sweep import grid
from lib.companion.sweep import program as sweep
from lib.companion.sweep.context import Context


@dataclass(frozen=True)
class Settings:
    names: tuple[str, ...]
    steps: int = 3


@dataclass
class Toy:
    """Steps of work that leave a trace.

    Attributes:
        params: the settings of the experiment "toy" at the quick and the real scale.
        steps: what was really computed, in order: (name, step).
        before: called before each step, with its name and number.
    """

    params: Path
    steps: list[tuple[str, int]]
    before: Callable[[str, int], None] = lambda name, step: None

    def run(self, configuration: dict, context: Context) -> list[dict]:
        """A row a step; value is a third of what the checkpoint has summed up."""
        state = context.folder / "state.json"
        rows = json.loads(state.read_text()) if state.exists() else []
        for _ in rows:
            context.report_progress("going on")
        for step in range(len(rows), configuration["steps"]):
            self.before(configuration["name"], step)
            self.steps.append((configuration["name"], step))
            value = (rows[-1]["value"] if rows else 0) + (step + 1) / 3
            rows.append({"value": value, "step": step, "name": configuration["name"]})
            context.folder.mkdir(parents=True, exist_ok=True)
            state.write_text(json.dumps(rows))
            context.report_progress("working")
        return rows


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Toy]:
    """The toy as an experiment of the project, with this process set back afterwards."""
    work = Toy(tmp_path / "params.yaml", [])
    block = {"toy": {"names": ["d", "b", "a", "c"]}}
    work.params.write_text(yaml.safe_dump({"quick": block, "real": block}))
    module = ModuleType("lib.experiments.toy")
    module.Settings, module.KEYS, module.INDEX, module.COLUMNS = (
        Settings, ("name",), ("name", "step"), ("name", "step", "value"),
    )  # fmt: skip
    module.configurations = lambda settings: [{"name": name, "steps": settings.steps} for name in settings.names]
    module.units = lambda configuration: configuration["steps"]
    module.run = lambda configuration, context: work.run(configuration, context)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(grid, "names", lambda: ["other", "toy"])
    monkeypatch.setattr(
        grid, "module_of", lambda name, known=grid.module_of: module.__name__ if name == "toy" else known(name)
    )
    monkeypatch.setattr(grid, "imported_hash", lambda name: "0123456789abcdef" * 4)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    environment, threads = dict(os.environ), torch.get_num_threads()
    yield work
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(threads)


BAR = re.compile(r"unit/s|s/unit")


class Sweep:
    """`lib.companion.sweep toy` in this process, one configuration after the other: d, b, a, c."""

    TABLE = "name,step,value\n" + "".join(
        f"{name},0,0.333333\n{name},1,1\n{name},2,2\n" for name in "abcd"
    )  # the sums of 1/3, 2/3 and 3/3

    def __init__(self, toy, capsys: pytest.CaptureFixture, folder: Path):
        self.toy, self.capsys, self.folder, self.err = toy, capsys, folder, ""

    def csv(self, scale: str = "quick") -> Path:
        return self.folder / "results" / scale / "runs" / "toy.csv"

    def store(self, scale: str = "quick") -> Path:
        return self.folder / "store" / scale / "toy"

    def __call__(self, *more: str, scale: str = "quick") -> int:
        """The exit status; what was said is kept in out and, less the bar, in err."""
        words = ["toy", "--scale", scale, "--jobs", "1", "--params", str(self.toy.params)]
        words += ["--results", str(self.folder / "results"), "--store", str(self.folder / "store"), *more]
        self.toy.steps.clear()
        status = 0
        try:
            sweep.main(words)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
            print(stop.code if isinstance(stop.code, str) else "", end="", file=sys.stderr)
        self.out, self.err = self.capsys.readouterr()
        self.err = "\n".join(line for line in self.err.replace("\r", "\n").split("\n") if line and not BAR.search(line))
        return status

    @staticmethod
    def fail_at(*names: str) -> Callable[[str, int], None]:
        def before(name: str, step: int) -> None:
            if name in names and step == 1:
                raise FloatingPointError(f"{name} diverged")

        return before

    @staticmethod
    def interrupt_at(where: tuple[str, int]) -> Callable[[str, int], None]:
        def before(name: str, step: int) -> None:
            if (name, step) == where:
                raise KeyboardInterrupt

        return before

    @staticmethod
    def over_at(clock: SimpleNamespace, where: tuple[str, int]) -> Callable[[str, int], None]:
        def before(name: str, step: int) -> None:
            if (name, step) == where:
                clock.now += 1e6

        return before


@pytest.fixture
def toys(toy, capsys: pytest.CaptureFixture, tmp_path: Path) -> Sweep:
    return Sweep(toy, capsys, tmp_path)


TASK = {"data": "digits", "network": "small_lenet", "seeds": 4, "control_seeds": 2}
TRAINING = {"epochs": 2, "batch": 64, "learning_rate": 0.1}


@dataclass
class Program:
    """`python -m lib.sweep two_four_workflow` on a small real grid, in a folder of its own."""

    folder: Path

    @property
    def csv(self) -> Path:
        return self.folder / "results" / "quick" / "runs" / "two_four_workflow.csv"

    @property
    def store(self) -> Path:
        return self.folder / "store" / "quick" / "two_four_workflow"

    def words(self, *more: str) -> list[str]:
        params = self.folder / "params.yaml"
        params.write_text(yaml.safe_dump({"quick": {"two_four_workflow": {"tasks": [TASK | {"training": TRAINING}]}}}))
        places = ["--params", params, "--results", self.folder / "results", "--store", self.folder / "store"]
        return [sys.executable, "-m", "lib.sweep", "two_four_workflow", *map(str, places), *more]

    def run(self, *more: str) -> subprocess.CompletedProcess:
        return subprocess.run(self.words(*more), cwd=base.ROOT, capture_output=True, text=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that budgets are told by; it hardly passes, `now` moves it."""
    clock = SimpleNamespace(now=1000.0)

    def told_time() -> float:
        clock.now += 1e-6
        return clock.now

    told = SimpleNamespace(time=told_time, monotonic=told_time)
    monkeypatch.setattr(surroundings, "time", told)
    monkeypatch.setattr(sweep, "time", told)
    return clock


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The CSV of the small grid, in one go and in one process."""
    program = Program(tmp_path_factory.mktemp("undisturbed"))
    done = program.run("--jobs", "1")
    assert done.returncode == 0, done.stderr
    return program.csv.read_bytes()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
