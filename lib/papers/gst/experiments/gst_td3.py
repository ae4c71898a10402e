"""Train TD3 group-sparsely (paper 5, figures 5 to 8), and the rivals it is compared with.

One configuration is one environment and one way of training, with all seeds as a stack:

    dense    TD3 as it is
    rwp      reward-aware pruning of single weights, once a pruning start (and once a kind of reward); after it, where
             the reward is that of training,
    gradual  Zhu and Gupta's ramp to the sparsity at which each run has the average ratio of its rwp run (section 4.1)
    gst      Algorithm 1 with reward-aware pruning, once a block size, shift and conversion

`compression_ratio` is equation 3 averaged over the steps so far; beside it equation 2 (`ideal_ratio`), and equation 3
with a bitmap on coefficients (`coefficient_ratio`). `return` is of an evaluation without exploration noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import gymnasium as gym
import pandas as pd

from lib import pruners
from lib.base import BadInput, Count, Range, refuse_twice
from lib.companion.sweep.context import Context
from lib.data.environments import make
from lib.papers.gst.experiments import methods
from lib.papers.gst.experiments.algorithm import Compression, share
from lib.papers.gst.experiments.methods import SINGLE, Blocks
from lib.papers.gst.experiments.online import Evaluation, Reward, start
from lib.training import td3

LIBRARIES = ("gymnasium", "mujoco")
KEYS = ("env", "block", "shift", "conversion", "start", "reward", "first_seed")
INDEX = ("env", "method", "block", "shift", "conversion", "start", "reward", "first_seed", "seed", "step")
COLUMNS = (*INDEX, "return", "sparsity", *methods.RATIOS)


@dataclass(frozen=True)
class WindowedPruning(methods.RewardPruning):
    """Hold besides over how many training episodes the reward is a mean (`online.Reward`)."""

    window: Count = 10


@dataclass(frozen=True)
class Task:
    """Describe one environment.

    Attributes:
        layers: weights that are compressed.
        seeds: how many; trained as one stack.
        steps: in the environment, of each training.
        evaluation: when the agents play, and rows are kept.
        starts: steps after which rwp begins; the first is that of gst.
        rewards: what rwp goes by; the first is that of gst.
        ramp: share of the steps after which gradual's ramp has ended.
        blocks: the ways of grouping, besides single weights.
        first_seed: of the stack. A task of later seeds adds to one that has been trained.
    """

    env: str
    layers: tuple[str, ...]
    seeds: Count
    steps: int
    evaluation: Evaluation
    td3: td3.TD3Settings
    pruning: WindowedPruning
    blocks: tuple[Blocks, ...]
    starts: tuple[int, ...] = (0,)
    rewards: tuple[str, ...] = ("training",)
    ramp: Annotated[float, Range(0, 1)] = 0.5
    first_seed: Annotated[int, Range(0)] = 0

    def __post_init__(self):
        if self.env not in gym.registry:
            raise BadInput(f"environment {self.env!r}: expected Gymnasium's name and version, such as Hopper-v4")
        make(self.env).close()  # refuses what no agent here can act in
        refuse_twice(layers=self.layers)
        if self.seeds < 1 or not self.starts or not self.rewards or not self.layers:
            raise BadInput(f"{self.env}: at least one seed, layer, start and reward are needed")
        if self.steps < 1 or self.steps % self.evaluation.every:
            raise BadInput(f"{self.env}: steps={self.steps} must be a multiple of every={self.evaluation.every}")
        if max(self.starts) + self.pruning.every > self.ramp * self.steps:
            raise BadInput(f"{self.env}: a ramp that ends at {self.ramp} of {self.steps} steps has no pruning")
        if self.td3.random_steps >= self.steps:
            given = f"random_steps={self.td3.random_steps}, steps={self.steps}"
            raise BadInput(f"{self.env}: {given}: an agent that only acts by chance learns nothing")
        for reward in self.rewards:
            Reward(reward)
        methods.refuse_methods(self.blocks)


@dataclass(frozen=True)
class Settings:
    """Each task is an environment with its rivals."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a method on an environment each, with everything `run` needs."""
    found = []
    for task in settings.tasks:
        shared = {name: value for name, value in asdict(task).items() if name not in ("blocks", "starts", "rewards")}
        first, *others = task.rewards
        pruned = [(begin, first) for begin in task.starts] + [(task.starts[0], reward) for reward in others]
        single = shared | asdict(SINGLE)
        found += [single | {"start": begin, "reward": reward} for begin, reward in [(0, "none"), *pruned]]
        found += [shared | asdict(one) | {"start": task.starts[0], "reward": first} for one in task.blocks]
    return found


def aliases(configuration: dict) -> list[dict]:
    """List the earlier forms of a configuration: every stack once began with seed 0."""
    earlier = {name: value for name, value in configuration.items() if name != "first_seed"}
    return [earlier] if configuration["first_seed"] == 0 else []


def upgrade(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the column that an earlier file lacks."""
    return rows if "first_seed" in rows else rows.assign(first_seed=0)


def units(configuration: dict) -> int:
    """Count the evaluations in one configuration."""
    trainings = 2 if configuration["block"] == 1 and configuration["reward"] == "training" else 1
    return trainings * configuration["steps"] // configuration["evaluation"]["every"]


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all that belongs to one configuration; one row a run and evaluation."""
    learner, layers = td3.TD3Settings(**configuration["td3"]), tuple(configuration["layers"])
    pruning, evaluation = WindowedPruning(**configuration["pruning"]), Evaluation(**configuration["evaluation"])
    env, steps, first = configuration["env"], configuration["steps"], configuration["first_seed"]
    seeds = range(first, first + configuration["seeds"])
    grouping = {name: configuration[name] for name in methods.GROUPING}
    begin, reward = configuration["start"], configuration["reward"]
    rows: list[dict] = []

    def train(method: str, schedule: pruners.Schedule | Sequence[pruners.Schedule]) -> list[float]:
        """Train, keep the rows, and say which share of its network each run has saved on average (equation 2)."""
        chosen, told = Compression(), Reward()  # of dense agents, which are not pruned
        if reward != "none":
            chosen, told = Compression(layers, **grouping), Reward(reward, pruning.window)
        trainer = start(env, seeds, learner, chosen, schedule, evaluation, told, context.device)
        before = context.done

        def report(now: td3.TD3Trainer) -> None:
            if now.steps % evaluation.every == 0:
                context.done = before + now.steps // evaluation.every - 1
                context.report_progress(method)

        td3.train(trainer, steps, report, context.checkpoint(method))
        context.done = before + steps // evaluation.every
        key = {name: configuration[name] for name in KEYS} | {"method": method}
        rows.extend(methods.rows(key, trainer.callback.rows, COLUMNS))
        part = share(trainer.agent.networks, layers)
        return [row["ratio_none"] / part for row in trainer.callback.rows[-len(seeds) :]]

    if reward == "none":
        train("dense", pruners.Once(0.0))
    elif grouping["block"] > 1:
        train("gst", pruning.schedule(begin))
    else:
        averages = train("rwp", pruning.schedule(begin))
        if reward == "training":
            train("gradual", [ramp(average, begin, steps, configuration["ramp"], pruning) for average in averages])
    return rows


def ramp(average: float, begin: int, steps: int, end: float, pruning: WindowedPruning) -> pruners.Gradual:
    """Find the cubic ramp whose sparsity averages this one over all steps; its end is at most the pruning's limit."""
    times = int(end * steps - begin) // pruning.every
    unit = pruners.Gradual(0.5, pruning.every, times, begin)
    mean = sum(unit.target(step) for step in range(1, steps + 1)) / steps / 0.5
    return pruners.Gradual(min(average / mean, pruning.limit), pruning.every, times, begin)
