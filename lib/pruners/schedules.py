"""Say when to prune and how much: each schedule is asked `target(step, reward=None)` and answers with a sparsity."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Protocol

from lib.base import BadInput, refuse_outside, refuse_uncounted

REFERENCES = ("record", "every_step", "pruning")


class Schedule(Protocol):
    """Say what every schedule can be asked."""

    def target(self, step: int, reward: float | None = None) -> float:
        """Return the share of weights to have removed at this step."""
        ...


def _check_step(step: int) -> None:
    number = isinstance(step, Real) or hasattr(step, "__index__")  # an optimizer counts its steps by a tensor
    if not number or not 0 <= step < math.inf:  # NaN is not
        raise BadInput(f"step={step!r:.40}: expected how many steps training has had so far")


@dataclass(frozen=True)
class Once:
    """Remove all at one step: single-shot pruning before training (paper 1), the 2:4 workflow after it (paper 2)."""

    sparsity: float
    at: int = 0

    def __post_init__(self):
        refuse_outside("[0, 1)", sparsity=self.sparsity)
        refuse_uncounted(0, at=self.at)

    def target(self, step: int, reward: float | None = None) -> float:
        """Return the share of weights to have removed at this step.

        Raises:
            BadInput: the step is no number of 0 or more.
        """
        _check_step(step)
        return self.sparsity if step >= self.at else 0.0


@dataclass(frozen=True)
class Iterative:
    """Remove weights in several rounds from step 0 on, one a step, each of which removes the same share of what is
    left.

    What is scored anew between two rounds can still be spared (paper 1, section 4: "number of pruning iterations").

    Attributes:
        sparsity: reached with the last round.
        rounds: how many; one is `Once` at step 0.
    """

    sparsity: float
    rounds: int

    def __post_init__(self):
        refuse_outside("[0, 1)", sparsity=self.sparsity)
        refuse_uncounted(rounds=self.rounds)

    def target(self, step: int, reward: float | None = None) -> float:
        """Return the share of weights to have removed at this step, which is the round, counted from 0.

        Raises:
            BadInput: the step is no number of 0 or more.
        """
        _check_step(step)
        done = step + 1
        return self.sparsity if done >= self.rounds else 1 - (1 - self.sparsity) ** (done / self.rounds)


@dataclass(frozen=True)
class Gradual:
    """Follow Zhu and Gupta's cubic ramp (paper 5, equation 1): fast while many weights are redundant, then slower.

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
        refuse_outside("[0, 1)", final=self.final, initial=self.initial)
        if self.initial > self.final:
            raise BadInput(f"initial={self.initial} is above final={self.final}: sparsity can only grow")
        refuse_uncounted(every=self.every, times=self.times)
        refuse_uncounted(0, start=self.start)

    def target(self, step: int, reward: float | None = None) -> float:
        """Return the share of weights to have removed at this step; between two prunings it stays what it was.

        Raises:
            BadInput: the step is no number of 0 or more.
        """
        _check_step(step)
        if step < self.start:
            return 0.0
        done = min((step - self.start) // self.every, self.times)
        return self.final + (self.initial - self.final) * (1 - done / self.times) ** 3


@dataclass
class RewardAware:
    """Prune by reward (paper 5, Algorithms 1 and 2): prune further when the reward is higher than ever before.

    To be asked at every step, or at least whenever the reward is measured anew. One object a run: it remembers the
    highest reward and how often it has pruned. Algorithm 1 leaves open what the reward is; that is the caller's
    choice, such as the mean return of the last ten episodes.

    Attributes:
        increase: P_step, what is added to the sparsity at a time.
        every: P_fre, prune only at steps that are multiples of it.
        start: P_start, prune only after this step.
        limit: S_ub, the sparsity never exceeds it.
        initial_reward: R_prev at the beginning. Algorithm 1 has 0; where returns are negative choose -inf.
        reference: when R_prev rises to the newest reward. "record": when a newer one is measured, or after a chance
            to prune; so a reward counts as new until then. "every_step": after each step, as Algorithm 1 is printed;
            then a record counts only if it is measured at the very step of a pruning, as it is where episodes of 1,000
            steps meet an `every` of their multiples, and hardly ever where they end at any time. "pruning": only
            after a chance to prune, so a record between two of them may be worse than the next reward that counts.
        highest, newest, times: what it remembers: R_prev, R_new, how often it has pruned.
    """

    increase: float = 0.01
    every: int = 5_000
    start: int = 0
    limit: float = 0.95
    initial_reward: float = 0.0
    reference: str = "record"
    highest: float = field(init=False)
    newest: float = field(init=False, default=-math.inf)
    times: int = field(init=False, default=0)

    def __post_init__(self):
        refuse_outside("[0, 1)", limit=self.limit)
        refuse_outside("(0, 1)", increase=self.increase)
        refuse_uncounted(every=self.every)
        refuse_uncounted(0, start=self.start)
        if self.reference not in REFERENCES:
            raise BadInput(f"reference={self.reference!r}: known are {', '.join(REFERENCES)}")
        if not isinstance(self.initial_reward, Real) or math.isnan(self.initial_reward):
            raise BadInput("initial_reward is not a number; 0 as in the paper, or -inf where returns are negative")
        self.highest = self.initial_reward

    def target(self, step: int, reward: float | None = None) -> float:
        """Return the share of weights to have removed at this step.

        Args:
            reward: the newest there is, R_new; -inf before there is one.

        Raises:
            BadInput: no reward, or one that is not a number; or the step is none of 0 or more.
        """
        _check_step(step)
        if not isinstance(reward, Real) or math.isnan(reward):
            needs = "needs a reward (-inf before the first)"
            raise BadInput(f"reward-aware pruning at step {step} {needs}, not {reward!r:.40}")
        chance = step % self.every == 0 and step > self.start
        if self.reference == "record" and reward != self.newest:
            self.highest = max(self.highest, self.newest)
        self.newest = reward = float(reward)  # of NumPy's numbers a checkpoint could not be read again
        if chance and reward > self.highest and self.sparsity < self.limit:
            self.times += 1
        if chance or self.reference == "every_step":
            self.highest = max(self.highest, reward)
        return self.sparsity

    @property
    def sparsity(self) -> float:
        """Return P_th: the target so far, the same number for the same count whatever the way there."""
        return min(round(self.times * self.increase, 12), self.limit)

    def state_dict(self) -> dict:
        """Say what it remembers."""
        return {"highest": self.highest, "newest": self.newest, "times": self.times}

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called.

        Raises:
            BadInput: it is no such state; nothing is changed then.
        """
        if not isinstance(content, Mapping) or not self.state_dict().keys() <= content.keys():
            raise BadInput(f"{content!r:.60} is no state of reward-aware pruning: expected highest, newest and times")
        numbers = (content["highest"], content["newest"])
        if not all(isinstance(one, Real) and not math.isnan(one) for one in numbers):
            raise BadInput(f"highest and newest must be rewards, not {numbers}")
        refuse_uncounted(0, times=content["times"])
        self.highest, self.newest, self.times = content["highest"], content["newest"], content["times"]
