"""Say which environment a set of offline data is of, by any of its names, and D4RL's score for it.

D4RL's data are of MuJoCo's -v2 environments, which need a library that no longer installs. Gymnasium's -v4 are the
closest there are today: the same bodies, rewards and ends of an episode on the current MuJoCo. Its -v5 are others
(Walker2d's feet grip twice as hard, and an unhealthy step earns no healthy reward).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from lib.base import BadInput
from lib.data.environments import normalised_return

QUALITIES = ("random", "medium", "expert", "medium-replay", "full-replay", "medium-expert")


@dataclass(frozen=True)
class Environment:
    """Describe one environment; actions lie in [-1, 1], and an episode is cut after 1,000 steps.

    Attributes:
        name: as D4RL writes it.
        id: Gymnasium's.
        observations, actions: how many numbers each is.
    """

    name: str
    id: str
    observations: int
    actions: int


ENVIRONMENTS = {
    known.name: known
    for known in (
        Environment("halfcheetah", "HalfCheetah-v4", 17, 6),
        Environment("hopper", "Hopper-v4", 11, 3),
        Environment("walker2d", "Walker2d-v4", 17, 6),
    )
}


def environment(name: str) -> Environment:
    """Find the environment that is meant: "hopper", "Hopper-v4", or D4RL's "hopper-v2", "hopper-expert-v2".

    Raises:
        BadInput: another environment, or another version of one of these.
    """
    return ENVIRONMENTS[_parts(name)[1]]


def quality_in(name: str) -> str | None:
    """Say which quality of data an environment's name carries, as "hopper-medium-v2" does; None for most names.

    Raises:
        BadInput: as `environment`.
    """
    return _parts(name)["quality"]


def _parts(name: str) -> re.Match[str]:
    """A name's parts: first the environment, then the version and, if D4RL's data are named, their quality."""
    found = re.fullmatch(rf"(\w+?)(-v4|(-(?P<quality>{'|'.join(QUALITIES)}))?-v2)?", name.lower())
    if not found or found[1] not in ENVIRONMENTS:
        known = ", ".join(each.id for each in ENVIRONMENTS.values())
        raise BadInput(f"environment {name!r}: known are {known}, and D4RL's names for them such as hopper-expert-v2")
    return found


def normalised(name: str, returns: float | np.ndarray) -> float | np.ndarray:
    """Compute D4RL's score of returns: 0 for its random policy, 100 for its expert (Fu et al. 2020); any name."""
    return normalised_return(environment(name).id, returns)
