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
from lib.base import BadInput, refuse_uncounted
from lib.papers.gst.experiments import algorithm
from lib.papers.gst.experiments.algorithm import Compression, GroupSparseTraining
from lib.pruners.blocks import group_size
from lib.training import td3
from lib.training.rollouts import rollouts
from lib.training.seeds import seed_of

EVALUATION = 3  # a stream of random numbers of its own: TD3 has 0 to 2
SOURCES = ("training", "evaluation")


@dataclass(frozen=True)
class Reward:
    """Say what a run reports to its schedule, R_new.

    Attributes:
        source: the mean return of the latest "training" episodes, with their noise, which costs nothing, or of the
            latest "evaluation". The paper has whatever generating experience gives, so training is the default.
        window: how many training episodes.
    """

    source: str = "training"
    window: int = 10

    def __post_init__(self):
        if self.source not in SOURCES:
            raise BadInput(f"reward={self.source!r}: known are {', '.join(SOURCES)}")
        refuse_uncounted(window=self.window)


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


class EvaluatedCallback:
    """Let a stack of TD3 runs play and compress it while it learns, as the `Callback` of its trainer.

    Args:
        trainer: at its beginning, blocks in place.
        schedules: when and how much is removed, one a run.
        reward: what they are told.

    Attributes:
        algorithm: what is removed and saved.
        measured: the returns of the latest evaluation, [run].
        rows: one an evaluation and run.

    Raises:
        BadInput: not one schedule a run, or a shift that masks round down.
    """

    def __init__(
        self,
        trainer: td3.TD3Trainer,
        compression: Compression,
        schedules: Sequence[pruners.Schedule],
        evaluation: Evaluation,
        reward: Reward,
    ):
        runs = len(trainer.seeds)
        if len(schedules) != runs:
            raise BadInput(f"{len(schedules)} schedules for {runs} runs: each run has its own")
        self.trainer, self.schedules, self.reward = trainer, list(schedules), reward
        self.evaluation, agent = evaluation, trainer.agent
        self.algorithm = GroupSparseTraining(
            agent.networks, compression, self.schedules, agent.optimizers, [agent.targets]
        )
        self._refuse_unseen_shift()
        self.measured = np.full(runs, -np.inf)
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

    def step(self, step: int) -> None:
        """Let the agents play where it is time; then prune and shift the runs whose schedule asks for it."""
        trainer, due = self.trainer, step % self.evaluation.every == 0
        if due:
            streams = [seed_of(seed, EVALUATION, step) for seed in trainer.seeds]
            played = rollouts(trainer.agent.act, trainer.environments.name, streams, self.evaluation.episodes)
            self.measured = played.mean(1)
        self.algorithm.step(step, self._rewards())
        if due:
            for run, seed in enumerate(trainer.seeds):
                found = {"seed": seed, "step": step, "return": float(self.measured[run])}
                self.rows.append(found | self.algorithm.report(run))

    def _rewards(self) -> list[float]:
        """R_new of each run, -inf before the first episode has ended."""
        if self.reward.source == "evaluation":
            return self.measured.tolist()
        latest = [returns[-self.reward.window :] for returns in self.trainer.returns]
        return [float(np.mean(returns)) if returns else -np.inf for returns in latest]

    def identity(self) -> dict:
        """Say what must be the same when a session goes on."""
        return self.algorithm.identity() | {"evaluation": asdict(self.evaluation), "reward": asdict(self.reward)}

    def state_dict(self) -> dict:
        """Return how far the pruning is, and what has been found."""
        return {
            "algorithm": self.algorithm.state_dict(),
            "measured": self.measured.tolist(),
            "rows": self.rows,
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        self.algorithm.load_state_dict(content["algorithm"])
        self.measured, self.rows = np.array(content["measured"]), content["rows"]


def start(
    env: str,
    seeds: Sequence[int],
    settings: td3.TD3Settings,
    compression: Compression,
    schedule: pruners.Schedule | Sequence[pruners.Schedule],
    evaluation: Evaluation,
    reward: Reward = Reward(),
    device: str = "cpu",
) -> td3.TD3Trainer:
    """Make a stack of runs at its beginning, blocks in place (Algorithm 1, lines 1 to 3); `td3.train` trains it.

    Its callback, an `EvaluatedCallback`, holds the rows.

    Args:
        schedule: of each run a copy of this one, or one a run.

    Raises:
        BadInput: a layer that there is not, or whose size B does not divide, or a shift that masks round down.
    """
    stack, environments = td3.begin(env, seeds, settings, device)
    algorithm.begin(stack, compression)
    each = list(schedule) if isinstance(schedule, Sequence) else [copy.deepcopy(schedule) for _ in seeds]
    trainer = td3.TD3Trainer(td3.TD3(stack, settings), environments, seeds)
    trainer.callback = EvaluatedCallback(trainer, compression, each, evaluation, reward)
    return trainer
