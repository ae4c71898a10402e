"""The comparison with the committed tables sees what differs."""

import subprocess
from pathlib import Path

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion import compare
from lib.companion.compare import SHOWN, Difference, against_commit, details, difference, main, summary
from lib.companion.csv_files import write_csv
from lib.companion.results import CLAIMS

OLD = pd.DataFrame({"name": ["a", "b"], "value": [1.0, 2.0], "count": [3, 4]})


def test_equal_tables_do_not_differ():
    assert difference(OLD.copy(), OLD) == Difference(0.0)


def test_which_of_two_tables_comes_first_does_not_matter():
    """A number that fell is as far off as one that rose."""
    for new in (OLD.assign(value=[1.0, 2.25], count=[3, 9]), OLD.assign(value=[-4.0, 2.0], count=[3, 5])):
        assert difference(new, OLD) == difference(OLD, new)
    assert difference(OLD.assign(count=[3, -9]), OLD) == Difference(13.0, "count")


def test_the_largest_difference_of_a_number_is_found_with_its_column():
    assert difference(OLD.assign(value=[1.0, 2.25], count=[3, 5]), OLD) == Difference(1.0, "count")


def test_other_words_rows_or_columns_are_said():
    assert "words differ in column name" in difference(OLD.assign(name=["a", "c"]), OLD).shape
    yes = OLD.assign(value=[True, False])
    assert "words differ in column value" in difference(yes.assign(value=[True, True]), yes).shape
    assert difference(yes.copy(), yes) == Difference(0.0)
    both = difference(OLD.assign(name=["a", "c"], value=[1.0, 2.25]), OLD)
    assert both == Difference(0.25, "value", "words differ in column name")
    assert "1 rows, committed 2" in difference(OLD.head(1), OLD).shape
    assert "columns" in difference(OLD.drop(columns="count"), OLD).shape
    assert difference(OLD.assign(value=[1.0, None]), OLD).shape == "value: a number on one side only"


def test_without_git_there_is_nothing_to_compare_with(tmp_path: Path):
    with pytest.raises(BadInput, match="is no git checkout with a commit: there is nothing to compare with"):
        against_commit("quick", tmp_path)


def test_a_verdict_that_is_none_is_refused(tree: Path):
    path = tree / "results" / "quick" / "claims.csv"
    path.write_text(path.read_text().replace("reproduced", "rep", 1))
    with pytest.raises(BadInput, match="has no known verdict \\('rep'\\)"):
        summary("quick", {}, tree)


def test_the_working_tree_is_compared_with_the_commit(tree: Path):
    path = tree / "results" / "quick" / "runs" / "two_four_workflow.csv"
    table = pd.read_csv(path)
    table.loc[0, "accuracy"] += 7
    table.to_csv(path, index=False)
    found = against_commit("quick", tree)
    changed = {name: d for name, d in found.items() if d.numbers}
    assert set(changed) == {"results/quick/runs/two_four_workflow.csv"}
    assert changed.popitem()[1].where == "accuracy"
    path.rename(path.with_suffix(".txt"))
    gone = against_commit("quick", tree)["results/quick/runs/two_four_workflow.csv"]
    assert gone.shape == "committed, but not there any more"
    path.with_suffix(".txt").rename(path)
    subprocess.run(["git", "rm", "-q", "--cached", str(path)], cwd=tree, check=True)
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "t"], cwd=tree, check=True)
    assert against_commit("quick", tree)["results/quick/runs/two_four_workflow.csv"].shape == "not committed yet"


def test_the_summary_has_at_most_ten_lines_and_names_changed_verdicts_by_their_sentence(tree: Path):
    path, runs = tree / "results" / "quick" / "claims.csv", tree / "results" / "quick" / "runs" / "npn_moons.csv"
    quiet = summary("quick", against_commit("quick", tree), tree)
    assert quiet[1].endswith("verdicts are as committed, 0 are not")
    assert quiet[2].startswith("largest difference 0: every number and word of ")
    table, rows = pd.read_csv(path), pd.read_csv(runs)
    was = table.verdict.copy()
    table["verdict"] = ["differs" if verdict == "reproduced" else verdict for verdict in was]
    table.to_csv(path, index=False)
    rows.assign(accuracy=rows.accuracy + 3).to_csv(runs, index=False)
    lines = summary("quick", against_commit("quick", tree), tree)
    changed = table[was == "reproduced"]
    assert len(lines) <= 10
    assert lines[0].startswith(f"{len(table)} claims at the quick scale: ")
    assert lines[1] == f"{len(table) - len(changed)} verdicts are as committed, {len(changed)} are not"
    assert lines[2] == f"  {changed.says.iloc[0]}: reproduced -> differs"
    assert lines[2 + SHOWN] == f"  and {len(changed) - SHOWN} more"
    largest = "largest difference of a number in a run file from the committed one: 3 (accuracy, "
    assert lines[-2].startswith(f"{largest}results/quick/runs/npn_moons.csv); other tables that differ: 1 of ")


def test_what_is_wholly_as_committed_is_said_to_be_so_and_nothing_else_is(tmp_path: Path, monkeypatch):
    table = pd.DataFrame([dict.fromkeys(CLAIMS, "") | {"id": "a", "says": "x", "verdict": "reproduced"}])
    path = tmp_path / "results" / "quick" / "claims.csv"
    path.parent.mkdir(parents=True)
    table.to_csv(path, index=False)
    monkeypatch.setattr(compare, "committed", lambda name, root: table)

    def ending(**tables: Difference) -> str:
        named = {f"results/quick/runs/{name}.csv": found for name, found in tables.items()}
        return summary("quick", named, tmp_path)[2]

    same = Difference(0.0)
    assert (
        ending(a=same, b=same)
        == "largest difference 0: every number and word of 2 tables of the quick scale is as committed"
    )
    assert ending(a=same, b=Difference(0.5, "x")).endswith("committed one: 0.5 (x, results/quick/runs/b.csv)")
    gone = Difference(float("inf"), shape="2 rows, committed 3")
    assert ending(a=same, b=gone).endswith(": 0; tables that differ: 1 of 2")
    words = Difference(0.0, shape="words differ in column x")
    assert ending(a=same, b=words).endswith(": 0; tables that differ: 1 of 2")


def test_the_details_have_a_line_for_each_table_that_differs():
    found = {"a.csv": Difference(0.0), "b.csv": Difference(2.5, "x"), "c.csv": Difference(float("inf"), shape="gone")}
    assert details(found, "quick") == ["b.csv: up to 2.5 in x", "c.csv: gone"]
    assert details({"a.csv": Difference(0.0)}, "real") == ["all 1 tables of the real scale are as committed"]


def test_a_scale_without_tables_is_refused_in_one_line(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        main(["--scale", "quik"])
    said = "lib.compare: no scale 'quik'; there are: quick, real, paper\n"
    assert (stop.value.code, capsys.readouterr().err) == (2, said)


def test_a_number_that_became_infinite_or_finite_again_is_a_difference(tmp_path: Path, monkeypatch):
    infinite, negative = (OLD.assign(value=[1.0, sign * float("inf")]) for sign in (1, -1))
    assert difference(infinite.copy(), infinite) == Difference(0.0)
    for new, old in ((infinite, OLD), (OLD, infinite), (negative, infinite)):
        found = difference(new, old)
        assert (found.numbers, found.shape) == (float("inf"), "value: infinite on one side only")
    assert details({"a.csv": found}, "quick") == ["a.csv: value: infinite on one side only"]


def test_the_largest_difference_is_one_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    claims = pd.DataFrame([dict.fromkeys(CLAIMS, "") | {"id": "a", "says": "x", "verdict": "reproduced"}])
    write_csv(claims, tmp_path / "results" / "quick" / "claims.csv")
    monkeypatch.setattr(compare, "committed", lambda name, root: claims)
    found = {"results/quick/runs/a.csv": Difference(0.5, "x"), "results/quick/claims.csv": Difference(9.0, "low")}
    (said,) = (line for line in summary("quick", found, tmp_path) if line.startswith("largest"))
    largest = "largest difference of a number in a run file from the committed one: "
    assert said == f"{largest}0.5 (x, results/quick/runs/a.csv); other tables that differ: 1 of 2"
    del found["results/quick/runs/a.csv"]
    (said,) = (line for line in summary("quick", found, tmp_path) if line.startswith("largest"))
    assert said == f"{largest}0; tables that differ: 1 of 1"


def test_claims_that_are_new_or_gone_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old, new = (
        pd.DataFrame([dict.fromkeys(CLAIMS, "") | {"id": name, "says": name, "verdict": "moot"} for name in names])
        for names in ("ab", "bc")
    )
    write_csv(new, tmp_path / "results" / "quick" / "claims.csv")
    monkeypatch.setattr(compare, "committed", lambda name, root: old)
    lines = summary("quick", {}, tmp_path)
    assert lines[1:4] == [
        "1 verdicts are as committed, 1 are not",
        "  c: not there -> moot",
        "  1 that are committed are not there any more, such as a",
    ]
