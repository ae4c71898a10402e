"""Laws of pairing: partners share a seed and what the index names, the last row counts, sides change the sign."""

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion.pairs import WentWrong, chosen, last, mean, paired, refuse_absent, side_by_side

INDEX = ["data", "seed"]
RUNS = pd.DataFrame(
    [
        ("a", "old", 0, 1, 9.0),
        ("a", "old", 0, 2, 1.0),
        ("a", "old", 1, 2, 2.0),
        ("a", "new", 0, 7, 4.0),
        ("a", "new", 0, 3, 8.0),
        ("a", "new", 1, 3, 8.0),
        ("a", "new", 2, 3, 16.0),
        ("b", "new", 0, 3, 32.0),
    ],
    columns=["data", "variant", "seed", "step", "value"],
)
OLD, NEW = {"variant": "old"}, {"variant": "new"}


def test_partners_share_the_index_and_stand_at_their_last_step():
    both = paired(RUNS, INDEX, NEW, OLD, "value")
    assert both.index.tolist() == [("a", 0), ("a", 1)]  # seed 2 and b have no partner
    assert (both.one - both.other).tolist() == [3.0, 6.0]  # 4 at step 7, not the 8 before


def test_with_the_sides_changed_over_a_difference_turns_its_sign():
    one, other = paired(RUNS, INDEX, NEW, OLD, "value"), paired(RUNS, INDEX, OLD, NEW, "value")
    assert (one.one - one.other).equals(-(other.one - other.other))


def test_the_order_of_the_rows_does_not_matter():
    expected = paired(RUNS, INDEX, NEW, OLD, "value")
    assert paired(RUNS.sample(frac=1, random_state=0), INDEX, NEW, OLD, "value").equals(expected)


def test_several_kinds_stand_beside_each_other_where_all_exist():
    kinds = {"x": OLD, "y": NEW, "z": {"variant": ["new"], "data": "a"}}
    assert side_by_side(RUNS, INDEX, kinds, "value").to_dict("list") == {"x": [1, 2], "y": [4, 8], "z": [4, 8]}


def test_a_clock_may_be_epochs_and_rows_without_a_clock_are_last_themselves():
    epochs = RUNS.rename(columns={"step": "epoch"})
    assert last(epochs, ["variant", *INDEX]).value.tolist() == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    ends = last(RUNS, ["variant", *INDEX]).drop(columns="step")
    assert last(ends, ["variant", *INDEX]).equals(ends)


def test_what_an_index_does_not_tell_apart_is_refused():
    again = pd.concat([RUNS.assign(rounds=1), RUNS.assign(rounds=2)])
    with pytest.raises(BadInput, match="several runs are meant by data a, seed 0: say which by more of their columns"):
        paired(again, INDEX, NEW, OLD, "value")
    assert len(paired(again, INDEX, NEW | {"rounds": 1}, OLD | {"rounds": 2}, "value")) == 2


def test_kinds_and_values_that_there_are_none_of():
    assert chosen(RUNS, {}) is RUNS
    assert paired(RUNS, INDEX, {"variant": "newer"}, OLD, "value").empty
    with pytest.raises(BadInput, match="no column 'variants'; they have: data, variant"):
        chosen(RUNS, {"variants": "old"})
    with pytest.raises(BadInput, match="no variant 'newer'; they have: new, old"):
        refuse_absent(RUNS, "variant", "old", "newer")


def test_a_run_that_ends_in_nan_is_no_partner_that_is_missing():
    """Else the seeds that went wrong would leave the comparison, and the others win it."""
    wrong = RUNS.assign(value=[9.0, float("nan"), 2.0, 4.0, 8.0, 8.0, 16.0, 32.0])
    with pytest.raises(BadInput, match=r"^the run of data a, seed 0 ends without a number in value$"):
        paired(wrong, INDEX, NEW, OLD, "value")
    with pytest.raises(BadInput, match=r"^the run of seed 0 ends without a number in value$"):
        paired(wrong[wrong.data == "a"], ["seed"], NEW, OLD, "value")
    early = RUNS.assign(value=[float("nan"), *RUNS.value[1:]])  # what is not reported may be
    assert paired(early, INDEX, NEW, OLD, "value").equals(paired(RUNS, INDEX, NEW, OLD, "value"))


def test_a_mean_over_rows_hides_no_row_without_a_number():
    rows = pd.DataFrame({"data": "a", "seed": [0, 0, 1], "value": [1.0, 3.0, 5.0]})
    assert mean(rows, INDEX, "value").tolist() == [2.0, 5.0]
    with pytest.raises(WentWrong, match="the run of data a, seed 0 ends without a number in value"):
        mean(rows.assign(value=[1.0, float("nan"), 5.0]), INDEX, "value")
