"""Train a stack of TD3 runs group-sparsely (paper 5, Algorithm 1 with its sections 3.1 and 3.2).

Every run has a schedule of its own, such as `pruners.RewardAware`, which is told the run's return.

On the step of an evaluation the agents play first and are pruned then, because a schedule may ask for what they earned.
A row so holds the return before that step's pruning, and the sparsity and ratios after it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from lib import pruners
from lib.base import BadInput
from lib.papers.gst.experiments import algorithm
from lib.papers.gst.experiments.algorithm import Compression, GroupSparseTraining
from lib.pruners.groups import group_size
from lib.training import td3
from lib.training.rollouts import rollouts
from lib.training.supervised import seed_of
from lib.training.vector_environments import Environments

EVALUATION = 3  # a stream of random numbers of its own: TD3 has 0 to 2


@dataclass(frozen=True)
class Evaluation:
    """Say when and how long the agents play.

    Attributes:
        every: steps from one evaluation to the next.
        episodes: of each.
    """

    every: int
    episodes: int = 10

    def __post_init__(self):
        if min(self.every, self.episodes) < 1:
            raise BadInput(f"evaluation: every={self.every}, episodes={self.episodes} must both be 1 or more")


class Trainer(td3.Trainer):
    """Train a stack of TD3 runs that are compressed while they learn.

    Attributes:
        algorithm: what is removed and saved.
        measured: the returns of the latest evaluation, [run].
        rows: one an evaluation and run.
    """

    def __init__(
        self,
        agent: td3.Agent,
        environments: Environments,
        seeds: Sequence[int],
        compression: Compression,
        schedules: Sequence[pruners.Schedule],
        evaluation: Evaluation,
    ):
        super().__init__(agent, environments, seeds)
        if len(schedules) != len(self.seeds):
            raise BadInput(f"{len(schedules)} schedules for {len(self.seeds)} runs: each run has its own")
        self.compression, self.schedules, self.evaluation = compression, list(schedules), evaluation
        self.algorithm = GroupSparseTraining(
            agent.networks, compression, self.schedules, agent.optimizers, [agent.targets]
        )
        self._refuse_unseen_shift()
        self.measured = np.full(len(self.seeds), -np.inf)
        self.rows: list[dict] = []

    def _refuse_unseen_shift(self) -> None:
        """Refuse a shift that masks round down: rows have no phase, and measures find it where S_shift is reached."""
        table, end = self.algorithm.phases[0]
        if end > 1:  # there is none
            return
        counts = [weights // group_size(table) for weights in self.algorithm.pools]
        removed, total = sum(round(end * count) for count in counts), sum(counts)
        if removed < (end - 5e-7) * total:  # a run file has six digits
            rounded = f"it comes with {removed} of {total} coefficients, a little below, where no row would show it"
            raise BadInput(f"shift={end:g}: {rounded}; give {removed / total:.6g}")

    def step(self) -> None:
        """Take one step of TD3; then, where a run's schedule asks for it, pruning and the shift."""
        super().step()
        if self.steps % self.evaluation.every == 0:
            streams = [seed_of(seed, EVALUATION, self.steps) for seed in self.seeds]
            played = rollouts(self.agent.act, self.environments.name, streams, self.evaluation.episodes)
            self.measured = played.mean(1)
        self.algorithm.step(self.steps, self._rewards())
        if self.steps % self.evaluation.every == 0:
            for run, seed in enumerate(self.seeds):
                found = {"seed": seed, "step": self.steps, "return": float(self.measured[run])}
                self.rows.append(found | self.algorithm.report(run))

    def _rewards(self) -> list[float]:
        """R_new of each run, -inf before the first episode has ended."""
        if self.compression.reward == "evaluation":
            return self.measured.tolist()
        latest = [returns[-self.compression.window :] for returns in self.returns]
        return [float(np.mean(returns)) if returns else -np.inf for returns in latest]

    def identity(self) -> dict:
        """Say what must be the same when a session goes on."""
        return super().identity() | self.algorithm.identity() | {"evaluation": asdict(self.evaluation)}

    def state_dict(self) -> dict:
        """Return everything but the transitions."""
        return super().state_dict() | {
            "algorithm": self.algorithm.state_dict(),
            "measured": self.measured.tolist(),
            "rows": self.rows,
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        super().load_state_dict(content)
        self.algorithm.load_state_dict(content["algorithm"])
        self.measured, self.rows = np.array(content["measured"]), content["rows"]


def start(
    env: str,
    seeds: Sequence[int],
    settings: td3.Settings,
    compression: Compression,
    schedule: pruners.Schedule | Sequence[pruners.Schedule],
    evaluation: Evaluation,
    device: str = "cpu",
) -> Trainer:
    """Make a stack of runs at its beginning, blocks in place (Algorithm 1, lines 1 to 3); `td3.train` trains it.

    Args:
        schedule: of each run a copy of this one, or one a run.

    Raises:
        BadInput: a layer that there is not, or whose size B does not divide, or a shift that masks round down.
    """
    stack, environments = td3.begin(env, seeds, settings, device)
    algorithm.begin(stack, compression)
    each = list(schedule) if isinstance(schedule, Sequence) else [copy.deepcopy(schedule) for _ in seeds]
    return Trainer(td3.Agent(stack, settings), environments, seeds, compression, each, evaluation)
