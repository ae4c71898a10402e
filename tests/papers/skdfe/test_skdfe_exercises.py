"""What checkers of paper 3's exercises say to answers that a student has computed."""

import numpy as np
import pytest

from lib.papers.skdfe.exercises import EXERCISES


@pytest.mark.parametrize(("less", "reason"), [(0, None), (1, "you divide by 3")])
def test_the_four_means_of_two_seeds_drawn_again_are_all_there_are(less, reason):
    first, second = np.random.default_rng(0).normal(size=(2, 10_000))
    means = np.stack([first, (first + second) / 2, (second + first) / 2, second])
    found = EXERCISES["32.5"](100 * np.sqrt(2 * means.var(0, ddof=less).mean()))
    assert found is None if reason is None else found.startswith(reason)
