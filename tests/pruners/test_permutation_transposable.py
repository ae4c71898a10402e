"""Laws of `lib.pruners.permutation.both_sides`: its tables are what the patterns say, and orders keep more."""

import sys
from itertools import permutations, product

import pytest
import torch
from torch import Tensor

from lib.base import BadInput
from lib.pruners.permutation import kept_magnitude
from lib.pruners.permutation.both_sides import COUNTS, _magnitude, _State, anneal_both, kept_both_ways
from lib.pruners.transposable import patterns

search = sys.modules["lib.pruners.permutation.both_sides"]


def gaussian(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def test_two_lines_together_keep_19_counts():
    assert COUNTS == 19


def test_the_rest_of_a_block_is_the_most_that_any_of_the_90_patterns_allows():
    weight = gaussian(8, 12).abs()
    state = _State(_magnitude(weight))
    every = patterns()
    for side, matrix in zip(state.sides, (weight, weight.T), strict=True):
        for line, (way, pair), block in product(range(len(matrix)), enumerate(search.PAIRS), range(len(matrix.T) // 4)):
            place, group = line % 4, line // 4
            agree = every[(every[:, place, pair]).all(1)].float()
            agree[:, place] = 0  # the line itself does not count
            sums = (agree * matrix[4 * group : 4 * group + 4, 4 * block : 4 * block + 4]).sum((1, 2))
            assert side.rest[line, way, block] == pytest.approx(float(sums.max()), abs=1e-5)


def test_what_the_state_holds_after_many_swaps_is_what_the_orders_give():
    weight = gaussian(16, 24)
    state = _State(_magnitude(weight))
    before = state.total()
    state.run(2000, temperature=5.0, seed=1)  # hot: most are taken
    rows, columns = (torch.from_numpy(order) for order in state.orders())
    assert sorted(rows.tolist()) == list(range(16))
    assert sorted(columns.tolist()) == list(range(24))
    permuted = weight[rows][:, columns]
    assert torch.equal(torch.from_numpy(state.sides[0].lines), permuted.abs())
    assert torch.equal(torch.from_numpy(state.sides[1].lines), permuted.abs().T)
    assert state.total() == pytest.approx(kept_both_ways(permuted), rel=1e-6) != before
    fresh = _State(_magnitude(permuted))
    for mine, other in zip(state.sides, fresh.sides, strict=True):
        assert torch.allclose(torch.from_numpy(mine.rest), torch.from_numpy(other.rest), atol=1e-5)
        assert torch.allclose(torch.from_numpy(mine.value), torch.from_numpy(other.value), atol=1e-5)


def test_on_8_rows_and_columns_the_best_of_all_orders_is_found():
    """35 ways to share groups of four along each axis, 1,225 together."""
    weight = gaussian(8, 8)
    splits = {frozenset((frozenset(order[:4]), frozenset(order[4:]))): order for order in permutations(range(8))}
    assert len(splits) == 35
    best = max(kept_both_ways(weight[list(r)][:, list(c)]) for r, c in product(splits.values(), repeat=2))
    rows, columns = anneal_both(weight, 20_000)
    assert kept_both_ways(weight[rows][:, columns]) == pytest.approx(best, rel=1e-6)


def test_orders_win_back_a_good_part_of_what_the_second_direction_costs():
    weight = gaussian(64, 128)
    rows, columns = anneal_both(weight, 100_000)
    before, after = kept_both_ways(weight), kept_both_ways(weight[rows][:, columns])
    assert after - before > 0.3 * (kept_magnitude(weight) - before)


def test_the_same_seed_gives_the_same_orders_and_the_given_one_is_never_made_worse():
    weight = gaussian(16, 16)
    first, again, other = (anneal_both(weight, 5000, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    same = torch.ones(16, 16)
    assert [order.tolist() for order in anneal_both(same, 1000)] == [list(range(16))] * 2
    assert [order.tolist() for order in anneal_both(weight, 1000, seconds=0.0)] == [list(range(16))] * 2


def test_bad_input_is_one_line():
    for shape in ((10, 8), (8, 10), (4, 8), (8, 4)):
        with pytest.raises(BadInput, match=r"^both orders need a matrix with rows and columns in multiples of 4"):
            anneal_both(torch.ones(shape))
    with pytest.raises(BadInput, match=r"^proposals=10: expected a whole number, at least 100"):
        anneal_both(torch.ones(8, 8), 10)
    for seconds in (float("nan"), float("inf"), -1):
        with pytest.raises(BadInput, match=rf"^seconds={seconds}: expected a finite time"):
            anneal_both(torch.ones(8, 8), 100, seconds=seconds)
    with pytest.raises(BadInput, match=r"^64 of 64 weights are not finite"):
        anneal_both(torch.full((8, 8), torch.inf))
