"""What an earlier sweep has computed is taken over: from several files, from renamed settings, from fewer columns."""

import hashlib
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from joblib.externals.loky.process_executor import TerminatedWorkerError

from lib import base
from lib.base import BadInput
from lib.companion.sweep import grid as grids
from lib.companion.sweep import program as sweep
from lib.companion.sweep import provenance
from lib.companion.sweep.grid import grid, key
from lib.companion.sweep.order import LongestFirst
from lib.companion.sweep.store import Store

ALL = [(name, step) for name in "dbac" for step in range(3)]
OTHER = "f" * 64


def file(toys, folder: str, names: str, source: str = OTHER, form=lambda configuration: configuration) -> Path:
    """A CSV with these configurations and its provenance, as other sources would have written it."""
    csv = toys.folder / folder / "toy.csv"
    csv.parent.mkdir(parents=True)
    head, *lines = toys.TABLE.splitlines()
    csv.write_text("\n".join([head, *(line for line in lines if line[0] in names)]) + "\n")
    work = grid("toy", "real", toys.toy.params)
    finished = [key(form(one), source) for one in work.configurations.values() if one["name"] in names]
    part = {"commit": f"of {folder}", "source_hash": source, "device": "another", "seconds": 60, "finished": finished}
    describe(csv, part)
    return csv


def describe(csv: Path, *parts: dict) -> None:
    about = {"sha256": hashlib.sha256(csv.read_bytes()).hexdigest(), "parts": list(parts)}
    provenance.beside(csv).write_text(yaml.safe_dump(about))


def parts(csv: Path) -> list[dict]:
    return yaml.safe_load(provenance.beside(csv).read_text())["parts"]


def module() -> ModuleType:
    return sys.modules["lib.experiments.toy"]


def test_several_files_are_taken_together_and_their_parts_stay_apart(toys):
    one, two = file(toys, "one", "db"), file(toys, "two", "ba")
    words = ["--resume-from", str(one), str(two), "--other-sources"]
    assert toys(*words, scale="real") == 0
    assert {name for name, _ in toys.toy.steps} == {"c"}
    assert toys.csv("real").read_text() == toys.TABLE
    first, second, own = parts(toys.csv("real"))
    assert [first["commit"], second["commit"]] == ["of one", "of two"]
    assert [len(part["finished"]) for part in (first, second, own)] == [2, 1, 1]  # b is taken once
    assert (first["seconds"], second["seconds"]) == (60, 30)


def test_a_real_sweep_takes_by_itself_what_its_csv_has_and_trains_what_is_missing(toys):
    assert file(toys, "results/real/runs", "dbc") == toys.csv("real")
    assert toys(scale="real") == 0
    assert {name for name, _ in toys.toy.steps} == {"a"}
    assert toys.csv("real").read_text() == toys.TABLE
    before = provenance.beside(toys.csv("real")).read_bytes()
    assert toys(scale="real") == 0
    assert toys.toy.steps == []
    assert toys.csv("real").read_text() == toys.TABLE
    assert provenance.beside(toys.csv("real")).read_bytes() == before
    assert toys("--again", scale="real") == 0
    assert toys.toy.steps == ALL
    assert len(parts(toys.csv("real"))) == 1


def test_a_quick_sweep_takes_nothing(toys):
    toys()
    toys()
    assert toys.toy.steps == ALL


@pytest.mark.parametrize("scale", ["quick", "real"])
def test_a_finished_csv_is_not_shortened(toys, clock: SimpleNamespace, scale: str):
    toys(scale=scale)
    toys.toy.before = toys.over_at(clock, ("b", 0))
    assert toys("--budget", "25m", *(["--again"] if scale == "real" else []), scale=scale) == 2
    assert toys.err.endswith("has 4 configurations and stays as it is: only 1 of 4 are finished in this sweep; "
                             "the same command goes on")  # fmt: skip
    assert toys.csv(scale).read_text() == toys.TABLE
    assert len(list(toys.store(scale).glob("*.json"))) == 1


def test_fewer_settings_do_not_shorten_a_real_csv_unaware(toys):
    toys(scale="real")
    toys.toy.params.write_text("real: {toy: {names: [a, b]}}")
    assert toys(scale="real") == 2
    assert "has 4 configurations and stays as it is: the settings name 2 now, but not name c and 1 more; " in toys.err
    assert toys.csv("real").read_text() == toys.TABLE
    assert toys(*what_keeps(toys.err), scale="real") == 0
    assert toys.toy.steps == []
    assert set(pd.read_csv(toys.csv("real")).name) == {"a", "b"}


def what_keeps(said: str) -> list[str]:
    """The options that a line names."""
    return re.search(r"; (--again .*) keeps what fits and drops the rest$", said)[1].split()


@pytest.mark.parametrize("names", ["efgh", "efghi", "abce"])
def test_other_settings_of_any_number_do_not_replace_a_real_csv_unaware(toys, names: str):
    toys(scale="real")
    before = [path.read_bytes() for path in (toys.csv("real"), provenance.beside(toys.csv("real")))]
    toys.toy.params.write_text(yaml.safe_dump({"real": {"toy": {"names": list(names)}}}))
    assert toys(scale="real") == 2
    assert f"toy.csv has 4 configurations and stays as it is: the settings name {len(names)} now, but not " in toys.err
    assert [path.read_bytes() for path in (toys.csv("real"), provenance.beside(toys.csv("real")))] == before
    assert toys(*what_keeps(toys.err), scale="real") == 0
    assert toys.toy.steps == []  # the new ones are in the store
    assert set(pd.read_csv(toys.csv("real")).name) == set(names)


def test_what_is_kept_of_a_stopped_sweep_does_not_replace_other_configurations(toys):
    toys.toy.params.write_text("real: {toy: {names: [a, b]}}")
    toys(scale="real")
    before = toys.csv("real").read_text()
    toys.toy.params.write_text("real: {toy: {names: [e, f, g, h]}}")
    toys.toy.before = toys.interrupt_at(("h", 1))
    assert toys(scale="real") == 130
    assert toys.csv("real").read_text() == before


def test_a_renamed_setting_is_known_by_its_alias(toys):
    csv = file(toys, "away", "db", form=lambda one: {"label": one["name"], "steps": one["steps"]})
    words = ["--resume-from", str(csv), "--other-sources"]
    assert toys(*words, scale="real") == 0
    assert toys.toy.steps == ALL  # nobody said what it was called
    toys.csv("real").unlink()
    module().aliases = lambda one: [{"other": 1}, {"label": one["name"], "steps": one["steps"]}]
    assert toys(*words, scale="real") == 0
    assert {name for name, _ in toys.toy.steps} == {"a", "c"}
    assert toys.csv("real").read_text() == toys.TABLE


def test_a_column_that_an_old_csv_lacks_is_added_by_upgrade(toys):
    csv = file(toys, "away", "dbac")
    pd.read_csv(csv).rename(columns={"value": "sum"}).to_csv(csv, index=False)
    describe(csv, *parts(csv))
    words = ["--resume-from", str(csv), "--other-sources"]
    assert toys(*words, scale="real") == 2
    assert toys.err.endswith("toy.csv has no column 'value'; expected name, step, value")
    module().upgrade = lambda rows: rows.assign(value=rows["sum"])
    assert toys(*words, scale="real") == 0
    assert toys.toy.steps == []
    assert toys.csv("real").read_text() == toys.TABLE


def rows_lost(csv: Path) -> None:
    csv.write_text("".join(line for line in csv.open() if not line.startswith("b")))


def swapped(csv: Path) -> None:
    csv.write_text(csv.read_text().replace("b,", "z,"))


DAMAGES = {
    "a configuration lost": (rows_lost, {}, "it has 1 configurations, toy.provenance.yaml names 2"),
    "another in its place": (swapped, {}, "it has no rows of name b, which its provenance names"),
    "a row lost": (lambda csv: csv.write_text(csv.read_text().replace("b,2,2\n", "")), {"rows": 6}, "it has 5 rows"),
    "empty": (lambda csv: csv.write_text(""), {}, "toy.csv is no table: No columns to parse from file"),
    "binary": (lambda csv: csv.write_bytes(b"\xff\xfe\x00\x9f" * 9), {}, "toy.csv is no table"),
    "ragged": (lambda csv: csv.write_text(csv.read_text() + "b,9,9,9,9\n"), {}, "toy.csv is no table"),
    "no name": (lambda csv: csv.write_text(csv.read_text().replace("b,2", ",2")), {}, "toy.csv says no name in line"),
    "no list": (None, {"finished": 5}, "toy.provenance.yaml is damaged: finished is 5"),
    "no text": (None, {"source_hash": 7}, "toy.provenance.yaml is damaged: source_hash is 7"),
    "no keys": (None, {"finished": [1, 2]}, "toy.provenance.yaml is damaged: a part's finished are no keys"),
    "no number": (None, {"seconds": "x"}, "toy.provenance.yaml is damaged: seconds is 'x'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_in_one_line_even_where_its_checksum_was_mended(toys, damage: str):
    spoil, change, line = DAMAGES[damage]
    csv = file(toys, "away", "db")
    (part,) = parts(csv)
    if spoil:
        spoil(csv)
    describe(csv, part | change)
    if "rows" in change:
        about = yaml.safe_load(provenance.beside(csv).read_text())
        provenance.beside(csv).write_text(yaml.safe_dump(about | change))
    assert toys("--resume-from", str(csv), "--other-sources", scale="real") == 2
    assert toys.err.startswith(f"lib.sweep: cannot go on from {csv}: ")
    assert line in toys.err
    assert "\n" not in toys.err
    assert toys.toy.steps == []


def test_two_sweeps_do_not_share_a_store(toys):
    with base.locked(toys.store(), "a sweep of toy"):
        assert toys() == 2
        assert toys.err.startswith(f"lib.sweep: a sweep of toy is at work in {toys.store()} already: wait for its end")
        assert toys.toy.steps == []
    assert toys() == 0


def test_a_lock_goes_with_its_block_whatever_ends_it(tmp_path: Path):
    def broken() -> None:
        with base.locked(tmp_path / "x", "one"):
            with pytest.raises(BadInput, match=r"two is at work in .*x already"), base.locked(tmp_path / "x", "two"):
                pass
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    with base.locked(tmp_path / "x", "three"):
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("place", ["results", "store"])
def test_a_place_that_takes_no_files_is_refused_before_anything_is_trained(toys, place: str):
    (toys.folder / place).write_text("in the way")
    assert toys() == 2
    assert "cannot be written to: " in toys.err
    assert "\n" not in toys.err
    assert toys.toy.steps == []


IN_THE_STORE = {
    "an entry that is a folder": lambda path: (path.unlink(), path.mkdir()),
    "an entry over another": lambda path: path.write_bytes(max(path.parent.glob("*.json")).read_bytes()),
}


@pytest.mark.parametrize("damage", IN_THE_STORE)
def test_an_entry_that_is_none_is_set_aside_and_computed_again(toys, damage: str):
    toys.toy.before = toys.fail_at("c")
    toys()
    IN_THE_STORE[damage](min(toys.store().glob("*.json")))
    toys.toy.before = lambda name, step: None
    assert toys() == 0
    assert "is damaged (" in toys.err
    assert len(toys.toy.steps) == 3 + 2  # one of three, and c from where it failed
    assert toys.csv().read_text() == toys.TABLE


@pytest.mark.parametrize("told", ["x", "", "nan", "-5", "inf"])
def test_damaged_seconds_of_a_stopped_session_count_as_none(tmp_path: Path, told: str):
    (tmp_path / "seconds").write_text(told)
    assert sweep.seconds_before(tmp_path / "seconds") == 0.0
    (tmp_path / "seconds").write_text("2.5")
    assert sweep.seconds_before(tmp_path / "seconds") == 2.5
    assert sweep.seconds_before(tmp_path / "none") == 0.0


def test_a_file_in_the_place_of_checkpoints_is_set_aside(toys):
    toys.toy.before = toys.fail_at("c")
    toys()
    (folder,) = [path for path in toys.store().iterdir() if path.is_dir()]
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("no folder")
    toys.toy.before = lambda name, step: None
    assert toys() == 0
    assert toys.csv().read_text() == toys.TABLE


def test_how_many_seeds_a_sweep_has_changes_none_of_them():
    """What two seeds were run of serves a sweep of five; another setting is another configuration."""
    one = {"env": "hopper", "seed": 1, "seeds": 5}
    forms = [key(form, "hash") for form in provenance.fewer_or_more_seeds(one)]
    assert forms[0] == key(one, "hash")
    assert key(one | {"seeds": 2}, "hash") in forms
    assert key(one | {"seeds": 2, "seed": 0}, "hash") not in forms
    assert provenance.fewer_or_more_seeds({"env": "hopper"}) == [{"env": "hopper"}]
    stack = {"env": "hopper", "seeds": 5}  # two of its seeds are not the five
    assert provenance.fewer_or_more_seeds(stack) == [stack]


def test_a_run_file_with_a_blank_cell_is_kept_when_fewer_rows_take_its_place(toys):
    toys()
    blank = toys.TABLE.replace("c,1,1", ",1,1").encode()
    toys.csv().write_bytes(blank)
    origin = b"rows: 12"
    provenance.beside(toys.csv()).write_bytes(origin)
    assert toys("--budget", "0s") == 0
    assert toys.err == "lib.sweep: toy.csv says no name in line 9; kept as toy.csv.damaged"
    damaged = toys.csv().with_name("toy.csv.damaged")
    assert damaged.read_bytes() == blank
    assert provenance.beside(damaged).read_bytes() == origin  # so one can go on from it once it has been mended
    assert toys.csv().read_text() == "name,step,value\n"


def test_again_is_refused_where_everything_is_computed_anew(toys):
    assert toys("--again") == 2
    assert toys.err == "lib.sweep: --again is for the scales real and paper: quick is computed anew by every sweep"
    assert toys.toy.steps == []


ENDS = {"stopped": KeyboardInterrupt(), "killed": TerminatedWorkerError("SIGKILL(-9)"), "full": OSError(28, "No space")}


@pytest.mark.parametrize("end", ["failed", *ENDS])
def test_what_was_finished_is_taken_when_the_sources_have_been_mended(toys, monkeypatch, end: str):
    """The store goes by the sources, so of these entries nothing would be found again."""
    with monkeypatch.context() as patch:
        if end == "failed":
            toys.toy.before = toys.fail_at("a")
        else:
            patch.setattr(sweep, "LongestFirst", ends_after(2, ENDS[end]))
        assert toys(scale="real") == (130 if end == "stopped" else 2)
    there = set(pd.read_csv(toys.csv("real")).name)
    assert there == ({"b", "c", "d"} if end == "failed" else {"b", "d"})
    monkeypatch.setattr(grids, "imported_hash", lambda name: OTHER)
    toys.toy.before = lambda name, step: None
    assert toys(scale="real") == 0
    assert {name for name, _ in toys.toy.steps} == {"a", "b", "c", "d"} - there
    assert toys.csv("real").read_text() == toys.TABLE


def ends_after(count: int, error: BaseException) -> type:
    """An order in which this is raised once so many configurations are finished."""

    class Ending(LongestFirst):
        def took(self, key: str, seconds: float) -> None:
            super().took(key, seconds)
            if sum(done for _, done in self.spent.values()) == 3 * count:  # units of work
                raise error

    return Ending


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_killed_between_a_file_and_its_provenance_a_sweep_goes_on_from_what_is_there(toys, monkeypatch, renames: int):
    toys.toy.before = toys.fail_at("a")
    toys(scale="real")
    toys.toy.before = lambda name, step: None
    rename, done = Path.replace, []

    def killed(path: Path, target: Path) -> Path:
        if target.parent == toys.csv("real").parent:
            done.append(target)
            if len(done) > renames:
                raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        assert toys(scale="real") == 130
    Store(toys.store("real")).empty()
    assert toys(scale="real") == 0
    assert {name for name, _ in toys.toy.steps} <= {"a"}  # the others are in the file
    assert toys.csv("real").read_text() == toys.TABLE
    about = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())
    assert set(about) == {"experiment", "scale", "configurations", "sha256", "rows", "parts"}
    assert about["configurations"] == "4 of 4"


def test_a_disk_that_is_full_leaves_the_file_and_its_provenance_of_before(toys, monkeypatch):
    toys.toy.before = toys.fail_at("a")
    toys(scale="real")
    before = [path.read_bytes() for path in (toys.csv("real"), provenance.beside(toys.csv("real")))]
    toys.toy.before = lambda name, step: None

    def full(*given, **more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(provenance.yaml, "safe_dump", full)
        assert toys(scale="real") == 2
    assert toys.err.endswith("lib.sweep: No space left on device; files are whole, the same command goes on")
    assert [path.read_bytes() for path in (toys.csv("real"), provenance.beside(toys.csv("real")))] == before
    assert toys(scale="real") == 0
    assert toys.toy.steps == []


@pytest.mark.parametrize("name", ["007", "null", "0.3333333"])
def test_what_a_run_file_would_give_back_as_something_else_is_refused(toys, name: str):
    toys.toy.params.write_text(yaml.safe_dump({"real": {"toy": {"names": [name, "b"]}}}))
    assert toys(scale="real") == 2
    assert f"real.toy: name {name!r} would be another in a run file" in toys.err
    assert toys.toy.steps == []


def test_a_row_that_holds_more_than_plain_numbers_fails_alone(toys):
    run = module().run
    odd = lambda one: {"value": np.int64(1)} if one["name"] == "b" else {}  # noqa: E731
    module().run = lambda one, context: [row | odd(one) for row in run(one, context)]
    assert toys(scale="real") == 2
    assert "1 of 4 configurations failed, 3 are finished and kept; the first: run gives value=" in toys.err


def test_more_than_twenty_seeds_are_known_again():
    now = {"seed": 3, "seeds": 26}
    assert now | {"seeds": 25} in provenance.fewer_or_more_seeds(now, most=25)


def test_whoever_changed_the_sources_is_told_which_rows_are_older(toys):
    assert toys(scale="real") == 0
    assert "other sources" not in toys.err
    about = yaml.safe_load(provenance.beside(toys.csv("real")).read_text())
    about["parts"][0]["source_hash"] = OTHER
    work = grid("toy", "real", toys.toy.params)
    about["parts"][0]["finished"] = [key(one, OTHER) for one in work.configurations.values()]
    provenance.beside(toys.csv("real")).write_text(yaml.safe_dump(about))
    assert toys(scale="real") == 0
    assert "toy.csv: 4 configurations of other sources are kept; --again trains them anew" in toys.err
