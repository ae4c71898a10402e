"""The tables of paper 2's notebooks: the right rows, named as in the figures."""

import pandas as pd
import pytest

from lib.base import BadInput
from lib.papers.two_four import figures

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


def test_variants_show_the_last_epoch_in_the_figures_order():
    table = figures.variants(RUNS, "quick")
    assert table.variant.tolist() == ["dense", "2:4, retrained"]
    row = table.iloc[1].to_dict()
    assert row["network"] == "small LeNet on 8 x 8 digits"
    assert row["accuracy, %"].startswith("98.00 [")
    assert (row["scale"], row["seeds"], row["epochs"], row["sparsity, %"], row["MFLOPs"]) == ("quick", 2, 4, 50.0, 2.0)


def test_differences_are_paired_by_seed():
    """97 - 96 and 99 - 99: 0.5 with t(1) = 12.706, so half of the interval is 12.706 x 0.7071 / 1.4142 = 6.353."""
    (row,) = figures.differences(RUNS, [("retrained", "dense")]).to_dict("records")
    assert row == {
        "difference in points": "2:4, retrained - dense",
        "network": "small LeNet on 8 x 8 digits",
        "mean [95 % interval]": "0.50 [-5.85, 6.85]",
    }


def test_side_by_side_has_a_column_a_variant_and_the_last_epoch_in_it():
    (row,) = figures.side_by_side(RUNS, ["dense", "retrained", "pruned"], "quick").to_dict("records")
    assert row["dense"].startswith("97.50 [")
    assert row["2:4, retrained"].startswith("98.00 [")
    assert row["pruned, not retrained"] == ""  # these runs have none
    assert (row["network"], row["seeds"], row["epochs a session"]) == ("small LeNet on 8 x 8 digits", 2, 2)


def test_an_interval_of_accuracies_ends_at_100_percent():
    """97 and 99 with t(1) = 12.706: 98 +- 12.706."""
    (row,) = figures.side_by_side(RUNS, ["retrained"], "quick").to_dict("records")
    assert row["2:4, retrained"] == "98.00 [85.29, 100.00]"


def test_the_seeds_beside_variants_are_those_of_the_variants_that_are_shown():
    more = pd.concat([RUNS, RUNS[RUNS.seed == 0].assign(variant="gradient")])
    assert figures.side_by_side(more, ["dense", "retrained"], "quick").seeds.tolist() == [2]
    assert figures.side_by_side(more, ["dense", "gradient"], "quick").seeds.tolist() == ["1 to 2"]
    assert figures.side_by_side(more, ["gradient"], "quick").seeds.tolist() == [1]


def test_a_network_without_a_name_is_refused_in_a_line():
    with pytest.raises(BadInput, match=r"'my_net' has no name and look in plots\.NETWORKS"):
        figures.variants(RUNS.assign(network="my_net"), "quick")
