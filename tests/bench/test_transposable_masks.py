"""The benchmark of transposable masks: its rivals are what they say. Nothing here asserts a time."""

import pytest
import torch

from lib.bench import transposable_masks as bench
from lib.pruners.transposable import to_blocks


def test_the_greedy_rule_by_hand():
    """9 and 8 fill the first row; the last row is left with a column that has no room."""
    matrix = torch.tensor([[9.0, 8, 1, 1], [7, 1, 1, 6], [1, 5, 1, 4], [1, 1, 3, 2]])
    mask = bench.by_rule(matrix, 2, 4, bench.greedy)
    assert mask.int().tolist() == [[1, 1, 0, 0], [1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 0]]


def test_the_2_approximation_by_hand():
    """1:2: 1 goes; 2 goes for its row, then 3 for its column, so that the first row is left with nothing."""
    mask = bench.by_rule(torch.tensor([[1.0, 3], [2, 4]]), 1, 2, bench.two_approximation)
    assert mask.int().tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize(("n", "m"), [(2, 4), (4, 8), (8, 16)])
def test_rules_keep_at_most_n_both_ways_and_remove_at_most_twice_what_must_go(n, m):
    magnitude = torch.randn(8 * m, 8 * m, generator=torch.Generator().manual_seed(0)).abs()
    best = magnitude[bench.transposable({"w": magnitude}, n, m)["w"]].sum()
    for rule in (bench.greedy, bench.two_approximation):
        mask = bench.by_rule(magnitude, n, m, rule)
        blocks = to_blocks(mask, m)
        assert (blocks.sum(1) <= n).all()
        assert (blocks.sum(2) <= n).all()
        assert magnitude[mask].sum() < best
        assert magnitude[~mask].sum() <= 2 * (magnitude.sum() - best)


def test_rows_of_a_small_matrix():
    rows = bench.measured(2, 4, 256, seconds=0)
    assert all(set(row) <= set(bench.COLUMNS) for row in rows)
    table = {row["method"]: row for row in rows}
    assert list(table) == ["rows only", "exact", "greedy", "2-approximation"]
    assert table["exact"]["optimal"] == 100
    assert table["exact"]["short"] == table["rows only"]["short"] == 0
    assert table["greedy"]["kept"] == pytest.approx(69.2, abs=0.3)
    assert table["greedy"]["short"] == pytest.approx(15.4, abs=2)
    assert table["2-approximation"]["kept"] == pytest.approx(63.0, abs=0.5)
    assert table["exact"]["ratio_to_exact"] == 1
