"""What a claim presupposes, and what its own verdict is then worth."""

from dataclasses import replace
from pathlib import Path

import pytest

from lib.base import BadInput
from lib.companion.claims.judge import Cell, Judged, _upon, judge
from lib.companion.claims.papers import Added
from lib.companion.claims.scorecard import looked_first
from lib.companion.statistics import DIFFERS, MOOT, REPRODUCED, Interval
from tests.companion.claims.test_judge import CELLS, claim, judged, paper, runs


def test_a_claim_whose_ground_differs_is_moot_and_says_which(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [50.99, 51.01])})
    upon = replace(claim(), id="upon", presupposes=("other", "ground"), note="a stand-in")
    other, further = replace(claim(), id="other"), replace(claim(), id="further", presupposes=("upon",))
    for bound, verdict, reason in (
        (0, "reproduced", ""),
        (5, "moot", 'presupposes "it works", which does not hold here'),
    ):
        ground = replace(claim(holds_if={"above": bound}), id="ground")
        row = judged(results, upon, further, other, ground)  # whatever the order
        assert (row["id"], row["verdict"], row["measured"], row["note"]) == ("upon", verdict, 1.0, "a stand-in")
        assert row["needs"] == reason
        table, _ = judge([paper(upon, further, ground, other)], "quick", results)
        assert table.verdict[1] == verdict  # what presupposes a moot claim is moot, too
        assert table.needs[1] == (reason and 'presupposes "it works", which is moot here')


def test_a_verdict_whose_ground_is_open_stands_and_says_so(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [50.99, 51.01])})
    upon = replace(claim(), id="upon", presupposes=("ground",))
    open_grounds = {
        "undecided": claim(holds_if={"above": 1}),
        "not run": replace(claim(), measure=claim().measure | {"run": "another"}),
    }
    for state, ground in open_grounds.items():
        row = judged(results, upon, replace(ground, id="ground"))
        assert (row["verdict"], row["needs"]) == ("reproduced", f'presupposes "it works", which is {state} here')
        failed = replace(claim(holds_if={"above": 99}), id="upon", presupposes=("ground",))
        row = judged(results, failed, replace(ground, id="ground"))
        assert (row["verdict"], row["needs"]) == ("differs", f'presupposes "it works", which is {state} here')
    both = replace(open_grounds["undecided"], id="upon", presupposes=("ground",))
    row = judged(results, both, replace(open_grounds["undecided"], id="ground"))
    assert (row["verdict"], "presupposes" in row["needs"]) == ("undecided", False)  # its own reason stays


def test_a_ground_that_fails_by_the_same_number_in_every_seed_decides_nothing_and_does_not_hold(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [51.0, 51.0])})
    upon = replace(claim("arithmetic"), id="upon", presupposes=("ground",))
    for bound, verdict in ((0, "reproduced"), (5, "moot")):
        ground = replace(claim(holds_if={"above": bound}), id="ground")
        table, _ = judge([paper(upon, ground)], "quick", results)
        assert table.verdict.tolist() == [verdict, "undecided"]


def test_a_ground_holds_where_one_of_its_cells_does_and_another_fails_by_the_same_number(tmp_path: Path):
    cells = {("digits", "a"): ([50.0, 50.0], [51.0, 51.0]), ("digits", "b"): ([50.0, 50.0], [59.0, 59.1])}
    results = runs(tmp_path, cells)
    upon = replace(claim(), id="upon", presupposes=("ground",), measure=claim().measure | {"only": {"data": "moons"}})
    ground = replace(claim(holds_if={"above": 5}), id="ground")
    runs(tmp_path, cells | {("moons", "c"): ([50.0, 50.0], [51.0, 51.1])})
    ground = replace(ground, measure=ground.measure | {"only": {"data": "digits"}})
    row = judged(results, upon, ground)
    assert row["verdict"] == "reproduced"  # the ground's own verdict is open: one cell holds, one decides nothing


def test_a_ground_does_not_speak_for_a_cell_whose_name_begins_as_its_own(tmp_path: Path):
    cells = {("digits", "a"): ([50.0, 50.0], [51.0, 51.1]), ("digits", "a_wide"): ([50.0, 50.0], [59.0, 59.1])}
    upon = replace(claim(), id="upon", presupposes=("ground",))
    _, found = judge([paper(upon, replace(claim(holds_if={"above": 5}), id="ground"))], "quick", runs(tmp_path, cells))
    mine = found[found.id == "upon"].set_index("cell")
    assert mine.verdict.to_dict() == {"digits/a": "moot", "digits/a_wide": "reproduced"}
    assert not mine.reason["digits/a_wide"]  # and nothing about it is open


def test_a_ground_speaks_for_the_cell_of_its_name(tmp_path: Path):
    upon = replace(claim(holds_if={"above": -99}), id="upon", presupposes=("ground",))
    table, cells = judge([paper(upon, replace(claim(), id="ground"))], "quick", runs(tmp_path, CELLS))
    found = cells[cells.id == "upon"].set_index("cell").verdict
    assert found.to_dict() == {"digits/bad": "moot", "digits/good": "reproduced", "moons/best": "reproduced"}
    assert (table.verdict[0], table.measured[0]) == ("reproduced", 3.0)  # a moot cell is not the one that is shown
    single = replace(upon, measure=upon.measure | {"only": {"network": "bad"}})
    table, _ = judge([paper(single, replace(claim(), id="ground"))], "quick", tmp_path)
    assert table.verdict[0] == "moot"


def test_a_ground_speaks_for_the_cells_that_are_named_more_closely():
    """What holds for an environment holds for each way to prune there, and says nothing of another environment."""
    one = Interval(1.0, 1.0, 1.0, seeds=3)
    grounds = Judged((Cell("a", one, DIFFERS), Cell("b", one, REPRODUCED)))
    mine = [Cell(name, one, REPRODUCED) for name in ("a, block 2", "b, block 2", "b, block 4")]
    found = _upon(Judged(tuple(mine)), {"it has settled": grounds})
    assert [(cell.name, cell.verdict) for cell in found.cells] == [
        ("a, block 2", MOOT),
        ("b, block 2", REPRODUCED),
        ("b, block 4", REPRODUCED),
    ]
    assert not found.cells[1].reason  # nothing is open there


def test_each_ground_that_does_not_hold_or_is_open_is_named(tmp_path: Path):
    results = runs(
        tmp_path, {("digits", "a"): ([50.0, 50.0], [50.99, 51.01]), ("digits", "b"): ([50.0, 50.0], [53, 53.1])}
    )
    only = {"only": {"network": "a"}}
    about = claim().measure
    one = replace(claim(holds_if={"above": 1}), id="one", says="it is large", measure=about | only)
    some = replace(claim(holds_if={"above": 2}), id="some", says="both are", measure=about | {"only": {"network": "b"}})
    upon = replace(claim(), id="upon", presupposes=("one", "some"), measure=about | only)
    row = judged(results, upon, one, some)
    assert (row["verdict"], row["needs"]) == ("reproduced", 'presupposes "it is large", which is undecided here')
    lost = [replace(ground, holds_if={"above": 9}) for ground in (one, some)]
    row = judged(results, upon, *lost)
    both = (
        'presupposes "it is large", which does not hold here, and it presupposes "both are", which does not hold here'
    )
    assert (row["verdict"], row["needs"]) == ("moot", both)


def test_a_ground_that_holds_in_part_is_open_for_a_cell_that_it_has_not(tmp_path: Path):
    results = runs(tmp_path, CELLS)
    upon = replace(claim(holds_if={"above": -99}), id="upon", presupposes=("ground",))
    upon = replace(upon, measure=upon.measure | {"only": {"network": "best"}})
    ground = replace(claim(), id="ground", measure=claim().measure | {"only": {"data": "digits"}})
    row = judged(results, upon, ground)
    assert (row["verdict"], row["needs"]) == ("reproduced", 'presupposes "it works", which is partly reproduced here')


def test_seeds_that_were_added_after_a_look_are_told_in_every_row_on_these_runs(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [50.99, 51.01])})
    told = "one of the two was added when the first had been seen"
    mine = replace(claim(), note="small"), replace(claim(), id="other", measure=claim().measure | {"run": "another"})
    added = (Added(claim().measure["run"], "quick", told), Added(claim().measure["run"], "real", "at another scale"))
    table, _ = judge([replace(paper(*mine), added=added)], "quick", results)
    assert table.note.tolist() == [f"small; {told}", ""]
    assert looked_first(table.note).tolist() == [True, False]


def test_a_number_that_all_seeds_give_has_the_chance_of_what_is_open(tmp_path: Path):
    results = runs(
        tmp_path, {("digits", "a"): ([50.0, 50.0], [51.0, 51.0]), ("digits", "b"): ([50, 50], [50.99, 51.01])}
    )
    table, cells = judge([paper(claim())], "quick", results)
    assert table.verdict.tolist() == ["partly"]
    alike, varied = cells.chance
    assert (alike, varied < 0.05) == (1.0, True)


def test_seeds_that_were_added_to_runs_of_no_claim_are_refused():
    with pytest.raises(BadInput, match="added: no claim is measured on runs of 'npn_mons'"):
        replace(paper(claim()), added=(Added("npn_mons", "quick", "seen"),))
