"""Schedules: when to prune and how much. Each is asked `target(step, reward=None)` and answers with a sparsity."""

from __future__ import annotations

from dataclasses import dataclass

from lib.errors import BadInput


def _check_sparsity(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise BadInput(f"{name}={value} is not in [0, 1)")


@dataclass(frozen=True)
class Once:
    """All of it at one step: single-shot pruning before training (paper 1), the 2:4 workflow after it (paper 2)."""

    sparsity: float
    at: int = 0

    def __post_init__(self):
        _check_sparsity("sparsity", self.sparsity)

    def target(self, step: int, reward: float | None = None) -> float:
        """Share of weights to have removed at this step."""
        return self.sparsity if step >= self.at else 0.0


@dataclass(frozen=True)
class Gradual:
    """Zhu and Gupta's cubic ramp (paper 5, equation 1): fast while many weights are redundant, then slower.

    s_t = s_f + (s_i - s_f) (1 - (t - t_0) / (n D))^3, evaluated every D steps, n times.

    Attributes:
        final: s_f, the sparsity reached at the end.
        every: D, steps from one pruning to the next.
        times: n, how many prunings after the first.
        start: t_0, the step at which pruning begins.
        initial: s_i, the sparsity at that step.
    """

    final: float
    every: int
    times: int
    start: int = 0
    initial: float = 0.0

    def __post_init__(self):
        _check_sparsity("final", self.final)
        _check_sparsity("initial", self.initial)
        if self.initial > self.final:
            raise BadInput(f"initial={self.initial} is above final={self.final}: sparsity can only grow")
        if self.every < 1 or self.times < 1:
            raise BadInput(f"Gradual(every={self.every}, times={self.times}): both must be at least 1")

    def target(self, step: int, reward: float | None = None) -> float:
        """Share of weights to have removed at this step; between two prunings it stays what it was."""
        if step < self.start:
            return 0.0
        done = min((step - self.start) // self.every, self.times)
        return self.final + (self.initial - self.final) * (1 - done / self.times) ** 3
