"""What every experiment of paper 5 sets: how blocks are made, and how reward-aware pruning goes on."""

from __future__ import annotations

from dataclasses import dataclass

from lib import pruners


@dataclass(frozen=True)
class Pruning:
    """Settings of `pruners.RewardAware` but its start."""

    increase: float = 0.01
    every: int = 5_000
    limit: float = 0.95
    initial_reward: float = 0.0
    reference: str = "record"

    def schedule(self, begin: int = 0) -> pruners.RewardAware:
        """Reward-aware pruning from this step on."""
        return pruners.RewardAware(self.increase, self.every, begin, self.limit, self.initial_reward, self.reference)


@dataclass(frozen=True)
class Blocks:
    """A way of grouping, see `algorithm.Compression`."""

    block: int
    shift: float
    conversion: str = "none"


SINGLE = Blocks(1, 0.0)  # weights that share nothing: dense networks, and reward-aware pruning alone
RATIOS = {"compression_ratio": "weights", "ideal_ratio": "none", "coefficient_ratio": "coefficients"}  # and bitmaps
