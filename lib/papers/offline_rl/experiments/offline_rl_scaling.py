"""Compare pruning with observations as they are with pruning with scaled ones (mean 0, deviation 1). Beyond paper 1.

SNIP and GraSP multiply a weight by a derivative, and the derivative of a first layer's weight by what enters it. Where
angles vary by a tenth and velocities by ten, a score ranks the observations before it ranks anything else, and a
network may lose sight of the small ones. Here bc and plain_bc learn either way.

`unseen` is how many observations no kept weight of the acting network leads away from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lib.base import BadInput
from lib.companion.sweep.context import Context
from lib.papers.offline_rl.experiments import offline_rl
from lib.training.agents import Agent
from lib.training.bc import BCSettings, PlainBCSettings

ACTING = {"bc": "decoder", "plain_bc": "actor"}  # which network chooses the actions

KEYS = ("data", "env", "algorithm", "scaled", "batches", "seed")
INDEX = ("data", "env", "algorithm", "scaled", "pruner", "sparsity", "batches", "seed", "step")
COLUMNS = (*INDEX, "unseen", "return", "normalised_return")


@dataclass(frozen=True)
class Settings:
    """Hold the settings of `offline_rl`, but for bcq's; whether observations are scaled is up to the experiment."""

    tasks: tuple[offline_rl.Task, ...]
    bc: BCSettings = field(default_factory=BCSettings)
    plain_bc: PlainBCSettings = field(default_factory=PlainBCSettings)

    def __post_init__(self):
        if odd := [task.algorithm for task in self.tasks if task.algorithm not in ACTING]:
            raise BadInput(f"algorithm {odd[0]!r}: observations are scaled for {', '.join(ACTING)}")


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task, with observations as they are and scaled."""
    raw = {name: replace(getattr(settings, name), normalise=False) for name in ACTING}
    both = offline_rl.configurations(offline_rl.Settings(settings.tasks, **raw))
    return [configuration | {"scaled": scaled} for configuration in both for scaled in (False, True)]


units = offline_rl.units


def run(configuration: dict, context: Context) -> list[dict]:
    """Prune and train one stack; one row a run and evaluation."""
    data = offline_rl.transitions(configuration, context.device)
    settings = configuration["settings"] | {"normalise": configuration["scaled"]}
    agent, rows = offline_rl.learn(configuration | {"settings": settings}, data, context)
    blind = unseen(agent, ACTING[configuration["algorithm"]], data.observations.shape[1])
    stack = offline_rl.runs(configuration, configuration["seed"])
    known = {(of.pruner, of.sparsity): number for of, number in zip(stack, blind, strict=True)}
    for row in rows:
        row |= {"scaled": configuration["scaled"], "unseen": known[row["pruner"], row["sparsity"]]}
    return [{name: row[name] for name in COLUMNS} for row in rows]


def unseen(agent: Agent, network: str, observations: int) -> list[int]:
    """Count, of each run, how many of a network's first inputs no weight leads away from."""
    weight = agent.networks[network].layers[0].weight[:, :, :observations]
    return (weight == 0).all(1).sum(1).tolist()


def aliases(configuration: dict) -> list[dict]:
    """List the form in which earlier sources keyed this configuration: neither bc nor plain_bc scaled by itself."""
    return [] if configuration["settings"]["normalise"] else offline_rl.formerly(configuration)
