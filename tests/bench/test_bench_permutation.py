"""The benchmark of permutation searches: its rivals are what they say. Nothing here asserts a time."""

import pytest

from lib.bench import permutation
from lib.pruners.permutation import kept_magnitude


def test_every_way_to_share_groups_is_tried_once():
    """8! / (4! 4! 2!) = 35 and 12! / (4! 4! 4! 3!) = 5,775."""
    for columns, count in ((4, 1), (8, 35), (12, 5775)):
        splits = list(permutation.partitions(tuple(range(columns))))
        shared = {frozenset(frozenset(split[i : i + 4]) for i in range(0, columns, 4)) for split in splits}
        assert len(splits) == len(shared) == count
        assert all(sorted(split) == list(range(columns)) for split in splits)


def test_rows_of_a_small_matrix():
    rows = permutation.measured("gaussian", permutation.gaussian(16, 8), draws=3, proposals=(1000,), budgets=(0.01,))
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("default", None),
        ("random, best of 3", 0),
        ("greedy", None),
        *[("anneal, 1e+03", seed) for seed in range(3)],
        *[("anneal, 0.01 s", seed) for seed in range(3)],
        ("exhaustive", None),
    ]
    assert {(row["matrix"], row["rows"], row["columns"]) for row in rows} == {("gaussian", 16, 8)}
    assert all(set(row) == set(permutation.COLUMNS) for row in rows)
    default, *searched, best = (row["efficacy"] for row in rows)
    assert default == 0
    assert max(searched) <= best + 1e-9 < 100
    assert searched[2] == pytest.approx(best)  # 35 splits: annealing finds the best one
    weight = permutation.gaussian(16, 8)
    assert rows[0]["kept"] == pytest.approx(100 * kept_magnitude(weight) / float(weight.abs().sum()), rel=1e-6)


def test_more_random_orders_keep_more():
    weight = permutation.gaussian(16, 32)
    few, many = (kept_magnitude(weight[:, permutation.best_of_random(weight, draws, seed=0)]) for draws in (1, 100))
    assert few < many


def test_published_rows_say_so():
    rows = permutation.published()
    assert all(row["method"].startswith("published: ") for row in rows)
    assert {(row["matrix"], row["rows"], row["columns"]) for row in rows} == {("uniform", 128, 64)}
    assert [row["efficacy"] for row in rows] == [32.1, 35.5, 35.5, 14.1]


def test_trained_layers_are_matrices_of_input_channels():
    shapes = {name: tuple(weight.shape) for name, weight in permutation.trained(epochs=1)}
    assert shapes == {
        "small_resnet blocks.1.conv2": (32 * 9, 32),
        "small_resnet blocks.2.conv1": (64 * 9, 32),
        "small_resnet blocks.2.conv2": (64 * 9, 64),
        "small_lenet fc2": (10, 64),
    }
