"""Plasticity on the two moons (paper 4, section 6.1, figure 3): sparsify a network, expand one, and the fair rivals.

One configuration is one seed, trained in all directions. Each is trained for the same number of epochs in all:

    sparsify   2-100 (fixed)-80-2, all gates open, through the three stages with k = 7 in the second
    expand     the same network with 3 and 3 gates open, the others dormant, with k = 0.5 in the second
    dense      2-100 (fixed)-80-2 as an ordinary network (k = infinity throughout)
    magnitude  the dense network after stage 1, its neurons cut by magnitude to sparsify's final sizes, trained further
    fresh      an ordinary network of sparsify's final sizes from a new initialisation

Dense starts its optimizer anew after stage 1, as magnitude has to. Expand holds out a part of the training examples as
its validation split; the others have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor, nn

from lib import pruners
from lib.data import vision
from lib.errors import BadInput
from lib.jobs import Job
from lib.models.plain import moons_mlp
from lib.pruners import plasticity
from lib.training.examples import Examples
from lib.training.plasticity import Plasticity, train
from lib.training.supervised import seed_of

DATA, NETWORK = "moons", "moons_mlp"
GATED = ("fc1", "fc2")  # on the inputs of these: the 100 features and the 80 neurons

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "direction", "seed", "epoch")
COLUMNS = (
    "data", "network", "direction", "stage", "seed", "epoch", "k", "accuracy", "regularised_loss", "architecture",
    "parameters", "parameters_live", "flops",
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What is varied.

    Attributes:
        seeds: how many, from 0.
        every: rows are kept of epochs that are multiples of this, and of each stage's last.
        start: gates that are open when the expansion starts.
        sparsify, expand: their training.
    """

    seeds: int
    every: int
    start: tuple[int, ...]
    sparsify: Plasticity
    expand: Plasticity

    def __post_init__(self):
        if self.seeds < 1 or self.every < 1:
            raise BadInput(f"seeds={self.seeds} and every={self.every} must be at least 1")
        if self.sparsify.expand or not self.expand.expand:
            raise BadInput("expand must be true in the settings of expand and false in those of sparsify")


def configurations(settings: Settings) -> list[dict]:
    """The grid: a seed each, with everything `run` needs."""
    shared = {"data": DATA, "network": NETWORK, "every": settings.every, "start": settings.start}
    shared |= {"sparsify": asdict(settings.sparsify), "expand": asdict(settings.expand)}
    return [shared | {"seed": seed} for seed in range(settings.seeds)]


def units(configuration: dict) -> int:
    """Epochs of training in one configuration, at most."""
    first, *later = configuration["sparsify"]["epochs"]
    return sum(configuration["expand"]["epochs"]) + 3 * first + 4 * sum(later)


def run(configuration: dict, job: Job) -> list[dict]:
    """Train one seed in all directions; one row a direction and kept epoch."""
    seed = configuration["seed"]
    sparsify, expand = Plasticity(**configuration["sparsify"]), Plasticity(**configuration["expand"])
    examples = Examples.of(vision.load(DATA), job.device)
    first, later = sparsify.epochs[0], sum(sparsify.epochs[1:])
    rows: list[dict] = []

    def session(direction: str, model: nn.Module, settings: Plasticity, number: int = 0, before: int = 0) -> str:
        """Train, record, and say which architecture comes out."""
        state = None if job.folder is None else job.folder / f"{direction}_{number}.pt"
        history = train(model, examples, settings, seed, number, state, advance=lambda: job.advance(direction))
        key = {"data": DATA, "network": NETWORK, "direction": direction, "seed": seed}
        for row, following in zip(history, [*history[1:], {"stage": None}], strict=True):
            if row["epoch"] % configuration["every"] == 0 or following["stage"] != row["stage"]:
                found = {**row, **key, "epoch": before + row["epoch"]}
                rows.append({name: found[name] for name in COLUMNS})
        return history[-1]["architecture"]

    def gated(network: nn.Module, k: float, start: Sequence[int | Tensor] | None = None) -> nn.Module:
        return plasticity.gated(network, GATED, k=k, start=start, seed=seed_of(seed, 1))

    torch.manual_seed(seed_of(seed))
    network = moons_mlp()
    found = session("sparsify", gated(network, sparsify.k), sparsify)
    session("expand", gated(network, expand.k, configuration["start"]), expand)

    dense = gated(network, sparsify.k)
    session("dense", dense, replace(sparsify, epochs=(first, 0, 0)))
    rest = replace(sparsify, epochs=(0, 0, later))
    features, hidden = map(int, found.split("-")[1:-1])
    plain = plasticity.harden(dense)  # all gates are exactly 1: its weights as they are
    session("dense", dense, rest, number=1, before=first)
    cut = gated(plain, sparsify.k, largest(plain, (features, hidden)))
    session("magnitude", cut, rest, number=1, before=first)
    torch.manual_seed(seed_of(seed, 2))
    small = gated(moons_mlp(features, hidden), sparsify.k)
    session("fresh", small, replace(sparsify, epochs=(first + later, 0, 0)))
    return rows


def largest(network: nn.Module, counts: Sequence[int]) -> list[Tensor]:
    """Which inputs of each gated layer to keep, [units] bool: those whose weights have the largest sum of |w|."""
    scores = pruners.magnitude(network)
    kept = []
    for name, count in zip(GATED, counts, strict=True):
        total = scores[f"{name}.weight"].sum(0)
        kept.append(torch.zeros(len(total), dtype=torch.bool).index_fill(0, total.topk(count).indices.cpu(), True))
    return kept
