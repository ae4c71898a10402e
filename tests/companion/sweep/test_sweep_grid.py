"""An experiment at a scale: which configurations, under which keys, in which order, and one of them run."""

import os
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from lib.base import BadInput
from lib.companion.sweep import grid as grids
from lib.companion.sweep.context import Context
from lib.companion.sweep.grid import grid, key, run_one
from lib.companion.sweep.portable import SETTINGS


def refused(toy, scale: str, text: str) -> str:
    toy.params.write_text(text)
    with pytest.raises(BadInput) as error:
        grid("toy", scale, toy.params)
    return str(error.value)


def test_a_grid_has_a_key_for_each_configuration_of_its_scale(toy):
    toy.params.write_text("quick: {toy: {names: [a, b]}}\nreal: {toy: {names: [a], steps: 9}}")
    work = grid("toy", "quick", toy.params)
    assert list(work.configurations.values()) == [{"name": "a", "steps": 3}, {"name": "b", "steps": 3}]
    assert len(work.configurations) == 2
    assert list(grid("toy", "real", toy.params).configurations.values()) == [{"name": "a", "steps": 9}]


def test_a_key_stands_for_settings_and_sources_and_not_for_their_order():
    one = key({"a": 1, "b": {"c": 2, "d": 3}}, "hash")
    assert key({"b": {"d": 3, "c": 2}, "a": 1}, "hash") == one
    others = {key({"a": 2, "b": {"c": 2, "d": 3}}, "hash"), key({"a": 1, "b": {"c": 2, "d": 4}}, "hash")}
    assert len({one, key({"a": 1, "b": {"c": 2, "d": 3}}, "hush")} | others) == 4


@pytest.mark.parametrize(
    ("scale", "text", "line"),
    [
        ("paper", "quick: {toy: {names: [a]}}", "no scale 'paper' in params.yaml; there are: quick"),
        ("quick", "quick: {other: {}}", "params.yaml: scale quick has no 'toy'; it has: other"),
        ("quick", "quick: {toy: {names: [a], stesp: 3}}", "quick.toy: unknown setting 'stesp'; known are names, steps"),
        ("quick", "quick: {toy: {names: [a, b, a]}}", "quick.toy: two configurations share the same name"),
    ],
)
def test_settings_that_lay_out_no_grid_are_refused(toy, scale: str, text: str, line: str):
    assert refused(toy, scale, text) == line


def test_two_configurations_that_differ_but_share_their_keys_are_refused(toy, monkeypatch: pytest.MonkeyPatch):
    experiment = grid("toy", "quick", toy.params).experiment
    monkeypatch.setattr(experiment, "configurations", lambda s: [{"name": "a", "steps": n} for n in (1, 2)])
    with pytest.raises(BadInput, match="two configurations share the same name"):
        grid("toy", "quick", toy.params)


def test_an_unknown_experiment_is_refused_with_those_there_are(toy):
    with pytest.raises(BadInput, match=r"^no experiment 'tyo'; there are: other, toy \(a file lib/papers/"):
        grid("tyo", "quick", toy.params)


def test_the_projects_experiments_are_the_modules_of_its_folder():
    assert "two_four_workflow" in grids.names()
    assert "__init__" not in grids.names()


def test_a_table_is_the_same_whatever_order_the_rows_come_in(toy):
    work = grid("toy", "quick", toy.params)
    rows = [{"name": n, "value": v, "step": s} for n, s, v in (("b", 10, 1.0), ("a", 2, 2.0), ("b", 9, 3.0))]
    expected = [["a", 2, 2.0], ["b", 9, 3.0], ["b", 10, 1.0]]
    for order in (rows, rows[::-1], [rows[1], rows[0], rows[2]]):
        assert work.table(order).to_numpy().tolist() == expected
    assert list(work.table([]).columns) == ["name", "step", "value"]


def test_two_rows_for_the_same_place_are_refused(toy):
    row = {"name": "a", "step": 1, "value": 1.0}
    with pytest.raises(BadInput, match=r"toy gives two rows for \{'name': 'a', 'step': 1\}"):
        grid("toy", "quick", toy.params).table([row, row | {"value": 2.0}])


CONFIGURATION = {"name": "a", "steps": 2}


def test_a_run_that_ends_gives_its_rows(toy, tmp_path: Path):
    outcome = run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k"))
    assert (outcome["status"], outcome["traceback"]) == ("finished", "")
    assert [row["step"] for row in outcome["rows"]] == [0, 1]
    assert outcome["seconds"] > 0


def test_a_run_that_fails_gives_its_traceback(toy, tmp_path: Path):
    toy.before = lambda name, step: 1 / step
    outcome = run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k"))
    assert (outcome["status"], outcome["rows"]) == ("failed", [])
    assert "ZeroDivisionError: division by zero" in outcome["traceback"]
    assert "in run" in outcome["traceback"]


def test_a_run_uses_one_thread_whatever_the_process_had(toy, tmp_path: Path):
    torch.set_num_threads(2)
    seen = []
    toy.before = lambda name, step: seen.append(torch.get_num_threads())
    run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k"))
    assert seen == [1, 1]


def test_a_run_stops_between_two_steps_when_its_time_is_over_and_goes_on_from_there(toy, tmp_path: Path):
    context = Context(folder=tmp_path / "k", deadline=time.time() + 1e6)

    def over(name: str, step: int) -> None:
        context.deadline = time.time() - 1

    toy.before = over
    assert run_one("toy", CONFIGURATION, context)["status"] == "stopped"
    assert toy.steps == [("a", 0)]
    toy.before = lambda name, step: None
    assert run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k"))["status"] == "finished"
    assert toy.steps == [("a", 0), ("a", 1)]


def test_a_run_whose_time_is_over_does_not_begin(toy, tmp_path: Path):
    outcome = run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k", deadline=time.time() - 1))
    assert (outcome["status"], toy.steps) == ("stopped", [])


def test_a_run_nobody_waits_for_does_not_begin(toy, tmp_path: Path):
    gone = max(os.getpid(), os.getppid()) + 1
    assert Context(owner=gone).orphan()
    assert run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k", owner=gone))["status"] == "stopped"
    assert toy.steps == []


def test_a_run_has_an_owner_in_its_own_process_its_parent_or_nobody(toy, tmp_path: Path):
    owners = (os.getpid(), os.getppid(), None)
    assert [Context(owner=owner).orphan() for owner in owners] == [False] * 3
    # so a sweep in one process goes on when the shell that started it is closed
    found = [run_one("toy", CONFIGURATION, Context(folder=tmp_path / str(o), owner=o))["status"] for o in owners]
    assert found == ["finished"] * 3


def test_a_worker_with_other_sources_computes_nothing(toy, tmp_path: Path):
    outcome = run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k"), source_hash="another")
    assert (outcome["status"], toy.steps) == ("failed", [])
    assert "this worker has other ones: start it anew" in outcome["traceback"]
    mine = grids.imported_hash("toy")
    assert run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k"), source_hash=mine)["status"] == "finished"


def test_a_worker_that_computed_otherwise_before_computes_nothing(toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    outcome = run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k"), environment=SETTINGS)
    assert (outcome["status"], toy.steps) == ("failed", [])
    assert "has computed with AVX-512 before" in outcome["traceback"]
    assert (
        run_one("toy", CONFIGURATION, Context(folder=tmp_path / "k"))["status"] == "finished"
    )  # nobody asked for AVX2


def test_two_runs_in_one_process_take_turns(toy, tmp_path: Path):
    inside, most = [], []

    def crowd(name: str, step: int) -> None:
        inside.append(name)
        most.append(len(set(inside)))
        time.sleep(0.02)
        inside.remove(name)

    toy.before = crowd
    contexts = {name: Context(folder=tmp_path / name) for name in "abc"}
    threads = [
        threading.Thread(target=run_one, args=("toy", {"name": name, "steps": 3}, context))
        for name, context in contexts.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(toy.steps) == 9
    assert most == [1] * 9


def test_the_hash_of_an_experiment_is_that_of_its_closure():
    from lib.companion.sweep import imports

    closure = imports.closure("lib.papers.two_four.experiments.two_four_workflow")
    assert grids.imported_hash("two_four_workflow") == imports.fingerprint(closure)


def minimal(toy, *names: str, **more) -> None:
    """The toy's module without these names, and with others."""
    module = sys.modules["lib.experiments.toy"]
    for name in names:
        delattr(module, name)
    for name, value in more.items():
        setattr(module, name, value)


def test_an_experiment_needs_only_settings_configurations_run_and_columns(toy):
    minimal(toy, "KEYS", "INDEX", "units")
    work = grid("toy", "quick", toy.params)
    assert (work.keys, work.index) == (("name",), ("name", "step"))
    assert [work.units(one) for one in work.configurations.values()] == [1] * 4
    rows = [
        row
        for one in "ba"
        for row in run_one("toy", {"name": one, "steps": 2}, Context(folder=toy.params.parent / one))["rows"]
    ]
    assert work.table(rows)[["name", "step"]].to_numpy().tolist() == [["a", 0], ["a", 1], ["b", 0], ["b", 1]]


@pytest.mark.parametrize("name", grids.names())
def test_the_projects_experiments_tell_configurations_apart_by_columns(name: str):
    module = grids.load(name)
    assert set(grids.index_of(module, ())) >= set(module.KEYS)
    assert set(module.COLUMNS) >= set(module.INDEX)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("Settings", "the experiment toy has no Settings: a dataclass of what params.yaml sets"),
        ("configurations", "the experiment toy has no configurations: configurations(settings) lists what is run, "),
        (
            "run",
            "the experiment toy has no run: run(configuration, context) gives the rows of one configuration, a dict",
        ),
        ("COLUMNS", "the experiment toy has no COLUMNS: a tuple of the names of a row's values"),
    ],
)
def test_what_an_experiment_lacks_is_said_in_one_line(toy, name: str, line: str):
    minimal(toy, name)
    with pytest.raises(BadInput) as error:
        grid("toy", "quick", toy.params)
    assert str(error.value).startswith(line)


def test_columns_that_are_one_text_or_tell_nothing_apart_are_refused(toy):
    minimal(toy, "KEYS", COLUMNS="value")
    with pytest.raises(BadInput, match=r"^COLUMNS of the experiment toy is one text: expected a tuple of names, \('va"):
        grid("toy", "quick", toy.params)
    minimal(toy, COLUMNS=("value",))
    with pytest.raises(
        BadInput, match=r"^toy: COLUMNS has nothing that tells its configurations apart; .* name, steps$"
    ):
        grid("toy", "quick", toy.params)


def test_rows_that_a_derived_index_does_not_tell_apart_name_the_remedy(toy):
    minimal(toy, "KEYS", "INDEX", COLUMNS=("name", "value"))
    with pytest.raises(BadInput, match=r"two rows for \{'name': 'a'\}; INDEX = \(\.\.\.\) would name what tells them"):
        grid("toy", "quick", toy.params).table([{"name": "a", "value": 1}, {"name": "a", "value": 2}])


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (None, "run gives None: expected a list of dictionaries, one a row"),
        ([1], "run gives a list: expected a list of dictionaries, one a row"),
        ([{"name": "a", "step": 1}], "run gives a row without 'value', which is one of COLUMNS; it has name, step"),
        (
            [{"name": "a", "step": 1, "value": 1}, {"name": "a", "value": 1}],
            "run gives a row without 'step', which is one of COLUMNS; it has name, value",
        ),
        ([], "run gives no rows: expected one or more for each configuration"),
        (
            [{"name": "a", "step": 1, "value": [1, 2]}],
            "run gives value=[1, 2], a list: expected texts and plain numbers; float(...) makes one",
        ),
    ],
)
@pytest.mark.parametrize("given", ["as it is", "derived"])
def test_rows_that_are_no_table_fail_with_one_line(toy, rows, line: str, given: str):
    minimal(toy, *(["KEYS", "INDEX"] if given == "derived" else []), run=lambda configuration, context: rows)
    outcome = run_one("toy", {"name": "a", "steps": 2}, Context())
    assert outcome["status"] == "failed"
    assert outcome["traceback"].rstrip().endswith(f"BadInput: {line}")


@pytest.mark.parametrize("values", [[64, "64x64"], [True, "yes"], [0.5, "half"]])
def test_a_key_of_numbers_and_texts_is_refused_because_a_file_would_make_texts_of_all(toy, values):
    minimal(toy, configurations=lambda settings: [{"name": value, "steps": 2} for value in values])
    with pytest.raises(BadInput, match="would be another in a run file"):
        grid("toy", "quick", toy.params)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({"name": "b", "step": 1, "value": 1}, "run gives rows of name 'b': the configuration has 'a'"),
        ({"name": "a", "step": 1, "value": "NA"}, "run gives value='NA', which a run file gives back as a number or"),
        ({"name": "a", "step": 1, "value": "007"}, "run gives value='007', which a run file gives back as a number or"),
    ],
)
def test_rows_that_a_run_file_would_not_give_back_fail(toy, row, line: str):
    minimal(toy, run=lambda configuration, context: [row])
    outcome = run_one("toy", {"name": "a", "steps": 2}, Context())
    assert (outcome["status"], line in outcome["traceback"]) == ("failed", True)
