"""SNIP and GraSP before offline reinforcement learning (paper 1, section 4, figures 1 and 2), and fair rivals.

One configuration is an algorithm, an environment and a seed: the dense agent and all pruned ones learn from the same
batches as one stack, each with its own masks from before its first step.

    dense      nothing is removed
    snip       the weights whose removal changes the loss least go
    grasp      the weights whose removal harms the gradient's flow least go
    random     chance decides what goes: does a score matter at all?
    magnitude  the smallest weights go: does it matter that the data are asked?

bc is the VAE's decoder acting alone, bcq the whole of BCQ; plain_bc, an ordinary network, is not the paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from lib.data import offline_rl
from lib.data.offline_rl.names import QUALITIES, environment
from lib.errors import BadInput
from lib.evaluation.rollouts import mean_returns
from lib.jobs import Job
from lib.settings import refuse_twice, refuse_unknown
from lib.training import offline
from lib.training.agents import Agent, Policy, Transitions
from lib.training.bc import BC, BCSettings, PlainBC, PlainBCSettings
from lib.training.bcq import BCQ, BCQSettings

ALGORITHMS = {"bc": BCSettings, "bcq": BCQSettings, "plain_bc": PlainBCSettings}
PACE = 50  # updates between two chances to stop

KEYS = ("data", "env", "algorithm", "batches", "seed")
INDEX = ("data", "env", "algorithm", "pruner", "sparsity", "batches", "seed", "step")
COLUMNS = (*INDEX, "return", "normalised_return")


@dataclass(frozen=True)
class Pruned:
    """Runs that one score prunes, to each of these sparsities."""

    pruner: str
    sparsities: tuple[float, ...]

    def __post_init__(self):
        refuse_twice(sparsities=self.sparsities)


@dataclass(frozen=True)
class Task:
    """One algorithm on one environment.

    Attributes:
        pruned: the runs of a seed besides the dense one.
        seeds: how many, from 0.
        steps: updates in all; `every`: from one evaluation to the next.
        episodes: of an evaluation.
        source, quality, transitions: of the data, see `lib.data.offline_rl.load`.
        batches: behind a score.
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

    def __post_init__(self):
        refuse_unknown(self, algorithm=ALGORITHMS, quality=QUALITIES)
        offline_rl.check(self.source, self.quality, self.transitions)
        if min(self.seeds, self.steps, self.every, self.episodes) < 1 or self.steps % self.every:
            raise BadInput(
                f"seeds and episodes must be at least 1, steps={self.steps} a multiple of every={self.every}"
            )
        if self.every > PACE and self.every % PACE:
            raise BadInput(f"every={self.every} must be a multiple of {PACE}, or less")
        offline.Pruning(batches=self.batches)
        environment(self.env)
        refuse_twice(pruned=[(one.pruner, one.sparsity) for one in runs(asdict(self), seed=0)])


@dataclass(frozen=True)
class Settings:
    """The tasks, and the settings of each algorithm."""

    tasks: tuple[Task, ...]
    bc: BCSettings = field(default_factory=BCSettings)
    bcq: BCQSettings = field(default_factory=BCQSettings)
    plain_bc: PlainBCSettings = field(default_factory=PlainBCSettings)


def configurations(settings: Settings) -> list[dict]:
    """The grid: a seed of a task each, with everything `run` needs."""
    return [
        asdict(task)
        | {
            "data": f"{task.source}-{task.quality}",
            "env": environment(task.env).name,
            "seed": seed,
            "settings": asdict(getattr(settings, task.algorithm)),
        }
        for task in settings.tasks
        for seed in range(task.seeds)
    ]


def units(configuration: dict) -> int:
    """How often a configuration can stop."""
    return configuration["steps"] // min(PACE, configuration["every"])


def runs(configuration: dict, seed: int) -> list[offline.Run]:
    """The runs of one stack: the dense one first."""
    pruned = [offline.Run(seed, cell["pruner"], s) for cell in configuration["pruned"] for s in cell["sparsities"]]
    return [offline.Run(seed), *pruned]


def run(configuration: dict, job: Job) -> list[dict]:
    """Prune and train one stack; one row a run and evaluation."""
    _, rows = learn(configuration, transitions(configuration, job.device), job)
    return [{name: row[name] for name in COLUMNS} for row in rows]


def transitions(configuration: dict, device: str) -> Transitions:
    """The data of a configuration."""
    where = (configuration[name] for name in ("source", "env", "quality", "transitions"))
    return Transitions.of(offline_rl.load(*where), device)


def learn(
    configuration: dict,
    data: Transitions,
    job: Job,
    see: Callable[[Policy], Policy] = lambda act: act,
    stack: Sequence[offline.Run] = (),
) -> tuple[Agent, list[dict]]:
    """The trained stack of a configuration, and one row a run and evaluation.

    Args:
        see: makes of the agents' policy one that is asked with the environment's observations.
        stack: the runs, if not those of `runs`; all of the configuration's seed.
    """
    env, seed, episodes = configuration["env"], configuration["seed"], configuration["episodes"]
    stack = stack or runs(configuration, seed)
    seeds = [seed] * len(stack)
    agent = build(configuration["algorithm"], env, data, seeds, configuration["settings"])
    offline.prune(agent, data, stack, offline.Pruning(batches=configuration["batches"]))

    label = f"{configuration['algorithm']} {env} {seed}"
    rows = offline.train(
        agent,
        data,
        stack,
        configuration["steps"],
        configuration["every"],
        lambda act: mean_returns(see(act), env, seeds, episodes),
        state=job.kept("stack.pt"),
        advance=lambda: job.advance(label),
        pace=PACE,
    )
    key = {name: configuration[name] for name in KEYS}
    return agent, [row | key for row in rows]


def build(algorithm: str, env: str, data: Transitions, seeds: Sequence[int], settings: Mapping) -> Agent:
    """A new agent, one run a seed, on the device of the data."""
    known = environment(env)
    chosen = ALGORITHMS[algorithm](**settings)
    bound, device = [1.0] * known.actions, str(data.observations.device)
    if algorithm == "plain_bc":
        return PlainBC(data, bound, seeds, chosen)
    return {"bc": BC, "bcq": BCQ}[algorithm](known.observations, bound, seeds, chosen, device)
