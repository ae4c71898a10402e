"""Laws of the pictures of an episode."""

import numpy as np
import pytest

from lib.base import BadInput
from lib.data.environments import make
from lib.training.films import film


def still(observations):
    return np.zeros((len(observations), 3), np.float32)


def test_the_first_picture_is_a_hopper_that_stands_and_the_last_one_that_falls():
    pictures, _ = film(still, "Hopper-v4", [0, 40])
    first, last = pictures
    assert first.shape == (4, 5)  # torso, thigh, leg, foot
    assert first[:, 4].tolist() == [0.05, 0.05, 0.04, 0.06]  # radii, as its model has them
    top, foot = first[:, [1, 3]].max(), first[:, [1, 3]].min()
    assert 1.3 < top < 1.6
    assert 0.0 < foot < 0.2
    assert last[:, [1, 3]].max() < top
    lengths = [np.hypot(p[:, 2] - p[:, 0], p[:, 3] - p[:, 1]) for p in pictures]
    assert lengths[0] == pytest.approx(lengths[1])  # seen from the side a body that moves in its plane keeps its size


def test_the_return_is_that_of_the_episode_and_pictures_end_with_it():
    pictures, total = film(still, "Hopper-v4", list(range(0, 1000, 100)), seed=3)
    assert 1 <= len(pictures) < 10
    game, sum_of_rewards, over = make("Hopper-v4"), 0.0, False
    game.reset(seed=3)
    while not over:
        _, reward, over, _, _ = game.step(np.zeros(3, np.float32))
        sum_of_rewards += reward
    assert total == pytest.approx(sum_of_rewards)


@pytest.mark.parametrize("times", [[], [3, 1], [-1]])
def test_times_in_no_order_are_refused(times):
    with pytest.raises(BadInput, match="ascending order"):
        film(still, "Hopper-v4", times)
