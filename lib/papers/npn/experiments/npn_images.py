"""Train gates on images (paper 4, tables 1 to 3, figures 4 and 5): sparsify a network, expand one, and the fair rivals.

One configuration is one network, one data set, one seed and one direction of `lib.papers.npn.experiments.directions`:
LeNet-5 on MNIST (table 1), AlexNet on CIFAR-10 and CIFAR-100 (tables 2 and 3), a small LeNet on digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lib.base import refuse_unknown
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.papers.npn.experiments.directions import (
    COLUMNS,
    INDEX,
    KEYS,
    NETWORKS,
    Directions,
    aliases,
    needs,
    train_direction,
    units,
)
from lib.training.examples import Examples

__all__ = ["COLUMNS", "INDEX", "KEYS", "Settings", "aliases", "configurations", "needs", "run", "units"]


@dataclass(frozen=True)
class Task:
    """A task is one network on one data set, trained in all directions."""

    data: str
    network: str
    directions: Directions

    def __post_init__(self):
        refuse_unknown(self, data=vision.names(), network=NETWORKS)


@dataclass(frozen=True)
class Settings:
    """These settings name the tasks, each a network on a data set."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a direction and seed of a task each, with everything `run` needs."""
    return [one for task in settings.tasks for one in task.directions.configurations(task.data, task.network)]


def run(configuration: dict, context: Context, needed: Sequence[dict]) -> list[dict]:
    """Train one seed in one direction and return a row for each kept epoch."""
    data = vision.load(configuration["data"])
    build = partial(NETWORKS[configuration["network"]], data.classes)
    examples = Examples.of(data, context.device)
    return train_direction(configuration, build, examples, context, needed)
