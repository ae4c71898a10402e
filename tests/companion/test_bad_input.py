"""Damaged or senseless files of the pipeline are refused in one line: papers, runs, verdicts, notebooks."""

import importlib
import math
import pickle
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest
import yaml

from lib import base
from lib.base import BadInput
from lib.companion import compare, notebook, results
from lib.companion.claims import papers, scorecard
from lib.companion.claims.papers import Claim
from lib.companion.sweep import grid

MEASURE = {"function": "saved", "run": "skdfe"}
CLAIM = {"id": "c", "where": "s", "says": "it", "printed": "4", "kind": "relation", "holds_if": {"at_least": 1}}

CLAIMS = {
    "a number for a function": ({"measure": {"function": 5}}, "function 5: expected a plain name"),
    "a path for a run": ({"measure": MEASURE | {"run": "../../x"}}, "run '../../x': expected a plain name"),
    "a number for a run": ({"measure": MEASURE | {"run": 5}}, "run 5: expected a plain name"),
    "a run and a benchmark": ({"measure": MEASURE | {"bench": "npn", "device": "cpu"}}, "not on both"),
    "at most infinity": ({"holds_if": {"at_most": math.inf}}, "decides nothing"),
    "at most NaN": ({"holds_if": {"at_most": math.nan}}, "decides nothing"),
    "between and infinity": ({"holds_if": {"between": [0, math.inf]}}, "decides nothing"),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_a_claim_that_makes_no_sense_is_refused(case: str):
    change, line = CLAIMS[case]
    with pytest.raises(BadInput, match=line) as error:
        Claim(**(CLAIM | {"measure": MEASURE} | change))
    assert "\n" not in str(error.value)


PAPERS = {
    "not UTF-8": (b"\xff\xfe\x00", "p/claims.yaml is not UTF-8, a text file was expected"),
    "a key twice": (b"paper: 1\npaper: 2\n", "p/claims.yaml, line 2: 'paper' stands there twice"),
    "claims that are a number": (b"claims: 5\n", "setting 'paper' is missing"),
    "a bomb": (b"a: &a [*a]\n", "p/claims.yaml, line 1: an alias stands for itself"),
}


@pytest.mark.parametrize("case", PAPERS)
def test_a_damaged_paper_is_refused(tmp_path: Path, case: str):
    content, line = PAPERS[case]
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "claims.yaml").write_bytes(content)
    with pytest.raises(BadInput, match=line):
        papers.read(tmp_path)


def test_two_papers_do_not_share_a_number(tmp_path: Path):
    for name in "ab":
        about = {"paper": 7, "title": "t", "authors": "a", "year": 2021, "address": "x", "data": ["d"]}
        bare = {key: CLAIM[key] for key in ("where", "says", "printed", "kind")}
        content = about | {"claims": [bare | {"id": name, "not_run": "why"}]}
        (tmp_path / name).mkdir()
        (tmp_path / name / "claims.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(BadInput, match=r"paper=\[7, 7\]: 7 stands there twice"):
        papers.read(tmp_path)


def runs(folder: Path, change) -> Path:
    """The quick runs of one experiment, changed."""
    path = folder / "quick" / "runs" / "npn_moons.csv"
    path.parent.mkdir(parents=True)
    found = change(pd.read_csv(base.RESULTS / "quick" / "runs" / "npn_moons.csv"))
    path.write_bytes(found) if isinstance(found, bytes) else found.to_csv(path, index=False)
    return folder


RUNS = {
    "empty": (lambda rows: b"", "npn_moons.csv is no table: No columns"),
    "binary": (lambda rows: b"\xff\xfe" * 9, "npn_moons.csv is no table: 'utf-8'"),
    "ragged": (lambda rows: b"a,b\n1,2,3,4\n5\n", "is no table: it has rows of 1 and of 4 cells"),
    "shifted": (lambda rows: b"seed,value\n0,0.1,0.2\n1,0.3,0.4\n", "is no table: it has rows of 2 and of 3 cells"),
    "short": (lambda rows: b"a,b,c\n1,2,3\n4,5\n", "is no table: it has rows of 2 and of 3 cells"),
    "a seed lost": (
        lambda rows: rows.assign(seed=[None, *rows.seed[1:]]),
        "npn_moons.csv says no seed in line 2",
    ),
    "another's": (lambda rows: b"x\n1\n", "npn_moons.csv has no column '"),
    "a column lost": (lambda rows: rows.drop(columns="seed"), "npn_moons.csv has no column 'seed'; expected"),
    "cut off": (
        lambda rows: rows.to_csv(index=False).encode()[:-2],
        r"npn_moons\.csv is cut off in its last line; git",
    ),
    "a word": (
        lambda rows: rows.assign(accuracy=[*rows.accuracy[:-1], "abc"]),
        "npn_moons.csv, line 773: accuracy 'abc' is no number",
    ),
    "a run with two numbers": (
        lambda rows: pd.concat([rows, rows[:1].assign(accuracy=1.0)]),
        "npn_moons.csv has a row twice, in line 774",
    ),
    "rows twice": (lambda rows: pd.concat([rows, rows]), "npn_moons.csv has a row twice, in line"),
}


@pytest.mark.parametrize("case", RUNS)
def test_damaged_runs_are_refused(tmp_path: Path, case: str):
    change, line = RUNS[case]
    with pytest.raises(BadInput, match=line):
        results.read_runs("npn_moons", "quick", runs(tmp_path, change))


@pytest.mark.parametrize("experiment", ["skdfe", "gst_td3", "offline_rl_rounds", "offline_rl"])
def test_runs_that_are_brought_up_to_date_are_refused_without_any_of_their_columns(tmp_path: Path, experiment: str):
    rows = pd.read_csv(base.RESULTS / "quick" / "runs" / f"{experiment}.csv")
    columns = importlib.import_module(grid.module_of(experiment)).COLUMNS
    (tmp_path / "quick" / "runs").mkdir(parents=True)
    refused = 0
    for name in columns:
        rows.drop(columns=name).to_csv(tmp_path / "quick" / "runs" / f"{experiment}.csv", index=False)
        with suppress(BadInput) as told:  # and no other error; a column that its `upgrade` adds may be absent
            assert set(columns) <= set(results.read_runs(experiment, "quick", tmp_path))
            told = "read"
        refused += told is None
    assert refused >= len(columns) / 2


VERDICTS = {
    "cut off": (lambda table: table.head(20), "has no row at any scale, though it stands in a paper"),
    "twice": (lambda table: pd.concat([table, table]), "stands there twice"),
    "an unknown verdict": (lambda table: table.assign(verdict="wonderful"), "no known verdict .'wonderful'"),
    "a column lost": (lambda table: table.drop(columns="why"), "has no column 'why'"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_damaged_verdicts_are_refused(tmp_path: Path, case: str):
    change, line = VERDICTS[case]
    (tmp_path / "quick").mkdir()
    table = pd.read_csv(base.RESULTS / "quick" / "claims.csv", keep_default_na=False)
    change(table).to_csv(tmp_path / "quick" / "claims.csv", index=False)
    shutil.copy(base.RESULTS / "quick" / "cells.csv", tmp_path / "quick")
    with pytest.raises(BadInput, match=line):
        scorecard.scorecard(papers.read(), tmp_path)


def test_a_table_that_is_no_table_cannot_be_compared(tmp_path: Path):
    (tmp_path / "results" / "quick").mkdir(parents=True)
    (tmp_path / "results" / "quick" / "claims.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"claims\.csv is no table"):
        compare.summary("quick", {}, tmp_path)


NOTEBOOKS = {
    "no JSON": ("hello", "is no whole notebook: Notebook does not appear to be JSON"),
    "nothing": ("{}", "is no whole notebook"),
    "a list": ("[]", "is no whole notebook"),
    "no kernel": (nbformat.writes(nbformat.v4.new_notebook()), "names no kernel"),
}


@pytest.mark.parametrize("case", NOTEBOOKS)
def test_a_damaged_notebook_is_refused(tmp_path: Path, case: str):
    content, line = NOTEBOOKS[case]
    (tmp_path / "a.ipynb").write_text(content)
    with pytest.raises(BadInput, match=line):
        notebook.execute("a", {}, tmp_path / "out.ipynb", tmp_path)


def test_a_parameter_of_a_notebook_is_no_bomb():
    with pytest.raises(BadInput, match="an alias stands for itself"):
        notebook.parameter("a=&a [*a]")


def test_make_env_clears_no_environment_of_another(tmp_path: Path):
    """Neither one that it did not make nor, through a link, that of another checkout."""
    for name in ("Makefile", "requirements.txt", "requirements-no-deps.txt"):
        (tmp_path / name).write_bytes((base.ROOT / name).read_bytes())
    here, other = tmp_path / ".venv", tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("mine")
    for makes in (lambda: other.rename(here), lambda: (here.rename(other), here.symlink_to(other))):
        makes()
        done = subprocess.run(["make", "env"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2
        assert "an environment that make env did not make and would delete: move it away" in done.stderr
        assert (here / "mine").read_text() == "mine"
        (here / ".ready-1").touch()  # of the other checkout's own make env
    here.unlink()
    other.rename(here)
    subprocess.run(["make", "env", "PYTHON=true"], cwd=tmp_path, capture_output=True)  # stops at a pip that is absent
    assert (here / ".begun").exists()  # its own it begins anew


def test_what_a_stage_writes_is_not_deleted_before_it_is_made_anew():
    """Else a run that is killed would leave tracked results deleted."""
    for path in (base.ROOT / "dvc.yaml", base.RESULTS / "real" / "dvc.yaml"):
        for stage in yaml.safe_load(path.read_text())["stages"].values():
            body = stage.get("do", stage)
            outs = [*body.get("outs", []), *body.get("metrics", [])]
            assert outs
            assert all(about["persist"] for out in outs for about in out.values())


@pytest.mark.parametrize(
    ("raised", "status", "line"),
    [
        (BadInput("it is bad"), 2, "lib.x: it is bad\n"),
        (BadInput("[[1],\n   [2]]: a number was expected"), 2, "lib.x: [[1], [2]]: a number was expected\n"),
        (KeyboardInterrupt(), 130, "lib.x: stopped; files are whole, the same command starts again\n"),
        (
            OSError(28, "No space left", "a.csv"),
            2,
            "lib.x: a.csv: No space left; files are whole, the same command goes on\n",
        ),
    ],
)
def test_a_program_ends_in_one_line(raised: BaseException, status: int, line: str, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop, base.program("lib.x"):
        raise raised
    assert (stop.value.code, capsys.readouterr()) == (status, ("", line))


def test_several_faults_are_a_line_each_on_their_way_through_another_process():
    error = pickle.loads(pickle.dumps(BadInput("two\nlines", "one")))
    assert str(error) == "two lines\none"


def test_a_fault_of_a_program_itself_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), base.program("lib.x"):
        raise ZeroDivisionError


def test_looking_whether_a_folder_takes_files_touches_none_of_its_files(tmp_path: Path):
    (tmp_path / "writable").write_text("somebody's thesis")
    base.to_write(tmp_path / "net.pt")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("writable", "somebody's thesis")]


def test_what_is_set_aside_keeps_its_whole_name(tmp_path: Path):
    for name in ("state.pt", "state.json"):
        (tmp_path / name).write_text(name)
        assert base.aside(tmp_path / name).name == f"{name}.damaged"


def test_a_number_too_large_for_a_float_is_refused_in_a_line():
    with pytest.raises(BadInput, match=r"^x\.shift: expected a finite number, found 1000"):
        base.build(OfOneNumber, {"shift": 10**400}, "x")


@dataclass
class OfOneNumber:
    shift: float


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("[0, 1)", [0, 0.5, np.float32(0)], [1, -1e-9, math.nan, True, "0.5", None]),
        ("(0, 1]", [1, 1e-9], [0, 1.1]),
        ("[0, inf)", [0, 1e300], [math.inf, -1]),
        ("(0, inf]", [math.inf], [0, -math.inf]),
        ("(0, 1)", [0.5], [0, 1]),
    ],
)
def test_the_brackets_of_an_interval_say_whether_its_ends_are_in_it(interval: str, inside: list, outside: list):
    for value in inside:
        base.refuse_outside(interval, rate=value)
    for value in outside:
        with pytest.raises(BadInput, match=rf"^rate={re.escape(repr(value))} is not in {re.escape(interval)}$"):
            base.refuse_outside(interval, momentum=inside[0], rate=value)
