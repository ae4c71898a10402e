"""Give offline data one form, wherever they come from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from numbers import Integral

import numpy as np

from lib.base import BadInput
from lib.data.offline_rl.names import environment

BEYOND = 1e-4  # by how much rounding may carry an action beyond its bound


@dataclass(frozen=True, eq=False)
class Bundle:
    """Hold transitions (s, a, r, s') of one environment, in the order in which they happened, episode after episode.

    No transition leads from the cut end of one episode into the next: `next_observations` is what really followed, or
    else the transition is not here. So a value may be carried back over every transition that is not terminal, after a
    timeout too.

    Attributes:
        source: where they come from, such as "recorded/hopper-expert" or "d4rl/hopper-expert-v2".
        env: which environment, as `names` has it.
        observations, next_observations: float32 [n, observations].
        actions: float32 [n, actions], in [-1, 1].
        rewards: float32 [n].
        terminals: bool [n], the episode ended there: nothing follows, and the value of the next state is 0.
        timeouts: bool [n], the episode was cut after this transition.
    """

    source: str
    env: str
    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminals: np.ndarray
    timeouts: np.ndarray

    def __post_init__(self):
        known, count = environment(self.env), len(self.rewards)
        if count == 0:
            raise BadInput(f"{self.source} holds no transition")
        shapes = {
            "observations": (count, known.observations),
            "actions": (count, known.actions),
            "rewards": (count,),
            "next_observations": (count, known.observations),
            "terminals": (count,),
            "timeouts": (count,),
        }
        for name, shape in shapes.items():
            array, kind = getattr(self, name), bool if name in ("terminals", "timeouts") else np.float32
            if array.shape != shape:
                raise BadInput(f"{self.source}: {name} has shape {array.shape}; {known.name} needs {shape}")
            if array.dtype != kind:
                raise BadInput(f"{self.source}: {name} is {array.dtype}; expected {np.dtype(kind)}")
            if not np.isfinite(array).all():
                first = np.flatnonzero(~np.isfinite(array.reshape(count, -1)).all(1))[0]
                raise BadInput(f"{self.source}: {name} of transition {first} is not finite")
        if (largest := np.abs(self.actions).max()) > 1 + BEYOND:
            raise BadInput(f"{self.source}: an action of size {largest:g}; all must lie in [-1, 1]")

    def __len__(self) -> int:
        return len(self.rewards)

    def take(self, count: int) -> Bundle:
        """Take the first transitions alone.

        Raises:
            BadInput: fewer than one, or more than there are.
        """
        if not isinstance(count, Integral) or not 1 <= count <= len(self):
            raise BadInput(f"{self.source} has {len(self)} transitions; {count} of them cannot be taken")
        arrays = [field.name for field in fields(self) if field.name not in ("source", "env")]
        return replace(self, **{name: getattr(self, name)[:count] for name in arrays})

    def returns(self) -> np.ndarray:
        """Compute the sum of rewards of each episode that ends within the bundle, float64 [episodes]."""
        ends = np.flatnonzero(self.terminals | self.timeouts) + 1
        return np.diff(np.cumsum(self.rewards, dtype=np.float64)[ends - 1], prepend=0.0)
