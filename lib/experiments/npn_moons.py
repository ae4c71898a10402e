"""Plasticity on the two moons (paper 4, section 6.1, figure 3): sparsify a network, expand one, and the fair rivals.

One configuration is one seed and one direction of `lib.training.directions`. The whole network is
2-100 (fixed)-80-2; the expansion starts with 3 and 3 gates open.
"""

from __future__ import annotations

from collections.abc import Sequence

from lib.data import vision
from lib.jobs import Job
from lib.models.plain import moons_mlp
from lib.training.directions import COLUMNS, INDEX, KEYS, Directions, needs, train_direction, units
from lib.training.examples import Examples

__all__ = ["COLUMNS", "INDEX", "KEYS", "Settings", "configurations", "needs", "run", "units"]

DATA, NETWORK = "moons", "moons_mlp"

Settings = Directions


def configurations(settings: Settings) -> list[dict]:
    """The grid: a direction and seed each, with everything `run` needs."""
    return settings.configurations(DATA, NETWORK)


def run(configuration: dict, job: Job, needed: Sequence[dict]) -> list[dict]:
    """Train one seed in one direction; one row a kept epoch."""
    examples = Examples.of(vision.load(DATA), job.device)
    return train_direction(configuration, moons_mlp, examples, job, needed)
