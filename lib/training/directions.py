"""A network trained in both directions of paper 4, section 6, and the fair rivals of what comes out.

    sparsify   the whole network, all gates open, through the three stages with k = 7 in the second
    expand     the same network with few gates open, the others dormant, with k = 0.5 in the second
    dense      the whole network as an ordinary one (k = infinity throughout)
    magnitude  the dense network after stage 1, its units cut by magnitude to sparsify's final sizes, trained further
    fresh      an ordinary network of sparsify's final sizes from a new initialisation

All have the same seed and are trained for the same number of epochs in all. Dense starts its optimizer anew after
stage 1, as magnitude has to. Expand holds out a part of the training examples as its validation split; the others have
none. A final size is the number of units that are live: where sparsify leaves a gate open whose other end is closed,
its rivals do without that unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import Tensor, nn

from lib import pruners
from lib.errors import BadInput
from lib.jobs import Job
from lib.pruners import plasticity
from lib.pruners.plasticity.structure import spread
from lib.training.examples import Examples
from lib.training.plasticity import Plasticity, train
from lib.training.supervised import seed_of

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "direction", "seed", "epoch")
COLUMNS = (
    "data", "network", "direction", "stage", "seed", "epoch", "k", "accuracy", "regularised_loss", "architecture",
    "parameters", "parameters_live", "flops",
)  # fmt: skip


@dataclass(frozen=True)
class Directions:
    """How one network is trained.

    Attributes:
        seeds: each gives all directions.
        every: rows are kept of epochs that are multiples of this, and of each stage's last.
        start: gates of each layer that are open when the expansion starts.
        sparsify, expand: their training; the rivals have sparsify's.
    """

    seeds: tuple[int, ...]
    every: int
    start: tuple[int, ...]
    sparsify: Plasticity
    expand: Plasticity

    def __post_init__(self):
        if not self.seeds or self.every < 1:
            raise BadInput(f"seeds={self.seeds} and every={self.every}: expected a seed and a step of at least 1")
        if self.sparsify.expand or not self.expand.expand:
            raise BadInput("expand must be true in the settings of expand and false in those of sparsify")

    def configurations(self, data: str, network: str) -> list[dict]:
        """One a seed, with everything `train_directions` needs."""
        shared = {"data": data, "network": network} | asdict(self)
        del shared["seeds"]
        return [shared | {"seed": seed} for seed in self.seeds]


def units(configuration: dict) -> int:
    """Epochs of training in one configuration, at most."""
    first, *later = configuration["sparsify"]["epochs"]
    return sum(configuration["expand"]["epochs"]) + 3 * first + 4 * sum(later)


def train_directions(
    configuration: dict, build: Callable[[], nn.Module], layers: Sequence[str], examples: Examples, job: Job
) -> list[dict]:
    """Train one seed in all directions; one row a direction and kept epoch, columns COLUMNS.

    Args:
        configuration: one of `Directions.configurations`.
        build: makes the whole network, untrained.
        layers: those that get gates, see `plasticity.gated`.
    """
    seed = configuration["seed"]
    sparsify, expand = Plasticity(**configuration["sparsify"]), Plasticity(**configuration["expand"])
    first, later = sparsify.epochs[0], sum(sparsify.epochs[1:])
    sessions = Sessions({name: configuration[name] for name in KEYS}, examples, configuration["every"], job)

    def gated(network: nn.Module, k: float, start: Sequence[int | Tensor] | None = None) -> nn.Module:
        return plasticity.gated(network, layers, k=k, start=start, seed=seed_of(seed, 1))

    torch.manual_seed(seed_of(seed))
    network = build()
    sparse = gated(network, sparsify.k)
    sessions.train("sparsify", sparse, sparsify)
    sessions.train("expand", gated(network, expand.k, configuration["start"]), expand)
    counts = live_units(sparse, layers)

    dense = gated(network, sparsify.k)
    sessions.train("dense", dense, replace(sparsify, epochs=(first, 0, 0)))
    rest = replace(sparsify, epochs=(0, 0, later))
    plain = plasticity.harden(dense)  # all gates are exactly 1: its weights as they are
    sessions.train("dense", dense, rest, number=1, before=first)
    small, kept = cut(plain, layers, largest(plain, layers, counts))
    sessions.train("magnitude", gated(small, sparsify.k, kept), rest, number=1, before=first)
    torch.manual_seed(seed_of(seed, 2))
    small, kept = cut(other := build(), layers, largest(other, layers, counts))
    for module in small.modules():  # a layer's initial weights depend on its size, so they are drawn anew
        if isinstance(module, (nn.Linear, nn.Conv2d)) and module.weight.requires_grad:
            module.reset_parameters()
    sessions.train("fresh", gated(small, sparsify.k, kept), replace(sparsify, epochs=(first + later, 0, 0)))
    return sessions.rows


@dataclass
class Sessions:
    """Training sessions of one seed, and the rows that are kept of them.

    Attributes:
        key: the columns that tell this configuration's rows from those of others; its seed among them.
        every: see `Directions`.
        rows: what has been recorded so far.
    """

    key: Mapping[str, object]
    examples: Examples
    every: int
    job: Job
    rows: list[dict] = field(default_factory=list)

    def train(self, direction: str, model: nn.Module, settings: Plasticity, number: int = 0, before: int = 0) -> None:
        """Train the model and record it.

        Args:
            number: which session of the direction this is.
            before: epochs that the network has been trained already.
        """
        state = self.job.kept(f"{direction}_{number}.pt")
        history = train(
            model, self.examples, settings, self.key["seed"], number, state,
            advance=lambda: self.job.advance(direction),
        )  # fmt: skip
        for row, following in zip(history, [*history[1:], {"stage": None}], strict=True):
            if row["epoch"] % self.every == 0 or following["stage"] != row["stage"]:
                found = {**row, **self.key, "direction": direction, "epoch": before + row["epoch"]}
                self.rows.append({name: found[name] for name in dict.fromkeys((*self.key, *COLUMNS))})


def live_units(model: nn.Module, layers: Sequence[str]) -> list[int]:
    """How many units of each gated layer are live: those that `plasticity.harden` keeps."""
    found = plasticity.trace(model)
    ends = plasticity.live(found)
    return [int(ends[name][found[name].inputs is None].sum()) for name in layers]


def largest(network: nn.Module, layers: Sequence[str], counts: Sequence[int]) -> list[Tensor]:
    """Which units of each layer to keep, [units] bool: those whose weights there have the largest sum of |w|.

    Of a Linear its inputs, of a Conv2d its output channels (Li et al. 2016, the paper's reference 12); flattened
    positions are taken from kept channels, of each the largest first, so that none goes unread.
    """
    scores, sources = pruners.magnitude(network), channels(network, layers)
    kept: dict[str, Tensor] = {}
    for name, count in zip(layers, counts, strict=True):
        weights = scores[f"{name}.weight"].cpu()
        total = weights.sum(0) if weights.dim() == 2 else weights.sum((1, 2, 3))
        if name in sources:
            each = total.view(len(kept[sources[name]]), -1)
            each = torch.where(each == each.amax(1, keepdim=True), each + each.max(), each)
            total = torch.where(kept[sources[name]][:, None], each, -1).flatten()
        kept[name] = torch.zeros(len(total), dtype=torch.bool).index_fill(0, total.topk(count).indices, True)
    return list(kept.values())


def cut(network: nn.Module, layers: Sequence[str], kept: Sequence[Tensor]) -> tuple[nn.Module, list[Tensor]]:
    """The network without the units that are not kept, and which units of the smaller one shall be open.

    These are all but flattened positions of channels that stay: a position alone cannot be cut out of a convolution.

    Args:
        kept: for each layer [units] bool, from `largest`.
    """
    sources, kept = channels(network, layers), dict(zip(layers, kept, strict=True))
    start = [torch.ones_like(units) if name in sources else units for name, units in kept.items()]
    model = plasticity.gated(network, layers, start=start)
    plasticity.set_k(model, plasticity.INFINITE)
    left = [
        units[spread(kept[sources[name]], len(units))] if name in sources else units[units]
        for name, units in kept.items()
    ]
    return plasticity.harden(model), left


def channels(network: nn.Module, layers: Sequence[str]) -> dict[str, str]:
    """Which of the layers read flattened channels, and of which convolution among the layers."""
    found = plasticity.trace(network)
    sources = {name: found[name].source for name in layers if isinstance(found[name].module, nn.Linear)}
    return {
        name: source for name, source in sources.items()
        if source in layers and isinstance(found[source].module, nn.Conv2d)
    }  # fmt: skip
