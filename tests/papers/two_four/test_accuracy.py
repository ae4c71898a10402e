"""Accuracy measures on a table small enough to see the answer in it."""

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion.pairs import last
from lib.papers.two_four import measures

COLUMNS = ["data", "network", "variant", "seed", "epoch", "accuracy"]
RUNS = pd.DataFrame(
    [
        ["digits", "a", "dense", 0, 1, 99.0],
        ["digits", "a", "dense", 0, 2, 90.0],
        ["digits", "a", "dense", 1, 1, 70.0],
        ["digits", "a", "dense", 1, 2, 80.0],
        ["digits", "a", "retrained", 0, 4, 91.5],
        ["digits", "a", "retrained", 0, 3, 50.0],
        ["digits", "a", "retrained", 1, 4, 79.0],
        ["digits", "b", "dense", 0, 2, 60.0],
        ["digits", "b", "retrained", 0, 4, 62.0],
        ["digits", "b", "retrained", 1, 4, 63.0],
        ["moons", "a", "dense", 0, 2, 60.0],
    ],
    columns=COLUMNS,
)


def test_the_last_epoch_counts_never_the_best():
    ends = last(RUNS, ["variant", *measures.INDEX]).set_index(["data", "network", "variant", "seed"]).accuracy
    assert ends["digits", "a", "dense", 0] == 90.0  # not the 99 of its first epoch
    assert ends["digits", "a", "retrained", 0] == 91.5  # wherever the last epoch stands in the table
    assert len(ends) == 8


def test_a_level_is_read_of_one_network_in_the_end():
    assert measures.accuracy(RUNS, "retrained", "a") == {"digits/a": {0: 91.5, 1: 79.0}}
    assert measures.accuracy(RUNS, "retrained", "c") == {}
    with pytest.raises(BadInput, match="gradient"):
        measures.accuracy(RUNS, "gradient", "a")


def test_differences_are_paired_by_seed_within_data_and_network():
    found = measures.difference(RUNS, "retrained", against="dense")
    assert found == {
        "digits/a": {0: 1.5, 1: -1.0},
        "digits/b": {0: 2.0},
    }  # seed 1 of b has no partner, moons no variant


def test_differences_turn_their_sign_with_the_sides():
    assert measures.difference(RUNS, "dense", against="retrained")["digits/a"] == {0: -1.5, 1: 1.0}


def test_differences_in_deviations_of_the_rival_over_its_seeds():
    """The dense network a ends at 90 and 80: a deviation of 5 times the square root of 2; b has one dense seed."""
    found = measures.in_deviations(RUNS, "retrained", against="dense")
    assert found == {"digits/a": {0: pytest.approx(1.5 / 50**0.5), 1: pytest.approx(-1 / 50**0.5)}}
    alike = RUNS.assign(accuracy=RUNS.accuracy.where(RUNS.variant != "dense", 80.0))
    assert measures.in_deviations(alike, "retrained", against="dense") == {}


def test_a_variant_that_the_runs_do_not_have_is_refused_with_those_they_have():
    for sides in (("retraind", "dense"), ("dense", "retraind")):
        with pytest.raises(BadInput, match=r"no variant 'retraind'; they have: dense, retrained$"):
            measures.difference(RUNS, *sides)


def test_another_column_and_only_some_rows():
    runs = RUNS.assign(kept=RUNS.accuracy + RUNS.seed * (RUNS.variant == "retrained"), table=2)
    runs.loc[runs.network == "b", "table"] = 3
    assert measures.difference(runs, "retrained", "dense", column="kept")["digits/a"] == {0: 1.5, 1: 0.0}
    assert measures.difference(runs, "retrained", "dense", only={"table": 3}) == {"digits/b": {0: 2.0}}
    assert measures.difference(runs, "retrained", "dense", only={"table": 4}) == {}  # nothing to measure it on
    with pytest.raises(BadInput, match=r"no column 'tabel'; they have: data, network"):
        measures.difference(runs, "retrained", "dense", only={"tabel": 3})
