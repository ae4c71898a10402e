"""Run group-sparse behaviour cloning: paper 5's blocks with paper 1's data and scores. Beyond both papers.

All ways of one environment end with the same share of numbers to be kept; what differs is how they come there:

    block 1            single weights are pruned
    block B, shift < 1 Algorithm 1: coefficients of blocks are pruned, then released to single weights
    block B, shift 1   blocks to the end, of which fewer coefficients go

and which coefficients go:

    magnitude  the smallest, as in paper 5
    snip       those whose removal changes the loss least, as in paper 1, scored again at each pruning
    random     chance decides, the control
    none       none goes: dense networks, and blocks alone

One configuration is an environment and a way of grouping; seeds, choices and shares are a stack. As fixed data give no
reward while an agent learns, Zhu and Gupta's ramp says when pruning is due.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated

from lib import pruners
from lib.base import BadInput, Count, Range, refuse_twice, refuse_unknown
from lib.companion.sweep.context import Context
from lib.data import offline_rl
from lib.data.offline_rl.names import QUALITIES, environment
from lib.papers.gst.experiments.algorithm import Compression
from lib.papers.gst.experiments.callback import GroupSparseCallback
from lib.papers.gst.experiments.methods import RATIOS
from lib.papers.offline_rl.experiments.offline_rl import STOP_EVERY
from lib.papers.offline_rl.experiments.offline_rl import units as units
from lib.training import offline
from lib.training.agents import Transitions, normalised
from lib.training.bc import PlainBC, PlainBCSettings
from lib.training.rollouts import mean_returns

LIBRARIES = ("gymnasium", "mujoco")
KEYS = ("data", "env", "block", "shift")
INDEX = ("data", "env", "block", "shift", "choice", "kept", "seed", "step")
COLUMNS = (*INDEX, "return", "normalised_return", "sparsity", *RATIOS)


@dataclass(frozen=True)
class Grouping:
    """Describe a grouping, see `algorithm.Compression`; blocks of one weight have no shift."""

    block: int = 1
    shift: float = 0.0

    def sparsity(self, kept: float) -> float:
        """Compute the share of coefficients to remove, so that as many numbers are left as `kept` of the weights."""
        return 1 - kept * (self.block if self.shift == 1 else 1)


@dataclass(frozen=True)
class Task:
    """Describe one environment.

    Attributes:
        layers: weights that are compressed.
        kept: shares of their numbers that are left in the end.
        blocks: the ways of grouping, besides single weights.
        choices: what decides which coefficients go.
        seeds: how many, from 0.
        steps: updates in all; `every`: from one evaluation to the next.
        episodes: of an evaluation.
        prune_every: updates from one pruning to the next.
        ramp: share of the steps after which pruning has ended.
        batches: behind a score.
        source, quality, transitions: of the data, see `lib.data.offline_rl.load`.
    """

    env: str
    layers: tuple[str, ...]
    kept: tuple[float, ...]
    blocks: tuple[Grouping, ...]
    seeds: Count
    steps: int
    every: int
    episodes: int
    prune_every: int
    choices: tuple[str, ...] = ("magnitude", "snip", "random")
    ramp: Annotated[float, Range(0, 1)] = 0.5
    batches: int = 10
    source: str = "recorded"
    quality: str = "expert"
    transitions: int = 100_000

    def __post_init__(self):
        environment(self.env)
        refuse_unknown(self, quality=QUALITIES)
        refuse_twice(layers=self.layers, kept=self.kept, choices=self.choices)
        offline_rl.check(self.source, self.quality, self.transitions)
        if min(self.seeds, self.steps, self.every, self.episodes, self.prune_every) < 1 or self.steps % self.every:
            raise BadInput(
                f"{self.env}: seeds, episodes and prune_every must be at least 1, "
                f"steps={self.steps} a multiple of every={self.every}"
            )
        if self.every > STOP_EVERY and self.every % STOP_EVERY:
            raise BadInput(f"{self.env}: every={self.every} must be a multiple of {STOP_EVERY}, or less")
        if self.prune_every > self.ramp * self.steps:
            raise BadInput(f"{self.env}: a ramp that ends at {self.ramp} of {self.steps} steps has no pruning")
        offline.Pruning(batches=self.batches)
        for choice in self.choices:
            offline.Run(0, choice, 0.5)  # refuses what is no score
        for grouping in self.blocks:
            Compression(self.layers, grouping.block, grouping.shift)  # refuses what cannot be
            if grouping.block == 1 or grouping.shift == 0:
                raise BadInput(f"{self.env}: single weights are trained anyway; ask for larger blocks and a shift")
        for grouping in (Grouping(), *self.blocks):
            for kept in self.kept:
                if not 0 < kept < 1 or grouping.sparsity(kept) <= 0:
                    line = f"blocks of {grouping.block} cannot be pruned to kept={kept} of the weights"
                    raise BadInput(f"{self.env}: {line}")


@dataclass(frozen=True)
class Settings:
    """Hold the tasks, and how all of them learn."""

    tasks: tuple[Task, ...]
    plain_bc: PlainBCSettings = field(default_factory=PlainBCSettings)


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a grouping on an environment each, with everything `run` needs."""
    found = []
    for task in settings.tasks:
        shared = {name: value for name, value in asdict(task).items() if name != "blocks"}
        shared |= {"data": f"{task.source}-{task.quality}", "env": environment(task.env).name}
        shared |= {"settings": asdict(settings.plain_bc)}
        found += [shared | asdict(grouping) for grouping in (Grouping(), *task.blocks)]
    return found


def run(configuration: dict, context: Context) -> list[dict]:
    """Train one stack; one row a run and evaluation."""
    env, episodes, steps = configuration["env"], configuration["episodes"], configuration["steps"]
    grouping = Grouping(configuration["block"], configuration["shift"])
    untouched = 1 / grouping.block if grouping.shift == 1 else 1.0  # the share of numbers that blocks alone leave
    agents = [("none", untouched)] if grouping.shift in (0, 1) else []
    agents += [(choice, kept) for choice in configuration["choices"] for kept in configuration["kept"]]
    places = [(choice, kept, seed) for choice, kept in agents for seed in range(configuration["seeds"])]
    stack = [
        offline.Run(seed) if choice == "none" else offline.Run(seed, choice, grouping.sparsity(kept))
        for choice, kept, seed in places
    ]
    seeds = [run.seed for run in stack]
    times = int(configuration["ramp"] * steps) // configuration["prune_every"]
    schedules = [pruners.Gradual(run.sparsity, configuration["prune_every"], times) for run in stack]
    bundle = offline_rl.load(configuration["source"], env, configuration["quality"], configuration["transitions"])
    data = Transitions.of(bundle, context.device)
    settings = PlainBCSettings(**configuration["settings"])
    data, policy_of = normalised(data, settings)
    width, bound = data.observations.shape[1], [1.0] * data.actions.shape[1]
    agent = PlainBC(width, bound, seeds, settings, context.device)
    compression = Compression(tuple(configuration["layers"]), grouping.block, grouping.shift)
    scoring = offline.Pruning(batches=configuration["batches"])
    sparse = GroupSparseCallback(agent, data, stack, compression, schedules, scoring)

    def evaluate(act) -> dict[str, list]:
        reports = [sparse.algorithm.report(place) for place in range(len(stack))]
        found = {"sparsity": [report["sparsity"] for report in reports]}
        found |= {name: [report[f"ratio_{bitmap}"] for report in reports] for name, bitmap in RATIOS.items()}
        return found | mean_returns(policy_of(act), env, seeds, episodes)

    label = f"{env} blocks of {grouping.block}"
    state = context.checkpoint("stack.pt")
    rows = offline.train(
        agent,
        data,
        stack,
        steps,
        configuration["every"],
        evaluate,
        state,
        on_progress=lambda: context.report_progress(label),
        stop_every=STOP_EVERY,
        callback=sparse,
    )
    key = {name: configuration[name] for name in KEYS}
    named = [dict(zip(("choice", "kept"), place, strict=False)) for place in places]
    return [{name: (row | key | named[row["run"]])[name] for name in COLUMNS} for row in rows]
