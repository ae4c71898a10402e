"""Run SNIP and GraSP before offline reinforcement learning (paper 1, section 4, figures 1 and 2), and fair rivals.

One configuration is an algorithm, an environment and a seed: the dense agent and all pruned ones learn from the same
batches as one stack, each with its own masks from before its first step.

    dense      nothing is removed
    snip       the weights whose removal changes the loss least go
    grasp      the weights whose removal harms the gradient's flow least go
    random     chance decides what goes: does a score matter at all?
    magnitude  the smallest weights go: does it matter that the data are asked?
    snip_shuffled  SNIP's mask in another order within each layer: does it matter which of a layer's weights go?

bc is the VAE's decoder acting alone, bcq the whole of BCQ; plain_bc, an ordinary network, is not the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import pandas as pd

from lib.base import BadInput, refuse_twice, refuse_uncounted, refuse_unknown
from lib.base import build as build_settings
from lib.companion.sweep.context import Context
from lib.data import offline_rl
from lib.data.offline_rl.names import QUALITIES, environment
from lib.training import offline
from lib.training.agents import Agent, Transitions, normalised
from lib.training.bc import BC, BCSettings, PlainBC, PlainBCSettings
from lib.training.bcq import BCQ, BCQSettings
from lib.training.rollouts import mean_returns

ALGORITHMS = {"bc": BCSettings, "bcq": BCQSettings, "plain_bc": PlainBCSettings}
STOP_EVERY = 50  # updates between two chances to stop

LIBRARIES = ("gymnasium", "mujoco")
KEYS = ("data", "env", "algorithm", "variant", "batches", "seed")
INDEX = ("data", "env", "algorithm", "variant", "pruner", "sparsity", "batches", "seed", "step")
COLUMNS = (*INDEX, "return", "normalised_return")


@dataclass(frozen=True)
class Pruned:
    """Describe the runs that one score prunes, to each of these sparsities."""

    pruner: str
    sparsities: tuple[float, ...]

    def __post_init__(self):
        refuse_twice(sparsities=self.sparsities)


@dataclass(frozen=True)
class Task:
    """Describe one algorithm on one environment.

    Attributes:
        pruned: the runs of a seed besides the dense one.
        seeds: how many.
        first_seed: the first of them, for more seeds of some of the runs that another task has.
        steps: updates in all; `every`: from one evaluation to the next.
        episodes: of an evaluation.
        source, quality, transitions: of the data, see `lib.data.offline_rl.load`.
        batches: behind a score.
        variant: what the rows call this reading; "normalised" is our default, see `BCSettings.normalise`.
        change: settings of the algorithm that differ from those of the experiment, such as {normalise: false}.
    """

    env: str
    algorithm: str
    pruned: tuple[Pruned, ...]
    seeds: int
    steps: int
    every: int
    episodes: int
    source: str = "recorded"
    quality: str = "expert"
    transitions: int | None = 100_000
    batches: int = 1
    variant: str = "normalised"
    change: dict = field(default_factory=dict)
    first_seed: int = 0

    def __post_init__(self):
        refuse_uncounted(0, first_seed=self.first_seed)
        refuse_unknown(self, algorithm=ALGORITHMS, quality=QUALITIES)
        offline_rl.check(self.source, self.quality, self.transitions)
        if min(self.seeds, self.steps, self.every, self.episodes) < 1 or self.steps % self.every:
            raise BadInput(
                f"seeds and episodes must be at least 1, steps={self.steps} a multiple of every={self.every}"
            )
        if self.every > STOP_EVERY and self.every % STOP_EVERY:
            raise BadInput(f"every={self.every} must be a multiple of {STOP_EVERY}, or less")
        offline.Pruning(batches=self.batches)
        environment(self.env)
        self.settings(ALGORITHMS[self.algorithm]())
        if self.change and self.variant == "normalised":
            raise BadInput(f"change={self.change}: its rows need a name of their own, a variant")
        if (self.variant == "raw") != (self.change.get("normalise") is False):
            raise BadInput(
                f"variant={self.variant!r}, change={self.change}: raw is what {{normalise: false}} is called"
            )
        refuse_twice(pruned=[(one.pruner, one.sparsity) for one in runs(asdict(self), seed=0)])

    def settings(self, of: BCSettings | BCQSettings | PlainBCSettings) -> BCSettings | BCQSettings | PlainBCSettings:
        """Return the experiment's settings of the algorithm with what this task changes.

        Raises:
            BadInput: `change` names no setting of the algorithm, or gives it a value of another kind.
        """
        changed = build_settings(type(of), self.change, "change")
        return replace(of, **{name: getattr(changed, name) for name in self.change})


@dataclass(frozen=True)
class Settings:
    """Hold the tasks, and the settings of each algorithm."""

    tasks: tuple[Task, ...]
    bc: BCSettings = field(default_factory=BCSettings)
    bcq: BCQSettings = field(default_factory=BCQSettings)
    plain_bc: PlainBCSettings = field(default_factory=PlainBCSettings)


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return [
        {name: value for name, value in asdict(task).items() if name != "first_seed"}
        | {
            "data": f"{task.source}-{task.quality}",
            "env": environment(task.env).name,
            "seed": seed,
            "settings": asdict(task.settings(getattr(settings, task.algorithm))),
        }
        for task in settings.tasks
        for seed in range(task.first_seed, task.first_seed + task.seeds)
    ]


def upgrade(rows: pd.DataFrame) -> pd.DataFrame:
    """Bring rows that were computed before there were variants to today's columns."""
    return with_variant(rows)[list(COLUMNS)]


def with_variant(rows: pd.DataFrame) -> pd.DataFrame:
    """Fill in the variant of rows that were computed before there were variants.

    BC and BCQ took observations as they are then ("raw"); plain BC has always scaled them ("normalised").
    """
    if "variant" in rows:
        return rows
    return rows.assign(variant=rows.algorithm.map(lambda name: "normalised" if name == "plain_bc" else "raw"))


def units(configuration: dict) -> int:
    """Count how often a configuration can stop."""
    return configuration["steps"] // min(STOP_EVERY, configuration["every"])


def runs(configuration: dict, seed: int) -> list[offline.Run]:
    """List the runs of one stack: the dense one first."""
    pruned = [offline.Run(seed, cell["pruner"], s) for cell in configuration["pruned"] for s in cell["sparsities"]]
    return [offline.Run(seed), *pruned]


def run(configuration: dict, context: Context) -> list[dict]:
    """Prune and train one stack; one row a run and evaluation."""
    _, rows = learn(configuration, transitions(configuration, context.device), context)
    return [{name: row[name] for name in COLUMNS} for row in rows]


def transitions(configuration: dict, device: str) -> Transitions:
    """Load the data of a configuration."""
    where = (configuration[name] for name in ("source", "env", "quality", "transitions"))
    return Transitions.of(offline_rl.load(*where), device)


def learn(
    configuration: dict,
    data: Transitions,
    context: Context,
    stack: Sequence[offline.Run] = (),
) -> tuple[Agent, list[dict]]:
    """Train the stack of a configuration; return it and one row a run and evaluation.

    Args:
        stack: the runs, if not those of `runs`; all of the configuration's seed.
    """
    env, seed, episodes = configuration["env"], configuration["seed"], configuration["episodes"]
    stack = stack or runs(configuration, seed)
    seeds = [seed] * len(stack)
    agent = build(configuration["algorithm"], env, data, seeds, configuration["settings"])
    data, policy_of = normalised(data, agent.settings)
    offline.prune(agent, data, stack, offline.Pruning(batches=configuration["batches"]))

    label = f"{configuration['algorithm']} {env} {seed}"
    rows = offline.train(
        agent,
        data,
        stack,
        configuration["steps"],
        configuration["every"],
        lambda act: mean_returns(policy_of(act), env, seeds, episodes),
        state=context.checkpoint("stack.pt"),
        on_progress=lambda: context.report_progress(label),
        stop_every=STOP_EVERY,
    )
    key = {name: configuration[name] for name in KEYS}
    return agent, [row | key for row in rows]


def build(algorithm: str, env: str, data: Transitions, seeds: Sequence[int], settings: Mapping) -> Agent:
    """Build a new agent, one run a seed, on the device of the data."""
    known = environment(env)
    chosen = ALGORITHMS[algorithm](**settings)
    bound, device = [1.0] * known.actions, str(data.observations.device)
    kinds = {"bc": BC, "bcq": BCQ, "plain_bc": PlainBC}
    return kinds[algorithm](known.observations, bound, seeds, chosen, device)


def aliases(configuration: dict) -> list[dict]:
    """Return the form in which earlier sources keyed this configuration, without `variant`, `change` and `normalise`.

    plain_bc scaled its observations then, bc and bcq took them as they are; nothing else had been run.
    """
    plain = configuration["algorithm"] == "plain_bc"
    known = configuration["variant"] == ("normalised" if plain else "raw")
    return formerly(configuration) if known and configuration["settings"]["normalise"] == plain else []


def formerly(configuration: dict) -> list[dict]:
    """Return a configuration without `variant` and `change`, and without `normalise` where its algorithm had none."""
    added = () if configuration["algorithm"] == "plain_bc" else ("normalise",)
    settings = {name: value for name, value in configuration["settings"].items() if name not in added}
    rest = {name: value for name, value in configuration.items() if name not in ("variant", "change")}
    return [rest | {"settings": settings}]
