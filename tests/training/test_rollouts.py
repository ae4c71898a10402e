"""Laws of playing: one whole episode a place, and runs that know nothing of their stack."""

import numpy as np
import pytest

from lib.base import BadInput
from lib.data import environments, offline_rl
from lib.training.rollouts import episode_seed, rollouts


class Agents:
    """A stack of policies tanh(o W), one W a seed."""

    def __init__(self, seeds, shape=(11, 3)):
        self.weights = np.stack([np.random.default_rng(seed).normal(size=shape) for seed in seeds])
        self.calls = 0

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        self.calls += 1
        assert observations.dtype == np.float32
        # einsum multiplies in the same order whatever the size of the stack
        return np.tanh(np.einsum("rno,roa->rna", observations, self.weights)).astype(np.float32)


def test_each_place_plays_one_whole_episode_from_its_own_start():
    seeds, agents = [3, 8], Agents([0, 1])
    found = rollouts(agents, "Hopper-v4", seeds, episodes=3)
    lengths = []
    for run, seed in enumerate(seeds):
        for number in range(3):  # the same episode alone, as Gymnasium's own documentation plays one
            game = environments.make("Hopper-v4")
            observation, _ = game.reset(seed=episode_seed(seed, number))
            total, steps, over = 0.0, 0, False
            while not over:
                action = np.tanh(np.einsum("o,oa->a", observation.astype(np.float32), agents.weights[run]))
                observation, reward, terminal, timeout, _ = game.step(action.astype(np.float32))
                total, steps, over = total + reward, steps + 1, terminal or timeout
            assert found[run, number] == pytest.approx(total, rel=1e-6)
            lengths.append(steps)
    assert len(set(lengths)) > 1  # some waited for others
    assert agents.calls == max(lengths)
    assert len(np.unique(found)) == 6


def test_a_runs_returns_do_not_depend_on_its_stack():
    together = rollouts(Agents([5, 6, 5]), "hopper", [1, 2, 1], 2)
    alone = rollouts(Agents([6]), "hopper", [2], 2)
    assert together[1].tobytes() == alone[0].tobytes()
    assert together[0].tobytes() == together[2].tobytes()  # same agent, same seed: the same starts
    assert rollouts(Agents([6]), "hopper", [2], 1)[0, 0] == alone[0, 0]


def test_an_episode_that_nothing_ends_is_cut_after_1000_steps():
    calls = []

    def still(observations):
        calls.append(observations)
        return np.zeros((1, 2, 6), np.float32)

    found = rollouts(still, "halfcheetah", [0], 2)
    assert len(calls) == 1000
    assert found.shape == (1, 2)
    assert found.dtype == np.float64
    # starts are not those of recorded data of the same seed
    recorded = offline_rl.recorded("halfcheetah", lambda seen: np.zeros((1, 6)), transitions=1, seed=0)
    assert np.abs(calls[0][0, 0] - recorded.observations[0]).max() > 1e-3


def test_evaluations_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="needs a run and an episode or more; these are 0 runs"):
        rollouts(Agents([0]), "hopper", [], 2)
    with pytest.raises(BadInput, match="these are 1 runs, 0"):
        rollouts(Agents([0]), "hopper", [1], 0)
    with pytest.raises(BadInput, match=r"actions for Hopper-v4 must have shape \(2, 1, 3\), these have \(1, 1, 3\)"):
        rollouts(lambda seen: np.zeros((1, 1, 3)), "hopper", [1, 2], 1)
    with pytest.raises(BadInput, match="run 1 acts with a number that is not finite"):
        rollouts(lambda seen: np.array([0, np.nan])[:, None, None] * np.ones((2, 1, 3)), "hopper", [1, 2], 1)
    with pytest.raises(BadInput, match="environment 'ant'"):
        rollouts(Agents([0]), "ant", [1])
    with pytest.raises(BadInput, match="seed=-1: expected a whole number, at least 0"):
        rollouts(Agents([0, 1]), "hopper", [1, -1], 1)
