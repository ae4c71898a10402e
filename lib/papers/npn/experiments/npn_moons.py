"""Train gates on the two moons (paper 4, section 6.1, figure 3): sparsify a network, expand one, and the fair rivals.

One configuration is one seed and one direction of `lib.papers.npn.experiments.directions`. The whole network is
2-100 (fixed)-80-2; the expansion starts with 3 and 3 gates open. The points are the same for all seeds, or each seed
draws its own: then an interval over seeds is one over samples of the moons as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lib.base import BadInput
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.models.plain import moons_mlp
from lib.papers.npn.experiments import directions
from lib.papers.npn.experiments.directions import COLUMNS, INDEX, KEYS, Directions, needs, train_direction, units
from lib.training.examples import Examples

__all__ = ["COLUMNS", "INDEX", "KEYS", "Settings", "aliases", "configurations", "needs", "run", "units"]

DATA, NETWORK = "moons", "moons_mlp"
POINTS = {"drawn_per_seed": False, "test_points": vision.TEST}  # as all runs had them before there was a choice


@dataclass(frozen=True)
class Settings(Directions):
    """These settings say how the network is trained, and on which points.

    Attributes:
        drawn_per_seed: whether each seed draws its own points; otherwise all have those of `vision.load("moons")`.
        test_points: how many points the networks are tested on, beside the 500 that they are trained on. Where all
            seeds share their points there are 500.
    """

    drawn_per_seed: bool = POINTS["drawn_per_seed"]
    test_points: int = POINTS["test_points"]

    def __post_init__(self):
        super().__post_init__()
        if self.test_points < 1 or (not self.drawn_per_seed and self.test_points != vision.TEST):
            given = f"test_points={self.test_points}, drawn_per_seed={self.drawn_per_seed}"
            raise BadInput(f"{given}: expected at least 1 point, and {vision.TEST} where all seeds share their points")


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a direction and seed each, with everything `run` needs."""
    points = {name: getattr(settings, name) for name in POINTS}
    return [one | points for one in settings.configurations(DATA, NETWORK)]


def aliases(configuration: dict) -> list[dict]:
    """Return the earlier forms of a configuration (see `directions.aliases`); at first, seeds shared their points."""
    found = directions.aliases(configuration)
    if any(configuration[name] != value for name, value in POINTS.items()):
        return found
    shared = {name: value for name, value in configuration.items() if name not in POINTS}
    return [*found, *directions.aliases(shared)]


def run(configuration: dict, context: Context, needed: Sequence[dict]) -> list[dict]:
    """Train one seed in one direction and return a row for each kept epoch."""
    if configuration["drawn_per_seed"]:
        data = vision.moons(configuration["seed"], configuration["test_points"])
    else:
        data = vision.load(DATA)
    return train_direction(configuration, moons_mlp, Examples.of(data, context.device), context, needed)
