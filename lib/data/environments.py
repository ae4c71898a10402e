"""Make Gymnasium's continuous-control environments, and compute D4RL's normalised scores for them."""

from __future__ import annotations

import warnings

import gymnasium as gym
import mujoco
import numpy as np

from lib.base import BadInput

REFERENCES = {  # D4RL's v2 references: the mean return of a random and of an expert policy
    "HalfCheetah": (-280.178953, 12135.0),
    "Hopper": (-20.272305, 3234.3),
    "Walker2d": (1.629008, 4592.3),
}


def make(name: str) -> gym.Env:
    """Make Gymnasium's environment called `name`, such as "HalfCheetah-v4".

    BadInput: a name that Gymnasium does not know, or an environment whose observations and actions are not vectors of
    numbers with actions within symmetric finite bounds.
    """
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda message: None)  # Gymnasium's models use a word that MuJoCo will drop one day
    with warnings.catch_warnings():
        # the -v4 environments are meant, whatever Gymnasium has made since
        warnings.filterwarnings("ignore", message=".*is out of date.*", category=DeprecationWarning)
        try:
            game = gym.make(name)
        except (gym.error.Error, ImportError) as error:  # of a package that is not installed, or has moved
            raise BadInput(f"no environment called {name!r}: {str(error).splitlines()[0]}") from error
        finally:
            mujoco.set_mju_user_warning(before)
    seen, done = game.observation_space, game.action_space
    if not all(isinstance(space, gym.spaces.Box) and len(space.shape) == 1 for space in (seen, done)):
        raise BadInput(f"{name}: observations and actions must be vectors of numbers, these are {seen}, {done}")
    if not (np.isfinite(done.high).all() and (done.low == -done.high).all()):
        raise BadInput(f"{name}: actions must lie within symmetric finite bounds, these lie within {done}")
    return game


def normalised_return(name: str, returns: np.ndarray | float) -> np.ndarray | float:
    """Compute D4RL's normalised score (Fu et al. 2020): 0 = a random policy's return, 100 = an expert's.

    Args:
        name: Gymnasium's, of any version, such as "HalfCheetah-v4".

    Raises:
        BadInput: there are no reference returns for it.
    """
    kind = name.split("-")[0]
    if kind not in REFERENCES:
        raise BadInput(f"no reference returns for {name!r}; there are for: {', '.join(REFERENCES)}")
    random, expert = REFERENCES[kind]
    return 100 * (returns - random) / (expert - random)
