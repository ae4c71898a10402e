"""Record offline data of our own on demand: what a policy does in an environment."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from numbers import Real

import gymnasium
import numpy as np

from lib.base import BadInput, refuse_uncounted
from lib.data import policies
from lib.data.environments import make
from lib.data.offline_rl.bundle import Bundle
from lib.data.offline_rl.names import environment

STEPS = 1000  # of an episode that nothing ends
Act = Callable[[np.ndarray], np.ndarray]  # observations [n, o] -> actions [n, a]


def recorded(
    env: str, policy: str | Act = "expert", transitions: int = 100_000, seed: int = 0, noise: float = 0.1
) -> Bundle:
    """Record episodes of a policy, with normal noise added to its actions and the sum clipped to their bounds.

    Episode k depends on the seed and on k alone. So the same call gives the same bytes on the same machine, and the
    first transitions do not depend on how many are asked for. One environment steps after another: the policy costs a
    fifth of an environment's step, so there is nothing to gain by asking it for several at once.

    An episode that is cut after STEPS steps keeps its last transition, because what followed is known.

    Args:
        policy: "expert" or "medium", one of this project's own, or any function from observations [n, o] to actions.
        noise: standard deviation of the noise in units of the bound.

    Raises:
        BadInput: no whole number of transitions, a seed below 0, a noise that is no finite number of 0 or more, an
            unknown environment or policy, or as `episode`.
    """
    known = environment(env)
    refuse_uncounted(transitions=transitions)
    refuse_uncounted(0, seed=seed)
    if not isinstance(noise, Real) or not 0 <= noise < np.inf:
        raise BadInput(f"noise={noise!r:.40}: expected a finite number of 0 or more")
    act = policies.load(known.name, policy) if isinstance(policy, str) else policy
    name = f"{known.name}-{policy}" if isinstance(policy, str) else known.name
    parts, missing, game = [], transitions, make(known.id)
    for k in itertools.count():
        parts.append(episode(game, act, np.random.default_rng([seed, k]), noise, min(missing, STEPS)))
        missing -= len(parts[-1]["rewards"])
        if missing == 0:
            break
    game.close()
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return Bundle(source=f"recorded/{name}", env=known.name, **arrays)


def episode(
    game: gymnasium.Env, act: Act, draw: np.random.Generator, noise: float, limit: int
) -> dict[str, np.ndarray]:
    """Play one episode, or its first `limit` steps, as the arrays of a `Bundle`.

    Raises:
        BadInput: the policy's actions have another shape than the environment's.
    """
    observation, _ = game.reset(seed=int(draw.integers(2**31)))
    shocks = noise * draw.standard_normal((STEPS, *game.action_space.shape), dtype=np.float32)
    seen, actions, rewards = [observation.astype(np.float32)], [], []
    terminal = timeout = False
    while not (terminal or timeout) and len(rewards) < limit:
        chosen = np.asarray(act(seen[-1][None]))
        if chosen.shape != (wanted := (1, *game.action_space.shape)):
            raise BadInput(f"the policy's actions for one observation have shape {chosen.shape}, expected {wanted}")
        action = np.clip(chosen[0] + shocks[len(rewards)], -1, 1).astype(np.float32)
        observation, reward, terminal, timeout, _ = game.step(action)
        seen.append(observation.astype(np.float32))
        actions.append(action)
        rewards.append(reward)
    ends = np.arange(len(rewards)) == len(rewards) - 1
    return {
        "observations": np.stack(seen[:-1]),
        "actions": np.stack(actions),
        "rewards": np.array(rewards, np.float32),
        "next_observations": np.stack(seen[1:]),
        "terminals": ends & terminal,
        "timeouts": ends & timeout,
    }
