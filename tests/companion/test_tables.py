"""The notebooks' tables: the right rows, named as in the figures."""

from math import inf, nan

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion import plots, results, tables
from lib.companion.results import CELLS, CLAIMS
from lib.data import vision
from lib.papers.two_four.experiments import two_four_networks, two_four_workflow


def test_everything_that_can_be_run_has_a_name_for_figures():
    assert set(plots.NETWORKS) >= {*two_four_workflow.NETWORKS, *two_four_networks.NETWORKS}
    assert set(plots.DATA) >= set(vision.names())


def claim(**parts):
    """A row of the scorecard."""
    row = dict.fromkeys([*CLAIMS, "scale"], "") | {"id": "a", "says": "it works", "verdict": "reproduced"}
    return pd.DataFrame([row | parts])


def cells(*parts):
    """The cells of this row: (name, measured, low, high, seeds, verdict, reason) each."""
    rows = [("a", *cell[:5], 1, *cell[5:]) for cell in parts]  # how clear they are is no matter here
    return pd.DataFrame(rows, columns=CELLS)


def test_notes_are_left_to_the_scorecard():
    assert "note" not in tables.verdicts(claim(note="seen before"), cells=cells())


def test_verdicts_stand_by_what_the_claim_says():
    one = cells(("moons/moons_mlp", 1, 0, 2, 5, "reproduced", ""))
    table = tables.verdicts(claim(data="moons: moons_mlp"), ["measured [low, high]", "verdict", "data"], one)
    assert list(table.columns) == ["measured [low, high]", "seeds", "verdict", "data"]
    assert table.loc["it works", "MLP on two moons"].tolist() == [
        "1.0 [0.0, 2.0]",
        "5",
        "reproduced",
        "like the paper's, drawn here",
    ]


def test_a_claim_has_a_row_for_each_network_and_one_for_all_of_them():
    why = "cifar10/resnet20: 1.397 [1.058, 1.736], 3 seeds, moot (another fails); mnist/lenet5: -0.0267, reproduced"
    data = "cifar10 (stand-in): resnet20; mnist: lenet5"
    row = claim(printed="40 %", measured=-0.0267, cells=2, why=why, data=data)
    two = cells(
        ("cifar10/resnet20", 1.397, 1.058, 1.736, 3, "moot", "another fails"),
        ("mnist/lenet5", -0.0267, -0.0646, 0.0113, 3, "reproduced", ""),
    )
    table = tables.verdicts(row, ["printed", "measured [low, high]", "verdict", "data"], two).reset_index()
    assert table.drop(columns="claim").to_numpy().tolist() == [
        ["ResNet-20 on CIFAR-10", "40 %", "1.40 [1.06, 1.74]", "3", "moot: another fails", "stand-in"],
        ["LeNet-5 on MNIST", "", "-0.03 [-0.06, 0.01]", "3", "reproduced", "the paper's"],
        ["together", "", "", "", "reproduced (1 of 2; 1 moot)", ""],
    ]


def test_where_all_agree_nothing_is_said_twice():
    why = "moons/a: 1, differs; moons/b: 2, differs"
    two = cells(("moons/a", 1, 1, 1, 0, "differs", ""), ("moons/b", 2, 2, 2, 0, "differs", ""))
    table = tables.verdicts(claim(measured=1, cells=2, why=why, verdict="differs"), ["verdict"], two)
    assert table.verdict.tolist() == ["differs", "differs"]


def test_what_was_not_run_says_why():
    row = claim(verdict="not run", why="needs ImageNet")
    assert tables.verdicts(row, ["verdict"], cells()).verdict.tolist() == ["not run: needs ImageNet"]


def test_what_was_not_run_says_what_it_needs_in_the_words_of_its_claim():
    row = claim(verdict="not run", needs="1,000 steps of Chess", why="needs env Chess-v4, steps 1000; no run has it")
    assert tables.verdicts(row, ["verdict"], cells()).verdict.tolist() == ["not run: would need 1,000 steps of Chess"]


def test_without_columns_of_cells_a_claim_has_one_row():
    two = cells(("moons/a", 1, 1, 1, 0, "differs", ""), ("moons/b", 2, 2, 2, 0, "differs", ""))
    assert tables.verdicts(claim(printed="x", cells=2), ["printed"], two).loc["it works"].tolist() == ["x"]


def test_one_seed_and_an_exact_number_have_no_interval_and_all_numbers_are_rounded_alike():
    two = cells(("moons/a", 597750.0, nan, nan, 1, "undecided", ""), ("moons/b", 3.0, 3.0, 3.0, 0, "reproduced", ""))
    table = tables.verdicts(claim(), ["measured [low, high]"], two)
    assert table.to_numpy().tolist()[:2] == [["597,750", "1"], ["3", ""]]


def test_no_end_is_rounded_onto_the_bound_that_it_clears():
    """The claim is that no return is lost: at least -5."""
    clear = cells(("HalfCheetah-v4", 3, -4.96, 10.96, 4, "reproduced", "")).assign(id="gst-rwp-keeps-return")
    table = tables.verdicts(claim(id="gst-rwp-keeps-return"), ["measured [low, high]"], clear)
    assert table.to_numpy().tolist() == [["3.00 [-4.96, 10.96]", "4"]]
    assert tables.verdicts(claim(), ["measured [low, high]"], clear.assign(id="a")).iloc[0, 0] == "3 [-5, 11]"


def test_no_end_is_rounded_onto_zero():
    """Whatever the bound is, a reader asks whether an interval holds 0."""
    below = cells(("digits/a", -5.2, -9.9, -0.04, 4, "reproduced", ""))
    assert tables.verdicts(claim(), ["measured [low, high]"], below).iloc[0, 0] == "-5.20 [-9.90, -0.04]"
    ends_at_zero = cells(("digits/a", -5.2, -9.9, 0, 4, "undecided", ""))
    assert tables.verdicts(claim(), ["measured [low, high]"], ends_at_zero).iloc[0, 0] == "-5.2 [-9.9, 0.0]"


def test_an_interval_without_ends_says_nothing_of_the_digits():
    open_, known = ("a/b", 1.168, -inf, inf, 2, "undecided", ""), ("a/c", 1.397, 1.058, 1.736, 3, "undecided", "")
    alone = tables.verdicts(claim(), ["measured [low, high]"], cells(open_))
    assert alone.iloc[0].tolist() == ["1.17 [-inf, inf]", "2"]
    both = tables.verdicts(claim(), ["measured [low, high]"], cells(open_, known))
    assert both.iloc[:, 0].tolist() == ["1.17 [-inf, inf]", "1.40 [1.06, 1.74]"]


def test_networks_have_plain_names():
    device = "Intel(R) Xeon(R) Processor @ 2.10GHz, 2 cores"
    names = {
        "recorded-expert/halfcheetah/critic1": "HalfCheetah, first critic",
        f"{device}/actor, 1 at once": "actor, 1 at once (Intel Xeon, 2.10GHz, 2 cores)",
        "HalfCheetah-v4, GST, B = 2 (released at 0.5)": "HalfCheetah, GST, B = 2 (released at 0.5)",
        "digits small_resnet, reward-aware pruning": "ResNet-8 on 8 x 8 digits, reward-aware pruning",
        "halfcheetah, snip, single weights, 5 % kept": "HalfCheetah, SNIP, single weights, 5 % kept",
        "grammar/small_decoder/16 labels": "small decoder on a made text, 16 labels",
        "synthetic/same_pitch_range, width 4": "synthetic, same pitch range, width 4",
    }
    assert {cell: tables.network(cell) for cell in names} == names


def test_every_cell_of_the_scorecard_is_told_apart_by_its_name():
    scorecard = results.read_scorecard()
    cells = results.read_cells(scorecard)
    assert not cells.assign(cell=cells.cell.map(tables.network)).duplicated(["id", "cell"]).any()
    assert len(tables.verdicts(scorecard)) >= len(cells)


def test_directions_of_paper_4_stand_in_the_figures_order():
    columns = ["direction", "seed", "accuracy", "parameters", "parameters_live", "flops", "architecture"]
    ends = [
        ("sparsify", 1, 97.0, 30, 20, 4e6, "2-2"),
        ("sparsify", 0, 99.0, 50, 40, 8e6, "3-2"),
        ("dense", 0, 98.0, 90, 90, 9e6, "9-9"),
    ]
    dense, sparsified = tables.directions(pd.DataFrame(ends, columns=columns)).to_dict("records")
    assert (dense["network"], dense["live weights"]) == ("dense", "90 (one seed)")
    assert (sparsified["network"], sparsified["seeds"], sparsified["MFLOPs"]) == ("sparsified", 2, 6.0)
    assert sparsified["accuracy, %"].startswith("98.00 [")
    assert sparsified["live weights"].startswith("30 [")
    assert sparsified["architecture, seed 0"] == "3-2"


@pytest.mark.parametrize(
    "device", ["Xeon(R) Processor @ 2.10GHz, 2 cores", "Xeon(R) Processor, 2 cores", "NVIDIA H200"]
)
def test_timings_stand_on_nobodys_data(device):
    timed = cells((f"{device}/actor, 1 at once", 1.5, 1.5, 1.5, 0, "reproduced", ""))
    assert tables.verdicts(claim(data=device), ["data"], timed).data.tolist() == [""]


def test_a_claims_own_number_is_not_shown_beside_its_cells():
    with pytest.raises(BadInput, match="the column 'measured' is a claim's, and rows are its cells: ask for 'measured"):
        tables.verdicts(claim(), ["printed", "measured"], cells(("digits/a", 1, 0, 2, 5, "reproduced", "")))
    with pytest.raises(BadInput, match=r"the scorecard has no column 'verdct'; there are: .*verdict, .*measured \[low"):
        tables.verdicts(claim(), ["printed", "verdct"])
