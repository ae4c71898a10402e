"""Laws of the share of experiments that keep their return: how sure it is, and what more seeds would make of it."""

import numpy as np
import pytest

from lib.papers.offline_rl import measures


def test_a_share_that_is_sure_is_no_number_that_all_seeds_give():
    clear = [np.array([9.9, 10.0, 10.1])] * 15 + [np.array([-9.9, -10.0, -10.1])]
    found = measures._share_above(clear)
    assert (found.value, found.low, found.high, found.exact) == (15 / 16, 15 / 16, 15 / 16, False)
    for same in (1.0, 0.0):  # to lie on the bound is to keep
        alike = measures._share_above([np.array([same, same])] * 3)
        assert (alike.low, alike.high, alike.exact) == (1, 1, True)


def test_what_seeds_leave_open_counts_on_neither_side():
    shown, open_, lone = np.array([9.9, 10.0, 10.1]), np.array([-1.0, 2.0]), np.array([5.0])
    found = measures._share_above([shown, open_, lone, -shown])
    assert (found.value, found.low, found.high) == (0.75, 0.25, 0.75)


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_a_majority_is_claimed_by_mistake_as_seldom_as_the_interval_says(shared: float):
    """Six experiments clearly keep their return, six lie just below the bound, or the other way round; all may share
    dense agents.
    """
    draw, most, few = np.random.default_rng(0), 0, 0
    for _ in range(600):
        seeds = draw.standard_normal((12, 5)) + shared * draw.standard_normal(5)
        clear, near = seeds[:6] + 8, seeds[6:] - 0.01
        most += measures._share_above([*clear, *near]).low > 0.5
        few += measures._share_above([*-clear, *-near]).high < 0.5
    assert max(most, few) <= 0.04 * 600  # 2.5 % and the luck of 600 draws


def test_more_seeds_of_the_same_spread_decide_a_share():
    found = measures._share_above([np.array([880.0, 1060.0])])
    assert (found.low, found.high) == (0, 1)
    assert found.at(10**6) == (1, 1)
