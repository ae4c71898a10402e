"""Play with agents: the returns of whole episodes, of all runs of a stack at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import gymnasium as gym
import numpy as np

from lib.base import BadInput, refuse_uncounted
from lib.data.environments import make
from lib.data.offline_rl.names import environment, normalised


def rollouts(act: Callable[[np.ndarray], np.ndarray], env: str, seeds: Sequence[int], episodes: int = 10) -> np.ndarray:
    """Play episodes with a stack of agents: the undiscounted returns, float64 [run, episodes].

    Every episode has an environment of its own, and all step together, so that the agents are asked once a step. One
    whose episode has ended waits, its last observation unchanged, until all have: each plays exactly one episode.
    Starts depend on a run's seed and the number of the episode alone, never on the stack; runs of the same seed, and
    later evaluations of the same run, meet the same starts.

    Args:
        act: observations float32 [run, episodes, o] -> actions [run, episodes, a]. An agent that draws random numbers
            must draw them a run at a time, or its runs depend on the stack.
        env: Gymnasium's name, or one of D4RL's (`lib.data.offline_rl.names`).
        seeds: one a run.

    Raises:
        BadInput: no run or no episode, a seed below 0, no such environment, or actions of another shape or not finite.
    """
    if not seeds or episodes < 1:
        raise BadInput(f"an evaluation needs a run and an episode or more; these are {len(seeds)} runs, {episodes}")
    starts = {
        (run, episode): episode_seed(seed, episode) for run, seed in enumerate(seeds) for episode in range(episodes)
    }
    name = env if env in gym.registry else environment(env).id
    games = {place: make(name) for place in starts}
    widths = [space.shape[0] for space in (games[0, 0].observation_space, games[0, 0].action_space)]
    observations = np.zeros((len(seeds), episodes, widths[0]), np.float32)
    for place, game in games.items():
        observations[place], _ = game.reset(seed=starts[place])
    returns = np.zeros((len(seeds), episodes))
    while games:
        actions = np.asarray(act(observations))
        if actions.shape != (wanted := (len(seeds), episodes, widths[1])):
            raise BadInput(f"actions for {name} must have shape {wanted}, these have {actions.shape}")
        if not np.isfinite(actions).all():
            raise BadInput(f"run {np.argwhere(~np.isfinite(actions))[0][0]} acts with a number that is not finite")
        for place, game in list(games.items()):
            observations[place], reward, terminal, timeout, _ = game.step(actions[place])
            returns[place] += reward
            if terminal or timeout:
                games.pop(place).close()
    return returns


def mean_returns(
    act: Callable[[np.ndarray], np.ndarray], env: str, seeds: Sequence[int], episodes: int
) -> dict[str, list[float]]:
    """Compute the mean return of each run's episodes, as it is and in D4RL's normalised points: columns of a sweep's
    rows.
    """
    found = rollouts(act, env, seeds, episodes).mean(1)
    return {"return": found.tolist(), "normalised_return": normalised(env, found).tolist()}


def episode_seed(seed: int, episode: int) -> int:
    """Compute the seed of one evaluation episode's first state; other states than those of recorded data.

    Raises:
        BadInput: a seed or a number of an episode below 0.
    """
    refuse_uncounted(0, seed=seed, episode=episode)
    return int(np.random.SeedSequence([seed, episode], spawn_key=(1,)).generate_state(1)[0])
