"""Laws of the share of experiments that keep their return: how sure it is, and what more seeds would make of it."""

import numpy as np
from scipy.stats import binom

from lib.papers.offline_rl import measures


def test_a_share_that_is_sure_is_no_number_that_all_seeds_give():
    clear = [np.array([9.0, 10.0, 11.0])] * 15 + [np.array([-9.0, -10.0, -11.0])]
    found = measures._share_above(clear)
    assert (found.value, found.low, found.high, found.exact) == (15 / 16, 15 / 16, 15 / 16, False)
    alike = measures._share_above([np.array([1.0, 1.0])] * 3)
    assert (alike.low, alike.high, alike.exact) == (1, 1, True)


def test_the_chance_of_a_share_is_that_of_as_many_coins():
    fair = [np.array([-1.0, 1.0])] * 16  # of each mean it is as likely as not that it lies above 0
    found = measures._share_above(fair)
    ends = binom.ppf([0.025, 0.975], 16, 0.5) / 16
    assert (found.value, found.low, found.high) == (1, ends[0], 1)
    assert found.sure(1 - 2 * 0.5**16 / 1.01)[0] == 0
    assert found.sure(1 - 2 * 0.5**16 * 1.01)[0] == 1 / 16


def test_more_seeds_of_the_same_spread_decide_a_share():
    found = measures._share_above([np.array([880.0, 1060.0])])
    assert (found.low, found.high) == (0, 1)
    assert found.at(10**6) == (1, 1)
