"""Compare one round of pruning with several (paper 1, section 4: "number of pruning iterations").

In several rounds each removes the same share of what is left, and the rest is scored anew: what has become important
because something else went can still be spared. So the paper's "pruning iterations" are read here, by which it saw no
improvement and of which it prints no numbers; they may also mean more batches before one mask.

The runs of a seed are one stack: the dense agent, and each pruner with each number of rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from lib.base import BadInput
from lib.companion.sweep.context import Context
from lib.papers.offline_rl.experiments import offline_rl
from lib.training.offline import Run

KEYS = offline_rl.KEYS
INDEX = ("data", "env", "algorithm", "variant", "pruner", "sparsity", "rounds", "batches", "seed", "step")
COLUMNS = (*INDEX, "return", "normalised_return")


@dataclass(frozen=True)
class Settings(offline_rl.Settings):
    """Hold the settings of `offline_rl`, and the numbers of rounds to compare: 1 and others."""

    rounds: tuple[int, ...] = (1, 5)

    def __post_init__(self):
        if min(self.rounds, default=0) != 1 or len(set(self.rounds)) < max(2, len(self.rounds)):
            raise BadInput(f"rounds={list(self.rounds)}: expected 1 and larger numbers to compare with it")


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return [each | {"rounds": list(settings.rounds)} for each in offline_rl.configurations(settings)]


units = offline_rl.units


def run(configuration: dict, context: Context) -> list[dict]:
    """Prune and train one stack; one row a run and evaluation."""
    dense, *pruned = offline_rl.runs(configuration, configuration["seed"])
    stack = [
        dense,
        *(Run(of.seed, of.pruner, of.sparsity, rounds) for of in pruned for rounds in configuration["rounds"]),
    ]
    _, rows = offline_rl.learn(
        configuration, offline_rl.transitions(configuration, context.device), context, stack=stack
    )
    return [{name: row[name] for name in COLUMNS} for row in rows]


aliases = offline_rl.aliases


def upgrade(rows: pd.DataFrame) -> pd.DataFrame:
    """Fill in the variant of rows that were computed before there were variants, as `offline_rl.upgrade` does."""
    return offline_rl.with_variant(rows)[list(COLUMNS)]
