"""Run what the parts of the method do (paper 4, sections 2, 3 and 6): one setting changed at a time.

One configuration is one variant and one seed: a single session of a network through its stages. The variants
stand in params.yaml; tau, the slope k, the stages, lambda and its sign, the gates' g and the estimator differ.
Rows are kept of the end of each stage, one for each tau. tau tells open from closed at the end of stage 2 alone: in
stage 3 gates are exactly 0 or 1, those open that were at the gates' own tau, and without an expansion nothing before
asks for it. So one session is measured at several.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

import torch

from lib.base import BadInput, Count, Range, refuse_unknown
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.papers.npn.experiments import directions
from lib.papers.npn.experiments.directions import NETWORKS, Sessions, as_kept
from lib.pruners import gates
from lib.training.examples import Examples
from lib.training.gated import GatedTraining
from lib.training.seeds import seed_of

KEYS = ("data", "network", "variant", "seed")
INDEX = (*KEYS, "tau", "epoch")
COLUMNS = ("variant", "tau", *directions.COLUMNS)


@dataclass(frozen=True)
class Variant:
    """A variant is one way to train.

    Attributes:
        start: gates of each layer that are open at first; none given: all.
        kind: see `gates.gated`.
        taus: thresholds at which the network is measured; the first is the gates' own.
    """

    name: str
    training: GatedTraining
    start: tuple[Count, ...] = ()
    kind: str = "sigmoid"
    taus: tuple[Annotated[float, Range(0, 1)], ...] = (0.5,)

    def __post_init__(self):
        refuse_unknown(self, kind=gates.KINDS)
        if not self.taus or len(set(self.taus)) < len(self.taus):
            raise BadInput(f"variant {self.name!r}: taus={list(self.taus)}: expected at least one, each once")


@dataclass(frozen=True)
class Settings:
    """These settings name the variants of one network on one data set; each is trained with every seed."""

    seeds: tuple[Annotated[int, Range(0)], ...]
    variants: tuple[Variant, ...]
    data: str = "digits"
    network: str = "small_lenet"

    def __post_init__(self):
        refuse_unknown(self, data=vision.names(), network=NETWORKS)
        names = [variant.name for variant in self.variants]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadInput(f"two variants are called {twice[0]!r}")


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a variant each, with everything `run` needs."""
    return [
        {"data": settings.data, "network": settings.network, "variant": variant.name, "seed": seed}
        | {name: value for name, value in asdict(variant).items() if name != "name"}
        | {"training": as_kept(variant.training)}
        for variant in settings.variants
        for seed in settings.seeds
    ]


def aliases(configuration: dict) -> list[dict]:
    """Return the earlier forms of a configuration, see `directions.aliases`."""
    return directions.aliases(configuration)


def units(configuration: dict) -> int:
    """Count the epochs of training in one configuration, at most."""
    return sum(configuration["training"]["epochs"])


def run(configuration: dict, context: Context) -> list[dict]:
    """Train one variant and return a row for each stage."""
    seed, settings = configuration["seed"], GatedTraining(**configuration["training"])
    data = vision.load(configuration["data"])
    sessions = Sessions(
        {name: configuration[name] for name in KEYS},
        Examples.of(data, context.device),
        every=sum(settings.epochs) + 1,  # ends of stages only
        context=context,
        taus=configuration["taus"],
    )
    torch.manual_seed(seed_of(seed))
    model = gates.gated(
        NETWORKS[configuration["network"]](data.classes),
        k=settings.first_k,
        kind=configuration["kind"],
        tau=configuration["taus"][0],
        start=configuration["start"] or None,
        seed=seed_of(seed, 1),
    )
    sessions.train("expand" if settings.expand else "sparsify", model, settings)
    return sessions.rows
