"""The comparison with the committed tables sees what differs."""

import subprocess
from pathlib import Path

import pandas as pd

from lib.compare import Difference, against_commit, difference

OLD = pd.DataFrame({"name": ["a", "b"], "value": [1.0, 2.0], "count": [3, 4]})


def test_equal_tables_do_not_differ():
    assert difference(OLD.copy(), OLD) == Difference(0.0)


def test_the_largest_difference_of_a_number_is_found_with_its_column():
    assert difference(OLD.assign(value=[1.0, 2.25], count=[3, 5]), OLD) == Difference(1.0, "count")


def test_other_words_rows_or_columns_are_said():
    assert "words differ in column name" in difference(OLD.assign(name=["a", "c"]), OLD).shape
    yes = OLD.assign(value=[True, False])
    assert "words differ in column value" in difference(yes.assign(value=[True, True]), yes).shape
    assert difference(yes.copy(), yes) == Difference(0.0)
    assert "1 rows, committed 2" in difference(OLD.head(1), OLD).shape
    assert "columns" in difference(OLD.drop(columns="count"), OLD).shape
    assert difference(OLD.assign(value=[1.0, None]), OLD).shape == "value: a number on one side only"


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
