"""Laws of `lib.papers.two_four.measures`: differences seed by seed, of the last step, draws averaged."""

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion.pairs import WentWrong
from lib.papers.two_four.measures import fewer_labels, more_bits, points

KEY = {"data": "play", "network": "decoder"}


def first(variant, seed, step, bits):
    return {**KEY, "phase": 1, "variant": variant, "labels": 0, "draw": 0, "seed": seed, "step": step, "bits": bits}


def second(variant, seed, labels, accuracy, draw=0):
    row = {**KEY, "phase": 2, "variant": variant, "labels": labels, "draw": draw, "seed": seed, "step": 7}
    return row | {"accuracy": accuracy}


RUNS = pd.DataFrame(
    [
        *(first("dense_twice", seed, step, bits) for seed in (0, 1) for step, bits in ((10, float("nan")), (20, 2.0))),
        first("sparse", 0, 20, 2.1),
        first("sparse", 1, 20, 1.9),
        *(second("dense", seed, labels, 50.0) for seed in (0, 1) for labels in (100, 900)),
        second("dense", 0, 100, 60.0, draw=1),
        *(second("sparse", 0, 100, accuracy, draw) for draw, accuracy in enumerate((40.0, 44.0))),
        second("sparse", 1, 100, 45.0),
        second("sparse", 0, 900, 52.0),
        second("sparse", 1, 900, 49.0),
    ]
)


def test_bits_are_compared_in_percent_at_the_last_step():
    assert more_bits(RUNS, "sparse", "dense_twice") == {"play/decoder": pytest.approx({0: 5.0, 1: -5.0})}
    later = RUNS[RUNS.phase == 1].assign(phase=2, step=99, bits=9.0)
    assert more_bits(pd.concat([RUNS, later]), "sparse", "dense_twice") == more_bits(RUNS, "sparse", "dense_twice")


def test_points_are_means_over_draws_of_the_fewest_labels_or_of_all():
    assert points(RUNS, "sparse", "dense", "fewest") == {"play/decoder": {0: 42.0 - 55.0, 1: -5.0}}
    assert points(RUNS, "sparse", "dense", "all") == {"play/decoder": {0: 2.0, 1: -1.0}}


def test_without_a_choice_each_number_of_labels_is_a_cell():
    found = points(RUNS, "sparse", "dense")
    few, everything = (points(RUNS, "sparse", "dense", labels)["play/decoder"] for labels in ("fewest", "all"))
    assert found == {"play/decoder/100 labels": few, "play/decoder/900 labels": everything}


def test_numbers_of_labels_are_sorted_as_numbers():
    runs = pd.DataFrame(
        [second(variant, 0, labels, 50.0) for labels in (1000, 300, 90) for variant in ("sparse", "dense")]
    )
    assert list(points(runs, "sparse", "dense")) == [f"play/decoder/{labels} labels" for labels in (90, 300, 1000)]


def test_a_run_that_ends_without_a_number_is_not_left_out_of_a_mean():
    wrong = RUNS.assign(accuracy=RUNS.accuracy.where(RUNS.draw == 0))
    with pytest.raises(WentWrong, match="labels 100, seed 0, draw 1 ends without a number in accuracy"):
        points(wrong, "sparse", "dense", "all")


def test_fewer_labels_is_what_more_of_them_bring():
    assert fewer_labels(RUNS, "sparse", "dense") == {"play/decoder": {0: -15.0, 1: -4.0}}


def test_what_is_not_there_is_refused():
    with pytest.raises(BadInput, match="no variant 'sparce'; they have: dense, sparse"):  # in phase 2
        points(RUNS, "sparce", "dense")
    with pytest.raises(BadInput, match="no variant 'dense_twice'; they have: dense, sparse"):  # in phase 1 alone
        points(RUNS, "dense_twice", "dense")
    with pytest.raises(BadInput, match="labels='some': known are fewest, all"):
        points(RUNS, "sparse", "dense", "some")
