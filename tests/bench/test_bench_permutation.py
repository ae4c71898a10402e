"""The benchmark of permutation searches: its rivals are what they say. Nothing here asserts a time."""

from itertools import combinations, product

import numpy as np
import pytest
import torch

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
        ("apex's channel swap, 0.01 s", None),
        ("apex's search of 8 columns, 0.01 s", None),
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


def kept(weight: torch.Tensor) -> float:
    """Written without the library: the two largest of every four, row by row."""
    return sum(sum(sorted(row[i : i + 4])[-2:]) for row in weight.abs().tolist() for i in range(0, len(row), 4))


def test_channel_swap_ends_where_no_swap_gains():
    for seed in range(3):
        weight = torch.randn(6, 12, generator=torch.Generator().manual_seed(seed))
        order = permutation.channel_swap(weight)
        assert sorted(order.tolist()) == list(range(12))
        end = kept(weight[:, order])
        assert end > kept(weight)
        for a, b in combinations(range(12), 2):
            swapped = order.clone()
            swapped[[a, b]] = swapped[[b, a]]
            assert kept(weight[:, swapped]) <= end + 1e-5


@pytest.mark.parametrize("search", [permutation.channel_swap, permutation.eight_at_a_time])
def test_a_search_ends_where_columns_are_equal(monkeypatch: pytest.MonkeyPatch, search):
    """A swap of equal columns gains nothing but its rounding, and that may be above zero both ways."""
    weight = torch.randn(10, 64, generator=torch.Generator().manual_seed(0))
    weight[:, ::3] = weight[:, :1]
    looks = iter(range(1000))

    def monotonic() -> float:
        assert next(looks, None) is not None, "the search goes round in circles"
        return 0.0

    monkeypatch.setattr(permutation.time, "monotonic", monotonic)
    assert sorted(search(weight).tolist()) == list(range(64))


def test_channel_swap_takes_the_best_swap_first():
    """In two groups, one of large and one of small columns, one swap of the eight columns' sixteen gains most."""
    weight = permutation.gaussian(16, 8)
    first = permutation.channel_swap(weight, seconds=0)
    assert first.tolist() == list(range(8))  # no time: the order as it is
    gains = {}
    for a, b in product(range(4), range(4, 8)):
        order = list(range(8))
        order[a], order[b] = b, a
        gains[a, b] = kept(weight[:, order]) - kept(weight)
    columns, table = permutation._columns(weight), np.zeros((8, 8))
    permutation._swap_gains(columns, np.arange(8), np.arange(8), np.zeros(8), np.zeros_like(columns), table)
    assert {pair: table[pair] for pair in gains} == pytest.approx(gains, abs=1e-5)


def test_eight_columns_at_a_time_are_the_best_of_eight_and_never_worse_than_the_order_as_it_is():
    weight = permutation.gaussian(16, 8)
    best = kept(weight[:, permutation.best_of_all(weight)])
    assert kept(weight[:, permutation.eight_at_a_time(weight)]) == pytest.approx(best)
    weight = permutation.gaussian(6, 16)
    order = permutation.eight_at_a_time(weight)
    assert sorted(order.tolist()) == list(range(16))
    end = kept(weight[:, order])
    assert end > kept(weight)
    for one, two in combinations(range(4), 2):  # and no pair of its groups could share its columns better
        eight = order.reshape(4, 4)[[one, two]].flatten()
        own = weight[:, eight]
        assert kept(own[:, permutation.best_of_all(own)]) <= kept(own) + 1e-5
    for search in (permutation.channel_swap, permutation.eight_at_a_time):
        assert kept(weight[:, search(weight, seconds=0)]) >= kept(weight)


def test_more_random_orders_keep_more():
    weight = permutation.gaussian(16, 32)
    few, many = (kept_magnitude(weight[:, permutation.best_of_random(weight, draws, seed=0)]) for draws in (1, 100))
    assert few < many


def test_published_rows_say_so():
    rows = permutation.published()
    assert all(row["method"].startswith("published: ") for row in rows)
    assert {(row["matrix"], row["rows"], row["columns"]) for row in rows} == {("uniform", 128, 64)}
    assert [row["efficacy"] for row in rows] == [32.1, 35.5, 35.5, 36.0, 36.6, 14.1]


def test_trained_layers_are_matrices_of_input_channels():
    shapes = {name: tuple(weight.shape) for name, weight in permutation.trained(epochs=1)}
    assert shapes == {
        "small_resnet blocks.1.conv2": (32 * 9, 32),
        "small_resnet blocks.2.conv1": (64 * 9, 32),
        "small_resnet blocks.2.conv2": (64 * 9, 64),
        "small_lenet fc2": (10, 64),
    }
