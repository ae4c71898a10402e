"""The program in this process, on a toy: whatever happens to a sweep, the same command goes on to the same bytes."""

import importlib
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from joblib.externals.loky.process_executor import TerminatedWorkerError

from lib.base import BadInput
from lib.companion.sweep import portable, provenance
from lib.companion.sweep import program as sweep
from lib.companion.sweep.backend import backend
from lib.companion.sweep.grid import grid, key
from lib.companion.sweep.store import Store

ALL = [(name, step) for name in "dbac" for step in range(3)]


def test_a_sweep_writes_a_sorted_table_in_a_fixed_format_and_empties_its_store(toys):
    assert toys() == 0
    assert toys.csv().read_text() == toys.TABLE
    assert toys.toy.steps == ALL
    assert not toys.store().exists()
    assert toys.out.endswith("toy.csv: all 4 configurations\n")
    assert not provenance.beside(toys.csv()).exists()  # quick results are gated


def test_a_forced_run_trains_again(toys):
    toys()
    toys()
    assert toys.toy.steps == ALL
    assert toys.csv().read_text() == toys.TABLE


def test_quick_computes_portably_and_other_scales_as_the_machine_can(toys, monkeypatch: pytest.MonkeyPatch):
    asked = []
    monkeypatch.setattr(portable, "prepare", asked.append)
    for scale in ("real", "quick"):
        toys(scale=scale)
    assert asked == [{}] * 4 + [portable.SETTINGS] * 4  # four configurations each


def test_a_failing_configuration_leaves_the_others_finished_and_its_traceback(toys):
    toys.toy.before = toys.fail_at("b", "a")
    assert toys() == 2
    assert [step for step in toys.toy.steps if step[0] in "dc"] == [step for step in ALL if step[0] in "dc"]
    assert re.search(
        r"\nlib\.sweep: 2 of 4 configurations failed, 2 are finished and kept; "
        r"the first: FloatingPointError: . diverged; its traceback is in (\S+)",
        toys.err,
    )
    assert "toy: a configuration failed, others go on: FloatingPointError: " in toys.err  # at once, not in the end
    kept = Path(toys.err.split()[-1]).read_text()
    assert '"name": "b"' in kept
    assert "FloatingPointError: b diverged" in kept
    assert len(list(toys.store().glob("*.failed.txt"))) == 2
    assert len(list(toys.store().glob("*.json"))) == 2
    assert not toys.csv().exists()
    toys.toy.before = lambda name, step: None  # mended
    assert toys() == 0
    assert toys.toy.steps == [("b", 1), ("b", 2), ("a", 1), ("a", 2)]  # each from where it was
    assert toys.csv().read_text() == toys.TABLE


def test_while_a_real_sweep_goes_on_its_csv_has_what_is_finished(toys, monkeypatch: pytest.MonkeyPatch):
    """The store's names change with the sources, so of a sweep that was killed only the CSV is found then."""
    seen = []
    toys.toy.before = lambda name, step: seen.append(toys.csv("real").exists() and toys.csv("real").read_text())
    monkeypatch.setattr(sweep, "KEEP_SECONDS", 0)
    assert toys(scale="real") == 0
    assert not any(seen[:3])  # within the first of four configurations
    assert [text.count("\n") for text in seen[3::3]] == [4, 7, 10]  # a line of names, and three a configuration
    assert toys.csv("real").read_text() == toys.TABLE


def test_a_failing_run_leaves_the_csv_of_an_earlier_one(toys):
    toys()
    toys.toy.before = toys.fail_at("c")
    assert toys() == 2
    assert toys.csv().read_text() == toys.TABLE


def test_a_damaged_entry_is_named_and_computed_again(toys):
    toys.toy.before = toys.fail_at("c")
    toys()
    damaged = sorted(toys.store().glob("*.json"))[0]
    name = Store(toys.store()).finished([damaged.stem])[damaged.stem]["configuration"]["name"]
    damaged.write_text(damaged.read_text()[:-5])
    toys.toy.before = lambda name, step: None
    assert toys() == 0
    assert toys.err.startswith(f"{damaged.name} is damaged (")
    assert {step[0] for step in toys.toy.steps} == {name, "c"}
    assert toys.csv().read_text() == toys.TABLE


def test_changed_settings_are_computed_anew(toys):
    toys.toy.before = toys.fail_at("c")
    toys()
    toys.toy.before = lambda name, step: None
    toys.toy.params.write_text("quick: {toy: {names: [d, b, a, c], steps: 2}}")
    assert toys() == 0
    assert len(toys.toy.steps) == 8


def test_a_quick_csv_follows_its_settings_when_all_of_them_are_finished(toys, clock: SimpleNamespace):
    toys()
    toys.toy.params.write_text("quick: {toy: {names: [e, f, g, h, i]}}")
    toys.toy.before = toys.over_at(clock, ("i", 0))
    assert toys("--budget", "25m") == 2
    assert toys.err.endswith("stays as it is: only 4 of 5 are finished in this sweep; the same command goes on")
    assert toys.csv().read_text() == toys.TABLE
    assert toys() == 0
    assert {line[0] for line in toys.csv().read_text().splitlines()[1:]} == set("efghi")


@pytest.mark.parametrize("where", [("d", 0), ("b", 0), ("b", 2), ("c", 2)])
def test_a_keyboard_interrupt_says_one_line_and_the_sweep_goes_on(toys, where: tuple[str, int]):
    toys.toy.before = toys.interrupt_at(where)
    assert toys() == 130
    assert toys.err == "lib.sweep: stopped; what is finished is kept, the same command goes on"
    assert not toys.csv().exists()
    done = list(toys.toy.steps)
    toys.toy.before = lambda name, step: None
    assert toys() == 0
    assert done + toys.toy.steps == ALL  # nothing twice
    assert toys.csv().read_text() == toys.TABLE


def test_the_csv_is_there_whole_before_the_store_is_emptied(toys, monkeypatch: pytest.MonkeyPatch):
    def killed(store: Store) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Store, "empty", killed)
        assert toys() == 130
    assert toys.csv().read_text() == toys.TABLE
    assert toys() == 0
    assert toys.toy.steps == []  # everything was in the store
    assert toys.csv().read_text() == toys.TABLE
    assert not toys.store().exists()


def test_a_budget_stops_in_the_middle_says_so_and_the_same_command_goes_on(toys, clock: SimpleNamespace):
    toys.toy.before = toys.over_at(clock, ("a", 1))
    assert toys("--budget", "25m") == 0
    assert "toy.csv: 2 of 4 configurations, the time is over; the same command goes on" in toys.out
    partial = [line for line in toys.TABLE.splitlines(keepends=True) if line[0] in "nbd"]
    assert toys.csv().read_text() == "".join(partial)
    about = yaml.safe_load(provenance.beside(toys.csv()).read_text())
    assert about["configurations"] == "2 of 4"
    assert about["parts"][0]["finished"] == sorted(path.stem for path in toys.store().glob("*.json"))
    first = list(toys.toy.steps)
    assert first[-1] == ("a", 1)  # stopped after the step at which the time was over
    toys.toy.before = lambda name, step: None
    assert toys("--budget", "25m") == 0
    assert first + toys.toy.steps == ALL
    assert toys.csv().read_text() == toys.TABLE
    assert not provenance.beside(toys.csv()).exists()


def test_a_budget_that_is_over_at_once_writes_an_empty_table(toys, clock: SimpleNamespace):
    toys.toy.before = toys.over_at(clock, ("d", 0))
    assert toys("--budget", "1s") == 0
    assert toys.csv().read_text() == "name,step,value\n"


@pytest.mark.parametrize(("budget", "expected"), [("90s", 90.0), ("25m", 1500.0), ("2h", 7200.0), ("0.5h", 1800.0)])
def test_a_budget_is_a_number_and_a_unit(budget: str, expected: float):
    assert sweep.seconds(budget) == expected


def partial(toys, clock: SimpleNamespace) -> Path:
    """A partial CSV of the real scale with its provenance, moved away from everything that made it."""
    toys.toy.before = toys.over_at(clock, ("a", 1))
    toys("--budget", "25m", scale="real")
    toys.toy.before = lambda name, step: None
    away = toys.folder / "away" / "toy.csv"
    away.parent.mkdir()
    toys.csv("real").rename(away)
    provenance.beside(toys.csv("real")).rename(provenance.beside(away))
    Store(toys.store("real")).empty()
    return away


def changed(away: Path, **change) -> None:
    """Another part than the one that is there; its configurations keep the keys they have under its sources."""
    about = yaml.safe_load(provenance.beside(away).read_text())
    about["parts"][0] |= change
    provenance.beside(away).write_text(yaml.safe_dump(about))


def test_a_sweep_goes_on_from_a_partial_csv_on_another_machine(toys, clock: SimpleNamespace):
    away = partial(toys, clock)
    changed(away, seconds=7200, device="another processor")
    assert toys("--resume-from", str(away), scale="real") == 0
    assert toys.toy.steps == [step for step in ALL if step[0] in "ac"]
    assert toys.csv("real").read_text() == toys.TABLE
    about = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())
    assert about["configurations"] == "4 of 4"
    there, here = about["parts"]
    assert (there["device"], there["seconds"], len(there["finished"])) == ("another processor", 7200, 2)
    assert (here["device"], here["seconds"] < 7200, len(here["finished"])) == (provenance.describe("cpu"), True, 2)


def test_what_other_sources_computed_is_a_part_of_its_own_where_it_is_asked_for(toys, clock: SimpleNamespace):
    away, other = partial(toys, clock), "f" * 64
    configurations = grid("toy", "real", toys.toy.params).configurations.values()
    old = [key(configuration, other) for configuration in configurations if configuration["name"] in "bd"]
    changed(away, source_hash=other, commit="abc123", finished=sorted(old))
    assert toys("--resume-from", str(away), "--other-sources", scale="real") == 0
    assert toys.toy.steps == [step for step in ALL if step[0] in "ac"]
    assert toys.csv("real").read_text() == toys.TABLE
    there, here = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())["parts"]
    assert (there["commit"], there["source_hash"], there["finished"]) == ("abc123", other, sorted(old))
    assert here["source_hash"] != other
    # and from that file again: nothing is left to do, both parts are still told apart
    toys.csv("real").replace(away)
    provenance.beside(toys.csv("real")).replace(provenance.beside(away))
    toys.toy.steps.clear()
    assert toys("--resume-from", str(away), "--other-sources", scale="real") == 0
    assert toys.toy.steps == []
    assert yaml.safe_load(provenance.beside(toys.csv("real")).read_text())["parts"] == [there, here]


def test_other_sources_with_other_settings_are_computed_anew(toys, clock: SimpleNamespace):
    away = partial(toys, clock)
    changed(away, source_hash="f" * 64)  # under which the finished keys are of no configuration there is
    assert toys("--resume-from", str(away), "--other-sources", scale="real") == 0
    assert toys.toy.steps == ALL
    assert len(yaml.safe_load(provenance.beside(toys.csv("real")).read_text())["parts"]) == 1


def test_other_sources_are_of_a_file_to_go_on_from(toys):
    assert toys("--other-sources", scale="real") == 2
    assert toys.err == ("lib.sweep: --other-sources says what may be resumed from: it needs --resume-from FILE")


def test_provenance_says_where_numbers_come_from(toys):
    toys(scale="real")
    about = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())
    assert (about["experiment"], about["scale"], about["configurations"]) == ("toy", "real", "4 of 4")
    assert set(about) == {"experiment", "scale", "configurations", "sha256", "rows", "parts"}
    (part,) = about["parts"]
    assert set(part) == {
        "commit", "source_hash", "versions", "device", "processes", "threads_a_process", "seconds", "finished",
    }  # fmt: skip
    assert part["source_hash"] == "0123456789abcdef" * 4
    assert set(part["versions"]) == {"python", "torch", "numpy", "pandas"}
    assert (part["processes"], len(part["finished"])) == (1, 4)


def test_provenance_has_the_versions_of_the_libraries_that_an_experiment_names(toys, monkeypatch):
    monkeypatch.setattr(sys.modules["lib.experiments.toy"], "LIBRARIES", ("joblib", "no-such-package"), raising=False)
    toys(scale="real")
    (part,) = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())["parts"]
    assert set(part["versions"]) == {"python", "torch", "numpy", "pandas", "joblib"}


def test_provenance_names_the_processes_that_computed_not_those_of_the_command_that_writes(
    toys, clock: SimpleNamespace
):
    toys.toy.before = toys.over_at(clock, ("a", 1))
    toys("--budget", "25m", scale="real")
    for path in toys.store("real").glob("*.json"):  # as if two processes had made them
        store, entry = Store(path.parent), Store(path.parent).finished([path.stem])[path.stem]
        store.add(path.stem, entry["configuration"], entry, 2)
    toys("--budget", "0s", scale="real")
    (part,) = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())["parts"]
    assert (part["processes"], len(part["finished"])) == (2, 2)
    assert toys.toy.steps == []  # no time was given: what is finished is written, nothing more


REFUSED = {
    "other sources": (lambda away: changed(away, source_hash="f" * 64, commit="abc123"), "check out commit abc123"),
    "no provenance": (lambda away: provenance.beside(away).unlink(), "are both needed"),
    "no csv": (lambda away: away.unlink(), "are both needed"),
    "another csv": (lambda away: away.write_text("name\n"), "is not the file that toy.provenance.yaml describes"),
    "no yaml": (lambda away: provenance.beside(away).write_text("a: [\nb"), "toy.provenance.yaml, line 2 is not YAML"),
    "no mapping": (lambda away: provenance.beside(away).write_text(""), "toy.provenance.yaml is damaged"),
    "all lost": (lambda away: provenance.beside(away).write_text("source_hash: x\n"), "it lacks parts, sha256"),
    "a part lost": (
        lambda away: provenance.beside(away).write_text("sha256: x\nparts: [source_hash: y]\n"),
        "it lacks commit, finished, seconds",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_trusted_is_not_resumed_from(toys, clock: SimpleNamespace, case: str):
    spoil, why = REFUSED[case]
    away = partial(toys, clock)
    spoil(away)
    assert toys("--resume-from", str(away), scale="real") == 2
    assert toys.err.startswith("lib.sweep: cannot go on from ")
    assert why in toys.err
    assert "\n" not in toys.err
    assert toys.toy.steps == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--scale", "paper"], "no scale 'paper' in params.yaml; there are: quick, real"),
        (["--budget", "5"], "--budget 5: expected a number and a unit, such as 90s, 25m or 2h"),
        (["--jobs", "-1"], "--jobs -1: expected a number of processes, or 0 for one a core"),
        (["--device", "tpu"], "--device tpu: known are auto, cpu, cuda"),
        (["--params", "nowhere.yaml"], "nowhere.yaml does not exist; it would hold the settings of every experiment"),
        (["--scheduler", "foo:bar"], "no Dask scheduler answers at foo:bar; `dask scheduler` starts one"),
    ],
)
def test_what_cannot_be_done_as_asked_is_refused_in_one_line(toys, words: list[str], line: str):
    assert toys(*words) == 2
    assert toys.err == f"lib.sweep: {line}"
    assert toys.toy.steps == []


def test_an_unknown_experiment_is_refused_in_one_line(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        sweep.main(["two_four_workflwo"])
    assert stop.value.code == 2
    assert re.fullmatch(
        r"lib\.sweep: no experiment 'two_four_workflwo'; there are: .*two_four_workflow.*\n", capsys.readouterr().err
    )


def test_provenance_names_the_commit_of_the_start(toys, monkeypatch: pytest.MonkeyPatch):
    """Whoever commits while a sweep runs for hours has not computed it with that commit."""
    head = ["at the start"]
    monkeypatch.setattr(provenance, "commit", lambda: head[0])
    toys.toy.before = lambda name, step: head.__setitem__(0, "meanwhile")
    toys(scale="real")
    (part,) = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())["parts"]
    assert part["commit"] == "at the start"


@pytest.mark.parametrize("name", ["sweep", "claims"])
def test_the_programs_explain_themselves(name: str, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        importlib.import_module(f"lib.companion.{name}.program").main(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: python -m lib.{name} ")
    assert "--scale" in said


def test_a_killed_worker_is_said_in_one_line():
    with pytest.raises(BadInput, match=r"^a worker .* was killed .*; what is finished"), backend(None, 2):
        raise TerminatedWorkerError("The exit codes of the workers are {SIGKILL(-9)}")


def test_the_seconds_of_a_stopped_session_are_not_forgotten(toys, clock: SimpleNamespace, monkeypatch):
    moments = iter(range(0, 10_000, 10))  # every look at the watch is ten seconds later
    monkeypatch.setattr(sys.modules[grid.__module__].time, "monotonic", lambda: next(moments))
    toys.toy.before = toys.over_at(clock, ("a", 1))
    toys("--budget", "25m", scale="real")
    toys.toy.before = lambda name, step: None
    toys(scale="real")
    (part,) = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())["parts"]
    assert part["seconds"] == 50  # four configurations, one of them in two sessions


def test_settings_without_a_configuration_are_refused(toys):
    toys()
    toys.toy.params.write_text("quick: {toy: {names: []}}")
    assert toys() == 2
    assert toys.err == "lib.sweep: quick.toy.names: expected at least one value, found []"
    assert toys.csv().read_text() == toys.TABLE
