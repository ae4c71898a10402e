"""Measures of architectures on a table small enough to see the answers in it, and on the paper's tables."""

import math

import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.datasets import make_moons
from sklearn.neighbors import KNeighborsClassifier

from lib.base import BadInput
from lib.companion.statistics import ratio_of_means
from lib.models.lenet import lenet5
from lib.papers.npn import measures
from lib.pruners import gates

COLUMNS = ["data", "network", "direction", "seed", "stage", "epoch", "accuracy", "parameters"]
RUNS = pd.DataFrame(
    [
        ["mnist", "a", "sparsify", 0, 1, 1, 99.0, 800],
        ["mnist", "a", "sparsify", 0, 2, 2, 97.0, 100],
        ["mnist", "a", "sparsify", 0, 2, 3, 97.5, 90],
        ["mnist", "a", "sparsify", 0, 3, 4, 98.5, 90],
        ["mnist", "a", "sparsify", 1, 3, 4, 98.0, 120],
        ["mnist", "a", "expand", 0, 3, 4, 97.0, 180],
        ["mnist", "a", "expand", 1, 3, 4, 99.0, 60],
        ["mnist", "a", "expand", 2, 3, 4, 99.0, 60],
        ["cifar10", "b", "sparsify", 0, 3, 4, 80.0, 50],
    ],
    columns=COLUMNS,
)


def test_a_value_is_that_of_the_last_epoch_or_of_a_stages_last():
    assert measures.value(RUNS, "sparsify", data=["mnist"]) == {"mnist/a": {0: 98.5, 1: 98.0}}
    assert measures.value(RUNS, "sparsify", stage=2) == {"mnist/a": {0: 97.5}}
    assert measures.value(RUNS, "sparsify", column="parameters", data=["cifar10"]) == {"cifar10/b": {0: 50}}
    assert measures.value(RUNS, "sparsify", data=["digits"]) == {}
    assert measures.value(RUNS, "sparsify", epoch=2) == {"mnist/a": {0: 97.0}}
    assert measures.value(RUNS, "sparsify", epoch=5) == {}  # not kept; no earlier one stands for it


def test_differences_are_paired_by_seed_and_may_be_of_two_stages():
    assert measures.difference(RUNS, "expand", "sparsify") == {"mnist/a": {0: -1.5, 1: 1.0}}
    stages = measures.difference(RUNS, "sparsify", "sparsify", stage=2, against_stage=1)
    assert stages == {"mnist/a": {0: -1.5}}
    assert measures.difference(RUNS, "expand", "sparsify", data=["cifar10"]) == {}


def test_shares_and_factors():
    found = measures.share(RUNS, "expand", "sparsify")["mnist/a"]  # of each seed twice as many, and half
    assert (found.value, found.seeds) == (pytest.approx(100 * (180 + 60) / (90 + 120)), 2)
    for order in (["expand", "sparsify"], ["sparsify", "expand"]):
        assert measures.factor(RUNS, order) == {"mnist/a": {0: 2.0, 1: 2.0}}


def test_weights_move_after_a_stage_either_way():
    changed = RUNS.assign(parameters=RUNS.parameters.where((RUNS.epoch != 4) | (RUNS.seed != 0), 99))
    assert measures.moved(RUNS, "sparsify", stage=2) == {"mnist/a": {0: 0.0}}
    assert measures.moved(changed, "sparsify", stage=2) == {"mnist/a": {0: pytest.approx(10)}}  # from 90 to 99
    assert measures.moved(changed, "sparsify", stage=1) == {"mnist/a": {0: pytest.approx(87.625)}}  # from 800


def test_means_are_not_apart_where_only_seeds_are():
    """Each seed of RUNS is twice apart, once either way: 180 and 60 expanded, 90 and 120 sparsified."""
    for order in (["expand", "sparsify"], ["sparsify", "expand"]):
        found = measures.apart(RUNS, order)
        assert found == {"mnist/a": ratio_of_means([180, 60], [90, 120])}
        assert found["mnist/a"].value == pytest.approx(8 / 7)


def test_what_a_network_loses_until_a_share_of_its_weights_is_left():
    """Seed 0 of RUNS has 12.5 % of its 800 weights in epoch 2 and 11.25 % in epoch 3; seed 1 has no stage 1."""
    assert measures.at_share(RUNS, "sparsify", 50) == {"mnist/a": {0: -2.0}}
    assert measures.at_share(RUNS.iloc[::-1], "sparsify", 50) == {"mnist/a": {0: -2.0}}
    assert measures.at_share(RUNS, "sparsify", 12.5) == {"mnist/a": {0: -2.0}}
    assert measures.at_share(RUNS, "sparsify", 12.4) == {"mnist/a": {0: -1.5}}
    assert measures.at_share(RUNS, "sparsify", 11) == {}  # stage 3 does not count
    lost = RUNS.assign(accuracy=RUNS.accuracy.where((RUNS.direction != "sparsify") | (RUNS.epoch != 2)))
    assert math.isnan(measures.at_share(lost, "sparsify", 50)["mnist/a"][0])  # not the next epoch's
    as_variant = RUNS.rename(columns={"direction": "variant"})
    assert measures.at_share(as_variant, "sparsify", 50) == {"mnist/a": {0: -2.0}}


def test_an_expansion_has_to_spare_where_every_layer_has_a_closed_gate():
    columns = ["data", "network", "direction", "seed", "stage", "epoch", "architecture"]
    ends = {0: "2-79-68-2", 1: "2-100-79-2", 2: "2-99-80-2", 3: "2-100-80-2"}
    rows = [["moons", "moons_mlp", "dense", seed, 1, 9, "2-100-80-2"] for seed in ends]
    rows += [["moons", "moons_mlp", "expand", seed, 2, 9, end] for seed, end in ends.items()]
    runs = pd.DataFrame(rows, columns=columns)
    later = runs[runs.direction == "expand"].assign(
        stage=3, epoch=10, architecture="2-9-9-2"
    )  # the end of stage 2 counts
    share = measures.has_to_spare(pd.concat([runs, later]), "expand", "dense")["moons/moons_mlp"]
    assert (share.value, share.seeds) == (25, 4)
    ends = binomtest(1, 4).proportion_ci()
    assert (share.low, share.high) == pytest.approx((100 * ends.low, 100 * ends.high))
    ends = binomtest(10, 40).proportion_ci()
    assert share.at(40) == pytest.approx((100 * ends.low, 100 * ends.high))
    ends = binomtest(1, 4).proportion_ci(0.99)
    assert share.sure(0.99) == pytest.approx((100 * ends.low, 100 * ends.high))


def test_layers_that_grew_alike_have_closed_nothing():
    columns = ["data", "network", "direction", "seed", "stage", "epoch", "architecture"]
    rows = [["digits", "a", "expand", seed, 1, 1, "3-3-12"] for seed in (0, 1)]
    rows += [["digits", "a", "expand", 0, 2, 2, "9-9-18"], ["digits", "a", "expand", 1, 2, 2, "9-5-18"]]
    rows += [["digits", "a", "expand", 0, 3, 3, "9-1-18"]]  # the end of stage 2 counts
    assert measures.uneven(pd.DataFrame(rows, columns=columns), "expand") == {"digits/a": {0: 0, 1: 4}}
    rows = [["moons", "moons_mlp", "expand", 0, stage, stage, f"2-{at}-{at}-2"] for stage, at in ((1, 3), (2, 8))]
    assert measures.uneven(pd.DataFrame(rows, columns=columns), "expand") == {"moons/moons_mlp": {0: 0}}


def test_the_widths_that_are_farthest_apart_whichever_is_larger():
    assert measures.widths_apart({"10-20-30": "5-20-45", "4-4": "3-4"}) == 2
    assert measures.widths_apart({"10-20": "30-20"}) == 3
    with pytest.raises(ValueError, match="shorter"):
        measures.widths_apart({"10-20": "30"})


def test_how_many_seeds_end_by_themselves_has_a_width_even_if_they_all_do():
    columns = ["data", "network", "direction", "seed", "stage", "epoch"]
    ends = {0: 900, 1: 1500, 2: 901, 3: 5500}
    rows = [["moons", "a", "expand", seed, 2, end] for seed, end in ends.items()]
    runs = pd.DataFrame(rows, columns=columns)
    later = runs.assign(stage=3, epoch=6000)  # where stage 2 ended is asked
    share = measures.ends_by_itself(pd.concat([runs, later]), "expand", [1500, 5500], 2)["moons/a"]
    assert (share.value, share.seeds) == (50, 4)
    every = measures.ends_by_itself(runs, "expand", [30])["moons/a"]
    assert (every.value, every.high, round(every.low, 1)) == (100, 100, 39.8)


def test_a_column_variant_counts_where_there_is_one():
    runs = RUNS.assign(variant=RUNS.direction.replace("expand", "k 2"), direction="sparsify")
    assert measures.factor(runs, ["k 2", "sparsify"]) == {"mnist/a": {0: 2.0, 1: 2.0}}


def test_rows_at_several_tau_are_compared_and_those_at_the_papers_count_elsewhere():
    columns = ["data", "network", "variant", "tau", "seed", "stage", "epoch", "accuracy", "parameters", "architecture"]
    cells = {0.1: (97.0, 66, "9-11"), 0.5: (97.5, 60, "9-10"), 0.9: (96.0, 44, "8-6")}
    rows = [["digits", "a", "sparsify", tau, 0, 1, 1, 99.0, 800, "16-24"] for tau in cells]
    rows += [["digits", "a", "sparsify", tau, 0, 2, 2, *values] for tau, values in cells.items()]
    runs = pd.DataFrame(rows, columns=columns)
    assert measures.value(runs, "sparsify") == {"digits/a": {0: 97.5}}
    assert measures.over_taus(runs, "sparsify", (0.1, 0.5, 0.9), stage=2) == {"digits/a": {0: 1.5}}
    assert measures.over_taus(runs, "sparsify", (0.1, 0.9), 2, "parameters", ratio=True) == {"digits/a": {0: 1.5}}
    assert measures.undecided(runs, "sparsify", (0.1, 0.9), stage=2) == {"digits/a": {0: 15.0}}
    assert measures.undecided(runs, "sparsify", (0.1, 0.9), stage=1) == {"digits/a": {0: 0.0}}
    with pytest.raises(BadInput, match=r"no tau 0\.2; they have: 0\.1, 0\.5, 0\.9"):
        measures.over_taus(runs, "sparsify", (0.2, 0.5), stage=2)
    with pytest.raises(BadInput, match=r"taus=\[0\.9, 0\.1\]: expected the lower one first, then a higher one"):
        measures.undecided(runs, "sparsify", (0.9, 0.1), stage=2)
    grown = runs.assign(architecture=runs.architecture.replace("16-24", "3-3"))
    with pytest.raises(BadInput, match="sparsify has more gates open in stage 2 than at the end of stage 1"):
        measures.undecided(grown, "sparsify", (0.1, 0.9), stage=2)


def test_an_architecture_that_is_not_of_numbers_is_refused():
    with pytest.raises(BadInput, match="'7-9-109-3O': expected whole numbers with - between"):
        measures.weights("lenet5", "7-9-109-3O")


def test_a_variant_that_the_runs_do_not_have_is_refused_with_those_they_have():
    for measure in (measures.value, lambda runs, name: measures.difference(runs, "expand", name)):
        with pytest.raises(BadInput, match="no variant 'grow'; they have: expand, sparsify"):
            measure(RUNS, "grow")


# Tables 1 to 3


@pytest.mark.parametrize(
    ("network", "architecture", "count"),
    [
        ("moons_mlp", "100-80", 100 * 80 + 80 * 2),
        ("lenet5", "20-50-800-500", 25 * 20 + 25 * 20 * 50 + 800 * 500 + 500 * 10),
        ("lenet5", "7-9-109-30", 25 * 7 + 25 * 7 * 9 + 109 * 30 + 30 * 10),
        (
            "alexnet",
            "96-256-384-384-256-1024-4096-4096",
            9 * (3 * 96 + 96 * 256 + 256 * 384 + 384 * 384 + 384 * 256) + 1024 * 4096 + 4096 * 4096 + 40960,
        ),
    ],
)
def test_weights_are_counted_as_products_of_open_gates(network, architecture, count):
    assert measures.weights(network, architecture) == count


def test_they_are_what_an_experiment_counts():
    names = ("conv1", "conv2", "fc1", "fc2")
    model = gates.gated(lenet5(), names, start=(8, 8, 53, 8))
    counted = gates.sizes(gates.trace(model))["parameters"]
    assert counted == measures.weights("lenet5", "8-8-53-8") == 2304


def test_gaps_and_shares_are_in_percent():
    assert measures.worst_gap("moons_mlp", {"100-80": 8160, "3-3": 15}) == 0
    assert measures.worst_gap("moons_mlp", {"100-80": 8160, "3-3": 12}) == pytest.approx(20)
    assert measures.worst_gap("moons_mlp", {"3-3": 18, "100-80": 8160}) == pytest.approx(20)
    assert measures.removed("moons_mlp", "100-80", "50-40") == pytest.approx(100 * (1 - 2080 / 8160))


def test_a_network_or_an_architecture_that_does_not_fit_is_refused():
    with pytest.raises(BadInput, match="'lenet': known are moons_mlp, lenet5"):
        measures.weights("lenet", "1-2-3-4")
    with pytest.raises(BadInput, match="1-2-3 has 3 numbers, lenet5 has 4 layers with gates"):
        measures.weights("lenet5", "1-2-3")


def test_the_best_accuracy_on_moons_falls_with_their_noise_as_that_of_many_neighbours_does():
    """Neighbours among many points come close to the best of all classifiers."""
    scores = []
    for noise in (0.1, 0.2):
        (points, labels), (others, truth) = (make_moons(20_000, noise=noise, random_state=seed) for seed in (0, 1))
        scores.append(100 * KNeighborsClassifier(51).fit(points, labels).score(others, truth))
    assert measures.lost_to_noise((0.1, 0.2)) == pytest.approx(scores[0] - scores[1], abs=0.3)
    assert measures.lost_to_noise((0.2, 0.1)) == -measures.lost_to_noise((0.1, 0.2))
