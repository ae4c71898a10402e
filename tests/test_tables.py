"""The notebooks' tables: the right rows, named as in the figures."""

import pandas as pd

from lib import plots, tables
from lib.claims.judge import COLUMNS
from lib.data import vision
from lib.experiments import two_four_networks, two_four_workflow

RUNS = pd.DataFrame(
    [
        ("digits", "small_lenet", variant, seed, epoch, accuracy, 0.5, 2e6)
        for variant, seed, epoch, accuracy in [
            ("retrained", 0, 4, 97.0),
            ("retrained", 0, 3, 50.0),
            ("retrained", 1, 4, 99.0),
            ("dense", 0, 2, 96.0),
            ("dense", 1, 2, 99.0),
        ]
    ],
    columns=["data", "network", "variant", "seed", "epoch", "accuracy", "sparsity", "flops"],
)


def test_everything_that_can_be_run_has_a_name_for_figures():
    assert set(plots.NETWORKS) >= {*two_four_workflow.NETWORKS, *two_four_networks.NETWORKS}
    assert set(plots.DATA) == set(vision.names())


def test_variants_show_the_last_epoch_in_the_figures_order():
    table = tables.variants(RUNS, "quick")
    assert table.variant.tolist() == ["dense", "2:4, retrained"]
    row = table.iloc[1].to_dict()
    assert row["network"] == "small LeNet on 8 x 8 digits"
    assert row["accuracy, %"].startswith("98.00 [")
    assert (row["scale"], row["seeds"], row["epochs"], row["sparsity, %"], row["MFLOPs"]) == ("quick", 2, 4, 50.0, 2.0)


def test_differences_are_paired_by_seed():
    """97 - 96 and 99 - 99: 0.5 with t(1) = 12.706, so half of the interval is 12.706 x 0.7071 / 1.4142 = 6.353."""
    (row,) = tables.differences(RUNS, [("retrained", "dense")]).to_dict("records")
    assert row == {
        "difference in points": "2:4, retrained - dense",
        "network": "small LeNet on 8 x 8 digits",
        "mean [95 % interval]": "0.50 [-5.85, 6.85]",
    }


def test_a_note_is_shown_where_there_is_one():
    claim = dict.fromkeys(COLUMNS, "") | {"says": "it works", "seeds": ""}
    assert "note" not in tables.verdicts(pd.DataFrame([claim]))
    assert tables.verdicts(pd.DataFrame([claim, claim | {"note": "seen before"}])).note.tolist() == ["", "seen before"]


def test_verdicts_stand_by_what_the_claim_says():
    claim = {"says": "it works", "measured": 1, "low": 0, "high": 2, "seeds": 5, "verdict": "reproduced"}
    table = tables.verdicts(pd.DataFrame([claim]), ["measured [low, high]", "verdict"])
    assert table.loc["it works"].tolist() == ["1.00 [0.00, 2.00], 5 seeds", "reproduced"]


def test_side_by_side_has_a_column_a_variant_and_the_last_epoch_in_it():
    (row,) = tables.side_by_side(RUNS, ["dense", "retrained", "pruned"], "quick").to_dict("records")
    assert row["dense"].startswith("97.50 [")
    assert row["2:4, retrained"].startswith("98.00 [")
    assert row["pruned, not retrained"] == ""  # these runs have none
    assert (row["network"], row["seeds"], row["epochs a session"]) == ("small LeNet on 8 x 8 digits", 2, 2)


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
